//! The block that was just freed is parked for the next request of its size, under `granule` wherever it lies, and nobody can tell
//! from figures, invariants or errors. And what every policy promises: what fits is served.

use alloc_core::backend::Backend;
use alloc_core::config::Settings;
use alloc_core::oom::OomReport;
use alloc_core::pointer::Problem;
use alloc_core::snapshot::BlockState;
use alloc_core::stats::Stat;
use alloc_core::types::{DevicePtr, KIB, MIB, Stream};
use alloc_core::{AllocError, CachingAllocator};
use backend_openreg::{OpenReg, OpenRegConfig};
use granule_conformance::interpose::Interposed;
use granule_tests::fits::{Held, Mappings};
use granule_tests::policy::{GranulePolicy, Policy, PytorchPolicy};
use granule_tests::rig::DEVICE;
use proptest::prelude::*;
use std::sync::Arc;

fn machine(virtual_memory: bool) -> (Arc<OpenReg>, CachingAllocator) {
    let config = OpenRegConfig::default().devices(1);
    let config = if virtual_memory { config } else { config.without_virtual_memory() };
    let device = OpenReg::new(config).unwrap();
    let allocator = granule_tests::made::<GranulePolicy>(device.clone(), Settings::default()).unwrap();
    (device, allocator)
}

fn problem_of(allocator: &CachingAllocator, ptr: DevicePtr) -> Problem {
    match allocator.free(ptr) {
        Err(AllocError::InvalidPointer(bad)) => bad.problem,
        other => panic!("a wrong free came to {other:?}"),
    }
}

#[test]
fn what_was_just_freed_serves_the_next_request_of_its_size() {
    for virtual_memory in [true, false] {
        let (device, allocator) = machine(virtual_memory);
        let stream = device.default_stream(DEVICE);
        let blocks: Vec<_> = (0..4).map(|_| allocator.malloc(64 * KIB, stream).unwrap()).collect();
        allocator.free(blocks[2]).unwrap();
        assert_eq!(allocator.malloc(64 * KIB - 5, stream).unwrap(), blocks[2]);
        // Joined with its neighbour once anything else is asked for.
        allocator.free(blocks[1]).unwrap();
        allocator.free(blocks[2]).unwrap();
        assert_eq!(allocator.malloc(128 * KIB, stream).unwrap(), blocks[1], "two holes side by side are one");
        allocator.check_invariants();
    }
}

#[test]
fn a_parked_block_is_free_to_all_who_ask() {
    for virtual_memory in [true, false] {
        let (device, allocator) = machine(virtual_memory);
        let stream = device.default_stream(DEVICE);
        let [first, second] = [0, 1].map(|_| allocator.malloc(3 * MIB, stream).unwrap());
        allocator.free(second).unwrap();
        assert!(matches!(problem_of(&allocator, second), Problem::Freed | Problem::NotHandedOut { .. }));
        assert_eq!(allocator.block_size(second), None);
        assert!(allocator.record_stream(second, stream).is_err());
        allocator.free(first).unwrap();
        let stats = allocator.stats(DEVICE).unwrap();
        assert_eq!((stats.active.all.current, stats.inactive_split.all.current), (0, 0));
        allocator.free(allocator.malloc(3 * MIB, stream).unwrap()).unwrap();
        allocator.empty_cache().unwrap();
        assert_eq!(device.used(DEVICE), 0, "it goes back like any other");
    }
}

