//! Backends that break rules of this area: the allocator's promises.

use super::{hook, mutants};
use backend_api::types::{BackendId, DeviceIndex, DevicePtr, Event, PhysicalHandle, Stream};
use backend_api::*;
use granule_conformance::interpose::Hook;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

mutants! {
    OneByteShort: "engine.one_byte_short", "copies lose the last byte" => "engine.memory_works",
    Misaligned: "engine.misaligned", "memory is aligned to 8 bytes" => "engine.blocks_are_aligned",
    SameMemory: "engine.same_memory", "all memory of a device is at one address" => "engine.wrong_pointers",
    RecordWaits: "engine.record_waits",
        "recording an event waits for its stream" => "engine.free_does_not_wait",
    RecordFails: "engine.record_fails", "no event can be recorded" => "engine.free_only_records",
    AlwaysReady: "engine.always_ready", "every event is complete" => "engine.reuse_waits",
    NeverReady: "engine.never_ready", "no event is ever complete" => "engine.pending_comes_back",
    OneStream: "engine.one_stream", "all streams of a device are one" => "engine.streams_are_apart",
    WrongKindWhenFull: "engine.wrong_kind_when_full",
        "too little memory is some other error" => "engine.oom_is_typed",
    SynchronizeReturns: "engine.synchronize_returns",
        "waiting for an event does not wait" => "engine.oom_waits_for_pending",
    FreeRefuses: "engine.free_refuses", "no memory can be given back" => "engine.oom_releases_cache",
    FullAtFirst: "engine.full_at_first",
        "a request is out of memory, and the same again is not" => "engine.no_retry_without_need",
    FreeErrsLate: "engine.free_errs_late",
        "free gives the memory back, and an error" => "engine.any_call_may_fail",
    FreeLeaks: "engine.free_leaks", "free does nothing" => "engine.cache_is_emptied",
    Full: "engine.full", "every request is out of memory" => "engine.history_is_complete",
    FullAtTimes: "engine.full_at_times",
        "every fifth request is out of memory" => "engine.same_order_same_places",
    FirstDevice: "engine.first_device",
        "all memory comes from the first device" => "engine.devices_are_apart",
    DeviceLeftBehind: "engine.device_left_behind",
        "a request leaves its device current" => "engine.current_device_stays",
    WrongId: "engine.wrong_id", "the backend has another id than its streams" => "engine.foreign_stream",
    AccessForgotten: "engine.access_forgotten", "setting access does nothing" => "engine.segments_grow",
    NothingMaps: "engine.nothing_maps", "no physical memory can be mapped" => "engine.growth_is_limited",
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn full<T>(device: DeviceIndex) -> Result<T> {
    Err(BackendError::new(ErrorKind::OutOfMemory, 2, "malloc", device, "there is no more"))
}

hook! { OneByteShort {
    unsafe fn copy(
        &self,
        inner: &dyn Backend,
        dst: DevicePtr,
        src: DevicePtr,
        bytes: u64,
        kind: CopyKind,
    ) -> Result<()> {
        if bytes == 1 {
            return Ok(());
        }
        // SAFETY: the caller's promise, passed on for a part of the range.
        unsafe { inner.copy(dst, src, bytes - 1, kind) }
    }
} }

hook! { Misaligned {
    fn malloc(&self, inner: &dyn Backend, device: DeviceIndex, bytes: u64) -> Result<DevicePtr> {
        Ok(inner.malloc(device, bytes.saturating_add(512))?.add(8))
    }

    unsafe fn free(&self, inner: &dyn Backend, device: DeviceIndex, ptr: DevicePtr) -> Result<()> {
        // SAFETY: the caller's promise, for the memory as it was taken.
        unsafe { inner.free(device, DevicePtr(ptr.0.saturating_sub(8))) }
    }
} }

#[derive(Debug, Default)]
struct SameMemory(Mutex<Option<DevicePtr>>);

impl Hook for SameMemory {
    fn malloc(&self, inner: &dyn Backend, device: DeviceIndex, bytes: u64) -> Result<DevicePtr> {
        let mut first = lock(&self.0);
        match *first {
            Some(ptr) => Ok(ptr),
            None => Ok(*first.insert(inner.malloc(device, bytes)?)),
        }
    }
}

hook! { RecordWaits {
    fn record_event(&self, inner: &dyn Backend, event: Event, stream: Stream) -> Result<()> {
        // As long as a check needs to see it, instead of until the stream is done.
        std::thread::sleep(Duration::from_millis(150));
        inner.record_event(event, stream)
    }
} }

hook! { RecordFails {
    fn record_event(&self, _: &dyn Backend, event: Event, _: Stream) -> Result<()> {
        Err(BackendError::new(ErrorKind::Other, 999, "record", event.device, "no event can be recorded"))
    }
} }

hook! { AlwaysReady {
    fn query_event(&self, _: &dyn Backend, _: Event) -> Result<Readiness> {
        Ok(Readiness::Ready)
    }
} }

hook! { NeverReady {
    fn query_event(&self, _: &dyn Backend, _: Event) -> Result<Readiness> {
        Ok(Readiness::NotReady)
    }
} }

#[derive(Debug, Default)]
struct OneStream(Mutex<Option<Stream>>);

impl Hook for OneStream {
    fn create_stream(&self, inner: &dyn Backend, device: DeviceIndex, priority: i32) -> Result<Stream> {
        let mut first = lock(&self.0);
        match *first {
            Some(stream) => Ok(stream),
            None => Ok(*first.insert(inner.create_stream(device, priority)?)),
        }
    }
}

hook! { WrongKindWhenFull {
    fn malloc(&self, inner: &dyn Backend, device: DeviceIndex, bytes: u64) -> Result<DevicePtr> {
        inner.malloc(device, bytes).map_err(|error| BackendError { kind: ErrorKind::Other, ..error })
    }
} }

hook! { SynchronizeReturns {
    fn synchronize_event(&self, _: &dyn Backend, _: Event) -> Result<()> {
        Ok(())
    }
} }

hook! { FreeRefuses {
    unsafe fn free(&self, _: &dyn Backend, device: DeviceIndex, _: DevicePtr) -> Result<()> {
        Err(BackendError::new(ErrorKind::Other, 999, "free", device, "no memory can be given back"))
    }
} }

/// The size of the request that was refused just now.
#[derive(Debug, Default)]
struct FullAtFirst(Mutex<Option<u64>>);

impl Hook for FullAtFirst {
    fn malloc(&self, inner: &dyn Backend, device: DeviceIndex, bytes: u64) -> Result<DevicePtr> {
        let mut refused = lock(&self.0);
        if refused.take() == Some(bytes) {
            return inner.malloc(device, bytes);
        }
        *refused = Some(bytes);
        full(device)
    }
}

hook! { FreeErrsLate {
    unsafe fn free(&self, inner: &dyn Backend, device: DeviceIndex, ptr: DevicePtr) -> Result<()> {
        // SAFETY: the caller's promise, passed on.
        unsafe { inner.free(device, ptr)? };
        Err(BackendError::new(ErrorKind::Other, 999, "free", device, "too late"))
    }
} }

hook! { FreeLeaks {
    unsafe fn free(&self, _: &dyn Backend, _: DeviceIndex, _: DevicePtr) -> Result<()> {
        Ok(())
    }
} }

hook! { Full {
    fn malloc(&self, _: &dyn Backend, device: DeviceIndex, _: u64) -> Result<DevicePtr> {
        full(device)
    }
} }

#[derive(Debug, Default)]
struct FullAtTimes(AtomicU64);

impl Hook for FullAtTimes {
    fn malloc(&self, inner: &dyn Backend, device: DeviceIndex, bytes: u64) -> Result<DevicePtr> {
        if self.0.fetch_add(1, Ordering::SeqCst) % 5 == 4 {
            return full(device);
        }
        inner.malloc(device, bytes)
    }
}

hook! { FirstDevice {
    fn malloc(&self, inner: &dyn Backend, _: DeviceIndex, bytes: u64) -> Result<DevicePtr> {
        inner.malloc(DeviceIndex(0), bytes)
    }
} }

#[derive(Debug, Default)]
struct DeviceLeftBehind(Mutex<Option<DeviceIndex>>);

impl Hook for DeviceLeftBehind {
    fn malloc(&self, inner: &dyn Backend, device: DeviceIndex, bytes: u64) -> Result<DevicePtr> {
        *lock(&self.0) = Some(device);
        inner.malloc(device, bytes)
    }

    fn current_device(&self, inner: &dyn Backend) -> Result<DeviceIndex> {
        let left = *lock(&self.0);
        left.map_or_else(|| inner.current_device(), Ok)
    }
}

hook! { WrongId {
    fn id(&self, inner: &dyn Backend) -> BackendId {
        BackendId(inner.id().0 ^ 0x4000)
    }
} }

hook! { AccessForgotten {
    unsafe fn set_access(
        &self,
        _: &dyn VirtualMemory,
        _: DevicePtr,
        _: u64,
        _: &[DeviceIndex],
        _: Access,
    ) -> Result<()> {
        Ok(())
    }
} }

hook! { NothingMaps {
    unsafe fn map(&self, _: &dyn VirtualMemory, _: DevicePtr, _: u64, handle: PhysicalHandle) -> Result<()> {
        let detail = format!("handle {} cannot be mapped", handle.raw);
        Err(BackendError::new(ErrorKind::Other, 999, "map", DeviceIndex(0), detail))
    }
} }
