//! Backends that break rules of this area: device memory.

mod info;

pub(crate) use info::MUTANTS as INFO_MUTANTS;
pub(super) use info::base_is_pointer;

use super::{
    Call, Mutant, error, ignores_refusals, leaves_its_error, lock, mutant, on_first_device, shifts_down,
    shifts_up, strikes,
};
use backend_api::types::{DeviceIndex, DevicePtr, MIB};
use backend_api::{ADDRESS_BITS, Backend, CopyKind, ErrorKind, Result};

pub(crate) const MUTANTS: &[Mutant] = &[
    mutant("memory.nothing_is_null", "a request for 0 bytes gives null, as on HIP")
        .malloc(|call| call.answer_if(call.bytes == 0, DevicePtr::NULL))
        .caught_by("memory.malloc_of_nothing"),
    mutant("memory.small_is_null", "small requests give null")
        .malloc(|call| call.answer_if(call.bytes == 1, DevicePtr::NULL))
        .caught_by("memory.malloc_is_not_null"),
    mutant("memory.odd_addresses", "memory is aligned to 256 bytes only")
        .malloc(shifts_up::<256>)
        .free(shifts_down::<256>)
        .caught_by("memory.aligned"),
    mutant("memory.high_addresses", "addresses have 58 bits")
        // Of a size that no check writes to: the simulator would, too.
        .malloc(|call| Ok(call.go()?.add(if call.bytes == 4 * MIB { HIGH } else { 0 })))
        .free(|call| call.with(|it| it.ptr.0 %= HIGH))
        .caught_by("memory.within_57_bits"),
    mutant("memory.hands_out_twice", "memory that is held is handed out again")
        .malloc(|call| match last(call) {
            Some((owner, ptr, held))
                if owner == call.device && (1..=held.next_multiple_of(512)).contains(&call.bytes) =>
            {
                Ok(ptr)
            }
            _ => notes_last(call),
        })
        .free(forgets_last)
        .caught_by("memory.disjoint"),
    mutant("memory.shared_by_devices", "two devices hand out the same memory")
        .malloc(|call| match last(call) {
            Some((owner, ptr, held)) if owner != call.device && (1..=held).contains(&call.bytes) => Ok(ptr),
            _ => notes_last(call),
        })
        .free(forgets_last)
        .caught_by("memory.disjoint_across_devices"),
    mutant("memory.half_the_size", "memory is half as large as asked")
        .malloc(|call| call.with(|it| it.bytes = it.bytes.div_ceil(2)))
        .caught_by("memory.large_enough"),
    mutant("memory.one_byte_short", "memory is one byte too small")
        .malloc(|call| call.with(|it| it.bytes -= u64::from(it.bytes > 1)))
        .caught_by("memory.last_byte_works"),
    mutant("memory.no_single_byte", "a request for one byte is refused")
        .malloc(|call| call.refuse_if(ErrorKind::InvalidValue, call.bytes == 1))
        .caught_by("memory.single_byte"),
    mutant("memory.wipes_neighbour", "taking memory changes other memory")
        .malloc(|call| {
            let neighbour = last(call);
            notes_last(call).inspect(|_| wipe(call.inner, neighbour))
        })
        .free(forgets_last)
        .caught_by("memory.keeps_its_bytes_while_others_come_and_go"),
    mutant("memory.refusal_wipes", "a refused request changes other memory")
        .malloc(|call| notes_last(call).inspect_err(|_| wipe(call.inner, last(call))))
        .free(forgets_last)
        .caught_by("memory.refused_malloc_keeps_others"),
    mutant("memory.always_first_device", "memory comes from device 0, whatever was asked")
        .malloc(on_first_device)
        .caught_by("memory.is_of_the_device_asked"),
    mutant("memory.short_is_invalid", "a lack of memory is InvalidValue")
        .malloc(|call| call.changed_error(|it| it.kind = ErrorKind::InvalidValue))
        .caught_by("memory.malloc_more_than_there_is"),
    mutant("memory.sizes_wrap", "sizes have 32 bits")
        .malloc(|call| match u32::try_from(call.bytes) {
            Ok(_) => call.go(),
            Err(_) => call.with(|it| it.bytes = (it.bytes & 0xFFFF).max(512)),
        })
        .caught_by("memory.malloc_absurd_sizes"),
    mutant("memory.sticky_malloc", "a refused malloc leaves an error for the next call")
        .malloc(leaves_its_error)
        .enter(strikes)
        .caught_by("memory.works_after_out_of_memory"),
    mutant("memory.null_is_invalid", "null cannot be freed")
        .free(|call| call.refuse_if(ErrorKind::InvalidValue, call.ptr.is_null()))
        .caught_by("memory.free_null"),
    mutant("memory.swallows_bad_frees", "free takes anything")
        .free(ignores_refusals)
        .caught_by("memory.free_twice"),
    mutant("memory.frees_from_inside", "a refused free of a pointer inside has freed the memory")
        .free(|call| {
            let answer = call.go();
            if answer.is_err()
                && let Ok(range) = call.inner.address_range(call.ptr)
            {
                let _ = call.with(|it| it.ptr = range.base);
            }
            answer
        })
        .caught_by("memory.refused_free_keeps_memory"),
    mutant("memory.free_leaks", "free gives nothing back")
        // Up to a limit, so that other checks still find memory.
        .free(|call| {
            let live = call.inner.address_range(call.ptr).ok().filter(|range| range.base == call.ptr);
            let leaked = call.kept::<u64>();
            let before = *lock(&leaked);
            *lock(&leaked) += live.map_or(0, |range| range.bytes);
            call.answer_if(live.is_some() && before < 180 * MIB, ())
        })
        .caught_by("memory.freed_is_unmanaged"),
    mutant("memory.frees_in_reverse", "only the memory taken last can be freed")
        .malloc(|call| call.go().inspect(|ptr| lock(&call.kept::<Vec<DevicePtr>>()).push(*ptr)))
        .free(|call| {
            let held = call.kept::<Vec<DevicePtr>>();
            let is_last = lock(&held).last() == Some(&call.ptr);
            lock(&held).retain(|other| *other != call.ptr);
            call.go()?;
            if is_last { Ok(()) } else { Err(error(ErrorKind::InvalidValue)) }
        })
        .caught_by("memory.free_in_any_order"),
    mutant("memory.frees_on_current", "free does nothing for a device that is not current")
        .free(|call| call.answer_if(call.inner.current_device()? != call.device, ()))
        .caught_by("memory.free_on_other_current_device"),
    mutant("memory.refusal_leaks", "a refused request has taken memory")
        .malloc(|call| {
            let answer = call.go();
            if answer.is_err() && call.turn() < 40 {
                let _ = call.with(|it| it.bytes = 2 * MIB);
            }
            answer
        })
        .caught_by("memory.refused_malloc_takes_nothing"),
];

/// The lowest address that has too many bits.
pub(super) const HIGH: u64 = 1 << ADDRESS_BITS;

/// The allocation before: device, address, size.
type Last = Option<(DeviceIndex, DevicePtr, u64)>;

fn last<A>(call: &Call<'_, A>) -> Last {
    *lock(&call.kept::<Last>())
}

fn notes_last(call: &mut Call<'_, Result<DevicePtr>>) -> Result<DevicePtr> {
    let ptr = call.go()?;
    *lock(&call.kept::<Last>()) = Some((call.device, ptr, call.bytes));
    Ok(ptr)
}

fn forgets_last(call: &mut Call<'_, Result<()>>) -> Result<()> {
    lock(&call.kept::<Last>()).take_if(|last| last.1 == call.ptr);
    call.go()
}

/// Changes the first byte of memory.
fn wipe(inner: &dyn Backend, memory: Last) {
    let Some((_, ptr, _)) = memory else { return };
    let byte = [0xD5u8; 1];
    let from = DevicePtr(byte.as_ptr().addr() as u64);
    // SAFETY: rule 2: one byte of an allocation that is still held; the copy is waited for.
    let _ = unsafe { inner.copy(ptr, from, 1, CopyKind::HostToDevice) };
}
