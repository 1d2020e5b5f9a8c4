//! Pools: private ones, limits and figures of any, captures, checkpoints.

use super::CachingAllocator;
use crate::arena::pool_table::{Filter, Holder, PoolStats};
use crate::config::MemoryLimit;
use crate::device::{CheckpointDelta, Flush, PoolCheckpoint};
use crate::device::{budgets, frees, pools, recorder};
#[cfg(doc)]
use crate::error::AllocError;
use crate::error::Result;
use crate::features::share::{RegisteredMemory, RegisteredOptions};
use crate::lifetimes::last_work::LastWork;
use crate::memory::source::SegmentSource;
use crate::sync::plain::AtomicU64;
use crate::sync::{Arc, Ordering};
use crate::types::{DeviceIndex, DevicePtr, PoolId, Stream};
use crate::watch::history::ProgramCall;
use crate::watch::snapshot::Snapshot;
use std::collections::BTreeSet;

/// Numbers of pools that programs make, and of those that captures make; shared by all allocators of the process.
static USER_POOLS: AtomicU64 = AtomicU64::new(1);
static CAPTURE_POOLS: AtomicU64 = AtomicU64::new(1);

impl PoolId {
    /// A new id for a pool that the program makes: `(0, n)`, never used before in this process.
    #[must_use]
    pub fn fresh() -> Self {
        Self(0, USER_POOLS.fetch_add(1, Ordering::Relaxed))
    }

    /// A new id for the pool of a capture: `(n, 0)`, never used before in this process.
    #[must_use]
    pub fn fresh_for_capture() -> Self {
        Self(CAPTURE_POOLS.fetch_add(1, Ordering::Relaxed), 0)
    }
}

/// Private pools of an allocator, captures and checkpoints: [`CachingAllocator::pools`].
#[derive(Clone, Copy, Debug)]
pub struct Pools<'a>(&'a CachingAllocator);

impl<'a> Pools<'a> {
    pub(super) fn of(allocator: &'a CachingAllocator) -> Self {
        Self(allocator)
    }

    /// Makes a pool with one reference, or adds a reference to it. Its memory comes from `source`, if one is given
    /// when the pool is made. PyTorch: `createOrIncrefPool`.
    ///
    /// # Errors
    /// [`AllocError::DeadPool`] for a pool that was released by everyone; [`AllocError::Pool`] for the default pool,
    /// and for a source given to a pool that exists.
    pub fn create(
        self,
        device: DeviceIndex,
        pool: PoolId,
        source: Option<Arc<dyn SegmentSource>>,
    ) -> Result<()> {
        self.reference_pool(device, pool, source, Holder::Program)
    }

    /// Memory of a device for a pool whose segments libraries register, such as NCCL; see [`RegisteredMemory`].
    /// Asks the driver.
    ///
    /// # Errors
    /// [`AllocError::InvalidDevice`]; the driver's, where it has no virtual memory.
    pub fn registered(
        self,
        device: DeviceIndex,
        options: &RegisteredOptions,
    ) -> Result<Arc<RegisteredMemory>> {
        for other in &options.reached_by {
            self.0.device(*other)?;
        }
        let exchange = &self.0.device(device)?.exchange;
        RegisteredMemory::new(&self.0.backend, device, exchange.shareable(), options).map(Arc::new)
    }

    pub(crate) fn reference_pool(
        self,
        device: DeviceIndex,
        pool: PoolId,
        source: Option<Arc<dyn SegmentSource>>,
        holder: Holder,
    ) -> Result<()> {
        pools::create(self.0.device(device)?, pool, source, holder)
    }

    /// Sends requests that `filter` accepts to the pool. The pool gets one more reference, and is made if there is
    /// none. Where several scopes accept a request, the newest of them counts. PyTorch: `beginAllocateToPool`.
    ///
    /// # Errors
    /// [`AllocError::Pool`] where a scope of the pool is open already; [`AllocError::DeadPool`]. Nothing has changed
    /// then.
    pub fn begin(self, device: DeviceIndex, pool: PoolId, filter: Filter) -> Result<()> {
        self.open_scope(device, pool, filter, Holder::Program)
    }

    pub(crate) fn open_scope(
        self,
        device: DeviceIndex,
        pool: PoolId,
        filter: Filter,
        holder: Holder,
    ) -> Result<()> {
        let filter = match filter {
            Filter::Stream(stream) => Filter::Stream(self.0.own(stream)?),
            Filter::CaptureOf(stream) => Filter::CaptureOf(self.0.own(stream)?),
            other => other,
        };
        pools::begin(self.0.device(device)?, pool, filter, holder)
    }

    /// Ends the pool's scope. The pool's references stay: [`release`](Self::release) takes the reference of
    /// [`begin`](Self::begin) away. PyTorch: `endAllocateToPool`.
    ///
    /// # Errors
    /// [`AllocError::Pool`] where no scope of the pool is open, or a value ([`PoolScope`], [`GraphCapture`]) has it
    /// open.
    ///
    /// [`PoolScope`]: crate::pool::PoolScope
    /// [`GraphCapture`]: crate::graph::GraphCapture
    pub fn end(self, device: DeviceIndex, pool: PoolId) -> Result<()> {
        self.close_scope(device, pool, Holder::Program)
    }

