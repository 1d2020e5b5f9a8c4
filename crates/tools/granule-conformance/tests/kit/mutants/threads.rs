//! Backends that break rules of this area: several threads at once.

use crate::mutants::{Sticky, error, hook, lock, mutants, on_side_thread};
use backend_api::types::{DeviceIndex, DevicePtr, Event, Stream};
use backend_api::*;
use granule_conformance::interpose::Hook;
use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU16, AtomicU32, Ordering};
use std::thread::ThreadId;

mutants! {
    OneCurrentDevice: "threads.one_current_device",
        "all threads share the current device" => "threads.current_device_is_per_thread",
    NoContext: "threads.no_context",
        "a thread that never chose a device gets no memory" => "threads.a_new_thread_works",
    BoundToThread: "threads.bound", "what a thread made works there only" => "threads.memory_travels",
    HostBoundToThread: "threads.host_bound",
        "page-locked memory is copied on its own thread only" => "threads.host_memory_travels",
    ManyMix: "threads.copies_mix", "copies of other threads get bytes wrong" => "threads.copy_at_once",
    DropsWork: "threads.drops_work", "fills of other threads are lost" => "threads.one_stream_for_all",
    HandsOutTwice: "threads.hands_out_twice",
        "threads that allocate at once get the same memory" => "threads.allocate_at_once",
    SameHandles: "threads.same_handles", "threads get the same event" => "threads.create_at_once",
    OneLock: "threads.one_lock", "a call that waits holds all others" => "threads.ask_while_another_waits",
    OneLockForWork: "threads.one_lock_for_work",
        "a call that waits holds those that queue" => "threads.queue_while_another_waits",
    OneWaiter: "threads.one_waiter",
        "only one thread waits for an event" => "threads.wait_for_the_same_event",
    SharedError: "threads.shared_error",
        "a refusal is the answer of the next call on any thread" => "threads.errors_stay_with_their_thread",
}

/// Device of all threads.
#[derive(Debug, Default)]
struct OneCurrentDevice(AtomicU16);

impl Hook for OneCurrentDevice {
    fn set_device(&self, inner: &dyn Backend, device: DeviceIndex) -> Result<()> {
        inner.set_device(device)?;
        self.0.store(device.0, Ordering::SeqCst);
        Ok(())
    }

    fn current_device(&self, _: &dyn Backend) -> Result<DeviceIndex> {
        Ok(DeviceIndex(self.0.load(Ordering::SeqCst)))
    }
}

hook! { NoContext {
    fn malloc(&self, inner: &dyn Backend, device: DeviceIndex, bytes: u64) -> Result<DevicePtr> {
        if on_side_thread() { return Err(error(ErrorKind::Other)) }
        inner.malloc(device, bytes)
    }
} }

/// Which thread made what.
#[derive(Debug, Default)]
struct Owners(Mutex<HashMap<u64, ThreadId>>);

impl Owners {
    fn note(&self, made: u64) {
        lock(&self.0).insert(made, std::thread::current().id());
    }

    fn check(&self, made: u64) -> Result<()> {
        let here = std::thread::current().id();
        let is_foreign = lock(&self.0).get(&made).is_some_and(|owner| *owner != here);
        if is_foreign { Err(error(ErrorKind::InvalidValue)) } else { Ok(()) }
    }
}

#[derive(Debug, Default)]
struct BoundToThread {
    memory: Owners,
    streams: Owners,
    events: Owners,
}

impl Hook for BoundToThread {
    fn malloc(&self, inner: &dyn Backend, device: DeviceIndex, bytes: u64) -> Result<DevicePtr> {
        inner.malloc(device, bytes).inspect(|ptr| self.memory.note(ptr.0))
    }

    unsafe fn free(&self, inner: &dyn Backend, device: DeviceIndex, ptr: DevicePtr) -> Result<()> {
        let answer = self.memory.check(ptr.0);
        // SAFETY: rule 3 is the caller's promise.
        unsafe { inner.free(device, ptr) }.and(answer)
    }

    fn create_stream(&self, inner: &dyn Backend, device: DeviceIndex, priority: i32) -> Result<Stream> {
        inner.create_stream(device, priority).inspect(|stream| self.streams.note(stream.raw))
    }

    fn query_stream(&self, inner: &dyn Backend, stream: Stream) -> Result<Readiness> {
        self.streams.check(stream.raw)?;
        inner.query_stream(stream)
    }

    fn create_event(&self, inner: &dyn Backend, device: DeviceIndex, flags: EventFlags) -> Result<Event> {
        inner.create_event(device, flags).inspect(|event| self.events.note(event.raw))
    }

    fn query_event(&self, inner: &dyn Backend, event: Event) -> Result<Readiness> {
        self.events.check(event.raw)?;
        inner.query_event(event)
    }
}

#[derive(Debug, Default)]
struct HostBoundToThread(Owners);

