//! Backends that break rules of this area: events.

use crate::mutants::{Seldom, Sticky, error, hook, lock, mutants};
use backend_api::types::{BackendId, DeviceIndex, Event, Stream};
use backend_api::*;
use granule_conformance::interpose::Hook;
use std::collections::HashMap;
use std::sync::Mutex;

mutants! {
    OfFirstDevice: "events.of_first_device", "handles say device 0" => "events.handle_names_its_device",
    OfNoBackend: "events.of_no_backend", "handles carry no id" => "events.handle_names_its_backend",
    SameEvent: "events.same_event", "an event that lives is given again" => "events.handles_differ",
    NotReadyAtFirst: "events.not_ready_at_first",
        "an event that was never recorded is not ready" => "events.complete_at_first",
    UnrecordedIsError: "events.unrecorded_is_error",
        "an event that was never recorded cannot be waited for" => "events.synchronize_unrecorded",
    NoBlockingSync: "events.no_blocking_sync", "BLOCKING_SYNC is refused" => "events.each_flag_works",
    HundredEvents: "events.hundred", "no more than 100 events live" => "events.many_at_once",
    ReadyEarly: "events.ready_early", "an event is ready before the work" => "events.not_ready_behind_work",
    SeldomReady: "events.seldom_ready",
        "one event in fifty is ready before the work" => "events.none_of_many_is_ready_early",
    SeldomWaits: "events.seldom_waits",
        "one synchronize_event in fifty returns at once" => "events.synchronize_waits_every_time",
    NeverReady: "events.never_ready", "an event is never ready" => "events.ready_after_work",
    StickyNotReady: "events.sticky_not_ready",
        "NotReady leaves an error for the next call" => "events.not_ready_leaves_no_error",
    AsksItsStream: "events.asks_its_stream",
        "an event is ready when its stream is" => "events.later_work_does_not_count",
    RecordsOnce: "events.records_once", "an event is recorded once only" => "events.record_again_moves_it",
    KeepsFirstRecord: "events.keeps_first_record",
        "a record before the last one was passed is ignored" => "events.record_elsewhere_moves_it",
    AsksLastRecorded: "events.asks_last_recorded",
        "query_event is about the event recorded last" => "events.each_event_is_its_own",
    RecordsAnywhere: "events.records_anywhere",
        "a record on another device is taken, and ignored" => "events.of_other_device_is_refused",
    RefusedRecordResets: "events.refused_record_resets",
        "a refused record makes the event ready" => "events.refused_record_changes_nothing",
    NeverWaits: "events.never_waits", "synchronize_event returns at once" => "events.synchronize_waits",
    BlockingNeverWaits: "events.blocking_never_waits",
        "an event with BLOCKING_SYNC is not waited for" => "events.blocking_synchronize_waits",
    WaitsForStream: "events.waits_for_stream",
        "synchronize_event waits for its stream" => "events.synchronize_waits_for_its_record_only",
    NoDefault: "events.no_default",
        "records on the default stream are lost" => "events.record_on_default_stream",
    PendingStays: "events.pending_stays", "a pending event cannot be destroyed" => "events.destroy_pending",
    Seconds: "events.seconds", "elapsed_ms is in seconds" => "events.elapsed_measures_work",
    Backwards: "events.backwards", "elapsed_ms runs backwards" => "events.elapsed_is_not_negative",
    NeverZero: "events.never_zero", "elapsed_ms adds its own time" => "events.elapsed_of_itself",
    TimeWithoutTiming: "events.time_without_timing",
        "events without TIMING have a time" => "events.elapsed_without_timing_is_refused",
    TakesUnknownDevice: "events.takes_unknown_device",
        "an unknown device gets an event of device 0" => "events.create_unknown_device_is_refused",
}

/// A hook that makes other events.
macro_rules! other_create {
    ($name:ident, |$inner:ident, $device:ident, $flags:ident| $body:expr) => {
        hook! { $name {
            fn create_event(
                &self,
                $inner: &dyn Backend,
                $device: DeviceIndex,
                $flags: EventFlags,
            ) -> Result<Event> {
                $body
            }
        } }
    };
}

other_create!(OfFirstDevice, |inner, device, flags| {
    Ok(Event { device: DeviceIndex(0), ..inner.create_event(device, flags)? })
});
other_create!(OfNoBackend, |inner, device, flags| {
    Ok(Event { backend: BackendId(0), ..inner.create_event(device, flags)? })
});
other_create!(NoBlockingSync, |inner, device, flags| {
    if flags.contains(EventFlags::BLOCKING_SYNC) {
        return Err(error(ErrorKind::NotSupported));
    }
    inner.create_event(device, flags)
});
other_create!(TakesUnknownDevice, |inner, device, flags| {
    inner.create_event(device, flags).or_else(|_| inner.create_event(DeviceIndex(0), flags))
});

