//! The allocator's promises.

mod desk;

use crate::check::{checks, ensure, ensure_eq};
use crate::context::{pattern, prompt};
use crate::{Context, Stop, Verdict};
use alloc_core::history::HistoryOptions;
use alloc_core::snapshot::Action;
use alloc_core::{AllocError, CachingAllocator};
use backend_api::PointerKind;
use backend_api::types::{BackendId, DevicePtr, MIB, Stream};
use desk::{allocator, done, end, growing, limited, watched};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

checks! { Engine;
    "engine.memory_works": "allocated blocks keep their bytes, and are disjoint" => memory_works,
    "engine.blocks_are_aligned": "every block is aligned to 512 bytes" => blocks_are_aligned,
    "engine.wrong_pointers":
        "promise 2: any 64-bit value that is no live block is a typed error" => wrong_pointers,
    "engine.free_does_not_wait":
        "promise 2: free does not wait for the streams that use the block" => free_does_not_wait,
    "engine.free_only_records":
        "promise 2: free takes nothing from the driver; it records one event per other stream"
            => free_only_records,
    "engine.reuse_waits":
        "a block is not reused before the other streams that use it have passed" => reuse_waits,
    "engine.pending_comes_back": "a block whose other streams have passed is reused" => pending_comes_back,
    "engine.streams_are_apart": "memory of one stream is not handed to another" => streams_are_apart,
    "engine.oom_is_typed":
        "promise 1: a request beyond the device is an out-of-memory error with its figures" => oom_is_typed,
    "engine.oom_waits_for_pending":
        "promise 1: no out-of-memory error before pending frees were waited for" => oom_waits_for_pending,
    "engine.oom_releases_cache":
        "promise 1: no out-of-memory error before the cache was given back" => oom_releases_cache,
    "engine.no_retry_without_need":
        "while memory is there, no request is tried twice" => no_retry_without_need,
    "engine.any_call_may_fail":
        "promise 3: after any failed driver call the allocator is consistent and the request works"
            => any_call_may_fail,
    "engine.cache_is_emptied": "empty_cache gives the driver's memory back" => cache_is_emptied,
    "engine.history_is_complete":
        "promise 5: a snapshot with the whole history says so, and one without says so"
            => history_is_complete,
    "engine.same_order_same_places":
        "promise 6: the same requests give the same places and counters" => same_order_same_places,
    "engine.devices_are_apart": "a stream's memory lies on the stream's device" => devices_are_apart,
    "engine.current_device_stays":
        "rule 5: a request for another device leaves the current device as it was" => current_device_stays,
    "engine.foreign_stream":
        "a stream of another backend is refused, and one of its own is not" => foreign_stream,
    "engine.segments_grow": "growable segments grow in place, and give everything back" => segments_grow,
    "engine.growth_is_limited":
        "promise 1: a growable segment beyond the device is an out-of-memory error" => growth_is_limited,
}

const SAMPLE: usize = 4096;

fn free(allocator: &CachingAllocator, ptr: DevicePtr) -> Verdict {
    done(allocator.free(ptr))
}

fn memory_works(cx: &Context) -> Verdict {
    let (allocator, device, stream) = (allocator(cx)?, cx.device()?, cx.stream()?);
    let sizes = [1, 4096, MIB, 3 * MIB];
    let mut blocks = Vec::new();
    for (seed, bytes) in (0..).zip(sizes) {
        let ptr = done(allocator.malloc(bytes, stream.handle))?;
        let length = SAMPLE.min(bytes as usize);
        cx.write(ptr, &pattern(seed, length))?;
        blocks.push((ptr, seed, length));
    }
    for (ptr, seed, length) in blocks {
        ensure_eq!(cx.read(ptr, length)?, pattern(seed, length), "the bytes at {ptr}");
        free(&allocator, ptr)?;
    }
    end(&allocator, device)
}

