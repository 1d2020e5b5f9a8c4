//! Graphs that own their memory: a capture whose requests go to a pool of its own, and the graph it becomes.
//!
//! Whatever happens to a capture, its pool gets its reference back: a capture that fails, or is dropped before its
//! end, leaves nothing behind.

use crate::api::allocator::CachingAllocator;
use crate::api::pool::{PoolReference, PoolScope};
use crate::arena::pool_table::{Filter, Holder};
use crate::backend::{Backend, BackendError, Capture, CaptureMode, CaptureStatus, Graph};
use crate::device::statistics;
use crate::error::{AllocError, Result, log_end};
use crate::lifetimes::last_work::LastWork;
use crate::process::state;
use crate::process::stream_identity::resolve;
use crate::sync::Arc;
use crate::types::{DeviceIndex, PoolId, Stream};
use rustc_hash::FxHashMap;
use std::marker::PhantomData;

/// A stream that is being captured. Requests for streams that are part of the capture are served by its pool.
///
/// Dropped before [`end`](Self::end), it ends the capture and throws its graph away. It stays on the thread that began
/// it, because drivers want a capture to end there. PyTorch: `CUDAGraph` from `capture_begin` to `capture_end`.
#[derive(Debug)]
pub struct GraphCapture {
    // Dropped in this order: the driver's capture, the engine's, the scope.
    recording: Recording,
    mark: CaptureMark,
    scope: PoolScope,
    retained: Vec<PoolReference>,
    on_this_thread: PhantomData<*const ()>,
}

impl GraphCapture {
    /// Begins to capture `stream`, with memory from `pool`: the pool of another graph, or that of a
    /// [`MemoryPool`](crate::pool::MemoryPool). Without `pool` the capture gets a pool of its own.
    ///
    /// # Errors
    /// Those of [`Pools::begin`](crate::allocator::Pools::begin); [`AllocError::Backend`] where the driver
    /// refuses. Nothing has changed then.
    pub fn begin(
        allocator: &Arc<CachingAllocator>,
        stream: Stream,
        mode: CaptureMode,
        pool: Option<PoolId>,
    ) -> Result<Self> {
        let pool = pool.unwrap_or_else(PoolId::fresh_for_capture);
        let device = stream.device;
        // Before the capture begins: from then on no request may go astray, and no thread may ask for an event.
        let scope = PoolScope::new(allocator, device, pool, Filter::CaptureOf(stream))?;
        let mark = CaptureMark::begin(allocator, device)?;
        let recording = Recording::begin(allocator.backend(), stream, mode)?;
        Ok(Self { recording, mark, scope, retained: Vec::new(), on_this_thread: PhantomData })
    }

    /// The pool that serves the capture.
    #[must_use]
    pub fn pool(&self) -> PoolId {
        self.scope.pool()
    }

    /// Keeps another pool of the device for as long as the graph lives, because the capture uses memory of it: one more
    /// reference. PyTorch: `_retain_pool`.
    ///
    /// # Errors
    /// [`AllocError::UnknownPool`], [`AllocError::DeadPool`].
    pub fn retain_pool(&mut self, pool: PoolId) -> Result<()> {
        let CaptureMark { allocator, device } = &self.mark;
        if pool != self.scope.pool() && self.retained.iter().all(|retained| retained.pool != pool) {
            // Only one that exists: a reference would make it.
            allocator.pools().use_count(*device, pool)?;
            let retained = PoolReference::to(allocator, *device, pool, None)?;
            allocator.pools().note_captured(*device, pool)?;
            self.retained.push(retained);
        }
        Ok(())
    }

    /// Ends the capture.
    ///
    /// # Errors
    /// [`AllocError::Backend`] where something broke the capture, or work of another stream
    /// was not joined back. The capture is over then, too, and its pool released. [`AllocError::Forked`] and
    /// [`AllocError::DriverGone`], without a call of the driver.
    pub fn end(self) -> Result<CapturedGraph> {
        self.mark.allocator.device(self.mark.device)?;
        let Self { retained, scope, mark, recording, .. } = self;
        let graph = recording.end()?;
        let CaptureMark { allocator, device } = &mark;
        let pool = PoolReference::to(allocator, *device, scope.pool(), None)?;
        let pools = std::iter::once(pool).chain(retained).collect();
        // They tell trackers, which may panic: what is being returned would not be dropped then.
        drop(mark);
        drop(scope);
        Ok(CapturedGraph { graph, pools, launches: FxHashMap::default() })
    }
}

