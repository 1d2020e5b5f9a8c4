//! Promise 3: whatever driver call fails, and whenever, statistics, maps and pools stay consistent, nothing
//! is lost, and the call can be made again.

use alloc_core::backend::{Backend, ErrorKind};
use alloc_core::config::Settings;
use backend_openreg::{Call, Clock, FaultPlan, OpenReg, OpenRegConfig};
use granule_snapshot::trace::{Event, Trace};
use granule_tests::fault_loop::Simulated;
use granule_tests::policy::{GranulePolicy, Policy};
use granule_tests::rig::DEVICE;
use granule_tests::{fault_loop, recorded};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

fn loop_over<P: Policy>(trace: &Trace, settings: &Settings, capacity: u64, lag: u64, limit: u64) {
    let config = OpenRegConfig::default().devices(1).capacity(capacity).clock(Clock::Virtual { lag });
    // Each run has a machine of its own.
    let run = |k| {
        let machine = Simulated { device: OpenReg::new(config.clone()).unwrap(), lag };
        fault_loop::run::<P>(&machine, &trace.events, settings, k, fault_loop::kind_of(k))
    };
    let calls = run(0).calls;
    // Where memory comes granule by granule, calls are many and alike.
    let long = std::env::var_os("GRANULE_LONG").is_some();
    let last = calls.min(if P::NAME == GranulePolicy::NAME && !long { limit / 4 } else { limit });
    let (next, struck) = (AtomicU64::new(1), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                loop {
                    let k = next.fetch_add(1, Ordering::Relaxed);
                    if k > last {
                        return;
                    }
                    let outcome = run(k);
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

fn fixed_segments_survive_every_failing_call<P: Policy>() {
    let Some(mut trace) = recorded("resnet_train").map(|t| cut(t, 6000)) else { return };
    // Flush in between, so that frees fail, too.
    trace.events.insert(trace.events.len() / 2, Event::EmptyCache);
    loop_over::<P>(&trace, &Settings::default(), 80 << 30, 0, 2000);
}

fn growable_segments_survive_every_failing_call<P: Policy>() {
    let Some(mut trace) = recorded("resnet_train").map(|t| cut(t, 3000)) else { return };
    trace.events.insert(trace.events.len() / 2, Event::EmptyCache);
    let settings = Settings { expandable_segments: true, ..Settings::default() };
    loop_over::<P>(&trace, &settings, 80 << 30, 0, 2000);
}

fn pending_frees_survive_every_failing_call<P: Policy>() {
    let Some(trace) = recorded("dlrm_prefetch").map(|t| cut(t, 2500)) else { return };
    loop_over::<P>(&trace, &Settings::default(), 80 << 30, 0, 2000);
    loop_over::<P>(&trace, &Settings::default(), 80 << 30, 25, 400);
}

/// Promise 2: an event that cannot be recorded leaves the block pending, counted, until a synchronisation.
fn a_free_whose_event_fails_stays_pending_and_is_reported<P: Policy>() {
    let device = OpenReg::new(OpenRegConfig::default().devices(1).capacity(64 << 20)).unwrap();
    let allocator = granule_tests::made::<P>(device.clone(), Settings::default()).unwrap();
    let (home, other) = (device.default_stream(DEVICE), device.create_stream(DEVICE, 0).unwrap());
    let ptr = allocator.malloc(40 << 20, home).unwrap();
    allocator.record_stream(ptr, other).unwrap();
    device.set_faults(FaultPlan::none().fail_all(Call::RecordEvent, ErrorKind::Other));
    allocator.free(ptr).expect("free never fails");
    let stats = allocator.stats(DEVICE).unwrap();
    assert_eq!((stats.granule.pending_bytes, stats.granule.unrecorded_frees), (40 << 20, 1));
    allocator.statistics().reset_accumulated(DEVICE).unwrap();
    assert_eq!(allocator.stats(DEVICE).unwrap().granule.unrecorded_frees, 0);
    let asked = || device.calls().get(Call::Malloc) + device.calls().get(Call::CreatePhysical);
    let before = asked();
    // Only this request's remedies synchronise, and find the block whole.
    let again = allocator.malloc(40 << 20, home).unwrap();
    assert_eq!(allocator.stats(DEVICE).unwrap().granule.pending_bytes, 0);
    assert!(asked() > before);
    allocator.free(again).unwrap();
}

/// Promise 2: a free makes no call that allocates or waits.
fn free_never_allocates_and_never_waits<P: Policy>() {
    let device: Arc<OpenReg> = OpenReg::new(OpenRegConfig::default().devices(1)).unwrap();
    let allocator = granule_tests::made::<P>(device.clone(), Settings::default()).unwrap();
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

granule_tests::for_each_policy!(
    fixed_segments_survive_every_failing_call,
    growable_segments_survive_every_failing_call,
    pending_frees_survive_every_failing_call,
    a_free_whose_event_fails_stays_pending_and_is_reported,
    free_never_allocates_and_never_waits,
);
