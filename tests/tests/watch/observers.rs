//! Those that look on while the allocator works: observers of segments, and trackers of entries.

mod foreign;

use SegmentChange::{Attached, Detaching};
use alloc_core::backend::ErrorKind;
use alloc_core::config::Settings;
use alloc_core::device::{SegmentChange, SegmentEvent};
use alloc_core::history::{HistoryOptions, RecordContext};
use alloc_core::pool::Filter;
use alloc_core::snapshot::Action;
use alloc_core::types::{DevicePtr, MIB, PoolId};
use backend_openreg::{Call, Clock, FaultPlan};
use granule_tests::Allocator;
use granule_tests::policy::{Policy, PytorchPolicy};
use granule_tests::rig::{DEVICE, Rig, on_each};
use granule_tests::setup::{growable, one};
use granule_tests::sites::{at, recorder};
use std::sync::{Arc, Mutex};

/// Whether all memory is growable, in granules that fit.
fn cuts_to_size<P: Policy>() -> bool {
    P::NAME == "granule"
}

/// What a history says where memory is taken.
fn taken<P: Policy>() -> Action {
    if cuts_to_size::<P>() { Action::SegmentMap } else { Action::SegmentAlloc }
}

/// And where it is given back.
fn given_back<P: Policy>() -> Action {
    if cuts_to_size::<P>() { Action::SegmentUnmap } else { Action::SegmentFree }
}

type Seen<T> = Arc<Mutex<Vec<T>>>;

fn take<T>(seen: &Seen<T>) -> Vec<T> {
    std::mem::take(&mut seen.lock().unwrap())
}

/// Events, each with the bytes that the machine had in use and whether the memory was in the allocator's hands.
fn watch(rig: &Rig, allocator: &Allocator) -> Seen<(SegmentEvent, u64, bool)> {
    let seen = Seen::default();
    let (heard, device, weak) = (Arc::clone(&seen), Arc::clone(&rig.device), Arc::downgrade(allocator));
    allocator.hooks().on_segment(move |event| {
        // No lock is held: an observer may ask anything.
        let Some(allocator) = weak.upgrade() else { return };
        allocator.stats(DEVICE).unwrap();
        let live = allocator.block_size(event.addr).is_some();
        heard.lock().unwrap().push((*event, device.used(DEVICE), live));
    });
    seen
}

fn segments_are_attached_before_they_are_used_and_detached_before_they_go<P: Policy>() {
    on_each(&one(), |rig| {
        for (settings, bytes) in [(Settings::default(), 30 * MIB), (growable(), 40 * MIB)] {
            let (is_growable, bytes) =
                if cuts_to_size::<P>() { (true, 30 * MIB) } else { (settings.expandable_segments, bytes) };
            let allocator = rig.with_policy::<P>(settings);
            let seen = watch(rig, &allocator);
            let pool = PoolId::fresh();
            for pool in [PoolId::DEFAULT, pool] {
                if pool != PoolId::DEFAULT {
                    allocator.pools().begin(DEVICE, pool, Filter::Always).unwrap();
                }
                let stream = rig.new_stream();
                let ptr = allocator.malloc(30 * MIB, stream).unwrap();
                let event = |change| SegmentEvent {
                    change,
                    device: DEVICE,
                    pool,
                    stream,
                    addr: ptr,
                    bytes,
                    growable: is_growable,
                };
                assert_eq!(take(&seen), [(event(Attached), bytes, false)]);
                allocator.free(ptr).unwrap();
                assert_eq!(allocator.malloc(20 * MIB, stream).unwrap(), ptr);
                allocator.free(ptr).unwrap();
                assert_eq!(take(&seen), [], "the device was not asked");
                if pool != PoolId::DEFAULT {
                    allocator.pools().end(DEVICE, pool).unwrap();
                    allocator.pools().release(DEVICE, pool).unwrap();
                }
                allocator.empty_cache().unwrap();
                assert_eq!(take(&seen), [(event(Detaching), bytes, false)]);
            }
            rig.nothing_is_left(&allocator);
        }
    });
}