fn blocks_are_aligned(cx: &Context) -> Verdict {
    let (allocator, device, stream) = (allocator(cx)?, cx.device()?, cx.stream()?);
    for bytes in [1, 511, 513, MIB + 1, 12 * MIB] {
        let ptr = done(allocator.malloc(bytes, stream.handle))?;
        ensure!(ptr.0.is_multiple_of(512), "{bytes} bytes are at {ptr}");
        free(&allocator, ptr)?;
    }
    end(&allocator, device)
}

fn wrong_pointers(cx: &Context) -> Verdict {
    let (allocator, device, stream) = (allocator(cx)?, cx.device()?, cx.stream()?);
    let live = done(allocator.malloc(MIB, stream.handle))?;
    ensure!(!live.is_null(), "a block at null");
    let freed = done(allocator.malloc(MIB, stream.handle))?;
    free(&allocator, freed)?;
    let foreign = cx.buffer(512)?;
    let wrong = [1, 511, live.0 + 1, live.0 + 512, live.0 - 512, freed.0, foreign.ptr().0, 1 << 47, u64::MAX];
    for ptr in wrong.map(DevicePtr) {
        let answer = allocator.free(ptr);
        ensure!(matches!(answer, Err(AllocError::InvalidPointer { .. })), "free({ptr}) gives {answer:?}");
        ensure_eq!(allocator.block_size(ptr), None, "the size of no block");
    }
    free(&allocator, live)?;
    end(&allocator, device)
}

fn free_does_not_wait(cx: &Context) -> Verdict {
    let (allocator, device) = (allocator(cx)?, cx.device()?);
    let (stream, other) = (cx.stream()?, cx.stream()?);
    let gate = cx.close(other.handle)?;
    let freed = prompt("free of a block that another stream uses", || {
        let ptr = done(allocator.malloc(MIB, stream.handle))?;
        done(allocator.record_stream(ptr, other.handle))?;
        free(&allocator, ptr)
    });
    gate.open();
    freed?;
    end(&allocator, device)
}

fn free_only_records(cx: &Context) -> Verdict {
    let ((backend, allocator), device) = (watched(cx)?, cx.device()?);
    let (stream, other) = (cx.stream()?, cx.stream()?);
    // The events that frees need are made with the first of them.
    for _ in 0..2 {
        let ptr = done(allocator.malloc(MIB, stream.handle))?;
        done(allocator.record_stream(ptr, other.handle))?;
        backend.hook().calls();
        free(&allocator, ptr)?;
        let calls = backend.hook().calls();
        let records = calls.iter().filter(|call| **call == "Backend::record_event").count();
        ensure_eq!(records, 1, "events recorded by a free for one other stream ({calls:?})");
        let allowed = ["Backend::record_event", "Backend::create_event"];
        ensure!(calls.iter().all(|call| allowed.contains(call)), "a free called {calls:?}");
        done(allocator.synchronise(device))?;
    }
    let ptr = done(allocator.malloc(MIB, stream.handle))?;
    backend.hook().calls();
    free(&allocator, ptr)?;
    ensure_eq!(backend.hook().calls(), Vec::<&str>::new(), "the calls of a free on one stream");
    end(&allocator, device)
}

fn reuse_waits(cx: &Context) -> Verdict {
    let (allocator, device) = (allocator(cx)?, cx.device()?);
    let (stream, other) = (cx.stream()?, cx.stream()?);
    let ptr = done(allocator.malloc(4 * MIB, stream.handle))?;
    let gate = cx.close(other.handle)?;
    cx.fill(ptr, 1, 4 * MIB, other.handle)?;
    done(allocator.record_stream(ptr, other.handle))?;
    free(&allocator, ptr)?;
    let next = done(allocator.malloc(4 * MIB, stream.handle))?;
    gate.open();
    cx.backend().synchronize_stream(other.handle)?;
    free(&allocator, next)?;
    ensure!(next != ptr, "{ptr} was handed out while another stream still writes to it");
    end(&allocator, device)
}

