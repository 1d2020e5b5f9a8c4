//! A method for every method of the contract, and the backend that calls them.
//!
//! Generated from the `Backend` trait by `cargo xtask codegen`. Do not edit.

use super::Interposed;
use backend_api::types::*;
use backend_api::*;
use std::fmt::Debug;

/// What happens between a caller and a backend: one method for every method of the contract. Each
/// calls the inner one unless it is overridden.
///
/// Methods are named as in the contract. A family's accessor ends in `_family`; a name that two traits
/// share begins with the trait's. A method gets its backend or family as `inner`.
pub trait Hook: Debug + Send + Sync + 'static {
    /// Comes before every method that can fail, with its trait and name (`"VirtualMemory::map"`); an
    /// error is the call's answer, and the method is not called.
    fn enter(&self, method: &'static str) -> Result<()> {
        let _ = method;
        Ok(())
    }

    /// Stands in for [`Backend::id`].
    fn id(&self, inner: &dyn Backend) -> BackendId {
        inner.id()
    }

    /// Stands in for [`Backend::kind`].
    fn kind(&self, inner: &dyn Backend) -> DeviceKind {
        inner.kind()
    }

    /// Stands in for [`Backend::name`].
    fn name(&self, inner: &dyn Backend) -> &'static str {
        inner.name()
    }

    /// Stands in for [`Backend::label`].
    fn label(&self, inner: &dyn Backend) -> &'static str {
        inner.label()
    }

    /// Stands in for [`Backend::error_name`].
    fn error_name(&self, inner: &dyn Backend, code: i32) -> String {
        inner.error_name(code)
    }

    /// Stands in for [`Backend::clear_error`].
    fn clear_error(&self, inner: &dyn Backend) {
        inner.clear_error()
    }

    /// Stands in for [`Backend::device_count`].
    fn device_count(&self, inner: &dyn Backend) -> Result<u16> {
        inner.device_count()
    }

    /// Stands in for [`Backend::current_device`].
    fn current_device(&self, inner: &dyn Backend) -> Result<DeviceIndex> {
        inner.current_device()
    }

    /// Stands in for [`Backend::set_device`].
    fn set_device(&self, inner: &dyn Backend, device: DeviceIndex) -> Result<()> {
        inner.set_device(device)
    }

    /// Stands in for [`Backend::has_primary_context`].
    fn has_primary_context(&self, inner: &dyn Backend, device: DeviceIndex) -> Result<bool> {
        inner.has_primary_context(device)
    }

    /// Stands in for [`Backend::attribute`].
    fn attribute(&self, inner: &dyn Backend, device: DeviceIndex, attribute: Attribute) -> Result<i64> {
        inner.attribute(device, attribute)
    }

    /// Stands in for [`Backend::properties`].
    fn properties(&self, inner: &dyn Backend, device: DeviceIndex) -> Result<DeviceProperties> {
        inner.properties(device)
    }

    /// Stands in for [`Backend::synchronize_device`].
    fn synchronize_device(&self, inner: &dyn Backend, device: DeviceIndex) -> Result<()> {
        inner.synchronize_device(device)
    }

    /// Stands in for [`Backend::malloc`].
    fn malloc(&self, inner: &dyn Backend, device: DeviceIndex, bytes: u64) -> Result<DevicePtr> {
        inner.malloc(device, bytes)
    }

    /// Stands in for [`Backend::free`].
    ///
    /// # Safety
    /// As for [`Backend::free`].
    unsafe fn free(&self, inner: &dyn Backend, device: DeviceIndex, ptr: DevicePtr) -> Result<()> {
        // SAFETY: rules 1 to 3 are the caller's promise, passed on.
        unsafe { inner.free(device, ptr) }
    }

    /// Stands in for [`Backend::memory_info`].
    fn memory_info(&self, inner: &dyn Backend, device: DeviceIndex) -> Result<MemoryInfo> {
        inner.memory_info(device)
    }

    /// Stands in for [`Backend::pointer_info`].
    fn pointer_info(&self, inner: &dyn Backend, ptr: DevicePtr) -> Result<PointerInfo> {
        inner.pointer_info(ptr)
    }

    /// Stands in for [`Backend::address_range`].
    fn address_range(&self, inner: &dyn Backend, ptr: DevicePtr) -> Result<AddressRange> {
        inner.address_range(ptr)
    }

    /// Stands in for [`Backend::copy`].
    ///
    /// # Safety
    /// As for [`Backend::copy`].
    unsafe fn copy(
        &self,
        inner: &dyn Backend,
        dst: DevicePtr,
        src: DevicePtr,
        bytes: u64,
        kind: CopyKind,
    ) -> Result<()> {
        // SAFETY: rules 1 to 3 are the caller's promise, passed on.
        unsafe { inner.copy(dst, src, bytes, kind) }
    }

    /// Stands in for [`Backend::copy_async`].
    ///
    /// # Safety
    /// As for [`Backend::copy_async`].
    unsafe fn copy_async(
        &self,
        inner: &dyn Backend,
        dst: DevicePtr,
        src: DevicePtr,
        bytes: u64,
        kind: CopyKind,
        stream: Stream,
    ) -> Result<()> {
        // SAFETY: rules 1 to 3 are the caller's promise, passed on.
        unsafe { inner.copy_async(dst, src, bytes, kind, stream) }
    }

    /// Stands in for [`Backend::memset_async`].
    ///
    /// # Safety
    /// As for [`Backend::memset_async`].
    unsafe fn memset_async(
        &self,
        inner: &dyn Backend,
        dst: DevicePtr,
        value: u8,
        bytes: u64,
        stream: Stream,
    ) -> Result<()> {
        // SAFETY: rules 1 to 3 are the caller's promise, passed on.
        unsafe { inner.memset_async(dst, value, bytes, stream) }
    }

    /// Stands in for [`Backend::default_stream`].
    fn default_stream(&self, inner: &dyn Backend, device: DeviceIndex) -> Stream {
        inner.default_stream(device)
    }

    /// Stands in for [`Backend::create_stream`].
    fn create_stream(&self, inner: &dyn Backend, device: DeviceIndex, priority: i32) -> Result<Stream> {
        inner.create_stream(device, priority)
    }

    /// Stands in for [`Backend::destroy_stream`].
    ///
    /// # Safety
    /// As for [`Backend::destroy_stream`].
    unsafe fn destroy_stream(&self, inner: &dyn Backend, stream: Stream) -> Result<()> {
        // SAFETY: rules 1 to 3 are the caller's promise, passed on.
        unsafe { inner.destroy_stream(stream) }
    }

    /// Stands in for [`Backend::priority_range`].
    fn priority_range(&self, inner: &dyn Backend, device: DeviceIndex) -> Result<PriorityRange> {
        inner.priority_range(device)
    }

    /// Stands in for [`Backend::query_stream`].
    fn query_stream(&self, inner: &dyn Backend, stream: Stream) -> Result<Readiness> {
        inner.query_stream(stream)
    }

    /// Stands in for [`Backend::synchronize_stream`].
    fn synchronize_stream(&self, inner: &dyn Backend, stream: Stream) -> Result<()> {
        inner.synchronize_stream(stream)
    }

    /// Stands in for [`Backend::wait_event`].
    fn wait_event(&self, inner: &dyn Backend, stream: Stream, event: Event) -> Result<()> {
        inner.wait_event(stream, event)
    }

    /// Stands in for [`Backend::launch_host_function`].
    fn launch_host_function(
        &self,
        inner: &dyn Backend,
        stream: Stream,
        function: HostFunction,
    ) -> Result<()> {
        inner.launch_host_function(stream, function)
    }

    /// Stands in for [`Backend::create_event`].
    fn create_event(&self, inner: &dyn Backend, device: DeviceIndex, flags: EventFlags) -> Result<Event> {
        inner.create_event(device, flags)
    }

    /// Stands in for [`Backend::destroy_event`].
    ///
    /// # Safety
    /// As for [`Backend::destroy_event`].
    unsafe fn destroy_event(&self, inner: &dyn Backend, event: Event) -> Result<()> {
        // SAFETY: rules 1 to 3 are the caller's promise, passed on.
        unsafe { inner.destroy_event(event) }
    }

    /// Stands in for [`Backend::record_event`].
    fn record_event(&self, inner: &dyn Backend, event: Event, stream: Stream) -> Result<()> {
        inner.record_event(event, stream)
    }

    /// Stands in for [`Backend::query_event`].
    fn query_event(&self, inner: &dyn Backend, event: Event) -> Result<Readiness> {
        inner.query_event(event)
    }

    /// Stands in for [`Backend::synchronize_event`].
    fn synchronize_event(&self, inner: &dyn Backend, event: Event) -> Result<()> {
        inner.synchronize_event(event)
    }

    /// Stands in for [`Backend::elapsed_ms`].
    fn elapsed_ms(&self, inner: &dyn Backend, start: Event, end: Event) -> Result<f32> {
        inner.elapsed_ms(start, end)
    }

    /// Stands in for [`Backend::graph_memory`].
    fn graph_memory(&self, inner: &dyn Backend, device: DeviceIndex) -> Result<u64> {
        inner.graph_memory(device)
    }

    /// Stands in for [`Backend::dropped`].
    fn dropped(&self, inner: &dyn Backend, device: DeviceIndex) -> Vec<Dropped> {
        inner.dropped(device)
    }

    /// Stands in for [`Backend::pinned_host`].
    fn pinned_host_family<'a>(
        &self,
        inner: &'a dyn Backend,
    ) -> std::result::Result<&'a dyn PinnedHost, Unsupported> {
        inner.pinned_host()
    }

    /// Stands in for [`Backend::virtual_memory`].
    fn virtual_memory_family<'a>(
        &self,
        inner: &'a dyn Backend,
    ) -> std::result::Result<&'a dyn VirtualMemory, Unsupported> {
        inner.virtual_memory()
    }

    /// Stands in for [`Backend::physical_sharing`].
    fn physical_sharing_family<'a>(
        &self,
        inner: &'a dyn Backend,
    ) -> std::result::Result<&'a dyn PhysicalSharing, Unsupported> {
        self.virtual_memory_family(inner)?;
        inner.physical_sharing()
    }

    /// Stands in for [`Backend::ipc`].
    fn ipc_family<'a>(&self, inner: &'a dyn Backend) -> std::result::Result<&'a dyn Ipc, Unsupported> {
        inner.ipc()
    }

    /// Stands in for [`Backend::peers`].
    fn peers_family<'a>(&self, inner: &'a dyn Backend) -> std::result::Result<&'a dyn Peers, Unsupported> {
        inner.peers()
    }

    /// Stands in for [`Backend::capture`].
    fn capture_family<'a>(
        &self,
        inner: &'a dyn Backend,
    ) -> std::result::Result<&'a dyn Capture, Unsupported> {
        inner.capture()
    }

    /// Stands in for [`Backend::host_registration`].
    fn host_registration_family<'a>(
        &self,
        inner: &'a dyn Backend,
    ) -> std::result::Result<&'a dyn HostRegistration, Unsupported> {
        inner.host_registration()
    }

    /// Stands in for [`PinnedHost::host_malloc`].
    fn host_malloc(&self, inner: &dyn PinnedHost, bytes: u64, flags: HostFlags) -> Result<DevicePtr> {
        inner.host_malloc(bytes, flags)
    }

    /// Stands in for [`PinnedHost::host_free`].
    ///
    /// # Safety
    /// As for [`PinnedHost::host_free`].
    unsafe fn host_free(&self, inner: &dyn PinnedHost, ptr: DevicePtr) -> Result<()> {
        // SAFETY: rules 1 to 3 are the caller's promise, passed on.
        unsafe { inner.host_free(ptr) }
    }

    /// Stands in for [`VirtualMemory::granularity`].
    fn granularity(&self, inner: &dyn VirtualMemory, device: DeviceIndex, which: Granularity) -> Result<u64> {
        inner.granularity(device, which)
    }

    /// Stands in for [`VirtualMemory::reserve_address`].
    fn reserve_address(
        &self,
        inner: &dyn VirtualMemory,
        device: DeviceIndex,
        bytes: u64,
        alignment: u64,
        hint: DevicePtr,
    ) -> Result<DevicePtr> {
        inner.reserve_address(device, bytes, alignment, hint)
    }

    /// Stands in for [`VirtualMemory::release_address`].
    ///
    /// # Safety
    /// As for [`VirtualMemory::release_address`].
    unsafe fn release_address(&self, inner: &dyn VirtualMemory, base: DevicePtr, bytes: u64) -> Result<()> {
        // SAFETY: rules 1 to 3 are the caller's promise, passed on.
        unsafe { inner.release_address(base, bytes) }
    }

    /// Stands in for [`VirtualMemory::create_physical`].
    fn create_physical(
        &self,
        inner: &dyn VirtualMemory,
        device: DeviceIndex,
        bytes: u64,
        handle_type: HandleType,
    ) -> Result<PhysicalHandle> {
        inner.create_physical(device, bytes, handle_type)
    }

    /// Stands in for [`VirtualMemory::release_physical`].
    ///
    /// # Safety
    /// As for [`VirtualMemory::release_physical`].
    unsafe fn release_physical(&self, inner: &dyn VirtualMemory, handle: PhysicalHandle) -> Result<()> {
        // SAFETY: rules 1 to 3 are the caller's promise, passed on.
        unsafe { inner.release_physical(handle) }
    }

    /// Stands in for [`VirtualMemory::map`].
    ///
    /// # Safety
    /// As for [`VirtualMemory::map`].
    unsafe fn map(
        &self,
        inner: &dyn VirtualMemory,
        at: DevicePtr,
        bytes: u64,
        handle: PhysicalHandle,
    ) -> Result<()> {
        // SAFETY: rules 1 to 3 are the caller's promise, passed on.
        unsafe { inner.map(at, bytes, handle) }
    }

    /// Stands in for [`VirtualMemory::unmap`].
    ///
    /// # Safety
    /// As for [`VirtualMemory::unmap`].
    unsafe fn unmap(&self, inner: &dyn VirtualMemory, at: DevicePtr, bytes: u64) -> Result<()> {
        // SAFETY: rules 1 to 3 are the caller's promise, passed on.
        unsafe { inner.unmap(at, bytes) }
    }

    /// Stands in for [`VirtualMemory::set_access`].
    ///
    /// # Safety
    /// As for [`VirtualMemory::set_access`].
    unsafe fn set_access(
        &self,
        inner: &dyn VirtualMemory,
        at: DevicePtr,
        bytes: u64,
        devices: &[DeviceIndex],
        access: Access,
    ) -> Result<()> {
        // SAFETY: rules 1 to 3 are the caller's promise, passed on.
        unsafe { inner.set_access(at, bytes, devices, access) }
    }

    /// Stands in for [`VirtualMemory::access`].
    fn access(&self, inner: &dyn VirtualMemory, at: DevicePtr, device: DeviceIndex) -> Result<Access> {
        inner.access(at, device)
    }

    /// Stands in for [`PhysicalSharing::export_physical`].
    fn export_physical(
        &self,
        inner: &dyn PhysicalSharing,
        handle: PhysicalHandle,
        handle_type: HandleType,
    ) -> Result<ShareableHandle> {
        inner.export_physical(handle, handle_type)
    }

    /// Stands in for [`PhysicalSharing::import_physical`].
    fn import_physical(
        &self,
        inner: &dyn PhysicalSharing,
        device: DeviceIndex,
        shared: &ShareableHandle,
    ) -> Result<PhysicalHandle> {
        inner.import_physical(device, shared)
    }

    /// Stands in for [`Ipc::export_memory`].
    fn export_memory(&self, inner: &dyn Ipc, base: DevicePtr) -> Result<IpcMemoryHandle> {
        inner.export_memory(base)
    }

    /// Stands in for [`Ipc::open_memory`].
    fn open_memory(
        &self,
        inner: &dyn Ipc,
        device: DeviceIndex,
        handle: &IpcMemoryHandle,
    ) -> Result<DevicePtr> {
        inner.open_memory(device, handle)
    }

    /// Stands in for [`Ipc::close_memory`].
    ///
    /// # Safety
    /// As for [`Ipc::close_memory`].
    unsafe fn close_memory(&self, inner: &dyn Ipc, ptr: DevicePtr) -> Result<()> {
        // SAFETY: rules 1 to 3 are the caller's promise, passed on.
        unsafe { inner.close_memory(ptr) }
    }

    /// Stands in for [`Peers::can_access`].
    fn can_access(&self, inner: &dyn Peers, from: DeviceIndex, to: DeviceIndex) -> Result<bool> {
        inner.can_access(from, to)
    }

    /// Stands in for [`Peers::enable_access`].
    fn enable_access(&self, inner: &dyn Peers, from: DeviceIndex, to: DeviceIndex) -> Result<()> {
        inner.enable_access(from, to)
    }

    /// Stands in for [`Peers::copy_peer_async`].
    ///
    /// # Safety
    /// As for [`Peers::copy_peer_async`].
    unsafe fn copy_peer_async(
        &self,
        inner: &dyn Peers,
        dst: (DeviceIndex, DevicePtr),
        src: (DeviceIndex, DevicePtr),
        bytes: u64,
        stream: Stream,
    ) -> Result<()> {
        // SAFETY: rules 1 to 3 are the caller's promise, passed on.
        unsafe { inner.copy_peer_async(dst, src, bytes, stream) }
    }

    /// Stands in for [`Capture::status`].
    fn status(&self, inner: &dyn Capture, stream: Stream) -> Result<CaptureStatus> {
        inner.status(stream)
    }

    /// Stands in for [`Capture::begin`].
    fn begin(&self, inner: &dyn Capture, stream: Stream, mode: CaptureMode) -> Result<()> {
        inner.begin(stream, mode)
    }

    /// Stands in for [`Capture::end`].
    fn end(&self, inner: &dyn Capture, stream: Stream) -> Result<Graph> {
        inner.end(stream)
    }

    /// Stands in for [`Capture::launch`].
    ///
    /// # Safety
    /// As for [`Capture::launch`].
    unsafe fn launch(&self, inner: &dyn Capture, graph: Graph, stream: Stream) -> Result<()> {
        // SAFETY: rules 1 to 3 are the caller's promise, passed on.
        unsafe { inner.launch(graph, stream) }
    }

    /// Stands in for [`Capture::destroy_graph`].
    ///
    /// # Safety
    /// As for [`Capture::destroy_graph`].
    unsafe fn destroy_graph(&self, inner: &dyn Capture, graph: Graph) -> Result<()> {
        // SAFETY: rules 1 to 3 are the caller's promise, passed on.
        unsafe { inner.destroy_graph(graph) }
    }

    /// Stands in for [`Capture::exchange_mode`].
    fn exchange_mode(&self, inner: &dyn Capture, mode: CaptureMode) -> Result<CaptureMode> {
        inner.exchange_mode(mode)
    }

    /// Stands in for [`Capture::frontier`].
    fn frontier(&self, inner: &dyn Capture, stream: Stream) -> Result<Vec<CaptureNode>> {
        inner.frontier(stream)
    }

    /// Stands in for [`Capture::dependencies`].
    fn dependencies(
        &self,
        inner: &dyn Capture,
        stream: Stream,
        node: CaptureNode,
    ) -> Result<Vec<CaptureNode>> {
        inner.dependencies(stream, node)
    }

    /// Stands in for [`HostRegistration::register`].
    ///
    /// # Safety
    /// As for [`HostRegistration::register`].
    unsafe fn register(
        &self,
        inner: &dyn HostRegistration,
        ptr: DevicePtr,
        bytes: u64,
        flags: HostFlags,
    ) -> Result<()> {
        // SAFETY: rules 1 to 3 are the caller's promise, passed on.
        unsafe { inner.register(ptr, bytes, flags) }
    }

    /// Stands in for [`HostRegistration::unregister`].
    ///
    /// # Safety
    /// As for [`HostRegistration::unregister`].
    unsafe fn unregister(&self, inner: &dyn HostRegistration, ptr: DevicePtr) -> Result<()> {
        // SAFETY: rules 1 to 3 are the caller's promise, passed on.
        unsafe { inner.unregister(ptr) }
    }
}

