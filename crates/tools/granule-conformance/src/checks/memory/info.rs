//! What the driver says about device memory and addresses.

use crate::check::{checks, ensure, ensure_eq};
use crate::context::refused;
use crate::{Context, Stop, Verdict};
use backend_api::types::{DeviceIndex, DevicePtr, KIB, MIB};
use backend_api::{ErrorKind, PointerInfo, PointerKind};

checks! { Memory;
    "memory.info_is_sane": "memory_info: there is memory, and no more is free than there is" => info_is_sane,
    "memory.info_unknown_device_is_refused":
        "memory_info: a device that is not there is InvalidValue" => info_unknown_device,
    "memory.info_falls_with_malloc": "memory_info: taken memory is not free" => info_falls_with_malloc,
    "memory.info_rises_with_free": "memory_info: freed memory is free again" => info_rises_with_free,
    "memory.info_is_of_its_device":
        "memory_info: what one device hands out does not come from another" => info_is_of_its_device,
    "memory.info_total_is_constant": "memory_info: the total does not depend on use" => total_is_constant,
    "memory.total_can_be_had":
        "memory_info: an idle device gives most of its free bytes, and of its total" => total_can_be_had,
    "memory.refused_malloc_takes_nothing":
        "rule 6: a refused request has taken nothing" => refused_malloc_takes_nothing,
    "memory.pointer_info_of_base": "pointer_info: device memory begins at its base" => info_of_base,
    "memory.pointer_info_of_inside":
        "pointer_info: every address inside has the allocation's base and device" => info_of_inside,
    "memory.pointer_info_of_end":
        "pointer_info: the address behind the end is not of the allocation" => info_of_end,
    "memory.pointer_info_of_unknown":
        "pointer_info: memory that the driver does not know is Unmanaged, with no device and no base"
        => info_of_unknown,
    "memory.pointer_info_of_any_value":
        "pointer_info: any 64-bit value may be asked" => info_of_any_value,
    "memory.pointer_info_leaves_no_error":
        "rule 6: an unknown pointer is a value, and leaves no error behind" => info_leaves_no_error,
    "memory.range_of_base": "address_range: of a base" => range_of_base,
    "memory.range_of_inside": "address_range: the same for every address inside" => range_of_inside,
    "memory.range_ends_before_the_next":
        "address_range: reaches into no other allocation" => range_ends_before_the_next,
    "memory.range_of_unknown_is_refused":
        "address_range: an unknown pointer is InvalidValue" => range_of_unknown,
}

fn info_is_sane(cx: &Context) -> Verdict {
    for device in cx.devices()? {
        let info = cx.backend().memory_info(device)?;
        ensure!(info.total > 0 && info.free <= info.total, "device {device}: {info:?}");
    }
    Ok(())
}

fn info_unknown_device(cx: &Context) -> Verdict {
    refused("memory_info", cx.backend().memory_info(cx.no_device()?), &[ErrorKind::InvalidValue]).map(drop)
}

const LARGE: u64 = 32 * MIB;

/// Whether `holds(free before, free while LARGE bytes of `owner` are held, free after)`, on `watched`, is
/// seen in one of some tries: other processes may take and give memory at any time.
fn seen(cx: &Context, owner: DeviceIndex, watched: DeviceIndex, holds: fn(u64, u64, u64) -> bool) -> Verdict {
    let mut numbers = (0, 0, 0);
    for _ in 0..5 {
        let free = || Ok::<u64, Stop>(cx.backend().memory_info(watched)?.free);
        let before = free()?;
        let buffer = cx.buffer_on(owner, LARGE)?;
        let during = free()?;
        buffer.free()?;
        numbers = (before, during, free()?);
        if holds(numbers.0, numbers.1, numbers.2) {
            return Ok(());
        }
    }
    let (before, during, after) = numbers;
    Err(Stop::Failed(format!(
        "free on device {watched}: {before} before, {during} while {LARGE} bytes of device {owner} were \
         held, {after} after"
    )))
}

fn info_falls_with_malloc(cx: &Context) -> Verdict {
    let device = cx.device()?;
    // Some memory may have been with the driver before.
    seen(cx, device, device, |before, during, _| during + LARGE / 2 <= before)
}

fn info_rises_with_free(cx: &Context) -> Verdict {
    let device = cx.device()?;
    seen(cx, device, device, |before, _, after| after + LARGE / 2 >= before)
}

fn info_is_of_its_device(cx: &Context) -> Verdict {
    let (first, second) = (cx.device()?, cx.second_device()?);
    seen(cx, second, first, |before, during, _| during + LARGE / 2 >= before)?;
    seen(cx, second, second, |before, during, _| during + LARGE / 2 <= before)
}

fn total_is_constant(cx: &Context) -> Verdict {
    for device in cx.devices()? {
        let before = cx.backend().memory_info(device)?.total;
        let _buffer = cx.buffer_on(device, 4 * MIB)?;
        ensure_eq!(cx.backend().memory_info(device)?.total, before, "all memory of device {device}");
    }
    Ok(())
}

