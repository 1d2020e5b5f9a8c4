//! The history: H01, H06 to H08, H12 to H14 and H16 to H18 of the checklist, on each rig.

use Action::{
    Alloc, Annotate, FreeCompleted, FreeRequested, Oom, SegmentAlloc, SegmentFree, SegmentMap, SegmentUnmap,
};
use alloc_core::config::Settings;
use alloc_core::history::{HistoryOptions, Stage, push_compile_context};
use alloc_core::snapshot::{Action, BlockState, Snapshot, TraceEntry, Value};
use alloc_core::types::{DeviceIndex, GIB, KIB, MIB, PoolId};
use backend_openreg::Clock;
use granule_snapshot::{json, pickle};
use granule_tests::Allocator;
use granule_tests::rig::{DEVICE, on_each};
use granule_tests::setup::{growable, one};
use std::collections::BTreeMap;

fn record(allocator: &Allocator, max_entries: usize) {
    allocator.history().record(&HistoryOptions::newest(max_entries).deterministic());
}

fn entries(snapshot: &Snapshot) -> &[TraceEntry] {
    &snapshot.device_traces[0]
}

/// Actions and sizes.
fn story(entries: &[TraceEntry]) -> Vec<(Action, u64)> {
    entries.iter().map(|entry| (entry.action, entry.size)).collect()
}

fn addresses(entries: &[TraceEntry]) -> Vec<u64> {
    entries.iter().map(|entry| entry.addr).collect()
}

/// The reference's own example, entry by entry.
#[test]
fn h01_all_events_are_there_in_order() {
    on_each(&one(), |rig| {
        let allocator = rig.allocator(Settings::default());
        let stream = rig.stream();
        record(&allocator, 100);
        let a = allocator.malloc(1000, stream).unwrap();
        let b = allocator.malloc(3 * MIB, stream).unwrap();
        allocator.free(a).unwrap();
        allocator.malloc(16 * GIB + 1, stream).unwrap_err();
        allocator.free(b).unwrap();
        allocator.empty_cache().unwrap();
        let snapshot = allocator.snapshot(true);
        let entries = entries(&snapshot);
        assert_eq!(
            story(entries),
            [
                (SegmentAlloc, 2 * MIB),
                (Alloc, 1000),
                (SegmentAlloc, 20 * MIB),
                (Alloc, 3 * MIB),
                (FreeRequested, 1000),
                (FreeCompleted, 1000),
                (SegmentFree, 2 * MIB),
                (Oom, 16 * GIB + 512),
                (FreeRequested, 3 * MIB),
                (FreeCompleted, 3 * MIB),
                (SegmentFree, 20 * MIB),
            ],
            "{}",
            rig.name
        );
        let free = 8 * GIB - 20 * MIB;
        assert_eq!(addresses(entries), [a.0, a.0, b.0, b.0, a.0, a.0, a.0, free, b.0, b.0, b.0]);
        assert!(entries.iter().all(|entry| entry.stream == stream.raw));
        let times: Vec<i64> = entries.iter().map(|entry| entry.time_us).collect();
        assert_eq!(times, (0..11).collect::<Vec<_>>(), "numbered without a gap");
        let history = snapshot.history.clone().unwrap();
        assert!(history.recorded && history.complete && history.overwritten == 0, "{history:?}");
        rig.nothing_is_left(&allocator);
    });
}

