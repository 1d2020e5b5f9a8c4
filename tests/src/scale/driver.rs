//! A backend that knows how long the program was in it.

use alloc_core::backend::{
    Access, Backend, EventFlags, HandleType, MemoryInfo, Readiness, Result, VirtualMemory,
};
use alloc_core::types::{DeviceIndex, DevicePtr, Event, PhysicalHandle, Stream};
use granule_conformance::interpose::Hook;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Processor time of the calling thread, in nanoseconds: what else the machine does is not in it.
pub(super) fn thread_ns() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the place that is written is this function's.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut now) };
    u64::try_from(now.tv_sec * 1_000_000_000 + now.tv_nsec).unwrap_or(0)
}

/// Nanoseconds that calls of the driver took.
#[derive(Clone, Debug, Default)]
pub(super) struct DriverTime(Arc<AtomicU64>);

impl DriverTime {
    #[allow(clippy::cast_precision_loss)]
    pub(super) fn ns(&self) -> f64 {
        self.0.load(Ordering::Relaxed) as f64
    }

    fn of<R>(&self, call: impl FnOnce() -> R) -> R {
        let start = thread_ns();
        let outcome = call();
        self.0.fetch_add(thread_ns() - start, Ordering::Relaxed);
        outcome
    }
}

/// Methods that are passed on and timed.
macro_rules! timed {
    ($($name:ident($family:ty $(, $argument:ident: $type:ty)*) -> $answer:ty;)*) => {$(
        fn $name(&self, inner: &$family $(, $argument: $type)*) -> Result<$answer> {
            self.of(|| inner.$name($($argument),*))
        }
    )*};
    (unsafe $($name:ident($family:ty $(, $argument:ident: $type:ty)*) -> $answer:ty;)*) => {$(
        unsafe fn $name(&self, inner: &$family $(, $argument: $type)*) -> Result<$answer> {
            // SAFETY: rules 1 to 3 are the caller's promise, passed on.
            self.of(|| unsafe { inner.$name($($argument),*) })
        }
    )*};
}

impl Hook for DriverTime {
    timed! {
        malloc(dyn Backend, device: DeviceIndex, bytes: u64) -> DevicePtr;
        memory_info(dyn Backend, device: DeviceIndex) -> MemoryInfo;
        synchronize_device(dyn Backend, device: DeviceIndex) -> ();
        create_stream(dyn Backend, device: DeviceIndex, priority: i32) -> Stream;
        query_stream(dyn Backend, stream: Stream) -> Readiness;
        synchronize_stream(dyn Backend, stream: Stream) -> ();
        wait_event(dyn Backend, stream: Stream, event: Event) -> ();
        create_event(dyn Backend, device: DeviceIndex, flags: EventFlags) -> Event;
        record_event(dyn Backend, event: Event, stream: Stream) -> ();
        query_event(dyn Backend, event: Event) -> Readiness;
        synchronize_event(dyn Backend, event: Event) -> ();
        reserve_address(dyn VirtualMemory, device: DeviceIndex, bytes: u64, alignment: u64, hint: DevicePtr) -> DevicePtr;
        create_physical(dyn VirtualMemory, device: DeviceIndex, bytes: u64, kind: HandleType) -> PhysicalHandle;
    }
    timed! { unsafe
        free(dyn Backend, device: DeviceIndex, ptr: DevicePtr) -> ();
        destroy_stream(dyn Backend, stream: Stream) -> ();
        destroy_event(dyn Backend, event: Event) -> ();
        release_address(dyn VirtualMemory, base: DevicePtr, bytes: u64) -> ();
        release_physical(dyn VirtualMemory, handle: PhysicalHandle) -> ();
        map(dyn VirtualMemory, at: DevicePtr, bytes: u64, handle: PhysicalHandle) -> ();
        unmap(dyn VirtualMemory, at: DevicePtr, bytes: u64) -> ();
        set_access(dyn VirtualMemory, at: DevicePtr, bytes: u64, devices: &[DeviceIndex], access: Access) -> ();
    }
}
