//! Captures that go wrong, and calls while a stream is captured: nothing leaks, and nothing waits that must not.

use alloc_core::AllocError;
use alloc_core::backend::{Backend, CaptureMode, CaptureStatus, ErrorKind, EventFlags};
use alloc_core::config::Settings;
use alloc_core::graph::GraphCapture;
use alloc_core::history::HistoryOptions;
use alloc_core::pool::{Filter, MemoryPool, PoolOptions};
use alloc_core::snapshot::Action;
use alloc_core::types::{MIB, PoolId, Stream};
use backend_openreg::{Call, Clock, FaultPlan};
use granule_tests::Allocator;
use granule_tests::graphs::{begin, fill, join};
use granule_tests::policy::{Policy, PytorchPolicy};
use granule_tests::quiet::Retires;
use granule_tests::rig::{DEVICE, Rig, on_each};
use granule_tests::setup::{both, of};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, Ordering};

/// The pool was released, its memory can go, and its record with it; captures are no concern of later calls.
pub(crate) fn nothing_remains(rig: &Rig, allocator: &Allocator, pool: PoolId, stream: Stream) {
    assert_eq!(rig.backend.capture().unwrap().status(stream), Ok(CaptureStatus::None));
    if let Ok(uses) = allocator.pools().use_count(DEVICE, pool) {
        assert_eq!(uses, 0, "{}: the pool was released", rig.name);
    }
    rig.nothing_is_left(allocator);
    assert!(matches!(allocator.pools().use_count(DEVICE, pool), Err(AllocError::UnknownPool { .. })));
    assert!(
        matches!(allocator.pools().end(DEVICE, pool), Err(AllocError::Pool { .. })),
        "its scope is closed"
    );
    assert!(matches!(allocator.pools().mark_capture_end(DEVICE), Err(AllocError::NoCapture { .. })));
    let calls = rig.device.calls();
    let ptr = allocator.malloc(MIB, stream).unwrap();
    allocator.free(ptr).unwrap();
    let calls = rig.device.calls().since(&calls);
    assert_eq!(calls.get(Call::ExchangeCaptureMode) + calls.get(Call::CaptureStatus), 0);
    allocator.empty_cache().unwrap();
}

/// PyTorch issue 188439: a capture that was begun and never ended kept its pool for ever.
fn an_abandoned_capture_leaks_nothing<P: Policy>() {
    on_each(&of(100), |rig| {
        for settings in both() {
            let (allocator, stream) = (rig.with_policy::<P>(settings), rig.new_stream());
            let capture = begin(&allocator, stream);
            let pool = capture.pool();
            let ptr = allocator.malloc(30 * MIB, stream).unwrap();
            fill(rig, stream, ptr, MIB);
            allocator.free(ptr).unwrap();
            drop(capture);
            nothing_remains(rig, &allocator, pool, stream);
        }
    });
}

/// PyTorch pull request 190308: so did one that failed at its end.
fn a_broken_capture_leaks_nothing<P: Policy>() {
    on_each(&of(100), |rig| {
        let (allocator, stream) = (rig.with_policy::<P>(Settings::default()), rig.new_stream());
        for drop_it in [false, true] {
            let capture = begin(&allocator, stream);
            let pool = capture.pool();
            let ptr = allocator.malloc(30 * MIB, stream).unwrap();
            assert_eq!(rig.backend.query_stream(stream).unwrap_err().kind, ErrorKind::CaptureViolation);
            let late = allocator.malloc(MIB, stream).unwrap();
            allocator.free(late).unwrap();
            allocator.free(ptr).unwrap();
            if drop_it {
                drop(capture);
            } else {
                let refused = capture.end().unwrap_err();
                let AllocError::Backend(error) = refused else { panic!("{refused}") };
                assert_eq!(error.kind, ErrorKind::CaptureViolation);
            }
            nothing_remains(rig, &allocator, pool, stream);
        }
    });
}

