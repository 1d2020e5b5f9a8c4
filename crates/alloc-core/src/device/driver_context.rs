//! Constants of a device, and small questions to its driver. Every part has its own copy.

use crate::backend::{Backend, CaptureStatus, Granularity, MemoryInfo, VirtualMemory};
use crate::config::{PytorchRelease, Settings};
use crate::error::{AllocError, Result};
use crate::features::ledger::registry::{self, ProcessUsage, Published, Uuid};
use crate::lifetimes::call::{Call, Relaxed};
use crate::memory::address_map::AddressMap;
use crate::process::attention::{Attention, ProcessState, Reason};
use crate::process::callbacks::{CallbackScope, Callbacks};
use crate::process::host_reserve::{HostReserve, HostRoom};
use crate::process::state;
use crate::process::stream_identity::{named, shown};
use crate::process::system::{Shared, SharedMemory, System};
use crate::process::unified::Unified;
use crate::sync::{Arc, OnceLock, assert_unlocked};
use crate::types::{DeviceIndex, DevicePtr, PoolId, Stream};
use crate::watch::observers::{SegmentChange, SegmentEvent};
use std::path::Path;

/// Constants of a device for the life of its allocator. A copy is a handful of pointers.
#[derive(Clone)]
pub(crate) struct DriverContext {
    backend: Arc<dyn Backend>,
    device: DeviceIndex,
    map: Arc<AddressMap>,
    callbacks: Arc<Callbacks>,
    /// Memory of the system that the device shares; `None` for one with its own.
    shared: Option<Arc<SharedMemory>>,
    /// Bytes of the host's memory that it leaves free, where it takes that.
    reserve: Option<Arc<HostReserve>>,
    /// Folder in which the system describes itself, and processes publish what they hold.
    system_root: Arc<Path>,
    /// PyTorch release whose words a refusal has.
    pytorch_release: PytorchRelease,
    total_memory: u64,
    virtual_memory: bool,
    attention: &'static Attention,
    /// The unit of its virtual memory, once the policy has asked for it.
    unit: Arc<OnceLock<u64>>,
}

impl DriverContext {
    pub(super) fn new(
        backend: Arc<dyn Backend>,
        device: DeviceIndex,
        map: Arc<AddressMap>,
        callbacks: Arc<Callbacks>,
        settings: &Settings,
        driver_total: u64,
        virtual_memory: bool,
    ) -> Result<Self> {
        let unit = Arc::default();
        let system = System::at(&settings.system_root);
        let shared = SharedMemory::of(&system, &*backend, device).map(Arc::new);
        if let Some(problem) = shared.as_ref().and_then(|shared| shared.unknown()) {
            tracing::warn!(%device, "{problem}");
        }
        let driver = MemoryInfo { free: 0, total: driver_total };
        let total_memory = obtainable(shared.as_deref(), driver).total;
        let host = shared.as_ref().and_then(|shared| shared.host());
        let room = host.map_or(Ok(None), |system| HostRoom::of(system, settings));
        let reserve = room.map_err(AllocError::Settings)?.map(|room| {
            let unified = Unified::of(backend.id(), Shared::Host);
            Arc::new(unified.reserve(&system, &room))
        });
        let attention = state::lend(backend.id(), Some(device));
        let system_root = settings.system_root.as_path().into();
        let pytorch_release = settings.pytorch_release();
        Ok(Self {
            backend,
            device,
            map,
            callbacks,
            shared,
            reserve,
            system_root,
            pytorch_release,
            total_memory,
            virtual_memory,
            attention,
            unit,
        })
    }

    pub(super) fn backend(&self) -> &Arc<dyn Backend> {
        &self.backend
    }

    pub(super) fn device(&self) -> DeviceIndex {
        self.device
    }

    #[inline(always)]
    pub(super) fn map(&self) -> &Arc<AddressMap> {
        &self.map
    }

    pub(super) fn callbacks(&self) -> &Arc<Callbacks> {
        &self.callbacks
    }

