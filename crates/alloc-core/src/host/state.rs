//! What is known of every pinned block, under one lock. Calls no driver, and drops nothing that is foreign code's: that
//! goes with [`Locked`], after the lock.

use super::block::{Block, Fate, Fresh, Order, Phase, Use, Uses};
use super::size_class::HostSizing;
use super::stats::{Histogram, HostStats, Totals};
use super::trace::Trace;
use super::{HostBlock, HostBlockId};
use crate::config::Settings;
use crate::lifetimes::uses::User;
use crate::memory::block::BlockId;
use crate::process::foreign::Foreign;
use crate::sync::plain::AtomicU64;
use crate::sync::{Guard, Ordering};
use crate::types::{DevicePtr, PoolId};
use crate::watch::history::Context;
use crate::watch::snapshot::Action;
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;

/// The settings that concern pinned memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct Knobs {
    pub(super) use_host_register: bool,
    pub(super) register_threads: u64,
    pub(super) background: bool,
    pub(super) max_round: u64,
    pub(super) max_cached: u64,
    pub(super) free_catch_all: bool,
}

impl From<&Settings> for Knobs {
    fn from(settings: &Settings) -> Self {
        Self {
            use_host_register: settings.pinned_use_host_register,
            register_threads: settings.pinned_num_register_threads,
            background: settings.pinned_use_background_threads,
            max_round: settings.pinned_max_round_threshold,
            max_cached: settings.pinned_max_cached_size,
            free_catch_all: settings.pinned_free_catch_all,
        }
    }
}

/// What a pool has cached, and its figures.
#[derive(Debug, Default)]
pub(super) struct Cache {
    /// Free blocks by class, those freed last at the end.
    free: Vec<Vec<BlockId>>,
    blocks: usize,
    histogram: Histogram,
}

/// Foreign code's, or events: dropped without the lock.
#[derive(Debug, Default)]
struct Trash {
    contexts: Vec<Context>,
    uses: Uses,
}

#[derive(Debug)]
pub(super) struct State {
    pub(super) knobs: Knobs,
    sizing: HostSizing,
    blocks: Vec<Option<Block>>,
    vacant: Vec<BlockId>,
    /// Blocks in the program's hands, by what it was given to name them.
    tenures: FxHashMap<u64, BlockId>,
    by_ptr: BTreeMap<DevicePtr, BlockId>,
    caches: BTreeMap<PoolId, Cache>,
    totals: Totals,
    /// Frees whose streams are being captured: nothing can be recorded on these now.
    pub(super) deferred: Vec<(BlockId, Use)>,
    /// Memory of the program's own that it has pinned, and its size.
    pub(super) registered: FxHashMap<DevicePtr, u64>,
    pub(super) trace: Trace,
    trash: Trash,
}

/// The state, locked. What is to be dropped without the lock is dropped after it.
#[derive(Debug)]
pub(super) struct Locked<'a>(Option<Guard<'a, State>>, &'a Foreign);

impl<'a> Locked<'a> {
    pub(super) fn new(guard: Guard<'a, State>, foreign: &'a Foreign) -> Self {
        Self(Some(guard), foreign)
    }
}

impl std::ops::Deref for Locked<'_> {
    type Target = State;
    fn deref(&self) -> &State {
        self.0.as_ref().expect("it is there until it is dropped")
    }
}

impl std::ops::DerefMut for Locked<'_> {
    fn deref_mut(&mut self) -> &mut State {
        self.0.as_mut().expect("it is there until it is dropped")
    }
}

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        let trash = self.0.as_mut().map(|state| std::mem::take(&mut state.trash));
        drop(self.0.take());
        if let Some(Trash { contexts, uses }) = trash {
            self.1.end(contexts);
            drop(uses);
        }
    }
}

/// Never given twice in the process, so that what names a block that was freed names nothing.
fn fresh_tenure() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

