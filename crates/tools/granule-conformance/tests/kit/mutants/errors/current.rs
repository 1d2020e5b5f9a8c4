//! Backends that leave another device current (rule 5).

use crate::mutants::{hook, mutants};
use backend_api::types::{DeviceIndex, DevicePtr, Event, Stream};
use backend_api::*;

mutants! {
    MemoryMoves: "errors.memory_moves_current",
        "memory calls leave their device current" => "errors.current_device_after_memory_calls",
    QuestionsMove: "errors.questions_move_current",
        "calls that ask leave their device current" => "errors.current_device_after_questions",
    CopiesMove: "errors.copies_move_current",
        "copies leave their device current" => "errors.current_device_after_copies",
    StreamsMove: "errors.streams_move_current",
        "stream calls leave their device current" => "errors.current_device_after_stream_calls",
    EventsMove: "errors.events_move_current",
        "event calls leave their device current" => "errors.current_device_after_event_calls",
    HostMemoryMoves: "errors.host_memory_moves_current",
        "page-locked memory leaves device 0 current" => "errors.current_device_after_host_memory",
    WaitsMove: "errors.waits_move_current",
        "calls that wait leave their device current" => "errors.current_device_after_synchronize",
    RefusedMallocMoves: "errors.refused_malloc_moves_current",
        "a refused malloc leaves its device current" => "errors.current_device_after_refused_malloc",
    RefusedFreeMoves: "errors.refused_free_moves_current",
        "a refused free leaves its device current" => "errors.current_device_after_refused_free",
    RefusedCopyMoves: "errors.refused_copy_moves_current",
        "a refused copy leaves its device current" => "errors.current_device_after_refused_copy",
    UnknownDeviceMoves: "errors.unknown_device_moves_current",
        "an unknown device leaves device 0 current" => "errors.current_device_after_unknown_device",
    UnknownHandleMoves: "errors.unknown_handle_moves_current",
        "a refused handle leaves its device current" => "errors.current_device_after_unknown_handle",
}

/// Forgets to put the device back.
fn moved<T>(inner: &dyn Backend, device: DeviceIndex, answer: Result<T>) -> Result<T> {
    if inner.set_device(device).is_err() {
        inner.set_device(DeviceIndex(0))?;
    }
    answer
}

/// Forgets it where the call failed.
fn moved_on_error<T>(inner: &dyn Backend, device: DeviceIndex, answer: Result<T>) -> Result<T> {
    if answer.is_ok() { answer } else { moved(inner, device, answer) }
}

hook! { MemoryMoves {
    fn malloc(&self, inner: &dyn Backend, device: DeviceIndex, bytes: u64) -> Result<DevicePtr> {
        moved(inner, device, inner.malloc(device, bytes))
    }
} }

hook! { QuestionsMove {
    fn memory_info(&self, inner: &dyn Backend, device: DeviceIndex) -> Result<MemoryInfo> {
        moved(inner, device, inner.memory_info(device))
    }
} }

hook! { CopiesMove {
    unsafe fn memset_async(
        &self,
        inner: &dyn Backend,
        dst: DevicePtr,
        value: u8,
        bytes: u64,
        stream: Stream,
    ) -> Result<()> {
        // SAFETY: rule 2 is the caller's promise.
        moved(inner, stream.device, unsafe { inner.memset_async(dst, value, bytes, stream) })
    }
} }

hook! { StreamsMove {
    fn launch_host_function(
        &self,
        inner: &dyn Backend,
        stream: Stream,
        function: HostFunction,
    ) -> Result<()> {
        moved(inner, stream.device, inner.launch_host_function(stream, function))
    }
} }

hook! { EventsMove {
    fn record_event(&self, inner: &dyn Backend, event: Event, stream: Stream) -> Result<()> {
        moved(inner, stream.device, inner.record_event(event, stream))
    }
} }

hook! { HostMemoryMoves {
    fn pinned_host_family<'a>(
        &self,
        inner: &'a dyn Backend,
    ) -> std::result::Result<&'a dyn PinnedHost, Unsupported> {
        let pinned = inner.pinned_host()?;
        let moved = moved(inner, DeviceIndex(0), Ok(pinned));
        Ok(moved.unwrap_or(pinned))
    }
} }

hook! { WaitsMove {
    fn synchronize_stream(&self, inner: &dyn Backend, stream: Stream) -> Result<()> {
        moved(inner, stream.device, inner.synchronize_stream(stream))
    }
} }

hook! { RefusedMallocMoves {
    fn malloc(&self, inner: &dyn Backend, device: DeviceIndex, bytes: u64) -> Result<DevicePtr> {
        moved_on_error(inner, device, inner.malloc(device, bytes))
    }
} }

hook! { RefusedFreeMoves {
    unsafe fn free(&self, inner: &dyn Backend, device: DeviceIndex, ptr: DevicePtr) -> Result<()> {
        // SAFETY: rule 3 is the caller's promise.
        moved_on_error(inner, device, unsafe { inner.free(device, ptr) })
    }
} }

hook! { RefusedCopyMoves {
    unsafe fn copy_async(
        &self,
        inner: &dyn Backend,
        dst: DevicePtr,
        src: DevicePtr,
        bytes: u64,
        kind: CopyKind,
        stream: Stream,
    ) -> Result<()> {
        // SAFETY: rule 2 is the caller's promise.
        moved_on_error(inner, stream.device, unsafe { inner.copy_async(dst, src, bytes, kind, stream) })
    }
} }

hook! { UnknownDeviceMoves {
    fn create_stream(&self, inner: &dyn Backend, device: DeviceIndex, priority: i32) -> Result<Stream> {
        moved_on_error(inner, device, inner.create_stream(device, priority))
    }
} }

hook! { UnknownHandleMoves {
    fn query_stream(&self, inner: &dyn Backend, stream: Stream) -> Result<Readiness> {
        moved_on_error(inner, stream.device, inner.query_stream(stream))
    }
} }
