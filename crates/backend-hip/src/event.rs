//! Events.

use crate::driver::{given_back, number, pointer};
use crate::error;
use crate::hip::Hip;
use backend_api::types::{DeviceIndex, Event, Stream};
use backend_api::{ErrorKind, EventFlags, Readiness, Result};
use hip_sys::abi6::{hipEventBlockingSync, hipEventDefault, hipEventDisableTiming, hipEventInterprocess};
use std::ffi::c_uint;
use std::ptr;

fn driver_flags(flags: EventFlags) -> c_uint {
    let mut bits = hipEventDefault;
    if !flags.contains(EventFlags::TIMING) {
        bits |= hipEventDisableTiming;
    }
    if flags.contains(EventFlags::BLOCKING_SYNC) {
        bits |= hipEventBlockingSync;
    }
    if flags.contains(EventFlags::INTERPROCESS) {
        bits |= hipEventInterprocess;
    }
    bits
}

impl Hip {
    pub(crate) fn create_event(&self, device: DeviceIndex, flags: EventFlags) -> Result<Event> {
        let entered = self.enter(device, "hipEventCreateWithFlags")?;
        if flags.contains(EventFlags::TIMING | EventFlags::INTERPROCESS) {
            let detail = "an event for other processes keeps no time: leave one of the flags out";
            return Err(entered.invalid("hipEventCreateWithFlags", detail));
        }
        let mut event = ptr::null_mut();
        // SAFETY: the function writes one handle.
        unsafe { call!(entered.hipEventCreateWithFlags(&raw mut event, driver_flags(flags))) }?;
        let raw = number(event);
        if flags.contains(EventFlags::TIMING) {
            self.timed.insert(raw);
        }
        Ok(Event { raw, device, backend: self.id })
    }

    pub(crate) unsafe fn destroy_event(&self, event: Event) -> Result<()> {
        let destroy = || {
            let entered = self.enter_handle(event.backend, event.device, "hipEventDestroy")?;
            // Before the runtime can give the same handle to a new event.
            let timed = self.timed.remove(event.raw);
            // SAFETY: rule 1, and the caller uses the handle no more.
            unsafe { call!(entered.hipEventDestroy(pointer(event.raw))) }.inspect_err(|_| {
                if timed {
                    self.timed.insert(event.raw);
                }
            })
        };
        given_back(destroy())
    }

    pub(crate) fn record_event(&self, event: Event, stream: Stream) -> Result<()> {
        let entered = self.enter_handle(stream.backend, stream.device, "hipEventRecord")?;
        self.own(event.backend, event.device, "hipEventRecord")?;
        if event.device != stream.device {
            let detail =
                format!("the event is of device {} and the stream of {}", event.device, stream.device);
            return Err(entered.invalid("hipEventRecord", detail));
        }
        // SAFETY: rule 1 for both.
        unsafe { call!(entered.hipEventRecord(pointer(event.raw), pointer(stream.raw))) }
    }

    pub(crate) fn query_event(&self, event: Event) -> Result<Readiness> {
        let entered = self.enter_handle(event.backend, event.device, "hipEventQuery")?;
        // SAFETY: rule 1.
        unsafe { query!(entered.hipEventQuery(pointer(event.raw))) }
    }

    pub(crate) fn synchronize_event(&self, event: Event) -> Result<()> {
        let entered = self.enter_handle(event.backend, event.device, "hipEventSynchronize")?;
        // SAFETY: rule 1.
        unsafe { call!(entered.hipEventSynchronize(pointer(event.raw))) }
    }

    pub(crate) fn elapsed_ms(&self, start: Event, end: Event) -> Result<f32> {
        const CALL: &str = "hipEventElapsedTime";
        let entered = self.enter_handle(start.backend, start.device, CALL)?;
        self.own(end.backend, end.device, CALL)?;
        if start.device != end.device {
            return Err(entered.invalid(CALL, "the events are of two devices, whose clocks differ"));
        }
        if !self.timed.both(start.raw, end.raw) {
            let detail = "an event was made without TIMING and keeps no time";
            return Err(entered.refuse(ErrorKind::NotSupported, CALL, detail));
        }
        let mut elapsed = 0.0;
        // SAFETY: rule 1 for both; the function writes one number.
        let asked = unsafe {
            call!(entered.hipEventElapsedTime(&raw mut elapsed, pointer(start.raw), pointer(end.raw)))
        };
        asked.map(|()| elapsed).map_err(|failed| match failed.code {
            error::NOT_READY => entered.invalid(CALL, "an event has not been passed yet; wait for it first"),
            error::INVALID_HANDLE => entered.invalid(CALL, "an event was never recorded"),
            _ => failed,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_are_the_runtimes() {
        assert_eq!(driver_flags(EventFlags::empty()), 2);
        assert_eq!(driver_flags(EventFlags::TIMING), 0);
        assert_eq!(driver_flags(EventFlags::BLOCKING_SYNC), 3);
        assert_eq!(driver_flags(EventFlags::INTERPROCESS), 6);
    }
}
