//! Events by handle.

use crate::handles::Handles;
use crate::{Answer, Code};
use backend_api::types::{DeviceIndex, Event, Stream};
use backend_api::{Backend, EventFlags, Readiness};
use backend_openreg::{Driver, OpenReg};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// What an event's handle stands for.
#[derive(Clone, Debug)]
pub struct EventInfo {
    /// The machine's event.
    pub event: Event,
    /// How it was made.
    pub flags: EventFlags,
    /// Whether another process can open it.
    pub is_shared: bool,
    recorded: Arc<AtomicBool>,
}

static EVENTS: Handles<EventInfo, 0x6b00_0000_0000> = Handles::new();

/// Makes an event; its handle.
///
/// # Errors
/// What the machine says.
pub fn create(machine: &OpenReg, device: DeviceIndex, flags: EventFlags) -> Answer<usize> {
    let event = machine.create_event(device, flags)?;
    Ok(EVENTS.insert(EventInfo { event, flags, is_shared: false, recorded: Arc::default() }))
}

/// Makes an event that another process can open; its handle.
///
/// # Errors
/// What the machine says.
pub fn create_shared(machine: &OpenReg, device: DeviceIndex) -> Answer<usize> {
    Ok(adopt(Driver(machine).create_shared_event(device)?))
}

/// A handle for an event that processes share.
pub fn adopt(event: Event) -> usize {
    EVENTS.insert(EventInfo { event, flags: EventFlags::empty(), is_shared: true, recorded: Arc::default() })
}

/// What a handle stands for.
///
/// # Errors
/// `INVALID_HANDLE`.
pub fn resolve(handle: usize) -> Answer<EventInfo> {
    EVENTS.get(handle)
}

/// Destroys an event.
///
/// # Errors
/// `INVALID_HANDLE`; what the machine says.
pub fn destroy(machine: &OpenReg, handle: usize) -> Answer {
    let known = EVENTS.get(handle)?;
    // SAFETY: rule 1: the table says that it was made and not destroyed, and forgets it next.
    unsafe { machine.destroy_event(known.event) }?;
    EVENTS.remove(handle).map(drop)
}

/// Records an event on a stream.
///
/// # Errors
/// `INVALID_HANDLE` where they are of different devices; what the machine says.
pub fn record(machine: &OpenReg, handle: usize, stream: Stream) -> Answer {
    let known = EVENTS.get(handle)?;
    if known.event.device != stream.device {
        return Err(Code::INVALID_HANDLE);
    }
    machine.record_event(known.event, stream)?;
    known.recorded.store(true, Ordering::Release);
    Ok(())
}

/// Milliseconds from one event to another.
///
/// # Errors
/// `INVALID_HANDLE` where one keeps no time, was never recorded, or is of another device than the other;
/// `NOT_READY` where one was not passed yet; what the machine says.
pub fn elapsed(machine: &OpenReg, start: usize, end: usize) -> Answer<f32> {
    let (start, end) = (EVENTS.get(start)?, EVENTS.get(end)?);
    let keeps_time = |known: &EventInfo| {
        known.flags.contains(EventFlags::TIMING) && known.recorded.load(Ordering::Acquire)
    };
    if !keeps_time(&start) || !keeps_time(&end) || start.event.device != end.event.device {
        return Err(Code::INVALID_HANDLE);
    }
    for event in [start.event, end.event] {
        if machine.query_event(event)? == Readiness::NotReady {
            return Err(Code::NOT_READY);
        }
    }
    Ok(machine.elapsed_ms(start.event, end.event)?)
}
