//! Backends that break rules of this area: errors, and the current device across calls.

mod current;

pub(crate) use current::MUTANTS as CURRENT_MUTANTS;

use crate::mutants::{Sticky, error, hook, mutants};
use backend_api::types::{DeviceIndex, DevicePtr, Event, Stream};
use backend_api::*;
use granule_conformance::interpose::Hook;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};

mutants! {
    AnyStream: "errors.any_stream", "streams' ids are not compared" => "errors.foreign_stream_is_not_queried",
    AnyEvent: "errors.any_event", "events' ids are not compared" => "errors.foreign_event_is_not_queried",
    RunsRefused: "errors.runs_refused",
        "a host function that was refused runs" => "errors.foreign_stream_runs_nothing",
    NoCall: "errors.no_call", "errors name no call" => "errors.name_the_call",
    NoDevice: "errors.no_device", "errors are about device 0" => "errors.name_the_device",
    NoDetail: "errors.no_detail", "errors have no detail" => "errors.say_something",
    NoNames: "errors.no_names", "no code has a name" => "errors.codes_have_names",
    NamesAll: "errors.names_all", "every code has a name" => "errors.unknown_codes",
    CodesChange: "errors.codes_change", "codes are others at every call" => "errors.are_repeatable",
    AlwaysOutOfMemory: "errors.always_out_of_memory",
        "every refused malloc is OutOfMemory" => "errors.out_of_memory_is_its_own",
    ClearEndsWork: "errors.clear_ends_work",
        "after clear_error a query says Ready" => "errors.clear_error_is_harmless",
    StickyMalloc: "errors.sticky_malloc",
        "a refused call leaves an error for the next" => "errors.leave_the_device_usable",
    StickyKind: "errors.sticky_kind",
        "a refusal has the kind of the one before" => "errors.do_not_need_clearing_between_kinds",
}

/// Forwards calls with their handles repaired.
macro_rules! repaired {
    ($name:ident, |$inner:ident, $stream:ident, $event:ident| $fixed_stream:expr, $fixed_event:expr) => {
        hook! { $name {
            fn query_stream(&self, $inner: &dyn Backend, $stream: Stream) -> Result<Readiness> {
                $inner.query_stream($fixed_stream)
            }
            fn synchronize_stream(&self, $inner: &dyn Backend, $stream: Stream) -> Result<()> {
                $inner.synchronize_stream($fixed_stream)
            }
            unsafe fn destroy_stream(&self, $inner: &dyn Backend, $stream: Stream) -> Result<()> {
                // SAFETY: rule 1 is the caller's promise.
                unsafe { $inner.destroy_stream($fixed_stream) }
            }
            unsafe fn copy_async(
                &self,
                $inner: &dyn Backend,
                dst: DevicePtr,
                src: DevicePtr,
                bytes: u64,
                kind: CopyKind,
                $stream: Stream,
            ) -> Result<()> {
                // SAFETY: rule 2 is the caller's promise.
                unsafe { $inner.copy_async(dst, src, bytes, kind, $fixed_stream) }
            }
            unsafe fn memset_async(
                &self,
                $inner: &dyn Backend,
                dst: DevicePtr,
                value: u8,
                bytes: u64,
                $stream: Stream,
            ) -> Result<()> {
                // SAFETY: rule 2 is the caller's promise.
                unsafe { $inner.memset_async(dst, value, bytes, $fixed_stream) }
            }
            fn launch_host_function(
                &self,
                $inner: &dyn Backend,
                $stream: Stream,
                function: HostFunction,
            ) -> Result<()> {
                $inner.launch_host_function($fixed_stream, function)
            }
            fn wait_event(&self, $inner: &dyn Backend, $stream: Stream, $event: Event) -> Result<()> {
                $inner.wait_event($fixed_stream, $fixed_event)
            }
            fn record_event(&self, $inner: &dyn Backend, $event: Event, $stream: Stream) -> Result<()> {
                $inner.record_event($fixed_event, $fixed_stream)
            }
            fn query_event(&self, $inner: &dyn Backend, $event: Event) -> Result<Readiness> {
                $inner.query_event($fixed_event)
            }
            fn synchronize_event(&self, $inner: &dyn Backend, $event: Event) -> Result<()> {
                $inner.synchronize_event($fixed_event)
            }
            unsafe fn destroy_event(&self, $inner: &dyn Backend, $event: Event) -> Result<()> {
                // SAFETY: rule 1 is the caller's promise.
                unsafe { $inner.destroy_event($fixed_event) }
            }
            fn elapsed_ms(&self, $inner: &dyn Backend, start: Event, end: Event) -> Result<f32> {
                let fix = |$event: Event| $fixed_event;
                $inner.elapsed_ms(fix(start), fix(end))
            }
        } }
    };
}

