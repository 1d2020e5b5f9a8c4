//! The contract, as a table of what does each part.

use super::{
    DriverBackend, devices, graphs, ipc, managed, memory, multicast, pools, streams, virtual_memory,
};
use crate::calls::Calls;
use crate::driver::{self, Family};
use backend_api::types::{BackendId, DeviceIndex, DeviceKind, DevicePtr, Event, Stream};
use backend_api::*;

type Found<'b, T> = std::result::Result<&'b T, Unsupported>;

// SAFETY: I1: `Driver` promises it but for the alignment, which is checked (`memory::aligned`; page-locked memory is
// aligned to 64 bytes at least). I2 to I4: `Driver` promises them.
unsafe impl<D: Calls> Backend for DriverBackend<D> {
    fn id(&self) -> BackendId {
        self.context.id()
    }

    fn kind(&self) -> DeviceKind {
        D::KIND
    }

    fn name(&self) -> &'static str {
        D::NAME
    }

    fn error_name(&self, code: i32) -> String {
        driver::error_name(self.context.driver(), code)
    }

    fn clear_error(&self) {
        self.context.driver().clear_error();
    }

    fn device_count(&self) -> Result<u16> {
        // Read when the driver was started: it never changes within a process.
        Ok(self.context.driver().device_count())
    }

    fn current_device(&self) -> Result<DeviceIndex> {
        self.context.device_of_thread()
    }

    fn set_device(&self, device: DeviceIndex) -> Result<()> {
        self.context.make_current(device)
    }

    fn has_primary_context(&self, device: DeviceIndex) -> Result<bool> {
        devices::has_primary_context(self, device)
    }

    fn attribute(&self, device: DeviceIndex, attribute: Attribute) -> Result<i64> {
        devices::attribute(self, device, attribute)
    }

    fn properties(&self, device: DeviceIndex) -> Result<DeviceProperties> {
        devices::properties(self, device)
    }

    fn synchronize_device(&self, device: DeviceIndex) -> Result<()> {
        devices::synchronize_device(self, device)
    }

    fn malloc(&self, device: DeviceIndex, bytes: u64) -> Result<DevicePtr> {
        memory::malloc(self, device, bytes)
    }

    unsafe fn free(&self, device: DeviceIndex, ptr: DevicePtr) -> Result<()> {
        // SAFETY: the caller's promise, passed on.
        unsafe { memory::free(self, device, ptr) }
    }

    fn memory_info(&self, device: DeviceIndex) -> Result<MemoryInfo> {
        memory::memory_info(self, device)
    }

    fn pointer_info(&self, ptr: DevicePtr) -> Result<PointerInfo> {
        memory::pointer_info(self, ptr)
    }

    fn address_range(&self, ptr: DevicePtr) -> Result<AddressRange> {
        memory::address_range(self, ptr)
    }

    unsafe fn copy(&self, dst: DevicePtr, src: DevicePtr, bytes: u64, kind: CopyKind) -> Result<()> {
        // SAFETY: the caller's promise, passed on.
        unsafe { memory::copy(self, dst, src, bytes, kind) }
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
        unsafe { memory::copy_async(self, dst, src, bytes, kind, stream) }
    }

    unsafe fn memset_async(&self, dst: DevicePtr, value: u8, bytes: u64, stream: Stream) -> Result<()> {
        // SAFETY: the caller's promise, passed on.
        unsafe { memory::memset_async(self, dst, value, bytes, stream) }
    }

    fn create_stream(&self, device: DeviceIndex, priority: i32) -> Result<Stream> {
        streams::create_stream(self, device, priority)
    }

    unsafe fn destroy_stream(&self, stream: Stream) -> Result<()> {
        // SAFETY: the caller's promise, passed on.
        unsafe { streams::destroy_stream(self, stream) }
    }

    fn priority_range(&self, device: DeviceIndex) -> Result<PriorityRange> {
        streams::priority_range(self, device)
    }

    fn query_stream(&self, stream: Stream) -> Result<Readiness> {
        streams::query_stream(self, stream)
    }

    fn synchronize_stream(&self, stream: Stream) -> Result<()> {
        streams::synchronize_stream(self, stream)
    }

    fn wait_event(&self, stream: Stream, event: Event) -> Result<()> {
        streams::wait_event(self, stream, event)
    }

    fn launch_host_function(&self, stream: Stream, function: HostFunction) -> Result<()> {
        streams::launch_host_function(self, stream, function)
    }

    fn create_event(&self, device: DeviceIndex, flags: EventFlags) -> Result<Event> {
        streams::create_event(self, device, flags)
    }

    unsafe fn destroy_event(&self, event: Event) -> Result<()> {
        // SAFETY: the caller's promise, passed on.
        unsafe { streams::destroy_event(self, event) }
    }

    fn record_event(&self, event: Event, stream: Stream) -> Result<()> {
        streams::record_event(self, event, stream)
    }

    fn query_event(&self, event: Event) -> Result<Readiness> {
        streams::query_event(self, event)
    }

    fn synchronize_event(&self, event: Event) -> Result<()> {
        streams::synchronize_event(self, event)
    }

    fn elapsed_ms(&self, start: Event, end: Event) -> Result<f32> {
        streams::elapsed_ms(self, start, end)
    }

    fn pinned_host(&self) -> Found<'_, dyn PinnedHost> {
        Ok(self)
    }

    fn virtual_memory(&self) -> Found<'_, dyn VirtualMemory> {
        self.probes.virtual_memory.answer("virtual memory", || virtual_memory::probe(self))?;
        Ok(self)
    }

    fn physical_sharing(&self) -> Found<'_, dyn PhysicalSharing> {
        self.virtual_memory()?;
        let has = || devices::has(self, Family::PhysicalSharing);
        self.probes.physical_sharing.answer("sharing of physical memory", has)?;
        Ok(self)
    }

    fn ipc(&self) -> Found<'_, dyn Ipc> {
        self.probes.ipc.answer("IPC", || ipc::probe(self))?;
        Ok(self)
    }

    fn peers(&self) -> Found<'_, dyn Peers> {
        self.probes.peers.answer("peer access", || devices::has(self, Family::Peers))?;
        Ok(self)
    }

    fn capture(&self) -> Found<'_, dyn Capture> {
        self.probes.capture.answer("graph capture", || graphs::probe(self))?;
        Ok(self)
    }

    fn driver_pools(&self) -> Found<'_, dyn DriverPools> {
        self.probes.driver_pools.answer("driver pools", || pools::probe(self))?;
        Ok(self)
    }

    fn host_registration(&self) -> Found<'_, dyn HostRegistration> {
        let has = || devices::has(self, Family::HostRegistration);
        self.probes.host_registration.answer("host registration", has)?;
        Ok(self)
    }

    fn managed_memory(&self) -> Found<'_, dyn ManagedMemory> {
        self.probes.managed_memory.answer("managed memory", || managed::probe(self))?;
        Ok(self)
    }

    fn stream_memory(&self) -> Found<'_, dyn StreamMemory> {
        self.probes.stream_memory.answer("stream memory operations", || managed::probe_words(self))?;
        Ok(self)
    }

    fn multicast(&self) -> Found<'_, dyn Multicast> {
        if let Some(reason) = D::NO_MULTICAST {
            return Err(Unsupported { family: "multicast", reason: reason.into() });
        }
        self.probes.multicast.answer("multicast", || multicast::probe(self))?;
        Ok(self)
    }

    fn host_access(&self) -> Found<'_, dyn HostAccess> {
        Err(Unsupported { family: "host access to device memory", reason: D::NO_HOST_ACCESS.into() })
    }
}
