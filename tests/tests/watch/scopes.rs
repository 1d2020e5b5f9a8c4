//! Statistics of parts of a program: whatever scopes are open, in whichever order they end, each says exactly what
//! happened in it, and the device's own statistics are what they are without scopes.

use alloc_core::allocator::StatScope;
use alloc_core::backend::Backend;
use alloc_core::config::{MemoryLimit, Settings};
use alloc_core::stats::{DeviceStats, ScopeBytes, ScopeStats, Stat};
use alloc_core::types::{DeviceIndex, DevicePtr, MIB, Stream};
use alloc_core::{AllocError, CachingAllocator};
use backend_openreg::{Clock, OpenReg, OpenRegConfig};
use granule_tests::policy::{GranulePolicy, Policy, PytorchPolicy};
use granule_tests::rig::DEVICE;
use proptest::prelude::*;
use std::sync::{Arc, Barrier};

const STREAMS: usize = 3;

type Scope = alloc_core::allocator::StatScope;

fn machine<P: Policy>(settings: Settings) -> (Arc<OpenReg>, Arc<CachingAllocator>, Vec<Stream>) {
    let clock = Clock::Virtual { lag: 3 };
    let device = OpenReg::new(OpenRegConfig::default().devices(1).capacity(4096 * MIB).clock(clock)).unwrap();
    let mut streams = vec![device.default_stream(DEVICE)];
    streams.extend((1..STREAMS).map(|_| device.create_stream(DEVICE, 0).unwrap()));
    let allocator = granule_tests::made::<P>(device.clone(), settings).unwrap();
    (device, Arc::new(allocator), streams)
}

#[derive(Clone, Debug)]
enum Op {
    Alloc { bytes: u64, stream: usize },
    Free { nth: usize },
    FreeAll,
    Use { nth: usize, stream: usize },
    EmptyCache,
    Advance(u64),
    ResetPeaks,
    ResetAccumulated,
    Open,
    Read { nth: usize },
    Finish { nth: usize },
    Forget { nth: usize },
}

fn op() -> impl Strategy<Value = Op> {
    let bytes = prop_oneof![3 => 1u64..4096, 3 => 4096u64..2 * MIB, 2 => MIB..60 * MIB];
    let nth = any::<usize>;
    prop_oneof![
        10 => (bytes, 0..STREAMS).prop_map(|(bytes, stream)| Op::Alloc { bytes, stream }),
        7 => nth().prop_map(|nth| Op::Free { nth }),
        1 => Just(Op::FreeAll),
        2 => (nth(), 0..STREAMS).prop_map(|(nth, stream)| Op::Use { nth, stream }),
        1 => Just(Op::EmptyCache),
        2 => (0u64..12).prop_map(Op::Advance),
        1 => Just(Op::ResetPeaks),
        1 => Just(Op::ResetAccumulated),
        3 => Just(Op::Open),
        2 => nth().prop_map(|nth| Op::Read { nth }),
        2 => nth().prop_map(|nth| Op::Finish { nth }),
        1 => nth().prop_map(|nth| Op::Forget { nth }),
    ]
}

/// What the naive model knows of a scope: every level that it has seen, one after the other.
#[derive(Clone, Debug)]
struct Expected {
    levels: Vec<[i64; 4]>,
    allocations: i64,
    frees: i64,
    /// Calls of the simulated driver when it began, and the events of the device's statistics since then.
    events: [i64; 4],
}

impl Expected {
    fn check(&self, stats: &ScopeStats) {
        let got = [stats.allocated_bytes, stats.active_bytes, stats.requested_bytes, stats.reserved_bytes];
        for (n, got) in got.into_iter().enumerate() {
            let levels = || self.levels.iter().map(|level| level[n]);
            let expected = ScopeBytes {
                begin: levels().next().unwrap(),
                end: levels().next_back().unwrap(),
                peak: levels().max().unwrap(),
            };
            assert_eq!(got, expected, "quantity {n}");
        }
        assert_eq!((stats.num_allocations, stats.num_frees), (self.allocations, self.frees));
        let events = [
            stats.num_device_alloc,
            stats.num_device_free,
            stats.num_alloc_retries,
            stats.num_sync_all_streams,
        ];
        assert_eq!(events, self.events);
        assert_eq!(stats.num_ooms, 0);
    }
}

