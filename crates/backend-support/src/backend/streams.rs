//! Streams and events.

use super::{DriverBackend, graphs};
use crate::calls::Calls;
use crate::errors::{INVALID_HANDLE, NOT_READY, given_back};
use crate::host_function::{dequeue, enqueue};
use backend_api::types::{DeviceIndex, Event, Stream};
use backend_api::{ErrorKind, EventFlags, HostFunction, PriorityRange, Readiness, Result};

pub(super) fn create_stream<D: Calls>(
    backend: &DriverBackend<D>,
    device: DeviceIndex,
    priority: i32,
) -> Result<Stream> {
    let entered = backend.context.enter(device, D::NAMES.create_stream)?;
    let range = D::priority_range(*entered)?;
    let raw = D::create_stream(*entered, priority.min(range.least).max(range.greatest))?;
    Ok(Stream { raw, device, backend: backend.context.id() })
}

pub(super) unsafe fn destroy_stream<D: Calls>(backend: &DriverBackend<D>, stream: Stream) -> Result<()> {
    let destroy = || {
        let call = D::NAMES.destroy_stream;
        let entered = backend.context.enter_handle(stream.backend, stream.device, call)?;
        if stream.raw == 0 {
            return Err(entered.invalid(call, "the default stream cannot be destroyed"));
        }
        graphs::forgetting_capture(backend, stream, || {
            // SAFETY: rule 1, and the caller uses the handle no more.
            unsafe { D::destroy_stream(*entered, stream) }
        })
    };
    given_back(destroy())
}

pub(super) fn priority_range<D: Calls>(
    backend: &DriverBackend<D>,
    device: DeviceIndex,
) -> Result<PriorityRange> {
    D::priority_range(*backend.context.enter(device, D::NAMES.priority_range)?)
}

pub(super) fn query_stream<D: Calls>(backend: &DriverBackend<D>, stream: Stream) -> Result<Readiness> {
    let entered = backend.context.enter_handle(stream.backend, stream.device, D::NAMES.query_stream)?;
    D::query_stream(*entered, stream)
}

pub(super) fn synchronize_stream<D: Calls>(backend: &DriverBackend<D>, stream: Stream) -> Result<()> {
    let entered = backend.context.enter_handle(stream.backend, stream.device, D::NAMES.synchronize_stream)?;
    D::synchronize_stream(*entered, stream)
}

pub(super) fn wait_event<D: Calls>(backend: &DriverBackend<D>, stream: Stream, event: Event) -> Result<()> {
    let call = D::NAMES.wait_event;
    let entered = backend.context.enter_handle(stream.backend, stream.device, call)?;
    backend.context.own(event.backend, event.device, call)?;
    D::wait_event(*entered, stream, event)
}

/// A closure launched into a stream is queued until the driver asks for it. One launched into a capture belongs to the
/// graph, which may run the function many times or never: it runs once, and is dropped with the graph.
pub(super) fn launch_host_function<D: Calls>(
    backend: &DriverBackend<D>,
    stream: Stream,
    function: HostFunction,
) -> Result<()> {
    let call = D::NAMES.launch_host_function;
    let entered = backend.context.enter_handle(stream.backend, stream.device, call)?;
    if let Some(graph) = graphs::graph_under_capture(*entered, stream)? {
        return graphs::launch_into(*entered, graph, stream, function);
    }
    let data = enqueue(function);
    D::launch_queued(*entered, stream, data).inspect_err(|_| drop(dequeue(data)))
}

pub(super) fn create_event<D: Calls>(
    backend: &DriverBackend<D>,
    device: DeviceIndex,
    flags: EventFlags,
) -> Result<Event> {
    let call = D::NAMES.create_event;
    let entered = backend.context.enter(device, call)?;
    if flags.contains(EventFlags::TIMING | EventFlags::INTERPROCESS) {
        let detail = "an event for other processes keeps no time: leave one of the flags out";
        return Err(entered.invalid(call, detail));
    }
    let raw = D::create_event(*entered, flags)?;
    if flags.contains(EventFlags::TIMING) {
        backend.timed.insert(raw);
    }
    Ok(Event { raw, device, backend: backend.context.id() })
}

pub(super) unsafe fn destroy_event<D: Calls>(backend: &DriverBackend<D>, event: Event) -> Result<()> {
    let destroy = || {
        let entered = backend.context.enter_handle(event.backend, event.device, D::NAMES.destroy_event)?;
        // Before the driver can give the same handle to a new event.
        let timed = backend.timed.remove(event.raw);
        // SAFETY: rule 1, and the caller uses the handle no more.
        unsafe { D::destroy_event(*entered, event) }.inspect_err(|_| {
            if timed {
                backend.timed.insert(event.raw);
            }
        })
    };
    given_back(destroy())
}

pub(super) fn record_event<D: Calls>(backend: &DriverBackend<D>, event: Event, stream: Stream) -> Result<()> {
    let call = D::NAMES.record_event;
    let entered = backend.context.enter_handle(stream.backend, stream.device, call)?;
    backend.context.own(event.backend, event.device, call)?;
    if event.device != stream.device {
        let detail = format!("the event is of device {} and the stream of {}", event.device, stream.device);
        return Err(entered.invalid(call, detail));
    }
    D::record_event(*entered, event, stream)
}

pub(super) fn query_event<D: Calls>(backend: &DriverBackend<D>, event: Event) -> Result<Readiness> {
    let entered = backend.context.enter_handle(event.backend, event.device, D::NAMES.query_event)?;
    D::query_event(*entered, event)
}

pub(super) fn synchronize_event<D: Calls>(backend: &DriverBackend<D>, event: Event) -> Result<()> {
    let entered = backend.context.enter_handle(event.backend, event.device, D::NAMES.synchronize_event)?;
    D::synchronize_event(*entered, event)
}

pub(super) fn elapsed_ms<D: Calls>(backend: &DriverBackend<D>, start: Event, end: Event) -> Result<f32> {
    let call = D::NAMES.elapsed;
    let entered = backend.context.enter_handle(start.backend, start.device, call)?;
    backend.context.own(end.backend, end.device, call)?;
    if start.device != end.device {
        return Err(entered.invalid(call, "the events are of two devices, whose clocks differ"));
    }
    if !backend.timed.both(start.raw, end.raw) {
        let detail = "an event was made without TIMING and keeps no time";
        return Err(entered.refuse(ErrorKind::NotSupported, call, detail));
    }
    D::elapsed_ms(*entered, start, end).map_err(|failed| match failed.code {
        NOT_READY => entered.invalid(call, "an event has not been passed yet; wait for it first"),
        INVALID_HANDLE => entered.invalid(call, "an event was never recorded"),
        _ => failed,
    })
}
