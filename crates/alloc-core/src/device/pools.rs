//! Private pools: the requests they serve, their users, and the return of their memory.

use super::Device;
use crate::arena::ArenaPool;
use crate::arena::directory::{Arena, PoolSlot};
use crate::arena::pool_table::{Filter, Holder, Pool, PoolStats, Scope};
use crate::base::steps::Counted;
use crate::error::{AllocError, Result};
use crate::features::sleep::{SleepTag, Tags};
use crate::lifetimes::last_work::LastWork;
use crate::memory::block::{Block, BlockPhase, Tier};
use crate::memory::region::Source;
use crate::memory::source::SegmentSource;
use crate::process::attention::Reason;
use crate::process::callbacks::Kind;
use crate::process::stream_identity::{named, shown};
use crate::sync::{Arc, this_thread};
use crate::types::{DevicePtr, PoolId, Stream};
use crate::watch::counters::Count;
use std::collections::BTreeSet;

/// Facts about a private pool, for a report.
pub(super) struct Facts {
    pub(super) id: PoolId,
    pub(super) in_use: bool,
    pub(super) opted_in: bool,
    pub(super) has_source: bool,
    pub(super) source_refused: bool,
}

/// A request's stay in a pool: its arenas stay the pool's until this is dropped.
pub(super) struct Visit<'a> {
    device: &'a Device,
    id: PoolId,
    pub(super) pool: ArenaPool,
}

impl Drop for Visit<'_> {
    fn drop(&mut self) {
        if self.id == PoolId::DEFAULT {
            return;
        }
        // Never the last reference: a visited pool has its source itself.
        drop(self.pool.source.take());
        let was_last = self.device.private_pools.lock().get(self.id).is_ok_and(|pool| {
            pool.visitors -= 1;
            pool.use_count == 0 && pool.visitors == 0
        });
        if was_last {
            forget_empty(self.device, Some(self.pool.slot));
        }
    }
}

/// Memory to give back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flush {
    /// The default pool's cached memory, and that of pools that nobody uses any more.
    Everything,
    /// That of pools that nobody uses any more.
    Unused,
    /// That of one pool, if nobody uses it any more.
    Pool(PoolSlot),
    /// That of one pool, also while it is in use, unless graphs know its addresses.
    InUse(PoolSlot),
}

impl Flush {
    /// The one pool, if it is about one.
    pub(super) fn only(self) -> Option<PoolSlot> {
        match self {
            Self::Pool(slot) | Self::InUse(slot) => Some(slot),
            Self::Everything | Self::Unused => None,
        }
    }
}

/// A pool that is to sleep or to wake.
#[derive(Clone, Debug)]
pub(crate) struct Sleeper {
    pub(crate) id: PoolId,
    pub(super) slot: PoolSlot,
    pub(super) source: Source,
    pub(crate) priority: i32,
}

/// Ends a scope of the pool. Returns the scope, and the pool's place and use count, where the pool is still there.
pub(in crate::device) fn end_scope(
    device: &Device,
    id: PoolId,
    holder: Holder,
) -> Result<(Option<(PoolSlot, u32)>, Scope)> {
    let mut pools = device.private_pools.lock();
    let scope = pools.end(id, holder)?;
    device.driver.attention().set(Reason::SCOPES, pools.has_scopes());
    Ok((pools.get(id).ok().map(|pool| (pool.slot, pool.use_count)), scope))
}

/// Closes all scopes.
pub(in crate::device) fn abandon_scopes(device: &Device) -> Arc<Vec<Scope>> {
    device.private_pools.lock().abandon_all()
}

/// True if graphs were captured with memory of the pool.
pub(in crate::device) fn is_captured(device: &Device, slot: PoolSlot) -> bool {
    device.private_pools.lock().is_captured(slot)
}

/// True if graphs got memory of the pool when they were captured.
pub(in crate::device) fn has_served_captures(device: &Device, slot: PoolSlot) -> bool {
    device.private_pools.lock().has_served_captures(slot)
}

