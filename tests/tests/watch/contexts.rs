//! Call contexts and what threads say; contexts of snapshots as they were gathered, trackers of one device, sizes of growable
//! segments.

use Action::{Alloc, Annotate, FreeCompleted, FreeRequested};
use alloc_core::config::Settings;
use alloc_core::device::GrowableSize;
use alloc_core::history::{
    CallContext, Context, HistoryOptions, RecordContext, pop_compile_context, push_compile_context,
    set_user_metadata, user_metadata,
};
use alloc_core::snapshot::{Action, Snapshot, Stack, TraceEntry, Value};
use alloc_core::types::{DeviceIndex, DevicePtr, GIB, MIB};
use backend_openreg::{Clock, OpenRegConfig};
use granule_tests::Allocator;
use granule_tests::rig::{DEVICE, Rig, on_each};
use granule_tests::setup::{both, one};
use granule_tests::sites::{at, innermost, recorder, recorder_in};
use std::any::Any;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

fn with(contexts: RecordContext) -> HistoryOptions {
    HistoryOptions { contexts, recorder: Some(recorder()), ..HistoryOptions::newest(100).deterministic() }
}

/// Actions with the function that each shows.
fn shown(snapshot: &Snapshot) -> Vec<(Action, &str)> {
    snapshot.device_traces[0].iter().map(|entry| (entry.action, innermost(entry.frames.as_ref()))).collect()
}

/// The functions that live blocks show, and those that segments show.
fn held(snapshot: &Snapshot) -> (Vec<&str>, Vec<&str>) {
    let blocks = snapshot.segments.iter().flat_map(|segment| &segment.blocks);
    let blocks =
        blocks.map(|block| innermost(block.frames.as_ref())).filter(|name| !name.is_empty()).collect();
    (blocks, snapshot.segments.iter().map(|segment| innermost(segment.frames.as_ref())).collect())
}

/// Two blocks are taken, a note is made, one block is freed, the cache is emptied.
fn work(rig: &Rig, allocator: &Allocator) -> DevicePtr {
    let first = at("first", || allocator.malloc(30 * MIB, rig.stream())).unwrap();
    let second = at("second", || allocator.malloc(1000, rig.stream())).unwrap();
    at("note", || allocator.history().annotate(second, "text")).unwrap();
    at("free", || allocator.free(first)).unwrap();
    at("empty", || allocator.empty_cache()).unwrap();
    second
}

/// What is recorded of it, with the functions that the free and the emptying show.
fn of_work(settings: &Settings, free: &'static str, empty: &'static str) -> Vec<(Action, &'static str)> {
    let [take, give] = match settings.expandable_segments {
        true => [Action::SegmentMap, Action::SegmentUnmap],
        false => [Action::SegmentAlloc, Action::SegmentFree],
    };
    vec![
        (take, "first"),
        (Alloc, "first"),
        (take, "second"),
        (Alloc, "second"),
        (Annotate, "note"),
        (FreeRequested, free),
        (FreeCompleted, free),
        (give, empty),
    ]
}

#[test]
fn h02_a_free_shows_where_its_block_was_allocated() {
    on_each(&one(), |rig| {
        for settings in both() {
            let allocator = rig.allocator(settings.clone());
            allocator.history().record(&with(RecordContext::Alloc));
            work(rig, &allocator);
            let snapshot = allocator.snapshot(true);
            assert_eq!(shown(&snapshot), of_work(&settings, "first", "first"));
            assert_eq!(held(&snapshot), (vec!["second"], vec!["second"]));
        }
    });
}

#[test]
fn h03_contexts_of_the_state_are_on_blocks_only() {
    on_each(&one(), |rig| {
        for settings in both() {
            let allocator = rig.allocator(settings);
            allocator.history().record(&with(RecordContext::State));
            work(rig, &allocator);
            let snapshot = allocator.snapshot(true);
            assert_eq!(snapshot.device_traces[0].len(), 8);
            assert!(snapshot.device_traces[0].iter().all(|entry| entry.frames.is_none()));
            assert_eq!(held(&snapshot), (vec!["second"], vec!["second"]));
            assert_eq!(held(&allocator.snapshot(false)), (vec!["second"], vec!["second"]));
        }
    });
}

