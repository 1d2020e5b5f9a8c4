//! The required part of the device contract.

mod capture;
mod checks;
mod device;
mod host;
mod ipc;
mod peers;
mod virtual_memory;

use crate::config::Families;
use crate::gate::call::Call;
use crate::machine::queue::Queues;
use crate::machine::work::{HostCall, Spans, Work};
use crate::memory::{HostRange, Place, RangeKind, index};
use crate::openreg::OpenReg;
use crate::os::HostPages;
use crate::refusal::{Answer, Refusal};
use crate::space::Span;
use backend_api::types::{BackendId, DeviceIndex, DeviceKind, DevicePtr, Event, Stream};
use backend_api::*;
use checks::{memo, not_captured, not_captured_event, prepare_copy, readiness, settle_pool};
use std::sync::Arc;

type Family<'b, T> = std::result::Result<&'b T, Unsupported>;

/// The most urgent stream priority; 0 is the least.
const GREATEST_PRIORITY: i32 = -3;
const HOST: DeviceIndex = DeviceIndex(0);

// SAFETY: I1: `Memory` takes every range from one `Space` per device, which never hands out an address
// twice, at multiples of 512. I2, I3: an event is set, and a stream's `done` moves, only in `finish`, which
// runs after the operation and, streams being queues, after all before it. I4: `Physical` counts its
// mappings beside its handles.
unsafe impl Backend for OpenReg {
    fn id(&self) -> BackendId {
        self.names.id()
    }

    fn kind(&self) -> DeviceKind {
        DeviceKind::PrivateUse1
    }