// SAFETY: I1 to I4 are the inner backend's; a hook that breaks them is made to.
unsafe impl<H: Hook + ?Sized> Backend for Interposed<H> {
    fn id(&self) -> BackendId {
        Hook::id(self.hook(), &*self.inner)
    }

    fn kind(&self) -> DeviceKind {
        Hook::kind(self.hook(), &*self.inner)
    }

    fn name(&self) -> &'static str {
        Hook::name(self.hook(), &*self.inner)
    }

    fn label(&self) -> &'static str {
        Hook::label(self.hook(), &*self.inner)
    }

    fn error_name(&self, code: i32) -> String {
        Hook::error_name(self.hook(), &*self.inner, code)
    }

    fn clear_error(&self) {
        Hook::clear_error(self.hook(), &*self.inner)
    }

    fn device_count(&self) -> Result<u16> {
        Hook::enter(self.hook(), "Backend::device_count")?;
        Hook::device_count(self.hook(), &*self.inner)
    }

    fn current_device(&self) -> Result<DeviceIndex> {
        Hook::enter(self.hook(), "Backend::current_device")?;
        Hook::current_device(self.hook(), &*self.inner)
    }

    fn set_device(&self, device: DeviceIndex) -> Result<()> {
        Hook::enter(self.hook(), "Backend::set_device")?;
        Hook::set_device(self.hook(), &*self.inner, device)
    }

    fn has_primary_context(&self, device: DeviceIndex) -> Result<bool> {
        Hook::enter(self.hook(), "Backend::has_primary_context")?;
        Hook::has_primary_context(self.hook(), &*self.inner, device)
    }

    fn attribute(&self, device: DeviceIndex, attribute: Attribute) -> Result<i64> {
        Hook::enter(self.hook(), "Backend::attribute")?;
        Hook::attribute(self.hook(), &*self.inner, device, attribute)
    }

    fn properties(&self, device: DeviceIndex) -> Result<DeviceProperties> {
        Hook::enter(self.hook(), "Backend::properties")?;
        Hook::properties(self.hook(), &*self.inner, device)
    }

    fn synchronize_device(&self, device: DeviceIndex) -> Result<()> {
        Hook::enter(self.hook(), "Backend::synchronize_device")?;
        Hook::synchronize_device(self.hook(), &*self.inner, device)
    }

    fn malloc(&self, device: DeviceIndex, bytes: u64) -> Result<DevicePtr> {
        Hook::enter(self.hook(), "Backend::malloc")?;
        Hook::malloc(self.hook(), &*self.inner, device, bytes)
    }

    unsafe fn free(&self, device: DeviceIndex, ptr: DevicePtr) -> Result<()> {
        Hook::enter(self.hook(), "Backend::free")?;
        // SAFETY: rules 1 to 3 are the caller's promise, passed on.
        unsafe { Hook::free(self.hook(), &*self.inner, device, ptr) }
    }

    fn memory_info(&self, device: DeviceIndex) -> Result<MemoryInfo> {
        Hook::enter(self.hook(), "Backend::memory_info")?;
        Hook::memory_info(self.hook(), &*self.inner, device)
    }

    fn pointer_info(&self, ptr: DevicePtr) -> Result<PointerInfo> {
        Hook::enter(self.hook(), "Backend::pointer_info")?;
        Hook::pointer_info(self.hook(), &*self.inner, ptr)
    }

    fn address_range(&self, ptr: DevicePtr) -> Result<AddressRange> {
        Hook::enter(self.hook(), "Backend::address_range")?;
        Hook::address_range(self.hook(), &*self.inner, ptr)
    }

    unsafe fn copy(&self, dst: DevicePtr, src: DevicePtr, bytes: u64, kind: CopyKind) -> Result<()> {
        Hook::enter(self.hook(), "Backend::copy")?;
        // SAFETY: rules 1 to 3 are the caller's promise, passed on.
        unsafe { Hook::copy(self.hook(), &*self.inner, dst, src, bytes, kind) }
    }

    unsafe fn copy_async(
        &self,
        dst: DevicePtr,
        src: DevicePtr,
        bytes: u64,
        kind: CopyKind,
        stream: Stream,
    ) -> Result<()> {
        Hook::enter(self.hook(), "Backend::copy_async")?;
        // SAFETY: rules 1 to 3 are the caller's promise, passed on.
        unsafe { Hook::copy_async(self.hook(), &*self.inner, dst, src, bytes, kind, stream) }
    }

    unsafe fn memset_async(&self, dst: DevicePtr, value: u8, bytes: u64, stream: Stream) -> Result<()> {
        Hook::enter(self.hook(), "Backend::memset_async")?;
        // SAFETY: rules 1 to 3 are the caller's promise, passed on.
        unsafe { Hook::memset_async(self.hook(), &*self.inner, dst, value, bytes, stream) }
    }

    fn default_stream(&self, device: DeviceIndex) -> Stream {
        Hook::default_stream(self.hook(), &*self.inner, device)
    }

    fn create_stream(&self, device: DeviceIndex, priority: i32) -> Result<Stream> {
        Hook::enter(self.hook(), "Backend::create_stream")?;
        Hook::create_stream(self.hook(), &*self.inner, device, priority)
    }

    unsafe fn destroy_stream(&self, stream: Stream) -> Result<()> {
        Hook::enter(self.hook(), "Backend::destroy_stream")?;
        // SAFETY: rules 1 to 3 are the caller's promise, passed on.
        unsafe { Hook::destroy_stream(self.hook(), &*self.inner, stream) }
    }

    fn priority_range(&self, device: DeviceIndex) -> Result<PriorityRange> {
        Hook::enter(self.hook(), "Backend::priority_range")?;
        Hook::priority_range(self.hook(), &*self.inner, device)
    }

    fn query_stream(&self, stream: Stream) -> Result<Readiness> {
        Hook::enter(self.hook(), "Backend::query_stream")?;
        Hook::query_stream(self.hook(), &*self.inner, stream)
    }

    fn synchronize_stream(&self, stream: Stream) -> Result<()> {
        Hook::enter(self.hook(), "Backend::synchronize_stream")?;
        Hook::synchronize_stream(self.hook(), &*self.inner, stream)
    }

    fn wait_event(&self, stream: Stream, event: Event) -> Result<()> {
        Hook::enter(self.hook(), "Backend::wait_event")?;
        Hook::wait_event(self.hook(), &*self.inner, stream, event)
    }

    fn launch_host_function(&self, stream: Stream, function: HostFunction) -> Result<()> {
        Hook::enter(self.hook(), "Backend::launch_host_function")?;
        Hook::launch_host_function(self.hook(), &*self.inner, stream, function)
    }

    fn create_event(&self, device: DeviceIndex, flags: EventFlags) -> Result<Event> {
        Hook::enter(self.hook(), "Backend::create_event")?;
        Hook::create_event(self.hook(), &*self.inner, device, flags)
    }

    unsafe fn destroy_event(&self, event: Event) -> Result<()> {
        Hook::enter(self.hook(), "Backend::destroy_event")?;
        // SAFETY: rules 1 to 3 are the caller's promise, passed on.
        unsafe { Hook::destroy_event(self.hook(), &*self.inner, event) }
    }

    fn record_event(&self, event: Event, stream: Stream) -> Result<()> {
        Hook::enter(self.hook(), "Backend::record_event")?;
        Hook::record_event(self.hook(), &*self.inner, event, stream)
    }

    fn query_event(&self, event: Event) -> Result<Readiness> {
        Hook::enter(self.hook(), "Backend::query_event")?;
        Hook::query_event(self.hook(), &*self.inner, event)
    }

    fn synchronize_event(&self, event: Event) -> Result<()> {
        Hook::enter(self.hook(), "Backend::synchronize_event")?;
        Hook::synchronize_event(self.hook(), &*self.inner, event)
    }

    fn elapsed_ms(&self, start: Event, end: Event) -> Result<f32> {
        Hook::enter(self.hook(), "Backend::elapsed_ms")?;
        Hook::elapsed_ms(self.hook(), &*self.inner, start, end)
    }

    fn graph_memory(&self, device: DeviceIndex) -> Result<u64> {
        Hook::enter(self.hook(), "Backend::graph_memory")?;
        Hook::graph_memory(self.hook(), &*self.inner, device)
    }

    fn dropped(&self, device: DeviceIndex) -> Vec<Dropped> {
        Hook::dropped(self.hook(), &*self.inner, device)
    }

    fn pinned_host(&self) -> std::result::Result<&dyn PinnedHost, Unsupported> {
        Hook::pinned_host_family(self.hook(), &*self.inner)?;
        Ok(self)
    }

    fn virtual_memory(&self) -> std::result::Result<&dyn VirtualMemory, Unsupported> {
        Hook::virtual_memory_family(self.hook(), &*self.inner)?;
        Ok(self)
    }

    fn physical_sharing(&self) -> std::result::Result<&dyn PhysicalSharing, Unsupported> {
        Hook::physical_sharing_family(self.hook(), &*self.inner)?;
        Ok(self)
    }

    fn ipc(&self) -> std::result::Result<&dyn Ipc, Unsupported> {
        Hook::ipc_family(self.hook(), &*self.inner)?;
        Ok(self)
    }

    fn peers(&self) -> std::result::Result<&dyn Peers, Unsupported> {
        Hook::peers_family(self.hook(), &*self.inner)?;
        Ok(self)
    }

    fn capture(&self) -> std::result::Result<&dyn Capture, Unsupported> {
        Hook::capture_family(self.hook(), &*self.inner)?;
        Ok(self)
    }

    fn host_registration(&self) -> std::result::Result<&dyn HostRegistration, Unsupported> {
        Hook::host_registration_family(self.hook(), &*self.inner)?;
        Ok(self)
    }
}

