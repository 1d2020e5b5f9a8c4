//! Device memory.

mod info;

pub(crate) use info::CHECKS as INFO_CHECKS;

use crate::check::{checks, ensure, ensure_eq};
use crate::context::{pattern, refused};
use crate::{Buffer, Context, Stop, Verdict};
use backend_api::types::{DeviceIndex, DevicePtr, KIB, MIB};
use backend_api::{ADDRESS_BITS, ErrorKind, PointerKind};

checks! { Memory;
    "memory.malloc_of_nothing": "rule 4: a request for 0 bytes is InvalidValue" => malloc_of_nothing,
    "memory.malloc_is_not_null": "malloc: the address is not null" => malloc_is_not_null,
    "memory.aligned": "I1: memory is aligned to 512 bytes" => aligned,
    "memory.within_57_bits": "I1: addresses have 57 bits at most" => within_57_bits,
    "memory.disjoint": "I1: memory is disjoint from all other memory still held" => disjoint,
    "memory.disjoint_after_reuse": "I1: also where memory was given back in between" => disjoint_after_reuse,
    "memory.disjoint_across_devices": "I1: also from other devices' memory" => disjoint_across_devices,
    "memory.large_enough": "I1: memory is at least as large as asked" => large_enough,
    "memory.last_byte_works": "I1: the last byte asked for can be written and read" => last_byte_works,
    "memory.single_byte": "malloc: one byte is a request like any other" => single_byte,
    "memory.neighbours_keep_their_bytes":
        "I1: writing one allocation changes no other" => neighbours_keep_their_bytes,
    "memory.keeps_its_bytes_while_others_come_and_go":
        "memory keeps its bytes while other memory is taken and given back" => keeps_its_bytes,
    "memory.is_of_the_device_asked": "malloc: memory of that device" => is_of_the_device_asked,
    "memory.malloc_unknown_device_is_refused":
        "malloc: a device that is not there is InvalidValue" => malloc_unknown_device,
    "memory.malloc_more_than_there_is":
        "malloc: more than the device has is OutOfMemory" => malloc_more_than_there_is,
    "memory.malloc_absurd_sizes":
        "malloc: sizes near the end of 64 bits are refused, never wrapped" => malloc_absurd_sizes,
    "memory.works_after_out_of_memory":
        "rule 6: a refused request leaves no error behind" => works_after_out_of_memory,
    "memory.refused_malloc_keeps_others":
        "rule 6: a refused request changes no memory" => refused_malloc_keeps_others,
    "memory.free_null": "free: null is fine" => free_null,
    "memory.free_twice": "free: a pointer that is no live base any more is InvalidValue" => free_twice,
    "memory.free_inside": "free: a pointer inside an allocation is InvalidValue" => free_inside,
    "memory.free_unknown": "free: a pointer that was never handed out is InvalidValue" => free_unknown,
    "memory.refused_free_keeps_memory": "rule 6: a refused free has freed nothing" => refused_free_keeps,
    "memory.freed_is_unmanaged": "pointer_info: freed memory is Unmanaged" => freed_is_unmanaged,
    "memory.freed_has_no_range": "address_range: freed memory has none" => freed_has_no_range,
    "memory.free_in_any_order": "free: in any order" => free_in_any_order,
    "memory.free_on_other_current_device":
        "free: of the device named, whatever is current" => free_on_other_current_device,
}

fn malloc_of_nothing(cx: &Context) -> Verdict {
    let device = cx.device()?;
    refused("malloc(0)", cx.backend().malloc(device, 0), &[ErrorKind::InvalidValue]).map(drop)
}

fn malloc_is_not_null(cx: &Context) -> Verdict {
    for bytes in [1, 4 * KIB, 2 * MIB] {
        ensure!(!cx.buffer(bytes)?.ptr().is_null(), "{bytes} bytes are at null");
    }
    Ok(())
}

fn aligned(cx: &Context) -> Verdict {
    let buffers = buffers(cx, &[1, 3, 511, 513, 4097, 100_003])?;
    for buffer in buffers {
        ensure!(buffer.ptr().0.is_multiple_of(512), "{} bytes are at {}", buffer.bytes(), buffer.ptr());
    }
    Ok(())
}

fn within_57_bits(cx: &Context) -> Verdict {
    for device in cx.devices()? {
        let buffer = cx.buffer_on(device, 4 * MIB)?;
        ensure!(
            buffer.ptr().0 + buffer.bytes() <= 1 << ADDRESS_BITS,
            "{} bytes of device {device} are at {}, beyond {ADDRESS_BITS} bits",
            buffer.bytes(),
            buffer.ptr()
        );
    }
    Ok(())
}

fn buffers(cx: &Context, sizes: &[u64]) -> Result<Vec<Buffer>, Stop> {
    sizes.iter().map(|&bytes| cx.buffer(bytes)).collect()
}

