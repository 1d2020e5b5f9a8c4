//! Records of all pinned blocks. Calls no driver, and drops nothing that is foreign code's: that is
//! [left over](Leftovers) for when nothing is locked.

use super::free::FreeBlocks;
use super::pinned_block::{Fate, Fresh, Order, Phase, PinnedBlock, Users};
use super::pinned_stats::{Histogram, HostStats, Totals};
use super::sizing::HostSizing;
use super::trace::Trace;
use super::{HostBlock, HostBlockId};
use crate::config::Settings;
use crate::lifetimes::uses::User;
use crate::memory::block::BlockId;
use crate::sync::Ordering;
use crate::sync::plain::AtomicU64;
use crate::types::{DevicePtr, MIB, PoolId, Stream};
use crate::watch::history::Context;
use crate::watch::snapshot::Action;
use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Duration;

/// The settings that concern pinned memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct Knobs {
    sizing: HostSizing,
    spare: f64,
    pub(super) use_host_register: bool,
    pub(super) register_threads: u64,
    max_round: u64,
    max_cached: u64,
    pub(super) free_catch_all: bool,
}

impl Knobs {
    /// Sizes are those of the settings, else these.
    fn new(settings: &Settings, sizing: HostSizing) -> Self {
        Self {
            sizing: settings.pinned_sizes.map_or(sizing, HostSizing::of),
            spare: settings.pinned_spare,
            use_host_register: settings.pinned_use_host_register,
            register_threads: settings.pinned_num_register_threads,
            max_round: settings.pinned_max_round_threshold,
            max_cached: settings.pinned_max_cached_size,
            free_catch_all: settings.pinned_free_catch_all,
        }
    }
}

/// Cache of a pool, and its figures.
#[derive(Debug, Default)]
struct PinnedPool {
    free: FreeBlocks,
    blocks: usize,
    histogram: Histogram,
}

/// Foreign code's, or events: dropped without a lock.
#[derive(Debug, Default)]
pub(super) struct TableLeftovers {
    pub(super) contexts: Vec<Context>,
    pub(super) users: Users,
}

/// Every pinned block, and all that is counted and recorded of them.
#[derive(Debug)]
pub(super) struct BlockTable {
    knobs: Knobs,
    blocks: Vec<Option<PinnedBlock>>,
    vacant: Vec<BlockId>,
    /// Names for the next blocks; see [`name`](Self::name).
    names: Range<u64>,
    by_ptr: BTreeMap<DevicePtr, BlockId>,
    /// The default pool's, and those of private pools.
    default: PinnedPool,
    caches: BTreeMap<PoolId, PinnedPool>,
    totals: Totals,
    /// Rounded bytes of the blocks in use, and the most that this was since the cache was emptied.
    wanted: u64,
    most_wanted: u64,
    /// Bytes that these blocks have beyond that.
    waste: u64,
    /// Bytes of blocks that are not cached after their end, which are not among those, and of blocks that leave.
    apart: u64,
    /// Memory of the program's own that it has pinned: its size, and where.
    registered: BTreeMap<DevicePtr, (u64, Option<Context>)>,
    trace: Trace,
    leftovers: TableLeftovers,
}

/// The bits of a name that say where the block's record is.
const PLACE: u32 = 28;

impl BlockTable {
    pub(super) fn new(settings: &Settings, sizing: HostSizing) -> Self {
        Self {
            knobs: Knobs::new(settings, sizing),
            blocks: Vec::new(),
            vacant: Vec::new(),
            names: 0..0,
            by_ptr: BTreeMap::new(),
            default: PinnedPool::default(),
            caches: BTreeMap::new(),
            totals: Totals::default(),
            wanted: 0,
            most_wanted: 0,
            waste: 0,
            apart: 0,
            registered: BTreeMap::new(),
            trace: Trace::default(),
            leftovers: TableLeftovers::default(),
        }
    }

    pub(super) fn knobs(&self) -> Knobs {
        self.knobs
    }

    pub(super) fn configure(&mut self, settings: &Settings) {
        self.knobs = Knobs::new(settings, self.knobs.sizing);
    }