impl<H: Hook + ?Sized> PinnedHost for Interposed<H> {
    fn host_malloc(&self, bytes: u64, flags: HostFlags) -> Result<DevicePtr> {
        Hook::enter(self.hook(), "PinnedHost::host_malloc")?;
        let inner = Hook::pinned_host_family(self.hook(), &*self.inner)?;
        Hook::host_malloc(self.hook(), inner, bytes, flags)
    }

    unsafe fn host_free(&self, ptr: DevicePtr) -> Result<()> {
        Hook::enter(self.hook(), "PinnedHost::host_free")?;
        let inner = Hook::pinned_host_family(self.hook(), &*self.inner)?;
        // SAFETY: rules 1 to 3 are the caller's promise, passed on.
        unsafe { Hook::host_free(self.hook(), inner, ptr) }
    }
}

impl<H: Hook + ?Sized> VirtualMemory for Interposed<H> {
    fn granularity(&self, device: DeviceIndex, which: Granularity) -> Result<u64> {
        Hook::enter(self.hook(), "VirtualMemory::granularity")?;
        let inner = Hook::virtual_memory_family(self.hook(), &*self.inner)?;
        Hook::granularity(self.hook(), inner, device, which)
    }

    fn reserve_address(
        &self,
        device: DeviceIndex,
        bytes: u64,
        alignment: u64,
        hint: DevicePtr,
    ) -> Result<DevicePtr> {
        Hook::enter(self.hook(), "VirtualMemory::reserve_address")?;
        let inner = Hook::virtual_memory_family(self.hook(), &*self.inner)?;
        Hook::reserve_address(self.hook(), inner, device, bytes, alignment, hint)
    }

