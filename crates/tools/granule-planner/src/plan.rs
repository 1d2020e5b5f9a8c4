//! A plan: for every request of a pattern, in order, the place it gets. What a plan names is content (size, stream,
//! which of several equal requests), never an address or an event number, so it can be followed in another run.

use crate::pattern::{Occurrence, Pattern};
use crate::problem::{Placement, ProblemError};
use crate::solve::{Options, Solution, SolveError, solve};
use crate::verify::{Flaw, verify};
use rustc_hash::FxHashMap;

/// One request and its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// Bytes as requested.
    pub size: u64,
    /// The stream it is for; 0 is the default stream, the others are numbered as they first appear.
    pub stream: u32,
    /// How many equal requests (size and stream) come before it in the pattern.
    pub nth: u32,
    /// Where it goes, from the beginning of the plan's memory. `None`: the block is held for too long to come back
    /// to the same place each time, and is left to the allocator.
    pub offset: Option<u64>,
    /// For every stream how many requests later it may use the bytes again; empty if there is no offset.
    pub(crate) lives: Vec<u64>,
}

impl Step {
    /// How many requests later `stream` may use the bytes again; 0 for a step without an offset.
    #[must_use]
    pub fn life_on(&self, stream: u32) -> u64 {
        self.lives.get(stream as usize).copied().unwrap_or(0)
    }
}

/// Places for the requests of an iteration, or of a whole run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// What the program is called.
    pub workload: String,
    /// The iteration that it was made from; `None` for the whole trace.
    pub iteration: Option<u64>,
    /// Whether the first step is expected behind the last one again.
    pub repeats: bool,
    /// Offsets are multiples of this.
    pub alignment: u64,
    /// Whether a stream that gets bytes which another one used last must wait for it; see
    /// [`CrossStream::Waits`](crate::CrossStream::Waits).
    pub waits: bool,
    /// How many streams lifetimes are known for.
    pub streams: usize,
    /// The most planned bytes that are held at once: no plan is lower.
    pub max_load: u64,
    /// Bytes that the plan's memory has.
    pub height: u64,
    /// Bytes held throughout the pattern, which are not in the plan.
    pub resident_bytes: u64,
    pub(crate) steps: Vec<Step>,
}