fn signed(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

impl State {
    pub(super) fn new(settings: &Settings, sizing: HostSizing) -> Self {
        Self {
            knobs: settings.into(),
            sizing,
            blocks: Vec::new(),
            vacant: Vec::new(),
            tenures: FxHashMap::default(),
            by_ptr: BTreeMap::new(),
            caches: BTreeMap::from([(PoolId::DEFAULT, Cache::default())]),
            totals: Totals::default(),
            deferred: Vec::new(),
            registered: FxHashMap::default(),
            trace: Trace::default(),
            trash: Trash::default(),
        }
    }

    pub(super) fn block(&self, id: BlockId) -> &Block {
        self.blocks[id.index() as usize].as_ref().expect("ids name blocks that are there")
    }

    pub(super) fn block_mut(&mut self, id: BlockId) -> &mut Block {
        self.blocks[id.index() as usize].as_mut().expect("ids name blocks that are there")
    }

    /// Every block, by address. Those on their way to the driver are not among them.
    pub(super) fn by_address(&self) -> impl Iterator<Item = &Block> {
        self.by_ptr.values().map(|id| self.block(*id))
    }

    /// A block in the program's hands.
    pub(super) fn handed_out(&self, id: HostBlockId) -> Option<BlockId> {
        self.tenures.get(&id.0).copied()
    }

    /// A block in the program's hands that begins at `ptr`.
    pub(super) fn handed_out_at(&self, ptr: DevicePtr) -> Option<BlockId> {
        let id = *self.by_ptr.get(&ptr)?;
        (self.block(id).phase == Phase::HandedOut).then_some(id)
    }

    /// A block in the program's hands that `ptr` is inside of.
    pub(super) fn handed_out_around(&self, ptr: DevicePtr) -> Option<BlockId> {
        let (base, id) = self.by_ptr.range(..=ptr).next_back()?;
        let block = self.block(*id);
        (block.phase == Phase::HandedOut && ptr.0 - base.0 < block.size).then_some(*id)
    }

    fn cache(&mut self, pool: PoolId) -> &mut Cache {
        self.caches.entry(pool).or_default()
    }

    /// The block that was freed last, of those of the request's class that are large enough.
    pub(super) fn take_cached(&mut self, size: u64, order: &Order<'_>) -> Option<HostBlock> {
        let class = self.sizing.class(size);
        let list = self.caches.get(&order.pool)?.free.get(class)?;
        let at = list.iter().rposition(|id| self.block(*id).size >= size)?;
        let id = self.cache(order.pool).free[class].remove(at);
        Some(self.hand_out(id, order))
    }

    /// Makes a record for what was taken from the driver, and hands it out.
    pub(super) fn add(&mut self, fresh: Fresh, order: &Order<'_>) -> HostBlock {
        let Fresh { ptr, size, origin } = fresh;
        let block = Block {
            ptr,
            size,
            requested: 0,
            pool: order.pool,
            origin,
            phase: Phase::Cached,
            tenure: 0,
            uses: Uses::new(),
            waits: 0,
            captured: false,
            in_graph: false,
            buffered: false,
            context: None,
        };
        let id = self.vacant.pop().unwrap_or_else(|| {
            self.blocks.push(None);
            BlockId::new(u32::try_from(self.blocks.len() - 1).expect("pinned blocks are fewer than pages"))
        });
        self.blocks[id.index() as usize] = Some(block);
        self.by_ptr.insert(ptr, id);
        self.cache(order.pool).blocks += 1;
        self.totals.allocations.increase(1);
        self.totals.allocated_bytes.increase(signed(size));
        self.note(Action::SegmentAlloc, id, size, order.context.as_deref());
        self.hand_out(id, order)
    }

    fn hand_out(&mut self, id: BlockId, order: &Order<'_>) -> HostBlock {
        let tenure = fresh_tenure();
        let block = self.block_mut(id);
        (block.phase, block.buffered) = (Phase::HandedOut, false);
        (block.requested, block.tenure, block.captured) = (order.requested, tenure, order.capturing);
        let former = std::mem::replace(&mut block.context, order.context.as_deref().cloned());
        let (ptr, size) = (block.ptr, block.size);
        self.trash.contexts.extend(former);
        self.tenures.insert(tenure, id);
        let bucket = self.cache(order.pool).histogram.bucket(size);
        bucket.active_requests.increase(1);
        bucket.active_bytes.increase(signed(size));
        let own = &mut self.totals.granule;
        own.active_requests.increase(1);
        own.active_bytes.increase(signed(size));
        own.requested_bytes += signed(order.requested);
        self.note(Action::Alloc, id, order.requested, order.context.as_deref());
        HostBlock { ptr, id: HostBlockId(tenure), bytes: order.requested, size }
    }

    /// The program gives a block back. Says what it waits for; [`settle`](Self::settle) comes at the end of that.
    pub(super) fn release(&mut self, id: BlockId, call: Option<&Context>) -> Fate {
        self.note(Action::FreeRequested, id, self.block(id).requested, call);
        let block = self.block_mut(id);
        let (tenure, size) = (std::mem::take(&mut block.tenure), signed(block.size));
        let uses = std::mem::take(&mut block.uses);
        // A graph uses its memory whenever it is launched, so nothing says when it has done so for the last time.
        let kept = block.in_graph || (block.captured && !uses.is_empty());
        if kept {
            block.phase = Phase::Kept;
        } else if !uses.is_empty() {
            (block.phase, block.waits) = (Phase::Waiting, uses.len());
        }
        self.tenures.remove(&tenure);
        if kept {
            self.totals.granule.kept_bytes += size;
            self.trash.uses.extend(uses);
            return Fate::Kept;
        }
        if uses.is_empty() {
            return self.settle(id, call);
        }
        self.totals.granule.pending_bytes += size;
        Fate::Waits(uses)
    }

    /// A waiting block lost one of its users.
    pub(super) fn event_done(&mut self, id: BlockId, call: Option<&Context>) -> Fate {
        let block = self.block_mut(id);
        block.waits -= 1;
        if block.waits > 0 {
            return Fate::Waits(Uses::new());
        }
        let size = signed(block.size);
        self.totals.granule.pending_bytes -= size;
        self.settle(id, call)
    }

    /// No device uses the block any more.
    fn settle(&mut self, id: BlockId, call: Option<&Context>) -> Fate {
        let Block { size, requested, pool, .. } = *self.block(id);
        self.note(Action::FreeCompleted, id, requested, call);
        let bucket = self.cache(pool).histogram.bucket(size);
        bucket.active_requests.decrease(1);
        bucket.active_bytes.decrease(signed(size));
        let own = &mut self.totals.granule;
        own.active_requests.decrease(1);
        own.active_bytes.decrease(signed(size));
        own.requested_bytes -= signed(requested);
        if size > self.knobs.max_cached {
            self.leave(id);
            return Fate::Leaves;
        }
        self.shelve(id);
        Fate::Free
    }

    fn shelve(&mut self, id: BlockId) {
        let block = self.block_mut(id);
        block.phase = Phase::Cached;
        let (pool, size) = (block.pool, block.size);
        let class = self.sizing.class(size);
        let free = &mut self.cache(pool).free;
        if free.len() <= class {
            free.resize_with(class + 1, Vec::new);
        }
        free[class].push(id);
    }

    /// The block is on its way to the driver: nobody finds it any more.
    fn leave(&mut self, id: BlockId) {
        let block = self.block_mut(id);
        block.phase = Phase::Leaving;
        let ptr = block.ptr;
        self.by_ptr.remove(&ptr);
    }

    /// Lets all cached blocks of a pool leave, by rising size.
    pub(super) fn clear_cache(&mut self, pool: PoolId) -> Vec<BlockId> {
        let free =
            self.caches.get_mut(&pool).map(|cache| std::mem::take(&mut cache.free)).unwrap_or_default();
        let all: Vec<BlockId> = free.into_iter().flatten().collect();
        all.iter().for_each(|id| self.leave(*id));
        all
    }

    /// Lets all blocks leave that graphs might use: they are gone.
    pub(super) fn clear_kept(&mut self) -> Vec<BlockId> {
        let kept: Vec<BlockId> =
            self.by_ptr.values().copied().filter(|id| self.block(*id).phase == Phase::Kept).collect();
        kept.iter().for_each(|id| self.leave(*id));
        kept
    }

    /// The driver has taken a leaving block back.
    pub(super) fn gone(&mut self, id: BlockId, call: Option<&Context>) {
        self.note(Action::SegmentFree, id, self.block(id).size, call);
        let Some(block) = self.blocks[id.index() as usize].take() else { return };
        self.vacant.push(id);
        self.cache(block.pool).blocks -= 1;
        self.totals.allocations.decrease(1);
        self.totals.allocated_bytes.decrease(signed(block.size));
        self.trash.contexts.extend(block.context);
    }

    /// The driver refused to take a leaving block back: it is cached again.
    pub(super) fn stays(&mut self, id: BlockId) {
        let ptr = self.block(id).ptr;
        self.by_ptr.insert(ptr, id);
        self.shelve(id);
    }

    /// Pools with a record here, other than the default one.
    pub(super) fn private_pools(&self) -> Vec<PoolId> {
        self.caches.keys().copied().filter(|pool| *pool != PoolId::DEFAULT).collect()
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
        let blocks = self.blocks.iter_mut().flatten().flat_map(|block| &mut block.uses);
        blocks.chain(self.deferred.iter_mut().map(|(_, found)| found)).map(|found| &mut found.user)
    }

    /// Bytes that graphs may use.
    pub(super) fn kept_bytes(&self) -> i64 {
        self.totals.granule.kept_bytes
    }

    pub(super) fn totals_mut(&mut self) -> &mut Totals {
        &mut self.totals
    }

    pub(super) fn stats(&self) -> HostStats {
        let mut all = Histogram::default();
        self.caches.values().for_each(|cache| all.absorb(&cache.histogram));
        HostStats::new(&self.totals, all)
    }

    pub(super) fn reset_peak_stats(&mut self) {
        self.totals.reset_peak();
        self.caches.values_mut().for_each(|cache| cache.histogram.reset_peak());
    }

    pub(super) fn reset_accumulated_stats(&mut self) {
        self.totals.reset_accumulated();
        self.caches.values_mut().for_each(|cache| cache.histogram.reset_accumulated());
    }

    /// Records something about memory that is no block.
    pub(super) fn note_range(
        &mut self,
        actions: &[Action],
        ptr: DevicePtr,
        size: u64,
        call: Option<&Context>,
    ) {
        for action in actions {
            let replaced = self.trace.record(*action, ptr, size, PoolId::DEFAULT, call.cloned());
            self.trash.contexts.extend(replaced.into_iter().flatten());
        }
    }

    /// Records something about a block; without a context of the call, that of the block's allocation is shown.
    fn note(&mut self, action: Action, id: BlockId, size: u64, call: Option<&Context>) {
        if !self.trace.is_on() {
            return;
        }
        let Block { ptr, pool, ref context, .. } = *self.block(id);
        let context = call.or(context.as_ref()).cloned();
        let replaced = self.trace.record(action, ptr, size, pool, context);
        self.trash.contexts.extend(replaced.into_iter().flatten());
    }
}
