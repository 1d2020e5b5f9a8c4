//! Page-locked host memory.

use crate::check::{checks, ensure, ensure_eq};
use crate::context::{pattern, refused};
use crate::{Context, Verdict};
use backend_api::types::DevicePtr;
use backend_api::{CopyKind, ErrorKind, HostFlags, PointerInfo, PointerKind};

checks! { Host;
    "host.malloc_of_nothing": "rule 4: a request for 0 bytes is InvalidValue" => malloc_of_nothing,
    "host.malloc_is_not_null": "host_malloc: the address is not null" => malloc_is_not_null,
    "host.aligned": "host_malloc: aligned to 64 bytes" => aligned,
    "host.the_host_writes_it": "host_malloc: all of it is memory of the host" => the_host_writes_it,
    "host.disjoint": "I1: memory is disjoint from all other memory still held" => disjoint,
    "host.malloc_more_than_there_is":
        "host_malloc: more than the machine has is refused" => malloc_more_than_there_is,
    "host.works_after_refusal": "rule 6: a refused request leaves no error behind" => works_after_refusal,
    "host.each_flag_works": "host_malloc: every flag, and all at once" => each_flag_works,
    "host.free_null": "host_free: null is fine" => free_null,
    "host.pointer_info_of_base": "pointer_info: page-locked memory is Host, of no device" => info_of_base,
    "host.pointer_info_of_inside": "pointer_info: every address inside has the base" => info_of_inside,
    "host.freed_is_unmanaged": "pointer_info: freed memory is Unmanaged" => freed_is_unmanaged,
    "host.copies_to_device": "copy: from page-locked memory" => copies_to_device,
    "host.copies_from_device": "copy: to page-locked memory" => copies_from_device,
    "host.every_device_reaches_it": "PORTABLE: page-locked for every device" => every_device_reaches_it,
    "host.keeps_its_bytes":
        "memory keeps its bytes while other memory is taken and given back" => keeps_its_bytes,
}

fn malloc_of_nothing(cx: &Context) -> Verdict {
    cx.device()?;
    let answer = cx.backend().pinned_host()?.host_malloc(0, HostFlags::empty());
    refused("host_malloc(0)", answer, &[ErrorKind::InvalidValue]).map(drop)
}

const SIZES: [usize; 5] = [1, 511, 4096, 4097, 100_003];

fn malloc_is_not_null(cx: &Context) -> Verdict {
    cx.device()?;
    for bytes in SIZES {
        let ptr = cx.backend().pinned_host()?.host_malloc(bytes as u64, HostFlags::empty())?;
        // SAFETY: rule 3: just handed out, freed once; null is fine too.
        unsafe { cx.backend().pinned_host()?.host_free(ptr)? };
        ensure!(!ptr.is_null(), "{bytes} bytes are at null");
    }
    Ok(())
}

fn aligned(cx: &Context) -> Verdict {
    cx.device()?;
    for bytes in SIZES {
        let buffer = cx.pinned_buffer(bytes)?;
        ensure!(buffer.ptr().0.is_multiple_of(64), "{bytes} bytes are at {}", buffer.ptr());
    }
    Ok(())
}

fn the_host_writes_it(cx: &Context) -> Verdict {
    cx.device()?;
    for bytes in SIZES {
        let mut buffer = cx.pinned_buffer(bytes)?;
        let due = pattern(3, bytes);
        buffer.bytes_mut().copy_from_slice(&due);
        ensure!(buffer.bytes() == due, "{bytes} bytes of page-locked memory changed");
        // The driver must see the same memory as the host does.
        let device = cx.buffer(bytes as u64)?;
        copy(cx, device.ptr(), buffer.ptr(), bytes, CopyKind::HostToDevice)?;
        ensure!(cx.read(device.ptr(), bytes)? == due, "the driver read other bytes than the host wrote");
    }
    Ok(())
}

fn disjoint(cx: &Context) -> Verdict {
    cx.device()?;
    let mut held = Vec::new();
    for bytes in SIZES.into_iter().chain(SIZES) {
        held.push((cx.pinned_buffer(bytes)?, bytes));
    }
    held.sort_by_key(|(buffer, _)| buffer.ptr());
    for pair in held.windows(2) {
        let (at, next, bytes) = (pair[0].0.ptr(), pair[1].0.ptr(), pair[0].1);
        ensure!(next.0 - at.0 >= bytes as u64, "{bytes} bytes at {at} reach into the memory at {next}");
    }
    Ok(())
}

const REFUSALS: [ErrorKind; 3] = [ErrorKind::OutOfMemory, ErrorKind::ResourceLimit, ErrorKind::InvalidValue];

fn malloc_more_than_there_is(cx: &Context) -> Verdict {
    cx.device()?;
    for bytes in [1 << 56, u64::MAX - 4095] {
        refused(
            "host_malloc",
            cx.backend().pinned_host()?.host_malloc(bytes, HostFlags::empty()),
            &REFUSALS,
        )?;
    }
    Ok(())
}

