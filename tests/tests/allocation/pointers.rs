//! Wrong pointers: every kind is a typed error that says what is wrong, and changes nothing.

use alloc_core::backend::HostFlags;
use alloc_core::config::Settings;
use alloc_core::history::{CallContext, Context, HistoryOptions, RecordContext};
use alloc_core::pointer::{BadPointer, Problem};
use alloc_core::snapshot::{Action, Frame, Stack};
use alloc_core::types::{BackendId, DeviceIndex, DevicePtr, MIB, Stream};
use alloc_core::{AllocError, DeviceBuffer};
use backend_openreg::{Call, Clock, MemoryMode, OpenRegConfig};
use granule_tests::Allocator;
use granule_tests::policy::{Policy, PytorchPolicy};
use granule_tests::rig::{DEVICE, on_each};
use granule_tests::setup::{free_all, roomy};
use std::sync::{Arc, Weak};

fn machine() -> OpenRegConfig {
    OpenRegConfig::default().devices(2).memory(MemoryMode::Mapped).capacity(64 * MIB)
}

/// What is wrong with freeing `ptr`; nothing but the answer comes of it.
fn problem(allocator: &Allocator, ptr: DevicePtr) -> BadPointer {
    let before = allocator.stats(DEVICE).unwrap();
    let Err(AllocError::InvalidPointer(wrong)) = allocator.free(ptr) else { panic!("{ptr} was freed") };
    assert_eq!(allocator.stats(DEVICE).unwrap(), before, "a refused free changes nothing");
    allocator.check_invariants();
    assert_eq!(wrong.ptr, ptr);
    assert!(wrong.to_string().starts_with(&format!("invalid device pointer: {ptr}")), "{wrong}");
    *wrong
}

fn a_double_free_says_so<P: Policy>() {
    on_each(&machine(), |rig| {
        let allocator = rig.with_policy::<P>(Settings::default());
        let [first, second] = [1024, 1024].map(|bytes| allocator.malloc(bytes, rig.stream()).unwrap());
        allocator.free(first).unwrap();
        assert_eq!(problem(&allocator, first).problem, Problem::Freed);
        assert!(problem(&allocator, first).to_string().contains("freed already (double free)"));
        allocator.free(second).unwrap();
        rig.nothing_is_left(&allocator);
    });
}

#[test]
fn a_double_free_of_memory_that_was_joined_or_given_back_is_known_from_the_history() {
    on_each(&machine(), |rig| {
        let allocator = rig.with_policy::<PytorchPolicy>(Settings::default());
        let pair = || [1024, 1024].map(|bytes| allocator.malloc(bytes, rig.stream()).unwrap());
        let [low, high] = pair();
        free_all(&allocator, [low, high]);
        let Problem::NotHandedOut { device, segment, bytes } = problem(&allocator, high).problem else {
            panic!("without history nothing tells a part of free memory from another")
        };
        assert_eq!((device, segment, bytes), (DEVICE, low, 2 * MIB));
        allocator.empty_cache().unwrap();
        assert_eq!(problem(&allocator, high).problem, Problem::Foreign);

        allocator.history().record(&HistoryOptions::newest(100).deterministic());
        let again = pair();
        assert_eq!(again, [low, high], "the simulated device repeats itself");
        free_all(&allocator, again);
        let wrong = problem(&allocator, high);
        assert_eq!(wrong.problem, Problem::Freed);
        let actions: Vec<_> = wrong.history.iter().map(|entry| entry.action).collect();
        assert_eq!(
            actions,
            [Action::SegmentAlloc, Action::Alloc, Action::FreeRequested, Action::FreeCompleted],
            "the history of that address, oldest first"
        );
        assert!(wrong.history[1..].iter().all(|entry| (entry.addr, entry.size) == (high.0, 1024)));
        allocator.empty_cache().unwrap();
        assert_eq!(problem(&allocator, high).problem, Problem::Freed, "also once its segment is gone");
        rig.nothing_is_left(&allocator);
    });
}

