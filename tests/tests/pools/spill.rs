//! Spill hooks: asked in their order, searched after whatever they say, and never asked for themselves.

use alloc_core::budget::{Budget, Shortage, SpillRequest};
use alloc_core::config::Settings;
use alloc_core::sleep::{Backup, Tags};
use alloc_core::types::{DeviceIndex, MIB};
use granule_tests::clients::{Client, budget, device};
use granule_tests::policy::Policy;
use granule_tests::quiet::Sleeps;
use granule_tests::rig::{DEVICE, on_each};
use granule_tests::setup::both;
use granule_tests::sleepers::{malloc_in, tagged};
use std::sync::{Arc, Mutex};

/// What hooks were asked, by name.
type Asked = Arc<Mutex<Vec<(&'static str, SpillRequest)>>>;

fn spill_hooks_make_room_in_their_order<P: Policy>() {
    for settings in both() {
        on_each(&device(1000), |rig| {
            let allocator = rig.with_policy::<P>(settings.clone());
            let (a, tenant) = Client::of(rig, &allocator, "a", budget(0, 0, 800));
            let asked = Asked::default();
            let spare = Arc::new(Mutex::new(Vec::new()));
            let hook = |name: &'static str, priority, says: u64| {
                let (asked, spare, weak) =
                    (Arc::clone(&asked), Arc::clone(&spare), Arc::downgrade(&allocator));
                allocator.hooks().on_spill(priority, move |request| {
                    asked.lock().unwrap().push((name, *request));
                    let spare = if name == "frees" { spare.lock().unwrap().pop() } else { None };
                    let allocator = weak.upgrade().unwrap();
                    spare.into_iter().for_each(|ptr| allocator.free(ptr).unwrap());
                    says
                });
            };
            for (name, priority, says) in
                [("late", 5, 0), ("lies", -1, u64::MAX), ("frees", 0, 0), ("never", 5, 0)]
            {
                hook(name, priority, says);
            }
            let [b, c] = ["b", "c"].map(|name| Client::of(rig, &allocator, name, Budget::default()).0);
            spare.lock().unwrap().push(b.malloc(400).unwrap());
            let kept = c.malloc(400).unwrap();
            let served = a.malloc(300).expect("a hook made room, whatever it says");
            let names = || asked.lock().unwrap().iter().map(|(name, _)| *name).collect::<Vec<_>>();
            assert_eq!(names(), ["lies", "frees"]);
            let expected = SpillRequest {
                device: DEVICE,
                stream: a.stream,
                pool: a.pool.id(),
                tenant: Some(tenant),
                wanted: 300 * MIB,
                missing: 100 * MIB,
                shortage: Shortage::Device,
            };
            assert_eq!(asked.lock().unwrap()[0].1, expected);
            let stats = allocator.budgets().stats(tenant).unwrap();
            assert_eq!((stats.spills, stats.spilled_bytes), (1, u64::MAX));
            // At its own limit, only its own memory helps.
            asked.lock().unwrap().clear();
            spare.lock().unwrap().push(served);
            let more = a.malloc(520).unwrap();
            assert_eq!(names(), ["lies", "frees"]);
            let (missing, shortage) = (220 * MIB, Shortage::Tenant);
            assert_eq!(
                asked.lock().unwrap()[1].1,
                SpillRequest { wanted: 520 * MIB, missing, shortage, ..expected }
            );
            // Nobody has anything: all are asked, once, and the request is refused.
            asked.lock().unwrap().clear();
            let report = c.refused(100);
            assert_eq!((names(), report.device_free), (vec!["lies", "frees", "late", "never"], 80 * MIB));
            a.free([more]);
            c.free([kept]);
            drop((a, b, c));
            rig.nothing_is_left(&allocator);
        });
    }
}

