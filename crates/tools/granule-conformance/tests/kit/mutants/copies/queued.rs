//! Backends that break rules of copies and fills in stream order.

use super::{has_more, owner, to_other_device};
use crate::mutants::{Call, Mutant, blocks, error, lock, mutant};
use backend_api::types::{DevicePtr, Stream};
use backend_api::{Backend, CopyKind, ErrorKind, Result};

pub(crate) const MUTANTS: &[Mutant] = &[
    mutant("copies.queued_none_to_device", "queued copies to the device move nothing")
        .copy_async(|call| call.moves_unless(call.kind == CopyKind::HostToDevice))
        .caught_by("copies.queued_to_device"),
    mutant("copies.queued_none_to_host", "queued copies to the host move nothing")
        .copy_async(|call| call.moves_unless(call.kind == CopyKind::DeviceToHost))
        .caught_by("copies.queued_from_device"),
    mutant("copies.queued_none_in_device", "queued copies within a device move nothing")
        .copy_async(|call| {
            let owner_of_dst = owner(call.inner, call.dst);
            call.moves_unless(owner_of_dst.is_some() && owner_of_dst == owner(call.inner, call.src))
        })
        .caught_by("copies.queued_within_a_device"),
    mutant("copies.queued_none_to_others", "queued copies to another device move nothing")
        .copy_async(|call| call.moves_unless(to_other_device(call)))
        .caught_by("copies.queued_between_devices"),
    mutant("copies.none_on_default", "the default stream copies nothing")
        .copy_async(|call| call.moves_unless(call.stream.raw == 0))
        .caught_by("copies.queued_on_default_stream"),
    mutant("copies.at_once", "a queued copy runs where it is queued")
        // SAFETY: rule 2 is the caller's promise.
        .copy_async(|call| unsafe { call.inner.copy(call.dst, call.src, call.bytes, call.kind) })
        .caught_by("copies.queued_reads_when_reached"),
    mutant("copies.swaps", "two queued copies change places")
        .copy_async(swaps_copies)
        .synchronize_stream(flushes)
        .synchronize_device(flushes)
        .caught_by("copies.queued_in_order"),
    mutant("copies.queued_block", "queueing a copy waits for the work before")
        .copy_async(blocks)
        .caught_by("copies.queued_does_not_block"),
    mutant("copies.queued_one_byte_more", "queued copies move a byte more")
        .copy_async(|call| {
            let more = call.kind == CopyKind::DeviceToDevice
                && has_more(call.inner, call.dst, call.bytes)
                && has_more(call.inner, call.src, call.bytes);
            call.moves(call.bytes + u64::from(more))
        })
        .caught_by("copies.queued_nothing_beyond"),
    mutant("copies.refused_runs", "a copy of nothing is refused, and moves a byte")
        .copy_async(|call| {
            if call.bytes > 0 || call.kind != CopyKind::DeviceToDevice {
                return call.go();
            }
            let _ = call.with(|it| it.bytes = 1);
            Err(error(ErrorKind::InvalidValue))
        })
        .caught_by("copies.refused_queued_copy_queues_nothing"),
    mutant("copies.seven_bits", "fills have seven bits")
        .memset_async(|call| call.with(|it| it.value &= 0x7F))
        .caught_by("copies.fill_value"),
    mutant("copies.fills_more", "fills write a byte more")
        .memset_async(|call| call.moves(call.bytes + u64::from(has_more(call.inner, call.dst, call.bytes))))
        .caught_by("copies.fill_nothing_beyond"),
    mutant("copies.fills_words", "fills write whole words")
        .memset_async(|call| {
            call.dst.0 &= !3;
            call.moves(call.bytes & !3)
        })
        .caught_by("copies.fill_at_odd_addresses"),
    mutant("copies.fills_elsewhere", "fills run on the default stream")
        .memset_async(|call| call.with(|it| it.stream.raw = 0))
        .caught_by("copies.fill_in_order"),
    mutant("copies.fills_at_once", "a fill runs where it is queued")
        .memset_async(fills_at_once)
        .caught_by("copies.fill_when_reached"),
    mutant("copies.fills_block", "queueing a fill waits for the work before")
        .memset_async(blocks)
        .caught_by("copies.fill_does_not_block"),
    mutant("copies.queued_only_on_current", "a stream of a device that is not current takes no work")
        .memset_async(takes_only_current)
        .record_event(takes_only_current)
        .caught_by("copies.fill_on_second_device"),
];

/// A copy between device memory that is held back until the next, or until someone asks for a stream or device.
type Held = Option<(DevicePtr, DevicePtr, u64, CopyKind, Stream)>;

fn swaps_copies(call: &mut Call<'_, Result<()>>) -> Result<()> {
    let before = lock(&call.kept::<Held>()).take();
    let may_wait = call.kind == CopyKind::DeviceToDevice && call.bytes > 0;
    if before.is_none() && may_wait && call.stream.backend == call.inner.id() {
        *lock(&call.kept::<Held>()) = Some((call.dst, call.src, call.bytes, call.kind, call.stream));
        return Ok(());
    }
    call.go()?;
    copy_held(call.inner, before);
    Ok(())
}

fn flushes(call: &mut Call<'_, Result<()>>) -> Result<()> {
    copy_held(call.inner, lock(&call.kept::<Held>()).take());
    call.go()
}

fn copy_held(inner: &dyn Backend, held: Held) {
    if let Some((dst, src, bytes, kind, stream)) = held {
        // SAFETY: rule 2: checks free memory only after they waited for the stream or device.
        let _ = unsafe { inner.copy_async(dst, src, bytes, kind, stream) };
    }
}

fn fills_at_once(call: &mut Call<'_, Result<()>>) -> Result<()> {
    let own = call.inner.create_stream(call.stream.device, 0)?;
    let answer = call.with(|it| it.stream = own);
    call.inner.synchronize_stream(own)?;
    // SAFETY: rule 1: made here, destroyed once.
    unsafe { call.inner.destroy_stream(own)? };
    answer
}

fn takes_only_current(call: &mut Call<'_, Result<()>>) -> Result<()> {
    call.refuse_if(ErrorKind::InvalidValue, call.inner.current_device()? != call.stream.device)
}
