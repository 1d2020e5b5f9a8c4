//! Free memory of one stream for another, under the `granule` policy.

use alloc_core::config::{CrossStream, Settings};
use alloc_core::types::{MIB, PoolId, Stream};
use backend_openreg::{Call, Clock, MemoryMode, OpenReg};
use granule_conformance::interpose::Interposed;
use granule_snapshot::trace::Event;
use granule_tests::fault_loop::{self, Simulated};
use granule_tests::policy::GranulePolicy;
use granule_tests::rig::{Rig, on_each};
use granule_tests::setup::{free_all, of};
use granule_tests::views::{Aliases, allocator, contents_survive, is_no_load, pieces};
use granule_tests::{Allocator, rig};
use std::sync::Arc;

/// Allocates and frees blocks of so many MiB on a stream that has work with them, which ends.
fn passes(rig: &Rig, allocator: &Allocator, stream: Stream, mib: &[u64]) {
    let blocks: Vec<_> = mib.iter().map(|mib| allocator.malloc(mib * MIB, stream).unwrap()).collect();
    blocks.iter().for_each(|block| rig.use_memory(stream, *block, MIB));
    rig.backend.synchronize_stream(stream).unwrap();
    free_all(allocator, blocks);
    allocator.check_invariants();
}

#[test]
fn memory_that_goes_to_and_fro_is_mapped_once_for_each_stream() {
    on_each(&of(110), |rig| {
        let (allocator, stream, other) = (allocator(rig), rig.stream(), rig.new_stream());
        let live = pieces(&allocator, stream, 3, 12);
        let round = || {
            passes(rig, &allocator, stream, &[36]);
            passes(rig, &allocator, other, &[24, 12]);
            passes(rig, &allocator, stream, &[12, 12, 12]);
            passes(rig, &allocator, other, &[36]);
        };
        (0..3).for_each(|_| round());
        let (used, before) = (rig.used(), rig.device.calls());
        (0..5).for_each(|_| round());
        let calls = rig.device.calls().since(&before);
        let changes = [Call::Map, Call::Unmap, Call::CreatePhysical, Call::ReleasePhysical, Call::SetAccess];
        assert_eq!(changes.map(|call| calls.get(call)), [0; 5], "{}: it is mapped for both", rig.name);
        assert_eq!(rig.used(), used, "{}", rig.name);
        free_all(&allocator, live);
        rig.nothing_is_left(&allocator);
    });
}

#[test]
fn memory_leaves_the_device_wherever_it_served() {
    on_each(&of(110), |rig| {
        let (allocator, stream, other) = (allocator(rig), rig.stream(), rig.new_stream());
        let live = pieces(&allocator, stream, 3, 12);
        passes(rig, &allocator, other, &[36]);
        // Away from the first stream, and shown there in a view.
        passes(rig, &allocator, stream, &[36]);
        let block = allocator.malloc(24 * MIB, other).unwrap();
        allocator.empty_cache().unwrap();
        allocator.check_invariants();
        assert_eq!(rig.used(), 60 * MIB, "{}: what is in use stays, and nothing else", rig.name);
        allocator.free(block).unwrap();
        free_all(&allocator, live);
        rig.nothing_is_left(&allocator);
    });
}

/// What a request of another stream takes from the device while 60 MiB lie free on a stream that is held up, or not; and how
/// often a stream was told to wait.
fn taken(how: CrossStream, held_up: bool) -> (u64, u64) {
    // Streams work by themselves, so that one can be held up.
    let rig = Rig::openreg(of(400).clock(Clock::Workers));
    let settings = Settings { cross_stream: how, ..Settings::default() };
    let allocator = rig.with_policy::<GranulePolicy>(settings);
    let (stream, other) = (rig.stream(), rig.new_stream());
    is_no_load(&allocator, stream);
    let first = allocator.malloc(60 * MIB, stream).unwrap();
    let gate = held_up.then(|| rig.hold(stream));
    rig.use_memory(stream, first, 60 * MIB);
    if gate.is_none() {
        rig.backend.synchronize_stream(stream).unwrap();
    }
    allocator.free(first).unwrap();
    let (used, before) = (rig.used(), rig.device.calls());
    let second = allocator.malloc(48 * MIB, other).unwrap();
    allocator.check_invariants();
    let waits = rig.device.calls().since(&before).get(Call::WaitEvent);
    rig.use_memory(other, second, 48 * MIB);
    rig.backend.synchronize_stream(other).unwrap();
    drop(gate);
    let taken = rig.used() - used;
    allocator.free(second).unwrap();
    rig.nothing_is_left(&allocator);
    (taken / MIB, waits)
}

#[test]
fn a_stream_takes_what_settings_say_of_another() {
    for held_up in [false, true] {
        let (taken, waits) = taken(CrossStream::Never, held_up);
        assert!(taken >= 48, "each stream keeps its own: {taken}");
        assert_eq!(waits, 0);
    }
    assert_eq!(taken(CrossStream::Completed, false), (0, 0), "the device is done with it");
    let (more, waits) = taken(CrossStream::Completed, true);
    assert!(more >= 48, "nothing is taken from under work that waits for the younger stream: {more}");
    assert_eq!(waits, 0, "no stream is told to wait");
}

