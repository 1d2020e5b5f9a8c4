//! What real drivers do by their header and the lookalike does not: a scripted driver does it here.

mod arguments;

use crate::Cuda;
use crate::library::{CudaDriver, Device};
use crate::symbols::Functions;
use backend_api::types::{DeviceIndex, DevicePtr};
use backend_api::{
    Backend, Capture, CaptureStatus, ErrorKind, Graph, HandleType, PointerKind, Readiness, VirtualMemory,
};
use backend_support::Context;
use cudarc::driver::sys::{
    CUcontext, CUdevice, CUdeviceptr, CUgraph, CUgraphExec, CUgraphNode, CUmemAccessDesc,
    CUmemAllocationProp, CUmemGenericAllocationHandle, CUpointer_attribute, CUstream, cuuint64_t,
};
use libloading::Library;
use std::cell::{Cell, RefCell};
use std::ffi::{c_int, c_uint, c_ulonglong, c_void};
use std::ptr::without_provenance_mut;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

const DEVICE: DeviceIndex = DeviceIndex(0);
const PRIMARY: usize = 0x1000;
const PROGRAMS_OWN: usize = 0x2000;
const RESERVATION: u64 = 0x20_0000;
const PAGE: u64 = 0x1000;
const ILLEGAL_ADDRESS: c_int = 700;

thread_local! {
    static CONTEXTS: RefCell<Vec<usize>> = const { RefCell::new(Vec::new()) };
    /// What the next pop answers, and whether it pops all the same.
    static NEXT_POP: Cell<Option<(c_int, bool)>> = const { Cell::new(None) };
    static ADDRESS_FREES: Cell<usize> = const { Cell::new(0) };
}

unsafe extern "C" fn retain(context: *mut CUcontext, _device: CUdevice) -> c_int {
    // SAFETY: the caller's place.
    unsafe { context.write(without_provenance_mut(PRIMARY)) };
    0
}

unsafe extern "C" fn release(_device: CUdevice) -> c_int {
    0
}

unsafe extern "C" fn current(context: *mut CUcontext) -> c_int {
    let uppermost = CONTEXTS.with_borrow(|stack| stack.last().copied().unwrap_or(0));
    // SAFETY: the caller's place.
    unsafe { context.write(without_provenance_mut(uppermost)) };
    0
}

unsafe extern "C" fn push(context: CUcontext) -> c_int {
    CONTEXTS.with_borrow_mut(|stack| stack.push(context.addr()));
    0
}

unsafe extern "C" fn pop(_context: *mut CUcontext) -> c_int {
    let (answer, pops) = NEXT_POP.take().unwrap_or((0, true));
    if pops {
        CONTEXTS.with_borrow_mut(Vec::pop);
    }
    answer
}

/// The base of a reservation, for all that is reserved: `CU_POINTER_ATTRIBUTE_RANGE_START_ADDR` is "not necessarily
/// the address of the mapped region".
unsafe extern "C" fn attribute(data: *mut c_void, attribute: c_uint, _at: CUdeviceptr) -> c_int {
    const START: c_uint = CUpointer_attribute::CU_POINTER_ATTRIBUTE_RANGE_START_ADDR as c_uint;
    const TYPE: c_uint = CUpointer_attribute::CU_POINTER_ATTRIBUTE_MEMORY_TYPE as c_uint;
    const SHAREABLE: c_uint = CUpointer_attribute::CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE as c_uint;
    match attribute {
        // SAFETY: the caller's place, of the attribute's size.
        START => unsafe { data.cast::<u64>().write(RESERVATION) },
        // SAFETY: as above.
        TYPE => unsafe { data.cast::<u32>().write(2) },
        // SAFETY: as above.
        SHAREABLE => unsafe { data.cast::<u32>().write(1) },
        // SAFETY: as above.
        _ => unsafe { data.cast::<u32>().write(0) },
    }
    0
}

unsafe extern "C" fn address_reserve(
    at: *mut CUdeviceptr,
    _bytes: usize,
    _alignment: usize,
    _hint: CUdeviceptr,
    _flags: c_ulonglong,
) -> c_int {
    // SAFETY: the caller's place.
    unsafe { at.write(RESERVATION) };
    0
}

unsafe extern "C" fn create(
    handle: *mut CUmemGenericAllocationHandle,
    _bytes: usize,
    _properties: *const CUmemAllocationProp,
    _flags: c_ulonglong,
) -> c_int {
    // SAFETY: the caller's place.
    unsafe { handle.write(7) };
    0
}

unsafe extern "C" fn release_memory(_handle: CUmemGenericAllocationHandle) -> c_int {
    0
}

unsafe extern "C" fn map(
    _at: CUdeviceptr,
    _bytes: usize,
    _offset: usize,
    _handle: CUmemGenericAllocationHandle,
    _flags: c_ulonglong,
) -> c_int {
    0
}

