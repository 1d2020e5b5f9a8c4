//! What this process exported: drivers refuse to open it in the same process.

use std::collections::HashSet;
use std::sync::{LazyLock, Mutex, PoisonError};

static EXPORTED: LazyLock<Mutex<HashSet<[u8; 64]>>> = LazyLock::new(Mutex::default);

/// Remembers a handle that this process gave out.
pub fn exported(handle: [u8; 64]) {
    EXPORTED.lock().unwrap_or_else(PoisonError::into_inner).insert(handle);
}

/// Whether this process gave it out.
#[must_use]
pub fn is_own(handle: &[u8; 64]) -> bool {
    EXPORTED.lock().unwrap_or_else(PoisonError::into_inner).contains(handle)
}
