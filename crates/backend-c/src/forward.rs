//! Every method of the contract, as a call through the table.
//!
//! Generated from the `Backend` trait by `cargo xtask codegen`. Do not edit.

use crate::backend::CBackend;
use crate::call::Call;
use crate::host_function::{HandedOver, run_on_host};
use crate::values::*;
use backend_api::types::*;
use backend_api::*;

// SAFETY: I1 to I4 are the table's; who called `from_table` promised them.
unsafe impl Backend for CBackend {
    fn id(&self) -> BackendId {
        self.id
    }

    fn kind(&self) -> DeviceKind {
        self.kind
    }

    fn name(&self) -> &'static str {
        self.name
    }

    fn label(&self) -> &'static str {
        self.label
    }

    fn error_name(&self, code: i32) -> String {
        let name = self
            .table
            .error_name
            // SAFETY: the table keeps its header's word (`from_table`), and the caller's promise is passed on.
            .map(|entry| unsafe { entry(self.table.context, code) });
        self.text_or(name, "unknown")
    }

    fn clear_error(&self) {
        if let Some(entry) = self.table.clear_error {
            // SAFETY: the table keeps its header's word (`from_table`), and the caller's promise is passed on.
            unsafe { entry(self.table.context) }
        }
    }

    fn device_count(&self) -> Result<u16> {
        let call = Call::new(self, "device_count", DeviceIndex(0));
        let entry = call.function(self.table.device_count)?;
        let mut answer = <u16 as Value>::BLANK;
        // SAFETY: the table keeps its header's word (`from_table`), and the caller's promise is passed on.
        let status = unsafe { entry(self.table.context, &raw mut answer) };
        call.answer::<u16>(status, answer)
    }

    fn current_device(&self) -> Result<DeviceIndex> {
        let call = Call::new(self, "current_device", DeviceIndex(0));
        let entry = call.function(self.table.current_device)?;
        let mut answer = <DeviceIndex as Value>::BLANK;
        // SAFETY: the table keeps its header's word (`from_table`), and the caller's promise is passed on.
        let status = unsafe { entry(self.table.context, &raw mut answer) };
        call.answer::<DeviceIndex>(status, answer)
    }

    fn set_device(&self, device: DeviceIndex) -> Result<()> {
        let call = Call::new(self, "set_device", device);
        let entry = call.function(self.table.set_device)?;
        // SAFETY: the table keeps its header's word (`from_table`), and the caller's promise is passed on.
        let status = unsafe { entry(self.table.context, call.device(device)?) };
        call.done(status)
    }

    fn has_primary_context(&self, device: DeviceIndex) -> Result<bool> {
        let call = Call::new(self, "has_primary_context", device);
        let Some(entry) = self.table.has_primary_context else {
            return defaults::has_primary_context(self, device);
        };
        let mut answer = <bool as Value>::BLANK;
        // SAFETY: the table keeps its header's word (`from_table`), and the caller's promise is passed on.
        let status = unsafe { entry(self.table.context, call.device(device)?, &raw mut answer) };
        call.answer::<bool>(status, answer)
    }

    fn attribute(&self, device: DeviceIndex, attribute: Attribute) -> Result<i64> {
        let call = Call::new(self, "attribute", device);
        let Some(entry) = self.table.attribute else {
            return defaults::attribute(self, device, attribute);
        };
        let mut answer = <i64 as Value>::BLANK;
        // SAFETY: the table keeps its header's word (`from_table`), and the caller's promise is passed on.
        let status =
            unsafe { entry(self.table.context, call.device(device)?, attribute as i32, &raw mut answer) };
        call.answer::<i64>(status, answer)
    }

    fn properties(&self, device: DeviceIndex) -> Result<DeviceProperties> {
        let call = Call::new(self, "properties", device);
        let Some(entry) = self.table.properties else {
            return defaults::properties(self, device);
        };
        let mut answer = <DeviceProperties as Value>::BLANK;
        // SAFETY: the table keeps its header's word (`from_table`), and the caller's promise is passed on.
        let status = unsafe { entry(self.table.context, call.device(device)?, &raw mut answer) };
        call.answer::<DeviceProperties>(status, answer)
    }

    fn synchronize_device(&self, device: DeviceIndex) -> Result<()> {
        let call = Call::new(self, "synchronize_device", device);
        let entry = call.function(self.table.synchronize_device)?;
        // SAFETY: the table keeps its header's word (`from_table`), and the caller's promise is passed on.
        let status = unsafe { entry(self.table.context, call.device(device)?) };
        call.done(status)
    }

    fn malloc(&self, device: DeviceIndex, bytes: u64) -> Result<DevicePtr> {
        let call = Call::new(self, "malloc", device);
        let entry = call.function(self.table.malloc)?;
        let mut answer = <DevicePtr as Value>::BLANK;
        // SAFETY: the table keeps its header's word (`from_table`), and the caller's promise is passed on.
        let status =
            unsafe { entry(self.table.context, call.device(device)?, call.size(bytes)?, &raw mut answer) };
        call.answer::<DevicePtr>(status, answer)
    }

    unsafe fn free(&self, device: DeviceIndex, ptr: DevicePtr) -> Result<()> {
        let call = Call::new(self, "free", device);
        let entry = call.function(self.table.free)?;
        if ptr.is_null() {
            return Ok(());
        }
        // SAFETY: the table keeps its header's word (`from_table`), and the caller's promise is passed on.
        let status = unsafe { entry(self.table.context, call.device(device)?, ptr.0) };
        call.done(status)
    }

    fn memory_info(&self, device: DeviceIndex) -> Result<MemoryInfo> {
        let call = Call::new(self, "memory_info", device);
        let entry = call.function(self.table.memory_info)?;
        let mut answer = <MemoryInfo as Value>::BLANK;
        // SAFETY: the table keeps its header's word (`from_table`), and the caller's promise is passed on.
        let status = unsafe { entry(self.table.context, call.device(device)?, &raw mut answer) };
        call.answer::<MemoryInfo>(status, answer)
    }

    fn pointer_info(&self, ptr: DevicePtr) -> Result<PointerInfo> {
        let call = Call::new(self, "pointer_info", DeviceIndex(0));
        let entry = call.function(self.table.pointer_info)?;
        let mut answer = <PointerInfo as Value>::BLANK;
        // SAFETY: the table keeps its header's word (`from_table`), and the caller's promise is passed on.
        let status = unsafe { entry(self.table.context, ptr.0, &raw mut answer) };
        call.answer::<PointerInfo>(status, answer)
    }

    fn address_range(&self, ptr: DevicePtr) -> Result<AddressRange> {
        let call = Call::new(self, "address_range", DeviceIndex(0));
        let entry = call.function(self.table.address_range)?;
        let mut answer = <AddressRange as Value>::BLANK;
        // SAFETY: the table keeps its header's word (`from_table`), and the caller's promise is passed on.
        let status = unsafe { entry(self.table.context, ptr.0, &raw mut answer) };
        call.answer::<AddressRange>(status, answer)
    }

    unsafe fn copy(&self, dst: DevicePtr, src: DevicePtr, bytes: u64, kind: CopyKind) -> Result<()> {
        let call = Call::new(self, "copy", DeviceIndex(0));
        let Some(entry) = self.table.copy else {
            // SAFETY: the table keeps its header's word (`from_table`), and the caller's promise is passed on.
            return unsafe { defaults::copy(self, dst, src, bytes, kind) };
        };
        // SAFETY: the table keeps its header's word (`from_table`), and the caller's promise is passed on.
        let status = unsafe { entry(self.table.context, dst.0, src.0, call.size(bytes)?, kind as i32) };
        call.done(status)
    }

    unsafe fn copy_async(
        &self,
        dst: DevicePtr,
        src: DevicePtr,
        bytes: u64,
        kind: CopyKind,
        stream: Stream,
    ) -> Result<()> {
        let call = Call::new(self, "copy_async", stream.device);
        let entry = call.function(self.table.copy_async)?;
        let stream = call.stream(stream)?;
        // SAFETY: the table keeps its header's word (`from_table`), and the caller's promise is passed on.
        let status =
            unsafe { entry(self.table.context, dst.0, src.0, call.size(bytes)?, kind as i32, stream) };
        call.done(status)
    }

    unsafe fn memset_async(&self, dst: DevicePtr, value: u8, bytes: u64, stream: Stream) -> Result<()> {
        let call = Call::new(self, "memset_async", stream.device);
        let entry = call.function(self.table.memset_async)?;
        let stream = call.stream(stream)?;
        // SAFETY: the table keeps its header's word (`from_table`), and the caller's promise is passed on.
        let status = unsafe { entry(self.table.context, dst.0, value, call.size(bytes)?, stream) };
        call.done(status)
    }

    fn create_stream(&self, device: DeviceIndex, priority: i32) -> Result<Stream> {
        let call = Call::new(self, "create_stream", device);
        let entry = call.function(self.table.create_stream)?;
        let mut answer = 0;
        // SAFETY: the table keeps its header's word (`from_table`), and the caller's promise is passed on.
        let status = unsafe { entry(self.table.context, call.device(device)?, priority, &raw mut answer) };
        let raw = call.answer::<u64>(status, answer)?;
        Ok(Stream { raw, device, backend: self.id })
    }

    unsafe fn destroy_stream(&self, stream: Stream) -> Result<()> {
        let call = Call::new(self, "destroy_stream", stream.device);
        let entry = call.function(self.table.destroy_stream)?;
        let stream = call.stream(stream)?;
        // SAFETY: the table keeps its header's word (`from_table`), and the caller's promise is passed on.
        let status = unsafe { entry(self.table.context, stream) };
        call.done(status)
    }

    fn priority_range(&self, device: DeviceIndex) -> Result<PriorityRange> {
        let call = Call::new(self, "priority_range", device);
        let Some(entry) = self.table.priority_range else {
            return defaults::priority_range(self, device);
        };
        let mut answer = <PriorityRange as Value>::BLANK;
        // SAFETY: the table keeps its header's word (`from_table`), and the caller's promise is passed on.
        let status = unsafe { entry(self.table.context, call.device(device)?, &raw mut answer) };
        call.answer::<PriorityRange>(status, answer)
    }

    fn query_stream(&self, stream: Stream) -> Result<Readiness> {
        let call = Call::new(self, "query_stream", stream.device);
        let entry = call.function(self.table.query_stream)?;
        let stream = call.stream(stream)?;
        // SAFETY: the table keeps its header's word (`from_table`), and the caller's promise is passed on.
        let status = unsafe { entry(self.table.context, stream) };
        call.readiness(status)
    }

    fn synchronize_stream(&self, stream: Stream) -> Result<()> {
        let call = Call::new(self, "synchronize_stream", stream.device);
        let entry = call.function(self.table.synchronize_stream)?;
        let stream = call.stream(stream)?;
        // SAFETY: the table keeps its header's word (`from_table`), and the caller's promise is passed on.
        let status = unsafe { entry(self.table.context, stream) };
        call.done(status)
    }

    fn wait_event(&self, stream: Stream, event: Event) -> Result<()> {
        let call = Call::new(self, "wait_event", stream.device);
        let entry = call.function(self.table.wait_event)?;
        let stream = call.stream(stream)?;
        let event = call.event(event)?;
        // SAFETY: the table keeps its header's word (`from_table`), and the caller's promise is passed on.
        let status = unsafe { entry(self.table.context, stream, event) };
        call.done(status)
    }

    fn launch_host_function(&self, stream: Stream, function: HostFunction) -> Result<()> {
        let call = Call::new(self, "launch_host_function", stream.device);
        let entry = call.function(self.table.launch_host_function)?;
        let stream = call.stream(stream)?;
        let work = HandedOver::new(function);
        // SAFETY: the table keeps its header's word (`from_table`), and the caller's promise is passed on.
        let status = unsafe { entry(self.table.context, stream, run_on_host, work.argument()) };
        call.handed_over(status, work)
    }

    fn create_event(&self, device: DeviceIndex, flags: EventFlags) -> Result<Event> {
        let call = Call::new(self, "create_event", device);
        let entry = call.function(self.table.create_event)?;
        let mut answer = 0;
        // SAFETY: the table keeps its header's word (`from_table`), and the caller's promise is passed on.
        let status =
            unsafe { entry(self.table.context, call.device(device)?, flags.bits(), &raw mut answer) };
        let raw = call.answer::<u64>(status, answer)?;
        Ok(Event { raw, device, backend: self.id })
    }

    unsafe fn destroy_event(&self, event: Event) -> Result<()> {
        let call = Call::new(self, "destroy_event", event.device);
        let entry = call.function(self.table.destroy_event)?;
        let event = call.event(event)?;
        // SAFETY: the table keeps its header's word (`from_table`), and the caller's promise is passed on.
        let status = unsafe { entry(self.table.context, event) };
        call.done(status)
    }

    fn record_event(&self, event: Event, stream: Stream) -> Result<()> {
        let call = Call::new(self, "record_event", event.device);
        let entry = call.function(self.table.record_event)?;
        call.of_one_device(event, stream)?;
        let event = call.event(event)?;
        let stream = call.stream(stream)?;
        // SAFETY: the table keeps its header's word (`from_table`), and the caller's promise is passed on.
        let status = unsafe { entry(self.table.context, event, stream) };
        call.done(status)
    }

    fn query_event(&self, event: Event) -> Result<Readiness> {
        let call = Call::new(self, "query_event", event.device);
        let entry = call.function(self.table.query_event)?;
        let event = call.event(event)?;
        // SAFETY: the table keeps its header's word (`from_table`), and the caller's promise is passed on.
        let status = unsafe { entry(self.table.context, event) };
        call.readiness(status)
    }

    fn synchronize_event(&self, event: Event) -> Result<()> {
        let call = Call::new(self, "synchronize_event", event.device);
        let entry = call.function(self.table.synchronize_event)?;
        let event = call.event(event)?;
        // SAFETY: the table keeps its header's word (`from_table`), and the caller's promise is passed on.
        let status = unsafe { entry(self.table.context, event) };
        call.done(status)
    }

    fn elapsed_ms(&self, start: Event, end: Event) -> Result<f32> {
        let call = Call::new(self, "elapsed_ms", start.device);
        let Some(entry) = self.table.elapsed_ms else {
            return defaults::elapsed_ms(self, start, end);
        };
        let start = call.event(start)?;
        let end = call.event(end)?;
        let mut answer = <f32 as Value>::BLANK;
        // SAFETY: the table keeps its header's word (`from_table`), and the caller's promise is passed on.
        let status = unsafe { entry(self.table.context, start, end, &raw mut answer) };
        call.answer::<f32>(status, answer)
    }

    fn pinned_host(&self) -> std::result::Result<&dyn PinnedHost, Unsupported> {
        self.family(
            "pinned host memory",
            &[
                ("host_malloc", self.table.host_malloc.is_some()),
                ("host_free", self.table.host_free.is_some()),
            ],
        )?;
        Ok(self)
    }

    fn virtual_memory(&self) -> std::result::Result<&dyn VirtualMemory, Unsupported> {
        self.family(
            "virtual memory",
            &[
                ("virtual_memory_granularity", self.table.virtual_memory_granularity.is_some()),
                ("virtual_memory_reserve_address", self.table.virtual_memory_reserve_address.is_some()),
                ("virtual_memory_release_address", self.table.virtual_memory_release_address.is_some()),
                ("virtual_memory_create_physical", self.table.virtual_memory_create_physical.is_some()),
                ("virtual_memory_release_physical", self.table.virtual_memory_release_physical.is_some()),
                ("virtual_memory_map", self.table.virtual_memory_map.is_some()),
                ("virtual_memory_unmap", self.table.virtual_memory_unmap.is_some()),
                ("virtual_memory_set_access", self.table.virtual_memory_set_access.is_some()),
                ("virtual_memory_access", self.table.virtual_memory_access.is_some()),
            ],
        )?;
        Ok(self)
    }

    fn physical_sharing(&self) -> std::result::Result<&dyn PhysicalSharing, Unsupported> {
        self.virtual_memory()?;
        self.family(
            "sharing of physical memory",
            &[
                ("virtual_memory_export_physical", self.table.virtual_memory_export_physical.is_some()),
                ("virtual_memory_import_physical", self.table.virtual_memory_import_physical.is_some()),
            ],
        )?;
        Ok(self)
    }

    fn ipc(&self) -> std::result::Result<&dyn Ipc, Unsupported> {
        self.family(
            "IPC",
            &[
                ("ipc_export_memory", self.table.ipc_export_memory.is_some()),
                ("ipc_open_memory", self.table.ipc_open_memory.is_some()),
                ("ipc_close_memory", self.table.ipc_close_memory.is_some()),
            ],
        )?;
        Ok(self)
    }

    fn peers(&self) -> std::result::Result<&dyn Peers, Unsupported> {
        self.family(
            "peers",
            &[
                ("peers_can_access", self.table.peers_can_access.is_some()),
                ("peers_enable_access", self.table.peers_enable_access.is_some()),
                ("peers_copy_peer_async", self.table.peers_copy_peer_async.is_some()),
            ],
        )?;
        Ok(self)
    }

    fn capture(&self) -> std::result::Result<&dyn Capture, Unsupported> {
        self.family(
            "capture",
            &[
                ("capture_status", self.table.capture_status.is_some()),
                ("capture_begin", self.table.capture_begin.is_some()),
                ("capture_end", self.table.capture_end.is_some()),
                ("capture_launch", self.table.capture_launch.is_some()),
                ("capture_destroy_graph", self.table.capture_destroy_graph.is_some()),
                ("capture_exchange_mode", self.table.capture_exchange_mode.is_some()),
                ("capture_frontier", self.table.capture_frontier.is_some()),
                ("capture_dependencies", self.table.capture_dependencies.is_some()),
            ],
        )?;
        Ok(self)
    }

    fn host_registration(&self) -> std::result::Result<&dyn HostRegistration, Unsupported> {
        self.family(
            "host registration",
            &[
                ("host_registration_register", self.table.host_registration_register.is_some()),
                ("host_registration_unregister", self.table.host_registration_unregister.is_some()),
            ],
        )?;
        Ok(self)
    }
}

