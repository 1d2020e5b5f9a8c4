//! How memory is handed out, A01 to A12 and A15 of the checklist: on the simulated device, and on HIP seen as CUDA.

use alloc_core::AllocError;
use alloc_core::backend::CopyKind;
use alloc_core::config::Settings;
use alloc_core::pool::Filter;
use alloc_core::types::{DeviceIndex, DevicePtr, GIB, KIB, MIB, PoolId, Stream};
use backend_openreg::{Call, Clock, Effect, Fault, FaultPlan, MemoryMode, OpenRegConfig};
use granule_tests::bytes::first_other;
use granule_tests::rig::{DEVICE, Rig, on_each};
use granule_tests::setup::{both, free_all, of_bytes};
use std::collections::BTreeMap;
use std::sync::{Barrier, Mutex};
use std::time::Duration;

/// Fills device memory and waits.
fn fill(rig: &Rig, stream: Stream, ptr: DevicePtr, bytes: u64, value: u8) {
    // SAFETY: rule 2: a live block of the test's, waited for below.
    unsafe { rig.backend.memset_async(ptr, value, bytes, stream) }.unwrap();
    rig.backend.synchronize_stream(stream).unwrap();
}

fn contents(rig: &Rig, ptr: DevicePtr, bytes: u64) -> Vec<u8> {
    let mut host = vec![0; usize::try_from(bytes).unwrap()];
    let at = DevicePtr(host.as_mut_ptr() as u64);
    // SAFETY: rule 2: a live block, and a buffer of its length.
    unsafe { rig.backend.copy(at, ptr, bytes, CopyKind::DeviceToHost) }.unwrap();
    host
}

#[test]
fn a01_requests_on_any_stream_move_the_statistics_and_follow_the_switch() {
    on_each(&of_bytes(GIB), |rig| {
        let allocator = rig.allocator(Settings::default());
        let count = || allocator.stats(DEVICE).unwrap().allocation.all;
        for stream in [rig.stream(), rig.new_stream()] {
            let before = count();
            let ptr = allocator.malloc(1000, stream).unwrap();
            assert_eq!((count().current, count().allocated), (1, before.allocated + 1));
            free_all(&allocator, [ptr]);
            assert_eq!((count().current, count().freed), (0, before.freed + 1));
        }
        assert_eq!(allocator.malloc(0, rig.stream()).unwrap(), DevicePtr::NULL);
        allocator.free(DevicePtr::NULL).unwrap();
        allocator.enable(false);
        let (before, used) = (count(), rig.used());
        let ptr = allocator.malloc(1000, rig.stream()).unwrap();
        assert!(rig.used() > used, "straight from the driver");
        free_all(&allocator, [ptr]);
        assert_eq!((count(), rig.used()), (before, used), "and neither is counted");
        allocator.enable(true);
        rig.nothing_is_left(&allocator);
    });
}

#[test]
fn a02_a_size_that_cannot_be_is_refused_and_changes_nothing() {
    on_each(&of_bytes(GIB), |rig| {
        let allocator = rig.allocator(Settings::default());
        let before = allocator.stats(DEVICE).unwrap();
        for size in [-1_i64, -5, i64::MIN, 1 << 60] {
            let error = allocator.malloc(size.cast_unsigned(), rig.stream()).unwrap_err();
            assert!(matches!(error, AllocError::MoreThanAnExabyte { .. }), "{error}");
            assert!(error.to_string().ends_with("Tried to allocate more than 1EB memory."), "{error}");
        }
        assert_eq!(allocator.stats(DEVICE).unwrap(), before);
        assert_eq!(rig.device.calls().get(Call::Malloc), 0);
    });
}

