//! Replaying a recorded workload: on a simulated accelerator ([`replay`]), or on any backend ([`replay_on`]).
//!
//! The allocator sees the recorded program's calls and nothing else: requests, frees, stream uses and cache flushes.
//! Iteration marks only say when figures are read.

mod capacity;
mod costs;
mod follow;
mod iterations;
mod larger;
mod layout;
mod native;
mod planned;
mod private;
mod run;
mod simulated;
pub mod whatif;

pub use backend_openreg::{BadCost, CostModel};
pub use capacity::{MinCapacity, min_capacity, peak_live};
pub use costs::{Costs, costs};
pub use follow::PlanCounts;
pub use granule_planner::Plan;
pub use iterations::{AfterSecond, DriverFigures, Iteration, IterationFigures, Summary, iterations};
pub use larger::{LargerDevices, larger_devices};
pub use native::native_driver_ns;
pub use planned::{EqualIteration, PlanFigures};
pub use simulated::SimulatedFigures;

use alloc_core::backend::{Backend, BackendError};
use alloc_core::config::Settings;
use alloc_core::history::HistoryOptions;
use alloc_core::oom::OomReport;
use alloc_core::round::size_text;
use alloc_core::stats::DeviceStats;
use alloc_core::types::DeviceIndex;
use alloc_core::{AllocError, CachingAllocator};
use backend_openreg::OpenReg;
use granule_snapshot::trace::{Mark, Trace};
use planned::Planned;
use run::Replaying;
use serde::Serialize;
use simulated::Program;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How a replay is done.
#[derive(Clone, Debug, Default)]
pub struct ReplayOptions {
    /// The allocator's settings.
    pub settings: Settings,
    /// The device's memory in bytes. `None` is all of a real device, and 80 GiB of a simulated one. A real device is
    /// limited as by PyTorch's memory fraction, which checks requests. Growable segments are mapped in steps of up to
    /// 20 MiB, so they can exceed the limit by less than a step.
    pub capacity: Option<u64>,
    /// How many events a stream's work is behind: 0 completes everything at once. Simulated devices only.
    ///
    /// With a lag above 0 the work is simulated, too. Every block is used on its stream when it is allocated and until
    /// it is freed. On another stream it is used from the event that records that stream on. The device traps whatever
    /// would disturb the work.
    pub lag: u64,
    /// What driver calls cost. Simulated devices only.
    pub costs: CostModel,
    /// The device maps no memory: every segment is one `malloc`. Simulated devices only.
    pub no_virtual_memory: bool,
    /// Nobody looks whether live blocks can be used, where that is not seen anyway. Looking takes more than a quarter
    /// of a replay's time, so leave it out where you make many replays. Without lag [`SimulatedFigures::traps`] then
    /// says nothing. Simulated devices only.
    pub unwatched: bool,
    /// End at the first refused request instead of skipping it.
    pub stop_on_oom: bool,
    /// History records kept for a snapshot; 0 keeps none.
    pub history: usize,
    /// A plan to follow. A request is served at its place in the plan, if that place is free.
    ///
    /// The plan is laid over free memory that the allocator has. That is memory of the stream for which most is
    /// planned. So the plan takes no memory itself. Only a plan of a whole run takes the memory it needs, at its
    /// beginning.
    pub plan: Option<Arc<Plan>>,
}

impl ReplayOptions {
    /// The memory of the simulated device that [`replay`] makes.
    #[must_use]
    pub fn simulated_capacity(&self) -> u64 {
        self.capacity.unwrap_or(SIMULATED_CAPACITY)
    }
}

/// A replay that could not be done. A replay in which requests were refused is no such error.
#[derive(thiserror::Error)]
pub enum ReplayError {
    /// The device could not be set up.
    #[error("the device could not be set up: {0}")]
    Device(#[from] BackendError),
    /// The device has less memory than was asked for.
    #[error(
        "the device has {} of memory, less than the capacity of {} that was asked for; ask for less, or for none",
        size_text(*total),
        size_text(*asked)
    )]
    DeviceTooSmall {
        /// The capacity asked for, in bytes.
        asked: u64,
        /// The device's memory, in bytes.
        total: u64,
    },
    /// There is no device.
    #[error("the backend {0} finds no device")]
    NoDevice(&'static str),
    /// The allocator failed for another reason than memory.
    #[error("event {event}: {source}")]
    Allocator {
        /// The event's number, from 1.
        event: usize,
        /// What the allocator says.
        source: AllocError,
    },
    /// The trace asks for something impossible.
    #[error("event {event}: {what}")]
    Trace {
        /// The event's number, from 1.
        event: usize,
        /// What is wrong.
        what: String,
    },
    /// The trace needs more memory than was searched up to.
    #[error(
        "the workload is refused memory even with {}; it has up to {} live at once",
        size_text(*capacity),
        size_text(*peak_live)
    )]
    NeverFits {
        /// The largest capacity tried, in bytes.
        capacity: u64,
        /// Most requested bytes live at once.
        peak_live: u64,
    },
}

