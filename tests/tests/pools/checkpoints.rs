//! Checkpoints of pools: the live blocks and the layout of a time, brought back.

use alloc_core::config::Settings;
use alloc_core::pool::{Filter, MemoryPool, PoolOptions};
use alloc_core::snapshot::BlockState;
use alloc_core::types::{DevicePtr, KIB, MIB, PoolId, Stream};
use alloc_core::{AllocError, DeviceBuffer};
use granule_tests::Allocator;
use granule_tests::rig::{DEVICE, Rig, on_each};
use granule_tests::setup::{growable, of};
use std::collections::BTreeSet;

/// A pool in which all requests are served while the scene stands.
struct Scene<'r> {
    rig: &'r Rig,
    allocator: Allocator,
    pool: MemoryPool,
    home: Stream,
}

impl<'r> Scene<'r> {
    fn new(rig: &'r Rig, settings: Settings) -> Self {
        let allocator = rig.allocator(settings);
        let pool = MemoryPool::new(&allocator, DEVICE, PoolOptions::default()).unwrap();
        allocator.pools().begin(DEVICE, pool.id(), Filter::Always).unwrap();
        Self { rig, allocator, pool, home: rig.stream() }
    }

    fn take(&self, bytes: u64) -> DevicePtr {
        self.allocator.malloc(bytes, self.home).unwrap()
    }

    fn give(&self, ptrs: impl IntoIterator<Item = DevicePtr>) {
        ptrs.into_iter().for_each(|ptr| self.allocator.free(ptr).unwrap());
    }

    /// Every block of the pool: address, size, what it is; the requested size of those that are live.
    fn layout(&self) -> Vec<(u64, u64, BlockState, Option<u64>)> {
        let segments = self.pool.snapshot(false).segments;
        let blocks = segments.into_iter().flat_map(|segment| segment.blocks);
        let live = |state| state == BlockState::ActiveAllocated;
        blocks.map(|b| (b.address, b.size, b.state, live(b.state).then_some(b.requested_size))).collect()
    }

    fn has_live(&self, expected: impl IntoIterator<Item = DevicePtr>) -> bool {
        let expected: BTreeSet<_> = expected.into_iter().collect();
        self.allocator.pools().has_live(DEVICE, self.pool.id(), &expected).unwrap()
    }

    /// Ends the scene with these blocks live.
    fn end(self, live: impl IntoIterator<Item = DevicePtr>) {
        self.give(live);
        let Self { rig, allocator, pool, .. } = self;
        allocator.pools().end(DEVICE, pool.id()).unwrap();
        allocator.pools().release(DEVICE, pool.id()).unwrap();
        drop(pool);
        rig.nothing_is_left(&allocator);
    }
}

/// What is live when the checkpoint is made, out of eight blocks of a size.
const PATTERNS: [(&str, &[usize]); 6] = [
    ("none", &[]),
    ("the first", &[0]),
    ("one in the middle", &[4]),
    ("neighbours", &[2, 3, 4]),
    ("every other", &[0, 2, 4, 6]),
    ("all", &[0, 1, 2, 3, 4, 5, 6, 7]),
];

