//! The model of a run.

mod iterations;
mod of_replay;
mod of_snapshot;
mod of_trace;
mod reserved;
mod sites;

pub use iterations::IterationFigures;
pub use sites::{Site, Sites};

use crate::Limit;
use alloc_core::snapshot::Stack;
use alloc_core::types::PoolId;
use std::sync::Arc;

/// A moment: the number of entries before it.
pub type Moment = u32;

/// The end of what did not end within the run.
pub const NEVER: Moment = Moment::MAX;

/// A run, as its file tells it.
#[derive(Clone, Debug, Default)]
pub struct Run {
    /// Entries of the history; moments are from 0 to this.
    pub length: Moment,
    /// By begin; those that were there before the history began come first, by address.
    pub allocations: Vec<Allocation>,
    /// Memory held from the device, by begin. Empty where the file has no addresses.
    pub spans: Vec<Span>,
    /// Iterations, by moment.
    pub iterations: Vec<Iteration>,
    /// Requests that were refused, by moment.
    pub refusals: Vec<Refusal>,
    /// What limits the process below its device's memory, where the file tells.
    pub limit: Option<Limit>,
    /// `empty_cache` calls. Only traces tell them.
    pub flushes: Vec<Moment>,
    /// Notes of the program, by moment.
    pub notes: Vec<(Moment, Arc<str>)>,
    /// Microseconds since the Unix epoch of each entry; empty where the file has no clock.
    pub clock: Vec<i64>,
    /// Call sites that allocations name.
    pub sites: Sites,
    /// The handles of the streams that the numbers in allocations and spans stand for; 0 is the default stream.
    pub streams: Vec<u64>,
    /// The pools that the numbers in allocations and spans stand for; the first is the default pool.
    pub pools: Vec<PoolId>,
    /// Texts that the program gave its allocations (`user_metadata`); the first is empty.
    pub labels: Vec<Arc<str>>,
}

/// One allocation's life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Allocation {
    /// From when on it was handed out; 0 where it was there before the history began.
    pub begin: Moment,
    /// When the program gave it back; [`NEVER`] if it was alive at the end, 0 if that too was before the history began.
    pub end: Moment,
    /// When its memory could be used again: later than `end` where another stream still used it.
    pub reusable: Moment,
    /// Where it is; 0 where the file has no addresses.
    pub address: u64,
    /// Bytes as requested.
    pub size: u64,
    /// Index in [`Run::streams`].
    pub stream: u32,
    /// Index in [`Run::pools`].
    pub pool: u32,
    /// Index in [`Run::sites`].
    pub site: u32,
    /// Index in [`Run::labels`].
    pub label: u32,
}

impl Allocation {
    /// Whether it is handed out at that moment.
    #[must_use]
    pub const fn is_live(&self, at: Moment) -> bool {
        self.begin <= at && at < self.end
    }

    /// Whether it was given back at that moment, and waits for other streams.
    #[must_use]
    pub const fn is_waiting(&self, at: Moment) -> bool {
        self.end <= at && at < self.reusable
    }

    /// Whether it was there before the history began.
    #[must_use]
    pub const fn is_older(&self) -> bool {
        self.begin == 0
    }
}

/// Memory held from the device for some time: a segment, or a range that was mapped into a growable one and left whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// From when on it was held; 0 where it was there before the history began.
    pub begin: Moment,
    /// When it was given back; [`NEVER`] if it was held at the end.
    pub end: Moment,
    /// First address.
    pub address: u64,
    /// Bytes.
    pub size: u64,
    /// Index in [`Run::streams`].
    pub stream: u32,
    /// Index in [`Run::pools`].
    pub pool: u32,
    /// Whether it was mapped into a growable segment.
    pub growable: bool,
}

/// The beginning of an iteration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Iteration {
    /// From when on.
    pub at: Moment,
    /// As the program numbers it.
    pub number: u64,
}

/// A refused request.
#[derive(Clone, Debug, PartialEq)]
pub struct Refusal {
    /// When.
    pub at: Moment,
    /// Bytes asked for, rounded where the file has only that.
    pub size: u64,
    /// Index in [`Run::streams`].
    pub stream: u32,
    /// Index in [`Run::pools`].
    pub pool: u32,
    /// What the driver had free then; `None` where that is not known.
    pub device_free: Option<u64>,
    /// Where it was asked for.
    pub frames: Option<Stack>,
}

impl Run {
    /// Whether the file says where allocations are and what was held from the device.
    #[must_use]
    pub fn has_addresses(&self) -> bool {
        !self.spans.is_empty()
    }

    /// The moments at which something began or ended, with the bytes that the live requests then changed by, in order.
    ///
    /// What was live before the history began is not among them: see [`Run::live_before`].
    pub fn changes(&self) -> impl Iterator<Item = Change> {
        let begins = self.allocations.iter().enumerate().filter(|(_, life)| !life.is_older());
        let begins = begins.map(|(index, life)| Change { at: life.begin, allocation: index, begins: true });
        let mut ends: Vec<_> =
            self.allocations.iter().enumerate().filter(|(_, life)| (1..NEVER).contains(&life.end)).collect();
        ends.sort_by_key(|(_, life)| life.end);
        let ends =
            ends.into_iter().map(|(index, life)| Change { at: life.end, allocation: index, begins: false });
        merge(begins, ends)
    }

