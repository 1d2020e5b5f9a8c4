//! Checkpoints of a pool: its live blocks, saved and restored. Graph trees replay a graph from the state in which it
//! was recorded.
//!
//! Restoring checks everything first, so a refusal has changed nothing.

use crate::arena::ArenaState;
use crate::arena::directory::PoolSlot;
use crate::device::Device;
use crate::device::{frees, pools, recorder};
use crate::error::{AllocError, Result};
use crate::lifetimes::uses::BlockUse;
use crate::memory::address_map::AddressMap;
use crate::memory::block::{BlockId, BlockPhase, Live};
use crate::memory::layout::Layout;
use crate::memory::segment::Origin;
use crate::sync::{Arc, Guard, Weak};
use crate::types::{DeviceIndex, DevicePtr, PoolId};
use crate::watch::history::{Context, RecordContext};
use std::collections::BTreeSet;

/// A live block as it was saved. Uses by other streams are not saved: a restore is refused while one may go on.
#[derive(Clone, Debug)]
struct SavedBlock {
    addr: u64,
    size: u64,
    requested: u64,
    context: Option<Context>,
}

/// The live blocks of one segment as they were saved.
#[derive(Clone, Debug)]
struct SavedSegment {
    arena: u16,
    base: u64,
    registration: u32,
    live: Vec<SavedBlock>,
}

/// Live blocks of a pool at one moment. PyTorch: `AllocatorState`.
#[derive(Clone, Debug)]
pub struct PoolCheckpoint {
    /// Address map of its allocator: another allocator's blocks may have the same addresses.
    map: Weak<AddressMap>,
    device: DeviceIndex,
    pool: PoolId,
    slot: PoolSlot,
    segments: Vec<SavedSegment>,
}

impl PoolCheckpoint {
    /// The pool.
    #[must_use]
    pub fn pool(&self) -> PoolId {
        self.pool
    }

    /// The device.
    #[must_use]
    pub fn device(&self) -> DeviceIndex {
        self.device
    }

    /// The addresses that were live, ascending.
    #[must_use]
    pub fn live(&self) -> BTreeSet<DevicePtr> {
        let blocks = self.segments.iter().flat_map(|segment| &segment.live);
        blocks.map(|block| DevicePtr(block.addr)).collect()
    }
}

/// Changes made by restoring a checkpoint. PyTorch: `CheckpointDelta`.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct CheckpointDelta {
    /// Live before: nobody may free one of these any more, even if it is among those allocated.
    pub freed: Vec<DevicePtr>,
    /// Live now: each needs an owner that frees it.
    pub allocated: Vec<DevicePtr>,
}

fn live_blocks(layout: &Layout) -> impl Iterator<Item = BlockId> + '_ {
    layout.blocks().iter().filter(|(_, block)| block.is_awake()).map(|(id, _)| id)
}

fn refuse(pool: PoolId, problem: String) -> AllocError {
    AllocError::Checkpoint { pool, problem }
}

/// Refuses blocks that wait for streams or are in flight: they have no place in a checkpoint.
fn refuse_undecided(pool: PoolId, arena: &ArenaState) -> Result<()> {
    for (_, block) in arena.layout().blocks().iter() {
        let ptr = DevicePtr(block.addr);
        match block.state {
            BlockPhase::Pending => {
                return Err(refuse(
                    pool,
                    format!(
                        "Events should have synchronized when checkpointing block {ptr}: other streams still use it; \
                         synchronise them first"
                    ),
                ));
            }
            BlockPhase::Live(Live::Asleep | Live::OwnedAsleep) | BlockPhase::FreeAsleep => {
                return Err(refuse(pool, format!("the memory at {ptr} sleeps; wake its tag first")));
            }
            BlockPhase::Busy => {
                return Err(refuse(
                    pool,
                    format!("another thread is changing the memory at {ptr}; try again"),
                ));
            }
            _ => {}
        }
    }
    Ok(())
}

