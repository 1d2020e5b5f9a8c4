//! Backends that break rules of this area: virtual memory.

mod aliases;
mod mapping;

use super::{hook, mutants};
use aliases::{AliasIsFresh, UnmapTakesAll};
use backend_api::types::{DeviceIndex, DevicePtr, PhysicalHandle, Stream};
use backend_api::{
    ADDRESS_BITS, Access, Backend, BackendError, ErrorKind, Granularity, HandleType, HostFunction,
    PhysicalSharing, PointerInfo, PointerKind, Result, ShareableHandle, VirtualMemory,
};
use mapping::{
    AdjacentUnmapStops, AliasedMaps, ForeignHandles, MapMovesNothing, MapOpens, MapReplaces, ReleaseUnmaps,
    UnmapLies, UnmapWaits,
};
use std::sync::{Mutex, PoisonError};

mutants! {
    OddGranularity: "virtual_memory.odd_granularity",
        "the minimum granularity has one byte too many" => "virtual_memory.granularity",
    AnyDevice: "virtual_memory.any_device",
        "a device that does not exist is taken for the first" => "virtual_memory.no_such_device",
    NothingIsSomething: "virtual_memory.nothing_is_something",
        "0 bytes are rounded up" => "virtual_memory.sizes_are_positive",
    SameAddresses: "virtual_memory.same_addresses",
        "every reservation is the first one" => "virtual_memory.reservations_are_disjoint",
    HighAddresses: "virtual_memory.high_addresses",
        "reserved addresses have 58 bits" => "virtual_memory.within_57_bits",
    NoAlignment: "virtual_memory.no_alignment",
        "the alignment asked for is forgotten" => "virtual_memory.reservation_is_aligned",
    AddressesCost: "virtual_memory.addresses_cost",
        "addresses beyond the device's memory are refused" => "virtual_memory.reservation_takes_no_memory",
    AddressesLeak: "virtual_memory.addresses_leak",
        "addresses given back stay reserved" => "virtual_memory.addresses_come_back",
    ReleaseOfMapped: "virtual_memory.release_of_mapped",
        "mapped addresses are given back without a word" => "virtual_memory.mapped_addresses_stay",
    WrongKindWhenFull: "virtual_memory.wrong_kind_when_full",
        "too little memory is reported as a wrong argument" => "virtual_memory.more_than_there_is",
    LastPageClosed: "virtual_memory.last_page_closed",
        "access is set to all but the last handle's worth of a range" => "virtual_memory.bytes_are_kept",
    StreamsBarred: "virtual_memory.streams_barred",
        "queued fills of mapped memory write one byte less" => "virtual_memory.streams_use_it",
    MapOpens: "virtual_memory.map_opens",
        "mapping opens the memory to the device" => "virtual_memory.no_access_at_first",
    AccessUnknown: "virtual_memory.access_unknown",
        "access() always says None" => "virtual_memory.access_is_told",
    AccessForEver: "virtual_memory.access_for_ever",
        "access that is taken away stays" => "virtual_memory.access_can_be_taken",
    AccessOfAll: "virtual_memory.access_of_all",
        "access() answers for empty places too" => "virtual_memory.access_of_nothing",
    AliasedMaps: "virtual_memory.aliased_maps",
        "every mapping shows the first living handle of its size" => "virtual_memory.slots_are_distinct",
    AdjacentUnmapStops: "virtual_memory.adjacent_unmap_stops",
        "unmap takes away the first mapping of a range only" => "virtual_memory.adjacent_unmap",
    UnmapLies: "virtual_memory.unmap_lies", "unmap does nothing" => "virtual_memory.unmapped_is_free",
    MapMovesNothing: "virtual_memory.map_moves_nothing",
        "a second mapping of a handle shows new memory" => "virtual_memory.memory_moves",
    AliasIsFresh: "virtual_memory.alias_is_fresh",
        "a handle that is mapped shows new memory at a second address" => "virtual_memory.aliases_agree",
    UnmapTakesAll: "virtual_memory.unmap_takes_all",
        "unmap takes all mappings of the handle away" => "virtual_memory.aliases_are_alone",
    MapReplaces: "virtual_memory.map_replaces",
        "mapping at an occupied place replaces what is there" => "virtual_memory.occupied_place",
    ReleaseUnmaps: "virtual_memory.release_unmaps",
        "releasing a handle takes its mapping away" => "virtual_memory.released_handle_lives",
    ForeignHandles: "virtual_memory.foreign_handles",
        "handles of other backends are taken for its own" => "virtual_memory.foreign_handle",
    HandlesLeak: "virtual_memory.handles_leak",
        "releasing a handle does nothing" => "virtual_memory.memory_comes_back",
    MappedIsUnknown: "virtual_memory.mapped_is_unknown",
        "pointer_info does not know reserved addresses" => "virtual_memory.pointer_is_known",
    FirstDevice: "virtual_memory.first_device",
        "physical memory always comes from the first device" => "virtual_memory.on_the_right_device",
    DeviceLeftBehind: "virtual_memory.device_left_behind",
        "creating memory leaves its device current" => "virtual_memory.current_device_stays",
    UnmapWaits: "virtual_memory.unmap_waits",
        "unmap waits while a stream is busy" => "virtual_memory.unmap_does_not_wait",
    AllIsShareable: "virtual_memory.all_is_shareable",
        "every handle is created for export" => "virtual_memory.private_memory_stays",
    AnyDescriptor: "virtual_memory.any_descriptor",
        "any descriptor imports as new memory" => "virtual_memory.foreign_descriptor",
}

