//! Answers of calls at the edges of a process: in a forked child, and once the driver goes away.

use super::CachingAllocator;
use crate::device::Device;
use crate::error::{AllocError, Result};
use crate::process::attention::ProcessState;
use crate::sync::Arc;
use crate::types::DeviceIndex;
use std::mem::ManuallyDrop;

impl CachingAllocator {
    /// Says that the driver is about to be unloaded, or its device reset: it is never called again. The memory goes
    /// with the driver. An exit of the process says the same by itself.
    pub fn abandon(&self) {
        self.all_devices().for_each(Device::abandon);
    }

    /// Edge of the process that forbids driver calls, if there is one.
    #[cold]
    pub(super) fn process_state(&self) -> Option<ProcessState> {
        self.all_devices().find_map(Device::process_state)
    }

    /// In a forked child nothing may be locked, not even to look at it.
    pub(super) fn is_forked(&self) -> bool {
        self.process_state() == Some(ProcessState::Forked)
    }

    /// The devices, unless the process is a fork.
    pub(super) fn reachable(&self) -> impl Iterator<Item = &Device> {
        self.all_devices().filter(|device| device.process_state() != Some(ProcessState::Forked))
    }

    /// A device that is asked for something.
    pub(in crate::api) fn device(&self, device: DeviceIndex) -> Result<&Device> {
        let device = self.device_at(device)?;
        device.process_state().map_or(Ok(device), |process_state| Err(process_state.refusal()))
    }

    /// A device that is looked at, which needs no driver.
    pub(super) fn seen_device(&self, device: DeviceIndex) -> Result<&Device> {
        let device = self.device_at(device)?;
        if device.process_state() == Some(ProcessState::Forked) {
            Err(AllocError::Forked)
        } else {
            Ok(device)
        }
    }

    /// Lets a device take something back. Without a driver there is nothing to be done.
    pub(super) fn give_back(
        &self,
        device: DeviceIndex,
        take_back: impl FnOnce(&Device) -> Result<()>,
    ) -> Result<()> {
        let device = self.device_at(device)?;
        device.process_state().map_or_else(|| device.noticing(take_back(device)), ProcessState::of_release)
    }
}

impl Drop for CachingAllocator {
    /// Gives everything back that is not in the program's hands. At an edge of the process, nothing: neither devices
    /// nor the backend, whose end would call the driver, too, are ever dropped then.
    fn drop(&mut self) {
        if self.process_state().is_some() {
            if !self.is_forked() {
                self.memberships.iter().for_each(|membership| membership.end(false));
            }
            std::mem::take(&mut self.devices).into_iter().for_each(Device::leak);
            let _backend = ManuallyDrop::new(Arc::clone(&self.backend));
        } else {
            self.memberships.iter().for_each(|membership| membership.end(true));
        }
    }
}