fn all_disjoint(buffers: &[Buffer]) -> Verdict {
    let mut ranges: Vec<(u64, u64)> = buffers.iter().map(|b| (b.ptr().0, b.bytes())).collect();
    ranges.sort_unstable();
    for pair in ranges.windows(2) {
        let ((at, bytes), (next, _)) = (pair[0], pair[1]);
        ensure!(next - at >= bytes, "{bytes} bytes at {at:#x} reach into the memory at {next:#x}");
    }
    Ok(())
}

const SIZES: [u64; 10] = [1, 512, 513, 4 * KIB, 5000, 64 * KIB, 100_003, MIB, MIB + 1, 2 * MIB];

fn disjoint(cx: &Context) -> Verdict {
    let mut held = buffers(cx, &SIZES)?;
    held.extend(buffers(cx, &SIZES)?);
    all_disjoint(&held)
}

fn disjoint_after_reuse(cx: &Context) -> Verdict {
    let mut held = buffers(cx, &SIZES)?;
    for _ in 0..3 {
        let mut place = 0;
        held.retain(|_| {
            place += 1;
            place % 2 == 0
        });
        held.extend(buffers(cx, &[700, 4 * KIB, 70_000])?);
        all_disjoint(&held)?;
    }
    Ok(())
}

fn disjoint_across_devices(cx: &Context) -> Verdict {
    cx.second_device()?;
    let mut held = Vec::new();
    for device in cx.devices()? {
        for bytes in [512, 70_000] {
            held.push(cx.buffer_on(device, bytes)?);
        }
    }
    all_disjoint(&held)
}

fn large_enough(cx: &Context) -> Verdict {
    for buffer in buffers(cx, &SIZES)? {
        let range = cx.backend().address_range(buffer.ptr())?;
        ensure!(range.bytes >= buffer.bytes(), "{} bytes for {} asked", range.bytes, buffer.bytes());
    }
    Ok(())
}

fn last_byte_works(cx: &Context) -> Verdict {
    for buffer in buffers(cx, &[1, 512, 4097, MIB + 1])? {
        let last = buffer.ptr().add(buffer.bytes() - 1);
        cx.write(last, &[0xC3])?;
        ensure_eq!(cx.read(last, 1)?, [0xC3], "the last of {} bytes", buffer.bytes());
    }
    Ok(())
}

fn single_byte(cx: &Context) -> Verdict {
    let buffer = cx.buffer(1)?;
    for value in [0x5A, 0xA5] {
        cx.write(buffer.ptr(), &[value])?;
        ensure_eq!(cx.read(buffer.ptr(), 1)?, [value], "the byte");
    }
    Ok(())
}

/// Fails unless each buffer holds the pattern of its place.
fn hold_patterns(cx: &Context, buffers: &[Buffer]) -> Verdict {
    for (seed, buffer) in buffers.iter().enumerate() {
        let bytes = buffer.bytes() as usize;
        ensure!(
            cx.read(buffer.ptr(), bytes)? == pattern(seed as u8, bytes),
            "{bytes} bytes at {} changed",
            buffer.ptr()
        );
    }
    Ok(())
}

fn with_patterns(cx: &Context, sizes: &[u64]) -> Result<Vec<Buffer>, Stop> {
    let buffers = buffers(cx, sizes)?;
    for (seed, buffer) in buffers.iter().enumerate() {
        cx.write(buffer.ptr(), &pattern(seed as u8, buffer.bytes() as usize))?;
    }
    Ok(buffers)
}

fn neighbours_keep_their_bytes(cx: &Context) -> Verdict {
    let buffers = with_patterns(cx, &[1, 511, 512, 513, 4096, 5000])?;
    hold_patterns(cx, &buffers)
}

fn keeps_its_bytes(cx: &Context) -> Verdict {
    let kept = with_patterns(cx, &[700, 5000])?;
    for bytes in [600, 700, 5000, 5000] {
        let passing = cx.buffer(bytes)?;
        cx.write(passing.ptr(), &vec![0xEE; bytes as usize])?;
    }
    hold_patterns(cx, &kept)
}

fn is_of_the_device_asked(cx: &Context) -> Verdict {
    for device in cx.devices()? {
        let buffer = cx.buffer_on(device, 4 * KIB)?;
        let owner = cx.backend().pointer_info(buffer.ptr())?.device;
        ensure_eq!(owner, Some(device), "the owner of memory of device {device}");
    }
    Ok(())
}

fn malloc_unknown_device(cx: &Context) -> Verdict {
    for device in [cx.no_device()?, DeviceIndex(u16::MAX)] {
        refused("malloc", cx.backend().malloc(device, 512), &[ErrorKind::InvalidValue])?;
    }
    Ok(())
}

/// More bytes than the first device has.
fn too_much(cx: &Context) -> Result<u64, Stop> {
    Ok(cx.backend().memory_info(cx.device()?)?.total.saturating_mul(4))
}

