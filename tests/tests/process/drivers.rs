//! What a backend tells its driver where no answer of the driver shows it: asked of the lookalikes themselves.

use alloc_core::backend::{
    Access, Backend, CaptureMode, CopyKind, ErrorKind, Granularity, HandleType, HostFunction, VirtualMemory,
};
use alloc_core::types::{DeviceIndex, DevicePtr, PhysicalHandle};
use granule_masquerade::{Masquerade, Policy};
use granule_tests::alone::over_lookalikes;
use granule_tests::lookalike::{Controls, cuda_library, hip_library};
use granule_tests::rig::DEVICE;
use std::ffi::{CStr, c_int, c_uint, c_void};
use std::path::PathBuf;
use std::sync::Arc;

const PEER: DeviceIndex = DeviceIndex(1);
const UNKNOWN: i32 = 999;

/// A backend on its lookalike, and the driver's names for what is asked below.
struct Subject {
    backend: Arc<dyn Backend>,
    library: PathBuf,
    stream_flags: &'static str,
    host_function: &'static CStr,
    wait: &'static CStr,
}

#[test]
fn the_driver_is_told_what_the_contract_says() {
    over_lookalikes("devices=2,capacity=1GiB", || {
        let cuda = Subject {
            backend: backend_cuda::Cuda::load().unwrap(),
            library: cuda_library(),
            stream_flags: "cuStreamGetFlags",
            host_function: c"cuLaunchHostFunc",
            wait: c"cuStreamSynchronize",
        };
        let hip = Subject {
            backend: backend_hip::Hip::load().unwrap(),
            library: hip_library(),
            stream_flags: "hipStreamGetFlags",
            host_function: c"hipLaunchHostFunc",
            wait: c"hipStreamSynchronize",
        };
        for subject in [&cuda, &hip] {
            println!("{}", subject.backend.name());
            probes_leave_the_threads_capture_mode(&*subject.backend);
            streams_do_not_wait_for_the_default_stream(subject);
            access_is_for_all_devices_that_are_named(&*subject.backend);
            a_copy_waits_for_its_bytes(subject);
            a_host_function_that_was_refused_is_dropped(subject);
            a_captured_host_function_is_dropped_with_its_graph(&*subject.backend);
        }
        changes_that_fail_half_way_are_undone(&hip);
        imported_memory_has_the_size_of_what_was_exported(&*hip.backend);
        a_refused_destruction_leaves_the_capture_as_it_was(&*hip.backend);
        drop(cuda);
        numbers_that_only_hip_has_get_no_name_of_cudas(hip.backend);
    });
}

/// Before all else, since families are probed once.
fn probes_leave_the_threads_capture_mode(backend: &dyn Backend) {
    let capture = backend.capture().unwrap();
    assert_eq!(capture.exchange_mode(CaptureMode::ThreadLocal).unwrap(), CaptureMode::Global);
    backend.virtual_memory().unwrap();
    assert_eq!(capture.exchange_mode(CaptureMode::Global).unwrap(), CaptureMode::ThreadLocal);
}

fn streams_do_not_wait_for_the_default_stream(subject: &Subject) {
    type GetFlags = unsafe extern "C" fn(*mut c_void, *mut c_uint) -> c_int;
    // The driver asks for a current context.
    subject.backend.set_device(DEVICE).unwrap();
    let stream = subject.backend.create_stream(DEVICE, 0).unwrap();
    // SAFETY: a library of this workspace whose initialisers do nothing.
    let library = unsafe { libloading::Library::new(&subject.library) }.unwrap();
    // SAFETY: the function's type in the driver's header.
    let get_flags = unsafe { library.get::<GetFlags>(subject.stream_flags) }.unwrap();
    let mut flags = 0;
    let handle = std::ptr::with_exposed_provenance_mut(stream.raw as usize);
    // SAFETY: a live stream, and a place for the answer.
    assert_eq!(unsafe { get_flags(handle, &raw mut flags) }, 0);
    assert_eq!(flags, 1, "non-blocking");
    // SAFETY: the stream is not used again.
    unsafe { subject.backend.destroy_stream(stream) }.unwrap();
}

