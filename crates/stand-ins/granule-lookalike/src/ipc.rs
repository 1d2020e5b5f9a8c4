//! What this process exported: drivers refuse to open it in the same process.

use crate::{Answer, Code};
use std::collections::HashSet;
use std::ffi::c_char;
use std::sync::{LazyLock, Mutex, PoisonError};

static EXPORTED: LazyLock<Mutex<HashSet<[u8; 64]>>> = LazyLock::new(Mutex::default);

/// Remembers a handle that this process gives out, as C has it.
pub fn exported(handle: [u8; 64]) -> [c_char; 64] {
    EXPORTED.lock().unwrap_or_else(PoisonError::into_inner).insert(handle);
    handle.map(|byte| byte as c_char)
}

/// A handle that another process gave out.
///
/// # Errors
/// `INVALID_CONTEXT` for one of this process.
pub fn foreign(handle: [c_char; 64]) -> Answer<[u8; 64]> {
    let handle = handle.map(|byte| byte as u8);
    let is_own = EXPORTED.lock().unwrap_or_else(PoisonError::into_inner).contains(&handle);
    if is_own { Err(Code::INVALID_CONTEXT) } else { Ok(handle) }
}
