//! Backends that break rules of this area: what waits for what.

use crate::mutants::{Seldom, block, error, hook, lock, mutants};
use backend_api::types::{DeviceIndex, DevicePtr, Event, Stream};
use backend_api::*;
use granule_conformance::interpose::Hook;
use std::collections::HashMap;
use std::sync::Mutex;
use std::time::Duration;

mutants! {
    IgnoresWaits: "ordering.ignores_waits", "wait_event does nothing" => "ordering.wait_holds_later_work",
    LosesWaiters: "ordering.loses_waiters", "fills behind a wait are lost" => "ordering.wait_lets_go",
    WaitsBlock: "ordering.waits_block",
        "wait_event waits for the event itself" => "ordering.wait_does_not_block",
    HoldsEarlierWork: "ordering.holds_earlier_work",
        "a wait holds work queued before it too" => "ordering.wait_spares_earlier_work",
    HoldsAllStreams: "ordering.holds_all_streams",
        "a wait holds all streams of the device" => "ordering.wait_spares_other_streams",
    UnrecordedHolds: "ordering.unrecorded_holds",
        "an event that was never recorded holds for a while" => "ordering.wait_for_unrecorded",
    WaitsForStream: "ordering.waits_for_stream",
        "a wait is for the whole stream of the event" => "ordering.wait_for_passed",
    NotItsOwn: "ordering.not_its_own",
        "a stream cannot wait for its own event" => "ordering.wait_for_own_event",
    LateBinding: "ordering.late_binding",
        "a wait follows the event, as in OpenReg's library" => "ordering.later_record_does_not_hold",
    IgnoresOtherDevices: "ordering.ignores_other_devices",
        "waits for another device's events do nothing" => "ordering.wait_across_devices",
    DefaultNeverWaits: "ordering.default_never_waits",
        "waits of the default stream do nothing" => "ordering.wait_on_default_stream",
    SeldomHolds: "ordering.seldom_holds",
        "one wait_event in fifty does nothing" => "ordering.wait_holds_every_time",
    DeviceSeldomWaits: "ordering.device_seldom_waits",
        "one synchronize_device in fifty returns at once" => "ordering.device_waits_every_time",
    OneWaitOnly: "ordering.one_wait_only", "a second wait does nothing" => "ordering.wait_for_two",
    DeviceNeverWaits: "ordering.device_never_waits",
        "synchronize_device returns at once" => "ordering.device_waits_for_all_streams",
    DeviceForgetsDefault: "ordering.device_forgets_default",
        "synchronize_device waits for created streams only" => "ordering.device_waits_for_default_stream",
    DeviceForgetsDestroyed: "ordering.device_forgets_destroyed",
        "synchronize_device waits for streams that live only"
            => "ordering.device_waits_for_destroyed_streams",
    AllDevices: "ordering.all_devices",
        "synchronize_device waits for all devices" => "ordering.device_waits_for_itself_only",
    CurrentDevice: "ordering.current_device",
        "synchronize_device waits for the current device" => "ordering.second_device_waits",
    NeverThroughWaits: "ordering.never_through_waits",
        "synchronize_stream does not wait behind a wait" => "ordering.synchronize_behind_wait",
}

#[derive(Debug, Default)]
struct SeldomHolds(Seldom);

impl Hook for SeldomHolds {
    fn wait_event(&self, inner: &dyn Backend, stream: Stream, event: Event) -> Result<()> {
        if self.0.strikes() { inner.query_event(event).map(drop) } else { inner.wait_event(stream, event) }
    }
}

#[derive(Debug, Default)]
struct DeviceSeldomWaits(Seldom);

impl Hook for DeviceSeldomWaits {
    fn synchronize_device(&self, inner: &dyn Backend, device: DeviceIndex) -> Result<()> {
        if self.0.strikes() { inner.memory_info(device).map(drop) } else { inner.synchronize_device(device) }
    }
}

/// A hook that does something else with some waits.
macro_rules! other_wait {
    ($name:ident, |$inner:ident, $stream:ident, $event:ident| $body:expr) => {
        hook! { $name {
            fn wait_event(&self, $inner: &dyn Backend, $stream: Stream, $event: Event) -> Result<()> {
                $inner.query_stream($stream)?;
                $inner.query_event($event)?;
                $body
            }
        } }
    };
}

other_wait!(IgnoresWaits, |inner, stream, event| Ok(()));
other_wait!(IgnoresOtherDevices, |inner, stream, event| {
    if stream.device == event.device { inner.wait_event(stream, event) } else { Ok(()) }
});
other_wait!(WaitsBlock, |inner, stream, event| {
    block(|| inner.query_event(event));
    inner.wait_event(stream, event)
});
other_wait!(DefaultNeverWaits, |inner, stream, event| {
    if stream.raw == 0 { Ok(()) } else { inner.wait_event(stream, event) }
});

/// Streams and the event that each waits for.
type Waiting = Mutex<HashMap<Stream, Event>>;

