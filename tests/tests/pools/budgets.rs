//! Budgets of pools and tenants: limits to the byte, guarantees, soft limits and who is told, spill hooks, and the order in
//! which caches go.

use alloc_core::AllocError;
use alloc_core::budget::{Budget, BudgetEvent, BudgetOwner};
use alloc_core::config::{MemoryLimit, Settings};
use alloc_core::pool::{Filter, MemoryPool, PoolOptions};
use alloc_core::types::{DeviceIndex, MIB, PoolId};
use backend_openreg::Call;
use granule_tests::Allocator;
use granule_tests::clients::{Client, budget, device};
use granule_tests::graphs::begin_in;
use granule_tests::policy::{Policy, PytorchPolicy};
use granule_tests::rig::{DEVICE, on_each};
use granule_tests::setup::both;
use std::sync::{Arc, Mutex};

/// Everything an observer was told.
fn watch(allocator: &Allocator) -> Arc<Mutex<Vec<BudgetEvent>>> {
    let told = Arc::new(Mutex::new(Vec::new()));
    let (log, weak) = (Arc::clone(&told), Arc::downgrade(allocator));
    allocator.hooks().on_budget(move |event| {
        // It is called without a lock: the allocator can be used.
        let allocator = weak.upgrade().unwrap();
        let stats = allocator.stats(event.device).unwrap();
        assert!(stats.reserved_bytes.all.current.unsigned_abs() >= event.held);
        log.lock().unwrap().push(event.clone());
    });
    told
}

fn a_hard_limit_holds_to_the_byte_and_concerns_one_tenant<P: Policy>() {
    for settings in both() {
        on_each(&device(1000), |rig| {
            let allocator = rig.with_policy::<P>(settings.clone());
            let (a, tenant) = Client::of(rig, &allocator, "a", budget(0, 0, 100));
            let other = Client::new(rig, &allocator);
            other.cache(60);
            let first = a.malloc(60).unwrap();
            let byte_less = Budget { hard: Some(MemoryLimit::Bytes(100 * MIB - 1)), ..Budget::default() };
            allocator.budgets().set(tenant, &byte_less).unwrap();
            assert!(a.malloc(40).unwrap_err().is_out_of_memory(), "a byte is missing");
            allocator.budgets().set(tenant, &budget(0, 0, 100)).unwrap();
            let second = a.malloc(40).expect("up to the limit");
            let report = a.refused(20);
            let text = report.to_string();
            let of = report.tenant.clone().unwrap();
            assert_eq!((&*of.name, of.held, of.refuses), ("a", 100 * MIB, true));
            assert!(
                text.contains(
                    "\n  tenant \"a\" holds 100.00 MiB, hard limit 100.00 MiB: it may hold no more"
                ),
                "{text}"
            );
            assert!(
                text.contains(
                    "raising the hard limit of tenant \"a\" (set_budget) would give 840.00 MiB: enough"
                ),
                "{text}"
            );
            // Its own cache makes room; another's would not, and stays.
            a.free([first]);
            let third = a.malloc(60).unwrap();
            a.free([second, third]);
            let all = a.malloc(100).expect("its own pieces go back for it");
            assert_eq!((a.held(), other.held()), (100, 60));
            a.free([all]);
            let stats = allocator.budgets().stats(tenant).unwrap();
            assert_eq!((stats.held, stats.peak, stats.refusals), (100 * MIB, 100 * MIB, 2));
            assert_eq!(stats.pools, [a.pool.id()]);
            drop((a, other));
            rig.nothing_is_left(&allocator);
            assert!(
                allocator.budgets().stats(tenant).unwrap().pools.is_empty(),
                "a pool that is gone has left"
            );
        });
    }
}