/// True if graphs know addresses of the pool.
pub(in crate::device) fn is_known_to_graphs(device: &Device, slot: PoolSlot) -> bool {
    device.private_pools.lock().is_known_to_graphs(slot)
}

/// Sets or removes a pool's sleep tag; returns the pool's place.
pub(in crate::device) fn set_tag(device: &Device, id: PoolId, tag: Option<SleepTag>) -> Result<PoolSlot> {
    device.private_pools.lock().set_tag(id, tag)
}

/// Refuses a pool that is not there. The caller holds the device's lock, so that the pool is not forgotten meanwhile.
pub(in crate::device) fn is_there(device: &Device, pool: PoolId) -> Result<()> {
    if pool != PoolId::DEFAULT {
        device.private_pools.lock().get(pool)?;
    }
    Ok(())
}

pub(in crate::device) fn facts(device: &Device) -> Vec<Facts> {
    let pools = device.private_pools.lock();
    let facts = |(id, pool): (&PoolId, &Pool)| Facts {
        id: *id,
        in_use: pool.use_count > 0,
        opted_in: pool.use_on_oom,
        has_source: pool.source.is_some(),
        source_refused: pool.source_refused,
    };
    pools.iter().map(facts).collect()
}

/// The pool that serves a request for `stream`: that of the newest scope whose filter accepts it.
pub(in crate::device) fn route(device: &Device, stream: Stream, capturing: bool) -> Result<Visit<'_>> {
    if !device.driver.attention().has(Reason::SCOPES) {
        return visit(device, PoolId::DEFAULT, capturing);
    }
    loop {
        let scopes = device.private_pools.lock().open_scopes(device.driver.callbacks());
        let mut newest = None;
        for scope in scopes.iter().rev().counted() {
            if accepts(device, &scope.filter, stream)? {
                newest = Some(scope);
                break;
            }
        }
        let visit = visit(device, newest.map_or(PoolId::DEFAULT, |scope| scope.pool), capturing);
        // A pool that died after its scope ended does not concern this request, which has another one now.
        if visit.is_ok() || scopes.are_those_of(&device.private_pools.lock()) {
            return visit;
        }
    }
}

/// Fails where the driver cannot tell: outside of its pool the memory would be given to others.
fn accepts(device: &Device, filter: &Filter, stream: Stream) -> Result<bool> {
    Ok(match filter {
        Filter::Always => true,
        Filter::Thread(id) => *id == this_thread(),
        Filter::Stream(only) => *only == stream,
        Filter::CaptureOf(origin) => {
            // Another thread's default stream cannot be asked about here.
            let asked =
                |stream| if named(stream).is_ok() { device.driver.capture_id(stream) } else { Ok(None) };
            let capture = asked(stream)?;
            capture.is_some() && (stream == *origin || capture == asked(*origin)?)
        }
        Filter::Custom(accepts) => {
            device.driver.calls().call(Kind::Filter, || accepts(shown(stream))) == Some(true)
        }
    })
}

/// Keeps a pool's arenas its own while the visit lives.
pub(in crate::device) fn visit(device: &Device, id: PoolId, capturing: bool) -> Result<Visit<'_>> {
    if id == PoolId::DEFAULT {
        return Ok(Visit { device, id, pool: ArenaPool::DEFAULT });
    }
    let mut pools = device.private_pools.lock();
    let Pool {
        slot,
        use_count,
        source,
        fixed,
        no_split,
        captured,
        expects_captures,
        served_captures,
        visitors,
        tag,
        ..
    } = pools.get(id)?;
    if *use_count == 0 {
        return Err(AllocError::DeadPool { pool: id });
    }
    *visitors += 1;
    *captured |= capturing;
    *served_captures |= capturing;
    let (slot, source, sleeps) = (*slot, source.clone(), tag.is_some());
    let of_graphs = *captured || *expects_captures;
    let pool = ArenaPool { slot, id, source, fixed: *fixed, no_split: *no_split, sleeps, of_graphs };
    Ok(Visit { device, id, pool })
}