proptest! {
    /// Nobody looks in between, so that blocks stay parked; at the end every figure is what plain counting gives.
    #[test]
    fn figures_are_exact_where_nobody_looked(
        virtual_memory in any::<bool>(),
        steps in prop::collection::vec((any::<bool>(), 0usize..16, prop_oneof![1u64..6, 2040u64..2060], 0u64..512), 1..200),
    ) {
        let (device, allocator) = machine(virtual_memory);
        let stream = device.default_stream(DEVICE);
        let mut live: Vec<(DevicePtr, i64, i64)> = Vec::new();
        let [mut blocks, mut bytes, mut requested] = [Stat::default(); 3];
        for (frees, nth, units, less) in steps {
            if frees && !live.is_empty() {
                let (ptr, size, asked) = live.swap_remove(nth % live.len());
                allocator.free(ptr).unwrap();
                blocks.decrease(1);
                bytes.decrease(size);
                requested.decrease(asked);
            } else {
                let asked = units * 512 - less;
                let ptr = allocator.malloc(asked, stream).unwrap();
                let (size, asked) = (i64::try_from(units * 512).unwrap(), i64::try_from(asked).unwrap());
                let apart = |(other, length, _): &(DevicePtr, i64, i64)| {
                    other.0 + length.unsigned_abs() <= ptr.0 || ptr.0 + size.unsigned_abs() <= other.0
                };
                prop_assert!(live.iter().all(apart), "live blocks do not overlap");
                live.push((ptr, size, asked));
                blocks.increase(1);
                bytes.increase(size);
                requested.increase(asked);
            }
        }
        allocator.check_invariants();
        let stats = allocator.stats(DEVICE).unwrap();
        prop_assert_eq!([stats.allocation.all, stats.active.all], [blocks; 2]);
        prop_assert_eq!([stats.allocated_bytes.all, stats.active_bytes.all], [bytes; 2]);
        prop_assert_eq!(stats.requested_bytes.all, requested);
        for (ptr, ..) in live {
            allocator.free(ptr).unwrap();
        }
        allocator.empty_cache().unwrap();
        allocator.check_invariants();
        prop_assert_eq!(device.used(DEVICE), 0);
    }
}

#[test]
fn little_is_taken_at_once_where_more_than_half_of_the_device_is_held() {
    // A program that only loads takes an eighth of what it has: 64 MiB after 600.
    for (capacity, taken) in [(80 * 1024, 64), (1024, 8)] {
        let device = OpenReg::new(OpenRegConfig::default().devices(1).capacity(capacity * MIB)).unwrap();
        let allocator = granule_tests::made::<GranulePolicy>(device.clone(), Settings::default()).unwrap();
        let stream = device.default_stream(DEVICE);
        let held = || allocator.stats(DEVICE).unwrap().reserved_bytes.all.current.unsigned_abs();
        let _large = allocator.malloc(600 * MIB, stream).unwrap();
        // The rest of what the first one came with.
        let rest = held() - 600 * MIB;
        let _rest = (rest > 0).then(|| allocator.malloc(rest, stream).unwrap());
        let before = held();
        let _small = allocator.malloc(5 * MIB, stream).unwrap();
        assert_eq!(held() - before, taken * MIB, "on a device of {capacity} MiB");
    }
}

#[test]
fn a_refused_request_is_not_taken_for_a_need() {
    let (device, allocator) = machine(true);
    let stream = device.default_stream(DEVICE);
    assert!(allocator.malloc(1 << 45, stream).is_err());
    for bytes in [3 * MIB, 3 * MIB] {
        allocator.malloc(bytes, stream).unwrap();
    }
    let reserved = allocator.stats(DEVICE).unwrap().reserved_bytes.all.current;
    assert_eq!(reserved, 6 << 20, "granules are as small as for a program that asked for nothing else");
    allocator.check_invariants();
}

/// A program of several streams on a small device, which frees some of what it holds and asks for more than there is.
struct Crowd {
    device: Arc<OpenReg>,
    driver: Arc<Interposed<Mappings>>,
    allocator: CachingAllocator,
    streams: Vec<Stream>,
    live: Vec<Held>,
}

/// A step: how much is freed first, which block, and what is asked for then, on which stream.
type Step = (usize, usize, u64, usize);

fn crowded() -> impl Strategy<Value = Vec<Step>> {
    let size = prop_oneof![1..MIB, MIB..9 * MIB, 9 * MIB..70 * MIB, (1..40u64).prop_map(|n| n * MIB)];
    prop::collection::vec((0..4usize, any::<usize>(), size, 0..2usize), 1..150)
}