/// Refuses live blocks to be freed that the caller does not know, since they would be freed twice, and those that a
/// stream outside of graphs may still use.
fn refuse_not_stale(pool: PoolId, arena: &ArenaState, stale: Option<&BTreeSet<DevicePtr>>) -> Result<()> {
    for id in live_blocks(arena.layout()) {
        let block = &arena.layout().blocks()[id];
        let ptr = DevicePtr(block.addr);
        if block.live().is_some_and(Live::is_owned) {
            return Err(refuse(
                pool,
                format!(
                    "a DeviceBuffer has the block at {ptr}, which a restore would free: drop the buffer, or take its address \
                     out (into_raw)"
                ),
            ));
        }
        if arena.uses().iter(block.uses).any(|found| found.captured.is_none()) {
            return Err(refuse(
                pool,
                format!(
                    "Events should have synchronized when setting checkpointed block {ptr}: another stream was \
                         recorded on it; free it and synchronise first"
                ),
            ));
        }
        if stale.is_some_and(|stale| !stale.contains(&ptr)) {
            return Err(refuse(
                pool,
                format!(
                    "Any stale tensors which are being manually freed must be passed to set checkpoint: {ptr} is live \
                     and was not"
                ),
            ));
        }
    }
    Ok(())
}

/// Refuses a segment where saved blocks have no memory of the same segment under them any more.
fn refuse_lost(pool: PoolId, arenas: &[Guard<'_, ArenaState>], saved: &SavedSegment) -> Result<()> {
    let arena = arenas.iter().find(|arena| arena.binding().number() == saved.arena);
    let found = arena.and_then(|arena| {
        let same = |s: &crate::memory::segment::Segment| {
            (s.base, s.registration) == (saved.base, saved.registration)
        };
        arena.layout().segments().iter().find(|(_, segment)| same(segment)).map(|(id, _)| (arena, id))
    });
    let Some((arena, segment)) = found else {
        if saved.live.is_empty() {
            return Ok(());
        }
        let base = DevicePtr(saved.base);
        return Err(refuse(pool, format!("could not find {base}: the segment was given back since")));
    };
    let holes = arena
        .layout()
        .of_segment(segment)
        .filter(|(_, block)| matches!(block.state, BlockPhase::Unmapped | BlockPhase::Alias));
    let holes: Vec<_> = holes.map(|(_, block)| block.addr..block.end()).collect();
    for block in &saved.live {
        if holes.iter().any(|hole| hole.start < block.addr + block.size && block.addr < hole.end) {
            let ptr = DevicePtr(block.addr);
            return Err(refuse(
                pool,
                format!(
                    "Invalid expandable segment structure during checkpoint restore: the memory at {ptr} was \
                         given back since"
                ),
            ));
        }
    }
    Ok(())
}

impl Device {
    /// See [`Pools::checkpoint`](crate::allocator::Pools::checkpoint).
    pub(crate) fn checkpoint(&self, pool: PoolId) -> Result<PoolCheckpoint> {
        let slot = pools::slot_of(self, pool)?;
        let _trackers = recorder::deliver_at_end(self);
        let call = recorder::begin_call(self, None, RecordContext::All)?;
        frees::drain(self, &call)?;
        self.arenas.with_all(|_, arenas| {
            let mut segments = Vec::new();
            for arena in arenas.iter().filter(|arena| arena.binding().slot() == slot) {
                refuse_undecided(pool, arena)?;
                if let Some(why) = arena.heap().memory().and_then(|memory| memory.unkeepable()) {
                    return Err(refuse(pool, why.into()));
                }
                let homes =
                    arena.layout().segments().iter().filter(|(_, segment)| segment.origin != Origin::View);
                segments.extend(homes.map(|(id, segment)| {
                    SavedSegment {
                        arena: arena.binding().number(),
                        base: segment.base,
                        registration: segment.registration,
                        live: arena
                            .layout()
                            .of_segment(id)
                            .filter(|(_, block)| block.is_awake())
                            .map(|(id, block)| SavedBlock {
                                addr: block.addr,
                                size: block.size,
                                requested: block.requested,
                                context: arena.ledger().history().of_block(id).cloned(),
                            })
                            .collect(),
                    }
                }));
            }
            Ok(PoolCheckpoint {
                map: Arc::downgrade(self.driver.map()),
                device: self.driver.device(),
                pool,
                slot,
                segments,
            })
        })
    }

    /// See [`Pools::restore`](crate::allocator::Pools::restore).
    pub(crate) fn restore(
        &self,
        saved: &PoolCheckpoint,
        stale: Option<&BTreeSet<DevicePtr>>,
    ) -> Result<CheckpointDelta> {
        let pool = saved.pool;
        if !std::ptr::eq(saved.map.as_ptr(), Arc::as_ptr(self.driver.map())) {
            return Err(refuse(pool, "it was made by another allocator".into()));
        }
        if pool != PoolId::DEFAULT && pools::use_count(self, pool)? == 0 {
            return Err(AllocError::DeadPool { pool });
        }
        if pools::slot_of(self, pool)? != saved.slot {
            return Err(AllocError::UnknownPool { pool });
        }
        let _trackers = recorder::deliver_at_end(self);
        let call = recorder::begin_call(self, None, RecordContext::All)?;
        frees::drain(self, &call)?;
        let (delta, (contexts, uses)) = self.arenas.with_all(|peaks, arenas| {
            let mine = |arena: &&mut Guard<'_, ArenaState>| arena.binding().slot() == saved.slot;
            for arena in arenas.iter_mut().filter(mine) {
                refuse_undecided(pool, arena)?;
                refuse_not_stale(pool, arena, stale)?;
            }
            saved.segments.iter().try_for_each(|segment| refuse_lost(pool, arenas, segment))?;
            let mut delta = CheckpointDelta::default();
            let mut trash = (Vec::new(), Vec::new());
            for arena in arenas.iter_mut().filter(mine) {
                arena.ledger_mut().history_mut().begin_call(call.context());
                delta.freed.extend(free_all(arena, &mut trash.1));
                let number = arena.binding().number();
                for segment in saved.segments.iter().filter(|s| s.arena == number) {
                    delta.allocated.extend(segment.live.iter().map(|block| bring_back(arena, block)));
                }
                trash.0.extend(arena.ledger_mut().history_mut().end_call());
                arena.note_used(peaks);
            }
            if arenas.iter().any(|arena| arena.ledger().counters().crossed()) {
                self.arenas.settle(peaks, arenas);
            }
            Ok::<_, AllocError>((delta, trash))
        })?;
        frees::end_uses(self, uses.iter());
        self.driver.callbacks().end(contexts);
        #[cfg(feature = "paranoid")]
        crate::device::arenas::check_invariants(self);
        Ok(delta)
    }
}

/// Frees every live block of an arena. No stream but its own, or those of graphs, uses them: these uses go to
/// `forgotten`.
fn free_all(arena: &mut ArenaState, forgotten: &mut Vec<BlockUse>) -> Vec<DevicePtr> {
    let live: Vec<BlockId> = live_blocks(arena.layout()).collect();
    let mut freed: Vec<_> = live
        .into_iter()
        .map(|id| {
            let ptr = DevicePtr(arena.layout().blocks()[id].addr);
            forgotten.extend(arena.uses_of(id).forget());
            arena.free(id);
            ptr
        })
        .collect();
    freed.sort_unstable();
    freed
}

fn bring_back(arena: &mut ArenaState, saved: &SavedBlock) -> DevicePtr {
    let segments = crate::memory::block::Tier::ALL.map(|tier| arena.heap().segment_at(tier, saved.addr));
    let mut segments = segments.into_iter().flatten();
    let holder = segments.find_map(|segment| arena.heap().free_at(segment, saved.addr));
    let Some(holder) = holder else { unreachable!("checked before anything was changed") };
    let call = arena.ledger().history().call();
    arena.ledger_mut().history_mut().begin_call(saved.context.as_ref().or(call.as_ref()));
    let place = (saved.addr, saved.size);
    let ptr = arena.hand_out_at(holder, place, saved.requested, true);
    arena.ledger_mut().history_mut().begin_call(call.as_ref());
    ptr
}
