//! Who looks on: history and its contexts, trackers, and observers of segments and failures.

use super::{DeviceAllocator, DeviceState, OutOfMemoryObserver};
use crate::arena::ArenaState;
use crate::policy::Request;
use crate::process::attention::Reason;
use crate::process::foreign::{Calls, Gathered, Kind};
use crate::sync::Arc;
use crate::types::{DeviceIndex, DevicePtr, PoolId, Stream};
use crate::watch::history::{
    CallLog, Context, ContextRecorder, HistoryOptions, HistoryTemplate, ProgramCall, RecordContext, Stamps,
    TraceTracker,
};
use crate::watch::oom::ProcessMemory;
use crate::watch::snapshot::HistoryStatus;
use std::time::{Duration, Instant};

/// What happens to a range of device memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SegmentChange {
    /// It was taken from the device and has not been handed out yet.
    Attached,
    /// It is about to be given back: the device is done with it, and nobody else has it.
    Detaching,
}

/// Memory that comes or goes, as a library that registers memory (NCCL, RDMA) needs to know it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentEvent {
    /// What happens.
    pub change: SegmentChange,
    /// The device.
    pub device: DeviceIndex,
    /// The pool.
    pub pool: PoolId,
    /// The stream it serves.
    pub stream: Stream,
    /// First address.
    pub addr: DevicePtr,
    /// Length in bytes.
    pub bytes: u64,
    /// Part of a growable segment.
    pub growable: bool,
}

/// Sees memory come and go. Called before the memory is used or leaves; it may call the driver. Must not wait for a thread
/// that may be inside the allocator (one that has the interpreter's lock, say): others may be waiting for the memory that moves.
/// It may panic and use the allocator: see [code of the program](crate#code-of-the-program).
pub type SegmentObserver = Arc<dyn Fn(&SegmentEvent) + Send + Sync>;
/// Sees a request that was refused before the driver was asked: device, bytes wanted, bytes held, the limit.
/// PyTorch: `OomRejectionObserver`. It may panic and use the allocator: see [code of the program](crate#code-of-the-program).
pub type RejectionObserver = Arc<dyn Fn(DeviceIndex, u64, u64, u64) + Send + Sync>;
/// Says which processes use how much of a device's memory.
/// It may panic and use the allocator: see [code of the program](crate#code-of-the-program).
pub type ProcessMemorySource = Arc<dyn Fn(DeviceIndex) -> Vec<ProcessMemory> + Send + Sync>;

/// All that look on.
#[derive(Default)]
pub(super) struct Observers {
    pub(super) out_of_memory: Vec<Arc<OutOfMemoryObserver>>,
    rejections: Vec<RejectionObserver>,
    segments: Arc<Vec<SegmentObserver>>,
    processes: Option<ProcessMemorySource>,
    contexts: RecordContext,
    recorder: Option<ContextRecorder>,
    /// Contexts were gathered since history was last off: blocks or entries may have some.
    gathered: bool,
    /// There are trackers.
    tracked: bool,
    /// Where the program's calls are noted.
    calls: Option<Arc<CallLog>>,
    /// When a rejection was last logged.
    logged: Option<Instant>,
}

/// How history is being recorded.
#[derive(Clone, Debug)]
pub(super) struct Recording {
    pub(super) max_entries: usize,
    pub(super) stamps: Arc<Stamps>,
    /// Hand-outs before recording began.
    missed: u64,
    /// Records made before the program last cleared the history.
    cleared: u64,
    /// Actions were skipped at some time.
    skipped: bool,
}

impl Recording {
    /// How many of `held` records are shown.
    pub(super) fn kept(&self, held: usize) -> usize {
        held.min(self.max_entries)
    }

    /// What can be said of a history that has `held` records now.
    pub(super) fn status(&self, held: usize) -> HistoryStatus {
        let overwritten = (self.stamps.made() - self.cleared).saturating_sub(self.kept(held) as u64);
        HistoryStatus {
            recorded: true,
            complete: overwritten == 0 && self.missed == 0 && self.cleared == 0 && !self.skipped,
            overwritten,
            before_recording: self.missed,
        }
    }
}

/// Rejections are logged at most this often.
const LOG_EVERY: Duration = Duration::from_secs(60);