unsafe extern "C" fn unmap(_at: CUdeviceptr, _bytes: usize) -> c_int {
    0
}

unsafe extern "C" fn address_free(_at: CUdeviceptr, _bytes: usize) -> c_int {
    ADDRESS_FREES.set(ADDRESS_FREES.get() + 1);
    0
}

unsafe extern "C" fn set_access(
    _at: CUdeviceptr,
    _bytes: usize,
    _wanted: *const CUmemAccessDesc,
    _count: usize,
) -> c_int {
    0
}

unsafe extern "C" fn granularity(
    bytes: *mut usize,
    _properties: *const CUmemAllocationProp,
    _which: c_uint,
) -> c_int {
    // SAFETY: the caller's place.
    unsafe { bytes.write(PAGE as usize) };
    0
}

/// A capture whose tail has edge data: "if `dependencies_out` is non-NULL and `edgeData_out` is NULL, ... the call
/// will return `CUDA_ERROR_LOSSY_QUERY`". The null stream is asked while a blocking stream is captured.
unsafe extern "C" fn capture_info(
    stream: CUstream,
    status: *mut c_uint,
    id: *mut cuuint64_t,
    _graph: *mut CUgraph,
    dependencies: *mut *const CUgraphNode,
    _count: *mut usize,
) -> c_int {
    if stream.is_null() {
        return 906;
    }
    if !dependencies.is_null() {
        return 402;
    }
    // SAFETY: the caller's place.
    unsafe { status.write(1) };
    // SAFETY: as above.
    unsafe { id.write(7) };
    0
}

unsafe extern "C" fn instantiate(
    executable: *mut CUgraphExec,
    _graph: CUgraph,
    _flags: c_ulonglong,
) -> c_int {
    // SAFETY: the caller's place.
    unsafe { executable.write(without_provenance_mut(0x3000)) };
    0
}

/// "Graph objects are not internally synchronized and must not be accessed concurrently from multiple threads."
unsafe extern "C" fn launch(_executable: CUgraphExec, _stream: CUstream) -> c_int {
    static INSIDE: AtomicUsize = AtomicUsize::new(0);
    let others = INSIDE.fetch_add(1, Ordering::SeqCst);
    thread::sleep(Duration::from_millis(20));
    INSIDE.fetch_sub(1, Ordering::SeqCst);
    if others == 0 { 0 } else { ILLEGAL_ADDRESS }
}

/// The functions above.
fn functions() -> Functions {
    // SAFETY: the C library is loaded already; it has none of the driver's functions.
    let library = unsafe { Library::new("libc.so.6") }.unwrap();
    Functions {
        cuDevicePrimaryCtxRetain: Some(retain),
        cuDevicePrimaryCtxRelease_v2: Some(release),
        cuCtxGetCurrent: Some(current),
        cuCtxPushCurrent_v2: Some(push),
        cuCtxPopCurrent_v2: Some(pop),
        cuPointerGetAttribute: Some(attribute),
        cuMemAddressReserve: Some(address_reserve),
        cuMemAddressFree: Some(address_free),
        cuMemGetAllocationGranularity: Some(granularity),
        cuMemCreate: Some(create),
        cuMemRelease: Some(release_memory),
        cuMemSetAccess: Some(set_access),
        cuMemMap: Some(map),
        cuMemUnmap: Some(unmap),
        cuStreamGetCaptureInfo_v2: Some(capture_info),
        cuGraphInstantiateWithFlags: Some(instantiate),
        cuGraphLaunch: Some(launch),
        ..Functions::look_up(&library)
    }
}

/// Two devices of a driver with such functions.
fn over(functions: Functions) -> Arc<Cuda> {
    let devices = vec![Device::new(0), Device::new(1)];
    Cuda::over(CudaDriver { functions, library: "scripted".into(), version: 12_090, devices }).unwrap()
}

fn scripted() -> Arc<Cuda> {
    over(functions())
}

/// The driver below its backend's checks.
fn context(cuda: &Cuda) -> &Context<CudaDriver> {
    // SAFETY: tests of this driver, which end guards in order and pass no handle.
    unsafe { cuda.context() }
}

fn stack() -> Vec<usize> {
    CONTEXTS.with_borrow(Clone::clone)
}

#[test]
fn a_pop_that_popped_and_answers_an_earlier_error_is_not_repeated() {
    let cuda = scripted();
    CONTEXTS.set(vec![PROGRAMS_OWN]);
    let entered = context(&cuda).enter(DEVICE, "cuMemGetInfo").unwrap();
    assert_eq!(stack(), [PROGRAMS_OWN, PRIMARY]);
    NEXT_POP.set(Some((ILLEGAL_ADDRESS, true)));
    drop(entered);
    assert_eq!(stack(), [PROGRAMS_OWN]);
}

