//! Every method of the contract, forwarded to the backend behind.
//!
//! Generated from the `Backend` trait by `cargo xtask codegen`. Do not edit.

use crate::masquerade::{Masquerade, answer, family};
use backend_api::types::*;
use backend_api::*;

// SAFETY: I1 to I4 are the inner backend's; labels touch neither memory nor order.
unsafe impl Backend for Masquerade {
    fn id(&self) -> BackendId {
        self.own_id()
    }

    fn kind(&self) -> DeviceKind {
        self.own_kind()
    }

    fn name(&self) -> &'static str {
        self.own_name()
    }

    fn label(&self) -> &'static str {
        self.own_label()
    }

    fn error_name(&self, code: i32) -> String {
        self.own_error_name(code)
    }

    fn clear_error(&self) {
        self.inner.clear_error();
    }

    fn device_count(&self) -> Result<u16> {
        let result = self.inner.device_count();
        answer("cuDeviceGetCount", result)
    }

    fn current_device(&self) -> Result<DeviceIndex> {
        let result = self.inner.current_device();
        answer("cuCtxGetDevice", result)
    }

    fn set_device(&self, device: DeviceIndex) -> Result<()> {
        let result = self.inner.set_device(device);
        answer("cuCtxSetCurrent", result)
    }

    fn has_primary_context(&self, device: DeviceIndex) -> Result<bool> {
        let result = self.inner.has_primary_context(device);
        answer("cuDevicePrimaryCtxGetState", result)
    }

    fn attribute(&self, device: DeviceIndex, attribute: Attribute) -> Result<i64> {
        let result = self.inner.attribute(device, attribute);
        answer("cuDeviceGetAttribute", result)
    }

    fn properties(&self, device: DeviceIndex) -> Result<DeviceProperties> {
        let result = self.inner.properties(device);
        answer("cuDeviceGetName", result)
    }

    fn synchronize_device(&self, device: DeviceIndex) -> Result<()> {
        let result = self.inner.synchronize_device(device);
        answer("cuCtxSynchronize", result)
    }

    fn malloc(&self, device: DeviceIndex, bytes: u64) -> Result<DevicePtr> {
        let result = self.inner.malloc(device, bytes);
        answer("cuMemAlloc", result)
    }

    unsafe fn free(&self, device: DeviceIndex, ptr: DevicePtr) -> Result<()> {
        // SAFETY: rules 1 to 3 are the caller's promise, passed on; only labels of handles changed.
        let result = unsafe { self.inner.free(device, ptr) };
        answer("cuMemFree", result)
    }

    fn memory_info(&self, device: DeviceIndex) -> Result<MemoryInfo> {
        let result = self.inner.memory_info(device);
        answer("cuMemGetInfo", result)
    }

    fn pointer_info(&self, ptr: DevicePtr) -> Result<PointerInfo> {
        let result = self.inner.pointer_info(ptr);
        answer("cuPointerGetAttribute", result)
    }

    fn address_range(&self, ptr: DevicePtr) -> Result<AddressRange> {
        let result = self.inner.address_range(ptr);
        answer("cuMemGetAddressRange", result)
    }

    unsafe fn copy(&self, dst: DevicePtr, src: DevicePtr, bytes: u64, kind: CopyKind) -> Result<()> {
        // SAFETY: rules 1 to 3 are the caller's promise, passed on; only labels of handles changed.
        let result = unsafe { self.inner.copy(dst, src, bytes, kind) };
        answer("cuMemcpy", result)
    }

    unsafe fn copy_async(
        &self,
        dst: DevicePtr,
        src: DevicePtr,
        bytes: u64,
        kind: CopyKind,
        stream: Stream,
    ) -> Result<()> {
        let stream = self.inward("cuMemcpyAsync", stream)?;
        // SAFETY: rules 1 to 3 are the caller's promise, passed on; only labels of handles changed.
        let result = unsafe { self.inner.copy_async(dst, src, bytes, kind, stream) };
        answer("cuMemcpyAsync", result)
    }

    unsafe fn memset_async(&self, dst: DevicePtr, value: u8, bytes: u64, stream: Stream) -> Result<()> {
        let stream = self.inward("cuMemsetD8Async", stream)?;
        // SAFETY: rules 1 to 3 are the caller's promise, passed on; only labels of handles changed.
        let result = unsafe { self.inner.memset_async(dst, value, bytes, stream) };
        answer("cuMemsetD8Async", result)
    }

    fn default_stream(&self, device: DeviceIndex) -> Stream {
        self.outward(self.inner.default_stream(device))
    }

    fn create_stream(&self, device: DeviceIndex, priority: i32) -> Result<Stream> {
        let result = self.inner.create_stream(device, priority);
        answer("cuStreamCreateWithPriority", result).map(|handle| self.outward(handle))
    }

    unsafe fn destroy_stream(&self, stream: Stream) -> Result<()> {
        let stream = self.inward("cuStreamDestroy", stream)?;
        // SAFETY: rules 1 to 3 are the caller's promise, passed on; only labels of handles changed.
        let result = unsafe { self.inner.destroy_stream(stream) };
        answer("cuStreamDestroy", result)
    }

    fn priority_range(&self, device: DeviceIndex) -> Result<PriorityRange> {
        let result = self.inner.priority_range(device);
        answer("cuCtxGetStreamPriorityRange", result)
    }

    fn query_stream(&self, stream: Stream) -> Result<Readiness> {
        let stream = self.inward("cuStreamQuery", stream)?;
        let result = self.inner.query_stream(stream);
        answer("cuStreamQuery", result)
    }

    fn synchronize_stream(&self, stream: Stream) -> Result<()> {
        let stream = self.inward("cuStreamSynchronize", stream)?;
        let result = self.inner.synchronize_stream(stream);
        answer("cuStreamSynchronize", result)
    }

    fn wait_event(&self, stream: Stream, event: Event) -> Result<()> {
        let stream = self.inward("cuStreamWaitEvent", stream)?;
        let event = self.inward("cuStreamWaitEvent", event)?;
        let result = self.inner.wait_event(stream, event);
        answer("cuStreamWaitEvent", result)
    }

    fn launch_host_function(&self, stream: Stream, function: HostFunction) -> Result<()> {
        let stream = self.inward("cuLaunchHostFunc", stream)?;
        let result = self.inner.launch_host_function(stream, function);
        answer("cuLaunchHostFunc", result)
    }

    fn create_event(&self, device: DeviceIndex, flags: EventFlags) -> Result<Event> {
        let result = self.inner.create_event(device, flags);
        answer("cuEventCreate", result).map(|handle| self.outward(handle))
    }

    unsafe fn destroy_event(&self, event: Event) -> Result<()> {
        let event = self.inward("cuEventDestroy", event)?;
        // SAFETY: rules 1 to 3 are the caller's promise, passed on; only labels of handles changed.
        let result = unsafe { self.inner.destroy_event(event) };
        answer("cuEventDestroy", result)
    }

    fn record_event(&self, event: Event, stream: Stream) -> Result<()> {
        let event = self.inward("cuEventRecord", event)?;
        let stream = self.inward("cuEventRecord", stream)?;
        let result = self.inner.record_event(event, stream);
        answer("cuEventRecord", result)
    }

    fn query_event(&self, event: Event) -> Result<Readiness> {
        let event = self.inward("cuEventQuery", event)?;
        let result = self.inner.query_event(event);
        answer("cuEventQuery", result)
    }

    fn synchronize_event(&self, event: Event) -> Result<()> {
        let event = self.inward("cuEventSynchronize", event)?;
        let result = self.inner.synchronize_event(event);
        answer("cuEventSynchronize", result)
    }

    fn elapsed_ms(&self, start: Event, end: Event) -> Result<f32> {
        let start = self.inward("cuEventElapsedTime", start)?;
        let end = self.inward("cuEventElapsedTime", end)?;
        let result = self.inner.elapsed_ms(start, end);
        answer("cuEventElapsedTime", result)
    }

    fn graph_memory(&self, device: DeviceIndex) -> Result<u64> {
        let result = self.inner.graph_memory(device);
        answer("cuDeviceGetGraphMemAttribute", result)
    }

    fn dropped(&self, device: DeviceIndex) -> Vec<Dropped> {
        self.own_dropped(device)
    }

    fn pinned_host(&self) -> std::result::Result<&dyn PinnedHost, Unsupported> {
        family(self.inner.pinned_host())?;
        Ok(self)
    }

    fn virtual_memory(&self) -> std::result::Result<&dyn VirtualMemory, Unsupported> {
        family(self.inner.virtual_memory())?;
        Ok(self)
    }

    fn physical_sharing(&self) -> std::result::Result<&dyn PhysicalSharing, Unsupported> {
        family(self.inner.physical_sharing())?;
        Ok(self)
    }

    fn ipc(&self) -> std::result::Result<&dyn Ipc, Unsupported> {
        family(self.inner.ipc())?;
        Ok(self)
    }

    fn peers(&self) -> std::result::Result<&dyn Peers, Unsupported> {
        family(self.inner.peers())?;
        Ok(self)
    }

    fn capture(&self) -> std::result::Result<&dyn Capture, Unsupported> {
        family(self.inner.capture())?;
        Ok(self)
    }

    fn host_registration(&self) -> std::result::Result<&dyn HostRegistration, Unsupported> {
        family(self.inner.host_registration())?;
        Ok(self)
    }
}

