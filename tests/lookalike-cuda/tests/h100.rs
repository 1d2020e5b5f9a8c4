//! The machine that real programs run on, and the table of entry points.

#![allow(clippy::borrow_as_ptr, clippy::macro_metavars_in_unsafe, reason = "tests call as C does")]

mod support;

use std::collections::BTreeSet;
use std::ffi::{CStr, c_int, c_void};
use std::ptr::null_mut;
use std::sync::mpsc::{Receiver, Sender, channel};
use support::header::*;
use support::{Driver, child, in_process, library, text};

fn counter(d: &Driver, name: &CStr) -> u64 {
    let counter = d.symbol::<unsafe extern "C" fn(*const std::ffi::c_char) -> u64>("fakegpu_counter_named");
    // SAFETY: a text of C.
    unsafe { counter(name.as_ptr()) }
}

/// Blocks a stream until the sender sends.
fn block(d: &Driver, stream: CUstream) -> Sender<()> {
    extern "C" fn wait(gate: *mut c_void) {
        // SAFETY: `block` gives every call a box of its own.
        let gate = unsafe { Box::from_raw(gate.cast::<Receiver<()>>()) };
        let _ = gate.recv();
    }
    let (open, gate) = channel::<()>();
    ok!(d.cuLaunchHostFunc(stream, Some(wait), Box::into_raw(Box::new(gate)).cast()));
    open
}

#[test]
fn every_entry_point_is_exported_and_none_is_in_two_tables() {
    in_process("every_entry_point_is_exported_and_none_is_in_two_tables", "", || {
        let d = &Driver::load(&library());
        let mut known = BTreeSet::new();
        for name in lookalike_cuda::entries().map(|entry| entry.name) {
            assert!(d.exports(name) && known.insert(name), "{name}");
        }
        assert!(known.len() > 150);
    });
}

fn what_memory_was_asked_for_is_counted(d: &Driver) {
    let memory = d.memory(4096);
    assert_eq!(cu!(d.cuMemAlloc_v2(&mut 0, 1 << 40)), CUDA_ERROR_OUT_OF_MEMORY);
    ok!(d.cuMemFree_v2(memory));
    assert_eq!(cu!(d.cuMemFree_v2(memory)), CUDA_ERROR_INVALID_VALUE);
    let counts = [c"cudaMalloc", c"cudaMalloc_failed", c"cudaFree", c"bad_call"].map(|name| counter(d, name));
    assert_eq!(counts, [2, 1, 1, 1]);
}

#[test]
fn the_variables_of_estimate_describe_the_machine() {
    let test = "the_variables_of_estimate_describe_the_machine";
    if std::env::var_os("FAKE_GPU_COUNT").is_some() {
        let d = &Driver::load(&library());
        assert_eq!(d.symbol::<extern "C" fn() -> c_int>("fakegpu_device_count")(), 3, "before cuInit");
        d.enter(2);
        let (mut free, mut total, mut version, mut processors) = (0, 0, 0, 0);
        ok!(d.cuMemGetInfo_v2(&mut free, &mut total));
        assert_eq!((total, total - free), (3 << 29, 5 << 20));
        ok!(d.cuDriverGetVersion(&mut version));
        assert_eq!(version, 13_020);
        ok!(d.cuDeviceGetAttribute(&mut processors, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 0));
        assert_eq!(processors, 132);
        // An image that is no text, and a kernel of any name.
        let (mut module, mut kernel) = (null_mut(), null_mut());
        ok!(d.cuModuleLoadData(&mut module, [0x7f_u8, 0xff, 0].as_ptr().cast()));
        ok!(d.cuModuleGetFunction(&mut kernel, module, c"any".as_ptr()));
        let launch =
            || ok!(d.cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, null_mut(), null_mut(), null_mut()));
        // Two kernels late, or once waited for.
        let event = d.event(0);
        ok!(d.cuEventRecord(event, null_mut()));
        launch();
        assert_eq!(cu!(d.cuEventQuery(event)), CUDA_ERROR_NOT_READY);
        launch();
        ok!(d.cuEventQuery(event));
        let waited_for = [cu!(d.cuEventRecord(event, null_mut())), cu!(d.cuEventSynchronize(event))];
        assert_eq!((waited_for, cu!(d.cuEventQuery(event))), ([CUDA_SUCCESS; 2], CUDA_SUCCESS));
        for (name, wanted) in [
            (c"kernel_launch", 2),
            (c"event_query", 3),
            (c"event_not_ready", 1),
            (c"cudaMalloc", 0),
            (c"bad_call", 0),
            (c"nonsense", 0),
        ] {
            assert_eq!(counter(d, name), wanted, "{name:?}");
        }
        what_memory_was_asked_for_is_counted(d);
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("%p.json");
    let variables = [
        ("FAKE_GPU_COUNT", "3"),
        ("FAKE_GPU_MEM_GB", "1.5"),
        ("FAKE_GPU_CTX_MB", "5"),
        ("FAKE_GPU_EVENT_LAG", "2"),
        ("FAKE_GPU_STATS", file.to_str().unwrap()),
    ];
    let output = child(test, "h100", &variables).output().unwrap();
    assert!(output.status.success(), "{}", text(&output));
    let written = std::fs::read_dir(folder.path()).unwrap().next().expect("statistics").unwrap().path();
    let said = std::fs::read_to_string(written).unwrap();
    assert!(said.contains("\"capacity\": 1610612736") && said.contains("\"kernel_launch\": 2"), "{said}");
}

