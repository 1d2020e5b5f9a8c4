//! The journal of one arena, or of the device itself: makes records, contexts and entries for trackers.
//!
//! No context is dropped here: it may be foreign code's, and the arena's lock is held. Contexts are collected, and the
//! end of the call drops them.

use super::calls::{CallLog, ProgramCall};
use super::entry::{entry, labels};
use super::ring::Ring;
use super::trackers::{Outbox, Tracked};
use super::{Context, Details, HistoryTemplate, Record, RecordContext, RecordOwner, bit, stamps, thread};
use crate::base::ids::BlockId;
use crate::sync::Arc;
use crate::watch::snapshot::Action;
use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use std::collections::VecDeque;

/// Bits of all actions.
const ALL: u16 = u16::MAX;

/// Contexts to be dropped without a lock: few, unless a call frees much.
pub(crate) type Trash = SmallVec<[Context; 4]>;

#[derive(Debug)]
pub(super) struct Journal {
    ring: Option<Ring>,
    /// Bits of actions that leave the fast path: skipped ones; all, while more than figures is kept or the clock is
    /// called.
    attentive: u16,
    /// Bits of skipped actions.
    skip: u16,
    contexts: RecordContext,
    outbox: Option<Arc<Outbox>>,
    calls: Option<Arc<CallLog>>,
    /// The context of the operation that has the lock.
    call: Option<Context>,
    /// Contexts in which live blocks were allocated.
    of_blocks: FxHashMap<BlockId, Context>,
    /// Contexts that nothing needs any more.
    trash: Trash,
    owner: RecordOwner,
    /// Earlier owners in order, each with the first sequence number after its records.
    former: VecDeque<(u64, RecordOwner)>,
}

impl Journal {
    pub(super) fn new(owner: RecordOwner) -> Self {
        Self {
            ring: None,
            attentive: ALL,
            skip: 0,
            contexts: RecordContext::Never,
            outbox: None,
            calls: None,
            call: None,
            of_blocks: FxHashMap::default(),
            trash: Trash::new(),
            owner,
            former: VecDeque::new(),
        }
    }

    /// Fast path: records these actions, in this order. `false` if more than figures may have to be recorded.
    #[inline(always)]
    pub(super) fn record_shortly<const N: usize>(
        &mut self,
        actions: [Action; N],
        addr: u64,
        size: u64,
    ) -> bool {
        let bits = actions.iter().fold(0, |bits, action| bits | bit(*action));
        match &mut self.ring {
            Some(ring) if self.attentive & bits == 0 && !thread::has_said() => {
                ring.add(actions, addr, size);
                true
            }
            _ => false,
        }
    }

    #[inline(never)]
    pub(super) fn allocated(&mut self, block: BlockId, addr: u64, size: u64) {
        self.note_alloc(addr, size);
        if let Some(call) = &self.call {
            let former = self.of_blocks.insert(block, Arc::clone(call));
            self.trash.extend(former);
        }
        self.record(Action::Alloc, addr, size, None, Details::default());
    }

    /// Notes a block that the program has.
    pub(super) fn note_alloc(&self, addr: u64, bytes: u64) {
        if let Some(calls) = &self.calls {
            let (stream, pool) = self.owner;
            calls.push(ProgramCall::Alloc { addr, bytes, stream, pool });
        }
    }

    pub(super) fn ring(&self) -> Option<&Ring> {
        self.ring.as_ref()
    }

    /// Log of the program's calls.
    pub(super) fn calls(&self) -> Option<&Arc<CallLog>> {
        self.calls.as_ref()
    }

    /// The operation that has the lock has this context.
    pub(super) fn begin_call(&mut self, context: Option<&Context>) {
        self.call = context.cloned();
    }

    /// The context of the operation that has the lock.
    pub(super) fn call(&self) -> Option<&Context> {
        self.call.as_ref()
    }

    /// Context in which a live block was allocated.
    pub(super) fn of_block(&self, block: BlockId) -> Option<&Context> {
        self.of_blocks.get(&block)
    }

    /// Owner of the records made now.
    pub(super) fn owner(&self) -> RecordOwner {
        self.owner
    }

    #[inline(never)]
    pub(super) fn freed(&mut self, block: BlockId, addr: u64, size: u64) {
        self.free_requested(block, addr, size);
        self.free_completed(block, addr, size);
    }

    pub(super) fn free_requested(&mut self, block: BlockId, addr: u64, size: u64) {
        if let Some(calls) = &self.calls {
            calls.push(ProgramCall::Free { addr });
        }
        // A context of the call itself takes precedence. The block keeps this one, so it is not dropped here.
        let about = if self.call.is_none() { self.of_blocks.get(&block).cloned() } else { None };
        self.record(Action::FreeRequested, addr, size, about.as_ref(), Details::default());
    }

    pub(super) fn free_completed(&mut self, block: BlockId, addr: u64, size: u64) {
        let about = self.of_blocks.remove(&block);
        self.record(Action::FreeCompleted, addr, size, about.as_ref(), Details::default());
        self.trash.extend(about);
    }

