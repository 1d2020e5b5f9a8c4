//! Arenas of a device: their streams, their locks, and the peaks over all of them.

use super::Device;
use super::driver_context::DriverContext;
use crate::arena::directory::{Arena, Directory, PoolSlot, Template};
use crate::arena::{ArenaPool, ArenaState};
use crate::base::steps::Counted;
use crate::error::Result;
use crate::lifetimes::call::Call;
use crate::lifetimes::pending::Waiting;
use crate::memory::address_map::Location;
use crate::memory::block::{Block, BlockPhase, Live, Tier};
use crate::memory::region::Region;
use crate::policy::Policy;
use crate::sync::{Arc, Guard, Mutex, Rank};
use crate::types::{DevicePtr, Stream};
use crate::watch::counters::{Counters, Peaks, RECENT, Rows, one_more};
use crate::watch::history::{Context, HistoryTemplate};
use crate::watch::pointer::Problem;
use smallvec::SmallVec;
use std::ops::{Deref, DerefMut};

/// The arenas of a device.
pub(crate) struct Arenas {
    directory: Directory,
    peaks: Mutex<Peaks>,
    /// Held while a stream gets its arena.
    bindings: Mutex<()>,
    /// Held while the configuration of new arenas changes.
    configuring: Mutex<()>,
}

/// An arena, locked for an operation whose context its records carry. Unlocking it settles peaks where needed.
pub(super) struct Attended<'a> {
    device: &'a Device,
    /// Keeps the context alive while the arena's history has it.
    _call: &'a Call<'a>,
    /// There until this is dropped.
    state: Option<Guard<'a, ArenaState>>,
}

impl Deref for Attended<'_> {
    type Target = ArenaState;
    fn deref(&self) -> &ArenaState {
        match &self.state {
            Some(state) => state,
            None => unreachable!("the lock is held until this is dropped"),
        }
    }
}

impl DerefMut for Attended<'_> {
    fn deref_mut(&mut self) -> &mut ArenaState {
        match &mut self.state {
            Some(state) => state,
            None => unreachable!("the lock is held until this is dropped"),
        }
    }
}

impl Drop for Attended<'_> {
    fn drop(&mut self) {
        let Some(mut state) = self.state.take() else { return };
        let given_up = state.ledger_mut().history_mut().end_call();
        leave(self.device, state);
        self.device.driver.callbacks().end(given_up);
    }
}

impl Arenas {
    pub(super) fn new(driver: &DriverContext, policy: Arc<Policy>) -> Self {
        let template = Template { policy, ages: false, history: HistoryTemplate::default() };
        Self {
            directory: Directory::new(driver.device(), Arc::clone(driver.map()), template),
            peaks: Mutex::new(Rank::Peaks, Peaks::default()),
            bindings: Mutex::new(Rank::Synchronisation, ()),
            configuring: Mutex::new(Rank::Configuration, ()),
        }
    }

    /// Directory in which arenas are found.
    #[inline(always)]
    pub(super) fn directory(&self) -> &Directory {
        &self.directory
    }

