//! Settings at work, C02 and C07 to C09 of the checklist: on the simulated device, and on HIP seen as CUDA. C01 and C03
//! to C06, which need no device, are with the parsers.

use alloc_core::config::{AllocatorBackend, ExceptionClass, Flavour, Settings, pytorch, strict};
use alloc_core::types::{GIB, MIB};
use backend_openreg::Call;
use granule_tests::rig::{DEVICE, on_each};
use granule_tests::setup::{free_all, of_bytes, reserved};

const M: i64 = 1 << 20;

#[test]
fn c02_an_option_that_does_not_exist_is_refused_by_name() {
    let base = Settings::default();
    for text in ["no_such_option:1", "expandable_segments:True,no_such_option:[a:1]"] {
        for flavour in [Flavour::Cuda, Flavour::Hip] {
            let error = pytorch::parse(text, &base, flavour).unwrap_err();
            assert_eq!(error.class(), ExceptionClass::ValueError);
            let said = "Unrecognized key 'no_such_option' in Accelerator allocator config.";
            assert_eq!(error.pytorch_message(), said);
        }
        let error = strict::parse(text, &base).unwrap_err();
        assert_eq!(error.class(), ExceptionClass::ValueError);
        assert!(error.to_string().contains("there is no such option, got 'no_such_option'"), "{error}");
    }
}

#[test]
fn c06_a_running_allocator_keeps_its_backend() {
    on_each(&of_bytes(GIB), |rig| {
        let allocator = rig.allocator(Settings::default());
        let before = allocator.settings();
        let other =
            Settings { backend: AllocatorBackend::DriverPools, expandable_segments: true, ..before.clone() };
        assert_eq!(
            allocator.configure(other).unwrap_err().to_string(),
            "Allocator backend parsed at runtime != allocator backend parsed at load time, cudaMallocAsync != native"
        );
        assert_eq!(allocator.settings(), before, "nothing was taken over");
    });
}

#[test]
fn c07_blocks_of_both_kinds_live_side_by_side() {
    on_each(&of_bytes(8 * GIB), |rig| {
        let fixed = Settings { max_split_size: 64 * MIB, ..Settings::default() };
        let growable = Settings { expandable_segments: true, ..fixed.clone() };
        let allocator = rig.allocator(fixed.clone());
        let segments = || allocator.stats(DEVICE).unwrap().segment.all.current;
        let switch = |settings: &Settings| allocator.configure(settings.clone()).unwrap();
        let stream = rig.stream();
        let first = allocator.malloc(40 * MIB, stream).unwrap();
        switch(&growable);
        let second = allocator.malloc(40 * MIB, stream).unwrap();
        assert_eq!((segments(), reserved(&allocator)), (1, 80 * M));
        assert_eq!(allocator.snapshot(false).segments.iter().filter(|s| s.is_expandable).count(), 1);

        // While they are on, blocks of both kinds are reused; while they are off, only those of fixed segments.
        free_all(&allocator, [first, second]);
        let reused = [(); 2].map(|()| allocator.malloc(40 * MIB, stream).unwrap());
        assert_eq!(reused, [first, second], "by the age of their segments");
        free_all(&allocator, reused);
        switch(&fixed);
        let reused = [(); 2].map(|()| allocator.malloc(40 * MIB, stream).unwrap());
        assert_eq!(reused[0], first);
        assert_ne!(reused[1], second);
        assert_eq!((segments(), reserved(&allocator)), (2, 120 * M));

        // An ordinary block is cut at 512 bytes while they are on, whatever the split limit.
        free_all(&allocator, reused);
        allocator.empty_cache().unwrap();
        assert_eq!(reserved(&allocator), 0, "both kinds go back whatever the option");
        let low = allocator.malloc(20 * MIB, stream).unwrap();
        free_all(&allocator, [low]);
        switch(&growable);
        let cut = allocator.malloc(20 * MIB - 512, stream).unwrap();
        assert_eq!((cut, allocator.block_size(cut)), (low, Some(20 * MIB - 512)));
        free_all(&allocator, [cut]);
        rig.nothing_is_left(&allocator);
    });
}

/// The rest of a fixed segment is a tighter place than a growable block of its size that could still grow.
#[test]
fn c07_a_fixed_rest_comes_before_a_growable_one_of_its_size() {
    on_each(&of_bytes(8 * GIB), |rig| {
        let growable = Settings { expandable_segments: true, ..Settings::default() };
        let allocator = rig.allocator(growable.clone());
        let stream = rig.stream();
        let in_growable = allocator.malloc(700, stream).unwrap();
        allocator.configure(Settings::default()).unwrap();
        let in_fixed = allocator.malloc(700, stream).unwrap();
        allocator.configure(growable).unwrap();
        let next = allocator.malloc(700, stream).unwrap();
        assert_eq!(
            next,
            in_fixed.add(1024),
            "both rests have 2 MiB less 1024 bytes, the growable one is older"
        );
        free_all(&allocator, [in_growable, in_fixed, next]);
        rig.nothing_is_left(&allocator);
    });
}