    /// Records for the ring and for trackers, with all that is known.
    #[cold]
    pub(super) fn record(
        &mut self,
        action: Action,
        addr: u64,
        size: u64,
        about: Option<&Context>,
        mut details: Details,
    ) {
        let ring = self.ring.as_mut().filter(|_| self.skip & bit(action) == 0);
        if ring.is_none() && self.outbox.is_none() {
            return;
        }
        if thread::has_said() {
            let (metadata, compiled) = thread::said();
            details.metadata = details.metadata.or(metadata);
            details.compiled = details.compiled.or(compiled);
        }
        let context = self.call.as_ref().or(about);
        details.context = context.filter(|_| self.contexts >= RecordContext::Alloc).cloned();
        let record = ring.as_ref().map(|ring| ring.stamp(action, addr, size));
        if let Some(outbox) = &self.outbox {
            let (stream, pool) = self.owner;
            let labels = Arc::new(labels(&details, details.pool.unwrap_or(pool)));
            let time = match (&ring, &record) {
                (Some(ring), Some(record)) => ring.microseconds(record),
                _ => stamps::now_us(),
            };
            let record = record.unwrap_or(Record { sequence: 0, ticks: 0, addr, size, action });
            let entry = entry(&record, Some(&details), stream, time, labels);
            outbox.push(Tracked { entry, context: context.cloned() });
        }
        if let (Some(ring), Some(record)) = (ring, record) {
            self.trash.extend(ring.push(record, details).context);
            if ring.has_details() {
                self.attentive = ALL;
            }
        }
    }

    /// Ends the operation. Drop the result without a lock.
    pub(super) fn end_call(&mut self) -> Trash {
        // The caller still has the context, so it is not dropped here.
        self.call = None;
        std::mem::take(&mut self.trash)
    }

    /// Changes the options. Live blocks keep the contexts they have until history is off. Drop the result without a
    /// lock.
    pub(super) fn configure(&mut self, template: &HistoryTemplate, clear: bool) -> Vec<Context> {
        let mut lost = match &mut self.ring {
            Some(ring) if clear => ring.clear(),
            _ => Vec::new(),
        };
        let goes_on = self.ring.as_ref().is_some_and(|ring| ring.is_stamped_by(&template.stamps));
        match &mut self.ring {
            Some(ring) if goes_on && template.max_entries > 0 => ring.resize(template.max_entries),
            // Records of another numbering cannot be merged with new ones.
            ring => {
                lost.extend(ring.take().iter_mut().flat_map(Ring::clear));
                self.former.clear();
                *ring = (template.max_entries > 0)
                    .then(|| Ring::new(template.max_entries, Arc::clone(&template.stamps)));
            }
        }
        let mut contexts: Vec<Context> = lost.into_iter().filter_map(|details| details.context).collect();
        if template.max_entries == 0 {
            contexts.extend(self.of_blocks.drain().map(|(_, context)| context));
        }
        contexts.extend(self.trash.drain(..));
        (self.skip, self.contexts) = (template.skip, template.contexts);
        self.outbox.clone_from(&template.outbox);
        self.calls.clone_from(&template.calls);
        let has_contexts = self.contexts > RecordContext::Never || !self.of_blocks.is_empty();
        let slow = |ring: &Ring| ring.has_details() || !ring.is_quick();
        let more_than_figures = has_contexts
            || self.outbox.is_some()
            || self.calls.is_some()
            || self.ring.as_ref().is_none_or(slow);
        self.attentive = if more_than_figures { ALL } else { self.skip };
        contexts
    }

    /// Ends the journal; returns its contexts, to be dropped without a lock.
    pub(super) fn into_contexts(mut self: Box<Self>) -> Vec<Context> {
        let mut contexts = self.trash.into_vec();
        contexts.extend(self.call.take());
        contexts.extend(self.of_blocks.drain().map(|(_, context)| context));
        contexts.extend(self.ring.iter_mut().flat_map(Ring::clear).filter_map(|details| details.context));
        contexts
    }

    /// Makes the records that follow for another owner.
    pub(super) fn rename(&mut self, owner: RecordOwner) {
        let owner = std::mem::replace(&mut self.owner, owner);
        let ends = |ring: &Ring| Some((ring.oldest()?.sequence, ring.newest()?.sequence + 1));
        let Some((oldest, end)) = self.ring.as_ref().and_then(ends) else { return };
        while self.former.front().is_some_and(|(end, _)| *end <= oldest) {
            self.former.pop_front();
        }
        // An owner without a record need not be known.
        if self.former.back().is_none_or(|(last, _)| *last < end) {
            self.former.push_back((end, owner));
        }
    }

    /// Owner that `record` was made for.
    pub(super) fn owner_of(&self, record: &Record) -> RecordOwner {
        let later = self.former.partition_point(|(end, _)| *end <= record.sequence);
        self.former.get(later).map_or(self.owner, |(_, owner)| *owner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::PoolId;
    use crate::watch::history::Stamps;

    #[test]
    fn former_owners_are_known_as_long_as_their_records() {
        let owner = |raw| (raw, PoolId::DEFAULT);
        let stamps = Arc::new(Stamps::new(true));
        let template = HistoryTemplate { max_entries: 4, stamps, ..HistoryTemplate::default() };
        let mut journal = Journal::new(owner(0));
        journal.configure(&template, false);
        journal.rename(owner(2));
        for raw in 2..100 {
            journal.record(Action::Alloc, raw, 1, None, Details::default());
            // These come and go without a record.
            (1000..1100).for_each(|raw| journal.rename(owner(raw)));
            journal.rename(owner(raw + 1));
        }
        journal.record(Action::Alloc, 100, 1, None, Details::default());
        let records = journal.ring().into_iter().flat_map(Ring::iter);
        let named: Vec<_> = records.map(|(r, _)| (r.addr, journal.owner_of(r).0)).collect();
        assert_eq!(named, [(97, 97), (98, 98), (99, 99), (100, 100)]);
        assert!(journal.former.len() <= 5);
    }
}
