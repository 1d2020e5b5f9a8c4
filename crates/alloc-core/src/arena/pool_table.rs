//! Pools of a device: the requests they serve, their users, and the graphs that know them.

use crate::base::ids::PoolSlot;
use crate::base::steps::{Counted, step};
use crate::error::{AllocError, Result};
use crate::features::sleep::SleepTag;
use crate::lifetimes::last_work::LastWork;
use crate::memory::source::SegmentSource;
use crate::process::callbacks::Callbacks;
use crate::sync::{Arc, ThreadId, this_thread};
use crate::types::{PoolId, Stream};
use crate::watch::stats::StatArray;
use rustc_hash::FxHashMap;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;

/// Requests that a scope sends to its pool.
#[derive(Clone)]
pub enum Filter {
    /// All requests.
    Always,
    /// Requests of one thread; see [`this_thread`](Self::this_thread).
    Thread(ThreadId),
    /// Requests for one stream.
    Stream(Stream),
    /// Requests for streams that are part of the same capture as this one. While it is not being captured there are
    /// none, so that a scope can be opened before its capture begins.
    CaptureOf(Stream),
    /// Requests that the function accepts. It is called at every request.
    /// It may panic and use the allocator: see [code of the program](crate#code-of-the-program).
    Custom(Arc<dyn Fn(Stream) -> bool + Send + Sync>),
}

impl Filter {
    /// Requests of the calling thread.
    #[must_use]
    pub fn this_thread() -> Self {
        Self::Thread(this_thread())
    }
}

impl Debug for Filter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Always => f.write_str("Always"),
            Self::Thread(id) => f.debug_tuple("Thread").field(id).finish(),
            Self::Stream(stream) => f.debug_tuple("Stream").field(stream).finish(),
            Self::CaptureOf(stream) => f.debug_tuple("CaptureOf").field(stream).finish(),
            Self::Custom(_) => f.write_str("Custom"),
        }
    }
}

/// Memory of a pool, and its users.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct PoolStats {
    /// References to it; at 0 its cached memory goes with the next flush.
    pub use_count: u32,
    /// Bytes held from the device.
    pub reserved_bytes: StatArray,
    /// Blocks in the program's hands.
    pub allocation: u64,
    /// Bytes in the program's hands, rounded.
    pub allocated_bytes: u64,
    /// Bytes handed out or pending, rounded.
    pub active_bytes: u64,
    /// Bytes handed out or pending, as requested.
    pub requested_bytes: u64,
    /// Bytes cached: free and backed by memory.
    pub free_bytes: u64,
    /// Segments: fixed ones, and growable ones that have memory.
    pub segments: u64,
}

/// A private pool of a device.
#[derive(Debug)]
pub(crate) struct Pool {
    pub(crate) slot: PoolSlot,
    pub(crate) use_count: u32,
    /// References among these that values have: nobody else takes them away.
    held: u32,
    pub(crate) source: Option<Arc<dyn SegmentSource>>,
    /// Its source has no physical memory for growable segments.
    pub(crate) fixed: bool,
    pub(crate) no_split: bool,
    pub(crate) use_on_oom: bool,
    /// Graphs know its addresses, so nothing leaves while it is in use.
    pub(crate) captured: bool,
    /// Captures are expected: it came with a scope, as those of graphs do, or was primed.
    pub(crate) expects_captures: bool,
    /// Requests were served for a capture: graphs write there, and may read it at the next launch.
    pub(crate) served_captures: bool,
    /// Its own source had no memory when it was asked last.
    pub(crate) source_refused: bool,
    /// Requests in flight: the pool's arenas are not given to others meanwhile.
    pub(crate) visitors: u32,
    /// Its sleep tag, if it has one.
    pub(crate) tag: Option<SleepTag>,
    /// Last launches of graphs that are gone and knew the pool's addresses: no memory leaves before they are done.
    pub(crate) launches: Vec<Arc<LastWork>>,
}

/// An open scope.
#[derive(Clone, Debug)]
pub(crate) struct Scope {
    pub(crate) pool: PoolId,
    pub(crate) filter: Filter,
    holder: Holder,
}

/// Scopes that were open at a moment, oldest first. This may be the last holder of one that has ended since: then it
/// ends here, as foreign code does. Drop it without a lock.
pub(crate) struct OpenScopes<'a> {
    callbacks: &'a Callbacks,
    /// There until this is dropped.
    scopes: Option<Arc<Vec<Scope>>>,
}

