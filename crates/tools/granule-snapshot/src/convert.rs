//! From a snapshot's history to a trace.
//!
//! A history says what the allocator did, a trace what the program asked. What cannot be told apart:
//!
//! - **record_stream** is not in a history. A block that was in use on another stream when it was given
//!   back shows only by a `free_completed` that does not follow its `free_requested` at once; such frees
//!   are counted, no event is made up.
//! - **empty_cache** is not in a history either: `segment_free` and `segment_unmap` also come from retries
//!   and garbage collection. Where neither can be the cause, an `empty_cache` is inferred; the others are counted, and no
//!   event is made up.
//! - **Pools**: which private pool served a request is in the entries since PyTorch 2.12. Before that the segments at the end
//!   say it, and what had left by then is taken for common. A pool has ended where its memory leaves.
//! - Blocks that were **live before the history began** are requested first, by ascending address; in what
//!   order and between which other blocks they were really made is lost.
//! - **Refused requests** have the rounded size that the history has.
//!
//! [`Conversion::exact`] says whether any of this happened, [`Conversion::reasons`] what.

use crate::json;
use crate::places::contradictions;
use crate::trace::{Event, Trace, TraceHeader};
use alloc_core::snapshot::{Action, BlockState, SegmentInfo, Snapshot, TraceEntry, Value};
use alloc_core::types::PoolId;
use rustc_hash::{FxHashMap, FxHashSet};
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

/// A trace made of one device's history.
#[derive(Clone, Debug, PartialEq)]
pub struct Conversion {
    /// The device's index.
    pub device: usize,
    /// The trace. Its header has `source: snapshot`, the device, the settings and the reasons below.
    pub trace: Trace,
    /// Whether a replay asks exactly what the program asked.
    pub exact: bool,
    /// Why not; empty if exact. For people.
    pub reasons: Vec<String>,
    /// What was counted on the way.
    pub counts: Counts,
    /// What the recording allocator held, as far as the snapshot tells.
    pub recorded: Recorded,
}

/// What the recording allocator itself did within the history. Bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Recorded {
    /// Reserved bytes when the history began.
    pub reserved_start: u64,
    /// Reserved bytes at the end: the sum of the device's segments.
    pub reserved_end: u64,
    /// Most reserved bytes within the history.
    pub reserved_peak: u64,
    /// The memory that the process can have had: what was free when a request was refused, and what was held then.
    /// `None` if none was refused, and where more was held later: the device had room for less at first, as another process
    /// held some.
    pub capacity: Option<u64>,
    /// Whether earlier history is missing, so that every peak is a lower bound.
    pub window: bool,
    /// Whether Granule recorded it, and not PyTorch.
    pub by_granule: bool,
}

/// What a history holds that a trace cannot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Blocks that were live before the history began.
    pub live_before: u64,
    /// Frees that had to wait for other streams.
    pub delayed_frees: u64,
    /// Segments, or parts of growable ones, that were given back to the device for a reason that is not known.
    pub segments_returned: u64,
    /// Inferred calls of `empty_cache`.
    pub empty_caches: u64,
    /// Requests that were refused.
    pub refused: u64,
    /// Requests that a private pool served as the segments at the end say, for the entries do not.
    pub inferred_pool_requests: u64,
    /// Blocks whose free is missing: another request got the same address.
    pub missing_frees: u64,
    /// Entries of actions that are not known, in the whole file.
    pub unknown_actions: u64,
    /// Blocks and segments that cannot be where, or when, others are.
    pub contradictions: u64,
}

/// How a run is recorded from its start.
pub const RECORD: &str = "granule record -- python train.py, or torch.cuda.memory._record_memory_history() without max_entries before the first tensor";

/// A snapshot that gives no trace.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConvertError {
    /// No such device.
    #[error("the snapshot has nothing of device {device}, but of {}", list(devices))]
    NoDevice {
        /// The index asked for.
        device: usize,
        /// Devices in the snapshot.
        devices: Vec<usize>,
    },
    /// Nothing is in it.
    #[error(
        "the snapshot is empty: it has no history, and no memory of PyTorch's own allocator; record the run from its start: {RECORD}"
    )]
    Nothing,
    /// Nothing was recorded.
    #[error(
        "the snapshot has no history{}; record the run from its start: {RECORD}",
        device.map_or_else(String::new, |device| format!(" of device {device}"))
    )]
    NoHistory {
        /// The device asked for; `None` for all.
        device: Option<usize>,
    },
    /// More streams than a trace can number.
    #[error("the history names more than 2^32 streams; the file is damaged")]
    TooManyStreams,
}

