//! What reaches the runtime, and what it keeps, where no answer of the lookalike depends on it: a scripted runtime
//! does it here.

use crate::Hip;
use crate::library::HipDriver;
use backend_api::types::{DeviceIndex, DevicePtr};
use backend_api::{
    Backend, ErrorKind, Granularity, HostFlags, HostRegistration, Ipc, IpcMemoryHandle, Peers, PinnedHost,
    VirtualMemory,
};
use backend_support::Driver;
use granule_hip_sys::Version;
use granule_hip_sys::abi6::{
    Functions, hipDeviceptr_t, hipError_t, hipIpcMemHandle_t, hipMemAllocationGranularity_flags,
    hipMemAllocationProp, hipMemHandleTypeNone, hipMemoryTypeDevice, hipPointerAttribute_t,
};
use std::cell::Cell;
use std::ffi::{c_int, c_uint, c_void};
use std::sync::Arc;

const DEVICE: DeviceIndex = DeviceIndex(0);
const OTHER: DeviceIndex = DeviceIndex(1);
const PAGE: u64 = 0x1000;
/// To 256 bytes only.
const MISALIGNED: usize = 0x1100;
const UNKNOWN: hipError_t = 999;

thread_local! {
    static CURRENT: Cell<c_int> = const { Cell::new(0) };
    /// The argument that the last call below was about.
    static TOLD: Cell<i64> = const { Cell::new(i64::MIN) };
    /// The error that the runtime keeps for the thread.
    static KEPT: Cell<hipError_t> = const { Cell::new(0) };
}

fn told(argument: impl Into<i64>) -> hipError_t {
    TOLD.set(argument.into());
    0
}

unsafe extern "C" fn count(out: *mut c_int) -> hipError_t {
    // SAFETY: the caller's place.
    unsafe { out.write(2) };
    0
}

unsafe extern "C" fn get(out: *mut c_int, ordinal: c_int) -> hipError_t {
    // SAFETY: the caller's place.
    unsafe { out.write(ordinal) };
    0
}

unsafe extern "C" fn current_device(out: *mut c_int) -> hipError_t {
    // SAFETY: the caller's place.
    unsafe { out.write(CURRENT.get()) };
    0
}

unsafe extern "C" fn set_device(device: c_int) -> hipError_t {
    CURRENT.set(device);
    0
}

unsafe extern "C" fn peek() -> hipError_t {
    KEPT.get()
}

unsafe extern "C" fn last_error() -> hipError_t {
    KEPT.replace(0)
}

/// A successful call does not touch what is kept; a failed one is kept, over an earlier one too.
unsafe extern "C" fn failing(_free: *mut usize, _total: *mut usize) -> hipError_t {
    KEPT.set(UNKNOWN);
    UNKNOWN
}

/// A call whose failure the runtime does not keep.
unsafe extern "C" fn failing_unkept() -> hipError_t {
    UNKNOWN
}

unsafe extern "C" fn misaligned(at: *mut *mut c_void, _bytes: usize) -> hipError_t {
    // SAFETY: the caller's place.
    unsafe { at.write(std::ptr::without_provenance_mut(MISALIGNED)) };
    0
}

unsafe extern "C" fn free(at: *mut c_void) -> hipError_t {
    told(at.addr() as i64)
}

unsafe extern "C" fn host_malloc(_memory: *mut *mut c_void, _bytes: usize, flags: c_uint) -> hipError_t {
    told(flags)
}

unsafe extern "C" fn host_register(_memory: *mut c_void, _bytes: usize, flags: c_uint) -> hipError_t {
    told(flags)
}

/// The first device reaches the second one, and not the other way round.
unsafe extern "C" fn can_access(can: *mut c_int, device: c_int, peer: c_int) -> hipError_t {
    // SAFETY: the caller's place.
    unsafe { can.write(c_int::from((device, peer) == (0, 1))) };
    0
}

/// Device memory in pages, each an allocation of its own.
unsafe extern "C" fn pointer_attributes(out: *mut hipPointerAttribute_t, _at: *const c_void) -> hipError_t {
    // SAFETY: the caller's place, which is filled already.
    unsafe { (*out).type_ = hipMemoryTypeDevice };
    0
}

unsafe extern "C" fn one_page(
    base: *mut hipDeviceptr_t,
    bytes: *mut usize,
    at: hipDeviceptr_t,
) -> hipError_t {
    // SAFETY: the caller's place.
    unsafe { base.write(at.map_addr(|at| at - at % PAGE as usize)) };
    // SAFETY: as above.
    unsafe { bytes.write(PAGE as usize) };
    0
}

/// Memory that can be shared comes in larger steps.
unsafe extern "C" fn granularity(
    bytes: *mut usize,
    properties: *const hipMemAllocationProp,
    _which: hipMemAllocationGranularity_flags,
) -> hipError_t {
    // SAFETY: the caller's properties.
    let is_shared = unsafe { (*properties).requestedHandleType } != hipMemHandleTypeNone;
    // SAFETY: the caller's place.
    unsafe { bytes.write(if is_shared { 0x20_0000 } else { 0x1000 }) };
    0
}

unsafe extern "C" fn open_memory(
    at: *mut *mut c_void,
    _handle: hipIpcMemHandle_t,
    _flags: c_uint,
) -> hipError_t {
    // SAFETY: the caller's place.
    unsafe { at.write(std::ptr::without_provenance_mut(PAGE as usize)) };
    0
}

