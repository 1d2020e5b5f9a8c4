//! Entry points by name.

use crate::personality::personality;
use granule_hip_sys::abi6::*;
use lookalike::{Code, absence};
use std::ffi::{c_char, c_int, c_void};

lookalike::entries! {
    run: crate::entry::run, status: hipError_t;

    /// Finds an entry point; nothing for a program of a later version than the runtime's.
    fn hipGetProcAddress as hipGetProcAddress_t(
        input symbol: *const c_char, out place: *mut *mut c_void, val version: c_int, val _flags: u64,
        out status: *mut hipDriverProcAddressQueryResult,
    ) {
        let name = symbol.text()?;
        place.wanted()?;
        let (found, answer) = match absence::find(&name) {
            _ if version > personality()?.version() => (None, HIP_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT),
            None => (None, HIP_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND),
            found => (found, HIP_GET_PROC_ADDRESS_SUCCESS),
        };
        place.put(found.unwrap_or(std::ptr::null_mut()))?;
        status.put_if_wanted(answer);
        found.map(drop).ok_or(Code::INVALID_VALUE)
    }
}
