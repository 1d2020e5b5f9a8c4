//! Other devices that reach this device's memory.

use crate::backend::{Access, VirtualMemory};
use crate::device::Device;
use crate::error::{AllocError, Result};
use crate::sync::assert_unlocked;
use crate::types::{DeviceIndex, DevicePtr};

impl Device {
    /// Lets `peer` reach this device's memory, mapped now or later. The driver's own switch is set already. Calls the
    /// driver.
    pub(crate) fn open_to(&self, peer: DeviceIndex) -> Result<()> {
        if self.slow_path.is_nested() {
            // Foreign code that the engine called while it moves memory: others that wait for that memory may be waited
            // for.
            return if self.accounting.is_reached_by(peer) {
                Ok(())
            } else {
                Err(AllocError::Limit(
                    "a device cannot be opened to another one by a callback that runs while memory is taken or given back; \
                     do it before, or afterwards",
                ))
            };
        }
        let _relaxed = self.driver.relaxed()?;
        // A second thread that opens it returns once it is open.
        let _alone = self.opening.lock();
        if self.accounting.is_reached_by(peer) {
            return Ok(());
        }
        self.exchange.imports().open_to(peer)?;
        self.accounting.lock().add_peer(peer);
        let Ok(vm) = self.driver.backend().virtual_memory() else { return Ok(()) };
        // Threads that began to map before the peer was known end first; later ones map for it, too.
        self.slow_path.wait_for_others();
        let opened = grant(self, vm, peer);
        if opened.is_err() {
            self.accounting.lock().remove_peer(peer);
        }
        opened
    }
}

/// Includes memory that a thread is about to take away: it may stay.
fn grant(device: &Device, vm: &dyn VirtualMemory, peer: DeviceIndex) -> Result<()> {
    let ranges = {
        let state = device.accounting.lock();
        let home = state.regions().iter().flat_map(|region| region.held_granules().collect::<Vec<_>>());
        let slots = state.regions().slots().map(|(at, bytes)| (DevicePtr(at), bytes));
        let mut all: Vec<_> = home.chain(slots).collect();
        all.sort_unstable();
        all
    };
    assert_unlocked();
    for (at, bytes) in ranges {
        // SAFETY: the granule was mapped a moment ago; on one that has gone since the driver refuses, and memory that
        // took its place was mapped for the peer already. Access is only added.
        let granted = unsafe { vm.set_access(at, bytes, &[peer], Access::ReadWrite) };
        if let Err(error) = granted {
            device.driver.backend().clear_error();
            if device.accounting.lock().regions().is_mapped(at.0, bytes) {
                return Err(error.into());
            }
        }
    }
    Ok(())
}
