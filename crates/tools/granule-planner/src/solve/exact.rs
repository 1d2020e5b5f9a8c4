//! Exact search: is there a placement of an interval problem below a given height?
//!
//! Searches with different orders take turns, spread over the cores. Most turns are short and a few are long: a search
//! that began badly seldom ends, another order often does at once. Which of them wins does not depend on how many cores
//! there are.

mod partial;
mod search;

use crate::problem::Buffer;
use crate::solve::bounds::common_divisor;
use crate::solve::orders::Key;
use crate::solve::random::Random;
use crate::solve::sections::Sections;
use partial::Shape;
use rayon::prelude::*;
use search::{Limits, Style, Verdict, search};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Instant;

/// The answer of an exact search.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// An offset for every buffer.
    Found(Vec<u64>),
    /// No placement is that low.
    Impossible,
    /// Time ran out.
    Unknown,
}

/// Nodes that a search gets for every buffer in the shortest turns: little more than it takes to place each once. A
/// hard instance is seldom found in the hundredfold, and often by the next try of the same length.
const LEAST_NODES: u64 = 2;

/// Bytes of stack that [`exact`] needs: its searches call themselves for every buffer they place.
pub(crate) const STACK: usize = 256 << 20;

/// Orders that a turn tries, and with which way to choose. Loads are there twice: on the hardest instance known, one
/// try in eleven with that order succeeds at once, and no other order ever does.
const TURN: [(Key, [bool; 2]); 5] = [
    (Key::LoadArea, [true, true]),
    (Key::Life, [false, false]),
    (Key::Size, [false, false]),
    (Key::LoadArea, [true, true]),
    (Key::Life, [true, true]),
];

/// Looks for a placement of these buffers, which are joined in time, below `capacity`. `deadline`: when to give up.
pub(crate) fn exact(buffers: &[Buffer], capacity: u64, deadline: Option<Instant>, seed: u64) -> Answer {
    let unit = common_divisor(buffers.iter().map(|buffer| buffer.size)).max(1);
    let shape = Shape {
        sections: Sections::new(buffers),
        sizes: buffers.iter().map(|buffer| buffer.size / unit).collect(),
        capacity: capacity / unit,
    };
    for turn in 0.. {
        let nodes = length(turn).saturating_mul(LEAST_NODES * (buffers.len() as u64 + 64));
        match take_turn(&shape, buffers, nodes, turn, seed, deadline) {
            Verdict::Found(offsets) => {
                return Answer::Found(offsets.iter().map(|offset| offset * unit).collect());
            }
            Verdict::Impossible => return Answer::Impossible,
            Verdict::Stopped if deadline.is_some_and(|deadline| Instant::now() >= deadline) => break,
            Verdict::Stopped => {}
        }
    }
    Answer::Unknown
}

/// How many times the shortest turn's nodes a turn gets, by Luby's sequence: 1 1 2 1 1 2 4 1 1 2 1 1 2 4 8 and so on.
/// Each length gets as much time as any other, so none that would do is missed for long.
fn length(turn: u64) -> u64 {
    let mut rest = turn + 1;
    while !(rest + 1).is_power_of_two() {
        rest -= (1 << rest.ilog2()) - 1;
    }
    rest.div_ceil(2)
}

/// Every style searches with that many nodes. The first in the list that comes to an end wins: those before it are
/// waited for, those after it are stopped.
fn take_turn(
    shape: &Shape,
    buffers: &[Buffer],
    nodes: u64,
    turn: u64,
    seed: u64,
    deadline: Option<Instant>,
) -> Verdict {
    let stops: Vec<AtomicBool> = TURN.iter().map(|_| AtomicBool::new(false)).collect();
    let winner = AtomicUsize::new(usize::MAX);
    let verdicts: Vec<Verdict> = TURN
        .par_iter()
        .enumerate()
        .map(|(index, &(key, [learns, releases]))| {
            let late = deadline.is_some_and(|deadline| Instant::now() >= deadline);
            if late || winner.load(Ordering::Relaxed) < index {
                return Verdict::Stopped;
            }
            let mut random = Random::new(seed ^ (turn << 8) ^ index as u64);
            // The first turn follows the orders as they are, later ones stray.
            let noise = if turn == 0 { 0.0 } else { 0.25 };
            let ranks = key.ranks(buffers, noise, &mut random);
            let style = Style { ranks, learns, releases };
            let verdict = search(shape, &style, Limits { nodes, deadline, stop: &stops[index] });
            if verdict != Verdict::Stopped {
                winner.fetch_min(index, Ordering::Relaxed);
                stops[index + 1..].iter().for_each(|stop| stop.store(true, Ordering::Relaxed));
            }
            verdict
        })
        .collect();
    verdicts.into_iter().find(|verdict| *verdict != Verdict::Stopped).unwrap_or(Verdict::Stopped)
}

#[cfg(test)]
mod tests {
    use super::length;

    #[test]
    fn every_length_of_turn_gets_as_much_time_as_any_other() {
        let lengths: Vec<u64> = (0..15).map(length).collect();
        assert_eq!(lengths, [1, 1, 2, 1, 1, 2, 4, 1, 1, 2, 1, 1, 2, 4, 8]);
    }
}
