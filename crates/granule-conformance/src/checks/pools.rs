//! The driver's pools.

use crate::check::{checks, ensure, ensure_eq};
use crate::context::{pattern, prompt, refused};
use crate::{Context, Stop, Verdict};
use backend_api::types::{BackendId, DeviceIndex, DevicePtr, Stream};
use backend_api::{DriverPoolAttribute as Figure, DriverPools, ErrorKind};

checks! { Pools;
    "pools.malloc_of_nothing": "rule 4: a request for 0 bytes is InvalidValue" => malloc_of_nothing,
    "pools.more_than_there_is": "a request beyond what the device has is OutOfMemory" => more_than_there_is,
    "pools.foreign_stream": "rule 1: a stream of another backend is InvalidValue" => foreign_stream,
    "pools.no_such_device": "a device that does not exist is InvalidValue" => no_such_device,
    "pools.memory_works": "pool memory keeps what its stream writes to it" => memory_works,
    "pools.memory_is_aligned":
        "I1: pool memory is aligned to 512 bytes and disjoint from other memory" => memory_is_aligned,
    "pools.malloc_does_not_wait": "a request behind queued work returns at once" => malloc_does_not_wait,
    "pools.free_does_not_wait":
        "memory is given back behind queued work that uses it, at once, and the work still runs"
            => free_does_not_wait,
    "pools.freed_in_stream_order":
        "I1: memory whose free its stream has not passed goes to no other stream" => freed_in_stream_order,
    "pools.used_is_counted":
        "UsedCurrent follows what is handed out, and UsedHigh its most" => used_is_counted,
    "pools.reserved_covers_used":
        "ReservedCurrent is never less than UsedCurrent, and ReservedHigh never less than that"
            => reserved_covers_used,
    "pools.high_is_reset": "setting a high figure to 0 lets it begin again" => high_is_reset,
    "pools.threshold_is_kept": "the release threshold reads back as it was set" => threshold_is_kept,
    "pools.threshold_keeps_memory":
        "what is under the release threshold stays in the pool at a synchronisation"
            => threshold_keeps_memory,
    "pools.trim_gives_back": "trim(0) gives everything unused back to the device" => trim_gives_back,
    "pools.trim_keeps_used": "trim leaves memory that is handed out alone" => trim_keeps_used,
    "pools.current_counts_are_read_only":
        "what is held and used now cannot be set: InvalidValue" => current_counts_are_read_only,
}

const BYTES: u64 = 4 << 20;
const SAMPLE: usize = 4096;

fn pools(cx: &Context) -> Result<(&dyn DriverPools, DeviceIndex), Stop> {
    Ok((cx.backend().driver_pools()?, cx.device()?))
}

fn free(pools: &dyn DriverPools, ptr: DevicePtr, stream: Stream) -> Verdict {
    // SAFETY: rule 3: checks free what they took, once, and use it on this stream only.
    unsafe { pools.free_async(ptr, stream)? };
    Ok(())
}

fn malloc_of_nothing(cx: &Context) -> Verdict {
    let (pools, _) = pools(cx)?;
    let stream = cx.stream()?;
    refused("malloc_async(0)", pools.malloc_async(0, stream.handle), &[ErrorKind::InvalidValue])?;
    Ok(())
}

fn more_than_there_is(cx: &Context) -> Verdict {
    let (pools, device) = pools(cx)?;
    let stream = cx.stream()?;
    let total = cx.backend().memory_info(device)?.total;
    let answer = pools.malloc_async(total + BYTES, stream.handle);
    refused("malloc_async beyond the device", answer, &[ErrorKind::OutOfMemory])?;
    let ptr = pools.malloc_async(BYTES, stream.handle)?;
    free(pools, ptr, stream.handle)?;
    Ok(cx.backend().synchronize_stream(stream.handle)?)
}

fn foreign_stream(cx: &Context) -> Verdict {
    let (pools, _) = pools(cx)?;
    let own = cx.stream()?;
    let foreign = Stream { backend: BackendId(own.handle.backend.0 ^ 0x4000), ..own.handle };
    refused("malloc_async", pools.malloc_async(BYTES, foreign), &[ErrorKind::InvalidValue])?;
    Ok(())
}

fn no_such_device(cx: &Context) -> Verdict {
    let ((pools, _), none) = (pools(cx)?, cx.no_device()?);
    let wrong = [ErrorKind::InvalidValue];
    refused("pool_attribute", pools.pool_attribute(none, Figure::UsedCurrent), &wrong)?;
    refused("trim", pools.trim(none, 0), &wrong)?;
    Ok(())
}

