//! Shared blocks that lie in views of free memory.

use crate::lifetimes::{Side, sides};
use alloc_core::backend::Backend;
use alloc_core::config::Settings;
use alloc_core::share::SharedBlock;
use alloc_core::types::{DevicePtr, MIB};
use granule_tests::bytes::{Bytes, pattern};
use granule_tests::policy::GranulePolicy;
use granule_tests::rig::DEVICE;
use granule_tests::views::{is_no_load, pieces};
use std::sync::Arc;

type Both = (Side, Side);

/// The owner shares a block of `mib` MiB that was free in pieces; also what keeps the pieces apart.
fn shown(mib: u64) -> (Both, DevicePtr, SharedBlock, Vec<DevicePtr>) {
    let (owner, user) = sides::<GranulePolicy>(Settings::default());
    let live = pieces(&owner.allocator, owner.stream, 3, 12);
    let used = owner.machine.used(DEVICE);
    let (block, shared) = owner.shared(mib * MIB);
    assert_eq!(owner.machine.used(DEVICE), used, "it lies in a view");
    ((owner, user), block, shared, live)
}

fn nothing_is_left(owner: &Side, live: Vec<DevicePtr>) {
    live.into_iter().for_each(|ptr| owner.allocator.free(ptr).unwrap());
    owner.allocator.empty_cache().unwrap();
    owner.allocator.check_invariants();
    assert_eq!((owner.machine.used(DEVICE), owner.machine.traps()), (0, Vec::new()));
}

#[test]
fn all_of_a_block_is_seen_and_what_it_does_not_touch_is_not_mapped() {
    let ((owner, user), block, shared, live) = shown(30);
    let bytes = Bytes(&*owner.machine);
    bytes.write(block, &pattern(5, 30 * MIB));
    let opened = user.open(&shared);
    assert!(opened.bytes() < 40 * MIB, "only its granules: {}", opened.bytes());
    let there = opened.base().add(shared.offset);
    assert_eq!(Bytes(&*user.machine).read(there, 30 * MIB), pattern(5, 30 * MIB));
    Bytes(&*user.machine).write(there, &pattern(6, 30 * MIB));
    assert_eq!(bytes.read(block, 30 * MIB), pattern(6, 30 * MIB));
    assert_eq!(owner.allocator.sharing().share(block).unwrap(), shared, "the same bytes on every call");
    drop(opened);
    assert_eq!(user.machine.traps(), Vec::new());
    nothing_is_left(&owner, live.into_iter().chain([block]).collect());
}

#[test]
fn what_others_have_open_stays_out_of_use_at_home_and_in_every_other_view() {
    let ((owner, user), block, shared, live) = shown(36);
    Bytes(&*owner.machine).write(block, &pattern(5, 36 * MIB));
    let opened = user.open(&shared);
    owner.allocator.free(block).unwrap();
    let other = owner.machine.create_stream(DEVICE, 0).unwrap();
    let mut taken = Vec::new();
    // On its own stream, on another one, and until nothing is left.
    for (mib, stream) in [(36, owner.stream), (30, other), (4, owner.stream), (12, other)] {
        let ptr = owner.allocator.malloc(mib * MIB, stream).unwrap();
        Bytes(&*owner.machine).fill(stream, ptr, 99, mib * MIB);
        taken.push(ptr);
        owner.allocator.check_invariants();
    }
    while let Ok(ptr) = owner.allocator.malloc(10 * MIB, other) {
        Bytes(&*owner.machine).fill(other, ptr, 98, 10 * MIB);
        taken.push(ptr);
    }
    owner.allocator.empty_cache().unwrap();
    owner.allocator.check_invariants();
    for stream in [owner.stream, other] {
        owner.machine.synchronize_stream(stream).unwrap();
    }
    let there = opened.base().add(shared.offset);
    assert_eq!(Bytes(&*user.machine).read(there, 36 * MIB), pattern(5, 36 * MIB));
    assert!(owner.allocator.malloc(36 * MIB, owner.stream).unwrap_err().is_out_of_memory());
    drop(opened);
    let again = owner.allocator.malloc(36 * MIB, owner.stream).expect("nobody has it open any more");
    nothing_is_left(&owner, live.into_iter().chain(taken).chain([again]).collect());
}