    /// The size of the block that a request gets; `None` where that cannot be addressed.
    pub(super) fn rounded(&self, bytes: u64) -> Option<u64> {
        self.knobs.sizing.round(bytes, self.knobs.max_round, self.knobs.max_cached)
    }

    /// True if anything has to end.
    pub(super) fn has_leftovers(&self) -> bool {
        !self.leftovers.contexts.is_empty() || !self.leftovers.users.is_empty()
    }

    /// Takes what has to end once the lock is released.
    pub(super) fn take_leftovers(&mut self) -> TableLeftovers {
        std::mem::take(&mut self.leftovers)
    }

    pub(super) fn block(&self, id: BlockId) -> &PinnedBlock {
        self.blocks[id.index() as usize].as_ref().expect("ids name blocks that are there")
    }

    fn block_mut(&mut self, id: BlockId) -> &mut PinnedBlock {
        self.blocks[id.index() as usize].as_mut().expect("ids name blocks that are there")
    }

    /// Every block, by address. Those on their way to the driver are not among them.
    pub(super) fn by_address(&self) -> impl Iterator<Item = &PinnedBlock> {
        self.by_ptr.values().map(|id| self.block(*id))
    }

    /// Names a block that is handed out. The upper bits are not given twice in 2^36 requests of the process, so that what names a
    /// block that was freed names nothing.
    fn name(&mut self, id: BlockId) -> u64 {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        const AT_ONCE: u64 = 1 << 10;
        let number = self.names.next().unwrap_or_else(|| {
            let first = NEXT.fetch_add(AT_ONCE, Ordering::Relaxed);
            self.names = first + 1..first + AT_ONCE;
            first
        });
        number << PLACE | u64::from(id.index())
    }

    /// A block in the program's hands.
    #[inline]
    pub(super) fn handed_out(&self, id: HostBlockId) -> Option<BlockId> {
        let place = id.0 & ((1 << PLACE) - 1);
        let block = self.blocks.get(place as usize)?.as_ref()?;
        (id != HostBlockId::NONE && block.name == id.0).then_some(BlockId::new(place as u32))
    }

    /// A block in the program's hands: that of this name, or else the one that begins at `ptr`.
    pub(super) fn find(&self, ptr: DevicePtr, id: HostBlockId) -> Option<BlockId> {
        let is_handed_out = |id: &BlockId| self.block(*id).phase == Phase::HandedOut;
        self.handed_out(id).or_else(|| self.by_ptr.get(&ptr).copied().filter(is_handed_out))
    }

    /// Base of the block in the program's hands that `ptr` is inside of.
    pub(super) fn base_of(&self, ptr: DevicePtr) -> Option<DevicePtr> {
        let (base, id) = self.by_ptr.range(..=ptr).next_back()?;
        let block = self.block(*id);
        (block.phase == Phase::HandedOut && ptr.0 - base.0 < block.size).then_some(*base)
    }

    /// Gives a block to a buffer, which alone frees it from then on, or takes it back from there.
    pub(super) fn set_buffered(&mut self, id: BlockId, buffered: bool) {
        self.block_mut(id).buffered = buffered;
    }

    /// A stream uses a block, for a graph if it is being captured. Says whether that is new.
    pub(super) fn record_use(&mut self, id: BlockId, stream: Stream, captured: bool) -> bool {
        let block = self.block_mut(id);
        block.in_graph |= captured;
        let is_new = !block.users.iter().any(|user| user.is(stream));
        if is_new {
            block.users.push(User::Live(stream));
        }
        is_new
    }

    #[inline]
    fn cache(&mut self, pool: PoolId) -> &mut PinnedPool {
        if pool == PoolId::DEFAULT { &mut self.default } else { self.caches.entry(pool).or_default() }
    }

    /// Cache of a pool, if it ever had one.
    #[inline]
    fn known(&mut self, pool: PoolId) -> Option<&mut PinnedPool> {
        if pool == PoolId::DEFAULT { Some(&mut self.default) } else { self.caches.get_mut(&pool) }
    }

    fn all_caches(&mut self) -> impl Iterator<Item = &mut PinnedPool> {
        std::iter::once(&mut self.default).chain(self.caches.values_mut())
    }

