//! Growable segments: what is mapped in which steps, what is unmapped, and drivers that refuse either.

use alloc_core::AllocError;
use alloc_core::backend::{Backend, ErrorKind};
use alloc_core::config::{ReserveSize, Settings, pytorch};
use alloc_core::types::{GIB, MIB};
use backend_openreg::{Call, Effect, Fault, FaultPlan};
use granule_tests::policy::{Policy, PytorchPolicy};
use granule_tests::rig::{DEVICE, on_each};
use granule_tests::setup::{both, free_all, growable, of, of_bytes, one, reserved};
use granule_tests::views::settle;
use granule_tests::{Allocator, with_policy};
use std::sync::{Arc, Mutex};

const M: i64 = 1 << 20;

/// Segments as the snapshot shows them: address, mapped MiB, number of blocks.
fn shown(allocator: &Allocator) -> Vec<(u64, u64, usize)> {
    let segments = allocator.snapshot(false).segments;
    assert!(segments.iter().all(|segment| segment.is_expandable));
    segments.iter().map(|s| (s.address, s.total_size / MIB, s.blocks.len())).collect()
}

#[test]
fn e01_rising_sizes_stay_in_one_segment() {
    on_each(&one(), |rig| {
        let allocator = rig.allocator(growable());
        let stream = rig.stream();
        let mut base = None;
        let mut mapped = 0;
        for size in (10..200).step_by(10).map(|mebibytes| mebibytes * MIB) {
            let ptr = allocator.malloc(size, stream).unwrap();
            assert_eq!(*base.get_or_insert(ptr), ptr, "the same place, with more of it mapped");
            mapped = size.next_multiple_of(20 * MIB) / MIB;
            let with_rest = mapped * MIB > size;
            assert_eq!(shown(&allocator), [(ptr.0, mapped, 1 + usize::from(with_rest))]);
            allocator.free(ptr).unwrap();
        }
        assert_eq!(mapped, 200);
        assert_eq!(rig.device.calls().get(Call::ReserveAddress), 1);
        assert_eq!(rig.device.calls().get(Call::Malloc), 0);
        // Another size class and another stream have segments of their own.
        let small = allocator.malloc(1000, stream).unwrap();
        let other = allocator.malloc(10 * MIB, rig.new_stream()).unwrap();
        assert_eq!(rig.device.calls().get(Call::ReserveAddress), 3);
        let mut expected = [(base.unwrap().0, 200, 1), (small.0, 2, 2), (other.0, 20, 2)];
        expected.sort_unstable();
        assert_eq!(shown(&allocator), expected);
        allocator.free(small).unwrap();
        allocator.free(other).unwrap();
        rig.nothing_is_left(&allocator);
    });
}

#[test]
fn e01_each_mapped_range_has_an_entry() {
    on_each(&one(), |rig| {
        let allocator = rig.allocator(growable());
        let blocks = [40 * MIB; 5].map(|size| allocator.malloc(size, rig.stream()).unwrap());
        let base = blocks[0].0;
        assert_eq!(shown(&allocator), [(base, 200, 5)]);
        allocator.free(blocks[1]).unwrap();
        allocator.free(blocks[3]).unwrap();
        assert_eq!(shown(&allocator), [(base, 200, 5)]);
        allocator.empty_cache().unwrap();
        let at = |mebibytes: u64| base + mebibytes * MIB;
        assert_eq!(shown(&allocator), [(base, 40, 1), (at(80), 40, 1), (at(160), 40, 1)]);
        // The first hole is filled before the segment grows at its end.
        assert_eq!(allocator.malloc(30 * MIB, rig.stream()).unwrap(), blocks[1]);
        assert_eq!(shown(&allocator), [(base, 120, 4), (at(160), 40, 1)]);
        assert_eq!(rig.used(), 160 * MIB);
        allocator.check_invariants();
    });
}

