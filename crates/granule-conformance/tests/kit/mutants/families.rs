//! Backends that break rules of this area: the smaller families.

mod host;

use super::{hook, mutants};
use backend_api::types::{BackendId, DeviceIndex, DevicePtr, PhysicalHandle, Stream};
use backend_api::*;
use granule_conformance::interpose::Hook;
use host::{
    ClosedTwice, HostSeesNothing, NeverClosed, NotAccounted, NotCounted, PageableIsFine, RegisterTwice,
    RegisterZero, RegisteredIsUnknown, UnregisterAll, UnregisterNull,
};
use std::sync::{Mutex, MutexGuard, PoisonError};

mutants! {
    NoReason: "families.no_reason", "an absent family gives no reason" => "families.absent_with_reason",
    SharingAlone: "families.sharing_alone",
        "physical memory is shared where there is no virtual memory" => "families.sharing_needs_virtual_memory",
    NoAttributes: "families.no_attributes", "every attribute is 0" => "families.attributes_agree",
    RegisteredIsUnknown: "families.registered_is_unknown",
        "pointer_info does not know registered memory" => "families.registered_is_host",
    RegisterTwice: "families.register_twice",
        "memory that is registered can be registered again" => "families.registered_once",
    RegisterZero: "families.register_zero", "registering 0 bytes is fine" => "families.register_nothing",
    UnregisterNull: "families.unregister_of_null", "unregistering null is fine" => "families.unregister_null",
    UnregisterAll: "families.unregister_all",
        "unregistering what is not registered is fine" => "families.unregister_unknown",
    CopiesShort: "families.copies_short", "queued copies lose the last byte" => "families.registered_copies",
    NullForDevice: "families.null_for_device",
        "the device's address of page-locked memory is null" => "families.device_pointer",
    PageableIsFine: "families.pageable_is_fine",
        "pageable memory has its own address on the device" => "families.device_pointer_of_pageable",
    ManagedIsDevice: "families.managed_is_device",
        "pointer_info takes managed memory for device memory" => "families.managed_is_told",
    NothingIsManaged: "families.nothing_is_managed",
        "0 bytes of managed memory are rounded up" => "families.managed_of_nothing",
    FillsLost: "families.fills_lost", "queued fills do nothing" => "families.managed_is_shared",
    NoWayBack: "families.prefetch_fails", "a migration to the host is refused" => "families.managed_migrates",
    ManagedLeaks: "families.managed_leaks",
        "giving managed memory back does nothing" => "families.managed_is_freed",
    PrefetchAnywhere: "families.prefetch_anywhere",
        "a migration to nowhere is fine" => "families.prefetch_to_nowhere",
    WordSwapped: "families.word_swapped",
        "a word is written in the other byte order" => "families.word_is_written",
    WordEarly: "families.word_early", "a word is written by another stream" => "families.word_is_ordered",
    ForeignStreams: "families.foreign_streams",
        "streams of other backends are taken for its own" => "families.word_on_foreign_stream",
    OddMulticast: "families.odd_multicast",
        "the unit of multicast objects is 3 MiB" => "families.multicast_granularity",
    NeverClosed: "families.never_closed",
        "memory once opened to the host stays open" => "families.closed_to_the_host",
    NotCounted: "families.not_counted",
        "the first end of a scope closes the memory" => "families.scopes_are_counted",
    ClosedTwice: "families.closed_twice",
        "a scope that is not open can be ended" => "families.scopes_end_once",
    HostSeesNothing: "families.host_sees_nothing",
        "opening memory to the host does nothing" => "families.host_sees_bytes",
    NotAccounted: "families.not_accounted", "the account is read once" => "families.accounted",
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

hook! { NoReason {
    fn multicast_family<'a>(
        &self,
        _: &'a dyn Backend,
    ) -> std::result::Result<&'a dyn Multicast, Unsupported> {
        Err(Unsupported { family: "multicast", reason: String::new() })
    }
} }

hook! { SharingAlone {
    fn virtual_memory_family<'a>(
        &self,
        _: &'a dyn Backend,
    ) -> std::result::Result<&'a dyn VirtualMemory, Unsupported> {
        Err(Unsupported { family: "virtual memory", reason: "hidden".into() })
    }

    fn physical_sharing_family<'a>(
        &self,
        inner: &'a dyn Backend,
    ) -> std::result::Result<&'a dyn PhysicalSharing, Unsupported> {
        inner.physical_sharing()
    }
} }

hook! { NoAttributes {
    fn attribute(&self, inner: &dyn Backend, device: DeviceIndex, attribute: Attribute) -> Result<i64> {
        inner.attribute(device, attribute).map(|_| 0)
    }
} }

hook! { CopiesShort {
    unsafe fn copy_async(
        &self,
        inner: &dyn Backend,
        dst: DevicePtr,
        src: DevicePtr,
        bytes: u64,
        kind: CopyKind,
        stream: Stream,
    ) -> Result<()> {
        // SAFETY: the caller's promise, passed on for a part of the range.
        unsafe { inner.copy_async(dst, src, bytes - 1, kind, stream) }
    }
} }

