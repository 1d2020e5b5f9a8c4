//! Devices that reach each other's memory.

use crate::allocator::granule_allocator;
use crate::boundary::guard::guard;
use crate::boundary::pass::{self, address, given};
use crate::error::granule_status;
use std::ffi::c_void;

/// Whether one device could reach the memory of another.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn granule_can_access_peer(
    a: *mut granule_allocator,
    from: i32,
    to: i32,
    out: *mut bool,
) -> granule_status {
    guard(|| {
        let (a, out) = (given!(handle a), given!(out out));
        out.set(a.engine.peers().can_access(pass::device(from)?, pass::device(to)?)?);
        Ok(())
    })
}

/// Lets work of one device use what this allocator holds, and will hold, on another, growable segments included.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn granule_enable_peer_access(
    a: *mut granule_allocator,
    from: i32,
    to: i32,
) -> granule_status {
    guard(|| Ok(given!(handle a).engine.peers().enable(pass::device(from)?, pass::device(to)?)?))
}

/// Whether it may.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn granule_is_peer_access_enabled(
    a: *mut granule_allocator,
    from: i32,
    to: i32,
    out: *mut bool,
) -> granule_status {
    guard(|| {
        let (a, out) = (given!(handle a), given!(out out));
        out.set(a.engine.peers().is_enabled(pass::device(from)?, pass::device(to)?)?);
        Ok(())
    })
}

/// Queues a copy between two devices, or within one, by the way that works. Both ranges stay allocated until the stream has
/// passed the copy.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn granule_copy_async(
    a: *mut granule_allocator,
    dst: *mut c_void,
    dst_device: i32,
    src: *const c_void,
    src_device: i32,
    bytes: u64,
    stream_device: i32,
    stream: u64,
) -> granule_status {
    guard(|| {
        let a = given!(handle a);
        let to = (pass::device(dst_device)?, address(dst));
        let from = (pass::device(src_device)?, address(src));
        let stream = a.stream(stream_device, stream)?;
        // SAFETY: rule 2, by what callers promise.
        Ok(unsafe { a.engine.peers().copy_async(to, from, bytes, stream) }?)
    })
}