impl OpenScopes<'_> {
    pub(crate) fn iter(&self) -> impl DoubleEndedIterator<Item = &Scope> {
        self.scopes.iter().flat_map(|scopes| scopes.iter())
    }

    /// True if none was opened or has ended since.
    pub(crate) fn are_those_of(&self, pools: &PrivatePools) -> bool {
        self.scopes.as_ref().is_some_and(|scopes| Arc::ptr_eq(scopes, &pools.scopes))
    }
}

impl Drop for OpenScopes<'_> {
    fn drop(&mut self) {
        self.callbacks.end(self.scopes.take().and_then(Arc::into_inner));
    }
}

/// Holder of a reference, a scope or a mark, who takes it away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Holder {
    /// The program, by its pool's id.
    Program,
    /// A value of this crate's, which takes it away when it is dropped.
    Value,
}

/// A device's private pools and scopes. The default pool is not among them.
#[derive(Debug)]
pub(crate) struct PrivatePools {
    records: BTreeMap<PoolId, Pool>,
    /// Their ids, by their places.
    by_slot: FxHashMap<PoolSlot, PoolId>,
    /// Open scopes, oldest first; copied when they change, so that filters run without a lock.
    scopes: Arc<Vec<Scope>>,
    next_slot: PoolSlot,
    /// The default pool's sleep tag.
    default_tag: Option<SleepTag>,
    /// Pools that have a sleep tag.
    tagged: BTreeSet<PoolId>,
    /// Pools that have launches.
    launched: BTreeSet<PoolId>,
    /// The pool that was released last, if it held nothing and was forgotten.
    gone: Option<PoolId>,
}

impl Default for PrivatePools {
    fn default() -> Self {
        Self {
            records: BTreeMap::new(),
            by_slot: FxHashMap::default(),
            scopes: Arc::default(),
            next_slot: PoolSlot::DEFAULT.next(),
            default_tag: None,
            tagged: BTreeSet::new(),
            launched: BTreeSet::new(),
            gone: None,
        }
    }
}

