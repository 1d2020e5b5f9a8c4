//! The seam holds: a policy that shares no decision with PyTorch's runs on the unchanged engine.

use alloc_core::backend::Backend;
use alloc_core::block::{Block, BlockId, BlockTable, Tier};
use alloc_core::budget::Budget;
use alloc_core::config::{MemoryLimit, PolicyName, Settings};
use alloc_core::history::HistoryOptions;
use alloc_core::index::{FitKey, PlacementIndex, SegregatedIndex};
use alloc_core::policy::{Drain, GranulePolicy, Growth, Holding, Policy, Request, Rung, Situation};
use alloc_core::pool::Filter;
use alloc_core::segment::SegmentTable;
use alloc_core::sleep::{Backup, SleepTag, Tags};
use alloc_core::types::{DeviceIndex, MIB, PoolId};
use alloc_core::{AllocError, CachingAllocator};
use backend_openreg::{Clock, OpenReg, OpenRegConfig};
use granule_tests::quiet::Sleeps;
use granule_tests::rig::DEVICE;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};

/// Free blocks in a plain ordered map; the *largest* is taken.
#[derive(Debug, Default)]
struct WorstFit(BTreeMap<FitKey, BlockId>);

impl PlacementIndex for WorstFit {
    fn insert(&mut self, block: &Block, id: BlockId) {
        assert!(self.0.insert(block.key(), id).is_none());
    }
    fn remove(&mut self, block: &Block, _: BlockId) {
        assert!(self.0.remove(&block.key()).is_some());
    }
    fn len(&self) -> usize {
        self.0.len()
    }
    fn at_least(&self, bytes: u64) -> impl Iterator<Item = BlockId> + '_ {
        self.0.range(FitKey::at_least(bytes)..).map(|(_, block)| *block)
    }
    fn check(&self) {}
}

/// Pages of 4 KiB, segments of 8 MiB, worst fit, everything split, drained late.
#[derive(Clone, Debug, Default)]
struct Contrary {
    grows: bool,
    told: Told,
}

type Hears = dyn Fn(&str) + Send + Sync;

/// What the test does when a policy is asked something.
#[derive(Clone, Default)]
struct Told(Option<Arc<Hears>>);

impl Told {
    fn of(&self, question: &str) {
        self.0.iter().for_each(|told| told(question));
    }
}

impl std::fmt::Debug for Told {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Told")
    }
}

impl Policy for Contrary {
    type Index = WorstFit;
    type Memory = ();
    const NAME: &'static str = "contrary";
    const LADDER: &'static [Rung] = &[Rung::Drain, Rung::Grow, Rung::WaitForPending, Rung::ReleaseAll];
    const DRAIN: Drain = Drain::OnMissAndEvery(64);

    fn request(&self, bytes: u64) -> Request {
        let size = bytes.next_multiple_of(4096);
        Request { requested: bytes, size, tier: Tier::Large, segment_bytes: size.max(8 * MIB) }
    }
    fn grows(&self) -> bool {
        self.grows
    }
    fn growing(&self) -> Self {
        Self { grows: true, ..self.clone() }
    }
    fn granule(&self, _: Tier, minimum: u64, _: &Holding) -> u64 {
        minimum
    }
    fn reserve(&self, total: u64, _: u64) -> u64 {
        total
    }
    fn take_fit(
        &self,
        index: &mut WorstFit,
        _: &BlockTable,
        _: &SegmentTable,
        request: &Request,
    ) -> Option<BlockId> {
        let last = index.0.last_entry()?;
        (last.key().size() >= request.size).then(|| last.remove())
    }
    fn splits(&self, block: u64, request: &Request) -> bool {
        self.told.of("splits");
        block > request.size
    }
    fn release_target(&self, _: &Request) -> Option<u64> {
        None
    }
    fn garbage_threshold(&self, _: Option<u64>) -> Option<u64> {
        self.told.of("garbage_threshold");
        None
    }
}

fn allocator(device: &Arc<OpenReg>) -> CachingAllocator {
    let factory = |_: &Settings, _| Contrary::default();
    CachingAllocator::with_policy(device.clone(), Settings::default(), factory).unwrap()
}

