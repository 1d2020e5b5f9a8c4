//! Recording of history, its readers, and what every call has to learn before it takes a lock.

pub(super) mod observation;

use super::Device;
use super::accounting::recording::RecordingState;
use crate::arena::ArenaState;
use crate::device::arenas;
use crate::error::Result;
use crate::lifetimes::call::Call;
use crate::memory::address_map::Location;
use crate::process::attention::Reason;
use crate::process::callbacks::{CallbackScope, Gathered, Kind};
use crate::sync::Arc;
use crate::types::{DevicePtr, PoolId, Stream};
use crate::watch::counters::Count;
use crate::watch::history::{
    AtEnd, CallLog, Context, ContextRecorder, Details, HistoryOptions, HistoryTemplate, Labelling,
    ProgramCall, RecordContext, Recorder, Stamps, TraceTracker, entry,
};
use crate::watch::snapshot::{Action, HistoryStatus, TraceEntry};
use observation::{Observation, Raw, RawRecord, segments};

/// Entries of the history that a report has.
const ENTRIES: usize = 8;

/// An entry with its place in the order, before its frames are looked up.
type Found = (u64, TraceEntry, Option<Context>);

/// Contexts to gather for the history, and who reads it as it is made.
#[derive(Default)]
pub(super) struct Gathering {
    contexts: RecordContext,
    recorder: Option<ContextRecorder>,
    /// Contexts were gathered since history was last off: blocks or entries may have some.
    gathered: bool,
    /// There are trackers.
    tracked: bool,
    /// Log of the program's calls.
    calls: Option<Arc<CallLog>>,
}

/// Notes live blocks of an arena whose calls are logged from now on.
fn note_live(arena: &ArenaState) {
    let mut live: Vec<_> =
        arena.layout().blocks().iter().filter(|(_, block)| block.live().is_some()).collect();
    live.sort_unstable_by_key(|(_, block)| block.addr);
    for (_, block) in live {
        arena.ledger().history().found(block.addr, block.requested);
        for stream in arena.uses().iter(block.uses).filter_map(|used| used.user.live()) {
            arena.ledger().history().used(block.addr, stream);
        }
    }
}

/// Hands new records over to trackers. Hold no lock.
pub(in crate::device) fn deliver(device: &Device, calls: &CallbackScope<'_>) {
    device.outbox.deliver(calls);
}

/// [`deliver`] when the guard is dropped; make it before any lock is taken.
pub(in crate::device) fn deliver_at_end(device: &Device) -> AtEnd<'_> {
    device.outbox.deliver_at_end(device.driver.callbacks())
}

/// The newest entries about the memory at `ptr`, oldest first, with their frames. Hold no lock: frames are looked up
/// by foreign code.
pub(crate) fn history_of(device: &Device, ptr: DevicePtr, calls: &CallbackScope<'_>) -> Vec<TraceEntry> {
    let Some(recording) = device.accounting.lock().recording().cloned() else { return Vec::new() };
    let mut labelling = Labelling::default();
    let mut found: Vec<Found> = Vec::new();
    let mut collect = |recorder: &Recorder| {
        for (record, details) in recorder.iter() {
            let about = !matches!(record.action, Action::Oom | Action::Snapshot)
                && record.addr <= ptr.0
                && ptr.0 - record.addr < record.size.max(1);
            if about {
                let (stream, pool) = recorder.owner_of(record);
                let labels = labelling.labels(details, pool);
                let time = recording.stamps.microseconds(record);
                let context = details.and_then(|details| details.context.clone());
                found.push((record.sequence, entry(record, details, stream, time, labels), context));
            }
        }
    };
    for arena in device.arenas.directory().all() {
        collect(arena.lock().ledger().history());
    }
    collect(device.accounting.lock().history());
    found.sort_unstable_by_key(|(sequence, ..)| *sequence);
    let newest = found.split_off(found.len().saturating_sub(ENTRIES));
    let with_frames = |(_, mut entry, context): Found| {
        entry.frames = context.as_ref().and_then(|context| calls.call(Kind::Lookup, || context.frames()));
        calls.end(context);
        entry
    };
    newest.into_iter().map(with_frames).collect()
}

