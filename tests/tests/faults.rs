//! Promise 3: whatever driver call fails, and whenever, statistics, maps and pools stay consistent, nothing
//! is lost, and the call can be made again.
#![allow(clippy::unwrap_used)] // a test says what is wrong by panicking

use alloc_core::backend::{Backend, ErrorKind};
use alloc_core::config::Settings;
use alloc_core::policy::PytorchPolicy;
use alloc_core::types::{DeviceIndex, DevicePtr};
use alloc_core::{AllocError, CachingAllocator};
use backend_openreg::{Call, Clock, FaultPlan, OpenReg, OpenRegConfig};
use granule_tests::recorded;
use snapshot::trace::{Event, Trace};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

const DEVICE: DeviceIndex = DeviceIndex(0);

struct Outcome {
    calls: u64,
    struck: bool,
}

/// Replays `events` with call `k` failing (0: none). Every operation that fails is made again at once and
/// must work then.
fn run(events: &[Event], settings: &Settings, capacity: u64, lag: u64, k: u64, kind: ErrorKind) -> Outcome {
    let config = OpenRegConfig::default().devices(1).capacity(capacity).clock(Clock::Virtual { lag });
    let device = OpenReg::new(config).unwrap();
    let streams: Vec<_> = (0..4)
        .map(
            |n| if n == 0 { device.default_stream(DEVICE) } else { device.create_stream(DEVICE, 0).unwrap() },
        )
        .collect();
    let allocator = CachingAllocator::<PytorchPolicy>::new(device.clone(), settings.clone()).unwrap();
    let baseline = device.used(DEVICE);
    device.reset_calls();
    if k > 0 {
        device.set_faults(FaultPlan::none().fail_nth(k, kind));
    }
    let mut struck = false;
    let mut live = vec![DevicePtr::NULL; events.len()];
    let mut again = |result: Result<DevicePtr, AllocError>,
                     retry: &dyn Fn() -> Result<DevicePtr, AllocError>| {
        result.or_else(|error| {
            if let AllocError::Backend(_) = &error {
                assert!(!struck, "one failing call fails one operation: {error}");
            }
            struck = true;
            allocator.check_invariants();
            retry()
        })
    };
    for event in events {
        device.advance(u64::from(lag > 0));
        match *event {
            Event::Alloc { id, size, stream } => {
                let malloc = || allocator.malloc(size, streams[stream as usize]);
                live[id as usize] = again(malloc(), &malloc).expect("the call after a failed one works");
            }
            Event::Free { id } => {
                let ptr = std::mem::replace(&mut live[id as usize], DevicePtr::NULL);
                allocator.free(ptr).expect("free never fails");
            }
            Event::RecordStream { id, stream } => {
                // Work that uses the block on that stream, so that a lost free would be noticed.
                let _ = device.use_memory(streams[stream as usize], live[id as usize], 512);
                allocator.record_stream(live[id as usize], streams[stream as usize]).unwrap();
            }
            Event::EmptyCache => {
                let empty = || allocator.empty_cache().map(|()| DevicePtr::NULL);
                again(empty(), &empty).expect("emptying after a failed one works");
            }
            Event::Iteration { .. } => {}
        }
    }
    for ptr in live.into_iter().filter(|ptr| !ptr.is_null()) {
        allocator.free(ptr).expect("free never fails");
    }
    let empty = || allocator.empty_cache().map(|()| DevicePtr::NULL);
    again(empty(), &empty).expect("emptying after a failed one works");
    allocator.empty_cache().expect("and once more: what a failure left behind goes now");
    allocator.check_invariants();
    assert_eq!(device.used(DEVICE), baseline, "bytes return to the baseline (call {k})");
    assert_eq!(device.traps(), [], "no memory left while work used it (call {k})");
    let stats = allocator.stats(DEVICE).unwrap();
    assert_eq!(stats.reserved_bytes.all.current, 0);
    assert_eq!(stats.active_bytes.all.current, 0);
    Outcome { calls: device.calls().total(), struck }
}