    /// A free block for a request of that size, once rounded.
    #[inline]
    pub(super) fn take_cached(&mut self, size: u64, order: &Order<'_>) -> Option<HostBlock> {
        let id = match self.knobs.sizing {
            HostSizing::Pytorch => {
                let sizes = size..=size.checked_next_power_of_two().unwrap_or(u64::MAX);
                self.known(order.pool)?.free.take_newest(sizes)
            }
            HostSizing::Granule => {
                let largest = size.saturating_add(self.spare(size).saturating_sub(self.waste));
                self.known(order.pool)?.free.take_smallest(size..=largest)
            }
        }?;
        Some(self.hand_out(id, size, order))
    }

    /// The most that is wanted at once, with a request of that size more.
    fn most_wanted(&self, size: u64) -> u64 {
        self.most_wanted.max(self.wanted.saturating_add(size))
    }

    /// Most to hold beyond that under [`HostSizing::Granule`].
    fn spare(&self, size: u64) -> u64 {
        ((self.most_wanted(size) as f64 * self.knobs.spare) as u64).max(MIB)
    }

    /// Lets free blocks leave beyond what may be held once there is a new one of that size.
    pub(super) fn clear_surplus(&mut self, size: u64) -> Vec<BlockId> {
        let may_hold = self.most_wanted(size).saturating_add(self.spare(size));
        let held = self.totals.held().saturating_sub(self.apart).saturating_add(size);
        let mut surplus = match self.knobs.sizing {
            HostSizing::Pytorch => 0,
            HostSizing::Granule => held.saturating_sub(may_hold),
        };
        let mut leaving = Vec::new();
        while surplus > 0
            && let Some((id, size)) = self.cache(PoolId::DEFAULT).free.take_about(surplus)
        {
            surplus = surplus.saturating_sub(size);
            leaving.push(id);
        }
        leaving.iter().for_each(|id| self.leave(*id));
        leaving
    }

    /// Makes a record for what was taken from the driver, and hands it out.
    pub(super) fn add(&mut self, fresh: Fresh, order: &Order<'_>) -> HostBlock {
        let Fresh { ptr, size, origin, took } = fresh;
        let block = PinnedBlock {
            ptr,
            size,
            requested: 0,
            rounded: 0,
            pool: order.pool,
            origin,
            phase: Phase::Cached,
            name: 0,
            users: Users::new(),
            waits: 0,
            captured: false,
            in_graph: false,
            buffered: false,
            apart: false,
            context: None,
        };
        let id = self.vacant.pop().unwrap_or_else(|| {
            self.blocks.push(None);
            let place = u32::try_from(self.blocks.len() - 1).ok().filter(|place| place >> PLACE == 0);
            BlockId::new(place.expect("pinned blocks are fewer than pages"))
        });
        self.blocks[id.index() as usize] = Some(block);
        self.by_ptr.insert(ptr, id);
        self.cache(order.pool).blocks += 1;
        self.totals.made(size, took);
        self.note(Action::SegmentAlloc, id, order.context.as_deref());
        self.hand_out(id, size, order)
    }

    #[inline(always)]
    fn hand_out(&mut self, id: BlockId, rounded: u64, order: &Order<'_>) -> HostBlock {
        let name = self.name(id);
        let block = self.block_mut(id);
        (block.phase, block.buffered, block.apart) = (Phase::HandedOut, false, order.apart);
        (block.requested, block.rounded) = (order.requested, rounded);
        (block.name, block.captured) = (name, order.capturing);
        let former = std::mem::replace(&mut block.context, order.context.as_deref().cloned());
        let (ptr, size) = (block.ptr, block.size);
        self.leftovers.contexts.extend(former);
        self.cache(order.pool).histogram.begin(size);
        self.totals.begin(size, order.requested);
        if order.apart {
            self.apart += size;
        } else {
            self.wanted += rounded;
            self.waste += size - rounded;
            self.most_wanted = self.most_wanted.max(self.wanted);
        }
        self.note(Action::Alloc, id, order.context.as_deref());
        HostBlock { ptr, id: HostBlockId(name), bytes: order.requested, size }
    }

