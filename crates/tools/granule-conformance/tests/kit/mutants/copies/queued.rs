//! Backends that break rules of copies and fills in stream order.

use super::{base, owner};
use crate::mutants::{block, error, hook, lock, mutants};
use backend_api::types::{DevicePtr, Stream};
use backend_api::*;
use granule_conformance::interpose::Hook;
use std::sync::Mutex;

mutants! {
    NoneToDevice: "copies.queued_none_to_device",
        "queued copies to the device move nothing" => "copies.queued_to_device",
    NoneToHost: "copies.queued_none_to_host",
        "queued copies to the host move nothing" => "copies.queued_from_device",
    NoneInDevice: "copies.queued_none_in_device",
        "queued copies within a device move nothing" => "copies.queued_within_a_device",
    NoneToOthers: "copies.queued_none_to_others",
        "queued copies to another device move nothing" => "copies.queued_between_devices",
    NoneOnDefault: "copies.none_on_default",
        "the default stream copies nothing" => "copies.queued_on_default_stream",
    CopiesAtOnce: "copies.at_once",
        "a queued copy runs where it is queued" => "copies.queued_reads_when_reached",
    SwapsCopies: "copies.swaps", "two queued copies change places" => "copies.queued_in_order",
    CopiesBlock: "copies.queued_block",
        "queueing a copy waits for the work before" => "copies.queued_does_not_block",
    OneByteMore: "copies.queued_one_byte_more",
        "queued copies move a byte more" => "copies.queued_nothing_beyond",
    RefusedRuns: "copies.refused_runs",
        "a copy of nothing is refused, and moves a byte" => "copies.refused_queued_copy_queues_nothing",
    SevenBits: "copies.seven_bits", "fills have seven bits" => "copies.fill_value",
    FillsMore: "copies.fills_more", "fills write a byte more" => "copies.fill_nothing_beyond",
    FillsWords: "copies.fills_words", "fills write whole words" => "copies.fill_at_odd_addresses",
    FillsElsewhere: "copies.fills_elsewhere",
        "fills run on the default stream" => "copies.fill_in_order",
    FillsAtOnce: "copies.fills_at_once", "a fill runs where it is queued" => "copies.fill_when_reached",
    FillsBlock: "copies.fills_block",
        "queueing a fill waits for the work before" => "copies.fill_does_not_block",
    OnlyOnCurrent: "copies.queued_only_on_current",
        "a stream of a device that is not current takes no work" => "copies.fill_on_second_device",
}

/// A hook that changes what a queued copy moves; 0 stands for nothing.
macro_rules! other_copy {
    ($name:ident,
     |$inner:ident, $dst:ident, $src:ident, $bytes:ident, $kind:ident, $stream:ident| $moved:expr) => {
        hook! { $name {
            unsafe fn copy_async(
                &self,
                $inner: &dyn Backend,
                $dst: DevicePtr,
                $src: DevicePtr,
                $bytes: u64,
                $kind: CopyKind,
                $stream: Stream,
            ) -> Result<()> {
                let moved = $moved;
                if moved == 0 && $bytes > 0 {
                    return Ok(());
                }
                // SAFETY: rule 2: no more than the caller promised.
                unsafe { $inner.copy_async($dst, $src, moved, $kind, $stream) }
            }
        } }
    };
}

other_copy!(NoneToDevice, |inner, dst, src, bytes, kind, stream| {
    if kind == CopyKind::HostToDevice { 0 } else { bytes }
});
other_copy!(NoneToHost, |inner, dst, src, bytes, kind, stream| {
    if kind == CopyKind::DeviceToHost { 0 } else { bytes }
});
other_copy!(NoneInDevice, |inner, dst, src, bytes, kind, stream| {
    if owner(inner, dst).is_some() && owner(inner, dst) == owner(inner, src) { 0 } else { bytes }
});
other_copy!(NoneToOthers, |inner, dst, src, bytes, kind, stream| {
    let owners = (owner(inner, dst), owner(inner, src));
    if kind == CopyKind::DeviceToDevice && owners.0 != owners.1 { 0 } else { bytes }
});
other_copy!(NoneOnDefault, |inner, dst, src, bytes, kind, stream| if stream.raw == 0 { 0 } else { bytes });
// The simulator refuses what reaches out of an allocation; other sides are left as they are.
other_copy!(OneByteMore, |inner, dst, src, bytes, kind, stream| {
    let inside =
        |ptr: DevicePtr| base(inner, ptr).is_some() && base(inner, ptr) == base(inner, ptr.add(bytes));
    if kind == CopyKind::DeviceToDevice && inside(dst) && inside(src) { bytes + 1 } else { bytes }
});
other_copy!(CopiesBlock, |inner, dst, src, bytes, kind, stream| {
    block(|| inner.query_stream(stream));
    bytes
});

hook! { CopiesAtOnce {
    unsafe fn copy_async(
        &self,
        inner: &dyn Backend,
        dst: DevicePtr,
        src: DevicePtr,
        bytes: u64,
        kind: CopyKind,
        _: Stream,
    ) -> Result<()> {
        // SAFETY: rule 2 is the caller's promise.
        unsafe { inner.copy(dst, src, bytes, kind) }
    }
} }

