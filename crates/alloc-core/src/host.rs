//! Pinned host memory: page-locked, so that devices copy from and to it on their own, cached, and reused only after the
//! streams that were said to use it.
//!
//! One [`HostAllocator`] serves all devices of a backend. Blocks are never split or merged; [`HostSizing`] says which requests a
//! free one serves. It behaves as PyTorch's `CachingHostAllocator`, except where that loses memory or
//! time:
//!
//! * a slow stream holds up only the blocks that it uses (there: all that were freed later);
//! * space of the reserve (`pinned_reserve_segment_size_mb`) that is emptied can be used again (there: lost for good);
//! * a block whose event could not be recorded waits for the next [`synchronise`](HostAllocator::synchronise) (there:
//!   lost for good);
//! * before it runs out of memory, it gives back what it has cached, and waits for devices;
//! * a free of what was freed before is an error, not undefined.
//!
//! ```text
//! host.rs          the allocator a program uses         pinned_buffer.rs  memory that frees itself
//! cache.rs         requests, frees, emptying, the end   background.rs     the thread that watches devices
//! stream_uses.rs   streams and graphs that use blocks   own_pages.rs      memory that the program pins itself
//! completions.rs   work of devices on freed blocks      pinned_pools.rs   private pools
//! shared.rs        the table, locked; observers         pinned_source.rs  driver, registered pages, reserve
//! table.rs         every block                          pinned_source/    fresh pages, their nodes, the reserve's space
//! pinned_block.rs  a block's life                       driver_access.rs  state of the driver, captures
//! free.rs          free blocks, by size and age         pinned_stats.rs   figures
//! sizing.rs        rounding                             trace.rs          the history
//! ```

mod background;
mod cache;
mod completions;
mod driver_access;
mod free;
mod own_pages;
mod pinned_block;
mod pinned_buffer;
mod pinned_pools;
mod pinned_source;
mod pinned_stats;
mod shared;
mod sizing;
mod stream_uses;
mod table;
mod trace;

pub use crate::watch::stats::DurationStat;
pub use pinned_buffer::PinnedBuffer;
pub use pinned_source::numa::NumaPolicy;
pub use pinned_stats::{BUCKETS, HostBucket, HostGranuleStats, HostStats};
pub use sizing::HostSizing;

use crate::arena::pool_table::Filter;
use crate::backend::{Backend, CopyKind};
use crate::config::{PolicyName, Settings};
use crate::error::{AllocError, Result, log_end};
use crate::process::attention::{ProcessState, Reason};
use crate::process::pinned::{self, Pins};
use crate::process::unified::Membership;
use crate::sync::{Arc, Mutex, Rank};
use crate::types::{DevicePtr, PoolId, Stream};
use crate::watch::history::{HistoryOptions, SnapshotContexts};
use crate::watch::snapshot::Snapshot;
use background::Background;
use cache::PinnedCache;
use std::mem::ManuallyDrop;
use std::path::PathBuf;

/// Names a block while the program has it; PyTorch's context pointer. Never used twice in a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct HostBlockId(pub u64);

impl HostBlockId {
    /// The block of 0 bytes.
    pub const NONE: Self = Self(0);
}

/// A block that was handed out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct HostBlock {
    /// Its address, for the host and for devices.
    pub ptr: DevicePtr,
    /// Identity. Not the address: that is another block's later.
    pub id: HostBlockId,
    /// Bytes as requested.
    pub bytes: u64,
    /// Bytes of the block.
    pub size: u64,
}

impl HostBlock {
    /// That of a request for 0 bytes.
    pub const NONE: Self = Self { ptr: DevicePtr::NULL, id: HostBlockId::NONE, bytes: 0, size: 0 };
}

