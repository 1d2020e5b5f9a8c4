//! Growable segments: what is mapped in which steps, what is unmapped, and drivers that refuse either.

use alloc_core::AllocError;
use alloc_core::backend::{Backend, ErrorKind};
use alloc_core::config::{ReserveSize, Settings, pytorch};
use alloc_core::history::HistoryOptions;
use alloc_core::snapshot::Action;
use alloc_core::types::{DeviceIndex, GIB, MIB};
use backend_openreg::{Call, Clock, Effect, Fault, FaultPlan, OpenRegConfig};
use granule_tests::policy::{Policy, PytorchPolicy};
use granule_tests::rig::DEVICE;
use granule_tests::setup::{both, growable, of, of_bytes, roomy};
use granule_tests::views::settle;
use granule_tests::with_policy;

#[test]
fn c07_growable_segments_can_be_toggled_between_requests() {
    let (_device, allocator, stream) = roomy::<PytorchPolicy>(Settings::default());
    let fixed = allocator.malloc(40 * MIB, stream).unwrap();
    allocator.configure(growable()).unwrap();
    let grown = allocator.malloc(40 * MIB, stream).unwrap();
    allocator.free(grown).unwrap();
    allocator.configure(Settings::default()).unwrap();
    let third = allocator.malloc(30 * MIB, stream).unwrap();
    assert_ne!(third, grown, "growable blocks are reused only while the option is on");
    allocator.free(fixed).unwrap();
    allocator.free(third).unwrap();
    allocator.check_invariants();
    allocator.empty_cache().unwrap();
    assert_eq!(allocator.stats(DEVICE).unwrap().reserved_bytes.all.current, 0);
}

#[test]
fn e02_only_whole_free_granules_go_back_and_the_address_space_with_the_last() {
    let (device, allocator, stream) = roomy::<PytorchPolicy>(growable());
    let front = allocator.malloc(15 * MIB, stream).unwrap();
    let tail = allocator.malloc(5 * MIB, stream).unwrap();
    allocator.free(tail).unwrap();
    allocator.empty_cache().unwrap();
    let reserved = || allocator.stats(DEVICE).unwrap().reserved_bytes.all.current.unsigned_abs();
    assert_eq!(reserved(), 20 * MIB, "5 MiB at the tail of a 20 MiB granule stay");
    allocator.free(front).unwrap();
    allocator.empty_cache().unwrap();
    assert_eq!(reserved(), 0);
    assert_eq!(device.calls().get(Call::ReserveAddress), device.calls().get(Call::ReleaseAddress));
}

#[test]
fn a_growing_request_maps_in_one_step_up_to_a_granule() {
    let (_device, allocator, stream) = roomy::<PytorchPolicy>(growable());
    allocator.history().record(&HistoryOptions::newest(100).deterministic());
    let ptr = allocator.malloc(30 * MIB, stream).unwrap();
    let small = allocator.malloc(700, stream).unwrap();
    allocator.free(ptr).unwrap();
    allocator.empty_cache().unwrap();
    let snapshot = allocator.snapshot(true);
    let actions: Vec<_> = snapshot.device_traces[0].iter().map(|e| (e.action, e.size)).collect();
    assert_eq!(
        actions,
        [
            (Action::SegmentMap, 41_943_040),
            (Action::Alloc, 31_457_280),
            (Action::SegmentMap, 2_097_152),
            (Action::Alloc, 700),
            (Action::FreeRequested, 31_457_280),
            (Action::FreeCompleted, 31_457_280),
            (Action::SegmentUnmap, 41_943_040),
        ]
    );
    allocator.free(small).unwrap();
}

#[test]
fn e07_a_request_above_the_reserve_fails_with_its_hint() {
    let settings =
        Settings { expandable_segments_reserve: Some(ReserveSize::Bytes(100 * MIB)), ..growable() };
    let (_device, allocator, stream) = roomy::<PytorchPolicy>(settings);
    let error = allocator.malloc(200 * MIB, stream).unwrap_err();
    assert!(error.is_out_of_memory());
    let own = "A growable segment of this stream reserves 100.00 MiB of address space";
    assert!(error.to_string().contains(own), "{error}");
    let AllocError::OutOfMemory(report) = &error else { panic!("{error}") };
    let bound = "the address space that a growable segment reserves";
    assert_eq!((report.bound.available, report.bound.set_by.as_str()), (100 * MIB, bound));
    let text = report.pytorch_message();
    assert!(text.contains("exceeds the expandable-segment reserve of 100.00 MiB"), "{text}");
    let ptr = allocator.malloc(90 * MIB, stream).unwrap();
    allocator.free(ptr).unwrap();
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

/// A lack of address space was raised as a driver error, without the ladder that gives regions back.
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

/// Memory was unmapped under queued work, because the device that was waited for was the calling thread's, not the
/// memory's.
fn pytorch_196258_unmapping_waits_for_the_device_that_has_the_memory<P: Policy>() {
    let other = DeviceIndex(1);
    for current in [DEVICE, other] {
        let config = OpenRegConfig::default().devices(2).capacity(GIB).clock(Clock::Virtual { lag: 100 });
        let (device, allocator, stream) = with_policy::<P>(config, growable());
        let ptr = allocator.malloc(40 * MIB, stream).unwrap();
        device.use_memory(stream, ptr, 40 * MIB).unwrap();
        allocator.free(ptr).unwrap();
        device.set_device(current).unwrap();
        allocator.empty_cache().unwrap();
        assert_eq!(device.traps(), Vec::new(), "current device {current}");
        assert_eq!(device.used(DEVICE), 0);
        assert_eq!(device.current_device().unwrap(), current, "the thread's device is left as it was");
    }
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
    pytorch_196258_unmapping_waits_for_the_device_that_has_the_memory,
    pytorch_119452_growable_segments_and_a_split_limit_go_together,
    pytorch_188008_a_mapping_that_fails_half_way_is_undone,
);