#[test]
fn a03_mixed_sizes_never_overlap_and_keep_their_contents() {
    let mapped = of_bytes(192 * MIB).memory(MemoryMode::Mapped);
    for settings in both() {
        on_each(&mapped, |rig| {
            let allocator = rig.allocator(settings.clone());
            let streams = [rig.stream(), rig.new_stream()];
            let mut live: BTreeMap<DevicePtr, (u64, u8)> = BTreeMap::new();
            let mut number = 0x9e37_79b9_u64;
            for step in 0..400_u32 {
                number ^= number << 13;
                number ^= number >> 7;
                number ^= number << 17;
                if live.len() > 12 || (number.is_multiple_of(3) && !live.is_empty()) {
                    let nth = usize::try_from(number / 3).unwrap() % live.len();
                    let (ptr, (bytes, value)) = live.iter().nth(nth).map(|(p, b)| (*p, *b)).unwrap();
                    let seen = contents(rig, ptr, bytes);
                    assert!(first_other(&seen, value).is_none(), "step {step}: what was written is there");
                    live.remove(&ptr);
                    free_all(&allocator, [ptr]);
                    continue;
                }
                // Small ones and large ones by turns.
                let bytes = 1 + number % if step % 2 == 0 { 4 * KIB } else { 6 * MIB };
                let stream = streams[(number >> 20) as usize % 2];
                let ptr = allocator.malloc(bytes, stream).unwrap();
                assert!(ptr.0.is_multiple_of(512));
                let below = live.range(..=ptr).next_back().map_or(0, |(at, (bytes, _))| at.0 + bytes);
                let above = live.range(ptr..).next().map_or(u64::MAX, |(at, _)| at.0);
                assert!(below <= ptr.0 && ptr.0 + bytes <= above, "step {step}: nothing overlaps");
                let value = u8::try_from(step % 251).unwrap();
                fill(rig, stream, ptr, bytes, value);
                live.insert(ptr, (bytes, value));
            }
            free_all(&allocator, live.into_keys());
            rig.nothing_is_left(&allocator);
        });
    }
}

#[test]
fn a04_memory_of_a_side_stream_serves_that_stream_only() {
    on_each(&of_bytes(GIB), |rig| {
        let allocator = rig.allocator(Settings::default());
        let side = rig.new_stream();
        let ptr = allocator.malloc(40 * MIB, side).unwrap();
        free_all(&allocator, [ptr]);
        let home = allocator.malloc(40 * MIB, rig.stream()).unwrap();
        assert_ne!(home, ptr);
        assert_eq!(allocator.malloc(40 * MIB, side).unwrap(), ptr);
        free_all(&allocator, [home, ptr]);
        rig.nothing_is_left(&allocator);
    });
}

#[test]
fn a05_a_block_used_elsewhere_is_reused_after_that_work_and_not_before() {
    on_each(&of_bytes(GIB).clock(Clock::Workers), |rig| {
        let allocator = rig.allocator(Settings::default());
        let side = rig.new_stream();
        let ptr = allocator.malloc(40 * MIB, rig.stream()).unwrap();
        let gate = rig.hold(side);
        rig.use_memory(side, ptr, 40 * MIB);
        allocator.record_stream(ptr, side).unwrap();
        free_all(&allocator, [ptr]);
        let seen = allocator.stats(DEVICE).unwrap();
        assert_eq!((seen.allocated_bytes.all.current, seen.active_bytes.all.current), (0, 40 << 20));
        let other = allocator.malloc(40 * MIB, rig.stream()).unwrap();
        assert_ne!(other, ptr, "the side stream is held up");
        gate.open();
        rig.backend.synchronize_stream(side).unwrap();
        assert_eq!(allocator.malloc(40 * MIB, rig.stream()).unwrap(), ptr);
        free_all(&allocator, [other, ptr]);
        rig.nothing_is_left(&allocator);
    });
}

