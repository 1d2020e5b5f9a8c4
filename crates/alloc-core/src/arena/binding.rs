//! Tenure of an arena: the stream and pool it serves, and its policy.

use crate::base::ids::PoolSlot;
use crate::lifetimes::last_work::LastWork;
use crate::memory::address_map::Location;
use crate::memory::block::BlockId;
use crate::memory::source::SegmentSource;
use crate::policy::Policy;
use crate::process::stream_identity::shown_raw;
use crate::sync::{Arc, ThreadId, this_thread};
use crate::types::{DeviceIndex, PoolId, Stream};
use crate::watch::history::RecordOwner;

/// The pool an arena belongs to, as far as the arena needs it.
#[derive(Clone, Debug)]
pub(crate) struct ArenaPool {
    pub(crate) slot: PoolSlot,
    pub(crate) id: PoolId,
    /// Source of its memory; `None` is the driver.
    pub(crate) source: Option<Arc<dyn SegmentSource>>,
    /// Its source has no physical memory for growable segments.
    pub(crate) fixed: bool,
    /// Blocks are handed out whole.
    pub(crate) no_split: bool,
    /// It has a sleep tag. A private pool takes growable memory then, whatever the settings say.
    pub(crate) sleeps: bool,
    /// Graphs know its addresses, or may come to.
    pub(crate) of_graphs: bool,
}

impl ArenaPool {
    pub(crate) const DEFAULT: Self = Self {
        slot: PoolSlot::DEFAULT,
        id: PoolId::DEFAULT,
        source: None,
        fixed: false,
        no_split: false,
        sleeps: false,
        of_graphs: false,
    };

    /// Policy of the pool's arenas, where others decide by `policy`.
    pub(super) fn decides_by(&self, policy: Arc<Policy>) -> Arc<Policy> {
        let grows = self.sleeps && self.slot != PoolSlot::DEFAULT;
        if grows { Arc::new(policy.growing()) } else { policy }
    }
}

/// Remains of a pool that is gone, held by an arena.
pub(crate) type Vacated = (ArenaPool, Option<Arc<LastWork>>);

/// Tenure of an arena. Its stream changes when another adopts the memory of a retired one, its pool when that is gone.
#[derive(Debug)]
pub(crate) struct Binding {
    device: DeviceIndex,
    number: u16,
    stream: Stream,
    pool: ArenaPool,
    /// The end of its stream's work, once that is retired and until another adopts the arena.
    retired: Option<Arc<LastWork>>,
    policy: Arc<Policy>,
    /// Thread that took memory for it last, or made it.
    grower: ThreadId,
}

impl Binding {
    pub(crate) fn new(
        device: DeviceIndex,
        number: u16,
        stream: Stream,
        pool: ArenaPool,
        policy: Arc<Policy>,
    ) -> Self {
        let policy = pool.decides_by(policy);
        Self { device, number, stream, pool, retired: None, policy, grower: this_thread() }
    }

    /// The arena's number.
    #[inline(always)]
    pub(crate) fn number(&self) -> u16 {
        self.number
    }

    /// The stream, which may be retired.
    pub(crate) fn stream(&self) -> Stream {
        self.stream
    }

    /// The stream, unless it is retired.
    pub(crate) fn live_stream(&self) -> Option<Stream> {
        self.retired.is_none().then_some(self.stream)
    }

    /// The end of the stream's work, if it is retired.
    pub(crate) fn retired(&self) -> Option<&Arc<LastWork>> {
        self.retired.as_ref()
    }

    #[inline(always)]
    pub(crate) fn pool(&self) -> &ArenaPool {
        &self.pool
    }

    /// The pool's place.
    #[inline(always)]
    pub(crate) fn slot(&self) -> PoolSlot {
        self.pool.slot
    }

    pub(crate) fn policy(&self) -> &Arc<Policy> {
        &self.policy
    }

    /// Pool and stream for which memory is mapped.
    pub(crate) fn maps_for(&self) -> (PoolId, Stream) {
        (self.pool.id, self.stream)
    }

    /// Stream and pool of its records.
    pub(crate) fn owner(&self) -> RecordOwner {
        (shown_raw(self.stream.raw), self.pool.id)
    }

    /// Entry of the address map for a block of the arena.
    #[inline(always)]
    pub(super) fn location(&self, block: BlockId) -> Location {
        Location { device: self.device, arena: self.number, block }
    }

    /// True if requests of `stream`, one of this device, to the pool in `slot` are for this arena.
    #[inline(always)]
    pub(crate) fn serves(&self, slot: PoolSlot, stream: Stream) -> bool {
        self.pool.slot == slot && self.belongs_to(stream)
    }

    /// True if its blocks are for work of `stream`, one of this device.
    #[inline(always)]
    pub(crate) fn belongs_to(&self, stream: Stream) -> bool {
        self.stream.raw == stream.raw && self.retired.is_none()
    }

    /// True if it takes growable segments.
    pub(crate) fn grows(&self) -> bool {
        self.policy.grows() && !self.pool.fixed
    }

    /// True if somebody counts on the place of its memory: graphs, the pool's own source, whoever puts the pool to
    /// sleep, or wants blocks as they were cut.
    pub(crate) fn stays(&self) -> bool {
        let ArenaPool { source, no_split, sleeps, of_graphs, .. } = &self.pool;
        *sleeps || *no_split || *of_graphs || source.is_some()
    }

    /// Retires the stream; `last` is its last work.
    pub(crate) fn retire(&mut self, last: &Arc<LastWork>) {
        self.retired = Some(Arc::clone(last));
    }

    /// Hands blocks out whole from here on, or cuts them again.
    pub(crate) fn set_no_split(&mut self, no_split: bool) {
        self.pool.no_split = no_split;
    }

    /// Ends the binding. Drop the remains without a lock.
    pub(super) fn end(&mut self) -> Vacated {
        let nobody = ArenaPool { slot: PoolSlot::NONE, ..ArenaPool::DEFAULT };
        (std::mem::replace(&mut self.pool, nobody), self.retired.take())
    }

    /// Makes a vacant arena serve `stream` in `pool`. The policy is still to be set.
    pub(super) fn begin(&mut self, pool: ArenaPool, stream: Stream) {
        debug_assert!(self.pool.slot == PoolSlot::NONE, "only vacant arenas change their pool");
        (self.pool, self.stream) = (pool, stream);
    }

    /// Gives a retired stream's arena to `stream`.
    pub(super) fn pass_to(&mut self, stream: Stream) {
        (self.stream, self.retired) = (stream, None);
    }

    /// Notes a request for `pool`, whose arena it is: graphs may know addresses of it since the last one.
    pub(crate) fn note_pool(&mut self, pool: &ArenaPool) {
        self.pool.of_graphs |= pool.of_graphs;
    }

    /// Notes that the calling thread takes memory for it. `true` if another one did last: there may be a fit that this
    /// one did not find.
    pub(crate) fn is_grown_by_another(&mut self) -> bool {
        let me = this_thread();
        std::mem::replace(&mut self.grower, me) != me
    }

    /// Notes if the pool has a sleep tag, from here on. The policy is still to be set.
    pub(super) fn set_sleeps(&mut self, has_tag: bool) {
        self.pool.sleeps = has_tag;
    }

    /// Decides by `policy` from here on, as far as its pool lets it.
    pub(super) fn decide_by(&mut self, policy: Arc<Policy>) {
        self.policy = policy;
    }
}
