//! Every solver's placements are sound and no lower than the bound; the exact search finds what there is.

use crate::common::{circle, cut, overlaps, random, streams};
use granule_planner::{Buffer, Options, Problem, SolveError, Solver, max_load, solve};
use proptest::prelude::*;
use std::time::Duration;

fn options(solver: Solver, capacity: Option<u64>) -> Options {
    Options { solver, capacity, time_limit: Some(Duration::from_millis(400)), seed: 1 }
}

/// The most bytes live at one moment, by looking at every moment.
fn load_by_moment(buffers: &[Buffer]) -> u64 {
    let live = |at: u64| buffers.iter().filter(|b| b.lower <= at && at < b.upper).map(|b| b.size).sum();
    buffers.iter().map(|b| live(b.lower)).max().unwrap_or(0)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn placements_are_sound_and_not_below_the_bound(kind in 0u8..3, count in 0usize..80, seed: u64, by in 0u8..3) {
        let problem = match kind {
            0 => Problem::new(random(count, seed)).expect("a sound problem"),
            1 => streams(count, 2 + (seed % 3) as usize, seed),
            _ => circle(count, seed),
        };
        let solver = [Solver::Auto, Solver::Greedy, Solver::Improve][usize::from(by)];
        let solution = solve(&problem, &options(solver, None)).expect("there is no capacity that could be too small");
        prop_assert!(solution.placement.height >= solution.bound);
        prop_assert!(overlaps(&problem, &solution.placement.offsets).is_empty());
    }

    #[test]
    fn the_bound_is_the_load(count in 0usize..60, seed: u64) {
        let buffers = random(count, seed);
        let problem = Problem::new(buffers.clone()).expect("a sound problem");
        prop_assert_eq!(max_load(&problem), load_by_moment(&buffers));
    }

    #[test]
    fn the_exact_search_puts_a_cut_rectangle_together_again(count in 1usize..50, seed: u64) {
        let buffers = cut(count, 200, 500, seed);
        let problem = Problem::new(buffers).expect("a sound problem");
        let unlimited = Options { time_limit: None, ..options(Solver::Exact, Some(500)) };
        let solution = solve(&problem, &unlimited).expect("it was cut from a rectangle of that height");
        prop_assert_eq!(solution.placement.height, 500);
        prop_assert!(overlaps(&problem, &solution.placement.offsets).is_empty());
    }

    #[test]
    fn the_exact_search_knows_what_is_impossible(seed: u64) {
        // Small enough to try every order: in a lowest placement every buffer rests on others or on the ground.
        let mut dice = crate::common::Dice(seed);
        let buffers: Vec<Buffer> = (0..6)
            .map(|_| {
                let lower = dice.below(6);
                Buffer { lower, upper: lower + 1 + dice.below(4), size: 1 + dice.below(5) }
            })
            .collect();
        let problem = Problem::new(buffers).expect("a sound problem");
        let lowest = lowest_by_all_orders(&problem);
        let unlimited = |capacity| Options { time_limit: None, ..options(Solver::Exact, Some(capacity)) };
        let solution = solve(&problem, &unlimited(lowest)).expect("all orders found one that low");
        prop_assert!(solution.placement.height <= lowest);
        prop_assert_eq!(solution.placement.height, lowest);
        if lowest > 1 {
            let lower = solve(&problem, &unlimited(lowest - 1));
            let refused = matches!(lower, Err(SolveError::Impossible { .. } | SolveError::Load { .. }));
            prop_assert!(refused);
        }
    }
}

fn lowest_by_all_orders(problem: &Problem) -> u64 {
    fn visit(problem: &Problem, placed: &mut Vec<(usize, u64)>, best: &mut u64) {
        let count = problem.buffers().len();
        if placed.len() == count {
            *best =
                (*best).min(placed.iter().map(|&(b, at)| at + problem.buffers()[b].size).max().unwrap_or(0));
            return;
        }
        for next in (0..count).filter(|b| !placed.iter().any(|(other, _)| other == b)).collect::<Vec<_>>() {
            // On top of all that it conflicts with: some order makes any lowest placement so.
            let below = placed.iter().filter(|&&(b, _)| problem.conflict(b, next));
            let at = below.map(|&(b, at)| at + problem.buffers()[b].size).max().unwrap_or(0);
            placed.push((next, at));
            visit(problem, placed, best);
            placed.pop();
        }
    }
    let mut best = u64::MAX;
    visit(problem, &mut Vec::new(), &mut best);
    best
}

#[test]
fn a_pinwheel_needs_the_exact_search_and_gets_it() {
    let problem = Problem::new(cut(120, 400, 1000, 11)).expect("a sound problem");
    let greedy = solve(&problem, &options(Solver::Greedy, None)).expect("no capacity");
    assert!(greedy.placement.height > 1000, "an easy one: {}", greedy.placement.height);
    let auto = Options { time_limit: None, ..options(Solver::Auto, Some(1000)) };
    assert_eq!(solve(&problem, &auto).expect("it fits").placement.height, 1000);
}

#[test]
fn what_cannot_be_is_said() {
    let buffers = vec![Buffer { lower: 0, upper: 2, size: 3 }, Buffer { lower: 1, upper: 3, size: 3 }];
    let problem = Problem::new(buffers).expect("a sound problem");
    let refused = solve(&problem, &options(Solver::Auto, Some(5)));
    assert_eq!(refused, Err(SolveError::Load { max_load: 6, capacity: 5 }));
    let refused = solve(&streams(5, 2, 1), &options(Solver::Exact, None));
    assert_eq!(refused, Err(SolveError::NotIntervals));
}

#[test]
fn the_answer_does_not_depend_on_the_run() {
    let problem = Problem::new(cut(80, 300, 900, 5)).expect("a sound problem");
    let once = || solve(&problem, &Options { time_limit: None, ..options(Solver::Exact, Some(900)) });
    assert_eq!(once(), once());
}
