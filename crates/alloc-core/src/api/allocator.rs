//! The allocator a program uses: all devices of one backend behind one address map. What belongs to one
//! topic is behind a handle of that topic, in `allocator/`.

mod caching;
mod figures;
mod hooks;
mod making;
mod peer_devices;
mod pointers;
mod private_pools;
mod process_life;
mod processes;
mod recordings;
mod scopes;
mod sleep_mode;
mod tenancy;

pub use caching::CachingOff;
pub use figures::{CacheInfo, Statistics};
pub use hooks::Hooks;
pub use peer_devices::Peers;
pub use private_pools::Pools;
pub use processes::Sharing;
pub use recordings::History;
pub use scopes::StatScope;
pub use sleep_mode::SleepMode;
pub use tenancy::Budgets;

use crate::backend::Backend;
use crate::config::{AllocatorBackend, Flavour, MemoryLimit, PolicyName, Settings, environment};
use crate::device::{self, Device, Flush};
use crate::device::{arenas, frees};
use crate::error::{AllocError, Result};
use crate::memory::address_map::{AddressMap, Location};
use crate::process::callbacks::Callbacks;
use crate::process::stream_identity;
use crate::process::unified::Membership;
use crate::sync::{Arc, Mutex};
use crate::types::{BackendId, DeviceIndex, DeviceKind, DevicePtr, PoolId, Stream};
use crate::watch::history::{Annotations, resolve};
use crate::watch::snapshot::Snapshot;
use crate::watch::stats::DeviceStats;

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
/// Memory is handed out in the order of a stream's work. It may be used on that stream at once. When it is freed, the
/// stream's later requests may get it at once, too. A program that uses memory on another stream says so with
/// [`record_stream`](Self::record_stream).
///
/// Every method may be called from any thread.
///
/// # Default streams
/// On CUDA and HIP the handles 0 and 1 name one stream. The handle 2 (`cudaStreamPerThread`) names another stream in
/// each thread: the calling thread's own. Work of a thread's own stream can be waited for on that thread only. If
/// another thread frees memory that such work uses, the memory stays pending until a wait for the whole device covers
/// it. Before a thread ends it can pass the memory of its stream on with [`retire_stream`](Self::retire_stream).
///
/// # The edges of a process
/// * **Fork.** In the child, an allocator and a backend of the parent's cannot be used. Calls, also frees, answer
///   [`AllocError::Forked`] without touching a lock or the driver. Calls that cannot fail answer nothing and do
///   nothing. Dropping the allocator does nothing. The parent is not affected.
///
///   A new allocator over a backend from before the fork is refused in the same way. Over a backend that was made in
///   the child, the driver decides: CUDA and HIP refuse children of a process that used them.
/// * **Exit and unload.** The driver is not called any more once the process exits, the driver says that it is
///   unloading, or [`abandon`](Self::abandon) is called. A call that gives something back does nothing and says that
///   all is well. Such calls are a free, the end of a stream, a scope, a pool or a capture, emptying the cache, and
///   dropping the allocator. A call that asks for something answers [`AllocError::DriverGone`]. A call that only looks
///   still works.
#[derive(Debug)]
pub struct CachingAllocator {
    backend: Arc<dyn Backend>,
    /// The backend's id, kept here because its getter is a virtual call.
    id: BackendId,
    /// Bits of handles that may be a default stream's other names.
    alias_bits: u64,
    map: Arc<AddressMap>,
    callbacks: Arc<Callbacks>,
    devices: Vec<Arc<Device>>,
    /// Of devices that share the host's memory.
    memberships: Vec<Membership>,
    policy: PolicyName,
    settings: Mutex<Settings>,
    /// One change of settings at a time.
    configuring: Mutex<()>,
    annotations: Mutex<Annotations>,
}

/// Refuses a stream of another backend.
#[inline]
fn is_of(backend: BackendId, stream: Stream) -> Result<()> {
    if stream.backend == backend { Ok(()) } else { Err(AllocError::ForeignStream) }
}

#[cold]
#[inline(never)]
fn resolved(backend: &dyn Backend, stream: Stream) -> Stream {
    stream_identity::resolve(stream, backend.kind())
}

