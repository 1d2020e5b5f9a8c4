//! Better orders by trial: what came out too high is placed earlier next time.

use crate::problem::{Placement, Problem};
use crate::solve::greedy::{Fit, Timeline, place};
use crate::solve::random::Random;
use rayon::prelude::*;
use std::time::{Duration, Instant};

/// An order and what it leads to.
#[derive(Clone, Debug)]
pub(crate) struct Attempt {
    pub(crate) order: Vec<u32>,
    pub(crate) fit: Fit,
    pub(crate) placement: Placement,
}

impl Attempt {
    pub(crate) fn new(problem: &Problem, timeline: &Timeline, order: Vec<u32>, fit: Fit) -> Self {
        let placement = Placement::new(problem, place(problem, timeline, &order, fit));
        Self { order, fit, placement }
    }
}

/// Variants that are tried at a time; more than there are cores, so that the result does not depend on these.
const BATCH: u64 = 4;

/// Changes the order until the height is at most `target`, `rounds` brought nothing, or it is too late.
pub(crate) fn improve(
    problem: &Problem,
    timeline: &Timeline,
    start: Attempt,
    target: u64,
    rounds: u32,
    deadline: Option<Instant>,
    seed: u64,
) -> Attempt {
    let mut best = start;
    let mut idle = 0;
    let mut round_took = Duration::ZERO;
    for round in 0u64.. {
        let began = Instant::now();
        let late = deadline.is_some_and(|deadline| began + round_took >= deadline);
        if best.placement.height <= target || idle >= rounds || late {
            break;
        }
        let attempts: Vec<Attempt> = (0..BATCH)
            .into_par_iter()
            .map(|variant| {
                let mut random = Random::new(seed ^ (round * BATCH + variant));
                let order = reorder(problem, &best, target, &mut random);
                Attempt::new(problem, timeline, order, best.fit)
            })
            .collect();
        idle += 1;
        if let Some(found) = attempts.into_iter().min_by_key(|attempt| attempt.placement.height)
            && found.placement.height <= best.placement.height
        {
            if found.placement.height < best.placement.height {
                idle = 0;
            }
            best = found;
        }
        round_took = began.elapsed();
    }
    best
}

/// Moves some of the buffers that reach beyond a height to an earlier rank. The height is chosen between the target
/// and where the placement ends, so that now the very highest are moved, now all that are too high.
fn reorder(problem: &Problem, attempt: &Attempt, target: u64, random: &mut Random) -> Vec<u32> {
    let placement = &attempt.placement;
    let over = placement.height - target;
    #[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    let line = target + (over as f64 * random.fraction()) as u64;
    let reach = random.fraction();
    let mut keyed: Vec<(f64, u32)> = attempt
        .order
        .iter()
        .zip(0u32..)
        .map(|(&index, rank)| {
            let buffer = index as usize;
            let top = placement.offsets[buffer] + problem.buffers()[buffer].size;
            let rank = f64::from(rank);
            let moved = top > line && random.below(4) > 0;
            (if moved { rank * reach * random.fraction() } else { rank }, index)
        })
        .collect();
    keyed.sort_by(|a, b| a.0.total_cmp(&b.0));
    keyed.into_iter().map(|(_, index)| index).collect()
}
