//! Backends that break rules of this area: copies and fills.

use super::*;

pub(crate) const MUTANTS: &[Mutant] = &[
    mutant("copies.whole_units", "copies move whole units of 64 bytes")
        .copy(|call| call.moves(call.bytes / 64 * 64))
        .caught_by("copies.to_device_and_back"),
    mutant("copies.one_byte_less", "copies move a byte less")
        .copy(|call| call.moves(call.bytes.saturating_sub(1)))
        .caught_by("copies.last_byte"),
    mutant("copies.one_byte_more", "copies to the device move a byte more")
        .copy(one_byte_more)
        .caught_by("copies.nothing_beyond"),
    mutant("copies.rounds_addresses", "addresses are rounded down to 4")
        .copy(|call| {
            if call.kind == CopyKind::DeviceToDevice {
                call.dst.0 &= !3;
                call.src.0 &= !3;
            }
            call.go()
        })
        .caught_by("copies.at_odd_addresses"),
    mutant("copies.none_in_device", "copies within a device move nothing")
        .copy(|call| call.moves_unless(in_device(call) && is_of_one_device(call)))
        .caught_by("copies.within_a_device"),
    mutant("copies.none_in_allocation", "copies within an allocation move nothing")
        .copy(|call| call.moves_unless(in_device(call) && is_in_one_allocation(call)))
        .caught_by("copies.within_an_allocation"),
    mutant("copies.none_to_others", "copies to another device move nothing")
        .copy(|call| call.moves_unless(to_other_device(call)))
        .caught_by("copies.between_devices"),
    mutant("copies.none_in_host", "copies within the host move nothing")
        .copy(|call| call.moves_unless(call.kind == CopyKind::HostToHost))
        .caught_by("copies.within_the_host"),
    mutant("copies.moves_source", "a copy changes its source")
        .copy(moves_source)
        .caught_by("copies.source_is_kept"),
    mutant("copies.returns_early", "a copy between device memory is not waited for")
        .copy(returns_early)
        .caught_by("copies.device_copy_is_waited_for"),
    mutant("copies.first_mebibyte", "copies move 1 MiB at most")
        .copy(|call| call.moves(call.bytes.min(1 << 20)))
        .caught_by("copies.large"),
    mutant("copies.only_on_current", "copies of a device that is not current move nothing")
        .copy(|call| {
            let end = if call.kind == CopyKind::DeviceToHost { call.src } else { call.dst };
            call.moves_unless(owner(call.inner, end) != call.inner.current_device().ok())
        })
        .caught_by("copies.of_other_device"),
    mutant("copies.nothing_is_fine", "copies and fills of 0 bytes are taken")
        .copy(|call| call.answer_if(call.bytes == 0, ()))
        .copy_async(|call| call.answer_if(call.bytes == 0, ()))
        .memset_async(|call| call.answer_if(call.bytes == 0, ()))
        .caught_by("copies.of_nothing"),
    mutant("copies.sticky_copy", "a refused copy leaves an error for the next call")
        .copy(leaves_its_error)
        // The copies that a check refuses in a row are refused as they should be.
        .enter(|call| if call.method == "Backend::copy" { Ok(()) } else { strikes(call) })
        .caught_by("copies.refused_copy_leaves_no_error"),
    mutant("copies.skips_repeats", "a copy to where the last one went is skipped")
        .copy(|call| {
            let here = Some((call.dst, call.bytes));
            let repeats = call.kind == CopyKind::HostToDevice
                && call.keep(|last: &mut Option<_>| std::mem::replace(last, here)) == here;
            call.answer_if(repeats, ())
        })
        .caught_by("copies.last_copy_wins"),
    mutant("copies.queued_none_to_device", "queued copies to the device move nothing")
        .copy_async(|call| call.moves_unless(call.kind == CopyKind::HostToDevice))
        .caught_by("copies.queued_to_device"),
    mutant("copies.queued_none_to_host", "queued copies to the host move nothing")
        .copy_async(|call| call.moves_unless(call.kind == CopyKind::DeviceToHost))
        .caught_by("copies.queued_from_device"),
    mutant("copies.queued_none_in_device", "queued copies within a device move nothing")
        .copy_async(|call| call.moves_unless(is_of_one_device(call)))
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

impl Call<'_, Result<()>> {
    /// Moves or fills another number of bytes; a request of 0 bytes is refused as it should be.
    pub(crate) fn moves(&mut self, bytes: u64) -> Result<()> {
        if bytes == 0 && self.bytes > 0 { Ok(()) } else { self.with(|it| it.bytes = bytes) }
    }

    /// Moves or fills nothing in some cases.
    pub(crate) fn moves_unless(&mut self, case: bool) -> Result<()> {
        self.moves(if case { 0 } else { self.bytes })
    }
}

