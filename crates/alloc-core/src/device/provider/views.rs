//! Free memory of an arena in another place: what the driver is asked for that.

use crate::arena::ArenaState;
use crate::arena::directory::Arena;
use crate::arena::granule::Shown;
use crate::device::Device;
use crate::device::space::{Mapped, side_by_side};
use crate::device::{arenas, lifetimes, space};
use crate::error::Result;
use crate::lifetimes::call::Call;
use crate::memory::block::BlockId;
use crate::memory::segment::{Origin, Segment};
use crate::policy::Request;
use crate::types::DevicePtr;
use crate::watch::observers::SegmentChange;

/// Adjacent mappings in a second place that are to go, and up to when the device may be using them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Part {
    pub(super) addr: u64,
    pub(super) bytes: u64,
    pub(super) epoch: u64,
}

impl Device {
    /// Bytes held, or about to be.
    pub(super) fn held(&self) -> u64 {
        self.holdings.lock().accounts().whole().held()
    }

    /// Whether a request is rejected that takes so many bytes more.
    pub(super) fn rejects_more(&self, bytes: u64) -> bool {
        let state = self.holdings.lock();
        let counted = state.accounts().whole().counted().saturating_add(bytes);
        state.rejects_above(self.site.total_memory()).is_some_and(|limit| counted > limit)
    }

    /// Tries whether memory that is mapped in two places is the same in both; `None` where a capture is under way, or the driver
    /// has no room. Calls the driver, and waits for it.
    pub(super) fn try_aliases(&self, arena: &Arena, call: &Call<'_>) -> Option<bool> {
        if self.site.is_beside_capture() || !self.may_wait(arena, call) {
            return None;
        }
        let _memory = self.slow_path.begin();
        space::prove_aliases(self)
    }

    /// Whether to wait for the arena's stream breaks no capture, also none that nobody told of. Calls the driver.
    pub(super) fn may_wait(&self, arena: &Arena, call: &Call<'_>) -> bool {
        let stream = arena.lock().tenure().stream();
        !call.capturing && !self.site.may_be_capturing(stream)
    }

    /// Maps granules a second time, side by side, and serves `request` from there: `adopt` gives the arena the new segment, and
    /// returns the block. Their homes may not lose their memory meanwhile.
    pub(super) fn map_again(
        &self,
        arena: &Arena,
        granules: &[Shown],
        request: &Request,
        call: &Call<'_>,
        adopt: impl FnOnce(&mut ArenaState, Segment) -> BlockId,
    ) -> Result<Mapped> {
        let Ok(vm) = self.site.backend().virtual_memory() else { return Ok(Mapped::Refused) };
        let calls = self.site.calls();
        let (handles, owner) = {
            let state = arena.lock();
            (space::handles(self, &state, granules), state.tenure().maps_for())
        };
        let base = match space::map_side_by_side(self, granules, &handles, vm) {
            Ok(base) => base,
            Err(refused) => return Ok(refused),
        };
        let bytes = granules.iter().map(|granule| granule.bytes).sum();
        self.tell_growable(SegmentChange::Attached, owner, base, bytes, &calls);
        let mut state = arenas::attend(self, arena, call);
        let registration = {
            let mut holdings = self.holdings.lock();
            holdings.regions_mut().show(side_by_side(base.0, granules));
            holdings.count_moved(granules.len());
            holdings.register()
        };
        let mut segment = Segment::new(base, bytes, registration, request.tier, Origin::View);
        segment.context = state.ledger().history().call();
        let block = adopt(&mut state, segment);
        let ptr = state.hand_out_whole(block, request.requested);
        drop(state);
        lifetimes::arrived(self, Ok(ptr), &calls).map(Mapped::Served)
    }

    /// Unmaps such mappings, in which no block lives, once the device is done with them. `commit` is told of each whether it is
    /// gone, and returns the addresses of its granules. `rest` returns the segments of which only addresses are left then; these
    /// are given back. Blocks, unless a capture forbids it; then all stay.
    pub(super) fn unmap(
        &self,
        arena: &Arena,
        parts: &[Part],
        call: &Call<'_>,
        mut commit: impl FnMut(&mut ArenaState, usize, bool) -> Vec<u64>,
        rest: impl FnOnce(&mut ArenaState) -> Vec<Segment>,
    ) -> Result<()> {
        let calls = self.site.calls();
        let owner = arena.lock().tenure().maps_for();
        let newest = parts.iter().map(|part| part.epoch).max().unwrap_or(0);
        let quiet = lifetimes::quiesce_up_to(self, arena, newest, call);
        let vm = self.site.backend().virtual_memory();
        for (number, part) in parts.iter().enumerate() {
            let (at, bytes) = (DevicePtr(part.addr), part.bytes);
            let unmapped = match (&quiet, &vm) {
                (Ok(true), Ok(vm)) => {
                    self.tell_growable(SegmentChange::Detaching, owner, at, bytes, &calls);
                    // SAFETY: rule 3: adjacent mappings in which no block lives, and whose last use is past.
                    let outcome = unsafe { vm.unmap(at, bytes) };
                    if let Err(error) = &outcome {
                        self.site.backend().clear_error();
                        tracing::error!(%error, %at, bytes, "part of a view could not be unmapped; it stays");
                        self.tell_growable(SegmentChange::Attached, owner, at, bytes, &calls);
                    }
                    outcome.is_ok()
                }
                _ => false,
            };
            let mut state = arena.lock();
            let places = commit(&mut state, number, unmapped);
            if unmapped {
                let mut holdings = self.holdings.lock();
                holdings.regions_mut().hide(&places);
                holdings.counters_mut().device_free += 1;
            }
        }
        let rest = rest(&mut arena.lock());
        space::release_addresses(self, rest);
        quiet.map(|_| ())
    }
}
