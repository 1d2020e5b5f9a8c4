//! Pools over memory that libraries register, and the windows that keep it.

use crate::allocator::granule_allocator;
use crate::boundary::guard::{guard, or};
use crate::boundary::handle::{handles, new_handle};
use crate::boundary::pass::{self, Out, address, given, pointer};
use crate::error::{Failure, granule_status};
use crate::pool_id::granule_pool_id;
use granule::backend::ShareableHandle;
use granule::share::{RegisteredMemory, RegisteredOptions, Window};
use std::ffi::c_void;
use std::os::fd::IntoRawFd;
use std::ptr::null_mut;
use std::sync::Arc;

/// Memory of a device for pools whose segments libraries register, such as NCCL.
pub struct granule_registered(Arc<RegisteredMemory>);

handles!(granule_registered);

/// A range of registered memory that stays while it is open, whatever is freed in it.
pub struct granule_window(Window);

handles!(granule_window);

/// Makes a pool with one reference over memory that libraries register. Physical handles have at least chunk bytes (0: no more
/// than the driver demands). The others devices at reached_by reach it, too. Several segments share a handle. GRANULE_UNSUPPORTED where the driver offers no such
/// memory. Asks the driver.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn granule_registered_pool_create(
    a: *mut granule_allocator,
    device: i32,
    pool: granule_pool_id,
    chunk: u64,
    reached_by: *const i32,
    others: u64,
    out: *mut *mut granule_registered,
) -> granule_status {
    guard(|| {
        let (a, reached_by) = (given!(handle a), given!(array reached_by, others));
        let out: Out<*mut granule_registered> = given!(out out);
        let device = pass::device(device)?;
        let mut options = RegisteredOptions::default();
        options.chunk = chunk;
        options.reached_by = reached_by.iter().map(|other| pass::device(*other)).collect::<Result<_, _>>()?;
        let memory = a.engine.pools().registered(device, &options)?;
        a.engine.pools().create(device, pool.into(), Some(memory.clone()))?;
        out.set(new_handle(granule_registered(memory)));
        Ok(())
    })
}

/// Bytes that registered memory takes from the device, also what of handles no segment has; 0 for null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn granule_registered_held(r: *const granule_registered) -> u64 {
    or(0, || Ok(given!(handle r).0.held()))
}

/// Lets go of registered memory; null is fine. Its pool goes on, and so do windows.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn granule_registered_close(r: *mut granule_registered) -> granule_status {
    guard(|| {
        drop(given!(taken r));
        Ok(())
    })
}

/// Keeps the memory around ptr, a block of a pool over r, where it is until the window is closed. Register its base and bytes with
/// the library, once for all blocks in it. GRANULE_INVALID_POINTER for memory of others. Does not call the driver.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn granule_window_open(
    r: *mut granule_registered,
    ptr: *mut c_void,
    out: *mut *mut granule_window,
) -> granule_status {
    guard(|| {
        let (r, out) = (given!(handle r), given!(out out));
        out.set(new_handle(granule_window(r.0.window(address(ptr))?)));
        Ok(())
    })
}

/// Where a window begins; null for a null window.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn granule_window_base(w: *const granule_window) -> *mut c_void {
    or(null_mut(), || Ok(pointer(given!(handle w).0.base())))
}

/// How many bytes there are from its base on; 0 for a null window.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn granule_window_bytes(w: *const granule_window) -> u64 {
    or(0, || Ok(given!(handle w).0.bytes()))
}

/// The driver's handle of the physical memory (CUmemGenericAllocationHandle), for cuMulticastBindMem. The window owns it. 0 for a null
/// window.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn granule_window_physical(w: *const granule_window) -> u64 {
    or(0, || Ok(given!(handle w).0.physical().raw))
}

/// A file descriptor with which another process maps a window's memory (cuMemImportFromShareableHandle); the caller closes it. -1 and
/// the 64 bytes at fabric where the device's memory goes by fabric handles. GRANULE_UNSUPPORTED where it cannot be given away.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn granule_window_share(
    w: *const granule_window,
    descriptor: *mut i32,
    fabric: *mut u8,
) -> granule_status {
    guard(|| {
        let (w, descriptor) = (given!(handle w), given!(out descriptor));
        let fabric: Out<[u8; 64]> = {
            let fabric = fabric.cast::<[u8; 64]>();
            given!(out fabric)
        };
        match w.0.share()? {
            ShareableHandle::PosixFd(shared) => descriptor.set(shared.into_raw_fd()),
            ShareableHandle::Fabric(bytes) => {
                fabric.set(bytes);
                descriptor.set(-1);
            }
        }
        Ok::<_, Failure>(())
    })
}

/// Closes a window; null is fine. What its pool does not need any more may leave from then on.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn granule_window_close(w: *mut granule_window) -> granule_status {
    guard(|| {
        drop(given!(taken w));
        Ok(())
    })
}