impl CachingAllocator {
    /// [`new`](Self::new) with the settings that the environment asks for: `PYTORCH_CUDA_ALLOC_CONF` and its like, then
    /// `GRANULE_CONF`. A dubious setting is logged as a warning.
    ///
    /// # Errors
    /// [`AllocError::Settings`] for a text with an error, else those of [`new`](Self::new).
    pub fn from_env(backend: Arc<dyn Backend>) -> Result<Self> {
        let flavour = if backend.kind() == DeviceKind::Hip { Flavour::Hip } else { Flavour::Cuda };
        let parsed = environment::from_env(flavour)?;
        for warning in &parsed.warnings {
            tracing::warn!(%warning, "settings from the environment");
        }
        Self::new(backend, parsed.settings)
    }

    /// The backend.
    #[must_use]
    pub fn backend(&self) -> &Arc<dyn Backend> {
        &self.backend
    }

    /// Number of devices.
    #[must_use]
    pub fn device_count(&self) -> u16 {
        u16::try_from(self.devices.len()).unwrap_or(u16::MAX)
    }

    /// The policy's name.
    #[must_use]
    pub fn policy_name(&self) -> &'static str {
        self.policy.name()
    }

    #[inline]
    fn device_at(&self, device: DeviceIndex) -> Result<&Device> {
        self.devices.get(device.0 as usize).map(|device| &**device).ok_or_else(|| self.no_device(device))
    }

    /// All devices, whatever the process's edge.
    fn all_devices(&self) -> impl Iterator<Item = &Device> {
        self.devices.iter().map(|device| &**device)
    }

    #[cold]
    fn no_device(&self, device: DeviceIndex) -> AllocError {
        AllocError::InvalidDevice { device, count: self.device_count() }
    }

    /// The engine's one name for a stream of this backend.
    pub(in crate::api) fn own(&self, stream: Stream) -> Result<Stream> {
        is_of(self.id, stream)?;
        Ok(stream_identity::resolve(stream, self.backend.kind()))
    }

    /// Memory of `bytes` for work of `stream`, aligned to 512 bytes. 0 bytes give the null address. Blocks only when
    /// the cache has no fit. Then the driver is asked, and before an out-of-memory error every pending free is waited
    /// for. PyTorch: `raw_alloc_with_stream`.
    ///
    /// # Errors
    /// [`AllocError::OutOfMemory`] when no fit exists after every remedy; [`AllocError::Backend`] for
    /// other driver errors. Nothing is lost, and the call can be made again.
    #[inline]
    pub fn malloc(&self, bytes: u64, stream: Stream) -> Result<DevicePtr> {
        is_of(self.id, stream)?;
        let stream =
            if stream.raw & self.alias_bits != 0 { resolved(&*self.backend, stream) } else { stream };
        let device = self.device_at(stream.device)?;
        if bytes == 0 {
            return Ok(DevicePtr::NULL);
        }
        device.malloc(bytes, stream)
    }

    /// Takes memory back, in the order of its stream's work. The null address is fine. Never asks the device for
    /// memory, and never waits for the device, but for memory that was allocated while caching was off. Any 64-bit
    /// value may be given. PyTorch: `raw_delete`.
    ///
    /// # Errors
    /// [`AllocError::InvalidPointer`] where `ptr` is no live block, or one that a [`DeviceBuffer`](crate::DeviceBuffer)
    /// has. For memory that was allocated while caching was off: the driver's error.
    #[inline]
    pub fn free(&self, ptr: DevicePtr) -> Result<()> {
        if ptr.is_null() {
            return Ok(());
        }
        match self.map.get(ptr) {
            Some(at) => {
                let device = &self.devices[at.device.0 as usize];
                if device.looks_at_frees() {
                    return self.free_attentively(device, ptr, at);
                }
                if device.free(ptr, at) { Ok(()) } else { self.free_sleeping(ptr) }
            }
            None => self.free_unknown(ptr),
        }
    }

    #[cold]
    fn free_attentively(&self, device: &Device, ptr: DevicePtr, at: Location) -> Result<()> {
        if let Some(process_state) = device.process_state() {
            return process_state.of_release();
        }
        let calls = self.calls();
        if device.free_attentively(ptr, at, &calls) { Ok(()) } else { self.free_sleeping(ptr) }
    }

    /// Says that work of `stream` uses the block at `ptr`. After its free the block is not reused before the work is
    /// done that `stream` had been given up to the free. The block's own stream is ignored, and so is the null address.
    /// An address inside the block stands for the block, and costs a search. Does not block. PyTorch: `recordStream`.
    ///
    /// # Errors
    /// [`AllocError::InvalidPointer`] where `ptr` is no live block.
    pub fn record_stream(&self, ptr: DevicePtr, stream: Stream) -> Result<()> {
        let stream = self.own(stream)?;
        self.device(stream.device)?;
        if ptr.is_null() {
            return Ok(());
        }
        let record =
            |at: Location| frees::record_stream(&self.devices[at.device.0 as usize], ptr, at, stream);
        match self.map.get(ptr).map(record).transpose()? {
            Some(true) => Ok(()),
            _ => self.record_unknown(ptr, stream),
        }
    }

    /// Says that `stream` is about to be destroyed. The engine never names its handle again, and a later stream with
    /// the same handle is another one. A stream that was never used here, or is retired already, is no error.
    ///
    /// The memory of `stream`, cached or live, is kept, and can be given back as before. The next stream that is used
    /// for the first time adopts it, ordered after all work that `stream` was given.
    ///
    /// Does not wait for the stream, unless the driver refuses to record an event on it, or another thread
    /// is waiting for the same stream.
    ///
    /// # Errors
    /// [`AllocError::InvalidDevice`], [`AllocError::ForeignStream`]; the driver's error where the stream could not even
    /// be waited for, or where it is being captured. The stream is not retired then, and the call can be made again.
    ///
    /// # Safety
    /// All work of `stream` that uses this allocator's memory was queued before the call. No request for the stream is
    /// under way, and none names it afterwards until its handle is another stream's. Later work would not be waited for
    /// when the memory of live blocks, also of a [`DeviceBuffer`](crate::DeviceBuffer), is freed and reused.
    pub unsafe fn retire_stream(&self, stream: Stream) -> Result<()> {
        let stream = self.own(stream)?;
        self.give_back(stream.device, |_| {
            // A stream may use the memory of other devices, too. Its end is found once: what can fail comes before the
            // first device takes it for retired.
            let mut last = None;
            let retire = |device: &Device| frees::retire_stream(device, stream, &mut last);
            self.all_devices().try_for_each(retire)?;
            self.set_reserve_class(stream, "")
        })
    }

    /// Gives all cached memory of all devices back. Waits for pending frees. Then returns whole free segments and whole
    /// free granules, of the default pool and of pools that were released. Blocks. While the calling thread captures,
    /// nothing is waited for, and only memory that devices are known to be done with goes. PyTorch: `emptyCache`.
    ///
    /// # Errors
    /// The first driver error; memory that could not be given back stays cached.
    pub fn empty_cache(&self) -> Result<()> {
        self.each_device(|device| device.empty_cache(Flush::Everything))
    }

    /// All devices get their turn to give something back; the first error is returned.
    fn each_device(&self, work: impl Fn(&Device) -> Result<()>) -> Result<()> {
        if let Some(process_state) = self.process_state() {
            return process_state.of_release();
        }
        self.devices.iter().map(|device| device.noticing(work(device))).fold(Ok(()), Result::and)
    }

    /// Notices finished pending frees of a device without waiting. Every `malloc` does this under the
    /// `pytorch` policy.
    ///
    /// # Errors
    /// The driver's error to a query.
    pub fn poll(&self, device: DeviceIndex) -> Result<()> {
        let device = self.device(device)?;
        device.noticing(device.poll())
    }

    /// Waits for all pending frees of a device; gives nothing back. Blocks.
    ///
    /// # Errors
    /// The driver's error; frees that are left stay pending.
    pub fn synchronise(&self, device: DeviceIndex) -> Result<()> {
        let device = self.device(device)?;
        device.noticing(device.synchronise())
    }

    /// Statistics of a device: exact, and of one moment. PyTorch: `getDeviceStats`.
    ///
    /// # Errors
    /// [`AllocError::InvalidDevice`].
    pub fn stats(&self, device: DeviceIndex) -> Result<DeviceStats> {
        Ok(device::statistics::stats(self.seen_device(device)?))
    }

    /// The segment that holds a live block. PyTorch: `getBaseAllocation`.
    ///
    /// # Errors
    /// [`AllocError::InvalidPointer`]; [`AllocError::Growable`] for growable segments, whose parts come and go.
    pub fn base_allocation(&self, ptr: DevicePtr) -> Result<BaseAllocation> {
        if self.is_forked() {
            return Err(AllocError::Forked);
        }
        let base = |at: Location| self.devices[at.device.0 as usize].arenas.base_allocation(ptr, at);
        match self.map.get(ptr).and_then(base) {
            Some(Some((base, bytes))) => Ok(BaseAllocation { base, bytes }),
            Some(None) => Err(AllocError::Growable { always: self.policy == PolicyName::Granule }),
            None => Err(self.bad_pointer(ptr)),
        }
    }

    /// Bytes of the block at `ptr`: the request, rounded. `None` where `ptr` is no live block.
    #[must_use]
    pub fn block_size(&self, ptr: DevicePtr) -> Option<u64> {
        let at = self.map.get(ptr).filter(|_| !self.is_forked())?;
        self.devices[at.device.0 as usize].arenas.block_size(ptr, at)
    }

    /// [`malloc`](Self::malloc) at the very address `ptr`, out of free memory that the stream and its pool already
    /// have. 0 bytes give the null address. Never takes memory from the device. PyTorch: `allocateWithAddress`.
    ///
    /// # Errors
    /// [`AllocError::ExactAddress`] where no free block holds the range.
    pub fn malloc_at(&self, bytes: u64, ptr: DevicePtr, stream: Stream) -> Result<DevicePtr> {
        let stream = self.own(stream)?;
        let device = self.device(stream.device)?;
        if bytes == 0 {
            return Ok(DevicePtr::NULL);
        }
        device.malloc_at(bytes, ptr, stream)
    }

    /// Limits the memory held on a device to a share of the device's memory; 1 lifts the limit. PyTorch:
    /// `setMemoryFraction`.
    ///
    /// # Errors
    /// [`AllocError::InvalidFraction`] outside 0 to 1; [`AllocError::Budget`] where that leaves no room for the
    /// guarantees of tenants.
    pub fn set_memory_fraction(&self, fraction: f64, device: DeviceIndex) -> Result<()> {
        self.device(device)?.set_memory_fraction(fraction)
    }

    /// Limits the memory held on a device. Beyond `hard` nothing is taken; beyond `soft`, cached memory is given back
    /// before more is taken. `None` lifts a limit. Both start as `memory_limit` and `memory_soft_limit` say. A limit
    /// set here stays until new settings give its option another value than the settings before.
    /// [`settings`](Self::settings) do not show it. The memory fraction is a limit of its own beside them.
    ///
    /// # Errors
    /// [`AllocError::InvalidDevice`]; [`AllocError::Settings`] for a limit of nothing, or over the whole device;
    /// [`AllocError::Budget`] where that leaves no room for the guarantees of tenants.
    pub fn set_memory_limits(
        &self,
        device: DeviceIndex,
        hard: Option<MemoryLimit>,
        soft: Option<MemoryLimit>,
    ) -> Result<()> {
        let limits = Settings { memory_limit: hard, memory_soft_limit: soft, ..Settings::default() };
        limits.validate().map_err(AllocError::Settings)?;
        let device = self.device(device)?;
        let _alone = self.configuring.lock();
        device.set_memory_limits(hard, soft)
    }

    /// Gives a stream a reserve class. Its growable segments then reserve as much as
    /// `expandable_segments_reserve_by_class` says for the class. An empty class takes the class away. PyTorch:
    /// `setExpandableSegmentReserveClassForStream`.
    ///
    /// # Errors
    /// [`AllocError::InvalidDevice`], [`AllocError::ForeignStream`].
    pub fn set_reserve_class(&self, stream: Stream, class: &str) -> Result<()> {
        let stream = self.own(stream)?;
        self.device(stream.device)?.accounting.set_reserve_class(stream, class);
        Ok(())
    }

    /// The share in force. PyTorch: `getMemoryFraction`.
    ///
    /// # Errors
    /// [`AllocError::InvalidDevice`].
    pub fn memory_fraction(&self, device: DeviceIndex) -> Result<f64> {
        Ok(self.seen_device(device)?.accounting.memory_fraction())
    }

    /// Replaces the settings of all devices. Memory that is handed out or cached stays. The memory fraction stays as it
    /// was set, as in PyTorch. So do limits from [`set_memory_limits`](Self::set_memory_limits) where `settings` say of
    /// `memory_limit`, or `memory_soft_limit`, what the settings before said. `publish` and `system_root` always stay;
    /// where others than the defaults are asked for, the log says so.
    ///
    /// # Errors
    /// * [`AllocError::PolicyFixed`] where `settings` names another policy;
    /// * [`AllocError::ReleaseFixed`] where it names another release of PyTorch;
    /// * [`AllocError::Settings`] for another allocator backend, or a value out of range;
    /// * [`AllocError::Budget`] where `memory_limit` leaves no room for the guarantees of tenants.
    pub fn configure(&self, mut settings: Settings) -> Result<()> {
        if settings.backend != AllocatorBackend::Native {
            return Err(AllocError::Settings(
                "Allocator backend parsed at runtime != allocator backend parsed at load time, \
                 cudaMallocAsync != native"
                    .into(),
            ));
        }
        settings.validate().map_err(AllocError::Settings)?;
        if self.is_forked() {
            return Err(AllocError::Forked);
        }
        self.keep_fixed(&mut settings)?;
        {
            // All devices have the settings of one call.
            let _alone = self.configuring.lock();
            let before = self.settings.lock().clone();
            let changes = self.devices.iter().map(|device| device.begin_settings(&before, &settings));
            let changes: Vec<_> = changes.collect::<Result<_>>()?;
            changes.into_iter().for_each(|change| change.complete(&settings));
            let caching = settings.caching;
            *self.settings.lock() = settings;
            self.enable(caching);
        }
        self.devices.iter().for_each(|device| device.follow_settings());
        Ok(())
    }

    /// New settings keep what is settled when the allocator is made: the policy, the release of PyTorch, `publish`, and
    /// `system_root`.
    fn keep_fixed(&self, settings: &mut Settings) -> Result<()> {
        let before = self.settings();
        let usual = Settings::default();
        let publish = settings.publish != before.publish && settings.publish != usual.publish;
        let root = settings.system_root != before.system_root && settings.system_root != usual.system_root;
        for (option, _) in [("publish", publish), ("system_root", root)].iter().filter(|(_, asked)| *asked) {
            tracing::warn!("{option} counts when the allocator is made: it stays as it was");
        }
        settings.publish = before.publish;
        settings.system_root = before.system_root;
        let named = before.pytorch_release;
        let (policy, release) = (self.policy, named.unwrap_or_default());
        if let Some(asked) = settings.policy.filter(|asked| *asked != policy) {
            return Err(AllocError::PolicyFixed { policy, asked });
        }
        if let Some(asked) = settings.pytorch_release.filter(|asked| *asked != release) {
            return Err(AllocError::ReleaseFixed { release, asked });
        }
        settings.policy = settings.policy.or(Some(policy).filter(|name| *name != PolicyName::default()));
        settings.pytorch_release = settings.pytorch_release.or(named);
        Ok(())
    }

    /// The settings in force; in a forked child the defaults.
    #[must_use]
    pub fn settings(&self) -> Settings {
        if self.is_forked() {
            return Settings::default();
        }
        self.settings.lock().clone()
    }

    /// Held memory and past operations, for PyTorch's tools; nothing in a forked child. Without `traces` the history is
    /// left out, and the cost depends on the blocks alone.
    #[must_use]
    pub fn snapshot(&self, traces: bool) -> Snapshot {
        self.snapshot_of(None, traces)
    }

    fn snapshot_of(&self, pool: Option<PoolId>, traces: bool) -> Snapshot {
        let (mut snapshot, contexts) = self.history().snapshot_with_contexts(pool, traces);
        resolve(&mut snapshot, contexts, &self.calls());
        snapshot
    }

    /// Private pools, captures and checkpoints.
    #[must_use]
    pub fn pools(&self) -> Pools<'_> {
        Pools::of(self)
    }

    /// Tenants and their budgets.
    #[must_use]
    pub fn budgets(&self) -> Budgets<'_> {
        Budgets::of(self)
    }

    /// The program's code that is called when something happens.
    #[must_use]
    pub fn hooks(&self) -> Hooks<'_> {
        Hooks::of(self)
    }

    /// Peaks, sums, and obtainable memory.
    #[must_use]
    pub fn statistics(&self) -> Statistics<'_> {
        Statistics::of(self)
    }

    /// Records for snapshots.
    #[must_use]
    pub fn history(&self) -> History<'_> {
        History::of(self)
    }

    /// Sleep and wake.
    #[must_use]
    pub fn sleep_mode(&self) -> SleepMode<'_> {
        SleepMode::of(self)
    }

    /// Memory that other processes use.
    #[must_use]
    pub fn sharing(&self) -> Sharing<'_> {
        Sharing::of(self)
    }

    /// Devices that reach each other's memory.
    #[must_use]
    pub fn peers(&self) -> Peers<'_> {
        Peers::of(self)
    }

    /// Walks every structure of every device. For tests; it locks everything.
    ///
    /// # Panics
    /// On the first broken invariant, with its name.
    pub fn check_invariants(&self) {
        self.reachable().for_each(arenas::check_invariants);
    }

    /// The default pool's id.
    pub const DEFAULT_POOL: PoolId = PoolId::DEFAULT;
}