impl Crowd {
    fn new<P: Policy>(settings: Settings, virtual_memory: bool) -> Self {
        let config = OpenRegConfig::default().devices(1).capacity(200 * MIB);
        let config = if virtual_memory { config } else { config.without_virtual_memory() };
        let device = OpenReg::new(config).unwrap();
        let driver = Arc::new(Interposed::new(device.clone(), Mappings::default()));
        let allocator = granule_tests::made::<P>(driver.clone(), settings).unwrap();
        let streams = vec![device.default_stream(DEVICE), driver.create_stream(DEVICE, 0).unwrap()];
        Self { device, driver, allocator, streams, live: Vec::new() }
    }

    fn left(&self) -> u64 {
        self.driver.memory_info(DEVICE).unwrap().free
    }

    /// Does the steps; `fits` says whether a refused request fits as things are then.
    fn run(mut self, steps: &[Step], fits: impl Fn(&Self, u64, usize) -> bool) {
        for (frees, nth, bytes, stream) in steps {
            for _ in 0..frees / 2 {
                if !self.live.is_empty() {
                    let held = self.live.swap_remove(nth % self.live.len());
                    self.allocator.free(held.ptr).unwrap();
                }
            }
            match self.allocator.malloc(*bytes, self.streams[*stream]) {
                Ok(ptr) => {
                    let bytes = self.allocator.block_size(ptr).unwrap();
                    self.live.push(Held { ptr, bytes, stream: *stream });
                }
                Err(AllocError::OutOfMemory(report)) => {
                    let size = bytes.next_multiple_of(512);
                    assert!(!fits(&self, size, *stream), "{bytes} bytes fit, and were refused: {report}");
                    let OomReport { bound, .. } = *report;
                    assert!(bound.missing > bound.available && bound.in_one_piece < size, "{bound:?}");
                    assert_eq!(bound.available, self.left());
                }
                Err(error) => panic!("{error}"),
            }
        }
        self.allocator.check_invariants();
        assert_eq!(self.device.traps(), []);
    }

    /// Whether some free block of the stream, for requests of that kind, has `size` bytes.
    fn has_block(&self, size: u64, stream: usize, by_tier: bool) -> bool {
        let segments = self.allocator.snapshot(false).segments;
        let own = segments.iter().filter(|segment| {
            let small = &*segment.segment_type == "small";
            segment.stream == self.streams[stream].raw && (!by_tier || small == (size <= MIB))
        });
        let free = |segment: &alloc_core::snapshot::SegmentInfo| {
            segment.blocks.iter().any(|block| block.state == BlockState::Inactive && block.size >= size)
        };
        own.into_iter().any(free)
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn what_fits_under_granule_is_served(steps in crowded()) {
        let crowd = Crowd::new::<GranulePolicy>(Settings::default(), true);
        crowd.run(&steps, |crowd, size, stream| crowd.driver.hook().fits(size, stream, &crowd.live, crowd.left()));
    }

    #[test]
    fn what_fits_under_granule_is_served_where_segments_are_fixed(steps in crowded()) {
        let crowd = Crowd::new::<GranulePolicy>(Settings::default(), false);
        crowd.run(&steps, |crowd, size, stream| {
            crowd.has_block(size, stream, false) || size.next_multiple_of(2 * MIB) <= crowd.left()
        });
    }

    #[test]
    fn what_fits_under_pytorch_is_served(steps in crowded(), growable in any::<bool>()) {
        let settings = Settings { expandable_segments: growable, ..Settings::default() };
        let crowd = Crowd::new::<PytorchPolicy>(settings, true);
        crowd.run(&steps, |crowd, size, stream| {
            let segment = match size {
                0..=MIB => 2 * MIB,
                _ if growable => size.next_multiple_of(20 * MIB),
                _ if size < 10 * MIB => 20 * MIB,
                _ => size.next_multiple_of(2 * MIB),
            };
            crowd.has_block(size, stream, true) || segment <= crowd.left()
        });
    }
}
