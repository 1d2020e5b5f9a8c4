//! How history is recorded, and who reads it as it is made.

use super::{DeviceAllocator, DeviceState};
use crate::arena::ArenaState;
use crate::process::attention::Reason;
use crate::process::foreign::{Calls, Gathered};
use crate::sync::Arc;
use crate::types::PoolId;
use crate::watch::history::{
    CallLog, Context, ContextRecorder, HistoryOptions, HistoryTemplate, ProgramCall, RecordContext, Stamps,
    TraceTracker,
};
use crate::watch::snapshot::HistoryStatus;

/// What is gathered for the history, and who reads it as it is made.
#[derive(Default)]
pub(super) struct Gathering {
    contexts: RecordContext,
    recorder: Option<ContextRecorder>,
    /// Contexts were gathered since history was last off: blocks or entries may have some.
    gathered: bool,
    /// There are trackers.
    tracked: bool,
    /// Where the program's calls are noted.
    calls: Option<Arc<CallLog>>,
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

impl DeviceAllocator {
    /// Turns history on or off; see
    /// [`History::record`](crate::allocator::History::record).
    pub(crate) fn record_history(&self, options: &HistoryOptions) {
        let alone = self.configuring.lock();
        let on = options.max_entries > 0;
        let contexts = if on { options.contexts } else { RecordContext::Never };
        let recorder = options.recorder.clone().filter(|_| on);
        let former = {
            let mut gathering = self.gathering.lock();
            gathering.contexts = contexts;
            let gathers = contexts > RecordContext::Never && recorder.is_some();
            gathering.gathered = on && (gathering.gathered || gathers);
            std::mem::replace(&mut gathering.recorder, recorder)
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
            let gathering = self.gathering.lock();
            template.calls.clone_from(&gathering.calls);
            (gathering.tracked, gathering.gathered)
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

    /// What a record made now would have for its time; none where history is off.
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
            let gathering = self.gathering.lock();
            gathering.recorder.clone().filter(|_| gathering.contexts >= level)
        }?;
        calls.gather(|| recorder())
    }

    pub(crate) fn add_trace_tracker(&self, tracker: TraceTracker) {
        let alone = self.configuring.lock();
        self.outbox.add_tracker(tracker);
        self.gathering.lock().tracked = true;
        let template = self.arenas.with_template(|all| all.history.clone());
        let given_up = self.apply_history(template, false);
        drop(alone);
        self.foreign.end(given_up);
    }

    /// See [`History::log_calls`](crate::allocator::History::log_calls).
    pub(crate) fn log_calls(&self) -> Option<Arc<CallLog>> {
        let alone = self.configuring.lock();
        let log = Arc::new(CallLog::new());
        let former = self.gathering.lock().calls.clone();
        if former.is_some_and(|former| !former.has_ended()) {
            return None;
        }
        self.gathering.lock().calls = Some(Arc::clone(&log));
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
        if self.gathering.lock().calls.take_if(|current| Arc::ptr_eq(current, log)).is_none() {
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
            let log = self.gathering.lock().calls.clone();
            if let Some(log) = log {
                log.push(ProgramCall::EmptyCache);
            }
        }
    }

    /// Waits where calls are noted and the reader is behind. Hold no lock.
    #[inline]
    pub(super) fn make_room(&self) {
        if self.attention.has(Reason::LOGGED) {
            let log = self.gathering.lock().calls.clone();
            if let Some(log) = log {
                log.make_room();
            }
        }
    }

    /// Hands over to trackers what the call has recorded. Hold no lock.
    pub(super) fn tell_trackers(&self) {
        self.outbox.deliver(&self.foreign.calls());
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
