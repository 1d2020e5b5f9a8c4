//! What was held from the device, over time.

use super::{Moment, NEVER, Span};
use std::collections::BTreeMap;

/// Memory that is held now, by first address; ranges never overlap.
#[derive(Debug, Default)]
pub(super) struct ReservedRanges {
    now: BTreeMap<u64, Span>,
    over: Vec<Span>,
}

impl ReservedRanges {
    /// A range is held from `span.begin` on. What a damaged history says is held twice is held once, and what it says lies
    /// behind the last address is not held.
    pub(super) fn take(&mut self, span: Span) {
        let size = end_of(&span) - span.address;
        if size > 0 {
            self.give_back(span.address, size, span.begin);
            self.now.insert(span.address, Span { size, ..span });
        }
    }

    /// A range is given back; what of it is not held is passed over.
    pub(super) fn give_back(&mut self, address: u64, size: u64, at: Moment) {
        let end = address.saturating_add(size);
        let before = self.now.range(..address).next_back().map(|(first, _)| *first);
        let first = before.filter(|first| end_of(&self.now[first]) > address).unwrap_or(address);
        let touched: Vec<u64> = self.now.range(first..end).map(|(first, _)| *first).collect();
        for first in touched {
            let Some(span) = self.now.remove(&first) else { continue };
            let (from, to) = (address.max(span.address), end.min(end_of(&span)));
            if span.address < from {
                self.now.insert(span.address, Span { size: from - span.address, ..span });
            }
            if to < end_of(&span) {
                self.now.insert(to, Span { address: to, size: end_of(&span) - to, ..span });
            }
            // What came and went in the same moment was never held.
            if span.begin < at {
                self.over.push(Span { address: from, size: to - from, end: at, ..span });
            }
        }
    }

    /// What is held now.
    pub(super) fn spans(&self) -> impl Iterator<Item = &Span> {
        self.now.values()
    }

    /// Everything that was held, by begin and address.
    pub(super) fn finish(self) -> Vec<Span> {
        let mut spans = self.over;
        spans.extend(self.now.into_values().map(|span| Span { end: NEVER, ..span }));
        spans.sort_by_key(|span| (span.begin, span.address));
        spans
    }
}

fn end_of(span: &Span) -> u64 {
    span.address.saturating_add(span.size)
}
