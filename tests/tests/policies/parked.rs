//! The block that was freed last stays apart until anybody looks. Under the `pytorch` policy nobody can tell: two equal programs,
//! one looked at after each step and one never, get the same addresses and have the same figures, blocks and requested sizes.

use alloc_core::backend::Backend;
use alloc_core::config::{PytorchRelease, Settings};
use alloc_core::pool::{MemoryPool, PoolOptions};
use alloc_core::snapshot::SegmentInfo;
use alloc_core::stats::{DeviceStats, StatArray};
use alloc_core::types::{DevicePtr, MIB, PoolId, Stream};
use backend_openreg::OpenReg;
use granule_tests::Allocator;
use granule_tests::policy::PytorchPolicy;
use granule_tests::pools::take;
use granule_tests::rig::DEVICE;
use granule_tests::setup::{growable, of};
use granule_tests::views::Numbers;
use std::sync::Arc;

struct Program {
    device: Arc<OpenReg>,
    allocator: Allocator,
    pools: [MemoryPool; 2],
    streams: [Stream; 2],
    live: Vec<(DevicePtr, u64)>,
    numbers: Numbers,
    is_watched: bool,
}

impl Program {
    fn new(seed: u64, settings: &Settings, is_watched: bool) -> Self {
        let device = OpenReg::new(of(256)).unwrap();
        let allocator =
            Arc::new(granule_tests::made::<PytorchPolicy>(device.clone(), settings.clone()).unwrap());
        let pools = [false, true].map(|no_split| {
            let options = PoolOptions { no_split, ..PoolOptions::default() };
            MemoryPool::new(&allocator, DEVICE, options).unwrap()
        });
        let streams = [device.default_stream(DEVICE), device.create_stream(DEVICE, 0).unwrap()];
        Self { device, allocator, pools, streams, live: Vec::new(), numbers: Numbers(seed), is_watched }
    }

    fn size(&mut self) -> u64 {
        match self.numbers.below(8) {
            0..3 => 512 * (1 + self.numbers.below(4)),
            3..5 => 512 * (1 + self.numbers.below(4000)),
            5..7 => MIB * (1 + self.numbers.below(12)) + 512 * self.numbers.below(3),
            _ => MIB * (15 + self.numbers.below(30)),
        }
    }

    /// From the default pool, mostly.
    fn take(&mut self, bytes: u64, stream: Stream) {
        let pool = self.numbers.below(12);
        let got = match self.pools.get(usize::try_from(pool).unwrap()) {
            Some(pool) => take(&self.allocator, pool, bytes, stream),
            None => self.allocator.malloc(bytes, stream),
        };
        self.live.extend(got.map(|ptr| (ptr, bytes.next_multiple_of(512))));
    }

    /// Whoever looks joins what is parked.
    fn look(&self) {
        if self.is_watched {
            self.allocator.check_invariants();
        }
    }

    /// Statistics, and segments with their blocks. No two pools of a process have the same number.
    fn figures(&self) -> (DeviceStats, Vec<StatArray>, Vec<SegmentInfo>) {
        let mut stats = self.allocator.stats(DEVICE).unwrap();
        let of_pools = std::mem::take(&mut stats.reserved_bytes_by_private_pools);
        let mut segments = self.allocator.snapshot(false).segments;
        segments.iter_mut().for_each(|segment| segment.pool_id = PoolId::default());
        (stats, of_pools.into_values().collect(), segments)
    }

    /// Takes what was just freed again, or what rounds to it, and gives it back, some times; seldom with something else in between.
    fn take_again(&mut self, bytes: u64) {
        while self.numbers.below(4) < 3 {
            let (less, before) = (self.numbers.below(400), self.live.len());
            self.take(bytes - less, self.streams[0]);
            let Some((again, _)) = self.live.get(before).copied() else { return };
            match self.numbers.below(6) {
                0 => return,
                1 => {
                    let bytes = self.size();
                    self.take(bytes, self.streams[0]);
                }
                2 if before > 0 => {
                    let at = usize::try_from(self.numbers.below(before as u64)).unwrap();
                    self.allocator.free(self.live.remove(at).0).unwrap();
                }
                3 => self.allocator.record_stream(again, self.streams[1]).unwrap(),
                _ => {}
            }
            self.look();
            self.live.retain(|(ptr, _)| *ptr != again);
            self.allocator.free(again).unwrap();
            self.look();
        }
    }

    /// One step, and what is live after it.
    fn step(&mut self) -> &[(DevicePtr, u64)] {
        match self.numbers.below(100) {
            0..4 => self.allocator.empty_cache().unwrap(),
            4..45 if !self.live.is_empty() => {
                let at = usize::try_from(self.numbers.below(self.live.len() as u64)).unwrap();
                let (ptr, bytes) = self.live.swap_remove(at);
                self.allocator.free(ptr).unwrap();
                self.look();
                self.take_again(bytes);
            }
            45..48 if !self.live.is_empty() => {
                self.allocator.record_stream(self.live[0].0, self.streams[1]).unwrap();
            }
            _ => {
                let (bytes, second) = (self.size(), self.numbers.below(6) == 0);
                self.take(bytes, self.streams[usize::from(second)]);
            }
        }
        &self.live
    }
}

#[test]
fn nobody_can_tell_that_a_block_was_parked() {
    let base = Settings::default;
    let settings = [
        base(),
        Settings { expandable_segments: true, ..base() },
        Settings { max_split_size: 20 * MIB, ..base() },
        Settings { pytorch_release: Some(PytorchRelease::V2_11), ..base() },
        Settings { garbage_collection_threshold: 0.6, ..base() },
    ];
    let mut refused = 0;
    for (seed, settings) in (1..=10).flat_map(|seed| settings.iter().map(move |settings| (seed, settings))) {
        let [mut alone, mut watched] =
            [false, true].map(|is_watched| Program::new(seed * 7919, settings, is_watched));
        for step in 0..600 {
            if step % 200 == 199 {
                // Pieces of fixed segments are as small as pieces of growing ones by the end.
                let settings = Settings { expandable_segments: step == 199, ..settings.clone() };
                for program in [&alone, &watched] {
                    program.allocator.configure(settings.clone()).unwrap();
                }
            }
            assert_eq!(alone.step(), watched.step(), "step {step} of seed {seed}, {settings:?}");
            watched.look();
        }
        refused += alone.allocator.stats(DEVICE).unwrap().num_ooms;
        assert_eq!(alone.figures(), watched.figures(), "seed {seed}, {settings:?}");
        assert_eq!(alone.device.calls(), watched.device.calls(), "seed {seed}, {settings:?}");
    }
    assert!(refused > 100, "the device is tight: {refused}");
}

#[test]
fn a_block_beside_less_room_is_taken_before_the_parked_one() {
    let device = OpenReg::new(of(256)).unwrap();
    let allocator = granule_tests::made::<PytorchPolicy>(device.clone(), growable()).unwrap();
    let stream = device.default_stream(DEVICE);
    let [_low, before, hole, after, _high] =
        [10, 10, 20, 12, 8].map(|mib| allocator.malloc(mib * MIB, stream).unwrap());
    allocator.free(hole).unwrap();
    allocator.empty_cache().unwrap();
    allocator.free(after).unwrap();
    allocator.free(before).unwrap();
    // Either is large enough, and behind the smaller one 20 MiB could be mapped.
    assert_eq!(allocator.malloc(10 * MIB, stream).unwrap(), after);
}