fn list(devices: &[usize]) -> String {
    devices.iter().map(|device| format!("device {device}")).collect::<Vec<_>>().join(", ")
}

/// What a snapshot has of a device. Bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceSummary {
    /// The device's index.
    pub device: usize,
    /// Whether there is a history of it.
    pub history: bool,
    /// Requests that were refused in it.
    pub refused: u64,
    /// Most reserved bytes.
    pub reserved_peak: u64,
}

/// The devices that have a history or hold memory, the one that matters first: one that refused requests, else that which
/// held most.
#[must_use]
pub fn devices(snapshot: &Snapshot) -> Vec<DeviceSummary> {
    let mut all: BTreeMap<usize, u64> = (0..snapshot.device_traces.len()).map(|device| (device, 0)).collect();
    for segment in &snapshot.segments {
        if let Ok(device) = usize::try_from(segment.device) {
            let held = all.entry(device).or_default();
            *held = held.saturating_add(segment.total_size);
        }
    }
    let summary = |(device, reserved_end)| {
        let history: &[TraceEntry] = snapshot.device_traces.get(device).map_or(&[], Vec::as_slice);
        let refused = history.iter().filter(|entry| entry.action == Action::Oom).count() as u64;
        let reserved_peak = held_by(history, reserved_end).reserved_peak;
        DeviceSummary { device, history: has_requests(history), refused, reserved_peak }
    };
    let mut found: Vec<_> = all.into_iter().map(summary).collect();
    found.retain(|one| one.history || one.reserved_peak > 0);
    found.sort_by_key(|one| Reverse((one.refused > 0, one.reserved_peak, one.history)));
    found
}

/// The traces of all devices that have a history, in the order of [`devices`].
///
/// # Errors
/// [`ConvertError::NoHistory`] if none has.
pub fn to_traces(snapshot: &Snapshot) -> Result<Vec<Conversion>, ConvertError> {
    let devices = devices(snapshot).into_iter().filter(|one| one.history);
    let traces = devices.map(|one| to_trace(snapshot, one.device)).collect::<Result<Vec<_>, _>>()?;
    if traces.is_empty() { Err(ConvertError::NoHistory { device: None }) } else { Ok(traces) }
}

fn has_requests(history: &[TraceEntry]) -> bool {
    history.iter().any(|entry| matches!(entry.action, Action::Alloc | Action::FreeRequested | Action::Oom))
}

/// The trace of one device.
///
/// # Errors
/// The device has no history, or there is no such device.
pub fn to_trace(snapshot: &Snapshot, device: usize) -> Result<Conversion, ConvertError> {
    let history = snapshot.device_traces.get(device).map_or(&[][..], Vec::as_slice);
    if !has_requests(history) {
        let mut devices: Vec<_> = devices(snapshot).iter().map(|one| one.device).collect();
        devices.sort_unstable();
        return Err(match devices.contains(&device) {
            _ if devices.is_empty() => ConvertError::Nothing,
            true => ConvertError::NoHistory { device: Some(device) },
            false => ConvertError::NoDevice { device, devices },
        });
    }
    let mut maker = Maker { private: private_segments(snapshot, device), ..Maker::default() };
    let before = live_before(snapshot, device, history);
    maker.counts.live_before = before.len() as u64;
    maker.counts.contradictions = contradictions(snapshot, device, history, &before);
    for (address, (size, stream)) in before {
        maker.alloc(address, size, stream, maker.pool_at(address))?;
    }
    let reserved = recorded(snapshot, device);
    let flushes = flushes(snapshot, history, &reserved);
    maker.counts.empty_caches = flushes.len() as u64;
    let (mut flushes, mut steps) =
        (flushes.into_iter().peekable(), steps(snapshot, device).into_iter().peekable());
    let mut flushed = 0;
    for (index, entry) in history.iter().enumerate() {
        while let Some((_, n)) = steps.next_if(|(at, _)| *at == index) {
            maker.events.push(Event::Iteration { n });
        }
        if let Some(flush) = flushes.next_if(|flush| flush.start == index) {
            maker.events.push(Event::EmptyCache);
            flushed = flush.end;
        }
        let is_private = entry.labels.pool_id.is_some_and(|pool| pool != PoolId::DEFAULT);
        if index >= flushed || is_private {
            maker.entry(entry, history.get(index + 1))?;
        }
    }
    let Maker { events, mut counts, .. } = maker;
    counts.unknown_actions = snapshot.unread.actions.values().sum();
    let recorded = Recorded {
        window: is_window(snapshot, device, &counts, reserved.reserved_start),
        by_granule: snapshot.history.is_some(),
        ..reserved
    };
    let reasons = reasons(snapshot, &counts, recorded.window);
    let mut trace = Trace { header: header(snapshot, device, &reasons), events };
    trace.summarise();
    Ok(Conversion { device, trace, exact: reasons.is_empty(), reasons, counts, recorded })
}