#[test]
fn k01_a_checkpoint_brings_live_set_and_layout_back() {
    on_each(&of(1024), |rig| {
        for settings in [Settings::default(), growable()] {
            for bytes in [700, 200 * KIB, 3 * MIB + 1, 12 * MIB] {
                for (what, live) in PATTERNS {
                    let scene = Scene::new(rig, settings.clone());
                    let blocks = [0; 8].map(|_| scene.take(bytes));
                    let kept: Vec<_> = live.iter().map(|n| blocks[*n]).collect();
                    scene.give(blocks.into_iter().filter(|ptr| !kept.contains(ptr)));
                    let (saved, before) = (
                        scene.allocator.pools().checkpoint(DEVICE, scene.pool.id()).unwrap(),
                        scene.layout(),
                    );
                    assert_eq!(saved.live(), kept.iter().copied().collect());
                    let stats = scene.allocator.stats(DEVICE).unwrap();
                    // Extra frees, and blocks of other sizes where the freed ones were.
                    scene.give(kept.iter().copied().step_by(2));
                    let after = [bytes / 3 + 1, bytes, 512].map(|bytes| scene.take(bytes));
                    scene.allocator.free(after[1]).unwrap();
                    let delta = scene.allocator.pools().restore(&saved, None).unwrap();
                    assert_eq!(delta.allocated, kept, "{what}, {bytes} bytes");
                    let mut freed: Vec<_> = kept.iter().copied().skip(1).step_by(2).collect();
                    freed.extend([after[0], after[2]]);
                    freed.sort_unstable();
                    assert_eq!(delta.freed, freed, "{what}, {bytes} bytes");
                    let now = scene.layout();
                    let old: Vec<_> = now.iter().filter(|block| before.contains(block)).cloned().collect();
                    assert_eq!(old, before, "{what}, {bytes} bytes: every block is as it was");
                    let more = now.iter().filter(|block| !before.contains(block));
                    assert!(
                        more.into_iter().all(|b| b.2 == BlockState::Inactive),
                        "and what came since is free"
                    );
                    let restored = scene.allocator.stats(DEVICE).unwrap();
                    assert_eq!(restored.allocated_bytes.all.current, stats.allocated_bytes.all.current);
                    assert_eq!(restored.requested_bytes.all.current, stats.requested_bytes.all.current);
                    assert_eq!(restored.active.all.current, stats.active.all.current);
                    assert!(scene.has_live(kept.iter().copied()));
                    scene.end(kept);
                }
            }
        }
    });
}

#[test]
fn k02_a_block_that_was_freed_since_is_live_again() {
    on_each(&of(200), |rig| {
        let scene = Scene::new(rig, Settings::default());
        let (kept, dead) = (scene.take(3 * MIB), scene.take(4 * MIB));
        let saved = scene.allocator.pools().checkpoint(DEVICE, scene.pool.id()).unwrap();
        scene.allocator.free(dead).unwrap();
        assert!(matches!(scene.allocator.free(dead), Err(AllocError::InvalidPointer { .. })));
        let delta = scene.allocator.pools().restore(&saved, None).unwrap();
        assert_eq!((delta.freed, delta.allocated), (vec![kept], vec![kept, dead]));
        assert_eq!(scene.allocator.block_size(dead), Some(4 * MIB));
        scene.allocator.free(dead).expect("its new owner frees it");
        // As often as one likes.
        let delta = scene.allocator.pools().restore(&saved, None).unwrap();
        assert_eq!(delta.allocated, [kept, dead]);
        scene.end([kept, dead]);
    });
}

#[test]
fn k03_a_live_block_that_was_not_passed_as_stale_is_an_error() {
    on_each(&of(200), |rig| {
        let scene = Scene::new(rig, Settings::default());
        let kept = scene.take(3 * MIB);
        let saved = scene.allocator.pools().checkpoint(DEVICE, scene.pool.id()).unwrap();
        let (one, other) = (scene.take(3 * MIB), scene.take(MIB));
        let before = scene.layout();
        for stale in [vec![], vec![kept, one], vec![one, other]] {
            let stale: BTreeSet<_> = stale.into_iter().collect();
            let refused = scene.allocator.pools().restore(&saved, Some(&stale)).unwrap_err();
            let text = refused.to_string();
            assert!(text.contains("Any stale tensors which are being manually freed"), "{text}");
            assert_eq!(scene.layout(), before, "nothing has changed");
        }
        let stale = BTreeSet::from([kept, one, other]);
        let delta = scene.allocator.pools().restore(&saved, Some(&stale)).unwrap();
        assert_eq!(delta.freed.into_iter().collect::<BTreeSet<_>>(), stale);
        assert_eq!(delta.allocated, [kept]);
        assert!(
            matches!(scene.allocator.free(one), Err(AllocError::InvalidPointer { .. })),
            "not freed twice"
        );
        scene.end([kept]);
    });
}