repaired!(AnyStream, |inner, stream, event| Stream { backend: inner.id(), ..stream }, event);
repaired!(AnyEvent, |inner, stream, event| stream, Event { backend: inner.id(), ..event });

hook! { RunsRefused {
    fn launch_host_function(
        &self,
        inner: &dyn Backend,
        stream: Stream,
        function: HostFunction,
    ) -> Result<()> {
        if stream.backend == inner.id() { return inner.launch_host_function(stream, function) }
        function();
        Err(error(ErrorKind::InvalidValue))
    }
} }

/// A hook that changes the errors of memory calls.
macro_rules! other_errors {
    ($name:ident, $error:ident => $change:expr) => {
        hook! { $name {
            fn malloc(&self, inner: &dyn Backend, device: DeviceIndex, bytes: u64) -> Result<DevicePtr> {
                inner.malloc(device, bytes).map_err(|$error| $change)
            }
            unsafe fn free(&self, inner: &dyn Backend, device: DeviceIndex, ptr: DevicePtr) -> Result<()> {
                // SAFETY: rule 3 is the caller's promise.
                unsafe { inner.free(device, ptr) }.map_err(|$error| $change)
            }
        } }
    };
}

other_errors!(NoCall, error => BackendError { call: "", ..error });
other_errors!(NoDevice, error => BackendError { device: DeviceIndex(0), ..error });
other_errors!(NoDetail, error => BackendError { detail: String::new(), ..error });
other_errors!(AlwaysOutOfMemory, error => BackendError { kind: ErrorKind::OutOfMemory, ..error });

hook! { NoNames {
    fn error_name(&self, _: &dyn Backend, _: i32) -> String { "unknown".into() }
} }

hook! { NamesAll {
    fn error_name(&self, _: &dyn Backend, code: i32) -> String { format!("error {code}") }
} }

#[derive(Debug, Default)]
struct CodesChange(AtomicI32);

impl Hook for CodesChange {
    fn malloc(&self, inner: &dyn Backend, device: DeviceIndex, bytes: u64) -> Result<DevicePtr> {
        let code = self.0.fetch_add(1, Ordering::Relaxed);
        inner.malloc(device, bytes).map_err(|error| BackendError { code, ..error })
    }
}

#[derive(Debug, Default)]
struct ClearEndsWork(AtomicBool);

impl Hook for ClearEndsWork {
    fn clear_error(&self, inner: &dyn Backend) {
        inner.clear_error();
        self.0.store(true, Ordering::SeqCst);
    }

    fn query_stream(&self, inner: &dyn Backend, stream: Stream) -> Result<Readiness> {
        let readiness = inner.query_stream(stream)?;
        Ok(if self.0.swap(false, Ordering::SeqCst) { Readiness::Ready } else { readiness })
    }
}

#[derive(Debug, Default)]
struct StickyMalloc(Sticky);

impl Hook for StickyMalloc {
    fn enter(&self, method: &'static str) -> Result<()> {
        // A second refusal is one anyway; what works otherwise shows it.
        if matches!(method, "Backend::create_stream" | "Backend::record_event") {
            self.0.strike()
        } else {
            Ok(())
        }
    }

    fn malloc(&self, inner: &dyn Backend, device: DeviceIndex, bytes: u64) -> Result<DevicePtr> {
        self.0.after(inner.malloc(device, bytes))
    }
}

/// 0: none yet; 1: `InvalidValue`; 2: `OutOfMemory`.
#[derive(Debug, Default)]
struct StickyKind(AtomicI32);

impl Hook for StickyKind {
    fn malloc(&self, inner: &dyn Backend, device: DeviceIndex, bytes: u64) -> Result<DevicePtr> {
        inner.malloc(device, bytes).map_err(|error| {
            let now = if error.is_out_of_memory() { 2 } else { 1 };
            let kind = match self.0.swap(now, Ordering::SeqCst) {
                1 => ErrorKind::InvalidValue,
                2 => ErrorKind::OutOfMemory,
                _ => error.kind,
            };
            BackendError { kind, ..error }
        })
    }
}