fn events(stats: &DeviceStats) -> [i64; 4] {
    [stats.num_device_alloc, stats.num_device_free, stats.num_alloc_retries, stats.num_sync_all_streams]
}

fn levels(stats: &DeviceStats) -> [i64; 4] {
    [
        stats.allocated_bytes.all.current,
        stats.active_bytes.all.current,
        stats.requested_bytes.all.current,
        stats.reserved_bytes.all.current,
    ]
}

struct Model {
    device: Arc<OpenReg>,
    allocator: Arc<CachingAllocator>,
    streams: Vec<Stream>,
    live: Vec<(DevicePtr, u64, Stream)>,
    scopes: Vec<(Scope, Expected)>,
    /// The device's peaks since they were reset.
    peaks: [i64; 4],
    before: [i64; 4],
}

impl Model {
    fn new<P: Policy>(settings: Settings) -> Self {
        let (device, allocator, streams) = machine::<P>(settings);
        let (live, scopes) = (Vec::new(), Vec::new());
        Self { device, allocator, streams, live, scopes, peaks: [0; 4], before: [0; 4] }
    }

    fn stats(&self) -> DeviceStats {
        self.allocator.stats(DEVICE).unwrap()
    }

    fn free(&mut self, nth: usize) {
        let (ptr, ..) = self.live.swap_remove(nth);
        self.allocator.free(ptr).unwrap();
        self.scopes.iter_mut().for_each(|(_, expected)| expected.frees += 1);
        self.note();
    }

    /// Levels change by one step at a time, so the most is one of those seen after a step.
    fn note(&mut self) {
        let stats = self.stats();
        let (now, events) = (levels(&stats), events(&stats));
        assert_eq!(
            now[0],
            self.live.iter().map(|(ptr, ..)| signed(self.allocator.block_size(*ptr))).sum::<i64>()
        );
        for (n, level) in now.into_iter().enumerate() {
            self.peaks[n] = self.peaks[n].max(level);
        }
        for (_, expected) in &mut self.scopes {
            expected.levels.push(now);
            for (n, count) in events.into_iter().enumerate() {
                expected.events[n] += count - self.before[n];
            }
        }
        self.before = events;
        let [allocated, active, requested, reserved] = self.peaks;
        assert_eq!(stats.allocated_bytes.all.peak, allocated);
        assert_eq!(stats.active_bytes.all.peak, active);
        assert_eq!(stats.requested_bytes.all.peak, requested);
        assert_eq!(stats.reserved_bytes.all.peak, reserved);
    }

