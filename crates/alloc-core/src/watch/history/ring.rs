//! A bounded ring of fixed-size records, with room for details beside those that have some.

use super::context::Context;
use super::stamps::Stamps;
use crate::sync::Arc;
use crate::types::PoolId;
use crate::watch::snapshot::Action;

/// One record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) sequence: u64,
    /// Clock ticks; see [`Stamps::microseconds`].
    pub(super) ticks: u64,
    pub(crate) addr: u64,
    pub(crate) size: u64,
    pub(crate) action: Action,
}

/// Parts that few records have.
#[derive(Clone, Debug, Default)]
pub(crate) struct Details {
    pub(crate) context: Option<Context>,
    /// The thread's text, or the text of a note.
    pub(crate) metadata: Option<Arc<str>>,
    /// The compiled region.
    pub(crate) compiled: Option<Arc<str>>,
    /// Reason of an action of the engine's own.
    pub(crate) internal: Option<&'static str>,
    /// The pool, where it is not that of the ring.
    pub(crate) pool: Option<PoolId>,
}

impl Details {
    /// True if there are no details.
    pub(crate) fn is_empty(&self) -> bool {
        self.context.is_none() && !self.says_something()
    }

    /// True if the entry needs labels of its own.
    pub(super) fn says_something(&self) -> bool {
        self.metadata.is_some() || self.compiled.is_some() || self.internal.is_some() || self.pool.is_some()
    }
}

/// A bounded ring.
#[derive(Debug)]
pub(crate) struct Ring {
    records: Vec<Record>,
    /// Beside `records`, once any record has had details; empty before.
    details: Vec<Details>,
    capacity: usize,
    /// Index after the newest record. The ring is full if records follow, or the capacity is reached.
    cursor: usize,
    stamps: Arc<Stamps>,
}

impl Ring {
    pub(crate) fn new(capacity: usize, stamps: Arc<Stamps>) -> Self {
        Self { records: Vec::new(), details: Vec::new(), capacity: capacity.max(1), cursor: 0, stamps }
    }

    pub(crate) fn stamp(&self, action: Action, addr: u64, size: u64) -> Record {
        let (sequence, ticks) = self.stamps.take();
        Record { sequence, ticks, addr, size, action }
    }

    /// Fast path: records these actions, in this order, with one time. Not with details, or if the clock must be
    /// called.
    #[inline(always)]
    pub(super) fn add<const N: usize>(&mut self, actions: [Action; N], addr: u64, size: u64) {
        debug_assert!(!self.has_details(), "they would stay with other records");
        let (first, ticks) = self.stamps.take_quickly(N);
        let rest = self.records.get_mut(self.cursor..).unwrap_or_default();
        let Some(places) = rest.first_chunk_mut::<N>() else {
            return self.add_at_end(actions, first, ticks, addr, size);
        };
        for ((place, sequence), action) in places.iter_mut().zip(first..).zip(actions) {
            *place = Record { sequence, ticks, addr, size, action };
        }
        self.cursor += N;
    }

    /// Slow path, apart so that the fast path needs no stack.
    #[cold]
    #[inline(never)]
    fn add_at_end<const N: usize>(
        &mut self,
        actions: [Action; N],
        first: u64,
        ticks: u64,
        addr: u64,
        size: u64,
    ) {
        for (sequence, action) in (first..).zip(actions) {
            self.put(Record { sequence, ticks, addr, size, action });
        }
    }

    fn put(&mut self, record: Record) {
        if self.cursor >= self.records.len() {
            self.make_room();
        }
        self.records[self.cursor] = record;
        self.cursor += 1;
    }

    /// Moves the cursor to a new place or, at capacity, to the first.
    fn make_room(&mut self) {
        if self.records.len() < self.capacity {
            self.records.push(Record { sequence: 0, ticks: 0, addr: 0, size: 0, action: Action::Alloc });
        } else {
            self.cursor = 0;
        }
    }

    /// Adds a record with details, which may be empty. Returns the details that it overwrites.
    pub(crate) fn push(&mut self, record: Record, details: Details) -> Details {
        self.put(record);
        if !self.has_details() && details.is_empty() {
            return details;
        }
        self.details.resize_with(self.records.len(), Details::default);
        std::mem::replace(&mut self.details[self.cursor - 1], details)
    }

    /// True if any record may have details.
    #[inline(always)]
    pub(super) fn has_details(&self) -> bool {
        !self.details.is_empty()
    }

