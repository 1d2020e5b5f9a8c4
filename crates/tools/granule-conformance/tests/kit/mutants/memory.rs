//! Backends that break rules of this area: device memory.

mod info;

pub(crate) use info::MUTANTS as INFO_MUTANTS;

use crate::mutants::{Sticky, error, hook, lock, mutants};
use backend_api::types::{DeviceIndex, DevicePtr, MIB};
use backend_api::*;
use granule_conformance::interpose::Hook;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

mutants! {
    NothingIsNull: "memory.nothing_is_null",
        "a request for 0 bytes gives null, as on HIP" => "memory.malloc_of_nothing",
    SmallIsNull: "memory.small_is_null", "small requests give null" => "memory.malloc_is_not_null",
    OddAddresses: "memory.odd_addresses", "memory is aligned to 256 bytes only" => "memory.aligned",
    HighAddresses: "memory.high_addresses", "addresses have 58 bits" => "memory.within_57_bits",
    HandsOutTwice: "memory.hands_out_twice", "memory that is held is handed out again" => "memory.disjoint",
    SharedByDevices: "memory.shared_by_devices",
        "two devices hand out the same memory" => "memory.disjoint_across_devices",
    HalfTheSize: "memory.half_the_size", "memory is half as large as asked" => "memory.large_enough",
    OneByteShort: "memory.one_byte_short", "memory is one byte too small" => "memory.last_byte_works",
    NoSingleByte: "memory.no_single_byte", "a request for one byte is refused" => "memory.single_byte",
    WipesNeighbour: "memory.wipes_neighbour",
        "taking memory changes other memory" => "memory.keeps_its_bytes_while_others_come_and_go",
    RefusalWipes: "memory.refusal_wipes",
        "a refused request changes other memory" => "memory.refused_malloc_keeps_others",
    AlwaysFirstDevice: "memory.always_first_device",
        "memory comes from device 0, whatever was asked" => "memory.is_of_the_device_asked",
    ShortIsInvalid: "memory.short_is_invalid",
        "a lack of memory is InvalidValue" => "memory.malloc_more_than_there_is",
    SizesWrap: "memory.sizes_wrap", "sizes have 32 bits" => "memory.malloc_absurd_sizes",
    StickyMalloc: "memory.sticky_malloc",
        "a refused malloc leaves an error for the next call" => "memory.works_after_out_of_memory",
    NullIsInvalid: "memory.null_is_invalid", "null cannot be freed" => "memory.free_null",
    SwallowsBadFrees: "memory.swallows_bad_frees", "free takes anything" => "memory.free_twice",
    FreesFromInside: "memory.frees_from_inside",
        "a refused free of a pointer inside has freed the memory" => "memory.refused_free_keeps_memory",
    FreeLeaks: "memory.free_leaks", "free gives nothing back" => "memory.freed_is_unmanaged",
    FreesInReverse: "memory.frees_in_reverse",
        "only the memory taken last can be freed" => "memory.free_in_any_order",
    FreesOnCurrent: "memory.frees_on_current",
        "free does nothing for a device that is not current" => "memory.free_on_other_current_device",
    RefusalLeaks: "memory.refusal_leaks",
        "a refused request has taken memory" => "memory.refused_malloc_takes_nothing",
}

/// A hook that does something else for some requests.
macro_rules! other_malloc {
    ($name:ident, |$inner:ident, $device:ident, $bytes:ident| $body:expr) => {
        hook! { $name {
            fn malloc(&self, $inner: &dyn Backend, $device: DeviceIndex, $bytes: u64) -> Result<DevicePtr> {
                $body
            }
        } }
    };
}

other_malloc!(NothingIsNull, |inner, device, bytes| {
    if bytes == 0 { Ok(DevicePtr::NULL) } else { inner.malloc(device, bytes) }
});
other_malloc!(SmallIsNull, |inner, device, bytes| {
    if bytes == 1 { Ok(DevicePtr::NULL) } else { inner.malloc(device, bytes) }
});
other_malloc!(HalfTheSize, |inner, device, bytes| inner.malloc(device, bytes.div_ceil(2)));
other_malloc!(OneByteShort, |inner, device, bytes| inner
    .malloc(device, if bytes > 1 { bytes - 1 } else { bytes }));
other_malloc!(NoSingleByte, |inner, device, bytes| {
    if bytes == 1 { Err(error(ErrorKind::InvalidValue)) } else { inner.malloc(device, bytes) }
});
other_malloc!(AlwaysFirstDevice, |inner, device, bytes| {
    inner.has_primary_context(device)?;
    inner.malloc(DeviceIndex(0), bytes)
});
other_malloc!(ShortIsInvalid, |inner, device, bytes| {
    inner.malloc(device, bytes).map_err(|error| BackendError { kind: ErrorKind::InvalidValue, ..error })
});
other_malloc!(SizesWrap, |inner, device, bytes| {
    if bytes > u64::from(u32::MAX) {
        return inner.malloc(device, (bytes & 0xFFFF).max(512));
    }
    inner.malloc(device, bytes)
});

