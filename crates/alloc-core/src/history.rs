//! The history: who took and gave back what, in bounded rings of fixed-size records.
//!
//! Each arena has a ring of its own, written under its lock; records carry a device-wide sequence number,
//! by which the rings are merged when a snapshot is taken. Off, it costs one test of a flag.

use crate::snapshot::Action;
use crate::sync::{Arc, AtomicU64, Ordering};
use rustc_hash::FxHashMap;
use std::time::SystemTime;

/// How history is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HistoryOptions {
    /// Records kept; the newest stay. 0 turns history off.
    pub max_entries: usize,
    /// Stamp records with their sequence number instead of the time, so that equal runs give equal
    /// snapshots.
    pub deterministic: bool,
}

/// One record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) sequence: u64,
    /// Clock ticks; see [`Stamps::microseconds`].
    ticks: u64,
    pub(crate) addr: u64,
    pub(crate) size: u64,
    pub(crate) action: Action,
}

/// Sequence numbers and time for all rings of a device.
#[derive(Debug)]
pub(crate) struct Stamps {
    next: AtomicU64,
    /// `None` in deterministic mode. Made only when needed: calibration takes a while.
    clock: Option<quanta::Clock>,
    start_ticks: u64,
    start_us: i64,
}

impl Stamps {
    pub(crate) fn new(deterministic: bool) -> Self {
        let clock = (!deterministic).then(quanta::Clock::new);
        let start_ticks = clock.as_ref().map_or(0, quanta::Clock::raw);
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let start_us = i64::try_from(now.as_micros()).unwrap_or(i64::MAX);
        Self { next: AtomicU64::new(0), clock, start_ticks, start_us }
    }

    /// Microseconds since the Unix epoch; the sequence number in deterministic mode.
    pub(crate) fn microseconds(&self, record: &Record) -> i64 {
        let Some(clock) = &self.clock else {
            return i64::try_from(record.sequence).unwrap_or(i64::MAX);
        };
        let nanos = clock.delta_as_nanos(self.start_ticks, record.ticks);
        self.start_us.saturating_add(i64::try_from(nanos / 1000).unwrap_or(i64::MAX))
    }

    /// Records made so far.
    pub(crate) fn made(&self) -> u64 {
        self.next.load(Ordering::Relaxed)
    }
}

/// A bounded ring.
#[derive(Debug)]
pub(crate) struct Ring {
    records: Vec<Record>,
    capacity: usize,
    /// Where the next record goes once the ring is full.
    cursor: usize,
    overwritten: u64,
    /// The texts of annotations in the ring, by sequence number.
    notes: FxHashMap<u64, Arc<str>>,
    /// Streams the records were made for before the present one: each with the first number it has not.
    former: Vec<(u64, u64)>,
    stamps: Arc<Stamps>,
}

impl Ring {
    pub(crate) fn new(capacity: usize, stamps: Arc<Stamps>) -> Self {
        Self {
            records: Vec::new(),
            capacity: capacity.max(1),
            cursor: 0,
            overwritten: 0,
            notes: FxHashMap::default(),
            former: Vec::new(),
            stamps,
        }
    }

    /// Adds a record; returns its sequence number.
    fn push(&mut self, action: Action, addr: u64, size: u64) -> u64 {
        let ticks = self.stamps.clock.as_ref().map_or(0, quanta::Clock::raw);
        let sequence = self.stamps.next.fetch_add(1, Ordering::Relaxed);
        let record = Record { sequence, ticks, addr, size, action };
        if self.records.len() < self.capacity {
            self.records.push(record);
        } else {
            let lost = std::mem::replace(&mut self.records[self.cursor], record);
            self.forget(&lost);
            self.cursor = (self.cursor + 1) % self.capacity;
            self.overwritten += 1;
        }
        sequence
    }

    fn forget(&mut self, lost: &Record) {
        if lost.action == Action::Annotate {
            self.notes.remove(&lost.sequence);
        }
    }

    /// Records, oldest first, with the texts of annotations.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&Record, Option<&Arc<str>>)> {
        let ordered = self.records[self.cursor..].iter().chain(&self.records[..self.cursor]);
        ordered.map(|record| {
            let note =
                (record.action == Action::Annotate).then(|| self.notes.get(&record.sequence)).flatten();
            (record, note)
        })
    }

    /// Keeps the newest `capacity` records, in order.
    fn resize(&mut self, capacity: usize) {
        self.records.rotate_left(self.cursor);
        self.cursor = 0;
        self.capacity = capacity.max(1);
        if let Some(excess) = self.records.len().checked_sub(self.capacity) {
            let lost: Vec<Record> = self.records.drain(..excess).collect();
            lost.iter().for_each(|record| self.forget(record));
            self.overwritten += excess as u64;
        }
    }
}

