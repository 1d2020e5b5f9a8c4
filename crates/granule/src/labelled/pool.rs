//! Pools of the program, and graphs with the memory that they use.

use super::{CachingAllocator, Label, Stream};
use alloc_core::backend::CaptureMode;
use alloc_core::error::Result;
use alloc_core::pool::{Filter, PoolOptions, PoolScope, PoolStats};
use alloc_core::types::{DeviceIndex, PoolId};
use alloc_core::{graph, pool};
use std::marker::PhantomData;

/// A pool that the program made; see [`alloc_core::pool::MemoryPool`].
#[derive(Debug)]
pub struct MemoryPool<L: Label> {
    inner: pool::MemoryPool,
    label: PhantomData<L>,
}

impl<L: Label> MemoryPool<L> {
    /// A new pool of a device.
    ///
    /// # Errors
    /// Those of [`alloc_core::pool::MemoryPool::new`].
    pub fn new(allocator: &CachingAllocator<L>, device: DeviceIndex, options: PoolOptions) -> Result<Self> {
        let inner = pool::MemoryPool::new(allocator.engine(), device, options)?;
        Ok(Self { inner, label: PhantomData })
    }

    /// Sends the requests that this thread makes to the pool while the answer lives.
    ///
    /// # Errors
    /// Those of [`alloc_core::pool::MemoryPool::enter`].
    pub fn enter(&self) -> Result<PoolScope> {
        self.inner.enter(Filter::this_thread())
    }

    /// What it holds.
    ///
    /// # Errors
    /// Those of [`alloc_core::pool::MemoryPool::stats`].
    pub fn stats(&self) -> Result<PoolStats> {
        self.inner.stats()
    }

    /// Its id, for [`GraphCapture::begin`].
    #[must_use]
    pub fn id(&self) -> PoolId {
        self.inner.id()
    }
}

/// A capture of a stream's work, under way; see [`alloc_core::graph::GraphCapture`].
#[derive(Debug)]
pub struct GraphCapture<L: Label> {
    inner: graph::GraphCapture,
    stream: Stream<L>,
}

impl<L: Label> GraphCapture<L> {
    /// Begins to record the work of `stream`. Requests of the capture go to `pool`, or to a new pool.
    ///
    /// # Errors
    /// Those of [`alloc_core::graph::GraphCapture::begin`]; nothing is under way then.
    pub fn begin(
        allocator: &CachingAllocator<L>,
        stream: &Stream<L>,
        mode: CaptureMode,
        pool: Option<PoolId>,
    ) -> Result<Self> {
        let inner = graph::GraphCapture::begin(allocator.engine(), stream.handle(), mode, pool)?;
        Ok(Self { inner, stream: stream.clone() })
    }

    /// The pool of its requests.
    #[must_use]
    pub fn pool(&self) -> PoolId {
        self.inner.pool()
    }

    /// Ends it.
    ///
    /// # Errors
    /// Those of [`alloc_core::graph::GraphCapture::end`]; the capture leaves nothing behind then.
    pub fn end(self) -> Result<CapturedGraph<L>> {
        let Self { inner, stream } = self;
        Ok(CapturedGraph { inner: inner.end()?, _stream: stream })
    }
}

/// Work that can be launched again and again, with the pools that it uses; see [`alloc_core::graph::CapturedGraph`].
#[derive(Debug)]
pub struct CapturedGraph<L: Label> {
    inner: graph::CapturedGraph,
    /// Its memory is in that stream's order.
    _stream: Stream<L>,
}

impl<L: Label> CapturedGraph<L> {
    /// Queues it on `stream`. Does not block.
    ///
    /// # Errors
    /// Those of [`alloc_core::graph::CapturedGraph::launch`].
    ///
    /// # Safety
    /// As there. Memory that the graph's work uses, and that is not of its pools, lives until the launch is done. The
    /// memory of its pools is used in the order of `stream`. Until the launch is done, nobody looks at host memory that
    /// it writes.
    pub unsafe fn launch(&mut self, stream: &Stream<L>) -> Result<()> {
        // SAFETY: the caller's promise.
        unsafe { self.inner.launch(stream.handle()) }
    }
}