fn loop_over(trace: &Trace, settings: &Settings, capacity: u64, lag: u64, limit: u64) {
    let calls = run(&trace.events, settings, capacity, lag, 0, ErrorKind::Other).calls;
    let last = calls.min(limit);
    let (next, struck) = (AtomicU64::new(1), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                loop {
                    let k = next.fetch_add(1, Ordering::Relaxed);
                    if k > last {
                        return;
                    }
                    // Every third failure claims a lack of memory, so that the ladder's answer is tested, too.
                    let kind =
                        [ErrorKind::Other, ErrorKind::InvalidValue, ErrorKind::OutOfMemory][k as usize % 3];
                    let outcome = run(&trace.events, settings, capacity, lag, k, kind);
                    struck.fetch_add(u64::from(outcome.struck), Ordering::Relaxed);
                }
            });
        }
    });
    println!("{last} of {calls} calls failed in turn; {} operations noticed", struck.load(Ordering::Relaxed));
    assert!(last > 50, "the trace makes driver calls worth failing");
    assert!(struck.load(Ordering::Relaxed) > last / 50, "failures reach the program");
}

/// The first part of the trace, long enough for growth, reuse and flushes; all of it with `GRANULE_LONG`.
fn cut(mut trace: Trace, events: usize) -> Trace {
    if std::env::var_os("GRANULE_LONG").is_none() {
        trace.events.truncate(events);
    }
    trace
}

#[test]
fn fixed_segments_survive_every_failing_call() {
    let Some(mut trace) = recorded("resnet_train").map(|t| cut(t, 6000)) else { return };
    // Flush in between, so that frees fail, too.
    trace.events.insert(trace.events.len() / 2, Event::EmptyCache);
    loop_over(&trace, &Settings::default(), 80 << 30, 0, 2000);
}

#[test]
fn growable_segments_survive_every_failing_call() {
    let Some(mut trace) = recorded("resnet_train").map(|t| cut(t, 3000)) else { return };
    trace.events.insert(trace.events.len() / 2, Event::EmptyCache);
    let settings = Settings { expandable_segments: true, ..Settings::default() };
    loop_over(&trace, &settings, 80 << 30, 0, 2000);
}

#[test]
fn pending_frees_survive_every_failing_call() {
    let Some(trace) = recorded("dlrm_prefetch").map(|t| cut(t, 2500)) else { return };
    loop_over(&trace, &Settings::default(), 80 << 30, 0, 2000);
    loop_over(&trace, &Settings::default(), 80 << 30, 25, 400);
}

/// Promise 2: an event that cannot be recorded leaves the block pending, counted, until a synchronisation.
#[test]
fn a_free_whose_event_fails_stays_pending_and_is_reported() {
    let device = OpenReg::new(OpenRegConfig::default().devices(1).capacity(64 << 20)).unwrap();
    let allocator = CachingAllocator::<PytorchPolicy>::new(device.clone(), Settings::default()).unwrap();
    let (home, other) = (device.default_stream(DEVICE), device.create_stream(DEVICE, 0).unwrap());
    let ptr = allocator.malloc(40 << 20, home).unwrap();
    allocator.record_stream(ptr, other).unwrap();
    device.set_faults(FaultPlan::none().fail_all(Call::RecordEvent, ErrorKind::Other));
    allocator.free(ptr).expect("free never fails");
    let stats = allocator.stats(DEVICE).unwrap();
    assert_eq!((stats.granule.pending_bytes, stats.granule.unrecorded_frees), (40 << 20, 1));
    let before = device.calls().get(Call::Malloc);
    // Only this request's ladder synchronises, and finds the block whole.
    let again = allocator.malloc(40 << 20, home).unwrap();
    assert_eq!(allocator.stats(DEVICE).unwrap().granule.pending_bytes, 0);
    assert!(device.calls().get(Call::Malloc) > before);
    allocator.free(again).unwrap();
}

/// Promise 2: a free makes no call that allocates or waits.
#[test]
fn free_never_allocates_and_never_waits() {
    let device: Arc<OpenReg> = OpenReg::new(OpenRegConfig::default().devices(1)).unwrap();
    let allocator = CachingAllocator::<PytorchPolicy>::new(device.clone(), Settings::default()).unwrap();
    let (home, other) = (device.default_stream(DEVICE), device.create_stream(DEVICE, 0).unwrap());
    let blocks: Vec<_> = (0..50).map(|n| allocator.malloc(1 << (10 + n % 15), home).unwrap()).collect();
    for ptr in blocks.iter().step_by(2) {
        allocator.record_stream(*ptr, other).unwrap();
    }
    device.reset_calls();
    for ptr in blocks {
        allocator.free(ptr).unwrap();
    }
    for (call, count) in device.calls().iter() {
        let harmless = call == Call::RecordEvent;
        assert!(count == 0 || harmless, "{call} was called {count} times by frees");
    }
}