    /// The program gives a block back. Says what it waits for; [`event_done`](Self::event_done) comes at the end of each.
    pub(super) fn release(&mut self, id: BlockId, call: Option<&Context>) -> Fate {
        self.note(Action::FreeRequested, id, call);
        let block = self.block_mut(id);
        block.name = 0;
        if block.users.is_empty() && !block.in_graph {
            if self.complete(id, call) {
                self.shelve(id);
                return Fate::Free;
            }
            self.leave(id);
            return Fate::Leaves;
        }
        let (size, users) = (block.size, std::mem::take(&mut block.users));
        // A graph uses its memory whenever it is launched, so nothing says when it has done so for the last time.
        if block.in_graph || block.captured {
            block.phase = Phase::Kept;
            self.totals.keep(size);
            self.leftovers.users.extend(users);
            return Fate::Kept;
        }
        (block.phase, block.waits) = (Phase::Waiting, users.len());
        self.totals.begin_wait(size);
        Fate::Waits(users)
    }

    /// A waiting block lost one of its users. One that leaves is cached until [`clear`](Self::clear): its thread may wait for more
    /// events first, and others find it.
    pub(super) fn event_done(&mut self, id: BlockId, call: Option<&Context>) -> Fate {
        let block = self.block_mut(id);
        block.waits -= 1;
        if block.waits > 0 {
            return Fate::Waits(Users::new());
        }
        let size = block.size;
        self.totals.end_wait(size);
        let keeps = self.complete(id, call);
        self.shelve(id);
        if keeps { Fate::Free } else { Fate::Leaves }
    }

    /// No device uses the block any more. `false` where it is not to be cached.
    fn complete(&mut self, id: BlockId, call: Option<&Context>) -> bool {
        let PinnedBlock { size, requested, rounded, pool, apart, .. } = *self.block(id);
        self.note(Action::FreeCompleted, id, call);
        self.cache(pool).histogram.end(size);
        self.totals.end(size, requested);
        if !apart {
            self.wanted -= rounded;
            self.waste -= size - rounded;
        }
        !apart && size <= self.knobs.max_cached
    }

    fn shelve(&mut self, id: BlockId) {
        let block = self.block_mut(id);
        block.phase = Phase::Cached;
        let was_apart = std::mem::take(&mut block.apart);
        let (pool, size) = (block.pool, block.size);
        self.apart -= if was_apart { size } else { 0 };
        self.cache(pool).free.put(id, size);
    }

    /// The block is on its way to the driver: nobody finds it any more.
    fn leave(&mut self, id: BlockId) {
        let block = self.block_mut(id);
        block.phase = Phase::Leaving;
        let was_apart = std::mem::replace(&mut block.apart, true);
        let (ptr, size) = (block.ptr, block.size);
        self.apart += if was_apart { 0 } else { size };
        self.by_ptr.remove(&ptr);
    }

    /// Lets all cached blocks of a pool leave, by rising size.
    pub(super) fn clear_cache(&mut self, pool: PoolId) -> Vec<BlockId> {
        self.most_wanted = self.wanted;
        let all = self.known(pool).map(|cache| cache.free.take_all()).unwrap_or_default();
        all.iter().for_each(|id| self.leave(*id));
        all
    }

    /// Lets those of these blocks leave that are still cached.
    pub(super) fn clear(&mut self, mut ids: Vec<BlockId>) -> Vec<BlockId> {
        ids.retain(|id| {
            let block = self.blocks[id.index() as usize].as_ref();
            let place =
                block.filter(|block| block.phase == Phase::Cached).map(|block| (block.pool, block.size));
            place.is_some_and(|(pool, size)| self.cache(pool).free.take(*id, size))
        });
        ids.iter().for_each(|id| self.leave(*id));
        ids
    }

    /// Lets all blocks leave that graphs might use: they are gone.
    pub(super) fn clear_kept(&mut self) -> Vec<BlockId> {
        let kept: Vec<BlockId> =
            self.by_ptr.values().copied().filter(|id| self.block(*id).phase == Phase::Kept).collect();
        kept.iter().for_each(|id| self.leave(*id));
        kept
    }