#[test]
fn another_policy_runs_on_the_same_engine() {
    let config = OpenRegConfig::default().devices(1).capacity(16 * MIB).clock(Clock::Virtual { lag: 10 });
    let device = OpenReg::new(config).unwrap();
    let allocator = allocator(&device);
    let (home, side) = (device.default_stream(DEVICE), device.create_stream(DEVICE, 0).unwrap());
    let small = allocator.malloc(1, home).unwrap();
    assert_eq!(allocator.block_size(small), Some(4096));
    let large = allocator.malloc(12 * MIB, home);
    assert!(large.is_err(), "8 + 12 MiB are more than the device has");
    let half = allocator.malloc(8 * MIB, home).unwrap();
    allocator.record_stream(half, side).unwrap();
    device.use_memory(side, half, 4096).unwrap();
    allocator.free(half).unwrap();
    assert_eq!(allocator.malloc(8 * MIB, home).unwrap(), half, "the ladder waits for it");
    allocator.check_invariants();
    // Worst fit: the hole of 4 KiB is left alone while there is more elsewhere.
    allocator.free(small).unwrap();
    let first = allocator.malloc(4096, home).unwrap();
    assert_eq!(first, small, "the whole segment is the largest");
    allocator.free(half).unwrap();
    allocator.check_invariants();
}

#[test]
fn a_program_names_its_own_policy_once() {
    let device = OpenReg::new(OpenRegConfig::default().devices(1)).unwrap();
    let (own, factory) = (allocator(&device), |_: &Settings, _| Contrary::default());
    let policy = own.settings().policy.unwrap();
    assert_eq!((policy.to_string().as_str(), own.policy_name()), ("custom:contrary", "contrary"));
    own.free(own.malloc(4096, device.default_stream(DEVICE)).unwrap()).unwrap();
    own.configure(own.settings()).unwrap();
    own.configure(Settings::default()).unwrap();
    assert_eq!(own.settings().policy, Some(policy), "it stays, where settings do not say");
    let granule = Settings { policy: Some(PolicyName::Granule), ..Settings::default() };
    let refused = own.configure(granule.clone()).unwrap_err();
    assert!(matches!(refused, AllocError::PolicyFixed { asked: PolicyName::Granule, .. }), "{refused}");
    let text = CachingAllocator::with_policy(device.clone(), granule, factory).unwrap_err().to_string();
    assert!(text.contains("policy:granule") && text.contains("leave policy out"), "{text}");
    let text = CachingAllocator::new(device, own.settings()).unwrap_err().to_string();
    assert!(text.contains("custom:contrary") && text.contains("with_policy"), "{text}");
}

/// A program's policy that decides as Granule's does, and asks its allocator for its settings when these change.
#[derive(Clone, Debug)]
struct Wrapped(GranulePolicy);

impl Policy for Wrapped {
    type Index = SegregatedIndex;
    type Memory = <GranulePolicy as Policy>::Memory;
    const NAME: &'static str = "wrapped";
    const LADDER: &'static [Rung] = GranulePolicy::LADDER;
    const DRAIN: Drain = GranulePolicy::DRAIN;
    const ALWAYS_GROWS: bool = GranulePolicy::ALWAYS_GROWS;

    fn request(&self, bytes: u64) -> Request {
        self.0.request(bytes)
    }
    fn grows(&self) -> bool {
        self.0.grows()
    }
    fn growing(&self) -> Self {
        Self(self.0.growing())
    }
    fn granule(&self, tier: Tier, minimum: u64, holding: &Holding) -> u64 {
        self.0.granule(tier, minimum, holding)
    }
    fn least_granule(&self, tier: Tier, minimum: u64, holding: &Holding) -> u64 {
        self.0.least_granule(tier, minimum, holding)
    }
    fn growth(&self, request: &Request, situation: &dyn Fn() -> Situation) -> Option<Growth> {
        self.0.growth(request, situation)
    }
    fn reserve(&self, total: u64, granule: u64) -> u64 {
        self.0.reserve(total, granule)
    }
    fn take_fit(
        &self,
        index: &mut SegregatedIndex,
        blocks: &BlockTable,
        segments: &SegmentTable,
        request: &Request,
    ) -> Option<BlockId> {
        self.0.take_fit(index, blocks, segments, request)
    }
    fn splits(&self, block: u64, request: &Request) -> bool {
        self.0.splits(block, request)
    }
    fn release_target(&self, request: &Request) -> Option<u64> {
        self.0.release_target(request)
    }
    fn garbage_threshold(&self, allowed: Option<u64>) -> Option<u64> {
        self.0.garbage_threshold(allowed)
    }
}

