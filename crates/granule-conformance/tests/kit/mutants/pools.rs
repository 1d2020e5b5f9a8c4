//! Backends that break rules of this area: the driver's pools.

use super::{hook, mutants};
use backend_api::types::{BackendId, DeviceIndex, DevicePtr, Stream};
use backend_api::{Backend, BackendError, DriverPoolAttribute as Figure, DriverPools, ErrorKind, Result};
use granule_conformance::interpose::Hook;
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

mutants! {
    NothingIsSomething: "pools.nothing_is_something", "0 bytes are rounded up" => "pools.malloc_of_nothing",
    WrongKindWhenFull: "pools.wrong_kind_when_full",
        "too little memory is some other error" => "pools.more_than_there_is",
    ForeignStreams: "pools.foreign_streams",
        "streams of other backends are taken for its own" => "pools.foreign_stream",
    AnyDevice: "pools.any_device",
        "a device that does not exist has a pool without memory" => "pools.no_such_device",
    OneByteShort: "pools.one_byte_short", "fills lose the last byte" => "pools.memory_works",
    Misaligned: "pools.misaligned", "pool memory is aligned to 256 bytes only" => "pools.memory_is_aligned",
    MallocWaits: "pools.malloc_waits", "a request waits for its stream" => "pools.malloc_does_not_wait",
    FreeWaits: "pools.free_waits", "giving memory back waits for its stream" => "pools.free_does_not_wait",
    FreedAtOnce: "pools.freed_at_once",
        "freed memory goes to the next request of any stream" => "pools.freed_in_stream_order",
    UsedIsCached: "pools.used_is_cached", "the bytes in use are read once" => "pools.used_is_counted",
    ReservedIsIdle: "pools.reserved_is_idle",
        "the bytes reserved are told without those in use" => "pools.reserved_covers_used",
    HighStays: "pools.high_stays", "a reset of the most used does nothing" => "pools.high_is_reset",
    ThresholdInPages: "pools.threshold_in_pages",
        "the release threshold reads back in pages" => "pools.threshold_is_kept",
    ThresholdForgotten: "pools.threshold_forgotten",
        "the release threshold is kept and not obeyed" => "pools.threshold_keeps_memory",
    NoTrim: "pools.no_trim", "trim does nothing" => "pools.trim_gives_back",
    TrimForgets: "pools.trim_forgets",
        "after a trim the pool says that it holds nothing" => "pools.trim_keeps_used",
    AnythingCanBeSet: "pools.anything_can_be_set",
        "setting what cannot be set is fine" => "pools.current_counts_are_read_only",
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

hook! { NothingIsSomething {
    fn malloc_async(&self, inner: &dyn DriverPools, bytes: u64, stream: Stream) -> Result<DevicePtr> {
        inner.malloc_async(bytes.max(1), stream)
    }
} }

hook! { WrongKindWhenFull {
    fn malloc_async(&self, inner: &dyn DriverPools, bytes: u64, stream: Stream) -> Result<DevicePtr> {
        let other = |error| BackendError { kind: ErrorKind::Other, ..error };
        inner.malloc_async(bytes, stream).map_err(other)
    }
} }

/// Knows its own id only from the streams it makes.
#[derive(Debug, Default)]
struct ForeignStreams(Mutex<Option<BackendId>>);

impl Hook for ForeignStreams {
    fn create_stream(&self, inner: &dyn Backend, device: DeviceIndex, priority: i32) -> Result<Stream> {
        let stream = inner.create_stream(device, priority)?;
        *lock(&self.0) = Some(stream.backend);
        Ok(stream)
    }

    fn malloc_async(&self, inner: &dyn DriverPools, bytes: u64, stream: Stream) -> Result<DevicePtr> {
        let own = lock(&self.0).unwrap_or(stream.backend);
        inner.malloc_async(bytes, Stream { backend: own, ..stream })
    }
}

hook! { AnyDevice {
    fn pool_attribute(&self, inner: &dyn DriverPools, device: DeviceIndex, which: Figure) -> Result<u64> {
        Ok(inner.pool_attribute(device, which).unwrap_or(0))
    }
} }

hook! { OneByteShort {
    unsafe fn memset_async(
        &self,
        inner: &dyn Backend,
        dst: DevicePtr,
        value: u8,
        bytes: u64,
        stream: Stream,
    ) -> Result<()> {
        // SAFETY: the caller's promise, passed on for a part of the range.
        unsafe { inner.memset_async(dst, value, bytes - 1, stream) }
    }
} }

hook! { Misaligned {
    fn malloc_async(&self, inner: &dyn DriverPools, bytes: u64, stream: Stream) -> Result<DevicePtr> {
        Ok(inner.malloc_async(bytes + 256, stream)?.add(256))
    }

    unsafe fn free_async(&self, inner: &dyn DriverPools, ptr: DevicePtr, stream: Stream) -> Result<()> {
        // SAFETY: the caller's promise, for the memory as it was taken.
        unsafe { inner.free_async(DevicePtr(ptr.0 - 256), stream) }
    }
} }

/// As long as a check needs to see it, instead of until the stream is done.
const SEEN: Duration = Duration::from_millis(150);

hook! { MallocWaits {
    fn malloc_async(&self, inner: &dyn DriverPools, bytes: u64, stream: Stream) -> Result<DevicePtr> {
        std::thread::sleep(SEEN);
        inner.malloc_async(bytes, stream)
    }
} }

hook! { FreeWaits {
    unsafe fn free_async(&self, inner: &dyn DriverPools, ptr: DevicePtr, stream: Stream) -> Result<()> {
        std::thread::sleep(SEEN);
        // SAFETY: the caller's promise, passed on.
        unsafe { inner.free_async(ptr, stream) }
    }
} }

/// Sizes of what is handed out, and what was freed last.
#[derive(Debug, Default)]
struct FreedAtOnce(Mutex<(HashMap<DevicePtr, u64>, Option<DevicePtr>)>);

impl Hook for FreedAtOnce {
    fn malloc_async(&self, inner: &dyn DriverPools, bytes: u64, stream: Stream) -> Result<DevicePtr> {
        let mut state = lock(&self.0);
        if let Some(freed) = state.1.filter(|freed| state.0.get(freed) == Some(&bytes)) {
            return Ok(freed);
        }
        let ptr = inner.malloc_async(bytes, stream)?;
        state.0.insert(ptr, bytes);
        Ok(ptr)
    }

    unsafe fn free_async(&self, inner: &dyn DriverPools, ptr: DevicePtr, stream: Stream) -> Result<()> {
        lock(&self.0).1 = Some(ptr);
        // SAFETY: the caller's promise; a simulated device refuses what was freed before.
        let _ = unsafe { inner.free_async(ptr, stream) };
        Ok(())
    }
}

#[derive(Debug, Default)]
struct UsedIsCached(Mutex<Option<u64>>);

impl Hook for UsedIsCached {
    fn pool_attribute(&self, inner: &dyn DriverPools, device: DeviceIndex, which: Figure) -> Result<u64> {
        let now = inner.pool_attribute(device, which)?;
        Ok(if which == Figure::UsedCurrent { *lock(&self.0).get_or_insert(now) } else { now })
    }
}

hook! { ReservedIsIdle {
    fn pool_attribute(&self, inner: &dyn DriverPools, device: DeviceIndex, which: Figure) -> Result<u64> {
        let now = inner.pool_attribute(device, which)?;
        match which {
            Figure::ReservedCurrent => Ok(now - inner.pool_attribute(device, Figure::UsedCurrent)?),
            _ => Ok(now),
        }
    }
} }

hook! { HighStays {
    fn set_pool_attribute(
        &self,
        inner: &dyn DriverPools,
        device: DeviceIndex,
        which: Figure,
        value: u64,
    ) -> Result<()> {
        if which == Figure::UsedHigh {
            return Ok(());
        }
        inner.set_pool_attribute(device, which, value)
    }
} }

hook! { ThresholdInPages {
    fn pool_attribute(&self, inner: &dyn DriverPools, device: DeviceIndex, which: Figure) -> Result<u64> {
        let now = inner.pool_attribute(device, which)?;
        Ok(if which == Figure::ReleaseThreshold { now / 4096 } else { now })
    }
} }

#[derive(Debug, Default)]
struct ThresholdForgotten(Mutex<u64>);

impl Hook for ThresholdForgotten {
    fn set_pool_attribute(
        &self,
        inner: &dyn DriverPools,
        device: DeviceIndex,
        which: Figure,
        value: u64,
    ) -> Result<()> {
        if which == Figure::ReleaseThreshold {
            *lock(&self.0) = value;
            return Ok(());
        }
        inner.set_pool_attribute(device, which, value)
    }

    fn pool_attribute(&self, inner: &dyn DriverPools, device: DeviceIndex, which: Figure) -> Result<u64> {
        if which == Figure::ReleaseThreshold {
            return Ok(*lock(&self.0));
        }
        inner.pool_attribute(device, which)
    }
}

hook! { NoTrim {
    fn trim(&self, _: &dyn DriverPools, _: DeviceIndex, _: u64) -> Result<()> {
        Ok(())
    }
} }

#[derive(Debug, Default)]
struct TrimForgets(Mutex<u64>);

impl Hook for TrimForgets {
    fn trim(&self, inner: &dyn DriverPools, device: DeviceIndex, keep: u64) -> Result<()> {
        inner.trim(device, keep)?;
        *lock(&self.0) = inner.pool_attribute(device, Figure::ReservedCurrent)?;
        Ok(())
    }

    fn pool_attribute(&self, inner: &dyn DriverPools, device: DeviceIndex, which: Figure) -> Result<u64> {
        let now = inner.pool_attribute(device, which)?;
        Ok(if which == Figure::ReservedCurrent { now.saturating_sub(*lock(&self.0)) } else { now })
    }
}

hook! { AnythingCanBeSet {
    fn set_pool_attribute(
        &self,
        inner: &dyn DriverPools,
        device: DeviceIndex,
        which: Figure,
        value: u64,
    ) -> Result<()> {
        match inner.set_pool_attribute(device, which, value) {
            Err(error) if error.kind == ErrorKind::InvalidValue => Ok(()),
            answer => answer,
        }
    }
} }