fn pending_comes_back(cx: &Context) -> Verdict {
    let (allocator, device) = (allocator(cx)?, cx.device()?);
    let (stream, other) = (cx.stream()?, cx.stream()?);
    let ptr = done(allocator.malloc(4 * MIB, stream.handle))?;
    cx.fill(ptr, 1, 4 * MIB, other.handle)?;
    done(allocator.record_stream(ptr, other.handle))?;
    free(&allocator, ptr)?;
    cx.eventually("the pending bytes come back", || {
        done(allocator.poll(device))?;
        Ok(done(allocator.stats(device))?.granule.pending_bytes == 0)
    })?;
    let next = done(allocator.malloc(4 * MIB, stream.handle))?;
    free(&allocator, next)?;
    ensure_eq!(next, ptr, "the place of the next request");
    end(&allocator, device)
}

fn streams_are_apart(cx: &Context) -> Verdict {
    let (allocator, device) = (allocator(cx)?, cx.device()?);
    let (stream, other) = (cx.stream()?, cx.stream()?);
    let ptr = done(allocator.malloc(4 * MIB, stream.handle))?;
    free(&allocator, ptr)?;
    let next = done(allocator.malloc(4 * MIB, other.handle))?;
    free(&allocator, next)?;
    ensure!(next != ptr, "{ptr} went from one stream to another without an event");
    end(&allocator, device)
}

fn oom_is_typed(cx: &Context) -> Verdict {
    let (allocator, device, stream) = (allocator(cx)?, cx.device()?, cx.stream()?);
    let total = cx.backend().memory_info(device)?.total;
    match allocator.malloc(total + MIB, stream.handle) {
        Err(AllocError::OutOfMemory(report)) => {
            ensure_eq!(report.requested, total + MIB, "the request in the report");
            ensure_eq!(report.device_total, total, "the device's memory in the report");
            ensure!(report.device_free <= total, "{} of {total} bytes are free", report.device_free);
        }
        other => return Err(Stop::Failed(format!("more than the device has gives {other:?}"))),
    }
    ensure_eq!(done(allocator.stats(device))?.num_ooms, 1, "the errors counted");
    let ptr = done(allocator.malloc(MIB, stream.handle))?;
    free(&allocator, ptr)?;
    end(&allocator, device)
}

fn oom_waits_for_pending(cx: &Context) -> Verdict {
    let (allocator, device) = (limited(cx, 24 * MIB)?, cx.device()?);
    let (stream, other) = (cx.stream()?, cx.stream()?);
    let ptr = done(allocator.malloc(20 * MIB, stream.handle))?;
    let gate = cx.close(other.handle)?;
    done(allocator.record_stream(ptr, other.handle))?;
    free(&allocator, ptr)?;
    let open = Arc::new(AtomicBool::new(false));
    let (opened, before) = std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(10));
            open.store(true, Ordering::SeqCst);
            gate.open();
        });
        let answer = allocator.malloc(20 * MIB, stream.handle);
        (answer, open.load(Ordering::SeqCst))
    });
    free(&allocator, done(opened)?)?;
    ensure!(before, "the memory was handed out before the other stream had passed");
    end(&allocator, device)
}

fn oom_releases_cache(cx: &Context) -> Verdict {
    let (allocator, device) = (limited(cx, 24 * MIB)?, cx.device()?);
    let (stream, other) = (cx.stream()?, cx.stream()?);
    let ptr = done(allocator.malloc(20 * MIB, stream.handle))?;
    free(&allocator, ptr)?;
    // The other stream may not have the first one's block: only giving it back helps.
    let next = done(allocator.malloc(20 * MIB, other.handle))?;
    free(&allocator, next)?;
    let stats = done(allocator.stats(device))?;
    ensure_eq!(stats.num_ooms, 0, "out-of-memory errors");
    end(&allocator, device)
}

