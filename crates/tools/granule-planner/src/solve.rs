//! The portfolio: bounds, greedy orders, better orders, exact search; and the verifier over all of it.

pub(crate) mod bounds;
mod core;
mod exact;
mod gaps;
mod greedy;
mod improve;
mod orders;
mod random;
mod sections;

use crate::problem::{Buffer, Placement, Problem, ProblemError};
use crate::solve::bounds::max_load;
use crate::solve::core::place_around_core;
use crate::solve::exact::{Answer, STACK, exact};
use crate::solve::greedy::{Fit, Timeline};
use crate::solve::improve::{Attempt, improve};
use crate::solve::orders::Key;
use crate::solve::random::Random;
use crate::solve::sections::components;
use crate::verify::{Flaw, verify};
use rayon::prelude::*;
use std::time::{Duration, Instant};

/// Which solvers may be used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Solver {
    /// All of them, as the problem needs.
    #[default]
    Auto,
    /// Greedy orders only: the quickest.
    Greedy,
    /// Greedy orders and better ones by trial.
    Improve,
    /// Exact search. It needs intervals (one stream, nothing that lives across a period's end), and without a
    /// capacity the other solvers to say where to begin.
    Exact,
}

/// What to look for and how long.
#[derive(Clone, Debug)]
pub struct Options {
    /// Be content with any height up to this. Without it: as low as possible.
    pub capacity: Option<u64>,
    /// When to stop with the best that was found; the greedy orders always run to their end. Without it an exact
    /// search ends when it has found a placement or been through all of them, which can take for ever.
    pub time_limit: Option<Duration>,
    /// Which solvers to use.
    pub solver: Solver,
    /// For orders that leave something to chance.
    pub seed: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self { capacity: None, time_limit: Some(Duration::from_secs(60)), solver: Solver::Auto, seed: 0 }
    }
}

/// A placement that the verifier has checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Solution {
    /// Where the buffers are.
    pub placement: Placement,
    /// No placement is lower than this.
    pub bound: u64,
    /// The solver that found it; where the problem falls apart in time, the one that had to do most.
    pub method: Method,
}

impl Solution {
    /// Whether no placement is lower.
    #[must_use]
    pub fn is_optimal(&self) -> bool {
        self.placement.height == self.bound
    }
}

/// How far the portfolio had to go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Method {
    /// A greedy order.
    Greedy,
    /// A greedy order, changed by trial.
    Improved,
    /// Exact search for the large buffers, a greedy order for the small ones.
    Core,
    /// Exact search.
    Exact,
}

impl Method {
    /// In words.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Greedy => "greedy order",
            Self::Improved => "improved order",
            Self::Core => "exact search for the large ones",
            Self::Exact => "exact search",
        }
    }
}

