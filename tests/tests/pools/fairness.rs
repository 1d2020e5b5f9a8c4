//! Tenants that compete: whatever others do, each gets what it is guaranteed; no mark is ever passed; and a failing driver
//! loses nothing.

use alloc_core::backend::{Backend, ErrorKind};
use alloc_core::budget::TenantId;
use alloc_core::config::{MemoryLimit, Settings};
use alloc_core::types::{DevicePtr, MIB, PoolId, Stream};
use alloc_core::{AllocError, CachingAllocator};
use backend_openreg::{Clock, FaultPlan, OpenReg, OpenRegConfig};
use granule_tests::Allocator;
use granule_tests::clients::{Client, budget};
use granule_tests::policy::{GranulePolicy, Policy, PytorchPolicy};
use granule_tests::rig::{DEVICE, Rig, on_each};
use granule_tests::setup::both;
use proptest::prelude::*;
use std::cell::Cell;
use std::fmt::Debug;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier, Mutex};

const CAPACITY: u64 = 1000;

fn device() -> OpenRegConfig {
    OpenRegConfig::default().devices(1).capacity(CAPACITY * MIB)
}

/// What a tenant holds, what it may, and what it is guaranteed.
fn marks(allocator: &Allocator, tenant: TenantId) -> (u64, u64, u64) {
    let stats = allocator.budgets().stats(tenant).unwrap();
    (stats.held, stats.marks.hard.unwrap_or(u64::MAX), stats.marks.guarantee)
}

/// Takes blocks of 20 MiB until it is refused, holds on to them for a while, and lets go, until it is over.
fn greedy(client: &Client, over: &AtomicBool) {
    while !over.load(Ordering::Relaxed) {
        let mut blocks = Vec::new();
        while let Ok(block) = client.malloc(20) {
            blocks.push(block);
        }
        std::thread::yield_now();
        client.free(blocks);
    }
}

/// Takes all of `mib` that it is guaranteed, again and again, which always works.
fn modest(client: &Client, mib: u64, rounds: usize) {
    for round in 0..rounds {
        let blocks: Vec<_> = (0..mib / 20)
            .map(|n| {
                client
                    .malloc(20)
                    .unwrap_or_else(|error| panic!("round {round}, block {n}: guaranteed: {error}"))
            })
            .collect();
        client.free(blocks);
    }
}

fn greedy_threads_do_not_take_what_is_guaranteed<P: Policy>() {
    for settings in both() {
        on_each(&device(), |rig| {
            let allocator = rig.with_policy::<P>(settings.clone());
            let (victim, tenant) = Client::of(rig, &allocator, "modest", budget(300, 0, 300));
            let (rival, rival_id) = Client::of(rig, &allocator, "limited", budget(0, 100, 400));
            let hogs = [Client::new(rig, &allocator), Client::new(rig, &allocator)];
            let over = AtomicBool::new(false);
            std::thread::scope(|scope| {
                for hog in hogs.iter().chain([&rival]) {
                    let over = &over;
                    scope.spawn(move || greedy(hog, over));
                }
                let result = scope.spawn(|| modest(&victim, 300, 60)).join();
                over.store(true, Ordering::Relaxed);
                result.unwrap();
            });
            assert!(rig.device.peak_used(DEVICE) <= CAPACITY * MIB);
            let stats = allocator.budgets().stats(tenant).unwrap();
            assert_eq!((stats.peak, stats.refusals), (300 * MIB, 0));
            assert!(allocator.budgets().stats(rival_id).unwrap().peak <= 400 * MIB);
            drop((victim, rival, hogs));
            rig.nothing_is_left(&allocator);
        });
    }
}

fn three_tenants_each_get_their_guarantee<P: Policy>() {
    for settings in both() {
        on_each(&device(), |rig| {
            let allocator = rig.with_policy::<P>(settings.clone());
            let shares = [("a", 500), ("b", 300), ("c", 200)];
            let clients = shares.map(|(name, mib)| Client::of(rig, &allocator, name, budget(mib, 0, 0)));
            let hog = Client::new(rig, &allocator);
            let over = AtomicBool::new(false);
            std::thread::scope(|scope| {
                scope.spawn(|| greedy(&hog, &over));
                let threads: Vec<_> = clients
                    .iter()
                    .zip(shares)
                    .map(|((client, _), (_, mib))| scope.spawn(move || modest(client, mib, 40)))
                    .collect();
                let results: Vec<_> = threads.into_iter().map(|thread| thread.join()).collect();
                over.store(true, Ordering::Relaxed);
                results.into_iter().for_each(|result| result.unwrap());
            });
            assert_eq!(hog.held(), 0, "everything is guaranteed to others");
            for (_, tenant) in &clients {
                assert_eq!(allocator.budgets().stats(*tenant).unwrap().refusals, 0);
            }
            drop((clients, hog));
            rig.nothing_is_left(&allocator);
        });
    }
}

