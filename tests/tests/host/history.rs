//! The history of pinned host memory, and what it shows of contexts.

use Action::{Alloc, FreeCompleted, FreeRequested, SegmentAlloc, SegmentFree};
use alloc_core::backend::PointerKind;
use alloc_core::config::Settings;
use alloc_core::history::{HistoryOptions, RecordContext};
use alloc_core::host::HostAllocator;
use alloc_core::snapshot::{Action, BlockState, Snapshot, Stack};
use alloc_core::types::{DevicePtr, KIB, MIB, PoolId};
use granule_snapshot::pickle;
use granule_tests::pinned::{host, machine, working};
use granule_tests::rig::on_each;
use granule_tests::sites::{at, innermost, recorder};

fn story(snapshot: &Snapshot) -> Vec<(Action, u64)> {
    snapshot.host_traces.iter().map(|entry| (entry.action, entry.size)).collect()
}

fn look(host: &HostAllocator) -> Snapshot {
    let mut snapshot = Snapshot::default();
    host.add_to_snapshot(&mut snapshot, true);
    snapshot
}

#[test]
fn n09_the_history_has_its_actions_in_order() {
    on_each(&working(), |rig| {
        let (devices, host) = (rig.allocator(Settings::default()), host(rig, &Settings::default()));
        let early = host.allocate(KIB).unwrap();
        assert!(!host.is_history_enabled());
        assert_eq!(look(&host), Snapshot::default(), "it is off by default");
        host.record_history(&HistoryOptions::newest(100).deterministic()).unwrap();
        let device = devices.malloc(MIB, rig.stream()).unwrap();
        let stream = rig.new_stream();
        let block = host.allocate(1000).unwrap();
        let gate = rig.hold(stream);
        assert!(host.record_event(block.ptr, block.id, stream).unwrap());
        host.free(block.id).unwrap();
        let waiting = look(&host);
        gate.open();
        rig.backend.synchronize_stream(stream).unwrap();
        let again = host.allocate(600).unwrap();
        assert_eq!(again.ptr, block.ptr);
        host.free(again.id).unwrap();
        host.empty_cache().unwrap();
        let mut seen = devices.snapshot(true);
        host.add_to_snapshot(&mut seen, true);
        assert_eq!(
            story(&seen),
            [
                (SegmentAlloc, 1024),
                (Alloc, 1024),
                (FreeRequested, 1024),
                (FreeCompleted, 1024),
                (Alloc, 1024),
                (FreeRequested, 1024),
                (FreeCompleted, 1024),
                (SegmentFree, 1024),
            ],
            "{}",
            rig.name
        );
        for (n, entry) in seen.host_traces.iter().enumerate() {
            assert_eq!((entry.addr, entry.stream, entry.time_us), (block.ptr.0, 0, n as i64));
            let labels = &entry.labels;
            let (compiled, metadata) = (labels.compile_context.as_deref(), labels.user_metadata.as_deref());
            assert_eq!((compiled, metadata, labels.pool_id), (Some(""), Some(""), Some(PoolId::DEFAULT)));
        }
        // The devices' history is another matter.
        assert!(
            !seen.device_traces.is_empty() && seen.device_traces.iter().all(Vec::is_empty),
            "{}",
            rig.name
        );
        let states = |snapshot: &Snapshot| -> Vec<_> {
            let segments = snapshot.host_segments.iter();
            let mut states: Vec<_> = segments
                .map(|segment| {
                    let [block] = &segment.blocks[..] else { panic!("a segment is one block") };
                    assert_eq!((segment.device, segment.stream, segment.is_expandable), (-1, 0, false));
                    assert_eq!((&*segment.segment_type, segment.address), ("small", block.address));
                    assert_eq!((segment.total_size, block.size), (1024, 1024));
                    (block.state, segment.allocated_size, segment.active_size, segment.requested_size)
                })
                .collect();
            states.sort_by_key(|(_, allocated, ..)| *allocated);
            states
        };
        let live = (BlockState::ActiveAllocated, 1024, 1024, 1024);
        assert_eq!(states(&waiting), [(BlockState::ActivePendingFree, 0, 1024, 1000), live]);
        assert_eq!(states(&seen), [live]);
        let mut file = Vec::new();
        pickle::write(&seen, &mut file, pickle::Protocol::V4).unwrap();
        let read = pickle::read(&file[..]).unwrap();
        assert_eq!((&read.host_traces, states(&read)), (&seen.host_traces, states(&seen)));
        host.free(early.id).unwrap();
        devices.free(device).unwrap();
    });
}