#[test]
fn a06_the_blocks_own_stream_delays_nothing() {
    on_each(&of_bytes(GIB).clock(Clock::Virtual { lag: 1000 }), |rig| {
        let allocator = rig.allocator(Settings::default());
        for stream in [rig.stream(), rig.new_stream()] {
            let ptr = allocator.malloc(40 * MIB, stream).unwrap();
            rig.use_memory(stream, ptr, 40 * MIB);
            allocator.record_stream(ptr, stream).unwrap();
            free_all(&allocator, [ptr]);
            assert_eq!(allocator.malloc(40 * MIB, stream).unwrap(), ptr);
            free_all(&allocator, [ptr]);
        }
        assert_eq!(rig.device.calls().get(Call::RecordEvent), 0);
    });
}

#[test]
fn a07_a_use_of_a_part_protects_the_whole_block() {
    on_each(&of_bytes(GIB).clock(Clock::Virtual { lag: 1000 }), |rig| {
        let allocator = rig.allocator(Settings::default());
        let side = rig.new_stream();
        // Parts of it: the first byte after its address, a multiple of 512, and the last byte.
        for offset in [1, 20 * MIB, 40 * MIB - 1] {
            let ptr = allocator.malloc(40 * MIB, rig.stream()).unwrap();
            rig.use_memory(side, ptr, 40 * MIB);
            allocator.record_stream(ptr.add(offset), side).unwrap();
            free_all(&allocator, [ptr]);
            let other = allocator.malloc(40 * MIB, rig.stream()).unwrap();
            assert_ne!(other, ptr, "offset {offset}");
            free_all(&allocator, [other]);
            allocator.empty_cache().unwrap();
        }
        let ptr = allocator.malloc(40 * MIB, rig.stream()).unwrap();
        for wrong in [ptr.add(40 * MIB), DevicePtr(ptr.0 - 1)] {
            let error = allocator.record_stream(wrong, side).unwrap_err();
            assert!(matches!(error, AllocError::InvalidPointer { .. }), "{error}");
        }
        let inside = allocator.free(ptr.add(512)).unwrap_err();
        assert!(matches!(inside, AllocError::InvalidPointer { .. }), "a part cannot be freed: {inside}");
        free_all(&allocator, [ptr]);
        rig.nothing_is_left(&allocator);
    });
}

#[test]
fn a08_emptying_waits_on_the_streams_device_and_leaves_the_current_one() {
    let config = OpenRegConfig::default().devices(3).capacity(GIB).clock(Clock::Virtual { lag: 1000 });
    on_each(&config, |rig| {
        let allocator = rig.allocator(Settings::default());
        let user = rig.backend.create_stream(DeviceIndex(1), 0).unwrap();
        let ptr = allocator.malloc(40 * MIB, rig.stream()).unwrap();
        rig.backend.peers().unwrap().enable_access(DeviceIndex(1), DEVICE).unwrap();
        rig.use_memory(user, ptr, 40 * MIB);
        allocator.record_stream(ptr, user).unwrap();
        for device in [DeviceIndex(2), DEVICE] {
            rig.backend.set_device(device).unwrap();
            if device != DEVICE {
                free_all(&allocator, [ptr]);
            }
            allocator.empty_cache().unwrap();
            assert_eq!(rig.backend.current_device().unwrap(), device);
        }
        assert_eq!((rig.used(), allocator.stats(DEVICE).unwrap().active_bytes.all.current), (0, 0));
        rig.nothing_is_left(&allocator);
    });
}