/// A step of a random program: clients 0 and 1 are tenants, 2 is part of none.
#[derive(Clone, Debug)]
enum Step {
    Malloc(usize, u64),
    Free(usize),
    Empty,
    Soft(usize, u64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        6 => (0..3usize, 1..90u64).prop_map(|(client, mib)| Step::Malloc(client, mib)),
        4 => (0..64usize).prop_map(Step::Free),
        1 => Just(Step::Empty),
        1 => (0..2usize, 300..400u64).prop_map(|(client, soft)| Step::Soft(client, soft)),
    ];
    prop::collection::vec(step, 1..80)
}

/// Guarantees of clients 0 and 1, and the hard limit of both; MiB.
const GUARANTEES: [u64; 2] = [300, 240];
const HARD: u64 = 520;
const GRANULE: u64 = 20;

/// The most that `mib` in one block can keep from other uses where whole granules move.
fn at_most(mib: u64) -> u64 {
    (mib.div_ceil(GRANULE) + 1) * GRANULE
}

fn play<P: Policy>(rig: &Rig, settings: &Settings, steps: &[Step]) {
    let allocator = rig.with_policy::<P>(settings.clone());
    let [a, b] = [("a", GUARANTEES[0]), ("b", GUARANTEES[1])]
        .map(|(name, guarantee)| Client::of(rig, &allocator, name, budget(guarantee, 0, HARD)));
    let tenants = [a.1, b.1];
    let clients = [a.0, b.0, Client::new(rig, &allocator)];
    let mut live: Vec<(usize, DevicePtr, u64)> = Vec::new();
    for step in steps {
        match *step {
            Step::Malloc(client, mib) => {
                let mine: u64 = live.iter().filter(|l| l.0 == client).map(|l| at_most(l.2)).sum();
                let is_guaranteed = GUARANTEES.get(client).is_some_and(|g| mine + at_most(mib) <= *g);
                match clients[client].malloc(mib) {
                    Ok(ptr) => live.push((client, ptr, mib)),
                    Err(AllocError::OutOfMemory(report)) => {
                        assert!(!(is_guaranteed && settings.expandable_segments), "guaranteed: {report}");
                        let why = report.tenant.as_ref().is_some_and(|tenant| tenant.refuses);
                        // Growable segments take whole granules.
                        let unit = if settings.expandable_segments { GRANULE * MIB } else { 1 };
                        let short = report.device_free < report.tried.next_multiple_of(unit);
                        assert!(why || short || report.kept_for_others.is_some(), "it says why: {report}");
                    }
                    Err(other) => panic!("{other}"),
                }
            }
            Step::Free(at) if !live.is_empty() => {
                let (client, ptr, _) = live.swap_remove(at % live.len());
                clients[client].free([ptr]);
            }
            Step::Free(_) => {}
            Step::Empty => allocator.empty_cache().unwrap(),
            Step::Soft(client, soft) => {
                allocator.budgets().set(tenants[client], &budget(GUARANTEES[client], soft, HARD)).unwrap();
            }
        }
        allocator.check_invariants();
        let reserved = allocator.stats(DEVICE).unwrap().reserved_bytes.all.current.unsigned_abs();
        let mut kept = 0;
        for tenant in tenants {
            let (held, hard, guarantee) = marks(&allocator, tenant);
            assert!(held <= hard);
            kept += guarantee.saturating_sub(held);
        }
        assert!(reserved + kept <= CAPACITY * MIB, "{reserved} are held, {kept} are promised");
    }
    live.into_iter().for_each(|(client, ptr, _)| clients[client].free([ptr]));
    drop(clients);
    rig.nothing_is_left(&allocator);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, max_shrink_iters: 500, ..ProptestConfig::default() })]

    #[test]
    fn no_program_passes_a_mark_or_is_denied_its_guarantee(steps in steps()) {
        for settings in both() {
            play::<PytorchPolicy>(&Rig::openreg(device()), &settings, &steps);
            play::<GranulePolicy>(&Rig::openreg(device()), &settings, &steps);
        }
    }
}