#[derive(Debug, Default)]
struct SeldomReady(Seldom);

impl Hook for SeldomReady {
    fn query_event(&self, inner: &dyn Backend, event: Event) -> Result<Readiness> {
        let truly = inner.query_event(event)?;
        Ok(if self.0.strikes() { Readiness::Ready } else { truly })
    }
}

#[derive(Debug, Default)]
struct SeldomWaits(Seldom);

impl Hook for SeldomWaits {
    fn synchronize_event(&self, inner: &dyn Backend, event: Event) -> Result<()> {
        if self.0.strikes() { inner.query_event(event).map(drop) } else { inner.synchronize_event(event) }
    }
}

#[derive(Debug, Default)]
struct SameEvent(Mutex<Option<Event>>);

impl Hook for SameEvent {
    fn create_event(&self, inner: &dyn Backend, device: DeviceIndex, flags: EventFlags) -> Result<Event> {
        let mut last = lock(&self.0);
        if let Some(event) = last.filter(|event| event.device == device) {
            return Ok(event);
        }
        let event = inner.create_event(device, flags)?;
        *last = Some(event);
        Ok(event)
    }

    unsafe fn destroy_event(&self, inner: &dyn Backend, event: Event) -> Result<()> {
        lock(&self.0).take_if(|last| *last == event);
        // SAFETY: rule 1 is the caller's promise; a second destruction is answered.
        unsafe { inner.destroy_event(event) }
    }
}

#[derive(Debug, Default)]
struct HundredEvents(Mutex<u32>);

impl Hook for HundredEvents {
    fn create_event(&self, inner: &dyn Backend, device: DeviceIndex, flags: EventFlags) -> Result<Event> {
        let mut live = lock(&self.0);
        if *live >= 100 {
            return Err(error(ErrorKind::ResourceLimit));
        }
        let event = inner.create_event(device, flags)?;
        *live += 1;
        Ok(event)
    }

    unsafe fn destroy_event(&self, inner: &dyn Backend, event: Event) -> Result<()> {
        // SAFETY: rule 1 is the caller's promise.
        unsafe { inner.destroy_event(event)? };
        *lock(&self.0) -= 1;
        Ok(())
    }
}

/// Where each event was recorded last.
#[derive(Debug, Default)]
struct Records(Mutex<HashMap<Event, Stream>>);

impl Records {
    fn record(&self, inner: &dyn Backend, event: Event, stream: Stream) -> Result<()> {
        inner.record_event(event, stream)?;
        lock(&self.0).insert(event, stream);
        Ok(())
    }

    fn of(&self, event: Event) -> Option<Stream> {
        lock(&self.0).get(&event).copied()
    }
}

/// A hook that knows where events were recorded.
macro_rules! with_records {
    ($name:ident { $($methods:tt)* }) => {
        #[derive(Debug, Default)]
        struct $name(Records);

        impl Hook for $name {
            fn record_event(&self, inner: &dyn Backend, event: Event, stream: Stream) -> Result<()> {
                self.0.record(inner, event, stream)
            }
            $($methods)*
        }
    };
}

with_records!(NotReadyAtFirst {
    fn query_event(&self, inner: &dyn Backend, event: Event) -> Result<Readiness> {
        let readiness = inner.query_event(event)?;
        Ok(if self.0.of(event).is_some() { readiness } else { Readiness::NotReady })
    }
});

with_records!(UnrecordedIsError {
    fn synchronize_event(&self, inner: &dyn Backend, event: Event) -> Result<()> {
        self.0.of(event).ok_or_else(|| error(ErrorKind::InvalidValue))?;
        inner.synchronize_event(event)
    }
});

with_records!(AsksItsStream {
    fn query_event(&self, inner: &dyn Backend, event: Event) -> Result<Readiness> {
        let readiness = inner.query_event(event)?;
        self.0.of(event).map_or(Ok(readiness), |stream| inner.query_stream(stream))
    }
});

with_records!(WaitsForStream {
    fn synchronize_event(&self, inner: &dyn Backend, event: Event) -> Result<()> {
        inner.synchronize_event(event)?;
        self.0.of(event).map_or(Ok(()), |stream| inner.synchronize_stream(stream))
    }
});

#[derive(Debug, Default)]
struct RecordsOnce(Records);

impl Hook for RecordsOnce {
    fn record_event(&self, inner: &dyn Backend, event: Event, stream: Stream) -> Result<()> {
        if self.0.of(event).is_some() { Ok(()) } else { self.0.record(inner, event, stream) }
    }
}

