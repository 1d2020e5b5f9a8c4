//! `malloc_at` where views are: at home and in views it serves exactly the bytes that are free, and refuses all others.

use alloc_core::backend::Backend;
use alloc_core::config::Settings;
use alloc_core::error::AllocError;
use alloc_core::types::{DevicePtr, MIB, Stream};
use backend_openreg::OpenReg;
use granule_conformance::interpose::Interposed;
use granule_tests::Allocator;
use granule_tests::bytes::{Bytes, first_other};
use granule_tests::policy::GranulePolicy;
use granule_tests::rig::{DEVICE, on_each};
use granule_tests::setup::{free_all, mapped};
use granule_tests::views::{Aliases, Numbers, pieces};
use std::sync::Arc;

fn is_refused(allocator: &Allocator, bytes: u64, at: DevicePtr, stream: Stream) -> bool {
    let refused = matches!(allocator.malloc_at(bytes, at, stream), Err(AllocError::ExactAddress { .. }));
    allocator.check_invariants();
    refused
}

#[test]
fn blank_bytes_of_a_view_serve_requests_at_their_address_and_call_no_driver() {
    on_each(&mapped(100), |rig| {
        let (allocator, stream) = (rig.with_policy::<GranulePolicy>(Settings::default()), rig.stream());
        let live = pieces(&allocator, stream, 3, 12);
        let view = allocator.malloc(36 * MIB, stream).unwrap();
        assert!(is_refused(&allocator, 2 * MIB, view, stream), "{}: it is in use", rig.name);
        allocator.free(view).unwrap();
        let calls = rig.device.calls();
        let parts = [(30, 6), (0, 7), (7, 9)];
        let parts = parts.map(|(at, mib)| (view.add(at * MIB), mib * MIB));
        for (at, bytes) in parts {
            assert_eq!(allocator.malloc_at(bytes, at, stream).unwrap(), at, "{}", rig.name);
            allocator.check_invariants();
        }
        assert!(is_refused(&allocator, 15 * MIB, view.add(16 * MIB), stream), "{}: too short", rig.name);
        // Within one granule of the view, where it touches no border of the home's.
        let small = view.add(17 * MIB);
        assert_eq!(allocator.malloc_at(3 << 10, small, stream).unwrap(), small, "{}", rig.name);
        assert_eq!(allocator.malloc_at(MIB, small.add(MIB), stream).unwrap(), small.add(MIB), "{}", rig.name);
        assert!(is_refused(&allocator, MIB, small.add(MIB / 2), stream), "{}: used in part", rig.name);
        allocator.free(small).unwrap();
        allocator.free(small.add(MIB)).unwrap();
        assert!(is_refused(&allocator, 2 * MIB, view.add(35 * MIB), stream), "{}: beyond its end", rig.name);
        // Its bytes have a home, and whoever has them there has them everywhere.
        let rest = allocator.malloc(14 * MIB, stream).unwrap();
        assert!(is_refused(&allocator, 14 * MIB, view.add(16 * MIB), stream), "{}: used at home", rig.name);
        assert_eq!(rig.device.calls().since(&calls).total(), 0, "{}", rig.name);
        for (at, bytes) in parts {
            rig.use_memory(stream, at, bytes);
            allocator.free(at).unwrap();
        }
        free_all(&allocator, live.into_iter().chain([rest]));
        rig.nothing_is_left(&allocator);
    });
}

/// A block, its size, and the byte that fills it.
type Filled = (DevicePtr, u64, u8);

fn check_all(bytes: &Bytes<'_>, live: &[Filled]) {
    for (ptr, size, with) in live {
        let wrong = first_other(&bytes.read(*ptr, *size), *with);
        assert_eq!(wrong, None, "somebody wrote into the block at {ptr}");
    }
}

#[test]
fn exact_places_are_never_shared_and_what_was_just_freed_can_be_had_again() {
    for seed in 1..=4 {
        let aliases = Arc::new(Interposed::new(OpenReg::new(mapped(48)).unwrap(), Aliases::default()));
        let allocator = granule_tests::made::<GranulePolicy>(aliases.clone(), Settings::default()).unwrap();
        let stream = aliases.create_stream(DEVICE, 0).unwrap();
        let bytes = Bytes(&*aliases);
        let (mut numbers, mut live, mut known) = (Numbers(seed), Vec::<Filled>::new(), Vec::new());
        let (mut placed, mut refused) = (0, 0);
        for step in 0..400_u32 {
            let with = (step % 251) as u8 + 1;
            let (dice, pick) = (numbers.below(16), numbers.below(1 << 32));
            let got = match dice {
                0..4 => {
                    let size = MIB + numbers.below(15 * MIB);
                    allocator.malloc(size, stream).ok().map(|ptr| (ptr, size))
                }
                // Somewhere in a block that was there once, of any size up to twice its own.
                4..10 if !known.is_empty() => {
                    let (ptr, size): (DevicePtr, u64) = known[pick as usize % known.len()];
                    let at = ptr.add(numbers.below(3) * (size / 4) / 512 * 512);
                    let size = MIB + 1 + numbers.below(2 * size);
                    match allocator.malloc_at(size, at, stream) {
                        Ok(ptr) => {
                            assert_eq!(ptr, at);
                            placed += 1;
                            Some((ptr, size))
                        }
                        Err(AllocError::ExactAddress { .. }) => {
                            refused += 1;
                            None
                        }
                        Err(error) => panic!("{error}"),
                    }
                }
                _ if !live.is_empty() => {
                    let (ptr, size, with) = live.swap_remove(pick as usize % live.len());
                    check_all(&bytes, &[(ptr, size, with)]);
                    allocator.free(ptr).unwrap();
                    if dice == 10 {
                        assert_eq!(allocator.malloc_at(size, ptr, stream).unwrap(), ptr, "it is free");
                        Some((ptr, size))
                    } else {
                        None
                    }
                }
                _ => None,
            };
            if let Some((ptr, size)) = got {
                bytes.fill(stream, ptr, with, size);
                live.push((ptr, size, with));
                known.push((ptr, size));
            }
            allocator.check_invariants();
        }
        assert!(placed > 10 && refused > 10, "both happen: {placed} and {refused}");
        assert!(aliases.hook().count() > 10, "views are common: {}", aliases.hook().count());
        check_all(&bytes, &live);
        for (ptr, ..) in live {
            allocator.free(ptr).unwrap();
        }
        allocator.empty_cache().unwrap();
        allocator.check_invariants();
    }
}