impl Hook for HostBoundToThread {
    fn host_malloc(&self, inner: &dyn PinnedHost, bytes: u64, flags: HostFlags) -> Result<DevicePtr> {
        inner.host_malloc(bytes, flags).inspect(|ptr| self.0.note(ptr.0))
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
        self.0.check(src.0)?;
        // SAFETY: rule 2 is the caller's promise.
        unsafe { inner.copy_async(dst, src, bytes, kind, stream) }
    }
}

hook! { ManyMix {
    unsafe fn copy(
        &self,
        inner: &dyn Backend,
        dst: DevicePtr,
        src: DevicePtr,
        bytes: u64,
        kind: CopyKind,
    ) -> Result<()> {
        // SAFETY: rule 2 is the caller's promise.
        unsafe { inner.copy(dst, src, bytes, kind)? };
        if !on_side_thread() || kind != CopyKind::DeviceToHost || bytes < 2 {
            return Ok(());
        }
        // SAFETY: rule 2: two bytes of the caller's ranges.
        unsafe { inner.copy(dst, src.add(1), 1, kind) }
    }
} }

hook! { DropsWork {
    unsafe fn memset_async(
        &self,
        inner: &dyn Backend,
        dst: DevicePtr,
        value: u8,
        bytes: u64,
        stream: Stream,
    ) -> Result<()> {
        if on_side_thread() { return Ok(()) }
        // SAFETY: rule 2 is the caller's promise.
        unsafe { inner.memset_async(dst, value, bytes, stream) }
    }
} }

/// The memory that other threads get, once there is some.
#[derive(Debug, Default)]
struct HandsOutTwice(Mutex<Option<DevicePtr>>);

impl Hook for HandsOutTwice {
    fn malloc(&self, inner: &dyn Backend, device: DeviceIndex, bytes: u64) -> Result<DevicePtr> {
        if !on_side_thread() || device.0 > 0 || bytes > 4096 {
            return inner.malloc(device, bytes);
        }
        let mut shared = lock(&self.0);
        match *shared {
            Some(ptr) => Ok(ptr),
            None => inner.malloc(device, 4096).inspect(|ptr| *shared = Some(*ptr)),
        }
    }

    unsafe fn free(&self, inner: &dyn Backend, device: DeviceIndex, ptr: DevicePtr) -> Result<()> {
        if *lock(&self.0) == Some(ptr) {
            return Ok(());
        }
        // SAFETY: rule 3 is the caller's promise.
        unsafe { inner.free(device, ptr) }
    }
}

/// The event that other threads get.
#[derive(Debug, Default)]
struct SameHandles(Mutex<Option<Event>>);

impl Hook for SameHandles {
    fn create_event(&self, inner: &dyn Backend, device: DeviceIndex, flags: EventFlags) -> Result<Event> {
        if !on_side_thread() || device.0 > 0 {
            return inner.create_event(device, flags);
        }
        let mut shared = lock(&self.0);
        match *shared {
            Some(event) => Ok(event),
            None => inner.create_event(device, flags).inspect(|event| *shared = Some(*event)),
        }
    }

    unsafe fn destroy_event(&self, inner: &dyn Backend, event: Event) -> Result<()> {
        if *lock(&self.0) == Some(event) {
            return Ok(());
        }
        // SAFETY: rule 1 is the caller's promise.
        unsafe { inner.destroy_event(event) }
    }
}

#[derive(Debug, Default)]
struct OneLock(Mutex<()>);

impl Hook for OneLock {
    fn synchronize_stream(&self, inner: &dyn Backend, stream: Stream) -> Result<()> {
        let _held = lock(&self.0);
        inner.synchronize_stream(stream)
    }

    fn query_stream(&self, inner: &dyn Backend, stream: Stream) -> Result<Readiness> {
        let _held = lock(&self.0);
        inner.query_stream(stream)
    }
}

#[derive(Debug, Default)]
struct OneLockForWork(Mutex<()>);

impl Hook for OneLockForWork {
    fn synchronize_stream(&self, inner: &dyn Backend, stream: Stream) -> Result<()> {
        let _held = lock(&self.0);
        inner.synchronize_stream(stream)
    }

    fn record_event(&self, inner: &dyn Backend, event: Event, stream: Stream) -> Result<()> {
        let _held = lock(&self.0);
        inner.record_event(event, stream)
    }
}

/// How many threads wait.
#[derive(Debug, Default)]
struct OneWaiter(AtomicU32);

impl Hook for OneWaiter {
    fn synchronize_event(&self, inner: &dyn Backend, event: Event) -> Result<()> {
        let is_first = self.0.fetch_add(1, Ordering::SeqCst) == 0;
        let answer = if is_first { inner.synchronize_event(event) } else { Ok(()) };
        self.0.fetch_sub(1, Ordering::SeqCst);
        answer
    }
}

#[derive(Debug, Default)]
struct SharedError(Sticky);

impl Hook for SharedError {
    fn enter(&self, method: &'static str) -> Result<()> {
        if method == "Backend::query_stream" { self.0.strike() } else { Ok(()) }
    }

    fn malloc(&self, inner: &dyn Backend, device: DeviceIndex, bytes: u64) -> Result<DevicePtr> {
        self.0.after(inner.malloc(device, bytes))
    }
}