    unsafe fn release_address(&self, base: DevicePtr, bytes: u64) -> Result<()> {
        Hook::enter(self.hook(), "VirtualMemory::release_address")?;
        let inner = Hook::virtual_memory_family(self.hook(), &*self.inner)?;
        // SAFETY: rules 1 to 3 are the caller's promise, passed on.
        unsafe { Hook::release_address(self.hook(), inner, base, bytes) }
    }

    fn create_physical(
        &self,
        device: DeviceIndex,
        bytes: u64,
        handle_type: HandleType,
    ) -> Result<PhysicalHandle> {
        Hook::enter(self.hook(), "VirtualMemory::create_physical")?;
        let inner = Hook::virtual_memory_family(self.hook(), &*self.inner)?;
        Hook::create_physical(self.hook(), inner, device, bytes, handle_type)
    }

    unsafe fn release_physical(&self, handle: PhysicalHandle) -> Result<()> {
        Hook::enter(self.hook(), "VirtualMemory::release_physical")?;
        let inner = Hook::virtual_memory_family(self.hook(), &*self.inner)?;
        // SAFETY: rules 1 to 3 are the caller's promise, passed on.
        unsafe { Hook::release_physical(self.hook(), inner, handle) }
    }

    unsafe fn map(&self, at: DevicePtr, bytes: u64, handle: PhysicalHandle) -> Result<()> {
        Hook::enter(self.hook(), "VirtualMemory::map")?;
        let inner = Hook::virtual_memory_family(self.hook(), &*self.inner)?;
        // SAFETY: rules 1 to 3 are the caller's promise, passed on.
        unsafe { Hook::map(self.hook(), inner, at, bytes, handle) }
    }

