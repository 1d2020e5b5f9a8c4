//! Exact search for the large buffers only; the small ones go into the gaps. Many recorded programs have thousands of
//! small buffers that hide a core of a few hundred which decides the height.

use crate::problem::{Buffer, Problem, ProblemError};
use crate::solve::bounds::max_load;
use crate::solve::exact::{Answer, exact};
use crate::solve::greedy::{Fit, Timeline};
use crate::solve::improve::Attempt;
use std::time::Instant;

/// How much of the height the buffers that are left out may need at most, as one part in so many.
const LEFT_OUT: [u64; 4] = [1000, 200, 50, 15];

/// The best placement made around an exact one of the large buffers; `None` if none of these was found.
pub(crate) fn place_around_core(
    problem: &Problem,
    timeline: &Timeline,
    target: u64,
    deadline: Option<Instant>,
    seed: u64,
) -> Result<Option<Attempt>, ProblemError> {
    let buffers = problem.buffers();
    // The largest first.
    let mut order: Vec<u32> = (0u32..).take(buffers.len()).collect();
    order.sort_by_key(|&index| std::cmp::Reverse(buffers[index as usize].size));
    let mut best: Option<Attempt> = None;
    for (index, part) in (0u32..).zip(LEFT_OUT) {
        let large = large_ones(buffers, &order, target / part)?;
        let chosen: Vec<Buffer> = order[..large].iter().map(|&index| buffers[index as usize]).collect();
        let until = deadline.map(|deadline| {
            let now = Instant::now();
            now + deadline.saturating_duration_since(now) / (LEFT_OUT.len() as u32 - index)
        });
        let Answer::Found(offsets) = exact(&chosen, target, until, seed) else { continue };
        // From the bottom up, each finds its place of the exact placement free, or one below it.
        let mut placed: Vec<(u64, u32)> = offsets.into_iter().zip(order[..large].iter().copied()).collect();
        placed.sort_unstable();
        let rest = order[large..].iter().copied();
        let order = placed.into_iter().map(|(_, index)| index).chain(rest).collect();
        let attempt = Attempt::new(problem, timeline, order, Fit::First);
        best = best.into_iter().chain([attempt]).min_by_key(|attempt| attempt.placement.height);
        if best.as_ref().is_some_and(|best| best.placement.height <= target) {
            break;
        }
    }
    Ok(best)
}

/// How many of the largest there must be for all others never to need more than `room` at once.
fn large_ones(buffers: &[Buffer], order: &[u32], room: u64) -> Result<usize, ProblemError> {
    let (mut enough, mut too_few) = (order.len(), 0);
    while too_few < enough {
        let middle = too_few + (enough - too_few) / 2;
        let rest = order[middle..].iter().map(|&index| buffers[index as usize]).collect();
        if max_load(&Problem::new(rest)?) <= room {
            enough = middle;
        } else {
            too_few = middle + 1;
        }
    }
    Ok(enough)
}