fn works_after_refusal(cx: &Context) -> Verdict {
    cx.device()?;
    let answer = cx.backend().pinned_host()?.host_malloc(1 << 56, HostFlags::empty());
    ensure!(answer.is_err(), "2^56 bytes were handed out");
    cx.backend().clear_error();
    drop(cx.pinned_buffer(4096)?);
    drop(cx.stream()?);
    drop(cx.buffer(512)?);
    Ok(())
}

fn each_flag_works(cx: &Context) -> Verdict {
    cx.device()?;
    for flags in HostFlags::all().iter().chain([HostFlags::all()]) {
        let ptr = cx.backend().pinned_host()?.host_malloc(4096, flags)?;
        // SAFETY: rule 3: just handed out, freed once.
        unsafe { cx.backend().pinned_host()?.host_free(ptr)? };
    }
    Ok(())
}

fn free_null(cx: &Context) -> Verdict {
    cx.device()?;
    // SAFETY: rule 3 and `host_free`: null is fine.
    unsafe { cx.backend().pinned_host()?.host_free(DevicePtr::NULL)? };
    Ok(())
}

fn info_of_base(cx: &Context) -> Verdict {
    cx.device()?;
    let buffer = cx.pinned_buffer(4096)?;
    let due = PointerInfo { kind: PointerKind::Host, device: None, base: buffer.ptr() };
    ensure_eq!(cx.backend().pointer_info(buffer.ptr())?, due, "pointer_info of page-locked memory");
    Ok(())
}

fn info_of_inside(cx: &Context) -> Verdict {
    cx.device()?;
    let buffer = cx.pinned_buffer(100_003)?;
    let due = PointerInfo { kind: PointerKind::Host, device: None, base: buffer.ptr() };
    for offset in [1, 4096, 100_002] {
        let info = cx.backend().pointer_info(buffer.ptr().add(offset))?;
        ensure_eq!(info, due, "pointer_info {offset} bytes inside");
    }
    Ok(())
}

fn freed_is_unmanaged(cx: &Context) -> Verdict {
    cx.device()?;
    let ptr = cx.backend().pinned_host()?.host_malloc(4096, HostFlags::empty())?;
    // SAFETY: rule 3: just handed out, freed once.
    unsafe { cx.backend().pinned_host()?.host_free(ptr)? };
    ensure_eq!(cx.backend().pointer_info(ptr)?.kind, PointerKind::Unmanaged, "freed memory");
    Ok(())
}

fn copy(cx: &Context, to: DevicePtr, from: DevicePtr, bytes: usize, kind: CopyKind) -> Verdict {
    // SAFETY: rule 2: both ranges are of live buffers of this size.
    unsafe { cx.backend().copy(to, from, bytes as u64, kind)? };
    Ok(())
}

fn copies_to_device(cx: &Context) -> Verdict {
    let (device, mut host) = (cx.buffer(5000)?, cx.pinned_buffer(5000)?);
    host.bytes_mut().copy_from_slice(&pattern(9, 5000));
    copy(cx, device.ptr(), host.ptr(), 5000, CopyKind::HostToDevice)?;
    ensure!(cx.read(device.ptr(), 5000)? == pattern(9, 5000), "other bytes arrived on the device");
    Ok(())
}

fn copies_from_device(cx: &Context) -> Verdict {
    let (device, host) = (cx.buffer(5000)?, cx.pinned_buffer(5000)?);
    cx.write(device.ptr(), &pattern(9, 5000))?;
    copy(cx, host.ptr(), device.ptr(), 5000, CopyKind::DeviceToHost)?;
    ensure!(host.bytes() == pattern(9, 5000), "other bytes arrived in page-locked memory");
    Ok(())
}

fn every_device_reaches_it(cx: &Context) -> Verdict {
    cx.device()?;
    let ptr = cx.backend().pinned_host()?.host_malloc(4096, HostFlags::PORTABLE)?;
    let reach = || -> Verdict {
        for device in cx.devices()? {
            let (buffer, stream) = (cx.buffer_on(device, 4096)?, cx.stream_on(device)?);
            cx.write(buffer.ptr(), &pattern(device.0 as u8, 4096))?;
            cx.queue_copy(ptr, buffer.ptr(), 4096, CopyKind::DeviceToHost, stream.handle)?;
            cx.backend().synchronize_stream(stream.handle)?;
            let back = cx.buffer_on(device, 4096)?;
            copy(cx, back.ptr(), ptr, 4096, CopyKind::HostToDevice)?;
            let arrived = cx.read(back.ptr(), 4096)? == pattern(device.0 as u8, 4096);
            ensure!(arrived, "other bytes came from device {device}");
        }
        Ok(())
    };
    let verdict = reach();
    // SAFETY: rule 3: handed out above, freed once; the streams were waited for.
    unsafe { cx.backend().pinned_host()?.host_free(ptr)? };
    verdict
}

fn keeps_its_bytes(cx: &Context) -> Verdict {
    cx.device()?;
    let mut kept = cx.pinned_buffer(5000)?;
    kept.bytes_mut().copy_from_slice(&pattern(1, 5000));
    for bytes in SIZES {
        let mut passing = cx.pinned_buffer(bytes)?;
        passing.bytes_mut().fill(0xEE);
    }
    ensure!(kept.bytes() == pattern(1, 5000), "page-locked memory changed");
    Ok(())
}