/// A hook's own requests have all remedies, but no hook.
fn a_hook_that_asks_for_memory_is_not_asked_itself<P: Policy>() {
    on_each(&device(200), |rig| {
        let allocator = rig.with_policy::<P>(Settings::default());
        let (calls, inner) = (Arc::new(Mutex::new(0)), Arc::new(Mutex::new(Vec::new())));
        let live = Arc::new(Mutex::new(vec![allocator.malloc(180 * MIB, rig.stream()).unwrap()]));
        let (weak, other, stream) = (Arc::downgrade(&allocator), rig.new_stream(), rig.stream());
        let elsewhere = rig.backend.default_stream(DeviceIndex(1));
        let (count, log, held) = (Arc::clone(&calls), Arc::clone(&inner), Arc::clone(&live));
        allocator.hooks().on_spill(0, move |request| {
            *count.lock().unwrap() += 1;
            let allocator = weak.upgrade().unwrap();
            // Both devices are too small for these.
            let refused = [stream, elsewhere].map(|stream| allocator.malloc(500 * MIB, stream).is_err());
            let small = allocator.malloc(16 * MIB, other).unwrap();
            log.lock().unwrap().push(refused);
            let freed = held.lock().unwrap().pop().map(|ptr| allocator.free(ptr).unwrap());
            allocator.free(small).unwrap();
            freed.map_or(0, |()| request.missing)
        });
        let served = allocator.malloc(100 * MIB, rig.stream()).unwrap();
        assert_eq!((*calls.lock().unwrap(), inner.lock().unwrap().as_slice()), (1, [[true; 2]].as_slice()));
        allocator.free(served).unwrap();
        rig.nothing_is_left(&allocator);
    });
}

/// A hook that is asked while a pool wakes may wait for another thread, which may itself be short of memory.
fn a_hook_of_a_wake_may_wait_for_other_threads<P: Policy>() {
    on_each(&device(200), |rig| {
        let allocator = rig.with_policy::<P>(Settings::default());
        let pool = tagged(&allocator, "weights");
        let block = malloc_in(&pool, &allocator, 100 * MIB, rig.stream());
        allocator.put_to_sleep(Tags::All, &Backup::Discard).unwrap();
        let other = Mutex::new(Some(allocator.malloc(180 * MIB, rig.stream()).unwrap()));
        let (weak, stream) = (Arc::downgrade(&allocator), rig.stream());
        allocator.hooks().on_spill(0, move |_| {
            let Some(ptr) = other.lock().unwrap().take() else { return 0 };
            let allocator = weak.upgrade().unwrap();
            let helper = std::thread::spawn(move || {
                allocator.malloc(150 * MIB, stream).unwrap_err();
                allocator.free(ptr).unwrap();
            });
            helper.join().unwrap();
            180 * MIB
        });
        assert_eq!(allocator.sleep_mode().wake(Tags::All).unwrap().woken, 100 * MIB);
        allocator.free(block).unwrap();
        drop(pool);
        rig.nothing_is_left(&allocator);
    });
}

/// A hook that panics while a pool wakes: the pool sleeps on, and the next call wakes it.
fn a_hook_that_panics_in_a_wake_loses_nothing<P: Policy>() {
    on_each(&device(200), |rig| {
        let allocator = rig.with_policy::<P>(Settings::default());
        let pool = tagged(&allocator, "weights");
        let block = malloc_in(&pool, &allocator, 100 * MIB, rig.stream());
        allocator.put_to_sleep(Tags::All, &Backup::Discard).unwrap();
        let other = allocator.malloc(180 * MIB, rig.stream()).unwrap();
        allocator.hooks().on_spill(0, |_| panic!("the hook has a bug"));
        let wake = || allocator.sleep_mode().wake(Tags::All);
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(wake)).unwrap_err();
        allocator.check_invariants();
        allocator.free(other).unwrap();
        assert_eq!(wake().unwrap().woken, 100 * MIB);
        allocator.free(block).unwrap();
        drop(pool);
        rig.nothing_is_left(&allocator);
    });
}

granule_tests::for_each_policy!(
    a_hook_that_asks_for_memory_is_not_asked_itself,
    spill_hooks_make_room_in_their_order,
    a_hook_of_a_wake_may_wait_for_other_threads,
    a_hook_that_panics_in_a_wake_loses_nothing,
);
