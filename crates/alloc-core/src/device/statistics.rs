//! Figures of a device, of the whole program and of parts of it.
//!
//! Scopes have exact peaks, whatever other scopes and resets there are. The running peaks are cut where a scope begins
//! and where they are reset; every open scope notes the peak up to there. Between such boundaries scopes cost nothing.

use crate::arena::ArenaState;
use crate::arena::directory::PoolSlot;
use crate::backend::ErrorKind;
use crate::device::Device;
use crate::device::accounting::event_counts::Events;
use crate::device::accounting::tenants::signed;
use crate::device::recorder::observation::segments;
use crate::device::{frees, recorder};
use crate::error::Result;
use crate::features::ledger::{DeviceLedger, Ours};
use crate::memory::block::Tier;
use crate::sync::{Alone, Guard, assert_unlocked};
use crate::types::Stream;
use crate::watch::counters::{Count, Counters, Peaks, Row};
use crate::watch::history::RecordContext;
use crate::watch::snapshot::BlockInfo;
use crate::watch::stats::{DeviceStats, GranuleStats, ScopeBytes, ScopeStats, Stat};
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;
use std::time::Duration;

/// Readings of figures while memory moves, at most, and the pause between two: whoever moves memory may need the
/// processor, and may wait for this thread.
const READINGS: usize = 256;
const BETWEEN_READINGS: Duration = Duration::from_micros(50);

/// Bytes in the growable segments of a stream and a tier. PyTorch: `StreamSegmentSize`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GrowableSize {
    /// The stream's handle.
    pub stream: u64,
    /// True if they serve small requests.
    pub is_small: bool,
    /// Bytes with memory behind them.
    pub bytes: u64,
}

/// The number of an open scope, never used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ScopeId(u64);

/// The quantities of a scope, in the order of [`ScopeStats`].
#[derive(Clone, Copy, Debug)]
struct Bytes([i64; 4]);

impl Bytes {
    fn new(row: &Row, reserved: i64) -> Self {
        let of = |count: Count| row[count as usize];
        Self([of(Count::AllocatedBytes), of(Count::ActiveBytes), of(Count::RequestedBytes), reserved])
    }

    fn raise(&mut self, other: Self) {
        for (mine, other) in self.0.iter_mut().zip(other.0) {
            *mine = (*mine).max(other);
        }
    }
}

/// All that a scope compares, at one moment.
#[derive(Clone, Copy, Debug)]
struct Now {
    bytes: Bytes,
    handed_out: u64,
    taken_back: u64,
    events: Events,
}

#[derive(Debug)]
struct OpenScope {
    begin: Now,
    /// The most from the beginning to the last boundary.
    peak: Bytes,
}

/// The scopes that are open on a device.
#[derive(Debug, Default)]
pub(in crate::device) struct Scopes {
    next: u64,
    open: FxHashMap<ScopeId, OpenScope>,
}

impl Scopes {
    fn note(&mut self, peak: Bytes) {
        self.open.values_mut().for_each(|scope| scope.peak.raise(peak));
    }
}

impl OpenScope {
    /// Figures of the scope at the moment `now`, with the peaks since the last boundary.
    fn stats(&self, now: Now, since_boundary: Bytes) -> ScopeStats {
        let mut peak = self.peak;
        peak.raise(since_boundary);
        let bytes =
            |n: usize| ScopeBytes { begin: self.begin.bytes.0[n], end: now.bytes.0[n], peak: peak.0[n] };
        let count = |now: u64, begin: u64| i64::try_from(now - begin).unwrap_or(i64::MAX);
        let events = now.events.since(self.begin.events);
        ScopeStats {
            allocated_bytes: bytes(0),
            active_bytes: bytes(1),
            requested_bytes: bytes(2),
            reserved_bytes: bytes(3),
            num_allocations: count(now.handed_out, self.begin.handed_out),
            num_frees: count(now.taken_back, self.begin.taken_back),
            num_alloc_retries: events.alloc_retries,
            num_ooms: events.ooms,
            num_sync_all_streams: events.sync_all_streams,
            num_device_alloc: events.device_alloc,
            num_device_free: events.device_free,
            num_oom_rejections: events.oom_rejections,
        }
    }
}