/// What one device's allocator held. Walks back from the segments at the end: what was taken was not there before, what was
/// given back was.
#[must_use]
pub fn recorded(snapshot: &Snapshot, device: usize) -> Recorded {
    let history = snapshot.device_traces.get(device).map_or(&[][..], Vec::as_slice);
    let segments = snapshot.segments.iter().filter(|segment| usize::try_from(segment.device) == Ok(device));
    held_by(history, segments.fold(0u64, |sum, segment| sum.saturating_add(segment.total_size)))
}

fn held_by(history: &[TraceEntry], reserved_end: u64) -> Recorded {
    let (mut held, mut reserved_peak, mut capacity) = (reserved_end, reserved_end, None);
    for entry in history.iter().rev() {
        match entry.action {
            Action::SegmentAlloc | Action::SegmentMap => {
                // What was taken was held, although the end does not show it.
                reserved_peak = reserved_peak.saturating_add(entry.size.saturating_sub(held));
                held = held.saturating_sub(entry.size);
            }
            Action::SegmentFree | Action::SegmentUnmap => {
                held = held.saturating_add(entry.size);
                reserved_peak = reserved_peak.max(held);
            }
            Action::Oom => capacity = capacity.max(entry.device_free().map(|free| held.saturating_add(free))),
            _ => {}
        }
    }
    let capacity = capacity.filter(|capacity| *capacity >= reserved_peak);
    Recorded { reserved_start: held, reserved_end, reserved_peak, capacity, ..Recorded::default() }
}

/// The entries with which segments were given back by `empty_cache`, as far as nothing else can be why. PyTorch gives
/// segments back by itself only on the way to a new one: to stay below a threshold, to make room for one that is not split,
/// and where the device is full.
fn flushes(snapshot: &Snapshot, history: &[TraceEntry], recorded: &Recorded) -> Vec<Range<usize>> {
    let returns = |entry: &TraceEntry| matches!(entry.action, Action::SegmentFree | Action::SegmentUnmap);
    let setting = |name: &str| snapshot.allocator_settings.iter().find(|(key, _)| &**key == name);
    let by_setting = matches!(setting("garbage_collection_threshold"), Some((_, Value::Float(share))) if *share > 0.0)
        || matches!(setting("max_split_size"), Some((_, Value::Int(0..))));
    let (mut flushes, mut held, mut index) = (Vec::new(), recorded.reserved_start, 0);
    while let Some(entry) = history.get(index) {
        let start = index;
        while history.get(index).is_some_and(returns) {
            index += 1;
        }
        if index == start {
            let takes = matches!(entry.action, Action::SegmentAlloc | Action::SegmentMap);
            held = held.saturating_add(if takes { entry.size } else { 0 });
            index += 1;
            continue;
        }
        let had_room = match history.get(index) {
            Some(next) => match next.action {
                Action::Oom => false,
                // More than that was held at another time.
                Action::SegmentAlloc | Action::SegmentMap => {
                    !by_setting && held.saturating_add(next.size) <= recorded.reserved_peak
                }
                _ => true,
            },
            None => true,
        };
        // A pool that is deleted gives its own segments back.
        let of_all = history[start..index]
            .iter()
            .any(|entry| entry.labels.pool_id.is_none_or(|pool| pool == PoolId::DEFAULT));
        if had_room && of_all && snapshot.history.is_none() {
            flushes.push(start..index);
        }
        let returned = history[start..index].iter().fold(0u64, |sum, entry| sum.saturating_add(entry.size));
        held = held.saturating_sub(returned);
    }
    flushes
}

