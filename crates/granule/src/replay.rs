//! Replaying a recorded workload: on a simulated accelerator ([`replay`]), or on any backend ([`replay_on`]).
//!
//! The allocator sees what the recorded program told it, and nothing else: requests, frees, stream uses
//! and cache flushes. Iteration marks only say when figures are read.

mod capacity;

pub use capacity::{MinCapacity, min_capacity, peak_live};

use alloc_core::backend::{Backend, BackendError};
use alloc_core::config::Settings;
use alloc_core::history::HistoryOptions;
use alloc_core::oom::OomReport;
use alloc_core::policy::{Policy, PytorchPolicy};
use alloc_core::round::format_bytes;
use alloc_core::stats::DeviceStats;
use alloc_core::types::{DeviceIndex, DevicePtr, Stream};
use alloc_core::{AllocError, CachingAllocator};
use backend_openreg::{Clock, OpenReg, OpenRegConfig};
use serde::Serialize;
use snapshot::trace::{Event, Mark, Trace};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How a replay is done.
#[derive(Clone, Debug, Default)]
pub struct ReplayOptions {
    /// The allocator's settings.
    pub settings: Settings,
    /// The device's memory in bytes. `None` is all of a real device, and 80 GiB of a simulated one. A real device is
    /// limited as by PyTorch's memory fraction, which checks requests: growable segments, mapped in steps of up to
    /// 20 MiB, can exceed it by less than a step.
    pub capacity: Option<u64>,
    /// How many events a stream's work is behind: 0 completes everything at once. Simulated devices only.
    pub lag: u64,
    /// End at the first refused request instead of skipping it.
    pub stop_on_oom: bool,
    /// History records kept for a snapshot; 0 keeps none.
    pub history: usize,
}

impl ReplayOptions {
    /// The memory of the simulated device that [`replay`] makes.
    #[must_use]
    pub fn simulated_capacity(&self) -> u64 {
        self.capacity.unwrap_or(SIMULATED_CAPACITY)
    }
}

/// A replay that could not be done, as opposed to one in which requests were refused.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    /// The device could not be set up.
    #[error("the device could not be set up: {0}")]
    Device(#[from] BackendError),
    /// The device has less memory than was asked for.
    #[error(
        "the device has {} of memory, less than the capacity of {} that was asked for; ask for less, or for none",
        format_bytes(*total),
        format_bytes(*asked)
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
        format_bytes(*capacity),
        format_bytes(*peak_live)
    )]
    NeverFits {
        /// The largest capacity tried, in bytes.
        capacity: u64,
        /// Most requested bytes live at once.
        peak_live: u64,
    },
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
    /// Most requested bytes live at once.
    pub requested_bytes_peak: i64,
    /// Most allocated bytes.
    pub allocated_bytes_peak: i64,
    /// Most active bytes.
    pub active_bytes_peak: i64,
    /// Most reserved bytes.
    pub reserved_bytes_peak: i64,
    /// Peak requested over peak reserved; `None` if nothing was reserved.
    pub efficiency: Option<f64>,
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
    /// What only a simulated device can tell.
    #[serde(flatten)]
    pub simulated: Option<SimulatedFigures>,
}

/// Figures of a simulated device.
#[derive(Clone, Debug, Default, Serialize)]
pub struct SimulatedFigures {
    /// The most the device had handed out at once.
    pub driver_peak_held: u64,
    /// Calls by driver function.
    pub device_calls: BTreeMap<String, u64>,
    /// Modelled driver time in nanoseconds; see the cost model of the simulated device.
    pub modelled_driver_ns: u64,
    /// Times the simulator caught memory leaving while queued work still used it. Always 0.
    pub traps: u64,
}

impl SimulatedFigures {
    fn of(device: &OpenReg) -> Self {
        Self {
            driver_peak_held: device.peak_used(DEVICE),
            device_calls: device
                .calls()
                .iter()
                .map(|(call, count)| (call.name().to_owned(), count))
                .collect(),
            modelled_driver_ns: device.modelled_driver_time(),
            traps: device.traps().len() as u64,
        }
    }
}