fn counters<'a>(arenas: &'a mut [Guard<'_, ArenaState>]) -> Vec<&'a mut Counters> {
    arenas.iter_mut().map(|arena| arena.ledger_mut().counters_mut()).collect()
}

/// See [`CachingAllocator::stats`](crate::allocator::CachingAllocator::stats).
pub(crate) fn stats(device: &Device) -> DeviceStats {
    notice_finished(device);
    device.arenas.with_all(|peaks, arenas| {
        let counters: Vec<&Counters> = arenas.iter().map(|a| a.ledger().counters()).collect();
        let mut stats = DeviceStats::default();
        peaks.fill(&counters, &mut stats);
        let state = device.accounting.lock();
        let own = state.counters();
        let events = own.events().since(own.at_reset);
        stats.num_alloc_retries = events.alloc_retries;
        stats.num_ooms = events.ooms;
        stats.num_sync_all_streams = events.sync_all_streams;
        stats.num_device_alloc = events.device_alloc;
        stats.num_device_free = events.device_free;
        stats.num_oom_rejections = events.oom_rejections;
        stats.max_split_size = state.max_split_size();
        stats.segment = own.segment;
        (stats.reserved_bytes, stats.reserved_bytes_by_private_pools) = state.accounts().figures();
        stats.oversize_segments = own.oversize_segments;
        let granules_moved = own.granules_moved;
        let unrecorded_at_reset = own.unrecorded_at_reset;
        let asleep_bytes = i64::try_from(state.regions().asleep_bytes()).unwrap_or(i64::MAX);
        drop(state);
        stats.granule = GranuleStats {
            pending_bytes: stats.active_bytes.all.current - stats.allocated_bytes.all.current,
            unrecorded_frees: i64::try_from(frees::failures(device) - unrecorded_at_reset)
                .unwrap_or(i64::MAX),
            granules_moved,
            asleep_bytes,
        };
        stats
    })
}

/// See [`Statistics::ledger`](crate::allocator::Statistics::ledger).
pub(crate) fn ledger(device: &Device) -> Result<DeviceLedger> {
    let driver = &device.driver;
    let processes = device.observers.process_memory(&driver.calls());
    let views = views(device);
    let own = device.accounting.lock().published();
    let read = || {
        let entries = driver.published_by_others(own.as_deref());
        let stats = stats(device);
        let memory = driver.memory_info()?;
        let ours = Ours::of(&stats, views);
        // The system may have more to give than the driver's total, and counts what is taken as free then.
        let pinned = device.accounting.lock().accounts().whole().pinned();
        let used = memory.total.saturating_sub(memory.free).max(ours.held() + pinned);
        let nodes = node_memory(device).unwrap_or_default();
        let graphs = device.accounting.lock().graphs().saturating_add(nodes);
        Ok(DeviceLedger::new(
            (memory.total, used),
            (ours, pinned, graphs),
            std::process::id(),
            &entries,
            &processes,
        ))
    };
    // Others come and go between the questions: a ledger whose parts exceed the used bytes is read once more.
    let undisturbed = || undisturbed(device, read).unwrap_or_else(read);
    let first: DeviceLedger = undisturbed()?;
    if first.sum() <= first.used { Ok(first) } else { undisturbed() }
}

/// Launches a graph for the first time. Returns also the bytes that the driver took for it, if measured: other threads
/// that measure, or destroy measured graphs, wait.
pub(crate) fn first_launch<T>(
    device: &Device,
    launch: impl FnOnce() -> Result<T>,
) -> Result<(T, Option<u64>)> {
    let Ok(_alone) = alone(device) else { return Ok((launch()?, None)) };
    let before = used_by_the_driver(device);
    let launched = launch()?;
    let bytes = before.and_then(|before| Some(used_by_the_driver(device)?.saturating_sub(before)));
    device.accounting.note_graph(bytes.unwrap_or(0), false);
    Ok((launched, bytes))
}

/// Destroys a graph for which the driver took `bytes`.
pub(crate) fn end_of_graph(device: &Device, bytes: u64, destroy: impl FnOnce()) {
    let _alone = alone(device);
    destroy();
    device.accounting.note_graph(bytes, true);
}

/// All peaks become the current values (PyTorch: `resetPeakStats`).
pub(crate) fn reset_peak_stats(device: &Device) {
    device.arenas.with_all(|peaks, arenas| {
        cut_peaks(device, peaks, arenas, Peaks::reset);
        let mut state = device.accounting.lock();
        state.accounts_mut().each(Stat::reset_peak);
        let own = state.counters_mut();
        own.segment.each(Stat::reset_peak);
        own.oversize_segments.reset_peak();
    });
}

/// See [`Statistics::reset_accumulated`](crate::allocator::Statistics::reset_accumulated).
pub(crate) fn reset_accumulated_stats(device: &Device) {
    let failures = frees::failures(device);
    device.arenas.with_all(|_, arenas| {
        for arena in arenas {
            arena.ledger_mut().counters_mut().reset_accumulated();
        }
        let mut state = device.accounting.lock();
        state.accounts_mut().each(Stat::reset_accumulated);
        let own = state.counters_mut();
        own.segment.each(Stat::reset_accumulated);
        own.oversize_segments.reset_accumulated();
        own.at_reset = own.events();
        own.granules_moved = 0;
        own.unrecorded_at_reset = failures;
    });
}

/// The most bytes that a large request of a stream finds free in one piece, or in pieces that a view shows in one.
pub(crate) fn largest_in_one_piece(device: &Device, stream: Stream) -> u64 {
    let Some(arena) = device.arenas.directory().of_stream(PoolSlot::DEFAULT, stream) else { return 0 };
    device.most_in_one_piece(&mut arena.lock(), Tier::Large)
}

/// Bytes of growable segments that have memory behind them, by stream and tier.
pub(crate) fn growable_sizes(device: &Device) -> Vec<GrowableSize> {
    let mut sizes = BTreeMap::new();
    device.arenas.with_all(|_, arenas| {
        for (segment, _) in arenas.iter().flat_map(|arena| segments(device.driver.device(), arena)) {
            if segment.is_expandable {
                let awake = |block: &&BlockInfo| block.extra.is_empty();
                let bytes: u64 = segment.blocks.iter().filter(awake).map(|block| block.size).sum();
                *sizes.entry((segment.stream, &*segment.segment_type == "small")).or_default() += bytes;
            }
        }
    });
    let size = |((stream, is_small), bytes)| GrowableSize { stream, is_small, bytes };
    sizes.into_iter().map(size).collect()
}

/// Opens a scope.
pub(crate) fn begin_scope(device: &Device) -> ScopeId {
    notice_finished(device);
    device.arenas.with_all(|peaks, arenas| {
        cut_peaks(device, peaks, arenas, Peaks::restart);
        let begin = moment(device, arenas);
        let mut scopes = device.scopes.lock();
        let id = ScopeId(scopes.next);
        scopes.next += 1;
        scopes.open.insert(id, OpenScope { begin, peak: begin.bytes });
        id
    })
}

/// Figures since a scope began; zeros for one that has ended.
pub(crate) fn scope_stats(device: &Device, id: ScopeId) -> ScopeStats {
    notice_finished(device);
    device.arenas.with_all(|peaks, arenas| {
        let now = moment(device, arenas);
        // Read last: a stream that is new may take memory meanwhile, and a peak is not below what is held.
        let since_boundary = since_boundary(device, peaks);
        let scopes = device.scopes.lock();
        scopes.open.get(&id).map(|scope| scope.stats(now, since_boundary)).unwrap_or_default()
    })
}

/// Closes a scope.
pub(crate) fn end_scope(device: &Device, id: ScopeId) {
    device.arenas.with_all(|peaks, arenas| {
        let mut scopes = device.scopes.lock();
        if scopes.open.remove(&id).is_some() && scopes.open.is_empty() {
            // Nobody needs the boundary any more.
            peaks.rejoin(&mut counters(arenas));
        }
    });
}

/// Reads while no other thread moves memory of the device. `None` where they never rest.
fn undisturbed<T>(device: &Device, read: impl Fn() -> T) -> Option<T> {
    (0..READINGS).find_map(|_| {
        let mark = device.slow_path.now();
        let found = read();
        let alone = device.slow_path.only_mine_since(mark);
        if !alone {
            std::thread::sleep(BETWEEN_READINGS);
        }
        alone.then_some(found)
    })
}

/// Bytes that the driver holds for memory nodes of the process's graphs: 0 where it tells of none, `None` where it
/// fails twice.
fn node_memory(device: &Device) -> Option<u64> {
    assert_unlocked();
    let driver = &device.driver;
    let ask = || driver.backend().graph_memory(driver.device());
    match ask().or_else(|error| if error.kind == ErrorKind::NotSupported { Ok(0) } else { ask() }) {
        Ok(bytes) => Some(bytes),
        Err(_) => {
            driver.backend().clear_error();
            None
        }
    }
}

/// Keeps other threads from changing the driver's memory for measured graphs until it is dropped. An error where this
/// thread does.
fn alone(device: &Device) -> std::result::Result<Alone<'_, ()>, ()> {
    device.measured.begin_alone(&[()].into())
}