impl PinnedHost for CBackend {
    fn host_malloc(&self, bytes: u64, flags: HostFlags) -> Result<DevicePtr> {
        let call = Call::new(self, "host_malloc", DeviceIndex(0));
        let entry = call.function(self.table.host_malloc)?;
        let mut answer = <DevicePtr as Value>::BLANK;
        // SAFETY: the table keeps its header's word (`from_table`), and the caller's promise is passed on.
        let status = unsafe { entry(self.table.context, call.size(bytes)?, flags.bits(), &raw mut answer) };
        call.answer::<DevicePtr>(status, answer)
    }

    unsafe fn host_free(&self, ptr: DevicePtr) -> Result<()> {
        let call = Call::new(self, "host_free", DeviceIndex(0));
        let entry = call.function(self.table.host_free)?;
        if ptr.is_null() {
            return Ok(());
        }
        // SAFETY: the table keeps its header's word (`from_table`), and the caller's promise is passed on.
        let status = unsafe { entry(self.table.context, ptr.0) };
        call.done(status)
    }
}

impl VirtualMemory for CBackend {
    fn granularity(&self, device: DeviceIndex, which: Granularity) -> Result<u64> {
        let call = Call::new(self, "virtual_memory_granularity", device);
        let entry = call.function(self.table.virtual_memory_granularity)?;
        let mut answer = <u64 as Value>::BLANK;
        // SAFETY: the table keeps its header's word (`from_table`), and the caller's promise is passed on.
        let status =
            unsafe { entry(self.table.context, call.device(device)?, which as i32, &raw mut answer) };
        call.answer::<u64>(status, answer)
    }