#[test]
fn h01_growable_segments_show_what_is_mapped() {
    on_each(&one(), |rig| {
        let allocator = rig.allocator(growable());
        let stream = rig.stream();
        record(&allocator, 100);
        let large = allocator.malloc(30 * MIB, stream).unwrap();
        let small = allocator.malloc(700, stream).unwrap();
        allocator.free(large).unwrap();
        allocator.empty_cache().unwrap();
        let snapshot = allocator.snapshot(true);
        assert_eq!(
            story(entries(&snapshot)),
            [
                (SegmentMap, 40 * MIB),
                (Alloc, 30 * MIB),
                (SegmentMap, 2 * MIB),
                (Alloc, 700),
                (FreeRequested, 30 * MIB),
                (FreeCompleted, 30 * MIB),
                (SegmentUnmap, 40 * MIB),
            ]
        );
        let (l, s) = (large.0, small.0);
        assert_eq!(addresses(entries(&snapshot)), [l, l, s, s, l, l, l]);
        allocator.free(small).unwrap();
        rig.nothing_is_left(&allocator);
    });
}

#[test]
fn h01_the_two_steps_of_a_free_lie_apart_while_another_stream_uses_the_block() {
    on_each(&one().clock(Clock::Workers), |rig| {
        let allocator = rig.allocator(Settings::default());
        let (home, side) = (rig.stream(), rig.new_stream());
        record(&allocator, 100);
        let ptr = allocator.malloc(MIB, home).unwrap();
        let gate = rig.hold(side);
        allocator.record_stream(ptr, side).unwrap();
        allocator.free(ptr).unwrap();
        let state = |snapshot: &Snapshot| snapshot.segments[0].blocks[0].state;
        let before = allocator.snapshot(true);
        assert_eq!(state(&before), BlockState::ActivePendingFree);
        assert_eq!(story(entries(&before))[2..], [(FreeRequested, MIB)]);
        gate.open();
        rig.backend.synchronize_stream(side).unwrap();
        allocator.poll(DEVICE).unwrap();
        let after = allocator.snapshot(true);
        assert_eq!(state(&after), BlockState::Inactive);
        let story = story(entries(&after));
        assert_eq!(story[2..], [(FreeRequested, MIB), (Action::Snapshot, MIB), (FreeCompleted, MIB)]);
    });
}

#[test]
fn h01_time_is_the_clocks() {
    on_each(&one(), |rig| {
        let allocator = rig.allocator(Settings::default());
        allocator.history().record(&HistoryOptions::newest(100));
        let now = || {
            let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
            i64::try_from(now.as_micros()).unwrap()
        };
        let before = now();
        let ptr = allocator.malloc(1000, rig.stream()).unwrap();
        allocator.free(ptr).unwrap();
        let after = now();
        let snapshot = allocator.snapshot(true);
        // Clocks are read and scaled apart; a second is far beyond what they differ.
        let within = before - 1_000_000..after + 1_000_000;
        assert!(entries(&snapshot).iter().all(|entry| within.contains(&entry.time_us)));
        assert!(entries(&snapshot).is_sorted_by_key(|entry| entry.time_us));
    });
}

#[test]
fn h06_off_clears_and_stops_and_state_keeps_at_most_one() {
    on_each(&one(), |rig| {
        let allocator = rig.allocator(Settings::default());
        let streams = [rig.stream(), rig.new_stream()];
        assert!(!allocator.history().is_enabled());
        record(&allocator, 100);
        assert!(allocator.history().is_enabled());
        allocator.malloc(1000, streams[0]).unwrap();
        record(&allocator, 0);
        assert!(!allocator.history().is_enabled());
        allocator.malloc(1000, streams[0]).unwrap();
        let off = allocator.snapshot(true);
        assert_eq!((off.device_traces.len(), entries(&off).len()), (1, 0));
        assert!(!off.history.unwrap().recorded);
        record(&allocator, 1);
        for stream in streams {
            for _ in 0..3 {
                allocator.malloc(1000, stream).unwrap();
            }
        }
        let state = allocator.snapshot(true);
        assert_eq!(story(entries(&state)), [(Alloc, 1000)], "the newest of all streams");
        let history = state.history.unwrap();
        // Three on the first stream; a segment and three on the second.
        assert_eq!((history.before_recording, history.overwritten), (2, 6));
        assert!(history.recorded && !history.complete);
    });
}