fn the_history_in_an_error_is_short_and_newest<P: Policy>() {
    on_each(&machine(), |rig| {
        let allocator = rig.with_policy::<P>(Settings::default());
        allocator.history().record(&HistoryOptions::newest(1000).deterministic());
        let mut ptr = DevicePtr::NULL;
        for bytes in 1..=10 {
            ptr = allocator.malloc(bytes, rig.stream()).unwrap();
            allocator.free(ptr).unwrap();
        }
        let sizes: Vec<_> = problem(&allocator, ptr).history.iter().map(|entry| entry.size).collect();
        assert_eq!(sizes, [8, 8, 9, 9, 9, 10, 10, 10]);
        assert_eq!(problem(&allocator, ptr.add(2 * MIB)).history, [], "and of that address only");
        rig.nothing_is_left(&allocator);
    });
}

/// Asks the allocator while it is asked for its frames, which takes every lock.
#[derive(Debug)]
struct Nosy(Weak<alloc_core::CachingAllocator>);

impl CallContext for Nosy {
    fn frames(&self) -> Stack {
        let allocator = self.0.upgrade().expect("the allocator is asking");
        allocator.check_invariants();
        Arc::new([Frame { name: "train".into(), filename: "model.py".into(), line: 7, extra: Vec::new() }])
    }
}

fn frames_are_looked_up_without_a_lock<P: Policy>() {
    on_each(&machine(), |rig| {
        let allocator = rig.with_policy::<P>(Settings::default());
        let weak = Arc::downgrade(&allocator);
        let recorder = move || Some(Arc::new(Nosy(weak.clone())) as Context);
        allocator.history().record(&HistoryOptions {
            max_entries: 100,
            contexts: RecordContext::All,
            recorder: Some(Arc::new(recorder)),
            ..HistoryOptions::default()
        });
        let ptr = allocator.malloc(1024, rig.stream()).unwrap();
        allocator.free(ptr).unwrap();
        let text = problem(&allocator, ptr).to_string();
        assert!(text.contains("free_completed of 1024 bytes"), "{text}");
        assert!(text.contains("model.py:7 train"), "{text}");
        rig.nothing_is_left(&allocator);
    });
}

fn a_block_that_waits_for_other_streams_was_freed_already<P: Policy>() {
    on_each(&machine().clock(Clock::Workers), |rig| {
        let allocator = rig.with_policy::<P>(Settings::default());
        let other = rig.new_stream();
        let gate = rig.hold(other);
        let ptr = allocator.malloc(3000, rig.stream()).unwrap();
        allocator.record_stream(ptr, other).unwrap();
        allocator.free(ptr).unwrap();
        assert_eq!(problem(&allocator, ptr).problem, Problem::PendingFree { requested: 3000 });
        gate.open();
        allocator.synchronise(DEVICE).unwrap();
        assert_eq!(problem(&allocator, ptr).problem, Problem::Freed);
        rig.nothing_is_left(&allocator);
    });
}

#[test]
fn a_pointer_into_a_block_names_the_block() {
    on_each(&machine(), |rig| {
        let allocator = rig.with_policy::<PytorchPolicy>(Settings::default());
        let ptr = allocator.malloc(2000, rig.stream()).unwrap();
        let inside = Problem::InsideBlock { block: ptr, bytes: 2048, requested: 2000 };
        for offset in [1, 512, 2047] {
            let wrong = problem(&allocator, ptr.add(offset));
            assert_eq!(wrong.problem, inside, "at {offset}");
            assert!(wrong.to_string().contains(&format!("inside the live block at {ptr}")), "{wrong}");
        }
        let free = Problem::NotHandedOut { device: DEVICE, segment: ptr, bytes: 2 * MIB };
        for offset in [2048, 2049, 2 * MIB - 1] {
            assert_eq!(problem(&allocator, ptr.add(offset)).problem, free, "at {offset}");
        }
        assert_eq!(problem(&allocator, ptr.add(2 * MIB)).problem, Problem::Foreign);
        allocator.free(ptr).unwrap();
        rig.nothing_is_left(&allocator);
    });
}

