//! Caching off: every request goes straight to the driver, every free straight back. What was made which way is
//! remembered, so the switch may be used between an allocation and its free.

use super::DeviceAllocator;
use crate::attention::Reason;
use crate::error::Result;
use crate::pointer::Problem;
use crate::policy::Policy;
use crate::sync::assert_unlocked;
use crate::types::{DeviceIndex, DevicePtr, Stream};
use smallvec::SmallVec;

/// A live allocation that came straight from the driver.
#[derive(Debug, Default)]
pub(super) struct Uncached {
    /// Devices besides its own whose streams use it.
    users: SmallVec<[DeviceIndex; 1]>,
}

impl<P: Policy> DeviceAllocator<P> {
    /// Whether requests go straight to the driver from here on.
    pub(crate) fn set_uncached(&self, on: bool) {
        self.attention.set(Reason::UNCACHED, on);
    }

    /// Takes memory from the driver, whatever is cached, and without relaxing the thread's capture mode.
    pub(super) fn malloc_uncached(&self, bytes: u64) -> Result<DevicePtr> {
        assert_unlocked();
        let ptr = self.backend.malloc(self.device, bytes).inspect_err(|_| self.backend.clear_error())?;
        self.uncached.lock().insert(ptr, Uncached::default());
        Ok(ptr)
    }

    /// Gives memory back to the driver, once all work of the devices that use it is done: drivers' own frees wait, the
    /// contract's need not. Blocks. `Ok(false)` where `ptr` is no such memory; after an error it is as before.
    pub(crate) fn free_uncached(&self, ptr: DevicePtr) -> Result<bool> {
        let Some(memory) = self.uncached.lock().remove(&ptr) else { return Ok(false) };
        assert_unlocked();
        let mut devices = std::iter::once(self.device).chain(memory.users.iter().copied());
        let waited = devices.try_for_each(|device| self.backend.synchronize_device(device));
        // SAFETY: rule 3: the base of memory from `malloc`, taken out of the table by this thread only; all devices that
        // use it have just finished their work.
        let given = waited.and_then(|()| unsafe { self.backend.free(self.device, ptr) });
        if let Err(error) = given {
            self.backend.clear_error();
            self.uncached.lock().insert(ptr, memory);
            return Err(error.into());
        }
        Ok(true)
    }

    /// Notes that `stream` uses memory that came straight from the driver. `false` where `ptr` is none.
    pub(crate) fn record_uncached(&self, ptr: DevicePtr, stream: Stream) -> bool {
        let mut uncached = self.uncached.lock();
        let Some(memory) = uncached.get_mut(&ptr) else { return false };
        if stream.device != self.device && !memory.users.contains(&stream.device) {
            memory.users.push(stream.device);
        }
        true
    }

    /// Whether `ptr` is live memory that came straight from the driver.
    pub(crate) fn is_uncached(&self, ptr: DevicePtr) -> bool {
        self.uncached.lock().contains_key(&ptr)
    }

    pub(super) fn diagnose_uncached(&self, ptr: DevicePtr) -> Option<Problem> {
        self.is_uncached(ptr).then_some(Problem::NotCached)
    }
}