/// A growable segment takes whole granules of 20 MiB, where a request of 21 MiB is counted as 22.
#[test]
fn whole_granules_count() {
    on_each(&device(1000), |rig| {
        let settings = Settings { expandable_segments: true, ..Settings::default() };
        let allocator = rig.with_policy::<PytorchPolicy>(settings);
        let (a, tenant) = Client::of(rig, &allocator, "a", budget(0, 0, 30));
        let report = a.refused(21);
        assert!(report.tenant.unwrap().refuses, "40 MiB would be taken");
        assert_eq!(a.held(), 0);
        allocator.budgets().set(tenant, &budget(0, 0, 40)).unwrap();
        let block = a.malloc(21).unwrap();
        let rest = a.malloc(19).expect("from the granules that are there");
        assert_eq!(a.held(), 40);
        a.free([block, rest]);
        a.pool.leave_tenant().unwrap();
        a.pool.set_limits(Some(MemoryLimit::Bytes(50 * MIB)), None).unwrap();
        assert_eq!(a.refused(41).pool_limit, Some(50 * MIB));
        a.pool.set_limits(None, None).unwrap();
        let limit = |mib: u64| Some(MemoryLimit::Bytes(mib * MIB));
        allocator.set_memory_limits(DEVICE, limit(70), None).unwrap();
        assert!(a.malloc(61).unwrap_err().is_out_of_memory());
        assert_eq!(rig.device.peak_used(DEVICE), 40 * MIB);
        drop(a);
        rig.nothing_is_left(&allocator);
    });
}

#[test]
fn a_soft_limit_trims_then_tells_once_for_each_crossing() {
    for settings in both() {
        on_each(&device(1000), |rig| {
            let allocator = rig.with_policy::<PytorchPolicy>(settings.clone());
            let told = watch(&allocator);
            let (a, tenant) = Client::of(rig, &allocator, "a", budget(0, 100, 400));
            let other = Client::new(rig, &allocator);
            other.cache(60);
            let first = a.malloc(60).unwrap();
            let cached = a.malloc(40).unwrap();
            a.free([cached]);
            assert_eq!((a.held(), told.lock().unwrap().len()), (100, 0), "at the limit is not beyond it");
            let second = a.malloc(60).unwrap();
            assert_eq!((a.held(), other.held()), (120, 60), "its own cache went first");
            let event = BudgetEvent {
                device: DEVICE,
                owner: BudgetOwner::Tenant { id: tenant, name: "a".into() },
                pool: Some(a.pool.id()),
                held: 60 * MIB,
                wanted: 60 * MIB,
                soft: 100 * MIB,
                hard: Some(400 * MIB),
            };
            assert_eq!(*told.lock().unwrap(), std::slice::from_ref(&event));
            let third = a.malloc(20).unwrap();
            assert_eq!((a.held(), told.lock().unwrap().len()), (140, 1), "it is above already");
            // Back to the limit, and over it again.
            a.free([first, second, third]);
            let fourth = a.malloc(160).unwrap();
            assert_eq!(a.held(), 160, "all that was cached went");
            let again = BudgetEvent { held: 0, wanted: 160 * MIB, ..event };
            assert_eq!(told.lock().unwrap().last(), Some(&again));
            assert_eq!(
                (allocator.budgets().stats(tenant).unwrap().soft_crossings, told.lock().unwrap().len()),
                (2, 2)
            );
            // A limit that is lowered below what is held is crossed, too.
            allocator.budgets().set(tenant, &budget(0, 200, 400)).unwrap();
            allocator.budgets().set(tenant, &budget(0, 80, 400)).unwrap();
            let lowered = told.lock().unwrap().pop().unwrap();
            assert_eq!((lowered.held, lowered.wanted, lowered.soft), (160 * MIB, 0, 80 * MIB));
            a.free([fourth]);
            drop((a, other));
            rig.nothing_is_left(&allocator);
        });
    }
}