    fn apply(&mut self, op: &Op) {
        match *op {
            Op::Alloc { bytes, stream } => {
                let stream = self.streams[stream];
                self.live.push((self.allocator.malloc(bytes, stream).unwrap(), bytes, stream));
                self.scopes.iter_mut().for_each(|(_, expected)| expected.allocations += 1);
            }
            Op::Free { nth } if !self.live.is_empty() => self.free(nth % self.live.len()),
            Op::FreeAll => (0..self.live.len()).for_each(|_| self.free(0)),
            Op::Use { nth, stream } if !self.live.is_empty() => {
                let (ptr, bytes, owner) = self.live[nth % self.live.len()];
                let user = self.streams[stream];
                if user != owner {
                    // A program's duty: memory is ready on its own stream first, where earlier users may still run.
                    self.device.order(owner, user).unwrap();
                }
                self.device.use_memory(user, ptr, bytes).unwrap();
                self.allocator.record_stream(ptr, user).unwrap();
            }
            Op::EmptyCache => self.allocator.empty_cache().unwrap(),
            Op::Advance(ticks) => self.device.advance(ticks),
            Op::ResetPeaks => {
                self.allocator.statistics().reset_peaks(DEVICE).unwrap();
                self.peaks = levels(&self.stats());
            }
            Op::ResetAccumulated => {
                self.allocator.statistics().reset_accumulated(DEVICE).unwrap();
                self.before = [0; 4];
            }
            Op::Open => {
                let scope = StatScope::begin(&self.allocator, DEVICE).unwrap();
                let expected = Expected { levels: Vec::new(), allocations: 0, frees: 0, events: [0; 4] };
                self.scopes.push((scope, expected));
            }
            Op::Read { nth } if !self.scopes.is_empty() => {
                let (scope, expected) = &self.scopes[nth % self.scopes.len()];
                expected.check(&scope.peaks().unwrap());
            }
            Op::Finish { nth } if !self.scopes.is_empty() => {
                let (scope, expected) = self.scopes.swap_remove(nth % self.scopes.len());
                expected.check(&scope.finish().unwrap());
            }
            Op::Forget { nth } if !self.scopes.is_empty() => {
                drop(self.scopes.swap_remove(nth % self.scopes.len()));
            }
            _ => {}
        }
        self.note();
        self.allocator.check_invariants();
    }
}

fn signed(bytes: Option<u64>) -> i64 {
    i64::try_from(bytes.unwrap()).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn scopes_say_exactly_what_happened_in_them(growable in any::<bool>(), ops in prop::collection::vec(op(), 1..160)) {
        let settings = Settings { expandable_segments: growable, ..Settings::default() };
        happened::<PytorchPolicy>(settings, &ops);
    }

    #[test]
    fn scopes_over_the_granule_policy_do_too(ops in prop::collection::vec(op(), 1..160)) {
        happened::<GranulePolicy>(Settings::default(), &ops);
    }
}

fn happened<P: Policy>(settings: Settings, ops: &[Op]) {
    let mut model = Model::new::<P>(settings);
    ops.iter().for_each(|op| model.apply(op));
    for (scope, expected) in model.scopes.drain(..) {
        expected.check(&scope.finish().unwrap());
    }
}

fn bytes(begin: u64, end: u64, peak: u64) -> ScopeBytes {
    let [begin, end, peak] = [begin, end, peak].map(|bytes| signed(Some(bytes)));
    ScopeBytes { begin, end, peak }
}

fn nested_and_overlapping_scopes_keep_their_own_peaks<P: Policy>() {
    let (_, allocator, streams) = machine::<P>(Settings::default());
    let request = |bytes| allocator.malloc(bytes, streams[0]).unwrap();
    let base = request(4 * MIB);
    let outer = StatScope::begin(&allocator, DEVICE).unwrap();
    allocator.free(request(40 * MIB)).unwrap();
    let inner = StatScope::begin(&allocator, DEVICE).unwrap();
    allocator.free(request(30 * MIB)).unwrap();
    let overlapping = StatScope::begin(&allocator, DEVICE).unwrap();
    let kept = request(8 * MIB);
    allocator.statistics().reset_peaks(DEVICE).unwrap();
    assert_eq!(outer.peaks().unwrap().allocated_bytes, bytes(4 * MIB, 12 * MIB, 44 * MIB));
    assert_eq!(outer.finish().unwrap().allocated_bytes, bytes(4 * MIB, 12 * MIB, 44 * MIB));
    allocator.free(kept).unwrap();
    let inner = inner.finish().unwrap();
    assert_eq!(inner.allocated_bytes, bytes(4 * MIB, 4 * MIB, 34 * MIB));
    assert_eq!((inner.num_allocations, inner.num_frees, inner.num_device_alloc), (2, 2, 0));
    let overlapping = overlapping.finish().unwrap();
    assert_eq!(overlapping.allocated_bytes, bytes(4 * MIB, 4 * MIB, 12 * MIB));
    assert_eq!(allocator.stats(DEVICE).unwrap().allocated_bytes.all.peak, signed(Some(12 * MIB)));
    allocator.free(base).unwrap();
}

