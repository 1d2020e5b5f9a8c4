//! One seed, from the first operation to the last.

use crate::op::{Dealer, Op};
use crate::oracle;
use crate::threads;
use crate::verdict::{Finding, caught};
use crate::world::{Process, World};
use alloc_core::steps;

/// How many operations pass between two quiet points.
const QUIET: usize = 64;

/// What became of a history.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Operations done.
    pub ops: usize,
    /// What they saw: equal for equal histories.
    pub hash: u64,
    /// Features that were in use, one bit each.
    pub met: u64,
    /// What was found, and at which operation.
    pub finding: Option<(usize, Finding)>,
}

/// The operations of a seed.
#[must_use]
pub fn of_seed(seed: u64, ops: usize) -> Vec<Op> {
    let mut dealer = Dealer::new(seed);
    (0..ops).map(|_| dealer.deal()).collect()
}

/// Runs operations, each with its number, in the world of a seed.
#[must_use]
pub fn run(seed: u64, ops: impl IntoIterator<Item = (usize, Op)>, trace: bool) -> Outcome {
    let ops: Vec<_> = ops.into_iter().collect();
    let last = ops.last().map_or(0, |(n, _)| *n);
    let stuck = |found| Outcome { ops: 0, hash: 0, met: 0, finding: Some((last, found)) };
    threads::in_order(seed, move || run_here(seed, ops.iter().copied(), trace)).unwrap_or_else(stuck)
}

fn run_here(seed: u64, ops: impl IntoIterator<Item = (usize, Op)>, trace: bool) -> Outcome {
    let mut outcome = Outcome { ops: 0, hash: 0, met: 0, finding: None };
    let mut last = 0;
    let world = World::new(seed);
    for (n, op) in ops {
        last = n;
        if trace {
            println!("{n}: {op:?}");
        }
        let done = caught(|| {
            world.state().begin(n);
            let (calls, steps) = (Process::calls(&world.processes), steps::taken());
            world.apply(&op);
            oracle::always(&world, Process::calls(&world.processes) - calls, steps::taken() - steps);
            if outcome.ops % QUIET == QUIET - 1 {
                oracle::quiet(&world);
                // Where threads run in chosen orders, no fork is noticed.
                #[cfg(not(shuttle))]
                crate::fork::Child::look(&world, seed, n / QUIET);
                #[cfg(shuttle)]
                crate::together::Program::run(&world, seed, n);
            }
        });
        outcome.ops += 1;
        let found = done.err().or_else(|| world.verdict.found());
        if let Some(found) = found {
            outcome.finding = Some((n, found));
            (outcome.hash, outcome.met) = (world.state().hash, world.met.bits());
            // What it holds may be broken: its end would show nothing, or never come.
            std::mem::forget(world);
            return outcome;
        }
    }
    let verdict = world.verdict.clone();
    let ended = caught(|| {
        let world = oracle::end(world);
        let seen = (world.state().hash, world.met.bits());
        if world.verdict.found().is_some() {
            std::mem::forget(world);
        } else {
            oracle::close(world);
        }
        seen
    });
    let found = match ended {
        Ok(seen) => {
            (outcome.hash, outcome.met) = seen;
            verdict.found()
        }
        Err(found) => Some(found),
    };
    outcome.finding = found.map(|found| (last + 1, found));
    outcome
}

/// Runs a history that was found and written down.
///
/// # Panics
/// Where it finds something.
pub fn replay(seed: u64, ops: &[Op]) {
    let outcome = run(seed, ops.iter().copied().enumerate(), false);
    if let Some((op, Finding { oracle, what })) = outcome.finding {
        let op = ops.get(op);
        panic!("{oracle} at {op:?}: {what}");
    }
}
