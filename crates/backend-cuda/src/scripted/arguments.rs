//! Arguments that reach the driver, where no answer of a lookalike depends on them.

use super::{DEVICE, PAGE, context, functions, over, scripted, two_mappings};
use crate::Cuda;
use crate::symbols::Functions;
use backend_api::types::{DeviceIndex, DevicePtr};
use backend_api::{
    Backend, ErrorKind, Granularity, HandleType, HostFlags, HostRegistration, Ipc, Peers, PinnedHost,
    PointerKind, VirtualMemory,
};
use cudarc::driver::sys::{
    CUdevice, CUdeviceptr, CUipcMemHandle, CUmemAccessDesc, CUmemAllocationProp, CUmemGenericAllocationHandle,
};
use std::cell::Cell;
use std::ffi::{c_int, c_uint, c_ulonglong, c_void};
use std::sync::Arc;

const OTHER: DeviceIndex = DeviceIndex(1);
/// To 256 bytes only.
const MISALIGNED: u64 = 0x1100;

thread_local! {
    /// The argument that the last call below was about.
    static TOLD: Cell<i64> = const { Cell::new(i64::MIN) };
    /// Primary contexts retained and not released.
    static RETAINED: Cell<usize> = const { Cell::new(0) };
}

fn told(argument: impl Into<i64>) -> c_int {
    TOLD.set(argument.into());
    0
}

unsafe extern "C" fn host_alloc(_memory: *mut *mut c_void, _bytes: usize, flags: c_uint) -> c_int {
    told(flags)
}

unsafe extern "C" fn host_register(_memory: *mut c_void, _bytes: usize, flags: c_uint) -> c_int {
    told(flags)
}

unsafe extern "C" fn every_attribute(value: *mut c_int, _attribute: c_uint, _device: CUdevice) -> c_int {
    // SAFETY: the caller's place.
    unsafe { value.write(1) };
    0
}

unsafe extern "C" fn granularity(bytes: *mut usize, _: *const CUmemAllocationProp, which: c_uint) -> c_int {
    // SAFETY: the caller's place.
    unsafe { bytes.write(PAGE as usize) };
    told(which)
}

unsafe extern "C" fn create(
    _handle: *mut CUmemGenericAllocationHandle,
    _bytes: usize,
    properties: *const CUmemAllocationProp,
    _flags: c_ulonglong,
) -> c_int {
    // SAFETY: the caller's properties.
    told(unsafe { (*properties).allocFlags.gpuDirectRDMACapable })
}

/// The first device reaches the second one, and not the other way round.
unsafe extern "C" fn can_access(can: *mut c_int, device: CUdevice, peer: CUdevice) -> c_int {
    // SAFETY: the caller's place.
    unsafe { can.write(c_int::from((device, peer) == (0, 1))) };
    0
}

/// As real drivers do for an address inside an allocation: the handle is that of the whole.
unsafe extern "C" fn any_handle(_handle: *mut CUipcMemHandle, _at: CUdeviceptr) -> c_int {
    0
}

unsafe extern "C" fn one_page(base: *mut CUdeviceptr, bytes: *mut usize, at: CUdeviceptr) -> c_int {
    // SAFETY: the caller's place.
    unsafe { base.write(at - at % PAGE) };
    // SAFETY: as above.
    unsafe { bytes.write(PAGE as usize) };
    0
}

unsafe extern "C" fn misaligned(at: *mut CUdeviceptr, _bytes: usize) -> c_int {
    // SAFETY: the caller's place.
    unsafe { at.write(MISALIGNED) };
    0
}

unsafe extern "C" fn free(at: CUdeviceptr) -> c_int {
    told(at as i64)
}

/// All but one page, which is what is tried before.
unsafe extern "C" fn refused_unmap(_at: CUdeviceptr, bytes: usize) -> c_int {
    if bytes == PAGE as usize { 0 } else { 999 }
}

/// As on WSL2: memory that was made for network cards is mapped and cannot be used.
unsafe extern "C" fn refused_access(
    _at: CUdeviceptr,
    _bytes: usize,
    _wanted: *const CUmemAccessDesc,
    _count: usize,
) -> c_int {
    if TOLD.get() == 1 { 999 } else { 0 }
}

unsafe extern "C" fn retain(context: *mut cudarc::driver::sys::CUcontext, device: CUdevice) -> c_int {
    RETAINED.set(RETAINED.get() + 1);
    // SAFETY: the caller's place.
    unsafe { super::retain(context, device) }
}

unsafe extern "C" fn release(_device: CUdevice) -> c_int {
    RETAINED.set(RETAINED.get() - 1);
    0
}

fn listening() -> Arc<Cuda> {
    over(listeners())
}

fn listeners() -> Functions {
    Functions {
        cuMemAlloc_v2: Some(misaligned),
        cuMemFree_v2: Some(free),
        cuMemHostAlloc: Some(host_alloc),
        cuMemHostRegister_v2: Some(host_register),
        cuDeviceGetAttribute: Some(every_attribute),
        cuMemGetAllocationGranularity: Some(granularity),
        cuMemCreate: Some(create),
        cuDeviceCanAccessPeer: Some(can_access),
        cuIpcGetMemHandle: Some(any_handle),
        cuMemGetAddressRange_v2: Some(one_page),
        cuDevicePrimaryCtxRetain: Some(retain),
        cuDevicePrimaryCtxRelease_v2: Some(release),
        ..functions()
    }
}

#[test]
fn memory_that_is_not_aligned_as_promised_is_refused_and_freed() {
    let cuda = listening();
    assert_eq!(cuda.malloc(DEVICE, PAGE).unwrap_err().kind, ErrorKind::Other);
    assert_eq!(TOLD.get(), MISALIGNED as i64);
}