/// Records that a snapshot would have now.
fn kept(device: &Device) -> usize {
    look_at_history(device, |recording, held| recording.kept(held)).unwrap_or(0)
}

/// Status of the history: complete, or what is missing.
pub(crate) fn status(device: &Device) -> HistoryStatus {
    look_at_history(device, RecordingState::status).unwrap_or_default()
}

/// Reads the recording and the number of records held; `None` while history is off.
fn look_at_history<T>(device: &Device, figure: impl FnOnce(&RecordingState, usize) -> T) -> Option<T> {
    device.arenas.with_all(|_, arenas| {
        let accounting = device.accounting.lock();
        let held = arenas.iter().map(|arena| arena.ledger().history().len()).sum::<usize>()
            + accounting.history().len();
        accounting.recording().map(|recording| figure(recording, held))
    })
}

/// Segments by address, history oldest first, and whether it is complete; of one pool or of all. The cost without
/// `traces` depends on the blocks alone.
pub(crate) fn observe(device: &Device, only: Option<PoolId>, traces: bool) -> Observation {
    let raw = device.arenas.with_all(|_, arenas| {
        let mine = arenas.iter().filter(|arena| only.is_none_or(|pool| arena.binding().pool().id == pool));
        let mut raw = Raw {
            segments: mine.flat_map(|arena| segments(device.driver.device(), arena)).collect(),
            ..Raw::default()
        };
        let mut accounting = device.accounting.lock();
        let Some(recording) = accounting.recording().cloned() else { return raw };
        let recorders = || arenas.iter().map(|arena| arena.ledger().history()).chain([accounting.history()]);
        let held = recorders().map(Recorder::len).sum();
        raw.status = recording.status(held);
        if traces {
            raw.records.reserve_exact(held);
            for recorder in recorders() {
                raw.records.extend(recorder.iter().map(|(record, details)| RawRecord {
                    record: *record,
                    owner: recorder.owner_of(record),
                    details: details.filter(|details| !details.is_empty()).cloned().map(Box::new),
                }));
            }
        }
        raw.recording = Some(recording);
        let active: i64 = arenas.iter().map(|a| a.ledger().counters().both(Count::ActiveBytes)).sum();
        let details = Details { pool: only, ..Details::default() };
        accounting.history_mut().record_with(Action::Snapshot, 0, active.unsigned_abs(), details);
        raw
    });
    tell_trackers(device);
    raw.finish()
}

/// Turns history on or off; see
/// [`History::record`](crate::allocator::History::record).
pub(crate) fn record(device: &Device, options: &HistoryOptions) {
    let alone = device.arenas.configuring();
    let on = options.max_entries > 0;
    let contexts = if on { options.contexts } else { RecordContext::Never };
    let recorder = options.recorder.clone().filter(|_| on);
    let former = {
        let mut gathering = device.gathering.lock();
        gathering.contexts = contexts;
        let gathers = contexts > RecordContext::Never && recorder.is_some();
        gathering.gathered = on && (gathering.gathered || gathers);
        std::mem::replace(&mut gathering.recorder, recorder)
    };
    let stamps = device.accounting.lock().recording().map(|recording| Arc::clone(&recording.stamps));
    let stamps = stamps.filter(|stamps| stamps.is_deterministic() == options.deterministic);
    // A smaller limit drops nothing that is there: only clearing does.
    let kept = if on && !options.clear && stamps.is_some() { kept(device) } else { 0 };
    let template = HistoryTemplate {
        max_entries: options.max_entries.max(kept),
        stamps: stamps.unwrap_or_else(|| Arc::new(Stamps::new(options.deterministic))),
        contexts,
        skip: HistoryTemplate::bits(&options.skip),
        outbox: None,
        calls: None,
    };
    let given_up = apply_history(device, template, options.clear);
    drop(alone);
    device.driver.callbacks().end(former);
    device.driver.callbacks().end(given_up);
}

