//! Random programs: two streams, uses on the other one, private pools, limits, flushes, and little memory.

use super::tape::Tape;
use crate::rig::DEVICE;
use crate::views::Numbers;
use alloc_core::CachingAllocator;
use alloc_core::backend::Backend;
use alloc_core::config::Settings;
use alloc_core::history::HistoryOptions;
use alloc_core::pool::Filter;
use alloc_core::types::{DevicePtr, MIB, PoolId, Stream};
use backend_openreg::{Clock, OpenReg, OpenRegConfig};
use std::sync::Arc;

const STEPS: usize = 600;
/// Steps after which the statistics are noted.
const STRIDE: usize = 16;
/// What a program may ask for besides its policy, half of the time.
const MORE: [&str; 10] = [
    "max_split_size_mb:32",
    "max_split_size_mb:64,garbage_collection_threshold:0.7",
    "garbage_collection_threshold:0.5",
    "roundup_power2_divisions:4",
    "per_process_memory_fraction:0.7",
    "memory_limit:90MiB",
    "memory_soft_limit:64MiB",
    "throw_on_cudamalloc_oom:True",
    "max_non_split_rounding_mb:64,max_split_size_mb:40",
    "expandable_segments_reserve:0.5",
];

struct Random {
    numbers: Numbers,
    device: Arc<OpenReg>,
    allocator: CachingAllocator,
    streams: [Stream; 2],
    live: Vec<(DevicePtr, u64, usize)>,
    /// The pool that requests are for.
    open: Option<PoolId>,
    /// How many pools there were.
    pools: u64,
    refused: u64,
}

/// Runs the program of a seed; how many requests were refused.
pub(super) fn run(seed: u64, conf: &str, tape: &Arc<Tape>) -> (CachingAllocator, u64) {
    // Neighbouring seeds are unlike each other after some numbers.
    let mut numbers = Numbers((seed + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let more = MORE.get(numbers.below(2 * MORE.len() as u64) as usize).copied().unwrap_or_default();
    let texts: Vec<&str> = [conf, more].into_iter().filter(|text| !text.is_empty()).collect();
    let settings = Settings::parse(&texts.join(",")).expect("the settings are valid");
    let config = OpenRegConfig::default()
        .devices(1)
        .capacity([96, 128, 256, 1024][numbers.below(4) as usize] * MIB)
        .clock(Clock::Virtual { lag: [0, 2, 20, 200][numbers.below(4) as usize] })
        .operations_tick(false);
    let device = OpenReg::new(config).expect("the machine can be set up");
    let made = CachingAllocator::new(tape.before(device.clone()), settings);
    let allocator = made.expect("the settings are valid");
    allocator.history().record(&HistoryOptions::newest(1 << 20).deterministic());
    let second = device.create_stream(DEVICE, 0).expect("a stream can be made");
    let streams = [device.default_stream(DEVICE), second];
    let (live, open) = (Vec::new(), None);
    let mut program = Random { numbers, device, allocator, streams, live, open, pools: 0, refused: 0 };
    for step in 0..STEPS {
        program.step();
        if step % STRIDE == 0 {
            program.allocator.check_invariants();
            tape.note_statistics(&program.allocator);
        }
    }
    (program.allocator, program.refused)
}

impl Random {
    fn step(&mut self) {
        self.device.advance(1);
        match self.numbers.below(100) {
            0..46 => self.allocate(),
            46..78 => self.free(),
            78..90 => self.use_elsewhere(),
            90..94 => self.change_pool(),
            94 => self.allocator.empty_cache().expect("the cache can be emptied"),
            95 => self.allocator.synchronise(DEVICE).expect("the device can be waited for"),
            96 => {
                let share = 0.5 + self.numbers.below(6) as f64 / 10.0;
                self.allocator.set_memory_fraction(share.min(1.0), DEVICE).expect("it is a share");
            }
            97 => self.device.advance(100),
            // Much goes at once, as at the end of an iteration.
            98 => (0..self.live.len() * 3 / 4).for_each(|_| self.free()),
            _ => self.allocator.poll(DEVICE).expect("the device can be asked"),
        }
    }

    fn allocate(&mut self) {
        let bytes = match self.numbers.below(8) {
            0..3 => 1 + self.numbers.below(MIB),
            3 => MIB + self.numbers.below(9 * MIB),
            // What is left of a segment is then as often just enough to be split off.
            4..7 => MIB / 2 * (1 + self.numbers.below(40)),
            _ => 10 * MIB + self.numbers.below(50 * MIB),
        };
        let stream = usize::from(self.numbers.below(3) == 0);
        match self.allocator.malloc(bytes, self.streams[stream]) {
            Ok(ptr) => {
                self.device.use_memory(self.streams[stream], ptr, bytes).expect("it can be used");
                self.live.push((ptr, bytes, stream));
            }
            Err(error) => {
                assert!(error.is_out_of_memory(), "{error}");
                self.refused += 1;
            }
        }
    }

    fn nth(&mut self) -> Option<usize> {
        let count = self.live.len() as u64;
        (count > 0).then(|| self.numbers.below(count) as usize)
    }

    fn free(&mut self) {
        let Some(nth) = self.nth() else { return };
        let (ptr, ..) = self.live.swap_remove(nth);
        self.allocator.free(ptr).expect("it is live");
    }

    fn use_elsewhere(&mut self) {
        let Some(nth) = self.nth() else { return };
        let (ptr, bytes, stream) = self.live[nth];
        let (own, other) = (self.streams[stream], self.streams[1 - stream]);
        self.device.order(own, other).expect("nothing is captured");
        self.device.use_memory(other, ptr, bytes).expect("it can be used");
        self.allocator.record_stream(ptr, other).expect("it is live");
    }

    /// Ends the pool that is used, which some keep, or begins a new one.
    fn change_pool(&mut self) {
        let pools = self.allocator.pools();
        if let Some(pool) = self.open.take() {
            pools.end(DEVICE, pool).expect("its scope is open");
            if self.numbers.below(2) == 0 {
                pools.release(DEVICE, pool).expect("it has a reference");
            }
            return;
        }
        self.pools += 1;
        let pool = PoolId(0, (1 << 40) + self.pools);
        pools.create(DEVICE, pool, None).expect("the pool is new");
        pools.begin(DEVICE, pool, Filter::Always).expect("no scope of it is open");
        self.open = Some(pool);
    }
}