#[test]
fn h17_a_smaller_limit_drops_nothing_that_is_recorded() {
    on_each(&one(), |rig| {
        let (allocator, streams) = (rig.allocator(Settings::default()), [rig.stream(), rig.new_stream()]);
        let sizes = || -> Vec<u64> { entries(&allocator.snapshot(true)).iter().map(|e| e.size).collect() };
        record(&allocator, 50);
        for n in 1..=100 {
            allocator.malloc(n, streams[n as usize % 2]).unwrap();
        }
        record(&allocator, 1);
        assert_eq!(sizes(), (51..=100).collect::<Vec<_>>());
        allocator.malloc(101, streams[0]).unwrap();
        let kept = sizes();
        assert_eq!((kept.len(), kept.last()), (50, Some(&101)), "the newest stay");
        [0, 1].into_iter().for_each(|limit| record(&allocator, limit));
        let _ = streams.map(|stream| allocator.malloc(102, stream).unwrap());
        assert_eq!(sizes().len(), 1, "cleared, it is small");
    });
}

#[test]
fn h07_the_newest_entries_stay_and_clearing_empties() {
    on_each(&one(), |rig| {
        let allocator = rig.allocator(Settings::default());
        let streams = [rig.stream(), rig.new_stream()];
        record(&allocator, 7);
        for n in 1..=20 {
            allocator.malloc(n, streams[n as usize % 2]).unwrap();
        }
        let sizes =
            |snapshot: &Snapshot| entries(snapshot).iter().map(|entry| entry.size).collect::<Vec<_>>();
        let snapshot = allocator.snapshot(true);
        assert_eq!(sizes(&snapshot), (14..=20).collect::<Vec<_>>());
        let history = snapshot.history.unwrap();
        assert_eq!((history.overwritten, history.complete), (2 + 20 - 7, false));

        let clear = HistoryOptions { clear: true, ..HistoryOptions::newest(7).deterministic() };
        allocator.history().record(&clear);
        let cleared = allocator.snapshot(true);
        assert_eq!(sizes(&cleared), [0; 0]);
        let history = cleared.history.unwrap();
        assert_eq!(
            (history.overwritten, history.complete),
            (0, false),
            "what was cleared was not overwritten"
        );
        for n in 21..=40 {
            allocator.malloc(n, streams[0]).unwrap();
        }
        let snapshot = allocator.snapshot(true);
        assert_eq!(sizes(&snapshot), (34..=40).collect::<Vec<_>>());
        assert_eq!(snapshot.history.unwrap().overwritten, 1 + 20 - 7, "the snapshot's own entry, too");
    });
}

#[test]
fn h08_exactly_the_skipped_actions_are_missing() {
    on_each(&one(), |rig| {
        for skipped in [vec![Alloc], vec![FreeRequested, SegmentFree], vec![Oom, FreeCompleted, Annotate]] {
            let allocator = rig.allocator(Settings::default());
            let full = rig.allocator(Settings::default());
            record(&full, 100);
            let skip =
                HistoryOptions { skip: skipped.clone(), ..HistoryOptions::newest(100).deterministic() };
            allocator.history().record(&skip);
            let stories = [&allocator, &full].map(|allocator| {
                let ptr = allocator.malloc(1000, rig.stream()).unwrap();
                allocator.history().annotate(ptr, "note").unwrap();
                allocator.malloc(16 * GIB, rig.stream()).unwrap_err();
                allocator.free(ptr).unwrap();
                allocator.empty_cache().unwrap();
                story(entries(&allocator.snapshot(true)))
            });
            let expected: Vec<_> =
                stories[1].iter().filter(|(action, _)| !skipped.contains(action)).copied().collect();
            assert!(expected.len() < stories[1].len());
            assert_eq!(stories[0], expected);
            let history = allocator.snapshot(false).history.unwrap();
            assert!(
                !history.complete && history.overwritten == 0,
                "entries are missing, none was overwritten"
            );
            assert!(full.snapshot(false).history.unwrap().complete);
        }
    });
    assert_eq!(Action::from_name("allocate"), None);
    assert_eq!(Action::from_name("segment_free"), Some(SegmentFree));
}