#[test]
fn the_default_stream_and_blocking_streams_wait_for_each_other() {
    in_process("the_default_stream_and_blocking_streams_wait_for_each_other", "h100,memory=mapped", || {
        let d = &Driver::load(&library());
        d.enter(0);
        let (mut blocking, free) = (null_mut(), d.stream());
        ok!(d.cuStreamCreateWithPriority(&mut blocking, CU_STREAM_DEFAULT, 0));
        let event = d.event(CU_EVENT_DISABLE_TIMING);
        for (held, waits) in [(blocking, CU_STREAM_LEGACY), (CU_STREAM_LEGACY, blocking)] {
            let open = block(d, held);
            ok!(d.cuEventRecord(event, free));
            ok!(d.cuEventQuery(event));
            ok!(d.cuEventRecord(event, waits));
            assert_eq!(cu!(d.cuEventQuery(event)), CUDA_ERROR_NOT_READY);
            open.send(()).unwrap();
            ok!(d.cuEventSynchronize(event));
        }
        assert_eq!(counter(d, c"bad_call"), 0);
    });
}

/// The explicit handle of the default stream.
const CU_STREAM_LEGACY: CUstream = std::ptr::without_provenance_mut(1);

#[test]
fn words_and_rows_arrive() {
    in_process("words_and_rows_arrive", "h100,memory=mapped", || {
        let d = &Driver::load(&library());
        d.enter(0);
        let memory = d.memory(4096);
        ok!(d.cuMemsetD32_v2(memory, 0x0102_0304, 4));
        ok!(d.cuMemsetD16Async(memory + 4, 0x0506, 2, null_mut()));
        ok!(d.cuStreamWriteValue32_v2(null_mut(), memory + 8, 7, 0));
        assert_eq!(cu!(d.cuMemsetD32_v2(memory + 2, 1, 1)), CUDA_ERROR_INVALID_VALUE);
        let mut words = [0_u32; 4];
        let mut rows = CUDA_MEMCPY2D {
            srcXInBytes: 0,
            srcY: 0,
            srcMemoryType: CU_MEMORYTYPE_DEVICE,
            srcHost: std::ptr::null(),
            srcDevice: memory,
            srcArray: null_mut(),
            srcPitch: 8,
            dstXInBytes: 0,
            dstY: 0,
            dstMemoryType: CU_MEMORYTYPE_HOST,
            dstHost: words.as_mut_ptr().cast(),
            dstDevice: 0,
            dstArray: null_mut(),
            dstPitch: 4,
            WidthInBytes: 4,
            Height: 2,
        };
        ok!(d.cuMemcpy2D_v2(&rows));
        rows.dstHost = words[2..].as_mut_ptr().cast();
        rows.srcXInBytes = 4;
        ok!(d.cuMemcpy2DAsync_v2(&rows, null_mut()));
        assert_eq!(words, [0x0102_0304, 7, 0x0506_0506, 0x0102_0304]);
    });
}

#[test]
fn a_capture_takes_nodes_by_hand() {
    in_process("a_capture_takes_nodes_by_hand", "h100", || {
        let d = &Driver::load(&library());
        d.enter(0);
        let stream = d.stream();
        ok!(d.cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
        ok!(d.cuLaunchKernel(null_mut(), 1, 1, 1, 1, 1, 1, 0, stream, null_mut(), null_mut()));
        assert_eq!(counter(d, c"kernel_launch"), 0, "it was captured");
        let (mut status, mut graph, mut last, mut count) = (0, null_mut(), std::ptr::null(), 0);
        ok!(d.cuStreamGetCaptureInfo_v2(stream, &mut status, null_mut(), &mut graph, &mut last, &mut count));
        assert_eq!(count, 1);
        let mut marker = null_mut();
        ok!(d.cuGraphAddEmptyNode(&mut marker, graph, last, count));
        let set = CU_STREAM_SET_CAPTURE_DEPENDENCIES;
        ok!(d.cuStreamUpdateCaptureDependencies(stream, &mut marker, 1, set));
        let mut kind = 0;
        ok!(d.cuGraphNodeGetType(marker, &mut kind));
        assert_eq!(kind, CU_GRAPH_NODE_TYPE_EMPTY);
        ok!(d.cuStreamEndCapture(stream, &mut graph));
        let mut roots = 0;
        ok!(d.cuGraphGetRootNodes(graph, null_mut(), &mut roots));
        assert_eq!(roots, 1);
        let mut executable = null_mut();
        ok!(d.cuGraphInstantiateWithFlags(&mut executable, graph, 0));
        ok!(d.cuGraphLaunch(executable, stream));
        assert_eq!(counter(d, c"graph_launch"), 1);
    });
}