/// A graph, and the memory that its work knows by address: nobody else is given it while the graph lives.
///
/// When the graph is dropped, its pool gives memory back once the launches are done and the cache is emptied. Blocks
/// that were allocated in the capture and are still live stay. PyTorch: `CUDAGraph`, once captured.
#[derive(Debug)]
pub struct CapturedGraph {
    graph: OwnedGraph,
    /// That of the capture first, then those it retains.
    pools: Vec<PoolReference>,
    /// The last launch on each stream.
    launches: FxHashMap<Stream, Arc<LastWork>>,
}

impl CapturedGraph {
    /// The pool that served its capture, then those that it retains. PyTorch: `CUDAGraph.pool` and `pools`.
    pub fn pools(&self) -> impl Iterator<Item = PoolId> + '_ {
        self.pools.iter().map(|reference| reference.pool)
    }

    /// Bytes of the device that the driver took for the graph itself: the rise of used memory at its first launch, less
    /// memory taken by allocators that publish. Memory that a silent neighbour takes at that moment counts, too. `None`
    /// before the first launch.
    #[must_use]
    pub fn driver_memory(&self) -> Option<u64> {
        self.graph.memory.as_ref().map(|memory| memory.bytes)
    }

    /// Queues the graph's work on `stream`. Does not block. The first launch also asks the driver for the used memory,
    /// before and after, and waits for other threads that do so on this device.
    ///
    /// It writes blocks again that were freed within its capture, as in PyTorch. Other requests of the pool may have
    /// got that memory since: put contents that are to last into another pool.
    ///
    /// # Errors
    /// [`AllocError::Backend`], also where `stream` is being captured; [`AllocError::ForeignStream`];
    /// [`AllocError::Asleep`] where a pool of the graph's sleeps; [`AllocError::Forked`], [`AllocError::DriverGone`].
    /// Nothing was queued then.
    ///
    /// # Safety
    /// Memory that the capture used and that is not of [`pools`](Self::pools) is still allocated. Other blocks of these
    /// pools are used in the order of streams and events.
    pub unsafe fn launch(&mut self, stream: Stream) -> Result<()> {
        let OwnedGraph { backend, graph, .. } = &self.graph;
        if stream.backend != backend.id() {
            return Err(AllocError::ForeignStream);
        }
        for PoolReference { allocator, device, pool } in &self.pools {
            allocator.device(*device)?;
            if allocator.sleep_mode().is_pool_asleep(*device, *pool)? {
                return Err(AllocError::Asleep { what: format!("pool {pool}, which the graph uses,") });
            }
        }
        let capture = capture(backend)?;
        // SAFETY: rule 2: the pools' segments stay while they are referenced, which they are here; the rest by this
        // function's contract.
        let work = || unsafe { capture.launch(*graph, stream) };
        let launch = || Ok(LastWork::of_launch(backend, stream, work)?);
        let (launch, memory) = match self.pools.first() {
            Some(PoolReference { allocator, device, .. }) if self.launches.is_empty() => {
                let (launch, bytes) = statistics::first_launch(allocator.device(*device)?, launch)?;
                let memory =
                    |bytes| DriverMemory { allocator: Arc::clone(allocator), device: *device, bytes };
                (launch, bytes.map(memory))
            }
            _ => (launch()?, None),
        };
        self.launches.insert(resolve(stream, backend.kind()), Arc::new(launch));
        if let Some(memory) = memory {
            self.graph.memory = Some(memory);
        }
        Ok(())
    }
}

impl Drop for CapturedGraph {
    /// Launches may still be under way: the pools' memory waits for them.
    fn drop(&mut self) {
        let launches: Vec<_> = self.launches.drain().map(|(_, launch)| launch).collect();
        for PoolReference { allocator, device, pool } in self.pools.iter().filter(|_| !launches.is_empty()) {
            let kept = allocator.pools().keep_pool_for(*device, *pool, &launches);
            log_end(kept, "a graph's pool is gone before the graph");
        }
    }
}