/// Options of a new [`HostAllocator`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostOptions {
    /// Rounding of requests, where the settings' `pinned_sizes` do not say it.
    pub sizing: HostSizing,
    /// Placement of memory. Where the system does not offer that, it is said, and nothing is placed.
    pub numa: NumaPolicy,
    /// Folder of the system's devices and nodes.
    pub sysfs: PathBuf,
    /// An allocator over the same backend is told of every capture
    /// ([`mark_capture_begin`](crate::allocator::Pools::mark_capture_begin)): while there is none, a request
    /// does not ask the driver about its stream.
    pub captures_are_told: bool,
}

impl Default for HostOptions {
    fn default() -> Self {
        Self {
            sizing: HostSizing::default(),
            numa: NumaPolicy::default(),
            sysfs: "/sys".into(),
            captures_are_told: false,
        }
    }
}

impl HostOptions {
    /// Options for a policy of the engine.
    #[must_use]
    pub fn of(policy: PolicyName) -> Self {
        Self { sizing: HostSizing::of(policy), ..Self::default() }
    }
}

/// A caching allocator for pinned host memory. Every method may be called from any thread.
///
/// At the edges of a process it behaves as [`CachingAllocator`](crate::CachingAllocator) does: in a forked child calls
/// answer [`AllocError::Forked`] and nothing is touched; once the driver goes away, what gives something back does
/// nothing, and what asks for something is refused.
#[derive(Debug)]
pub struct HostAllocator {
    cache: Arc<PinnedCache>,
    /// Its part in memory that devices share, if they do.
    unified: Option<Membership>,
    /// The thread, or none where the system refused one. Never dropped in a forked child, which has no such thread.
    background: ManuallyDrop<Mutex<Option<std::io::Result<Background>>>>,
}

impl HostAllocator {
    /// An allocator over `backend`, with the settings' `pinned_...` options. No memory is taken before it is needed.
    ///
    /// # Errors
    /// What the backend says to questions about its devices; [`AllocError::Settings`] for values out of range.
    pub fn new(backend: Arc<dyn Backend>, settings: &Settings, options: HostOptions) -> Result<Self> {
        let cache = Arc::new(PinnedCache::new(backend, settings, &options)?);
        let unified = cache.join();
        Ok(Self { cache, unified, background: ManuallyDrop::new(Mutex::new(Rank::Registry, None)) })
    }

    /// The backend.
    #[must_use]
    pub fn backend(&self) -> &Arc<dyn Backend> {
        self.cache.driver().backend()
    }

    /// The node that memory is placed on; `None` where the system decides.
    #[must_use]
    pub fn node(&self) -> Option<u32> {
        self.cache.node()
    }

    /// Memory of `bytes`, aligned to 64 bytes at least, of no stream's. 0 bytes give [`HostBlock::NONE`]. **Blocks** where
    /// the cache has no fit, while the driver pins memory; before that fails for want of memory, devices are waited for.
    ///
    /// Where devices share the memory, it counts against their limits, next to what they hold; before a request is refused,
    /// devices give back what they have cached.
    ///
    /// # Errors
    /// [`AllocError::Backend`]; [`AllocError::PinnedOutOfMemory`] where such a limit refuses. Nothing is lost, and the call can be
    /// made again.
    pub fn allocate(&self, bytes: u64) -> Result<HostBlock> {
        self.start_background();
        self.asking(|cache| cache.allocate(bytes, None))
    }

    /// [`allocate`](Self::allocate) for a program whose current stream is `stream`: the scopes of private pools see it, and
    /// if it is being captured, so does the block: once a stream uses that, it is never handed out again, for a graph
    /// may use it whenever it is launched. PyTorch: `allocate`, with the current stream.
    ///
    /// # Errors
    /// As for `allocate`; [`AllocError::ForeignStream`], [`AllocError::InvalidDevice`].
    pub fn allocate_for(&self, bytes: u64, stream: Stream) -> Result<HostBlock> {
        self.start_background();
        self.asking(|cache| cache.allocate(bytes, Some(stream)))
    }

