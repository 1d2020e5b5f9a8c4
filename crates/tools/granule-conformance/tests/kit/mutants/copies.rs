//! Backends that break rules of this area: copies and fills.

mod queued;

pub(crate) use queued::MUTANTS as QUEUED_MUTANTS;

use crate::mutants::{Sticky, hook, lock, mutants};
use backend_api::types::DevicePtr;
use backend_api::*;
use granule_conformance::interpose::Hook;
use std::sync::Mutex;
use std::time::Duration;

mutants! {
    WholeUnits: "copies.whole_units", "copies move whole units of 64 bytes" => "copies.to_device_and_back",
    OneByteLess: "copies.one_byte_less", "copies move a byte less" => "copies.last_byte",
    OneByteMore: "copies.one_byte_more", "copies to the device move a byte more" => "copies.nothing_beyond",
    RoundsAddresses: "copies.rounds_addresses",
        "addresses are rounded down to 4" => "copies.at_odd_addresses",
    NoneInDevice: "copies.none_in_device", "copies within a device move nothing" => "copies.within_a_device",
    NoneInAllocation: "copies.none_in_allocation",
        "copies within an allocation move nothing" => "copies.within_an_allocation",
    NoneToOthers: "copies.none_to_others",
        "copies to another device move nothing" => "copies.between_devices",
    NoneInHost: "copies.none_in_host", "copies within the host move nothing" => "copies.within_the_host",
    MovesSource: "copies.moves_source", "a copy changes its source" => "copies.source_is_kept",
    ReturnsEarly: "copies.returns_early",
        "a copy between device memory is not waited for" => "copies.device_copy_is_waited_for",
    FirstMebibyte: "copies.first_mebibyte", "copies move 1 MiB at most" => "copies.large",
    OnlyOnCurrent: "copies.only_on_current",
        "copies of a device that is not current move nothing" => "copies.of_other_device",
    NothingIsFine: "copies.nothing_is_fine", "copies and fills of 0 bytes are taken" => "copies.of_nothing",
    StickyCopy: "copies.sticky_copy",
        "a refused copy leaves an error for the next call" => "copies.refused_copy_leaves_no_error",
    SkipsRepeats: "copies.skips_repeats",
        "a copy to where the last one went is skipped" => "copies.last_copy_wins",
}

/// A hook that does something else with some copies that are waited for; 0 stands for none at all.
macro_rules! other_copy {
    ($name:ident, |$inner:ident, $dst:ident, $src:ident, $bytes:ident, $kind:ident| $body:expr) => {
        hook! { $name {
            unsafe fn copy(
                &self,
                $inner: &dyn Backend,
                $dst: DevicePtr,
                $src: DevicePtr,
                $bytes: u64,
                $kind: CopyKind,
            ) -> Result<()> {
                let none_at_all = $bytes == 0;
                let ($dst, $src, $bytes) = $body;
                if $bytes == 0 && !none_at_all {
                    return Ok(());
                }
                // SAFETY: rule 2: a part of what the caller promised.
                unsafe { $inner.copy($dst, $src, $bytes, $kind) }
            }
        } }
    };
}

fn in_device(kind: CopyKind) -> bool {
    kind == CopyKind::DeviceToDevice
}

pub(super) fn owner(inner: &dyn Backend, ptr: DevicePtr) -> Option<backend_api::types::DeviceIndex> {
    inner.pointer_info(ptr).ok().and_then(|info| info.device)
}

pub(super) fn base(inner: &dyn Backend, ptr: DevicePtr) -> Option<DevicePtr> {
    inner.address_range(ptr).ok().map(|range| range.base)
}

other_copy!(WholeUnits, |inner, dst, src, bytes, kind| (dst, src, bytes / 64 * 64));
other_copy!(OneByteLess, |inner, dst, src, bytes, kind| (dst, src, bytes.saturating_sub(1)));
other_copy!(RoundsAddresses, |inner, dst, src, bytes, kind| {
    if in_device(kind) { (DevicePtr(dst.0 & !3), DevicePtr(src.0 & !3), bytes) } else { (dst, src, bytes) }
});
other_copy!(NoneInDevice, |inner, dst, src, bytes, kind| {
    (dst, src, if in_device(kind) && owner(inner, dst) == owner(inner, src) { 0 } else { bytes })
});
other_copy!(NoneInAllocation, |inner, dst, src, bytes, kind| {
    (dst, src, if in_device(kind) && base(inner, dst) == base(inner, src) { 0 } else { bytes })
});
other_copy!(NoneToOthers, |inner, dst, src, bytes, kind| {
    (dst, src, if in_device(kind) && owner(inner, dst) != owner(inner, src) { 0 } else { bytes })
});
other_copy!(NoneInHost, |inner, dst, src, bytes, kind| {
    (dst, src, if kind == CopyKind::HostToHost { 0 } else { bytes })
});
other_copy!(FirstMebibyte, |inner, dst, src, bytes, kind| (dst, src, bytes.min(1 << 20)));
other_copy!(OnlyOnCurrent, |inner, dst, src, bytes, kind| {
    let device = owner(inner, if kind == CopyKind::DeviceToHost { src } else { dst });
    (dst, src, if device == inner.current_device().ok() { bytes } else { 0 })
});

