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
/// end of the run and has at least half of its requests, where each gives back at least half of what it takes: layers of one
/// forward pass repeat, too, and build something up.
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
    let mut frees: Vec<(Moment, u64)> = run.allocations.iter().map(|life| (life.end, life.size)).collect();
    frees.sort_unstable();
    let freed_before = sums(frees.iter().map(|(_, size)| *size));
    let taken_before = sums(requests.iter().map(|life| life.size));
    let freed = |at: Moment| freed_before[frees.partition_point(|(end, _)| *end < at)];
    let begin = |back: usize| requests[requests.len() - back].begin;
    let taken = |back: usize| taken_before[requests.len() - back];
    let gives_back = |period: usize| {
        (1..(same[period] + period) / period).all(|back| {
            let [from, to] = [(back + 1) * period, back * period];
            2 * (freed(begin(to)) - freed(begin(from))) >= taken(to) - taken(from)
        })
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

/// The sum of all before each, and of all.
fn sums(values: impl Iterator<Item = u64>) -> Vec<u128> {
    let rest = values.scan(0u128, |sum, value| {
        *sum += u128::from(value);
        Some(*sum)
    });
    std::iter::once(0).chain(rest).collect()
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

    /// Layers of the forward pass in which a program was refused were taken for iterations of a leak.
    #[test]
    fn layers_that_keep_more_than_they_give_back_are_no_iterations() {
        let layers = |kept: u64| {
            let layer = |n: u64| {
                let ids = 10 * n..10 * (n + 1);
                let taken = ids.clone().map(|id| Event::Alloc { id, size: 100 + id % 10, stream: 0 });
                let given_back = ids.skip(kept as usize).map(|id| Event::Free { id });
                taken.chain(given_back).collect::<Vec<_>>()
            };
            let events = (0..6).flat_map(layer).collect();
            repetition(&Run::of_trace(&Trace { events, ..Trace::default() })).is_some()
        };
        assert_eq!([layers(1), layers(4), layers(6), layers(9)], [true, true, false, false]);
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