impl DeviceAllocator {
    /// Turns history on or off; see
    /// [`History::record`](crate::allocator::History::record).
    pub(crate) fn record_history(&self, options: &HistoryOptions) {
        let alone = self.configuring.lock();
        let on = options.max_entries > 0;
        let contexts = if on { options.contexts } else { RecordContext::Never };
        let recorder = options.recorder.clone().filter(|_| on);
        let former = {
            let mut observers = self.observers.lock();
            observers.contexts = contexts;
            let gathers = contexts > RecordContext::Never && recorder.is_some();
            observers.gathered = on && (observers.gathered || gathers);
            std::mem::replace(&mut observers.recorder, recorder)
        };
        let stamps = self.state.lock().recording.as_ref().map(|recording| Arc::clone(&recording.stamps));
        let stamps = stamps.filter(|stamps| stamps.is_deterministic() == options.deterministic);
        // A smaller limit drops nothing that is there: only clearing does.
        let kept = if on && !options.clear && stamps.is_some() { self.history_kept() } else { 0 };
        let template = HistoryTemplate {
            max_entries: options.max_entries.max(kept),
            stamps: stamps.unwrap_or_else(|| Arc::new(Stamps::new(options.deterministic))),
            contexts,
            skip: HistoryTemplate::bits(&options.skip),
            outbox: None,
            calls: None,
        };
        let given_up = self.apply_history(template, options.clear);
        drop(alone);
        self.foreign.end(former);
        self.foreign.end(given_up);
    }

    /// Changes how every journal is kept, at one moment. What is returned is to be dropped without a lock.
    fn apply_history(&self, mut template: HistoryTemplate, clear: bool) -> Vec<Context> {
        let (tracked, gathered) = {
            let observers = self.observers.lock();
            template.calls.clone_from(&observers.calls);
            (observers.tracked, observers.gathered)
        };
        template.outbox = tracked.then(|| Arc::clone(&self.outbox));
        let attentive = tracked || gathered;
        if attentive {
            // Before there are contexts to be dropped, or entries to be handed over.
            self.attention.set(Reason::CONTEXTS, true);
        }
        // An arena that is made from here on begins with it; those that are there are changed below.
        self.arenas.with_template(|all| all.history = template.clone());
        let trash = self.with_all(|_, arenas| {
            let mut trash = Vec::new();
            let mut missed = 0;
            for arena in arenas.iter_mut() {
                if !arena.history.records_with(&template.stamps) {
                    missed += arena.counters.handed_out_in_all();
                }
                let owner = arena.owner();
                let goes_on = template.calls.as_ref().is_none_or(|log| arena.history.is_logged_to(log));
                trash.extend(arena.history.configure(&template, owner, clear));
                if !goes_on {
                    note_live(arena);
                }
                if template.max_entries == 0 {
                    trash.extend(arena.segments.take_contexts());
                }
            }
            if let Some(calls) = &template.calls {
                calls.begin();
            }
            let mut state = self.state.lock();
            let DeviceState { history, recording, .. } = &mut *state;
            trash.extend(history.configure(&template, (0, PoolId::DEFAULT), clear));
            let before = recording.take().filter(|before| Arc::ptr_eq(&before.stamps, &template.stamps));
            let (missed, cleared, skipped) =
                before.map_or((missed, 0, false), |before| (before.missed, before.cleared, before.skipped));
            *recording = (template.max_entries > 0).then(|| Recording {
                max_entries: template.max_entries,
                missed,
                cleared: if clear { template.stamps.made() } else { cleared },
                skipped: skipped || template.skip != 0,
                stamps: template.stamps,
            });
            trash
        });
        if !attentive {
            self.attention.set(Reason::CONTEXTS, false);
        }
        trash
    }

    /// Whether history is on.
    pub(crate) fn is_recording(&self) -> bool {
        self.state.lock().recording.is_some()
    }

    /// What a record made now would have for its time.
    pub(crate) fn history_time(&self) -> Option<i64> {
        self.state.lock().recording.as_ref().map(|recording| recording.stamps.now_us())
    }

