//! Backends that break rules of how streams run.

use crate::mutants::{Seldom, Sticky, block, hook, lock, mutants};
use backend_api::types::{DeviceIndex, DevicePtr, Event, Stream};
use backend_api::*;
use granule_conformance::interpose::Hook;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::channel;
use std::thread::JoinHandle;
use std::time::Duration;

mutants! {
    AlwaysReady: "streams.always_ready", "query_stream says Ready" => "streams.busy_behind_work",
    NeverReady: "streams.never_ready", "query_stream says NotReady" => "streams.ready_after_work",
    StickyNotReady: "streams.sticky_not_ready",
        "NotReady leaves an error for the next call" => "streams.not_ready_leaves_no_error",
    QueriesBlock: "streams.queries_block", "queries wait for the work" => "streams.query_does_not_block",
    NeverWaits: "streams.never_waits", "synchronize_stream returns at once" => "streams.synchronize_waits",
    SeldomWaits: "streams.seldom_waits",
        "one synchronize_stream in fifty returns at once" => "streams.synchronize_waits_every_time",
    WaitsForDevice: "streams.waits_for_device",
        "synchronize_stream waits for the device" => "streams.synchronize_waits_for_itself_only",
    OneQueue: "streams.one_queue", "all streams are one queue" => "streams.run_beside_each_other",
    CallsBlock: "streams.calls_block",
        "calls that queue wait for the work before" => "streams.host_function_does_not_block",
    NoFunctions: "streams.no_functions", "host functions do not run" => "streams.host_function_runs",
    LosesFunctions: "streams.loses_functions",
        "every fifth host function does not run" => "streams.host_function_runs_once",
    SwapsFunctions: "streams.swaps_functions",
        "two host functions change places" => "streams.host_functions_in_order",
    FunctionsAtOnce: "streams.functions_at_once",
        "a host function runs beside the stream" => "streams.host_function_when_reached",
    NoneOnDefault: "streams.no_functions_on_default",
        "the default stream runs no host functions" => "streams.host_function_on_default",
    ForgetsFunctions: "streams.forgets_functions",
        "host functions are kept for ever" => "streams.host_function_is_dropped",
}

hook! { AlwaysReady {
    fn query_stream(&self, inner: &dyn Backend, stream: Stream) -> Result<Readiness> {
        inner.query_stream(stream).map(|_| Readiness::Ready)
    }
} }

#[derive(Debug, Default)]
struct SeldomWaits(Seldom);

impl Hook for SeldomWaits {
    fn synchronize_stream(&self, inner: &dyn Backend, stream: Stream) -> Result<()> {
        if self.0.strikes() { inner.query_stream(stream).map(drop) } else { inner.synchronize_stream(stream) }
    }
}

hook! { NeverReady {
    fn query_stream(&self, inner: &dyn Backend, stream: Stream) -> Result<Readiness> {
        inner.query_stream(stream).map(|_| Readiness::NotReady)
    }
} }

#[derive(Debug, Default)]
struct StickyNotReady(Sticky);

impl Hook for StickyNotReady {
    fn enter(&self, _: &'static str) -> Result<()> {
        self.0.strike()
    }

    fn query_stream(&self, inner: &dyn Backend, stream: Stream) -> Result<Readiness> {
        let readiness = inner.query_stream(stream)?;
        if !readiness.is_ready() {
            self.0.leave();
        }
        Ok(readiness)
    }
}

hook! { QueriesBlock {
    fn query_stream(&self, inner: &dyn Backend, stream: Stream) -> Result<Readiness> {
        block(|| inner.query_stream(stream));
        inner.query_stream(stream)
    }
    fn query_event(&self, inner: &dyn Backend, event: Event) -> Result<Readiness> {
        block(|| inner.query_event(event));
        inner.query_event(event)
    }
    unsafe fn destroy_event(&self, inner: &dyn Backend, event: Event) -> Result<()> {
        block(|| inner.query_event(event));
        // SAFETY: rule 1 is the caller's promise.
        unsafe { inner.destroy_event(event) }
    }
} }