/// The default pool of a tenant is not nobody's: its cache goes in the tenant's turn.
fn the_default_pool_of_a_tenant_gives_in_its_turn<P: Policy>() {
    for settings in both() {
        on_each(&device(), |rig| {
            let allocator = rig.with_policy::<P>(settings.clone());
            let (other, _) = Client::of(rig, &allocator, "other", budget(0, 300, 0));
            let owner = allocator.budgets().create_tenant(DEVICE, "owner", &budget(0, 400, 0)).unwrap();
            allocator.budgets().join(PoolId::DEFAULT, owner).unwrap();
            let block = allocator.malloc(400 * MIB, rig.stream()).unwrap();
            allocator.free(block).unwrap();
            other.cache(300);
            let unused = Client::new(rig, &allocator);
            unused.cache(200);
            drop(unused);
            let held = || [other.held(), marks(&allocator, owner).0 / MIB];
            let taker = Client::new(rig, &allocator);
            let first = taker.malloc(300).unwrap();
            assert_eq!(held(), [300, 400], "what nobody uses is enough");
            let second = taker.malloc(300).unwrap();
            assert_eq!(held(), [0, 400], "of those who keep to their marks, the one made first");
            let third = taker.malloc(400).unwrap();
            assert_eq!(held(), [0, 0]);
            taker.free([first, second, third]);
            drop((other, taker));
            rig.nothing_is_left(&allocator);
        });
    }
}

/// Limits on all that is held are not lowered into what is guaranteed, and not used yet, next to what others hold.
fn a_lowered_limit_leaves_room_for_guarantees<P: Policy>() {
    for settings in both() {
        on_each(&device(), |rig| {
            let allocator = rig.with_policy::<P>(settings.clone());
            let (a, _) = Client::of(rig, &allocator, "a", budget(400, 0, 0));
            let other = Client::new(rig, &allocator);
            let kept = other.malloc(500).unwrap();
            let lower = |mib| allocator.set_memory_limits(DEVICE, Some(MemoryLimit::Bytes(mib * MIB)), None);
            let refused = [
                lower(899).unwrap_err(),
                allocator.set_memory_fraction(0.899, DEVICE).unwrap_err(),
                allocator
                    .configure(Settings {
                        memory_limit: Some(MemoryLimit::Bytes(899 * MIB)),
                        ..settings.clone()
                    })
                    .unwrap_err(),
            ];
            for error in refused {
                assert!(matches!(error, AllocError::Budget { .. }), "{error}");
                assert!(error.to_string().contains("free memory first"), "{error}");
            }
            lower(900).unwrap();
            let own = a.malloc(400).expect("it is guaranteed");
            lower(400).expect("all of the guarantee is used: what is held stays");
            a.free([own]);
            other.free([kept]);
            drop((a, other));
            rig.nothing_is_left(&allocator);
        });
    }
}

/// Settings and a guarantee that are made at one moment: one of the two sees the other.
#[test]
fn what_is_guaranteed_while_settings_change_is_kept_under_them() {
    let device = OpenReg::new(device()).unwrap();
    let allocator = Arc::new(CachingAllocator::new(device, Settings::default()).unwrap());
    let limited = Settings { memory_limit: Some(MemoryLimit::Bytes(200 * MIB)), ..allocator.settings() };
    for round in 0..10_000 {
        let together = Barrier::new(2);
        let (limit, guarantee) = std::thread::scope(|scope| {
            let limit = scope.spawn(|| {
                together.wait();
                allocator.configure(limited.clone())
            });
            together.wait();
            let guarantee = allocator.budgets().create_tenant(DEVICE, "late", &budget(300, 0, 0));
            (limit.join().unwrap(), guarantee)
        });
        assert!(limit.is_ok() != guarantee.is_ok(), "round {round}: {limit:?}, {guarantee:?}");
        if let Ok(tenant) = guarantee {
            allocator.budgets().remove_tenant(tenant).unwrap();
        }
        allocator.configure(Settings { memory_limit: None, ..limited.clone() }).unwrap();
    }
}

/// Whatever fails is made again at once and must work then.
struct Failing {
    allocator: Allocator,
    struck: Cell<bool>,
}