hook! { OddGranularity {
    fn granularity(&self, inner: &dyn VirtualMemory, device: DeviceIndex, which: Granularity) -> Result<u64> {
        Ok(inner.granularity(device, which)? + u64::from(which == Granularity::Minimum))
    }
} }

/// The device, or the first where it does not exist.
fn nearest(inner: &dyn VirtualMemory, device: DeviceIndex) -> DeviceIndex {
    if inner.granularity(device, Granularity::Minimum).is_ok() { device } else { DeviceIndex(0) }
}

hook! { AnyDevice {
    fn granularity(&self, inner: &dyn VirtualMemory, device: DeviceIndex, which: Granularity) -> Result<u64> {
        inner.granularity(nearest(inner, device), which)
    }

    fn create_physical(
        &self,
        inner: &dyn VirtualMemory,
        device: DeviceIndex,
        bytes: u64,
        handle_type: HandleType,
    ) -> Result<PhysicalHandle> {
        inner.create_physical(nearest(inner, device), bytes, handle_type)
    }
} }

hook! { NothingIsSomething {
    fn create_physical(
        &self,
        inner: &dyn VirtualMemory,
        device: DeviceIndex,
        bytes: u64,
        handle_type: HandleType,
    ) -> Result<PhysicalHandle> {
        let least = inner.granularity(device, Granularity::Minimum)?;
        inner.create_physical(device, bytes.max(least), handle_type)
    }
} }

#[derive(Debug, Default)]
struct SameAddresses(Mutex<Option<DevicePtr>>);

impl granule_conformance::interpose::Hook for SameAddresses {
    fn reserve_address(
        &self,
        inner: &dyn VirtualMemory,
        device: DeviceIndex,
        bytes: u64,
        alignment: u64,
        hint: DevicePtr,
    ) -> Result<DevicePtr> {
        let mut first = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match *first {
            Some(base) => Ok(base),
            None => {
                let base = inner.reserve_address(device, bytes, alignment, hint)?;
                *first = Some(base);
                Ok(base)
            }
        }
    }
}

hook! { NoAlignment {
    fn reserve_address(
        &self,
        inner: &dyn VirtualMemory,
        device: DeviceIndex,
        bytes: u64,
        _: u64,
        hint: DevicePtr,
    ) -> Result<DevicePtr> {
        inner.reserve_address(device, bytes, 0, hint)
    }
} }