#[test]
fn a09_threads_at_once_get_what_they_would_get_in_turn() {
    // Blocks that fill a segment, and blocks of which several share one: 2 threads on each of 2 streams.
    for (bytes, fixed) in [(20 * MIB, 4), (3 * MIB, 2), (512 * KIB, 2)] {
        for (settings, segments) in both().into_iter().zip([fixed, 2]) {
            on_each(&of_bytes(8 * GIB).clock(Clock::Workers), |rig| {
                let slow = Fault::from(1, Effect::Delay(Duration::from_millis(2)));
                let slow = FaultPlan::none().with(slow.of(Call::Malloc)).with(slow.of(Call::CreatePhysical));
                rig.device.set_faults(slow);
                let allocator = rig.allocator(settings.clone());
                let pool = PoolId::fresh();
                allocator.pools().begin(DEVICE, pool, Filter::Always).unwrap();
                let streams = [rig.new_stream(), rig.new_stream()];
                let (start, blocks) = (Barrier::new(4), Mutex::new(Vec::new()));
                std::thread::scope(|scope| {
                    for thread in 0..4 {
                        let (allocator, start, blocks) = (&allocator, &start, &blocks);
                        scope.spawn(move || {
                            start.wait();
                            let ptr = allocator.malloc(bytes, streams[thread % 2]).unwrap();
                            blocks.lock().unwrap().push(ptr);
                        });
                    }
                });
                let mut blocks = blocks.into_inner().unwrap();
                blocks.sort();
                assert!(blocks.windows(2).all(|pair| pair[0].0 + bytes <= pair[1].0), "{blocks:?}");
                let seen = allocator.pools().snapshot(pool, false).segments;
                assert_eq!(seen.len(), segments, "{bytes} bytes: {seen:?}");
                let held: u64 = seen.iter().map(|segment| segment.total_size).sum();
                assert_eq!(held, rig.used());
                allocator.pools().end(DEVICE, pool).unwrap();
                allocator.pools().release(DEVICE, pool).unwrap();
                free_all(&allocator, blocks);
                rig.nothing_is_left(&allocator);
            });
        }
    }
}

#[test]
fn a10_equal_blocks_are_reused_in_the_order_of_their_segments() {
    on_each(&of_bytes(GIB), |rig| {
        // The driver gives the lowest address that is free: these make it give lower and lower ones.
        let holes: Vec<_> = (0..3).map(|_| rig.backend.malloc(DEVICE, 20 * MIB).unwrap()).collect();
        let allocator = rig.allocator(Settings::default());
        let mut blocks = Vec::new();
        for hole in holes.into_iter().rev() {
            // SAFETY: rule 3: made above and never used.
            unsafe { rig.backend.free(DEVICE, hole) }.unwrap();
            blocks.push(allocator.malloc(20 * MIB, rig.stream()).unwrap());
        }
        assert!(blocks.is_sorted_by(|a, b| a > b), "descending: {blocks:?}");
        let reuse = |sizes: u64| -> Vec<_> {
            (0..3).map(|_| allocator.malloc(sizes, rig.stream()).unwrap()).collect()
        };
        for order in [[0, 1, 2], [2, 0, 1], [1, 2, 0]] {
            free_all(&allocator, order.map(|n| blocks[n]));
            assert_eq!(reuse(20 * MIB), blocks, "freed as {order:?}");
        }
        // Split and merged, they are what they were.
        free_all(&allocator, blocks.clone());
        let parts: Vec<_> = (0..4).map(|_| allocator.malloc(12 * MIB, rig.stream()).unwrap()).collect();
        assert_eq!(parts[..3], blocks);
        free_all(&allocator, parts);
        assert_eq!(reuse(20 * MIB), blocks);
        free_all(&allocator, blocks);
        rig.nothing_is_left(&allocator);
    });
}