    unsafe fn unmap(&self, at: DevicePtr, bytes: u64) -> Result<()> {
        Hook::enter(self.hook(), "VirtualMemory::unmap")?;
        let inner = Hook::virtual_memory_family(self.hook(), &*self.inner)?;
        // SAFETY: rules 1 to 3 are the caller's promise, passed on.
        unsafe { Hook::unmap(self.hook(), inner, at, bytes) }
    }

    unsafe fn set_access(
        &self,
        at: DevicePtr,
        bytes: u64,
        devices: &[DeviceIndex],
        access: Access,
    ) -> Result<()> {
        Hook::enter(self.hook(), "VirtualMemory::set_access")?;
        let inner = Hook::virtual_memory_family(self.hook(), &*self.inner)?;
        // SAFETY: rules 1 to 3 are the caller's promise, passed on.
        unsafe { Hook::set_access(self.hook(), inner, at, bytes, devices, access) }
    }

    fn access(&self, at: DevicePtr, device: DeviceIndex) -> Result<Access> {
        Hook::enter(self.hook(), "VirtualMemory::access")?;
        let inner = Hook::virtual_memory_family(self.hook(), &*self.inner)?;
        Hook::access(self.hook(), inner, at, device)
    }
}

impl<H: Hook + ?Sized> PhysicalSharing for Interposed<H> {
    fn export_physical(&self, handle: PhysicalHandle, handle_type: HandleType) -> Result<ShareableHandle> {
        Hook::enter(self.hook(), "PhysicalSharing::export_physical")?;
        let inner = Hook::physical_sharing_family(self.hook(), &*self.inner)?;
        Hook::export_physical(self.hook(), inner, handle, handle_type)
    }

