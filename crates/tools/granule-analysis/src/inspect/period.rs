//! Finding the iterations of a run whose file has no marks: a program that repeats itself asks for the same sizes again.

use crate::Run;
use crate::run::{Allocation, Iteration, Moment};
use rustc_hash::FxHasher;
use std::hash::{Hash, Hasher};

/// Shorter repetitions are those of loops within an iteration, or chance.
const SHORTEST: usize = 8;
/// How often the period must be seen at the end of the run.
const TIMES: usize = 3;

/// The iterations that the requests' call sites give, or else their sizes and streams: the shortest repetition that goes on to the
/// end of the run and has at least half of its requests, where each gives something back: what only takes builds something up.
/// With it, how many requests that is.
pub(super) fn repetition(run: &Run) -> Option<(Vec<Iteration>, usize)> {
    // Batches of several lengths come from the same lines.
    let of_sites = (run.sites.len() > 1).then(|| repetition_of(run, |life| hash(&(life.site, life.stream))));
    of_sites.flatten().or_else(|| repetition_of(run, |life| hash(&(life.size, life.stream))))
}

fn repetition_of(run: &Run, what: impl Fn(&Allocation) -> u64) -> Option<(Vec<Iteration>, usize)> {
    let older = run.allocations.partition_point(|life| life.is_older());
    let requests = &run.allocations[older..];
    let backwards: Vec<u64> = requests.iter().rev().map(what).collect();
    let same = matches_with_itself(&backwards);
    let enough = backwards.len() / 2;
    // `same[period]` requests are those of one period before.
    let mut frees: Vec<Moment> = run.allocations.iter().map(|life| life.end).collect();
    frees.sort_unstable();
    let freed = |at: Moment| frees.partition_point(|end| *end < at);
    let begin = |back: usize| requests[requests.len() - back].begin;
    let gives_back = |period: usize| {
        let steps = 1..(same[period] + period) / period;
        steps.into_iter().all(|back| freed(begin((back + 1) * period)) < freed(begin(back * period)))
    };
    let repeats = |period: &usize| same[*period] + period >= (TIMES * period).max(enough);
    let period = (SHORTEST..backwards.len()).filter(repeats).find(|period| gives_back(*period))?;
    let times = (same[period] + period) / period;
    // Before the first request of each. Where a program ends it frees everything: that is no iteration.
    let begins =
        (1..=times).rev().map(|back| requests[requests.len() - back * period].begin.saturating_sub(1));
    let iterations = begins.zip(0..).map(|(at, number): (Moment, u64)| Iteration { at, number }).collect();
    Some((iterations, period))
}

fn hash(value: &impl Hash) -> u64 {
    let mut hasher = FxHasher::default();
    value.hash(&mut hasher);
    hasher.finish()
}

/// How many values from each place on are those from the beginning on, in linear time (the Z function).
fn matches_with_itself(values: &[u64]) -> Vec<usize> {
    let mut same = vec![0; values.len()];
    // The match that reaches furthest.
    let (mut from, mut to) = (0, 0);
    for at in 1..values.len() {
        let known = if at < to { same[at - from].min(to - at) } else { 0 };
        let more = values[at + known..].iter().zip(&values[known..]).take_while(|(a, b)| a == b).count();
        same[at] = known + more;
        if at + same[at] > to {
            (from, to) = (at, at + same[at]);
        }
    }
    same
}

#[cfg(test)]
mod tests {
    use super::{matches_with_itself, repetition};
    use crate::Run;
    use granule_snapshot::trace::{Event, Trace};
    use proptest::prelude::*;

    /// Each block is given back where the next is there.
    fn run(sizes: &[u64]) -> Run {
        let events = (0u64..).zip(sizes).flat_map(|(id, size)| {
            let free = id.checked_sub(1).map(|id| Event::Free { id });
            std::iter::once(Event::Alloc { id, size: *size, stream: 0 }).chain(free)
        });
        let events = events.collect();
        Run::of_trace(&Trace { events, ..Trace::default() })
    }

    #[test]
    fn what_repeats_to_the_end_is_found() {
        let step: Vec<u64> = (1..=10).collect();
        let mut sizes = vec![100, 200, 300];
        for _ in 0..4 {
            sizes.extend(&step);
        }
        sizes.extend(&step[..4]);
        let (iterations, period) = repetition(&run(&sizes)).unwrap();
        assert_eq!(period, 10);
        let at: Vec<_> = iterations.iter().map(|iteration| iteration.at).collect();
        // They end where the run does: 4 of its requests begin the one that was not finished.
        assert_eq!(at, [13, 33, 53, 73]);
        assert_eq!(iterations.last().unwrap().number, 3);
    }

    #[test]
    fn what_does_not_repeat_often_or_long_enough_is_none() {
        let sizes: Vec<u64> = (1..100).collect();
        assert!(repetition(&run(&sizes)).is_none());
        assert!(repetition(&run(&[1, 2, 3, 1, 2, 3])).is_none());
        assert!(repetition(&run(&[])).is_none());
        // A loop at the end of a long program is not its iteration.
        let mut sizes: Vec<u64> = (1000..2000).collect();
        for _ in 0..4 {
            sizes.extend(1..=10);
        }
        assert!(repetition(&run(&sizes)).is_none());
    }

    proptest! {
        #[test]
        fn matches_are_those_that_comparing_finds(values in proptest::collection::vec(0u64..3, 0..60)) {
            let naive = |at: usize| values[at..].iter().zip(&values).take_while(|(a, b)| a == b).count();
            let expected: Vec<_> = (0..values.len()).map(|at| if at == 0 { 0 } else { naive(at) }).collect();
            prop_assert_eq!(matches_with_itself(&values), expected);
        }
    }
}
