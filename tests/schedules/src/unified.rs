//! A device that shares the host's memory: device memory and pinned memory within one limit. What is idle, or on its way, on either
//! side serves the other, whoever moves it at the moment.

use crate::explore::explore_integrated;
use crate::rig::{DEVICE, Rig};
use alloc_core::config::{MemoryLimit, Settings};
use alloc_core::host::HostAllocator;
use alloc_core::types::MIB;
use std::sync::atomic::{AtomicU32, Ordering};

/// Runs a scenario with an allocator of pinned memory, and 60 MiB for both.
fn within_60(rig: &Rig, scenario: impl FnOnce(&HostAllocator)) {
    within_60_with(rig, &Settings::default(), scenario);
}

fn within_60_with(rig: &Rig, settings: &Settings, scenario: impl FnOnce(&HostAllocator)) {
    let limit = Some(MemoryLimit::Bytes(60 * MIB));
    rig.allocator.set_memory_limits(DEVICE, limit, None).unwrap();
    let host = rig.pinning(settings);
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

/// Runs a scenario with 32 MiB of pinned memory that was given back, and that a stream is done with.
fn with_a_finished_use(rig: &Rig, settings: &Settings, scenario: impl FnOnce(&HostAllocator)) {
    within_60_with(rig, settings, |host| {
        let used = host.allocate(32 * MIB).unwrap();
        host.record_event(used.ptr, used.id, rig.home()).unwrap();
        host.free(used.id).unwrap();
        rig.device.advance(64);
        scenario(host);
    });
}

#[test]
fn no_false_refusal_while_another_thread_notices_a_finished_use() {
    explore_integrated(200, |rig| {
        with_a_finished_use(rig, &Settings::default(), |host| {
            let needs = || rig.churn(40 * MIB, rig.home());
            let notices = || host.poll().unwrap();
            rig.together(&[&needs, &notices]);
        });
    });
}

/// Pinned memory that is not cached goes back to the driver at once.
#[test]
fn no_false_refusal_while_another_thread_gives_back_what_is_not_cached() {
    explore_integrated(200, |rig| {
        let (pinned_max_cached_size, pinned_max_round_threshold) = (MIB, MIB);
        let settings = Settings { pinned_max_cached_size, pinned_max_round_threshold, ..Settings::default() };
        with_a_finished_use(rig, &settings, |host| {
            let needs = || rig.churn(40 * MIB, rig.home());
            let waits = || host.synchronise().unwrap();
            let notices = || host.poll().unwrap();
            rig.together(&[&needs, &waits, &notices]);
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
