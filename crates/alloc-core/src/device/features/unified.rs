//! A device whose memory pinned host memory lies in: one budget, and each gives way to the other.

use crate::device::Base;
use crate::device::release::Release;
use crate::process::host_reserve::{HostReserve, HostRoom};
pub(in crate::device) use crate::process::unified::Membership;
use crate::process::unified::{PinnedRefusal, Sharing};
use crate::sync::Arc;

/// The device, as pinned memory sees it.
struct Shared {
    base: Base,
    release: Arc<Release>,
}

/// Where the device shares its memory, pinned memory counts against its limits from here on, for as long as it is a member.
pub(in crate::device) fn join(base: &Base, release: &Arc<Release>) -> Option<Membership> {
    let unified = base.site.unified()?;
    Some(unified.join_device(Arc::new(Shared { base: base.clone(), release: Arc::clone(release) })))
}

impl Sharing for Shared {
    fn reserve(&self) -> Option<&HostReserve> {
        self.base.site.host_reserve()
    }

    fn refusal(&self, bytes: u64, host: HostRoom) -> Box<PinnedRefusal> {
        let refusal = self.base.holdings.refusal(bytes, "host_reserve".into(), 0);
        Box::new(PinnedRefusal { host: Some(host), ..refusal })
    }

    fn admit(&self, bytes: u64) -> Result<(), Box<PinnedRefusal>> {
        self.base.holdings.pin(bytes)
    }

    fn note(&self, pinned: u64) {
        self.base.holdings.set_pinned(pinned);
    }

    fn give_back(&self, may_wait: bool) {
        let site = &self.base.site;
        if site.edge().is_some() {
            return;
        }
        if let Err(error) = site.noticing(self.release.release_for_others(may_wait)) {
            tracing::warn!(%error, device = %site.device(), "not all cached memory could be given back for pinned memory");
        }
        self.tell();
    }

    fn tell(&self) {
        if self.base.site.edge().is_none() {
            self.base.crossings.tell();
        }
    }
}