#[test]
fn e02_whole_free_granules_go_and_the_range_when_all_are_free() {
    on_each(&one(), |rig| {
        let allocator = rig.allocator(growable());
        let stream = rig.stream();
        let [a, b, c] = [30 * MIB, 30 * MIB, 15 * MIB].map(|size| allocator.malloc(size, stream).unwrap());
        let reserved = || allocator.stats(DEVICE).unwrap().reserved_bytes.all.current;
        assert_eq!((shown(&allocator), reserved()), (vec![(a.0, 80, 4)], 80 * 1024 * 1024));
        allocator.free(b).unwrap();
        allocator.empty_cache().unwrap();
        // Of 30 to 60 MiB the granule from 40 is whole; the 5 MiB behind `c` are no whole one.
        assert_eq!(shown(&allocator), [(a.0, 40, 2), (a.0 + 60 * MIB, 20, 2)]);
        assert_eq!((reserved(), rig.used()), (60 * 1024 * 1024, 60 * MIB));
        assert_eq!(rig.device.calls().get(Call::ReleaseAddress), 0);
        allocator.free(c).unwrap();
        allocator.empty_cache().unwrap();
        assert_eq!(shown(&allocator), [(a.0, 40, 2)]);
        assert_eq!(rig.device.calls().get(Call::ReleaseAddress), 0);
        allocator.free(a).unwrap();
        allocator.empty_cache().unwrap();
        assert_eq!(shown(&allocator), []);
        assert_eq!((reserved(), rig.used()), (0, 0));
        assert_eq!(rig.device.calls().get(Call::ReleaseAddress), 1);
        let stats = allocator.stats(DEVICE).unwrap();
        assert_eq!((stats.num_device_alloc, stats.num_device_free), (3, 3), "a block is one call each");
        assert_eq!(stats.segment.all.allocated, 0, "growable segments are not counted");
        rig.nothing_is_left(&allocator);
    });
}

/// The figures are PyTorch's own: it makes new blocks of what stays beside memory that goes, and the block that lost its memory
/// lends its own figure to what is mapped there again.
#[test]
fn e08_free_blocks_show_the_requests_that_pytorch_shows() {
    on_each(&one(), |rig| {
        let allocator = rig.allocator(growable());
        let stream = rig.stream();
        let sizes = [30 * MIB, 70 * MIB, 15 * MIB];
        let [_, between, _] = sizes.map(|size| allocator.malloc(size, stream).unwrap());
        allocator.free(between).unwrap();
        let requested = || {
            let segments = allocator.snapshot(false).segments;
            segments.iter().flat_map(|s| s.blocks.iter().map(|b| b.requested_size)).collect::<Vec<_>>()
        };
        assert_eq!(requested(), [30, 70, 15, 0].map(|n| n * MIB));
        allocator.empty_cache().unwrap();
        // 10 MiB before the granules that went, 15 live behind them and 5 that nobody ever had.
        assert_eq!(requested(), [30, 0, 15, 0].map(|n| n * MIB));
        let low = allocator.malloc(12 * MIB, stream).unwrap();
        assert_eq!(requested(), [30, 12, 70, 15, 0].map(|n| n * MIB));
        let high = allocator.malloc(33 * MIB, stream).unwrap();
        assert_eq!(requested(), [30, 12, 33, 0, 15, 0].map(|n| n * MIB));
        allocator.free(low).unwrap();
        allocator.free(high).unwrap();
        assert_eq!(requested(), [30, 33, 15, 0].map(|n| n * MIB));
        allocator.empty_cache().unwrap();
        assert_eq!(requested(), [30, 0, 15, 0].map(|n| n * MIB));
    });
}