/// A reservation with two mappings, each of half its size.
fn two_mappings(memory: &dyn VirtualMemory) -> (DevicePtr, u64, [PhysicalHandle; 2]) {
    let bytes = memory.granularity(DEVICE, Granularity::Minimum).unwrap();
    let at = memory.reserve_address(DEVICE, 2 * bytes, 0, DevicePtr::NULL).unwrap();
    let handles = [at.0, at.0 + bytes].map(|place| {
        let handle = memory.create_physical(DEVICE, bytes, HandleType::None).unwrap();
        // SAFETY: half of the reservation, which is free; the size is the handle's.
        unsafe { memory.map(DevicePtr(place), bytes, handle) }.unwrap();
        handle
    });
    (at, bytes, handles)
}

fn release_both(memory: &dyn VirtualMemory, handles: [PhysicalHandle; 2]) {
    for handle in handles {
        // SAFETY: the handle is not used again; a mapping keeps the memory.
        unsafe { memory.release_physical(handle) }.unwrap();
    }
}

fn access_is_for_all_devices_that_are_named(backend: &dyn Backend) {
    let memory = backend.virtual_memory().unwrap();
    let (at, bytes, handles) = two_mappings(memory);
    release_both(memory, handles);
    for access in [Access::Read, Access::ReadWrite, Access::None] {
        // SAFETY: the range is two whole mappings.
        unsafe { memory.set_access(at, 2 * bytes, &[DEVICE, PEER], access) }.unwrap();
        for place in [at.0, at.0 + bytes] {
            for device in [DEVICE, PEER] {
                assert_eq!(memory.access(DevicePtr(place), device).unwrap(), access, "{place:#x} {device}");
            }
        }
    }
    // SAFETY: two whole mappings, which nothing uses.
    unsafe { memory.unmap(at, 2 * bytes) }.unwrap();
    // SAFETY: the whole reservation, in which nothing is mapped.
    unsafe { memory.release_address(at, 2 * bytes) }.unwrap();
}

/// HIP takes no more than one mapping at a time.
fn changes_that_fail_half_way_are_undone(hip: &Subject) {
    let controls = Controls::of(&hip.library);
    let memory = hip.backend.virtual_memory().unwrap();
    let used = controls.used(DEVICE.0);
    let (at, bytes, handles) = two_mappings(memory);
    let access_is = |wanted: Access, when: &str| {
        for place in [at.0, at.0 + bytes] {
            assert_eq!(memory.access(DevicePtr(place), DEVICE).unwrap(), wanted, "{place:#x} {when}");
        }
    };
    // SAFETY: the range is two whole mappings.
    let set = |access| unsafe { memory.set_access(at, 2 * bytes, &[DEVICE], access) };
    // SAFETY: as above, and nothing uses them.
    let unmap = || unsafe { memory.unmap(at, 2 * bytes) };
    set(Access::ReadWrite).unwrap();
    controls.fail_function(c"hipMemSetAccess", 2, UNKNOWN);
    assert_eq!(set(Access::None).unwrap_err().code, UNKNOWN);
    access_is(Access::ReadWrite, "after a refused change of access");
    controls.fail_function(c"hipMemUnmap", 2, UNKNOWN);
    assert_eq!(unmap().unwrap_err().code, UNKNOWN);
    access_is(Access::ReadWrite, "after a refused unmap");
    unmap().unwrap();
    release_both(memory, handles);
    assert_eq!(controls.used(DEVICE.0), used, "no reference is left");
    // SAFETY: the whole reservation, in which nothing is mapped.
    unsafe { memory.release_address(at, 2 * bytes) }.unwrap();
}

/// The label is free: the CUDA backend was dropped.
fn numbers_that_only_hip_has_get_no_name_of_cudas(hip: Arc<dyn Backend>) {
    assert_eq!(hip.error_name(911), "hipErrorInvalidChannelDescriptor");
    let presented = Masquerade::new(hip, Policy::Flip).unwrap();
    assert_eq!(presented.error_name(911), "unknown", "CUDA means something else by it");
}