/// Bytes used by nobody who publishes, and not for memory nodes: a driver call's addition to it is the driver's own.
/// `None` where the driver does not tell.
fn used_by_the_driver(device: &Device) -> Option<u64> {
    let driver = &device.driver;
    let own = device.accounting.lock().published();
    let others: u64 = driver.published_by_others(own.as_deref()).iter().map(|entry| entry.held).sum();
    let nodes = node_memory(device)?;
    // Both at once, and nothing else: other threads may rest for moments only.
    let (memory, held) = undisturbed(device, || {
        let memory = driver.memory_info().inspect_err(|_| driver.backend().clear_error()).ok();
        (memory, device.accounting.lock().accounts().whole().kept())
    })?;
    let known = held.saturating_add(others).saturating_add(nodes);
    memory.map(|memory| memory.total.saturating_sub(memory.free).saturating_sub(known))
}

/// Bytes of addresses at which memory is seen a second time.
fn views(device: &Device) -> u64 {
    device.arenas.with_all(|_, arenas| {
        let views = arenas.iter().map(|arena| {
            let segments = arena.layout().segments();
            segments
                .iter()
                .filter(|(id, _)| segments.is_view(*id))
                .map(|(_, segment)| segment.bytes)
                .sum::<u64>()
        });
        views.sum::<u64>() + device.accounting.lock().regions().alias_bytes()
    })
}