fn a_capture_that_cannot_begin_changes_nothing<P: Policy>() {
    on_each(&of(100), |rig| {
        let (allocator, stream) = (rig.with_policy::<P>(Settings::default()), rig.new_stream());
        // A default stream cannot be captured; and a driver may refuse any other.
        let refusing = FaultPlan::none().fail_all(Call::BeginCapture, ErrorKind::Other);
        for (stream, faults) in [(rig.stream(), FaultPlan::none()), (stream, refusing)] {
            let pool = PoolId::fresh_for_capture();
            rig.device.set_faults(faults);
            let refused =
                GraphCapture::begin(&allocator, stream, CaptureMode::Global, Some(pool)).unwrap_err();
            rig.device.set_faults(FaultPlan::none());
            assert!(matches!(refused, AllocError::Backend(_)), "{refused}");
            nothing_remains(rig, &allocator, pool, stream);
            let again = GraphCapture::begin(&allocator, stream, CaptureMode::Global, Some(pool));
            assert_eq!(
                again.is_ok(),
                stream != rig.stream(),
                "with the same pool, once the driver does not refuse"
            );
        }
        let kept = MemoryPool::new(&allocator, DEVICE, PoolOptions::default()).unwrap();
        let refusal = GraphCapture::begin(&allocator, rig.stream(), CaptureMode::Global, Some(kept.id()));
        assert!(matches!(refusal, Err(AllocError::Backend(_))));
        assert_eq!(kept.use_count().unwrap(), 1, "a pool that others hold stays theirs");
    });
}

/// The driver refuses to end the capture once, for no reason of the capture's: it is ended all the same.
fn a_refused_end_is_tried_again_and_leaks_nothing<P: Policy>() {
    on_each(&of(100), |rig| {
        let (allocator, stream) = (rig.with_policy::<P>(Settings::default()), rig.new_stream());
        for drop_it in [false, true] {
            let capture = begin(&allocator, stream);
            let pool = capture.pool();
            rig.device.set_faults(FaultPlan::none().fail_nth_of(Call::EndCapture, 1, ErrorKind::Other));
            if drop_it {
                drop(capture)
            } else {
                drop(capture.end().unwrap_err())
            }
            rig.device.set_faults(FaultPlan::none());
            nothing_remains(rig, &allocator, pool, stream);
        }
    });
}

/// A captured stream's request on a full device: nothing is waited for and no event is asked for, by any remedy.
fn no_remedy_for_a_captured_request_waits<P: Policy>() {
    on_each(&of(100), |rig| {
        for settings in both() {
            let (allocator, stream) = (rig.with_policy::<P>(settings), rig.new_stream());
            let other = rig.new_stream();
            let cached = allocator.malloc(60 * MIB, other).unwrap();
            allocator.record_stream(cached, rig.new_stream()).unwrap();
            allocator.free(cached).unwrap();
            let capture = begin(&allocator, stream);
            let calls = rig.device.calls();
            let refused = allocator.malloc(60 * MIB, stream).unwrap_err();
            assert!(refused.is_out_of_memory(), "{refused}");
            let small = allocator.malloc(20 * MIB, stream).expect("the device has that");
            let calls = rig.device.calls().since(&calls);
            for call in [
                Call::SynchronizeDevice,
                Call::SynchronizeStream,
                Call::SynchronizeEvent,
                Call::QueryEvent,
                Call::QueryStream,
                Call::RecordEvent,
            ] {
                assert_eq!(calls.get(call), 0, "{}: {}", rig.name, call.name());
            }
            let stats = allocator.stats(DEVICE).unwrap();
            assert_eq!([stats.num_alloc_retries, stats.num_ooms, stats.num_device_free], [0, 1, 0]);
            fill(rig, stream, small, MIB);
            let graph = capture.end().expect("the capture is whole");
            // Outside of it, the same request makes its way.
            let late = allocator.malloc(60 * MIB, stream).unwrap();
            allocator.free(late).unwrap();
            allocator.free(small).unwrap();
            drop(graph);
            rig.nothing_is_left(&allocator);
        }
    });
}