/// The steps that PyTorch's profiler marked: before which entry of the device's history one begins, and its number. Those at
/// the end in which nothing was requested or given back are left out.
#[must_use]
pub fn steps(snapshot: &Snapshot, device: usize) -> Vec<(usize, u64)> {
    let history = snapshot.device_traces.get(device).map_or(&[][..], Vec::as_slice);
    let number = |text: &str| text.strip_prefix("ProfilerStep#")?.parse().ok();
    let annotated = |annotation: &Value| {
        let Value::Dict(pairs) = annotation else { return None };
        let get = |name: &str| pairs.iter().find(|(key, _)| *key == name.into()).map(|(_, value)| value);
        let here = match get("device") {
            Some(Value::Int(on)) => *on < 0 || usize::try_from(*on) == Ok(device),
            _ => true,
        };
        match (get("stage"), get("name"), get("time_us")) {
            (Some(Value::Str(stage)), Some(Value::Str(name)), Some(Value::Int(time)))
                if here && &**stage == "START" =>
            {
                Some((history.partition_point(|entry| entry.time_us < *time), number(name)?))
            }
            _ => None,
        }
    };
    let mut steps: Vec<(usize, u64)> = snapshot.external_annotations.iter().filter_map(annotated).collect();
    if steps.is_empty() {
        let noted = history.iter().enumerate();
        steps = noted
            .filter_map(|(at, entry)| Some((at, number(entry.labels.user_metadata.as_deref()?)?)))
            .collect();
    }
    steps.sort_unstable();
    steps.dedup_by_key(|(_, number)| *number);
    let works = |entry: &TraceEntry| matches!(entry.action, Action::Alloc | Action::FreeRequested);
    let end = history.iter().rposition(works).map_or(0, |last| last + 1);
    steps.retain(|(at, _)| *at < end);
    steps
}

/// Whether a part of the history is missing.
fn is_window(snapshot: &Snapshot, device: usize, counts: &Counts, reserved_start: u64) -> bool {
    match &snapshot.history {
        _ if !snapshot.unread.incomplete.is_empty() => true,
        Some(status) => !status.complete,
        None => {
            counts.live_before.max(counts.contradictions).max(reserved_start) > 0
                || begins_late(&snapshot.device_traces[device])
        }
    }
}

/// Blocks that were live when the history began, as size and stream by address: those given back without
/// a request, and those live at the end that nothing in the history requested.
fn live_before(snapshot: &Snapshot, device: usize, history: &[TraceEntry]) -> BTreeMap<u64, (u64, u64)> {
    let mut before = BTreeMap::new();
    let mut known = FxHashSet::default();
    for entry in history {
        match entry.action {
            Action::Alloc => {
                known.insert(entry.addr);
            }
            Action::FreeRequested if known.insert(entry.addr) && entry.size > 0 => {
                before.insert(entry.addr, (entry.size, entry.stream));
            }
            _ => {}
        }
    }
    for segment in snapshot.segments.iter().filter(|segment| usize::try_from(segment.device) == Ok(device)) {
        for block in &segment.blocks {
            // A block the history has given back cannot be live: such a file contradicts itself.
            if block.state == BlockState::ActiveAllocated
                && block.requested_size > 0
                && !known.contains(&block.address)
            {
                before.insert(block.address, (block.requested_size, segment.stream));
            }
        }
    }
    before
}

/// First and last address of a device's segments that belong to private pools, by address.
fn private_segments(snapshot: &Snapshot, device: usize) -> Vec<(u64, u64, PoolId)> {
    let here = snapshot.segments.iter().filter(|segment| usize::try_from(segment.device) == Ok(device));
    let private = here.filter(|segment| segment.pool_id != PoolId::DEFAULT && segment.total_size > 0);
    let last = |segment: &SegmentInfo| segment.address.saturating_add(segment.total_size - 1);
    let mut found: Vec<_> = private.map(|one| (one.address, last(one), one.pool_id)).collect();
    found.sort_unstable_by_key(|(first, ..)| *first);
    found
}

/// Numbers blocks, streams and pools.
#[derive(Default)]
struct Maker {
    private: Vec<(u64, u64, PoolId)>,
    pools: FxHashMap<PoolId, u32>,
    /// The pool that requests are for.
    pool: u32,
    events: Vec<Event>,
    next_id: u64,
    live: FxHashMap<u64, u64>,
    streams: FxHashMap<u64, u32>,
    counts: Counts,
}