/// Memory that the driver took for a graph.
#[derive(Debug)]
struct DriverMemory {
    allocator: Arc<CachingAllocator>,
    device: DeviceIndex,
    bytes: u64,
}

/// The engine knows of a capture, until this is dropped.
#[derive(Debug)]
struct CaptureMark {
    allocator: Arc<CachingAllocator>,
    device: DeviceIndex,
}

impl CaptureMark {
    fn begin(allocator: &Arc<CachingAllocator>, device: DeviceIndex) -> Result<Self> {
        allocator.pools().mark_begin(device, Holder::Value)?;
        Ok(Self { allocator: Arc::clone(allocator), device })
    }
}

impl Drop for CaptureMark {
    fn drop(&mut self) {
        let marked = self.allocator.pools().mark_end(self.device, Holder::Value);
        log_end(marked, "a capture's end could not be marked");
    }
}

/// The driver's capture, ended when this is dropped.
#[derive(Debug)]
struct Recording {
    backend: Arc<dyn Backend>,
    stream: Stream,
    under_way: bool,
}

impl Recording {
    fn begin(backend: &Arc<dyn Backend>, stream: Stream, mode: CaptureMode) -> Result<Self> {
        capture(backend)?.begin(stream, mode)?;
        Ok(Self { backend: Arc::clone(backend), stream, under_way: true })
    }

    fn end(mut self) -> Result<OwnedGraph> {
        let graph = capture(&self.backend)?.end(self.stream)?;
        self.under_way = false;
        Ok(OwnedGraph::new(&self.backend, graph))
    }

    /// Ends the capture if it has not ended. A broken capture ends with an error. An end that was refused for another
    /// reason is tried once more.
    fn abandon(&self) -> Result<()> {
        let capture = capture(&self.backend)?;
        for _ in 0..2 {
            if capture.status(self.stream)? == CaptureStatus::None {
                break;
            }
            match capture.end(self.stream) {
                Ok(graph) => drop(OwnedGraph::new(&self.backend, graph)),
                Err(error) => {
                    self.backend.clear_error();
                    tracing::debug!(%error, "an abandoned capture has ended with an error");
                }
            }
        }
        Ok(())
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        if !state::may_destroy(self.backend.id()) {
            return;
        }
        if self.under_way
            && let Err(error) = self.abandon()
        {
            self.backend.clear_error();
            tracing::warn!(%error, "a capture could not be ended");
        }
    }
}

/// The driver's graph, destroyed when this is dropped.
#[derive(Debug)]
struct OwnedGraph {
    backend: Arc<dyn Backend>,
    graph: Graph,
    /// In the ledger until the graph is destroyed; `None` until it is known.
    memory: Option<DriverMemory>,
}

impl OwnedGraph {
    fn new(backend: &Arc<dyn Backend>, graph: Graph) -> Self {
        Self { backend: Arc::clone(backend), graph, memory: None }
    }

    fn destroy(&self) {
        let Ok(capture) = capture(&self.backend) else { return };
        // SAFETY: rule 1: made by this backend, owned by this value alone, and not used again: it is being dropped.
        if let Err(error) = unsafe { capture.destroy_graph(self.graph) } {
            self.backend.clear_error();
            tracing::warn!(%error, "a graph could not be destroyed");
        }
    }
}

impl Drop for OwnedGraph {
    fn drop(&mut self) {
        if !state::may_destroy(self.backend.id()) {
            return;
        }
        let known = self.memory.as_ref().and_then(|memory| {
            let device = memory.allocator.device(memory.device).ok()?;
            Some((device, memory.bytes))
        });
        match known {
            Some((device, bytes)) => statistics::end_of_graph(device, bytes, || self.destroy()),
            None => self.destroy(),
        }
    }
}

fn capture(backend: &Arc<dyn Backend>) -> Result<&dyn Capture> {
    Ok(backend.capture().map_err(BackendError::from)?)
}