    fn name(&self) -> &'static str {
        "openreg"
    }

    fn label(&self) -> &'static str {
        "OpenReg"
    }

    fn error_name(&self, code: i32) -> String {
        device::error_name(code).into()
    }

    fn device_count(&self) -> Result<u16> {
        if self.config.devices > 0 {
            self.enter(Call::DeviceCount, HOST)?;
        }
        Ok(self.config.devices)
    }

    fn current_device(&self) -> Result<DeviceIndex> {
        let device = crate::thread::device(self.names.id());
        self.enter(Call::CurrentDevice, device)?;
        Ok(device)
    }

    fn set_device(&self, device: DeviceIndex) -> Result<()> {
        self.enter(Call::SetDevice, device)?;
        crate::thread::set_device(self.names.id(), device);
        Ok(())
    }

    fn has_primary_context(&self, device: DeviceIndex) -> Result<bool> {
        self.enter(Call::HasPrimaryContext, device)?;
        Ok(true)
    }

    fn attribute(&self, device: DeviceIndex, attribute: Attribute) -> Result<i64> {
        self.call(Call::Attribute, device, |_| self.attribute_of(attribute))
    }

    fn properties(&self, device: DeviceIndex) -> Result<DeviceProperties> {
        self.call(Call::Properties, device, |state| {
            let capacity = state.memory.devices[index(device)].capacity;
            Ok(device::properties(device, self.config.memory.name(), capacity))
        })
    }

    fn synchronize_device(&self, device: DeviceIndex) -> Result<()> {
        self.call(Call::SynchronizeDevice, device, |mut state| {
            self.not_during_capture(&mut state)?;
            let streams = state.queues.streams_of(index(device));
            let captures: Vec<u64> = streams.iter().filter_map(|&key| state.capture_of(key)).collect();
            if !captures.is_empty() {
                captures.into_iter().for_each(|capture| state.captures.invalidate(capture));
                return Err(Refusal::capture(
                    "a stream of the device is captured; the capture is broken now",
                ));
            }
            for key in streams {
                state.on_links(&self.gate, |timeline, called| timeline.wait_for_stream(called, key));
                if let Some(end) = state.queues.end_of(key) {
                    state = self.machine.wait_for(state, end);
                }
            }
            settle_pool(&mut state, index(device))
        })
    }

    fn malloc(&self, device: DeviceIndex, bytes: u64) -> Result<DevicePtr> {
        let taken = self.unsafe_call(Call::Malloc, device, |mut state| {
            state.memory.take(index(device), bytes, RangeKind::Plain).map(DevicePtr)
        });
        if taken.is_ok() {
            self.gate.charge(Call::Malloc, bytes);
        }
        taken
    }

    unsafe fn free(&self, device: DeviceIndex, ptr: DevicePtr) -> Result<()> {
        self.unsafe_call(Call::Free, device, |state| {
            if ptr.is_null() {
                return Ok(());
            }
            let bytes = match state.memory.ranges.get(&ptr.0) {
                Some(range) if range.device != index(device) => {
                    return Err(Refusal::invalid(format!("{ptr} belongs to device {}", range.device)));
                }
                Some(range) if matches!(range.kind, RangeKind::Plain | RangeKind::Managed) => range.bytes,
                _ => return Err(Refusal::invalid(format!("{ptr} is not the base of a live allocation"))),
            };
            self.machine
                .not_in_use(state, Span::new(ptr.0, bytes), self.config.waiting_frees)?
                .memory
                .give(ptr.0)
        })
    }

    fn memory_info(&self, device: DeviceIndex) -> Result<MemoryInfo> {
        self.call(Call::MemoryInfo, device, |state| {
            Ok(device::memory_info(&state.memory.devices[index(device)]))
        })
    }

    fn pointer_info(&self, ptr: DevicePtr) -> Result<PointerInfo> {
        self.call(Call::PointerInfo, HOST, |state| {
            let known = |kind, device: usize, base| PointerInfo {
                kind,
                device: Some(DeviceIndex(device as u16)),
                base: DevicePtr(base),
            };
            Ok(match state.memory.place_of(ptr.0) {
                Some(Place::Range(base, range)) => {
                    let managed = matches!(range.kind, RangeKind::Managed);
                    known(
                        if managed { PointerKind::Managed } else { PointerKind::Device },
                        range.device,
                        base,
                    )
                }
                Some(Place::Mapping(base, mapping)) => known(PointerKind::Device, mapping.device, base),
                None => match state.memory.host_of(ptr.0) {
                    Some((base, _)) => {
                        PointerInfo { kind: PointerKind::Host, device: None, base: DevicePtr(base) }
                    }
                    None => PointerInfo { kind: PointerKind::Unmanaged, device: None, base: DevicePtr::NULL },
                },
            })
        })
    }

    fn address_range(&self, ptr: DevicePtr) -> Result<AddressRange> {
        self.call(Call::AddressRange, self.device_at(ptr), |state| {
            let (base, bytes) = match state.memory.place_of(ptr.0) {
                Some(Place::Range(base, range)) => (base, range.bytes),
                Some(Place::Mapping(base, mapping)) => (base, mapping.bytes),
                None => match state.memory.host_of(ptr.0) {
                    Some((base, range)) => (base, range.bytes),
                    None => return Err(Refusal::invalid(format!("{ptr} is not allocated"))),
                },
            };
            Ok(AddressRange { base: DevicePtr(base), bytes })
        })
    }

    unsafe fn copy(&self, dst: DevicePtr, src: DevicePtr, bytes: u64, kind: CopyKind) -> Result<()> {
        let device = crate::thread::device(self.names.id());
        self.call(Call::Copy, device, |mut state| {
            self.not_during_capture(&mut state)?;
            let key = Queues::default_stream(index(device));
            if let Some(capture) = state.capture_of(key) {
                state.captures.invalidate(capture);
                return Err(Refusal::capture("the default stream is captured; the capture is broken now"));
            }
            let (work, uses) = prepare_copy(
                memo(&self.config, &self.machine),
                &state,
                index(device),
                (dst.0, src.0),
                bytes,
                kind,
            )?;
            self.gate.charge(Call::Copy, bytes);
            state.on_links(&self.gate, |timeline, called| {
                let cost = self.gate.cost_of(Call::Copy, bytes);
                timeline.copy(called, (index(device), key), kind, bytes, cost);
                timeline.wait_for_stream(called, key);
            });
            let work = if self.config.is_without_bytes() { Work::Touch } else { work };
            let state = self.machine.submit(state, key, work, uses, None).map(|()| self.machine.lock())?;
            if let Some(end) = state.queues.end_of(key) {
                drop(self.machine.wait_for(state, end));
            }
            Ok(())
        })
    }

    unsafe fn copy_async(
        &self,
        dst: DevicePtr,
        src: DevicePtr,
        bytes: u64,
        kind: CopyKind,
        stream: Stream,
    ) -> Result<()> {
        self.enqueue(Call::CopyAsync, stream, |state, device| {
            let prepared =
                prepare_copy(memo(&self.config, &self.machine), state, device, (dst.0, src.0), bytes, kind)?;
            self.gate.charge(Call::CopyAsync, bytes);
            let key = self.names.stream(state, stream)?;
            state.on_links(&self.gate, |timeline, called| {
                let cost = self.gate.cost_of(Call::CopyAsync, bytes);
                timeline.copy(called, (device, key), kind, bytes, cost);
            });
            Ok(prepared)
        })
    }

    unsafe fn memset_async(&self, dst: DevicePtr, value: u8, bytes: u64, stream: Stream) -> Result<()> {
        crate::Driver(self).fill(stream, dst, &[value], bytes)
    }

    fn create_stream(&self, device: DeviceIndex, priority: i32) -> Result<Stream> {
        self.call(Call::CreateStream, device, |mut state| {
            let raw = state.queues.create_stream(index(device), priority.clamp(GREATEST_PRIORITY, 0));
            Ok(self.names.new_stream(raw, device))
        })
    }

    unsafe fn destroy_stream(&self, stream: Stream) -> Result<()> {
        self.call(Call::DestroyStream, stream.device, |mut state| {
            let key = self.names.stream(&state, stream)?;
            if key == Queues::default_stream(index(stream.device)) {
                return Err(Refusal::invalid("a default stream cannot be destroyed"));
            }
            if let Some(capture) = state.capture_of(key) {
                state.captures.invalidate(capture);
                return Err(Refusal::capture("the stream is captured; the capture is broken now"));
            }
            state.queues.destroy_stream(key)
        })
    }

    fn priority_range(&self, device: DeviceIndex) -> Result<PriorityRange> {
        self.enter(Call::PriorityRange, device)?;
        Ok(PriorityRange { least: 0, greatest: GREATEST_PRIORITY })
    }

    fn query_stream(&self, stream: Stream) -> Result<Readiness> {
        self.call(Call::QueryStream, stream.device, |mut state| {
            let key = self.names.stream(&state, stream)?;
            not_captured(&mut state, key)?;
            Ok(readiness(state.queues.stream(key)?.is_idle()))
        })
    }

    fn synchronize_stream(&self, stream: Stream) -> Result<()> {
        self.call(Call::SynchronizeStream, stream.device, |mut state| {
            let key = self.names.stream(&state, stream)?;
            not_captured(&mut state, key)?;
            state.on_links(&self.gate, |timeline, called| timeline.wait_for_stream(called, key));
            if let Some(end) = state.queues.end_of(key) {
                state = self.machine.wait_for(state, end);
            }
            settle_pool(&mut state, index(stream.device))
        })
    }

    fn wait_event(&self, stream: Stream, event: Event) -> Result<()> {
        self.call(Call::WaitEvent, stream.device, |mut state| {
            let key = self.names.stream(&state, stream)?;
            let event = self.names.event(&state, event)?;
            if self.joins_capture(&mut state, key, event)? {
                return Ok(());
            }
            state.on_links(&self.gate, |timeline, _| timeline.follow(key, event));
            let waits = state.queues.event(event)?;
            let work = match (&waits.shared, waits.point) {
                (Some(flag), _) if !waits.is_ready() => {
                    Work::WaitShared { flag: Arc::clone(flag), record: flag.recorded() }
                }
                (None, Some(point)) if !waits.is_ready() => Work::Wait(point),
                _ => return Ok(()),
            };
            self.machine.submit(state, key, work, Spans::default(), None)
        })
    }

    fn launch_host_function(&self, stream: Stream, function: HostFunction) -> Result<()> {
        self.enqueue(Call::LaunchHostFunction, stream, |_, _| {
            Ok((Work::Host(HostCall::new(function)), Spans::default()))
        })
    }

    fn create_event(&self, device: DeviceIndex, flags: EventFlags) -> Result<Event> {
        self.call(Call::CreateEvent, device, |mut state| {
            let raw = state.queues.create_event(index(device), flags, None);
            Ok(self.names.new_event(raw, device))
        })
    }

    unsafe fn destroy_event(&self, event: Event) -> Result<()> {
        self.call(Call::DestroyEvent, event.device, |mut state| {
            let key = self.names.event(&state, event)?;
            state.queues.events.remove(key);
            Ok(())
        })
    }

    fn record_event(&self, event: Event, stream: Stream) -> Result<()> {
        self.call(Call::RecordEvent, stream.device, |mut state| {
            let key = self.names.stream(&state, stream)?;
            let event_key = self.names.event(&state, event)?;
            if event.device != stream.device {
                return Err(Refusal::invalid(format!(
                    "an event of device {} cannot be recorded on a stream of device {}",
                    event.device, stream.device
                )));
            }
            if let Some(member) = state.queues.stream(key)?.member.clone() {
                state.captured_member(key)?;
                if let Some(event) = state.queues.events.get_mut(event_key) {
                    event.captured = Some(member);
                }
                return Ok(());
            }
            self.machine.prepare(&mut state, key)?;
            state.on_links(&self.gate, |timeline, _| timeline.record(event_key, key));
            let version = state.queues.begin_record(event_key, key);
            self.machine.submit(
                state,
                key,
                Work::Record { event: event_key, version },
                Spans::default(),
                None,
            )
        })
    }

    fn query_event(&self, event: Event) -> Result<Readiness> {
        self.call(Call::QueryEvent, event.device, |mut state| {
            let key = self.names.event(&state, event)?;
            self.not_during_capture(&mut state)?;
            not_captured_event(&mut state, key)?;
            Ok(readiness(state.queues.event(key)?.is_ready()))
        })
    }

    fn synchronize_event(&self, event: Event) -> Result<()> {
        self.call(Call::SynchronizeEvent, event.device, |mut state| {
            let key = self.names.event(&state, event)?;
            self.not_during_capture(&mut state)?;
            not_captured_event(&mut state, key)?;
            state.on_links(&self.gate, |timeline, called| timeline.wait_for_event(called, key));
            let (point, foreign) = {
                let event = state.queues.event(key)?;
                (event.point, event.shared.clone().map(|flag| (flag.recorded(), flag)))
            };
            if let Some(point) = point {
                state = self.machine.wait_for(state, point);
            }
            if let Some((record, flag)) = foreign {
                while !flag.passed(record) {
                    state = self.machine.look_again(state);
                }
            }
            settle_pool(&mut state, index(event.device))
        })
    }

    fn elapsed_ms(&self, start: Event, end: Event) -> Result<f32> {
        self.call(Call::ElapsedMs, start.device, |state| {
            if !self.has(Families::EVENT_TIMING) {
                return Err(Refusal::unsupported("event timing was switched off in the OpenRegConfig"));
            }
            let stamp = |event: Event| -> Answer<u64> {
                let event = state.queues.event(self.names.event(&state, event)?)?;
                if !event.flags.contains(EventFlags::TIMING) {
                    return Err(Refusal::unsupported("the event was made without TIMING"));
                }
                if event.point.is_none() || !event.is_ready() {
                    return Err(Refusal::invalid(
                        "the event is not recorded, or not complete; wait for it first",
                    ));
                }
                Ok(event.stamp)
            };
            let (start, end) = (stamp(start)?, stamp(end)?);
            Ok(((end as f64 - start as f64) / 1e6) as f32)
        })
    }

    fn pinned_host(&self) -> Family<'_, dyn PinnedHost> {
        self.offers(Families::PINNED_HOST, "pinned host memory", false)?;
        Ok(self)
    }

    fn virtual_memory(&self) -> Family<'_, dyn VirtualMemory> {
        self.offers(Families::VIRTUAL_MEMORY, "virtual memory", false)?;
        Ok(self)
    }

    fn physical_sharing(&self) -> Family<'_, dyn PhysicalSharing> {
        self.virtual_memory()?;
        self.offers(Families::PHYSICAL_SHARING, "sharing of physical memory", false)?;
        Ok(self)
    }

    fn ipc(&self) -> Family<'_, dyn Ipc> {
        self.offers(Families::IPC, "IPC", !self.config.address_sharing)?;
        Ok(self)
    }

    fn peers(&self) -> Family<'_, dyn Peers> {
        self.offers(Families::PEERS, "peer access", false)?;
        Ok(self)
    }

    fn capture(&self) -> Family<'_, dyn Capture> {
        self.offers(Families::CAPTURE, "graph capture", false)?;
        Ok(self)
    }

    fn host_registration(&self) -> Family<'_, dyn HostRegistration> {
        self.offers(Families::HOST_REGISTRATION, "host registration", false)?;
        Ok(self)
    }
}