#[test]
fn a11_the_golden_sequence_in_both_variants() {
    // allocated, requested, reserved, inactive bytes, segments, active, inactive blocks, device allocs, frees
    let table: [(&str, [i64; 9]); 16] = [
        ("a=1", [512, 1, 2_097_152, 2_096_640, 1, 1, 1, 1, 0]),
        ("b=1000", [1_536, 1_001, 2_097_152, 2_095_616, 1, 2, 1, 1, 0]),
        ("c=3145728", [3_147_264, 3_146_729, 23_068_672, 19_921_408, 2, 3, 2, 2, 0]),
        ("d=3145728", [6_292_992, 6_292_457, 23_068_672, 16_775_680, 2, 4, 2, 2, 0]),
        ("del c", [3_147_264, 3_146_729, 23_068_672, 19_921_408, 2, 3, 3, 2, 0]),
        ("e=2097152", [6_292_992, 5_243_881, 23_068_672, 16_775_680, 2, 4, 2, 2, 0]),
        ("del d", [3_147_264, 2_098_153, 23_068_672, 19_921_408, 2, 3, 2, 2, 0]),
        ("del e", [1_536, 1_001, 23_068_672, 2_095_616, 2, 2, 1, 2, 0]),
        ("f=12582913", [12_584_960, 12_583_914, 23_068_672, 10_483_712, 2, 3, 2, 2, 0]),
        ("del f", [1_536, 1_001, 23_068_672, 2_095_616, 2, 2, 1, 2, 0]),
        ("g=11534336", [11_535_872, 11_535_337, 23_068_672, 11_532_800, 2, 3, 2, 2, 0]),
        ("del a", [11_535_360, 11_535_336, 23_068_672, 11_533_312, 2, 2, 3, 2, 0]),
        ("del b", [11_534_336, 11_534_336, 23_068_672, 9_437_184, 2, 1, 1, 2, 0]),
        ("empty", [11_534_336, 11_534_336, 20_971_520, 9_437_184, 1, 1, 1, 2, 1]),
        ("del g", [0, 0, 20_971_520, 0, 1, 0, 0, 2, 1]),
        ("empty", [0, 0, 0, 0, 0, 0, 0, 2, 2]),
    ];
    for settings in both() {
        on_each(&of_bytes(8 * GIB), |rig| {
            let growable = settings.expandable_segments;
            let allocator = rig.allocator(settings.clone());
            let mut blocks = BTreeMap::new();
            for (step, mut expected) in table {
                match (step.strip_prefix("del "), step.split_once('=')) {
                    (Some(name), _) => free_all(&allocator, blocks.remove(name)),
                    (_, Some((name, bytes))) => {
                        let ptr = allocator.malloc(bytes.parse().unwrap(), rig.stream()).unwrap();
                        blocks.insert(name, ptr);
                    }
                    _ => allocator.empty_cache().unwrap(),
                }
                if growable {
                    // e is cut to its size; splits and segments are not counted.
                    expected[0] = match step {
                        "e=2097152" => 5_244_416,
                        "del d" => 2_098_688,
                        _ => expected[0],
                    };
                    for column in [3, 4, 6] {
                        expected[column] = 0;
                    }
                }
                let seen = allocator.stats(DEVICE).unwrap();
                let found = [
                    seen.allocated_bytes.all.current,
                    seen.requested_bytes.all.current,
                    seen.reserved_bytes.all.current,
                    seen.inactive_split_bytes.all.current,
                    seen.segment.all.current,
                    seen.active.all.current,
                    seen.inactive_split.all.current,
                    seen.num_device_alloc,
                    seen.num_device_free,
                ];
                assert_eq!(found, expected, "{step}, growable {growable}");
            }
            rig.nothing_is_left(&allocator);
        });
    }
}