/// Why there is no plan.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// The requests make no problem.
    #[error("{0}")]
    Problem(#[from] ProblemError),
    /// No placement was found.
    #[error("{0}")]
    Solve(#[from] SolveError),
}

/// Why something read from a file is no plan.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadPlan {
    /// There is no step.
    #[error("it has no steps")]
    Empty,
    /// A step contradicts others or the rest of the plan.
    #[error("step {step}: {what}")]
    Step {
        /// Its index.
        step: usize,
        /// What is wrong.
        what: &'static str,
    },
    /// The steps are not those it was written with.
    #[error(
        "its requests were changed: they have the pattern {found:016x}, and it was written with {written:016x}"
    )]
    Pattern {
        /// Of the steps.
        found: u64,
        /// In the file.
        written: u64,
    },
    /// Lifetimes that cannot be.
    #[error("{0}")]
    Problem(#[from] ProblemError),
    /// Two blocks would share bytes.
    #[error("{0}")]
    Flaw(#[from] Flaw),
}

impl Plan {
    /// Makes a plan for a pattern. Blocks as [`solve`].
    ///
    /// # Errors
    /// [`PlanError`]: no placement was found.
    pub fn make(
        workload: &str,
        pattern: &Pattern,
        alignment: u64,
        waits: bool,
        options: &Options,
    ) -> Result<(Self, Solution), PlanError> {
        let planned = pattern.problem(alignment)?;
        let solution = solve(&planned.problem, options)?;
        let mut steps = number(&pattern.requests);
        for (&request, &offset) in planned.requests.iter().zip(&solution.placement.offsets) {
            steps[request].offset = Some(offset);
        }
        let plan = Self {
            workload: workload.to_owned(),
            iteration: pattern.iteration,
            repeats: pattern.repeats,
            alignment,
            waits,
            streams: pattern.streams,
            max_load: solution.bound,
            height: solution.placement.height,
            resident_bytes: pattern.resident_bytes,
            steps,
        };
        Ok((plan, solution))
    }

    /// The steps in order.
    #[must_use]
    pub fn steps(&self) -> &[Step] {
        &self.steps
    }

    /// A hash of the sizes and streams in order: equal patterns have equal ones, on every machine.
    #[must_use]
    pub fn pattern(&self) -> u64 {
        self.steps.iter().fold(0, |hash, step| mix(hash ^ request_hash(step.size, step.stream)))
    }

    /// For every step the planned bytes that are held just before it, rounded up to the alignment, as the stream of each
    /// block sees it.
    #[must_use]
    pub fn loads(&self) -> Vec<u64> {
        let steps = self.steps.len();
        // What begins to be held, and what ends, behind each step; twice around, so that blocks held across the end of the
        // pattern count at its beginning.
        let mut changes = vec![0_i128; 2 * steps + 1];
        for (at, step) in self.steps.iter().enumerate().filter(|(_, step)| step.offset.is_some()) {
            let life = usize::try_from(step.life_on(step.stream)).unwrap_or(steps).min(steps);
            let size = i128::from(step.size.next_multiple_of(self.alignment.max(1)));
            changes[at + 1] += size;
            // It is free when the request that ends its life is made.
            changes[at + life.max(1)] -= size;
        }
        let held = changes.iter().scan(0_i128, |held, change| {
            *held += change;
            Some(*held)
        });
        let held: Vec<u64> = held.map(|held| u64::try_from(held).unwrap_or(0)).collect();
        let around = |at: usize| if self.repeats { held[at + steps] } else { 0 };
        (0..steps).map(|at| held[at] + around(at)).collect()
    }

    /// The stream for which most planned bytes are asked.
    #[must_use]
    pub fn main_stream(&self) -> u32 {
        let mut bytes: FxHashMap<u32, u64> = FxHashMap::default();
        for step in self.steps.iter().filter(|step| step.offset.is_some()) {
            *bytes.entry(step.stream).or_default() += step.size;
        }
        bytes
            .into_iter()
            .max_by_key(|&(stream, bytes)| (bytes, std::cmp::Reverse(stream)))
            .map_or(0, |(stream, _)| stream)
    }

    /// Checks everything that a file could have wrong, the placement by the verifier.
    pub(crate) fn check(&self) -> Result<(), BadPlan> {
        if self.steps.is_empty() {
            return Err(BadPlan::Empty);
        }
        let mut seen: FxHashMap<(u64, u32), u32> = FxHashMap::default();
        let mut offsets = Vec::new();
        for (step, what) in self.steps.iter().enumerate() {
            let bad = |what| Err(BadPlan::Step { step, what });
            let count = seen.entry((what.size, what.stream)).or_default();
            if what.nth != std::mem::replace(count, *count + 1) {
                return bad("it is not the n-th of its kind that it says it is");
            }
            if what.stream as usize >= self.streams {
                return bad("its stream is beyond those the plan has");
            }
            let Some(offset) = what.offset else {
                if what.lives.is_empty() {
                    continue;
                }
                return bad("it has a lifetime and no offset");
            };
            if what.lives.len() != self.streams {
                return bad("it has not one lifetime per stream");
            }
            if what.lives.iter().any(|&life| life > self.steps.len() as u64) {
                return bad("it lives for longer than the plan");
            }
            if !offset.is_multiple_of(self.alignment.max(1)) {
                return bad("its offset is not aligned");
            }
            offsets.push(offset);
        }
        let held =
            |step: &Step| Occurrence { size: step.size, stream: step.stream, lives: step.lives.clone() };
        let pattern = Pattern {
            iteration: self.iteration,
            repeats: self.repeats,
            resident_bytes: self.resident_bytes,
            streams: self.streams,
            requests: self.steps.iter().map(held).collect(),
        };
        let problem = pattern.problem(self.alignment)?.problem;
        verify(&problem, &Placement { offsets, height: self.height })?;
        Ok(())
    }
}

/// Steps without offsets.
fn number(requests: &[Occurrence]) -> Vec<Step> {
    let mut seen: FxHashMap<(u64, u32), u32> = FxHashMap::default();
    let mut step = |held: &Occurrence| {
        let count = seen.entry((held.size, held.stream)).or_default();
        let nth = std::mem::replace(count, *count + 1);
        Step { size: held.size, stream: held.stream, nth, offset: None, lives: held.lives.clone() }
    };
    requests.iter().map(&mut step).collect()
}

/// A request as a number.
pub(crate) fn request_hash(size: u64, stream: u32) -> u64 {
    mix(size.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ u64::from(stream).wrapping_add(0x632b_e59b_d9b4_e019))
}

fn mix(value: u64) -> u64 {
    let mixed = (value ^ (value >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93);
    let mixed = (mixed ^ (mixed >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93);
    mixed ^ (mixed >> 32)
}
