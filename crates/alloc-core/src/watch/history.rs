//! The history: requests and frees, in bounded rings of fixed-size records.
//!
//! Each arena has a journal of its own, written under its lock; records carry a device-wide sequence number,
//! by which the rings are merged when a snapshot is taken. Off, it costs one test of a flag.

mod annotations;
mod calls;
mod context;
mod entry;
mod journal;
mod resolve;
mod ring;
mod stamps;
mod thread;
mod trackers;

pub use annotations::Stage;
pub use calls::{CallLog, ProgramCall};
pub use context::{CallContext, Context, ContextRecorder, RecordContext, SegmentContexts, SnapshotContexts};
pub use thread::{pop_compile_context, push_compile_context, set_user_metadata, user_metadata};
pub use trackers::TraceTracker;

pub(crate) use annotations::Annotations;
pub(crate) use entry::{Labelling, entry};
pub(crate) use resolve::resolve;
pub(crate) use ring::{Details, Record, Ring};
pub(crate) use stamps::Stamps;
pub(crate) use trackers::{AtEnd, Outbox};

use crate::base::ids::BlockId;
use crate::process::stream_identity::shown_raw;
use crate::sync::Arc;
use crate::types::{PoolId, Stream};
use crate::watch::snapshot::Action;
use journal::{Journal, Trash};

/// Options of the history.
#[derive(Clone, Default)]
pub struct HistoryOptions {
    /// Records kept; the newest stay. 0 turns history off and forgets it. PyTorch's mode `state` is 1. A smaller number
    /// than there are records drops none of them, as in PyTorch: [`clear`](Self::clear) does.
    pub max_entries: usize,
    /// Stamp records with their sequence number instead of the time, so that equal runs give equal
    /// snapshots.
    pub deterministic: bool,
    /// Operations that gather call contexts, and the places that keep them.
    pub contexts: RecordContext,
    /// Gathers them; without it, and while `contexts` is [`RecordContext::Never`], there are none.
    pub recorder: Option<ContextRecorder>,
    /// Actions that are not recorded.
    pub skip: Vec<Action>,
    /// Forget what was recorded before.
    pub clear: bool,
}

impl HistoryOptions {
    /// The newest `max_entries` operations, without contexts.
    #[must_use]
    pub fn newest(max_entries: usize) -> Self {
        Self { max_entries, ..Self::default() }
    }

    /// With call contexts, gathered by `recorder` and kept as `contexts` says.
    #[must_use]
    pub fn with_contexts(
        self,
        contexts: RecordContext,
        recorder: impl Fn() -> Option<Context> + Send + Sync + 'static,
    ) -> Self {
        Self { contexts, recorder: Some(Arc::new(recorder)), ..self }
    }

    /// With sequence numbers instead of the time.
    #[must_use]
    pub fn deterministic(self) -> Self {
        Self { deterministic: true, ..self }
    }
}

impl std::fmt::Debug for HistoryOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HistoryOptions")
            .field("max_entries", &self.max_entries)
            .field("deterministic", &self.deterministic)
            .field("contexts", &self.contexts)
            .field("recorder", &self.recorder.is_some())
            .field("skip", &self.skip)
            .field("clear", &self.clear)
            .finish()
    }
}

/// Current options of a device's journals.
#[derive(Clone, Debug)]
pub(crate) struct HistoryTemplate {
    pub(crate) max_entries: usize,
    pub(crate) stamps: Arc<Stamps>,
    pub(crate) contexts: RecordContext,
    /// Bits of skipped actions.
    pub(crate) skip: u16,
    /// Queue of entries for trackers, if there are any.
    pub(crate) outbox: Option<Arc<Outbox>>,
    /// Log of the program's calls, if they are noted.
    pub(crate) calls: Option<Arc<CallLog>>,
}

impl Default for HistoryTemplate {
    fn default() -> Self {
        let stamps = Arc::new(Stamps::new(true));
        Self { max_entries: 0, stamps, contexts: RecordContext::Never, skip: 0, outbox: None, calls: None }
    }
}

impl HistoryTemplate {
    /// The bits of a list of actions.
    pub(crate) fn bits(actions: &[Action]) -> u16 {
        actions.iter().fold(0, |bits, action| bits | bit(*action))
    }
}

/// The bit of an action.
const fn bit(action: Action) -> u16 {
    1 << action as u16
}

/// Owner of records: a stream's handle and a pool.
pub(crate) type RecordOwner = (u64, PoolId);

/// The place where an arena (or the device itself) records.
#[derive(Debug, Default)]
pub(crate) struct Recorder {
    journal: Option<Box<Journal>>,
}

impl Recorder {
    /// True if anything is recorded.
    #[inline(always)]
    pub(crate) fn is_on(&self) -> bool {
        // The cost of recording that is off is measured against a build without it; see docs/performance.md.
        !cfg!(granule_no_history) && self.journal.is_some()
    }

    /// Records, if history is on.
    #[inline]
    pub(crate) fn record(&mut self, action: Action, addr: u64, size: u64) {
        self.record_about(action, addr, size, None);
    }

    /// Records something about memory with a context of its own, which is shown where the call has none.
    pub(crate) fn record_about(&mut self, action: Action, addr: u64, size: u64, about: Option<&Context>) {
        if let Some(journal) = &mut self.journal {
            journal.record(action, addr, size, about, Details::default());
        }
    }

