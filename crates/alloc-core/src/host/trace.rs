//! The history of pinned memory: its own ring, apart from those of the devices.

use crate::sync::Arc;
use crate::types::{DevicePtr, PoolId};
use crate::watch::history::{
    Context, ContextRecorder, Details, HistoryOptions, HistoryTemplate, Record, RecordContext, Ring, Stamps,
};
use crate::watch::snapshot::{Action, Labels, TraceEntry};

/// History of pinned memory.
#[derive(Default)]
pub(super) struct Trace {
    on: bool,
    ring: Option<Ring>,
    contexts: RecordContext,
    recorder: Option<ContextRecorder>,
    /// Bits of skipped actions.
    skip: u16,
}

impl std::fmt::Debug for Trace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Trace")
            .field("on", &self.on)
            .field("contexts", &self.contexts)
            .finish_non_exhaustive()
    }
}

/// Leftovers of a change of the history, to be dropped without a lock.
pub(super) type TraceLeftovers = (Vec<Context>, Option<ContextRecorder>);

impl Trace {
    pub(super) fn is_on(&self) -> bool {
        self.on
    }

    /// Recorder of contexts, if they are gathered at this level.
    pub(super) fn recorder(&self, level: RecordContext) -> Option<ContextRecorder> {
        self.recorder.clone().filter(|_| self.on && self.contexts >= level)
    }

    /// Changes how it is kept. Off, it stays readable, unless it is to be cleared.
    pub(super) fn configure(&mut self, options: &HistoryOptions) -> TraceLeftovers {
        self.on = options.max_entries > 0;
        let mut lost = Vec::new();
        let same = |ring: &Ring| ring.is_deterministic() == options.deterministic;
        if options.clear || (self.on && !self.ring.as_ref().is_some_and(same)) {
            lost.extend(self.ring.take().iter_mut().flat_map(Ring::clear));
        }
        if self.on {
            match &mut self.ring {
                Some(ring) => ring.resize(options.max_entries),
                none => {
                    *none = Some(Ring::new(options.max_entries, Arc::new(Stamps::new(options.deterministic))))
                }
            }
        }
        self.contexts = if self.on { options.contexts } else { RecordContext::Never };
        self.skip = HistoryTemplate::bits(&options.skip);
        let former = std::mem::replace(&mut self.recorder, options.recorder.clone().filter(|_| self.on));
        (lost.into_iter().filter_map(|details| details.context).collect(), former)
    }

    /// Adds an entry. Returns what it takes the place of, or does not show, to be dropped without a lock.
    pub(super) fn record(
        &mut self,
        action: Action,
        ptr: DevicePtr,
        size: u64,
        pool: PoolId,
        context: Option<Context>,
    ) -> [Option<Context>; 2] {
        let ring =
            self.ring.as_mut().filter(|_| self.on && self.skip & HistoryTemplate::bits(&[action]) == 0);
        let Some(ring) = ring else { return [context, None] };
        let (shown, hidden) =
            if self.contexts >= RecordContext::Alloc { (context, None) } else { (None, context) };
        let details = Details { context: shown, pool: Some(pool), ..Details::default() };
        let replaced = ring.push(ring.stamp(action, ptr.0, size), details);
        [replaced.context, hidden]
    }

    /// All entries, oldest first, and how their time is read.
    pub(super) fn records(&self) -> Vec<(Record, i64, Details)> {
        let Some(ring) = &self.ring else { return Vec::new() };
        ring.iter()
            .map(|(record, details)| {
                (*record, ring.microseconds(record), details.cloned().unwrap_or_default())
            })
            .collect()
    }
}

/// Entries as snapshots have them, and their contexts.
pub(super) fn entries(
    records: Vec<(Record, i64, Details)>,
) -> impl Iterator<Item = (TraceEntry, Option<Context>)> {
    let nothing: Arc<str> = "".into();
    let mut labels: Arc<Labels> = Arc::default();
    records.into_iter().map(move |(record, time_us, details)| {
        let pool = details.pool.unwrap_or_default();
        if labels.pool_id != Some(pool) {
            labels = Arc::new(Labels {
                compile_context: Some(Arc::clone(&nothing)),
                user_metadata: Some(Arc::clone(&nothing)),
                pool_id: Some(pool),
                extra: Vec::new(),
            });
        }
        let entry = TraceEntry {
            action: record.action,
            addr: record.addr,
            size: record.size,
            stream: 0,
            time_us,
            labels: Arc::clone(&labels),
            frames: None,
        };
        (entry, details.context)
    })
}
