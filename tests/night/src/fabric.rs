//! A fabric, which simulated machines do not have: its handles stand for file descriptors of them.

use alloc_core::backend::{BackendError, ErrorKind, PhysicalSharing, Result, ShareableHandle};
use alloc_core::types::{DeviceIndex, PhysicalHandle};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError};

/// What all processes of a history reach memory by.
#[derive(Clone, Debug, Default)]
pub struct Fabric(Arc<Mutex<Vec<OwnedFd>>>);

impl Fabric {
    /// A handle of memory.
    pub fn export(&self, inner: &dyn PhysicalSharing, handle: PhysicalHandle) -> Result<ShareableHandle> {
        let exported = inner.export_physical(handle, alloc_core::backend::HandleType::PosixFd)?;
        let ShareableHandle::PosixFd(file) = exported else { return Ok(exported) };
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.push(file);
        let mut name = [0; 64];
        name[..8].copy_from_slice(&(all.len() as u64).to_le_bytes());
        Ok(ShareableHandle::Fabric(name))
    }

    /// The memory that a handle names.
    pub fn import(
        &self,
        inner: &dyn PhysicalSharing,
        device: DeviceIndex,
        name: &[u8; 64],
    ) -> Result<PhysicalHandle> {
        let place = name.first_chunk().map_or(0, |place| u64::from_le_bytes(*place));
        let file = {
            let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            let named = place.checked_sub(1).and_then(|place| all.get(place as usize));
            named.and_then(|file| file.try_clone().ok())
        };
        let unknown = || BackendError::new(ErrorKind::InvalidValue, 0, "fabric", device, "no such handle");
        inner.import_physical(device, &ShareableHandle::PosixFd(file.ok_or_else(unknown)?))
    }
}
