//! What follows from other functions where the table has NULL.

use crate::backend::CBackend;
use alloc_core::backend::{Attribute, Backend, CopyKind, DeviceProperties, ErrorKind, PriorityRange, Result};
use alloc_core::types::{DeviceIndex, DevicePtr, Event};

impl CBackend {
    pub(crate) fn derived_exchange_device(&self, device: DeviceIndex) -> Result<DeviceIndex> {
        let previous = self.current_device()?;
        if previous != device {
            self.set_device(device)?;
        }
        Ok(previous)
    }

    pub(crate) fn derived_has_primary_context(&self, device: DeviceIndex) -> Result<bool> {
        self.call("has_primary_context", device).device(device)?;
        Ok(true)
    }

    pub(crate) fn derived_attribute(&self, device: DeviceIndex, attribute: Attribute) -> Result<i64> {
        let call = self.call("attribute", device);
        call.device(device)?;
        let detail = format!("the table has no attribute function to ask for {attribute:?}");
        Err(call.error(ErrorKind::NotSupported, 0, detail))
    }

    pub(crate) fn derived_properties(&self, device: DeviceIndex) -> Result<DeviceProperties> {
        let total_memory = self.memory_info(device)?.total;
        Ok(DeviceProperties {
            name: self.name.to_owned(),
            uuid: None,
            pci_bus_id: None,
            total_memory,
            // A device without warps runs its threads one by one.
            warp_size: 1,
        })
    }

    /// # Safety
    /// As for [`Backend::copy`].
    pub(crate) unsafe fn derived_copy(
        &self,
        dst: DevicePtr,
        src: DevicePtr,
        bytes: u64,
        kind: CopyKind,
    ) -> Result<()> {
        // The device whose memory it is; a stream of another one may not reach it.
        let device = match kind {
            CopyKind::HostToHost => None,
            CopyKind::DeviceToHost => self.pointer_info(src)?.device,
            CopyKind::HostToDevice | CopyKind::DeviceToDevice => self.pointer_info(dst)?.device,
        };
        let device = device.map_or_else(|| self.current_device(), Ok)?;
        let stream = self.default_stream(device);
        // SAFETY: the caller's promise, and the wait below ends the work before this returns.
        unsafe { self.copy_async(dst, src, bytes, kind, stream)? };
        self.synchronize_stream(stream)
    }

    pub(crate) fn derived_priority_range(&self, device: DeviceIndex) -> Result<PriorityRange> {
        self.call("priority_range", device).device(device)?;
        Ok(PriorityRange { least: 0, greatest: 0 })
    }

    pub(crate) fn derived_elapsed_ms(&self, start: Event, end: Event) -> Result<f32> {
        let call = self.call("elapsed_ms", start.device);
        call.event(start)?;
        call.event(end)?;
        Err(call.error(ErrorKind::NotSupported, 0, "the table has no elapsed_ms: events keep no time"))
    }
}