    /// The driver has taken a leaving block back.
    pub(super) fn gone(&mut self, id: BlockId, took: Option<Duration>, call: Option<&Context>) {
        self.note(Action::SegmentFree, id, call);
        let Some(block) = self.blocks[id.index() as usize].take() else { return };
        self.vacant.push(id);
        self.cache(block.pool).blocks -= 1;
        self.totals.gone(block.size, took);
        self.apart -= if block.apart { block.size } else { 0 };
        self.leftovers.contexts.extend(block.context);
    }

    /// A leaving block is cached again: the driver refused to take it back.
    pub(super) fn stays(&mut self, id: BlockId) {
        let ptr = self.block(id).ptr;
        self.by_ptr.insert(ptr, id);
        self.shelve(id);
    }

    /// Pools with a record here, other than the default one.
    pub(super) fn private_pools(&self) -> Vec<PoolId> {
        self.caches.keys().copied().collect()
    }

    /// A pool that is gone leaves its figures to the default one. `false` where it still has blocks.
    pub(super) fn forget_pool(&mut self, pool: PoolId) -> bool {
        if self.caches.get(&pool).is_some_and(|cache| cache.blocks > 0) {
            return false;
        }
        if let Some(cache) = self.caches.remove(&pool) {
            self.cache(PoolId::DEFAULT).histogram.absorb(&cache.histogram);
        }
        true
    }

    /// Everyone that uses a block, but for those that are waited for.
    pub(super) fn users_mut(&mut self) -> impl Iterator<Item = &mut User> {
        self.blocks.iter_mut().flatten().flat_map(|block| &mut block.users)
    }

    /// True if graphs may use any block.
    pub(super) fn has_kept(&self) -> bool {
        self.totals.has_kept()
    }

    pub(super) fn stats(&self) -> HostStats {
        let mut all = Histogram::default();
        all.absorb(&self.default.histogram);
        self.caches.values().for_each(|cache| all.absorb(&cache.histogram));
        HostStats::new(&self.totals, all)
    }

    pub(super) fn reset_peak_stats(&mut self) {
        self.totals.reset_peak();
        self.all_caches().for_each(|cache| cache.histogram.reset_peak());
    }

    pub(super) fn reset_accumulated_stats(&mut self) {
        self.totals.reset_accumulated();
        self.all_caches().for_each(|cache| cache.histogram.reset_accumulated());
    }

    /// The program has pinned memory of its own.
    pub(super) fn register(&mut self, ptr: DevicePtr, bytes: u64, call: Option<&Context>) {
        self.registered.insert(ptr, (bytes, call.cloned()));
        self.note_range(&[Action::SegmentAlloc, Action::Alloc], ptr, bytes, call);
    }

    /// Memory of the program's own is not pinned any more.
    pub(super) fn unregister(&mut self, ptr: DevicePtr, call: Option<&Context>) {
        if let Some((bytes, context)) = self.registered.remove(&ptr) {
            self.leftovers.contexts.extend(context);
            let actions = [Action::FreeRequested, Action::FreeCompleted, Action::SegmentFree];
            self.note_range(&actions, ptr, bytes, call);
        }
    }

    /// Memory of the program's own that it has pinned, its size, and where.
    pub(super) fn registered(&self) -> impl Iterator<Item = (DevicePtr, u64, Option<Context>)> {
        self.registered.iter().map(|(ptr, (bytes, context))| (*ptr, *bytes, context.clone()))
    }

    pub(super) fn trace(&self) -> &Trace {
        &self.trace
    }

    pub(super) fn trace_mut(&mut self) -> &mut Trace {
        &mut self.trace
    }

    /// Records something about memory that is no block.
    fn note_range(&mut self, actions: &[Action], ptr: DevicePtr, size: u64, call: Option<&Context>) {
        for action in actions {
            let replaced = self.trace.record(*action, ptr, size, PoolId::DEFAULT, call.cloned());
            self.leftovers.contexts.extend(replaced.into_iter().flatten());
        }
    }

