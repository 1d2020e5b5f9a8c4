//! Everything that happened in a run, in order.

use granule_analysis::Run;
use granule_analysis::run::{Moment, NEVER, Span};

/// What happened, with PyTorch's names for what it has names for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum What {
    FreeRequested,
    FreeCompleted,
    SegmentFree,
    SegmentUnmap,
    SegmentAlloc,
    SegmentMap,
    Alloc,
    Oom,
    Annotate,
    EmptyCache,
    Iteration,
}

impl What {
    /// All of them.
    #[cfg(test)]
    pub(crate) const ALL: [Self; 11] = [
        Self::FreeRequested,
        Self::FreeCompleted,
        Self::SegmentFree,
        Self::SegmentUnmap,
        Self::SegmentAlloc,
        Self::SegmentMap,
        Self::Alloc,
        Self::Oom,
        Self::Annotate,
        Self::EmptyCache,
        Self::Iteration,
    ];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::FreeRequested => "free_requested",
            Self::FreeCompleted => "free_completed",
            Self::SegmentFree => "segment_free",
            Self::SegmentUnmap => "segment_unmap",
            Self::SegmentAlloc => "segment_alloc",
            Self::SegmentMap => "segment_map",
            Self::Alloc => "alloc",
            Self::Oom => "oom",
            Self::Annotate => "annotate",
            Self::EmptyCache => "empty_cache",
            Self::Iteration => "iteration",
        }
    }
}

/// Something that happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Event {
    pub(crate) at: Moment,
    pub(crate) what: What,
    /// Its index among the run's allocations, refusals, notes or iterations; of segments the index in [`Events::stretches`].
    pub(crate) index: u32,
}

/// Memory that was taken from the device, or given back, at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stretch {
    pub(crate) address: u64,
    pub(crate) size: u64,
    pub(crate) stream: u32,
    pub(crate) pool: u32,
}

/// The events of a run, with 12 bytes for each.
#[derive(Debug)]
pub(crate) struct Events {
    pub(crate) events: Vec<Event>,
    pub(crate) stretches: Vec<Stretch>,
}

impl Events {
    /// All events by moment. What was there before the history began has no event for its begin.
    pub(crate) fn of(run: &Run) -> Self {
        let mut all = Self {
            events: Vec::with_capacity(run.allocations.len().saturating_mul(3)),
            stretches: Vec::new(),
        };
        for (life, index) in run.allocations.iter().zip(0..) {
            all.add(life.begin, What::Alloc, index);
            all.add(life.end, What::FreeRequested, index);
            all.add(life.reusable, What::FreeCompleted, index);
        }
        all.add_spans(run);
        for (refusal, index) in run.refusals.iter().zip(0..) {
            all.add(refusal.at, What::Oom, index);
        }
        for ((at, _), index) in run.notes.iter().zip(0..) {
            all.add(*at, What::Annotate, index);
        }
        for (at, index) in run.flushes.iter().zip(0..) {
            all.add(*at, What::EmptyCache, index);
        }
        for (iteration, index) in run.iterations.iter().zip(0..) {
            all.add(iteration.at, What::Iteration, index);
        }
        all.events.sort_unstable();
        all
    }

    /// What was before the history began, and what has not happened when it ends, is no event of it; a mark may be before the
    /// first entry.
    fn add(&mut self, at: Moment, what: What, index: u32) {
        if at != NEVER && (at > 0 || what >= What::Annotate) {
            self.events.push(Event { at, what, index });
        }
    }

    /// A span that lost parts at different times is several in the run; what was taken at once was taken at once.
    fn add_spans(&mut self, run: &Run) {
        let mut spans: Vec<&Span> = run.spans.iter().filter(|span| span.begin > 0).collect();
        spans.sort_by_key(|span| (span.begin, span.address));
        let taken = |span: &Span| {
            let what = if span.growable { What::SegmentMap } else { What::SegmentAlloc };
            (span.begin, what)
        };
        self.add_stretches(&spans, taken);
        let mut spans: Vec<&Span> = run.spans.iter().filter(|span| span.end != NEVER).collect();
        spans.sort_by_key(|span| (span.end, span.address));
        let given_back = |span: &Span| {
            let what = if span.growable { What::SegmentUnmap } else { What::SegmentFree };
            (span.end, what)
        };
        self.add_stretches(&spans, given_back);
    }

    fn add_stretches(&mut self, spans: &[&Span], event: impl Fn(&Span) -> (Moment, What)) {
        let mut last = None;
        for span in spans {
            let now = event(span);
            if let Some(stretch) = self.stretches.last_mut()
                && last == Some(now)
                && stretch.address.checked_add(stretch.size) == Some(span.address)
                && (stretch.stream, stretch.pool) == (span.stream, span.pool)
            {
                stretch.size = stretch.size.saturating_add(span.size);
                continue;
            }
            last = Some(now);
            // Files of 2^32 segments are not read.
            let Ok(index) = u32::try_from(self.stretches.len()) else { return };
            let Span { address, size, stream, pool, .. } = **span;
            self.stretches.push(Stretch { address, size, stream, pool });
            self.add(now.0, now.1, index);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Event, Events, What};
    use granule_analysis::Run;
    use granule_analysis::run::{NEVER, Span};

    #[test]
    fn what_was_taken_at_once_is_one_event() {
        let span =
            |begin, end, address| Span { begin, end, address, size: 10, stream: 0, pool: 0, growable: true };
        // 30 bytes were mapped at 1; the middle went at 5, the rest stayed. Another 10 were there before.
        let run = Run {
            spans: vec![span(0, 5, 1000), span(1, NEVER, 100), span(1, 5, 110), span(1, NEVER, 120)],
            ..Run::default()
        };
        let all = Events::of(&run);
        let event = |at, what, index| Event { at, what, index };
        assert_eq!(
            all.events,
            [event(1, What::SegmentMap, 0), event(5, What::SegmentUnmap, 1), event(5, What::SegmentUnmap, 2)]
        );
        let sizes: Vec<_> = all.stretches.iter().map(|stretch| (stretch.address, stretch.size)).collect();
        assert_eq!(sizes, [(100, 30), (110, 10), (1000, 10)]);
    }
}