    fn import_physical(&self, device: DeviceIndex, shared: &ShareableHandle) -> Result<PhysicalHandle> {
        Hook::enter(self.hook(), "PhysicalSharing::import_physical")?;
        let inner = Hook::physical_sharing_family(self.hook(), &*self.inner)?;
        Hook::import_physical(self.hook(), inner, device, shared)
    }
}

impl<H: Hook + ?Sized> Ipc for Interposed<H> {
    fn export_memory(&self, base: DevicePtr) -> Result<IpcMemoryHandle> {
        Hook::enter(self.hook(), "Ipc::export_memory")?;
        let inner = Hook::ipc_family(self.hook(), &*self.inner)?;
        Hook::export_memory(self.hook(), inner, base)
    }

    fn open_memory(&self, device: DeviceIndex, handle: &IpcMemoryHandle) -> Result<DevicePtr> {
        Hook::enter(self.hook(), "Ipc::open_memory")?;
        let inner = Hook::ipc_family(self.hook(), &*self.inner)?;
        Hook::open_memory(self.hook(), inner, device, handle)
    }

    unsafe fn close_memory(&self, ptr: DevicePtr) -> Result<()> {
        Hook::enter(self.hook(), "Ipc::close_memory")?;
        let inner = Hook::ipc_family(self.hook(), &*self.inner)?;
        // SAFETY: rules 1 to 3 are the caller's promise, passed on.
        unsafe { Hook::close_memory(self.hook(), inner, ptr) }
    }
}