#[derive(Debug, Default)]
struct LosesWaiters(Waiting);

impl Hook for LosesWaiters {
    fn wait_event(&self, inner: &dyn Backend, stream: Stream, event: Event) -> Result<()> {
        inner.wait_event(stream, event)?;
        lock(&self.0).insert(stream, event);
        Ok(())
    }

    unsafe fn memset_async(
        &self,
        inner: &dyn Backend,
        dst: DevicePtr,
        value: u8,
        bytes: u64,
        stream: Stream,
    ) -> Result<()> {
        if lock(&self.0).contains_key(&stream) {
            return Ok(());
        }
        // SAFETY: rule 2 is the caller's promise.
        unsafe { inner.memset_async(dst, value, bytes, stream) }
    }
}

#[derive(Debug, Default)]
struct HoldsEarlierWork {
    waiting: Waiting,
    records: Mutex<HashMap<Event, Stream>>,
}

impl Hook for HoldsEarlierWork {
    fn wait_event(&self, inner: &dyn Backend, stream: Stream, event: Event) -> Result<()> {
        inner.wait_event(stream, event)?;
        lock(&self.waiting).insert(stream, event);
        Ok(())
    }

    fn record_event(&self, inner: &dyn Backend, event: Event, stream: Stream) -> Result<()> {
        inner.record_event(event, stream)?;
        lock(&self.records).insert(event, stream);
        Ok(())
    }

    fn query_event(&self, inner: &dyn Backend, event: Event) -> Result<Readiness> {
        let readiness = inner.query_event(event)?;
        let stream = lock(&self.records).get(&event).copied();
        let awaited = stream.and_then(|stream| lock(&self.waiting).get(&stream).copied());
        // An awaited event that was destroyed since holds nothing.
        Ok(awaited.and_then(|awaited| inner.query_event(awaited).ok()).unwrap_or(readiness))
    }
}

/// The created streams that live.
#[derive(Debug, Default)]
struct HoldsAllStreams(Mutex<Vec<Stream>>);

impl Hook for HoldsAllStreams {
    fn create_stream(&self, inner: &dyn Backend, device: DeviceIndex, priority: i32) -> Result<Stream> {
        let stream = inner.create_stream(device, priority)?;
        lock(&self.0).push(stream);
        Ok(stream)
    }

    unsafe fn destroy_stream(&self, inner: &dyn Backend, stream: Stream) -> Result<()> {
        lock(&self.0).retain(|other| *other != stream);
        // SAFETY: rule 1 is the caller's promise.
        unsafe { inner.destroy_stream(stream) }
    }

    fn wait_event(&self, inner: &dyn Backend, stream: Stream, event: Event) -> Result<()> {
        inner.wait_event(stream, event)?;
        for other in lock(&self.0).iter().filter(|other| other.device == stream.device) {
            inner.wait_event(*other, event)?;
        }
        Ok(())
    }
}

/// Where each event was recorded last.
type Records = Mutex<HashMap<Event, Stream>>;

fn record(records: &Records, inner: &dyn Backend, event: Event, stream: Stream) -> Result<()> {
    inner.record_event(event, stream)?;
    lock(records).insert(event, stream);
    Ok(())
}

#[derive(Debug, Default)]
struct UnrecordedHolds(Records);

impl Hook for UnrecordedHolds {
    fn record_event(&self, inner: &dyn Backend, event: Event, stream: Stream) -> Result<()> {
        record(&self.0, inner, event, stream)
    }

    fn wait_event(&self, inner: &dyn Backend, stream: Stream, event: Event) -> Result<()> {
        inner.wait_event(stream, event)?;
        if lock(&self.0).contains_key(&event) {
            return Ok(());
        }
        let pause = || std::thread::sleep(Duration::from_millis(500));
        inner.launch_host_function(stream, Box::new(pause))
    }
}

#[derive(Debug, Default)]
struct WaitsForStream(Records);

impl Hook for WaitsForStream {
    fn record_event(&self, inner: &dyn Backend, event: Event, stream: Stream) -> Result<()> {
        record(&self.0, inner, event, stream)
    }

    fn wait_event(&self, inner: &dyn Backend, stream: Stream, event: Event) -> Result<()> {
        inner.wait_event(stream, event)?;
        let source = lock(&self.0).get(&event).copied();
        let Some(source) = source.filter(|source| inner.query_stream(*source).is_ok()) else { return Ok(()) };
        let now = inner.create_event(source.device, EventFlags::empty())?;
        inner.record_event(now, source)?;
        inner.wait_event(stream, now)?;
        // SAFETY: rule 1: made here, destroyed once; the wait on it still holds.
        unsafe { inner.destroy_event(now) }
    }
}

#[derive(Debug, Default)]
struct NotItsOwn(Records);

impl Hook for NotItsOwn {
    fn record_event(&self, inner: &dyn Backend, event: Event, stream: Stream) -> Result<()> {
        record(&self.0, inner, event, stream)
    }

