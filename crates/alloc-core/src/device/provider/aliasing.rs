//! Free memory of an arena in another place: what the driver is asked for that.

use crate::arena::ArenaState;
use crate::arena::directory::Arena;
use crate::arena::granule::Shown;
use crate::device::Device;
use crate::device::space::{Mapped, side_by_side};
use crate::device::{arenas, frees, space};
use crate::error::Result;
use crate::lifetimes::call::Call;
use crate::memory::block::BlockId;
use crate::memory::segment::{Origin, Segment};
use crate::policy::Request;
use crate::watch::observers::SegmentChange;

impl Device {
    /// Bytes held, or about to be.
    pub(in crate::device) fn held(&self) -> u64 {
        self.accounting.lock().accounts().whole().held()
    }

    /// True if a request is rejected that takes so many bytes more.
    pub(super) fn rejects_more(&self, bytes: u64) -> bool {
        let state = self.accounting.lock();
        let counted = state.accounts().whole().counted().saturating_add(bytes);
        state.rejects_above(self.driver.total_memory()).is_some_and(|limit| counted > limit)
    }

    /// Tries whether memory that is mapped in two places is the same in both; `None` where a capture is under way, or the driver
    /// has no room. Calls the driver, and waits for it.
    pub(super) fn try_aliases(&self, arena: &Arena, call: &Call<'_>) -> Option<bool> {
        if self.driver.is_beside_capture() || !self.may_wait(arena, call) {
            return None;
        }
        let _memory = self.slow_path.begin();
        space::prove_aliases(self)
    }

    /// True if waiting for the arena's stream breaks no capture, also none that nobody told of. Calls the driver.
    pub(in crate::device) fn may_wait(&self, arena: &Arena, call: &Call<'_>) -> bool {
        let stream = arena.lock().binding().stream();
        !call.capturing && !self.driver.may_be_capturing(stream)
    }

    /// Maps granules a second time, side by side, and serves `request` from there: `adopt` gives the arena the new segment, and
    /// returns the block. Their owners may not lose the memory meanwhile.
    pub(super) fn map_again(
        &self,
        arena: &Arena,
        granules: &[Shown],
        request: &Request,
        call: &Call<'_>,
        adopt: impl FnOnce(&mut ArenaState, Segment) -> BlockId,
    ) -> Result<Mapped> {
        let Ok(vm) = self.driver.backend().virtual_memory() else { return Ok(Mapped::Refused) };
        let calls = self.driver.calls();
        let (handles, owner) = {
            let state = arena.lock();
            (space::handles(self, &state, granules), state.binding().maps_for())
        };
        let base = match space::map_side_by_side(self, granules, &handles, vm) {
            Ok(base) => base,
            Err(refused) => return Ok(refused),
        };
        let bytes = granules.iter().map(|granule| granule.bytes).sum();
        self.tell_growable(SegmentChange::Attached, owner, base, bytes, &calls);
        let mut state = arenas::attend(self, arena, call);
        let registration = {
            let mut accounting = self.accounting.lock();
            for (at, shown) in side_by_side(base.0, granules) {
                let owner = state.place(shown.segment, shown.addr);
                accounting.regions_mut().add_slot(owner, at);
            }
            accounting.count_moved(granules.len());
            accounting.register()
        };
        let mut segment = Segment::new(base, bytes, registration, request.tier, Origin::View);
        segment.context = state.ledger().history().call();
        let block = adopt(&mut state, segment);
        let ptr = state.hand_out_whole(block, request.requested);
        drop(state);
        frees::arrived(self, Ok(ptr), &calls).map(Mapped::Served)
    }
}
