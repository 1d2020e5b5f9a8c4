//! A plan, followed under the live allocator.
//!
//! A plan that repeats is laid over memory that the allocator has free: as much of that as can be had in one piece is requested
//! and freed at once, which leaves an address. What lies there is free memory like any other, but while it is free a request
//! can have its place in it. Memory is taken only where the pass that begins would need more than is held, and no more than that.
//! Whoever cannot have its place (the bytes are in use, or the plan is left) is served as if there were no plan.

use super::DEVICE;
use super::layout::{Layout, free_pieces};
use alloc_core::CachingAllocator;
use alloc_core::allocator::StatScope;
use alloc_core::error::Result;
use alloc_core::round::SMALL_LIMIT;
use alloc_core::types::{DevicePtr, Stream};
use granule_planner::{Advice, CursorCounts, Plan, PlanCursor};
use serde::Serialize;
use std::sync::Arc;

/// A pass begins at the steps before which no more than this fraction of the plan's memory, above the least, is held.
const FEW: u64 = 64;
/// A plan is laid out where at least this fraction of its memory is free in one piece, and where it is at least that fraction of
/// what is held: in less there is nothing to be gained.
const PIECE: u64 = 2;
const WORTH: u64 = 64;
/// What is held with the memory taken for it is this fraction above what the pass needs, at most.
const SLACK: u64 = 500;
/// It is given up where more than this fraction of the bytes were not free.
const MANY: u64 = 256;

/// What became of the requests of a replay that follows a plan. Each is in one of these counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct PlanCounts {
    /// Served where the plan said.
    pub placed: u64,
    /// The bytes there were in use.
    pub occupied: u64,
    /// The plan was not laid out: the pass had begun when the program's place in it was found, or there was not memory enough.
    pub not_laid_out: u64,
    /// Small requests, up to 1 MiB: allocators keep memory of their own for these.
    pub small: u64,
    /// For another stream than that whose memory the plan is laid over.
    pub other_streams: u64,
    /// Steps without a place in the plan: they are still held when they are made again.
    pub unplanned: u64,
    /// Another request was expected; the plan was left.
    pub mismatches: u64,
    /// The program was not known to be in the plan.
    pub outside: u64,
}

/// The most that the program had at a time, without what laying out took for a moment. Bytes.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Peaks {
    pub(super) requested: i64,
    pub(super) allocated: i64,
    pub(super) active: i64,
}

/// The plan as it is laid out.
struct Laid {
    layout: Layout,
    /// Bytes that steps asked for at their addresses, and those of them that were not free there.
    asked: u64,
    missed: u64,
}

/// A plan, and how far the program is in it.
pub(super) struct Follower<'a> {
    allocator: &'a Arc<CachingAllocator>,
    cursor: PlanCursor,
    /// There but while the plan is laid out.
    scope: Option<StatScope>,
    /// Up to when that began last.
    peaks: Peaks,
    /// The stream whose memory the plan is laid over.
    main: u32,
    /// Planned bytes held before each step.
    loads: Vec<u64>,
    /// With no more than this held a pass begins.
    few: u64,
    laid: Option<Laid>,
    /// Whether the program has followed the plan since the pass began.
    is_on: bool,
    /// Bytes of the steps without a place in the plan, which need some besides it.
    unplanned: u64,
    /// Requests in a row that the plan expected.
    followed: usize,
    /// Requests that the plan expected since it was laid out, or since that was tried.
    since: usize,
    pub(super) passes: u64,
    pub(super) layouts: u64,
    /// The most bytes of the plan that were free in one piece when it was laid out.
    pub(super) covered: u64,
    /// Bytes of memory that were taken to lay it out.
    pub(super) taken: u64,
    pub(super) counts: PlanCounts,
}