/// Two devices, and the functions above.
fn scripted() -> Arc<Hip> {
    let functions = Functions {
        hipGetDeviceCount: Some(count),
        hipDeviceGet: Some(get),
        hipGetDevice: Some(current_device),
        hipSetDevice: Some(set_device),
        hipPeekAtLastError: Some(peek),
        hipGetLastError: Some(last_error),
        hipMemGetInfo: Some(failing),
        hipDeviceSynchronize: Some(failing_unkept),
        hipMalloc: Some(misaligned),
        hipFree: Some(free),
        hipPointerGetAttributes: Some(pointer_attributes),
        hipMemGetAddressRange: Some(one_page),
        hipMemGetAllocationGranularity: Some(granularity),
        hipHostMalloc: Some(host_malloc),
        hipHostRegister: Some(host_register),
        hipDeviceCanAccessPeer: Some(can_access),
        hipIpcOpenMemHandle: Some(open_memory),
        ..Functions::default()
    };
    let version = Version { major: 6, minor: 4, patch: 0 };
    let (library, devices) = ("scripted".into(), Vec::new());
    let mut driver = HipDriver { functions, library, version, devices };
    driver.start().unwrap();
    Hip::over(driver).unwrap()
}

#[test]
fn an_error_of_this_backend_is_cleared_and_one_of_the_program_stays() {
    let hip = scripted();
    hip.memory_info(DEVICE).unwrap_err();
    assert_eq!(KEPT.get(), 0, "the program must not find an error that it did not make");
    KEPT.set(719);
    hip.synchronize_device(DEVICE).unwrap_err();
    assert_eq!(KEPT.get(), 719, "the program's own");
}

#[test]
fn memory_that_is_not_aligned_as_promised_is_refused_and_freed() {
    let hip = scripted();
    assert_eq!(hip.malloc(DEVICE, PAGE).unwrap_err().kind, ErrorKind::Other);
    assert_eq!(TOLD.get(), MISALIGNED as i64);
}

#[test]
fn flags_of_host_memory_are_the_runtimes() {
    let hip = scripted();
    for (flags, bits) in [(HostFlags::PORTABLE, 1), (HostFlags::MAPPED, 2), (HostFlags::WRITE_COMBINED, 4)] {
        hip.host_malloc(PAGE, flags).unwrap();
        assert_eq!(TOLD.replace(i64::MIN), bits, "{flags:?}");
        // SAFETY: a scripted runtime, which registers nothing.
        let registered = unsafe { hip.register(DevicePtr(PAGE), PAGE, flags) };
        if flags == HostFlags::WRITE_COMBINED {
            assert_eq!(registered.unwrap_err().kind, ErrorKind::InvalidValue);
        } else {
            registered.unwrap();
            assert_eq!(TOLD.get(), bits, "{flags:?}");
        }
    }
}

#[test]
fn reaching_a_peer_has_a_direction() {
    let hip = scripted();
    assert!(hip.can_access(DEVICE, OTHER).unwrap());
    assert!(!hip.can_access(OTHER, DEVICE).unwrap());
}

#[test]
fn a_fork_is_told_that_it_cannot_use_its_parents_runtime() {
    let hip = scripted();
    // SAFETY: the child asks the backend, which does not ask the runtime, and ends.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let as_due = hip.memory_info(DEVICE).is_err_and(|error| error.kind == ErrorKind::Unusable)
            && hip.current_device().is_err_and(|error| error.kind == ErrorKind::Unusable);
        // SAFETY: nothing of the parent's is touched at the end.
        unsafe { libc::_exit(i32::from(!as_due)) };
    }
    let mut status = 0;
    // SAFETY: `status` lives until the call has returned.
    let ended = unsafe { libc::waitpid(child, &raw mut status, 0) };
    assert_eq!((ended, status), (child, 0));
}

#[test]
fn a_lost_device_stays_lost_and_others_work() {
    let hip = scripted();
    // SAFETY: no handle is passed, and nothing is entered.
    let context = unsafe { hip.context() };
    context.site(OTHER, "hipMalloc").unwrap().status("hipMalloc", 719).unwrap_err();
    assert_eq!(hip.malloc(OTHER, PAGE).unwrap_err().kind, ErrorKind::DeviceLost);
    hip.host_malloc(PAGE, HostFlags::PORTABLE).unwrap();
}

#[test]
fn the_granularity_serves_memory_that_is_shared_too() {
    assert_eq!(scripted().granularity(DEVICE, Granularity::Minimum).unwrap(), 0x20_0000);
}

#[test]
fn memory_of_another_process_is_closed_and_not_freed() {
    let hip = scripted();
    let imported = hip.open_memory(DEVICE, &IpcMemoryHandle([7; 64])).unwrap();
    // SAFETY: a scripted runtime, which frees nothing.
    assert_eq!(unsafe { hip.free(DEVICE, imported) }.unwrap_err().kind, ErrorKind::InvalidValue);
    // SAFETY: as above.
    unsafe { hip.free(DEVICE, DevicePtr(2 * PAGE)) }.unwrap();
    assert_eq!(TOLD.get(), 2 * PAGE as i64);
}
