//! Backends that say wrong things about device memory and addresses.

use crate::mutants::{Sticky, error, hook, lock, mutants};
use backend_api::types::{DeviceIndex, DevicePtr};
use backend_api::*;
use granule_conformance::interpose::Hook;
use std::collections::BTreeMap;
use std::sync::Mutex;

mutants! {
    MoreThanAll: "memory.more_than_all", "free and total are swapped" => "memory.info_is_sane",
    AnyDevice: "memory.any_device",
        "a device that is not there has the first one's memory" => "memory.info_unknown_device_is_refused",
    OldNumbers: "memory.old_numbers",
        "memory_info says what it said first" => "memory.info_falls_with_malloc",
    OnlyFirstDevice: "memory.only_first_device",
        "memory_info is about device 0" => "memory.info_is_of_its_device",
    TotalIsFree: "memory.total_is_free", "the total is what is free" => "memory.info_total_is_constant",
    TwiceTheTotal: "memory.twice_the_total",
        "the total is twice what there is" => "memory.total_can_be_had",
    TwiceAsMuch: "memory.twice_as_much",
        "the total and what is free are both too much by all there is" => "memory.total_can_be_had",
    NeverRises: "memory.never_rises", "free bytes only ever fall" => "memory.info_rises_with_free",
    AllManaged: "memory.all_managed", "device memory is said to be managed" => "memory.pointer_info_of_base",
    BaseIsPointer: "memory.base_is_pointer",
        "every address is said to be a base" => "memory.pointer_info_of_inside",
    EndBelongs: "memory.end_belongs",
        "the address behind the end is said to be inside" => "memory.pointer_info_of_end",
    UnknownIsError: "memory.unknown_is_error",
        "an unknown pointer is an error, as with the CUDA driver" => "memory.pointer_info_of_unknown",
    HighIsError: "memory.high_is_error",
        "addresses beyond 47 bits are an error" => "memory.pointer_info_of_any_value",
    StickyUnknown: "memory.sticky_unknown",
        "an unknown pointer leaves an error for the next call" => "memory.pointer_info_leaves_no_error",
    NoBase: "memory.no_base", "address_range says no base" => "memory.range_of_base",
    RangeFromHere: "memory.range_from_here",
        "address_range begins at the address asked for" => "memory.range_of_inside",
    RangeOfGranule: "memory.range_of_granule",
        "address_range is of the driver's granule" => "memory.range_ends_before_the_next",
    AnyRange: "memory.any_range", "an unknown pointer has a range" => "memory.range_of_unknown_is_refused",
    RangesStay: "memory.ranges_stay", "freed memory has a range" => "memory.freed_has_no_range",
}

/// A hook that changes the numbers of a device.
macro_rules! other_info {
    ($name:ident, |$info:ident| $change:expr) => {
        hook! { $name {
            fn memory_info(&self, inner: &dyn Backend, device: DeviceIndex) -> Result<MemoryInfo> {
                let $info = inner.memory_info(device)?;
                Ok($change)
            }
        } }
    };
}

// Some memory is always taken, so that the swap is seen.
other_info!(MoreThanAll, |info| MemoryInfo { free: info.total, total: info.free - 1 });
other_info!(TotalIsFree, |info| MemoryInfo { free: info.free, total: info.free });

/// A hook that says so of its memory in both places.
macro_rules! twice_the_total {
    ($name:ident, |$info:ident| $change:expr) => {
        hook! { $name {
            fn memory_info(&self, inner: &dyn Backend, device: DeviceIndex) -> Result<MemoryInfo> {
                let $info = inner.memory_info(device)?;
                Ok($change)
            }

            fn properties(&self, inner: &dyn Backend, device: DeviceIndex) -> Result<DeviceProperties> {
                let truly = inner.properties(device)?;
                Ok(DeviceProperties { total_memory: 2 * truly.total_memory, ..truly })
            }
        } }
    };
}

twice_the_total!(TwiceTheTotal, |info| MemoryInfo { total: 2 * info.total, ..info });
twice_the_total!(TwiceAsMuch, |info| MemoryInfo { total: 2 * info.total, free: info.free + info.total });

hook! { AnyDevice {
    fn memory_info(&self, inner: &dyn Backend, device: DeviceIndex) -> Result<MemoryInfo> {
        inner.memory_info(device).or_else(|_| inner.memory_info(DeviceIndex(0)))
    }
} }

hook! { OnlyFirstDevice {
    fn memory_info(&self, inner: &dyn Backend, device: DeviceIndex) -> Result<MemoryInfo> {
        inner.memory_info(device)?;
        inner.memory_info(DeviceIndex(0))
    }
} }

#[derive(Debug, Default)]
struct OldNumbers(Mutex<BTreeMap<DeviceIndex, MemoryInfo>>);

