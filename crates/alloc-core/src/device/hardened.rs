//! Hardened mode on a device: canaries behind what is handed out, poison and quarantine for what comes back. What it does
//! and what it does not is said in [`crate::hardened`].

use super::arenas::Arenas;
use super::history::History;
use super::lifetimes::Lifetimes;
use super::pools::PrivatePools;
use super::site::Site;
use crate::arena::ArenaState;
use crate::arena::directory::PoolSlot;
use crate::backend::{Access, BackendError, Granularity};
use crate::config::Settings;
use crate::error::Result;
use crate::features::hardened::{
    CANARY, CANARY_BYTES, Corruption, CorruptionObserver, CorruptionReport, HardenedStats, MARGIN, Mismatch,
    POISON, Quarantine, Quarantined, Reader,
};
use crate::lifetimes::call::Call;
use crate::lifetimes::pending::Waiting;
use crate::lifetimes::uses::{BlockUse, User};
use crate::memory::address_map::Location;
use crate::memory::block::{Block, Tier};
use crate::memory::segment::Segment;
use crate::policy::{Holding, Request};
use crate::process::attention::Reason;
use crate::process::foreign::{Calls, Kind};
use crate::process::held_event::HeldEvent;
use crate::process::stream_identity::named;
use crate::sync::{Arc, Mutex, Rank};
use crate::types::{DevicePtr, Stream};
use smallvec::SmallVec;

/// The hardened mode of a device.
pub(crate) struct Hardened {
    site: Site,
    arenas: Arc<Arenas>,
    history: Arc<History>,
    pools: Arc<PrivatePools>,
    lifetimes: Arc<Lifetimes>,
    quarantine: Mutex<Quarantine>,
}

/// A block that has just come back and is held back for its own reason, besides its uses.
struct Returned {
    block: Waiting,
    own: Option<Stream>,
    slot: PoolSlot,
    ptr: DevicePtr,
    bytes: u64,
    requested: u64,
    /// The whole granules in it.
    granules: Option<(DevicePtr, u64)>,
}

/// The whole granules of a growable segment that lie in a block.
fn whole_granules(segment: &Segment, block: &Block) -> Option<(DevicePtr, u64)> {
    let whole = segment.is_growable().then(|| segment.granules.within(block.addr..block.end()))?;
    (!whole.is_empty()).then(|| (DevicePtr(whole.start), whole.end - whole.start))
}

impl Hardened {
    pub(super) fn new(
        site: &Site,
        arenas: &Arc<Arenas>,
        history: &Arc<History>,
        pools: &Arc<PrivatePools>,
        lifetimes: &Arc<Lifetimes>,
    ) -> Self {
        Self {
            site: site.clone(),
            arenas: Arc::clone(arenas),
            history: Arc::clone(history),
            pools: Arc::clone(pools),
            lifetimes: Arc::clone(lifetimes),
            quarantine: Mutex::new(Rank::Registry, Quarantine::default()),
        }
    }

    /// Turns the mode on or off as the settings say. Off, what is in quarantine leaves it when it is
    /// [reduced](Self::reduce_quarantine) next.
    pub(super) fn configure(&self, settings: &Settings) {
        if settings.hardened
            && self.site.edge().is_none()
            && let Ok(vm) = self.site.backend().virtual_memory()
            && let Ok(minimum) = vm.granularity(self.site.device(), Granularity::Minimum)
        {
            self.site.note_unit(minimum);
        }
        self.quarantine.lock().configure(settings.hardened, settings.hardened_quarantine);
        self.site.attention().set(Reason::HARDENED, settings.hardened);
    }

    /// The request that is made of an arena for `bytes`: with room for a canary, and, where memory can be protected, with
    /// granules of its own.
    pub(super) fn request(&self, state: &ArenaState, bytes: u64) -> Request {
        let mut request = Request { requested: bytes, ..state.tenure().policy().request(bytes + MARGIN) };
        if let (Tier::Large, true, Some(minimum)) = (request.tier, state.tenure().grows(), self.site.unit()) {
            let granule = state.tenure().policy().granule(Tier::Small, minimum, &Holding::default());
            request.size = request.size.next_multiple_of(granule.usual);
            request.segment_bytes = request.segment_bytes.max(request.size);
        }
        request
    }

