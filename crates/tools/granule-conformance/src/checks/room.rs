//! Addresses with physical memory behind some of them, which clean up after themselves.

use crate::context::clean_up;
use crate::{Context, Stop, Verdict};
use backend_api::types::{DeviceIndex, DevicePtr, PhysicalHandle};
use backend_api::{Access, Backend, Granularity, HandleType, Result, VirtualMemory};
use std::sync::Arc;

/// A reservation of a few granules. Slot `n` is its `n`-th granule.
#[derive(Debug)]
pub(super) struct Room {
    backend: Arc<dyn Backend>,
    device: DeviceIndex,
    base: DevicePtr,
    slots: u64,
    /// Bytes of a slot: the recommended granularity.
    granule: u64,
    /// The slots where something is mapped.
    mapped: Vec<u64>,
    /// Physical memory held by handle.
    handles: Vec<PhysicalHandle>,
}

impl Room {
    /// Reserves `slots` granules.
    pub(super) fn reserve(cx: &Context, device: DeviceIndex, slots: u64) -> std::result::Result<Self, Stop> {
        let vmm = cx.backend().virtual_memory()?;
        let granule = vmm.granularity(device, Granularity::Recommended)?;
        let base = vmm.reserve_address(device, slots * granule, 0, DevicePtr::NULL)?;
        let (mapped, handles) = (Vec::new(), Vec::new());
        Ok(Self { backend: cx.shared(), device, base, slots, granule, mapped, handles })
    }

    /// Reserves `slots` granules and puts new memory, open to the device, behind the first.
    pub(super) fn furnished(cx: &Context, slots: u64) -> std::result::Result<Self, Stop> {
        let mut room = Self::reserve(cx, cx.device()?, slots)?;
        room.furnish(0)?;
        Ok(room)
    }

    /// Puts new memory behind a slot and opens it to the device.
    pub(super) fn furnish(&mut self, slot: u64) -> std::result::Result<PhysicalHandle, Stop> {
        let handle = self.create(HandleType::None)?;
        self.map(slot, handle)?;
        self.set_access(slot, &[self.device], Access::ReadWrite)?;
        Ok(handle)
    }

    fn vmm(&self) -> Result<&dyn VirtualMemory> {
        Ok(self.backend.virtual_memory()?)
    }

    /// The address of a slot.
    pub(super) fn at(&self, slot: u64) -> DevicePtr {
        self.base.add(slot * self.granule)
    }

    /// Bytes of a slot.
    pub(super) fn granule(&self) -> u64 {
        self.granule
    }

    /// Creates physical memory of one granule.
    pub(super) fn create(&mut self, handle_type: HandleType) -> Result<PhysicalHandle> {
        let handle = self.vmm()?.create_physical(self.device, self.granule, handle_type)?;
        self.handles.push(handle);
        Ok(handle)
    }

    /// Takes over a handle that came from elsewhere.
    pub(super) fn adopt(&mut self, handle: PhysicalHandle) {
        self.handles.push(handle);
    }

    /// Maps a handle at a slot.
    pub(super) fn map(&mut self, slot: u64, handle: PhysicalHandle) -> Result<()> {
        // SAFETY: the slot lies in this reservation, and checks map handles of one granule that are alive.
        unsafe { self.vmm()?.map(self.at(slot), self.granule, handle)? };
        self.mapped.push(slot);
        Ok(())
    }

    /// Unmaps a slot.
    pub(super) fn unmap(&mut self, slot: u64) -> Result<()> {
        self.mapped.retain(|&other| other != slot);
        // SAFETY: rule 3: one mapping; checks have ended their work on it.
        unsafe { self.vmm()?.unmap(self.at(slot), self.granule) }
    }

    /// Unmaps several adjacent slots, from the first on, in one call.
    pub(super) fn unmap_first(&mut self, slots: u64) -> Result<()> {
        self.mapped.retain(|&slot| slot >= slots);
        // SAFETY: rule 3: adjacent mappings; checks have ended their work on them.
        unsafe { self.vmm()?.unmap(self.base, slots * self.granule) }
    }

    /// Sets access to a slot.
    pub(super) fn set_access(&self, slot: u64, devices: &[DeviceIndex], access: Access) -> Result<()> {
        // SAFETY: the slot is mapped, and no queued work uses it.
        unsafe { self.vmm()?.set_access(self.at(slot), self.granule, devices, access) }
    }

    /// What a device may do with a slot.
    pub(super) fn access(&self, slot: u64, device: DeviceIndex) -> Result<Access> {
        self.vmm()?.access(self.at(slot), device)
    }

    /// Gives a handle up.
    pub(super) fn release(&mut self, handle: PhysicalHandle) -> Result<()> {
        if let Some(index) = self.handles.iter().position(|&held| held == handle) {
            self.handles.swap_remove(index);
        }
        // SAFETY: rule 1: made by this backend, and no longer held here.
        unsafe { self.vmm()?.release_physical(handle) }
    }

    /// Tries to give the addresses back while something is mapped there; a backend that agrees is wrong.
    pub(super) fn release_addresses(&self) -> Result<()> {
        // SAFETY: rule 3 for base and size; where something is mapped the contract answers with an error.
        unsafe { self.vmm()?.release_address(self.base, self.slots * self.granule) }
    }

    /// Ends all of it, with the first error.
    pub(super) fn close(mut self) -> Verdict {
        Ok(self.clear()?)
    }

    fn clear(&mut self) -> Result<()> {
        let mut ended = Ok(());
        while let Some(&slot) = self.mapped.last() {
            ended = ended.and(self.unmap(slot));
        }
        while let Some(&handle) = self.handles.last() {
            ended = ended.and(self.release(handle));
        }
        if self.slots > 0 {
            ended = ended.and(self.release_addresses());
            self.slots = 0;
        }
        ended
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        clean_up(|| {
            // A check that ends early may have work queued: memory must not leave under it.
            let _ = self.backend.synchronize_device(self.device);
            let _ = self.clear();
        });
    }
}
