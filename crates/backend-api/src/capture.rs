//! Stream capture: recording a stream's work into a graph.

use crate::Result;
use crate::types::{BackendId, Stream};
use std::fmt::Debug;

/// Whether a stream is being captured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CaptureStatus {
    /// It runs its work.
    None,
    /// It records its work into the capture with this id.
    Active(u64),
    /// Something illegal broke the capture; it can only be ended.
    Invalidated,
}

/// What a thread may do while a capture is under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CaptureMode {
    /// Unsafe calls are refused in every thread.
    Global,
    /// Unsafe calls are refused in this thread.
    ThreadLocal,
    /// Unsafe calls are allowed.
    Relaxed,
}

/// A finished capture.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Graph {
    /// The driver's handle (`CUgraph`, `hipGraph_t`).
    pub raw: u64,
    /// The backend that made it.
    pub backend: BackendId,
}

/// A node of a graph under capture (`CUgraphNode`, `hipGraphNode_t`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CaptureNode(pub u64);

/// Graph capture and replay. Nothing here waits for queued work.
pub trait Capture: Debug + Send + Sync {
    /// The stream's state. Does not block; legal at any time. CUDA `cuStreamGetCaptureInfo`,
    /// HIP `hipStreamGetCaptureInfo`.
    fn status(&self, stream: Stream) -> Result<CaptureStatus>;

    /// Begins to record. Does not block. CUDA `cuStreamBeginCapture`, HIP `hipStreamBeginCapture`.
    fn begin(&self, stream: Stream, mode: CaptureMode) -> Result<()>;

    /// Ends the recording; `CaptureViolation` where it was invalidated. Does not wait for work.
    /// CUDA `cuStreamEndCapture`, HIP `hipStreamEndCapture`.
    fn end(&self, stream: Stream) -> Result<Graph>;

    /// Queues a graph's work. Does not wait for work. Stream-ordered. CUDA `cuGraphInstantiate` and `cuGraphLaunch`,
    /// HIP `hipGraphInstantiate` and `hipGraphLaunch`.
    ///
    /// # Safety
    /// Rule 2 for every address that the graph's work uses.
    unsafe fn launch(&self, graph: Graph, stream: Stream) -> Result<()>;

    /// Destroys a graph; queued launches still run. Does not wait for them. CUDA `cuGraphDestroy`, HIP `hipGraphDestroy`.
    ///
    /// # Safety
    /// Rule 1, and the handle is not used again.
    unsafe fn destroy_graph(&self, graph: Graph) -> Result<()>;

    /// Sets the calling thread's mode and returns the one before. Does not block; legal at any time.
    /// CUDA `cuThreadExchangeStreamCaptureMode`, HIP `hipThreadExchangeStreamCaptureMode`.
    fn exchange_mode(&self, mode: CaptureMode) -> Result<CaptureMode>;

    /// The nodes that the stream's next work would depend on. Does not block. CUDA and HIP: the dependency list of
    /// `StreamGetCaptureInfo`.
    fn frontier(&self, stream: Stream) -> Result<Vec<CaptureNode>>;

    /// The nodes that `node` depends on. Does not block. CUDA `cuGraphNodeGetDependencies`, HIP `hipGraphNodeGetDependencies`.
    fn dependencies(&self, stream: Stream, node: CaptureNode) -> Result<Vec<CaptureNode>>;
}