fn malloc_more_than_there_is(cx: &Context) -> Verdict {
    let answer = cx.backend().malloc(cx.device()?, too_much(cx)?);
    refused("malloc of four times the device", answer, &[ErrorKind::OutOfMemory]).map(drop)
}

fn malloc_absurd_sizes(cx: &Context) -> Verdict {
    let device = cx.device()?;
    for bytes in [1 << 62, i64::MAX as u64, u64::MAX - 511, u64::MAX] {
        let answer = cx.backend().malloc(device, bytes);
        refused("malloc", answer, &[ErrorKind::OutOfMemory, ErrorKind::InvalidValue])?;
    }
    Ok(())
}

fn works_after_out_of_memory(cx: &Context) -> Verdict {
    let stream = cx.stream()?;
    let bytes = too_much(cx)?;
    ensure!(cx.backend().malloc(cx.device()?, bytes).is_err(), "{bytes} bytes were handed out");
    cx.backend().clear_error();
    let buffer = cx.buffer(512)?;
    cx.fill(buffer.ptr(), 7, 512, stream.handle)?;
    cx.backend().synchronize_stream(stream.handle)?;
    Ok(())
}

fn refused_malloc_keeps_others(cx: &Context) -> Verdict {
    let kept = with_patterns(cx, &[700, 5000])?;
    let bytes = too_much(cx)?;
    ensure!(cx.backend().malloc(cx.device()?, bytes).is_err(), "{bytes} bytes were handed out");
    hold_patterns(cx, &kept)
}

fn free(cx: &Context, ptr: DevicePtr) -> Result<backend_api::Result<()>, Stop> {
    let device = cx.device()?;
    // SAFETY: rule 3 with its exception: null, and pointers that are no live base, are answered.
    Ok(unsafe { cx.backend().free(device, ptr) })
}

fn free_null(cx: &Context) -> Verdict {
    for device in cx.devices()? {
        // SAFETY: rule 3 and `free`: null is fine.
        unsafe { cx.backend().free(device, DevicePtr::NULL)? };
    }
    Ok(())
}

fn free_twice(cx: &Context) -> Verdict {
    let buffer = cx.buffer(4 * KIB)?;
    let ptr = buffer.ptr();
    buffer.free()?;
    refused("free, a second time", free(cx, ptr)?, &[ErrorKind::InvalidValue]).map(drop)
}

fn free_inside(cx: &Context) -> Verdict {
    let buffer = cx.buffer(4 * KIB)?;
    for offset in [1, 512, 2 * KIB, 4 * KIB - 1] {
        let answer = free(cx, buffer.ptr().add(offset))?;
        refused("free of a pointer inside", answer, &[ErrorKind::InvalidValue])?;
    }
    Ok(())
}

fn free_unknown(cx: &Context) -> Verdict {
    let on_the_host = 0u64;
    for ptr in [DevicePtr(512), DevicePtr(std::ptr::from_ref(&on_the_host).addr() as u64)] {
        refused("free of an unknown pointer", free(cx, ptr)?, &[ErrorKind::InvalidValue])?;
    }
    Ok(())
}

fn refused_free_keeps(cx: &Context) -> Verdict {
    let kept = with_patterns(cx, &[4 * KIB])?;
    let inside = kept[0].ptr().add(512);
    ensure!(free(cx, inside)?.is_err(), "free took a pointer inside");
    cx.backend().clear_error();
    let info = cx.backend().pointer_info(kept[0].ptr())?;
    ensure_eq!(info.kind, PointerKind::Device, "the memory after a refused free");
    hold_patterns(cx, &kept)
}

fn freed_is_unmanaged(cx: &Context) -> Verdict {
    // Large enough that drivers do not cut it from something bigger.
    let buffer = cx.buffer(4 * MIB)?;
    let ptr = buffer.ptr();
    buffer.free()?;
    ensure_eq!(cx.backend().pointer_info(ptr)?.kind, PointerKind::Unmanaged, "freed memory");
    Ok(())
}

fn freed_has_no_range(cx: &Context) -> Verdict {
    let buffer = cx.buffer(4 * MIB)?;
    let ptr = buffer.ptr();
    buffer.free()?;
    refused("address_range of freed memory", cx.backend().address_range(ptr), &[ErrorKind::InvalidValue])
        .map(drop)
}

fn free_in_any_order(cx: &Context) -> Verdict {
    let mut held = buffers(cx, &SIZES)?;
    for place in [3, 0, 5, 1, 1, 2] {
        held.remove(place).free()?;
    }
    while let Some(buffer) = held.pop() {
        buffer.free()?;
    }
    Ok(())
}

fn free_on_other_current_device(cx: &Context) -> Verdict {
    let (first, second) = (cx.device()?, cx.second_device()?);
    let buffer = cx.buffer_on(second, 4 * MIB)?;
    let ptr = buffer.ptr();
    cx.backend().set_device(first)?;
    buffer.free()?;
    ensure_eq!(cx.backend().pointer_info(ptr)?.kind, PointerKind::Unmanaged, "freed memory");
    Ok(())
}