fn total_can_be_had(cx: &Context) -> Verdict {
    for device in cx.devices()? {
        let info = cx.backend().memory_info(device)?;
        let (mut held, mut had) = (Vec::new(), 0);
        // Pieces of a half, then of what is left: what is lost to their sizes is a small part.
        let mut piece = info.total / 2;
        while piece > info.total / 64 && had < info.total {
            match cx.buffer_if_there_is(device, piece)? {
                Some(buffer) => {
                    had += piece;
                    held.push(buffer);
                }
                None => piece /= 2,
            }
        }
        let figures = format!("{had} bytes could be had of device {device}, with {info:?}");
        ensure!(had >= info.free / 4 * 3, "{figures}: much less than is said to be free");
        ensure!(
            had >= info.total / 8 * 5,
            "{figures}: is the total right? (Nobody else must use the device while the kit runs.)"
        );
    }
    Ok(())
}

fn refused_malloc_takes_nothing(cx: &Context) -> Verdict {
    let device = cx.device()?;
    let mut lost = 0;
    for _ in 0..5 {
        let before = cx.backend().memory_info(device)?;
        let answer = cx.backend().malloc(device, before.total.saturating_mul(4));
        refused("malloc of four times the device", answer, &[ErrorKind::OutOfMemory])?;
        lost = before.free.saturating_sub(cx.backend().memory_info(device)?.free);
        if lost < MIB {
            return Ok(());
        }
    }
    Err(Stop::Failed(format!("a refused request took {lost} bytes")))
}

fn info_of_base(cx: &Context) -> Verdict {
    for device in cx.devices()? {
        let buffer = cx.buffer_on(device, 4 * KIB)?;
        let due = PointerInfo { kind: PointerKind::Device, device: Some(device), base: buffer.ptr() };
        ensure_eq!(cx.backend().pointer_info(buffer.ptr())?, due, "pointer_info of a base");
    }
    Ok(())
}

fn info_of_inside(cx: &Context) -> Verdict {
    let device = cx.device()?;
    let buffer = cx.buffer(100_003)?;
    let due = PointerInfo { kind: PointerKind::Device, device: Some(device), base: buffer.ptr() };
    for offset in [1, 511, 512, 4096, 65_537, 100_002] {
        let info = cx.backend().pointer_info(buffer.ptr().add(offset))?;
        ensure_eq!(info, due, "pointer_info {offset} bytes inside");
    }
    Ok(())
}

fn info_of_end(cx: &Context) -> Verdict {
    let buffer = cx.buffer(4 * MIB)?;
    let range = cx.backend().address_range(buffer.ptr())?;
    let behind = cx.backend().pointer_info(range.base.add(range.bytes))?;
    ensure!(behind.base != buffer.ptr(), "the byte behind the end is said to be of the allocation");
    Ok(())
}

const UNMANAGED: PointerInfo =
    PointerInfo { kind: PointerKind::Unmanaged, device: None, base: DevicePtr::NULL };

fn info_of_unknown(cx: &Context) -> Verdict {
    cx.device()?;
    let (on_stack, on_heap) = (0u8, vec![0u8; 64]);
    for at in [std::ptr::from_ref(&on_stack).addr(), on_heap.as_ptr().addr()] {
        ensure_eq!(cx.backend().pointer_info(DevicePtr(at as u64))?, UNMANAGED, "memory of the program");
    }
    Ok(())
}

const STRANGE: [u64; 7] = [0, 1, 511, 4096, 1 << 52, i64::MAX as u64, u64::MAX];

fn info_of_any_value(cx: &Context) -> Verdict {
    cx.device()?;
    for at in STRANGE {
        ensure_eq!(cx.backend().pointer_info(DevicePtr(at))?, UNMANAGED, "pointer_info of {at:#x}");
    }
    Ok(())
}

fn info_leaves_no_error(cx: &Context) -> Verdict {
    cx.device()?;
    for at in STRANGE {
        cx.backend().pointer_info(DevicePtr(at))?;
        cx.backend().synchronize_device(cx.device()?)?;
        drop(cx.event()?);
    }
    Ok(())
}

fn range_of_base(cx: &Context) -> Verdict {
    for device in cx.devices()? {
        let buffer = cx.buffer_on(device, 70_000)?;
        let range = cx.backend().address_range(buffer.ptr())?;
        ensure_eq!(range.base, buffer.ptr(), "the range's base");
        ensure!(range.bytes >= 70_000, "the range has {} bytes", range.bytes);
    }
    Ok(())
}

fn range_of_inside(cx: &Context) -> Verdict {
    let buffer = cx.buffer(70_000)?;
    let due = cx.backend().address_range(buffer.ptr())?;
    for offset in [1, 512, 40_000, 69_999] {
        let range = cx.backend().address_range(buffer.ptr().add(offset))?;
        ensure_eq!(range, due, "address_range {offset} bytes inside");
    }
    Ok(())
}

fn range_ends_before_the_next(cx: &Context) -> Verdict {
    let buffers = [cx.buffer(700)?, cx.buffer(700)?, cx.buffer(5000)?, cx.buffer(700)?];
    for one in &buffers {
        let range = cx.backend().address_range(one.ptr())?;
        for other in buffers.iter().filter(|other| other.ptr() > one.ptr()) {
            ensure!(
                other.ptr().0 - range.base.0 >= range.bytes,
                "{range:?} reaches into the memory at {}",
                other.ptr()
            );
        }
    }
    Ok(())
}

fn range_of_unknown(cx: &Context) -> Verdict {
    cx.device()?;
    let on_stack = 0u8;
    for at in [0, 512, std::ptr::from_ref(&on_stack).addr() as u64] {
        let answer = cx.backend().address_range(DevicePtr(at));
        refused("address_range of an unknown pointer", answer, &[ErrorKind::InvalidValue])?;
    }
    Ok(())
}