#[test]
fn flags_of_host_memory_are_the_drivers() {
    let cuda = listening();
    for (flags, bits) in [(HostFlags::PORTABLE, 1), (HostFlags::MAPPED, 2), (HostFlags::WRITE_COMBINED, 4)] {
        cuda.host_malloc(PAGE, flags).unwrap();
        assert_eq!(TOLD.replace(i64::MIN), bits, "{flags:?}");
        // SAFETY: a scripted driver, which registers nothing.
        let registered = unsafe { cuda.register(DevicePtr(PAGE), PAGE, flags) };
        if flags == HostFlags::WRITE_COMBINED {
            assert_eq!(registered.unwrap_err().kind, ErrorKind::InvalidValue);
        } else {
            registered.unwrap();
            assert_eq!(TOLD.get(), bits, "{flags:?}");
        }
    }
}

#[test]
fn both_granularities_are_asked_under_their_numbers() {
    let cuda = listening();
    for (which, number) in [(Granularity::Minimum, 0), (Granularity::Recommended, 1)] {
        cuda.granularity(DEVICE, which).unwrap();
        assert_eq!(TOLD.get(), number, "{which:?}");
    }
}

#[test]
fn remote_access_is_asked_for_where_the_device_has_it() {
    let cuda = listening();
    cuda.create_physical(DEVICE, PAGE, HandleType::None).unwrap();
    assert_eq!(TOLD.get(), 1);
}

#[test]
fn remote_access_is_not_asked_for_where_it_is_refused() {
    let cuda = over(Functions { cuMemSetAccess: Some(refused_access), ..listeners() });
    for _ in 0..2 {
        cuda.create_physical(DEVICE, PAGE, HandleType::None).unwrap();
        assert_eq!(TOLD.get(), 0);
    }
    let dropped = cuda.dropped(DEVICE);
    assert_eq!(dropped.len(), 1, "it is told once: {dropped:?}");
    assert_eq!(dropped[0].property, "remote direct memory access");
    assert!(dropped[0].reason.starts_with("cuMemSetAccess on device 0: CUDA_ERROR_UNKNOWN"), "{dropped:?}");
    assert!(cuda.dropped(OTHER).is_empty(), "each device is tried by itself");
}

#[test]
fn reaching_a_peer_has_a_direction() {
    let cuda = listening();
    assert!(cuda.can_access(DEVICE, OTHER).unwrap());
    assert!(!cuda.can_access(OTHER, DEVICE).unwrap());
}

#[test]
fn only_the_base_of_an_allocation_is_exported() {
    let cuda = listening();
    cuda.export_memory(DevicePtr(PAGE)).unwrap();
    let inside = cuda.export_memory(DevicePtr(PAGE + 512)).unwrap_err();
    assert_eq!(inside.kind, ErrorKind::InvalidValue);
}

#[test]
fn a_refused_unmap_leaves_the_mappings_known() {
    let cuda = two_mappings(Functions { cuMemUnmap: Some(refused_unmap), ..functions() });
    let at = DevicePtr(super::RESERVATION);
    // SAFETY: a scripted driver, which unmaps nothing.
    assert_eq!(unsafe { cuda.unmap(at, 2 * PAGE) }.unwrap_err().code, 999);
    assert_eq!(cuda.pointer_info(at).unwrap().kind, PointerKind::Device);
}

#[test]
fn every_retained_context_is_given_back() {
    let cuda = listening();
    for device in [DEVICE, OTHER, DEVICE] {
        drop(context(&cuda).enter(device, "cuMemGetInfo").unwrap());
    }
    assert_eq!(RETAINED.get(), 2);
    drop(cuda);
    assert_eq!(RETAINED.get(), 0);
}

#[test]
fn a_fork_is_told_that_it_cannot_use_its_parents_driver() {
    let cuda = scripted();
    // SAFETY: the child asks the backend, which does not ask the driver, and ends.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let as_due = cuda.memory_info(DEVICE).is_err_and(|error| error.kind == ErrorKind::Unusable)
            && cuda.current_device().is_err_and(|error| error.kind == ErrorKind::Unusable);
        // SAFETY: nothing of the parent's is touched at the end.
        unsafe { libc::_exit(i32::from(!as_due)) };
    }
    let mut status = 0;
    // SAFETY: `status` lives until the call has returned.
    let ended = unsafe { libc::waitpid(child, &raw mut status, 0) };
    assert_eq!((ended, status), (child, 0));
}

/// A kernel's answer to this costs more than the driver's to most calls.
#[test]
fn calls_do_not_ask_the_system_which_process_this_is() {
    let cuda = scripted();
    let refused = |code: u32, skip: u8, k: u32| libc::sock_filter { code: code as u16, jt: 0, jf: skip, k };
    let unanswered = libc::SECCOMP_RET_ERRNO | libc::EPERM as u32;
    let filter = [
        refused(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0),
        refused(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 1, libc::SYS_getpid as u32),
        refused(libc::BPF_RET | libc::BPF_K, 0, unanswered),
        refused(libc::BPF_RET | libc::BPF_K, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let asks = || {
        let program = libc::sock_fprog { len: 4, filter: filter.as_ptr().cast_mut() };
        // SAFETY: it concerns this thread alone, which ends soon.
        let alone = unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) };
        // SAFETY: the system reads the program during the call; it concerns this thread alone, which ends soon.
        let set = unsafe { libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program) };
        ([alone, set], std::process::id(), context(&cuda).enter(DEVICE, "cuEventQuery").err())
    };
    let own = std::process::id();
    let (set, answered, error) = std::thread::scope(|scope| scope.spawn(asks).join()).expect("it asks");
    assert!(set == [0, 0] && answered != own, "the system does not answer");
    assert_eq!(error, None);
}