fn no_retry_without_need(cx: &Context) -> Verdict {
    let (allocator, device, stream) = (allocator(cx)?, cx.device()?, cx.stream()?);
    let mut blocks = Vec::new();
    for bytes in [1000, MIB, 2 * MIB, 5 * MIB] {
        blocks.push(done(allocator.malloc(bytes, stream.handle))?);
    }
    let stats = done(allocator.stats(device))?;
    for ptr in blocks {
        free(&allocator, ptr)?;
    }
    ensure_eq!((stats.num_alloc_retries, stats.num_ooms), (0, 0), "requests tried twice, and errors");
    end(&allocator, device)
}

fn any_call_may_fail(cx: &Context) -> Verdict {
    /// More calls than the story below makes.
    const MOST: u64 = 200;
    let (device, stream, other) = (cx.device()?, cx.stream()?, cx.stream()?);
    for k in 1..MOST {
        let (backend, allocator) = watched(cx)?;
        let story = || -> Result<(), AllocError> {
            let first = allocator.malloc(2 * MIB, stream.handle)?;
            let recorded = allocator.record_stream(first, other.handle);
            // Whatever happens later, what was handed out is given back.
            allocator.free(first)?;
            recorded?;
            let second = allocator.malloc(12 * MIB, stream.handle)?;
            allocator.free(second)?;
            allocator.empty_cache()
        };
        backend.hook().fail(k);
        let answer = story();
        let has_failed = backend.hook().has_failed();
        backend.hook().fail(0);
        allocator.check_invariants();
        if let Err(AllocError::InvalidPointer(wrong)) = answer {
            return Err(Stop::Failed(format!("with call {k} failing, a block was lost: {wrong}")));
        }
        done(story())?;
        end(&allocator, device)?;
        ensure_eq!(backend.hook().live(), 0, "allocations left with call {k} failing");
        if !has_failed {
            return Ok(());
        }
    }
    Err(Stop::Failed(format!("the story makes more than {MOST} calls")))
}

fn cache_is_emptied(cx: &Context) -> Verdict {
    let (allocator, device, stream) = (allocator(cx)?, cx.device()?, cx.stream()?);
    let ptr = done(allocator.malloc(12 * MIB, stream.handle))?;
    free(&allocator, ptr)?;
    let cached = cx.backend().pointer_info(ptr)?.kind;
    end(&allocator, device)?;
    let emptied = cx.backend().pointer_info(ptr)?.kind;
    ensure_eq!(cached, PointerKind::Device, "what cached memory is to the driver");
    ensure_eq!(emptied, PointerKind::Unmanaged, "what it is when the cache is empty");
    Ok(())
}

fn history_is_complete(cx: &Context) -> Verdict {
    let (allocator, device, stream) = (allocator(cx)?, cx.device()?, cx.stream()?);
    let options = |max_entries| HistoryOptions::newest(max_entries).deterministic();
    let mut told = Vec::new();
    for max_entries in [100, 2] {
        allocator.history().record(&options(max_entries));
        for _ in 0..3 {
            let ptr = done(allocator.malloc(MIB, stream.handle))?;
            free(&allocator, ptr)?;
        }
        done(allocator.empty_cache())?;
        let snapshot = allocator.snapshot(true);
        let trace = &snapshot.device_traces[usize::from(device.0)];
        let count = |action| trace.iter().filter(|entry| entry.action == action).count();
        let counts = [Action::SegmentAlloc, Action::SegmentFree, Action::Alloc].map(count);
        told.push((snapshot.history.map(|history| (history.recorded, history.complete)), counts));
        allocator.history().record(&options(0));
    }
    ensure_eq!(told[0], (Some((true, true)), [1, 1, 3]), "a long history and what is in it");
    ensure_eq!(told[1].0, Some((true, false)), "whether a short history is recorded and complete");
    end(&allocator, device)
}