impl PinnedHost for Masquerade {
    fn host_malloc(&self, bytes: u64, flags: HostFlags) -> Result<DevicePtr> {
        let inner = family(self.inner.pinned_host())?;
        let result = inner.host_malloc(bytes, flags);
        answer("cuMemHostAlloc", result)
    }

    unsafe fn host_free(&self, ptr: DevicePtr) -> Result<()> {
        let inner = family(self.inner.pinned_host())?;
        // SAFETY: rules 1 to 3 are the caller's promise, passed on; only labels of handles changed.
        let result = unsafe { inner.host_free(ptr) };
        answer("cuMemFreeHost", result)
    }
}

impl VirtualMemory for Masquerade {
    fn granularity(&self, device: DeviceIndex, which: Granularity) -> Result<u64> {
        let inner = family(self.inner.virtual_memory())?;
        let result = inner.granularity(device, which);
        answer("cuMemGetAllocationGranularity", result)
    }

    fn reserve_address(
        &self,
        device: DeviceIndex,
        bytes: u64,
        alignment: u64,
        hint: DevicePtr,
    ) -> Result<DevicePtr> {
        let inner = family(self.inner.virtual_memory())?;
        let result = inner.reserve_address(device, bytes, alignment, hint);
        answer("cuMemAddressReserve", result)
    }