#[test]
fn h04_frees_show_who_freed() {
    on_each(&one(), |rig| {
        for settings in both() {
            let allocator = rig.allocator(settings.clone());
            allocator.history().record(&with(RecordContext::All));
            let second = work(rig, &allocator);
            at("larger than the device", || allocator.malloc(16 * GIB, rig.stream())).unwrap_err();
            at("again", || allocator.free(second)).unwrap();
            let snapshot = allocator.snapshot(true);
            let mut expected = of_work(&settings, "free", "empty");
            let later =
                [(Action::Oom, "larger than the device"), (FreeRequested, "again"), (FreeCompleted, "again")];
            expected.extend(later);
            assert_eq!(shown(&snapshot), expected);
            assert_eq!(held(&snapshot), (vec![], vec!["second"]), "a free block has none");
        }
    });
}

/// A free that waited shows the call that noticed its end, or else where the block was allocated.
#[test]
fn h04_a_late_completion_shows_who_noticed() {
    for (level, requested, completed) in [
        (RecordContext::All, "free", "notices"),
        (RecordContext::Alloc, "take", "notices"),
        (RecordContext::State, "", ""),
    ] {
        on_each(&one().clock(Clock::Workers), |rig| {
            let allocator = rig.allocator(Settings::default());
            allocator.history().record(&with(level));
            let (home, side) = (rig.stream(), rig.new_stream());
            let ptr = at("take", || allocator.malloc(MIB, home)).unwrap();
            let gate = rig.hold(side);
            allocator.record_stream(ptr, side).unwrap();
            at("free", || allocator.free(ptr)).unwrap();
            assert_eq!(held(&allocator.snapshot(false)).0, ["take"], "pending blocks keep theirs");
            gate.open();
            rig.backend.synchronize_stream(side).unwrap();
            at("notices", || allocator.malloc(20 * MIB, home)).unwrap();
            let snapshot = allocator.snapshot(true);
            let frees: Vec<_> = shown(&snapshot)
                .into_iter()
                .filter(|(action, _)| matches!(action, FreeRequested | FreeCompleted))
                .collect();
            assert_eq!(frees, [(FreeRequested, requested), (FreeCompleted, completed)]);
        });
    }
}

#[test]
fn h04_without_contexts_nothing_is_gathered() {
    on_each(&one(), |rig| {
        let asked = Arc::new(AtomicUsize::new(0));
        for (contexts, expected) in [
            (RecordContext::Never, 0),
            (RecordContext::State, 2),
            (RecordContext::Alloc, 3),
            (RecordContext::All, 5),
        ] {
            let allocator = rig.allocator(Settings::default());
            let counted = Arc::clone(&asked);
            let recorder: alloc_core::history::ContextRecorder = Arc::new(move || {
                counted.fetch_add(1, Ordering::Relaxed);
                None
            });
            let options =
                HistoryOptions { contexts, recorder: Some(recorder), ..HistoryOptions::newest(100) };
            allocator.history().record(&options);
            work(rig, &allocator);
            assert_eq!(asked.swap(0, Ordering::Relaxed), expected, "{contexts:?}");
            assert!(shown(&allocator.snapshot(true)).iter().all(|(_, name)| name.is_empty()));
        }
    });
}

/// The program's recorder decides what stacks look like; a new one is asked from then on.
#[test]
fn h05_contexts_are_those_of_the_recorder_that_was_chosen() {
    on_each(&one(), |rig| {
        let allocator = rig.allocator(Settings::default());
        let mut live = Vec::new();
        for language in ["py", "cpp"] {
            let recorder = Some(recorder_in(language));
            allocator.history().record(&HistoryOptions { recorder, ..with(RecordContext::All) });
            live.push(allocator.malloc(1000, rig.stream()).unwrap());
        }
        let files =
            live.iter().map(|ptr| allocator.history().context_of(*ptr).unwrap().frames()[0].filename.clone());
        assert_eq!(files.collect::<Vec<_>>(), ["program.py".into(), "program.cpp".into()]);
    });
}

