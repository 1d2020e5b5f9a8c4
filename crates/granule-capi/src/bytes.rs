//! Results of variable size.

use crate::boundary::guard::guard;
use std::ffi::c_void;

/// Bytes that the library made. They are freed with granule_bytes_free. Where they are a text, a NUL follows them.
#[repr(C)]
pub struct granule_bytes {
    /// The first one; never null in what a function gave.
    pub data: *const u8,
    /// How many there are, without the NUL.
    pub len: u64,
    /// The library's.
    pub owner: *mut c_void,
}

impl granule_bytes {
    pub(crate) fn new(bytes: impl Into<Vec<u8>>) -> Self {
        let mut bytes: Vec<u8> = bytes.into();
        let len = bytes.len() as u64;
        bytes.push(0);
        // Boxed twice, because the owner is a thin pointer.
        let owner = Box::new(bytes.into_boxed_slice());
        let data = owner.as_ptr();
        Self { data, len, owner: Box::into_raw(owner).cast() }
    }
}

/// Frees bytes and empties the struct, so that freeing it again is fine. Null is fine.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn granule_bytes_free(bytes: *mut granule_bytes) {
    guard(|| {
        // SAFETY: what callers promise: null, or a struct that nobody else uses.
        let Some(bytes) = (unsafe { bytes.as_mut() }) else { return Ok(()) };
        let owner = std::mem::replace(&mut bytes.owner, std::ptr::null_mut());
        (bytes.data, bytes.len) = (std::ptr::null(), 0);
        if !owner.is_null() {
            // SAFETY: what callers promise: the struct is one that a function filled; `new` made its owner.
            drop(unsafe { Box::from_raw(owner.cast::<Box<[u8]>>()) });
        }
        Ok(())
    });
}
