//! Programs that repeat, or nearly, under the `granule` policy: equal ones are placed alike, and nobody's bytes are another's.

use alloc_core::backend::Backend;
use alloc_core::config::Settings;
use alloc_core::types::{DevicePtr, MIB, Stream};
use backend_openreg::{Clock, MemoryMode, OpenReg};
use granule_conformance::interpose::Interposed;
use granule_tests::bytes::{Bytes, first_other};
use granule_tests::policy::GranulePolicy;
use granule_tests::rig::DEVICE;
use granule_tests::setup::of;
use granule_tests::views::{Aliases, Numbers};
use granule_tests::{Allocator, with_policy};
use std::sync::Arc;

#[derive(Clone, Copy, Debug)]
enum Step {
    Allocate(u64),
    /// The n-th block of the pass.
    Free(usize),
}

/// A pass of `length` steps over blocks of many sizes, up to `most` bytes at once. All of them are freed, the last ones at
/// its end.
fn pass(seed: u64, length: usize, most: u64, largest: u64) -> Vec<Step> {
    let mut numbers = Numbers(seed);
    let (mut steps, mut live, mut bytes, mut count) = (Vec::new(), Vec::new(), 0, 0);
    for _ in 0..length {
        let size = match numbers.below(4) {
            0 => 2 * MIB + numbers.below(largest),
            _ => MIB + 512 + numbers.below(largest / 6),
        };
        if bytes + size <= most && numbers.below(5) < 3 {
            steps.push(Step::Allocate(size));
            live.push((count, size));
            count += 1;
            bytes += size;
        } else if !live.is_empty() {
            let at = usize::try_from(numbers.below(live.len() as u64)).unwrap();
            let (number, size) = live.swap_remove(at);
            bytes -= size;
            steps.push(Step::Free(number));
        }
    }
    steps.extend(live.into_iter().map(|(number, _)| Step::Free(number)));
    steps
}

/// Runs a pass but for its last frees: those blocks are freed by the next pass, some way into it. Returns all addresses.
fn run(allocator: &Allocator, stream: Stream, steps: &[Step], left: &mut Vec<DevicePtr>) -> Vec<DevicePtr> {
    const AT_ITS_END: usize = 12;
    let mut blocks = Vec::new();
    for (at, step) in steps.iter().enumerate() {
        if at == 40 {
            left.drain(..).for_each(|ptr| allocator.free(ptr).unwrap());
        }
        match *step {
            Step::Allocate(size) => blocks.push(allocator.malloc(size, stream).unwrap()),
            Step::Free(number) if at + AT_ITS_END >= steps.len() => left.push(blocks[number]),
            Step::Free(number) => allocator.free(blocks[number]).unwrap(),
        }
    }
    allocator.check_invariants();
    blocks
}

#[test]
fn equal_programs_are_placed_alike() {
    let places = || {
        let (_device, allocator, stream) = with_policy::<GranulePolicy>(of(4096), Settings::default());
        let passes = [5, 6].map(|seed| pass(seed, 400, 500 * MIB, 60 * MIB));
        let mut left = Vec::new();
        let turns = (0..6).map(|turn| run(&allocator, stream, &passes[turn % 2], &mut left));
        turns.collect::<Vec<_>>()
    };
    assert_eq!(places(), places());
}

/// A block, its bytes, and what fills it.
type Filled = (DevicePtr, u64, u8);

/// Programs that nearly repeat, on real bytes: where a block was before, others are now, or nothing is mapped any more. Every block
/// is full of a byte of its own, and read when it is freed.
fn contents_survive(seed: u64, lag: u64) -> u64 {
    let config = of(64).memory(MemoryMode::Mapped).clock(Clock::Virtual { lag });
    let backend = Arc::new(Interposed::new(OpenReg::new(config).unwrap(), Aliases::default()));
    let allocator = granule_tests::made::<GranulePolicy>(backend.clone(), Settings::default()).unwrap();
    let stream = backend.create_stream(DEVICE, 0).unwrap();
    let bytes = Bytes(&*backend);
    let mut numbers = Numbers(seed);
    let check_and_free = |(ptr, size, with): Filled| {
        backend.synchronize_stream(stream).unwrap();
        let wrong = first_other(&bytes.read(ptr, size), with);
        assert_eq!(wrong, None, "somebody wrote into the block at {ptr}");
        allocator.free(ptr).unwrap();
    };
    let steps = pass(seed, 200, 36 * MIB, 12 * MIB);
    let mut strays: Vec<Filled> = Vec::new();
    for turn in 0..5 {
        let mut blocks: Vec<Option<Filled>> = Vec::new();
        for (at, step) in steps.iter().enumerate() {
            let with = (numbers.below(251) + 1) as u8;
            match *step {
                Step::Allocate(size) => {
                    let ptr = allocator.malloc(size, stream).ok();
                    blocks.push(ptr.map(|ptr| {
                        bytes.fill(stream, ptr, with, size);
                        (ptr, size, with)
                    }));
                }
                Step::Free(number) => blocks[number].take().into_iter().for_each(check_and_free),
            }
            // Somebody else sits down in between.
            if turn > 1 && numbers.below(24) == 0 {
                let size = MIB + numbers.below(4 * MIB);
                if let Ok(ptr) = allocator.malloc(size, stream) {
                    bytes.fill(stream, ptr, with, size);
                    strays.push((ptr, size, with));
                }
            }
            if strays.len() > 3 {
                check_and_free(strays.swap_remove(0));
            }
            if at % 16 == 0 {
                allocator.check_invariants();
            }
        }
        if turn == 3 {
            // Views are not there any more, and their numbers are others'.
            allocator.empty_cache().unwrap();
        }
    }
    strays.into_iter().for_each(check_and_free);
    allocator.empty_cache().unwrap();
    allocator.check_invariants();
    backend.hook().count()
}

#[test]
fn no_byte_of_a_program_that_nearly_repeats_is_handed_out_twice() {
    for (seed, lag) in [(1, 0), (2, 0), (3, 5), (4, 40)] {
        let views = contents_survive(seed, lag);
        assert!(views > 5, "views are common: {views}");
    }
}