#[derive(Debug, Default)]
struct AddressesCost(Mutex<u64>);

impl granule_conformance::interpose::Hook for AddressesCost {
    fn memory_info(&self, inner: &dyn Backend, device: DeviceIndex) -> Result<backend_api::MemoryInfo> {
        let info = inner.memory_info(device)?;
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = info.total;
        Ok(info)
    }

    fn reserve_address(
        &self,
        inner: &dyn VirtualMemory,
        device: DeviceIndex,
        bytes: u64,
        alignment: u64,
        hint: DevicePtr,
    ) -> Result<DevicePtr> {
        let total = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if total != 0 && bytes > total {
            return Err(BackendError::new(ErrorKind::OutOfMemory, 2, "reserve", device, "beyond the device"));
        }
        inner.reserve_address(device, bytes, alignment, hint)
    }
}

hook! { AddressesLeak {
    unsafe fn release_address(&self, _: &dyn VirtualMemory, _: DevicePtr, _: u64) -> Result<()> {
        Ok(())
    }
} }

/// The lowest address that has too many bits.
const HIGH: u64 = 1 << ADDRESS_BITS;

hook! { HighAddresses {
    fn reserve_address(
        &self,
        inner: &dyn VirtualMemory,
        device: DeviceIndex,
        bytes: u64,
        alignment: u64,
        hint: DevicePtr,
    ) -> Result<DevicePtr> {
        Ok(inner.reserve_address(device, bytes, alignment, hint)?.add(HIGH))
    }

    unsafe fn release_address(&self, inner: &dyn VirtualMemory, base: DevicePtr, bytes: u64) -> Result<()> {
        // SAFETY: the caller's promise, of what reserve_address moved.
        unsafe { inner.release_address(DevicePtr(base.0.saturating_sub(HIGH)), bytes) }
    }
} }

hook! { ReleaseOfMapped {
    unsafe fn release_address(&self, inner: &dyn VirtualMemory, base: DevicePtr, bytes: u64) -> Result<()> {
        // SAFETY: the caller's promise, passed on.
        let _ = unsafe { inner.release_address(base, bytes) };
        Ok(())
    }
} }

hook! { WrongKindWhenFull {
    fn create_physical(
        &self,
        inner: &dyn VirtualMemory,
        device: DeviceIndex,
        bytes: u64,
        handle_type: HandleType,
    ) -> Result<PhysicalHandle> {
        inner
            .create_physical(device, bytes, handle_type)
            .map_err(|error| BackendError { kind: ErrorKind::InvalidValue, ..error })
    }
} }

hook! { LastPageClosed {
    unsafe fn set_access(
        &self,
        inner: &dyn VirtualMemory,
        at: DevicePtr,
        bytes: u64,
        devices: &[DeviceIndex],
        access: Access,
    ) -> Result<()> {
        let granule = inner.granularity(DeviceIndex(0), Granularity::Minimum)?;
        if bytes == granule {
            return Ok(());
        }
        // SAFETY: the caller's promise, passed on for a part of the range.
        unsafe { inner.set_access(at, bytes - granule, devices, access) }
    }
} }

hook! { StreamsBarred {
    unsafe fn memset_async(
        &self,
        inner: &dyn Backend,
        dst: DevicePtr,
        value: u8,
        bytes: u64,
        stream: Stream,
    ) -> Result<()> {
        // SAFETY: the caller's promise, passed on for a part of the range.
        unsafe { inner.memset_async(dst, value, bytes.saturating_sub(1).max(1), stream) }
    }
} }

hook! { AccessUnknown {
    fn access(&self, inner: &dyn VirtualMemory, at: DevicePtr, device: DeviceIndex) -> Result<Access> {
        inner.access(at, device).map(|_| Access::None)
    }
} }