fn a_pools_own_soft_limit_needs_no_tenant<P: Policy>() {
    on_each(&device(1000), |rig| {
        let allocator = rig.with_policy::<P>(Settings::default());
        let told = watch(&allocator);
        let a = Client::new(rig, &allocator);
        let limit = |mib: u64| Some(MemoryLimit::Bytes(mib * MIB));
        a.pool.set_limits(limit(200), limit(50)).unwrap();
        // The hard limit alone: the soft one stays.
        allocator.pools().set_hard_limit(DEVICE, a.pool.id(), limit(100)).unwrap();
        a.cache(40);
        let block = a.malloc(60).unwrap();
        assert_eq!(a.held(), 60, "what was cached went first");
        let event = told.lock().unwrap().pop().unwrap();
        assert_eq!(event.owner, BudgetOwner::Pool(a.pool.id()));
        assert_eq!(
            (event.held, event.wanted, event.soft, event.hard),
            (0, 60 * MIB, 50 * MIB, limit_of(100))
        );
        a.free([block]);
        let all = a.malloc(100).expect("a pool in use gives its own cache back for its own limit");
        assert_eq!(a.held(), 100);
        a.free([all]);
        drop(a);
        rig.nothing_is_left(&allocator);
    });
}

fn a_pool_at_its_own_limit_gives_its_own_cache_and_no_other<P: Policy>() {
    for settings in both() {
        on_each(&device(1000), |rig| {
            let allocator = rig.with_policy::<P>(settings.clone());
            let a = Client::new(rig, &allocator);
            let default = allocator.malloc(40 * MIB, rig.stream()).unwrap();
            allocator.free(default).unwrap();
            allocator
                .pools()
                .set_hard_limit(DEVICE, a.pool.id(), Some(MemoryLimit::Bytes(100 * MIB)))
                .unwrap();
            let pieces = [40, 60].map(|mib| a.malloc(mib).unwrap());
            a.free(pieces);
            let all = a.malloc(100).unwrap();
            assert_eq!(a.held(), 100);
            assert!(a.malloc(20).unwrap_err().is_out_of_memory());
            assert_eq!(rig.used(), 140 * MIB, "what others have cached would not help");
            a.free([all]);
            drop(a);
            rig.nothing_is_left(&allocator);
        });
    }
}

fn limit_of(mib: u64) -> Option<u64> {
    Some(mib * MIB)
}

#[test]
fn the_soft_limit_on_all_that_is_held_is_told_like_others() {
    on_each(&device(1000), |rig| {
        let allocator = rig.with_policy::<PytorchPolicy>(Settings::default());
        let limit = |mib: u64| Some(MemoryLimit::Bytes(mib * MIB));
        allocator.set_memory_limits(DEVICE, limit(500), limit(100)).unwrap();
        let told = watch(&allocator);
        let blocks: Vec<_> = (0..4).map(|_| allocator.malloc(50 * MIB, rig.stream()).unwrap()).collect();
        let event = BudgetEvent {
            device: DEVICE,
            owner: BudgetOwner::Device,
            pool: Some(PoolId::DEFAULT),
            held: 100 * MIB,
            wanted: 50 * MIB,
            soft: 100 * MIB,
            hard: limit_of(500),
        };
        assert_eq!(*told.lock().unwrap(), [event]);
        allocator.set_memory_limits(DEVICE, None, limit(300)).unwrap();
        allocator.set_memory_limits(DEVICE, None, limit(150)).unwrap();
        let lowered = told.lock().unwrap().pop().unwrap();
        assert_eq!((lowered.pool, lowered.held, lowered.wanted, lowered.hard), (None, 200 * MIB, 0, None));
        blocks.into_iter().for_each(|ptr| allocator.free(ptr).unwrap());
        rig.nothing_is_left(&allocator);
    });
}