fn same_order_same_places(cx: &Context) -> Verdict {
    let (device, stream) = (cx.device()?, cx.stream()?);
    let story = || -> Result<_, Stop> {
        let allocator = allocator(cx)?;
        let (mut places, mut live) = (Vec::new(), Vec::new());
        for (n, bytes) in [700, 5 * MIB, MIB, 30_000, 2 * MIB, 700, MIB / 2, 6 * MIB].into_iter().enumerate()
        {
            let ptr = done(allocator.malloc(bytes, stream.handle))?;
            let segment = done(allocator.base_allocation(ptr))?;
            places.push((ptr.0 - segment.base.0, segment.bytes));
            live.push(ptr);
            if n % 3 == 2 {
                free(&allocator, live.remove(0))?;
            }
        }
        for ptr in live {
            free(&allocator, ptr)?;
        }
        let stats = done(allocator.stats(device))?.flatten();
        end(&allocator, device)?;
        Ok((places, stats))
    };
    let (first, second, third) = (story()?, story()?, story()?);
    ensure_eq!(second.0, first.0, "the places of a second run");
    ensure!(first == second && second == third, "other counters in another run");
    Ok(())
}

fn devices_are_apart(cx: &Context) -> Verdict {
    let (allocator, second) = (allocator(cx)?, cx.second_device()?);
    let stream = cx.stream_on(second)?;
    let ptr = done(allocator.malloc(MIB, stream.handle))?;
    ensure_eq!(cx.backend().pointer_info(ptr)?.device, Some(second), "the device of {ptr}");
    free(&allocator, ptr)?;
    end(&allocator, second)
}

fn current_device_stays(cx: &Context) -> Verdict {
    let (allocator, first, second) = (allocator(cx)?, cx.device()?, cx.second_device()?);
    let stream = cx.stream_on(second)?;
    cx.backend().set_device(first)?;
    let ptr = done(allocator.malloc(MIB, stream.handle))?;
    ensure_eq!(cx.backend().current_device()?, first, "the current device after a request");
    free(&allocator, ptr)?;
    end(&allocator, second)?;
    ensure_eq!(cx.backend().current_device()?, first, "the current device when the cache is empty");
    Ok(())
}

fn foreign_stream(cx: &Context) -> Verdict {
    let (allocator, device, own) = (allocator(cx)?, cx.device()?, cx.stream()?);
    let foreign = Stream { backend: BackendId(own.handle.backend.0 ^ 0x4000), ..own.handle };
    let answer = allocator.malloc(MIB, foreign);
    ensure!(matches!(answer, Err(AllocError::ForeignStream)), "a foreign stream gives {answer:?}");
    let ptr = done(allocator.malloc(MIB, own.handle))?;
    free(&allocator, ptr)?;
    end(&allocator, device)
}

fn segments_grow(cx: &Context) -> Verdict {
    let (allocator, device, stream) = (growing(cx)?, cx.device()?, cx.stream()?);
    let mut blocks = Vec::new();
    for seed in 0..3 {
        let ptr = done(allocator.malloc(12 * MIB, stream.handle))?;
        cx.write(ptr, &pattern(seed, SAMPLE))?;
        cx.write(ptr.add(12 * MIB - SAMPLE as u64), &pattern(seed, SAMPLE))?;
        blocks.push((ptr, seed));
    }
    for pair in blocks.windows(2) {
        ensure_eq!(pair[1].0, pair[0].0.add(12 * MIB), "where the segment goes on");
    }
    for (ptr, seed) in blocks {
        ensure_eq!(cx.read(ptr, SAMPLE)?, pattern(seed, SAMPLE), "the bytes at {ptr}");
        free(&allocator, ptr)?;
    }
    end(&allocator, device)
}

fn growth_is_limited(cx: &Context) -> Verdict {
    let (allocator, device, stream) = (growing(cx)?, cx.device()?, cx.stream()?);
    let total = cx.backend().memory_info(device)?.total;
    let answer = allocator.malloc(total + 64 * MIB, stream.handle);
    ensure!(matches!(answer, Err(AllocError::OutOfMemory(_))), "more than the device has gives {answer:?}");
    allocator.check_invariants();
    let ptr = done(allocator.malloc(4 * MIB, stream.handle))?;
    free(&allocator, ptr)?;
    end(&allocator, device)
}