    pub(crate) fn close_scope(self, device: DeviceIndex, pool: PoolId, holder: Holder) -> Result<()> {
        self.0.give_back(device, |device| device.end_pool(pool, holder))
    }

    /// Takes a reference of [`create`](Self::create) or [`begin`](Self::begin) away. References of values
    /// ([`MemoryPool`](crate::pool::MemoryPool), [`PoolScope`], [`GraphCapture`],
    /// [`CapturedGraph`](crate::graph::CapturedGraph)) go with the values. Without a reference the pool serves nobody
    /// any more. Its cached memory goes with the next flush, and the rest when it is free. PyTorch: `releasePool`.
    ///
    /// # Errors
    /// [`AllocError::UnknownPool`], [`AllocError::DeadPool`]; [`AllocError::Pool`] where only values have references.
    ///
    /// [`PoolScope`]: crate::pool::PoolScope
    /// [`GraphCapture`]: crate::graph::GraphCapture
    pub fn release(self, device: DeviceIndex, pool: PoolId) -> Result<()> {
        self.unreference_pool(device, pool, Holder::Program)
    }

    pub(crate) fn unreference_pool(self, device: DeviceIndex, pool: PoolId, holder: Holder) -> Result<()> {
        self.0.give_back(device, |device| {
            if pools::release(device, pool, holder)? {
                recorder::note(device, ProgramCall::PoolEnds { pool });
            }
            Ok(())
        })
    }

    /// A graph knows addresses of the pool: nothing of it leaves while it is in use.
    pub(crate) fn note_captured(self, device: DeviceIndex, pool: PoolId) -> Result<()> {
        pools::note_captured(self.0.device(device)?, pool)
    }

    /// Keeps a pool's memory until `launches` are done, also when nobody uses the pool any more.
    pub(crate) fn keep_pool_for(
        self,
        device: DeviceIndex,
        pool: PoolId,
        launches: &[Arc<LastWork>],
    ) -> Result<()> {
        self.0.give_back(device, |device| pools::keep_for(device, pool, launches))
    }

    /// References to a pool. PyTorch: `getPoolUseCount`.
    ///
    /// # Errors
    /// [`AllocError::UnknownPool`].
    pub fn use_count(self, device: DeviceIndex, pool: PoolId) -> Result<u32> {
        pools::use_count(self.0.seen_device(device)?, pool)
    }

    /// Lets requests to the default pool that cannot be served otherwise take this pool's cached memory, if `on`.
    /// PyTorch: `setUseOnOOM`.
    ///
    /// # Errors
    /// [`AllocError::UnknownPool`], [`AllocError::DeadPool`].
    pub fn set_use_on_oom(self, device: DeviceIndex, pool: PoolId, on: bool) -> Result<()> {
        pools::set_use_on_oom(self.0.device(device)?, pool, on)
    }

    /// The pool hands blocks out whole from here on, until it is released. PyTorch: `setNoSplit`.
    ///
    /// # Errors
    /// [`AllocError::UnknownPool`], [`AllocError::DeadPool`].
    pub fn set_no_split(self, device: DeviceIndex, pool: PoolId) -> Result<()> {
        pools::set_no_split(self.0.device(device)?, pool)
    }

    /// Gives the cached memory of one pool back on every device that has the pool, if nobody uses it any more. A pool
    /// in use keeps its memory. Blocks. PyTorch: `emptyCache` with an id.
    ///
    /// # Errors
    /// The first driver error; memory that could not be given back stays cached.
    pub fn empty(self, pool: PoolId) -> Result<()> {
        self.0.each_device(|device| match pools::slot_of(device, pool) {
            Ok(slot) => {
                recorder::note(device, ProgramCall::EmptyPool { pool });
                device.empty_cache(Flush::Pool(slot))
            }
            // Another device's, or gone with its memory.
            Err(_) => {
                pools::pass_over_gone(device, pool);
                Ok(())
            }
        })
    }

    /// The memory that a pool holds, and its users.
    ///
    /// # Errors
    /// [`AllocError::UnknownPool`].
    pub fn stats(self, device: DeviceIndex, pool: PoolId) -> Result<PoolStats> {
        pools::stats(self.0.seen_device(device)?, pool)
    }

    /// Takes memory into a pool for requests of these sizes in bytes, all live at a time, for `stream`. The requests
    /// then need nothing from the device. This is for a capture, which begins with an empty pool. The pool makes no
    /// views from then on (`policy:granule`): what it has stays where a capture will look for it.
    ///
    /// # Errors
    /// Those of [`malloc`](CachingAllocator::malloc); memory that was taken until then stays cached.
    pub fn prime(self, pool: PoolId, stream: Stream, sizes: &[u64]) -> Result<()> {
        let stream = self.0.own(stream)?;
        self.0.device(stream.device)?.prime_pool(pool, stream, sizes)
    }