#[test]
fn c07_garbage_collection_takes_fixed_segments_and_leaves_growable_ones() {
    on_each(&of_bytes(1000 * MIB), |rig| {
        let gc = Settings { garbage_collection_threshold: 0.5, ..Settings::default() };
        let allocator = rig.allocator(gc.clone());
        allocator.set_memory_fraction(0.4, DEVICE).unwrap();
        let stream = rig.stream();
        let fixed = allocator.malloc(100 * MIB, stream).unwrap();
        allocator.configure(Settings { expandable_segments: true, ..gc }).unwrap();
        let grown = allocator.malloc(120 * MIB, stream).unwrap();
        free_all(&allocator, [fixed, grown]);
        // 220 of 400 MiB are held, over the half: the fixed segment goes, the growable one grows.
        let more = allocator.malloc(240 * MIB, stream).unwrap();
        assert_eq!(more, grown);
        let seen = allocator.stats(DEVICE).unwrap();
        assert_eq!((seen.segment.all.current, seen.segment.all.freed), (0, 1));
        assert_eq!((seen.reserved_bytes.all.current, seen.num_alloc_retries), (240 * M, 0));
        free_all(&allocator, [more]);
        rig.nothing_is_left(&allocator);
    });
}

#[test]
fn c08_blocks_over_the_split_limit_are_not_cut() {
    on_each(&of_bytes(8 * GIB), |rig| {
        let settings = Settings { max_split_size: 50 * MIB, ..Settings::default() };
        let allocator = rig.allocator(settings);
        let stream = rig.stream();
        let oversize = || {
            let seen = allocator.stats(DEVICE).unwrap();
            (seen.oversize_allocations.current, seen.oversize_segments.current)
        };
        let big = allocator.malloc(100 * MIB, stream).unwrap();
        assert_eq!(oversize(), (1, 1));
        free_all(&allocator, [big]);
        assert_eq!(oversize(), (0, 1));
        let small = allocator.malloc(30 * MIB, stream).unwrap();
        assert_eq!(reserved(&allocator), 130 * M, "a segment of its own");
        let close = allocator.malloc(90 * MIB, stream).unwrap();
        assert_eq!((close, allocator.block_size(close)), (big, Some(100 * MIB)), "whole");
        assert_eq!(oversize(), (1, 1));
        free_all(&allocator, [close]);
        let nearest = allocator.malloc(80 * MIB + 512, stream).unwrap();
        assert_eq!(nearest, big, "less than 20 MiB too large");
        free_all(&allocator, [nearest]);
        let far = allocator.malloc(80 * MIB, stream).unwrap();
        assert_eq!(reserved(&allocator), 210 * M, "20 MiB too large is too large");
        assert_eq!(oversize(), (1, 2));
        free_all(&allocator, [small, far]);
        rig.nothing_is_left(&allocator);
        assert_eq!(oversize(), (0, 0));
    });
}

#[test]
fn c09_above_the_threshold_the_oldest_whole_segments_go_and_no_more() {
    on_each(&of_bytes(1000 * MIB), |rig| {
        let settings = Settings { garbage_collection_threshold: 0.5, ..Settings::default() };
        let allocator = rig.allocator(settings);
        allocator.set_memory_fraction(0.4, DEVICE).unwrap();
        let (stream, side) = (rig.stream(), rig.new_stream());
        let [old, young] = [100, 60].map(|n| allocator.malloc(n * MIB, stream).unwrap());
        free_all(&allocator, [old]);
        // Every search makes it older.
        for _ in 0..20 {
            let ptr = allocator.malloc(10 * MIB, side).unwrap();
            free_all(&allocator, [ptr]);
        }
        let busy = allocator.malloc(10 * MIB, side).unwrap();
        free_all(&allocator, [young]);
        rig.device.reset_calls();
        // 170 of 400 MiB: under the half, so nothing goes.
        let under = allocator.malloc(130 * MIB, stream).unwrap();
        let held = reserved(&allocator);
        assert_eq!((held, rig.device.calls().get(Call::Free)), (300 * M, 0), "taken beside the cache");
        // Over it: the oldest goes, the younger stays.
        let over = allocator.malloc(120 * MIB, stream).unwrap();
        assert_eq!(rig.device.calls().get(Call::Free), 1);
        assert_eq!(reserved(&allocator), held - 100 * M + 120 * M);
        let again = allocator.malloc(60 * MIB, stream).unwrap();
        assert_eq!(again, young);
        free_all(&allocator, [busy, under, over, again]);
        rig.nothing_is_left(&allocator);
    });
}
