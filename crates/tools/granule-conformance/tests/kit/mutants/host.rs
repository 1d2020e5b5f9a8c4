//! Backends that break rules of this area: page-locked host memory.

use crate::mutants::{Sticky, error, hook, lock, mutants};
use backend_api::types::{DeviceIndex, DevicePtr, Stream};
use backend_api::*;
use granule_conformance::interpose::Hook;
use std::sync::Mutex;

mutants! {
    NothingIsNull: "host.nothing_is_null", "a request for 0 bytes gives null" => "host.malloc_of_nothing",
    SmallIsNull: "host.small_is_null", "small requests give null" => "host.malloc_is_not_null",
    OddAddresses: "host.odd_addresses", "memory is aligned to 32 bytes" => "host.aligned",
    NeverReadsIt: "host.never_reads_it",
        "copies from page-locked memory move nothing" => "host.copies_to_device",
    NeverWritesIt: "host.never_writes_it",
        "copies to page-locked memory move nothing" => "host.copies_from_device",
    StaleReads: "host.stale_reads",
        "small copies from page-locked memory move nothing" => "host.the_host_writes_it",
    HandsOutTwice: "host.hands_out_twice", "memory that is held is handed out again" => "host.disjoint",
    SizesWrap: "host.sizes_wrap", "sizes have 48 bits" => "host.malloc_more_than_there_is",
    StickyHostMalloc: "host.sticky_malloc",
        "a refused host_malloc leaves an error for the next call" => "host.works_after_refusal",
    NoWriteCombined: "host.no_write_combined", "WRITE_COMBINED is refused" => "host.each_flag_works",
    NullIsInvalid: "host.null_is_invalid", "null cannot be freed" => "host.free_null",
    OfFirstDevice: "host.of_first_device",
        "page-locked memory is said to be of device 0" => "host.pointer_info_of_base",
    BaseIsPointer: "host.base_is_pointer",
        "every address is said to be a base" => "host.pointer_info_of_inside",
    FreeLeaks: "host.free_leaks", "host_free gives nothing back" => "host.freed_is_unmanaged",
    FirstDeviceOnly: "host.first_device_only",
        "only device 0 reaches page-locked memory" => "host.every_device_reaches_it",
}

/// A hook that does something else for some requests.
macro_rules! other_malloc {
    ($name:ident, |$inner:ident, $bytes:ident, $flags:ident| $body:expr) => {
        hook! { $name {
            fn host_malloc(&self, $inner: &dyn PinnedHost, $bytes: u64, $flags: HostFlags) -> Result<DevicePtr> {
                $body
            }
        } }
    };
}

other_malloc!(NothingIsNull, |inner, bytes, flags| {
    if bytes == 0 { Ok(DevicePtr::NULL) } else { inner.host_malloc(bytes, flags) }
});
other_malloc!(SmallIsNull, |inner, bytes, flags| {
    if bytes == 1 { Ok(DevicePtr::NULL) } else { inner.host_malloc(bytes, flags) }
});
other_malloc!(SizesWrap, |inner, bytes, flags| inner.host_malloc((bytes & 0xFFFF_FFFF).max(512), flags));
other_malloc!(NoWriteCombined, |inner, bytes, flags| {
    if flags == HostFlags::WRITE_COMBINED {
        return Err(error(ErrorKind::NotSupported));
    }
    inner.host_malloc(bytes, flags)
});

hook! { OddAddresses {
    fn host_malloc(&self, inner: &dyn PinnedHost, bytes: u64, flags: HostFlags) -> Result<DevicePtr> {
        if bytes == 0 { return inner.host_malloc(0, flags) }
        Ok(inner.host_malloc(bytes.saturating_add(32), flags)?.add(32))
    }
    unsafe fn host_free(&self, inner: &dyn PinnedHost, ptr: DevicePtr) -> Result<()> {
        // SAFETY: rule 3: what host_malloc moved is moved back; null stays null.
        unsafe { inner.host_free(DevicePtr(ptr.0.saturating_sub(32))) }
    }
} }

fn is_host(inner: &dyn Backend, ptr: DevicePtr) -> bool {
    inner.pointer_info(ptr).is_ok_and(|info| info.kind == PointerKind::Host)
}