    /// Records that `block` is handed out.
    #[cold]
    #[inline(never)]
    pub(crate) fn allocated(&mut self, block: BlockId, addr: u64, size: u64) {
        let Some(journal) = &mut self.journal else { return };
        if !journal.record_shortly([Action::Alloc], addr, size) {
            journal.allocated(block, addr, size);
        }
    }

    /// Records that the program gave `block` back, and that it is free.
    #[cold]
    #[inline(never)]
    pub(crate) fn freed(&mut self, block: BlockId, addr: u64, size: u64) {
        let Some(journal) = &mut self.journal else { return };
        if !journal.record_shortly([Action::FreeRequested, Action::FreeCompleted], addr, size) {
            journal.freed(block, addr, size);
        }
    }

    /// Records that the program gave `block` back.
    #[cold]
    #[inline(never)]
    pub(crate) fn free_requested(&mut self, block: BlockId, addr: u64, size: u64) {
        if let Some(journal) = &mut self.journal {
            journal.free_requested(block, addr, size);
        }
    }

    /// Records that `block`, which the program gave back before, is free.
    #[cold]
    #[inline(never)]
    pub(crate) fn free_completed(&mut self, block: BlockId, addr: u64, size: u64) {
        if let Some(journal) = &mut self.journal {
            journal.free_completed(block, addr, size);
        }
    }

    /// True if the program's calls are noted in `log`.
    pub(crate) fn is_logged_to(&self, log: &Arc<CallLog>) -> bool {
        let calls = self.journal.as_ref().and_then(|journal| journal.calls());
        calls.is_some_and(|calls| Arc::ptr_eq(calls, log))
    }

    /// Notes that the program uses a block on another stream.
    pub(crate) fn used(&self, addr: u64, stream: Stream) {
        if let Some(calls) = self.journal.as_ref().and_then(|journal| journal.calls()) {
            calls.push(ProgramCall::Use { addr, stream: shown_raw(stream.raw), device: stream.device.0 });
        }
    }

    /// Notes that a request of the program was refused for want of memory.
    pub(crate) fn refused(&self, bytes: u64) {
        if let Some(journal) = &self.journal
            && let Some(calls) = journal.calls()
        {
            calls.push(ProgramCall::Refused { bytes, stream: journal.owner().0 });
        }
    }

    /// Notes a block that was live before the log began.
    pub(crate) fn found(&self, addr: u64, bytes: u64) {
        if let Some(journal) = &self.journal {
            journal.note_alloc(addr, bytes);
        }
    }

    /// Records the program's note about a block.
    pub(crate) fn annotate(&mut self, addr: u64, size: u64, text: &str) {
        self.record_with(
            Action::Annotate,
            addr,
            size,
            Details { metadata: Some(text.into()), ..Details::default() },
        );
    }

    /// Records an action with details.
    pub(crate) fn record_with(&mut self, action: Action, addr: u64, size: u64, details: Details) {
        if let Some(journal) = &mut self.journal {
            journal.record(action, addr, size, None, details);
        }
    }

    /// From here on, until [`end_call`](Self::end_call), records are made for an operation with this context.
    pub(crate) fn begin_call(&mut self, context: Option<&Context>) {
        if let Some(journal) = &mut self.journal {
            journal.begin_call(context);
        }
    }

    /// The context of the operation under way, where segments keep theirs.
    pub(crate) fn call(&self) -> Option<Context> {
        self.journal.as_ref()?.call().cloned()
    }

    /// Ends the operation; the caller still has its context. Drop the result without a lock.
    pub(crate) fn end_call(&mut self) -> Trash {
        self.journal.as_mut().map(|journal| journal.end_call()).unwrap_or_default()
    }

    /// Context in which a live block was allocated.
    pub(crate) fn of_block(&self, block: BlockId) -> Option<&Context> {
        self.journal.as_ref()?.of_block(block)
    }

    /// Turns history on, changes its options, or turns it off and forgets it. Drop the result without a lock.
    pub(crate) fn configure(
        &mut self,
        template: &HistoryTemplate,
        owner: RecordOwner,
        clear: bool,
    ) -> Vec<Context> {
        let wanted = template.max_entries > 0 || template.outbox.is_some() || template.calls.is_some();
        if !wanted {
            return self.journal.take().map(|journal| journal.into_contexts()).unwrap_or_default();
        }
        let journal = self.journal.get_or_insert_with(|| Box::new(Journal::new(owner)));
        journal.configure(template, clear)
    }

    /// True if its records are numbered by `stamps` already.
    pub(crate) fn records_with(&self, stamps: &Arc<Stamps>) -> bool {
        let ring = self.journal.as_ref().and_then(|journal| journal.ring());
        ring.is_some_and(|ring| ring.is_stamped_by(stamps))
    }

    /// Makes the records that follow for another owner.
    pub(crate) fn rename(&mut self, owner: RecordOwner) {
        if let Some(journal) = &mut self.journal {
            journal.rename(owner);
        }
    }

    /// Owner that `record` was made for.
    pub(crate) fn owner_of(&self, record: &Record) -> RecordOwner {
        self.journal.as_ref().map_or((0, PoolId::DEFAULT), |journal| journal.owner_of(record))
    }

    /// Records kept.
    pub(crate) fn len(&self) -> usize {
        self.journal.as_ref().and_then(|journal| journal.ring()).map_or(0, Ring::len)
    }

    /// Records, oldest first, with their details.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&Record, Option<&Details>)> {
        self.journal.iter().filter_map(|journal| journal.ring()).flat_map(Ring::iter)
    }
}
