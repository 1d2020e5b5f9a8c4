//! Backends that break rules of this area: streams.

mod running;

pub(crate) use running::MUTANTS as RUNNING_MUTANTS;

use crate::mutants::{error, hook, lock, mutants};
use backend_api::types::{BackendId, DeviceIndex, DevicePtr, Stream};
use backend_api::*;
use granule_conformance::interpose::Hook;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

mutants! {
    OfFirstDevice: "streams.of_first_device", "handles say device 0" => "streams.handle_names_its_device",
    OfNoBackend: "streams.of_no_backend", "handles carry no id" => "streams.handle_names_its_backend",
    AlwaysDefault: "streams.always_default",
        "create_stream gives the default stream" => "streams.handle_is_not_the_default",
    SameStream: "streams.same_stream", "a stream that lives is given again" => "streams.handles_differ",
    SixteenStreams: "streams.sixteen", "no more than 16 streams live" => "streams.many_at_once",
    BusyAtFirst: "streams.busy_at_first", "a new stream has work" => "streams.ready_at_first",
    SynchronizesOnce: "streams.synchronizes_once",
        "an idle stream cannot be waited for again" => "streams.synchronize_idle",
    DefaultHasNumber: "streams.default_has_number",
        "the default stream has a handle" => "streams.default_is_the_null_handle",
    NoDefault: "streams.no_default", "the default stream cannot be asked" => "streams.default_exists",
    DefaultFillsNothing: "streams.default_fills_nothing",
        "the default stream fills nothing" => "streams.default_runs_work",
    InvertedRange: "streams.inverted_range",
        "priorities are inverted, as in OpenReg's library" => "streams.priorities_in_order",
    RangeChanges: "streams.range_changes",
        "the priorities are others at every call" => "streams.priorities_are_stable",
    NormalOnly: "streams.normal_only", "urgent priorities are refused" => "streams.each_priority_works",
    RefusesOutOfRange: "streams.refuses_out_of_range",
        "priorities out of range are refused" => "streams.priorities_are_clamped",
    DropsLastFill: "streams.destroy_drops_fill",
        "a destroyed stream drops the work queued last" => "streams.destroyed_work_runs",
    DropsFunctions: "streams.destroy_drops_functions",
        "a destroyed stream runs no host functions" => "streams.destroyed_work_runs_in_order",
    DestroysAnother: "streams.destroys_another",
        "destroy_stream destroys the stream made last" => "streams.destroy_leaves_others",
    SometimesNot: "streams.destroy_fails_at_times",
        "every 150th destroy_stream is refused" => "streams.create_and_destroy_many",
    OnlyOnCurrent: "streams.only_on_current",
        "streams of a device that is not current fill nothing" => "streams.runs_on_its_device",
    TakesUnknownDevice: "streams.takes_unknown_device",
        "an unknown device gets a stream of device 0" => "streams.create_unknown_device_is_refused",
    RangeOfAnything: "streams.range_of_anything",
        "an unknown device has priorities" => "streams.priority_unknown_device_is_refused",
}

/// A hook that makes other streams.
macro_rules! other_create {
    ($name:ident, |$inner:ident, $device:ident, $priority:ident| $body:expr) => {
        hook! { $name {
            fn create_stream(
                &self,
                $inner: &dyn Backend,
                $device: DeviceIndex,
                $priority: i32,
            ) -> Result<Stream> {
                $body
            }
        } }
    };
}

other_create!(OfFirstDevice, |inner, device, priority| {
    Ok(Stream { device: DeviceIndex(0), ..inner.create_stream(device, priority)? })
});
other_create!(OfNoBackend, |inner, device, priority| {
    Ok(Stream { backend: BackendId(0), ..inner.create_stream(device, priority)? })
});
other_create!(AlwaysDefault, |inner, device, _priority| {
    inner.has_primary_context(device)?;
    Ok(inner.default_stream(device))
});
other_create!(BusyAtFirst, |inner, device, priority| {
    let stream = inner.create_stream(device, priority)?;
    inner.launch_host_function(stream, Box::new(|| std::thread::sleep(Duration::from_millis(5))))?;
    Ok(stream)
});
other_create!(NormalOnly, |inner, device, priority| {
    if priority < 0 { Err(error(ErrorKind::InvalidValue)) } else { inner.create_stream(device, priority) }
});
other_create!(RefusesOutOfRange, |inner, device, priority| {
    let range = inner.priority_range(device)?;
    if !(range.greatest..=range.least).contains(&priority) {
        return Err(error(ErrorKind::InvalidValue));
    }
    inner.create_stream(device, priority)
});
other_create!(TakesUnknownDevice, |inner, device, priority| {
    inner.create_stream(device, priority).or_else(|_| inner.create_stream(DeviceIndex(0), priority))
});