    fn reserve_address(
        &self,
        device: DeviceIndex,
        bytes: u64,
        alignment: u64,
        hint: DevicePtr,
    ) -> Result<DevicePtr> {
        let call = Call::new(self, "virtual_memory_reserve_address", device);
        let entry = call.function(self.table.virtual_memory_reserve_address)?;
        let mut answer = <DevicePtr as Value>::BLANK;
        // SAFETY: the table keeps its header's word (`from_table`), and the caller's promise is passed on.
        let status = unsafe {
            entry(
                self.table.context,
                call.device(device)?,
                call.size(bytes)?,
                alignment,
                hint.0,
                &raw mut answer,
            )
        };
        call.answer::<DevicePtr>(status, answer)
    }

    unsafe fn release_address(&self, base: DevicePtr, bytes: u64) -> Result<()> {
        let call = Call::new(self, "virtual_memory_release_address", DeviceIndex(0));
        let entry = call.function(self.table.virtual_memory_release_address)?;
        // SAFETY: the table keeps its header's word (`from_table`), and the caller's promise is passed on.
        let status = unsafe { entry(self.table.context, base.0, call.size(bytes)?) };
        call.done(status)
    }

    fn create_physical(
        &self,
        device: DeviceIndex,
        bytes: u64,
        handle_type: HandleType,
    ) -> Result<PhysicalHandle> {
        let call = Call::new(self, "virtual_memory_create_physical", device);
        let entry = call.function(self.table.virtual_memory_create_physical)?;
        let mut answer = 0;
        // SAFETY: the table keeps its header's word (`from_table`), and the caller's promise is passed on.
        let status = unsafe {
            entry(
                self.table.context,
                call.device(device)?,
                call.size(bytes)?,
                handle_type as i32,
                &raw mut answer,
            )
        };
        let raw = call.answer::<u64>(status, answer)?;
        Ok(PhysicalHandle { raw, backend: self.id })
    }