    /// No stream gets an arena while the guard lives.
    pub(super) fn bindings(&self) -> Guard<'_, ()> {
        self.bindings.lock()
    }

    /// Nobody else changes the configuration of new arenas while the guard lives.
    pub(super) fn configuring(&self) -> Guard<'_, ()> {
        self.configuring.lock()
    }

    /// Takes back the peaks' reserve from a pool's arenas: nothing is requested of them any more.
    pub(super) fn reclaim_peaks(&self, slot: PoolSlot) {
        let mut peaks = self.peaks.lock();
        for arena in self.directory.of_pool(slot) {
            peaks.reclaim(arena.lock_shortly().ledger_mut().counters_mut());
        }
    }

    /// True if a request of `bytes` may raise a peak that counts pending blocks. If not, its arena has room for it
    /// afterwards.
    pub(super) fn may_raise_peaks(&self, slot: PoolSlot, stream: Stream, bytes: u64) -> bool {
        let Some(arena) = self.directory.of_stream(slot, stream) else {
            // The first request of a stream misses, which drains, too.
            return false;
        };
        let (number, more) = {
            let state = arena.lock_shortly();
            let request = state.binding().policy().request(bytes);
            let more = one_more(request.tier, request.size, request.requested);
            if state.ledger().counters().has_room_for(&more) {
                return false;
            }
            (state.binding().number(), more)
        };
        !self.make_room(&mut self.peaks.lock(), number, &more)
    }

    /// Settles what concerns other arenas, after an operation in one.
    #[cold]
    fn tell(&self, number: u16) {
        let mut peaks = self.peaks.lock();
        let Some(arena) = self.directory.get(number) else { return };
        let crossed = {
            let mut state = arena.lock_shortly();
            state.note_used(&mut peaks);
            state.ledger().counters().crossed()
        };
        if crossed && !self.make_room(&mut peaks, number, &Rows::default()) {
            peaks.note_granted(number);
            let listed = peaks.take_listed();
            let listed = listed.into_iter().counted().filter_map(|number| self.directory.get(number));
            let mut arenas: SmallVec<[_; 4]> = listed.map(|arena| arena.lock_shortly()).collect();
            self.settle(&mut peaks, &mut arenas);
        }
    }

    /// Settles the peaks, with these arenas locked.
    pub(super) fn settle(&self, peaks: &mut Peaks, arenas: &mut [Guard<'_, ArenaState>]) {
        let mut counters: SmallVec<[&mut Counters; 4]> =
            arenas.iter_mut().map(|arena| arena.ledger_mut().counters_mut()).collect();
        peaks.settle(&mut counters, self.directory.count() == 1);
    }

    /// Makes room for `more` in an arena without a new peak: from the reserve, or from arenas that got some lately and
    /// need it no more. `false` where that is not enough.
    fn make_room(&self, peaks: &mut Peaks, number: u16, more: &Rows) -> bool {
        if self.raise_ceilings(peaks, number, more) {
            return true;
        }
        let granted = peaks.take_granted().into_iter();
        for other in granted.filter(|other| *other != number).counted() {
            if let Some(arena) = self.directory.get(other) {
                peaks.reclaim(arena.lock_shortly().ledger_mut().counters_mut());
            }
        }
        self.raise_ceilings(peaks, number, more)
    }

    /// Raises an arena's ceilings by what it lacks, out of the peaks' reserve. `false` where that is too small.
    fn raise_ceilings(&self, peaks: &mut Peaks, number: u16, more: &Rows) -> bool {
        let Some(arena) = self.directory.get(number).filter(|_| peaks.has_reserve()) else { return false };
        let mut state = arena.lock_shortly();
        let counters = state.ledger_mut().counters_mut();
        let has_enough = peaks.grant(counters, more);
        if has_enough {
            peaks.note_granted(number);
        }
        has_enough
    }

    /// The default pool's arenas, but for one, that have a free large block of at least `bytes`. Always call it with
    /// the same `bytes`: an arena that has none is skipped until it is used.
    pub(super) fn spare(&self, but: u16, bytes: u64) -> impl Iterator<Item = &Arc<Arena>> {
        let shared = self.directory.shared();
        let numbers =
            std::iter::successors(shared.next_spare(0), |last| shared.next_spare(last.checked_add(1)?));
        let others = numbers.filter(move |number| *number != but);
        others.filter_map(|number| self.directory.get(number)).filter(move |arena| {
            let mut state = arena.lock();
            let has_some =
                state.binding().slot() == PoolSlot::DEFAULT && state.heap().has_free(Tier::Large, bytes);
            if !has_some {
                state.note_no_spare();
            }
            has_some
        })
    }

    /// Runs `work` with the peaks and every arena locked, and the peaks settled: what another thread has just done is
    /// seen with its peak.
    pub(super) fn with_all<R>(&self, work: impl FnOnce(&mut Peaks, &mut [Guard<'_, ArenaState>]) -> R) -> R {
        let mut peaks = self.peaks.lock();
        // Listed under the lock: an arena whose first request has returned has settled, so it is there.
        let all = self.directory.all();
        let mut arenas: SmallVec<[_; 4]> = all.iter().map(|arena| arena.lock()).collect();
        if arenas.iter().any(|arena| arena.ledger().counters().crossed()) {
            self.settle(&mut peaks, &mut arenas);
        }
        work(&mut peaks, &mut arenas)
    }

    /// Ages are counted only while garbage collection can happen.
    pub(super) fn refresh_ages(&self, allowed: Option<u64>) {
        let ages = self.directory.with_template(|template| {
            template.ages = template.policy.garbage_threshold(allowed).is_some();
            template.ages
        });
        for arena in self.directory.all() {
            arena.lock().heap_mut().count_ages(ages);
        }
    }

    /// Bytes handed out or pending.
    pub(super) fn in_use(&self) -> u64 {
        let mut peaks = self.peaks.lock();
        let moved = peaks.take_moved();
        let goes_on = moved.len() <= RECENT;
        for arena in moved.into_iter().counted().filter_map(|number| self.directory.get(number)) {
            peaks.read(arena.lock_shortly().ledger_mut().counters_mut(), goes_on);
        }
        peaks.in_use()
    }

    /// The largest free block in bytes.
    pub(crate) fn largest_free_block(&self) -> u64 {
        self.with_all(|_, arenas| {
            let blocks = arenas.iter().flat_map(|arena| arena.layout().blocks().iter());
            blocks
                .filter(|(_, block)| block.state == BlockPhase::Free)
                .map(|(_, b)| b.size)
                .max()
                .unwrap_or(0)
        })
    }

    /// Start and length of the segment that holds the block at `ptr`; `None` where that is no block, and
    /// `Some(None)` where the segment is growable, whose parts come and go.
    pub(crate) fn base_allocation(&self, ptr: DevicePtr, at: Location) -> Option<Option<(DevicePtr, u64)>> {
        let state = self.directory.get(at.arena)?.lock();
        let block = state.layout().live(ptr, at.block)?;
        let segment = &state.layout().segments()[block.segment];
        Some(segment.is_fixed().then_some((DevicePtr(segment.base), segment.bytes)))
    }

    /// Block size of the live block at `ptr`.
    pub(crate) fn block_size(&self, ptr: DevicePtr, at: Location) -> Option<u64> {
        let state = self.directory.get(at.arena)?.lock();
        let block = state.layout().live(ptr, at.block)?;
        Some(block.size)
    }

    pub(super) fn refresh_no_split(&self, slot: PoolSlot, no_split: bool) {
        for arena in self.directory.of_pool(slot) {
            let mut state = arena.lock();
            if state.binding().slot() == slot {
                state.change_binding(|binding| binding.set_no_split(no_split));
            }
        }
    }

    /// Runs `work` with all arenas of a pool locked.
    pub(super) fn with_arenas_of<R>(
        &self,
        slot: PoolSlot,
        work: impl FnOnce(&[Guard<'_, ArenaState>]) -> R,
    ) -> R {
        let arenas: Vec<_> = self.directory.of_pool(slot).into_iter().map(|arena| arena.lock()).collect();
        let mine: Vec<_> = arenas.into_iter().filter(|arena| arena.binding().slot() == slot).collect();
        work(&mine)
    }

    /// Locks the arena that serves `stream` for the fast path, if it is quickly found.
    #[inline(always)]
    pub(super) fn enter(&self, slot: PoolSlot, stream: Stream) -> Option<(&Arena, Guard<'_, ArenaState>)> {
        let arena = self.directory.hint(slot, stream)?;
        let state = arena.lock_shortly();
        // It may have been retired since, or belong to another stream that the table cannot tell apart.
        state.binding().serves(slot, stream).then_some((arena, state))
    }

    /// Context in which the live block at `ptr` was allocated, if recorded.
    pub(crate) fn context_of(&self, ptr: DevicePtr, location: Location) -> Option<Context> {
        let state = self.directory.get(location.arena)?.lock();
        state.layout().live(ptr, location.block)?;
        state.ledger().history().of_block(location.block).cloned()
    }

    /// See [`CachingAllocator::set_owned`](crate::CachingAllocator).
    pub(crate) fn set_owned(&self, ptr: DevicePtr, location: Location, owned: Option<(u64, Stream)>) -> bool {
        let Some(arena) = self.directory.get(location.arena) else { return false };
        let mut state = arena.lock_shortly();
        if owned.is_some_and(|(_, stream)| stream != state.binding().stream()) {
            return false;
        }
        state.heap_mut().layout_mut().set_owned(ptr, location.block, owned.map(|(bytes, _)| bytes))
    }

    /// True if the live block at `ptr` is owned by a value.
    pub(crate) fn is_owned(&self, ptr: DevicePtr, location: Location) -> bool {
        let is_owned = |arena: &Arc<Arena>| {
            let state = arena.lock();
            state.layout().live(ptr, location.block).and_then(Block::live).is_some_and(Live::is_owned)
        };
        self.directory.get(location.arena).is_some_and(is_owned)
    }

    /// True if the block at `ptr` sleeps; `None` where it is not in the program's hands.
    pub(crate) fn sleeps(&self, ptr: DevicePtr, location: Location) -> Option<bool> {
        let state = self.directory.get(location.arena)?.lock();
        Some(state.layout().live(ptr, location.block)?.live()?.is_asleep())
    }
}

/// Problem with `ptr`; `None` where it lies in no memory of this device.
pub(in crate::device) fn diagnose(device: &Device, ptr: DevicePtr) -> Option<Problem> {
    device.arenas.directory.all().into_iter().find_map(|arena| {
        let state = arena.lock();
        let (id, segment) = state.layout().segment_at(ptr.0)?;
        let (_, block) =
            state.layout().of_segment(id).find(|(_, block)| (block.addr..block.end()).contains(&ptr.0))?;
        Some(match block {
            Block { addr, state: BlockPhase::Pending, requested, .. } if *addr == ptr.0 => {
                Problem::PendingFree { requested: *requested }
            }
            Block { addr, state: BlockPhase::Live(live), .. } if *addr == ptr.0 && live.is_owned() => {
                Problem::Owned
            }
            // A live block that begins there was handed out after the pointer had been refused.
            Block { addr, state: BlockPhase::Live(Live::Awake), .. } if *addr == ptr.0 => Problem::Freed,
            // Epoch 0 marks memory that was never in the program's hands.
            Block { addr, state: BlockPhase::Free, epoch: 1.., .. } if *addr == ptr.0 => Problem::Freed,
            Block { addr, state: BlockPhase::FreeAsleep, .. } if *addr == ptr.0 => Problem::Freed,
            Block { addr, size, state: BlockPhase::Live(_), requested, .. } => {
                Problem::InsideBlock { block: DevicePtr(*addr), bytes: *size, requested: *requested }
            }
            _ => Problem::NotHandedOut {
                device: device.driver.device(),
                segment: DevicePtr(segment.base),
                bytes: segment.bytes,
            },
        })
    })
}

/// Walks every structure and panics on the first that contradicts another.
///
/// # Panics
/// Where an invariant is broken; the text names it.
pub(crate) fn check_invariants(device: &Device) {
    device.arenas.with_all(|peaks, arenas| {
        let mut fixed = 0;
        let mut fixed_count = 0;
        let mut busy = false;
        for arena in arenas.iter() {
            let sums = crate::arena::invariants::check_arena(arena, device.driver.map());
            fixed += sums.fixed_bytes;
            fixed_count += sums.fixed_segments;
            busy |= sums.busy;
        }
        device.arenas.directory.check(arenas);
        let counters: Vec<&Counters> = arenas.iter().map(|a| a.ledger().counters()).collect();
        peaks.check(&counters);
        let state = device.accounting.lock();
        state.accounts().check();
        state.regions().check_exports();
        state.regions().check_mappings();
        // Blocks that fall asleep or wake are not busy, while their granules are on their way.
        busy |= state.regions().iter().any(Region::is_changing);
        // An arena made meanwhile may hold memory that was not added up.
        let all = device.arenas.directory.all().len() == arenas.len();
        if all && !busy && state.accounts().whole().is_at_rest() {
            let backed: u64 = state.regions().iter().map(Region::backed_bytes).sum();
            let reserved = state.accounts().whole().reserved();
            assert_eq!(fixed + backed, reserved, "reserved bytes are those of segments and granules");
            let segments = state.counters().segment.all.current.unsigned_abs();
            assert_eq!(fixed_count, segments, "the segment count is the number of fixed segments");
            let mut shown = 0;
            for arena in arenas.iter() {
                shown += crate::arena::invariants::check_regions(arena, state.regions());
            }
            assert_eq!(
                shown,
                state.regions().slots().count(),
                "the device knows what is mapped in views, and no more"
            );
        }
    });
}

/// Arena of a stream in a pool. On first use it adopts one of a retired stream after which it can be ordered, that
/// which retired first; else a new one is made.
pub(in crate::device) fn arena_for<'a>(
    device: &'a Device,
    pool: &ArenaPool,
    stream: Stream,
) -> Result<&'a Arena> {
    let _alone = device.arenas.bindings.lock();
    if let Some(arena) = device.arenas.directory.of_stream(pool.slot, stream) {
        return Ok(arena);
    }
    // Only this thread takes from the line now.
    let mut line =
        (0..).map_while(|place| device.arenas.directory.retired_in_line(pool.slot, place)).peekable();
    if line.peek().is_some()
        && !device.driver.may_be_capturing(stream)
        && let Some(arena) = line.find(|arena| adopt(device, arena, stream))
    {
        return Ok(arena);
    }
    Ok(device.arenas.directory.make(pool, stream)?)
}

/// Gives a retired arena to `stream`, whose later work is ordered after all work of the retired stream. `false` where
/// the driver refuses to order it.
fn adopt(device: &Device, arena: &Arena, stream: Stream) -> bool {
    let Some(last) = arena.lock().binding().retired().cloned() else { return false };
    if let Err(error) = last.precede(stream) {
        device.driver.backend().clear_error();
        tracing::warn!(%error, "a stream could not be ordered after a retired one; it begins with no memory");
        return false;
    }
    let mut state = arena.lock();
    // `last` outlives the lock, so the event is not destroyed under it.
    state.adopt(stream);
    device.arenas.directory.adopted(state.binding().slot(), stream, state.binding().number());
    drop(state);
    true
}

/// Locks an arena for an operation.
pub(in crate::device) fn attend<'a>(
    device: &'a Device,
    arena: &'a Arena,
    call: &'a Call<'a>,
) -> Attended<'a> {
    attended(device, arena.lock(), call)
}

pub(in crate::device) fn attended<'a>(
    device: &'a Device,
    mut state: Guard<'a, ArenaState>,
    call: &'a Call<'a>,
) -> Attended<'a> {
    state.ledger_mut().history_mut().begin_call(call.context());
    Attended { device, _call: call, state: Some(state) }
}

/// Unlocks an arena; settles what concerns others before the call returns.
#[inline]
pub(in crate::device) fn leave(device: &Device, state: Guard<'_, ArenaState>) {
    let due = state.ledger().counters().is_due().then(|| state.binding().number());
    drop(state);
    if let Some(number) = due {
        device.arenas.tell(number);
    }
    #[cfg(feature = "paranoid")]
    check_invariants(device);
}

/// Ends one of the moments that a block waits for, as `call` noticed.
pub(in crate::device) fn event_done(device: &Device, waiting: Waiting, call: &Call<'_>) {
    if let Some(arena) = device.arenas.directory.get(waiting.arena) {
        attend(device, arena, call).event_done(waiting.block);
    }
}
