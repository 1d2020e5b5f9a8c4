//! Pinned host memory over the real backends, on their lookalike drivers: CUDA, HIP, and HIP seen as CUDA.

use alloc_core::AllocError;
use alloc_core::backend::{Backend, CaptureMode, CopyKind, PointerKind};
use alloc_core::config::Settings;
use alloc_core::host::{HostAllocator, HostOptions, NumaPolicy};
use alloc_core::types::{DeviceIndex, DevicePtr, KIB, MIB};
use granule_masquerade::{Masquerade, Policy};
use granule_tests::alone::over_lookalikes;
use granule_tests::lookalike::{Controls, cuda_library, hip_library};
use granule_tests::pinned::{read, write};
use granule_tests::quiet::Retires;
use granule_tests::rig::DEVICE;
use std::cell::Cell;
use std::sync::Arc;

const UNKNOWN: i32 = 999;

fn is_pinned(backend: &dyn Backend, ptr: DevicePtr) -> bool {
    backend.pointer_info(ptr).unwrap().kind == PointerKind::Host
}

/// The settings under which pinned memory is made in all the ways there are.
fn ways() -> [(Settings, NumaPolicy); 4] {
    let register =
        Settings { pinned_use_host_register: true, pinned_num_register_threads: 4, ..Settings::default() };
    let reserve = Settings { pinned_reserve_segment_size: 8 * MIB, ..Settings::default() };
    [
        (Settings::default(), NumaPolicy::System),
        (Settings::default(), NumaPolicy::Node(0)),
        (register, NumaPolicy::NearDevice(DEVICE)),
        (reserve, NumaPolicy::System),
    ]
}

#[test]
fn pinned_memory_works_over_every_backend() {
    over_lookalikes("devices=2,capacity=1GiB", || {
        let cuda: Arc<dyn Backend> = backend_cuda::Cuda::load().unwrap();
        let hip: Arc<dyn Backend> = backend_hip::Hip::load().unwrap();
        for (backend, controls) in
            [(&cuda, Controls::of(&cuda_library())), (&hip, Controls::of(&hip_library()))]
        {
            for (settings, numa) in ways() {
                goes_there_and_back(backend, &settings, numa);
                survives_failing_entry_points(backend, &controls, &settings, numa);
            }
            leaves_captures_whole(backend);
            assert_eq!(controls.traps(), 0, "{}", backend.name());
        }
        drop(cuda);
        let seen_as_cuda: Arc<dyn Backend> = Masquerade::new(hip, Policy::Flip).unwrap();
        for (settings, numa) in ways() {
            goes_there_and_back(&seen_as_cuda, &settings, numa);
        }
        leaves_captures_whole(&seen_as_cuda);
    });
}

fn allocator(backend: &Arc<dyn Backend>, settings: &Settings, numa: NumaPolicy) -> HostAllocator {
    HostAllocator::new(backend.clone(), settings, HostOptions { numa, ..HostOptions::default() }).unwrap()
}

/// Through both devices, whichever was current when the memory was pinned.
fn goes_there_and_back(backend: &Arc<dyn Backend>, settings: &Settings, numa: NumaPolicy) {
    let host = allocator(backend, settings, numa);
    let mut seen = Vec::new();
    for device in [DEVICE, DeviceIndex(1)] {
        let stream = backend.create_stream(device, 0).unwrap();
        let size = 100_003;
        let there = backend.malloc(device, size).unwrap();
        let (from, to) = (host.allocate(size).unwrap(), host.allocate(size).unwrap());
        assert!(is_pinned(&**backend, from.ptr) && is_pinned(&**backend, to.ptr.add(size - 1)));
        write(&from, |n| n as u8 ^ device.0 as u8);
        write(&to, |_| 0);
        // SAFETY: rule 2: all three live until the stream was waited for.
        unsafe { host.copy_async(there, from.ptr, size, CopyKind::HostToDevice, stream) }.unwrap();
        // SAFETY: as above.
        unsafe { host.copy_async(to.ptr, there, size, CopyKind::DeviceToHost, stream) }.unwrap();
        backend.synchronize_stream(stream).unwrap();
        assert!(read(&to) == read(&from), "{}: {numa:?}", backend.name());
        host.free(from.id).unwrap();
        host.free(to.id).unwrap();
        host.retire(stream).unwrap();
        // SAFETY: rule 1: it was retired.
        unsafe { backend.destroy_stream(stream) }.unwrap();
        host.synchronise().unwrap();
        assert_eq!(host.allocate(size).unwrap().ptr, to.ptr, "the one that was free last");
        // SAFETY: rule 3: the device's block of this function.
        unsafe { backend.free(device, there) }.unwrap();
        seen.push(from.ptr);
    }
    // One block stays in the program's hands for each device.
    assert_eq!(host.stats().allocations.current, 3);
    host.empty_cache().unwrap();
    assert_eq!(host.stats().allocations.current, 2);
}

