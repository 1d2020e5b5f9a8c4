//! The allocator a program uses: all devices of one backend behind one address map.

use crate::address_map::AddressMap;
use crate::backend::Backend;
use crate::config::{AllocatorBackend, Settings};
use crate::device::{DeviceAllocator, FreeMemoryCallback, OutOfMemoryObserver};
use crate::error::{AllocError, Result};
use crate::history::HistoryOptions;
use crate::policy::{Policy, PytorchPolicy};
use crate::snapshot::{HistoryStatus, Snapshot, Value};
use crate::stats::DeviceStats;
use crate::sync::{Arc, Mutex, Rank};
use crate::types::{DeviceIndex, DevicePtr, PoolId, Stream};

/// How much could be had in one piece, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheInfo {
    /// The largest free block in the cache.
    pub largest_cached: u64,
    /// What the driver has free.
    pub device_free: u64,
}

impl CacheInfo {
    /// PyTorch's `cacheInfo`: the larger of the two.
    #[must_use]
    pub fn largest(self) -> u64 {
        self.largest_cached.max(self.device_free)
    }
}

/// The segment that holds a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BaseAllocation {
    /// First address.
    pub base: DevicePtr,
    /// Length in bytes.
    pub bytes: u64,
}

/// A stream-ordered caching allocator for every device of a backend.
///
/// Memory is handed out in the order of a stream's work: it may be used on that stream at once, and when it
/// is freed, the stream's later requests may get it at once, too. A program that uses memory on another stream
/// says so with [`record_stream`](Self::record_stream).
///
/// Every method may be called from any thread.
#[derive(Debug)]
pub struct CachingAllocator<P: Policy = PytorchPolicy> {
    backend: Arc<dyn Backend>,
    map: Arc<AddressMap>,
    devices: Vec<DeviceAllocator<P>>,
    settings: Mutex<Settings>,
}

impl<P: Policy> CachingAllocator<P> {
    /// An allocator for all devices of `backend`. History is on from the start where the settings say so.
    ///
    /// # Errors
    /// What the backend says to questions about its devices; [`AllocError::Settings`] for settings it
    /// cannot honour.
    pub fn new(backend: Arc<dyn Backend>, settings: Settings) -> Result<Self> {
        if settings.backend == AllocatorBackend::DriverPools {
            let reason = backend.driver_pools().err().map_or_else(
                || {
                    "this engine is the caching one; take the driver's pools through Backend::driver_pools"
                        .into()
                },
                |absent| absent.to_string(),
            );
            return Err(AllocError::Settings(format!(
                "backend:cudaMallocAsync is not served by the caching engine ({reason}); remove it, or write \
                 backend:native"
            )));
        }
        settings.validate().map_err(AllocError::Settings)?;
        let map = Arc::new(AddressMap::default());
        // An address map entry has 8 bits for the device.
        let count = backend.device_count()?.min(256);
        let devices = (0..count)
            .map(|n| DeviceAllocator::new(Arc::clone(&backend), DeviceIndex(n), Arc::clone(&map), &settings))
            .collect::<Result<_>>()?;
        let history = usize::try_from(settings.history_max_entries).unwrap_or(usize::MAX);
        let allocator = Self { backend, map, devices, settings: Mutex::new(Rank::Registry, settings) };
        if history > 0 {
            allocator.record_history(HistoryOptions { max_entries: history, deterministic: false });
        }
        Ok(allocator)
    }

    /// The backend.
    #[must_use]
    pub fn backend(&self) -> &Arc<dyn Backend> {
        &self.backend
    }

    /// How many devices there are.
    #[must_use]
    pub fn device_count(&self) -> u16 {
        u16::try_from(self.devices.len()).unwrap_or(u16::MAX)
    }

