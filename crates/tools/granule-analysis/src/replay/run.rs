//! A replay under way.

use super::planned::Planned;
use super::private::PrivatePools;
use super::simulated::Program;
use super::{DEVICE, Refusal, ReplayError};
use alloc_core::backend::Backend;
use alloc_core::types::{DevicePtr, Stream};
use alloc_core::{AllocError, CachingAllocator};
use granule_snapshot::trace::{Event, Mark, Trace};

/// A failure at an event whose number is not known yet.
pub(super) enum StepError {
    Allocator(AllocError),
    Trace(String),
}

impl StepError {
    pub(super) fn at(self, event: usize) -> ReplayError {
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

/// A block of the program.
#[derive(Clone, Copy)]
struct Replayed {
    /// Null where it was refused or freed.
    ptr: DevicePtr,
    bytes: u64,
    stream: u32,
}

const GONE: Replayed = Replayed { ptr: DevicePtr::NULL, bytes: 0, stream: 0 };

/// Requested bytes that the program holds, and the most of it.
#[derive(Default)]
pub(super) struct HeldBytes {
    bytes: u64,
    pub(super) peak: u64,
}

impl HeldBytes {
    #[inline]
    fn take(&mut self, bytes: u64) {
        self.bytes += bytes;
        self.peak = self.peak.max(self.bytes);
    }

    /// How often the most of it goes into `reserved` bytes.
    #[allow(clippy::cast_precision_loss)]
    pub(super) fn over(&self, reserved: u64) -> Option<f64> {
        (self.peak > 0).then(|| reserved as f64 / self.peak as f64)
    }
}

/// A replay under way.
pub(super) struct Replaying<'a> {
    allocator: &'a CachingAllocator,
    /// On a simulated device.
    pub(super) program: Option<Program<'a>>,
    /// Where requests are to go.
    pub(super) plan: Option<Planned<'a>>,
    streams: Vec<Stream>,
    pools: PrivatePools,
    /// By number.
    blocks: Vec<Replayed>,
    /// Numbers of the blocks that were live when somebody looked last, and of those that came since.
    looked_at: Vec<u64>,
    pub(super) marks: Vec<Mark>,
    pub(super) live: HeldBytes,
    pub(super) refused: u64,
    pub(super) first_refusal: Option<Refusal>,
    iteration: Option<u64>,
    pub(super) ops: u64,
    pub(super) done: usize,
}

impl<'a> Replaying<'a> {
    pub(super) fn new(
        trace: &Trace,
        backend: &dyn Backend,
        allocator: &'a CachingAllocator,
        program: Option<Program<'a>>,
        plan: Option<Planned<'a>>,
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
            program,
            plan,
            streams,
            pools: PrivatePools::default(),
            blocks: vec![GONE; blocks as usize],
            looked_at: Vec::new(),
            marks: Vec::new(),
            live: HeldBytes::default(),
            refused: 0,
            first_refusal: None,
            iteration: None,
            ops: 0,
            done: 0,
        })
    }

    /// Looks whether the live blocks can be used, where that is not seen anyway.
    pub(super) fn look(&mut self) {
        let Some(program) = self.program.as_ref().filter(|program| program.looks()) else { return };
        let Self { blocks, looked_at, streams, .. } = self;
        looked_at.retain(|id| !blocks[*id as usize].ptr.is_null());
        let live = looked_at.iter().map(|id| &blocks[*id as usize]);
        program.looks_at(live.map(|block| (streams[block.stream as usize], block.ptr, block.bytes)));
    }

    fn block(&mut self, id: u64) -> Result<&mut Replayed, StepError> {
        let block = self.blocks.get_mut(id as usize);
        block.ok_or_else(|| StepError::Trace(format!("block {id} was never requested")))
    }

    #[inline(always)]
    pub(super) fn step(&mut self, event: &Event) -> Result<(), StepError> {
        self.done += 1;
        if let Some(program) = &self.program {
            program.tick();
        }
        match *event {
            Event::Alloc { id, size, stream } => self.allocate(id, size, stream)?,
            // What a replay is not refused is given back at once.
            Event::Free { id } | Event::Refused { id, .. } => {
                self.ops += 1;
                let Replayed { ptr, bytes, stream } = std::mem::replace(self.block(id)?, GONE);
                self.live.bytes -= bytes;
                if let Some(program) = self.program.as_mut().filter(|_| !ptr.is_null()) {
                    program.frees(id, self.streams[stream as usize], ptr, bytes);
                }
                self.allocator.free(ptr)?;
            }
            Event::RecordStream { id, stream } => {
                let Replayed { ptr, bytes, stream: own } = *self.block(id)?;
                let [own, other] = [own, stream].map(|stream| self.streams[stream as usize]);
                self.allocator.record_stream(ptr, other)?;
                if let Some(program) = self.program.as_mut().filter(|_| !ptr.is_null()) {
                    program.records(id, own, other, ptr, bytes);
                }
            }
            Event::EmptyCache => self.allocator.empty_cache()?,
            Event::Pool { pool } => self.pools.enter(self.allocator, pool)?,
            Event::PoolEnds { pool } => self.pools.end(self.allocator, pool)?,
            Event::EmptyPool { pool } => self.pools.empty(self.allocator, pool)?,
            Event::Iteration { n } => {
                if let Some(program) = &mut self.program {
                    program.mark();
                }
                if let Some(plan) = &mut self.plan {
                    plan.mark(n)?;
                }
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

    #[inline]
    fn allocate(&mut self, id: u64, size: u64, stream: u32) -> Result<(), StepError> {
        self.ops += 1;
        let on = self.streams[stream as usize];
        let served = match &mut self.plan {
            Some(plan) => plan.follower.malloc(size, stream, on),
            None => self.allocator.malloc(size, on),
        };
        match served {
            Ok(ptr) => {
                self.blocks[id as usize] = Replayed { ptr, bytes: size, stream };
                self.live.take(size);
                if let Some(program) = &mut self.program {
                    if program.looks() {
                        self.looked_at.push(id);
                    }
                    program.takes(id, on, ptr, size);
                }
            }
            Err(error) if refuses(&error) => {
                self.refused += 1;
                let (event, iteration) = (self.done, self.iteration);
                self.first_refusal.get_or_insert_with(|| {
                    let report = match error {
                        AllocError::OutOfMemory(mut report) => {
                            if self.program.is_some() {
                                // Its backend's names mean nothing to who reads of a replay.
                                (report.label, report.backend) = ("Simulated device", "simulated");
                            }
                            Some(report)
                        }
                        _ => None,
                    };
                    Refusal { event, id, iteration, stream, requested: size, report }
                });
            }
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }
}

/// Whether a request was refused. With caching off, it is the driver that refuses.
fn refuses(error: &AllocError) -> bool {
    error.is_out_of_memory() || matches!(error, AllocError::Backend(error) if error.is_out_of_memory())
}
