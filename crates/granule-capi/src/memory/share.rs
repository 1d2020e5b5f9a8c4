//! Blocks that other processes use.

use crate::allocator::granule_allocator;
use crate::boundary::guard::{guard, or};
use crate::boundary::handle::{handles, new_handle};
use crate::boundary::pass::{self, Out, address, given, pointer};
use crate::bytes::granule_bytes;
use crate::error::granule_status;
use granule::share::ImportedMemory;
use std::ffi::c_void;
use std::ptr::null_mut;
use std::sync::Arc;

/// Memory of another process, open here.
pub struct granule_import(Arc<ImportedMemory>);

handles!(granule_import);

/// Lets other processes open the live block at ptr: with handle, which is the same bytes on every call; there it begins
/// offset bytes from the import's base. Blocks.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn granule_share(
    a: *mut granule_allocator,
    ptr: *mut c_void,
    handle: *mut granule_bytes,
    offset: *mut u64,
) -> granule_status {
    guard(|| {
        let (a, handle, offset) = (given!(handle a), given!(out handle), given!(out offset));
        let shared = a.engine.sharing().share(address(ptr))?;
        handle.set(granule_bytes::new(shared.handle));
        offset.set(shared.offset);
        Ok(())
    })
}

/// Opens what granule_share gave in another process. Any bytes may be given. The same handle gives the same memory for as long
/// as somebody has it. Blocks.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn granule_open_shared(
    a: *mut granule_allocator,
    device: i32,
    handle: *const u8,
    len: u64,
    out: *mut *mut granule_import,
) -> granule_status {
    guard(|| {
        let (a, handle) = (given!(handle a), given!(array handle, len));
        let out: Out<*mut granule_import> = given!(out out);
        let opened = a.engine.sharing().open(pass::device(device)?, handle)?;
        out.set(new_handle(granule_import(opened)));
        Ok(())
    })
}

/// Where an import begins here; null for a null import.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn granule_import_base(i: *const granule_import) -> *mut c_void {
    or(null_mut(), || Ok(pointer(given!(handle i).0.base())))
}

/// How many bytes there are from its base on; 0 for a null import.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn granule_import_bytes(i: *const granule_import) -> u64 {
    or(0, || Ok(given!(handle i).0.bytes()))
}

/// Closes an import; null is fine. The last one of a handle waits for the device.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn granule_import_close(i: *mut granule_import) -> granule_status {
    guard(|| {
        drop(given!(taken i));
        Ok(())
    })
}

/// Bytes of address space on a device that show other processes' memory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn granule_imported_bytes(
    a: *mut granule_allocator,
    device: i32,
    out: *mut u64,
) -> granule_status {
    guard(|| {
        let (a, out) = (given!(handle a), given!(out out));
        out.set(a.engine.sharing().imported_bytes(pass::device(device)?)?);
        Ok(())
    })
}