/// A finished replay: the figures, and the allocator as the program left it.
#[derive(Debug)]
pub struct Replay<P: Policy = PytorchPolicy> {
    /// The figures.
    pub result: ReplayResult,
    /// All statistics at the end.
    pub stats: DeviceStats,
    /// The first refused request.
    pub first_refusal: Option<Refusal>,
    /// The allocator, for snapshots; blocks alive at the end are still handed out.
    pub allocator: CachingAllocator<P>,
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

/// Replays `trace` on a simulated device with the allocator policy `P`. `progress` is told how many events are done.
///
/// # Errors
/// [`ReplayError`]; a refused request is no error but a figure of the result.
pub fn replay<P: Policy>(
    trace: &Trace,
    options: &ReplayOptions,
    progress: impl FnMut(usize),
) -> Result<Replay<P>, ReplayError> {
    let config = OpenRegConfig::default()
        .devices(1)
        .capacity(options.simulated_capacity())
        .clock(Clock::Virtual { lag: options.lag });
    let device = OpenReg::new(config)?;
    let tick = (options.lag > 0).then_some(&*device);
    let mut replayed = run::<P>(trace, options, device.clone(), tick, progress)?;
    replayed.result.simulated = Some(SimulatedFigures::of(&device));
    Ok(replayed)
}

/// Replays `trace` on the first device of any backend, with at most [`ReplayOptions::capacity`] of its memory.
/// Nothing is written to the memory; streams carry no work.
///
/// # Errors
/// As [`replay`]; [`ReplayError::DeviceTooSmall`] where the device has less than the capacity asked for.
pub fn replay_on<P: Policy>(
    backend: Arc<dyn Backend>,
    trace: &Trace,
    options: &ReplayOptions,
    progress: impl FnMut(usize),
) -> Result<Replay<P>, ReplayError> {
    if backend.device_count()? == 0 {
        return Err(ReplayError::NoDevice(backend.name()));
    }
    let total = backend.memory_info(DEVICE)?.total;
    match options.capacity {
        Some(asked) if asked > total => Err(ReplayError::DeviceTooSmall { asked, total }),
        _ => run::<P>(trace, options, backend, None, progress),
    }
}

/// `tick` is told when an event passes.
fn run<P: Policy>(
    trace: &Trace,
    options: &ReplayOptions,
    backend: Arc<dyn Backend>,
    tick: Option<&OpenReg>,
    mut progress: impl FnMut(usize),
) -> Result<Replay<P>, ReplayError> {
    let total = backend.memory_info(DEVICE)?.total;
    let allocator = CachingAllocator::<P>::new(Arc::clone(&backend), options.settings.clone())
        .map_err(|source| ReplayError::Allocator { event: 0, source })?;
    if let Some(capacity) = options.capacity.filter(|capacity| *capacity < total) {
        #[allow(clippy::cast_precision_loss)]
        let fraction = capacity as f64 / total as f64;
        let limited = allocator.set_memory_fraction(fraction, DEVICE);
        limited.map_err(|source| ReplayError::Allocator { event: 0, source })?;
    }
    if options.history > 0 {
        allocator.record_history(&HistoryOptions::newest(options.history).deterministic());
    }
    let mut run = Run::new(trace, &*backend, &allocator)?;
    let start = Instant::now();
    let mut outside = Duration::ZERO;
    for (n, event) in trace.events.iter().enumerate() {
        if n % STRIDE == 0 {
            let pause = Instant::now();
            progress(n);
            outside += pause.elapsed();
        }
        if let Some(device) = tick {
            device.advance(1);
        }
        run.step(event).map_err(|source| source.at(n + 1))?;
        if options.stop_on_oom && run.refused > 0 {
            break;
        }
    }
    let elapsed = start.elapsed().saturating_sub(outside);
    progress(trace.events.len());
    let Run { marks, refused, first_refusal, ops, done, .. } = run;
    let stats = allocator.stats(DEVICE).map_err(|source| ReplayError::Allocator { event: done, source })?;
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
        num_device_alloc: stats.num_device_alloc,
        num_device_free: stats.num_device_free,
        num_alloc_retries: stats.num_alloc_retries,
        num_ooms: stats.num_ooms,
        refused,
        marks,
        events: done as u64,
        ops,
        ns_per_op,
        simulated: None,
    };
    Ok(Replay { result, stats, first_refusal, allocator })
}

/// A failure at an event whose number is not known yet.
enum StepError {
    Allocator(AllocError),
    Trace(String),
}