/// A hook that skips some copies that are waited for.
macro_rules! skips_copy {
    ($name:ident, |$inner:ident, $dst:ident, $src:ident, $bytes:ident| $skip:expr) => {
        hook! { $name {
            unsafe fn copy(
                &self,
                $inner: &dyn Backend,
                $dst: DevicePtr,
                $src: DevicePtr,
                $bytes: u64,
                kind: CopyKind,
            ) -> Result<()> {
                if $bytes > 0 && $skip {
                    return Ok(());
                }
                // SAFETY: rule 2 is the caller's promise.
                unsafe { $inner.copy($dst, $src, $bytes, kind) }
            }
        } }
    };
}

skips_copy!(NeverReadsIt, |inner, dst, src, bytes| is_host(inner, src));
skips_copy!(NeverWritesIt, |inner, dst, src, bytes| is_host(inner, dst));
skips_copy!(StaleReads, |inner, dst, src, bytes| is_host(inner, src) && bytes < 512);

/// Page-locked memory that is handed out again while it is held: address, size, how often it is held.
#[derive(Debug, Default)]
struct HandsOutTwice(Mutex<Vec<(DevicePtr, u64, u32)>>);

impl Hook for HandsOutTwice {
    fn host_malloc(&self, inner: &dyn PinnedHost, bytes: u64, flags: HostFlags) -> Result<DevicePtr> {
        let mut held = lock(&self.0);
        if let Some((ptr, _, times)) = held.iter_mut().find(|(_, size, _)| (1..=*size).contains(&bytes)) {
            *times += 1;
            return Ok(*ptr);
        }
        let ptr = inner.host_malloc(bytes, flags)?;
        held.push((ptr, bytes, 1));
        Ok(ptr)
    }

    unsafe fn host_free(&self, inner: &dyn PinnedHost, ptr: DevicePtr) -> Result<()> {
        let mut held = lock(&self.0);
        if let Some(place) = held.iter().position(|(base, ..)| *base == ptr) {
            held[place].2 -= 1;
            if held[place].2 > 0 {
                return Ok(());
            }
            held.remove(place);
        }
        // SAFETY: rule 3: the last of its holders frees it.
        unsafe { inner.host_free(ptr) }
    }
}

#[derive(Debug, Default)]
struct StickyHostMalloc(Sticky);

impl Hook for StickyHostMalloc {
    fn enter(&self, _: &'static str) -> Result<()> {
        self.0.strike()
    }

    fn host_malloc(&self, inner: &dyn PinnedHost, bytes: u64, flags: HostFlags) -> Result<DevicePtr> {
        self.0.after(inner.host_malloc(bytes, flags))
    }
}

hook! { NullIsInvalid {
    unsafe fn host_free(&self, inner: &dyn PinnedHost, ptr: DevicePtr) -> Result<()> {
        if ptr.is_null() { return Err(error(ErrorKind::InvalidValue)) }
        // SAFETY: rule 3 is the caller's promise.
        unsafe { inner.host_free(ptr) }
    }
} }

hook! { FreeLeaks {
    unsafe fn host_free(&self, _: &dyn PinnedHost, _: DevicePtr) -> Result<()> { Ok(()) }
} }

hook! { OfFirstDevice {
    fn pointer_info(&self, inner: &dyn Backend, ptr: DevicePtr) -> Result<PointerInfo> {
        let info = inner.pointer_info(ptr)?;
        let device = if info.kind == PointerKind::Host { Some(DeviceIndex(0)) } else { info.device };
        Ok(PointerInfo { device, ..info })
    }
} }

hook! { BaseIsPointer {
    fn pointer_info(&self, inner: &dyn Backend, ptr: DevicePtr) -> Result<PointerInfo> {
        let info = inner.pointer_info(ptr)?;
        Ok(if info.kind == PointerKind::Host { PointerInfo { base: ptr, ..info } } else { info })
    }
} }

hook! { FirstDeviceOnly {
    unsafe fn copy_async(
        &self,
        inner: &dyn Backend,
        dst: DevicePtr,
        src: DevicePtr,
        bytes: u64,
        kind: CopyKind,
        stream: Stream,
    ) -> Result<()> {
        if stream.device.0 > 0 && (is_host(inner, dst) || is_host(inner, src)) {
            return Ok(());
        }
        // SAFETY: rule 2 is the caller's promise.
        unsafe { inner.copy_async(dst, src, bytes, kind, stream) }
    }
} }
