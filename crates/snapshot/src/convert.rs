//! From a snapshot's history to a trace.
//!
//! A history says what the allocator did, a trace what the program asked. What cannot be told apart:
//!
//! - **record_stream** is not in a history. A block that was in use on another stream when it was given
//!   back shows only by a `free_completed` that does not follow its `free_requested` at once; such frees
//!   are counted, no event is made up.
//! - **empty_cache** is not in a history either: `segment_free` and `segment_unmap` also come from retries
//!   and garbage collection. They are counted, no event is made up.
//! - **Pools**: a trace has one pool; what private pools served is asked of it too.
//! - Blocks that were **live before the history began** are requested first, by ascending address; in what
//!   order and between which other blocks they were really made is lost.
//!
//! [`Conversion::exact`] says whether any of this happened, [`Conversion::reasons`] what.

use crate::json;
use crate::trace::{Event, Trace, TraceHeader};
use alloc_core::snapshot::{Action, BlockState, Snapshot, TraceEntry, Value};
use alloc_core::types::PoolId;
use rustc_hash::{FxHashMap, FxHashSet};
use std::collections::BTreeMap;

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
}

/// What a history holds that a trace cannot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Blocks that were live before the history began.
    pub live_before: u64,
    /// Frees that had to wait for other streams.
    pub delayed_frees: u64,
    /// Segments, or parts of growable ones, that were given back to the device.
    pub segments_returned: u64,
    /// Requests that were refused; they are not in the trace.
    pub refused: u64,
    /// Requests that a private pool served.
    pub private_pool_requests: u64,
    /// Blocks whose free is missing: another request got the same address.
    pub missing_frees: u64,
}

/// A snapshot that gives no trace.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConvertError {
    /// No such device.
    #[error(
        "the snapshot has histories of {devices} devices, there is no device {device}; give a smaller index"
    )]
    NoDevice {
        /// The index asked for.
        device: usize,
        /// Devices in the snapshot.
        devices: usize,
    },
    /// Nothing was recorded.
    #[error(
        "the snapshot has no history{}; call torch.cuda.memory._record_memory_history() \
         before the part of the program that matters, then dump the snapshot",
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

/// The traces of all devices that have a history.
///
/// # Errors
/// [`ConvertError::NoHistory`] if none has.
pub fn to_traces(snapshot: &Snapshot) -> Result<Vec<Conversion>, ConvertError> {
    let devices =
        (0..snapshot.device_traces.len()).filter(|&device| has_requests(&snapshot.device_traces[device]));
    let traces = devices.map(|device| to_trace(snapshot, device)).collect::<Result<Vec<_>, _>>()?;
    if traces.is_empty() { Err(ConvertError::NoHistory { device: None }) } else { Ok(traces) }
}

fn has_requests(history: &[TraceEntry]) -> bool {
    history.iter().any(|entry| matches!(entry.action, Action::Alloc | Action::FreeRequested))
}

/// The trace of one device.
///
/// # Errors
/// The device has no history, or there is no such device.
pub fn to_trace(snapshot: &Snapshot, device: usize) -> Result<Conversion, ConvertError> {
    let devices = snapshot.device_traces.len();
    let history = snapshot.device_traces.get(device).ok_or(ConvertError::NoDevice { device, devices })?;
    if !has_requests(history) {
        return Err(ConvertError::NoHistory { device: Some(device) });
    }
    let mut maker = Maker::default();
    let before = live_before(snapshot, device, history);
    maker.counts.live_before = before.len() as u64;
    for (address, (size, stream)) in before {
        maker.alloc(address, size, stream)?;
    }
    for (index, entry) in history.iter().enumerate() {
        maker.entry(entry, history.get(index + 1))?;
    }
    let Maker { events, counts, .. } = maker;
    let reasons = reasons(snapshot, history, &counts);
    let mut trace = Trace { header: header(snapshot, device, &reasons), events };
    trace.summarise();
    Ok(Conversion { device, trace, exact: reasons.is_empty(), reasons, counts })
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

/// Numbers blocks and streams.
#[derive(Default)]
struct Maker {
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
                self.counts.private_pool_requests +=
                    u64::from(entry.pool_id.is_some_and(|pool| pool != PoolId::DEFAULT));
                self.alloc(entry.addr, entry.size, entry.stream)?;
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
            Action::SegmentFree | Action::SegmentUnmap => self.counts.segments_returned += 1,
            Action::Oom => self.counts.refused += 1,
            _ => {}
        }
        Ok(())
    }

    fn alloc(&mut self, address: u64, size: u64, stream: u64) -> Result<(), ConvertError> {
        // Stream 0 is the default one, seen or not.
        let next_stream = u32::try_from(self.streams.len() + 1).map_err(|_| ConvertError::TooManyStreams)?;
        let stream = if stream == 0 { 0 } else { *self.streams.entry(stream).or_insert(next_stream) };
        let id = self.next_id;
        self.next_id += 1;
        if let Some(lost) = self.live.insert(address, id) {
            self.counts.missing_frees += 1;
            self.events.push(Event::Free { id: lost });
        }
        self.events.push(Event::Alloc { id, size, stream });
        Ok(())
    }
}

fn reasons(snapshot: &Snapshot, history: &[TraceEntry], counts: &Counts) -> Vec<String> {
    let mut reasons = Vec::new();
    match &snapshot.history {
        Some(status) if !status.complete => reasons.push(format!(
            "the history is incomplete: {} entries were overwritten, {} operations came before it",
            status.overwritten, status.before_recording
        )),
        None if counts.live_before == 0 && begins_late(history) => reasons.push(
            "the history begins after the first request: segments that it does not create were there".into(),
        ),
        _ => {}
    }
    let mut say = |count: u64, what: &str| {
        if count > 0 {
            reasons.push(format!("{count} {what}"));
        }
    };
    say(counts.live_before, "blocks were live before the history began; they are requested first");
    say(counts.delayed_frees, "frees waited for other streams; the trace has no record_stream for them");
    say(counts.segments_returned, "segments were given back; whether by empty_cache is not recorded");
    say(counts.refused, "requests were refused; they are left out");
    say(counts.private_pool_requests, "requests were served by private pools; a trace has only one pool");
    say(counts.missing_frees, "frees are missing; they are put before the next request of the address");
    reasons
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
    header.extra.insert("exact".into(), reasons.is_empty().into());
    header.extra.insert("reasons".into(), reasons.into());
    header.extra.insert("allocator_settings".into(), json::value(&Value::Dict(settings)));
    header
}