#[test]
fn what_cannot_be_is_refused_with_advice() {
    on_each(&device(1000), |rig| {
        let allocator = rig.with_policy::<PytorchPolicy>(Settings::default());
        let (pools, budgets) = (allocator.pools(), allocator.budgets());
        let told = |error: AllocError, words: &str| {
            assert!(matches!(error, AllocError::Budget { .. }), "{error}");
            assert!(error.to_string().contains(words), "{error}");
        };
        let create = |name, budget| budgets.create_tenant(DEVICE, name, &budget);
        for wrong in [MemoryLimit::Bytes(0), MemoryLimit::Fraction(1.5), MemoryLimit::Fraction(f64::NAN)] {
            told(pools.set_hard_limit(DEVICE, PoolId::DEFAULT, Some(wrong)).unwrap_err(), "it must be");
            told(pools.set_limits(DEVICE, PoolId::DEFAULT, None, Some(wrong)).unwrap_err(), "soft is");
            told(
                create("x", Budget { guarantee: Some(wrong), ..Budget::default() }).unwrap_err(),
                "guarantee is",
            );
        }
        told(create("x", budget(0, 20, 10)).unwrap_err(), "lower it, or raise the hard limit");
        told(create("x", budget(30, 20, 50)).unwrap_err(), "lower it, or raise the limit");
        told(create("x", budget(1001, 0, 0)).unwrap_err(), "cannot be guaranteed");
        let a = create("a", budget(600, 0, 0)).unwrap();
        told(create("a", budget(0, 0, 0)).unwrap_err(), "choose another");
        told(create("b", budget(401, 0, 0)).unwrap_err(), "600.00 MiB are guaranteed to others");
        let b = create("b", budget(400, 0, 0)).unwrap();
        // What is guaranteed stays possible.
        let limit = Some(MemoryLimit::Bytes(1000 * MIB - 1));
        told(allocator.set_memory_limits(DEVICE, limit, None).unwrap_err(), "lower guarantees first");
        told(allocator.set_memory_fraction(0.999, DEVICE).unwrap_err(), "lower guarantees first");
        told(
            allocator.configure(Settings { memory_limit: limit, ..Settings::default() }).unwrap_err(),
            "lower guarantees first",
        );
        assert_eq!(allocator.settings().memory_limit, None);
        allocator.set_memory_limits(DeviceIndex(1), limit, None).expect("another device");

        let (client, elsewhere) = (
            Client::new(rig, &allocator),
            budgets.create_tenant(DeviceIndex(1), "a", &Budget::default()).unwrap(),
        );
        client.pool.join_tenant(a).unwrap();
        told(client.pool.join_tenant(b).unwrap_err(), "let it leave first");
        told(client.pool.join_tenant(elsewhere).unwrap_err(), "another device's");
        assert_eq!(budgets.tenant_of(DEVICE, client.pool.id()).unwrap(), Some(a));
        let block = client.malloc(500).unwrap();
        told(client.pool.leave_tenant().unwrap_err(), "empty the pool first");
        budgets.set(a, &budget(100, 0, 0)).unwrap();
        client.pool.leave_tenant().unwrap();
        budgets.set(b, &budget(400, 0, 450)).unwrap();
        told(client.pool.join_tenant(b).unwrap_err(), "would pass its hard limit");
        told(budgets.set(a, &budget(101, 0, 0)).unwrap_err(), "free memory first");
        client.free([block]);
        budgets.remove_tenant(a).unwrap();
        for gone in [budgets.remove_tenant(a), budgets.set(a, &Budget::default()), client.pool.join_tenant(a)]
        {
            assert!(matches!(gone, Err(AllocError::UnknownTenant { tenant }) if tenant == a));
        }
        let unknown = budgets.join(PoolId::fresh(), b).unwrap_err();
        assert!(matches!(unknown, AllocError::UnknownPool { .. }), "{unknown}");
    });
}