/// What devices are known to be done with can be had in a capture, too: it needs no waiting.
#[test]
fn a_captured_request_takes_over_what_is_known_to_be_idle() {
    // Only this one: it is a fixed segment whose free fails.
    type P = PytorchPolicy;
    on_each(&of(100), |rig| {
        let (allocator, stream, home) =
            (rig.with_policy::<P>(Settings::default()), rig.new_stream(), rig.stream());
        let cached = allocator.malloc(60 * MIB, home).unwrap();
        allocator.free(cached).unwrap();
        let capture = begin(&allocator, stream);
        assert!(
            allocator.malloc(60 * MIB, stream).unwrap_err().is_out_of_memory(),
            "nobody has waited for it"
        );
        drop(capture);
        // A flush that waits for the stream and then fails to free.
        rig.device.set_faults(FaultPlan::none().fail_nth_of(Call::Free, 1, ErrorKind::Other));
        allocator.empty_cache().unwrap_err();
        assert_eq!(rig.used(), 60 * MIB);
        let capture = begin(&allocator, stream);
        let calls = rig.device.calls();
        let ptr = allocator.malloc(60 * MIB, stream).expect("the cached memory is given back for it");
        assert_eq!(rig.device.calls().since(&calls).get(Call::SynchronizeStream), 0);
        allocator.free(ptr).unwrap();
        drop(capture.end().expect("the capture is whole"));
        rig.nothing_is_left(&allocator);
    });
}

/// None of the allocator's calls breaks a capture, on whatever thread, though some ask for events or wait.
fn no_call_of_the_allocator_breaks_a_capture<P: Policy>() {
    on_each(&of(400).clock(Clock::Virtual { lag: 4 }), |rig| {
        let (allocator, stream, home, user) =
            (rig.with_policy::<P>(Settings::default()), rig.new_stream(), rig.stream(), rig.new_stream());
        let pool = MemoryPool::new(&allocator, DEVICE, PoolOptions::default()).unwrap();
        let saved = allocator.pools().checkpoint(DEVICE, pool.id()).unwrap();
        let pend = || {
            let ptr = allocator.malloc(5 * MIB, home).unwrap();
            rig.device.use_memory(Stream { backend: rig.device.id(), ..user }, ptr, MIB).unwrap();
            allocator.record_stream(ptr, user).unwrap();
            allocator.free(ptr).unwrap();
        };
        type Deed<'a> = (&'static str, &'a (dyn Fn() + Sync));
        let deeds: [Deed<'_>; 11] = [
            ("malloc", &|| allocator.free(allocator.malloc(50 * MIB, home).unwrap()).unwrap()),
            ("poll", &|| allocator.poll(DEVICE).unwrap()),
            ("synchronise", &|| allocator.synchronise(DEVICE).unwrap()),
            ("checkpoint", &|| drop(allocator.pools().checkpoint(DEVICE, pool.id()).unwrap())),
            ("restore", &|| drop(allocator.pools().restore(&saved, None).unwrap())),
            ("cache info", &|| assert!(allocator.statistics().cache_info(DEVICE).unwrap().largest() > 0)),
            ("stats", &|| drop(allocator.stats(DEVICE).unwrap())),
            ("snapshot", &|| drop(allocator.snapshot(true))),
            ("prime", &|| allocator.pools().prime(pool.id(), home, &[60 * MIB]).unwrap()),
            ("retire", &|| {
                let short = rig.new_stream();
                allocator.free(allocator.malloc(MIB, short).unwrap()).unwrap();
                allocator.retire(short).unwrap();
            }),
            ("empty", &|| allocator.empty_cache().unwrap()),
        ];
        for (what, deed) in deeds {
            for elsewhere in [true, false] {
                pend();
                let capture = begin(&allocator, stream);
                let captured = allocator.malloc(MIB, stream).unwrap();
                if elsewhere {
                    std::thread::scope(|scope| scope.spawn(deed).join().unwrap());
                } else {
                    deed();
                }
                let status = rig.backend.capture().unwrap().status(stream).unwrap();
                assert!(
                    matches!(status, CaptureStatus::Active(_)),
                    "{} broke it (elsewhere: {elsewhere})",
                    what
                );
                allocator.free(captured).unwrap();
                drop(capture.end().unwrap());
            }
        }
        drop(pool);
        rig.nothing_is_left(&allocator);
    });
}