#[derive(Debug, Default)]
struct SameStream(Mutex<Option<Stream>>);

impl Hook for SameStream {
    fn create_stream(&self, inner: &dyn Backend, device: DeviceIndex, priority: i32) -> Result<Stream> {
        let mut last = lock(&self.0);
        if let Some(stream) = last.filter(|stream| stream.device == device) {
            return Ok(stream);
        }
        let stream = inner.create_stream(device, priority)?;
        *last = Some(stream);
        Ok(stream)
    }

    unsafe fn destroy_stream(&self, inner: &dyn Backend, stream: Stream) -> Result<()> {
        lock(&self.0).take_if(|last| *last == stream);
        // SAFETY: rule 1 is the caller's promise; a second destruction is answered.
        unsafe { inner.destroy_stream(stream) }
    }
}

#[derive(Debug, Default)]
struct SixteenStreams(Mutex<u32>);

impl Hook for SixteenStreams {
    fn create_stream(&self, inner: &dyn Backend, device: DeviceIndex, priority: i32) -> Result<Stream> {
        let mut live = lock(&self.0);
        if *live >= 16 {
            return Err(error(ErrorKind::ResourceLimit));
        }
        let stream = inner.create_stream(device, priority)?;
        *live += 1;
        Ok(stream)
    }

    unsafe fn destroy_stream(&self, inner: &dyn Backend, stream: Stream) -> Result<()> {
        // SAFETY: rule 1 is the caller's promise.
        unsafe { inner.destroy_stream(stream)? };
        *lock(&self.0) -= 1;
        Ok(())
    }
}

#[derive(Debug, Default)]
struct SynchronizesOnce(Mutex<Option<Stream>>);

impl Hook for SynchronizesOnce {
    fn enter(&self, method: &'static str) -> Result<()> {
        if method != "Backend::synchronize_stream" {
            *lock(&self.0) = None;
        }
        Ok(())
    }

    fn synchronize_stream(&self, inner: &dyn Backend, stream: Stream) -> Result<()> {
        if lock(&self.0).replace(stream) == Some(stream) {
            return Err(error(ErrorKind::InvalidValue));
        }
        inner.synchronize_stream(stream)
    }
}

hook! { DefaultHasNumber {
    fn default_stream(&self, inner: &dyn Backend, device: DeviceIndex) -> Stream {
        // The simulator's own number of it.
        Stream { raw: u64::from(device.0) + 1, ..inner.default_stream(device) }
    }
} }

hook! { NoDefault {
    fn query_stream(&self, inner: &dyn Backend, stream: Stream) -> Result<Readiness> {
        if stream.raw == 0 { return Err(error(ErrorKind::InvalidValue)) }
        inner.query_stream(stream)
    }
} }

/// A hook that skips some fills.
macro_rules! skips_fill {
    ($name:ident, |$inner:ident, $stream:ident| $skip:expr) => {
        hook! { $name {
            unsafe fn memset_async(
                &self,
                $inner: &dyn Backend,
                dst: DevicePtr,
                value: u8,
                bytes: u64,
                $stream: Stream,
            ) -> Result<()> {
                if $skip {
                    return Ok(());
                }
                // SAFETY: rule 2 is the caller's promise.
                unsafe { $inner.memset_async(dst, value, bytes, $stream) }
            }
        } }
    };
}

skips_fill!(DefaultFillsNothing, |inner, stream| stream.raw == 0);
skips_fill!(OnlyOnCurrent, |inner, stream| inner.current_device()? != stream.device);

hook! { InvertedRange {
    fn priority_range(&self, inner: &dyn Backend, device: DeviceIndex) -> Result<PriorityRange> {
        let range = inner.priority_range(device)?;
        Ok(PriorityRange { least: range.greatest, greatest: range.least })
    }
} }

hook! { RangeOfAnything {
    fn priority_range(&self, inner: &dyn Backend, _: DeviceIndex) -> Result<PriorityRange> {
        inner.priority_range(DeviceIndex(0))
    }
} }

#[derive(Debug, Default)]
struct RangeChanges(AtomicU32);

impl Hook for RangeChanges {
    fn priority_range(&self, inner: &dyn Backend, device: DeviceIndex) -> Result<PriorityRange> {
        let range = inner.priority_range(device)?;
        Ok(PriorityRange { greatest: -1 - (self.0.fetch_add(1, Ordering::Relaxed) % 2) as i32, ..range })
    }
}