impl<H: Hook + ?Sized> Peers for Interposed<H> {
    fn can_access(&self, from: DeviceIndex, to: DeviceIndex) -> Result<bool> {
        Hook::enter(self.hook(), "Peers::can_access")?;
        let inner = Hook::peers_family(self.hook(), &*self.inner)?;
        Hook::can_access(self.hook(), inner, from, to)
    }

    fn enable_access(&self, from: DeviceIndex, to: DeviceIndex) -> Result<()> {
        Hook::enter(self.hook(), "Peers::enable_access")?;
        let inner = Hook::peers_family(self.hook(), &*self.inner)?;
        Hook::enable_access(self.hook(), inner, from, to)
    }

    unsafe fn copy_peer_async(
        &self,
        dst: (DeviceIndex, DevicePtr),
        src: (DeviceIndex, DevicePtr),
        bytes: u64,
        stream: Stream,
    ) -> Result<()> {
        Hook::enter(self.hook(), "Peers::copy_peer_async")?;
        let inner = Hook::peers_family(self.hook(), &*self.inner)?;
        // SAFETY: rules 1 to 3 are the caller's promise, passed on.
        unsafe { Hook::copy_peer_async(self.hook(), inner, dst, src, bytes, stream) }
    }
}

impl<H: Hook + ?Sized> Capture for Interposed<H> {
    fn status(&self, stream: Stream) -> Result<CaptureStatus> {
        Hook::enter(self.hook(), "Capture::status")?;
        let inner = Hook::capture_family(self.hook(), &*self.inner)?;
        Hook::status(self.hook(), inner, stream)
    }