hook! { NullForDevice {
    fn device_pointer(
        &self,
        inner: &dyn HostRegistration,
        device: DeviceIndex,
        ptr: DevicePtr,
    ) -> Result<DevicePtr> {
        inner.device_pointer(device, ptr).map(|_| DevicePtr::NULL)
    }
} }

hook! { ManagedIsDevice {
    fn pointer_info(&self, inner: &dyn Backend, ptr: DevicePtr) -> Result<PointerInfo> {
        let info = inner.pointer_info(ptr)?;
        let kind = if info.kind == PointerKind::Managed { PointerKind::Device } else { info.kind };
        Ok(PointerInfo { kind, ..info })
    }
} }

hook! { NothingIsManaged {
    fn malloc_managed(
        &self,
        inner: &dyn ManagedMemory,
        device: DeviceIndex,
        bytes: u64,
    ) -> Result<DevicePtr> {
        inner.malloc_managed(device, bytes.max(1))
    }
} }

hook! { FillsLost {
    unsafe fn memset_async(&self, _: &dyn Backend, _: DevicePtr, _: u8, _: u64, _: Stream) -> Result<()> {
        Ok(())
    }
} }

hook! { NoWayBack {
    unsafe fn prefetch_async(
        &self,
        inner: &dyn ManagedMemory,
        ptr: DevicePtr,
        bytes: u64,
        to: Option<DeviceIndex>,
        stream: Stream,
    ) -> Result<()> {
        let Some(device) = to else {
            let detail = "the host is no device";
            return Err(BackendError::new(ErrorKind::InvalidValue, 1, "prefetch", stream.device, detail));
        };
        // SAFETY: the caller's promise, passed on.
        unsafe { inner.prefetch_async(ptr, bytes, Some(device), stream) }
    }
} }

/// What was taken as managed memory.
#[derive(Debug, Default)]
struct ManagedLeaks(Mutex<Vec<DevicePtr>>);

impl Hook for ManagedLeaks {
    fn malloc_managed(
        &self,
        inner: &dyn ManagedMemory,
        device: DeviceIndex,
        bytes: u64,
    ) -> Result<DevicePtr> {
        let ptr = inner.malloc_managed(device, bytes)?;
        lock(&self.0).push(ptr);
        Ok(ptr)
    }

    unsafe fn free(&self, inner: &dyn Backend, device: DeviceIndex, ptr: DevicePtr) -> Result<()> {
        if lock(&self.0).contains(&ptr) {
            return Ok(());
        }
        // SAFETY: the caller's promise, passed on.
        unsafe { inner.free(device, ptr) }
    }
}

hook! { PrefetchAnywhere {
    unsafe fn prefetch_async(
        &self,
        inner: &dyn ManagedMemory,
        ptr: DevicePtr,
        bytes: u64,
        to: Option<DeviceIndex>,
        stream: Stream,
    ) -> Result<()> {
        // SAFETY: the caller's promise, passed on.
        let _ = unsafe { inner.prefetch_async(ptr, bytes, to, stream) };
        Ok(())
    }
} }

hook! { WordSwapped {
    unsafe fn write_value32(
        &self,
        inner: &dyn StreamMemory,
        stream: Stream,
        at: DevicePtr,
        value: u32,
    ) -> Result<()> {
        // SAFETY: the caller's promise, passed on.
        unsafe { inner.write_value32(stream, at, value.swap_bytes()) }
    }
} }

hook! { WordEarly {
    unsafe fn write_value32(
        &self,
        inner: &dyn StreamMemory,
        stream: Stream,
        at: DevicePtr,
        value: u32,
    ) -> Result<()> {
        // SAFETY: the caller's promise, passed on; the default stream is always there.
        unsafe { inner.write_value32(Stream { raw: 0, ..stream }, at, value) }
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

    unsafe fn write_value32(
        &self,
        inner: &dyn StreamMemory,
        stream: Stream,
        at: DevicePtr,
        value: u32,
    ) -> Result<()> {
        let own = lock(&self.0).unwrap_or(stream.backend);
        // SAFETY: the caller's promise; a simulated device checks the handle.
        unsafe { inner.write_value32(Stream { backend: own, ..stream }, at, value) }
    }
}

hook! { OddMulticast {
    fn multicast_family<'a>(
        &self,
        _: &'a dyn Backend,
    ) -> std::result::Result<&'a dyn Multicast, Unsupported> {
        Ok(&Switch)
    }
} }

/// A switch that nobody could use.
#[derive(Debug)]
struct Switch;

fn no_switch<T>() -> Result<T> {
    Err(BackendError::new(ErrorKind::NotSupported, 801, "multicast", DeviceIndex(0), "there is no switch"))
}

impl Multicast for Switch {
    fn multicast_granularity(&self, _: u32, _: u64) -> Result<u64> {
        Ok(3 << 20)
    }

    fn create(&self, _: u32, _: u64) -> Result<MulticastHandle> {
        no_switch()
    }

    fn add_device(&self, _: MulticastHandle, _: DeviceIndex) -> Result<()> {
        no_switch()
    }

    unsafe fn bind(&self, _: MulticastHandle, _: u64, _: PhysicalHandle, _: u64) -> Result<()> {
        no_switch()
    }

    unsafe fn unbind(&self, _: MulticastHandle, _: DeviceIndex, _: u64, _: u64) -> Result<()> {
        no_switch()
    }
}