#[test]
fn no_two_live_blocks_share_a_byte_whichever_stream_had_them() {
    for cross_stream in CrossStream::ALL {
        for (seed, lag) in [(3, 0), (4, 7), (5, 40)] {
            let config = of(48).memory(MemoryMode::Mapped).clock(Clock::Virtual { lag });
            let machine = OpenReg::new(config).unwrap();
            let settings = Settings { cross_stream: *cross_stream, ..Settings::default() };
            let shown = contents_survive::<GranulePolicy>(machine.clone(), settings, seed, 400);
            assert!(shown > 10, "memory is mapped in two places: {shown}");
            assert_eq!((machine.used(rig::DEVICE), machine.traps()), (0, Vec::new()));
        }
    }
}

#[test]
fn a_checkpoint_is_refused_whose_memory_serves_another_stream() {
    on_each(&of(80), |rig| {
        let (allocator, stream, other) = (allocator(rig), rig.stream(), rig.new_stream());
        let live = pieces(&allocator, stream, 2, 12);
        let gone = allocator.malloc(12 * MIB, stream).unwrap();
        let saved = allocator.pools().checkpoint(rig::DEVICE, PoolId::DEFAULT).unwrap();
        allocator.free(gone).unwrap();
        rig.backend.synchronize_stream(stream).unwrap();
        let elsewhere = allocator.malloc(44 * MIB, other).unwrap();
        let refused = allocator.pools().restore(&saved, None).unwrap_err();
        assert!(refused.to_string().contains("was given back since"), "{}: {refused}", rig.name);
        allocator.check_invariants();
        free_all(&allocator, live.into_iter().chain([elsewhere]));
        rig.nothing_is_left(&allocator);
    });
}

/// An arena that was found to have nothing free for others was not looked at again after a restore had freed its blocks.
#[test]
fn what_a_restore_frees_serves_other_streams() {
    on_each(&of(400), |rig| {
        let (allocator, stream, other) = (allocator(rig), rig.stream(), rig.new_stream());
        let empty = allocator.pools().checkpoint(rig::DEVICE, PoolId::DEFAULT).unwrap();
        allocator.malloc(48 * MIB, stream).unwrap();
        // Misses: the first takes what the other stream has left, later ones find nothing there.
        for _ in 0..4 {
            allocator.malloc(40 * MIB, other).unwrap();
        }
        allocator.pools().restore(&empty, None).unwrap();
        let used = rig.used();
        let elsewhere = allocator.malloc(200 * MIB, other).unwrap();
        assert_eq!(rig.used(), used, "{}: nothing is taken from the device", rig.name);
        allocator.check_invariants();
        allocator.free(elsewhere).unwrap();
        rig.nothing_is_left(&allocator);
    });
}

#[test]
fn granules_of_every_size_stay_free_where_a_device_maps_nothing_twice() {
    let device = OpenReg::new(of(160)).unwrap();
    let backend = Arc::new(Interposed::new(device.clone(), Aliases::refused()));
    let rig = Rig { name: "no aliases", device, backend };
    let (allocator, stream, other) = (allocator(&rig), rig.stream(), rig.new_stream());
    // Granules of a program that loads, and of one that does not.
    let first = allocator.malloc(112 * MIB, stream).unwrap();
    allocator.free(first).unwrap();
    let [low, high] = [100, 12].map(|mib| allocator.malloc(mib * MIB, stream).unwrap());
    let small = [8, 8].map(|mib| allocator.malloc(mib * MIB, stream).unwrap());
    free_all(&allocator, [low, high].into_iter().chain(small));
    rig.backend.synchronize_stream(stream).unwrap();
    let elsewhere = allocator.malloc(150 * MIB, other).expect("what is cached makes room");
    allocator.check_invariants();
    allocator.free(elsewhere).unwrap();
    rig.nothing_is_left(&allocator);
}

/// Two streams that take turns with what the other had, on a device that both together do not fit.
fn taking_turns() -> Vec<Event> {
    let mut events = Vec::new();
    let mut next = 0;
    for round in 0..4 {
        for (stream, sizes) in [(0, [30, 8, 16]), (1, [12, 40, 6]), (0, [52, 3, 2]), (1, [26, 26, 4])] {
            let ids = next..next + sizes.len() as u64;
            let sizes = sizes.into_iter().map(|mib: u64| (mib + round % 2) * MIB);
            events.extend(ids.clone().zip(sizes).map(|(id, size)| Event::Alloc { id, size, stream }));
            // So that the other stream has work when memory of it is wanted.
            events.push(Event::RecordStream { id: ids.start, stream: 1 - stream });
            next = ids.end;
            events.extend(ids.map(|id| Event::Free { id }));
        }
        if round == 2 {
            events.push(Event::EmptyCache);
        }
    }
    events
}

#[test]
fn every_driver_call_of_a_hand_over_may_fail() {
    let events = taking_turns();
    let run = |k| {
        let machine =
            Simulated { device: OpenReg::new(of(80).clock(Clock::Virtual { lag: 0 })).unwrap(), lag: 0 };
        let outcome = fault_loop::run::<GranulePolicy>(
            &machine,
            &events,
            &Settings::default(),
            k,
            fault_loop::kind_of(k),
        );
        (outcome, machine.device.calls())
    };
    let (all, calls) = run(0);
    assert!(calls.get(Call::Map) > calls.get(Call::CreatePhysical), "memory moves between the streams");
    let struck = (1..=all.calls).filter(|k| run(*k).0.struck).count();
    println!("{} calls failed in turn, {struck} operations noticed", all.calls);
}
