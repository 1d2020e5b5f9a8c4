//! Whose the memory of a device is, as drivers tell it: graphs, and devices that processes count differently.

use alloc_core::CachingAllocator;
use alloc_core::backend::{Backend, CaptureMode, ErrorKind};
use alloc_core::config::Settings;
use alloc_core::graph::GraphCapture;
use alloc_core::ledger::DeviceLedger;
use alloc_core::types::{DeviceIndex, MIB};
use backend_cuda::Cuda;
use backend_hip::Hip;
use backend_openreg::{OpenReg, OpenRegConfig};
use granule_tests::alone::over_lookalikes;
use granule_tests::rig::DEVICE;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier};
use tempfile::TempDir;

fn ledger(allocator: &CachingAllocator, device: DeviceIndex) -> DeviceLedger {
    allocator.statistics().ledger(device).unwrap()
}

/// The driver's own memory for a graph was nobody's: `unaccounted`.
fn graphs_are_measured(backend: Arc<dyn Backend>) {
    let stream = backend.create_stream(DEVICE, 0).unwrap();
    let allocator = Arc::new(CachingAllocator::new(backend.clone(), Settings::default()).unwrap());
    let captured = || {
        let capture = GraphCapture::begin(&allocator, stream, CaptureMode::Relaxed, None).unwrap();
        let block = allocator.malloc(2 * MIB, stream).unwrap();
        // SAFETY: rule 2: the block is live.
        unsafe { backend.memset_async(block, 1, 2 * MIB, stream) }.unwrap();
        allocator.free(block).unwrap();
        capture.end().unwrap()
    };
    let (mut one, mut two) = (captured(), captured());
    assert_eq!((ledger(&allocator, DEVICE).graphs, one.driver_memory()), (0, None));
    for _ in 0..3 {
        // SAFETY: its memory is that of its pool.
        unsafe { one.launch(stream) }.unwrap();
    }
    // SAFETY: as above.
    unsafe { two.launch(stream) }.unwrap();
    backend.synchronize_stream(stream).unwrap();
    let told = ledger(&allocator, DEVICE);
    assert_eq!((one.driver_memory(), two.driver_memory()), (Some(6 * MIB), Some(6 * MIB)));
    assert_eq!((told.graphs, told.unaccounted, told.sum()), (12 * MIB, 0, told.used));
    drop(one);
    let told = ledger(&allocator, DEVICE);
    assert_eq!((told.graphs, told.unaccounted), (6 * MIB, 0));
    drop(two);
    assert_eq!(ledger(&allocator, DEVICE).graphs, 0);
    // SAFETY: nothing is queued on it any more.
    unsafe { backend.destroy_stream(stream) }.unwrap();
}

/// Two that were measured at the same time each had what the other took, and what another thread took or gave back.
fn graphs_are_measured_once(backend: Arc<dyn Backend>) {
    const THREADS: usize = 4;
    let allocator = Arc::new(CachingAllocator::new(backend.clone(), Settings::default()).unwrap());
    let over = AtomicBool::new(false);
    // Looked at when all threads have ended.
    let (mut found, mut left) = (Vec::new(), Vec::new());
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let stream = backend.default_stream(DEVICE);
            while !over.load(Ordering::Relaxed) {
                let block = allocator.malloc(64 * MIB, stream).unwrap();
                allocator.free(block).unwrap();
                allocator.empty_cache().unwrap();
            }
        });
        for _ in 0..12 {
            // Captured one after the other: the threads only launch.
            let captured = || {
                let stream = backend.create_stream(DEVICE, 0).unwrap();
                let capture = GraphCapture::begin(&allocator, stream, CaptureMode::Relaxed, None).unwrap();
                (capture.end().unwrap(), stream)
            };
            let mut graphs: Vec<_> = (0..THREADS).map(|_| captured()).collect();
            let ready = Barrier::new(THREADS);
            std::thread::scope(|scope| {
                for (graph, stream) in &mut graphs {
                    scope.spawn(|| {
                        ready.wait();
                        // SAFETY: it has no work.
                        unsafe { graph.launch(*stream) }.unwrap();
                    });
                }
            });
            found.push(graphs.iter().map(|(graph, _)| graph.driver_memory()).collect::<Vec<_>>());
            std::thread::scope(|scope| {
                for (graph, stream) in graphs {
                    let backend = &backend;
                    scope.spawn(move || {
                        backend.synchronize_stream(stream).unwrap();
                        drop(graph);
                        // SAFETY: nothing is queued on it any more.
                        unsafe { backend.destroy_stream(stream) }.unwrap();
                    });
                }
            });
            left.push(ledger(&allocator, DEVICE).graphs);
        }
        over.store(true, Ordering::Relaxed);
    });
    assert_eq!(found, [[Some(6 * MIB); THREADS]; 12]);
    assert_eq!(left, [0; 12]);
}