#[test]
fn a_granule_is_shared_by_blocks_at_home_and_in_views_at_the_same_time() {
    let (owner, user) = sides::<GranulePolicy>(Settings::default());
    let live = pieces(&owner.allocator, owner.stream, 3, 6);
    // The granules at the ends of holes are their neighbours', too.
    let views: Vec<_> = [9, 8].map(|mib| owner.shared(mib * MIB)).into_iter().collect();
    let homes: Vec<_> =
        live.iter().map(|ptr| (*ptr, owner.allocator.sharing().share(*ptr).unwrap())).collect();
    let all: Vec<_> = views.into_iter().chain(homes).collect();
    let bytes = Bytes(&*owner.machine);
    let mut opened: Vec<_> = (1..)
        .zip(&all)
        .map(|(value, (ptr, shared))| {
            bytes.write(*ptr, &[value; 512]);
            (user.open(shared), shared.offset, value)
        })
        .collect();
    owner.allocator.check_invariants();
    let half = all.len() / 2;
    for (ptr, _) in &all[..half] {
        owner.allocator.free(*ptr).unwrap();
    }
    for _ in 0..half {
        opened.remove(0);
        owner.allocator.poll(DEVICE).unwrap();
        owner.allocator.check_invariants();
        for (import, offset, value) in &opened {
            let found = Bytes(&*user.machine).read(import.base().add(*offset), 512);
            assert_eq!(found, [*value; 512]);
        }
    }
    opened.clear();
    nothing_is_left(&owner, all[half..].iter().map(|(ptr, _)| *ptr).collect());
}

#[test]
fn granules_of_several_sizes_are_shared_side_by_side() {
    let (owner, user) = sides::<GranulePolicy>(Settings::default());
    // What is loaded has larger granules than what comes after.
    let loaded: Vec<_> = (0..12).map(|_| owner.allocator.malloc(12 * MIB, owner.stream).unwrap()).collect();
    is_no_load(&owner.allocator, owner.stream);
    let later = pieces(&owner.allocator, owner.stream, 2, 12);
    let (gone, mut live): (Vec<_>, Vec<_>) = loaded.into_iter().enumerate().partition(|(n, _)| n % 2 == 0);
    gone.into_iter().for_each(|(_, ptr)| owner.allocator.free(ptr).unwrap());
    let shared = (0..6).find_map(|_| {
        let (block, shared) = owner.shared(40 * MIB);
        if shared.handle[1] == b'v' {
            return Some((block, shared));
        }
        live.push((0, block));
        None
    });
    let (block, shared) = shared.expect("some view has granules of several sizes");
    Bytes(&*owner.machine).write(block, &pattern(8, 40 * MIB));
    let opened = user.open(&shared);
    let there = opened.base().add(shared.offset);
    assert_eq!(Bytes(&*user.machine).read(there, 40 * MIB), pattern(8, 40 * MIB));
    assert!(Arc::ptr_eq(&opened, &user.open(&owner.allocator.sharing().share(block).unwrap())));
    owner.allocator.free(block).unwrap();
    drop(opened);
    let live = live.into_iter().map(|(_, ptr)| ptr).chain(later).collect();
    nothing_is_left(&owner, live);
}

#[test]
fn memory_outlives_the_allocator_and_its_views_while_it_is_open() {
    let ((owner, user), block, shared, live) = shown(36);
    Bytes(&*owner.machine).write(block, &pattern(4, 36 * MIB));
    let opened = user.open(&shared);
    live.into_iter().chain([block]).for_each(|ptr| owner.allocator.free(ptr).unwrap());
    drop(owner.allocator);
    let there = opened.base().add(shared.offset);
    assert_eq!(Bytes(&*user.machine).read(there, 36 * MIB), pattern(4, 36 * MIB));
}