/// What a pickle and back leaves of a snapshot: files do not carry all.
fn in_a_file(mut snapshot: Snapshot) -> Snapshot {
    for segment in &mut snapshot.segments {
        segment.registration = None;
        segment.frames.take_if(|frames| frames.is_empty());
        segment.blocks.iter_mut().for_each(|block| drop(block.frames.take_if(|frames| frames.is_empty())));
    }
    snapshot
}

#[test]
fn h12_a_pickled_snapshot_reads_back_whole() {
    on_each(&one(), |rig| {
        let allocator = rig.allocator(Settings::default());
        record(&allocator, 100);
        let ptr = allocator.malloc(3 * MIB, rig.stream()).unwrap();
        allocator.free(ptr).unwrap();
        allocator.malloc(MIB, rig.stream()).unwrap();
        let snapshot = allocator.snapshot(true);
        assert_eq!(entries(&snapshot).last().unwrap().action, Alloc);
        for protocol in [pickle::Protocol::V2, pickle::Protocol::V4] {
            let mut bytes = Vec::new();
            pickle::write(&snapshot, &mut bytes, protocol).unwrap();
            assert_eq!(in_a_file(pickle::read(&*bytes).unwrap()), in_a_file(snapshot.clone()));
        }
    });
}

#[test]
fn h13_without_traces_the_segments_are_the_same() {
    on_each(&one().devices(2), |rig| {
        for settings in [Settings::default(), growable()] {
            let allocator = rig.allocator(settings);
            record(&allocator, 1000);
            let streams = [rig.stream(), rig.new_stream(), rig.backend.default_stream(DeviceIndex(1))];
            let mut live = Vec::new();
            for n in 1..60 {
                live.push(allocator.malloc(n * n * 7 * KIB, streams[n as usize % 3]).unwrap());
            }
            live.into_iter().step_by(3).for_each(|ptr| allocator.free(ptr).unwrap());
            let full = allocator.snapshot(true);
            let state = allocator.snapshot(false);
            assert_eq!(state.segments, full.segments);
            assert!(full.segments.len() > 5 && full.device_traces.iter().all(|trace| !trace.is_empty()));
            assert_eq!((full.device_traces.len(), state.device_traces.len()), (2, 0));
            assert_eq!(state.external_annotations, Vec::new());
            assert_eq!(state.allocator_settings, full.allocator_settings);
            let order = |s: &alloc_core::snapshot::SegmentInfo| (s.device, s.address);
            assert!(full.segments.is_sorted_by_key(order));
            for segment in &full.segments {
                let sum: u64 = segment.blocks.iter().map(|block| block.size).sum();
                assert_eq!(sum, segment.total_size);
                assert!(segment.blocks.is_sorted_by_key(|block| block.address));
            }
        }
    });
}