fn leaves_captures_whole(backend: &Arc<dyn Backend>) {
    let host = allocator(backend, &Settings::default(), NumaPolicy::System);
    let (stream, other) =
        (backend.create_stream(DEVICE, 0).unwrap(), backend.create_stream(DEVICE, 0).unwrap());
    let there = backend.malloc(DEVICE, MIB).unwrap();
    let before = host.allocate(64 * KIB).unwrap();
    assert!(host.record_event(before.ptr, before.id, other).unwrap());
    let capture = backend.capture().unwrap();
    capture.begin(stream, CaptureMode::Global).unwrap();
    let (used, unused) =
        (host.allocate_for(MIB, stream).unwrap(), host.allocate_for(2 * MIB, stream).unwrap());
    write(&used, |_| 5);
    // SAFETY: rule 2: the block is never given back while the graph is there.
    unsafe { host.copy_async(there, used.ptr, MIB, CopyKind::HostToDevice, stream) }.unwrap();
    for block in [used, unused, before] {
        host.free(block.id).unwrap();
    }
    host.empty_cache().unwrap();
    let mut pageable = [0u8; 64];
    let at = DevicePtr(pageable.as_mut_ptr().expose_provenance() as u64);
    // SAFETY: rule 2: it is refused.
    unsafe { host.copy_async(there, at, 64, CopyKind::HostToDevice, stream) }.unwrap_err();
    let graph = capture.end(stream).unwrap();
    // SAFETY: rule 2: the graph's memory is there.
    unsafe { capture.launch(graph, stream) }.unwrap();
    backend.synchronize_stream(stream).unwrap();
    assert_ne!(host.allocate(MIB).unwrap().ptr, used.ptr);
    // SAFETY: rule 1: no launch is queued any more.
    unsafe { capture.destroy_graph(graph) }.unwrap();
    drop(host);
    assert!(!is_pinned(&**backend, used.ptr), "it goes with its allocator");
    // SAFETY: rule 3: the block of this function.
    unsafe { backend.free(DEVICE, there) }.unwrap();
    for stream in [stream, other] {
        // SAFETY: rule 1: made above.
        unsafe { backend.destroy_stream(stream) }.unwrap();
    }
}

fn survives_failing_entry_points(
    backend: &Arc<dyn Backend>,
    controls: &Controls,
    settings: &Settings,
    numa: NumaPolicy,
) {
    let stream = backend.create_stream(DEVICE, 0).unwrap();
    let settings = Settings { pinned_max_cached_size: MIB, ..settings.clone() };
    let run = |k: u64| {
        let host = allocator(backend, &settings, numa);
        let before = controls.calls();
        controls.fail(k, UNKNOWN);
        let struck = Cell::new(false);
        let allocate = |bytes| {
            host.allocate(bytes).unwrap_or_else(|error| {
                assert!(!struck.replace(true), "one failing call fails one operation: {error}");
                host.allocate(bytes).expect("the call after a failed one works")
            })
        };
        let mut seen = Vec::new();
        for bytes in [1000, 3 * MIB, 1000, 64 * KIB] {
            let block = allocate(bytes);
            seen.push(block.ptr);
            let record = || host.record_event(block.ptr, block.id, stream);
            let recorded = record().unwrap_or_else(|error| {
                assert!(!struck.replace(true), "one failing call fails one operation: {error}");
                record().expect("the call after a failed one works")
            });
            assert!(recorded);
            let freed = host.free(block.id);
            assert!(matches!(freed, Ok(()) | Err(AllocError::Backend(_))), "{freed:?}");
            let large = allocate(2 * MIB + bytes);
            seen.push(large.ptr);
            let _ = host.free(large.id);
        }
        let _ = host.empty_cache();
        let calls = controls.calls() - before;
        controls.fail(0, UNKNOWN);
        host.synchronise().unwrap();
        host.empty_cache().unwrap();
        let stats = host.stats();
        assert_eq!((stats.allocations.current, stats.active_bytes.current), (0, 0), "call {k}");
        drop(host);
        assert!(seen.iter().all(|ptr| !is_pinned(&**backend, *ptr)), "call {k}: everything goes back");
        calls
    };
    run(0);
    let calls = run(0);
    assert!(calls > 30, "{calls} calls");
    for k in 1..=calls {
        run(k);
    }
    // SAFETY: rule 1: made above.
    unsafe { backend.destroy_stream(stream) }.unwrap();
}
