//! A device that shares the host's memory: device memory and pinned memory within one limit. What is idle, or on its way, on either
//! side serves the other, whoever moves it at the moment.

use crate::explore::explore_integrated;
use crate::rig::{DEVICE, Rig};
use alloc_core::config::MemoryLimit;
use alloc_core::host::HostAllocator;
use alloc_core::types::MIB;
use std::sync::atomic::{AtomicU32, Ordering};

/// Runs a scenario with an allocator of pinned memory, and 60 MiB for both.
fn within_60(rig: &Rig, scenario: impl FnOnce(&HostAllocator)) {
    let limit = Some(MemoryLimit::Bytes(60 * MIB));
    rig.allocator.set_memory_limits(DEVICE, limit, None).unwrap();
    let host = rig.pinning();
    scenario(&host);
    host.empty_cache().unwrap();
    // Nothing is counted that is not there.
    rig.churn(60 * MIB, rig.home());
}

fn pin_and_free(host: &HostAllocator, bytes: u64) {
    let pinned = host.allocate(bytes).unwrap_or_else(|error| panic!("there is memory: {error}"));
    host.free(pinned.id).unwrap();
}

#[test]
fn no_false_refusal_while_another_thread_gives_pinned_memory_back() {
    explore_integrated(200, |rig| {
        within_60(rig, |host| {
            pin_and_free(host, 32 * MIB);
            let needs = || rig.churn(40 * MIB, rig.home());
            let flushes = || host.empty_cache().unwrap();
            rig.together(&[&needs, &flushes]);
        });
    });
}

#[test]
fn no_false_refusal_of_pinned_memory_while_another_thread_flushes() {
    explore_integrated(200, |rig| {
        within_60(rig, |host| {
            rig.churn(40 * MIB, rig.home());
            rig.device.advance(64);
            let needs = || pin_and_free(host, 32 * MIB);
            let flushes = || rig.allocator.empty_cache().unwrap();
            rig.together(&[&needs, &flushes]);
        });
    });
}

/// What both need at one time is there. Each has what the other needs.
#[test]
fn no_false_refusal_while_each_side_needs_what_the_other_has() {
    explore_integrated(200, |rig| {
        within_60(rig, |host| {
            rig.churn(20 * MIB, rig.stream());
            pin_and_free(host, 32 * MIB);
            rig.device.advance(64);
            let needs = || rig.churn(40 * MIB, rig.home());
            let pins = || pin_and_free(host, 16 * MIB);
            let flushes = || host.empty_cache().unwrap();
            rig.together(&[&needs, &pins, &flushes]);
        });
    });
}

/// Only one of them fits at a time: whoever is refused, another has the memory.
#[test]
fn one_of_two_kinds_is_served() {
    explore_integrated(200, |rig| {
        within_60(rig, |host| {
            let served = AtomicU32::new(0);
            let needs = || match rig.try_take(40 * MIB, rig.home()) {
                Ok(block) => {
                    served.fetch_add(1, Ordering::Relaxed);
                    rig.give(block);
                }
                Err(error) => assert!(error.is_out_of_memory(), "{error}"),
            };
            let pins = || match host.allocate(32 * MIB) {
                Ok(pinned) => {
                    served.fetch_add(1, Ordering::Relaxed);
                    host.free(pinned.id).unwrap();
                }
                Err(error) => assert!(error.is_out_of_memory(), "{error}"),
            };
            rig.together(&[&needs, &pins]);
            assert!(served.into_inner() > 0, "both were refused");
        });
    });
}
