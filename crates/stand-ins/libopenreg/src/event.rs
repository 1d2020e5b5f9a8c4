//! Events: marks in the work of a stream.

use crate::handles::Handles;
use crate::status::{Answer, Refused};
use crate::stream::Stream;
use std::ffi::c_int;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// The live events.
pub(crate) static EVENTS: Handles<Event> = Handles::new();

#[derive(Debug)]
pub(crate) struct Event {
    device: c_int,
    timing: bool,
    state: Mutex<Records>,
    changed: Condvar,
}

/// Records are numbered from 1. An event that was never recorded is complete.
#[derive(Debug, Default)]
struct Records {
    recorded: u64,
    passed: u64,
    /// When the last record was passed.
    at: Option<Instant>,
}

impl Records {
    const fn is_complete(&self) -> bool {
        self.passed == self.recorded
    }
}

impl Event {
    pub(crate) fn new(device: c_int, timing: bool) -> Arc<Self> {
        Arc::new(Self { device, timing, state: Mutex::default(), changed: Condvar::new() })
    }

    fn lock(&self) -> MutexGuard<'_, Records> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait_for(&self, number: u64) {
        drop(self.changed.wait_while(self.lock(), |state| state.passed < number));
    }

    /// Queues a record on a stream of the same device.
    pub(crate) fn record(self: &Arc<Self>, stream: &Stream) -> Answer {
        if self.device != stream.device() {
            return Err(Refused);
        }
        // Held until the record is queued: records have the order of their numbers.
        let mut state = self.lock();
        let (event, number) = (Arc::clone(self), state.recorded + 1);
        stream.queue_record(Box::new(move || event.pass(number)))?;
        state.recorded = number;
        Ok(())
    }

    fn pass(&self, number: u64) {
        let mut state = self.lock();
        if number > state.passed {
            state.passed = number;
            state.at = self.timing.then(Instant::now);
        }
        drop(state);
        self.changed.notify_all();
    }

    /// Lets a stream wait for the records made so far.
    ///
    /// Where the event is complete now, the stream looks again when it gets there, and waits for what was
    /// recorded in between, as PyTorch's library does. But not once it has records behind the wait: others may
    /// wait for those, and it would wait for itself. What it does wait for was queued before such a record.
    pub(crate) fn hold_back(self: &Arc<Self>, stream: &Arc<Stream>) -> Answer {
        let (number, complete) = {
            let state = self.lock();
            (state.recorded, state.is_complete())
        };
        let (event, waiting, before) = (Arc::clone(self), Arc::clone(stream), stream.records());
        stream.queue(Box::new(move || {
            let latest = event.lock().recorded;
            let none_behind = waiting.records() == before;
            event.wait_for(if complete && none_behind { latest } else { number });
        }))
    }

    /// Blocks until the records made so far are passed.
    pub(crate) fn synchronize(&self) {
        let number = self.lock().recorded;
        self.wait_for(number);
    }

    pub(crate) fn is_complete(&self) -> bool {
        self.lock().is_complete()
    }

    /// When the last record was passed, if the event measures time and has come to that.
    fn passed_at(&self) -> Answer<Instant> {
        let state = self.lock();
        state.at.filter(|_| state.is_complete()).ok_or(Refused)
    }

    /// Milliseconds between two events of one device; negative where `end` was passed first.
    pub(crate) fn elapsed_ms(start: &Self, end: &Self) -> Answer<f32> {
        if start.device != end.device {
            return Err(Refused);
        }
        let (start, end) = (start.passed_at()?, end.passed_at()?);
        let ms = match end.checked_duration_since(start) {
            Some(after) => after.as_secs_f64() * 1e3,
            None => -start.duration_since(end).as_secs_f64() * 1e3,
        };
        Ok(ms as f32)
    }
}