hook! { AccessForEver {
    unsafe fn set_access(
        &self,
        inner: &dyn VirtualMemory,
        at: DevicePtr,
        bytes: u64,
        devices: &[DeviceIndex],
        access: Access,
    ) -> Result<()> {
        if access == Access::None {
            return Ok(());
        }
        // SAFETY: the caller's promise, passed on.
        unsafe { inner.set_access(at, bytes, devices, access) }
    }
} }

hook! { AccessOfAll {
    fn access(&self, inner: &dyn VirtualMemory, at: DevicePtr, device: DeviceIndex) -> Result<Access> {
        Ok(inner.access(at, device).unwrap_or(Access::None))
    }
} }

hook! { HandlesLeak {
    unsafe fn release_physical(&self, _: &dyn VirtualMemory, _: PhysicalHandle) -> Result<()> {
        Ok(())
    }
} }

#[derive(Debug, Default)]
struct MappedIsUnknown(Mutex<Vec<(u64, u64)>>);

impl granule_conformance::interpose::Hook for MappedIsUnknown {
    fn reserve_address(
        &self,
        inner: &dyn VirtualMemory,
        device: DeviceIndex,
        bytes: u64,
        alignment: u64,
        hint: DevicePtr,
    ) -> Result<DevicePtr> {
        let base = inner.reserve_address(device, bytes, alignment, hint)?;
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push((base.0, base.0 + bytes));
        Ok(base)
    }

    fn pointer_info(&self, inner: &dyn Backend, ptr: DevicePtr) -> Result<PointerInfo> {
        let reserved = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if reserved.iter().any(|&(from, to)| (from..to).contains(&ptr.0)) {
            return Ok(PointerInfo { kind: PointerKind::Unmanaged, device: None, base: DevicePtr::NULL });
        }
        inner.pointer_info(ptr)
    }
}

hook! { FirstDevice {
    fn create_physical(
        &self,
        inner: &dyn VirtualMemory,
        _: DeviceIndex,
        bytes: u64,
        handle_type: HandleType,
    ) -> Result<PhysicalHandle> {
        inner.create_physical(DeviceIndex(0), bytes, handle_type)
    }
} }

#[derive(Debug, Default)]
struct DeviceLeftBehind(Mutex<Option<DeviceIndex>>);

impl granule_conformance::interpose::Hook for DeviceLeftBehind {
    fn create_physical(
        &self,
        inner: &dyn VirtualMemory,
        device: DeviceIndex,
        bytes: u64,
        handle_type: HandleType,
    ) -> Result<PhysicalHandle> {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(device);
        inner.create_physical(device, bytes, handle_type)
    }

    fn current_device(&self, inner: &dyn Backend) -> Result<DeviceIndex> {
        let left = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        left.map_or_else(|| inner.current_device(), Ok)
    }
}

hook! { AllIsShareable {
    fn create_physical(
        &self,
        inner: &dyn VirtualMemory,
        device: DeviceIndex,
        bytes: u64,
        _: HandleType,
    ) -> Result<PhysicalHandle> {
        inner.create_physical(device, bytes, HandleType::PosixFd)
    }
} }

hook! { AnyDescriptor {
    fn import_physical(
        &self,
        inner: &dyn PhysicalSharing,
        device: DeviceIndex,
        shared: &ShareableHandle,
    ) -> Result<PhysicalHandle> {
        let granule = inner.granularity(device, Granularity::Recommended)?;
        let fresh = |_| inner.create_physical(device, granule, HandleType::None);
        inner.import_physical(device, shared).or_else(fresh)
    }
} }

/// Whether work that holds a stream was queued: a backend that waits would then be seen to wait.
type Busy = Mutex<bool>;

fn queue_host_function(
    busy: &Busy,
    inner: &dyn Backend,
    stream: Stream,
    function: HostFunction,
) -> Result<()> {
    *busy.lock().unwrap_or_else(PoisonError::into_inner) = true;
    inner.launch_host_function(stream, function)
}
