//! Pointers that the address map does not know: memory from times when caching was off, and wrong ones.

use super::CachingAllocator;
use crate::device::Device;
use crate::device::{offload, recorder};
use crate::error::{AllocError, Result};
use crate::memory::address_map::Location;
use crate::process::callbacks::CallbackScope;
use crate::types::{DeviceIndex, DevicePtr, Stream};
use crate::watch::pointer::{BadPointer, Problem, says_freed};
use crate::watch::snapshot::TraceEntry;

impl CachingAllocator {
    /// [`free`](Self::free) of a block of `device`. A block of any other device is not freed.
    ///
    /// # Errors
    /// [`AllocError::WrongDevice`] where the block is another device's; those of [`free`](Self::free).
    pub fn free_on(&self, ptr: DevicePtr, device: DeviceIndex) -> Result<()> {
        if let Some(process_state) = self.device_at(device)?.process_state() {
            return process_state.of_release();
        }
        match self.block_device(ptr) {
            Some(owner) if owner != device => Err(AllocError::WrongDevice { ptr, device, owner }),
            _ => self.free(ptr),
        }
    }

    /// The device of the live block at `ptr`, awake or asleep, whatever its memory's source; `None` where that is no
    /// live block.
    #[must_use]
    pub fn block_device(&self, ptr: DevicePtr) -> Option<DeviceIndex> {
        if self.is_forked() {
            return None;
        }
        let is_live = |at: &Location| self.devices[at.device.0 as usize].arenas.sleeps(ptr, *at).is_some();
        self.map.get(ptr).filter(is_live).map(|at| at.device).or_else(|| {
            let index = self.devices.iter().position(|device| device.uncached.has(ptr))?;
            u16::try_from(index).ok().map(DeviceIndex)
        })
    }

    /// Marks the live block at `ptr`, of at least so many bytes and of this stream, as owned by a value, or takes the
    /// mark off (`None`). While it is owned, no other caller frees or shares it, and no checkpoint is restored over it.
    ///
    /// # Errors
    /// [`AllocError::InvalidPointer`] where `ptr` is no such block, or already has, or lacks, the mark.
    pub(crate) fn set_owned(&self, ptr: DevicePtr, owned: Option<(u64, Stream)>) -> Result<()> {
        if ptr.is_null() {
            return Ok(());
        }
        if self.is_forked() {
            return Err(AllocError::Forked);
        }
        let changed = match self.map.get(ptr) {
            Some(at) => self.devices[at.device.0 as usize].arenas.set_owned(ptr, at, owned),
            None => self
                .devices
                .iter()
                .any(|device| device.uncached.set_owned(ptr, owned.map(|(bytes, _)| bytes))),
        };
        if changed { Ok(()) } else { Err(self.bad_pointer(ptr)) }
    }

    /// Frees what the address map does not know.
    #[cold]
    pub(super) fn free_unknown(&self, ptr: DevicePtr) -> Result<()> {
        if let Some(process_state) = self.all_devices().find_map(Device::process_state) {
            return process_state.of_release();
        }
        for device in &self.devices {
            if let Some(process_state) = device.process_state() {
                return process_state.of_release();
            }
            let freed = device.noticing(device.uncached.free(ptr));
            match (freed, device.process_state()) {
                (Ok(false), _) => {}
                (Err(_), Some(process_state)) => return process_state.of_release(),
                (freed, _) => return freed.map(|_| ()),
            }
        }
        Err(self.bad_pointer(ptr))
    }

    /// Notes a use of what the address map does not know.
    #[cold]
    pub(super) fn record_unknown(&self, ptr: DevicePtr, stream: Stream) -> Result<()> {
        if self.devices.iter().any(|device| device.uncached.record_stream(ptr, stream)) {
            return Ok(());
        }
        if self.sleep_mode().is_asleep(ptr) == Some(true) {
            return Err(AllocError::Asleep { what: format!("the block at {ptr}") });
        }
        // A use of a part, of a view for example, is a use of the block.
        let around = self.devices.iter().find_map(|device| device.diagnose(ptr));
        if let Some(Problem::InsideBlock { block, .. }) = around {
            return self.record_stream(block, stream);
        }
        Err(self.bad_pointer(ptr))
    }

    /// Code of the program that runs in a call of its own is called through these.
    pub(in crate::api) fn calls(&self) -> CallbackScope<'_> {
        self.callbacks.calls()
    }

    /// The error for a pointer that is no live block, with what is known about it.
    #[cold]
    pub(super) fn bad_pointer(&self, ptr: DevicePtr) -> AllocError {
        let found = self.devices.iter().find_map(|device| device.diagnose(ptr));
        let calls = self.calls();
        let history: Vec<TraceEntry> =
            self.devices.iter().flat_map(|device| recorder::history_of(device, ptr, &calls)).collect();
        let problem = match found {
            // Its memory may have become part of another free block since, or have gone back to the driver.
            None | Some(Problem::NotHandedOut { .. }) if says_freed(&history, ptr) => Problem::Freed,
            Some(problem) => problem,
            None => Problem::Foreign,
        };
        AllocError::InvalidPointer(Box::new(BadPointer { ptr, problem, history }))
    }

    /// A free that found no block awake.
    #[cold]
    pub(super) fn free_sleeping(&self, ptr: DevicePtr) -> Result<()> {
        let calls = self.calls();
        // It may wake, or fall asleep, between two looks.
        while let Some(at) = self.map.get(ptr) {
            let device = &self.devices[at.device.0 as usize];
            match device.arenas.sleeps(ptr, at) {
                Some(_) if device.arenas.is_owned(ptr, at) => break,
                Some(true) if offload::free_asleep(device, ptr, at) => return Ok(()),
                Some(false) if device.free_attentively(ptr, at, &calls) => return Ok(()),
                Some(_) => {}
                None => break,
            }
        }
        Err(self.bad_pointer(ptr))
    }
}