/// Drains finished frees before figures are read, where the policy says so.
fn notice_finished(device: &Device) {
    if !device.arenas.directory().policy().drains_at_each_request()
        && device.driver.process_state().is_none()
        && let Err(error) = recorder::begin_call(device, None, RecordContext::All)
            .and_then(|call| frees::drain(device, &call))
    {
        tracing::warn!(%error, "finished frees could not be noticed; the figures still count them as pending");
    }
    recorder::tell_trackers(device);
}

/// Cuts the running peaks by `cut`, and notes them in every open scope.
fn cut_peaks(
    device: &Device,
    peaks: &mut Peaks,
    arenas: &mut [Guard<'_, ArenaState>],
    cut: impl FnOnce(&mut Peaks, &mut [&mut Counters]),
) {
    let before = since_boundary(device, peaks);
    device.scopes.lock().note(before);
    cut(peaks, &mut counters(arenas));
    device.accounting.lock().accounts_mut().restart_peak();
}

/// The most since the last boundary.
fn since_boundary(device: &Device, peaks: &Peaks) -> Bytes {
    Bytes::new(peaks.since_boundary(), device.accounting.lock().accounts().whole().since_boundary())
}

fn moment(device: &Device, arenas: &[Guard<'_, ArenaState>]) -> Now {
    let mut row = Row::default();
    let (mut handed_out, mut taken_back) = (0, 0);
    for arena in arenas {
        for count in [Count::AllocatedBytes, Count::ActiveBytes, Count::RequestedBytes] {
            row[count as usize] += arena.ledger().counters().both(count);
        }
        handed_out += arena.ledger().counters().handed_out_in_all();
        taken_back += arena.ledger().counters().taken_back_in_all();
    }
    let state = device.accounting.lock();
    Now {
        bytes: Bytes::new(&row, signed(state.accounts().whole().reserved())),
        handed_out,
        taken_back,
        events: state.counters().events(),
    }
}