fn address_space_without_memory_is_not_handed_out<P: Policy>() {
    on_each(&machine(), |rig| {
        let settings = Settings { expandable_segments: true, ..Settings::default() };
        let allocator = rig.with_policy::<P>(settings);
        let ptr = allocator.malloc(512, rig.stream()).unwrap();
        let wrong = problem(&allocator, ptr.add(8 * MIB)).problem;
        assert_eq!(wrong, Problem::NotHandedOut { device: DEVICE, segment: ptr, bytes: 72 * MIB });
        allocator.free(ptr).unwrap();
        rig.nothing_is_left(&allocator);
    });
}

fn foreign_pointers_are_foreign<P: Policy>() {
    on_each(&machine(), |rig| {
        let (allocator, other) =
            (rig.with_policy::<P>(Settings::default()), rig.with_policy::<P>(Settings::default()));
        let of_driver = rig.backend.malloc(DEVICE, 4096).unwrap();
        let of_host = rig.backend.pinned_host().unwrap().host_malloc(4096, HostFlags::empty()).unwrap();
        let of_other = other.malloc(4096, rig.stream()).unwrap();
        let own = allocator.malloc(512, rig.stream()).unwrap();
        for ptr in
            [of_driver, of_host, of_other, DevicePtr(1), DevicePtr(u64::MAX), DevicePtr(own.0 | 1 << 60)]
        {
            assert_eq!(problem(&allocator, ptr).problem, Problem::Foreign, "{ptr}");
        }
        other.free(of_other).unwrap();
        allocator.free(own).unwrap();
        // SAFETY: rule 3: taken above, used by nobody.
        unsafe { rig.backend.free(DEVICE, of_driver) }.unwrap();
        // SAFETY: as above.
        unsafe { rig.backend.pinned_host().unwrap().host_free(of_host) }.unwrap();
        other.empty_cache().unwrap();
        rig.nothing_is_left(&allocator);
    });
}

fn every_call_with_a_pointer_says_what_is_wrong<P: Policy>() {
    on_each(&machine(), |rig| {
        let allocator = rig.with_policy::<P>(Settings::default());
        let ptr = allocator.malloc(512, rig.stream()).unwrap();
        allocator.free(ptr).unwrap();
        let answers = [
            allocator.record_stream(ptr, rig.new_stream()),
            allocator.history().annotate(ptr, "mine"),
            allocator.base_allocation(ptr).map(drop),
            allocator.free_on(ptr, DEVICE),
        ];
        for answer in answers {
            let Err(AllocError::InvalidPointer(wrong)) = answer else { panic!("{answer:?}") };
            assert_eq!((wrong.ptr, wrong.problem), (ptr, Problem::Freed));
        }
        rig.nothing_is_left(&allocator);
    });
}

fn a_free_on_the_wrong_device_frees_nothing<P: Policy>() {
    on_each(&machine(), |rig| {
        let allocator = rig.with_policy::<P>(Settings::default());
        let ptr = allocator.malloc(512, rig.stream()).unwrap();
        let answer = allocator.free_on(ptr, DeviceIndex(1));
        let Err(error @ AllocError::WrongDevice { .. }) = answer else { panic!("{answer:?}") };
        assert_eq!(
            error.to_string(),
            format!(
                "invalid device pointer: {ptr}: it is a block of device 0, and was to be freed on device 1"
            )
        );
        assert_eq!(allocator.block_size(ptr), Some(512), "it is as live as before");
        assert!(matches!(allocator.free_on(ptr, DeviceIndex(2)), Err(AllocError::InvalidDevice { .. })));
        allocator.free_on(ptr, DEVICE).unwrap();
        assert_eq!(allocator.block_size(ptr), None);
        allocator.free_on(DevicePtr::NULL, DEVICE).unwrap();
        rig.nothing_is_left(&allocator);
    });
}