    /// Takes a block back. It is free at once, or once the streams that were recorded are done with it. Never waits for a
    /// device; calls the driver where streams were recorded, and for blocks that are too large to be cached.
    ///
    /// # Errors
    /// [`AllocError::UnknownHostBlock`] where the program does not have the block, or a [`PinnedBuffer`] has it. What the driver answers where it does
    /// not take a large block back, which is cached then, unless `pinned_free_catch_all` is on.
    pub fn free(&self, id: HostBlockId) -> Result<()> {
        self.giving(|cache| cache.free(id))
    }

    /// Says that work of `stream` uses a block: that of `id`, or else the one that begins at `ptr`. `false` where neither
    /// is known, so that memory of others may be asked about. Does not block. PyTorch: `record_event`.
    ///
    /// A block used by a stream that is being captured is never handed out again.
    ///
    /// # Errors
    /// [`AllocError::ForeignStream`], [`AllocError::InvalidDevice`]; what the driver answers to the question whether the
    /// stream is being captured. Nothing is recorded then.
    pub fn record_event(&self, ptr: DevicePtr, id: HostBlockId, stream: Stream) -> Result<bool> {
        self.asking(|cache| cache.uses().record(ptr, id, stream))
    }

    /// Queues a copy, and records it for the blocks of this allocator that it uses, wherever inside of them. Does not
    /// block, but for memory that is not pinned. In a capture such memory is refused.
    ///
    /// # Errors
    /// Those of [`record_event`](Self::record_event); what the driver answers.
    ///
    /// # Safety
    /// As for [`Backend::copy_async`]; and slices of a [`PinnedBuffer`] are not used before the copy is done.
    pub unsafe fn copy_async(
        &self,
        dst: DevicePtr,
        src: DevicePtr,
        bytes: u64,
        kind: CopyKind,
        stream: Stream,
    ) -> Result<()> {
        // SAFETY: the caller's promise.
        self.asking(|cache| unsafe { cache.uses().copy(dst, src, bytes, kind, stream) })
    }

    /// Pins memory of the program's own, in place. It is shown in the history; nothing else is known of it. **Blocks.**
    ///
    /// # Errors
    /// What the driver answers, also where it cannot register memory.
    ///
    /// # Safety
    /// The range is valid host memory until it is unregistered.
    pub unsafe fn register(&self, ptr: DevicePtr, bytes: u64) -> Result<()> {
        // SAFETY: the caller's promise.
        self.asking(|cache| unsafe { own_pages::register(cache.driver(), cache.table(), ptr, bytes) })
    }

    /// Undoes [`register`](Self::register). **Blocks.**
    ///
    /// # Errors
    /// What the driver answers; the memory is still pinned then.
    ///
    /// # Safety
    /// Rule 3 of the [backend](crate::backend).
    pub unsafe fn unregister(&self, ptr: DevicePtr) -> Result<()> {
        // SAFETY: the caller's promise.
        self.giving(|cache| unsafe { own_pages::unregister(cache.driver(), cache.table(), ptr) })
    }

    /// Says that the program has pinned memory of its own, in place, by other means than [`register`](Self::register): the history
    /// shows it. PyTorch: `record_external_register`.
    pub fn note_registered(&self, ptr: DevicePtr, bytes: u64) {
        if let Some(cache) = self.watched() {
            own_pages::note(cache.table(), ptr, bytes);
        }
    }

    /// Says that such memory is not pinned any more. PyTorch: `record_external_unregister`.
    pub fn note_unregistered(&self, ptr: DevicePtr) {
        if let Some(cache) = self.watched() {
            own_pages::forget(cache.table(), ptr);
        }
    }

    /// Says that `stream` is about to be destroyed: its handle is not named again. Rarely blocks; see
    /// [`CachingAllocator::retire_stream`](crate::CachingAllocator::retire_stream).
    ///
    /// # Errors
    /// As there.
    ///
    /// # Safety
    /// As there: all work of `stream` that uses pinned blocks was queued before the call.
    pub unsafe fn retire_stream(&self, stream: Stream) -> Result<()> {
        self.giving(|cache| {
            let stream = cache.driver().own(stream)?;
            cache.uses().retire(stream)?;
            cache.pools().retire(stream);
            Ok(())
        })
    }