hook! { OddAddresses {
    fn malloc(&self, inner: &dyn Backend, device: DeviceIndex, bytes: u64) -> Result<DevicePtr> {
        if bytes == 0 { return inner.malloc(device, 0) }
        Ok(inner.malloc(device, bytes.saturating_add(256))?.add(256))
    }
    unsafe fn free(&self, inner: &dyn Backend, device: DeviceIndex, ptr: DevicePtr) -> Result<()> {
        // SAFETY: rule 3: what malloc moved is moved back; anything else is no live base, and answered.
        unsafe { inner.free(device, DevicePtr(ptr.0.saturating_sub(256))) }
    }
} }

/// The lowest address that has too many bits.
const HIGH: u64 = 1 << ADDRESS_BITS;

hook! { HighAddresses {
    fn malloc(&self, inner: &dyn Backend, device: DeviceIndex, bytes: u64) -> Result<DevicePtr> {
        let ptr = inner.malloc(device, bytes)?;
        // Of a size that no check writes to: the simulator would, too.
        Ok(if bytes == 4 * MIB { ptr.add(HIGH) } else { ptr })
    }
    unsafe fn free(&self, inner: &dyn Backend, device: DeviceIndex, ptr: DevicePtr) -> Result<()> {
        // SAFETY: rule 3: what malloc moved is moved back; anything else is no live base, and answered.
        unsafe { inner.free(device, DevicePtr(ptr.0 & (HIGH - 1))) }
    }
} }

/// The allocation before: device, address, size.
type Last = Mutex<Option<(DeviceIndex, DevicePtr, u64)>>;

#[derive(Debug, Default)]
struct HandsOutTwice(Last);

impl Hook for HandsOutTwice {
    fn malloc(&self, inner: &dyn Backend, device: DeviceIndex, bytes: u64) -> Result<DevicePtr> {
        let mut last = lock(&self.0);
        if let Some((owner, ptr, held)) = *last
            && owner == device
            && (1..=held.next_multiple_of(512)).contains(&bytes)
        {
            return Ok(ptr);
        }
        let ptr = inner.malloc(device, bytes)?;
        *last = Some((device, ptr, bytes));
        Ok(ptr)
    }

    unsafe fn free(&self, inner: &dyn Backend, device: DeviceIndex, ptr: DevicePtr) -> Result<()> {
        lock(&self.0).take_if(|last| last.1 == ptr);
        // SAFETY: rule 3 is the caller's promise; the second free of shared memory is answered.
        unsafe { inner.free(device, ptr) }
    }
}

#[derive(Debug, Default)]
struct SharedByDevices(Last);

impl Hook for SharedByDevices {
    fn malloc(&self, inner: &dyn Backend, device: DeviceIndex, bytes: u64) -> Result<DevicePtr> {
        let mut last = lock(&self.0);
        if let Some((owner, ptr, held)) = *last
            && owner != device
            && (1..=held).contains(&bytes)
        {
            return Ok(ptr);
        }
        let ptr = inner.malloc(device, bytes)?;
        *last = Some((device, ptr, bytes));
        Ok(ptr)
    }

    unsafe fn free(&self, inner: &dyn Backend, device: DeviceIndex, ptr: DevicePtr) -> Result<()> {
        lock(&self.0).take_if(|last| last.1 == ptr);
        // SAFETY: rule 3 is the caller's promise; the second free of shared memory is answered.
        unsafe { inner.free(device, ptr) }
    }
}

/// Changes the first byte of memory.
fn wipe(inner: &dyn Backend, ptr: DevicePtr) {
    let zero = [0xD5u8; 1];
    let from = DevicePtr(zero.as_ptr().addr() as u64);
    // SAFETY: rule 2: one byte of an allocation that is still held; the copy is waited for.
    let _ = unsafe { inner.copy(ptr, from, 1, CopyKind::HostToDevice) };
}

#[derive(Debug, Default)]
struct WipesNeighbour(Last);

impl Hook for WipesNeighbour {
    fn malloc(&self, inner: &dyn Backend, device: DeviceIndex, bytes: u64) -> Result<DevicePtr> {
        let ptr = inner.malloc(device, bytes)?;
        let before = lock(&self.0).replace((device, ptr, bytes));
        if let Some((_, neighbour, _)) = before {
            wipe(inner, neighbour);
        }
        Ok(ptr)
    }

    unsafe fn free(&self, inner: &dyn Backend, device: DeviceIndex, ptr: DevicePtr) -> Result<()> {
        lock(&self.0).take_if(|last| last.1 == ptr);
        // SAFETY: rule 3 is the caller's promise.
        unsafe { inner.free(device, ptr) }
    }
}