#[test]
fn a_programs_own_policy_has_views_and_parked_blocks_as_the_trees_has() {
    let wrapped = |settings: &Settings, virtual_memory| Wrapped(GranulePolicy::new(settings, virtual_memory));
    let named = Settings { policy: Some(PolicyName::Granule), ..Settings::default() };
    let told = [true, false].map(|own| {
        let device = OpenReg::new(OpenRegConfig::default().devices(1)).unwrap();
        let allocator = if own {
            CachingAllocator::with_policy(device.clone(), Settings::default(), wrapped)
        } else {
            CachingAllocator::new(device.clone(), named.clone())
        }
        .unwrap();
        let stream = device.default_stream(DEVICE);
        let mut places = Vec::new();
        let mut live = Vec::new();
        for round in 0..6u64 {
            live.extend((1..=10).map(|n| allocator.malloc((n + round) * 600 * 1024, stream).unwrap()));
            places.extend_from_slice(&live);
            let mut number = 0;
            live.retain(|ptr| {
                number += 1;
                if number % 2 == round % 2 {
                    return true;
                }
                allocator.free(*ptr).unwrap();
                false
            });
            // What was just freed is there for the next of its size.
            let parked = allocator.malloc(4096, stream).unwrap();
            allocator.free(parked).unwrap();
            assert_eq!(allocator.malloc(4096, stream).unwrap(), parked);
            live.push(parked);
            if live.len() > 20 {
                live.drain(..10).for_each(|ptr| allocator.free(ptr).unwrap());
            }
            allocator.check_invariants();
        }
        (places, allocator.stats(DEVICE).unwrap().granule.granules_moved)
    });
    assert_eq!(told[0], told[1], "the same places, and the same granules shown again");
    assert!(told[0].1 > 0, "free memory was shown in views");
}

#[test]
fn a_factory_may_look_at_its_allocator_while_that_is_configured() {
    let device = OpenReg::new(OpenRegConfig::default().devices(1)).unwrap();
    let there: Arc<OnceLock<Weak<CachingAllocator>>> = Arc::default();
    let seen = Arc::clone(&there);
    let factory = move |_: &Settings, _| {
        if let Some(allocator) = seen.get().and_then(Weak::upgrade) {
            assert_eq!(allocator.settings().history_max_entries, 0);
            allocator.stats(DEVICE).unwrap();
            allocator.history().record(&HistoryOptions::newest(5));
        }
        Contrary::default()
    };
    let own = CachingAllocator::with_policy(device.clone(), Settings::default(), factory).unwrap();
    let own = Arc::new(own);
    there.set(Arc::downgrade(&own)).unwrap();
    own.configure(Settings { history_max_entries: 10, ..Settings::default() }).unwrap();
    own.free(own.malloc(4096, device.default_stream(DEVICE)).unwrap()).unwrap();
}

#[test]
fn finished_frees_are_noticed_when_statistics_are_read() {
    let device = OpenReg::new(OpenRegConfig::default().devices(1)).unwrap();
    let allocator = allocator(&device);
    let (home, side) = (device.default_stream(DEVICE), device.create_stream(DEVICE, 0).unwrap());
    let ptr = allocator.malloc(4096, home).unwrap();
    allocator.record_stream(ptr, side).unwrap();
    allocator.free(ptr).unwrap();
    assert_eq!(allocator.stats(DEVICE).unwrap().granule.pending_bytes, 0);
}