/// Why there is no solution.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SolveError {
    /// More is live at once than the capacity holds.
    #[error("{max_load} bytes are live at once; no placement fits into {capacity}")]
    Load {
        /// The most bytes live at once.
        max_load: u64,
        /// What was asked for.
        capacity: u64,
    },
    /// The exact search has been through all placements.
    #[error(
        "there is no placement that fits into {capacity} bytes, though no more than {max_load} are live at once"
    )]
    Impossible {
        /// The most bytes live at once.
        max_load: u64,
        /// What was asked for.
        capacity: u64,
    },
    /// Nothing that fits was found in time.
    #[error("no placement that fits into {capacity} bytes was found in time; the lowest one needs {height}")]
    Unknown {
        /// What was asked for.
        capacity: u64,
        /// The height of the best placement found; [`u64::MAX`] if there is none.
        height: u64,
    },
    /// The exact search was asked for something it cannot do.
    #[error("the exact search needs one stream and nothing that lives across the period's end")]
    NotIntervals,
    /// The threads of the search could not be started.
    #[error("no threads for the search: {0}")]
    Threads(String),
    /// A solver is wrong. This is a bug of this crate; nothing was returned that could do harm.
    #[error("a solver made a wrong placement, which is a bug; please report it: {0}")]
    Wrong(#[from] Flaw),
    /// As [`SolveError::Wrong`], for a part of the problem that is no problem.
    #[error("a part of the problem is wrong, which is a bug; please report it: {0}")]
    Part(#[from] ProblemError),
}

/// Buffers beyond which the exact search has no hope of ending.
const EXACT_BUFFERS: usize = 4096;
/// Buffers up to which every order and fit is tried; beyond, a pass takes seconds.
const SMALL: usize = 200_000;
/// Rounds without a lower height after which improvement stops.
const IDLE_ROUNDS: u32 = 200;

/// Finds places for all buffers, as low as possible or as low as asked for. Uses all cores; blocks for as long as
/// `options` allow, and longer only for the greedy orders.
///
/// # Errors
/// [`SolveError`]: the capacity is, or seems to be, too small; or the solver cannot do it.
pub fn solve(problem: &Problem, options: &Options) -> Result<Solution, SolveError> {
    let bound = max_load(problem);
    if let Some(capacity) = options.capacity
        && capacity < bound
    {
        return Err(SolveError::Load { max_load: bound, capacity });
    }
    if options.solver == Solver::Exact && !problem.is_interval() {
        return Err(SolveError::NotIntervals);
    }
    let threads = rayon::ThreadPoolBuilder::new().stack_size(STACK).build();
    let threads = threads.map_err(|error| SolveError::Threads(error.to_string()))?;
    let target = options.capacity.unwrap_or(bound);
    let deadline = options.time_limit.and_then(|limit| Instant::now().checked_add(limit));
    let (placement, method) = threads.install(|| parts(problem, options, target, deadline))?;
    if let Some(capacity) = options.capacity
        && placement.height > capacity
    {
        return Err(SolveError::Unknown { capacity, height: placement.height });
    }
    verify(problem, &placement)?;
    Ok(Solution { placement, bound, method })
}

/// Solves what shares no moment apart.
fn parts(
    problem: &Problem,
    options: &Options,
    target: u64,
    deadline: Option<Instant>,
) -> Result<(Placement, Method), SolveError> {
    if !problem.is_interval() {
        return portfolio(problem, options, target, deadline);
    }
    let groups = components(problem.buffers());
    let mut offsets = vec![0; problem.buffers().len()];
    let mut method = Method::Greedy;
    let mut target = target;
    for group in groups {
        let buffers: Vec<Buffer> = group.iter().map(|&index| problem.buffers()[index as usize]).collect();
        let (placement, by) = portfolio(&Problem::new(buffers)?, options, target, deadline)?;
        for (&index, offset) in group.iter().zip(placement.offsets) {
            offsets[index as usize] = offset;
        }
        method = method.max(by);
        // To be lower than another part already is gains nothing.
        target = target.max(placement.height);
    }
    Ok((Placement::new(problem, offsets), method))
}

/// Exact search for a capacity, and nothing else.
fn exact_only(
    problem: &Problem,
    capacity: u64,
    deadline: Option<Instant>,
    seed: u64,
) -> Result<(Placement, Method), SolveError> {
    match exact(problem.buffers(), capacity, deadline, seed) {
        Answer::Found(offsets) => Ok((Placement::new(problem, offsets), Method::Exact)),
        Answer::Impossible => Err(SolveError::Impossible { max_load: max_load(problem), capacity }),
        Answer::Unknown => Err(SolveError::Unknown { capacity, height: u64::MAX }),
    }
}

/// The solvers, the quick ones first, until one reaches the target.
fn portfolio(
    problem: &Problem,
    options: &Options,
    target: u64,
    deadline: Option<Instant>,
) -> Result<(Placement, Method), SolveError> {
    let max_load = max_load(problem);
    let impossible = || SolveError::Impossible { max_load, capacity: target };
    let buffers = problem.buffers();
    let search = |height, deadline| exact(buffers, height, deadline, options.seed);
    let found = |offsets| Ok((Placement::new(problem, offsets), Method::Exact));
    if options.solver == Solver::Exact && options.capacity.is_some() {
        return exact_only(problem, target, deadline, options.seed);
    }
    let timeline = Timeline::new(problem);
    let mut best = greedy(problem, &timeline, target, options.seed);
    let mut method = Method::Greedy;
    if best.placement.height <= target || options.solver == Solver::Greedy {
        return Ok((best.placement, method));
    }
    let exact_too =
        options.solver != Solver::Improve && problem.is_interval() && buffers.len() <= EXACT_BUFFERS;
    let mut least = max_load;
    if exact_too {
        // Some of the time is for what comes after.
        match search(target, share(deadline, 3)) {
            Answer::Found(offsets) => return found(offsets),
            Answer::Impossible if options.capacity.is_some() => return Err(impossible()),
            Answer::Impossible => least = target + 1,
            Answer::Unknown => {}
        }
    }
    let better = |start, until| improve(problem, &timeline, start, target, IDLE_ROUNDS, until, options.seed);
    let greedy_height = best.placement.height;
    best = better(best, if exact_too { share(deadline, 3) } else { deadline });
    if best.placement.height < greedy_height {
        method = Method::Improved;
    }
    if !exact_too || best.placement.height <= target {
        return Ok((best.placement, method));
    }
    let around = place_around_core(problem, &timeline, target, share(deadline, 2), options.seed)?
        .map(|around| better(around, share(deadline, 2)))
        .filter(|around| around.placement.height < best.placement.height);
    if let Some(around) = around {
        (best, method) = (around, Method::Core);
    }
    if best.placement.height <= target {
        return Ok((best.placement, method));
    }
    if options.capacity.is_none() {
        return Ok(squeeze(problem, (best.placement, method), least.max(target), deadline, search));
    }
    // Other random numbers than those that were tried above.
    match exact(buffers, target, deadline, options.seed.wrapping_add(1 << 32)) {
        Answer::Found(offsets) => found(offsets),
        Answer::Impossible => Err(impossible()),
        Answer::Unknown => Ok((best.placement, method)),
    }
}

/// Searches between what is known to be possible and what is not known to be impossible.
fn squeeze(
    problem: &Problem,
    (mut best, mut method): (Placement, Method),
    mut least: u64,
    deadline: Option<Instant>,
    search: impl Fn(u64, Option<Instant>) -> Answer,
) -> (Placement, Method) {
    while least < best.height {
        let height = least + (best.height - least) / 2;
        match search(height, share(deadline, 4)) {
            Answer::Found(offsets) => {
                best = Placement::new(problem, offsets);
                method = Method::Exact;
            }
            // What was not found in time counts as impossible, or there would be no end.
            Answer::Impossible | Answer::Unknown => least = height + 1,
        }
        if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
            break;
        }
    }
    (best, method)
}