impl<'a> Follower<'a> {
    pub(super) fn new(plan: Arc<Plan>, allocator: &'a Arc<CachingAllocator>) -> Result<Self> {
        let loads = plan.loads();
        let least = loads.iter().copied().min().unwrap_or(0);
        let main = plan.main_stream();
        let left_out = plan.steps().iter().filter(|step| step.offset.is_none() && step.stream == main);
        let large = left_out.map(|step| step.size).filter(|size| *size > SMALL_LIMIT);
        let unplanned = large.fold(0, u64::saturating_add);
        Ok(Self {
            scope: Some(StatScope::begin(allocator, DEVICE)?),
            peaks: Peaks::default(),
            allocator,
            main,
            few: least + plan.max_load.saturating_sub(least) / FEW,
            loads,
            cursor: PlanCursor::new(plan),
            laid: None,
            is_on: false,
            unplanned,
            followed: 0,
            since: 0,
            passes: 0,
            layouts: 0,
            covered: 0,
            taken: 0,
            counts: PlanCounts::default(),
        })
    }

    /// The program's peaks so far; what comes now is not the program's, until [`resume`](Self::resume).
    pub(super) fn pause(&mut self) -> Result<Peaks> {
        if let Some(scope) = self.scope.take() {
            let stats = scope.finish()?;
            let peaks = &mut self.peaks;
            peaks.requested = peaks.requested.max(stats.requested_bytes.peak);
            peaks.allocated = peaks.allocated.max(stats.allocated_bytes.peak);
            peaks.active = peaks.active.max(stats.active_bytes.peak);
        }
        Ok(self.peaks)
    }

    fn resume(&mut self) -> Result<()> {
        self.scope = Some(StatScope::begin(self.allocator, DEVICE)?);
        Ok(())
    }

    pub(super) fn plan(&self) -> &Plan {
        self.cursor.plan()
    }

    pub(super) fn window(&self) -> usize {
        self.cursor.window()
    }

    pub(super) fn cursor_counts(&self) -> CursorCounts {
        self.cursor.counts()
    }

    /// Serves the program's next request; `stream` is `on` as the trace numbers it.
    pub(super) fn malloc(&mut self, size: u64, stream: u32, on: Stream) -> Result<DevicePtr> {
        let step = match self.cursor.next(size, stream) {
            Advice::Place { step, .. } | Advice::Unplanned { step } => step,
            Advice::Mismatch { .. } => {
                self.counts.mismatches += 1;
                self.followed = 0;
                self.is_on = false;
                return self.allocator.malloc(size, on);
            }
            Advice::Outside => {
                self.counts.outside += 1;
                return self.allocator.malloc(size, on);
            }
        };
        let is_mine = stream == self.main;
        self.follow(step, on, is_mine)?;
        let ptr = if !is_mine {
            self.counts.other_streams += 1;
            None
        } else if size <= SMALL_LIMIT {
            self.counts.small += 1;
            None
        } else if self.cursor.plan().steps()[step].offset.is_none() {
            self.counts.unplanned += 1;
            None
        } else {
            self.at_its_place(step, size, on)
        };
        ptr.map_or_else(|| self.allocator.malloc(size, on), Ok)
    }

    /// The program makes the step that the plan expects.
    fn follow(&mut self, step: usize, on: Stream, is_mine: bool) -> Result<()> {
        self.since = self.since.saturating_add(1);
        self.followed += 1;
        if self.followed == self.loads.len() {
            self.followed = 0;
            self.passes += 1;
        }
        if self.loads[step] > self.few || !is_mine {
            return Ok(());
        }
        if self.laid.is_none() && self.is_time_to_lay_out() {
            self.lay_out(step, on)?;
        }
        self.is_on = self.laid.is_some();
        Ok(())
    }

    fn at_its_place(&mut self, step: usize, size: u64, on: Stream) -> Option<DevicePtr> {
        let laid = self.laid.as_mut().filter(|_| self.is_on);
        let Some((laid, place)) = laid.and_then(|laid| laid.layout.address(step).map(|place| (laid, place)))
        else {
            self.counts.not_laid_out += 1;
            return None;
        };
        laid.asked = laid.asked.saturating_add(size);
        if let Ok(ptr) = self.allocator.malloc_at(size, place, on) {
            self.counts.placed += 1;
            return Some(ptr);
        }
        // Whatever is wrong, the ordinary way says it, too.
        self.counts.occupied += 1;
        laid.missed = laid.missed.saturating_add(size);
        if laid.missed > self.cursor.plan().height / MANY && laid.missed > laid.asked / MANY {
            // Blocks that are half where the plan wants them and half where they fit are worse off than without a plan.
            self.laid = None;
        }
        None
    }

