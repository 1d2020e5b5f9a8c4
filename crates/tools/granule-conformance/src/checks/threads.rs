//! Several threads at once.

use crate::check::{checks, ensure, ensure_eq};
use crate::context::{A_WHILE, pattern, prompt, refused};
use crate::{Context, Stop, Verdict};
use backend_api::types::{DeviceIndex, DevicePtr};
use backend_api::{CopyKind, ErrorKind, EventFlags};
use std::sync::Barrier;

checks! { Threads;
    "threads.current_device_is_per_thread":
        "rule 5: the current device is per thread" => current_device_is_per_thread,
    "threads.work_elsewhere_leaves_the_device":
        "rule 5: another thread's calls do not change it" => work_elsewhere,
    "threads.a_new_thread_works": "rule 7: a thread that never chose a device may call" => a_new_thread_works,
    "threads.memory_travels": "rule 7: memory is used and freed on any thread" => memory_travels,
    "threads.streams_travel": "rule 7: a stream is used and destroyed on any thread" => streams_travel,
    "threads.events_travel": "rule 7: an event is used and destroyed on any thread" => events_travel,
    "threads.host_memory_travels":
        "rule 7: page-locked memory is used and freed on any thread" => host_travels,
    "threads.allocate_at_once":
        "rule 7, I1: threads that allocate at once get memory of their own" => allocate_at_once,
    "threads.create_at_once": "rule 7: streams and events are made on all threads at once" => create_at_once,
    "threads.copy_at_once": "rule 7: copies of several threads do not mix" => copy_at_once,
    "threads.one_stream_for_all":
        "rule 7: several threads may queue work on one stream" => one_stream_for_all,
    "threads.ask_while_another_waits":
        "rule 7: a thread that waits does not hold another's questions" => ask_while_another_waits,
    "threads.queue_while_another_waits":
        "rule 7: a thread that waits does not hold another's work" => queue_while_another_waits,
    "threads.wait_for_the_same_event":
        "rule 7: several threads may wait for one event" => wait_for_the_same_event,
    "threads.errors_stay_with_their_thread":
        "rules 6, 7: a refusal on one thread is not seen on another" => errors_stay,
    "threads.ended_threads_leave_their_work":
        "rule 7: work queued by a thread that ended still runs" => ended_threads,
}

fn current_device_is_per_thread(cx: &Context) -> Verdict {
    let (first, second) = (cx.device()?, cx.second_device()?);
    let meet = Barrier::new(2);
    let look = |device: DeviceIndex| {
        let set = cx.backend().set_device(device);
        meet.wait();
        let current = cx.backend().current_device();
        meet.wait();
        set?;
        ensure_eq!(current?, device, "the current device of a thread that set it");
        Ok(())
    };
    std::thread::scope(|scope| {
        let other = scope.spawn(|| look(second));
        let here = look(first);
        other.join().unwrap_or_else(|_| Err(Stop::Failed("a thread panicked".into())))?;
        here
    })
}

fn work_elsewhere(cx: &Context) -> Verdict {
    let (first, second) = (cx.device()?, cx.second_device()?);
    for (here, there) in [(first, second), (second, first)] {
        cx.backend().set_device(here)?;
        cx.on_thread(|cx| {
            cx.backend().set_device(there)?;
            let (buffer, stream) = (cx.buffer_on(there, 512)?, cx.stream_on(there)?);
            cx.fill(buffer.ptr(), 1, 512, stream.handle)?;
            Ok(cx.backend().synchronize_stream(stream.handle)?)
        })?;
        ensure_eq!(cx.backend().current_device()?, here, "the device after another thread's work");
    }
    Ok(())
}

/// Every group of calls, once.
fn use_everything(cx: &Context, device: DeviceIndex) -> Verdict {
    let (buffer, stream) = (cx.buffer_on(device, 5000)?, cx.stream_on(device)?);
    let event = cx.event_on(device, EventFlags::empty())?;
    cx.write(buffer.ptr(), &pattern(1, 5000))?;
    cx.fill(buffer.ptr(), 7, 100, stream.handle)?;
    cx.backend().record_event(event.handle, stream.handle)?;
    cx.backend().synchronize_event(event.handle)?;
    ensure!(cx.read(buffer.ptr(), 100)? == [7; 100], "the fill did not arrive");
    Ok(())
}

fn a_new_thread_works(cx: &Context) -> Verdict {
    for device in cx.devices()? {
        cx.on_thread(|cx| use_everything(cx, device))?;
    }
    Ok(())
}