impl Maker {
    fn entry(&mut self, entry: &TraceEntry, next: Option<&TraceEntry>) -> Result<(), ConvertError> {
        match entry.action {
            Action::Alloc if entry.size > 0 => {
                let pool = entry.labels.pool_id.unwrap_or_else(|| {
                    let pool = self.pool_at(entry.addr);
                    self.counts.inferred_pool_requests += u64::from(pool != PoolId::DEFAULT);
                    pool
                });
                self.alloc(entry.addr, entry.size, entry.stream, pool)?;
            }
            Action::FreeRequested => {
                let at_once =
                    next.is_some_and(|next| next.action == Action::FreeCompleted && next.addr == entry.addr);
                // The history's last entry may be a free whose completion came too late for it.
                self.counts.delayed_frees += u64::from(!at_once && next.is_some());
                if let Some(id) = self.live.remove(&entry.addr) {
                    self.events.push(Event::Free { id });
                }
            }
            Action::SegmentFree | Action::SegmentUnmap => match entry.labels.pool_id {
                Some(pool) if pool != PoolId::DEFAULT => self.pool_ended(pool),
                _ => self.counts.segments_returned += 1,
            },
            Action::Oom => {
                self.counts.refused += 1;
                self.refused(entry)?;
            }
            _ => {}
        }
        Ok(())
    }

    /// A request without a block.
    fn refused(&mut self, entry: &TraceEntry) -> Result<(), ConvertError> {
        if entry.size > 0 {
            self.enter(entry.labels.pool_id.unwrap_or(PoolId::DEFAULT));
            let stream = self.stream(entry.stream)?;
            let id = self.number();
            self.events
                .extend([Event::Alloc { id, size: entry.size, stream }, Event::Refused { id, limit: 0 }]);
        }
        Ok(())
    }

    /// What follows is for that pool.
    fn enter(&mut self, pool: PoolId) {
        // Histories hold fewer than 2^32 entries.
        let next_pool = self.pools.len() as u32 + 1;
        let pool = if pool == PoolId::DEFAULT { 0 } else { *self.pools.entry(pool).or_insert(next_pool) };
        if std::mem::replace(&mut self.pool, pool) != pool {
            self.events.push(Event::Pool { pool });
        }
    }

    fn number(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id - 1
    }

    fn stream(&mut self, handle: u64) -> Result<u32, ConvertError> {
        // Stream 0 is the default one, seen or not.
        let next_stream = u32::try_from(self.streams.len() + 1).map_err(|_| ConvertError::TooManyStreams)?;
        Ok(if handle == 0 { 0 } else { *self.streams.entry(handle).or_insert(next_stream) })
    }

    /// The pool of the segment that is there at the end.
    fn pool_at(&self, address: u64) -> PoolId {
        let after = self.private.partition_point(|(first, ..)| *first <= address);
        let segment = after.checked_sub(1).map(|at| self.private[at]);
        segment.filter(|(_, last, _)| address <= *last).map_or(PoolId::DEFAULT, |(.., pool)| pool)
    }

    /// Memory of a private pool left the device, which happens only where nobody uses the pool any more.
    fn pool_ended(&mut self, pool: PoolId) {
        let Some(&pool) = self.pools.get(&pool) else { return };
        if self.events.last() != Some(&Event::EmptyPool { pool }) {
            self.events.extend([Event::PoolEnds { pool }, Event::EmptyPool { pool }]);
            self.pool = if self.pool == pool { 0 } else { self.pool };
        }
    }

    fn alloc(&mut self, address: u64, size: u64, stream: u64, pool: PoolId) -> Result<(), ConvertError> {
        self.enter(pool);
        let stream = self.stream(stream)?;
        let id = self.number();
        if let Some(lost) = self.live.insert(address, id) {
            self.counts.missing_frees += 1;
            self.events.push(Event::Free { id: lost });
        }
        self.events.push(Event::Alloc { id, size, stream });
        Ok(())
    }
}