#[test]
fn h14_entries_and_segments_have_their_pools_id() {
    on_each(&one(), |rig| {
        let allocator = rig.allocator(Settings::default());
        let stream = rig.stream();
        record(&allocator, 100);
        let pools = [PoolId::fresh(), PoolId::fresh_for_capture()];
        assert!(pools[0].0 == 0 && pools[0].1 > 0 && pools[1].0 > 0 && pools[1].1 == 0, "{pools:?}");
        let mut live = vec![(PoolId::DEFAULT, allocator.malloc(1000, stream).unwrap())];
        for pool in pools {
            allocator.pools().create(DEVICE, pool, None).unwrap();
            allocator.pools().begin(DEVICE, pool, alloc_core::pool::Filter::Always).unwrap();
            live.push((pool, allocator.malloc(1000, stream).unwrap()));
            allocator.pools().end(DEVICE, pool).unwrap();
        }
        for (_, ptr) in &live {
            allocator.history().annotate(*ptr, "").unwrap();
            allocator.free(*ptr).unwrap();
        }
        let snapshot = allocator.snapshot(true);
        for (pool, ptr) in &live {
            let mine: Vec<_> = entries(&snapshot).iter().filter(|entry| entry.addr == ptr.0).collect();
            let actions: Vec<_> = mine.iter().map(|entry| entry.action).collect();
            assert_eq!(actions, [SegmentAlloc, Alloc, Annotate, FreeRequested, FreeCompleted]);
            assert!(mine.iter().all(|entry| entry.labels.pool_id == Some(*pool)));
            let segment = snapshot.segments.iter().find(|segment| segment.address == ptr.0).unwrap();
            assert_eq!(segment.pool_id, *pool);
            let of_pool = allocator.pools().snapshot(*pool, false);
            assert_eq!(of_pool.segments, std::slice::from_ref(segment));
        }
        assert_eq!(allocator.pools().snapshot(PoolId(7, 7), true).segments, []);
        // Each snapshot left an entry, with the pool that was asked for.
        let asked: Vec<_> = entries(&allocator.snapshot(true))
            .iter()
            .filter(|entry| entry.action == Action::Snapshot)
            .map(|entry| entry.labels.pool_id.unwrap())
            .collect();
        assert_eq!(asked, [PoolId::DEFAULT, PoolId::DEFAULT, pools[0], pools[1], PoolId(7, 7)]);
    });
}

/// What `_memory_viz.py` and the viewer look for, and what `segsum` asserts.
#[test]
fn h16_snapshots_have_what_the_tools_read() {
    on_each(&one(), |rig| {
        for settings in [Settings::default(), growable()] {
            let allocator = rig.allocator(settings);
            record(&allocator, 1000);
            let live: Vec<_> =
                (1..20).map(|n| allocator.malloc(n * n * 50 * KIB, rig.stream()).unwrap()).collect();
            live.iter().step_by(2).for_each(|ptr| allocator.free(*ptr).unwrap());
            allocator.malloc(16 * GIB, rig.stream()).unwrap_err();
            let mut bytes = Vec::new();
            json::to_json(&allocator.snapshot(true), &mut bytes).unwrap();
            let file: serde_json::Value = serde_json::from_slice(&bytes).unwrap();
            let mut held = BTreeMap::new();
            for segment in file["segments"].as_array().unwrap() {
                let blocks = segment["blocks"].as_array().unwrap();
                let number = |value: &serde_json::Value, key: &str| {
                    value[key].as_u64().unwrap_or_else(|| panic!("{key} in {value}"))
                };
                let sum: u64 = blocks.iter().map(|block| number(block, "size")).sum();
                assert_eq!(sum, number(segment, "total_size"));
                for key in ["device", "stream", "address", "allocated_size"] {
                    number(segment, key);
                }
                assert!(segment["frames"].is_array() && segment["segment_pool_id"].is_array());
                for block in blocks {
                    assert!(number(block, "requested_size") <= number(block, "size"), "{block}");
                    assert!(block["frames"].is_array());
                    *held.entry(block["state"].as_str().unwrap().to_owned()).or_insert(0) += 1;
                }
            }
            assert_eq!(held["active_allocated"], 9);
            let names: Vec<&str> = Action::ALL.iter().map(|action| action.name()).collect();
            for entry in file["device_traces"][0].as_array().unwrap() {
                let action = entry["action"].as_str().unwrap();
                assert!(names.contains(&action), "{action}");
                let place = if action == "oom" { "device_free" } else { "addr" };
                for key in [place, "size", "stream"] {
                    assert!(entry[key].is_u64(), "{key} in {entry}");
                }
                assert!(entry["user_metadata"].is_string());
            }
            assert!(file["allocator_settings"].is_object());
        }
    });
}