#[test]
fn a_pop_that_was_refused_is_tried_again() {
    let cuda = scripted();
    CONTEXTS.set(vec![PROGRAMS_OWN]);
    let entered = context(&cuda).enter(DEVICE, "cuMemGetInfo").unwrap();
    NEXT_POP.set(Some((999, false)));
    drop(entered);
    assert_eq!(stack(), [PROGRAMS_OWN]);
}

#[test]
fn a_lost_device_does_not_hide_the_memory_of_others() {
    let cuda = scripted();
    for device in [DEVICE, DeviceIndex(1)] {
        drop(context(&cuda).enter(device, "cuMemGetInfo").unwrap());
    }
    let lost = context(&cuda).enter(DEVICE, "cuMemGetInfo").unwrap();
    lost.status("cuMemGetInfo", ILLEGAL_ADDRESS).unwrap_err();
    drop(lost);
    assert_eq!(context(&cuda).enter(DEVICE, "cuMemGetInfo").unwrap_err().code, ILLEGAL_ADDRESS);
    assert_eq!(cuda.pointer_info(DevicePtr(PAGE)).unwrap().kind, PointerKind::Device);
}

#[test]
fn not_ready_is_a_value_and_nothing_else_is() {
    let cuda = scripted();
    let site = context(&cuda).site(DEVICE, "cuEventQuery").unwrap();
    assert_eq!(site.readiness("cuEventQuery", 0).unwrap(), Readiness::Ready);
    assert_eq!(site.readiness("cuEventQuery", 600).unwrap(), Readiness::NotReady);
    assert_eq!(site.readiness("cuEventQuery", 719).unwrap_err().kind, ErrorKind::DeviceLost);
}

/// Four pages are reserved, and the first two mapped.
fn two_mappings(functions: Functions) -> Arc<Cuda> {
    let cuda = over(functions);
    let handle = cuda.create_physical(DEVICE, PAGE, HandleType::None).unwrap();
    ADDRESS_FREES.set(0);
    let at = cuda.reserve_address(DEVICE, 4 * PAGE, 0, DevicePtr::NULL).unwrap();
    for at in [at, DevicePtr(at.0 + PAGE)] {
        // SAFETY: a scripted driver, which maps nothing.
        unsafe { cuda.map(at, PAGE, handle) }.unwrap();
    }
    cuda
}

#[test]
fn the_base_of_virtual_memory_is_its_mapping_and_not_the_reservation() {
    let cuda = two_mappings(functions());
    let info = cuda.pointer_info(DevicePtr(RESERVATION + PAGE + 8)).unwrap();
    assert_eq!((info.kind, info.device), (PointerKind::Device, Some(DEVICE)));
    assert_eq!(info.base, DevicePtr(RESERVATION + PAGE));
    let unmapped = cuda.pointer_info(DevicePtr(RESERVATION + 3 * PAGE)).unwrap();
    assert_eq!(unmapped.kind, PointerKind::Unmanaged, "reserved is not allocated");
}

#[test]
fn addresses_in_which_something_is_mapped_are_not_given_up() {
    let cuda = two_mappings(functions());
    // SAFETY: a scripted driver, which frees nothing.
    let refused = unsafe { cuda.release_address(DevicePtr(RESERVATION), 4 * PAGE) }.unwrap_err();
    assert_eq!(refused.kind, ErrorKind::InvalidValue);
    assert_eq!(ADDRESS_FREES.get(), 0);
    // SAFETY: as above.
    unsafe { cuda.unmap(DevicePtr(RESERVATION), 2 * PAGE) }.unwrap();
    // SAFETY: as above.
    unsafe { cuda.release_address(DevicePtr(RESERVATION), 4 * PAGE) }.unwrap();
    assert_eq!(ADDRESS_FREES.get(), 1);
}

#[test]
fn the_status_of_a_capture_needs_no_dependencies() {
    let cuda = scripted();
    let mut stream = cuda.default_stream(DEVICE);
    assert_eq!(cuda.status(stream).unwrap(), CaptureStatus::None, "the null stream is never captured");
    stream.raw = 9;
    assert_eq!(cuda.status(stream).unwrap(), CaptureStatus::Active(7));
    assert_eq!(cuda.frontier(stream).unwrap_err().code, 402);
}

#[test]
fn a_graph_is_launched_by_one_thread_at_a_time() {
    let cuda = scripted();
    let graph = Graph { raw: 0x4000, backend: cuda.id() };
    let stream = cuda.default_stream(DEVICE);
    thread::scope(|scope| {
        for _ in 0..4 {
            // SAFETY: a scripted driver, which runs nothing.
            scope.spawn(|| unsafe { cuda.launch(graph, stream) }.unwrap());
        }
    });
}
