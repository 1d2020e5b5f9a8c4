//! Events by handle.

pub mod lag;

use crate::argument::Out;
use crate::handles::Handles;
use crate::{Answer, Code, Here, contexts};
use backend_api::types::{Event, Stream};
use backend_api::{Backend, EventFlags, Readiness};
use backend_openreg::Driver;
use std::ptr::without_provenance_mut;
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

/// Makes an event; both vendors number timing and waiting alike.
pub fn create<T>(here: Here, place: &Out<*mut T>, options: u32) -> Answer {
    let mut flags = EventFlags::empty();
    flags.set(EventFlags::BLOCKING_SYNC, options & 1 != 0);
    flags.set(EventFlags::TIMING, options & 2 == 0);
    let event = here.machine.create_event(here.device, flags)?;
    let known = EventInfo { event, flags, is_shared: false, recorded: Arc::default() };
    place.put(without_provenance_mut(EVENTS.insert(known)))
}

/// Makes an event that another process can open.
pub fn create_shared<T>(here: Here, place: &Out<*mut T>) -> Answer {
    place.put(adopt(Driver(here.machine).create_shared_event(here.device)?))
}

/// A handle for an event that processes share.
pub fn adopt<T>(event: Event) -> *mut T {
    let known = EventInfo { event, flags: EventFlags::empty(), is_shared: true, recorded: Arc::default() };
    without_provenance_mut(EVENTS.insert(known))
}

/// What a handle stands for.
pub fn resolve<T>(handle: *mut T) -> Answer<EventInfo> {
    EVENTS.get(handle.addr())
}

fn usable<T>(handle: *mut T) -> Answer<Event> {
    let known = resolve(handle)?.event;
    contexts::usable(known.device)?;
    Ok(known)
}

/// Destroys an event.
pub fn destroy<T>(here: Here, handle: *mut T) -> Answer {
    let known = resolve(handle)?;
    // SAFETY: rule 1: the table says that it was made and not destroyed, and forgets it next.
    unsafe { here.machine.destroy_event(known.event) }?;
    lag::forget(handle.addr());
    EVENTS.remove(handle.addr()).map(drop)
}

/// Records an event on a stream.
///
/// # Errors
/// `INVALID_HANDLE` where they are of different devices; what the machine says.
pub fn record<T>(here: Here, handle: *mut T, stream: Stream) -> Answer {
    let known = resolve(handle)?;
    if known.event.device != stream.device {
        return Err(Code::INVALID_HANDLE);
    }
    here.machine.record_event(known.event, stream)?;
    known.recorded.store(true, Ordering::Release);
    lag::recorded(handle.addr(), stream);
    Ok(())
}

/// Asks whether an event was passed.
///
/// # Errors
/// `NOT_READY` where not; `INVALID_HANDLE`; what the machine says.
pub fn query<T>(here: Here, handle: *mut T) -> Answer {
    match here.machine.query_event(usable(handle)?)? {
        Readiness::Ready if lag::is_over(handle.addr()) => Ok(()),
        _ => Err(Code::NOT_READY),
    }
}

/// Waits until an event was passed.
pub fn synchronize<T>(here: Here, handle: *mut T) -> Answer {
    here.machine.synchronize_event(usable(handle)?)?;
    lag::forget(handle.addr());
    Ok(())
}

/// Milliseconds from one event to another.
///
/// # Errors
/// `INVALID_HANDLE` where one keeps no time, was never recorded, or is of another device than the other;
/// `NOT_READY` where one was not passed yet; what the machine says.
pub fn elapsed<T>(here: Here, time: &Out<f32>, start: *mut T, end: *mut T) -> Answer {
    time.wanted()?;
    let (start, end) = (resolve(start)?, resolve(end)?);
    let keeps_time = |known: &EventInfo| {
        known.flags.contains(EventFlags::TIMING) && known.recorded.load(Ordering::Acquire)
    };
    if !keeps_time(&start) || !keeps_time(&end) || start.event.device != end.event.device {
        return Err(Code::INVALID_HANDLE);
    }
    for event in [start.event, end.event] {
        if here.machine.query_event(event)? == Readiness::NotReady {
            return Err(Code::NOT_READY);
        }
    }
    time.put(here.machine.elapsed_ms(start.event, end.event)?)
}