#[test]
fn a12_a_block_can_be_had_at_an_exact_address() {
    for settings in both() {
        on_each(&of_bytes(GIB), |rig| {
            let allocator = rig.allocator(settings.clone());
            let stream = rig.stream();
            let refused = |bytes, ptr| {
                let error = allocator.malloc_at(bytes, ptr, stream).unwrap_err();
                assert!(matches!(error, AllocError::ExactAddress { .. }), "{error}");
                assert!(error.to_string().contains("exact address"), "{error}");
                error.to_string()
            };
            // In the middle of a free block: what is before and behind it stays free.
            let base = allocator.malloc(40 * MIB, stream).unwrap();
            free_all(&allocator, [base]);
            rig.device.reset_calls();
            let middle = allocator.malloc_at(10 * MIB - 5, base.add(8 * MIB), stream).unwrap();
            assert_eq!((middle, allocator.block_size(middle)), (base.add(8 * MIB), Some(10 * MIB)));
            let seen = allocator.stats(DEVICE).unwrap();
            assert_eq!((seen.allocation.all.current, seen.allocated_bytes.all.current), (1, 10 << 20));
            assert_eq!(seen.requested_bytes.all.current, (10 << 20) - 5);
            assert_eq!(allocator.malloc(8 * MIB, stream).unwrap(), base);
            assert_eq!(allocator.malloc(22 * MIB, stream).unwrap(), base.add(18 * MIB));
            assert_eq!(rig.device.calls().get(Call::Malloc), 0, "out of what was there");
            // Occupied, misaligned, too short, nowhere.
            refused(MIB + 1, base);
            refused(MIB + 1, middle);
            let text = refused(MIB + 1, base.add(256));
            assert!(text.contains("addr must be aligned to kMinBlockSize (512 bytes)"), "{text}");
            free_all(&allocator, [middle]);
            refused(10 * MIB + 1, middle);
            refused(MIB + 1, DevicePtr(512));
            // Another stream and the other size class have nothing there.
            let error = allocator.malloc_at(MIB + 1, middle, rig.new_stream()).unwrap_err();
            assert!(error.to_string().contains("exact address"), "{error}");
            refused(KIB, middle);
            assert_eq!(allocator.malloc_at(0, base.add(3), stream).unwrap(), DevicePtr::NULL);
            allocator.check_invariants();
            assert_eq!(allocator.malloc_at(10 * MIB, middle, stream).unwrap(), middle);
            free_all(&allocator, [base, middle, base.add(18 * MIB)]);

            // Behind several small blocks that have merged.
            let small: Vec<_> = (0..8).map(|_| allocator.malloc(KIB, stream).unwrap()).collect();
            free_all(&allocator, small.clone());
            let at = small[5].add(512);
            assert_eq!(allocator.malloc_at(700, at, stream).unwrap(), at);
            assert_eq!(allocator.malloc(5 * KIB + 512, stream).unwrap(), small[0], "what lies before it");
            free_all(&allocator, [at, small[0]]);
            rig.nothing_is_left(&allocator);
        });
    }
}

#[test]
fn a15_both_kinds_of_memory_can_be_copied_between_devices() {
    let other = DeviceIndex(1);
    let config = OpenRegConfig::default().devices(2).capacity(64 * MIB).memory(MemoryMode::Mapped);
    let apart = config.clone().without_peer(DEVICE, other).without_peer(other, DEVICE);
    for (config, enable) in [(&config, false), (&config, true), (&apart, false)] {
        for settings in both() {
            on_each(config, |rig| {
                let allocator = rig.allocator(settings.clone());
                let peers = rig.backend.peers().unwrap();
                if enable {
                    peers.enable_access(DEVICE, other).unwrap();
                    peers.enable_access(other, DEVICE).unwrap();
                }
                let streams = [DEVICE, other].map(|device| rig.backend.default_stream(device));
                let [here, there] = streams.map(|stream| allocator.malloc(3 * MIB, stream).unwrap());
                fill(rig, streams[0], here, 3 * MIB, 7);
                fill(rig, streams[1], there, 3 * MIB, 9);
                for (to, from, stream, value) in [
                    ((other, there), (DEVICE, here), streams[0], 7),
                    ((DEVICE, here), (other, there), streams[1], 11),
                ] {
                    if value == 11 {
                        fill(rig, streams[1], there, 3 * MIB, value);
                    }
                    // SAFETY: rule 2: two live blocks of this length, waited for below.
                    unsafe { peers.copy_peer_async(to, from, 3 * MIB, stream) }.unwrap();
                    rig.backend.synchronize_stream(stream).unwrap();
                    assert!(first_other(&contents(rig, to.1, 3 * MIB), value).is_none());
                }
                free_all(&allocator, [here, there]);
                rig.nothing_is_left(&allocator);
            });
        }
    }
}
