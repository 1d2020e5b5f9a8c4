//! Pools that sleep and wake while other threads go on.

use crate::explore::explore;
use crate::rig::{DEVICE, Rig};
use alloc_core::pool::Filter;
use alloc_core::sleep::{Backup, SleepTag, Tags};
use alloc_core::types::{DevicePtr, MIB, PoolId};

/// A pool that can sleep, which serves everything from here on, with two blocks.
fn sleeping_pool(rig: &Rig) -> (PoolId, [DevicePtr; 2]) {
    let pool = PoolId::fresh();
    rig.allocator.pools().create(DEVICE, pool, None).unwrap();
    rig.allocator.sleep_mode().set_tag(DEVICE, pool, Some(SleepTag::new("weights"))).unwrap();
    rig.allocator.pools().begin(DEVICE, pool, Filter::Always).unwrap();
    let blocks = [20 * MIB, 30 * MIB].map(|bytes| rig.allocator.malloc(bytes, rig.home()).unwrap());
    (pool, blocks)
}

fn release(rig: &Rig, pool: PoolId) {
    rig.allocator.pools().end(DEVICE, pool).unwrap();
    for _ in 0..2 {
        rig.allocator.pools().release(DEVICE, pool).unwrap();
    }
}

fn sleep(rig: &Rig) {
    // SAFETY: the scenarios queue no work that uses the memory.
    unsafe { rig.allocator.sleep_mode().sleep(Tags::All, &Backup::Discard) }.unwrap();
}

fn wake(rig: &Rig) {
    rig.allocator.sleep_mode().wake(Tags::All).unwrap();
}

/// Each free is one, whichever side of the sleep it falls on, and requests get memory.
#[test]
fn blocks_come_and_go_while_their_pool_sleeps_and_wakes() {
    explore(400, |rig| {
        let (pool, [kept, freed]) = sleeping_pool(rig);
        let sleeps = || {
            sleep(rig);
            wake(rig);
        };
        let frees = || {
            rig.allocator.free(freed).unwrap();
            let other = rig.allocator.malloc(25 * MIB, rig.home()).unwrap();
            rig.allocator.free(other).unwrap();
        };
        rig.together(&[&sleeps, &frees]);
        rig.allocator.check_invariants();
        assert_eq!(rig.allocator.sleep_mode().is_asleep(kept), Some(false), "all that slept is awake");
        rig.allocator.free(kept).unwrap();
        release(rig, pool);
    });
}

/// Two threads move the same pool, a third flushes: nothing is released twice, nothing is lost.
#[test]
fn several_threads_move_one_pool() {
    explore(400, |rig| {
        let (pool, blocks) = sleeping_pool(rig);
        let naps = || {
            sleep(rig);
            wake(rig);
        };
        let flushes = || rig.allocator.empty_cache().unwrap();
        rig.together(&[&naps, &naps, &flushes]);
        wake(rig);
        for ptr in blocks {
            assert_eq!(rig.allocator.sleep_mode().is_asleep(ptr), Some(false));
            rig.allocator.free(ptr).unwrap();
        }
        release(rig, pool);
    });
}

/// The pool goes while it falls asleep.
#[test]
fn a_pool_is_released_while_it_falls_asleep() {
    explore(400, |rig| {
        let (pool, blocks) = sleeping_pool(rig);
        let goes = || {
            for ptr in blocks {
                rig.allocator.free(ptr).unwrap();
            }
            release(rig, pool);
            rig.allocator.empty_cache().unwrap();
        };
        rig.together(&[&|| sleep(rig), &goes]);
    });
}
