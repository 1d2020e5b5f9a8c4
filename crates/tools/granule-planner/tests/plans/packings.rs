//! Hard problems by seed, of the nature of the published ones: 100 to 500 buffers that fill a rectangle of time and
//! addresses wholly or nearly, so that a placement exists and few others do.
//!
//! Even seeds are for whoever changes the solvers to look at; odd ones only judge.

use crate::common::{Dice, cut, overlaps};
use granule_planner::{Buffer, Options, Problem, Solver, solve};
use std::time::{Duration, Instant};

/// Units of time and of addresses; few, so that some sizes and lives are equal as they are in programs.
const UNITS: u64 = 1024;
/// What the buffers of every packing fit in.
pub(crate) const CAPACITY: u64 = UNITS * UNITS;

/// By how many percent half of a packing's buffers are worn at most.
const WEAR: [u64; 4] = [0, 8, 20, 40];

/// Buffers that can be placed within [`CAPACITY`].
pub(crate) fn packing(seed: u64) -> Vec<Buffer> {
    let mut dice = Dice(seed ^ 0x5eed);
    // The first numbers of neighbouring seeds are alike.
    (0..8).for_each(|_| {
        dice.below(2);
    });
    let count = 100 + 50 * dice.below(9) as usize;
    let wear = WEAR[dice.below(WEAR.len() as u64) as usize];
    let mut buffers = cut(count, UNITS, UNITS, dice.below(1 << 30));
    for buffer in &mut buffers {
        wear_off(buffer, wear, &mut dice);
        buffer.size *= UNITS;
    }
    buffers
}

/// Takes something of a buffer's size, of its life's beginning or of its end; of every second one nothing.
fn wear_off(buffer: &mut Buffer, percent: u64, dice: &mut Dice) {
    let mut part = |whole: u64| dice.below(whole * percent / 100 + 1);
    let (size, life) = (part(buffer.size), part(buffer.upper - buffer.lower));
    match dice.below(6) {
        0 => buffer.size -= size,
        1 => buffer.lower += life,
        2 => buffer.upper -= life,
        _ => {}
    }
}

/// Seeds whose packings are placed in few nodes.
const QUICK: [u64; 8] = [6, 8, 20, 46, 50, 58, 70, 90];

fn is_placed(seed: u64, limit: Option<Duration>) -> bool {
    let problem = Problem::new(packing(seed)).expect("a sound problem");
    let options = Options { capacity: Some(CAPACITY), time_limit: limit, solver: Solver::Exact, seed: 0 };
    let Ok(solution) = solve(&problem, &options) else { return false };
    assert_eq!(overlaps(&problem, &solution.placement.offsets), [], "{seed}");
    solution.placement.height <= CAPACITY
}

#[test]
fn packings_are_placed_at_their_capacity() {
    for seed in QUICK {
        assert!(is_placed(seed, None), "{seed}");
    }
}

#[test]
#[ignore = "two minutes of figures for docs/planner.md; run it alone, with optimisation"]
fn how_many_packings_of_the_judging_half_are_placed_in_a_second() {
    let seeds: Vec<u64> = (1..120).step_by(2).collect();
    let placed = seeds.iter().filter(|&&seed| is_placed(seed, Some(Duration::from_secs(1)))).count();
    println!("{placed} of {} placed", seeds.len());
}

/// A training run of `steps` steps: a layer's outputs live from its forward pass to its backward pass, the workspaces of both only
/// for a moment, and its gradient until the step's end.
fn training(steps: u64, layers: u64, seed: u64) -> Vec<Buffer> {
    let mut dice = Dice(seed);
    let widths: Vec<u64> = (0..layers).map(|_| 512 * (1 + dice.below(2000))).collect();
    let length = 8 * layers;
    let mut buffers = Vec::new();
    for start in (0..steps).map(|step| step * length) {
        for (layer, &width) in (0u64..).zip(&widths) {
            let (forward, backward) = (start + 4 * layer, start + length - 4 * (layer + 1));
            let mut live = |lower, upper, size| buffers.push(Buffer { lower, upper, size });
            live(forward, backward + 3, width);
            live(forward + 1, forward + 3, width * 2);
            live(forward + 2, backward + 2, 512 * (1 + dice.below(64)));
            live(backward, backward + 2, width * 3);
            live(backward + 1, start + length, width / 4 + 512);
        }
    }
    buffers
}

#[test]
#[ignore = "a million buffers: figures for docs/planner.md; run it alone, with optimisation"]
fn a_million_buffers_are_placed_within_a_percent_of_what_is_live_at_once() {
    let problem = Problem::new(training(2000, 100, 1)).expect("a sound problem");
    assert_eq!(problem.buffers().len(), 1_000_000);
    let start = Instant::now();
    let solution = solve(&problem, &Options::default()).expect("no capacity");
    println!("{} over {} in {:?}", solution.placement.height, solution.bound, start.elapsed());
    assert!(solution.placement.height * 100 <= solution.bound * 101);
    assert!(start.elapsed() <= Duration::from_secs(60));
}
