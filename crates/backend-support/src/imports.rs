//! Memory of other processes that is open here.

use backend_api::types::{DeviceIndex, DevicePtr};
use backend_api::{IpcMemoryHandle, Result};
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

#[derive(Clone, Copy, Debug)]
struct Import {
    at: DevicePtr,
    references: usize,
}

/// What is open, by device and handle. The contract wants one address, with two references, for a handle that is
/// opened twice; drivers open a handle once, or do not promise the same address again.
#[derive(Debug, Default)]
pub struct Imports(Mutex<HashMap<(DeviceIndex, IpcMemoryHandle), Import>>);

impl Imports {
    fn lock(&self) -> MutexGuard<'_, HashMap<(DeviceIndex, IpcMemoryHandle), Import>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One more reference to a handle's memory; `map` opens it where it is not open yet. The lock is held over
    /// `map`, so that two openers make one mapping: blocks while another thread opens or closes.
    ///
    /// # Errors
    /// What `map` answers; nothing is open then.
    pub fn open(
        &self,
        device: DeviceIndex,
        handle: &IpcMemoryHandle,
        map: impl FnOnce() -> Result<DevicePtr>,
    ) -> Result<DevicePtr> {
        let mut imports = self.lock();
        if let Some(open) = imports.get_mut(&(device, *handle)) {
            open.references += 1;
            return Ok(open.at);
        }
        let at = map()?;
        imports.insert((device, *handle), Import { at, references: 1 });
        Ok(at)
    }

    /// One reference less to what is open at an address; none where nothing is. `unmap` gets the device and closes
    /// the memory when this was the last reference. The lock is held over it, as in [`open`](Self::open).
    ///
    /// # Errors
    /// What `unmap` answers; the memory counts as open then.
    pub fn close(&self, at: DevicePtr, unmap: impl FnOnce(DeviceIndex) -> Result<()>) -> Option<Result<()>> {
        let mut imports = self.lock();
        let (&key, open) = imports.iter_mut().find(|(_, open)| open.at == at)?;
        if open.references > 1 {
            open.references -= 1;
            return Some(Ok(()));
        }
        let unmapped = unmap(key.0);
        if unmapped.is_ok() {
            imports.remove(&key);
        }
        Some(unmapped)
    }

    /// Whether memory that begins here was opened from another process.
    #[must_use]
    pub fn contains(&self, at: DevicePtr) -> bool {
        self.lock().values().any(|open| open.at == at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use backend_api::{BackendError, ErrorKind};

    const DEVICE: DeviceIndex = DeviceIndex(1);
    const HANDLE: IpcMemoryHandle = IpcMemoryHandle([7; 64]);
    const AT: DevicePtr = DevicePtr(0x2000);

    fn refused<T>() -> Result<T> {
        Err(BackendError::new(ErrorKind::InvalidValue, 1, "ipcOpen", DEVICE, "refused"))
    }

    #[test]
    fn a_handle_is_mapped_once_and_unmapped_with_its_last_reference() {
        let imports = Imports::default();
        assert_eq!(imports.open(DEVICE, &HANDLE, || Ok(AT)).unwrap(), AT);
        assert_eq!(imports.open(DEVICE, &HANDLE, || unreachable!("it is open")).unwrap(), AT);
        imports.close(AT, |_| unreachable!("a reference is left")).unwrap().unwrap();
        assert!(imports.contains(AT));
        let mut closed = None;
        let unmap = |device| {
            closed = Some(device);
            Ok(())
        };
        imports.close(AT, unmap).unwrap().unwrap();
        assert_eq!(closed, Some(DEVICE));
        assert!(!imports.contains(AT));
        assert!(imports.close(AT, |_| unreachable!("nothing is open")).is_none());
    }

    #[test]
    fn each_device_maps_a_handle_for_itself() {
        let imports = Imports::default();
        let other = DevicePtr(0x3000);
        imports.open(DEVICE, &HANDLE, || Ok(AT)).unwrap();
        assert_eq!(imports.open(DeviceIndex(0), &HANDLE, || Ok(other)).unwrap(), other);
        imports.close(AT, |_| Ok(())).unwrap().unwrap();
        assert!(imports.contains(other) && !imports.contains(AT));
    }

    #[test]
    fn a_refusal_changes_nothing() {
        let imports = Imports::default();
        imports.open(DEVICE, &HANDLE, refused).unwrap_err();
        assert_eq!(imports.open(DEVICE, &HANDLE, || Ok(AT)).unwrap(), AT);
        imports.close(AT, |_| refused()).unwrap().unwrap_err();
        assert!(imports.contains(AT));
        imports.close(AT, |_| Ok(())).unwrap().unwrap();
    }
}