impl Hook for OldNumbers {
    fn memory_info(&self, inner: &dyn Backend, device: DeviceIndex) -> Result<MemoryInfo> {
        let now = inner.memory_info(device)?;
        Ok(*lock(&self.0).entry(device).or_insert(now))
    }
}

#[derive(Debug, Default)]
struct NeverRises(Mutex<BTreeMap<DeviceIndex, (u64, u64)>>);

impl Hook for NeverRises {
    fn memory_info(&self, inner: &dyn Backend, device: DeviceIndex) -> Result<MemoryInfo> {
        let now = inner.memory_info(device)?;
        let mut seen = lock(&self.0);
        let (before, lost) = seen.entry(device).or_insert((now.free, 0));
        // What rose is counted as lost.
        *lost += now.free.saturating_sub(*before);
        *before = now.free;
        Ok(MemoryInfo { free: now.free.saturating_sub(*lost), total: now.total })
    }
}

/// A hook that changes what is said about an address.
macro_rules! other_pointer_info {
    ($name:ident, |$inner:ident, $ptr:ident, $info:ident| $change:expr) => {
        hook! { $name {
            fn pointer_info(&self, $inner: &dyn Backend, $ptr: DevicePtr) -> Result<PointerInfo> {
                let $info = $inner.pointer_info($ptr)?;
                $change
            }
        } }
    };
}

other_pointer_info!(AllManaged, |inner, _ptr, info| Ok(match info.kind {
    PointerKind::Device => PointerInfo { kind: PointerKind::Managed, ..info },
    _ => info,
}));
other_pointer_info!(BaseIsPointer, |inner, ptr, info| Ok(match info.kind {
    PointerKind::Device => PointerInfo { base: ptr, ..info },
    _ => info,
}));
other_pointer_info!(EndBelongs, |inner, ptr, info| match info.kind {
    PointerKind::Unmanaged => inner.pointer_info(DevicePtr(ptr.0.wrapping_sub(1))),
    _ => Ok(info),
});
other_pointer_info!(UnknownIsError, |inner, _ptr, info| match info.kind {
    PointerKind::Unmanaged => Err(error(ErrorKind::InvalidValue)),
    _ => Ok(info),
});
other_pointer_info!(HighIsError, |inner, ptr, info| {
    if ptr.0 >> 47 == 0 { Ok(info) } else { Err(error(ErrorKind::InvalidValue)) }
});

#[derive(Debug, Default)]
struct StickyUnknown(Sticky);

impl Hook for StickyUnknown {
    fn enter(&self, _: &'static str) -> Result<()> {
        self.0.strike()
    }

    fn pointer_info(&self, inner: &dyn Backend, ptr: DevicePtr) -> Result<PointerInfo> {
        let info = inner.pointer_info(ptr)?;
        if info.kind == PointerKind::Unmanaged {
            self.0.leave();
        }
        Ok(info)
    }
}

hook! { NoBase {
    fn address_range(&self, inner: &dyn Backend, ptr: DevicePtr) -> Result<AddressRange> {
        Ok(AddressRange { base: DevicePtr::NULL, ..inner.address_range(ptr)? })
    }
} }

hook! { RangeFromHere {
    fn address_range(&self, inner: &dyn Backend, ptr: DevicePtr) -> Result<AddressRange> {
        let range = inner.address_range(ptr)?;
        Ok(AddressRange { base: ptr, bytes: range.bytes - (ptr.0 - range.base.0) })
    }
} }

hook! { RangeOfGranule {
    fn address_range(&self, inner: &dyn Backend, ptr: DevicePtr) -> Result<AddressRange> {
        let range = inner.address_range(ptr)?;
        Ok(AddressRange { bytes: range.bytes.next_multiple_of(2 << 20), ..range })
    }
} }

hook! { AnyRange {
    fn address_range(&self, inner: &dyn Backend, ptr: DevicePtr) -> Result<AddressRange> {
        Ok(inner.address_range(ptr).unwrap_or(AddressRange { base: ptr, bytes: 0 }))
    }
} }

#[derive(Debug, Default)]
struct RangesStay(Mutex<BTreeMap<DevicePtr, AddressRange>>);

impl Hook for RangesStay {
    unsafe fn free(&self, inner: &dyn Backend, device: DeviceIndex, ptr: DevicePtr) -> Result<()> {
        if let Ok(range) = inner.address_range(ptr) {
            lock(&self.0).insert(ptr, range);
        }
        // SAFETY: rule 3 is the caller's promise.
        unsafe { inner.free(device, ptr) }
    }

    fn address_range(&self, inner: &dyn Backend, ptr: DevicePtr) -> Result<AddressRange> {
        inner.address_range(ptr).or_else(|error| lock(&self.0).get(&ptr).copied().ok_or(error))
    }
}
