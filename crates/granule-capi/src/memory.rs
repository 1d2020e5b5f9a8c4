//! Memory: taken, used by other streams, given back.

pub mod budgets;
pub mod buffers;
pub mod captures;
pub mod dlpack;
pub mod peers;
pub mod pools;
pub mod registered;
pub mod scopes;
pub mod share;
pub mod sleep;

use crate::allocator::granule_allocator;
use crate::boundary::guard::guard;
use crate::boundary::pass::{self, address, given, growing, limit, pointer};
use crate::error::{Failure, granule_status};
use crate::pool_id::granule_pool_id;
use std::ffi::{c_char, c_void};

/// How much could be had in one piece, in bytes.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct granule_cache_info_t {
    /// sizeof(granule_cache_info_t).
    pub size: u32,
    /// The largest free block in the cache.
    pub largest_cached: u64,
    /// What the driver has free.
    pub device_free: u64,
    /// The larger of the two.
    pub largest: u64,
}

growing!(granule_cache_info_t);

/// Memory of so many bytes for work of a stream, aligned to 512 bytes. 0 bytes give null. Blocks only where the cache
/// has no fit.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn granule_malloc(
    a: *mut granule_allocator,
    bytes: u64,
    device: i32,
    stream: u64,
    out: *mut *mut c_void,
) -> granule_status {
    guard(|| {
        let (a, out) = (given!(handle a), given!(out out));
        out.set(pointer(a.engine.malloc(bytes, a.stream(device, stream)?)?));
        Ok(())
    })
}

/// granule_malloc at an address, out of free memory that the stream and its pool already have. Nothing is taken from
/// the device.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn granule_malloc_at(
    a: *mut granule_allocator,
    bytes: u64,
    at: *mut c_void,
    device: i32,
    stream: u64,
    out: *mut *mut c_void,
) -> granule_status {
    guard(|| {
        let (a, out) = (given!(handle a), given!(out out));
        out.set(pointer(a.engine.malloc_at(bytes, address(at), a.stream(device, stream)?)?));
        Ok(())
    })
}

/// Takes memory back, in the order of its stream's work. Null is fine, and any other value is safe to give.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn granule_free(a: *mut granule_allocator, ptr: *mut c_void) -> granule_status {
    guard(|| Ok(given!(handle a).engine.free(address(ptr))?))
}

/// granule_free of a block of this device; on any other device nothing is freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn granule_free_on(
    a: *mut granule_allocator,
    ptr: *mut c_void,
    device: i32,
) -> granule_status {
    guard(|| Ok(given!(handle a).engine.free_on(address(ptr), pass::device(device)?)?))
}

/// Says that work of a stream uses the block at ptr, or the block that ptr lies in: after its free it is not reused before
/// that work is done. Null is fine.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn granule_record_stream(
    a: *mut granule_allocator,
    ptr: *mut c_void,
    device: i32,
    stream: u64,
) -> granule_status {
    guard(|| {
        let a = given!(handle a);
        Ok(a.engine.record_stream(address(ptr), a.stream(device, stream)?)?)
    })
}

/// Says that a stream is about to be destroyed: its handle is never named again, its memory is kept.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn granule_retire_stream(
    a: *mut granule_allocator,
    device: i32,
    stream: u64,
) -> granule_status {
    guard(|| {
        let a = given!(handle a);
        let stream = a.stream(device, stream)?;
        // SAFETY: callers promise that the stream is given no more work.
        Ok(unsafe { a.engine.retire_stream(stream) }?)
    })
}

/// Gives all cached memory of all devices back: that of the default pool, and of pools that nobody uses any more. Blocks.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn granule_empty_cache(a: *mut granule_allocator) -> granule_status {
    guard(|| Ok(given!(handle a).engine.empty_cache()?))
}

/// Gives the cached memory of one pool back, on all devices, if nobody uses the pool any more. {0, 0}, the default pool, stands
/// for everything, as in PyTorch. Blocks.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn granule_empty_pool(
    a: *mut granule_allocator,
    pool: granule_pool_id,
) -> granule_status {
    guard(|| {
        let a = given!(handle a);
        if pool.is_default() {
            Ok(a.engine.empty_cache()?)
        } else {
            Ok(a.engine.pools().empty(pool.into())?)
        }
    })
}

/// Notices frees whose streams are done, without waiting.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn granule_poll(a: *mut granule_allocator, device: i32) -> granule_status {
    guard(|| Ok(given!(handle a).engine.poll(pass::device(device)?)?))
}

