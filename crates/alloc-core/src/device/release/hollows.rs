//! Granules that are backed in parts and that nobody uses any more: what is behind them goes back to the device.

use crate::arena::Hollows;
use crate::arena::directory::{Arena, PoolSlot};
use crate::backend::VirtualMemory;
use crate::device::Base;
use crate::device::space::Space;
use crate::error::Result;
use crate::lifetimes::call::Call;
use crate::memory::block::{BlockId, SegmentId};
use crate::memory::region::{Leftovers, Part, RegionId, give_part_back};
use crate::process::foreign::Calls;
use crate::sync::{Arc, InTransit, ThreadId};
use crate::types::{PoolId, Stream};
use crate::watch::observers::SegmentChange;
use crate::watch::snapshot::Action;

/// A granule of which nothing is in use, out of everyone's reach.
struct Unused {
    block: BlockId,
    segment: SegmentId,
    region: RegionId,
    at: u64,
}

/// Such granules, whose they are, and that they are in the thread's hands.
type Taken<'a> = (Vec<Unused>, (PoolId, Stream), InTransit<'a, ThreadId>);

/// What ends granules that are backed in parts.
pub(super) struct Dissolving {
    base: Base,
    space: Arc<Space>,
}

impl Dissolving {
    pub(super) fn new(base: &Base, space: &Arc<Space>) -> Self {
        Self { base: base.clone(), space: Arc::clone(space) }
    }

    /// Gives back what is behind granules that are backed in parts, where no block on them is in use and the arena is still that
    /// of the pool in `slot`. Calls the driver. Blocks, unless a capture forbids it.
    pub(super) fn dissolve(
        &self,
        arena: &Arena,
        slot: PoolSlot,
        vm: &dyn VirtualMemory,
        call: &Call<'_>,
    ) -> Result<()> {
        let calls = self.base.site.calls();
        let Some((unused, owner, _memory)) = self.take_unused(arena, slot) else { return Ok(()) };
        let blocks: Vec<BlockId> = unused.iter().map(|unused| unused.block).collect();
        let mut quiet = self.base.lifetimes.quiesce(arena, &blocks, call);
        for unused in unused {
            if let Ok(true) = quiet {
                quiet = self.give_up(arena, &unused, owner, vm, (call, &calls)).map(|()| true);
            } else {
                let mut state = arena.lock();
                let parts = self.base.holdings.lock().regions().parts(unused.region, unused.at);
                if let Some(mut hollows) = Hollows::of(state.heap_mut(), unused.segment) {
                    hollows.spread(unused.block, &parts);
                }
            }
        }
        quiet.map(|_| ())
    }

    /// Takes granules of which nothing is in use out of everyone's reach, and says whose they are. From before the arena is
    /// anybody else's, they are in transit. `None` where there are none.
    fn take_unused(&self, arena: &Arena, slot: PoolSlot) -> Option<Taken<'_>> {
        let mut unused = Vec::new();
        let mut state = arena.lock();
        if state.tenure().slot() != slot {
            return None;
        }
        let owner = (state.tenure().pool().id, state.tenure().stream());
        for (segment, region) in state.layout().growable() {
            if !self.base.holdings.lock().regions().get(region).is_some_and(|region| region.has_partial()) {
                continue;
            }
            let Some(mut hollows) = Hollows::of(state.heap_mut(), segment) else { continue };
            for at in hollows.unused() {
                unused.push(Unused { block: hollows.gather(at), segment, region, at });
            }
        }
        (!unused.is_empty()).then(|| (unused, owner, self.base.arenas.in_transit()))
    }

    /// Gives one granule's parts back, as far as the driver takes them, and commits the outcome.
    fn give_up(
        &self,
        arena: &Arena,
        unused: &Unused,
        owner: (PoolId, Stream),
        vm: &dyn VirtualMemory,
        (call, calls): (&Call<'_>, &Calls<'_>),
    ) -> Result<()> {
        let Unused { block, segment, region, at } = *unused;
        let parts = self.base.holdings.lock().regions_mut().begin_parts(region, at);
        let mut leftovers = Leftovers::default();
        let mut outcome = Ok(());
        let mut given_back = 0;
        for part in &parts {
            let tell = |change| self.base.tell_growable(change, owner, part.at(), part.bytes, calls);
            tell(SegmentChange::Detaching);
            // SAFETY: the granule is `Pending` by this thread only; its blocks are busy, and their epochs are closed.
            outcome = unsafe { give_part_back(vm, part, &mut leftovers, calls) };
            if outcome.is_err() {
                tell(SegmentChange::Attached);
                break;
            }
            given_back += 1;
        }
        let (gone, left): (&[Part], &[Part]) = parts.split_at(given_back);
        let empty = {
            let mut state = self.base.arenas.attend(arena, call);
            let mut device = self.base.holdings.lock();
            device.regions_mut().keep(leftovers);
            device.regions_mut().commit_parts(region, at, left.to_vec());
            let tier = state.layout().segments()[segment].tier;
            gone.iter().for_each(|part| device.give_back(owner.0, tier, part.bytes));
            drop(device);
            let context = state.layout().segments()[segment].context.clone();
            for part in gone {
                let history = state.ledger_mut().history_mut();
                history.record_about(Action::SegmentUnmap, part.addr, part.bytes, context.as_ref());
            }
            let Some(mut hollows) = Hollows::of(state.heap_mut(), segment) else { return Ok(()) };
            if left.is_empty() {
                hollows.vacate(block)
            } else {
                hollows.spread(block, left);
                None
            }
        };
        outcome?;
        match empty {
            Some((segment, block)) => self.space.remove_region(arena, segment, block, region, vm),
            None => Ok(()),
        }
    }
}