#[test]
fn a_segment_that_the_device_does_not_take_is_attached_again() {
    on_each(&one(), |rig| {
        let allocator = rig.with_policy::<PytorchPolicy>(Settings::default());
        let seen = watch(rig, &allocator);
        let ptr = allocator.malloc(30 * MIB, rig.stream()).unwrap();
        allocator.free(ptr).unwrap();
        take(&seen);
        rig.device.set_faults(FaultPlan::none().fail_all(Call::Free, ErrorKind::Other));
        allocator.empty_cache().unwrap_err();
        let changes: Vec<_> = take(&seen).iter().map(|(e, ..)| (e.change, e.addr, e.bytes)).collect();
        assert_eq!(changes, [(Detaching, ptr, 30 * MIB), (Attached, ptr, 30 * MIB)]);
        rig.device.set_faults(FaultPlan::none());
        assert_eq!(allocator.malloc(30 * MIB, rig.stream()).unwrap(), ptr, "it is still cached");
        assert_eq!(take(&seen), []);
        allocator.free(ptr).unwrap();
        rig.nothing_is_left(&allocator);
    });
}

#[test]
fn granules_that_stay_mapped_are_attached_again() {
    on_each(&one(), |rig| {
        let allocator = rig.with_policy::<PytorchPolicy>(growable());
        let seen = watch(rig, &allocator);
        let ptr = allocator.malloc(60 * MIB, rig.stream()).unwrap();
        allocator.free(ptr).unwrap();
        take(&seen);
        rig.device.set_faults(FaultPlan::none().fail_nth_of(Call::Unmap, 2, ErrorKind::Other));
        allocator.empty_cache().unwrap_err();
        rig.device.set_faults(FaultPlan::none());
        let changes: Vec<_> = take(&seen).iter().map(|(e, ..)| (e.change, e.addr, e.bytes)).collect();
        let rest = DevicePtr(ptr.0 + 20 * MIB);
        assert_eq!(changes, [(Detaching, ptr, 60 * MIB), (Attached, rest, 40 * MIB)]);
        let segments = allocator.snapshot(false).segments;
        assert_eq!((segments[0].address, segments[0].total_size), (rest.0, 40 * MIB));
        rig.nothing_is_left(&allocator);
        let gone: Vec<_> = take(&seen).iter().map(|(e, ..)| (e.change, e.addr, e.bytes)).collect();
        assert_eq!(gone, [(Detaching, rest, 40 * MIB)]);
    });
}

fn observers_are_told_in_the_order_in_which_they_came<P: Policy>() {
    on_each(&one(), |rig| {
        let allocator = rig.with_policy::<P>(Settings::default());
        let told = Seen::default();
        for n in 0..3 {
            let told = Arc::clone(&told);
            allocator.hooks().on_segment(move |event| told.lock().unwrap().push((n, event.change)));
        }
        let ptr = allocator.malloc(MIB, rig.stream()).unwrap();
        allocator.free(ptr).unwrap();
        allocator.empty_cache().unwrap();
        let order = |change| [0, 1, 2].map(|n| (n, change));
        assert_eq!(take(&told), [order(Attached), order(Detaching)].concat());
    });
}

/// What a tracker sees, whether history is on or not, and whatever it skips.
fn trackers_see_every_entry_in_order<P: Policy>() {
    on_each(&one().clock(Clock::Workers), |rig| {
        for recorded in [false, true] {
            let allocator = rig.with_policy::<P>(Settings::default());
            if recorded {
                let skip = vec![Action::Alloc, Action::FreeRequested];
                let options = HistoryOptions { skip, ..HistoryOptions::newest(100).deterministic() };
                allocator.history().record(&options);
            }
            let seen = Seen::default();
            let heard = Arc::clone(&seen);
            allocator.hooks().on_trace(move |entry, context| {
                assert!(context.is_none());
                heard.lock().unwrap().push((entry.action, entry.addr, entry.size));
            });
            let side = rig.new_stream();
            let ptr = allocator.malloc(1000, rig.stream()).unwrap();
            allocator.history().annotate(ptr, "text").unwrap();
            allocator.record_stream(ptr, side).unwrap();
            let gate = rig.hold(side);
            allocator.free(ptr).unwrap();
            let at = |action, size| (action, ptr.0, size);
            let begun = [
                at(taken::<P>(), 2 * MIB),
                at(Action::Alloc, 1000),
                at(Action::Annotate, 1000),
                at(Action::FreeRequested, 1000),
            ];
            assert_eq!(take(&seen), begun);
            gate.open();
            allocator.synchronise(DEVICE).unwrap();
            assert_eq!(take(&seen), [at(Action::FreeCompleted, 1000)], "before the call returns");
            allocator.empty_cache().unwrap();
            assert_eq!(take(&seen), [at(given_back::<P>(), 2 * MIB)]);
            let recorded_entries = allocator.snapshot(true).device_traces.remove(0).len();
            assert_eq!(recorded_entries, if recorded { 4 } else { 0 });
        }
    });
}