/// With the reuse option the end of a pool's scope frees what a capture deferred; not while that capture goes on, whose
/// streams have not joined.
fn a_scope_that_ends_within_a_capture_frees_nothing_early<P: Policy>() {
    on_each(&of(400), |rig| {
        let settings = Settings { graph_capture_record_stream_reuse: true, ..Settings::default() };
        let (allocator, stream, side) = (rig.with_policy::<P>(settings), rig.new_stream(), rig.new_stream());
        let pool = MemoryPool::new(&allocator, DEVICE, PoolOptions::default()).unwrap();
        let take = || {
            let _scope = pool.enter(Filter::this_thread()).unwrap();
            allocator.malloc(30 * MIB, stream).unwrap()
        };
        let mut capture = begin(&allocator, stream);
        capture.retain_pool(pool.id()).unwrap();
        let scope = pool.enter(Filter::this_thread()).unwrap();
        let shared = allocator.malloc(30 * MIB, stream).unwrap();
        fill(rig, stream, shared, MIB);
        join(&*rig.backend, stream, side);
        fill(rig, side, shared, MIB);
        allocator.record_stream(shared, side).unwrap();
        allocator.free(shared).unwrap();
        drop(scope);
        let early = take();
        assert_ne!(early, shared, "the side stream still writes to it");
        join(&*rig.backend, side, stream);
        let late = take();
        assert_eq!(late, shared);
        let graph = capture.end().unwrap();
        allocator.free(early).unwrap();
        allocator.free(late).unwrap();
        drop((graph, pool));
        rig.nothing_is_left(&allocator);
    });
}

/// A restore ends the uses that a graph orders: the event that was kept for one does for the next.
#[test]
fn a_restore_keeps_no_events_for_uses_that_are_over() {
    on_each(&of(100), |rig| {
        let (allocator, stream, side) =
            (rig.allocator(Settings::default()), rig.new_stream(), rig.new_stream());
        let pool = MemoryPool::new(&allocator, DEVICE, PoolOptions::default()).unwrap();
        let empty = allocator.pools().checkpoint(DEVICE, pool.id()).unwrap();
        let mut made = Vec::new();
        for _ in 0..3 {
            let mut capture = begin(&allocator, stream);
            capture.retain_pool(pool.id()).unwrap();
            let scope = pool.enter(Filter::this_thread()).unwrap();
            let shared = allocator.malloc(30 * MIB, stream).unwrap();
            join(&*rig.backend, stream, side);
            let before = rig.device.calls();
            allocator.record_stream(shared, side).unwrap();
            made.push(rig.device.calls().since(&before).get(Call::CreateEvent));
            join(&*rig.backend, side, stream);
            drop((scope, capture.end().unwrap()));
            assert_eq!(allocator.pools().restore(&empty, None).unwrap().freed, [shared]);
        }
        assert_eq!(made[1..], [0, 0], "{}", rig.name);
        drop(pool);
        rig.nothing_is_left(&allocator);
    });
}

/// Whatever question about a capture the driver does not answer: the request fails, or the graph's pool serves it.
fn a_captured_request_never_goes_astray<P: Policy>() {
    on_each(&of(100), |rig| {
        for k in 1..=5 {
            let (allocator, stream, side) =
                (rig.with_policy::<P>(Settings::default()), rig.new_stream(), rig.new_stream());
            let capture = begin(&allocator, stream);
            let fork = rig.backend.create_event(DEVICE, EventFlags::empty()).unwrap();
            rig.backend.record_event(fork, stream).unwrap();
            rig.backend.wait_event(side, fork).unwrap();
            for stream in [stream, side] {
                rig.device.set_faults(FaultPlan::none().fail_nth_of(
                    Call::CaptureStatus,
                    k,
                    ErrorKind::Other,
                ));
                let outcome = allocator.malloc(MIB, stream);
                rig.device.set_faults(FaultPlan::none());
                let astray = allocator.pools().stats(DEVICE, PoolId::DEFAULT).unwrap().allocation;
                assert_eq!(astray, 0, "{}: question {k}: {outcome:?}", rig.name);
                allocator.malloc(MIB, stream).expect("the call can be made again");
            }
            drop(capture);
            // SAFETY: rule 1: made above, and not used again.
            unsafe { rig.backend.destroy_event(fork) }.unwrap();
        }
    });
}

