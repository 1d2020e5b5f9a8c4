//! What is special about the `granule` policy: the block that was just freed is parked for the next request of its size,
//! and nobody can tell from figures, invariants or errors.
#![allow(clippy::unwrap_used)] // a test says what is wrong by panicking

use alloc_core::backend::Backend;
use alloc_core::config::Settings;
use alloc_core::pointer::Problem;
use alloc_core::policy::GranulePolicy;
use alloc_core::stats::Stat;
use alloc_core::types::{DeviceIndex, DevicePtr, KIB, MIB};
use alloc_core::{AllocError, CachingAllocator};
use backend_openreg::{OpenReg, OpenRegConfig};
use proptest::prelude::*;
use std::sync::Arc;

const DEVICE: DeviceIndex = DeviceIndex(0);

fn machine(virtual_memory: bool) -> (Arc<OpenReg>, CachingAllocator<GranulePolicy>) {
    let config = OpenRegConfig::default().devices(1);
    let config = if virtual_memory { config } else { config.without_virtual_memory() };
    let device = OpenReg::new(config).unwrap();
    let allocator = CachingAllocator::new(device.clone(), Settings::default()).unwrap();
    (device, allocator)
}

fn problem_of(allocator: &CachingAllocator<GranulePolicy>, ptr: DevicePtr) -> Problem {
    match allocator.free(ptr) {
        Err(AllocError::InvalidPointer(bad)) => bad.problem,
        other => panic!("a wrong free came to {other:?}"),
    }
}

#[test]
fn what_was_just_freed_serves_the_next_request_of_its_size() {
    for virtual_memory in [true, false] {
        let (device, allocator) = machine(virtual_memory);
        let stream = device.default_stream(DEVICE);
        let blocks: Vec<_> = (0..4).map(|_| allocator.malloc(64 * KIB, stream).unwrap()).collect();
        allocator.free(blocks[2]).unwrap();
        assert_eq!(allocator.malloc(64 * KIB - 5, stream).unwrap(), blocks[2]);
        // Joined with its neighbour once anything else is asked for.
        allocator.free(blocks[1]).unwrap();
        allocator.free(blocks[2]).unwrap();
        assert_eq!(allocator.malloc(128 * KIB, stream).unwrap(), blocks[1], "two holes side by side are one");
        allocator.check_invariants();
    }
}

#[test]
fn a_parked_block_is_free_to_all_who_ask() {
    for virtual_memory in [true, false] {
        let (device, allocator) = machine(virtual_memory);
        let stream = device.default_stream(DEVICE);
        let [first, second] = [0, 1].map(|_| allocator.malloc(3 * MIB, stream).unwrap());
        allocator.free(second).unwrap();
        assert!(matches!(problem_of(&allocator, second), Problem::Freed | Problem::NotHandedOut { .. }));
        assert_eq!(allocator.block_size(second), None);
        assert!(allocator.record_stream(second, stream).is_err());
        allocator.free(first).unwrap();
        let stats = allocator.stats(DEVICE).unwrap();
        assert_eq!((stats.active.all.current, stats.inactive_split.all.current), (0, 0));
        allocator.free(allocator.malloc(3 * MIB, stream).unwrap()).unwrap();
        allocator.empty_cache().unwrap();
        assert_eq!(device.used(DEVICE), 0, "it goes back like any other");
    }
}

proptest! {
    /// Nobody looks in between, so that blocks stay parked; at the end every figure is what plain counting gives.
    #[test]
    fn figures_are_exact_where_nobody_looked(
        virtual_memory in any::<bool>(),
        steps in prop::collection::vec((any::<bool>(), 0usize..16, prop_oneof![1u64..6, 2040u64..2060], 0u64..512), 1..200),
    ) {
        let (device, allocator) = machine(virtual_memory);
        let stream = device.default_stream(DEVICE);
        let mut live: Vec<(DevicePtr, i64, i64)> = Vec::new();
        let [mut blocks, mut bytes, mut requested] = [Stat::default(); 3];
        for (frees, nth, units, less) in steps {
            if frees && !live.is_empty() {
                let (ptr, size, asked) = live.swap_remove(nth % live.len());
                allocator.free(ptr).unwrap();
                blocks.decrease(1);
                bytes.decrease(size);
                requested.decrease(asked);
            } else {
                let asked = units * 512 - less;
                let ptr = allocator.malloc(asked, stream).unwrap();
                let (size, asked) = (i64::try_from(units * 512).unwrap(), i64::try_from(asked).unwrap());
                let apart = |(other, length, _): &(DevicePtr, i64, i64)| {
                    other.0 + length.unsigned_abs() <= ptr.0 || ptr.0 + size.unsigned_abs() <= other.0
                };
                prop_assert!(live.iter().all(apart), "live blocks do not overlap");
                live.push((ptr, size, asked));
                blocks.increase(1);
                bytes.increase(size);
                requested.increase(asked);
            }
        }
        allocator.check_invariants();
        let stats = allocator.stats(DEVICE).unwrap();
        prop_assert_eq!([stats.allocation.all, stats.active.all], [blocks; 2]);
        prop_assert_eq!([stats.allocated_bytes.all, stats.active_bytes.all], [bytes; 2]);
        prop_assert_eq!(stats.requested_bytes.all, requested);
        for (ptr, ..) in live {
            allocator.free(ptr).unwrap();
        }
        allocator.empty_cache().unwrap();
        allocator.check_invariants();
        prop_assert_eq!(device.used(DEVICE), 0);
    }
}

#[test]
fn a_refused_request_is_not_taken_for_a_need() {
    let (device, allocator) = machine(true);
    let stream = device.default_stream(DEVICE);
    assert!(allocator.malloc(1 << 45, stream).is_err());
    for bytes in [3 * MIB, 3 * MIB] {
        allocator.malloc(bytes, stream).unwrap();
    }
    let reserved = allocator.stats(DEVICE).unwrap().reserved_bytes.all.current;
    assert_eq!(reserved, 6 << 20, "granules are as small as for a program that asked for nothing else");
    allocator.check_invariants();
}