    /// The policy's name.
    #[must_use]
    pub fn policy_name(&self) -> &'static str {
        P::NAME
    }

    #[inline]
    fn device(&self, device: DeviceIndex) -> Result<&DeviceAllocator<P>> {
        self.devices.get(device.0 as usize).ok_or_else(|| self.no_device(device))
    }

    #[cold]
    fn no_device(&self, device: DeviceIndex) -> AllocError {
        AllocError::InvalidDevice { device, count: self.device_count() }
    }

    #[inline]
    fn own(&self, stream: Stream) -> Result<()> {
        if stream.backend == self.backend.id() { Ok(()) } else { Err(AllocError::ForeignStream) }
    }

    /// Memory of `bytes` for work of `stream`, aligned to 512 bytes. 0 bytes give the null address. Blocks
    /// only when the cache has no fit: then the driver is asked, and before an out-of-memory error every
    /// pending free is waited for. PyTorch: `raw_alloc_with_stream`.
    ///
    /// # Errors
    /// [`AllocError::OutOfMemory`] when no fit exists after every remedy; [`AllocError::Backend`] for
    /// other driver errors. Nothing is lost, and the call can be made again.
    #[inline]
    pub fn malloc(&self, bytes: u64, stream: Stream) -> Result<DevicePtr> {
        self.own(stream)?;
        let device = self.device(stream.device)?;
        if bytes == 0 {
            return Ok(DevicePtr::NULL);
        }
        device.malloc(bytes, stream)
    }

    /// Takes memory back, in the order of its stream's work. The null address is fine. Never asks the
    /// device for memory, never waits for it. Any 64-bit value may be given. PyTorch: `raw_delete`.
    ///
    /// # Errors
    /// [`AllocError::InvalidPointer`] where `ptr` is no live block.
    #[inline]
    pub fn free(&self, ptr: DevicePtr) -> Result<()> {
        if ptr.is_null() {
            return Ok(());
        }
        match self.map.get(ptr) {
            Some(at) if self.devices[at.device.0 as usize].free(ptr, at) => Ok(()),
            _ => Err(AllocError::InvalidPointer { ptr }),
        }
    }

    /// Says that work of `stream` uses the block at `ptr`: after its free it is not reused before what
    /// `stream` had been given up to the free is done. The block's own stream is ignored, and so is the null
    /// address. Does not block. PyTorch: `recordStream`.
    ///
    /// # Errors
    /// [`AllocError::InvalidPointer`] where `ptr` is no live block.
    pub fn record_stream(&self, ptr: DevicePtr, stream: Stream) -> Result<()> {
        self.own(stream)?;
        self.device(stream.device)?;
        if ptr.is_null() {
            return Ok(());
        }
        match self.map.get(ptr) {
            Some(at) if self.devices[at.device.0 as usize].record_stream(ptr, at, stream)? => Ok(()),
            _ => Err(AllocError::InvalidPointer { ptr }),
        }
    }

    /// Says that `stream` is about to be destroyed: the engine never names its handle again, and a later stream
    /// with the same handle is another one. Its memory, cached or live, is kept: it can be given back as before, and
    /// the next stream that is used for the first time adopts it, ordered after all that `stream` was given. A
    /// stream that was never used here, or is retired already, is no error.
    ///
    /// Everything the program wants done on `stream` must be queued before, and no request for it may be under way.
    ///
    /// Does not wait for the stream, unless the driver refuses to record an event on it, or another thread
    /// is waiting for the same stream.
    ///
    /// # Errors
    /// [`AllocError::InvalidDevice`], [`AllocError::ForeignStream`]; what the driver answers where the stream could
    /// not even be waited for: it is not retired then, and the call can be made again.
    pub fn retire_stream(&self, stream: Stream) -> Result<()> {
        self.own(stream)?;
        self.device(stream.device)?;
        // A stream may use the memory of other devices, too.
        self.devices.iter().try_for_each(|device| device.retire_stream(stream))
    }

    /// Gives all cached memory of all devices back: waits for pending frees, then returns whole free
    /// segments and whole free granules. Blocks. PyTorch: `emptyCache`.
    ///
    /// # Errors
    /// The first driver error; what could not be given back stays cached.
    pub fn empty_cache(&self) -> Result<()> {
        self.devices.iter().try_for_each(DeviceAllocator::empty_cache)
    }

    /// Notices finished pending frees of a device without waiting. Every `malloc` does this under the
    /// `pytorch` policy.
    ///
    /// # Errors
    /// What the driver answers to the queries.
    pub fn poll(&self, device: DeviceIndex) -> Result<()> {
        self.device(device)?.poll()
    }

    /// Waits for all pending frees of a device; gives nothing back. Blocks.
    ///
    /// # Errors
    /// What the driver answers; what is left stays pending.
    pub fn synchronise(&self, device: DeviceIndex) -> Result<()> {
        self.device(device)?.synchronise()
    }

    /// Statistics of a device: exact, and of one moment. PyTorch: `getDeviceStats`.
    ///
    /// # Errors
    /// [`AllocError::InvalidDevice`].
    pub fn stats(&self, device: DeviceIndex) -> Result<DeviceStats> {
        Ok(self.device(device)?.stats())
    }

    /// All peaks become the current values. PyTorch: `resetPeakStats`.
    ///
    /// # Errors
    /// [`AllocError::InvalidDevice`].
    pub fn reset_peak_stats(&self, device: DeviceIndex) -> Result<()> {
        self.device(device)?.reset_peak_stats();
        Ok(())
    }

    /// Sums and event counters begin anew. PyTorch: `resetAccumulatedStats`.
    ///
    /// # Errors
    /// [`AllocError::InvalidDevice`].
    pub fn reset_accumulated_stats(&self, device: DeviceIndex) -> Result<()> {
        self.device(device)?.reset_accumulated_stats();
        Ok(())
    }

    /// The largest pieces to be had. Asks the driver. PyTorch: `cacheInfo`.
    ///
    /// # Errors
    /// What the driver answers.
    pub fn cache_info(&self, device: DeviceIndex) -> Result<CacheInfo> {
        let largest_cached = self.device(device)?.largest_free_block();
        Ok(CacheInfo { largest_cached, device_free: self.backend.memory_info(device)?.free })
    }

    /// The segment that holds a live block. PyTorch: `getBaseAllocation`.
    ///
    /// # Errors
    /// [`AllocError::InvalidPointer`]; [`AllocError::Limit`] for growable segments, whose parts come and go.
    pub fn base_allocation(&self, ptr: DevicePtr) -> Result<BaseAllocation> {
        let found =
            self.map.get(ptr).and_then(|at| self.devices[at.device.0 as usize].base_allocation(ptr, at));
        match found {
            Some(Some((base, bytes))) => Ok(BaseAllocation { base, bytes }),
            Some(None) => Err(AllocError::Limit(
                "Tensors allocated with expandable_segments:True cannot be shared between processes. Consider using \
                 expandable_segments:False in data loading workers via \
                 torch.cuda.memory._set_allocator_settings('expandable_segments:False')",
            )),
            None => Err(AllocError::InvalidPointer { ptr }),
        }
    }

    /// Bytes of the block at `ptr`: the request, rounded. `None` where that is no live block.
    #[must_use]
    pub fn block_size(&self, ptr: DevicePtr) -> Option<u64> {
        let at = self.map.get(ptr)?;
        self.devices[at.device.0 as usize].block_size(ptr, at)
    }

    /// Limits what is held on a device to a share of its memory; 1 lifts the limit.
    /// PyTorch: `setMemoryFraction`.
    ///
    /// # Errors
    /// [`AllocError::InvalidFraction`] outside 0 to 1.
    pub fn set_memory_fraction(&self, fraction: f64, device: DeviceIndex) -> Result<()> {
        self.device(device)?.set_memory_fraction(fraction)
    }

    /// Gives a stream a reserve class, so that its growable segments reserve what
    /// `expandable_segments_reserve_by_class` says for that class; an empty class takes it away.
    /// PyTorch: `setExpandableSegmentReserveClassForStream`.
    ///
    /// # Errors
    /// [`AllocError::InvalidDevice`], [`AllocError::ForeignStream`].
    pub fn set_reserve_class(&self, stream: Stream, class: &str) -> Result<()> {
        self.own(stream)?;
        self.device(stream.device)?.set_reserve_class(stream, class);
        Ok(())
    }

    /// The share in force. PyTorch: `getMemoryFraction`.
    ///
    /// # Errors
    /// [`AllocError::InvalidDevice`].
    pub fn memory_fraction(&self, device: DeviceIndex) -> Result<f64> {
        Ok(self.device(device)?.memory_fraction())
    }

    /// Replaces the settings of all devices. What is handed out or cached stays; the memory fraction stays as
    /// it was set, as in PyTorch.
    ///
    /// # Errors
    /// [`AllocError::Settings`] when `settings` names another allocator backend, or a value out of range.
    pub fn configure(&self, settings: Settings) -> Result<()> {
        if settings.backend != AllocatorBackend::Native {
            return Err(AllocError::Settings(
                "Allocator backend parsed at runtime != allocator backend parsed at load time, \
                 cudaMallocAsync != native"
                    .into(),
            ));
        }
        settings.validate().map_err(AllocError::Settings)?;
        for device in &self.devices {
            device.configure(&settings);
        }
        *self.settings.lock() = settings;
        Ok(())
    }

    /// The settings in force.
    #[must_use]
    pub fn settings(&self) -> Settings {
        self.settings.lock().clone()
    }

    /// Keeps the newest `options.max_entries` operations of each device for snapshots; 0 turns history off
    /// and forgets it. PyTorch: `recordHistory`.
    pub fn record_history(&self, options: HistoryOptions) {
        for device in &self.devices {
            device.record_history(options);
        }
    }

    /// Writes `text` about a live block into the history, if it is on. PyTorch: `annotateMemory`.
    ///
    /// # Errors
    /// [`AllocError::InvalidPointer`] where `ptr` is no live block.
    pub fn annotate(&self, ptr: DevicePtr, text: &str) -> Result<()> {
        match self.map.get(ptr) {
            Some(at) if self.devices[at.device.0 as usize].annotate(ptr, at, text) => Ok(()),
            _ => Err(AllocError::InvalidPointer { ptr }),
        }
    }

    /// Runs `callback` when memory is short, before the device is asked for more. It may free memory through this
    /// allocator; it returns whether it did. PyTorch: `FreeMemoryCallback`.
    pub fn add_free_memory_callback(&self, callback: impl Fn() -> bool + Send + Sync + 'static) {
        let callback = Arc::new(callback);
        for device in &self.devices {
            let callback = Arc::clone(&callback);
            let boxed: FreeMemoryCallback = Box::new(move || callback());
            device.add_free_memory_callback(boxed);
        }
    }

    /// Runs `observer` with the report before an out-of-memory error is returned.
    /// PyTorch: `attachOutOfMemoryObserver`.
    pub fn add_out_of_memory_observer(
        &self,
        observer: impl Fn(&crate::oom::OomReport) + Send + Sync + 'static,
    ) {
        let observer = Arc::new(observer);
        for device in &self.devices {
            let observer = Arc::clone(&observer);
            let boxed: OutOfMemoryObserver = Box::new(move |report| observer(report));
            device.add_out_of_memory_observer(boxed);
        }
    }

    /// What is held and what was done, for PyTorch's tools. Without `traces` the history is left out.
    #[must_use]
    pub fn snapshot(&self, traces: bool) -> Snapshot {
        let mut snapshot = Snapshot { allocator_settings: describe(&self.settings()), ..Snapshot::default() };
        let mut history = HistoryStatus { complete: true, ..HistoryStatus::default() };
        for device in &self.devices {
            let (segments, entries, status) = device.observe(traces);
            snapshot.segments.extend(segments);
            if traces {
                snapshot.device_traces.push(entries);
            }
            history.recorded |= status.recorded;
            history.complete &= status.complete;
            history.overwritten += status.overwritten;
            history.before_recording += status.before_recording;
        }
        snapshot.history = Some(history);
        snapshot
    }

    /// Walks every structure of every device. For tests; it locks everything.
    ///
    /// # Panics
    /// On the first broken invariant, with its name.
    pub fn check_invariants(&self) {
        for device in &self.devices {
            device.check_invariants();
        }
    }

    /// The default pool's id.
    pub const DEFAULT_POOL: PoolId = PoolId::DEFAULT;
}