fn memory_travels(cx: &Context) -> Verdict {
    let buffer = cx.buffer(5000)?;
    cx.write(buffer.ptr(), &pattern(1, 5000))?;
    cx.on_thread(|cx| {
        ensure!(cx.read(buffer.ptr(), 5000)? == pattern(1, 5000), "another thread reads other bytes");
        Ok(buffer.free()?)
    })
}

fn streams_travel(cx: &Context) -> Verdict {
    let (buffer, stream) = (cx.buffer(512)?, cx.stream()?);
    cx.fill(buffer.ptr(), 1, 512, stream.handle)?;
    cx.on_thread(|cx| {
        cx.fill(buffer.ptr(), 2, 512, stream.handle)?;
        cx.backend().synchronize_stream(stream.handle)?;
        ensure!(cx.backend().query_stream(stream.handle)?.is_ready(), "not ready on another thread");
        ensure!(cx.read(buffer.ptr(), 512)? == [2; 512], "the other thread's work is not the last");
        Ok(stream.destroy()?)
    })
}

fn events_travel(cx: &Context) -> Verdict {
    let (stream, event) = (cx.stream()?, cx.event()?);
    let gate = cx.close(stream.handle)?;
    cx.backend().record_event(event.handle, stream.handle)?;
    cx.on_thread(|cx| {
        ensure!(!cx.backend().query_event(event.handle)?.is_ready(), "ready on another thread");
        gate.open();
        cx.backend().synchronize_event(event.handle)?;
        Ok(event.destroy()?)
    })
}

fn host_travels(cx: &Context) -> Verdict {
    cx.device()?;
    let mut host = cx.host_buffer(512)?;
    host.bytes_mut().fill(3);
    cx.on_thread(|cx| {
        let (device, stream) = (cx.buffer(512)?, cx.stream()?);
        cx.queue_copy(device.ptr(), host.ptr(), 512, CopyKind::HostToDevice, stream.handle)?;
        cx.backend().synchronize_stream(stream.handle)?;
        ensure!(cx.read(device.ptr(), 512)? == [3; 512], "another thread copies other bytes");
        drop(host);
        Ok(())
    })
}

const THREADS: u8 = 4;

/// Runs `work(thread)` on several threads at once.
fn at_once<T: Send>(
    cx: &Context,
    work: impl Fn(&Context, u8) -> Result<T, Stop> + Sync,
) -> Result<Vec<T>, Stop> {
    cx.device()?;
    let start = Barrier::new(usize::from(THREADS));
    std::thread::scope(|scope| {
        let (start, work) = (&start, &work);
        let spawn = |thread| {
            scope.spawn(move || {
                start.wait();
                work(cx, thread)
            })
        };
        let threads: Vec<_> = (0..THREADS).map(spawn).collect();
        let ended: Vec<_> = threads
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|_| Err(Stop::Failed("a thread panicked".into()))))
            .collect();
        ended.into_iter().collect()
    })
}

fn allocate_at_once(cx: &Context) -> Verdict {
    let held = at_once(cx, |cx, thread| {
        let mut held = Vec::new();
        for round in 0..20 {
            held.push(cx.buffer(700 + 512 * u64::from(thread) + round)?);
            if round % 3 == 0 {
                held.swap_remove(0).free()?;
            }
        }
        Ok(held)
    })?;
    let mut ranges: Vec<(DevicePtr, u64)> = held.iter().flatten().map(|b| (b.ptr(), b.bytes())).collect();
    ranges.sort_unstable();
    for pair in ranges.windows(2) {
        let ((at, bytes), (next, _)) = (pair[0], pair[1]);
        ensure!(next.0 - at.0 >= bytes, "{bytes} bytes at {at} and memory at {next} overlap");
    }
    Ok(())
}

fn create_at_once(cx: &Context) -> Verdict {
    let made = at_once(cx, |cx, _| {
        let mut made = Vec::new();
        for _ in 0..10 {
            made.push((cx.stream()?, cx.event()?));
        }
        Ok(made)
    })?;
    let mut streams: Vec<u64> = made.iter().flatten().map(|(stream, _)| stream.handle.raw).collect();
    let mut events: Vec<u64> = made.iter().flatten().map(|(_, event)| event.handle.raw).collect();
    for handles in [&mut streams, &mut events] {
        handles.sort_unstable();
        handles.dedup();
        ensure_eq!(handles.len(), 10 * usize::from(THREADS), "different handles");
    }
    Ok(())
}