impl PrivatePools {
    /// All of them, by id.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&PoolId, &Pool)> {
        self.records.iter()
    }

    /// True if a scope is open.
    pub(crate) fn has_scopes(&self) -> bool {
        !self.scopes.is_empty()
    }

    /// The open scopes, to be looked at without a lock.
    pub(crate) fn open_scopes<'a>(&self, callbacks: &'a Callbacks) -> OpenScopes<'a> {
        OpenScopes { callbacks, scopes: Some(Arc::clone(&self.scopes)) }
    }

    /// The pool, if there is one.
    pub(crate) fn find(&self, id: PoolId) -> Option<&Pool> {
        self.records.get(&id)
    }

    /// The pool, whether it is in use or not.
    pub(crate) fn get(&mut self, id: PoolId) -> Result<&mut Pool> {
        self.records.get_mut(&id).ok_or(AllocError::UnknownPool { pool: id })
    }

    /// Adds a reference to a pool, which is made on its first one. Refused values stay the caller's, to be dropped
    /// without a lock.
    pub(crate) fn create_or_reference(
        &mut self,
        id: PoolId,
        source: Option<&Arc<dyn SegmentSource>>,
        fixed: bool,
        holder: Holder,
    ) -> Result<()> {
        let held = u32::from(holder == Holder::Value);
        if id == PoolId::DEFAULT {
            return Err(AllocError::Pool {
                pool: id,
                problem: "(0, 0) is the default pool, which is always there",
            });
        }
        match self.records.get_mut(&id) {
            Some(pool) if pool.use_count == 0 => Err(AllocError::DeadPool { pool: id }),
            Some(_) if source.is_some() => Err(AllocError::Pool {
                pool: id,
                problem: "it exists already; where its memory comes from is said when it is made",
            }),
            Some(pool) => {
                pool.use_count += 1;
                pool.held += held;
                Ok(())
            }
            None => {
                let slot = self.next_slot;
                self.next_slot = slot.next();
                let pool = Pool {
                    slot,
                    use_count: 1,
                    held,
                    source: source.cloned(),
                    fixed,
                    no_split: false,
                    use_on_oom: false,
                    captured: false,
                    expects_captures: false,
                    served_captures: false,
                    source_refused: false,
                    visitors: 0,
                    tag: None,
                    launches: Vec::new(),
                };
                self.records.insert(id, pool);
                self.by_slot.insert(slot, id);
                Ok(())
            }
        }
    }

    /// Opens a scope and adds a reference. Nothing changes where a scope of the pool is open already.
    pub(crate) fn begin(&mut self, id: PoolId, filter: &Filter, holder: Holder) -> Result<()> {
        if self.scopes.iter().counted().any(|scope| scope.pool == id) {
            return Err(AllocError::Pool {
                pool: id,
                problem: "beginAllocateToPool: already recording to mempool_id",
            });
        }
        let is_new = !self.records.contains_key(&id);
        self.create_or_reference(id, None, false, holder)?;
        self.get(id)?.expects_captures |= is_new;
        Arc::make_mut(&mut self.scopes).push(Scope { pool: id, filter: filter.clone(), holder });
        Ok(())
    }

    /// Closes the pool's scope; its references stay. Returns it, to be dropped without a lock.
    pub(crate) fn end(&mut self, id: PoolId, holder: Holder) -> Result<Scope> {
        let Some(at) = self.scopes.iter().counted().position(|scope| scope.pool == id) else {
            return Err(AllocError::Pool {
                pool: id,
                problem: "endAllocatePool: not currently recording to mempool_id",
            });
        };
        if self.scopes[at].holder != holder {
            return Err(AllocError::Pool {
                pool: id,
                problem: "a PoolScope or a GraphCapture has its scope open: drop that to end it",
            });
        }
        Ok(Arc::make_mut(&mut self.scopes).remove(at))
    }

    /// Makes scopes forget `stream` by its handle, which may become another one's.
    pub(crate) fn retire(&mut self, stream: Stream) {
        let means = |scope: &&mut Scope| match scope.filter {
            Filter::Stream(of) | Filter::CaptureOf(of) => of == stream,
            _ => false,
        };
        for scope in Arc::make_mut(&mut self.scopes).iter_mut().filter(means) {
            scope.filter = Filter::Custom(Arc::new(|_| false));
        }
    }

    /// Takes a reference away; returns if it was the last.
    pub(crate) fn release(&mut self, id: PoolId, holder: Holder) -> Result<bool> {
        let pool = self.get(id)?;
        if pool.use_count == 0 {
            return Err(AllocError::DeadPool { pool: id });
        }
        match holder {
            Holder::Value => pool.held -= 1,
            Holder::Program if pool.held == pool.use_count => {
                return Err(AllocError::Pool {
                    pool: id,
                    problem: "all its references are those of values (MemoryPool, PoolScope, GraphCapture, CapturedGraph): \
                              drop these to release it",
                });
            }
            Holder::Program => {}
        }
        pool.use_count -= 1;
        if pool.use_count == 0 {
            (pool.no_split, pool.use_on_oom) = (false, false);
        }
        Ok(pool.use_count == 0)
    }

    /// Ends all uses of all pools: the allocator goes away. Drop the scopes without a lock.
    pub(crate) fn abandon_all(&mut self) -> Arc<Vec<Scope>> {
        self.records.values_mut().for_each(|pool| pool.use_count = 0);
        std::mem::take(&mut self.scopes)
    }

    /// True if the memory of the pool in `slot` may be given back: nobody uses the pool any more, nor does a launch.
    pub(crate) fn is_freeable(&self, slot: PoolSlot) -> bool {
        let unused = |pool: &Pool| pool.use_count == 0 && pool.launches.is_empty();
        slot == PoolSlot::DEFAULT || self.in_slot(slot).is_none_or(unused)
    }

    /// Launches that keep the memory of unused pools: of one, or of all.
    pub(crate) fn launches_to_wait_for(&self, only: Option<PoolSlot>) -> Vec<Arc<LastWork>> {
        let unused = self.of(only).filter(|(_, pool)| pool.use_count == 0);
        unused.flat_map(|(_, pool)| pool.launches.iter().cloned()).collect()
    }

    /// Notes launches in which graphs that are gone knew the pool's addresses. Returns all such launches of the pool.
    pub(crate) fn keep_for(&mut self, id: PoolId, launches: &[Arc<LastWork>]) -> Result<Vec<Arc<LastWork>>> {
        let pool = self.get(id)?;
        pool.launches.extend_from_slice(launches);
        let known = pool.launches.clone();
        self.launched.insert(id);
        Ok(known)
    }

    /// Forgets launches that are done; drop them without a lock.
    pub(crate) fn forget_launches(&mut self, done: &[Arc<LastWork>]) -> Vec<Arc<LastWork>> {
        if done.is_empty() {
            return Vec::new();
        }
        let is_done = |launch: &mut Arc<LastWork>| done.iter().any(|other| Arc::ptr_eq(launch, other));
        let mut forgotten = Vec::new();
        let Self { records, launched, .. } = self;
        launched.retain(|id| {
            step();
            let Some(pool) = records.get_mut(id) else { return false };
            forgotten.extend(pool.launches.extract_if(.., is_done));
            !pool.launches.is_empty()
        });
        forgotten
    }

    /// True if addresses of the pool in `slot` are part of graphs.
    pub(crate) fn is_captured(&self, slot: PoolSlot) -> bool {
        self.in_slot(slot).is_some_and(|pool| pool.captured && pool.use_count > 0)
    }

    /// True if graphs got memory of the pool in `slot` when they were captured.
    pub(crate) fn has_served_captures(&self, slot: PoolSlot) -> bool {
        self.in_slot(slot).is_some_and(|pool| pool.served_captures && pool.use_count > 0)
    }

    /// Sets or removes a pool's sleep tag; returns the pool's place.
    pub(crate) fn set_tag(&mut self, id: PoolId, tag: Option<SleepTag>) -> Result<PoolSlot> {
        if id == PoolId::DEFAULT {
            self.default_tag = tag;
            return Ok(PoolSlot::DEFAULT);
        }
        let pool = self.get(id)?;
        let (slot, has_tag) = (pool.slot, tag.is_some());
        pool.tag = tag;
        if has_tag {
            self.tagged.insert(id)
        } else {
            self.tagged.remove(&id)
        };
        Ok(slot)
    }

    /// All pools that have a sleep tag.
    pub(crate) fn tags(&self) -> impl Iterator<Item = (PoolId, PoolSlot, &SleepTag)> {
        let of_default = self.default_tag.iter().map(|tag| (PoolId::DEFAULT, PoolSlot::DEFAULT, tag));
        let private = self.tagged.iter().counted().filter_map(|id| {
            let pool = self.records.get(id)?;
            Some((*id, pool.slot, pool.tag.as_ref()?))
        });
        of_default.chain(private)
    }

    /// True if graphs, or launches of graphs that are gone, may use free memory of the pool in `slot`.
    pub(crate) fn is_known_to_graphs(&self, slot: PoolSlot) -> bool {
        self.is_captured(slot) || self.in_slot(slot).is_some_and(|pool| !pool.launches.is_empty())
    }

    fn in_slot(&self, slot: PoolSlot) -> Option<&Pool> {
        self.records.get(self.by_slot.get(&slot)?)
    }

    /// The pool in a slot, if there is one, or all pools.
    fn of(&self, only: Option<PoolSlot>) -> impl Iterator<Item = (&PoolId, &Pool)> {
        let one = only.and_then(|slot| self.records.get_key_value(self.by_slot.get(&slot)?));
        let all = only.is_none().then(|| self.records.iter());
        one.into_iter().chain(all.into_iter().flatten()).counted()
    }

    /// Pools that nobody uses, has a scope for, or visits: the one in a slot, or all.
    pub(crate) fn abandoned(&self, only: Option<PoolSlot>) -> Vec<(PoolId, PoolSlot)> {
        let idle = |(id, pool): &(&PoolId, &Pool)| {
            pool.use_count == 0 && pool.visitors == 0 && !self.scopes.iter().any(|scope| scope.pool == **id)
        };
        self.of(only).filter(idle).map(|(id, pool)| (*id, pool.slot)).collect()
    }

    /// Forgets a pool that is gone. Drop it without a lock.
    pub(crate) fn forget(&mut self, id: PoolId) -> Option<Pool> {
        let pool = self.records.remove(&id)?;
        self.by_slot.remove(&pool.slot);
        self.tagged.remove(&id);
        self.launched.remove(&id);
        Some(pool)
    }

    /// Notes a pool that was released for the last time, if it held nothing and is forgotten.
    pub(crate) fn note_gone(&mut self, id: PoolId) {
        self.gone = (!self.records.contains_key(&id)).then_some(id);
    }

    /// True if this pool was the last to go that way; once.
    pub(crate) fn take_gone(&mut self, id: PoolId) -> bool {
        self.gone.take_if(|gone| *gone == id).is_some()
    }
}