fn a_scope_counts_retries_and_refusals_and_keeps_them_through_a_reset<P: Policy>() {
    let (_, allocator, streams) = machine::<P>(Settings::default());
    let scope = StatScope::begin(&allocator, DEVICE).unwrap();
    allocator.set_memory_limits(DEVICE, Some(MemoryLimit::Bytes(64 * MIB)), None).unwrap();
    let refused = allocator.malloc(100 * MIB, streams[0]);
    assert!(matches!(refused, Err(AllocError::OutOfMemory(_))));
    allocator.statistics().reset_accumulated(DEVICE).unwrap();
    assert_eq!(allocator.stats(DEVICE).unwrap().num_ooms, 0);
    let stats = scope.finish().unwrap();
    assert_eq!((stats.num_ooms, stats.num_alloc_retries, stats.num_allocations), (1, 1, 0));
    assert_eq!(stats.reserved_bytes, ScopeBytes::default());
    assert!((stats.efficiency() - 1.0).abs() < f64::EPSILON);
    assert!(StatScope::begin(&allocator, DeviceIndex(9)).is_err());
}

fn scopes_of_many_threads_see_the_whole_device<P: Policy>() {
    const THREADS: u64 = 4;
    let (device, allocator, _) = machine::<P>(Settings::default());
    let outer = StatScope::begin(&allocator, DEVICE).unwrap();
    let barrier = Barrier::new(usize::try_from(THREADS).unwrap());
    std::thread::scope(|threads| {
        for n in 0..THREADS {
            let (device, allocator, barrier) = (&device, &allocator, &barrier);
            threads.spawn(move || {
                let stream = device.create_stream(DEVICE, 0).unwrap();
                for round in 0..50 {
                    barrier.wait();
                    let mine = StatScope::begin(allocator, DEVICE).unwrap();
                    barrier.wait();
                    let ptr = allocator.malloc((n + 1) * MIB, stream).unwrap();
                    barrier.wait();
                    allocator.free(ptr).unwrap();
                    barrier.wait();
                    // All scopes of the round began before its first request: each saw all of it.
                    let stats = mine.finish().unwrap();
                    assert_eq!(stats.allocated_bytes, bytes(0, 0, 10 * MIB), "round {round}");
                    assert_eq!((stats.num_allocations, stats.num_frees), (4, 4));
                }
            });
        }
    });
    let stats = outer.finish().unwrap();
    assert_eq!(stats.allocated_bytes, bytes(0, 0, 10 * MIB));
    assert_eq!((stats.num_allocations, stats.num_frees), (200, 200));
    let peak = allocator.stats(DEVICE).unwrap().allocated_bytes.all;
    assert_eq!((peak.peak, peak.current), (signed(Some(10 * MIB)), Stat::default().current));
    allocator.check_invariants();
}

fn a_scope_ends_on_another_thread_and_after_its_allocators_last_owner<P: Policy>() {
    let (_, allocator, streams) = machine::<P>(Settings::default());
    let scope = StatScope::begin(&allocator, DEVICE).unwrap();
    allocator.free(allocator.malloc(MIB, streams[0]).unwrap()).unwrap();
    drop(allocator);
    let stats = std::thread::spawn(move || scope.finish().unwrap()).join().unwrap();
    assert_eq!(stats.allocated_bytes, bytes(0, 0, MIB));
}

granule_tests::for_each_policy!(
    a_scope_counts_retries_and_refusals_and_keeps_them_through_a_reset,
    nested_and_overlapping_scopes_keep_their_own_peaks,
    scopes_of_many_threads_see_the_whole_device,
    a_scope_ends_on_another_thread_and_after_its_allocators_last_owner,
);