hook! { CallsBlock {
    unsafe fn copy_async(
        &self,
        inner: &dyn Backend,
        dst: DevicePtr,
        src: DevicePtr,
        bytes: u64,
        kind: CopyKind,
        stream: Stream,
    ) -> Result<()> {
        block(|| inner.query_stream(stream));
        // SAFETY: rule 2 is the caller's promise.
        unsafe { inner.copy_async(dst, src, bytes, kind, stream) }
    }
    unsafe fn memset_async(
        &self,
        inner: &dyn Backend,
        dst: DevicePtr,
        value: u8,
        bytes: u64,
        stream: Stream,
    ) -> Result<()> {
        block(|| inner.query_stream(stream));
        // SAFETY: rule 2 is the caller's promise.
        unsafe { inner.memset_async(dst, value, bytes, stream) }
    }
    fn launch_host_function(
        &self,
        inner: &dyn Backend,
        stream: Stream,
        function: HostFunction,
    ) -> Result<()> {
        block(|| inner.query_stream(stream));
        inner.launch_host_function(stream, function)
    }
    fn record_event(&self, inner: &dyn Backend, event: Event, stream: Stream) -> Result<()> {
        block(|| inner.query_stream(stream));
        inner.record_event(event, stream)
    }
    fn wait_event(&self, inner: &dyn Backend, stream: Stream, event: Event) -> Result<()> {
        block(|| inner.query_event(event));
        inner.wait_event(stream, event)
    }
    unsafe fn destroy_stream(&self, inner: &dyn Backend, stream: Stream) -> Result<()> {
        block(|| inner.query_stream(stream));
        // SAFETY: rule 1 is the caller's promise.
        unsafe { inner.destroy_stream(stream) }
    }
} }

hook! { NeverWaits {
    fn synchronize_stream(&self, inner: &dyn Backend, stream: Stream) -> Result<()> {
        inner.query_stream(stream).map(drop)
    }
} }

hook! { WaitsForDevice {
    fn synchronize_stream(&self, inner: &dyn Backend, stream: Stream) -> Result<()> {
        inner.query_stream(stream)?;
        inner.synchronize_device(stream.device)
    }
} }

/// The one queue: device 0's default stream. Handles are checked first.
fn queue(inner: &dyn Backend, stream: Stream) -> Result<Stream> {
    inner.query_stream(stream)?;
    Ok(inner.default_stream(DeviceIndex(0)))
}

hook! { OneQueue {
    unsafe fn copy_async(
        &self,
        inner: &dyn Backend,
        dst: DevicePtr,
        src: DevicePtr,
        bytes: u64,
        kind: CopyKind,
        stream: Stream,
    ) -> Result<()> {
        let queue = queue(inner, stream)?;
        // SAFETY: rule 2: checks wait for the device before they free; what is in use is not freed here.
        unsafe { inner.copy_async(dst, src, bytes, kind, queue) }
    }
    unsafe fn memset_async(
        &self,
        inner: &dyn Backend,
        dst: DevicePtr,
        value: u8,
        bytes: u64,
        stream: Stream,
    ) -> Result<()> {
        let queue = queue(inner, stream)?;
        // SAFETY: rule 2: as above.
        unsafe { inner.memset_async(dst, value, bytes, queue) }
    }
    fn launch_host_function(
        &self,
        inner: &dyn Backend,
        stream: Stream,
        function: HostFunction,
    ) -> Result<()> {
        inner.launch_host_function(queue(inner, stream)?, function)
    }
    fn query_stream(&self, inner: &dyn Backend, stream: Stream) -> Result<Readiness> {
        inner.query_stream(queue(inner, stream)?)
    }
    fn synchronize_stream(&self, inner: &dyn Backend, stream: Stream) -> Result<()> {
        inner.synchronize_stream(queue(inner, stream)?)
    }
} }

