//! The verifier agrees with a comparison of all pairs, whatever the placement.

use crate::common::{circle, cut, overlaps, random, streams};
use granule_planner::verify::{Flaw, verify};
use granule_planner::{Buffer, Options, Placement, Problem, Solver, solve};
use proptest::prelude::*;

fn greedy(problem: &Problem) -> Placement {
    let options = Options { solver: Solver::Greedy, ..Options::default() };
    solve(problem, &options).expect("greedy orders always find a placement").placement
}

fn problem(kind: u8, count: usize, seed: u64) -> Problem {
    match kind {
        0 => Problem::new(random(count, seed)).expect("a sound problem"),
        1 => streams(count, 3, seed),
        _ => circle(count, seed),
    }
}

proptest! {
    #[test]
    fn agrees_with_all_pairs_on_any_offsets(kind in 0u8..3, count in 1usize..40, seed: u64, spread in 1u64..2000) {
        let problem = problem(kind, count, seed);
        let mut dice = crate::common::Dice(seed ^ 77);
        let offsets: Vec<u64> = (0..count).map(|_| dice.below(spread)).collect();
        let placement = Placement::new(&problem, offsets);
        let flawless = overlaps(&problem, &placement.offsets).is_empty();
        prop_assert_eq!(verify(&problem, &placement).is_ok(), flawless);
    }

    #[test]
    fn a_sound_placement_stops_being_one_where_buffers_are_moved_onto_others(
        kind in 0u8..3, count in 2usize..60, seed: u64, moved: prop::sample::Index, onto: prop::sample::Index,
    ) {
        let problem = problem(kind, count, seed);
        let mut placement = greedy(&problem);
        prop_assert_eq!(verify(&problem, &placement), Ok(()));
        let (moved, onto) = (moved.index(count), onto.index(count));
        placement.offsets[moved] = placement.offsets[onto];
        let placement = Placement::new(&problem, placement.offsets);
        let flaws = overlaps(&problem, &placement.offsets);
        if problem.conflict(moved, onto) {
            prop_assert!(!flaws.is_empty());
        }
        prop_assert_eq!(verify(&problem, &placement).is_err(), !flaws.is_empty());
    }
}

#[test]
fn heights_and_counts_are_checked() {
    let problem = Problem::new(cut(20, 50, 100, 3)).expect("a sound problem");
    let good = greedy(&problem);
    let low = Placement { height: good.height - 1, ..good.clone() };
    assert!(matches!(verify(&problem, &low), Err(Flaw::Height { .. })));
    let mut short = good.clone();
    short.offsets.pop();
    assert!(matches!(verify(&problem, &short), Err(Flaw::Count { .. })));
    let mut beyond = good;
    beyond.offsets[0] = u64::MAX;
    assert!(matches!(verify(&problem, &beyond), Err(Flaw::Height { buffer: 0, .. })));
}

#[test]
fn lives_that_touch_do_not_meet_and_lives_that_share_a_moment_do() {
    let buffers = [(0, 5), (5, 9), (4, 6)].map(|(lower, upper)| Buffer { lower, upper, size: 10 });
    let problem = Problem::new(buffers[..2].to_vec()).expect("a sound problem");
    assert_eq!(verify(&problem, &Placement { offsets: vec![0, 0], height: 10 }), Ok(()));
    let problem = Problem::new(buffers.to_vec()).expect("a sound problem");
    let flaw = verify(&problem, &Placement { offsets: vec![0, 0, 9], height: 19 });
    assert_eq!(flaw, Err(Flaw::Overlap { buffer: 2, offset: 9, others: 1 }));
}