hook! { RefusedRuns {
    unsafe fn copy_async(
        &self,
        inner: &dyn Backend,
        dst: DevicePtr,
        src: DevicePtr,
        bytes: u64,
        kind: CopyKind,
        stream: Stream,
    ) -> Result<()> {
        if bytes > 0 || kind != CopyKind::DeviceToDevice {
            // SAFETY: rule 2 is the caller's promise.
            return unsafe { inner.copy_async(dst, src, bytes, kind, stream) };
        }
        // SAFETY: rule 2: the simulator checks device addresses itself.
        let _ = unsafe { inner.copy_async(dst, src, 1, kind, stream) };
        Err(error(ErrorKind::InvalidValue))
    }
} }

type Held = (DevicePtr, DevicePtr, u64, CopyKind, Stream);

/// Holds a copy between device memory back until the next, or until someone asks for the stream or device.
#[derive(Debug, Default)]
struct SwapsCopies(Mutex<Option<Held>>);

impl SwapsCopies {
    fn flush(&self, inner: &dyn Backend) {
        if let Some((dst, src, bytes, kind, stream)) = lock(&self.0).take() {
            // SAFETY: rule 2: checks free memory only after they waited for the stream or device.
            let _ = unsafe { inner.copy_async(dst, src, bytes, kind, stream) };
        }
    }
}

impl Hook for SwapsCopies {
    unsafe fn copy_async(
        &self,
        inner: &dyn Backend,
        dst: DevicePtr,
        src: DevicePtr,
        bytes: u64,
        kind: CopyKind,
        stream: Stream,
    ) -> Result<()> {
        let before = lock(&self.0).take();
        if before.is_none() && kind == CopyKind::DeviceToDevice && bytes > 0 && stream.backend == inner.id() {
            *lock(&self.0) = Some((dst, src, bytes, kind, stream));
            return Ok(());
        }
        // SAFETY: rule 2 is the caller's promise.
        unsafe { inner.copy_async(dst, src, bytes, kind, stream)? };
        *lock(&self.0) = before;
        self.flush(inner);
        Ok(())
    }

    fn synchronize_stream(&self, inner: &dyn Backend, stream: Stream) -> Result<()> {
        self.flush(inner);
        inner.synchronize_stream(stream)
    }

    fn synchronize_device(&self, inner: &dyn Backend, device: backend_api::types::DeviceIndex) -> Result<()> {
        self.flush(inner);
        inner.synchronize_device(device)
    }
}

/// A hook that changes where and with what a fill is done; 0 bytes stand for nothing.
macro_rules! other_fill {
    ($name:ident, |$inner:ident, $dst:ident, $value:ident, $bytes:ident, $stream:ident| $filled:expr) => {
        hook! { $name {
            unsafe fn memset_async(
                &self,
                $inner: &dyn Backend,
                $dst: DevicePtr,
                $value: u8,
                $bytes: u64,
                $stream: Stream,
            ) -> Result<()> {
                let none_at_all = $bytes == 0;
                let ($dst, $value, $bytes, $stream) = $filled;
                if $bytes == 0 && !none_at_all {
                    return Ok(());
                }
                // SAFETY: rule 2: the simulator checks device addresses itself.
                unsafe { $inner.memset_async($dst, $value, $bytes, $stream) }
            }
        } }
    };
}

other_fill!(SevenBits, |inner, dst, value, bytes, stream| (dst, value & 0x7F, bytes, stream));
other_fill!(FillsMore, |inner, dst, value, bytes, stream| {
    let inside = base(inner, dst).is_some() && base(inner, dst) == base(inner, dst.add(bytes));
    (dst, value, if inside { bytes + 1 } else { bytes }, stream)
});
other_fill!(FillsWords, |inner, dst, value, bytes, stream| (
    DevicePtr(dst.0 & !3),
    value,
    bytes & !3,
    stream
));
other_fill!(FillsElsewhere, |inner, dst, value, bytes, stream| {
    (dst, value, bytes, Stream { raw: 0, ..stream })
});
other_fill!(FillsBlock, |inner, dst, value, bytes, stream| {
    block(|| inner.query_stream(stream));
    (dst, value, bytes, stream)
});

hook! { FillsAtOnce {
    unsafe fn memset_async(
        &self,
        inner: &dyn Backend,
        dst: DevicePtr,
        value: u8,
        bytes: u64,
        stream: Stream,
    ) -> Result<()> {
        let own = inner.create_stream(stream.device, 0)?;
        // SAFETY: rule 2 is the caller's promise.
        let answer = unsafe { inner.memset_async(dst, value, bytes, own) };
        inner.synchronize_stream(own)?;
        // SAFETY: rule 1: made here, destroyed once.
        unsafe { inner.destroy_stream(own)? };
        answer
    }
} }

fn current_only(inner: &dyn Backend, stream: Stream) -> Result<()> {
    if inner.current_device()? == stream.device { Ok(()) } else { Err(error(ErrorKind::InvalidValue)) }
}

hook! { OnlyOnCurrent {
    unsafe fn memset_async(
        &self,
        inner: &dyn Backend,
        dst: DevicePtr,
        value: u8,
        bytes: u64,
        stream: Stream,
    ) -> Result<()> {
        current_only(inner, stream)?;
        // SAFETY: rule 2 is the caller's promise.
        unsafe { inner.memset_async(dst, value, bytes, stream) }
    }
    fn record_event(
        &self,
        inner: &dyn Backend,
        event: backend_api::types::Event,
        stream: Stream,
    ) -> Result<()> {
        current_only(inner, stream)?;
        inner.record_event(event, stream)
    }
} }