/// HIP answers it by the descriptor; CUDA has no way to ask before the memory is mapped.
fn imported_memory_has_the_size_of_what_was_exported(hip: &dyn Backend) {
    let memory = hip.physical_sharing().unwrap();
    let bytes = 3 * memory.granularity(DEVICE, Granularity::Minimum).unwrap();
    let handle = memory.create_physical(DEVICE, bytes, HandleType::PosixFd).unwrap();
    let shared = memory.export_physical(handle, HandleType::PosixFd).unwrap();
    let imported = memory.import_physical(DEVICE, &shared).unwrap();
    let at = memory.reserve_address(DEVICE, bytes, 0, DevicePtr::NULL).unwrap();
    // SAFETY: a place in a reservation of its own; a part of the handle is refused.
    let part = unsafe { memory.map(at, bytes / 3, imported) }.unwrap_err();
    assert!(part.detail.contains("mapped whole"), "{part}");
    // SAFETY: the whole reservation, in which nothing is mapped.
    unsafe { memory.release_address(at, bytes) }.unwrap();
    for handle in [handle, imported] {
        // SAFETY: neither handle is used again, and nothing is mapped.
        unsafe { memory.release_physical(handle) }.unwrap();
    }
}

/// HIP's captures are remembered by the backend: those of a stream whose destruction was refused, too.
fn a_refused_destruction_leaves_the_capture_as_it_was(hip: &dyn Backend) {
    let capture = hip.capture().unwrap();
    let stream = hip.create_stream(DEVICE, 0).unwrap();
    let refused = |what: alloc_core::backend::Result<()>| {
        assert_eq!(what.unwrap_err().kind, ErrorKind::CaptureViolation);
    };
    capture.begin(stream, CaptureMode::Global).unwrap();
    // SAFETY: refused, so the stream is still there.
    refused(unsafe { hip.destroy_stream(stream) });
    refused(hip.synchronize_device(DEVICE));
    let graph = capture.end(stream);
    hip.synchronize_device(DEVICE).unwrap();
    if let Ok(graph) = graph {
        // SAFETY: the graph is not used again.
        unsafe { capture.destroy_graph(graph) }.unwrap();
    }
    // SAFETY: the stream is not used again.
    unsafe { hip.destroy_stream(stream) }.unwrap();
}

/// Drivers may answer before the bytes have arrived; then a wait must follow, and its failure is the copy's.
fn a_copy_waits_for_its_bytes(subject: &Subject) {
    let backend = &*subject.backend;
    let controls = Controls::of(&subject.library);
    let memory = backend.malloc(DEVICE, 8192).unwrap();
    let host = vec![7_u8; 4096];
    let from = DevicePtr(host.as_ptr().expose_provenance() as u64);
    for (from, kind) in
        [(from, CopyKind::HostToDevice), (DevicePtr(memory.0 + 4096), CopyKind::DeviceToDevice)]
    {
        controls.fail_function(subject.wait, 1, UNKNOWN);
        // SAFETY: 4096 bytes on both sides, which do not overlap.
        let copied = unsafe { backend.copy(memory, from, 4096, kind) };
        assert_eq!(copied.unwrap_err().code, UNKNOWN, "{kind:?}");
    }
    controls.fail(0, 0);
    // SAFETY: nothing uses the memory.
    unsafe { backend.free(DEVICE, memory) }.unwrap();
}

/// A host function, and what tells whether it was dropped.
fn witnessed() -> (HostFunction, Arc<()>) {
    let witness = Arc::new(());
    let inside = Arc::clone(&witness);
    (Box::new(move || drop(inside)), witness)
}

fn a_host_function_that_was_refused_is_dropped(subject: &Subject) {
    let (function, witness) = witnessed();
    let controls = Controls::of(&subject.library);
    controls.fail_function(subject.host_function, 1, UNKNOWN);
    let stream = subject.backend.default_stream(DEVICE);
    assert_eq!(subject.backend.launch_host_function(stream, function).unwrap_err().code, UNKNOWN);
    controls.fail(0, 0);
    assert_eq!(Arc::strong_count(&witness), 1);
}

fn a_captured_host_function_is_dropped_with_its_graph(backend: &dyn Backend) {
    let capture = backend.capture().unwrap();
    let stream = backend.create_stream(DEVICE, 0).unwrap();
    let (function, witness) = witnessed();
    capture.begin(stream, CaptureMode::ThreadLocal).unwrap();
    backend.launch_host_function(stream, function).unwrap();
    let graph = capture.end(stream).unwrap();
    assert_eq!(Arc::strong_count(&witness), 2, "it has not run, and may");
    // SAFETY: the graph is not used again, and was never launched.
    unsafe { capture.destroy_graph(graph) }.unwrap();
    assert_eq!(Arc::strong_count(&witness), 1);
    // SAFETY: the stream is not used again.
    unsafe { backend.destroy_stream(stream) }.unwrap();
}