fn a_guarantee_is_kept_to_the_byte<P: Policy>() {
    for settings in both() {
        on_each(&device(1000), |rig| {
            let allocator = rig.with_policy::<P>(settings.clone());
            let (a, tenant) = Client::of(rig, &allocator, "a", budget(300, 0, 0));
            let (b, other) = (Client::new(rig, &allocator), Client::new(rig, &allocator));
            let byte_more =
                Budget { guarantee: Some(MemoryLimit::Bytes(300 * MIB + 1)), ..Budget::default() };
            allocator.budgets().set(tenant, &byte_more).unwrap();
            let kept = b.malloc(680).unwrap();
            assert!(other.malloc(20).unwrap_err().is_out_of_memory(), "a byte of it is kept");
            allocator.budgets().set(tenant, &budget(300, 0, 0)).unwrap();
            let rest = other.malloc(20).unwrap();
            let report = other.refused(1);
            assert_eq!((report.kept_for_others, report.device_free), (Some(300 * MIB), 300 * MIB));
            let text = report.to_string();
            assert!(
                text.contains("\n  300.00 MiB are guaranteed to other tenants and kept free for them"),
                "{text}"
            );
            assert!(text.contains("raising what other tenants' guarantees leave (set_budget)"), "{text}");
            let mine = a.malloc(300).expect("it is there");
            // Cached, it is still the tenant's: what goes back is kept for it.
            a.free([mine]);
            rig.device.reset_calls();
            assert_eq!(other.refused(1).kept_for_others, Some(300 * MIB));
            assert_eq!(a.held(), 0);
            let calls = rig.device.calls();
            let asked = calls.get(Call::Malloc) + calls.get(Call::CreatePhysical);
            assert_eq!(asked, 0, "nothing is asked that the tenant could give back meanwhile");
            let again = a.malloc(300).unwrap();
            a.free([again]);
            // Without its guarantee the memory is everybody's.
            allocator.budgets().remove_tenant(tenant).unwrap();
            other.free([rest]);
            let report = other.refused(320);
            assert!(report.tenant.is_none() && report.kept_for_others.is_none());
            b.free([kept]);
            drop((a, b, other));
            rig.nothing_is_left(&allocator);
        });
    }
}

#[test]
fn a_guarantee_is_given_out_of_what_can_be_given_back() {
    on_each(&device(1000), |rig| {
        let allocator = rig.with_policy::<PytorchPolicy>(Settings::default());
        let (a, _) = Client::of(rig, &allocator, "a", Budget::default());
        a.cache(400);
        let block = allocator.malloc(500 * MIB, rig.stream()).unwrap();
        let error = allocator.budgets().create_tenant(DEVICE, "late", &budget(501, 0, 0)).unwrap_err();
        assert!(error.to_string().contains("500.00 MiB are in use or guaranteed"), "{error}");
        assert_eq!(a.held(), 0, "caches went for it");
        allocator.budgets().create_tenant(DEVICE, "late", &budget(500, 0, 0)).unwrap();
        assert!(a.malloc(20).unwrap_err().is_out_of_memory());
        allocator.free(block).unwrap();
        a.cache(500);
        drop(a);
        rig.nothing_is_left(&allocator);
    });
}

fn under_pressure_those_above_their_marks_give_first<P: Policy>() {
    for settings in both() {
        on_each(&device(1000), |rig| {
            let allocator = rig.with_policy::<P>(settings.clone());
            let (a, _) = Client::of(rig, &allocator, "soft, little over", budget(0, 200, 0));
            let (b, _) = Client::of(rig, &allocator, "guaranteed, far over", budget(60, 0, 0));
            let (c, _) = Client::of(rig, &allocator, "within", budget(100, 200, 0));
            let default = allocator.malloc(100 * MIB, rig.stream()).unwrap();
            allocator.free(default).unwrap();
            for (client, mib) in [(&a, 240), (&b, 240), (&c, 120)] {
                client.cache(mib);
            }
            let reserved = || {
                let default =
                    allocator.pools().stats(DEVICE, PoolId::DEFAULT).unwrap().reserved_bytes.all.current;
                [a.held(), b.held(), c.held(), default.unsigned_abs() / MIB]
            };
            assert_eq!(reserved(), [240, 240, 120, 100]);
            let taker = Client::new(rig, &allocator);
            let first = taker.malloc(320).unwrap();
            assert_eq!(
                reserved(),
                [240, 0, 120, 100],
                "180 over its guarantee is more than 40 over a soft limit"
            );
            let second = taker.malloc(240).unwrap();
            assert_eq!(reserved(), [0, 0, 120, 100]);
            let third = taker.malloc(260).unwrap();
            assert_eq!(
                reserved(),
                [0, 0, 120, 0],
                "what is nobody's, before that of those who keep to their marks"
            );
            let fourth = taker.malloc(20).unwrap();
            assert_eq!(reserved(), [0, 0, 0, 0], "before a request is refused everything goes");
            assert_eq!(taker.refused(20).kept_for_others, Some(160 * MIB), "and what is guaranteed stays");
            taker.free([first, second, third, fourth]);
            drop((a, b, c, taker));
            rig.nothing_is_left(&allocator);
        });
    }
}