/// A tracker may allocate and free; what that makes comes after, and each entry once.
fn trackers_may_use_the_allocator<P: Policy>() {
    on_each(&one(), |rig| {
        let allocator = rig.with_policy::<P>(Settings::default());
        let (weak, stream, seen) = (Arc::downgrade(&allocator), rig.stream(), Seen::default());
        let heard = Arc::clone(&seen);
        allocator.hooks().on_trace(move |entry, _| {
            heard.lock().unwrap().push((entry.action, entry.size));
            if entry.action == Action::Alloc && entry.size < 3000 {
                let allocator = weak.upgrade().unwrap();
                let inner = allocator.malloc(entry.size + 1000, stream).unwrap();
                allocator.free(inner).unwrap();
            }
        });
        allocator.malloc(1000, stream).unwrap();
        let pair = |size| [(Action::FreeRequested, size), (Action::FreeCompleted, size)];
        let mut expected = vec![(taken::<P>(), 2 * MIB), (Action::Alloc, 1000), (Action::Alloc, 2000)];
        expected.extend(pair(2000));
        expected.push((Action::Alloc, 3000));
        expected.extend(pair(3000));
        assert_eq!(take(&seen), expected);
        allocator.check_invariants();
    });
}

fn trackers_get_the_context<P: Policy>() {
    on_each(&one(), |rig| {
        let allocator = rig.with_policy::<P>(Settings::default());
        let options = HistoryOptions {
            contexts: RecordContext::All,
            recorder: Some(recorder()),
            ..HistoryOptions::newest(10)
        };
        allocator.history().record(&options);
        let seen = Seen::default();
        let heard = Arc::clone(&seen);
        allocator.hooks().on_trace(move |entry, context| {
            let name = context.unwrap().frames()[0].name.to_string();
            heard.lock().unwrap().push((entry.action, name));
        });
        let ptr = at("take", || allocator.malloc(1000, rig.stream())).unwrap();
        at("give", || allocator.free(ptr)).unwrap();
        let expected = [
            (taken::<P>(), "take"),
            (Action::Alloc, "take"),
            (Action::FreeRequested, "give"),
            (Action::FreeCompleted, "give"),
        ];
        assert_eq!(take(&seen), expected.map(|(action, name)| (action, name.to_owned())));
    });
}

/// Threads work while a tracker reads: it hears of each operation once, in an order that makes sense.
fn trackers_hear_of_all_threads<P: Policy>() {
    on_each(&one(), |rig| {
        let allocator = rig.with_policy::<P>(Settings::default());
        let seen = Seen::default();
        let heard = Arc::clone(&seen);
        allocator.hooks().on_trace(move |entry, _| {
            if entry.action != taken::<P>() {
                heard.lock().unwrap().push((entry.stream, entry.action, entry.size));
            }
        });
        let streams = [rig.new_stream(), rig.new_stream()];
        std::thread::scope(|scope| {
            for stream in streams {
                let allocator = &allocator;
                scope.spawn(move || {
                    for n in 1..=300 {
                        allocator.free(allocator.malloc(n, stream).unwrap()).unwrap();
                    }
                });
            }
        });
        let all = take(&seen);
        for stream in streams {
            let mine: Vec<_> = all.iter().filter(|entry| entry.0 == stream.raw).map(|e| (e.1, e.2)).collect();
            let triple = |n| [Action::Alloc, Action::FreeRequested, Action::FreeCompleted].map(|a| (a, n));
            assert_eq!(mine, (1..=300).flat_map(triple).collect::<Vec<_>>());
        }
    });
}

granule_tests::for_each_policy!(
    segments_are_attached_before_they_are_used_and_detached_before_they_go,
    observers_are_told_in_the_order_in_which_they_came,
    trackers_see_every_entry_in_order,
    trackers_may_use_the_allocator,
    trackers_get_the_context,
    trackers_hear_of_all_threads,
);