    unsafe fn release_address(&self, base: DevicePtr, bytes: u64) -> Result<()> {
        let inner = family(self.inner.virtual_memory())?;
        // SAFETY: rules 1 to 3 are the caller's promise, passed on; only labels of handles changed.
        let result = unsafe { inner.release_address(base, bytes) };
        answer("cuMemAddressFree", result)
    }

    fn create_physical(
        &self,
        device: DeviceIndex,
        bytes: u64,
        handle_type: HandleType,
    ) -> Result<PhysicalHandle> {
        let inner = family(self.inner.virtual_memory())?;
        let result = inner.create_physical(device, bytes, handle_type);
        answer("cuMemCreate", result).map(|handle| self.outward(handle))
    }

    unsafe fn release_physical(&self, handle: PhysicalHandle) -> Result<()> {
        let handle = self.inward("cuMemRelease", handle)?;
        let inner = family(self.inner.virtual_memory())?;
        // SAFETY: rules 1 to 3 are the caller's promise, passed on; only labels of handles changed.
        let result = unsafe { inner.release_physical(handle) };
        answer("cuMemRelease", result)
    }

    unsafe fn map(&self, at: DevicePtr, bytes: u64, handle: PhysicalHandle) -> Result<()> {
        let handle = self.inward("cuMemMap", handle)?;
        let inner = family(self.inner.virtual_memory())?;
        // SAFETY: rules 1 to 3 are the caller's promise, passed on; only labels of handles changed.
        let result = unsafe { inner.map(at, bytes, handle) };
        answer("cuMemMap", result)
    }