#[test]
fn its_pools_can_sleep() {
    let device = OpenReg::new(OpenRegConfig::default().devices(1).capacity(16 * MIB)).unwrap();
    let allocator = allocator(&device);
    let (home, pool) = (device.default_stream(DEVICE), PoolId::fresh());
    allocator.pools().create(DEVICE, pool, None).unwrap();
    allocator.sleep_mode().set_tag(DEVICE, pool, Some(SleepTag::new("all"))).unwrap();
    allocator.pools().begin(DEVICE, pool, Filter::Always).unwrap();
    let ptr = allocator.malloc(5 * MIB, home).unwrap();
    assert_eq!(
        allocator.put_to_sleep(Tags::All, &Backup::Discard).unwrap().slept,
        6 * MIB,
        "by granules of 2 MiB"
    );
    assert_eq!(device.used(DEVICE), 0);
    allocator.sleep_mode().wake(Tags::All).unwrap();
    allocator.free(ptr).unwrap();
    allocator.check_invariants();
}

/// An allocator whose policy lets the test know what it is asked.
fn told(
    device: &Arc<OpenReg>,
    grows: bool,
    told: impl Fn(&str) + Send + Sync + 'static,
) -> Arc<CachingAllocator> {
    let policy = Contrary { grows, told: Told(Some(Arc::new(told))) };
    let factory = move |_: &Settings, _| policy.clone();
    Arc::new(CachingAllocator::with_policy(device.clone(), Settings::default(), factory).unwrap())
}

/// Between the check that new settings leave room for guarantees, and the settings, nothing more is guaranteed.
#[test]
fn what_is_guaranteed_while_settings_change_is_kept_under_them() {
    const OTHER: DeviceIndex = DeviceIndex(1);
    let device = OpenReg::new(OpenRegConfig::default().devices(2).capacity(1000 * MIB)).unwrap();
    let there: Arc<OnceLock<Weak<CachingAllocator>>> = Arc::default();
    let promised = Arc::new(OnceLock::new());
    let (seen, answer) = (Arc::clone(&there), Arc::clone(&promised));
    let own = told(&device, false, move |question| {
        if let ("garbage_threshold", Some(allocator)) = (question, seen.get().and_then(Weak::upgrade)) {
            let guarantee = Some(MemoryLimit::Bytes(300 * MIB));
            let budget = Budget { guarantee, ..Budget::default() };
            answer.get_or_init(|| allocator.budgets().create_tenant(OTHER, "late", &budget).is_ok());
        }
    });
    there.set(Arc::downgrade(&own)).unwrap();
    let limited = Settings { memory_limit: Some(MemoryLimit::Bytes(200 * MIB)), ..own.settings() };
    own.configure(limited).unwrap();
    assert_eq!(promised.get(), Some(&false), "300 MiB of 200");
    assert_eq!(own.budgets().tenants(OTHER).unwrap(), []);
}

/// A policy with a bug: what it was asked about stays free.
#[test]
fn a_policy_that_panics_when_it_is_asked_to_cut_loses_no_block() {
    for grows in [false, true] {
        let device = OpenReg::new(OpenRegConfig::default().devices(1).capacity(16 * MIB)).unwrap();
        let panics = Arc::new(AtomicBool::new(false));
        let once = Arc::clone(&panics);
        let own = told(&device, grows, move |question| {
            if question == "splits" && once.swap(false, Ordering::Relaxed) {
                resume_unwind(Box::new("a policy has a bug"));
            }
        });
        let home = device.default_stream(DEVICE);
        let fails = || {
            panics.store(true, Ordering::Relaxed);
            let outcome = catch_unwind(AssertUnwindSafe(|| own.malloc(5000, home)));
            assert!(outcome.is_err(), "the request ends as the policy does");
            own.check_invariants();
        };
        // Of memory that has just come, of what is left of it, and of a block between others.
        fails();
        let blocks = [0; 5].map(|_| own.malloc(5000, home).unwrap());
        fails();
        own.free(blocks[1]).unwrap();
        own.free(blocks[3]).unwrap();
        fails();
        for block in [blocks[0], blocks[2], blocks[4]] {
            own.free(block).unwrap();
        }
        own.check_invariants();
        let free = own.statistics().largest_free_block(DEVICE).unwrap();
        assert_eq!(free, device.used(DEVICE), "all of it is one block again");
        own.empty_cache().unwrap();
        assert_eq!(device.used(DEVICE), 0);
    }
}