    /// Notices completed uses, without waiting. Every request does this, unless a background thread does.
    ///
    /// # Errors
    /// What the driver answers; blocks of other devices are noticed all the same.
    pub fn poll(&self) -> Result<()> {
        self.asking(|cache| cache.poll(None))
    }

    /// Waits for all uses of blocks that were given back, those included whose event could not be recorded. **Blocks.**
    ///
    /// # Errors
    /// What the driver answers; what is left keeps waiting.
    pub fn synchronise(&self) -> Result<()> {
        self.asking(|cache| cache.synchronise(None))
    }

    /// Gives cached blocks back to the driver: those of the default pool, and of pools that nobody uses any more. Waits
    /// for no device. **Blocks** while the driver unpins. PyTorch: `empty_cache`.
    ///
    /// # Errors
    /// The first driver error; what could not be given back stays cached.
    pub fn empty_cache(&self) -> Result<()> {
        self.giving(PinnedCache::empty)
    }

    /// Sends requests that `filter` accepts to the pool, which gets a reference more, and is made if there is none. Of
    /// several scopes the oldest that accepts counts. Requests without a stream are accepted by [`Filter::Always`] and
    /// [`Filter::Thread`] alone. PyTorch: `begin_allocate_to_pool`.
    ///
    /// # Errors
    /// [`AllocError::Pool`] where a scope of the pool is open already; [`AllocError::DeadPool`].
    pub fn begin_pool(&self, pool: PoolId, filter: &Filter) -> Result<()> {
        self.asking(|cache| cache.pools().begin(pool, filter))
    }

    /// Ends the pool's scope; its references stay. PyTorch: `end_allocate_to_pool`.
    ///
    /// # Errors
    /// [`AllocError::Pool`] where no scope of the pool is open.
    pub fn end_pool(&self, pool: PoolId) -> Result<()> {
        self.giving(|cache| cache.pools().end(pool))
    }

    /// Takes a reference away. After the last, the pool serves nobody, and [`empty_cache`](Self::empty_cache) gives back
    /// what it has cached. PyTorch: `release_pool`.
    ///
    /// # Errors
    /// [`AllocError::UnknownPool`], [`AllocError::DeadPool`].
    pub fn release_pool(&self, pool: PoolId) -> Result<()> {
        self.giving(|cache| cache.pools().release(pool))
    }

    /// Replaces the settings. Blocks stay as they are, and go back the way they came; the reserve is made once, with the
    /// size that was given at first.
    ///
    /// # Errors
    /// [`AllocError::Settings`] for values out of range; [`AllocError::Forked`].
    pub fn configure(&self, settings: &Settings) -> Result<()> {
        cache::validate(settings)?;
        self.watched().ok_or(AllocError::Forked)?.configure(settings);
        Ok(())
    }

    /// All figures, of one moment; zeros in a forked child. PyTorch: `host_memory_stats`.
    #[must_use]
    pub fn stats(&self) -> HostStats {
        self.watched().map(PinnedCache::stats).unwrap_or_default()
    }

    /// Peaks become the current values; shortest and longest times are forgotten.
    pub fn reset_peak_stats(&self) {
        if let Some(cache) = self.watched() {
            cache.table().lock().reset_peak_stats();
        }
    }

    /// Sums and counts begin anew.
    pub fn reset_accumulated_stats(&self) {
        if let Some(cache) = self.watched() {
            cache.table().lock().reset_accumulated_stats();
        }
    }

    /// Records the newest `options.max_entries` operations; 0 turns history off, and forgets it only where
    /// `options.clear` says so. It has nothing to do with the history of devices.
    ///
    /// # Errors
    /// [`AllocError::Forked`], [`AllocError::DriverGone`].
    pub fn record_history(&self, options: &HistoryOptions) -> Result<()> {
        self.asking(|cache| {
            cache.table().record_history(options);
            Ok(())
        })
    }

    /// True if history is on.
    #[must_use]
    pub fn is_history_enabled(&self) -> bool {
        self.watched().is_some_and(|cache| cache.table().lock().trace().is_on())
    }