    fn wait_event(&self, inner: &dyn Backend, stream: Stream, event: Event) -> Result<()> {
        if lock(&self.0).get(&event) == Some(&stream) {
            return Err(error(ErrorKind::InvalidValue));
        }
        inner.wait_event(stream, event)
    }
}

#[derive(Debug, Default)]
struct LateBinding(Waiting);

impl Hook for LateBinding {
    fn wait_event(&self, inner: &dyn Backend, stream: Stream, event: Event) -> Result<()> {
        inner.wait_event(stream, event)?;
        lock(&self.0).insert(stream, event);
        Ok(())
    }

    fn record_event(&self, inner: &dyn Backend, event: Event, stream: Stream) -> Result<()> {
        inner.record_event(event, stream)?;
        let waiting = lock(&self.0);
        for (waiter, _) in waiting.iter().filter(|(waiter, awaited)| **awaited == event && **waiter != stream)
        {
            // A stream that was destroyed since does not wait.
            let _ = inner.wait_event(*waiter, event);
        }
        Ok(())
    }
}

#[derive(Debug, Default)]
struct OneWaitOnly(Waiting);

impl Hook for OneWaitOnly {
    fn wait_event(&self, inner: &dyn Backend, stream: Stream, event: Event) -> Result<()> {
        inner.query_event(event)?;
        if lock(&self.0).insert(stream, event).is_some() { Ok(()) } else { inner.wait_event(stream, event) }
    }

    fn query_stream(&self, inner: &dyn Backend, stream: Stream) -> Result<Readiness> {
        lock(&self.0).remove(&stream);
        inner.query_stream(stream)
    }
}

#[derive(Debug, Default)]
struct NeverThroughWaits(Waiting);

impl Hook for NeverThroughWaits {
    fn wait_event(&self, inner: &dyn Backend, stream: Stream, event: Event) -> Result<()> {
        inner.wait_event(stream, event)?;
        lock(&self.0).insert(stream, event);
        Ok(())
    }

    fn synchronize_stream(&self, inner: &dyn Backend, stream: Stream) -> Result<()> {
        if lock(&self.0).contains_key(&stream) { Ok(()) } else { inner.synchronize_stream(stream) }
    }
}

hook! { DeviceNeverWaits {
    fn synchronize_device(&self, inner: &dyn Backend, device: DeviceIndex) -> Result<()> {
        inner.has_primary_context(device).map(drop)
    }
} }

/// Waits for the streams it knows, one after the other.
fn wait_for(inner: &dyn Backend, streams: &[Stream], device: DeviceIndex) -> Result<()> {
    inner.has_primary_context(device)?;
    streams.iter().filter(|stream| stream.device == device).try_for_each(|&s| inner.synchronize_stream(s))
}

#[derive(Debug, Default)]
struct DeviceForgetsDefault(HoldsAllStreams);

impl Hook for DeviceForgetsDefault {
    fn create_stream(&self, inner: &dyn Backend, device: DeviceIndex, priority: i32) -> Result<Stream> {
        self.0.create_stream(inner, device, priority)
    }

    unsafe fn destroy_stream(&self, inner: &dyn Backend, stream: Stream) -> Result<()> {
        // SAFETY: rule 1 is the caller's promise.
        unsafe { self.0.destroy_stream(inner, stream) }
    }

    fn synchronize_device(&self, inner: &dyn Backend, device: DeviceIndex) -> Result<()> {
        let streams = lock(&self.0.0).clone();
        wait_for(inner, &streams, device)
    }
}

#[derive(Debug, Default)]
struct DeviceForgetsDestroyed(HoldsAllStreams);

impl Hook for DeviceForgetsDestroyed {
    fn create_stream(&self, inner: &dyn Backend, device: DeviceIndex, priority: i32) -> Result<Stream> {
        self.0.create_stream(inner, device, priority)
    }

    unsafe fn destroy_stream(&self, inner: &dyn Backend, stream: Stream) -> Result<()> {
        // SAFETY: rule 1 is the caller's promise.
        unsafe { self.0.destroy_stream(inner, stream) }
    }

    fn synchronize_device(&self, inner: &dyn Backend, device: DeviceIndex) -> Result<()> {
        let mut streams = lock(&self.0.0).clone();
        streams.push(inner.default_stream(device));
        wait_for(inner, &streams, device)
    }
}

hook! { AllDevices {
    fn synchronize_device(&self, inner: &dyn Backend, device: DeviceIndex) -> Result<()> {
        inner.synchronize_device(device)?;
        (0..inner.device_count()?).try_for_each(|other| inner.synchronize_device(DeviceIndex(other)))
    }
} }

hook! { CurrentDevice {
    fn synchronize_device(&self, inner: &dyn Backend, device: DeviceIndex) -> Result<()> {
        inner.has_primary_context(device)?;
        inner.synchronize_device(inner.current_device()?)
    }
} }
