//! What the policy may ask of a device.

use crate::arena::ArenaState;
use crate::arena::directory::{Arena, PoolSlot};
use crate::device::hand_over::HandOver;
use crate::device::provider::{Provider, Purpose};
use crate::device::space::side_by_side;
use crate::error::Result;
use crate::lifetimes::call::Call;
use crate::memory::block::BlockId;
use crate::memory::segment::{Origin, Segment};
use crate::policy::engine::{Engine, Granule, Mapped, Part};
use crate::policy::{Grain, GranuleMemory, Request};
use crate::types::DevicePtr;
use crate::watch::observers::SegmentChange;
use std::ops::DerefMut;

impl Engine<GranuleMemory> for Provider {
    type Arena = Arena;
    type State = ArenaState;
    type Streams = HandOver;

    fn lock<'a>(&'a self, arena: &'a Arena) -> impl DerefMut<Target = ArenaState> + 'a {
        arena.lock()
    }

    fn attend<'a>(&'a self, arena: &'a Arena, call: &'a Call<'a>) -> impl DerefMut<Target = ArenaState> + 'a {
        self.base.arenas.attend(arena, call)
    }

    fn in_use(&self) -> u64 {
        self.base.arenas.in_use()
    }

    fn held(&self) -> u64 {
        self.base.holdings.lock().accounts().whole().held()
    }

    fn rejects(&self, held: u64) -> bool {
        let state = self.base.holdings.lock();
        let counted = held.saturating_add(state.accounts().whole().pinned());
        state.rejects_above(self.total()).is_some_and(|limit| counted > limit)
    }

    fn total(&self) -> u64 {
        self.base.site.total_memory()
    }

    fn is_private(&self, arena: &Arena) -> bool {
        arena.lock().tenure().slot() != PoolSlot::DEFAULT
    }

    fn unit(&self) -> Option<u64> {
        self.base.site.unit()
    }

    fn ask_unit(&self) -> Result<()> {
        self.base
            .site
            .backend()
            .virtual_memory()
            .map_or(Ok(()), |vm| self.base.site.ask_granule(vm).map(drop))
    }

    fn try_aliases(&self, arena: &Arena, call: &Call<'_>) -> Option<bool> {
        if self.base.site.is_beside_capture() || !self.may_wait(arena, call) {
            return None;
        }
        let _memory = self.base.arenas.in_transit();
        self.space.try_aliases()
    }

    fn may_wait(&self, arena: &Arena, call: &Call<'_>) -> bool {
        let stream = arena.lock().tenure().stream();
        !call.capturing && !self.base.site.may_be_capturing(stream)
    }

    fn forget_error(&self) {
        self.base.site.backend().clear_error();
    }

    fn moving(&self) -> impl Sized + '_ {
        self.base.arenas.in_transit()
    }

    fn hand_out(&self, state: &mut ArenaState, id: BlockId, requested: u64) -> DevicePtr {
        state.hand_out_whole(id, requested)
    }

    fn search(&self, arena: &Arena, request: &Request, call: &Call<'_>) -> Option<DevicePtr> {
        self.search(arena, request, false, call)
    }

    fn grow(
        &self,
        arena: &Arena,
        request: &Request,
        is_retry: bool,
        call: &Call<'_>,
    ) -> Result<Option<DevicePtr>> {
        self.grow(arena, request, Purpose::Serve, is_retry, call)
    }

    fn stock(
        &self,
        arena: &Arena,
        request: &Request,
        grain: Grain,
        is_retry: bool,
        call: &Call<'_>,
    ) -> Result<bool> {
        let stocked = self.grow(arena, request, Purpose::Stock(grain), is_retry, call)?;
        Ok(stocked.is_some())
    }

    fn streams(&self) -> &HandOver {
        &self.hand_over
    }

    fn map_again(
        &self,
        arena: &Arena,
        granules: &[Granule],
        request: &Request,
        call: &Call<'_>,
        adopt: impl FnOnce(&mut ArenaState, Segment) -> BlockId,
    ) -> Result<Mapped> {
        let Ok(vm) = self.base.site.backend().virtual_memory() else { return Ok(Mapped::Refused) };
        let calls = self.base.site.calls();
        let (handles, owner) = {
            let state = arena.lock();
            (self.space.handles(&state, granules), state.tenure().maps_for())
        };
        let base = match self.space.map_side_by_side(granules, &handles, vm) {
            Ok(base) => base,
            Err(refused) => return Ok(refused),
        };
        let bytes = granules.iter().map(|granule| granule.bytes).sum();
        self.base.tell_growable(SegmentChange::Attached, owner, base, bytes, &calls);
        let mut state = self.base.arenas.attend(arena, call);
        let registration = {
            let mut device = self.base.holdings.lock();
            device.regions_mut().show(side_by_side(base.0, granules));
            device.count_moved(granules.len());
            device.register()
        };
        let mut segment = Segment::new(base, bytes, registration, request.tier, Origin::View);
        segment.context = state.ledger().history().call();
        let block = adopt(&mut state, segment);
        let ptr = state.hand_out_whole(block, request.requested);
        drop(state);
        self.base.lifetimes.arrived(Ok(ptr), &calls).map(Mapped::Served)
    }

    fn unmap(
        &self,
        arena: &Arena,
        parts: &[Part],
        call: &Call<'_>,
        mut commit: impl FnMut(&mut ArenaState, usize, bool) -> Vec<u64>,
        rest: impl FnOnce(&mut ArenaState) -> Vec<Segment>,
    ) -> Result<()> {
        let calls = self.base.site.calls();
        let owner = arena.lock().tenure().maps_for();
        let newest = parts.iter().map(|part| part.epoch).max().unwrap_or(0);
        let quiet = self.base.lifetimes.quiesce_up_to(arena, newest, call);
        let vm = self.base.site.backend().virtual_memory();
        for (number, part) in parts.iter().enumerate() {
            let (at, bytes) = (DevicePtr(part.addr), part.bytes);
            let unmapped = match (&quiet, &vm) {
                (Ok(true), Ok(vm)) => {
                    self.base.tell_growable(SegmentChange::Detaching, owner, at, bytes, &calls);
                    // SAFETY: rule 3: adjacent mappings in which no block lives, and whose last use is past.
                    let outcome = unsafe { vm.unmap(at, bytes) };
                    if let Err(error) = &outcome {
                        self.base.site.backend().clear_error();
                        tracing::error!(%error, %at, bytes, "part of a view could not be unmapped; it stays");
                        self.base.tell_growable(SegmentChange::Attached, owner, at, bytes, &calls);
                    }
                    outcome.is_ok()
                }
                _ => false,
            };
            let mut state = arena.lock();
            let places = commit(&mut state, number, unmapped);
            if unmapped {
                let mut device = self.base.holdings.lock();
                device.regions_mut().hide(&places);
                device.counters_mut().device_free += 1;
            }
        }
        let rest = rest(&mut arena.lock());
        self.space.release_addresses(rest);
        quiet.map(|_| ())
    }
}