/// See [`Pools::create`](crate::allocator::Pools::create).
pub(crate) fn create(
    device: &Device,
    id: PoolId,
    source: Option<Arc<dyn SegmentSource>>,
    holder: Holder,
) -> Result<()> {
    let calls = device.driver.calls();
    let fixed = match &source {
        Some(source) => calls.call(Kind::Source, || source.physical().is_none()),
        None => Some(false),
    };
    let problem = "a source of memory makes a pool that has a source, too; make it outside of the source";
    let fixed = fixed.ok_or(AllocError::Pool { pool: id, problem })?;
    device.private_pools.lock().create_or_reference(id, source.as_ref(), fixed, holder)
}

/// See [`Pools::begin`](crate::allocator::Pools::begin).
pub(crate) fn begin(device: &Device, id: PoolId, filter: Filter, holder: Holder) -> Result<()> {
    let mut pools = device.private_pools.lock();
    pools.begin(id, &filter, holder)?;
    device.driver.attention().set(Reason::SCOPES, true);
    Ok(())
}

/// See [`Pools::release`](crate::allocator::Pools::release).
pub(crate) fn release(device: &Device, id: PoolId, holder: Holder) -> Result<bool> {
    let (last, slot) = {
        let mut pools = device.private_pools.lock();
        (pools.release(id, holder)?, pools.get(id)?.slot)
    };
    if last {
        device.arenas.refresh_no_split(slot, false);
        device.arenas.reclaim_peaks(slot);
        // A pool that holds nothing leaves nothing behind: its id can be used again.
        forget_empty(device, Some(slot));
        device.private_pools.lock().note_gone(id);
    }
    Ok(last)
}

/// Counts the emptying of a pool that is gone. PyTorch forgets an empty pool only then, and counts a pass over all
/// streams.
pub(crate) fn pass_over_gone(device: &Device, id: PoolId) {
    if device.private_pools.lock().take_gone(id) {
        device.accounting.lock().counters_mut().sync_all_streams += 1;
    }
}

/// References to a pool.
pub(crate) fn use_count(device: &Device, id: PoolId) -> Result<u32> {
    Ok(device.private_pools.lock().get(id)?.use_count)
}

pub(crate) fn set_use_on_oom(device: &Device, id: PoolId, on: bool) -> Result<()> {
    let mut pools = device.private_pools.lock();
    let pool = pools.get(id)?;
    if on && pool.use_count == 0 {
        return Err(AllocError::DeadPool { pool: id });
    }
    pool.use_on_oom = on;
    Ok(())
}

pub(crate) fn set_no_split(device: &Device, id: PoolId) -> Result<()> {
    let slot = {
        let mut pools = device.private_pools.lock();
        let pool = pools.get(id)?;
        if pool.use_count == 0 {
            return Err(AllocError::DeadPool { pool: id });
        }
        pool.no_split = true;
        pool.slot
    };
    device.arenas.refresh_no_split(slot, true);
    Ok(())
}

/// Notes the answer of a pool's own source, for out-of-memory errors.
pub(in crate::device) fn note_source(device: &Device, id: PoolId, refused: bool) {
    if let Ok(pool) = device.private_pools.lock().get(id) {
        pool.source_refused = refused;
    }
}

/// Pools that serve the default pool in need, by id. Not those whose free memory graphs write to, nor those that sleep:
/// owners of blocks of the default pool know nothing of that sleep.
pub(in crate::device) fn opted_in_pools(device: &Device) -> Vec<PoolId> {
    let pools = device.private_pools.lock();
    let serves = |pool: &Pool| pool.use_on_oom && !pool.captured && pool.tag.is_none();
    pools.iter().counted().filter(|(_, pool)| serves(pool)).map(|(id, _)| *id).collect()
}

/// Expects captures of the pool: they will find its free memory of now where it is.
pub(in crate::device) fn expect_captures(device: &Device, id: PoolId) -> Result<()> {
    device.private_pools.lock().get(id)?.expects_captures = true;
    Ok(())
}