    /// Requested bytes of what was live before the history began.
    #[must_use]
    pub fn live_before(&self) -> u64 {
        let older = self.allocations.iter().take_while(|life| life.is_older()).filter(|life| life.is_live(0));
        older.fold(0, |sum, life| sum.saturating_add(life.size))
    }

    /// Most requested bytes live at once, and the first moment at which they were.
    #[must_use]
    pub fn peak(&self) -> (Moment, u64) {
        let mut live = self.live_before();
        let mut peak = (0, live);
        for change in self.changes() {
            let size = self.allocations[change.allocation].size;
            live = if change.begins { live.saturating_add(size) } else { live.saturating_sub(size) };
            if live > peak.1 {
                peak = (change.at, live);
            }
        }
        peak
    }

    /// Most requested bytes that waited for other streams at once, and the first moment at which they did. The time that every
    /// block takes to become reusable, where it waits for nothing, does not count.
    #[must_use]
    pub fn waiting_peak(&self) -> (Moment, u64) {
        let waits = self.allocations.iter().filter(|life| life.reusable.saturating_sub(life.end) > 1);
        let steps = waits.flat_map(|life| {
            let size = i128::from(life.size);
            [(life.end, size), (life.reusable, -size)]
        });
        let mut steps: Vec<_> = steps.collect();
        steps.sort_unstable();
        let (mut waiting, mut most) = (0, (0, 0));
        for (at, by) in steps {
            waiting += by;
            if waiting > most.1 {
                most = (at, waiting);
            }
        }
        (most.0, u64::try_from(most.1).unwrap_or(u64::MAX))
    }

    /// The iteration that a moment is in; `None` before the first.
    #[must_use]
    pub fn iteration_at(&self, at: Moment) -> Option<u64> {
        let begun = self.iterations.partition_point(|iteration| iteration.at < at);
        begun.checked_sub(1).map(|index| self.iterations[index].number)
    }

    /// Microseconds since the Unix epoch at a moment: when the entry before it was made. `None` where the file has no clock.
    #[must_use]
    pub fn time(&self, at: Moment) -> Option<i64> {
        self.clock.get((at as usize).saturating_sub(1)).copied()
    }

    /// Microseconds between two moments; `None` where the file has no clock, or the first is before the history began.
    #[must_use]
    pub fn time_between(&self, from: Moment, to: Moment) -> Option<u64> {
        if from == 0 {
            return None;
        }
        // Clocks of damaged files go backwards.
        Some(u64::try_from(i128::from(self.time(to)?) - i128::from(self.time(from)?)).unwrap_or(0))
    }

    /// Bytes held from the device at each moment at which that changed, with the moment.
    #[must_use]
    pub fn reserved(&self) -> Vec<(Moment, u64)> {
        let begins = self.spans.iter().map(|span| (span.begin, i128::from(span.size)));
        let ends = self.spans.iter().filter(|span| span.end != NEVER);
        let ends = ends.map(|span| (span.end, -i128::from(span.size)));
        let mut steps: Vec<_> = begins.chain(ends).collect();
        steps.sort_by_key(|(at, _)| *at);
        let mut held: i128 = 0;
        let mut figures: Vec<(Moment, u64)> = Vec::new();
        for (at, by) in steps {
            held += by;
            let bytes = u64::try_from(held.max(0)).unwrap_or(u64::MAX);
            match figures.last_mut() {
                Some(last) if last.0 == at => last.1 = bytes,
                _ => figures.push((at, bytes)),
            }
        }
        figures
    }

    /// Most reserved bytes, and the first moment at which they were.
    #[must_use]
    pub fn reserved_peak(&self) -> (Moment, u64) {
        let first_most = |best: (Moment, u64), next: (Moment, u64)| if next.1 > best.1 { next } else { best };
        self.reserved().into_iter().fold((0, 0), first_most)
    }
}

/// An allocation begins or ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Change {
    /// When.
    pub at: Moment,
    /// Index in [`Run::allocations`].
    pub allocation: usize,
    /// Whether it begins.
    pub begins: bool,
}

/// Ends come before begins of the same moment: memory is given back before it is handed out again.
fn merge(
    begins: impl Iterator<Item = Change>,
    ends: impl Iterator<Item = Change>,
) -> impl Iterator<Item = Change> {
    let (mut begins, mut ends) = (begins.peekable(), ends.peekable());
    std::iter::from_fn(move || match (begins.peek(), ends.peek()) {
        (Some(begin), Some(end)) if end.at <= begin.at => ends.next(),
        (Some(_), _) => begins.next(),
        (None, _) => ends.next(),
    })
}