    /// Writes the canary behind a block that was handed out. Does not block; where the driver refuses there is none.
    pub(super) fn arm(&self, ptr: DevicePtr, requested: u64, stream: Stream, call: &Call<'_>) {
        let found = self.site.map().get(ptr).and_then(|at| {
            let state = self.arenas.directory().get(at.arena)?.lock();
            let block = state.layout().handed_out(ptr, at.block)?;
            Some((block.size, state.tenure().slot()))
        });
        let Some((size, slot)) = found else { return };
        let mut canary = (size - requested).min(CANARY_BYTES);
        if call.capturing || self.pools.is_captured(slot) {
            canary = 0;
        }
        if canary > 0 {
            let end = ptr.add(requested);
            // SAFETY: rule 2: the part of the block that was not asked for; it stays until the stream has passed this, since
            // whatever gives it back waits for the stream.
            let fill = |stream| unsafe { self.site.backend().memset_async(end, CANARY, canary, stream) };
            if let Err(error) = named(stream).and_then(fill) {
                self.site.backend().clear_error();
                tracing::warn!(%error, "no canary could be written; the block goes without");
                canary = 0;
            }
        }
        self.quarantine.lock().arm(ptr, canary);
    }

    /// The block at `ptr` is not one that the mode knows: it came by another way.
    pub(super) fn forget_canary(&self, ptr: DevicePtr) {
        if self.site.attention().has(Reason::HARDENED) {
            self.quarantine.lock().disarm(ptr);
        }
    }

    /// [`Lifetimes::free_in`] that poisons the block and holds it back. May block.
    pub(super) fn free(&self, ptr: DevicePtr, location: Location, call: &Call<'_>) -> bool {
        let _blocks = self.arenas.in_transit();
        let Some(arena) = self.arenas.directory().get(location.arena) else { return false };
        let mut state = self.arenas.attend(arena, call);
        let id = location.block;
        let Some(block) = state.layout().handed_out(ptr, id) else { return false };
        let returned = Returned {
            block: Waiting { arena: location.arena, block: id },
            own: state.tenure().live_stream(),
            slot: state.tenure().slot(),
            ptr,
            bytes: block.size,
            requested: block.requested,
            granules: whole_granules(state.layout().segment_of(id), block),
        };
        let uses = state.free_and_hold(id);
        let named = (self.lifetimes.name(&uses), returned.own.map(|own| self.lifetimes.name_stream(own)));
        drop(state);
        let canary = self.quarantine.lock().disarm(ptr);
        let held = self.poison(&returned, &uses, canary);
        self.lifetimes.wait_for_all(uses, returned.block, returned.own, returned.slot, call);
        // What follows runs observers, which may retire these streams.
        drop(named);
        match held {
            Some(held) => {
                let held = self.protect(held, &returned);
                self.quarantine.lock().hold(held);
            }
            None => {
                self.quarantine.lock().note_unchecked();
                self.arenas.let_go(returned.block, call);
            }
        }
        self.reduce_quarantine(call);
        true
    }