    pub(super) fn calls(&self) -> CallbackScope<'_> {
        self.callbacks.calls()
    }

    pub(super) fn total_memory(&self) -> u64 {
        self.total_memory
    }

    pub(super) fn pytorch_release(&self) -> PytorchRelease {
        self.pytorch_release
    }

    pub(super) fn has_virtual_memory(&self) -> bool {
        self.virtual_memory
    }

    /// Conditions that the device's threads have to look at.
    #[inline(always)]
    pub(super) fn attention(&self) -> &'static Attention {
        self.attention
    }

    /// The unit of its virtual memory, once the driver was asked for it.
    pub(super) fn unit(&self) -> Option<u64> {
        self.unit.get().copied()
    }

    /// Reason why the driver may not be called any more, if any.
    pub(super) fn process_state(&self) -> Option<ProcessState> {
        self.attention.process_state()
    }

    /// The driver is never called again.
    pub(super) fn abandon(&self) {
        self.attention.set(Reason::DRIVER_GONE, true);
    }

    /// Notes if the operation failed because the driver is unloading.
    pub(super) fn noticing<T>(&self, outcome: Result<T>) -> Result<T> {
        if let Err(AllocError::Backend(error)) = &outcome {
            state::notice(self.attention, &*self.backend, error);
        }
        outcome
    }

    /// True if a capture of this process is under way, on any device and with any allocator: it may forbid calls about
    /// this device, too, and its streams cannot be waited for.
    pub(super) fn is_beside_capture(&self) -> bool {
        self.attention.has(Reason::CAPTURE) || state::captures_over(self.backend.id())
    }

    /// True if a capture is under way on this very device.
    pub(super) fn is_captured(&self) -> bool {
        self.attention.has(Reason::CAPTURE) || state::captures_on(self.backend.id(), self.device)
    }

    /// Lets the calling thread make calls that captures would forbid, where there are any. Calls the driver, unless
    /// that is gone.
    pub(crate) fn relaxed(&self) -> Result<Option<Relaxed<'_>>> {
        if !self.is_beside_capture() || self.process_state().is_some() {
            return Ok(None);
        }
        Ok(self.backend.capture().ok().map(Relaxed::enter).transpose()?)
    }

    /// A call that is not recorded. Calls the driver where there are captures.
    pub(super) fn plain_call(&self) -> Result<Call<'_>> {
        Ok(Call { relaxed: self.relaxed()?, ..Call::PLAIN })
    }

    /// The capture that a stream is part of, also a broken one. Calls the driver.
    pub(super) fn capture_id(&self, stream: Stream) -> crate::backend::Result<Option<u64>> {
        let Ok(capture) = self.backend.capture() else { return Ok(None) };
        let status = named(stream).and_then(|stream| capture.status(stream));
        Ok(match status.inspect_err(|_| self.backend.clear_error())? {
            CaptureStatus::Active(id) => Some(id),
            CaptureStatus::Invalidated => Some(u64::MAX),
            CaptureStatus::None => None,
        })
    }

    /// [`capture_id`](Self::capture_id), with `None` for a stream that cannot be asked about.
    pub(super) fn capture_of(&self, stream: Stream) -> Option<u64> {
        self.capture_id(stream).ok().flatten()
    }

    /// True if a stream is known to be captured. Calls the driver.
    pub(super) fn is_capturing(&self, stream: Stream) -> bool {
        self.capture_of(stream).is_some()
    }

    /// True if a stream may be captured, whoever began that. It cannot wait for work outside then, and trying would
    /// break the capture. Calls the driver.
    pub(super) fn may_be_capturing(&self, stream: Stream) -> bool {
        !matches!(self.capture_id(stream), Ok(None))
    }

    /// The unit of virtual memory. Calls the driver the first time.
    pub(super) fn ask_granule(&self, vm: &dyn VirtualMemory) -> Result<u64> {
        if let Some(minimum) = self.unit() {
            return Ok(minimum);
        }
        assert_unlocked();
        let minimum = vm.granularity(self.device, Granularity::Minimum)?;
        Ok(*self.unit.get_or_init(|| minimum))
    }

    pub(super) fn segment_event(
        &self,
        change: SegmentChange,
        pool: PoolId,
        stream: Stream,
        addr: DevicePtr,
        bytes: u64,
        growable: bool,
    ) -> SegmentEvent {
        SegmentEvent { change, device: self.device, pool, stream: shown(stream), addr, bytes, growable }
    }

    /// Entry that publishes holdings to other processes, if the device has a UUID.
    pub(super) fn publish(&self) -> Option<Published> {
        Published::new(self.uuid()?, Arc::clone(&self.system_root), self.attention)
    }

    /// Entries that other allocators publish about it. Reads files.
    pub(super) fn published_by_others(&self, own: Option<&Path>) -> Vec<ProcessUsage> {
        let folder = registry::folder(&self.system_root);
        self.uuid().map_or_else(Vec::new, |uuid| registry::others(&folder, uuid, own))
    }

    fn uuid(&self) -> Option<Uuid> {
        self.backend.properties(self.device).inspect_err(|_| self.backend.clear_error()).ok()?.uuid
    }

    /// The memory that it shares with the host, if it does.
    pub(super) fn unified(&self) -> Option<&'static Unified> {
        let shared = self.shared.as_ref().filter(|shared| shared.which != Shared::Aside);
        shared.map(|shared| Unified::of(self.backend.id(), shared.which))
    }

    /// True if its memory is the host's.
    pub(super) fn is_unified(&self) -> bool {
        self.shared.as_ref().is_some_and(|shared| shared.which == Shared::Host)
    }

    /// Bytes of the host's memory that it leaves free, where it takes that.
    pub(super) fn host_reserve(&self) -> Option<&HostReserve> {
        self.reserve.as_deref()
    }

    /// The host's memory now, where it takes that. Reads files.
    pub(super) fn host_room(&self) -> Option<HostRoom> {
        self.reserve.as_ref().and_then(|reserve| reserve.look())
    }

    /// Free and total bytes of the device. Calls the driver; asks the system where the device shares its memory.
    pub(super) fn memory_info(&self) -> crate::backend::Result<MemoryInfo> {
        let driver = self.backend.memory_info(self.device)?;
        Ok(obtainable(self.shared.as_deref(), driver))
    }

    /// Free bytes of the device, if known.
    pub(super) fn device_free(&self) -> Option<u64> {
        self.memory_info().ok().map(|memory| memory.free)
    }
}

/// Free and total bytes of a device for which the driver reports `driver`.
fn obtainable(shared: Option<&SharedMemory>, driver: MemoryInfo) -> MemoryInfo {
    shared.map_or(driver, |shared| shared.obtainable(driver))
}