    /// Records something about a block; without a context of the call, that of the block's allocation is shown.
    #[inline]
    fn note(&mut self, action: Action, id: BlockId, call: Option<&Context>) {
        if !self.trace.is_on() {
            return;
        }
        let PinnedBlock { ptr, size, pool, ref context, .. } = *self.block(id);
        let context = call.or(context.as_ref()).cloned();
        let replaced = self.trace.record(action, ptr, size, pool, context);
        self.leftovers.contexts.extend(replaced.into_iter().flatten());
    }
}

#[cfg(test)]
mod tests {
    use super::super::pinned_block::PinMethod;
    use super::*;
    use crate::types::{BackendId, DeviceIndex};

    fn order(requested: u64, apart: bool) -> Order<'static> {
        Order { requested, pool: PoolId::DEFAULT, capturing: false, apart, context: None }
    }

    fn fresh(at: u64, size: u64) -> Fresh {
        Fresh { ptr: DevicePtr(at), size, origin: PinMethod::Driver, took: None }
    }

    #[test]
    fn a_block_is_the_programs_until_it_is_given_back_and_free_once_nobody_uses_it() {
        let mut table = BlockTable::new(&Settings::default(), HostSizing::Pytorch);
        let block = table.add(fresh(8192, 4096), &order(100, false));
        let id = table.handed_out(block.id).expect("the program has it");
        assert_eq!((block.bytes, block.size), (100, 4096));
        assert_eq!(table.find(block.ptr, HostBlockId::NONE), Some(id));
        assert_eq!(table.base_of(DevicePtr(12_287)), Some(block.ptr));
        assert_eq!(table.base_of(DevicePtr(12_288)), None);
        let stream = Stream { raw: 7, device: DeviceIndex(0), backend: BackendId(1) };
        assert_eq!([table.record_use(id, stream, false), table.record_use(id, stream, false)], [true, false]);
        assert!(matches!(table.release(id, None), Fate::Waits(users) if users.len() == 1));
        assert_eq!((table.find(block.ptr, block.id), table.base_of(block.ptr)), (None, None));
        assert!(table.take_cached(4096, &order(1, false)).is_none(), "a device may still use it");
        assert!(matches!(table.event_done(id, None), Fate::Free));
        let again = table.take_cached(4096, &order(8, false)).expect("it is free");
        assert!(again.ptr == block.ptr && again.id != block.id, "a name is never used twice");
    }

    #[test]
    fn a_block_apart_is_no_surplus_while_it_leaves() {
        for stays in [false, true] {
            let mut table = BlockTable::new(&Settings::default(), HostSizing::Granule);
            let block = table.add(fresh(1 << 40, 16 * MIB), &order(16 * MIB, false));
            let apart = table.add(fresh(2 << 40, 64 * MIB), &order(64 * MIB, true));
            let [block, apart] = [block, apart].map(|made| table.handed_out(made.id).unwrap());
            assert!(matches!(table.release(block, None), Fate::Free));
            assert!(matches!(table.release(apart, None), Fate::Leaves));
            assert!(table.clear_surplus(0).is_empty(), "what is cached was all wanted");
            if stays {
                table.stays(apart);
                assert_eq!(table.clear_surplus(0), [apart], "it is cached like any other now");
            }
            table.gone(apart, None, None);
            assert_eq!((table.apart, table.totals.held()), (0, 16 * MIB));
        }
    }

    #[test]
    fn a_block_that_leaves_is_no_surplus_of_another_thread() {
        let mut table = BlockTable::new(&Settings::default(), HostSizing::Granule);
        let [first, second] =
            [1 << 40, 2 << 40].map(|at| table.add(fresh(at, 64 * MIB), &order(64 * MIB, false)));
        let [first, second] = [first, second].map(|made| table.handed_out(made.id).unwrap());
        table.release(first, None);
        assert_eq!(table.clear_cache(PoolId::DEFAULT), [first]);
        table.stays(first);
        table.release(second, None);
        let leaving = table.clear_surplus(0);
        assert_eq!((leaving.len(), table.clear_surplus(0).len()), (1, 0), "one of the two was wanted");
        table.gone(leaving[0], None, None);
        assert_eq!((table.apart, table.totals.held()), (0, 64 * MIB));
    }
}