#[test]
fn n09_the_history_keeps_to_its_limit_and_outlives_being_switched_off() {
    on_each(&machine(), |rig| {
        let host = host(rig, &Settings::default());
        let record = |max_entries, clear| {
            let options = HistoryOptions { clear, ..HistoryOptions::newest(max_entries).deterministic() };
            host.record_history(&options).unwrap();
        };
        record(3, false);
        for bytes in 1..=4 {
            host.free(host.allocate(bytes * KIB).unwrap().id).unwrap();
        }
        // The fourth request took the third one's block.
        let newest = [(Alloc, 4 * KIB), (FreeRequested, 4 * KIB), (FreeCompleted, 4 * KIB)];
        assert_eq!(story(&look(&host)), newest);
        // A smaller limit, a larger one, and none: the newest entries stay, in order.
        record(2, false);
        assert_eq!(story(&look(&host)), newest);
        record(3, false);
        host.allocate(4 * KIB).unwrap();
        assert_eq!(story(&look(&host)), [newest[1], newest[2], (Alloc, 4 * KIB)]);
        record(0, false);
        host.allocate(64 * KIB).unwrap();
        let off = look(&host);
        assert_eq!((story(&off).len(), off.host_segments.len()), (3, 0), "off, it is kept but not shown");
        record(0, true);
        assert_eq!(look(&host), Snapshot::default());
        let skipping =
            HistoryOptions { skip: vec![FreeRequested, SegmentAlloc], ..HistoryOptions::newest(9) };
        host.record_history(&skipping).unwrap();
        host.free(host.allocate(MIB).unwrap().id).unwrap();
        assert_eq!(story(&look(&host)), [(Alloc, MIB), (FreeCompleted, MIB)]);
    });
}

#[test]
fn n09_memory_that_the_program_pins_itself_is_recorded_too() {
    on_each(&machine(), |rig| {
        let host = host(rig, &Settings::default());
        let mut memory = vec![0u8; 3 * 4096];
        let at = DevicePtr(memory.as_mut_ptr().expose_provenance() as u64);
        host.record_history(&HistoryOptions::newest(10).deterministic()).unwrap();
        // SAFETY: the vector lives longer.
        unsafe { host.register(at, 3 * 4096) }.unwrap();
        assert_eq!(rig.backend.pointer_info(at).unwrap().kind, PointerKind::Host);
        // SAFETY: registered above, and nothing uses it.
        unsafe { host.unregister(at) }.unwrap();
        assert_eq!(rig.backend.pointer_info(at).unwrap().kind, PointerKind::Unmanaged);
        let actions = [SegmentAlloc, Alloc, FreeRequested, FreeCompleted, SegmentFree];
        assert_eq!(story(&look(&host)), actions.map(|action| (action, 3 * 4096)));
        // The same by other means.
        host.note_registered(at, 4096);
        let seen = look(&host);
        let shown: Vec<_> =
            seen.host_segments.iter().map(|s| (s.address, s.total_size, s.blocks[0].state)).collect();
        assert_eq!(shown, [(at.0, 4096, BlockState::ActiveAllocated)]);
        host.note_unregistered(at);
        host.note_unregistered(at);
        let seen = look(&host);
        assert_eq!(
            (story(&seen)[5..].to_vec(), seen.host_segments.len()),
            (actions.map(|action| (action, 4096)).to_vec(), 0)
        );
        // SAFETY: it is refused, for it is not registered any more.
        unsafe { host.unregister(at) }.unwrap_err();
        assert_eq!(host.stats().allocations.allocated, 0, "it is none of the cache's");
    });
}

/// A free shows where it was made at the highest level, else where its block was allocated; blocks always the latter.
#[test]
fn contexts_are_shown_as_the_level_says() {
    on_each(&machine(), |rig| {
        let places = |contexts: RecordContext| {
            let host = host(rig, &Settings::default());
            let recorder = Some(recorder());
            host.record_history(&HistoryOptions { contexts, recorder, ..HistoryOptions::newest(100) })
                .unwrap();
            let take = |bytes| at("taken", || host.allocate(bytes)).unwrap();
            let (block, _live) = (take(KIB), take(2 * KIB));
            at("given", || host.free(block.id)).unwrap();
            at("emptied", || host.empty_cache()).unwrap();
            let seen = look(&host);
            let name = |frames: &Option<Stack>| innermost(frames.as_ref()).to_owned();
            let entries: Vec<_> = seen.host_traces.iter().map(|entry| name(&entry.frames)).collect();
            (entries.join(" "), name(&seen.host_segments[0].blocks[0].frames))
        };
        let taken = |entries: &str| (entries.to_owned(), "taken".to_owned());
        let all = "taken taken taken taken given given emptied";
        assert_eq!(places(RecordContext::All), taken(all));
        assert_eq!(places(RecordContext::Alloc), taken(&["taken"; 7].join(" ")));
        assert_eq!(places(RecordContext::State), taken(&[""; 7].join(" ")));
        assert_eq!(places(RecordContext::Never), ([""; 7].join(" "), String::new()));
    });
}