    /// Fills a freed block, on its own stream and after the work of all that use it. `None` where that cannot be done, or
    /// must not. Names streams; the caller holds a ticket.
    fn poison(&self, returned: &Returned, uses: &[BlockUse], canary: u64) -> Option<Quarantined> {
        let own = returned.own?;
        if self.site.is_beside_capture() {
            let live = |found: &BlockUse| found.user.live();
            let captured = |found: &BlockUse| {
                found.captured.is_some() || live(found).is_some_and(|s| self.site.may_be_capturing(s))
            };
            if self.site.may_be_capturing(own) || uses.iter().any(captured) {
                return None;
            }
        }
        if self.pools.is_captured(returned.slot) {
            return None;
        }
        // Another process may still read it.
        if uses.iter().any(|found| matches!(found.user, User::Shared(_))) {
            return None;
        }
        let fill = || -> std::result::Result<HeldEvent, BackendError> {
            for BlockUse { user, .. } in uses {
                match user {
                    User::Live(stream) => {
                        let event = HeldEvent::new(self.site.backend(), stream.device)?;
                        event.record(*stream)?;
                        event.precede(own)?;
                    }
                    User::Retired(last) => last.precede(own)?,
                    User::Shared(_) => {}
                }
            }
            let Returned { ptr, requested, .. } = *returned;
            // SAFETY: rule 2: the bytes of a block that is pending until this thread, or whoever takes it out of the
            // quarantine, lets it go; its stream's epoch is that of the letting go.
            unsafe { self.site.backend().memset_async(ptr, POISON, requested, named(own)?) }?;
            let event = HeldEvent::new(self.site.backend(), own.device)?;
            event.record(own)?;
            Ok(event)
        };
        match fill() {
            Ok(poisoned) => {
                let Returned { block, ptr, bytes, requested, .. } = *returned;
                Some(Quarantined { block, ptr, bytes, requested, canary, protected: None, poisoned })
            }
            Err(error) => {
                self.site.backend().clear_error();
                tracing::warn!(%error, "a freed block could not be poisoned; it goes unchecked");
                None
            }
        }
    }

    /// Takes the device's access to the whole granules of a block away, once it is poisoned. Blocks.
    fn protect(&self, mut held: Quarantined, returned: &Returned) -> Quarantined {
        let (Some((at, bytes)), Ok(vm)) = (returned.granules, self.site.backend().virtual_memory()) else {
            return held;
        };
        if self.site.is_beside_capture() {
            return held;
        }
        let waited = held.poisoned.wait();
        // SAFETY: whole granules of one block, all mapped; rule 3: its stream has passed the poison, which came after all
        // other uses.
        let taken =
            waited.and_then(|()| unsafe { vm.set_access(at, bytes, &[self.site.device()], Access::None) });
        match taken {
            Ok(()) => held.protected = Some((at, bytes)),
            Err(error) => {
                self.site.backend().clear_error();
                tracing::warn!(%error, "a freed block could not be protected; it is poisoned only");
            }
        }
        held
    }

    /// Lets blocks go until no more is held back than may be. While a capture is under way they wait for its end. Blocks;
    /// runs observers.
    pub(super) fn reduce_quarantine(&self, call: &Call<'_>) {
        let calls = self.site.calls();
        let mut reader = Reader::default();
        while !self.site.is_beside_capture() && self.site.edge().is_none() {
            let _blocks = self.arenas.in_transit();
            let Some(held) = self.quarantine.lock().take_excess() else { return };
            if self.release_held(held, Some(&mut reader), call, &calls).is_err() {
                return;
            }
        }
    }

    /// Lets all blocks go, those that cannot be checked now unchecked. Blocks unless a capture is under way. What the driver
    /// refuses to make accessible again stays; the first error is returned.
    pub(super) fn empty_quarantine(&self, call: &Call<'_>) -> Result<()> {
        let count = self.quarantine.lock().len();
        let calls = self.site.calls();
        let mut reader = Reader::default();
        let mut outcome = Ok(());
        for _ in 0..count {
            let _blocks = self.arenas.in_transit();
            let Some(held) = self.quarantine.lock().take() else { break };
            let may_wait = !self.site.is_beside_capture();
            outcome = outcome.and(self.release_held(held, may_wait.then_some(&mut reader), call, &calls));
        }
        outcome
    }

