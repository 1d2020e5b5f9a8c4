//! Sharing with other processes.

use super::{given, put};
use crate::ipc;
use crate::status::{Refused, Status, status};
use std::ffi::{CStr, CString, c_char, c_void};

/// Copies the device allocation that holds the address into a shared memory object. Answers the object's name
/// and how far into the allocation the address is. `orErrorUnknown` for an address that no device allocation
/// holds, and for room for less than `OR_IPC_HANDLE_MAX_LEN` bytes.
///
/// # Safety
/// `name_out` is null or writable for `name_buf_len` bytes, `offset_out` null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn orGetIpcMemHandle(
    ptr: *mut c_void,
    name_out: *mut c_char,
    name_buf_len: usize,
    offset_out: *mut isize,
) -> Status {
    status(|| {
        given(name_out)?;
        given(offset_out)?;
        if name_buf_len < ipc::NAME_BYTES {
            return Err(Refused);
        }
        let (name, offset) = ipc::export(ptr.addr())?;
        // "/openreg_", two numbers of at most 10 and 20 digits, and a "_" are shorter than `NAME_BYTES`.
        let name = CString::new(name).map_err(|_| Refused)?;
        let bytes = name.as_bytes_with_nul();
        // SAFETY: the caller promises room for `name_buf_len` bytes, and the name is shorter.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), name_out.cast(), bytes.len()) };
        // SAFETY: the caller's promise.
        unsafe { put(offset_out, offset.cast_signed()) }
    })
}

/// Maps a shared memory object that [`orGetIpcMemHandle`] named, open to the host, and takes the name away: it
/// can be opened once. Answers where it is, and its bytes.
///
/// # Safety
/// `ptr_out` and `size_out` are null or writable, `name` null or a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn orOpenIpcMemHandle(
    ptr_out: *mut *mut c_void,
    name: *const c_char,
    size_out: *mut usize,
) -> Status {
    status(|| {
        given(ptr_out)?;
        given(name)?;
        given(size_out)?;
        // SAFETY: the caller's promise, and not null.
        let (base, bytes) = ipc::open(unsafe { CStr::from_ptr(name) })?;
        // SAFETY: the caller's promise.
        unsafe { put(ptr_out, std::ptr::with_exposed_provenance_mut(base)) }?;
        // SAFETY: the caller's promise.
        unsafe { put(size_out, bytes) }
    })
}

/// Unmaps what [`orOpenIpcMemHandle`] mapped; `size` must be what it answered.
///
/// # Safety
/// Nobody uses the memory any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn orCloseIpcMemHandle(ptr: *mut c_void, size: usize) -> Status {
    status(|| ipc::close(ptr.addr(), size))
}