/// As people read it, for `main` shows errors so.
impl fmt::Debug for ReplayError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// What a replay gave, under the names that trace headers use. Bytes unless said otherwise.
#[derive(Clone, Debug, Default, Serialize)]
pub struct ReplayResult {
    /// The policy's name.
    pub policy: String,
    /// The settings as text.
    pub conf: String,
    /// The device's memory.
    pub capacity: u64,
    /// Most requested bytes at once, as PyTorch counts them: with those that the program has freed and another stream
    /// still may use.
    pub requested_bytes_peak: i64,
    /// Most requested bytes that the program held at once: no allocator can do with less.
    pub live_requested_bytes_peak: u64,
    /// Most allocated bytes.
    pub allocated_bytes_peak: i64,
    /// Most active bytes.
    pub active_bytes_peak: i64,
    /// Most reserved bytes.
    pub reserved_bytes_peak: i64,
    /// Peak requested over peak reserved; `None` if nothing was reserved.
    pub efficiency: Option<f64>,
    /// Peak reserved over peak live requested; `None` if nothing was live.
    pub reserved_over_live: Option<f64>,
    /// Segments taken and map steps.
    pub num_device_alloc: i64,
    /// Segments given back and unmap steps.
    pub num_device_free: i64,
    /// Cache flushes after a failed attempt.
    pub num_alloc_retries: i64,
    /// Out-of-memory errors.
    pub num_ooms: i64,
    /// Requests refused; each was skipped with its later free.
    pub refused: u64,
    /// `[iteration, requested, allocated, reserved, device allocations]` at each iteration mark.
    pub marks: Vec<Mark>,
    /// Events replayed.
    pub events: u64,
    /// Requests and frees replayed.
    pub ops: u64,
    /// Nanoseconds of host time per event, progress and marks included.
    pub ns_per_op: f64,
    /// What the plan did, if one was followed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub plan: Option<PlanFigures>,
    /// What only a simulated device can tell.
    #[serde(flatten)]
    pub simulated: Option<SimulatedFigures>,
}

/// A finished replay: the figures, and the allocator as the program left it.
#[derive(Debug)]
pub struct Replay {
    /// The figures.
    pub result: ReplayResult,
    /// All statistics at the end. With a plan, peaks of requested, allocated and active bytes leave out the memory that
    /// laying it out took for a moment.
    pub stats: DeviceStats,
    /// The first refused request.
    pub first_refusal: Option<Refusal>,
    /// The allocator, for snapshots; blocks alive at the end are still handed out.
    pub allocator: CachingAllocator,
}

/// A request that was refused, and where in the trace it is.
#[derive(Clone, Debug)]
pub struct Refusal {
    /// The event's number, from 1; in a trace file it is on the line after.
    pub event: usize,
    /// The block's number.
    pub id: u64,
    /// The iteration it is in; `None` before the first.
    pub iteration: Option<u64>,
    /// The stream it is for, as the trace numbers them.
    pub stream: u32,
    /// Bytes as requested.
    pub requested: u64,
    /// The allocator's report; `None` if the request was refused before the device was asked.
    pub report: Option<Box<OomReport>>,
}

const DEVICE: DeviceIndex = DeviceIndex(0);
/// Events between two calls of the progress function.
const STRIDE: usize = 4096;
/// What a simulated device has where nothing else was asked for.
const SIMULATED_CAPACITY: u64 = 80 << 30;

/// Replays `trace` on a simulated device with the policy that the settings name. `progress` is told how many events are done.
///
/// # Errors
/// [`ReplayError`]; a refused request is no error but a figure of the result.
pub fn replay(
    trace: &Trace,
    options: &ReplayOptions,
    progress: impl FnMut(usize),
) -> Result<Replay, ReplayError> {
    let device = simulated::device(options)?;
    run(trace, options, device.clone(), Some(&device), progress)
}

/// [`replay`], with something between the device and the allocator: what `through` makes of the device.
///
/// # Errors
/// As [`replay`].
pub fn replay_through(
    trace: &Trace,
    options: &ReplayOptions,
    through: impl FnOnce(Arc<dyn Backend>) -> Arc<dyn Backend>,
) -> Result<Replay, ReplayError> {
    let device = simulated::device(options)?;
    run(trace, options, through(device.clone()), Some(&device), |_| {})
}