/// A hook that does something else with host functions.
macro_rules! other_launch {
    ($name:ident, |$inner:ident, $stream:ident, $function:ident| $body:expr) => {
        hook! { $name {
            fn launch_host_function(
                &self,
                $inner: &dyn Backend,
                $stream: Stream,
                $function: HostFunction,
            ) -> Result<()> {
                $body
            }
        } }
    };
}

other_launch!(NoFunctions, |inner, stream, function| {
    drop(function);
    inner.query_stream(stream).map(drop)
});
other_launch!(NoneOnDefault, |inner, stream, function| {
    if stream.raw == 0 { Ok(()) } else { inner.launch_host_function(stream, function) }
});
other_launch!(ForgetsFunctions, |inner, stream, function| {
    inner.query_stream(stream)?;
    std::mem::forget(function);
    Ok(())
});

#[derive(Debug, Default)]
struct LosesFunctions(AtomicU32);

impl Hook for LosesFunctions {
    fn launch_host_function(
        &self,
        inner: &dyn Backend,
        stream: Stream,
        function: HostFunction,
    ) -> Result<()> {
        if self.0.fetch_add(1, Ordering::Relaxed) % 5 == 4 {
            return inner.query_stream(stream).map(drop);
        }
        inner.launch_host_function(stream, function)
    }
}

/// Holds a host function back until the next one, or until the stream or device is waited for.
#[derive(Default)]
struct SwapsFunctions(Mutex<Option<(Stream, HostFunction)>>);

impl std::fmt::Debug for SwapsFunctions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SwapsFunctions")
    }
}

impl SwapsFunctions {
    fn flush(&self, inner: &dyn Backend) -> Result<()> {
        let held = lock(&self.0).take();
        held.map_or(Ok(()), |(stream, function)| inner.launch_host_function(stream, function))
    }
}

impl Hook for SwapsFunctions {
    fn launch_host_function(
        &self,
        inner: &dyn Backend,
        stream: Stream,
        function: HostFunction,
    ) -> Result<()> {
        let is_second = lock(&self.0).as_ref().is_some_and(|held| held.0 == stream);
        if is_second {
            inner.launch_host_function(stream, function)?;
            return self.flush(inner);
        }
        self.flush(inner)?;
        inner.query_stream(stream)?;
        *lock(&self.0) = Some((stream, function));
        Ok(())
    }

    fn query_stream(&self, inner: &dyn Backend, stream: Stream) -> Result<Readiness> {
        self.flush(inner)?;
        inner.query_stream(stream)
    }

    fn synchronize_stream(&self, inner: &dyn Backend, stream: Stream) -> Result<()> {
        self.flush(inner)?;
        inner.synchronize_stream(stream)
    }

    fn synchronize_device(&self, inner: &dyn Backend, device: DeviceIndex) -> Result<()> {
        let _ = self.flush(inner);
        inner.synchronize_device(device)
    }
}

/// Runs host functions on threads of its own, without regard to their streams.
#[derive(Debug, Default)]
struct FunctionsAtOnce(Mutex<Vec<JoinHandle<()>>>);

impl FunctionsAtOnce {
    /// What the functions use may be freed after the stream or device was waited for.
    fn join(&self) {
        let running = std::mem::take(&mut *lock(&self.0));
        for thread in running {
            let _ = thread.join();
        }
    }
}

impl Hook for FunctionsAtOnce {
    fn launch_host_function(
        &self,
        inner: &dyn Backend,
        stream: Stream,
        function: HostFunction,
    ) -> Result<()> {
        inner.query_stream(stream)?;
        let (done, is_done) = channel();
        let run = move || {
            function();
            let _ = done.send(());
        };
        lock(&self.0).push(std::thread::spawn(run));
        // Those that do not wait for anything run before this returns.
        let _ = is_done.recv_timeout(Duration::from_millis(5));
        Ok(())
    }

    fn synchronize_stream(&self, inner: &dyn Backend, stream: Stream) -> Result<()> {
        self.join();
        inner.synchronize_stream(stream)
    }

    fn synchronize_device(&self, inner: &dyn Backend, device: DeviceIndex) -> Result<()> {
        self.join();
        inner.synchronize_device(device)
    }
}
