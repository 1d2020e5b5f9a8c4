//! The contract: what is the same for every driver. The driver makes the call, between the checks and the books.

use super::ways::Ways;
use super::{DriverBackend, devices, graphs, host, ipc, memory, virtual_memory};
use crate::calls::{AttributeSource, Calls};
use crate::driver::{self, Family};
use crate::errors::{INVALID_HANDLE, INVALID_VALUE, NOT_READY, given_back, memory_is_short};
use crate::host_function::{dequeue, enqueue, run_queued};
use crate::physical::Place;
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
        D::has_primary_context(self.context.site(device, D::NAMES.primary_state)?)
    }

    fn attribute(&self, device: DeviceIndex, attribute: Attribute) -> Result<i64> {
        let call = D::NAMES.attribute;
        let site = self.context.site(device, call)?;
        if self.ways[usize::from(device.0)].refused(attribute) {
            return Ok(0);
        }
        match site.driver().attribute_source(attribute) {
            AttributeSource::Known(value) => Ok(value),
            AttributeSource::None => {
                let detail = format!("{attribute:?} has no number in {}", site.driver().api());
                Err(site.refuse(ErrorKind::NotSupported, call, detail))
            }
            AttributeSource::Asked(number) => {
                D::ask_attribute(site, number).map(i64::from).map_err(|failed| {
                    if failed.code != INVALID_VALUE {
                        return failed;
                    }
                    let detail = format!("this {} does not know attribute {number} ({attribute:?})", D::NOUN);
                    site.refuse(ErrorKind::NotSupported, call, detail)
                })
            }
        }
    }

    fn properties(&self, device: DeviceIndex) -> Result<DeviceProperties> {
        let site = self.context.site(device, D::NAMES.device_name)?;
        let (name, total_memory) = (D::device_name(site)?, D::total_memory(site)?);
        let warp = self.attribute(device, Attribute::WarpSize)?;
        Ok(DeviceProperties {
            name,
            uuid: D::uuid(site)?,
            pci_bus_id: D::pci_bus_id(site)?,
            total_memory,
            warp_size: u32::try_from(warp).unwrap_or(0),
        })
    }

    fn synchronize_device(&self, device: DeviceIndex) -> Result<()> {
        D::synchronize(*self.context.enter(device, D::NAMES.synchronize_device)?)
    }

    fn malloc(&self, device: DeviceIndex, bytes: u64) -> Result<DevicePtr> {
        let call = D::NAMES.malloc;
        let entered = self.context.enter(device, call)?;
        entered.positive(call, bytes)?;
        let ptr = D::malloc(*entered, bytes as usize).map_err(memory_is_short)?;
        // SAFETY: nobody knows the address yet.
        memory::aligned(*entered, ptr, call, || unsafe { D::free(*entered, ptr) })
    }

    unsafe fn free(&self, device: DeviceIndex, ptr: DevicePtr) -> Result<()> {
        if ptr.is_null() {
            return Ok(());
        }
        let free = || {
            let entered = self.context.enter(device, D::NAMES.free)?;
            memory::live_base(self, *entered, D::NAMES.free, ptr, PointerKind::Device)?;
            // SAFETY: rule 3, which the caller keeps.
            unsafe { D::free(*entered, ptr.0) }
        };
        given_back(free())
    }

    fn memory_info(&self, device: DeviceIndex) -> Result<MemoryInfo> {
        D::memory_info(*self.context.enter(device, D::NAMES.memory_info)?)
    }

    fn pointer_info(&self, ptr: DevicePtr) -> Result<PointerInfo> {
        if ptr.is_null() {
            return Ok(memory::UNMANAGED);
        }
        // What drivers say about virtual memory differs: where the reservation begins, or not even that. This backend knows
        // what it mapped.
        match self.physical.place(ptr.0) {
            Place::Mapped { base, device, .. } => {
                self.context.site(device, D::NAMES.pointer_attribute)?;
                Ok(PointerInfo { kind: PointerKind::Device, device: Some(device), base: DevicePtr(base) })
            }
            Place::Reserved => Ok(memory::UNMANAGED),
            Place::Elsewhere => D::pointer_info(&self.context, ptr),
        }
    }

    fn address_range(&self, ptr: DevicePtr) -> Result<AddressRange> {
        if !D::ABILITIES.tells_mappings {
            let call = D::NAMES.address_range;
            match self.physical.place(ptr.0) {
                Place::Mapped { base, bytes, device } => {
                    self.context.site(device, call)?;
                    return Ok(AddressRange { base: DevicePtr(base), bytes });
                }
                Place::Reserved => {
                    let site = self.context.any_site(call)?;
                    return Err(site.invalid(call, format!("nothing is allocated at {ptr}")));
                }
                Place::Elsewhere => {}
            }
        }
        D::address_range(&self.context, ptr)
    }

    unsafe fn copy(&self, dst: DevicePtr, src: DevicePtr, bytes: u64, kind: CopyKind) -> Result<()> {
        let call = D::NAMES.copy;
        let device = match kind {
            CopyKind::HostToHost => self.context.device_of_thread()?,
            CopyKind::HostToDevice | CopyKind::DeviceToDevice => memory::device_at(self, dst)?,
            CopyKind::DeviceToHost => memory::device_at(self, src)?,
        };
        let entered = self.context.enter(device, call)?;
        entered.positive(call, bytes)?;
        graphs::not_during_capture(self, *entered, call)?;
        // SAFETY: rule 2 for both ranges, and the caller says truly which side is what.
        unsafe { D::copy(*entered, dst, src, bytes as usize, kind) }?;
        match kind {
            CopyKind::HostToHost | CopyKind::DeviceToHost => Ok(()),
            // The driver may return from these two before the bytes have arrived. The null stream is that of the current
            // device, on which the copy ran.
            CopyKind::HostToDevice | CopyKind::DeviceToDevice => {
                let stream = Stream { raw: 0, device, backend: self.context.id() };
                D::synchronize_stream(*entered, stream)
            }
        }
    }

    unsafe fn copy_async(
        &self,
        dst: DevicePtr,
        src: DevicePtr,
        bytes: u64,
        kind: CopyKind,
        stream: Stream,
    ) -> Result<()> {
        let call = D::NAMES.copy_async;
        let entered = self.context.enter_handle(stream.backend, stream.device, call)?;
        entered.positive(call, bytes)?;
        // SAFETY: rule 2 for both ranges until the stream has passed it, and the caller says truly which side is what.
        unsafe { D::copy_async(*entered, dst, src, bytes as usize, kind, stream) }
    }

    unsafe fn memset_async(&self, dst: DevicePtr, value: u8, bytes: u64, stream: Stream) -> Result<()> {
        let call = D::NAMES.memset_async;
        let entered = self.context.enter_handle(stream.backend, stream.device, call)?;
        entered.positive(call, bytes)?;
        // SAFETY: rule 2 for the range until the stream has passed it.
        unsafe { D::memset_async(*entered, dst, value, bytes as usize, stream) }
    }

    fn create_stream(&self, device: DeviceIndex, priority: i32) -> Result<Stream> {
        let entered = self.context.enter(device, D::NAMES.create_stream)?;
        let range = D::priority_range(*entered)?;
        let raw = D::create_stream(*entered, priority.min(range.least).max(range.greatest))?;
        Ok(Stream { raw, device, backend: self.context.id() })
    }

    unsafe fn destroy_stream(&self, stream: Stream) -> Result<()> {
        let destroy = || {
            let call = D::NAMES.destroy_stream;
            let entered = self.context.enter_handle(stream.backend, stream.device, call)?;
            if stream.raw == 0 {
                return Err(entered.invalid(call, "the default stream cannot be destroyed"));
            }
            graphs::forgetting_capture(self, stream, || {
                // SAFETY: rule 1, and the caller uses the handle no more.
                unsafe { D::destroy_stream(*entered, stream) }
            })
        };
        given_back(destroy())
    }

    fn priority_range(&self, device: DeviceIndex) -> Result<PriorityRange> {
        D::priority_range(*self.context.enter(device, D::NAMES.priority_range)?)
    }

    fn query_stream(&self, stream: Stream) -> Result<Readiness> {
        let entered = self.context.enter_handle(stream.backend, stream.device, D::NAMES.query_stream)?;
        D::query_stream(*entered, stream)
    }

    fn synchronize_stream(&self, stream: Stream) -> Result<()> {
        let entered =
            self.context.enter_handle(stream.backend, stream.device, D::NAMES.synchronize_stream)?;
        D::synchronize_stream(*entered, stream)
    }

    fn wait_event(&self, stream: Stream, event: Event) -> Result<()> {
        let call = D::NAMES.wait_event;
        let entered = self.context.enter_handle(stream.backend, stream.device, call)?;
        self.context.own(event.backend, event.device, call)?;
        D::wait_event(*entered, stream, event)
    }

    // A closure launched into a stream is queued until the driver asks for it. One launched into a capture belongs to the
    // graph, which may run the function many times or never: it runs once, and is dropped with the graph.
    fn launch_host_function(&self, stream: Stream, function: HostFunction) -> Result<()> {
        let call = D::NAMES.launch_host_function;
        let entered = self.context.enter_handle(stream.backend, stream.device, call)?;
        if let Some(graph) = graphs::graph_under_capture(*entered, stream)? {
            return graphs::launch_into(*entered, graph, stream, function);
        }
        let data = enqueue(function);
        // SAFETY: rule 1; the function takes what `enqueue` answered, any number of times.
        unsafe { D::launch_host_function(*entered, stream, run_queued, data) }
            .inspect_err(|_| drop(dequeue(data)))
    }

    fn create_event(&self, device: DeviceIndex, flags: EventFlags) -> Result<Event> {
        let call = D::NAMES.create_event;
        let entered = self.context.enter(device, call)?;
        let raw = D::create_event(*entered, flags)?;
        if flags.contains(EventFlags::TIMING) {
            self.timed.insert(raw);
        }
        Ok(Event { raw, device, backend: self.context.id() })
    }

    unsafe fn destroy_event(&self, event: Event) -> Result<()> {
        let destroy = || {
            let entered = self.context.enter_handle(event.backend, event.device, D::NAMES.destroy_event)?;
            // Before the driver can give the same handle to a new event.
            let timed = self.timed.remove(event.raw);
            // SAFETY: rule 1, and the caller uses the handle no more.
            unsafe { D::destroy_event(*entered, event) }.inspect_err(|_| {
                if timed {
                    self.timed.insert(event.raw);
                }
            })
        };
        given_back(destroy())
    }

    fn record_event(&self, event: Event, stream: Stream) -> Result<()> {
        let call = D::NAMES.record_event;
        let entered = self.context.enter_handle(stream.backend, stream.device, call)?;
        self.context.own(event.backend, event.device, call)?;
        if event.device != stream.device {
            let detail =
                format!("the event is of device {} and the stream of {}", event.device, stream.device);
            return Err(entered.invalid(call, detail));
        }
        D::record_event(*entered, event, stream)
    }

    fn query_event(&self, event: Event) -> Result<Readiness> {
        let entered = self.context.enter_handle(event.backend, event.device, D::NAMES.query_event)?;
        D::query_event(*entered, event)
    }

    fn synchronize_event(&self, event: Event) -> Result<()> {
        let entered = self.context.enter_handle(event.backend, event.device, D::NAMES.synchronize_event)?;
        D::synchronize_event(*entered, event)
    }

    fn elapsed_ms(&self, start: Event, end: Event) -> Result<f32> {
        let call = D::NAMES.elapsed;
        let entered = self.context.enter_handle(start.backend, start.device, call)?;
        self.context.own(end.backend, end.device, call)?;
        if start.device != end.device {
            return Err(entered.invalid(call, "the events are of two devices, whose clocks differ"));
        }
        if !self.timed.both(start.raw, end.raw) {
            let detail = "an event was made without TIMING and keeps no time";
            return Err(entered.refuse(ErrorKind::NotSupported, call, detail));
        }
        D::elapsed_ms(*entered, start, end).map_err(|failed| match failed.code {
            NOT_READY => entered.invalid(call, "an event has not been passed yet; wait for it first"),
            INVALID_HANDLE => entered.invalid(call, "an event was never recorded"),
            _ => failed,
        })
    }

    fn graph_memory(&self, device: DeviceIndex) -> Result<u64> {
        D::node_memory(self.context.site(device, D::NAMES.graph_memory)?)
    }

    fn dropped(&self, device: DeviceIndex) -> Vec<Dropped> {
        self.ways.get(usize::from(device.0)).map(Ways::dropped).unwrap_or_default()
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
        let probe = || virtual_memory::probe_sharing(self);
        self.probes.physical_sharing.answer("sharing of physical memory", probe)?;
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

    fn host_registration(&self) -> Found<'_, dyn HostRegistration> {
        self.probes.host_registration.answer("host registration", || host::probe_registration(self))?;
        Ok(self)
    }
}