fn copy_at_once(cx: &Context) -> Verdict {
    at_once(cx, |cx, thread| {
        let buffer = cx.buffer(5000)?;
        for round in 0..10 {
            let seed = thread * 16 + round;
            cx.write(buffer.ptr(), &pattern(seed, 5000))?;
            ensure!(cx.read(buffer.ptr(), 5000)? == pattern(seed, 5000), "thread {thread} read other bytes");
        }
        Ok(())
    })
    .map(drop)
}

fn one_stream_for_all(cx: &Context) -> Verdict {
    let (buffer, stream) = (cx.buffer(u64::from(THREADS) * 512)?, cx.stream()?);
    at_once(cx, |cx, thread| {
        let at = buffer.ptr().add(u64::from(thread) * 512);
        for round in 0..20 {
            cx.fill(at, thread * 32 + round, 512, stream.handle)?;
        }
        Ok(())
    })?;
    cx.backend().synchronize_stream(stream.handle)?;
    for thread in 0..THREADS {
        let read = cx.read(buffer.ptr().add(u64::from(thread) * 512), 512)?;
        ensure!(read == [thread * 32 + 19; 512], "the last fill of thread {thread} is not the last");
    }
    Ok(())
}

/// Calls `visit` while another thread waits for a stream that is held.
fn while_another_waits(cx: &Context, visit: impl FnOnce() -> Verdict) -> Verdict {
    let stream = cx.stream()?;
    let gate = cx.close(stream.handle)?;
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| cx.backend().synchronize_stream(stream.handle));
        std::thread::sleep(A_WHILE / 4);
        let verdict = visit();
        gate.open();
        waiter.join().map_err(|_| Stop::Failed("a thread panicked".into()))??;
        verdict
    })
}

fn ask_while_another_waits(cx: &Context) -> Verdict {
    let (buffer, other, event) = (cx.buffer(512)?, cx.stream()?, cx.event()?);
    while_another_waits(cx, || {
        prompt("asking while another thread waits", || {
            cx.backend().query_stream(other.handle)?;
            cx.backend().query_event(event.handle)?;
            cx.backend().pointer_info(buffer.ptr())?;
            Ok(())
        })
    })
}

fn queue_while_another_waits(cx: &Context) -> Verdict {
    let (buffer, other, event) = (cx.buffer(512)?, cx.stream()?, cx.event()?);
    while_another_waits(cx, || {
        prompt("work while another thread waits", || {
            cx.fill(buffer.ptr(), 1, 512, other.handle)?;
            cx.backend().record_event(event.handle, other.handle)?;
            Ok(cx.backend().synchronize_event(event.handle)?)
        })
    })
}

fn wait_for_the_same_event(cx: &Context) -> Verdict {
    let (stream, event) = (cx.stream()?, cx.event()?);
    let gate = cx.close(stream.handle)?;
    cx.backend().record_event(event.handle, stream.handle)?;
    std::thread::scope(|scope| {
        let wait = || {
            cx.backend().synchronize_event(event.handle)?;
            cx.backend().query_event(event.handle)
        };
        let waiters = [scope.spawn(wait), scope.spawn(wait), scope.spawn(wait)];
        std::thread::sleep(A_WHILE / 4);
        let early = waiters.iter().any(std::thread::ScopedJoinHandle::is_finished);
        gate.open();
        for waiter in waiters {
            let after = waiter.join().map_err(|_| Stop::Failed("a thread panicked".into()))??;
            ensure!(after.is_ready(), "an event is not ready after it was waited for");
        }
        ensure!(!early, "a thread did not wait for the event");
        Ok(())
    })
}

fn errors_stay(cx: &Context) -> Verdict {
    let device = cx.device()?;
    let (stream, total) = (cx.stream()?, cx.backend().memory_info(device)?.total);
    cx.on_thread(|cx| {
        let too_much = cx.backend().malloc(device, total.saturating_mul(4));
        refused("malloc of too much", too_much, &[ErrorKind::OutOfMemory]).map(drop)
    })?;
    cx.backend().query_stream(stream.handle)?;
    cx.backend().synchronize_stream(stream.handle)?;
    cx.on_thread(|cx| use_everything(cx, device))
}

fn ended_threads(cx: &Context) -> Verdict {
    let (buffer, stream) = (cx.buffer(512)?, cx.stream()?);
    cx.write(buffer.ptr(), &[1; 512])?;
    let gate = cx.on_thread(|cx| {
        let gate = cx.close(stream.handle)?;
        cx.fill(buffer.ptr(), 2, 512, stream.handle)?;
        Ok(gate)
    })?;
    gate.open();
    cx.backend().synchronize_stream(stream.handle)?;
    ensure!(cx.read(buffer.ptr(), 512)? == [2; 512], "the ended thread's work was lost");
    Ok(())
}
