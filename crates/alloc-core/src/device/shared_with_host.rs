//! A device that shares its memory with pinned host memory: one budget, in which each gives way to the other.

use crate::device::Device;
use crate::device::budget_events;
use crate::process::host_reserve::{HostReserve, HostRoom};
use crate::process::unified::{Membership, PinnedRefusal, SharesMemory};
use crate::sync::Arc;

impl Device {
    /// Joins the devices that share the host's memory: pinned memory counts against this device's limits while it is a
    /// member.
    pub(crate) fn join_unified(self: &Arc<Self>) -> Option<Membership> {
        self.driver.unified().map(|unified| unified.join_device(Arc::clone(self) as Arc<dyn SharesMemory>))
    }
}

impl SharesMemory for Device {
    fn reserve(&self) -> Option<&HostReserve> {
        self.driver.host_reserve()
    }

    fn refusal(&self, bytes: u64, host: HostRoom) -> Box<PinnedRefusal> {
        let refusal = self.accounting.refusal(bytes, "host_reserve".into(), 0);
        Box::new(PinnedRefusal { host: Some(host), ..refusal })
    }

    fn admit(&self, bytes: u64) -> Result<(), Box<PinnedRefusal>> {
        self.accounting.pin(bytes)
    }

    fn note(&self, pinned: u64) {
        self.accounting.set_pinned(pinned);
    }

    fn give_back(&self, may_wait: bool) {
        if self.process_state().is_some() {
            return;
        }
        if let Err(error) = self.noticing(self.release_for_others(may_wait)) {
            tracing::warn!(%error, device = %self.index(), "not all cached memory could be given back for pinned memory");
        }
        self.tell();
    }

    fn tell(&self) {
        if self.process_state().is_none() {
            budget_events::tell(self);
        }
    }
}