#[derive(Debug, Default)]
struct AsksLastRecorded(Mutex<Option<Event>>);

impl Hook for AsksLastRecorded {
    fn record_event(&self, inner: &dyn Backend, event: Event, stream: Stream) -> Result<()> {
        inner.record_event(event, stream)?;
        *lock(&self.0) = Some(event);
        Ok(())
    }

    fn query_event(&self, inner: &dyn Backend, event: Event) -> Result<Readiness> {
        let own = inner.query_event(event)?;
        let last = *lock(&self.0);
        // One that was destroyed since is no answer.
        Ok(last.and_then(|last| inner.query_event(last).ok()).unwrap_or(own))
    }
}

/// A hook that changes the answer of query_event.
macro_rules! other_query {
    ($name:ident, $readiness:ident => $change:expr) => {
        hook! { $name {
            fn query_event(&self, inner: &dyn Backend, event: Event) -> Result<Readiness> {
                inner.query_event(event).map(|$readiness| $change)
            }
        } }
    };
}

other_query!(ReadyEarly, _readiness => Readiness::Ready);
other_query!(NeverReady, _readiness => Readiness::NotReady);

#[derive(Debug, Default)]
struct StickyNotReady(Sticky);

impl Hook for StickyNotReady {
    fn enter(&self, _: &'static str) -> Result<()> {
        self.0.strike()
    }

    fn query_event(&self, inner: &dyn Backend, event: Event) -> Result<Readiness> {
        let readiness = inner.query_event(event)?;
        if !readiness.is_ready() {
            self.0.leave();
        }
        Ok(readiness)
    }
}

/// A hook that does something else with some records.
macro_rules! other_record {
    ($name:ident, |$inner:ident, $event:ident, $stream:ident| $body:expr) => {
        hook! { $name {
            fn record_event(&self, $inner: &dyn Backend, $event: Event, $stream: Stream) -> Result<()> {
                $body
            }
        } }
    };
}

other_record!(KeepsFirstRecord, |inner, event, stream| {
    if inner.query_event(event)?.is_ready() { inner.record_event(event, stream) } else { Ok(()) }
});
other_record!(RecordsAnywhere, |inner, event, stream| {
    if event.device != stream.device { Ok(()) } else { inner.record_event(event, stream) }
});
other_record!(RefusedRecordResets, |inner, event, stream| {
    inner.record_event(event, stream).inspect_err(|_| {
        let _ = inner.record_event(event, inner.default_stream(event.device));
        let _ = inner.synchronize_event(event);
    })
});
other_record!(NoDefault, |inner, event, stream| {
    if stream.raw == 0 { inner.query_event(event).map(drop) } else { inner.record_event(event, stream) }
});

hook! { NeverWaits {
    fn synchronize_event(&self, inner: &dyn Backend, event: Event) -> Result<()> {
        inner.query_event(event).map(drop)
    }
} }

#[derive(Debug, Default)]
struct BlockingNeverWaits(Mutex<Vec<Event>>);

impl Hook for BlockingNeverWaits {
    fn create_event(&self, inner: &dyn Backend, device: DeviceIndex, flags: EventFlags) -> Result<Event> {
        let event = inner.create_event(device, flags)?;
        if flags.contains(EventFlags::BLOCKING_SYNC) {
            lock(&self.0).push(event);
        }
        Ok(event)
    }

    fn synchronize_event(&self, inner: &dyn Backend, event: Event) -> Result<()> {
        let is_blocking = lock(&self.0).contains(&event);
        if is_blocking { Ok(()) } else { inner.synchronize_event(event) }
    }
}

hook! { PendingStays {
    unsafe fn destroy_event(&self, inner: &dyn Backend, event: Event) -> Result<()> {
        if !inner.query_event(event)?.is_ready() { return Err(error(ErrorKind::InvalidValue)) }
        // SAFETY: rule 1 is the caller's promise.
        unsafe { inner.destroy_event(event) }
    }
} }

/// A hook that changes the time between events.
macro_rules! other_elapsed {
    ($name:ident, $elapsed:ident => $change:expr) => {
        hook! { $name {
            fn elapsed_ms(&self, inner: &dyn Backend, start: Event, end: Event) -> Result<f32> {
                let $elapsed = inner.elapsed_ms(start, end);
                $change
            }
        } }
    };
}

other_elapsed!(Seconds, elapsed => Ok(elapsed? / 1000.0));
other_elapsed!(Backwards, elapsed => Ok(-1e-3 - elapsed?));
other_elapsed!(NeverZero, elapsed => Ok(elapsed? + 0.5));
other_elapsed!(TimeWithoutTiming, elapsed => match elapsed {
    Err(error) if error.kind == ErrorKind::NotSupported => Ok(0.0),
    other => other,
});