    unsafe fn release_physical(&self, handle: PhysicalHandle) -> Result<()> {
        let call = Call::new(self, "virtual_memory_release_physical", DeviceIndex(0));
        let entry = call.function(self.table.virtual_memory_release_physical)?;
        // SAFETY: the table keeps its header's word (`from_table`), and the caller's promise is passed on.
        let status = unsafe { entry(self.table.context, call.handle(handle.raw, handle.backend)?) };
        call.done(status)
    }

    unsafe fn map(&self, at: DevicePtr, bytes: u64, handle: PhysicalHandle) -> Result<()> {
        let call = Call::new(self, "virtual_memory_map", DeviceIndex(0));
        let entry = call.function(self.table.virtual_memory_map)?;
        // SAFETY: the table keeps its header's word (`from_table`), and the caller's promise is passed on.
        let status = unsafe {
            entry(self.table.context, at.0, call.size(bytes)?, call.handle(handle.raw, handle.backend)?)
        };
        call.done(status)
    }

    unsafe fn unmap(&self, at: DevicePtr, bytes: u64) -> Result<()> {
        let call = Call::new(self, "virtual_memory_unmap", DeviceIndex(0));
        let entry = call.function(self.table.virtual_memory_unmap)?;
        // SAFETY: the table keeps its header's word (`from_table`), and the caller's promise is passed on.
        let status = unsafe { entry(self.table.context, at.0, call.size(bytes)?) };
        call.done(status)
    }

