//! The contract, as a table of what does each part.

use crate::cuda::Cuda;
use backend_api::types::{BackendId, DeviceIndex, DeviceKind, DevicePtr, Event, Stream};
use backend_api::*;

type Family<'b, T> = std::result::Result<&'b T, Unsupported>;

// SAFETY: I1: the driver's memory is disjoint while it is held and as large as asked; its alignment is checked
// (`memory::aligned`; page-locked memory is aligned to 64 bytes at least). I2, I3: the driver's events and waits. I4: the
// driver's rule for `cuMemRelease`.
unsafe impl Backend for Cuda {
    fn id(&self) -> BackendId {
        self.id
    }

    fn kind(&self) -> DeviceKind {
        DeviceKind::Cuda
    }

    fn name(&self) -> &'static str {
        "cuda"
    }

    fn error_name(&self, code: i32) -> String {
        self.driver.error_name(code)
    }

    fn device_count(&self) -> Result<u16> {
        // Read when the driver was loaded: it never changes within a process. No more than fit were accepted.
        Ok(u16::try_from(self.devices.len()).unwrap_or(u16::MAX))
    }

    fn current_device(&self) -> Result<DeviceIndex> {
        self.device_of_thread()
    }

    fn set_device(&self, device: DeviceIndex) -> Result<()> {
        self.make_current(device)
    }

    fn has_primary_context(&self, device: DeviceIndex) -> Result<bool> {
        Cuda::has_primary_context(self, device)
    }

    fn attribute(&self, device: DeviceIndex, attribute: Attribute) -> Result<i64> {
        Cuda::attribute(self, device, attribute)
    }

    fn properties(&self, device: DeviceIndex) -> Result<DeviceProperties> {
        Cuda::properties(self, device)
    }

    fn synchronize_device(&self, device: DeviceIndex) -> Result<()> {
        Cuda::synchronize_device(self, device)
    }

    fn malloc(&self, device: DeviceIndex, bytes: u64) -> Result<DevicePtr> {
        Cuda::malloc(self, device, bytes)
    }

    unsafe fn free(&self, device: DeviceIndex, ptr: DevicePtr) -> Result<()> {
        // SAFETY: the caller's promise, passed on.
        unsafe { Cuda::free(self, device, ptr) }
    }

    fn memory_info(&self, device: DeviceIndex) -> Result<MemoryInfo> {
        Cuda::memory_info(self, device)
    }

    fn pointer_info(&self, ptr: DevicePtr) -> Result<PointerInfo> {
        Cuda::pointer_info(self, ptr)
    }

    fn address_range(&self, ptr: DevicePtr) -> Result<AddressRange> {
        Cuda::address_range(self, ptr)
    }

    unsafe fn copy(&self, dst: DevicePtr, src: DevicePtr, bytes: u64, kind: CopyKind) -> Result<()> {
        // SAFETY: the caller's promise, passed on.
        unsafe { Cuda::copy(self, dst, src, bytes, kind) }
    }

    unsafe fn copy_async(
        &self,
        dst: DevicePtr,
        src: DevicePtr,
        bytes: u64,
        kind: CopyKind,
        stream: Stream,
    ) -> Result<()> {
        // SAFETY: the caller's promise, passed on.
        unsafe { Cuda::copy_async(self, dst, src, bytes, kind, stream) }
    }

    unsafe fn memset_async(&self, dst: DevicePtr, value: u8, bytes: u64, stream: Stream) -> Result<()> {
        // SAFETY: the caller's promise, passed on.
        unsafe { Cuda::memset_async(self, dst, value, bytes, stream) }
    }

    fn create_stream(&self, device: DeviceIndex, priority: i32) -> Result<Stream> {
        Cuda::create_stream(self, device, priority)
    }

    unsafe fn destroy_stream(&self, stream: Stream) -> Result<()> {
        // SAFETY: the caller's promise, passed on.
        unsafe { Cuda::destroy_stream(self, stream) }
    }

    fn priority_range(&self, device: DeviceIndex) -> Result<PriorityRange> {
        Cuda::priority_range(self, device)
    }

    fn query_stream(&self, stream: Stream) -> Result<Readiness> {
        Cuda::query_stream(self, stream)
    }

    fn synchronize_stream(&self, stream: Stream) -> Result<()> {
        Cuda::synchronize_stream(self, stream)
    }

    fn wait_event(&self, stream: Stream, event: Event) -> Result<()> {
        Cuda::wait_event(self, stream, event)
    }

    fn launch_host_function(&self, stream: Stream, function: HostFunction) -> Result<()> {
        Cuda::launch_host_function(self, stream, function)
    }

    fn create_event(&self, device: DeviceIndex, flags: EventFlags) -> Result<Event> {
        Cuda::create_event(self, device, flags)
    }

    unsafe fn destroy_event(&self, event: Event) -> Result<()> {
        // SAFETY: the caller's promise, passed on.
        unsafe { Cuda::destroy_event(self, event) }
    }

    fn record_event(&self, event: Event, stream: Stream) -> Result<()> {
        Cuda::record_event(self, event, stream)
    }

    fn query_event(&self, event: Event) -> Result<Readiness> {
        Cuda::query_event(self, event)
    }

    fn synchronize_event(&self, event: Event) -> Result<()> {
        Cuda::synchronize_event(self, event)
    }

    fn elapsed_ms(&self, start: Event, end: Event) -> Result<f32> {
        Cuda::elapsed_ms(self, start, end)
    }

    fn pinned_host(&self) -> Family<'_, dyn PinnedHost> {
        Ok(self)
    }

    fn virtual_memory(&self) -> Family<'_, dyn VirtualMemory> {
        self.probes.virtual_memory.answer("virtual memory", || self.probe_virtual_memory())?;
        Ok(self)
    }

    fn physical_sharing(&self) -> Family<'_, dyn PhysicalSharing> {
        self.virtual_memory()?;
        self.probes
            .physical_sharing
            .answer("sharing of physical memory", || self.probe_physical_sharing())?;
        Ok(self)
    }

    fn ipc(&self) -> Family<'_, dyn Ipc> {
        self.probes.ipc.answer("IPC", || self.probe_ipc())?;
        Ok(self)
    }

    fn peers(&self) -> Family<'_, dyn Peers> {
        self.probes.peers.answer("peer access", || self.probe_peers())?;
        Ok(self)
    }

    fn capture(&self) -> Family<'_, dyn Capture> {
        self.probes.capture.answer("graph capture", || self.probe_capture())?;
        Ok(self)
    }

    fn driver_pools(&self) -> Family<'_, dyn DriverPools> {
        self.probes.driver_pools.answer("driver pools", || self.probe_driver_pools())?;
        Ok(self)
    }

    fn host_registration(&self) -> Family<'_, dyn HostRegistration> {
        self.probes.host_registration.answer("host registration", || self.probe_host_registration())?;
        Ok(self)
    }

    fn managed_memory(&self) -> Family<'_, dyn ManagedMemory> {
        self.probes.managed_memory.answer("managed memory", || self.probe_managed_memory())?;
        Ok(self)
    }

    fn stream_memory(&self) -> Family<'_, dyn StreamMemory> {
        self.probes.stream_memory.answer("stream memory operations", || self.probe_stream_memory())?;
        Ok(self)
    }

    fn multicast(&self) -> Family<'_, dyn Multicast> {
        self.probes.multicast.answer("multicast", || self.probe_multicast())?;
        Ok(self)
    }

    fn host_access(&self) -> Family<'_, dyn HostAccess> {
        Err(Unsupported {
            family: "host access to device memory",
            reason: "an NVIDIA device's memory is not in the host's address space; copy it".into(),
        })
    }
}