#[test]
fn cuda_graphs_that_are_first_launched_at_once_are_measured_once() {
    over_lookalikes("graph=6MiB", || graphs_are_measured_once(Cuda::load().unwrap()));
}

#[test]
fn hip_graphs_that_are_first_launched_at_once_are_measured_once() {
    over_lookalikes("graph=6MiB", || graphs_are_measured_once(Hip::load().unwrap()));
}

/// What the driver keeps for the memory that graphs allocate themselves was nobody's, also after the graphs' end. It is told of
/// graphs that others made, too.
fn memory_nodes_are_told(backend: Arc<dyn Backend>) {
    let stream = backend.create_stream(DEVICE, 0).unwrap();
    let allocator = Arc::new(CachingAllocator::new(backend.clone(), Settings::default()).unwrap());
    assert_eq!((backend.graph_memory(DEVICE), ledger(&allocator, DEVICE).graphs), (Ok(0), 0));
    let capture = backend.capture().unwrap();
    capture.begin(stream, CaptureMode::Relaxed).unwrap();
    let foreign = capture.end(stream).unwrap();
    // SAFETY: it has no work.
    unsafe { capture.launch(foreign, stream) }.unwrap();
    let told = ledger(&allocator, DEVICE);
    assert_eq!((told.graphs, told.unaccounted, told.sum()), (4 * MIB, 6 * MIB, told.used));
    let mut own = GraphCapture::begin(&allocator, stream, CaptureMode::Relaxed, None).unwrap().end().unwrap();
    // SAFETY: it has no work.
    unsafe { own.launch(stream) }.unwrap();
    let told = ledger(&allocator, DEVICE);
    assert_eq!((told.graphs, told.unaccounted), (10 * MIB, 6 * MIB), "its own, and the nodes' once");
    backend.synchronize_stream(stream).unwrap();
    drop(own);
    // SAFETY: made above, and not used again.
    unsafe { capture.destroy_graph(foreign) }.unwrap();
    let told = ledger(&allocator, DEVICE);
    assert_eq!((told.graphs, told.unaccounted, told.used), (4 * MIB, 0, 4 * MIB), "it is kept");
    // SAFETY: nothing is queued on it any more.
    unsafe { backend.destroy_stream(stream) }.unwrap();
}

#[test]
fn what_cuda_keeps_for_memory_nodes_is_told() {
    over_lookalikes("graph=6MiB,graph-nodes=4MiB", || memory_nodes_are_told(Cuda::load().unwrap()));
}

#[test]
fn what_hip_keeps_for_memory_nodes_is_told() {
    over_lookalikes("graph=6MiB,graph-nodes=4MiB", || memory_nodes_are_told(Hip::load().unwrap()));
}

#[test]
fn a_backend_that_does_not_tell_what_nodes_hold_leaves_it_unaccounted() {
    let backend: Arc<dyn Backend> = OpenReg::new(OpenRegConfig::default()).unwrap();
    assert_eq!(backend.graph_memory(DEVICE).unwrap_err().kind, ErrorKind::NotSupported);
    let allocator = CachingAllocator::new(backend, Settings::default()).unwrap();
    assert_eq!(ledger(&allocator, DEVICE).graphs, 0);
}

#[test]
fn what_a_cuda_graph_holds_beyond_its_pool_is_measured() {
    over_lookalikes("graph=6MiB", || graphs_are_measured(Cuda::load().unwrap()));
}