impl PinnedHost for OpenReg {
    fn host_malloc(&self, bytes: u64, _flags: HostFlags) -> Result<DevicePtr> {
        let taken = self.unsafe_call(Call::HostMalloc, HOST, |mut state| {
            if bytes == 0 {
                return Err(Refusal::invalid("0 bytes were asked for"));
            }
            let pages = HostPages::take(bytes, self.config.is_without_bytes())?;
            let base = pages.base;
            state.memory.host.insert(base, HostRange { bytes, pages: Some(pages) });
            Ok(DevicePtr(base))
        });
        if taken.is_ok() {
            self.gate.charge(Call::HostMalloc, bytes);
        }
        taken
    }

    unsafe fn host_free(&self, ptr: DevicePtr) -> Result<()> {
        self.unsafe_call(Call::HostFree, HOST, |state| {
            if ptr.is_null() {
                return Ok(());
            }
            let bytes = match state.memory.host.get(&ptr.0) {
                Some(range) if range.pages.is_some() => range.bytes,
                _ => {
                    return Err(Refusal::invalid(format!(
                        "{ptr} is not the base of live page-locked memory"
                    )));
                }
            };
            self.machine
                .not_in_use(state, Span::new(ptr.0, bytes), self.config.waiting_frees)?
                .memory
                .host
                .remove(&ptr.0);
            Ok(())
        })
    }
}