#[test]
fn k04_a_segment_that_grew_since_is_restored_with_more_free_memory() {
    on_each(&of(200), |rig| {
        let scene = Scene::new(rig, growable());
        let kept = scene.take(2 * MIB);
        let sizes = |scene: &Scene<'_>| scene.layout().into_iter().map(|b| (b.1, b.2)).collect::<Vec<_>>();
        use BlockState::{ActiveAllocated, Inactive};
        assert_eq!(sizes(&scene), [(2 * MIB, ActiveAllocated), (18 * MIB, Inactive)]);
        let saved = scene.allocator.pools().checkpoint(DEVICE, scene.pool.id()).unwrap();
        let large = scene.take(30 * MIB);
        assert_eq!(large, kept.add(2 * MIB), "in the same segment");
        assert_eq!(rig.used(), 40 * MIB);
        let delta = scene.allocator.pools().restore(&saved, None).unwrap();
        assert_eq!((delta.freed, delta.allocated), (vec![kept, large], vec![kept]));
        assert_eq!(sizes(&scene), [(2 * MIB, ActiveAllocated), (38 * MIB, Inactive)]);
        assert_eq!(scene.take(38 * MIB), large, "all of it is usable");
        assert_eq!(rig.used(), 40 * MIB);
        scene.end([kept, large]);
    });
}

#[test]
fn k05_the_check_of_live_blocks_holds_for_exactly_the_live_set() {
    on_each(&of(200), |rig| {
        let scene = Scene::new(rig, Settings::default());
        assert!(scene.has_live([]));
        let (one, two, three) = (scene.take(KIB), scene.take(3 * MIB), scene.take(5 * MIB));
        assert!(scene.has_live([one, two, three]));
        assert!(!scene.has_live([one, two]), "one too few");
        assert!(!scene.has_live([one, two, three, three.add(512)]), "one too many");
        assert!(!scene.has_live([one, two, three.add(512)]), "another one");
        scene.allocator.free(two).unwrap();
        assert!(!scene.has_live([one, two, three]) && scene.has_live([one, three]));
        // Other pools do not count.
        scene.allocator.pools().end(DEVICE, scene.pool.id()).unwrap();
        let outside = scene.take(KIB);
        assert!(scene.has_live([one, three]) && !scene.has_live([one, three, outside]));
        scene.allocator.pools().begin(DEVICE, scene.pool.id(), Filter::Always).unwrap();
        let unknown = PoolId(0, u64::MAX);
        let refused = scene.allocator.pools().has_live(DEVICE, unknown, &BTreeSet::new()).unwrap_err();
        assert!(refused.to_string().contains("Could not find pool of id"), "{refused}");
        scene.allocator.free(outside).unwrap();
        scene.allocator.pools().release(DEVICE, scene.pool.id()).unwrap();
        scene.end([one, three]);
    });
}

/// A block that waits for another stream is neither live nor free: it fits no checkpoint.
#[test]
fn k05_pending_blocks_do_not_count_and_cannot_be_saved() {
    on_each(&of(200).clock(backend_openreg::Clock::Workers), |rig| {
        let scene = Scene::new(rig, Settings::default());
        let empty = scene.allocator.pools().checkpoint(DEVICE, scene.pool.id()).unwrap();
        let side = rig.new_stream();
        let gate = rig.hold(side);
        let ptr = scene.take(3 * MIB);
        scene.allocator.record_stream(ptr, side).unwrap();
        let refused = scene.allocator.pools().restore(&empty, None).unwrap_err();
        assert!(refused.to_string().contains("Events should have synchronized when setting"), "{refused}");
        assert!(scene.has_live([ptr]), "nothing has changed");
        scene.allocator.free(ptr).unwrap();
        assert!(scene.has_live([]));
        let refused = scene.allocator.pools().checkpoint(DEVICE, scene.pool.id()).unwrap_err();
        assert!(
            refused.to_string().contains("Events should have synchronized when checkpointing"),
            "{refused}"
        );
        gate.open();
        rig.backend.synchronize_stream(side).unwrap();
        let saved =
            scene.allocator.pools().checkpoint(DEVICE, scene.pool.id()).expect("the events have come");
        assert_eq!(saved.live(), BTreeSet::new());
        scene.end([]);
    });
}