    /// Checks a block, if there is a reader, and lets it go.
    fn release_held(
        &self,
        mut held: Quarantined,
        reader: Option<&mut Reader>,
        call: &Call<'_>,
        calls: &Calls<'_>,
    ) -> Result<()> {
        if let (Some((at, bytes)), Ok(vm)) = (held.protected, self.site.backend().virtual_memory()) {
            // SAFETY: the range was made inaccessible by `protect`, and is mapped as before: its block is pending.
            if let Err(error) = unsafe { vm.set_access(at, bytes, &[self.site.device()], Access::ReadWrite) }
            {
                self.site.backend().clear_error();
                tracing::warn!(%error, "a protected block could not be made accessible; it stays in quarantine");
                self.quarantine.lock().hold(held);
                return Err(error.into());
            }
            held.protected = None;
        }
        match reader.map(|reader| self.check(&held, reader)) {
            Some(Ok(found)) => {
                self.quarantine.lock().note_checked(found.len() as u64);
                found
                    .into_iter()
                    .for_each(|(corruption, mismatch)| self.report(&held, corruption, mismatch, calls));
            }
            Some(Err(error)) => {
                self.site.backend().clear_error();
                let mut quarantine = self.quarantine.lock();
                quarantine.note_unchecked();
                // A device whose memory has no bytes says so for every block.
                if quarantine.is_first_unreadable() {
                    drop(quarantine);
                    tracing::warn!(
                        %error,
                        "a freed block could not be read back and goes unchecked; further ones are only counted \
                         (hardened_stats)"
                    );
                }
            }
            None => self.quarantine.lock().note_unchecked(),
        }
        self.arenas.let_go(held.block, call);
        Ok(())
    }

    fn check(
        &self,
        held: &Quarantined,
        reader: &mut Reader,
    ) -> std::result::Result<SmallVec<[(Corruption, Mismatch); 2]>, BackendError> {
        let Quarantined { ptr, requested, canary, .. } = *held;
        held.poisoned.wait()?;
        let mut found = SmallVec::new();
        // SAFETY: rule 2: the block is pending, and only this thread lets it go; its stream has passed the poison.
        let overflow = unsafe { reader.compare(&**self.site.backend(), ptr.add(requested), canary, CANARY) }?;
        found.extend(overflow.map(|mismatch| (Corruption::Overflow, mismatch)));
        // SAFETY: as above.
        let written = unsafe { reader.compare(&**self.site.backend(), ptr, requested, POISON) }?;
        found.extend(written.map(|mismatch| (Corruption::UseAfterFree, mismatch)));
        Ok(found)
    }

    fn report(&self, held: &Quarantined, corruption: Corruption, mismatch: Mismatch, calls: &Calls<'_>) {
        let Mismatch { at, bytes, found } = mismatch;
        let report = CorruptionReport {
            corruption,
            device: self.site.device(),
            ptr: held.ptr,
            requested: held.requested,
            at,
            bytes,
            found,
            history: self.history.history_of(held.ptr, calls),
        };
        tracing::error!("{report}");
        let observers = self.quarantine.lock().observers().to_vec();
        for observer in &observers {
            calls.call(Kind::CorruptionObserver, || observer(&report));
        }
    }

    /// Whether the block that began at `ptr` is in quarantine.
    pub(super) fn is_quarantined(&self, ptr: DevicePtr) -> bool {
        self.quarantine.lock().holds(ptr)
    }

    pub(crate) fn stats(&self) -> HardenedStats {
        self.quarantine.lock().stats()
    }

    pub(crate) fn add_observer(&self, observer: CorruptionObserver) {
        self.quarantine.lock().add_observer(observer);
    }

    /// What a request came to. Where foreign code panicked on the way nobody waits for the block any more.
    pub(super) fn arrived(&self, outcome: Result<DevicePtr>, calls: &Calls<'_>) -> Result<DevicePtr> {
        if calls.panicked()
            && let Ok(ptr) = outcome
            && let Some(at) = self.site.map().get(ptr)
        {
            self.forget_canary(ptr);
            self.lifetimes.free_in(ptr, at, &Call::PLAIN);
        }
        outcome
    }
}