#[test]
fn what_a_hip_graph_holds_beyond_its_pool_is_measured() {
    over_lookalikes("graph=6MiB", || graphs_are_measured(Hip::load().unwrap()));
}

/// A library made of `management.c`.
fn management_library(folder: &Path) -> std::path::PathBuf {
    let library = folder.join("libmanagement.so");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/process/management.c");
    let made = Command::new("cc").args(["-shared", "-fPIC", "-o"]).arg(&library).arg(source).status();
    assert!(made.expect("there is a C compiler").success());
    library
}

#[test]
fn what_the_vendor_says_of_processes_is_in_the_ledger() {
    over_lookalikes("context=400MiB,capacity=1GiB", || {
        let folder = TempDir::new().unwrap();
        let backend: Arc<dyn Backend> = Cuda::load().unwrap();
        let allocator = CachingAllocator::new(backend, Settings::default()).unwrap();
        let name = |library: &Path| {
            // SAFETY: no other thread of this process reads or writes the environment now.
            unsafe { std::env::set_var(backend_cuda::MANAGEMENT_VARIABLE, library) };
        };
        name(Path::new("/nowhere/libnvidia-ml.so.1"));
        let absent = granule::backends::tell_processes(&allocator).unwrap_err();
        assert!(
            absent.contains("/nowhere/libnvidia-ml.so.1") && absent.contains("GRANULE_NVML_LIBRARY"),
            "{absent}"
        );
        assert_eq!(
            (ledger(&allocator, DEVICE).process_other, ledger(&allocator, DEVICE).unaccounted),
            (0, 400 * MIB)
        );
        name(&management_library(folder.path()));
        granule::backends::tell_processes(&allocator).unwrap();
        let told = ledger(&allocator, DEVICE);
        assert_eq!((told.process_other, told.others(), told.unaccounted), (300 * MIB, 8 * MIB, 92 * MIB));
        assert_eq!(told.other_processes.len(), 8, "one is not known");
        let stream = allocator.backend().default_stream(DEVICE);
        let block = allocator.malloc(64 * MIB, stream).unwrap();
        assert_eq!(
            ledger(&allocator, DEVICE).process_other,
            236 * MIB,
            "the allocator's bytes are in its figure"
        );
        allocator.free(block).unwrap();
    });
}

/// Where figures of the user's processes are.
const ROOT: &str = "GRANULE_TEST_ROOT";

fn publishing(root: &Path) -> CachingAllocator {
    let settings = Settings { publish: true, system_root: root.to_owned(), ..Settings::default() };
    CachingAllocator::new(Cuda::load().unwrap(), settings).unwrap()
}

/// What the second process does: it takes memory of its first device, and waits.
#[test]
fn neighbour() {
    let Some(root) = std::env::var_os(ROOT) else { return };
    let allocator = publishing(Path::new(&root));
    let stream = allocator.backend().default_stream(DeviceIndex(0));
    let block = allocator.malloc(64 * MIB, stream).unwrap();
    println!("\n> taken");
    std::io::stdin().lines().next();
    allocator.free(block).unwrap();
}

#[test]
fn devices_are_told_apart_by_uuid_where_processes_count_them_differently() {
    over_lookalikes("personality=permuted", || {
        let root = TempDir::new().unwrap();
        let allocator = publishing(root.path());
        let mut other = Command::new(std::env::current_exe().unwrap());
        other.args(["--exact", "ledger::neighbour", "--nocapture"]).env(ROOT, root.path());
        let mut other = other.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut said = BufReader::new(other.stdout.take().unwrap()).lines().map(Result::unwrap);
        assert!(said.any(|line| line == "> taken"));
        let held = |device| ledger(&allocator, DeviceIndex(device)).other_processes;
        assert_eq!(held(0), []);
        let [its] = held(1)[..] else { panic!("{:?}", held(1)) };
        assert_eq!((its.pid, its.granule), (other.id(), Some(64 * MIB)));
        writeln!(other.stdin.take().unwrap()).unwrap();
        assert!(other.wait().unwrap().success());
    });
}