/// The settings as PyTorch's snapshots list them.
fn describe(settings: &Settings) -> Vec<(Arc<str>, Value)> {
    let limited = |bytes: u64| Value::Int(i64::try_from(bytes).unwrap_or(-1));
    let divisions = settings
        .roundup_power2_divisions
        .iter()
        .enumerate()
        .map(|(n, d)| (Value::Str((1u64 << n).to_string().into()), limited(*d)))
        .collect();
    [
        ("PYTORCH_CUDA_ALLOC_CONF", Value::Str(settings.text.as_str().into())),
        ("max_split_size", limited(settings.max_split_size)),
        ("garbage_collection_threshold", Value::Float(settings.garbage_collection_threshold)),
        ("expandable_segments", Value::Bool(settings.expandable_segments)),
        ("pinned_num_register_threads", limited(settings.pinned_num_register_threads)),
        ("release_lock_on_cudamalloc", Value::Bool(settings.release_lock_on_malloc)),
        ("pinned_use_cuda_host_register", Value::Bool(settings.pinned_use_host_register)),
        ("graph_capture_record_stream_reuse", Value::Bool(settings.graph_capture_record_stream_reuse)),
        ("max_round_threshold", limited(settings.pinned_max_round_threshold)),
        ("max_cached_size", limited(settings.pinned_max_cached_size)),
        ("roundup_power2_divisions", Value::Dict(divisions)),
    ]
    .into_iter()
    .map(|(key, value)| (key.into(), value))
    .collect()
}
