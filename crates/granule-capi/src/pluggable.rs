//! Entry points for PyTorch's CUDAPluggableAllocator, over one allocator of the process.
//!
//! PyTorch passes no allocator and hears of no error: null says that there is none, and the log says why.

use crate::allocator::granule_allocator;
use crate::boundary::callback::User;
use crate::boundary::guard::guard;
use crate::boundary::handle::new_handle;
use crate::boundary::pass::{address, given, pointer};
use crate::error::{Failure, GRANULE_INVALID_STREAM, granule_status};
use crate::memory::pools::{begin_pool, granule_filter};
use crate::pool_id::granule_pool_id;
use granule::backend::EventFlags;
use granule::types::{DeviceIndex, Stream};
use std::ffi::{c_int, c_void};
use std::ptr::{from_ref, null_mut};
use std::sync::{Mutex, OnceLock, PoisonError};

/// It lives as long as the process, so that C may have a pointer to it.
static SHARED: OnceLock<&granule_allocator> = OnceLock::new();

/// The process's allocator, made at first use with what the environment says. A failure is tried again by the next call.
fn shared() -> Result<&'static granule_allocator, Failure> {
    static MAKING: Mutex<()> = Mutex::new(());
    if let Some(a) = SHARED.get() {
        return Ok(a);
    }
    let _alone = MAKING.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(a) = SHARED.get() {
        return Ok(a);
    }
    let made = new_handle(granule_allocator::shared()?);
    let made = given!(handle made);
    Ok(SHARED.get_or_init(|| made))
}

/// Runs the body of a function that cannot say that it failed: the log does.
fn logged(call: &'static str, body: impl FnOnce() -> Result<(), Failure>) {
    guard(|| body().inspect_err(|failure| tracing::error!(call, "{}", failure.pytorch_text())));
}

/// Memory for a stream (a cudaStream_t); null where there is none.
#[unsafe(no_mangle)]
pub extern "C" fn granule_pluggable_malloc(size: i64, device: c_int, stream: *mut c_void) -> *mut c_void {
    let mut ptr = null_mut();
    logged("granule_pluggable_malloc", || {
        let Ok(bytes) = u64::try_from(size) else {
            return Err(Failure::argument(format!("size is {size}: it must not be negative")));
        };
        let a = shared()?;
        ptr = pointer(a.engine.malloc(bytes, a.stream(device, stream.addr() as u64)?)?);
        Ok(())
    });
    ptr
}

/// Takes memory back. Size, device and stream are known already, and not looked at.
#[unsafe(no_mangle)]
pub extern "C" fn granule_pluggable_free(ptr: *mut c_void, size: i64, device: c_int, stream: *mut c_void) {
    let _known = (size, device, stream);
    logged("granule_pluggable_free", || Ok(shared()?.engine.free(address(ptr))?));
}

/// Makes the allocator, so that what is wrong shows at once. The number of devices is known already.
#[unsafe(no_mangle)]
pub extern "C" fn granule_pluggable_init(device_count: c_int) {
    let _known = device_count;
    logged("granule_pluggable_init", || shared().map(drop));
}

/// Gives all cached memory back. Blocks.
#[unsafe(no_mangle)]
pub extern "C" fn granule_pluggable_reset() {
    logged("granule_pluggable_reset", || Ok(shared()?.engine.empty_cache()?));
}

/// Limits what is held on a device to a share of its memory.
#[unsafe(no_mangle)]
pub extern "C" fn granule_pluggable_set_memory_fraction(fraction: f64, device: c_int) {
    logged("granule_pluggable_set_memory_fraction", || {
        Ok(shared()?.engine.set_memory_fraction(fraction, crate::boundary::pass::device(device)?)?)
    });
}

/// The segment that holds a block. For growable segments, and for what is no block, that is ptr itself, as PyTorch has it by
/// default. size may be null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn granule_pluggable_base_allocation(
    ptr: *mut c_void,
    size: *mut usize,
) -> *mut c_void {
    let mut base = ptr;
    logged("granule_pluggable_base_allocation", || {
        let size = if size.is_null() { None } else { Some(given!(out size)) };
        let a = shared()?;
        let (found, bytes) = match a.engine.base_allocation(address(ptr)) {
            Ok(found) => (found.base, found.bytes),
            Err(_) => (address(ptr), a.engine.block_size(address(ptr)).unwrap_or(0)),
        };
        base = pointer(found);
        if let Some(size) = size {
            size.set(usize::try_from(bytes).unwrap_or(usize::MAX));
        }
        Ok(())
    });
    base
}

/// The device of a stream that PyTorch names without one. The default streams are the thread's device's; any other is that of
/// the one device whose events it takes. Records one, and waits for nothing.
fn device_of(a: &granule_allocator, stream: u64) -> Result<DeviceIndex, Failure> {
    /// Up to it, handles are names of default streams.
    const LAST_NAME: u64 = 2;
    a.usable_device(0)?;
    let backend = a.backend();
    let current = backend.current_device()?;
    if stream <= LAST_NAME || a.engine.device_count() == 1 {
        return Ok(current);
    }
    let others = (0..a.engine.device_count()).map(DeviceIndex).filter(|device| *device != current);
    for device in std::iter::once(current).chain(others) {
        let event = backend.create_event(device, EventFlags::empty())?;
        let taken = backend.record_event(event, Stream { raw: stream, device, backend: backend.id() });
        // SAFETY: rule 1: made above, and not used again.
        let destroyed = unsafe { backend.destroy_event(event) };
        if taken.is_ok() {
            return Ok(destroyed.map(|()| device)?);
        }
        backend.clear_error();
    }
    Err(Failure::own(GRANULE_INVALID_STREAM, format!("no device takes an event on the stream {stream:#x}")))
}

/// Says that work of a stream uses a block.
#[unsafe(no_mangle)]
pub extern "C" fn granule_pluggable_record_stream(ptr: *mut c_void, stream: *mut c_void) {
    logged("granule_pluggable_record_stream", || {
        let a = shared()?;
        let raw = stream.addr() as u64;
        let stream = a.stream(i32::from(device_of(a, raw)?.0), raw)?;
        Ok(a.engine.record_stream(address(ptr), stream)?)
    });
}

/// granule_pool_begin of that allocator.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn granule_pluggable_begin_pool(
    device: c_int,
    pool: granule_pool_id,
    filter: *const granule_filter,
) -> granule_status {
    guard(|| {
        let given = given!(sized filter);
        let user = User::new(given.user, given.drop);
        begin_pool(shared()?, device, pool, given, user)
    })
}

/// granule_pool_end of that allocator.
#[unsafe(no_mangle)]
pub extern "C" fn granule_pluggable_end_pool(device: c_int, pool: granule_pool_id) -> granule_status {
    guard(|| Ok(shared()?.engine.pools().end(crate::boundary::pass::device(device)?, pool.into())?))
}

/// granule_pool_release of that allocator.
#[unsafe(no_mangle)]
pub extern "C" fn granule_pluggable_release_pool(device: c_int, pool: granule_pool_id) -> granule_status {
    guard(|| Ok(shared()?.engine.pools().release(crate::boundary::pass::device(device)?, pool.into())?))
}

/// That allocator, for everything else: statistics, snapshots. It is borrowed, and never ended by the program.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn granule_pluggable_allocator(out: *mut *mut granule_allocator) -> granule_status {
    guard(|| {
        let out = given!(out out);
        out.set(from_ref(shared()?).cast_mut());
        Ok(())
    })
}