/// The place where an arena (or the device itself) records.
#[derive(Debug, Default)]
pub(crate) struct Recorder {
    ring: Option<Box<Ring>>,
}

impl Recorder {
    /// Records, if history is on.
    #[inline]
    pub(crate) fn record(&mut self, action: Action, addr: u64, size: u64) {
        if let Some(ring) = &mut self.ring {
            ring.push(action, addr, size);
        }
    }

    /// Records a program's note about a block, if history is on.
    pub(crate) fn annotate(&mut self, addr: u64, size: u64, text: &str) {
        if let Some(ring) = &mut self.ring {
            let sequence = ring.push(Action::Annotate, addr, size);
            ring.notes.insert(sequence, text.into());
        }
    }

    /// Turns history on (with `stamps`), changes its bound, or turns it off (0) and forgets.
    pub(crate) fn configure(&mut self, max_entries: usize, stamps: &Arc<Stamps>) {
        match &mut self.ring {
            _ if max_entries == 0 => self.ring = None,
            Some(ring) if Arc::ptr_eq(&ring.stamps, stamps) => ring.resize(max_entries),
            // Records of another numbering cannot be merged with new ones.
            _ => self.ring = Some(Box::new(Ring::new(max_entries, Arc::clone(stamps)))),
        }
    }

    /// What was recorded so far was for the stream with the handle `former`; what follows is for another.
    pub(crate) fn rename(&mut self, former: u64) {
        if let Some(ring) = &mut self.ring {
            let oldest = ring.iter().next().map_or(u64::MAX, |(record, _)| record.sequence);
            ring.former.retain(|(end, _)| *end > oldest);
            ring.former.push((ring.stamps.made(), former));
        }
    }

    /// The handle of the stream that `record` was made for, where `present` is that of now.
    pub(crate) fn stream_of(&self, record: &Record, present: u64) -> u64 {
        let former = self.ring.iter().flat_map(|ring| &ring.former);
        former.copied().find(|(end, _)| record.sequence < *end).map_or(present, |(_, stream)| stream)
    }

    /// Records kept.
    pub(crate) fn len(&self) -> usize {
        self.ring.as_ref().map_or(0, |ring| ring.records.len())
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&Record, Option<&Arc<str>>)> {
        self.ring.iter().flat_map(|ring| ring.iter())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ring(capacity: usize, pushes: u64) -> Ring {
        let mut ring = Ring::new(capacity, Arc::new(Stamps::new(true)));
        for n in 0..pushes {
            ring.push(Action::Alloc, n, 1);
        }
        ring
    }

    fn addresses(ring: &Ring) -> Vec<u64> {
        ring.iter().map(|(r, _)| r.addr).collect()
    }

    #[test]
    fn the_newest_records_stay_in_order() {
        let ring = ring(4, 10);
        assert_eq!(addresses(&ring), [6, 7, 8, 9]);
        assert_eq!(ring.overwritten, 6);
    }

    /// PyTorch 2.15 loses the order when the bound is raised after a wrap, and writes past the end when it is lowered.
    #[test]
    fn resizing_a_wrapped_ring_keeps_order_and_bounds() {
        let mut grown = ring(4, 6);
        grown.resize(6);
        grown.push(Action::Alloc, 6, 1);
        assert_eq!(addresses(&grown), [2, 3, 4, 5, 6]);
        let mut shrunk = ring(1000, 1600);
        shrunk.resize(10);
        for n in 1600..1605 {
            shrunk.push(Action::Alloc, n, 1);
        }
        assert_eq!(addresses(&shrunk), (1595..1605).collect::<Vec<_>>());
    }

    #[test]
    fn notes_go_with_their_records() {
        let mut recorder = Recorder::default();
        recorder.configure(4, &Arc::new(Stamps::new(true)));
        (0..100).for_each(|n| recorder.annotate(n, 1, "x"));
        assert_eq!(recorder.ring.as_ref().unwrap().notes.len(), 4);
    }
}