/// Entries and blocks that came from one context share one stack, which is looked up once.
#[test]
fn h01_blocks_carry_the_context_of_their_allocation() {
    #[derive(Debug)]
    struct Counted(Arc<AtomicUsize>);
    impl CallContext for Counted {
        fn frames(&self) -> Stack {
            self.0.fetch_add(1, Ordering::Relaxed);
            Arc::default()
        }
    }
    on_each(&one(), |rig| {
        let allocator = rig.allocator(Settings::default());
        allocator.history().record(&with(RecordContext::Alloc));
        let blocks = ["a", "b", "c"].map(|name| at(name, || allocator.malloc(1000, rig.stream())).unwrap());
        assert_eq!(held(&allocator.snapshot(true)).0, ["a", "b", "c"]);
        // Joining and cutting again gives no block another's.
        allocator.free(blocks[0]).unwrap();
        allocator.free(blocks[1]).unwrap();
        assert_eq!(held(&allocator.snapshot(true)).0, ["c"]);
        at("d", || allocator.malloc(1500, rig.stream())).unwrap();
        assert_eq!(held(&allocator.snapshot(true)), (vec!["d", "c"], vec!["a"]), "the segment keeps its own");

        let times = Arc::new(AtomicUsize::new(0));
        let shared: Context = Arc::new(Counted(Arc::clone(&times)));
        let recorder: alloc_core::history::ContextRecorder = Arc::new(move || Some(Arc::clone(&shared)));
        let fresh = rig.allocator(Settings::default());
        fresh.history().record(&HistoryOptions { recorder: Some(recorder), ..with(RecordContext::All) });
        for _ in 0..5 {
            fresh.malloc(1000, rig.stream()).unwrap();
        }
        let entries = fresh.snapshot(true).device_traces.remove(0);
        assert_eq!(times.load(Ordering::Relaxed), 1);
        let stack = |entry: &TraceEntry| entry.frames.clone().unwrap();
        assert!(entries.iter().all(|entry| Arc::ptr_eq(&stack(entry), &stack(&entries[0]))));
    });
}

#[test]
fn h09_entries_carry_the_compiled_region() {
    // They are their thread's, and go with it.
    std::thread::spawn(|| push_compile_context("Torch-Compiled Region: 9/9")).join().unwrap();
    on_each(&one(), |rig| {
        let allocator = rig.allocator(Settings::default());
        allocator.history().record(&HistoryOptions::newest(100).deterministic());
        let take = || allocator.malloc(1000, rig.stream()).unwrap();
        take();
        push_compile_context("Torch-Compiled Region: 0/0");
        let block = take();
        push_compile_context("Torch-Compiled Region: 1/0");
        allocator.free(block).unwrap();
        pop_compile_context();
        take();
        pop_compile_context();
        pop_compile_context();
        take();
        let snapshot = allocator.snapshot(true);
        let regions: Vec<_> = snapshot.device_traces[0]
            .iter()
            .map(|entry| (entry.action, entry.labels.compile_context.as_deref().unwrap()))
            .collect();
        let (outside, outer, inner) = ("N/A", "Torch-Compiled Region: 0/0", "Torch-Compiled Region: 1/0");
        assert_eq!(
            regions,
            [
                (Action::SegmentAlloc, outside),
                (Alloc, outside),
                (Alloc, outer),
                (FreeRequested, inner),
                (FreeCompleted, inner),
                (Alloc, outer),
                (Alloc, outside),
            ]
        );
    });
}

#[test]
fn h10_metadata_is_the_threads_and_notes_have_their_own() {
    on_each(&one(), |rig| {
        let allocator = rig.allocator(Settings::default());
        allocator.history().record(&HistoryOptions::newest(100).deterministic());
        let stream = rig.stream();
        set_user_metadata("step 1");
        let mine = allocator.malloc(1000, stream).unwrap();
        let other = std::thread::scope(|scope| {
            let other = scope.spawn(|| {
                assert_eq!(&*user_metadata(), "");
                let ptr = allocator.malloc(2000, stream).unwrap();
                set_user_metadata("worker");
                allocator.history().annotate(mine, "weights").unwrap();
                ptr
            });
            other.join().unwrap()
        });
        assert_eq!(&*user_metadata(), "step 1");
        allocator.free(mine).unwrap();
        let seen = allocator.snapshot(true);
        set_user_metadata("");
        allocator.free(other).unwrap();
        allocator.history().annotate(mine, "gone").unwrap_err();
        let snapshot = allocator.snapshot(true);
        let texts: Vec<_> = snapshot.device_traces[0]
            .iter()
            .map(|entry| (entry.action, entry.size, entry.labels.user_metadata.as_deref().unwrap()))
            .collect();
        assert_eq!(
            texts,
            [
                (Action::SegmentAlloc, 2 * MIB, "step 1"),
                (Alloc, 1000, "step 1"),
                (Alloc, 2000, ""),
                (Annotate, 1000, "weights"),
                (FreeRequested, 1000, "step 1"),
                (FreeCompleted, 1000, "step 1"),
                (Action::Snapshot, 2048, "step 1"),
                (FreeRequested, 2000, ""),
                (FreeCompleted, 2000, ""),
            ]
        );
        assert_eq!(snapshot.device_traces[0][3].addr, mine.0);
        assert_eq!(seen.device_traces[0][..], snapshot.device_traces[0][..6]);
    });
}