    unsafe fn set_access(
        &self,
        at: DevicePtr,
        bytes: u64,
        devices: &[DeviceIndex],
        access: Access,
    ) -> Result<()> {
        let call = Call::new(self, "virtual_memory_set_access", DeviceIndex(0));
        let entry = call.function(self.table.virtual_memory_set_access)?;
        let devices = call.devices(devices)?;
        // SAFETY: the table keeps its header's word (`from_table`), and the caller's promise is passed on.
        let status = unsafe {
            entry(
                self.table.context,
                at.0,
                call.size(bytes)?,
                devices.as_ptr(),
                devices.len() as u64,
                access as i32,
            )
        };
        call.done(status)
    }

    fn access(&self, at: DevicePtr, device: DeviceIndex) -> Result<Access> {
        let call = Call::new(self, "virtual_memory_access", device);
        let entry = call.function(self.table.virtual_memory_access)?;
        let mut answer = <Access as Value>::BLANK;
        // SAFETY: the table keeps its header's word (`from_table`), and the caller's promise is passed on.
        let status = unsafe { entry(self.table.context, at.0, call.device(device)?, &raw mut answer) };
        call.answer::<Access>(status, answer)
    }
}

impl PhysicalSharing for CBackend {
    fn export_physical(&self, handle: PhysicalHandle, handle_type: HandleType) -> Result<ShareableHandle> {
        let call = Call::new(self, "virtual_memory_export_physical", DeviceIndex(0));
        let entry = call.function(self.table.virtual_memory_export_physical)?;
        let mut answer = <ShareableHandle as Value>::BLANK;
        // SAFETY: the table keeps its header's word (`from_table`), and the caller's promise is passed on.
        let status = unsafe {
            entry(
                self.table.context,
                call.handle(handle.raw, handle.backend)?,
                handle_type as i32,
                &raw mut answer,
            )
        };
        call.answer::<ShareableHandle>(status, answer)
    }

