//! A device that is nearly full: what can be had is had, whoever moves memory at the moment. Growable segments take large
//! memory in units of 20 MiB, so all sizes here are multiples of that.

use crate::explore::{explore, explore_fixed_granules};
use crate::rig::{DEVICE, Rig};
use alloc_core::config::MemoryLimit;
use alloc_core::types::MIB;
use std::sync::atomic::{AtomicU32, Ordering};

/// Half of the device is cached for another stream; it is flushed by one of three, or by all.
#[test]
fn no_false_refusal_while_another_thread_flushes() {
    explore(80, |rig| {
        let (home, other) = (rig.home(), rig.stream());
        rig.churn(40 * MIB, home);
        let needs = || rig.churn(60 * MIB, other);
        let flushes = || rig.allocator.empty_cache().unwrap();
        rig.together(&[&needs, &flushes, &flushes]);
    });
}

/// What both need at one time is there.
#[test]
fn no_false_refusal_while_another_thread_grows() {
    explore(80, |rig| {
        let streams = [rig.home(), rig.stream()];
        rig.churn(40 * MIB, streams[0]);
        let needs = |stream| {
            move || {
                rig.churn(20 * MIB, stream);
                rig.churn(40 * MIB, stream);
            }
        };
        rig.together(&[&needs(streams[0]), &needs(streams[1])]);
    });
}

/// All that would fit waits for another stream.
#[test]
fn no_false_refusal_while_what_fits_is_pending() {
    explore(80, |rig| {
        let (home, other) = (rig.home(), rig.stream());
        let used = rig.take(60 * MIB, home);
        rig.use_on(used, other);
        rig.give(used);
        let needs = || rig.churn(40 * MIB, home);
        let drains = || rig.allocator.synchronise(DEVICE).unwrap();
        let polls = || {
            rig.device.advance(8);
            rig.churn(1 << 20, other);
            rig.allocator.poll(DEVICE).unwrap();
        };
        rig.together(&[&needs, &drains, &polls]);
    });
}

/// Only one of them fits at a time: whoever is refused, another has the memory.
#[test]
fn one_of_two_is_served() {
    explore(80, |rig| {
        let streams = [rig.home(), rig.stream()];
        let served = AtomicU32::new(0);
        let needs = |stream| {
            let served = &served;
            move || match rig.try_take(60 * MIB, stream) {
                Ok(block) => {
                    served.fetch_add(1, Ordering::Relaxed);
                    rig.give(block);
                }
                Err(error) => assert!(error.is_out_of_memory(), "{error}"),
            }
        };
        rig.together(&[&needs(streams[0]), &needs(streams[1])]);
        assert!(served.into_inner() > 0, "both were refused");
    });
}

/// Settings and limits change under way.
#[test]
fn limits_come_and_go() {
    fn limit(rig: &Rig, bytes: Option<u64>) {
        let limit = bytes.map(MemoryLimit::Bytes);
        rig.allocator.set_memory_limits(DEVICE, limit, limit).unwrap();
    }
    explore(80, |rig| {
        let streams = [rig.home(), rig.stream()];
        let changes = || {
            limit(rig, Some(60 * MIB));
            limit(rig, None);
        };
        let needs = |stream| move || rig.churn(20 * MIB, stream);
        rig.together(&[&changes, &needs(streams[0]), &needs(streams[1])]);
    });
}

/// A request wants idle segments replaced, which another thread gives back meanwhile.
#[test]
fn idle_segments_are_replaced_while_the_cache_goes_back() {
    explore_fixed_granules(256, |rig| {
        let home = rig.home();
        let blocks = [21, 23, 25, 27].map(|mebibytes| rig.take(mebibytes * MIB, home));
        blocks.into_iter().for_each(|block| rig.give(block));
        let needs = || rig.churn(60 * MIB, home);
        let flushes = || rig.allocator.empty_cache().unwrap();
        rig.together(&[&needs, &flushes]);
    });
}