impl StepError {
    fn at(self, event: usize) -> ReplayError {
        match self {
            Self::Allocator(source) => ReplayError::Allocator { event, source },
            Self::Trace(what) => ReplayError::Trace { event, what },
        }
    }
}

impl From<AllocError> for StepError {
    fn from(error: AllocError) -> Self {
        Self::Allocator(error)
    }
}

/// A replay under way.
struct Run<'a, P: Policy> {
    allocator: &'a CachingAllocator<P>,
    streams: Vec<Stream>,
    /// Addresses by block number; null where refused or freed.
    live: Vec<DevicePtr>,
    marks: Vec<Mark>,
    refused: u64,
    first_refusal: Option<Refusal>,
    iteration: Option<u64>,
    ops: u64,
    done: usize,
}

impl<'a, P: Policy> Run<'a, P> {
    fn new(
        trace: &Trace,
        backend: &dyn Backend,
        allocator: &'a CachingAllocator<P>,
    ) -> Result<Self, ReplayError> {
        let (mut blocks, mut last_stream) = (0, 0);
        for (n, event) in trace.events.iter().enumerate() {
            if let Event::Alloc { stream, .. } | Event::RecordStream { stream, .. } = event {
                last_stream = last_stream.max(*stream);
                if last_stream > u32::from(u16::MAX) {
                    let what = format!("stream {last_stream} is beyond 65535");
                    return Err(ReplayError::Trace { event: n + 1, what });
                }
            }
            if let Event::Alloc { id, .. } = event {
                blocks = blocks.max(id.saturating_add(1));
                // Numbers count up; a wild one must not make the table of blocks huge.
                if blocks > 16 * trace.events.len() as u64 + 1024 {
                    let what = format!("block number {id} is far beyond the number of events");
                    return Err(ReplayError::Trace { event: n + 1, what });
                }
            }
        }
        let mut streams = vec![backend.default_stream(DEVICE)];
        for _ in 0..last_stream {
            streams.push(backend.create_stream(DEVICE, 0)?);
        }
        Ok(Self {
            allocator,
            streams,
            live: vec![DevicePtr::NULL; blocks as usize],
            marks: Vec::new(),
            refused: 0,
            first_refusal: None,
            iteration: None,
            ops: 0,
            done: 0,
        })
    }

    #[inline]
    fn step(&mut self, event: &Event) -> Result<(), StepError> {
        self.done += 1;
        match *event {
            Event::Alloc { id, size, stream } => {
                self.ops += 1;
                match self.allocator.malloc(size, self.streams[stream as usize]) {
                    Ok(ptr) => self.live[id as usize] = ptr,
                    Err(error) if error.is_out_of_memory() => {
                        self.refused += 1;
                        let (event, iteration) = (self.done, self.iteration);
                        self.first_refusal.get_or_insert_with(|| {
                            let report = match error {
                                AllocError::OutOfMemory(report) => Some(report),
                                _ => None,
                            };
                            Refusal { event, id, iteration, stream, requested: size, report }
                        });
                    }
                    Err(error) => return Err(error.into()),
                }
            }
            Event::Free { id } => {
                self.ops += 1;
                let slot = self.live.get_mut(id as usize);
                let slot = slot.ok_or_else(|| StepError::Trace(format!("block {id} was never requested")))?;
                self.allocator.free(std::mem::replace(slot, DevicePtr::NULL))?;
            }
            Event::RecordStream { id, stream } => {
                let ptr = self.live.get(id as usize).copied();
                let ptr = ptr.ok_or_else(|| StepError::Trace(format!("block {id} was never requested")))?;
                self.allocator.record_stream(ptr, self.streams[stream as usize])?;
            }
            Event::EmptyCache => self.allocator.empty_cache()?,
            Event::Iteration { n } => {
                self.iteration = Some(n);
                let stats = self.allocator.stats(DEVICE)?;
                self.marks.push(Mark {
                    iteration: n,
                    requested: stats.requested_bytes.all.current.unsigned_abs(),
                    allocated: stats.allocated_bytes.all.current.unsigned_abs(),
                    reserved: stats.reserved_bytes.all.current.unsigned_abs(),
                    device_allocs: stats.num_device_alloc.unsigned_abs(),
                });
            }
        }
        Ok(())
    }
}