    unsafe fn unmap(&self, at: DevicePtr, bytes: u64) -> Result<()> {
        let inner = family(self.inner.virtual_memory())?;
        // SAFETY: rules 1 to 3 are the caller's promise, passed on; only labels of handles changed.
        let result = unsafe { inner.unmap(at, bytes) };
        answer("cuMemUnmap", result)
    }

    unsafe fn set_access(
        &self,
        at: DevicePtr,
        bytes: u64,
        devices: &[DeviceIndex],
        access: Access,
    ) -> Result<()> {
        let inner = family(self.inner.virtual_memory())?;
        // SAFETY: rules 1 to 3 are the caller's promise, passed on; only labels of handles changed.
        let result = unsafe { inner.set_access(at, bytes, devices, access) };
        answer("cuMemSetAccess", result)
    }

    fn access(&self, at: DevicePtr, device: DeviceIndex) -> Result<Access> {
        let inner = family(self.inner.virtual_memory())?;
        let result = inner.access(at, device);
        answer("cuMemGetAccess", result)
    }
}

impl PhysicalSharing for Masquerade {
    fn export_physical(&self, handle: PhysicalHandle, handle_type: HandleType) -> Result<ShareableHandle> {
        let handle = self.inward("cuMemExportToShareableHandle", handle)?;
        let inner = family(self.inner.physical_sharing())?;
        let result = inner.export_physical(handle, handle_type);
        answer("cuMemExportToShareableHandle", result)
    }

    fn import_physical(&self, device: DeviceIndex, shared: &ShareableHandle) -> Result<PhysicalHandle> {
        let inner = family(self.inner.physical_sharing())?;
        let result = inner.import_physical(device, shared);
        answer("cuMemImportFromShareableHandle", result).map(|handle| self.outward(handle))
    }
}

impl Ipc for Masquerade {
    fn export_memory(&self, base: DevicePtr) -> Result<IpcMemoryHandle> {
        let inner = family(self.inner.ipc())?;
        let result = inner.export_memory(base);
        answer("cuIpcGetMemHandle", result)
    }

    fn open_memory(&self, device: DeviceIndex, handle: &IpcMemoryHandle) -> Result<DevicePtr> {
        let inner = family(self.inner.ipc())?;
        let result = inner.open_memory(device, handle);
        answer("cuIpcOpenMemHandle", result)
    }

    unsafe fn close_memory(&self, ptr: DevicePtr) -> Result<()> {
        let inner = family(self.inner.ipc())?;
        // SAFETY: rules 1 to 3 are the caller's promise, passed on; only labels of handles changed.
        let result = unsafe { inner.close_memory(ptr) };
        answer("cuIpcCloseMemHandle", result)
    }
}

impl Peers for Masquerade {
    fn can_access(&self, from: DeviceIndex, to: DeviceIndex) -> Result<bool> {
        let inner = family(self.inner.peers())?;
        let result = inner.can_access(from, to);
        answer("cuDeviceCanAccessPeer", result)
    }

    fn enable_access(&self, from: DeviceIndex, to: DeviceIndex) -> Result<()> {
        let inner = family(self.inner.peers())?;
        let result = inner.enable_access(from, to);
        answer("cuCtxEnablePeerAccess", result)
    }