/// Notes that a graph knows addresses of the pool, though nothing was requested in the capture.
pub(crate) fn note_captured(device: &Device, id: PoolId) -> Result<()> {
    device.private_pools.lock().get(id)?.captured = true;
    Ok(())
}

/// Keeps the pool's memory until `launches` are done: graphs that know its addresses were launched, and are gone.
pub(crate) fn keep_for(device: &Device, id: PoolId, launches: &[Arc<LastWork>]) -> Result<()> {
    let known = device.private_pools.lock().keep_for(id, launches)?;
    // A capture forbids to ask; then they are asked the next time.
    if !device.driver.is_beside_capture() {
        forget_launches(device, &known, |launch| launch.is_done());
    }
    Ok(())
}

/// Waits for launches of graphs that are gone, in pools that nobody uses: in one, or in all. Blocks.
pub(in crate::device) fn wait_for_launches(device: &Device, only: Option<PoolSlot>) {
    let launches = device.private_pools.lock().launches_to_wait_for(only);
    forget_launches(device, &launches, |launch| launch.wait().map(|()| true));
}

fn forget_launches(
    device: &Device,
    launches: &[Arc<LastWork>],
    is_done: impl Fn(&LastWork) -> crate::backend::Result<bool>,
) {
    let is_done = |launch: &Arc<LastWork>| {
        is_done(launch).unwrap_or_else(|error| {
            device.driver.backend().clear_error();
            tracing::warn!(%error, "it is not known whether a graph's launch is done; its pool keeps its memory");
            false
        })
    };
    let done: Vec<_> = launches.iter().filter(|launch| is_done(launch)).cloned().collect();
    let _dropped_without_a_lock = device.private_pools.lock().forget_launches(&done);
}

/// The pool's place among arenas.
pub(crate) fn slot_of(device: &Device, id: PoolId) -> Result<PoolSlot> {
    if id == PoolId::DEFAULT {
        return Ok(PoolSlot::DEFAULT);
    }
    Ok(device.private_pools.lock().get(id)?.slot)
}

/// Forgets pools that nobody uses and that hold nothing any more: the one in a slot, or all.
pub(in crate::device) fn forget_empty(device: &Device, only: Option<PoolSlot>) {
    let mut forgotten = Vec::new();
    {
        // No stream gets an arena meanwhile.
        let _alone = device.arenas.bindings();
        let abandoned = device.private_pools.lock().abandoned(only);
        for (id, slot) in abandoned {
            if let Some(left) = device.arenas.directory().recycle(slot) {
                // In one step: the id can be used again, and must keep what is set for it then.
                let mut state = device.accounting.lock();
                forgotten.push((device.private_pools.lock().forget(id), left));
                state.accounts_mut().forget_pool(id);
            }
        }
    }
    // Destructors of sources are foreign code, which is refused memory rather than made to wait for this thread.
    let _foreign = (!forgotten.is_empty()).then(|| device.slow_path.begin());
    device.driver.callbacks().end(forgotten);
}

/// Tests if the live blocks of a pool are exactly `expected`. PyTorch: `checkPoolLiveAllocations`.
pub(crate) fn has_live(device: &Device, id: PoolId, expected: &BTreeSet<DevicePtr>) -> Result<bool> {
    let slot = slot_of(device, id)?;
    Ok(device.arenas.with_arenas_of(slot, |arenas| {
        let live = arenas
            .iter()
            .flat_map(|arena| arena.layout().blocks().iter().filter(|(_, b)| b.live().is_some()));
        let mut count = 0;
        let known = live.inspect(|_| count += 1).all(|(_, b)| expected.contains(&DevicePtr(b.addr)));
        known && count == expected.len()
    }))
}