#[test]
fn h11_frames_of_the_forward_pass_come_with_the_backward_one() {
    on_each(&one(), |rig| {
        let allocator = rig.allocator(Settings::default());
        allocator.history().record(&with(RecordContext::All));
        allocator.malloc(1000, rig.stream()).unwrap();
        at("backward of linear", || allocator.malloc(1000, rig.stream())).unwrap();
        let snapshot = allocator.snapshot(true);
        let extra: Vec<_> = snapshot.device_traces[0].iter().map(|entry| &entry.labels.extra[..]).collect();
        let forward = ("forward_frames".into(), Value::List(vec!["forward linear".into()]));
        assert_eq!(extra, [&[][..], &[], std::slice::from_ref(&forward)]);
    });
}

#[test]
fn h15_the_context_of_a_live_block_is_found_by_its_address() {
    on_each(&one(), |rig| {
        let allocator = rig.allocator(Settings::default());
        let stream = rig.stream();
        let before = allocator.malloc(1000, stream).unwrap();
        allocator.history().record(&with(RecordContext::State));
        let ptr = at("here", || allocator.malloc(1000, stream)).unwrap();
        let name =
            |ptr| allocator.history().context_of(ptr).map(|context| context.frames()[0].name.to_string());
        assert_eq!(name(ptr).as_deref(), Some("here"));
        for unknown in [before, DevicePtr(ptr.0 + 512), DevicePtr::NULL, DevicePtr(u64::MAX)] {
            assert_eq!(name(unknown), None);
        }
        allocator.free(ptr).unwrap();
        assert_eq!(name(ptr), None);
    });
}

/// Contexts stay with live blocks when others are no longer gathered, and go when history goes.
#[test]
fn h03_switching_levels_keeps_the_contexts_of_live_blocks() {
    on_each(&one(), |rig| {
        let allocator = rig.allocator(Settings::default());
        let take = |name| at(name, || allocator.malloc(1000, rig.stream())).unwrap();
        allocator.history().record(&with(RecordContext::All));
        let first = take("first");
        allocator.history().record(&with(RecordContext::Never));
        let second = take("second");
        assert_eq!(held(&allocator.snapshot(false)), (vec!["first"], vec!["first"]));
        at("free", || allocator.free(first)).unwrap();
        assert_eq!(held(&allocator.snapshot(false)), (vec![], vec!["first"]));
        let third = take("third");
        assert_eq!(
            (third, allocator.history().context_of(third).is_none()),
            (first, true),
            "the place is another block's"
        );
        let snapshot = allocator.snapshot(true);
        let frees: Vec<_> = shown(&snapshot).into_iter().filter(|(a, _)| *a == FreeRequested).collect();
        assert_eq!(frees, [(FreeRequested, "")], "none is shown where none is kept");

        allocator.history().record(&with(RecordContext::Alloc));
        take("fourth");
        allocator.history().record(&HistoryOptions::newest(0));
        assert_eq!(held(&allocator.snapshot(false)), (vec![], vec![""]), "off, all are forgotten");
        allocator.free(second).unwrap();
        allocator.check_invariants();
    });
}

/// A context with a number, which is counted when it ends.
#[derive(Debug)]
struct Numbered {
    number: usize,
    ended: Arc<AtomicUsize>,
}

impl CallContext for Numbered {
    fn frames(&self) -> Stack {
        Stack::default()
    }
}

impl Drop for Numbered {
    fn drop(&mut self) {
        self.ended.fetch_add(1, Ordering::Relaxed);
    }
}

fn recording(made: &Arc<AtomicUsize>, ended: &Arc<AtomicUsize>) -> HistoryOptions {
    let (made, ended) = (Arc::clone(made), Arc::clone(ended));
    HistoryOptions::newest(100).with_contexts(RecordContext::All, move || {
        let number = made.fetch_add(1, Ordering::Relaxed);
        Some(Arc::new(Numbered { number, ended: Arc::clone(&ended) }))
    })
}