    /// True if the live blocks of a pool are exactly `expected`; pending blocks do not count. PyTorch:
    /// `checkPoolLiveAllocations`.
    ///
    /// # Errors
    /// [`AllocError::UnknownPool`].
    pub fn has_live(self, device: DeviceIndex, pool: PoolId, expected: &BTreeSet<DevicePtr>) -> Result<bool> {
        pools::has_live(self.0.seen_device(device)?, pool, expected)
    }

    /// Says that a stream of `device` is being captured from here on, until
    /// [`mark_capture_end`](Self::mark_capture_end). PyTorch: `markCaptureBegin`.
    ///
    /// # Errors
    /// [`AllocError::Backend`] where the backend has no graph capture.
    pub fn mark_capture_begin(self, device: DeviceIndex) -> Result<()> {
        self.mark_begin(device, Holder::Program)
    }

    pub(crate) fn mark_begin(self, device: DeviceIndex, holder: Holder) -> Result<()> {
        frees::mark_capture_begin(self.0.device(device)?, holder)
    }

    /// Says that a capture has ended, well or not, after its begin was [marked](Self::mark_capture_begin). A
    /// [`GraphCapture`] marks its end by itself. When no capture is under way any more, blocks freed meanwhile become
    /// free as far as graphs are concerned: at the next request, capture or wait, so retire streams that you destroy
    /// before. PyTorch: `markCaptureEnd`.
    ///
    /// # Errors
    /// [`AllocError::NoCapture`] where no capture is under way.
    ///
    /// [`GraphCapture`]: crate::graph::GraphCapture
    pub fn mark_capture_end(self, device: DeviceIndex) -> Result<()> {
        self.mark_end(device, Holder::Program)
    }

    pub(crate) fn mark_end(self, device: DeviceIndex, holder: Holder) -> Result<()> {
        self.0.give_back(device, |device| frees::mark_capture_end(device, holder))
    }

    /// Saves which blocks of a pool are live. PyTorch: `getCheckpointState`.
    ///
    /// # Errors
    /// [`AllocError::UnknownPool`]; [`AllocError::Checkpoint`] while blocks wait for streams, or lie in views
    /// (`policy:granule`).
    pub fn checkpoint(self, device: DeviceIndex, pool: PoolId) -> Result<PoolCheckpoint> {
        self.0.device(device)?.checkpoint(pool)
    }

    /// Makes exactly those blocks of the pool live that were live when `saved` was made. Memory that came since stays
    /// as free memory, and contents stay as they are. Every block that is live now is freed first, also a block that is
    /// live afterwards. With `stale`, each of the freed blocks must be among these. PyTorch: `setCheckpointPoolState`.
    ///
    /// # Errors
    /// [`AllocError::Checkpoint`] where restoring is not possible, [`AllocError::DeadPool`],
    /// [`AllocError::UnknownPool`]. Nothing has changed then.
    pub fn restore(
        self,
        saved: &PoolCheckpoint,
        stale: Option<&BTreeSet<DevicePtr>>,
    ) -> Result<CheckpointDelta> {
        self.0.device(saved.device())?.restore(saved, stale)
    }

    /// Limits the memory that a pool, the default one included, may hold. Beyond `soft` its cached memory goes back
    /// before more is taken, and observers are told. Beyond `hard` nothing is taken. `None` lifts a limit. The pool
    /// keeps the memory that it holds already.
    ///
    /// # Errors
    /// [`AllocError::UnknownPool`]; [`AllocError::Budget`] for a limit of nothing, over the whole device, or a soft
    /// limit above the hard one.
    pub fn set_limits(
        self,
        device: DeviceIndex,
        pool: PoolId,
        hard: Option<MemoryLimit>,
        soft: Option<MemoryLimit>,
    ) -> Result<()> {
        budgets::set_pool_limits(self.0.device(device)?, pool, hard, Some(soft))
    }

    /// [`set_limits`](Self::set_limits) for the hard limit alone; the soft one stays as it is.
    ///
    /// # Errors
    /// Those of [`set_limits`](Self::set_limits).
    pub fn set_hard_limit(self, device: DeviceIndex, pool: PoolId, limit: Option<MemoryLimit>) -> Result<()> {
        budgets::set_pool_limits(self.0.device(device)?, pool, limit, None)
    }

    /// [`snapshot`](CachingAllocator::snapshot) of one pool's segments; none where there is no such pool. The history
    /// is that of all pools, as in PyTorch. (To PyTorch the id of the default pool means all pools: use
    /// [`snapshot`](CachingAllocator::snapshot) for that.)
    #[must_use]
    pub fn snapshot(self, pool: PoolId, traces: bool) -> Snapshot {
        self.0.snapshot_of(Some(pool), traces)
    }
}