    fn import_physical(&self, device: DeviceIndex, shared: &ShareableHandle) -> Result<PhysicalHandle> {
        let call = Call::new(self, "virtual_memory_import_physical", device);
        let entry = call.function(self.table.virtual_memory_import_physical)?;
        let shared = RawShareableHandle::lent(shared);
        let mut answer = 0;
        // SAFETY: the table keeps its header's word (`from_table`), and the caller's promise is passed on.
        let status =
            unsafe { entry(self.table.context, call.device(device)?, &raw const shared, &raw mut answer) };
        let raw = call.answer::<u64>(status, answer)?;
        Ok(PhysicalHandle { raw, backend: self.id })
    }
}

impl Ipc for CBackend {
    fn export_memory(&self, base: DevicePtr) -> Result<IpcMemoryHandle> {
        let call = Call::new(self, "ipc_export_memory", DeviceIndex(0));
        let entry = call.function(self.table.ipc_export_memory)?;
        let mut answer = <IpcMemoryHandle as Value>::BLANK;
        // SAFETY: the table keeps its header's word (`from_table`), and the caller's promise is passed on.
        let status = unsafe { entry(self.table.context, base.0, &raw mut answer) };
        call.answer::<IpcMemoryHandle>(status, answer)
    }

    fn open_memory(&self, device: DeviceIndex, handle: &IpcMemoryHandle) -> Result<DevicePtr> {
        let call = Call::new(self, "ipc_open_memory", device);
        let entry = call.function(self.table.ipc_open_memory)?;
        let handle = RawIpcHandle { bytes: handle.0 };
        let mut answer = <DevicePtr as Value>::BLANK;
        // SAFETY: the table keeps its header's word (`from_table`), and the caller's promise is passed on.
        let status =
            unsafe { entry(self.table.context, call.device(device)?, &raw const handle, &raw mut answer) };
        call.answer::<DevicePtr>(status, answer)
    }