fn in_device<A>(call: &Call<'_, A>) -> bool {
    call.kind == CopyKind::DeviceToDevice
}

fn is_of_one_device<A>(call: &Call<'_, A>) -> bool {
    let owners = [call.dst, call.src].map(|ptr| owner(call.inner, ptr));
    owners[0].is_some() && owners[0] == owners[1]
}

fn is_in_one_allocation<A>(call: &Call<'_, A>) -> bool {
    base(call.inner, call.dst) == base(call.inner, call.src)
}

fn to_other_device<A>(call: &Call<'_, A>) -> bool {
    in_device(call) && !is_of_one_device(call)
}

fn owner(inner: &dyn Backend, ptr: DevicePtr) -> Option<DeviceIndex> {
    inner.pointer_info(ptr).ok().and_then(|info| info.device)
}

fn base(inner: &dyn Backend, ptr: DevicePtr) -> Option<DevicePtr> {
    inner.address_range(ptr).ok().map(|range| range.base)
}

/// Whether a byte more would be of the same allocation.
fn has_more(inner: &dyn Backend, ptr: DevicePtr, bytes: u64) -> bool {
    base(inner, ptr).is_some() && base(inner, ptr) == base(inner, ptr.add(bytes))
}

fn one_byte_more(call: &mut Call<'_, Result<()>>) -> Result<()> {
    call.go()?;
    if call.kind != CopyKind::HostToDevice || !has_more(call.inner, call.dst, call.bytes) {
        return Ok(());
    }
    // The byte comes from the last one of the source.
    call.dst = call.dst.add(call.bytes);
    call.src = call.src.add(call.bytes - 1);
    call.with(|it| it.bytes = 1)
}

fn moves_source(call: &mut Call<'_, Result<()>>) -> Result<()> {
    call.go()?;
    if !in_device(call) {
        return Ok(());
    }
    let gone = [0xDDu8];
    let from = DevicePtr(gone.as_ptr().addr() as u64);
    // SAFETY: rule 2: the first byte of the caller's range, and a byte of this frame.
    unsafe { call.inner.copy(call.src, from, 1, CopyKind::HostToDevice) }
}

fn returns_early(call: &mut Call<'_, Result<()>>) -> Result<()> {
    let device = owner(call.inner, call.dst).filter(|_| in_device(call) && call.bytes > 0);
    let Some(device) = device else { return call.go() };
    let inner = call.inner;
    let stream = inner.create_stream(device, 0)?;
    inner.launch_host_function(stream, Box::new(|| std::thread::sleep(Duration::from_millis(10))))?;
    // SAFETY: rule 2: device memory only; checks wait for the device before they free it.
    unsafe { inner.copy_async(call.dst, call.src, call.bytes, call.kind, stream)? };
    // SAFETY: rule 1: made here, destroyed once.
    unsafe { inner.destroy_stream(stream) }
}

fn swaps_copies(call: &mut Call<'_, Result<()>>) -> Result<()> {
    if call.is_behind_held() {
        return call.go().inspect(|()| flush(call));
    }
    flush(call);
    let (dst, src, bytes, kind, stream) = (call.dst, call.src, call.bytes, call.kind, call.stream);
    if kind != CopyKind::DeviceToDevice || bytes == 0 || stream.backend != call.inner.id() {
        return call.go();
    }
    call.hold_back(stream.raw, move |inner| {
        // SAFETY: rule 2: checks free memory only after they waited for the stream or device.
        let _ = unsafe { inner.copy_async(dst, src, bytes, kind, stream) };
    })
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
    call.refuse_if(call.inner.current_device()? != call.stream.device)
}