/// Replays `trace` on the first device of any backend, with at most [`ReplayOptions::capacity`] of its memory.
/// Nothing is written to the memory; streams carry no work.
///
/// # Errors
/// As [`replay`]; [`ReplayError::DeviceTooSmall`] where the device has less than the capacity asked for.
pub fn replay_on(
    backend: Arc<dyn Backend>,
    trace: &Trace,
    options: &ReplayOptions,
    progress: impl FnMut(usize),
) -> Result<Replay, ReplayError> {
    if backend.device_count()? == 0 {
        return Err(ReplayError::NoDevice(backend.name()));
    }
    let total = backend.memory_info(DEVICE)?.total;
    match options.capacity {
        Some(asked) if asked > total => Err(ReplayError::DeviceTooSmall { asked, total }),
        _ => run(trace, options, backend, None, progress),
    }
}

/// An allocator over a device with `total` bytes of memory, as the options want it.
fn allocator(
    backend: &Arc<dyn Backend>,
    options: &ReplayOptions,
    total: u64,
) -> Result<CachingAllocator, AllocError> {
    let allocator = CachingAllocator::new(Arc::clone(backend), options.settings.clone())?;
    if let Some(capacity) = options.capacity.filter(|capacity| *capacity < total) {
        #[allow(clippy::cast_precision_loss)]
        let fraction = capacity as f64 / total as f64;
        allocator.set_memory_fraction(fraction, DEVICE)?;
    }
    if options.history > 0 {
        allocator.history().record(&HistoryOptions::newest(options.history).deterministic());
    }
    Ok(allocator)
}

/// Does what the trace says, up to its end or the refusal that ends it. How long that took, but for what is told meanwhile.
fn steps(
    run: &mut Replaying<'_>,
    trace: &Trace,
    stop_on_oom: bool,
    progress: &mut impl FnMut(usize),
) -> Result<Duration, ReplayError> {
    let start = Instant::now();
    let mut outside = Duration::ZERO;
    for (n, event) in trace.events.iter().enumerate() {
        if n % STRIDE == 0 {
            let pause = Instant::now();
            progress(n);
            run.look();
            outside += pause.elapsed();
        }
        run.step(event).map_err(|source| source.at(n + 1))?;
        if stop_on_oom && run.refused > 0 {
            break;
        }
    }
    Ok(start.elapsed().saturating_sub(outside))
}

/// `simulated` is the backend where it is a simulated device.
fn run(
    trace: &Trace,
    options: &ReplayOptions,
    backend: Arc<dyn Backend>,
    simulated: Option<&OpenReg>,
    mut progress: impl FnMut(usize),
) -> Result<Replay, ReplayError> {
    let total = backend.memory_info(DEVICE)?.total;
    let failed = |event| move |source| ReplayError::Allocator { event, source };
    let allocator = Arc::new(allocator(&backend, options, total).map_err(failed(0))?);
    let program = simulated.map(|device| Program::new(device, options));
    let plan = options.plan.as_ref().map(|plan| Planned::new(plan, trace, &allocator));
    let plan = plan.transpose().map_err(failed(0))?;
    let mut run = Replaying::new(trace, &*backend, &allocator, program, plan)?;
    let elapsed = steps(&mut run, trace, options.stop_on_oom, &mut progress)?;
    progress(trace.events.len());
    run.look();
    let Replaying { marks, refused, first_refusal, ops, done, program, plan, live, .. } = run;
    let plan = plan.map(Planned::figures).transpose().map_err(failed(done))?;
    let mut stats = allocator.stats(DEVICE).map_err(failed(done))?;
    let plan = plan.map(|(figures, peaks)| {
        stats.requested_bytes.all.peak = peaks.requested;
        stats.allocated_bytes.all.peak = peaks.allocated;
        stats.active_bytes.all.peak = peaks.active;
        figures
    });
    #[allow(clippy::cast_precision_loss)]
    let ns_per_op = elapsed.as_nanos() as f64 / ops.max(1) as f64;
    let result = ReplayResult {
        policy: allocator.policy_name().into(),
        conf: options.settings.text.clone(),
        capacity: options.capacity.unwrap_or(total),
        requested_bytes_peak: stats.requested_bytes.all.peak,
        allocated_bytes_peak: stats.allocated_bytes.all.peak,
        active_bytes_peak: stats.active_bytes.all.peak,
        reserved_bytes_peak: stats.reserved_bytes.all.peak,
        efficiency: (stats.reserved_bytes.all.peak > 0).then(|| stats.efficiency()),
        live_requested_bytes_peak: live.peak,
        reserved_over_live: live.over(stats.reserved_bytes.all.peak.unsigned_abs()),
        num_device_alloc: stats.num_device_alloc,
        num_device_free: stats.num_device_free,
        num_alloc_retries: stats.num_alloc_retries,
        num_ooms: stats.num_ooms,
        refused,
        marks,
        events: done as u64,
        ops,
        ns_per_op,
        plan,
        simulated: program.map(|program| program.figures(trace, options.lag)),
    };
    let allocator = Arc::into_inner(allocator);
    let Some(allocator) = allocator else { unreachable!("its scopes have ended with the run") };
    Ok(Replay { result, stats, first_refusal, allocator })
}