    unsafe fn close_memory(&self, ptr: DevicePtr) -> Result<()> {
        let call = Call::new(self, "ipc_close_memory", DeviceIndex(0));
        let entry = call.function(self.table.ipc_close_memory)?;
        // SAFETY: the table keeps its header's word (`from_table`), and the caller's promise is passed on.
        let status = unsafe { entry(self.table.context, ptr.0) };
        call.done(status)
    }
}

impl Peers for CBackend {
    fn can_access(&self, from: DeviceIndex, to: DeviceIndex) -> Result<bool> {
        let call = Call::new(self, "peers_can_access", from);
        let entry = call.function(self.table.peers_can_access)?;
        let mut answer = <bool as Value>::BLANK;
        // SAFETY: the table keeps its header's word (`from_table`), and the caller's promise is passed on.
        let status =
            unsafe { entry(self.table.context, call.device(from)?, call.device(to)?, &raw mut answer) };
        call.answer::<bool>(status, answer)
    }

    fn enable_access(&self, from: DeviceIndex, to: DeviceIndex) -> Result<()> {
        let call = Call::new(self, "peers_enable_access", from);
        let entry = call.function(self.table.peers_enable_access)?;
        // SAFETY: the table keeps its header's word (`from_table`), and the caller's promise is passed on.
        let status = unsafe { entry(self.table.context, call.device(from)?, call.device(to)?) };
        call.done(status)
    }

    unsafe fn copy_peer_async(
        &self,
        dst: (DeviceIndex, DevicePtr),
        src: (DeviceIndex, DevicePtr),
        bytes: u64,
        stream: Stream,
    ) -> Result<()> {
        let call = Call::new(self, "peers_copy_peer_async", stream.device);
        let entry = call.function(self.table.peers_copy_peer_async)?;
        let stream = call.stream(stream)?;
        // SAFETY: the table keeps its header's word (`from_table`), and the caller's promise is passed on.
        let status = unsafe {
            entry(
                self.table.context,
                call.device(dst.0)?,
                dst.1.0,
                call.device(src.0)?,
                src.1.0,
                call.size(bytes)?,
                stream,
            )
        };
        call.done(status)
    }
}

impl Capture for CBackend {
    fn status(&self, stream: Stream) -> Result<CaptureStatus> {
        let call = Call::new(self, "capture_status", stream.device);
        let entry = call.function(self.table.capture_status)?;
        let stream = call.stream(stream)?;
        let mut answer = <CaptureStatus as Value>::BLANK;
        // SAFETY: the table keeps its header's word (`from_table`), and the caller's promise is passed on.
        let status = unsafe { entry(self.table.context, stream, &raw mut answer) };
        call.answer::<CaptureStatus>(status, answer)
    }