impl Failing {
    fn again<T, E: Debug>(&self, what: impl Fn() -> Result<T, E>) -> T {
        what().unwrap_or_else(|error| {
            assert!(!self.struck.replace(true), "one failing call fails one operation: {error:?}");
            self.allocator.check_invariants();
            what().unwrap_or_else(|again| panic!("works the second time: {error:?}, then {again:?}"))
        })
    }
}

/// Tenants with all marks, an observer, and a hook that makes room. Returns the calls it made, and whether one operation
/// failed.
fn tenants_with_hooks<P: Policy>(rig: &Rig, settings: &Settings, k: u64, kind: ErrorKind) -> (u64, bool) {
    let allocator = rig.with_policy::<P>(settings.clone());
    let (a, tenant) = Client::of(rig, &allocator, "a", budget(0, 100, 500));
    let (b, _) = Client::of(rig, &allocator, "b", budget(20, 0, 0));
    let spare = Arc::new(Mutex::new(Vec::<DevicePtr>::new()));
    let crossed = Arc::new(Mutex::new(0));
    let (told, held, weak) = (Arc::clone(&crossed), Arc::clone(&spare), Arc::downgrade(&allocator));
    allocator.hooks().on_budget(move |_| *told.lock().unwrap() += 1);
    let side = rig.new_stream();
    allocator.hooks().on_spill(0, move |request| {
        let (allocator, spare) = (weak.upgrade().unwrap(), held.lock().unwrap().pop());
        // It may get memory or not; a failure here is its own business.
        if let Ok(own) = allocator.malloc(2 * MIB, side) {
            allocator.free(own).unwrap();
        }
        spare.map_or(0, |ptr| allocator.free(ptr).map_or(0, |()| request.missing))
    });
    let program = Failing { allocator: Arc::clone(&allocator), struck: Cell::new(false) };
    let calls = rig.device.calls().total();
    let plan = if k == 0 { FaultPlan::none() } else { FaultPlan::none().fail_nth(k, kind) };
    rig.device.set_faults(plan);
    for _ in 0..2 {
        let first = program.again(|| a.malloc(60));
        let shared = program.again(|| a.malloc(40));
        // Where the call is the one that fails, there is no use.
        let _ = rig.device.use_memory(Stream { backend: rig.device.id(), ..side }, shared, 512);
        allocator.record_stream(shared, side).unwrap();
        a.free([shared]);
        // Over the soft limit: what is cached goes, and is waited for.
        let second = program.again(|| a.malloc(80));
        let of_b = program.again(|| b.malloc(200));
        spare.lock().unwrap().push(of_b);
        // Only the hook can make room for it.
        let large = program.again(|| a.malloc(200));
        program.again(|| allocator.budgets().set(tenant, &budget(40, 100, 500)));
        program.again(|| allocator.budgets().set(tenant, &budget(0, 100, 500)));
        a.free([first, second, large]);
        b.free(spare.lock().unwrap().drain(..));
        program.again(|| allocator.empty_cache());
    }
    assert!(*crossed.lock().unwrap() > 0);
    rig.device.set_faults(FaultPlan::none());
    let calls = rig.device.calls().total() - calls;
    drop((a, b));
    allocator.empty_cache().unwrap();
    rig.nothing_is_left(&allocator);
    (calls, program.struck.get())
}

fn every_call_of_tenants_and_hooks_may_fail<P: Policy>() {
    for settings in both() {
        let config =
            || OpenRegConfig::default().devices(1).capacity(520 * MIB).clock(Clock::Virtual { lag: 3 });
        let kinds = [ErrorKind::Other, ErrorKind::InvalidValue, ErrorKind::OutOfMemory];
        let (calls, struck) = tenants_with_hooks::<P>(&Rig::openreg(config()), &settings, 0, kinds[0]);
        assert!(!struck && calls > 30, "the program makes {calls} calls");
        let mut noticed = 0;
        for k in 1..=calls {
            let kind = kinds[usize::try_from(k).unwrap() % 3];
            noticed += u64::from(tenants_with_hooks::<P>(&Rig::openreg(config()), &settings, k, kind).1);
        }
        println!("{calls} calls failed in turn, {noticed} operations noticed");
        assert!(noticed > calls / 6, "failures reach the program: {noticed} of {calls}");
    }
}

granule_tests::for_each_policy!(
    a_lowered_limit_leaves_room_for_guarantees,
    the_default_pool_of_a_tenant_gives_in_its_turn,
    three_tenants_each_get_their_guarantee,
    greedy_threads_do_not_take_what_is_guaranteed,
    every_call_of_tenants_and_hooks_may_fail,
);