/// Graphs know the addresses of a captured pool: its cache stays, also above a soft limit, also at a hard one.
fn captured_pools_keep_their_memory<P: Policy>() {
    on_each(&device(400), |rig| {
        let allocator = rig.with_policy::<P>(Settings::default());
        let hook = Arc::new(Mutex::new(0));
        let calls = Arc::clone(&hook);
        allocator.hooks().on_spill(0, move |_| {
            *calls.lock().unwrap() += 1;
            0
        });
        let pool = MemoryPool::new(&allocator, DEVICE, PoolOptions::default()).unwrap();
        let tenant = allocator.budgets().create_tenant(DEVICE, "graphs", &budget(0, 40, 100)).unwrap();
        pool.join_tenant(tenant).unwrap();
        let stream = rig.new_stream();
        let capture = begin_in(&allocator, stream, Some(pool.id()));
        let block = allocator.malloc(60 * MIB, stream).unwrap();
        assert!(allocator.malloc(41 * MIB, stream).unwrap_err().is_out_of_memory());
        assert_eq!(*hook.lock().unwrap(), 0, "nobody is asked under capture");
        allocator.free(block).unwrap();
        let graph = capture.end().unwrap();
        let held = || pool.stats().unwrap().reserved_bytes.all.current.unsigned_abs() / MIB;
        assert!(allocator.malloc(360 * MIB, rig.stream()).unwrap_err().is_out_of_memory());
        let scope = pool.enter(Filter::Stream(stream)).unwrap();
        let more = allocator.malloc(30 * MIB, stream).unwrap();
        assert!(allocator.malloc(80 * MIB, stream).unwrap_err().is_out_of_memory());
        assert_eq!((held(), *hook.lock().unwrap()), (60, 2));
        allocator.free(more).unwrap();
        drop((scope, graph, pool));
        rig.nothing_is_left(&allocator);
    });
}

/// Changes of the settings of all devices do not mix.
fn two_configurations_at_once_are_one_after_the_other<P: Policy>() {
    on_each(&device(1000), |rig| {
        let allocator = rig.with_policy::<P>(Settings::default());
        let with =
            |mib: u64| Settings { memory_limit: Some(MemoryLimit::Bytes(mib * MIB)), ..Settings::default() };
        for _ in 0..200 {
            std::thread::scope(|scope| {
                for mib in [100, 200] {
                    let allocator = &allocator;
                    scope.spawn(move || allocator.configure(with(mib)).unwrap());
                }
            });
            let limits = [DEVICE, DeviceIndex(1)].map(|device| {
                let refused = allocator.malloc(500 * MIB, rig.backend.default_stream(device)).unwrap_err();
                let AllocError::OutOfMemory(report) = refused else { panic!("{refused}") };
                report.allowed.map(MemoryLimit::Bytes)
            });
            assert_eq!(limits, [allocator.settings().memory_limit; 2]);
        }
    });
}

granule_tests::for_each_policy!(
    under_pressure_those_above_their_marks_give_first,
    a_guarantee_is_kept_to_the_byte,
    a_pool_at_its_own_limit_gives_its_own_cache_and_no_other,
    a_hard_limit_holds_to_the_byte_and_concerns_one_tenant,
    a_pools_own_soft_limit_needs_no_tenant,
    captured_pools_keep_their_memory,
    two_configurations_at_once_are_one_after_the_other,
);
