//! A machine of kind HIP as CUDA code sees it.

use crate::support::{hip, presented};
use backend_api::types::{DeviceIndex, DeviceKind};
use backend_api::{Backend, CopyKind, DeviceGuard, ErrorKind, EventFlags, HandleType};
use backend_openreg::{OpenReg, OpenRegConfig};
use granule_masquerade::{Masquerade, MasqueradeError, Policy};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

const DEVICE: DeviceIndex = DeviceIndex(0);

#[test]
fn work_goes_through_with_handles_of_the_masquerade() {
    let m = presented(Policy::Flip);
    assert_eq!((m.kind(), m.name()), (DeviceKind::Cuda, "hip-as-cuda"));
    let stream = m.create_stream(DEVICE, 0).unwrap();
    let event = m.create_event(DEVICE, EventFlags::empty()).unwrap();
    assert_eq!((stream.backend, event.backend), (m.id(), m.id()));
    let memory = m.malloc(DEVICE, 4096).unwrap();
    // SAFETY: rule 2: both ranges lie in memory that is freed after the stream has passed the work.
    unsafe { m.copy_async(memory, memory.add(2048), 1024, CopyKind::DeviceToDevice, stream) }.unwrap();
    let ran = Arc::new(AtomicBool::new(false));
    let seen = Arc::clone(&ran);
    m.launch_host_function(stream, Box::new(move || seen.store(true, Ordering::SeqCst))).unwrap();
    m.record_event(event, stream).unwrap();
    m.wait_event(m.default_stream(DEVICE), event).unwrap();
    m.synchronize_event(event).unwrap();
    assert!(ran.load(Ordering::SeqCst));
    // SAFETY: rule 3: the base that was handed out, and the work on it is done.
    unsafe { m.free(DEVICE, memory) }.unwrap();
    // SAFETY: rule 1: made above, and not used again.
    unsafe { m.destroy_event(event) }.unwrap();
    // SAFETY: rule 1: made above, and not used again.
    unsafe { m.destroy_stream(stream) }.unwrap();
}

#[test]
fn physical_handles_and_graphs_are_relabelled_too() {
    let m = presented(Policy::Flip);
    let vmm = m.virtual_memory().unwrap();
    let handle = vmm.create_physical(DEVICE, 2 << 20, HandleType::None).unwrap();
    assert_eq!(handle.backend, m.id());
    // SAFETY: rule 1: made above, and not used again.
    unsafe { vmm.release_physical(handle) }.unwrap();

    let capture = m.capture().unwrap();
    let stream = m.create_stream(DEVICE, 0).unwrap();
    capture.begin(stream, backend_api::CaptureMode::Relaxed).unwrap();
    let graph = capture.end(stream).unwrap();
    assert_eq!(graph.backend, m.id());
    // SAFETY: rule 1: made above, and not used again.
    unsafe { capture.destroy_graph(graph) }.unwrap();
}

#[test]
fn the_backend_behind_refuses_what_is_labelled_cuda() {
    let m = presented(Policy::Flip);
    let stream = m.create_stream(DEVICE, 0).unwrap();
    assert_eq!(m.inner().query_stream(stream).unwrap_err().kind, ErrorKind::InvalidValue);
    assert!(m.inner().query_stream(m.to_hip(stream).unwrap()).unwrap().is_ready());
}

#[test]
fn the_device_comes_back_on_every_exit() {
    let m = presented(Policy::Flip);
    m.set_device(DEVICE).unwrap();
    let panicked = std::panic::catch_unwind(AssertUnwindSafe(|| {
        let guard = DeviceGuard::new(&*m, DeviceIndex(1)).unwrap();
        assert_eq!((guard.previous(), m.current_device().unwrap()), (DEVICE, DeviceIndex(1)));
        panic!("in the middle");
    }));
    assert!(panicked.is_err());
    assert_eq!(m.current_device().unwrap(), DEVICE);
    assert!(DeviceGuard::new(&*m, DeviceIndex(99)).is_err());
    assert_eq!(m.current_device().unwrap(), DEVICE);
    assert_eq!(m.inner().current_device().unwrap(), DEVICE);
}

#[test]
fn an_absent_family_is_absent_with_its_reason() {
    let m = presented(Policy::Flip);
    // Reserved memory has no bytes to share.
    let (shown, behind) = (m.ipc().unwrap_err(), m.inner().ipc().unwrap_err());
    assert_eq!(shown, behind);
    assert!(m.virtual_memory().is_ok());
}

#[test]
fn errors_have_cudas_names() {
    let m = presented(Policy::Identity);
    assert_eq!(m.error_name(2), "CUDA_ERROR_OUT_OF_MEMORY");
    // HIP's 911, 916 and 1052 are other errors than CUDA's; 912 is one that CUDA code can meet.
    assert_eq!([911, 916, 1052].map(|code| m.error_name(code)), ["unknown"; 3]);
    assert_eq!(m.error_name(912), "CUDA_ERROR_INVALID_CLUSTER_SIZE");
    let refused = m.malloc(DEVICE, 1 << 60).unwrap_err();
    assert_eq!((refused.kind, refused.call), (ErrorKind::OutOfMemory, "cuMemAlloc"));
}

#[test]
fn only_hip_is_presented_as_cuda() {
    for policy in [Policy::Flip, Policy::Identity] {
        let machine = OpenReg::new(OpenRegConfig::default()).unwrap();
        let refused = Masquerade::new(machine, policy).unwrap_err();
        assert_eq!(refused, MasqueradeError::NotHip { name: "openreg", kind: DeviceKind::PrivateUse1 });
        // A masquerade is CUDA already.
        let twice = Masquerade::new(presented(policy), policy).unwrap_err();
        assert!(matches!(twice, MasqueradeError::NotHip { kind: DeviceKind::Cuda, .. }));
    }
    assert_eq!(Masquerade::new(hip(), Policy::Flip).unwrap().policy(), Policy::Flip);
}
