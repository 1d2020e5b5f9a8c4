//! Opens the backend of `example.c`.

use alloc_core::backend::{Backend, BackendError, ErrorKind, Result};
use alloc_core::types::{DeviceIndex, DeviceKind};
use backend_c::{CBackend, Table};
use std::sync::Arc;

unsafe extern "C" {
    fn example_backend() -> *const Table;
}

/// The table of `example.c`.
#[must_use]
pub fn table() -> *const Table {
    // SAFETY: the function takes nothing, and answers with the address of a static table.
    unsafe { example_backend() }
}

/// The backend.
///
/// # Errors
/// `Unusable` with what is wrong with the table.
pub fn open() -> Result<Arc<dyn Backend>> {
    // SAFETY: a static table, compiled with this version's header, whose functions keep what it says.
    let backend = unsafe { CBackend::from_table("example", DeviceKind::PrivateUse1, table()) };
    match backend {
        Ok(backend) => Ok(backend),
        Err(error) => {
            let device = DeviceIndex(0);
            Err(BackendError::new(ErrorKind::Unusable, 0, "from_table", device, error.to_string()))
        }
    }
}
