//! The figures of a replay that follows a plan.

use super::DEVICE;
use super::follow::{Follower, Peaks, PlanCounts};
use alloc_core::CachingAllocator;
use alloc_core::allocator::StatScope;
use alloc_core::error::Result;
use granule_planner::Plan;
use granule_snapshot::trace::{Event, Trace};
use serde::Serialize;
use std::collections::HashMap;
use std::sync::Arc;

/// What a plan did for a replay. Bytes unless said otherwise.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct PlanFigures {
    /// The workload that it was made for.
    pub workload: String,
    /// The iteration that it was made from; `None` for a whole run.
    pub iteration: Option<u64>,
    /// The hash of its requests, in hexadecimal.
    pub pattern: String,
    /// Its requests.
    pub requests: usize,
    /// Requests that it takes to find the program's place in it.
    pub window: usize,
    /// The memory that it is for.
    pub height: u64,
    /// The most of that memory that is in use at once.
    pub max_load: u64,
    /// The most of that memory that was free in one piece when the plan was laid out.
    pub region_bytes: u64,
    /// Memory that was taken then, because the pass that began would need it.
    pub taken_bytes: u64,
    /// How often the plan was laid out, tries that failed included.
    pub layouts: u64,
    /// How often the program's place in it was found.
    pub entries: u64,
    /// How often the whole plan was met, request for request.
    pub passes: u64,
    /// What became of the program's requests.
    #[serde(flatten)]
    pub counts: PlanCounts,
    /// The iterations that make the plan's requests, in its order.
    pub equal_iterations: Vec<EqualIteration>,
    /// Most of `reserved_peak` / `requested_peak_until` among these; `None` if there are none.
    pub reserved_over_requested: Option<f64>,
}

/// An iteration that makes a plan's requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct EqualIteration {
    /// Its number in the trace; `None` for the whole run.
    pub iteration: Option<u64>,
    /// Most requested bytes live at once in it.
    pub requested_peak: u64,
    /// Most requested bytes live at once from the beginning to its end: an allocator that keeps its memory holds no less.
    pub requested_peak_until: u64,
    /// Most reserved bytes in it.
    pub reserved_peak: u64,
}

impl PlanFigures {
    /// Requests of the program.
    #[must_use]
    pub fn program_requests(&self) -> u64 {
        let PlanCounts {
            placed,
            occupied,
            not_laid_out,
            small,
            other_streams,
            unplanned,
            mismatches,
            outside,
        } = self.counts;
        placed + occupied + not_laid_out + small + other_streams + unplanned + mismatches + outside
    }
}

/// A plan that a replay follows, and the figures of the iterations equal to it.
pub(super) struct Planned<'a> {
    allocator: &'a Arc<CachingAllocator>,
    pub(super) follower: Follower<'a>,
    equal: Vec<EqualIteration>,
    /// Which of them is under way.
    current: Option<(usize, StatScope)>,
}

impl<'a> Planned<'a> {
    /// At the beginning of a trace.
    pub(super) fn new(plan: &Arc<Plan>, trace: &Trace, allocator: &'a Arc<CachingAllocator>) -> Result<Self> {
        let follower = Follower::new(Arc::clone(plan), allocator)?;
        let equal = equal_iterations(trace, plan);
        let mut planned = Self { allocator, follower, equal, current: None };
        if plan.iteration.is_none() {
            planned.begin(None)?;
        }
        Ok(planned)
    }

    /// An iteration begins, and the one before it ends.
    pub(super) fn mark(&mut self, iteration: u64) -> Result<()> {
        if self.follower.plan().iteration.is_none() {
            return Ok(());
        }
        self.end()?;
        self.begin(Some(iteration))
    }

    fn begin(&mut self, iteration: Option<u64>) -> Result<()> {
        if let Some(index) = self.equal.iter().position(|equal| equal.iteration == iteration) {
            self.current = Some((index, StatScope::begin(self.allocator, DEVICE)?));
        }
        Ok(())
    }

    fn end(&mut self) -> Result<()> {
        if let Some((index, scope)) = self.current.take() {
            self.equal[index].reserved_peak = scope.finish()?.reserved_bytes.peak.unsigned_abs();
        }
        Ok(())
    }

    /// The figures of the run, which is over, and the program's own peaks.
    pub(super) fn figures(mut self) -> Result<(PlanFigures, Peaks)> {
        self.end()?;
        let peaks = self.follower.pause()?;
        // What was not reached, because the replay ended early, has no figures.
        self.equal.retain(|equal| equal.reserved_peak > 0);
        #[allow(clippy::cast_precision_loss)]
        let ratio =
            |equal: &EqualIteration| equal.reserved_peak as f64 / equal.requested_peak_until.max(1) as f64;
        let Self { follower, equal, .. } = self;
        let plan = follower.plan();
        let figures = PlanFigures {
            workload: plan.workload.clone(),
            iteration: plan.iteration,
            pattern: format!("{:016x}", plan.pattern()),
            requests: plan.steps().len(),
            window: follower.window(),
            height: plan.height,
            max_load: plan.max_load,
            region_bytes: follower.covered,
            taken_bytes: follower.taken,
            layouts: follower.layouts,
            entries: follower.cursor_counts().entries,
            passes: follower.passes,
            counts: follower.counts,
            reserved_over_requested: equal.iter().map(ratio).reduce(f64::max),
            equal_iterations: equal,
        };
        Ok((figures, peaks))
    }
}

/// The iterations of a trace that make a plan's requests in its order, or the whole trace if that is what it was made from;
/// without what only a replay can tell.
fn equal_iterations(trace: &Trace, plan: &Plan) -> Vec<EqualIteration> {
    let mut found = Vec::new();
    let mut sizes = HashMap::new();
    let (mut live, mut peak_until) = (0_u64, 0_u64);
    // The iteration under way: how many requests it made, as long as they are the plan's.
    let mut current = plan.iteration.is_none().then_some((EqualIteration::default(), Some(0)));
    let end = |current: Option<(EqualIteration, Option<usize>)>, found: &mut Vec<EqualIteration>| {
        found.extend(current.filter(|(_, same)| *same == Some(plan.steps().len())).map(|(equal, _)| equal));
    };
    for event in &trace.events {
        match *event {
            Event::Alloc { id, size, stream } => {
                sizes.insert(id, size);
                live = live.saturating_add(size);
                peak_until = peak_until.max(live);
                if let Some((equal, same)) = &mut current {
                    equal.requested_peak = equal.requested_peak.max(live);
                    equal.requested_peak_until = peak_until;
                    let expected = same.and_then(|at| plan.steps().get(at));
                    let is_it = expected.is_some_and(|step| (step.size, step.stream) == (size, stream));
                    *same = same.filter(|_| is_it).map(|at| at + 1);
                }
            }
            Event::Free { id } | Event::Refused { id, .. } => {
                live = live.saturating_sub(sizes.remove(&id).unwrap_or(0));
            }
            Event::Iteration { n } if plan.iteration.is_some() => {
                end(current.take(), &mut found);
                let equal = EqualIteration {
                    iteration: Some(n),
                    requested_peak: live,
                    requested_peak_until: peak_until,
                    reserved_peak: 0,
                };
                current = Some((equal, Some(0)));
            }
            _ => {}
        }
    }
    end(current, &mut found);
    found
}