    /// Adds blocks, while history is on, and with `traces` the history, to a snapshot of the devices.
    pub fn add_to_snapshot(&self, snapshot: &mut Snapshot, traces: bool) {
        if let Some(cache) = self.watched() {
            cache.table().add_to_snapshot(snapshot, traces);
        }
    }

    /// Blocks, while history is on, and with `traces` the history, shown as those of one device, and the call contexts as they
    /// were gathered; as [`History::snapshot_with_contexts`](crate::allocator::History::snapshot_with_contexts).
    #[must_use]
    pub fn snapshot_with_contexts(&self, traces: bool) -> (Snapshot, SnapshotContexts) {
        self.watched().map(|cache| cache.table().observe(traces)).unwrap_or_default()
    }

    /// Says that the driver is about to be unloaded: it is never called again. **Blocks** until a call of the background
    /// thread has returned; those of the program's threads are the program's to wait for.
    pub fn abandon(&self) {
        self.cache.driver().attention().set(Reason::DRIVER_GONE, true);
        if self.watched().is_some() {
            self.stop_background();
        }
    }

    /// Asks for something: refused at an edge of the process. Whether the driver is unloading is seen from what comes of it.
    fn asking<T>(&self, work: impl FnOnce(&PinnedCache) -> Result<T>) -> Result<T> {
        let driver = self.cache.driver();
        driver.process_state().map_or(Ok(()), |process_state| Err(process_state.refusal()))?;
        driver.noticing(work(&self.cache))
    }

    /// Gives something back: nothing is left to be done for that once the driver has gone.
    fn giving(&self, work: impl FnOnce(&PinnedCache) -> Result<()>) -> Result<()> {
        let driver = self.cache.driver();
        driver.process_state().map_or_else(|| driver.noticing(work(&self.cache)), ProcessState::of_release)
    }

    /// For those who only look: in a forked child there is nothing to be seen.
    fn watched(&self) -> Option<&PinnedCache> {
        (!self.cache.driver().is_forked()).then_some(&self.cache)
    }

    /// A buffer has a block, and alone frees it, or gives it up.
    fn set_buffered(&self, id: HostBlockId, buffered: bool) -> Result<()> {
        self.giving(|cache| cache.set_buffered(id, buffered))
    }

    fn stop_background(&self) {
        let background = self.background.lock().take();
        if let Some(Ok(background)) = background {
            background.stop();
        }
    }

    /// The thread starts with the first request that wants it, and stays until the allocator is dropped or abandoned.
    fn start_background(&self) {
        if !self.cache.wants_thread() || self.cache.driver().process_state().is_some() {
            return;
        }
        let mut background = self.background.lock();
        background.get_or_insert_with(|| {
            Background::start(&self.cache).inspect_err(|error| {
                tracing::warn!(%error, "no thread could be started; requests notice completed uses themselves");
            })
        });
    }
}

impl Drop for HostAllocator {
    /// Gives everything back that is not in the program's hands. **Blocks** until devices are done with it; graphs that
    /// use pinned memory have to be gone. At an edge of the process nothing is done: what backups look at stays.
    fn drop(&mut self) {
        let driver = self.cache.driver();
        if driver.is_forked() {
            // Locks may be those of threads that the child does not have.
            let _cache = ManuallyDrop::new(Arc::clone(&self.cache));
            return;
        }
        self.stop_background();
        pinned::remove(driver.backend().id(), &(Arc::clone(&self.cache) as Arc<dyn Pins>));
        if let Some(unified) = &self.unified {
            unified.end(driver.process_state().is_none());
        }
        if driver.process_state().is_some() {
            let _cache = ManuallyDrop::new(Arc::clone(&self.cache));
        } else {
            // Nobody can ask again, so what failed is tried once more here.
            let ended = self.cache.shut_down().or_else(|_| self.cache.shut_down());
            log_end(driver.noticing(ended), "pinned memory could not be given back");
        }
    }
}
