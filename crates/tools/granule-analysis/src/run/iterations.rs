//! What each iteration did.

use super::{Iteration, Moment, Run};

/// One iteration's figures. Bytes are requested bytes, but for what was held from the device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IterationFigures {
    /// As the program numbers it.
    pub number: u64,
    /// From when on.
    pub begin: Moment,
    /// Where the next one begins, or the run ends. What happened at a moment after `begin` and up to this is the iteration's.
    pub end: Moment,
    /// Live at its begin.
    pub live_at_begin: u64,
    /// Live at its end.
    pub live_at_end: u64,
    /// Most that was live in it, begin included.
    pub peak_live: u64,
    /// The first moment at which that was.
    pub peak_live_at: Moment,
    /// Most that was held from the device in it, begin included.
    pub peak_reserved: u64,
    /// How many requests it made that were served.
    pub allocations: u64,
    /// Bytes of these.
    pub requested: u64,
    /// How many blocks it gave back.
    pub frees: u64,
    /// Bytes that it asked for and that never were given back: what leaks is in here, and what is kept on purpose.
    pub never_freed: u64,
}

impl IterationFigures {
    /// By how much more was live at its end than at its begin.
    #[must_use]
    pub fn growth(&self) -> i64 {
        let by = i128::from(self.live_at_end) - i128::from(self.live_at_begin);
        i64::try_from(by).unwrap_or(if by < 0 { i64::MIN } else { i64::MAX })
    }
}

impl Run {
    /// What each iteration did, by begin. What happened before the first one is in none of them.
    #[must_use]
    pub fn iteration_figures(&self) -> Vec<IterationFigures> {
        self.figures_of(&self.iterations)
    }

    /// The same for other marks, which come by moment.
    #[must_use]
    pub fn figures_of(&self, iterations: &[Iteration]) -> Vec<IterationFigures> {
        let mut ends = iterations.iter().skip(1).map(|next| next.at);
        let mut figures: Vec<_> = iterations
            .iter()
            .map(|iteration| IterationFigures {
                number: iteration.number,
                begin: iteration.at,
                end: ends.next().unwrap_or(self.length),
                ..IterationFigures::default()
            })
            .collect();
        self.add_live(&mut figures);
        self.add_reserved(&mut figures);
        figures
    }

    fn add_live(&self, figures: &mut [IterationFigures]) {
        let mut changes = self.changes().peekable();
        let mut live = self.live_before();
        let mut step = |live: &mut u64, until: Moment| {
            let change = changes.next_if(|change| change.at <= until)?;
            let life = &self.allocations[change.allocation];
            *live =
                if change.begins { live.saturating_add(life.size) } else { live.saturating_sub(life.size) };
            Some((change, life))
        };
        for figure in figures {
            while step(&mut live, figure.begin).is_some() {}
            (figure.live_at_begin, figure.peak_live, figure.peak_live_at) = (live, live, figure.begin);
            while let Some((change, life)) = step(&mut live, figure.end) {
                if !change.begins {
                    figure.frees += 1;
                    continue;
                }
                figure.allocations += 1;
                figure.requested = figure.requested.saturating_add(life.size);
                if life.end == super::NEVER {
                    figure.never_freed = figure.never_freed.saturating_add(life.size);
                }
                if live > figure.peak_live {
                    (figure.peak_live, figure.peak_live_at) = (live, change.at);
                }
            }
            figure.live_at_end = live;
        }
    }

    fn add_reserved(&self, figures: &mut [IterationFigures]) {
        let mut steps = self.reserved().into_iter().peekable();
        let mut held = 0;
        for figure in figures {
            while let Some((_, bytes)) = steps.next_if(|(at, _)| *at <= figure.begin) {
                held = bytes;
            }
            figure.peak_reserved = held;
            while let Some((_, bytes)) = steps.next_if(|(at, _)| *at <= figure.end) {
                held = bytes;
                figure.peak_reserved = figure.peak_reserved.max(held);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::IterationFigures;
    use crate::Run;
    use granule_snapshot::trace::{Event, Trace};

    fn run(events: Vec<Event>) -> Run {
        Run::of_trace(&Trace { events, ..Trace::default() })
    }

    #[test]
    fn what_happens_between_two_marks_is_the_first_ones() {
        let alloc = |id, size| Event::Alloc { id, size, stream: 0 };
        let run = run(vec![
            alloc(0, 100),
            Event::Iteration { n: 7 },
            alloc(1, 10),
            alloc(2, 30),
            Event::Free { id: 1 },
            Event::Iteration { n: 8 },
            Event::Free { id: 2 },
            alloc(3, 5),
        ]);
        let [first, second] = run.iteration_figures().try_into().unwrap();
        assert_eq!(
            first,
            IterationFigures {
                number: 7,
                begin: 2,
                end: 6,
                live_at_begin: 100,
                live_at_end: 130,
                peak_live: 140,
                peak_live_at: 4,
                peak_reserved: 0,
                allocations: 2,
                requested: 40,
                frees: 1,
                never_freed: 0,
            }
        );
        assert_eq!((second.live_at_begin, second.live_at_end, second.peak_live), (130, 105, 130));
        assert_eq!((second.end, second.allocations, second.frees, second.never_freed), (8, 1, 1, 5));
        assert_eq!((first.growth(), second.growth()), (30, -25));
    }

    #[test]
    fn what_was_held_at_the_begin_counts() {
        let span = |begin, end, size| crate::run::Span {
            begin,
            end,
            address: 0,
            size,
            stream: 0,
            pool: 0,
            growable: false,
        };
        let mark = |at, number| crate::run::Iteration { at, number };
        let run = Run {
            length: 10,
            spans: vec![span(0, 4, 50), span(2, 3, 7), span(6, crate::run::NEVER, 20)],
            iterations: vec![mark(2, 0), mark(4, 1), mark(6, 2)],
            ..Run::default()
        };
        let peaks: Vec<_> = run.iteration_figures().iter().map(|figure| figure.peak_reserved).collect();
        assert_eq!(peaks, [57, 20, 20]);
    }
}