#[test]
fn e07_beyond_the_reserve_is_out_of_memory_with_a_hint() {
    on_each(&one(), |rig| {
        let reserve = Some(ReserveSize::Bytes(100 * MIB));
        let allocator = rig.allocator(Settings { expandable_segments_reserve: reserve, ..growable() });
        let seen = Arc::new(Mutex::new(Vec::new()));
        let heard = Arc::clone(&seen);
        allocator.hooks().on_out_of_memory(move |report| {
            heard.lock().unwrap().push((report.requested, report.reserve_too_small));
        });
        let live = allocator.malloc(60 * MIB, rig.stream()).unwrap();
        let error = allocator.malloc(100 * MIB + 1, rig.stream()).unwrap_err();
        let AllocError::OutOfMemory(report) = &error else { panic!("{error}") };
        assert_eq!(report.reserve_too_small, Some(100 * MIB));
        let bound = "the address space that a growable segment reserves";
        assert_eq!((report.bound.available, report.bound.set_by.as_str()), (100 * MIB, bound));
        let own = "A growable segment of this stream reserves 100.00 MiB of address space";
        assert!(error.to_string().contains(own), "{error}");
        let text = report.pytorch_message();
        let hint = "This allocation exceeds the expandable-segment reserve of 100.00 MiB";
        assert!(text.contains(hint) && text.contains("expandable_segments_reserve"), "{text}");
        assert_eq!(*seen.lock().unwrap(), [(100 * MIB + 1, Some(100 * MIB))]);
        let stats = allocator.stats(DEVICE).unwrap();
        assert_eq!((stats.num_ooms, stats.num_alloc_retries), (1, 1));
        // Up to the reserve there is a second segment; memory on the device is no matter here.
        let full = allocator.malloc(100 * MIB, rig.stream()).unwrap();
        assert_eq!(rig.used(), 160 * MIB);
        allocator.free(live).unwrap();
        allocator.free(full).unwrap();
        rig.nothing_is_left(&allocator);
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
fn a_growing_request_joins_the_mapped_block_above() {
    let (_device, allocator, stream) = with_policy::<PytorchPolicy>(of_bytes(GIB), growable());
    let _low = allocator.malloc(20 * MIB, stream).unwrap();
    let hole = allocator.malloc(40 * MIB, stream).unwrap();
    let above = allocator.malloc(20 * MIB, stream).unwrap();
    let _top = allocator.malloc(20 * MIB, stream).unwrap();
    allocator.free(hole).unwrap();
    allocator.empty_cache().unwrap();
    allocator.free(above).unwrap();
    assert_eq!(allocator.malloc(30 * MIB, stream).unwrap(), hole);
    allocator.check_invariants();
    assert_eq!(allocator.statistics().cache_info(DEVICE).unwrap().largest_cached, 30 * MIB);
}

fn c07_streams_made_after_configure_follow_it<P: Policy>() {
    let (device, allocator, _) = with_policy::<P>(of_bytes(GIB), Settings::default());
    allocator.configure(growable()).unwrap();
    let side = device.create_stream(DEVICE, 0).unwrap();
    settle(&device, &allocator, side);
    allocator.malloc(40 * MIB, side).unwrap();
    assert_eq!((device.calls().get(Call::Malloc), device.calls().get(Call::ReserveAddress)), (0, 1));
}

fn memory_that_cannot_be_released_is_kept_and_released_later<P: Policy>() {
    for while_growing in [true, false] {
        let (device, allocator, stream) = with_policy::<P>(of_bytes(GIB), growable());
        settle(&device, &allocator, stream);
        let plan = FaultPlan::none().fail_all(Call::ReleasePhysical, ErrorKind::Other);
        if while_growing {
            device.set_faults(plan.fail_nth_of(Call::Map, 1, ErrorKind::Other));
            assert!(allocator.malloc(40 * MIB, stream).is_err());
        } else {
            let ptr = allocator.malloc(40 * MIB, stream).unwrap();
            allocator.free(ptr).unwrap();
            device.set_faults(plan);
            let _ = allocator.empty_cache();
        }
        assert!(device.used(DEVICE) > 0, "the driver refused");
        device.set_faults(FaultPlan::none());
        allocator.empty_cache().unwrap();
        assert_eq!(device.used(DEVICE), 0, "while growing: {while_growing}");
    }
}

fn a_reservation_that_cannot_be_given_back_is_given_back_later<P: Policy>() {
    let (device, allocator, stream) = with_policy::<P>(of_bytes(GIB), growable());
    settle(&device, &allocator, stream);
    let ptr = allocator.malloc(40 * MIB, stream).unwrap();
    allocator.free(ptr).unwrap();
    device.set_faults(FaultPlan::none().fail_nth_of(Call::ReleaseAddress, 1, ErrorKind::Other));
    assert!(allocator.empty_cache().is_err());
    assert_eq!(allocator.malloc(40 * MIB, stream).unwrap(), ptr, "and used until then");
    assert_eq!(device.calls().get(Call::ReserveAddress), 1);
    allocator.free(ptr).unwrap();
    device.set_faults(FaultPlan::none().fail_nth_of(Call::ReleaseAddress, 1, ErrorKind::Other));
    assert!(allocator.empty_cache().is_err());
    allocator.empty_cache().unwrap();
    assert_eq!(
        device.calls().get(Call::ReleaseAddress),
        3,
        "nothing mapped, so the next flush gives it back"
    );
}

fn undoing_a_mapping_is_tried_again<P: Policy>() {
    let (device, allocator, stream) = with_policy::<P>(of_bytes(GIB), growable());
    settle(&device, &allocator, stream);
    let plan = FaultPlan::none().fail_nth_of(Call::Map, 2, ErrorKind::Other);
    device.set_faults(plan.fail_nth_of(Call::Unmap, 1, ErrorKind::Other));
    assert!(allocator.malloc(40 * MIB, stream).is_err());
    assert_eq!(device.used(DEVICE), 0, "at once, where the second try works");
    let ptr = allocator.malloc(40 * MIB, stream).expect("nothing was left mapped there");
    allocator.free(ptr).unwrap();
}

/// A mapping that could not be undone made its address space, and every later request, fail for ever.
fn what_a_driver_refuses_to_undo_is_tried_again<P: Policy>() {
    let [_, growable] = both();
    let (device, allocator, home) = with_policy::<P>(of(200), growable);
    let stuck = FaultPlan::none().fail_all(Call::SetAccess, ErrorKind::Other);
    device.set_faults(stuck.fail_all(Call::Unmap, ErrorKind::Other));
    assert!(matches!(allocator.malloc(30 * MIB, home), Err(AllocError::Backend(_))));
    device.set_faults(FaultPlan::none());
    let ptr = allocator.malloc(30 * MIB, home).expect("the driver works again");
    allocator.free(ptr).unwrap();
    allocator.empty_cache().unwrap();
    allocator.check_invariants();
    assert_eq!(device.used(DEVICE), 0);
}

/// A lack of address space was raised as a driver error, without the remedies that give regions back.
fn a_lack_of_address_space_is_a_lack_of_memory<P: Policy>() {
    let [_, growable] = both();
    let (device, allocator, home) = with_policy::<P>(of(100), growable);
    device.set_faults(FaultPlan::none().fail_all(Call::ReserveAddress, ErrorKind::OutOfMemory));
    assert!(allocator.malloc(MIB, home).unwrap_err().is_out_of_memory());
    device.set_faults(FaultPlan::none().fail_nth_of(Call::ReserveAddress, 1, ErrorKind::OutOfMemory));
    let ptr = allocator.malloc(MIB, home).expect("the retry reserves");
    assert_eq!(allocator.stats(DEVICE).unwrap().num_alloc_retries, 2);
    allocator.free(ptr).unwrap();
}

/// Reserve classes were read and not used.
#[test]
fn a_streams_reserve_class_sizes_its_regions() {
    let settings = Settings {
        expandable_segments: true,
        expandable_segments_reserve_by_class: vec![("side".into(), ReserveSize::Bytes(40 * MIB))],
        ..Settings::default()
    };
    let (device, allocator, home) = with_policy::<PytorchPolicy>(of(400), settings);
    let side = device.create_stream(DEVICE, 0).unwrap();
    allocator.set_reserve_class(side, "side").unwrap();
    assert!(
        allocator.malloc(100 * MIB, side).unwrap_err().is_out_of_memory(),
        "40 MiB of addresses are too few"
    );
    allocator.malloc(100 * MIB, home).unwrap();
    allocator.set_reserve_class(side, "").unwrap();
    allocator.malloc(100 * MIB, side).unwrap();
}

fn parsed(text: &str) -> Settings {
    pytorch::parse(text, &Settings::default(), alloc_core::config::Flavour::Cuda).unwrap().settings
}

/// With both options on, mapped memory was given to the driver's `free` when memory ran short (also 123548).
fn pytorch_119452_growable_segments_and_a_split_limit_go_together<P: Policy>() {
    let (device, allocator, stream) =
        with_policy::<P>(of(512), parsed("max_split_size_mb:64,expandable_segments:True"));
    let first = allocator.malloc(200 * MIB, stream).unwrap();
    allocator.free(first).unwrap();
    let mut live = Vec::new();
    let refusal = loop {
        match allocator.malloc(50 * MIB, stream) {
            Ok(ptr) => live.push(ptr),
            Err(error) => break error,
        }
    };
    assert!(refusal.is_out_of_memory(), "{refusal}");
    assert_eq!(live.len(), 10, "the device is used to the last granule: {refusal}");
    allocator.check_invariants();
    let calls = device.calls();
    assert_eq!((calls.get(Call::Malloc), calls.get(Call::Free)), (0, 0), "nothing but mappings was touched");
    live.into_iter().for_each(|ptr| allocator.free(ptr).unwrap());
    allocator.empty_cache().unwrap();
    assert_eq!(device.used(DEVICE), 0);
}

/// A mapping that failed half way left the process unable to allocate, or ended it.
fn pytorch_188008_a_mapping_that_fails_half_way_is_undone<P: Policy>() {
    for call in [Call::Map, Call::SetAccess] {
        let (device, allocator, stream) = with_policy::<P>(of(512), growable());
        settle(&device, &allocator, stream);
        device.set_faults(FaultPlan::none().fail_nth_of(call, 1, ErrorKind::Other));
        assert!(matches!(allocator.malloc(100 * MIB, stream), Err(AllocError::Backend(_))));
        allocator.check_invariants();
        assert_eq!(device.used(DEVICE), 0, "{call:?}: nothing is left mapped");
        let ptr = allocator.malloc(100 * MIB, stream).unwrap();
        allocator.free(ptr).unwrap();
        allocator.empty_cache().unwrap();
        assert_eq!(device.used(DEVICE), 0);
    }
}

/// What the driver had at a time for one tier is no multiple of the other's granules, and is more once addresses came back.
fn addresses_that_are_short_for_a_moment_cost_no_memory<P: Policy>() {
    for (capacity, step) in [(48 * MIB, 8 * MIB), (24 * GIB, 508 * MIB), (80 * GIB, 508 * MIB)] {
        let (device, allocator, stream) = with_policy::<P>(of_bytes(capacity), growable());
        let refusal = |nth| Fault::at(nth, Effect::Fail(ErrorKind::OutOfMemory)).of(Call::ReserveAddress);
        device.set_faults(FaultPlan::none().with(refusal(1)).with(refusal(2)));
        let small = allocator.malloc(512, stream);
        device.set_faults(FaultPlan::none());
        let mut blocks = vec![small.or_else(|_| allocator.malloc(512, stream)).unwrap()];
        for bytes in [step, 4 * MIB, 2 * MIB] {
            blocks.extend(std::iter::from_fn(|| allocator.malloc(bytes, stream).ok()));
        }
        allocator.check_invariants();
        blocks.into_iter().for_each(|ptr| allocator.free(ptr).unwrap());
        allocator.empty_cache().unwrap();
        assert_eq!(device.used(DEVICE), 0, "{capacity}");

        let reserved = || device.usage().bytes(Call::ReserveAddress);
        let again = |bytes| {
            let before = reserved();
            allocator.free(allocator.malloc(bytes, stream).unwrap()).unwrap();
            allocator.empty_cache().unwrap();
            reserved() - before
        };
        let (first, most) = (again(20 * MIB), (0..8).map(|_| again(20 * MIB)).max().unwrap());
        assert!(most >= capacity.min(first * 2), "{capacity}: {first} bytes of addresses, then {most}");
    }
}

granule_tests::for_each_policy!(
    addresses_that_are_short_for_a_moment_cost_no_memory,
    c07_streams_made_after_configure_follow_it,
    memory_that_cannot_be_released_is_kept_and_released_later,
    a_reservation_that_cannot_be_given_back_is_given_back_later,
    undoing_a_mapping_is_tried_again,
    what_a_driver_refuses_to_undo_is_tried_again,
    a_lack_of_address_space_is_a_lack_of_memory,
    pytorch_119452_growable_segments_and_a_split_limit_go_together,
    pytorch_188008_a_mapping_that_fails_half_way_is_undone,
);
