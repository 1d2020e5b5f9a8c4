//! Every allocation and span once, where its whole life is.
//!
//! Time is cut into leaves of 2^15 moments, two leaves make the interval above them, and so on up to the whole run. What
//! lives within one leaf is kept there; what lives across the border between two is kept in the smallest interval that holds
//! both. So an interval that is not a leaf holds no more than was there at one moment, its middle; and what was there at any
//! moment is found in one leaf and the intervals above it, some ten in all, without reading the rest.

use crate::bytes::Bytes;
use crate::lives::{self, Addresses};
use crate::section::Section;
use granule_analysis::Run;
use granule_analysis::run::Moment;
use std::io;

/// A leaf holds 2^this moments.
pub(crate) const LEAF: u32 = 15;

/// An interval: `index` counts those of the same height from the beginning of the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Interval {
    pub(crate) height: u32,
    pub(crate) index: u32,
}

impl Interval {
    /// The smallest that holds both moments.
    pub(crate) fn around(first: Moment, last: Moment) -> Self {
        let height = (Moment::BITS - (first ^ last).leading_zeros()).saturating_sub(LEAF);
        // Beyond the whole of time there is nothing to count.
        Self { height, index: first.checked_shr(LEAF + height).unwrap_or(0) }
    }

    /// Whether the moment is in it.
    pub(crate) fn holds(self, at: Moment) -> bool {
        at.checked_shr(LEAF + self.height).unwrap_or(0) == self.index
    }

    fn id(self) -> String {
        format!("interval-{}-{}", self.height, self.index)
    }
}

/// What an interval holds, by index in the run.
#[derive(Debug, Default)]
pub(crate) struct Content {
    pub(crate) allocations: Vec<u32>,
    pub(crate) spans: Vec<u32>,
}

/// The intervals that hold anything, in order.
pub(crate) fn intervals(run: &Run) -> Vec<(Interval, Content)> {
    let allocations = run.allocations.iter().map(|life| (life.begin, lives::last_moment(life, run)));
    let spans = run.spans.iter().map(|span| (span.begin, lives::last_moment_of_span(span, run)));
    let (allocations, spans) = (sorted(allocations), sorted(spans));
    let mut all: Vec<(Interval, Content)> = Vec::new();
    let (mut allocations, mut spans) = (allocations.iter().peekable(), spans.iter().peekable());
    while let Some(next) = [allocations.peek(), spans.peek()].into_iter().flatten().map(|(at, _)| *at).min() {
        let mut content = Content::default();
        while let Some((_, index)) = allocations.next_if(|(interval, _)| *interval == next) {
            content.allocations.push(*index);
        }
        while let Some((_, index)) = spans.next_if(|(interval, _)| *interval == next) {
            content.spans.push(*index);
        }
        all.push((next, content));
    }
    all
}

/// Where each of them belongs, with its index, in order of both.
fn sorted(lives: impl Iterator<Item = (Moment, Moment)>) -> Vec<(Interval, u32)> {
    let placed = lives.zip(0..).map(|((first, last), index)| (Interval::around(first, last), index));
    let mut placed: Vec<_> = placed.collect();
    placed.sort_unstable();
    placed
}

/// The section of an interval.
pub(crate) fn section(
    run: &Run,
    interval: Interval,
    content: &Content,
    addresses: Addresses,
) -> io::Result<Section> {
    let mut bytes = Bytes::default();
    lives::allocations(&mut bytes, run, &content.allocations, addresses);
    lives::spans(&mut bytes, run, &content.spans, addresses);
    Section::new(interval.id(), &bytes)
}