fn reasons(snapshot: &Snapshot, counts: &Counts, window: bool) -> Vec<String> {
    let mut reasons = Vec::new();
    if window {
        let (what, why) = match &snapshot.history {
            _ if !snapshot.unread.incomplete.is_empty() => (
                "a part of the history",
                format!(
                    "entries {} were skipped: {}",
                    match snapshot
                        .unread
                        .incomplete
                        .keys()
                        .any(|name| snapshot.unread.actions.contains_key(name))
                    {
                        true => "of memory that nothing else tells of",
                        false => "without an address or a size",
                    },
                    counted_by_name(&snapshot.unread.incomplete)
                ),
            ),
            None if counts.contradictions > 0 => (
                "a part of the history",
                match counts.contradictions {
                    1 => "1 of its blocks and segments contradicts others".into(),
                    several => format!("{several} of its blocks and segments contradict others"),
                },
            ),
            Some(status) => (
                "earlier history",
                format!(
                    "{} entries were overwritten, {} operations came before it",
                    status.overwritten, status.before_recording
                ),
            ),
            None => ("earlier history", "it uses memory that it does not show being taken".into()),
        };
        reasons.push(format!(
            "{what} is missing ({why}): peaks and the smallest device are those of the recorded \
             window, which are lower bounds"
        ));
    }
    reasons.extend(unknown_actions(snapshot));
    let mut say = |count: u64, one: &str, several: &str, what: &str| match count {
        0 => {}
        1 => reasons.push(format!("1 {one} {what}")),
        count => reasons.push(format!("{count} {several} {what}")),
    };
    say(
        counts.live_before,
        "block was",
        "blocks were",
        "live before the history began; the replay begins by requesting what was there",
    );
    say(
        counts.delayed_frees,
        "free",
        "frees",
        "waited for other streams; the trace has no record_stream for that",
    );
    say(
        counts.segments_returned,
        "segment was",
        "segments were",
        "given back; whether by empty_cache is not recorded",
    );
    say(
        counts.empty_caches,
        "empty_cache was",
        "calls of empty_cache were",
        "inferred: segments were given back for no other reason",
    );
    say(
        counts.refused,
        "request was",
        "requests were",
        "refused when it was recorded; a replay asks again, for the rounded size, and gives back at once",
    );
    say(
        counts.inferred_pool_requests,
        "request was",
        "requests were",
        "served by private pools, as the segments at the end say; pools that were gone by then are not known: what is held is \
         at least this",
    );
    say(
        counts.missing_frees,
        "free is",
        "frees are",
        "missing, taken to come before the next request of the address",
    );
    reasons
}

/// What was left out of a file when it was read, besides entries of the history, for people; empty if nothing.
#[must_use]
pub fn left_out(snapshot: &Snapshot) -> Vec<String> {
    let unread = &snapshot.unread;
    let mut notes = Vec::new();
    if !unread.values.is_empty() {
        notes.push(format!(
            "values of an unexpected kind count as missing: {}",
            counted_by_name(&unread.values)
        ));
    }
    if !unread.states.is_empty() {
        notes.push(format!("blocks of unknown states count as in use: {}", counted_by_name(&unread.states)));
    }
    notes
}

/// Which entries of the history are not understood, for people; `None` if there are none.
#[must_use]
pub fn unknown_actions(snapshot: &Snapshot) -> Option<String> {
    let actions = &snapshot.unread.actions;
    let said = match actions.values().sum::<u64>() {
        0 => return None,
        1 => "1 entry of an unknown action was skipped, and what it did".into(),
        count => format!("{count} entries of unknown actions were skipped, and what they did"),
    };
    Some(format!("{said} is in no figure: {}", counted_by_name(actions)))
}

/// A few of the names, and how often each was met.
fn counted_by_name(names: &BTreeMap<Arc<str>, u64>) -> String {
    const SHOWN: usize = 8;
    let name = |(name, count): (&Arc<str>, &u64)| {
        let short: String = name.chars().take(64).collect();
        format!("{} {count}", short.escape_debug())
    };
    let mut shown: Vec<String> = names.iter().take(SHOWN).map(name).collect();
    if names.len() > SHOWN {
        shown.push(format!("{} other names", names.len() - SHOWN));
    }
    shown.join(", ")
}

/// Whether something is used before the history shows where it came from.
fn begins_late(history: &[TraceEntry]) -> bool {
    let first = history
        .iter()
        .find(|entry| !matches!(entry.action, Action::Snapshot | Action::Oom | Action::Annotate));
    first.is_some_and(|entry| !matches!(entry.action, Action::SegmentAlloc | Action::SegmentMap))
}

fn header(snapshot: &Snapshot, device: usize, reasons: &[String]) -> TraceHeader {
    let mut header = TraceHeader { source: Some("snapshot".into()), ..TraceHeader::default() };
    let settings = snapshot.allocator_settings.iter();
    let settings = settings.map(|(key, value)| (Value::Str(key.clone()), value.clone())).collect();
    header.extra.insert("device".into(), device.into());
    header.extra.insert("pools".into(), true.into());
    header.extra.insert("exact".into(), reasons.is_empty().into());
    header.extra.insert("reasons".into(), reasons.into());
    header.extra.insert("allocator_settings".into(), json::value(&Value::Dict(settings)));
    header
}