/// A hook that does something after a copy.
macro_rules! after_copy {
    ($name:ident, |$inner:ident, $dst:ident, $src:ident, $bytes:ident, $kind:ident| $body:expr) => {
        hook! { $name {
            unsafe fn copy(
                &self,
                $inner: &dyn Backend,
                $dst: DevicePtr,
                $src: DevicePtr,
                $bytes: u64,
                $kind: CopyKind,
            ) -> Result<()> {
                // SAFETY: rule 2 is the caller's promise.
                unsafe { $inner.copy($dst, $src, $bytes, $kind)? };
                $body;
                Ok(())
            }
        } }
    };
}

after_copy!(OneByteMore, |inner, dst, src, bytes, kind| {
    // Only inside the allocation; the byte comes from the last one of the source.
    let inside = base(inner, dst).is_some() && base(inner, dst) == base(inner, dst.add(bytes));
    if kind == CopyKind::HostToDevice && inside {
        // SAFETY: rule 2: a byte of the same allocation, and one of the caller's range.
        unsafe { inner.copy(dst.add(bytes), src.add(bytes - 1), 1, kind)? };
    }
});
after_copy!(MovesSource, |inner, dst, src, bytes, kind| {
    if in_device(kind) {
        let gone = [0xDDu8];
        let from = DevicePtr(gone.as_ptr().addr() as u64);
        // SAFETY: rule 2: the first byte of the caller's range, and a byte of this frame.
        unsafe { inner.copy(src, from, 1, CopyKind::HostToDevice)? };
    }
});

hook! { ReturnsEarly {
    unsafe fn copy(
        &self,
        inner: &dyn Backend,
        dst: DevicePtr,
        src: DevicePtr,
        bytes: u64,
        kind: CopyKind,
    ) -> Result<()> {
        let device = owner(inner, dst).filter(|_| in_device(kind) && bytes > 0);
        let Some(device) = device else {
            // SAFETY: rule 2 is the caller's promise.
            return unsafe { inner.copy(dst, src, bytes, kind) };
        };
        let stream = inner.create_stream(device, 0)?;
        inner.launch_host_function(stream, Box::new(|| std::thread::sleep(Duration::from_millis(10))))?;
        // SAFETY: rule 2: device memory only; checks wait for the device before they free it.
        unsafe { inner.copy_async(dst, src, bytes, kind, stream)? };
        // SAFETY: rule 1: made here, destroyed once.
        unsafe { inner.destroy_stream(stream) }
    }
} }

hook! { NothingIsFine {
    unsafe fn copy(
        &self,
        inner: &dyn Backend,
        dst: DevicePtr,
        src: DevicePtr,
        bytes: u64,
        kind: CopyKind,
    ) -> Result<()> {
        if bytes == 0 { return Ok(()) }
        // SAFETY: rule 2 is the caller's promise.
        unsafe { inner.copy(dst, src, bytes, kind) }
    }
    unsafe fn copy_async(
        &self,
        inner: &dyn Backend,
        dst: DevicePtr,
        src: DevicePtr,
        bytes: u64,
        kind: CopyKind,
        stream: backend_api::types::Stream,
    ) -> Result<()> {
        if bytes == 0 { return Ok(()) }
        // SAFETY: rule 2 is the caller's promise.
        unsafe { inner.copy_async(dst, src, bytes, kind, stream) }
    }
    unsafe fn memset_async(
        &self,
        inner: &dyn Backend,
        dst: DevicePtr,
        value: u8,
        bytes: u64,
        stream: backend_api::types::Stream,
    ) -> Result<()> {
        if bytes == 0 { return Ok(()) }
        // SAFETY: rule 2 is the caller's promise.
        unsafe { inner.memset_async(dst, value, bytes, stream) }
    }
} }

#[derive(Debug, Default)]
struct StickyCopy(Sticky);

impl Hook for StickyCopy {
    fn enter(&self, method: &'static str) -> Result<()> {
        // The copies that a check refuses in a row are refused as they should be.
        if method == "Backend::copy" { Ok(()) } else { self.0.strike() }
    }

    unsafe fn copy(
        &self,
        inner: &dyn Backend,
        dst: DevicePtr,
        src: DevicePtr,
        bytes: u64,
        kind: CopyKind,
    ) -> Result<()> {
        // SAFETY: rule 2 is the caller's promise.
        self.0.after(unsafe { inner.copy(dst, src, bytes, kind) })
    }
}

#[derive(Debug, Default)]
struct SkipsRepeats(Mutex<Option<(DevicePtr, u64)>>);

impl Hook for SkipsRepeats {
    unsafe fn copy(
        &self,
        inner: &dyn Backend,
        dst: DevicePtr,
        src: DevicePtr,
        bytes: u64,
        kind: CopyKind,
    ) -> Result<()> {
        if kind == CopyKind::HostToDevice && lock(&self.0).replace((dst, bytes)) == Some((dst, bytes)) {
            return Ok(());
        }
        // SAFETY: rule 2 is the caller's promise.
        unsafe { inner.copy(dst, src, bytes, kind) }
    }
}