    fn begin(&self, stream: Stream, mode: CaptureMode) -> Result<()> {
        let call = Call::new(self, "capture_begin", stream.device);
        let entry = call.function(self.table.capture_begin)?;
        let stream = call.stream(stream)?;
        // SAFETY: the table keeps its header's word (`from_table`), and the caller's promise is passed on.
        let status = unsafe { entry(self.table.context, stream, mode as i32) };
        call.done(status)
    }

    fn end(&self, stream: Stream) -> Result<Graph> {
        let call = Call::new(self, "capture_end", stream.device);
        let entry = call.function(self.table.capture_end)?;
        let stream = call.stream(stream)?;
        let mut answer = 0;
        // SAFETY: the table keeps its header's word (`from_table`), and the caller's promise is passed on.
        let status = unsafe { entry(self.table.context, stream, &raw mut answer) };
        let raw = call.answer::<u64>(status, answer)?;
        Ok(Graph { raw, backend: self.id })
    }

    unsafe fn launch(&self, graph: Graph, stream: Stream) -> Result<()> {
        let call = Call::new(self, "capture_launch", stream.device);
        let entry = call.function(self.table.capture_launch)?;
        let stream = call.stream(stream)?;
        // SAFETY: the table keeps its header's word (`from_table`), and the caller's promise is passed on.
        let status = unsafe { entry(self.table.context, call.handle(graph.raw, graph.backend)?, stream) };
        call.done(status)
    }

    unsafe fn destroy_graph(&self, graph: Graph) -> Result<()> {
        let call = Call::new(self, "capture_destroy_graph", DeviceIndex(0));
        let entry = call.function(self.table.capture_destroy_graph)?;
        // SAFETY: the table keeps its header's word (`from_table`), and the caller's promise is passed on.
        let status = unsafe { entry(self.table.context, call.handle(graph.raw, graph.backend)?) };
        call.done(status)
    }

    fn exchange_mode(&self, mode: CaptureMode) -> Result<CaptureMode> {
        let call = Call::new(self, "capture_exchange_mode", DeviceIndex(0));
        let entry = call.function(self.table.capture_exchange_mode)?;
        let mut answer = <CaptureMode as Value>::BLANK;
        // SAFETY: the table keeps its header's word (`from_table`), and the caller's promise is passed on.
        let status = unsafe { entry(self.table.context, mode as i32, &raw mut answer) };
        call.answer::<CaptureMode>(status, answer)
    }

    fn frontier(&self, stream: Stream) -> Result<Vec<CaptureNode>> {
        let call = Call::new(self, "capture_frontier", stream.device);
        let entry = call.function(self.table.capture_frontier)?;
        let stream = call.stream(stream)?;
        // SAFETY: the table keeps its header's word (`from_table`), and the caller's promise is passed on.
        call.nodes(|nodes, capacity, count| unsafe {
            entry(self.table.context, stream, nodes, capacity, count)
        })
    }

    fn dependencies(&self, stream: Stream, node: CaptureNode) -> Result<Vec<CaptureNode>> {
        let call = Call::new(self, "capture_dependencies", stream.device);
        let entry = call.function(self.table.capture_dependencies)?;
        let stream = call.stream(stream)?;
        // SAFETY: the table keeps its header's word (`from_table`), and the caller's promise is passed on.
        call.nodes(|nodes, capacity, count| unsafe {
            entry(self.table.context, stream, node.0, nodes, capacity, count)
        })
    }
}

impl HostRegistration for CBackend {
    unsafe fn register(&self, ptr: DevicePtr, bytes: u64, flags: HostFlags) -> Result<()> {
        let call = Call::new(self, "host_registration_register", DeviceIndex(0));
        let entry = call.function(self.table.host_registration_register)?;
        // SAFETY: the table keeps its header's word (`from_table`), and the caller's promise is passed on.
        let status = unsafe { entry(self.table.context, ptr.0, call.size(bytes)?, flags.bits()) };
        call.done(status)
    }

    unsafe fn unregister(&self, ptr: DevicePtr) -> Result<()> {
        let call = Call::new(self, "host_registration_unregister", DeviceIndex(0));
        let entry = call.function(self.table.host_registration_unregister)?;
        // SAFETY: the table keeps its header's word (`from_table`), and the caller's promise is passed on.
        let status = unsafe { entry(self.table.context, ptr.0) };
        call.done(status)
    }
}
