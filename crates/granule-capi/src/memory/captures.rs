//! Captures of graphs, and checkpoints of the pools that they use.

use crate::allocator::granule_allocator;
use crate::boundary::guard::guard;
use crate::boundary::handle::{handles, new_handle};
use crate::boundary::pass::{self, Out, SizedOut, address, given, growing, pointer};
use crate::error::{Failure, granule_status};
use crate::pool_id::granule_pool_id;
use granule::device::{CheckpointDelta, PoolCheckpoint};
use granule::types::DevicePtr;
use std::collections::BTreeSet;
use std::ffi::c_void;

/// Which blocks of a pool were live at some moment.
pub struct granule_checkpoint(PoolCheckpoint);

handles!(granule_checkpoint);

/// What bringing a checkpoint back did. The arrays are good until granule_delta_free.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct granule_delta {
    /// sizeof(granule_delta).
    pub size: u32,
    /// Blocks that were freed: all that were live before.
    pub freed: *const *mut c_void,
    /// How many.
    pub freed_count: u64,
    /// Blocks that are live now.
    pub allocated: *const *mut c_void,
    /// How many.
    pub allocated_count: u64,
    /// The library's.
    pub owner: *mut c_void,
}

growing!(granule_delta);

/// What a delta's arrays are in.
struct Arrays {
    freed: Vec<*mut c_void>,
    allocated: Vec<*mut c_void>,
}

/// Says that a stream of the device is being captured from here on, until granule_mark_capture_end.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn granule_mark_capture_begin(
    a: *mut granule_allocator,
    device: i32,
) -> granule_status {
    guard(|| Ok(given!(handle a).engine.pools().mark_capture_begin(pass::device(device)?)?))
}

/// Says that a capture has ended, well or not.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn granule_mark_capture_end(a: *mut granule_allocator, device: i32) -> granule_status {
    guard(|| Ok(given!(handle a).engine.pools().mark_capture_end(pass::device(device)?)?))
}

/// Saves which blocks of a pool are live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn granule_pool_checkpoint(
    a: *mut granule_allocator,
    device: i32,
    pool: granule_pool_id,
    out: *mut *mut granule_checkpoint,
) -> granule_status {
    guard(|| {
        let (a, out): (_, Out<*mut granule_checkpoint>) = (given!(handle a), given!(out out));
        let saved = a.engine.pools().checkpoint(pass::device(device)?, pool.into())?;
        out.set(new_handle(granule_checkpoint(saved)));
        Ok(())
    })
}

/// Frees a checkpoint; null is fine. The pool stays as it is.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn granule_checkpoint_free(c: *mut granule_checkpoint) {
    guard(|| {
        drop(given!(taken c));
        Ok(())
    });
}

/// Makes exactly those blocks of the pool live that were when the checkpoint was taken. Every block that is live now is freed
/// first. Where the call fails, nothing has changed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn granule_pool_restore(
    a: *mut granule_allocator,
    c: *const granule_checkpoint,
    out: *mut granule_delta,
) -> granule_status {
    guard(|| {
        let (a, c, out) = (given!(handle a), given!(handle c), given!(sized_out out));
        restore(a, c, None, out)
    })
}

/// granule_pool_restore that is refused unless every block that is live now is among these.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn granule_pool_restore_stale(
    a: *mut granule_allocator,
    c: *const granule_checkpoint,
    stale: *const *mut c_void,
    count: u64,
    out: *mut granule_delta,
) -> granule_status {
    guard(|| {
        let (a, c, out) = (given!(handle a), given!(handle c), given!(sized_out out));
        let stale = given!(array stale, count).iter().map(|ptr| address(*ptr)).collect();
        restore(a, c, Some(&stale), out)
    })
}

fn restore(
    a: &granule_allocator,
    c: &granule_checkpoint,
    stale: Option<&BTreeSet<DevicePtr>>,
    out: SizedOut<granule_delta>,
) -> Result<(), Failure> {
    let CheckpointDelta { freed, allocated } = a.engine.pools().restore(&c.0, stale)?;
    let pointers = |addresses: Vec<DevicePtr>| addresses.into_iter().map(pointer).collect();
    let arrays = Box::new(Arrays { freed: pointers(freed), allocated: pointers(allocated) });
    out.set(granule_delta {
        size: 0,
        freed: arrays.freed.as_ptr(),
        freed_count: arrays.freed.len() as u64,
        allocated: arrays.allocated.as_ptr(),
        allocated_count: arrays.allocated.len() as u64,
        owner: Box::into_raw(arrays).cast(),
    });
    Ok(())
}

/// Frees what is in a delta and empties it, so that freeing it again is fine. Null is fine.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn granule_delta_free(d: *mut granule_delta) {
    guard(|| {
        // SAFETY: what callers promise: null, or a struct that nobody else uses.
        let Some(delta) = (unsafe { d.as_mut() }) else { return Ok(()) };
        let owner = std::mem::replace(&mut delta.owner, std::ptr::null_mut());
        (delta.freed, delta.freed_count) = (std::ptr::null(), 0);
        (delta.allocated, delta.allocated_count) = (std::ptr::null(), 0);
        if !owner.is_null() {
            // SAFETY: what callers promise: the struct is one that a function filled; `restore` made its owner.
            drop(unsafe { Box::from_raw(owner.cast::<Arrays>()) });
        }
        Ok(())
    });
}