/// Changes how every journal is kept, at one moment. Drop the contexts returned without a lock.
fn apply_history(device: &Device, mut template: HistoryTemplate, clear: bool) -> Vec<Context> {
    let (tracked, gathered) = {
        let gathering = device.gathering.lock();
        template.calls.clone_from(&gathering.calls);
        (gathering.tracked, gathering.gathered)
    };
    template.outbox = tracked.then(|| Arc::clone(&device.outbox));
    let attentive = tracked || gathered;
    if attentive {
        // Before there are contexts to be dropped, or entries to be handed over.
        device.driver.attention().set(Reason::CONTEXTS, true);
    }
    // A new arena begins with it from here on; existing ones are changed below.
    device.arenas.directory().with_template(|all| all.history = template.clone());
    let trash = device.arenas.with_all(|_, arenas| {
        let mut trash = Vec::new();
        let mut missed = 0;
        for arena in arenas.iter_mut() {
            if !arena.ledger().history().records_with(&template.stamps) {
                missed += arena.ledger().counters().handed_out_in_all();
            }
            let owner = arena.binding().owner();
            let goes_on =
                template.calls.as_ref().is_none_or(|log| arena.ledger().history().is_logged_to(log));
            trash.extend(arena.ledger_mut().history_mut().configure(&template, owner, clear));
            if !goes_on {
                note_live(arena);
            }
            if template.max_entries == 0 {
                trash.extend(arena.heap_mut().layout_mut().take_contexts());
            }
        }
        if let Some(calls) = &template.calls {
            calls.begin();
        }
        let mut state = device.accounting.lock();
        trash.extend(state.history_mut().configure(&template, (0, PoolId::DEFAULT), clear));
        let before = state.recording();
        let before = before.filter(|before| Arc::ptr_eq(&before.stamps, &template.stamps));
        let (missed, cleared, skipped) =
            before.map_or((missed, 0, false), |before| (before.missed, before.cleared, before.skipped));
        let recording = (template.max_entries > 0).then(|| RecordingState {
            max_entries: template.max_entries,
            missed,
            cleared: if clear { template.stamps.made() } else { cleared },
            skipped: skipped || template.skip != 0,
            stamps: template.stamps,
        });
        state.set_recording(recording);
        trash
    });
    if !attentive {
        device.driver.attention().set(Reason::CONTEXTS, false);
    }
    trash
}

/// Time that a record made now would carry; `None` while history is off.
pub(crate) fn time(device: &Device) -> Option<i64> {
    device.accounting.lock().recording().map(|recording| recording.stamps.now_us())
}

/// The calling thread's context, where contexts are gathered at this level. Hold no lock.
#[inline(always)]
fn gather<'a>(
    device: &Device,
    level: RecordContext,
    calls: &CallbackScope<'a>,
) -> Option<Gathered<'a, Context>> {
    let recorder = {
        let gathering = device.gathering.lock();
        gathering.recorder.clone().filter(|_| gathering.contexts >= level)
    }?;
    calls.gather(|| recorder())
}

pub(crate) fn add_trace_tracker(device: &Device, tracker: TraceTracker) {
    let alone = device.arenas.configuring();
    device.outbox.add_tracker(tracker);
    device.gathering.lock().tracked = true;
    let template = device.arenas.directory().with_template(|all| all.history.clone());
    let given_up = apply_history(device, template, false);
    drop(alone);
    device.driver.callbacks().end(given_up);
}