    /// Laying out may map memory a second time: where it was of no use it is done again after twice as long, each time.
    fn is_time_to_lay_out(&self) -> bool {
        let wait = self.loads.len().saturating_mul(1 << self.layouts.min(20)) / 2;
        self.layouts == 0 || self.cursor.plan().repeats && self.since >= wait
    }

    fn lay_out(&mut self, step: usize, on: Stream) -> Result<()> {
        let plan = Arc::clone(self.cursor.plan());
        let (reserved, in_use) = self.held()?;
        // What the pass that begins will need, and how much may be held for it.
        let need = in_use.saturating_add(plan.height).saturating_sub(self.loads[step]);
        let most = need.saturating_add(need / SLACK);
        let piece = if plan.repeats {
            let is_worth_it =
                plan.height >= reserved / WORTH && need.saturating_add(self.unplanned) <= most.max(reserved);
            let piece = self.allocator.statistics().largest_in_one_piece(on)?.min(plan.height);
            if is_worth_it && piece >= plan.height / PIECE { piece } else { 0 }
        } else {
            // A whole run begins where there is nothing yet. The memory it needs is taken at once, if it is there.
            if self.allocator.statistics().cache_info(DEVICE)?.largest() < plan.height {
                0
            } else {
                plan.height
            }
        };
        if piece <= SMALL_LIMIT {
            return Ok(());
        }
        (self.layouts, self.since) = (self.layouts + 1, 0);
        self.pause()?;
        let mut taken = Vec::new();
        let layout = self.take(&plan, piece, most, on, &mut taken);
        // It stays free memory: nobody has it who does not use it.
        taken.into_iter().try_for_each(|ptr| self.allocator.free(ptr))?;
        self.resume()?;
        self.laid = layout?.map(|layout| Laid { layout, asked: 0, missed: 0 });
        if self.laid.is_some() {
            self.covered = self.covered.max(piece);
        }
        self.taken += self.held()?.0.saturating_sub(reserved);
        Ok(())
    }

    /// Lays the plan over `piece` bytes and whatever else is free, and over new memory as long as no more than `most` is held.
    /// What the layout uses is in `taken` then.
    fn take(
        &self,
        plan: &Plan,
        piece: u64,
        most: u64,
        on: Stream,
        taken: &mut Vec<DevicePtr>,
    ) -> Result<Option<Layout>> {
        let Some(base) = or_none(self.allocator.malloc(piece, on))? else { return Ok(None) };
        taken.push(base);
        let others = free_pieces(&self.allocator.snapshot(false), on);
        let mut layout = Layout::new(plan, self.main, &(base.0..base.0 + piece), &others);
        if layout.missing() == 0 {
            return Ok(Some(layout));
        }
        if self.held()?.0.saturating_add(layout.missing()) > most {
            return Ok(None);
        }
        // With everything else in use it can only be new memory.
        for other in others {
            taken.extend(self.allocator.malloc_at(other.end - other.start, DevicePtr(other.start), on).ok());
        }
        let Some(extra) = or_none(self.allocator.malloc(layout.missing(), on))? else { return Ok(None) };
        taken.push(extra);
        layout.found(extra);
        Ok(Some(layout))
    }

    /// Bytes held from the device, and those of them that are in use.
    fn held(&self) -> Result<(u64, u64)> {
        let stats = self.allocator.stats(DEVICE)?;
        let now = |stat: &alloc_core::stats::Stat| stat.current.unsigned_abs();
        Ok((now(&stats.reserved_bytes.all), now(&stats.active_bytes.all)))
    }
}

/// Memory that is not there is no failure.
fn or_none(served: Result<DevicePtr>) -> Result<Option<DevicePtr>> {
    match served {
        Ok(ptr) => Ok(Some(ptr)),
        Err(error) if error.is_out_of_memory() => Ok(None),
        Err(error) => Err(error),
    }
}