    /// The calling thread's context, where contexts are gathered at this level. Hold no lock.
    pub(super) fn gather<'a>(
        &self,
        level: RecordContext,
        calls: &Calls<'a>,
    ) -> Option<Gathered<'a, Context>> {
        let recorder = {
            let observers = self.observers.lock();
            observers.recorder.clone().filter(|_| observers.contexts >= level)
        }?;
        calls.gather(|| recorder())
    }

    pub(crate) fn add_trace_tracker(&self, tracker: TraceTracker) {
        let alone = self.configuring.lock();
        self.outbox.add_tracker(tracker);
        self.observers.lock().tracked = true;
        let template = self.arenas.with_template(|all| all.history.clone());
        let given_up = self.apply_history(template, false);
        drop(alone);
        self.foreign.end(given_up);
    }

    /// See [`History::log_calls`](crate::allocator::History::log_calls).
    pub(crate) fn log_calls(&self) -> Option<Arc<CallLog>> {
        let alone = self.configuring.lock();
        let log = Arc::new(CallLog::new());
        let former = self.observers.lock().calls.clone();
        if former.is_some_and(|former| !former.has_ended()) {
            return None;
        }
        self.observers.lock().calls = Some(Arc::clone(&log));
        let template = self.arenas.with_template(|all| all.history.clone());
        let given_up = self.apply_history(template, false);
        self.attention.set(Reason::LOGGED, true);
        drop(alone);
        self.foreign.end(given_up);
        Some(log)
    }

    /// Ends this log. Another one that began since goes on.
    pub(crate) fn end_log(&self, log: &Arc<CallLog>) {
        let alone = self.configuring.lock();
        log.end();
        if self.observers.lock().calls.take_if(|current| Arc::ptr_eq(current, log)).is_none() {
            return;
        }
        self.attention.set(Reason::LOGGED, false);
        let template = self.arenas.with_template(|all| all.history.clone());
        let given_up = self.apply_history(template, false);
        drop(alone);
        self.foreign.end(given_up);
    }

    /// Notes that the program empties the cache.
    pub(super) fn note_empty_cache(&self) {
        if self.attention.has(Reason::LOGGED) {
            let log = self.observers.lock().calls.clone();
            if let Some(log) = log {
                log.push(ProgramCall::EmptyCache);
            }
        }
    }

    /// Waits where calls are noted and the reader is behind. Hold no lock.
    #[inline]
    pub(super) fn make_room(&self) {
        if self.attention.has(Reason::LOGGED) {
            let log = self.observers.lock().calls.clone();
            if let Some(log) = log {
                log.make_room();
            }
        }
    }

    pub(crate) fn add_out_of_memory_observer(&self, observer: OutOfMemoryObserver) {
        self.observers.lock().out_of_memory.push(Arc::new(observer));
    }

    pub(crate) fn add_rejection_observer(&self, observer: RejectionObserver) {
        self.observers.lock().rejections.push(observer);
    }

    pub(crate) fn set_process_memory_source(&self, source: ProcessMemorySource) {
        let former = self.observers.lock().processes.replace(source);
        self.foreign.end(former);
    }

    /// Memory of the device by process, where somebody tells. Hold no lock.
    pub(super) fn process_memory(&self, calls: &Calls<'_>) -> Vec<ProcessMemory> {
        let source = self.observers.lock().processes.clone();
        let told = source.and_then(|source| calls.call(Kind::ProcessSource, || source(self.device)));
        told.unwrap_or_default()
    }

    pub(crate) fn add_segment_observer(&self, observer: SegmentObserver) {
        Arc::make_mut(&mut self.observers.lock().segments).push(observer);
    }

    /// Tells observers that memory comes or goes. Hold no lock.
    pub(super) fn tell(&self, event: SegmentEvent, calls: &Calls<'_>) {
        let observers = Arc::clone(&self.observers.lock().segments);
        for observer in observers.iter() {
            calls.call(Kind::SegmentObserver, || observer(&event));
        }
    }

    /// Hands over to trackers what the call has recorded. Hold no lock.
    pub(super) fn tell_trackers(&self) {
        self.outbox.deliver(&self.foreign.calls());
    }

    /// Tells observers of a request that was refused before the driver was asked. Hold no lock.
    pub(super) fn tell_rejected(&self, request: &Request, held: u64, limit: u64) {
        let (observers, log) = {
            let mut observers = self.observers.lock();
            let log = observers.logged.is_none_or(|last| last.elapsed() >= LOG_EVERY);
            if log {
                observers.logged = Some(Instant::now());
            }
            (observers.rejections.clone(), log)
        };
        if log {
            tracing::warn!(
                requested = request.requested,
                held,
                limit,
                "request rejected before the driver was asked; set throw_on_cudamalloc_oom:False to disable"
            );
        }
        let calls = self.foreign.calls();
        for observer in observers {
            let tell = || observer(self.device, request.segment_bytes, held, limit);
            calls.call(Kind::RejectionObserver, tell);
        }
    }
}

/// Notes what the program has from an arena whose calls are noted from now on.
fn note_live(arena: &ArenaState) {
    let mut live: Vec<_> = arena.blocks.iter().filter(|(_, block)| block.state.is_live()).collect();
    live.sort_unstable_by_key(|(_, block)| block.addr);
    for (_, block) in live {
        arena.history.found(block.addr, block.requested);
        for stream in arena.uses.iter(block.uses).filter_map(|used| used.user.live()) {
            arena.history.used(block.addr, stream);
        }
    }
}