/// A restore frees every live block; one that a buffer has stays, and so does everything else.
#[test]
fn a_checkpoint_is_not_restored_over_what_a_buffer_has() {
    on_each(&of(200), |rig| {
        let scene = Scene::new(rig, Settings::default());
        let saved = scene.allocator.pools().checkpoint(DEVICE, scene.pool.id()).unwrap();
        let buffer = DeviceBuffer::<u8>::new(&scene.allocator, 1024, scene.home).unwrap();
        let refused = scene.allocator.pools().restore(&saved, None).unwrap_err();
        assert!(refused.to_string().contains("drop the buffer, or take its address out"), "{refused}");
        assert!(scene.has_live([buffer.ptr()]), "nothing has changed");
        let raw = buffer.into_raw();
        assert_eq!(scene.allocator.pools().restore(&saved, None).unwrap().freed, [raw]);
        scene.end([]);
    });
}

#[test]
fn checkpoints_of_pools_that_are_gone_are_refused() {
    on_each(&of(200), |rig| {
        let scene = Scene::new(rig, Settings::default());
        let (allocator, id) = (scene.allocator.clone(), scene.pool.id());
        let ptr = scene.take(3 * MIB);
        let saved = allocator.pools().checkpoint(DEVICE, id).unwrap();
        assert_eq!((saved.pool(), saved.device()), (id, DEVICE));
        allocator.pools().end(DEVICE, id).unwrap();
        allocator.pools().release(DEVICE, id).unwrap();
        drop(scene.pool);
        assert!(matches!(allocator.pools().restore(&saved, None), Err(AllocError::DeadPool { .. })));
        allocator.free(ptr).unwrap();
        allocator.empty_cache().unwrap();
        assert!(matches!(allocator.pools().restore(&saved, None), Err(AllocError::UnknownPool { .. })));
        assert!(matches!(allocator.pools().checkpoint(DEVICE, id), Err(AllocError::UnknownPool { .. })));
        // A later pool of the same id is another one.
        allocator.pools().create(DEVICE, id, None).unwrap();
        allocator.pools().begin(DEVICE, id, Filter::Always).unwrap();
        assert!(matches!(allocator.pools().restore(&saved, None), Err(AllocError::UnknownPool { .. })));
        allocator.pools().end(DEVICE, id).unwrap();
        for _ in 0..2 {
            allocator.pools().release(DEVICE, id).unwrap();
        }
        rig.nothing_is_left(&allocator);
    });
}

/// What was given back to the device cannot be brought back; the refusal changes nothing.
#[test]
fn a_checkpoint_whose_memory_is_gone_is_refused() {
    on_each(&of(200), |rig| {
        for settings in [Settings::default(), growable()] {
            let allocator = rig.allocator(settings);
            let home = rig.stream();
            // The default pool: its memory may go while it is in use.
            let ptr = allocator.malloc(30 * MIB, home).unwrap();
            let saved = allocator.pools().checkpoint(DEVICE, PoolId::DEFAULT).unwrap();
            allocator.free(ptr).unwrap();
            allocator.empty_cache().unwrap();
            let refused = allocator.pools().restore(&saved, None).unwrap_err();
            assert!(matches!(refused, AllocError::Checkpoint { .. }), "{refused}");
            let live = allocator.malloc(KIB, home).unwrap();
            assert!(allocator.pools().restore(&saved, None).is_err());
            assert_eq!(allocator.block_size(live), Some(KIB), "nothing has changed");
            allocator.free(live).unwrap();
            rig.nothing_is_left(&allocator);
        }
    });
}