    fn begin(&self, stream: Stream, mode: CaptureMode) -> Result<()> {
        Hook::enter(self.hook(), "Capture::begin")?;
        let inner = Hook::capture_family(self.hook(), &*self.inner)?;
        Hook::begin(self.hook(), inner, stream, mode)
    }

    fn end(&self, stream: Stream) -> Result<Graph> {
        Hook::enter(self.hook(), "Capture::end")?;
        let inner = Hook::capture_family(self.hook(), &*self.inner)?;
        Hook::end(self.hook(), inner, stream)
    }

    unsafe fn launch(&self, graph: Graph, stream: Stream) -> Result<()> {
        Hook::enter(self.hook(), "Capture::launch")?;
        let inner = Hook::capture_family(self.hook(), &*self.inner)?;
        // SAFETY: rules 1 to 3 are the caller's promise, passed on.
        unsafe { Hook::launch(self.hook(), inner, graph, stream) }
    }

    unsafe fn destroy_graph(&self, graph: Graph) -> Result<()> {
        Hook::enter(self.hook(), "Capture::destroy_graph")?;
        let inner = Hook::capture_family(self.hook(), &*self.inner)?;
        // SAFETY: rules 1 to 3 are the caller's promise, passed on.
        unsafe { Hook::destroy_graph(self.hook(), inner, graph) }
    }

    fn exchange_mode(&self, mode: CaptureMode) -> Result<CaptureMode> {
        Hook::enter(self.hook(), "Capture::exchange_mode")?;
        let inner = Hook::capture_family(self.hook(), &*self.inner)?;
        Hook::exchange_mode(self.hook(), inner, mode)
    }

    fn frontier(&self, stream: Stream) -> Result<Vec<CaptureNode>> {
        Hook::enter(self.hook(), "Capture::frontier")?;
        let inner = Hook::capture_family(self.hook(), &*self.inner)?;
        Hook::frontier(self.hook(), inner, stream)
    }

    fn dependencies(&self, stream: Stream, node: CaptureNode) -> Result<Vec<CaptureNode>> {
        Hook::enter(self.hook(), "Capture::dependencies")?;
        let inner = Hook::capture_family(self.hook(), &*self.inner)?;
        Hook::dependencies(self.hook(), inner, stream, node)
    }
}

impl<H: Hook + ?Sized> HostRegistration for Interposed<H> {
    unsafe fn register(&self, ptr: DevicePtr, bytes: u64, flags: HostFlags) -> Result<()> {
        Hook::enter(self.hook(), "HostRegistration::register")?;
        let inner = Hook::host_registration_family(self.hook(), &*self.inner)?;
        // SAFETY: rules 1 to 3 are the caller's promise, passed on.
        unsafe { Hook::register(self.hook(), inner, ptr, bytes, flags) }
    }

    unsafe fn unregister(&self, ptr: DevicePtr) -> Result<()> {
        Hook::enter(self.hook(), "HostRegistration::unregister")?;
        let inner = Hook::host_registration_family(self.hook(), &*self.inner)?;
        // SAFETY: rules 1 to 3 are the caller's promise, passed on.
        unsafe { Hook::unregister(self.hook(), inner, ptr) }
    }
}