#[test]
fn h17_the_limit_changes_while_entries_are_made() {
    on_each(&one(), |rig| {
        let allocator = rig.allocator(Settings::default());
        let stream = rig.stream();
        let warm = allocator.malloc(1, stream).unwrap();
        allocator.free(warm).unwrap();
        let mut made = 0;
        let mut check = |limit: usize, pairs: u64, kept: u64| {
            record(&allocator, limit);
            for n in made..made + pairs {
                allocator.free(allocator.malloc(n + 1, stream).unwrap()).unwrap();
            }
            made += pairs;
            let snapshot = allocator.snapshot(true);
            let entries: Vec<_> =
                entries(&snapshot).iter().filter(|entry| entry.action == FreeCompleted).collect();
            let sizes: Vec<u64> = entries.iter().map(|entry| entry.size).collect();
            assert_eq!(sizes, (made - kept + 1..=made).collect::<Vec<_>>(), "limit {limit}");
            assert!(entries.is_sorted_by_key(|entry| entry.time_us));
        };
        // The sequence that crashed PyTorch 2.15 comes second; entries of snapshots take places, too.
        check(1000, 200, 200);
        check(1000, 400, 334);
        check(10, 1, 333);
        check(10, 600, 334);
        check(3000, 5, 339);
        check(3000, 1000, 1000);
        check(5, 0, 1000);
    });
}

#[test]
fn h17_threads_record_while_the_limit_changes() {
    on_each(&one(), |rig| {
        let allocator = rig.allocator(Settings::default());
        record(&allocator, 100);
        std::thread::scope(|scope| {
            for _ in 0..2 {
                let stream = rig.new_stream();
                let allocator = &allocator;
                scope.spawn(move || {
                    for n in 1..2000 {
                        allocator.free(allocator.malloc(n, stream).unwrap()).unwrap();
                    }
                });
            }
            for limit in (1..60).map(|n| n * 37 % 101) {
                record(&allocator, limit);
                let snapshot = allocator.snapshot(true);
                assert!(entries(&snapshot).len() <= 100);
                assert!(
                    entries(&snapshot).is_sorted_by_key(|entry| entry.time_us),
                    "in the order of numbers"
                );
            }
        });
        allocator.check_invariants();
    });
}

/// The same work gives the same snapshot, with marks and compile contexts.
#[test]
fn h17_deterministic_histories_repeat() {
    on_each(&one(), |rig| {
        let run = || {
            let allocator = rig.allocator(Settings::default());
            record(&allocator, 100);
            allocator.history().mark_range(Stage::Start, "step", DEVICE);
            let ptr = allocator.malloc(MIB, rig.stream()).unwrap();
            allocator.history().mark_range(Stage::End, "step", DEVICE);
            allocator.free(ptr).unwrap();
            let snapshot = allocator.snapshot(true);
            let first = ptr.0;
            allocator.empty_cache().unwrap();
            (snapshot, first)
        };
        let ((first, a), (second, b)) = (run(), run());
        assert_eq!(first.external_annotations, second.external_annotations);
        let times = |snapshot: &Snapshot| entries(snapshot).iter().map(|e| e.time_us).collect::<Vec<_>>();
        assert_eq!((times(&first), story(entries(&first))), (times(&second), story(entries(&second))));
        assert_eq!(a == b, first == second, "the same up to the address that the machine gave");
    });
}

fn text(value: &Value, key: &str) -> Value {
    let Value::Dict(fields) = value else { panic!("{value:?} is no dictionary") };
    fields.iter().find(|(name, _)| *name == Value::from(key)).map(|(_, value)| value.clone()).unwrap()
}