/// A part of the time that is left.
fn share(deadline: Option<Instant>, parts: u32) -> Option<Instant> {
    let now = Instant::now();
    deadline.map(|deadline| now + deadline.saturating_duration_since(now) / parts)
}

/// The best of some greedy orders; those after the first few only if none of these reaches the target.
fn greedy(problem: &Problem, timeline: &Timeline, target: u64, seed: u64) -> Attempt {
    let keys = [Key::Size, Key::Area, Key::LoadArea, Key::Life, Key::Start, Key::End];
    let pairs = keys.chunks(2).flat_map(|keys| [Fit::First, Fit::Best].map(|fit| (keys, fit)));
    let choices = pairs.flat_map(|(keys, fit)| keys.iter().map(move |&key| (key, fit)));
    // A pass over many buffers takes seconds; the orders that are best as a rule come first.
    let (passes, at_a_time) = if problem.buffers().len() <= SMALL { (keys.len() * 2, 4) } else { (4, 2) };
    let choices: Vec<(Key, Fit)> = choices.take(passes).collect();
    let mut best: Option<Attempt> = None;
    for some in choices.chunks(at_a_time) {
        let attempts: Vec<Attempt> = some
            .par_iter()
            .map(|&(key, fit)| {
                let order = key.order(problem.buffers(), 0.0, &mut Random::new(seed));
                Attempt::new(problem, timeline, order, fit)
            })
            .collect();
        best = best.into_iter().chain(attempts).min_by_key(|attempt| attempt.placement.height);
        if best.as_ref().is_some_and(|best| best.placement.height <= target) {
            break;
        }
    }
    best.unwrap_or_else(|| Attempt::new(problem, timeline, Vec::new(), Fit::First))
}