fn memory_works(cx: &Context) -> Verdict {
    let (pools, _) = pools(cx)?;
    let stream = cx.stream()?;
    let ptr = pools.malloc_async(BYTES, stream.handle)?;
    cx.fill(ptr, 0x77, BYTES, stream.handle)?;
    cx.backend().synchronize_stream(stream.handle)?;
    let last = cx.read(ptr.add(BYTES - SAMPLE as u64), SAMPLE)?;
    cx.write(ptr, &pattern(1, SAMPLE))?;
    let first = cx.read(ptr, SAMPLE)?;
    free(pools, ptr, stream.handle)?;
    cx.backend().synchronize_stream(stream.handle)?;
    ensure_eq!(last, vec![0x77; SAMPLE], "the last bytes");
    ensure_eq!(first, pattern(1, SAMPLE), "the first bytes");
    Ok(())
}

fn memory_is_aligned(cx: &Context) -> Verdict {
    let (pools, _) = pools(cx)?;
    let stream = cx.stream()?;
    let sizes = [1, 513, 4097, 1 << 20];
    let mut ranges: Vec<(u64, u64)> = Vec::new();
    let mut wrong = None;
    for bytes in sizes {
        let ptr = pools.malloc_async(bytes, stream.handle)?.0;
        if !ptr.is_multiple_of(512) || ranges.iter().any(|&(a, b)| ptr < b && a < ptr + bytes) {
            wrong = Some(format!("{bytes} bytes at {ptr:#x} beside {ranges:x?}"));
        }
        ranges.push((ptr, ptr + bytes));
    }
    for (ptr, _) in ranges {
        free(pools, DevicePtr(ptr), stream.handle)?;
    }
    cx.backend().synchronize_stream(stream.handle)?;
    ensure!(wrong.is_none(), "misaligned or not disjoint: {}", wrong.unwrap_or_default());
    Ok(())
}

fn malloc_does_not_wait(cx: &Context) -> Verdict {
    let (pools, _) = pools(cx)?;
    let stream = cx.stream()?;
    let gate = cx.close(stream.handle)?;
    let mut taken = Vec::new();
    let waited = prompt("malloc_async", || {
        taken.push(pools.malloc_async(BYTES, stream.handle)?);
        Ok(())
    });
    gate.open();
    for ptr in taken {
        free(pools, ptr, stream.handle)?;
    }
    cx.backend().synchronize_stream(stream.handle)?;
    waited
}

fn free_does_not_wait(cx: &Context) -> Verdict {
    let (pools, _) = pools(cx)?;
    let stream = cx.stream()?;
    let into = cx.buffer(BYTES)?;
    cx.fill(into.ptr(), 0, BYTES, stream.handle)?;
    let gate = cx.close(stream.handle)?;
    prompt("free_async", || {
        let ptr = pools.malloc_async(BYTES, stream.handle)?;
        cx.fill(ptr, 0x66, BYTES, stream.handle)?;
        let kind = backend_api::CopyKind::DeviceToDevice;
        cx.queue_copy(into.ptr(), ptr, BYTES, kind, stream.handle)?;
        free(pools, ptr, stream.handle)
    })?;
    cx.stays_busy(stream.handle)?;
    gate.open();
    cx.backend().synchronize_stream(stream.handle)?;
    ensure_eq!(cx.read(into.ptr(), SAMPLE)?, vec![0x66; SAMPLE], "what the work before the free did");
    Ok(())
}

fn freed_in_stream_order(cx: &Context) -> Verdict {
    let (pools, _) = pools(cx)?;
    let (busy, other) = (cx.stream()?, cx.stream()?);
    let ptr = pools.malloc_async(BYTES, busy.handle)?;
    let gate = cx.close(busy.handle)?;
    cx.fill(ptr, 1, BYTES, busy.handle)?;
    free(pools, ptr, busy.handle)?;
    let next = pools.malloc_async(BYTES, other.handle)?;
    let apart = next.0 >= ptr.0 + BYTES || ptr.0 >= next.0 + BYTES;
    gate.open();
    free(pools, next, other.handle)?;
    cx.backend().synchronize_stream(busy.handle)?;
    cx.backend().synchronize_stream(other.handle)?;
    ensure!(apart, "{next} was handed out while a stream still writes to {ptr}");
    Ok(())
}

fn used_is_counted(cx: &Context) -> Verdict {
    let (pools, device) = pools(cx)?;
    let stream = cx.stream()?;
    let used = || pools.pool_attribute(device, Figure::UsedCurrent);
    let before = used()?;
    let ptr = pools.malloc_async(BYTES, stream.handle)?;
    let (during, high) = (used()?, pools.pool_attribute(device, Figure::UsedHigh)?);
    free(pools, ptr, stream.handle)?;
    cx.backend().synchronize_stream(stream.handle)?;
    let after = used()?;
    ensure!(during >= before + BYTES, "{before} bytes were used, and {during} with {BYTES} more");
    ensure!(high >= during, "the most used, {high}, is less than the {during} that were used");
    ensure_eq!(after, before, "bytes in use when all is given back");
    Ok(())
}

