//! Private pools that begin, end and die while others ask for memory; checkpoints among other pools' traffic.

use crate::explore::explore;
use crate::rig::{Block, DEVICE, Rig};
use alloc_core::AllocError;
use alloc_core::pool::Filter;
use alloc_core::types::{MIB, PoolId};

/// All requests go to a pool that dies under way: each is served, by the pool or after it.
#[test]
fn a_pool_dies_while_requests_come() {
    explore(256, |rig| {
        let (pool, streams) = (PoolId::fresh(), [rig.home(), rig.stream()]);
        let owns = || {
            rig.allocator.pools().begin(DEVICE, pool, Filter::Always).unwrap();
            let mine = rig.take(4 * MIB, streams[0]);
            rig.allocator.pools().end(DEVICE, pool).unwrap();
            rig.allocator.pools().release(DEVICE, pool).unwrap();
            rig.give(mine);
            rig.allocator.pools().empty(pool).unwrap();
        };
        let asks = || {
            rig.churn(4 * MIB, streams[1]);
            rig.churn(700, streams[1]);
        };
        let empties = || {
            rig.allocator.pools().empty(pool).unwrap();
            rig.allocator.empty_cache().unwrap();
        };
        rig.together(&[&owns, &asks, &empties]);
        is_gone(rig, pool);
    });
}

/// A pool is released before its scope ends: whoever comes between is told, and gets nobody's memory.
#[test]
fn a_pool_dies_before_its_scope() {
    explore(256, |rig| {
        let (pool, home) = (PoolId::fresh(), rig.home());
        let owns = || {
            rig.allocator.pools().begin(DEVICE, pool, Filter::Always).unwrap();
            rig.churn(4 * MIB, home);
            rig.allocator.pools().release(DEVICE, pool).unwrap();
            rig.allocator.pools().empty(pool).unwrap();
            rig.allocator.pools().end(DEVICE, pool).unwrap();
        };
        let asks = || {
            for bytes in [4 * MIB, 700] {
                match rig.try_take(bytes, home) {
                    Ok(block) => rig.give(block),
                    Err(AllocError::DeadPool { pool: dead }) => assert_eq!(dead, pool),
                    Err(error) => panic!("there is memory: {error}"),
                }
            }
        };
        rig.together(&[&owns, &asks, &asks]);
        is_gone(rig, pool);
    });
}

/// References come and go: who gets one has a pool that serves.
#[test]
fn a_pool_is_referenced_while_it_is_released() {
    explore(256, |rig| {
        let (pool, home) = (PoolId::fresh(), rig.home());
        rig.allocator.pools().create(DEVICE, pool, None).unwrap();
        let releases = || {
            rig.allocator.pools().release(DEVICE, pool).unwrap();
            rig.allocator.pools().empty(pool).unwrap();
        };
        let visits = || match rig.allocator.pools().begin(DEVICE, pool, Filter::this_thread()) {
            Ok(()) => {
                rig.churn(3 * MIB, home);
                rig.allocator.pools().end(DEVICE, pool).unwrap();
                rig.allocator.pools().release(DEVICE, pool).unwrap();
            }
            // It came later than the last release, and before the pool's record went.
            Err(AllocError::DeadPool { .. }) => {}
            Err(error) => panic!("{error}"),
        };
        let asks = || rig.churn(3 * MIB, home);
        rig.together(&[&releases, &visits, &asks]);
        is_gone(rig, pool);
    });
}

/// Each thread's scope is for its own requests: nobody else gets that memory.
#[test]
fn a_pool_for_each_thread() {
    explore(256, |rig| {
        let home = rig.home();
        let pools = [PoolId::fresh(), PoolId::fresh()];
        let with = |pool| {
            move || {
                rig.allocator.pools().begin(DEVICE, pool, Filter::this_thread()).unwrap();
                let mine = rig.take(3 * MIB, home);
                let live = [mine.ptr].into();
                assert!(
                    rig.allocator.pools().has_live(DEVICE, pool, &live).unwrap(),
                    "mine, and nothing else"
                );
                rig.allocator.pools().end(DEVICE, pool).unwrap();
                rig.give(mine);
                assert!(rig.allocator.pools().has_live(DEVICE, pool, &[].into()).unwrap());
                rig.allocator.pools().release(DEVICE, pool).unwrap();
            }
        };
        let asks = || rig.churn(3 * MIB, home);
        rig.together(&[&with(pools[0]), &with(pools[1]), &asks]);
        pools.into_iter().for_each(|pool| is_gone(rig, pool));
    });
}

/// What a checkpoint saved is live again at the same addresses, whatever other pools do meanwhile.
#[test]
fn a_checkpoint_among_other_traffic() {
    explore(256, |rig| {
        let (pool, home) = (PoolId::fresh(), rig.home());
        let saves = || {
            rig.allocator.pools().begin(DEVICE, pool, Filter::this_thread()).unwrap();
            let before: [Block; 2] = [rig.take(3 * MIB, home), rig.take(700, home)];
            let saved = rig.allocator.pools().checkpoint(DEVICE, pool).unwrap();
            before.into_iter().for_each(|block| rig.give(block));
            let after = rig.take(5 * MIB, home);
            rig.let_go(after);
            let mut delta = rig.allocator.pools().restore(&saved, Some(&[after.ptr].into())).unwrap();
            assert_eq!(delta.freed, [after.ptr]);
            let mut restored = before.map(|block| block.ptr);
            restored.sort_unstable();
            delta.allocated.sort_unstable();
            assert_eq!(delta.allocated, restored);
            before.into_iter().for_each(|block| rig.hold(block));
            rig.allocator.pools().end(DEVICE, pool).unwrap();
            before.into_iter().for_each(|block| rig.give(block));
            rig.allocator.pools().release(DEVICE, pool).unwrap();
        };
        let asks = || {
            rig.churn(3 * MIB, home);
            rig.churn(700, home);
        };
        let flushes = || {
            rig.allocator.empty_cache().unwrap();
            rig.allocator.check_invariants();
        };
        rig.together(&[&saves, &asks, &flushes]);
        is_gone(rig, pool);
    });
}

/// Nothing of a pool is left, and there is no record of it after a flush.
fn is_gone(rig: &Rig, pool: PoolId) {
    rig.allocator.empty_cache().unwrap();
    let uses = rig.allocator.pools().use_count(DEVICE, pool);
    assert!(matches!(uses, Err(AllocError::UnknownPool { .. })), "{uses:?}");
}