/// Whoever knows a buffer's address frees nothing and gives nothing away by it; the buffer itself does both.
fn what_a_buffer_has_nobody_else_takes<P: Policy>() {
    on_each(&machine(), |rig| {
        for caching in [true, false] {
            let allocator = rig.with_policy::<P>(Settings { caching, ..Settings::default() });
            let buffer = DeviceBuffer::<u8>::new(&allocator, 3000, rig.stream()).unwrap();
            let ptr = buffer.ptr();
            let wrong = problem(&allocator, ptr);
            assert_eq!(wrong.problem, Problem::Owned);
            assert!(
                wrong.to_string().contains("drop the buffer, or take the address out (into_raw)"),
                "{wrong}"
            );
            for answer in [allocator.free_on(ptr, DEVICE), allocator.sharing().share(ptr).map(drop)] {
                let Err(AllocError::InvalidPointer(wrong)) = answer else { panic!("{answer:?}") };
                assert_eq!((wrong.ptr, wrong.problem), (ptr, Problem::Owned));
            }
            allocator.record_stream(ptr, rig.new_stream()).expect("a use is no harm");
            let other = DeviceBuffer::<u8>::new(&allocator, 3000, rig.stream()).unwrap();
            assert_ne!(other.ptr(), ptr);
            drop(other);
            let raw = buffer.into_raw();
            allocator.free(raw).expect("it is nobody's now");
            let again = DeviceBuffer::<u8>::new(&allocator, 3000, rig.stream()).unwrap().ptr();
            assert!(!matches!(problem(&allocator, again).problem, Problem::Owned), "the buffer is gone");
            allocator.synchronise(DEVICE).unwrap();
            rig.nothing_is_left(&allocator);
        }
    });
}

fn wrong_pointers_are_typed_errors<P: Policy>() {
    let (_device, allocator, stream) = roomy::<P>(Settings::default());
    let ptr = allocator.malloc(4096, stream).unwrap();
    for wrong in [1, ptr.0 + 512, ptr.0 + 1, u64::MAX, 1 << 56, ptr.0 ^ (1 << 63)] {
        assert!(
            matches!(allocator.free(DevicePtr(wrong)), Err(AllocError::InvalidPointer { .. })),
            "{wrong:#x}"
        );
        // A use of a part is a use of the block.
        let inside = (ptr.0..ptr.0 + 4096).contains(&wrong);
        assert_eq!(allocator.record_stream(DevicePtr(wrong), stream).is_ok(), inside, "{wrong:#x}");
        assert!(allocator.base_allocation(DevicePtr(wrong)).is_err());
    }
    allocator.free(DevicePtr::NULL).unwrap();
    allocator.free(ptr).unwrap();
    assert!(allocator.free(ptr).is_err(), "a second free");
    allocator.check_invariants();
}

fn foreign_streams_and_absent_devices_are_refused<P: Policy>() {
    let (device, allocator, stream) = roomy::<P>(Settings::default());
    let foreign = Stream { backend: BackendId::fresh(), ..stream };
    assert!(matches!(allocator.malloc(1, foreign), Err(AllocError::ForeignStream)));
    let absent = Stream { device: DeviceIndex(7), ..stream };
    assert!(matches!(allocator.malloc(1, absent), Err(AllocError::InvalidDevice { .. })));
    assert_eq!(allocator.malloc(0, stream).unwrap(), DevicePtr::NULL);
    assert_eq!(device.calls().get(Call::Malloc), 0);
}

granule_tests::for_each_policy!(
    a_double_free_says_so,
    the_history_in_an_error_is_short_and_newest,
    frames_are_looked_up_without_a_lock,
    a_block_that_waits_for_other_streams_was_freed_already,
    address_space_without_memory_is_not_handed_out,
    foreign_pointers_are_foreign,
    every_call_with_a_pointer_says_what_is_wrong,
    a_free_on_the_wrong_device_frees_nothing,
    what_a_buffer_has_nobody_else_takes,
    wrong_pointers_are_typed_errors,
    foreign_streams_and_absent_devices_are_refused,
);