#[test]
fn h04_contexts_are_dropped_as_soon_as_nothing_shows_them() {
    on_each(&one().clock(Clock::Workers), |rig| {
        for settings in both() {
            for contexts in [RecordContext::State, RecordContext::Alloc, RecordContext::All] {
                let allocator = rig.allocator(settings.clone());
                let (made, gone) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
                let options = HistoryOptions { contexts, max_entries: 5, ..recording(&made, &gone) };
                allocator.history().record(&options);
                let streams = [rig.stream(), rig.new_stream()];
                let alive = || made.load(Ordering::Relaxed) - gone.load(Ordering::Relaxed);
                for n in 0..10 {
                    let ptr = allocator.malloc((n + 1) * 5 * MIB, streams[n as usize % 2]).unwrap();
                    if n % 3 == 0 {
                        allocator.record_stream(ptr, streams[(n as usize + 1) % 2]).unwrap();
                    }
                    allocator.history().annotate(ptr, "text").unwrap();
                    let gate = rig.hold(streams[(n as usize + 1) % 2]);
                    allocator.free(ptr).unwrap();
                    gate.open();
                    if n % 4 == 0 {
                        allocator.empty_cache().unwrap();
                    }
                }
                streams.iter().for_each(|stream| rig.backend.synchronize_stream(*stream).unwrap());
                allocator.poll(DEVICE).unwrap();
                allocator.empty_cache().unwrap();
                // At most those of five entries in each ring, and of the last operation.
                assert!(alive() <= 15, "{} are alive at {contexts:?}", alive());
                if contexts == RecordContext::State {
                    assert_eq!(alive(), 0, "no block or segment is left");
                }
                // Off and gone at once, also where the level was lowered before.
                let live = allocator.malloc(MIB, streams[0]).unwrap();
                allocator.history().record(&HistoryOptions { contexts: RecordContext::Never, ..options });
                allocator.malloc(MIB, streams[1]).unwrap();
                allocator.free(live).unwrap();
                allocator.history().record(&HistoryOptions::newest(0));
                assert_eq!(alive(), 0, "{contexts:?}");
            }
        }
    });
}

/// Checkpoints bring contexts back with their blocks.
#[test]
fn h15_a_restored_block_has_its_own_context_again() {
    on_each(&one(), |rig| {
        for settings in both() {
            let allocator = rig.allocator(settings);
            allocator.history().record(&with(RecordContext::State));
            let pool = alloc_core::types::PoolId::fresh();
            allocator.pools().create(DEVICE, pool, None).unwrap();
            allocator.pools().begin(DEVICE, pool, alloc_core::pool::Filter::Always).unwrap();
            let take = |name, bytes| at(name, || allocator.malloc(bytes, rig.stream())).unwrap();
            let kept = [take("a", 1000), take("b", 2000), take("c", 30 * MIB)];
            let saved = allocator.pools().checkpoint(DEVICE, pool).unwrap();
            kept.iter().for_each(|ptr| allocator.free(*ptr).unwrap());
            let other = take("other", 3000);
            assert_eq!(other, kept[0]);
            let stale = [other].into();
            let delta = at("restore", || allocator.pools().restore(&saved, Some(&stale))).unwrap();
            assert_eq!(delta.allocated.len(), 3);
            let names = kept.map(|ptr| {
                allocator.history().context_of(ptr).map(|context| context.frames()[0].name.to_string())
            });
            assert_eq!(names, ["a", "b", "c"].map(|name| Some(name.to_owned())));
            allocator.pools().end(DEVICE, pool).unwrap();
        }
    });
}

fn two() -> OpenRegConfig {
    OpenRegConfig::default().devices(2).capacity(8 * GIB)
}

fn number(context: Option<&Context>) -> Option<usize> {
    context.map(|context| (&**context as &dyn Any).downcast_ref::<Numbered>().unwrap().number)
}

#[test]
fn a_snapshot_has_its_contexts_place_by_place() {
    on_each(&two(), |rig| {
        let allocator = rig.allocator(Settings::default());
        let (made, ended) = (Arc::<AtomicUsize>::default(), Arc::<AtomicUsize>::default());
        allocator.history().record(&recording(&made, &ended));
        let first = allocator.malloc(3 * MIB, rig.stream()).unwrap();
        let second = allocator.malloc(3 * MIB, rig.stream()).unwrap();
        allocator.free(first).unwrap();

        let (snapshot, contexts) = allocator.history().snapshot_with_contexts(None, true);
        assert_eq!((snapshot.segments.len(), contexts.segments.len()), (1, 1));
        let blocks: Vec<_> = contexts.segments[0].blocks.iter().map(|block| number(block.as_ref())).collect();
        assert_eq!(number(contexts.segments[0].segment.as_ref()), Some(0), "the first request took it");
        assert_eq!(blocks, [None, Some(1), None], "free, the second, free");
        let entries: Vec<_> = snapshot.device_traces[0]
            .iter()
            .zip(&contexts.traces[0])
            .map(|(entry, context)| (entry.action, number(context.as_ref())))
            .collect();
        let expected = [
            (Action::SegmentAlloc, Some(0)),
            (Action::Alloc, Some(0)),
            (Action::Alloc, Some(1)),
            (Action::FreeRequested, Some(2)),
            (Action::FreeCompleted, Some(2)),
        ];
        assert_eq!(entries, expected);
        assert_eq!((snapshot.device_traces.len(), contexts.traces.len()), (2, 2));

        // They live as long as somebody has them.
        allocator.history().record(&HistoryOptions::default());
        assert_eq!(ended.load(Ordering::Relaxed), 0);
        drop(contexts);
        assert_eq!(ended.load(Ordering::Relaxed), 3);
        allocator.free(second).unwrap();
    });
}