/// Holds a fill back until its stream or device is asked for; destroying the stream forgets it.
#[derive(Debug, Default)]
struct DropsLastFill(Mutex<Option<(DevicePtr, u8, u64, Stream)>>);

impl DropsLastFill {
    fn flush(&self, inner: &dyn Backend) {
        if let Some((dst, value, bytes, stream)) = lock(&self.0).take() {
            // SAFETY: rule 2: checks free memory only after they waited for the stream or device.
            let _ = unsafe { inner.memset_async(dst, value, bytes, stream) };
        }
    }
}

impl Hook for DropsLastFill {
    unsafe fn memset_async(
        &self,
        inner: &dyn Backend,
        dst: DevicePtr,
        value: u8,
        bytes: u64,
        stream: Stream,
    ) -> Result<()> {
        self.flush(inner);
        if bytes == 0 || stream.backend != inner.id() {
            // SAFETY: rule 2 is the caller's promise.
            return unsafe { inner.memset_async(dst, value, bytes, stream) };
        }
        *lock(&self.0) = Some((dst, value, bytes, stream));
        Ok(())
    }

    unsafe fn copy_async(
        &self,
        inner: &dyn Backend,
        dst: DevicePtr,
        src: DevicePtr,
        bytes: u64,
        kind: CopyKind,
        stream: Stream,
    ) -> Result<()> {
        self.flush(inner);
        // SAFETY: rule 2 is the caller's promise.
        unsafe { inner.copy_async(dst, src, bytes, kind, stream) }
    }

    fn query_stream(&self, inner: &dyn Backend, stream: Stream) -> Result<Readiness> {
        self.flush(inner);
        inner.query_stream(stream)
    }

    fn synchronize_stream(&self, inner: &dyn Backend, stream: Stream) -> Result<()> {
        self.flush(inner);
        inner.synchronize_stream(stream)
    }

    fn synchronize_device(&self, inner: &dyn Backend, device: DeviceIndex) -> Result<()> {
        self.flush(inner);
        inner.synchronize_device(device)
    }

    unsafe fn destroy_stream(&self, inner: &dyn Backend, stream: Stream) -> Result<()> {
        lock(&self.0).take_if(|held| held.3 == stream);
        // SAFETY: rule 1 is the caller's promise.
        unsafe { inner.destroy_stream(stream) }
    }
}

#[derive(Debug, Default)]
struct DropsFunctions(Arc<Mutex<BTreeSet<Stream>>>);

impl Hook for DropsFunctions {
    fn launch_host_function(
        &self,
        inner: &dyn Backend,
        stream: Stream,
        function: HostFunction,
    ) -> Result<()> {
        let destroyed = Arc::clone(&self.0);
        let unless = move || {
            let is_gone = lock(&destroyed).contains(&stream);
            if !is_gone {
                function();
            }
        };
        inner.launch_host_function(stream, Box::new(unless))
    }

    unsafe fn destroy_stream(&self, inner: &dyn Backend, stream: Stream) -> Result<()> {
        lock(&self.0).insert(stream);
        // SAFETY: rule 1 is the caller's promise.
        unsafe { inner.destroy_stream(stream) }
    }
}

#[derive(Debug, Default)]
struct DestroysAnother(Mutex<Vec<Stream>>);

impl Hook for DestroysAnother {
    fn create_stream(&self, inner: &dyn Backend, device: DeviceIndex, priority: i32) -> Result<Stream> {
        let stream = inner.create_stream(device, priority)?;
        lock(&self.0).push(stream);
        Ok(stream)
    }

    unsafe fn destroy_stream(&self, inner: &dyn Backend, stream: Stream) -> Result<()> {
        let last = lock(&self.0).pop().unwrap_or(stream);
        // SAFETY: rule 1: it lives, as nothing else destroys streams.
        unsafe { inner.destroy_stream(last) }
    }
}

#[derive(Debug, Default)]
struct SometimesNot(AtomicU32);

impl Hook for SometimesNot {
    unsafe fn destroy_stream(&self, inner: &dyn Backend, stream: Stream) -> Result<()> {
        // SAFETY: rule 1 is the caller's promise.
        unsafe { inner.destroy_stream(stream)? };
        let is_150th = self.0.fetch_add(1, Ordering::Relaxed) % 150 == 149;
        if is_150th { Err(error(ErrorKind::Other)) } else { Ok(()) }
    }
}