#[derive(Debug, Default)]
struct RefusalWipes(Last);

impl Hook for RefusalWipes {
    fn malloc(&self, inner: &dyn Backend, device: DeviceIndex, bytes: u64) -> Result<DevicePtr> {
        let answer = inner.malloc(device, bytes);
        let mut last = lock(&self.0);
        match (&answer, *last) {
            (Ok(ptr), _) => *last = Some((device, *ptr, bytes)),
            (Err(_), Some((_, held, _))) => wipe(inner, held),
            _ => {}
        }
        answer
    }

    unsafe fn free(&self, inner: &dyn Backend, device: DeviceIndex, ptr: DevicePtr) -> Result<()> {
        lock(&self.0).take_if(|last| last.1 == ptr);
        // SAFETY: rule 3 is the caller's promise.
        unsafe { inner.free(device, ptr) }
    }
}

#[derive(Debug, Default)]
struct StickyMalloc(Sticky);

impl Hook for StickyMalloc {
    fn enter(&self, _: &'static str) -> Result<()> {
        self.0.strike()
    }

    fn malloc(&self, inner: &dyn Backend, device: DeviceIndex, bytes: u64) -> Result<DevicePtr> {
        self.0.after(inner.malloc(device, bytes))
    }
}

/// A hook that does something else with some frees.
macro_rules! other_free {
    ($name:ident, |$inner:ident, $device:ident, $ptr:ident| $body:expr) => {
        hook! { $name {
            unsafe fn free(&self, $inner: &dyn Backend, $device: DeviceIndex, $ptr: DevicePtr) -> Result<()> {
                $body
            }
        } }
    };
}

other_free!(NullIsInvalid, |inner, device, ptr| {
    if ptr.is_null() {
        return Err(error(ErrorKind::InvalidValue));
    }
    // SAFETY: rule 3 is the caller's promise.
    unsafe { inner.free(device, ptr) }
});
other_free!(SwallowsBadFrees, |inner, device, ptr| {
    // SAFETY: rule 3 is the caller's promise.
    let _ = unsafe { inner.free(device, ptr) };
    Ok(())
});
other_free!(FreesFromInside, |inner, device, ptr| {
    // SAFETY: rule 3 is the caller's promise.
    let answer = unsafe { inner.free(device, ptr) };
    if answer.is_err()
        && let Ok(range) = inner.address_range(ptr)
    {
        // SAFETY: rule 3: a live base; that its owner frees it again is answered.
        let _ = unsafe { inner.free(device, range.base) };
    }
    answer
});
other_free!(FreesOnCurrent, |inner, device, ptr| {
    if inner.current_device()? != device {
        return Ok(());
    }
    // SAFETY: rule 3 is the caller's promise.
    unsafe { inner.free(device, ptr) }
});

/// Leaks up to a limit, so that other checks still find memory.
#[derive(Debug, Default)]
struct FreeLeaks(AtomicU64);

impl Hook for FreeLeaks {
    unsafe fn free(&self, inner: &dyn Backend, device: DeviceIndex, ptr: DevicePtr) -> Result<()> {
        let live = inner.address_range(ptr).ok().filter(|range| range.base == ptr);
        if let Some(range) = live
            && self.0.fetch_add(range.bytes, Ordering::Relaxed) < 180 * MIB
        {
            return Ok(());
        }
        // SAFETY: rule 3 is the caller's promise.
        unsafe { inner.free(device, ptr) }
    }
}

#[derive(Debug, Default)]
struct FreesInReverse(Mutex<Vec<DevicePtr>>);

impl Hook for FreesInReverse {
    fn malloc(&self, inner: &dyn Backend, device: DeviceIndex, bytes: u64) -> Result<DevicePtr> {
        let ptr = inner.malloc(device, bytes)?;
        lock(&self.0).push(ptr);
        Ok(ptr)
    }

    unsafe fn free(&self, inner: &dyn Backend, device: DeviceIndex, ptr: DevicePtr) -> Result<()> {
        let mut held = lock(&self.0);
        let is_last = held.last() == Some(&ptr);
        held.retain(|&other| other != ptr);
        // SAFETY: rule 3 is the caller's promise.
        unsafe { inner.free(device, ptr)? };
        if is_last { Ok(()) } else { Err(error(ErrorKind::InvalidValue)) }
    }
}

#[derive(Debug, Default)]
struct RefusalLeaks(AtomicU64);

impl Hook for RefusalLeaks {
    fn malloc(&self, inner: &dyn Backend, device: DeviceIndex, bytes: u64) -> Result<DevicePtr> {
        inner.malloc(device, bytes).inspect_err(|_| {
            if self.0.fetch_add(1, Ordering::Relaxed) < 40 {
                let _ = inner.malloc(device, 2 * MIB);
            }
        })
    }
}
