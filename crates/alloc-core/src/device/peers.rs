//! Other devices that reach this device's memory.

use super::DeviceAllocator;
use crate::backend::{Access, VirtualMemory};
use crate::error::{AllocError, Result};
use crate::memory::region::{Backing, Source};
use crate::sync::{assert_unlocked, this_thread};
use crate::types::{DeviceIndex, DevicePtr};
use smallvec::SmallVec;

impl DeviceAllocator {
    /// The device and those that reach its memory.
    pub(super) fn users(&self) -> SmallVec<[DeviceIndex; 4]> {
        let mut users: SmallVec<_> = [self.device].into_iter().collect();
        users.extend_from_slice(&self.state.lock().peers);
        users
    }

    /// What new granules are made of.
    pub(super) fn backing(&self, granule: u64, source: &Source) -> Backing {
        Backing {
            device: self.device,
            granule,
            handle_type: self.handle_type(),
            access: self.users(),
            source: source.clone(),
        }
    }

    /// Whether `device` reaches this device's memory.
    pub(crate) fn is_reached_by(&self, device: DeviceIndex) -> bool {
        device == self.device || self.state.lock().peers.contains(&device)
    }

    /// Whether it holds reserved address space.
    pub(crate) fn has_growable_memory(&self) -> bool {
        self.state.lock().regions.iter().next().is_some()
    }

    /// Lets `peer` reach this device's memory: what is mapped now and what will be. The driver's own switch is set already.
    /// Calls the driver.
    pub(crate) fn open_to(&self, peer: DeviceIndex) -> Result<()> {
        let me = this_thread();
        if self.transit.concerns(me) {
            // Foreign code that the engine called while it moves memory: who waits for that may be waited for.
            return if self.is_reached_by(peer) {
                Ok(())
            } else {
                Err(AllocError::Limit(
                    "a device cannot be opened to another one by a callback that runs while memory is taken or given back; \
                     do it before, or afterwards",
                ))
            };
        }
        // A second thread that opens it returns once it is open.
        let _alone = self.opening_to_peers.lock();
        if self.is_reached_by(peer) {
            return Ok(());
        }
        self.exchange.imports().open_to(peer)?;
        self.state.lock().peers.push(peer);
        let Ok(vm) = self.backend.virtual_memory() else { return Ok(()) };
        // Whoever began to map before the peer was known ends first; whoever begins now maps for it, too.
        self.transit.wait_for(|thread| thread != me, || None::<()>);
        let opened = self.grant(vm, peer);
        if opened.is_err() {
            self.state.lock().peers.retain(|known| *known != peer);
        }
        opened
    }

    /// Also what a thread is about to take away: it may stay.
    fn grant(&self, vm: &dyn VirtualMemory, peer: DeviceIndex) -> Result<()> {
        let ranges: Vec<_> = {
            let state = self.state.lock();
            let home = state.regions.iter().flat_map(|region| region.held_granules().collect::<Vec<_>>());
            let shown = state.regions.shown().iter().map(|(at, bytes)| (DevicePtr(*at), *bytes));
            home.chain(shown).collect()
        };
        assert_unlocked();
        for (at, bytes) in ranges {
            // SAFETY: the granule was mapped a moment ago; on one that has gone since the driver refuses, and one that came
            // back was mapped for the peer already. Access is only added.
            let granted = unsafe { vm.set_access(at, bytes, &[peer], Access::ReadWrite) };
            if let Err(error) = granted {
                self.backend.clear_error();
                if self.state.lock().regions.is_backed(at.0) {
                    return Err(error.into());
                }
            }
        }
        Ok(())
    }
}