fn reserved_covers_used(cx: &Context) -> Verdict {
    let (pools, device) = pools(cx)?;
    let stream = cx.stream()?;
    let ptr = pools.malloc_async(BYTES, stream.handle)?;
    let figures = [Figure::UsedCurrent, Figure::ReservedCurrent, Figure::ReservedHigh];
    let [used, reserved, high] = figures.map(|which| pools.pool_attribute(device, which));
    free(pools, ptr, stream.handle)?;
    cx.backend().synchronize_stream(stream.handle)?;
    let (used, reserved, high) = (used?, reserved?, high?);
    ensure!(used <= reserved && reserved <= high, "used {used}, reserved {reserved}, at most {high}");
    Ok(())
}

fn high_is_reset(cx: &Context) -> Verdict {
    let (pools, device) = pools(cx)?;
    let stream = cx.stream()?;
    let ptr = pools.malloc_async(4 * BYTES, stream.handle)?;
    free(pools, ptr, stream.handle)?;
    cx.backend().synchronize_stream(stream.handle)?;
    let before = pools.pool_attribute(device, Figure::UsedHigh)?;
    pools.set_pool_attribute(device, Figure::UsedHigh, 0)?;
    let after = pools.pool_attribute(device, Figure::UsedHigh)?;
    ensure!(after < before, "the most used is {after} after its reset, and was {before}");
    Ok(())
}

/// Runs `body` under a release threshold, and puts the one before back.
fn under_threshold(cx: &Context, bytes: u64, body: impl FnOnce(&dyn DriverPools) -> Verdict) -> Verdict {
    let (pools, device) = pools(cx)?;
    let before = pools.pool_attribute(device, Figure::ReleaseThreshold)?;
    pools.set_pool_attribute(device, Figure::ReleaseThreshold, bytes)?;
    let done = body(pools);
    pools.set_pool_attribute(device, Figure::ReleaseThreshold, before)?;
    pools.trim(device, 0)?;
    done
}

fn threshold_is_kept(cx: &Context) -> Verdict {
    let device = cx.device()?;
    under_threshold(cx, 3 * BYTES, |pools| {
        let told = pools.pool_attribute(device, Figure::ReleaseThreshold)?;
        ensure_eq!(told, 3 * BYTES, "the threshold");
        Ok(())
    })
}

fn threshold_keeps_memory(cx: &Context) -> Verdict {
    let device = cx.device()?;
    let stream = cx.stream()?;
    under_threshold(cx, u64::MAX, |pools| {
        let ptr = pools.malloc_async(BYTES, stream.handle)?;
        free(pools, ptr, stream.handle)?;
        cx.backend().synchronize_stream(stream.handle)?;
        let kept = pools.pool_attribute(device, Figure::ReservedCurrent)?;
        ensure!(kept >= BYTES, "the pool keeps {kept} bytes of {BYTES} under an unlimited threshold");
        Ok(())
    })
}

fn trim_gives_back(cx: &Context) -> Verdict {
    let device = cx.device()?;
    let stream = cx.stream()?;
    under_threshold(cx, u64::MAX, |pools| {
        let ptr = pools.malloc_async(BYTES, stream.handle)?;
        free(pools, ptr, stream.handle)?;
        cx.backend().synchronize_stream(stream.handle)?;
        pools.trim(device, 0)?;
        let used = pools.pool_attribute(device, Figure::UsedCurrent)?;
        let kept = pools.pool_attribute(device, Figure::ReservedCurrent)?;
        ensure!(used > 0 || kept == 0, "{kept} bytes stay in the pool, of which none is used");
        Ok(())
    })
}

fn trim_keeps_used(cx: &Context) -> Verdict {
    let (pools, device) = pools(cx)?;
    let stream = cx.stream()?;
    let ptr = pools.malloc_async(BYTES, stream.handle)?;
    cx.backend().synchronize_stream(stream.handle)?;
    cx.write(ptr, &pattern(2, SAMPLE))?;
    pools.trim(device, 0)?;
    let (reserved, read) = (pools.pool_attribute(device, Figure::ReservedCurrent), cx.read(ptr, SAMPLE));
    free(pools, ptr, stream.handle)?;
    cx.backend().synchronize_stream(stream.handle)?;
    ensure!(reserved? >= BYTES, "memory that is handed out is no longer reserved");
    ensure_eq!(read?, pattern(2, SAMPLE), "the bytes afterwards");
    Ok(())
}

fn current_counts_are_read_only(cx: &Context) -> Verdict {
    let (pools, device) = pools(cx)?;
    for which in [Figure::UsedCurrent, Figure::ReservedCurrent] {
        let answer = pools.set_pool_attribute(device, which, 0);
        refused("setting a current count", answer, &[ErrorKind::InvalidValue, ErrorKind::NotSupported])?;
    }
    Ok(())
}