    /// Records, oldest first, with their details.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&Record, Option<&Details>)> {
        let ordered = (self.cursor..self.records.len()).chain(0..self.cursor);
        ordered.map(|at| (&self.records[at], self.details.get(at)))
    }

    /// The oldest record.
    pub(super) fn oldest(&self) -> Option<&Record> {
        self.records.get(self.cursor).or(self.records.first())
    }

    /// The newest record.
    pub(super) fn newest(&self) -> Option<&Record> {
        self.records[..self.cursor].last()
    }

    /// True if its records are numbered by `stamps`.
    pub(super) fn is_stamped_by(&self, stamps: &Arc<Stamps>) -> bool {
        Arc::ptr_eq(&self.stamps, stamps)
    }

    /// True if a record needs no call of the clock.
    pub(super) fn is_quick(&self) -> bool {
        self.stamps.is_quick()
    }

    /// True if the time of a record is its sequence number.
    pub(crate) fn is_deterministic(&self) -> bool {
        self.stamps.is_deterministic()
    }

    /// The time of one of its records.
    pub(crate) fn microseconds(&self, record: &Record) -> i64 {
        self.stamps.microseconds(record)
    }

    /// Records kept.
    pub(crate) fn len(&self) -> usize {
        self.records.len()
    }

    /// Keeps the newest `capacity` records from now on, in order, and no fewer than there are.
    pub(crate) fn resize(&mut self, capacity: usize) {
        self.records.rotate_left(self.cursor);
        if !self.details.is_empty() {
            self.details.resize_with(self.records.len(), Details::default);
            self.details.rotate_left(self.cursor);
        }
        self.capacity = capacity.max(self.records.len()).max(1);
        self.cursor = self.records.len();
    }

    /// Forgets all records. Returns their details.
    pub(crate) fn clear(&mut self) -> Vec<Details> {
        self.records.clear();
        self.cursor = 0;
        std::mem::take(&mut self.details)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ring(capacity: usize, pushes: u64) -> Ring {
        let mut ring = Ring::new(capacity, Arc::new(Stamps::new(true)));
        (0..pushes).for_each(|n| push(&mut ring, n));
        ring
    }

    fn push(ring: &mut Ring, n: u64) {
        ring.add([Action::Alloc], n, 1);
    }

    fn addresses(ring: &Ring) -> Vec<u64> {
        ring.iter().map(|(r, _)| r.addr).collect()
    }

    #[test]
    fn the_newest_records_stay_in_order() {
        assert_eq!(addresses(&ring(4, 10)), [6, 7, 8, 9]);
    }

    /// PyTorch 2.15 loses the order when the bound is raised after a wrap, and writes past the end when it is lowered.
    #[test]
    fn resizing_a_wrapped_ring_keeps_order_and_bounds() {
        let mut grown = ring(4, 6);
        grown.resize(6);
        push(&mut grown, 6);
        assert_eq!(addresses(&grown), [2, 3, 4, 5, 6]);
        let mut shrunk = ring(1000, 1600);
        shrunk.resize(10);
        (1600..1605).for_each(|n| push(&mut shrunk, n));
        assert_eq!(addresses(&shrunk), (605..1605).collect::<Vec<_>>(), "what is there stays");
        shrunk.clear();
        shrunk.resize(10);
        (0..15).for_each(|n| push(&mut shrunk, n));
        assert_eq!(addresses(&shrunk), (5..15).collect::<Vec<_>>());
    }

    #[test]
    fn details_stay_with_their_records_and_go_with_them() {
        let mut ring = ring(4, 2);
        for n in 2..9 {
            let record = ring.stamp(Action::Annotate, n, 1);
            let metadata = (n % 2 == 0).then(|| n.to_string().into());
            let lost = ring.push(record, Details { metadata, ..Details::default() });
            assert_eq!(
                lost.metadata.as_deref(),
                (n >= 6 && n % 2 == 0).then(|| (n - 4).to_string()).as_deref()
            );
        }
        let kept: Vec<_> =
            ring.iter().map(|(r, d)| (r.addr, d.and_then(|d| d.metadata.as_deref()))).collect();
        assert_eq!(kept, [(5, None), (6, Some("6")), (7, None), (8, Some("8"))]);
        ring.resize(5);
        let texts: Vec<_> = ring.iter().map(|(_, d)| d.and_then(|d| d.metadata.as_deref())).collect();
        assert_eq!(texts, [None, Some("6"), None, Some("8")]);
    }
}