/// Waits for all pending frees of a device. Blocks.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn granule_synchronize(a: *mut granule_allocator, device: i32) -> granule_status {
    guard(|| Ok(given!(handle a).engine.synchronise(pass::device(device)?)?))
}

/// Turns caching on or off for requests to come.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn granule_enable(a: *mut granule_allocator, on: bool) -> granule_status {
    guard(|| {
        given!(handle a).engine.enable(on);
        Ok(())
    })
}

/// Whether requests are served from the cache.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn granule_is_enabled(a: *const granule_allocator, out: *mut bool) -> granule_status {
    guard(|| {
        let (a, out) = (given!(handle a), given!(out out));
        out.set(a.engine.is_enabled());
        Ok(())
    })
}

/// The largest pieces to be had on a device. Asks the driver.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn granule_cache_info(
    a: *mut granule_allocator,
    device: i32,
    out: *mut granule_cache_info_t,
) -> granule_status {
    guard(|| {
        let (a, out) = (given!(handle a), given!(sized_out out));
        let info = a.engine.statistics().cache_info(pass::device(device)?)?;
        out.set(granule_cache_info_t {
            size: 0,
            largest_cached: info.largest_cached,
            device_free: info.device_free,
            largest: info.largest(),
        });
        Ok(())
    })
}

/// The largest free block that a device has cached, in bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn granule_largest_free_block(
    a: *mut granule_allocator,
    device: i32,
    out: *mut u64,
) -> granule_status {
    guard(|| {
        let (a, out) = (given!(handle a), given!(out out));
        out.set(a.engine.statistics().largest_free_block(pass::device(device)?)?);
        Ok(())
    })
}

/// The segment that holds a live block. GRANULE_UNSUPPORTED for growable segments, whose parts come and go.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn granule_base_allocation(
    a: *mut granule_allocator,
    ptr: *mut c_void,
    base: *mut *mut c_void,
    bytes: *mut u64,
) -> granule_status {
    guard(|| {
        let (a, base, bytes) = (given!(handle a), given!(out base), given!(out bytes));
        let found = a.engine.base_allocation(address(ptr))?;
        base.set(pointer(found.base));
        bytes.set(found.bytes);
        Ok(())
    })
}

/// Bytes of the live block at ptr: the request, rounded.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn granule_block_size(
    a: *const granule_allocator,
    ptr: *mut c_void,
    bytes: *mut u64,
) -> granule_status {
    guard(|| {
        let (a, bytes) = (given!(handle a), given!(out bytes));
        bytes.set(a.engine.block_size(address(ptr)).ok_or_else(|| Failure::no_block(ptr))?);
        Ok(())
    })
}

/// The device of the live block at ptr, awake or asleep.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn granule_block_device(
    a: *const granule_allocator,
    ptr: *mut c_void,
    out: *mut i32,
) -> granule_status {
    guard(|| {
        let (a, out) = (given!(handle a), given!(out out));
        out.set(i32::from(a.engine.block_device(address(ptr)).ok_or_else(|| Failure::no_block(ptr))?.0));
        Ok(())
    })
}

/// Limits what is held on a device to a share of its memory; 1 lifts the limit.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn granule_set_memory_fraction(
    a: *mut granule_allocator,
    device: i32,
    fraction: f64,
) -> granule_status {
    guard(|| Ok(given!(handle a).engine.set_memory_fraction(fraction, pass::device(device)?)?))
}

/// The share in force.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn granule_memory_fraction(
    a: *mut granule_allocator,
    device: i32,
    out: *mut f64,
) -> granule_status {
    guard(|| {
        let (a, out) = (given!(handle a), given!(out out));
        out.set(a.engine.memory_fraction(pass::device(device)?)?);
        Ok(())
    })
}

/// Limits what is held on a device, in bytes; UINT64_MAX lifts a limit. Beyond hard nothing is taken; beyond soft, cached
/// memory goes back first. A limit stays until it is set again, or until granule_configure changes memory_limit, or
/// memory_soft_limit.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn granule_set_memory_limits(
    a: *mut granule_allocator,
    device: i32,
    hard: u64,
    soft: u64,
) -> granule_status {
    guard(|| {
        Ok(given!(handle a).engine.set_memory_limits(pass::device(device)?, limit(hard), limit(soft))?)
    })
}

/// Gives a stream a reserve class (expandable_segments_reserve_by_class); an empty name takes it away.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn granule_set_reserve_class(
    a: *mut granule_allocator,
    device: i32,
    stream: u64,
    name: *const c_char,
) -> granule_status {
    guard(|| {
        let (a, name) = (given!(handle a), given!(text name));
        Ok(a.engine.set_reserve_class(a.stream(device, stream)?, name)?)
    })
}