/// Memory of a pool, and its users.
pub(crate) fn stats(device: &Device, id: PoolId) -> Result<PoolStats> {
    let slot = slot_of(device, id)?;
    let use_count = if id == PoolId::DEFAULT { 1 } else { use_count(device, id)? };
    Ok(device.arenas.with_arenas_of(slot, |arenas| {
        let mut stats = PoolStats { use_count, ..PoolStats::default() };
        for arena in arenas {
            for tier in Tier::ALL {
                let count = |count| arena.ledger().counters().get(tier, count).unsigned_abs();
                stats.allocation += count(Count::Allocation);
                stats.allocated_bytes += count(Count::AllocatedBytes);
                stats.active_bytes += count(Count::ActiveBytes);
                stats.requested_bytes += count(Count::RequestedBytes);
            }
            let free = arena.layout().blocks().iter().filter(|(_, block)| block.state == BlockPhase::Free);
            stats.free_bytes += free.map(|(_, block)| block.size).sum::<u64>();
            let has_memory = |block: &Block| match block.state {
                BlockPhase::Live(live) => !live.is_asleep(),
                BlockPhase::Unmapped | BlockPhase::FreeAsleep | BlockPhase::Alias => false,
                _ => true,
            };
            let backed = |id| arena.layout().of_segment(id).any(|(_, block)| has_memory(block));
            let segments = arena.layout().segments();
            let counted = |id| !segments.is_view(id) && backed(id);
            stats.segments += segments.iter().filter(|(id, _)| counted(*id)).count() as u64;
        }
        stats.reserved_bytes = device.accounting.lock().accounts().of_pool(id);
        stats
    }))
}

/// Arenas whose cached memory may go, with their pool: those of the default pool and of pools that nobody uses any
/// more. Such a pool stays unused; its arenas may be another pool's once they are locked.
pub(in crate::device) fn releasable(device: &Device, what: Flush) -> Vec<(&Arc<Arena>, PoolSlot)> {
    let arenas = what
        .only()
        .map_or_else(|| device.arenas.directory().all(), |slot| device.arenas.directory().of_pool(slot));
    let slots: Vec<_> = arenas.into_iter().map(|arena| (arena, arena.lock().binding().slot())).collect();
    let pools = device.private_pools.lock();
    let may_go = |slot: PoolSlot| match what {
        Flush::Everything => pools.is_freeable(slot),
        Flush::Unused => slot != PoolSlot::DEFAULT && pools.is_freeable(slot),
        Flush::Pool(only) => slot == only && pools.is_freeable(slot),
        Flush::InUse(only) => slot == only && !pools.is_known_to_graphs(slot),
    };
    slots.into_iter().filter(|(_, slot)| may_go(*slot)).collect()
}

/// Pools that served the stream, or its captures, serve no successor.
pub(in crate::device) fn retire_scopes(device: &Device, stream: Stream) {
    if device.driver.attention().has(Reason::SCOPES) {
        device.private_pools.lock().retire(stream);
    }
}

/// Sleep tags of all pools.
pub(crate) fn sleep_tags(device: &Device) -> Vec<SleepTag> {
    device.private_pools.lock().tags().map(|(_, _, tag)| tag.clone()).collect()
}

/// Pools that a call with these tags is about.
pub(crate) fn sleepers_of(device: &Device, tags: Tags<'_>) -> Vec<Sleeper> {
    let pools = device.private_pools.lock();
    let meant = pools.tags().filter(|(.., tag)| tags.name(tag));
    let sleeper = |(id, slot, tag): (PoolId, PoolSlot, &SleepTag)| Sleeper {
        id,
        slot,
        source: pools.find(id).and_then(|pool| pool.source.clone()),
        priority: tag.priority,
    };
    meant.map(sleeper).collect()
}

/// True if any memory of the pool sleeps.
pub(crate) fn is_asleep(device: &Device, id: PoolId) -> Result<bool> {
    let slot = slot_of(device, id)?;
    // Asked at every launch of a graph: mostly, nothing sleeps at all.
    if device.accounting.lock().regions().asleep_bytes() == 0 {
        return Ok(false);
    }
    Ok(device.arenas.directory().of_pool(slot).iter().any(|arena| arena.lock().layout().has_sleepers()))
}