#[test]
fn h18_ranges_come_as_pairs_in_order() {
    on_each(&one().devices(2), |rig| {
        let allocator = rig.allocator(Settings::default());
        allocator.history().mark_range(Stage::Start, "too early", DEVICE);
        record(&allocator, 4);
        for name in ["forward", "backward", "optimiser"] {
            allocator.history().mark_range(Stage::Start, name, DeviceIndex(1));
            allocator.history().mark_range(Stage::End, name, DeviceIndex(1));
        }
        let marks = allocator.snapshot(true).external_annotations;
        let shown: Vec<_> = marks.iter().map(|mark| (text(mark, "stage"), text(mark, "name"))).collect();
        let expected = ["backward", "optimiser"]
            .map(|name| ["START", "END"].map(|stage| (Value::from(stage), Value::from(name))));
        assert_eq!(shown, expected.concat(), "the newest four");
        for mark in &marks {
            let Value::Dict(fields) = mark else { panic!("no dictionary") };
            let keys: Vec<_> = fields.iter().map(|(key, _)| key.clone()).collect();
            assert_eq!(keys, ["stage", "name", "device", "time_us"].map(Value::from));
            assert_eq!(text(mark, "device"), Value::Int(1));
        }
        record(&allocator, 0);
        assert_eq!(allocator.snapshot(true).external_annotations, []);
    });
}

/// A history that was begun late, or whose arenas began at different times, counts what it missed.
#[test]
fn h06_what_was_missed_is_counted_once() {
    on_each(&one(), |rig| {
        let allocator = rig.allocator(Settings::default());
        let streams = [rig.stream(), rig.new_stream()];
        let missed = || allocator.snapshot(false).history.unwrap().before_recording;
        for stream in streams {
            allocator.malloc(1000, stream).unwrap();
        }
        record(&allocator, 100);
        assert_eq!(missed(), 2);
        allocator.malloc(1000, rig.new_stream()).unwrap();
        record(&allocator, 50);
        allocator.hooks().on_trace(|_, _| ());
        assert_eq!(missed(), 2, "the same recording goes on");
        allocator.history().record(&HistoryOptions::newest(50));
        assert_eq!(missed(), 3, "another clock is another recording");
        allocator.history().record(&HistoryOptions::newest(0));
        allocator.malloc(1000, streams[0]).unwrap();
        allocator.history().record(&HistoryOptions::newest(50));
        assert_eq!(missed(), 4);
    });
}

#[test]
fn h13_registration_is_the_order_in_which_segments_were_taken() {
    on_each(&one(), |rig| {
        let allocator = rig.allocator(Settings::default());
        let sizes = [MIB, 30 * MIB, 100 * MIB, 50 * MIB];
        let taken = sizes.map(|bytes| allocator.malloc(bytes, rig.stream()).unwrap());
        let order = |allocator: &Allocator| {
            let mut segments = allocator.snapshot(false).segments;
            segments.sort_by_key(|segment| segment.registration.unwrap());
            segments.iter().map(|segment| segment.address).collect::<Vec<_>>()
        };
        assert_eq!(order(&allocator), taken.map(|ptr| ptr.0));
        allocator.free(taken[1]).unwrap();
        allocator.empty_cache().unwrap();
        let last = allocator.malloc(30 * MIB, rig.stream()).unwrap();
        assert_eq!(order(&allocator), [taken[0], taken[2], taken[3], last].map(|ptr| ptr.0));
    });
}

#[test]
fn h09_compile_contexts_do_not_outlive_their_thread() {
    std::thread::spawn(|| push_compile_context("Torch-Compiled Region: 9/9")).join().unwrap();
    on_each(&one(), |rig| {
        let allocator = rig.allocator(Settings::default());
        record(&allocator, 100);
        allocator.malloc(1000, rig.stream()).unwrap();
        let snapshot = allocator.snapshot(true);
        let contexts: Vec<_> =
            entries(&snapshot).iter().map(|entry| entry.labels.compile_context.as_deref().unwrap()).collect();
        assert_eq!(contexts, ["N/A"; 2]);
    });
}