/// The end of a capture may tell a tracker of what it frees: where that panics the graph's pool is released all the same.
fn a_capture_whose_end_panics_keeps_nothing<P: Policy>() {
    on_each(&of(100), |rig| {
        let settings = Settings { graph_capture_record_stream_reuse: true, ..Settings::default() };
        let (allocator, stream, side) = (rig.with_policy::<P>(settings), rig.new_stream(), rig.new_stream());
        allocator.history().record(&HistoryOptions::newest(10));
        let capture = begin(&allocator, stream);
        let pool = capture.pool();
        let shared = allocator.malloc(30 * MIB, stream).unwrap();
        join(&*rig.backend, stream, side);
        allocator.record_stream(shared, side).unwrap();
        allocator.free(shared).unwrap();
        join(&*rig.backend, side, stream);
        let told = AtomicBool::new(false);
        allocator.hooks().on_trace(move |entry, _| {
            if entry.action == Action::FreeCompleted && !told.swap(true, Ordering::Relaxed) {
                resume_unwind(Box::new("the tracker has a bug"));
            }
        });
        catch_unwind(AssertUnwindSafe(|| capture.end())).unwrap_err();
        nothing_remains(rig, &allocator, pool, stream);
    });
}

/// The end of a scope may tell a tracker of what it frees: where that panics the pool is released all the same.
fn a_scope_whose_end_panics_is_over<P: Policy>() {
    on_each(&of(100), |rig| {
        let settings = Settings { graph_capture_record_stream_reuse: true, ..Settings::default() };
        let (allocator, stream, side) = (rig.with_policy::<P>(settings), rig.new_stream(), rig.new_stream());
        allocator.history().record(&HistoryOptions::newest(10));
        let pool = MemoryPool::new(&allocator, DEVICE, PoolOptions::default()).unwrap();
        let capture = rig.backend.capture().unwrap();
        allocator.pools().mark_capture_begin(DEVICE).unwrap();
        capture.begin(stream, CaptureMode::Global).unwrap();
        let scope = pool.enter(Filter::this_thread()).unwrap();
        let shared = allocator.malloc(30 * MIB, stream).unwrap();
        join(&*rig.backend, stream, side);
        allocator.record_stream(shared, side).unwrap();
        allocator.free(shared).unwrap();
        join(&*rig.backend, side, stream);
        let graph = capture.end(stream).unwrap();
        allocator.hooks().on_trace(|entry, _| {
            if entry.action == Action::FreeCompleted {
                resume_unwind(Box::new("the tracker has a bug"));
            }
        });
        catch_unwind(AssertUnwindSafe(move || drop(scope))).unwrap_err();
        assert_eq!(pool.use_count().unwrap(), 1, "{}: that of the pool", rig.name);
        allocator.pools().mark_capture_end(DEVICE).unwrap();
        // SAFETY: rule 1: made above, and never launched.
        unsafe { capture.destroy_graph(graph) }.unwrap();
        drop(pool);
        rig.nothing_is_left(&allocator);
    });
}

granule_tests::for_each_policy!(
    a_capture_whose_end_panics_keeps_nothing,
    a_scope_whose_end_panics_is_over,
    an_abandoned_capture_leaks_nothing,
    a_broken_capture_leaks_nothing,
    a_capture_that_cannot_begin_changes_nothing,
    a_refused_end_is_tried_again_and_leaks_nothing,
    no_remedy_for_a_captured_request_waits,
    no_call_of_the_allocator_breaks_a_capture,
    a_scope_that_ends_within_a_capture_frees_nothing_early,
    a_captured_request_never_goes_astray,
);
