//! One history under a scheduler that runs its threads in an order which follows from the seed.

use crate::history::{self, Outcome};
use crate::op::Op;
use crate::verdict::Finding;
use shuttle::scheduler::RandomScheduler;
use shuttle::{Config, MaxSteps, Runner};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError};

/// Bytes of each thread's stack.
const STACK: usize = 2 << 20;

/// Runs operations in the world of a seed.
pub(crate) fn run(seed: u64, ops: Vec<(usize, Op)>, trace: bool) -> Outcome {
    let mut config = Config::new();
    config.stack_size = STACK;
    config.max_steps = MaxSteps::None;
    // Which orders the processor may see is for loom.
    config.silence_warnings = true;
    let last = ops.last().map_or(0, |(n, _)| *n);
    let outcome = Arc::new(Mutex::new(None));
    let kept = Arc::clone(&outcome);
    let scheduler = RandomScheduler::new_from_seed(seed, 1);
    // Threads that wait for each other are a panic of the scheduler's.
    let ended = catch_unwind(AssertUnwindSafe(|| {
        Runner::new(scheduler, config).run(move || {
            let done = history::run_here(seed, ops.iter().copied(), trace);
            *kept.lock().unwrap_or_else(PoisonError::into_inner) = Some(done);
        });
    }));
    let done = outcome.lock().unwrap_or_else(PoisonError::into_inner).take();
    let stuck = || Finding { oracle: "threads", what: history::panicked() };
    let mut done = done.unwrap_or_else(|| Outcome { ops: 0, hash: 0, met: 0, finding: None });
    if ended.is_err() && done.finding.is_none() {
        done.finding = Some((last, stuck()));
    }
    done
}