/// See [`History::log_calls`](crate::allocator::History::log_calls).
pub(crate) fn log_calls(device: &Device) -> Option<Arc<CallLog>> {
    let alone = device.arenas.configuring();
    let log = Arc::new(CallLog::new());
    let former = device.gathering.lock().calls.clone();
    if former.is_some_and(|former| !former.has_ended()) {
        return None;
    }
    device.gathering.lock().calls = Some(Arc::clone(&log));
    let template = device.arenas.directory().with_template(|all| all.history.clone());
    let given_up = apply_history(device, template, false);
    device.driver.attention().set(Reason::LOGGED, true);
    drop(alone);
    device.driver.callbacks().end(given_up);
    Some(log)
}

/// Ends this log. Another one that has begun since goes on.
pub(crate) fn end_log(device: &Device, log: &Arc<CallLog>) {
    let alone = device.arenas.configuring();
    log.end();
    if device.gathering.lock().calls.take_if(|current| Arc::ptr_eq(current, log)).is_none() {
        return;
    }
    device.driver.attention().set(Reason::LOGGED, false);
    let template = device.arenas.directory().with_template(|all| all.history.clone());
    let given_up = apply_history(device, template, false);
    drop(alone);
    device.driver.callbacks().end(given_up);
}

/// Notes a call that concerns no block: the program empties a cache, or a pool ends.
pub(crate) fn note(device: &Device, call: ProgramCall) {
    if device.driver.attention().has(Reason::LOGGED) {
        let log = device.gathering.lock().calls.clone();
        if let Some(log) = log {
            log.push(call);
        }
    }
}

/// Waits while calls are logged and the reader is behind. Hold no lock.
#[inline]
pub(in crate::device) fn make_room(device: &Device) {
    if device.driver.attention().has(Reason::LOGGED) {
        let log = device.gathering.lock().calls.clone();
        if let Some(log) = log {
            log.make_room();
        }
    }
}

/// Hands the call's records over to trackers. Hold no lock.
pub(in crate::device) fn tell_trackers(device: &Device) {
    device.outbox.deliver(&device.driver.calls());
}

/// Learns what a call needs before it takes a lock: the context, if contexts are gathered at this level, and whether
/// the stream of a request is captured.
///
/// Fails the call where the driver does not tell: its next step could break the capture.
#[inline(always)]
pub(in crate::device) fn begin_call(
    device: &Device,
    stream: Option<Stream>,
    level: RecordContext,
) -> Result<Call<'_>> {
    let context = context(device, level, &device.driver.calls());
    let mut call = Call { context, ..Call::PLAIN };
    call.relaxed = device.driver.relaxed()?;
    // As in PyTorch, only after the device was told of a capture.
    if device.driver.attention().has(Reason::CAPTURE)
        && let Some(stream) = stream
    {
        call.capturing = device.driver.capture_id(stream)?.is_some();
    }
    Ok(call)
}

/// [`begin_call`] for calls that never fail.
#[inline(always)]
pub(in crate::device) fn begin_free<'a>(
    device: &'a Device,
    level: RecordContext,
    calls: &CallbackScope<'a>,
) -> Call<'a> {
    let relaxed = device.driver.relaxed().ok().flatten();
    Call { context: context(device, level, calls), relaxed, ..Call::PLAIN }
}

#[inline(always)]
fn context<'a>(
    device: &Device,
    level: RecordContext,
    calls: &CallbackScope<'a>,
) -> Option<Gathered<'a, Context>> {
    if device.driver.attention().has(Reason::CONTEXTS) { gather(device, level, calls) } else { None }
}

/// Notes `text` about the block at `ptr` in the history. `false` where that is no block.
pub(crate) fn annotate(device: &Device, ptr: DevicePtr, location: Location, text: &str) -> bool {
    let calls = device.driver.calls();
    let call = begin_free(device, RecordContext::Alloc, &calls);
    let Some(arena) = device.arenas.directory().get(location.arena) else { return false };
    let mut state = arenas::attend(device, arena, &call);
    let Some(block) = state.layout().live(ptr, location.block) else { return false };
    let (addr, requested) = (block.addr, block.requested);
    state.ledger_mut().history_mut().annotate(addr, requested, text);
    drop(state);
    drop(call);
    device.outbox.deliver(&calls);
    true
}