#[test]
fn a_snapshot_of_one_pool_or_without_traces_has_only_contexts_of_those() {
    on_each(&two(), |rig| {
        let allocator = rig.allocator(Settings::default());
        let (made, ended) = (Arc::<AtomicUsize>::default(), Arc::<AtomicUsize>::default());
        allocator.history().record(&recording(&made, &ended));
        let ptr = allocator.malloc(3 * MIB, rig.stream()).unwrap();
        let (snapshot, contexts) = allocator.history().snapshot_with_contexts(None, false);
        assert_eq!((snapshot.device_traces, contexts.traces.len()), (vec![], 0));
        assert_eq!(contexts.segments.len(), 1);
        let nobodys = alloc_core::types::PoolId::fresh();
        let (Snapshot { segments, .. }, contexts) =
            allocator.history().snapshot_with_contexts(Some(nobodys), true);
        assert_eq!((segments.len(), contexts.segments.len()), (0, 0));
        assert!(!contexts.traces[0].is_empty(), "the history is that of all pools");
        allocator.free(ptr).unwrap();
    });
}

#[test]
fn a_tracker_of_one_device_sees_no_other() {
    on_each(&two(), |rig| {
        let allocator = rig.allocator(Settings::default());
        let seen = Arc::new(Mutex::new(Vec::new()));
        for device in [DEVICE, DeviceIndex(1)] {
            let seen = Arc::clone(&seen);
            let note = move |entry: &alloc_core::snapshot::TraceEntry, _: Option<&Context>| {
                seen.lock().unwrap().push((device, entry.action));
            };
            allocator.hooks().on_trace_of(device, note).unwrap();
        }
        let ptr = allocator.malloc(512, rig.stream()).unwrap();
        assert_eq!(*seen.lock().unwrap(), [(DEVICE, Action::SegmentAlloc), (DEVICE, Action::Alloc)]);
        allocator.free(ptr).unwrap();
        assert!(allocator.hooks().on_trace_of(DeviceIndex(2), |_, _| ()).is_err());
    });
}

#[test]
fn growable_sizes_are_bytes_with_memory_by_stream_and_tier() {
    on_each(&two(), |rig| {
        let growable = Settings { expandable_segments: true, ..Settings::default() };
        let allocator = rig.allocator(growable);
        assert_eq!(allocator.statistics().growable_sizes(DEVICE).unwrap(), []);
        let stream = rig.stream();
        let small = allocator.malloc(512, stream).unwrap();
        let large = allocator.malloc(30 * MIB, stream).unwrap();
        let size = |is_small, bytes| GrowableSize { stream: stream.raw, is_small, bytes };
        assert_eq!(
            allocator.statistics().growable_sizes(DEVICE).unwrap(),
            [size(false, 40 * MIB), size(true, 2 * MIB)]
        );
        allocator.free(large).unwrap();
        assert_eq!(
            allocator.statistics().growable_sizes(DEVICE).unwrap()[0],
            size(false, 40 * MIB),
            "cached"
        );
        allocator.empty_cache().unwrap();
        assert_eq!(allocator.statistics().growable_sizes(DEVICE).unwrap(), [size(true, 2 * MIB)]);
        assert_eq!(allocator.statistics().growable_sizes(DeviceIndex(1)).unwrap(), []);
        let fixed = rig.allocator(Settings::default());
        let ptr = fixed.malloc(512, stream).unwrap();
        assert_eq!(fixed.statistics().growable_sizes(DEVICE).unwrap(), [], "fixed segments do not grow");
        fixed.free(ptr).unwrap();
        allocator.free(small).unwrap();
    });
}