    unsafe fn copy_peer_async(
        &self,
        dst: (DeviceIndex, DevicePtr),
        src: (DeviceIndex, DevicePtr),
        bytes: u64,
        stream: Stream,
    ) -> Result<()> {
        let stream = self.inward("cuMemcpyPeerAsync", stream)?;
        let inner = family(self.inner.peers())?;
        // SAFETY: rules 1 to 3 are the caller's promise, passed on; only labels of handles changed.
        let result = unsafe { inner.copy_peer_async(dst, src, bytes, stream) };
        answer("cuMemcpyPeerAsync", result)
    }
}

impl Capture for Masquerade {
    fn status(&self, stream: Stream) -> Result<CaptureStatus> {
        let stream = self.inward("cuStreamGetCaptureInfo", stream)?;
        let inner = family(self.inner.capture())?;
        let result = inner.status(stream);
        answer("cuStreamGetCaptureInfo", result)
    }

    fn begin(&self, stream: Stream, mode: CaptureMode) -> Result<()> {
        let stream = self.inward("cuStreamBeginCapture", stream)?;
        let inner = family(self.inner.capture())?;
        let result = inner.begin(stream, mode);
        answer("cuStreamBeginCapture", result)
    }

    fn end(&self, stream: Stream) -> Result<Graph> {
        let stream = self.inward("cuStreamEndCapture", stream)?;
        let inner = family(self.inner.capture())?;
        let result = inner.end(stream);
        answer("cuStreamEndCapture", result).map(|handle| self.outward(handle))
    }

    unsafe fn launch(&self, graph: Graph, stream: Stream) -> Result<()> {
        let graph = self.inward("cuGraphInstantiate", graph)?;
        let stream = self.inward("cuGraphInstantiate", stream)?;
        let inner = family(self.inner.capture())?;
        // SAFETY: rules 1 to 3 are the caller's promise, passed on; only labels of handles changed.
        let result = unsafe { inner.launch(graph, stream) };
        answer("cuGraphInstantiate", result)
    }

    unsafe fn destroy_graph(&self, graph: Graph) -> Result<()> {
        let graph = self.inward("cuGraphDestroy", graph)?;
        let inner = family(self.inner.capture())?;
        // SAFETY: rules 1 to 3 are the caller's promise, passed on; only labels of handles changed.
        let result = unsafe { inner.destroy_graph(graph) };
        answer("cuGraphDestroy", result)
    }

    fn exchange_mode(&self, mode: CaptureMode) -> Result<CaptureMode> {
        let inner = family(self.inner.capture())?;
        let result = inner.exchange_mode(mode);
        answer("cuThreadExchangeStreamCaptureMode", result)
    }

    fn frontier(&self, stream: Stream) -> Result<Vec<CaptureNode>> {
        let stream = self.inward("frontier", stream)?;
        let inner = family(self.inner.capture())?;
        let result = inner.frontier(stream);
        answer("frontier", result)
    }

    fn dependencies(&self, stream: Stream, node: CaptureNode) -> Result<Vec<CaptureNode>> {
        let stream = self.inward("cuGraphNodeGetDependencies", stream)?;
        let inner = family(self.inner.capture())?;
        let result = inner.dependencies(stream, node);
        answer("cuGraphNodeGetDependencies", result)
    }
}

impl HostRegistration for Masquerade {
    unsafe fn register(&self, ptr: DevicePtr, bytes: u64, flags: HostFlags) -> Result<()> {
        let inner = family(self.inner.host_registration())?;
        // SAFETY: rules 1 to 3 are the caller's promise, passed on; only labels of handles changed.
        let result = unsafe { inner.register(ptr, bytes, flags) };
        answer("cuMemHostRegister", result)
    }

    unsafe fn unregister(&self, ptr: DevicePtr) -> Result<()> {
        let inner = family(self.inner.host_registration())?;
        // SAFETY: rules 1 to 3 are the caller's promise, passed on; only labels of handles changed.
        let result = unsafe { inner.unregister(ptr) };
        answer("cuMemHostUnregister", result)
    }
}
