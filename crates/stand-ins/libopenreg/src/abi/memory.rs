//! Memory.

use super::{given, put};
use crate::memory::{self, Copy, Kind};
use crate::status::{Answer, Status, status};
use crate::stream::STREAMS;
use std::ffi::{c_int, c_void};

/// `orPointerAttributes`: what an address is.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Attributes {
    /// `orMemoryType`: 0 not allocated here, 1 host, 2 device.
    pub kind: c_int,
    /// The device, or −1.
    pub device: c_int,
    /// The allocation's base; the address itself where there is none.
    pub pointer: *mut c_void,
}

fn allocate(place: *mut *mut c_void, take: impl FnOnce() -> Answer<usize>) -> Status {
    status(|| {
        given(place)?;
        let base = take()?;
        // SAFETY: our two callers' callers promise that a place that is not null is writable.
        unsafe { put(place, std::ptr::with_exposed_provenance_mut(base)) }
    })
}

fn free(ptr: *mut c_void) -> Status {
    status(|| if ptr.is_null() { Ok(()) } else { memory::lock().free(ptr.addr()) })
}

/// Takes memory of the calling thread's device, in whole pages that are closed to the host.
/// `orErrorUnknown` for 0 bytes, and where the system has no memory.
///
/// # Safety
/// `ptr` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn orMalloc(ptr: *mut *mut c_void, size: usize) -> Status {
    allocate(ptr, || memory::allocate_device(size))
}

/// Gives memory back: of either kind, by its base only. Null is fine.
///
/// # Safety
/// Nobody uses the memory any more, queued copies included.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn orFree(ptr: *mut c_void) -> Status {
    free(ptr)
}

/// Takes host memory in whole pages; errors as for [`orMalloc`].
///
/// # Safety
/// `ptr` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn orMallocHost(ptr: *mut *mut c_void, size: usize) -> Status {
    allocate(ptr, || memory::allocate_host(size))
}

/// The same as [`orFree`].
///
/// # Safety
/// As for [`orFree`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn orFreeHost(ptr: *mut c_void) -> Status {
    free(ptr)
}

fn copy(dst: *mut c_void, src: *const c_void, count: usize, kind: c_int) -> Copy {
    Copy { to: dst.expose_provenance(), from: src.expose_provenance(), bytes: count, kind }
}

/// Copies, and returns when that is done. `orErrorUnknown` for null, for 0 bytes, for more bytes than an
/// allocation holds, and for a kind that is not exactly that of the two sides. Memory that was not allocated
/// here counts as the host's.
///
/// # Safety
/// Host memory that was not allocated here is valid for `count` bytes; nobody else uses either side meanwhile.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn orMemcpy(dst: *mut c_void, src: *const c_void, count: usize, kind: c_int) -> Status {
    let copy = copy(dst, src, count, kind);
    // SAFETY: the caller's promise.
    status(|| unsafe { copy.run() })
}

/// Queues a copy. What is wrong with it shows when its turn comes, and is lost.
///
/// # Safety
/// As for [`orMemcpy`], from now until the stream has done it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn orMemcpyAsync(
    dst: *mut c_void,
    src: *const c_void,
    count: usize,
    kind: c_int,
    stream: *mut c_void,
) -> Status {
    let copy = copy(dst, src, count, kind);
    status(|| {
        STREAMS.get(stream)?.queue(Box::new(move || {
            // SAFETY: the caller's promise, which lasts until now.
            let _lost = unsafe { copy.run() };
        }))
    })
}

/// Tells what an address is. One that nobody allocated here is no error: it is told back, unmanaged.
///
/// # Safety
/// `attributes` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn orPointerGetAttributes(attributes: *mut Attributes, ptr: *const c_void) -> Status {
    status(|| {
        given(ptr)?;
        let found = match memory::lock().find(ptr.addr()) {
            None => Attributes { kind: 0, device: -1, pointer: ptr.cast_mut() },
            Some(block) => {
                let (kind, device) = match block.kind {
                    Kind::Host => (1, -1),
                    Kind::Device(device) => (2, device),
                };
                Attributes { kind, device, pointer: std::ptr::with_exposed_provenance_mut(block.base) }
            }
        };
        // SAFETY: the caller's promise.
        unsafe { put(attributes, found) }
    })
}

/// Opens the device allocation that holds the address to the host; it stays open until it was closed as
/// often. Other addresses are fine and nothing happens.
#[unsafe(no_mangle)]
pub extern "C" fn orMemoryUnprotect(ptr: *mut c_void) -> Status {
    status(|| memory::lock().open(ptr.addr()))
}

/// Undoes one [`orMemoryUnprotect`]. Other addresses, and a closed allocation, are fine and nothing happens.
#[unsafe(no_mangle)]
pub extern "C" fn orMemoryProtect(ptr: *mut c_void) -> Status {
    status(|| memory::lock().close(ptr.addr()))
}
