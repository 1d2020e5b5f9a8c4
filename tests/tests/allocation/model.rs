//! Random programs against a naive model of what an allocator promises: live blocks never overlap, memory
//! that another stream still uses is not handed out, every figure is what the program did, and all
//! structures stay consistent.

use alloc_core::CachingAllocator;
use alloc_core::backend::{Backend, EventFlags};
use alloc_core::config::{ReserveSize, Settings};
use alloc_core::types::{DevicePtr, MIB, Stream};
use backend_openreg::{Clock, OpenReg, OpenRegConfig};
use granule_tests::policy::{GranulePolicy, Policy, PytorchPolicy};
use granule_tests::rig::DEVICE;
use granule_tests::setup::{both, mapped};
use granule_tests::views::contents_survive;
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

const STREAMS: usize = 3;

#[derive(Clone, Debug)]
enum Op {
    Alloc { bytes: u64, stream: usize },
    Free { nth: usize },
    Use { nth: usize, stream: usize },
    EmptyCache,
    Fraction(f64),
    Advance(u64),
    ResetPeaks,
    WrongFree(u64),
}

fn op() -> impl Strategy<Value = Op> {
    let bytes = prop_oneof![
        4 => 1u64..4096,
        4 => 4096u64..2 * MIB,
        3 => MIB..12 * MIB,
        2 => 12 * MIB..60 * MIB,
    ];
    prop_oneof![
        8 => (bytes, 0..STREAMS).prop_map(|(bytes, stream)| Op::Alloc { bytes, stream }),
        7 => any::<usize>().prop_map(|nth| Op::Free { nth }),
        3 => (any::<usize>(), 0..STREAMS).prop_map(|(nth, stream)| Op::Use { nth, stream }),
        1 => Just(Op::EmptyCache),
        1 => prop_oneof![Just(1.0), 0.2f64..1.0].prop_map(Op::Fraction),
        2 => (0u64..12).prop_map(Op::Advance),
        1 => Just(Op::ResetPeaks),
        1 => any::<u64>().prop_map(Op::WrongFree),
    ]
}

fn settings() -> impl Strategy<Value = Settings> {
    let growable = any::<bool>();
    let split = prop_oneof![Just(u64::MAX), Just(20 * MIB), Just(32 * MIB)];
    let divisions = prop_oneof![3 => Just(0u64), 1 => Just(4)];
    let gc = prop_oneof![2 => Just(0.0), 1 => 0.1f64..0.9];
    let reserve = prop_oneof![3 => Just(None), 1 => Just(Some(ReserveSize::Bytes(80 * MIB)))];
    (growable, split, divisions, gc, reserve).prop_map(
        |(expandable_segments, max_split_size, d, gc, reserve)| Settings {
            expandable_segments,
            max_split_size,
            roundup_power2_divisions: [d; 16],
            garbage_collection_threshold: gc,
            expandable_segments_reserve: reserve,
            ..Settings::default()
        },
    )
}

struct Live {
    ptr: DevicePtr,
    requested: u64,
    stream: usize,
    uses: Vec<(usize, Arc<AtomicBool>)>,
}

/// A freed range that a stream may still be using.
struct Hazard {
    range: (u64, u64),
    stream: usize,
    done: Arc<AtomicBool>,
}

/// Later work of `to` comes after all that `from` was given, as a program has to see to.
fn order(device: &OpenReg, from: Stream, to: Stream) {
    let event = device.create_event(DEVICE, EventFlags::empty()).unwrap();
    device.record_event(event, from).unwrap();
    device.wait_event(to, event).unwrap();
    // SAFETY: rule 1: made above, and not used again.
    unsafe { device.destroy_event(event) }.unwrap();
}

struct Model {
    device: Arc<OpenReg>,
    allocator: CachingAllocator,
    streams: Vec<Stream>,
    live: Vec<Live>,
    hazards: Vec<Hazard>,
    requested_peak_at_least: i64,
}

impl Model {
    fn new<P: Policy>(settings: Settings, lag: u64, virtual_memory: bool) -> Self {
        let config = OpenRegConfig::default().devices(1).capacity(256 * MIB).clock(Clock::Virtual { lag });
        let config = if virtual_memory { config } else { config.without_virtual_memory() };
        let device = OpenReg::new(config).unwrap();
        let mut streams = vec![device.default_stream(DEVICE)];
        streams.extend((1..STREAMS).map(|_| device.create_stream(DEVICE, 0).unwrap()));
        let allocator = granule_tests::made::<P>(device.clone(), settings).unwrap();
        Self { device, allocator, streams, live: Vec::new(), hazards: Vec::new(), requested_peak_at_least: 0 }
    }

    fn apply(&mut self, op: &Op) {
        match *op {
            Op::Alloc { bytes, stream } => self.alloc(bytes, stream),
            Op::Free { nth } if !self.live.is_empty() => {
                let block = self.live.swap_remove(nth % self.live.len());
                let size = self.allocator.block_size(block.ptr).unwrap();
                self.allocator.free(block.ptr).unwrap();
                assert!(self.allocator.free(block.ptr).is_err(), "a second free is refused");
                for (stream, done) in block.uses {
                    self.hazards.push(Hazard { range: (block.ptr.0, block.ptr.0 + size), stream, done });
                }
            }
            Op::Use { nth, stream } if !self.live.is_empty() => {
                let nth = nth % self.live.len();
                let block = &mut self.live[nth];
                let done = Arc::new(AtomicBool::new(false));
                let flag = Arc::clone(&done);
                order(&self.device, self.streams[block.stream], self.streams[stream]);
                self.device.use_memory(self.streams[stream], block.ptr, block.requested).unwrap();
                self.device
                    .launch_host_function(
                        self.streams[stream],
                        Box::new(move || flag.store(true, Ordering::SeqCst)),
                    )
                    .unwrap();
                if stream != block.stream {
                    block.uses.push((stream, done));
                }
                self.allocator.record_stream(block.ptr, self.streams[stream]).unwrap();
            }
            Op::EmptyCache => {
                self.allocator.empty_cache().unwrap();
                assert_eq!(self.stats().granule.pending_bytes, 0, "nothing is pending after emptying");
            }
            Op::Fraction(fraction) => self.allocator.set_memory_fraction(fraction, DEVICE).unwrap(),
            Op::Advance(ticks) => self.device.advance(ticks),
            Op::ResetPeaks => {
                self.allocator.statistics().reset_peaks(DEVICE).unwrap();
                self.requested_peak_at_least = 0;
            }
            Op::WrongFree(value) => {
                let inside_a_block = self.live.iter().any(|b| b.ptr.0 == value);
                assert!(inside_a_block || value == 0 || self.allocator.free(DevicePtr(value)).is_err());
            }
            Op::Free { .. } | Op::Use { .. } => {}
        }
    }

    fn alloc(&mut self, bytes: u64, stream: usize) {
        match self.allocator.malloc(bytes, self.streams[stream]) {
            Ok(ptr) => {
                assert!(ptr.0.is_multiple_of(512), "blocks are aligned");
                let size = self.allocator.block_size(ptr).unwrap();
                assert!(size >= bytes);
                for hazard in &self.hazards {
                    let apart = hazard.range.1 <= ptr.0 || ptr.0 + size <= hazard.range.0;
                    assert!(
                        apart || hazard.stream == stream || hazard.done.load(Ordering::SeqCst),
                        "memory that stream {} still uses was handed to stream {stream}",
                        hazard.stream
                    );
                }
                self.live.push(Live { ptr, requested: bytes, stream, uses: Vec::new() });
            }
            Err(error) => {
                assert!(error.is_out_of_memory(), "{error}");
                assert!(error.to_string().contains("out of memory. Tried to allocate"));
            }
        }
    }

    fn stats(&self) -> alloc_core::stats::DeviceStats {
        self.allocator.stats(DEVICE).unwrap()
    }

    fn check(&mut self) {
        self.allocator.check_invariants();
        let mut ranges = BTreeMap::new();
        let (mut requested, mut allocated) = (0, 0);
        for block in &self.live {
            let size = self.allocator.block_size(block.ptr).unwrap();
            ranges.insert(block.ptr.0, size);
            requested += i64::try_from(block.requested).unwrap();
            allocated += i64::try_from(size).unwrap();
        }
        assert_eq!(ranges.len(), self.live.len(), "addresses are distinct");
        let mut end = 0;
        for (addr, size) in ranges {
            assert!(addr >= end, "live blocks do not overlap");
            end = addr + size;
        }
        let stats = self.stats();
        assert_eq!(stats.allocation.all.current, i64::try_from(self.live.len()).unwrap());
        assert_eq!(stats.allocated_bytes.all.current, allocated);
        assert!(stats.requested_bytes.all.current >= requested, "pending blocks count as requested, too");
        assert!(stats.active_bytes.all.current <= stats.reserved_bytes.all.current);
        self.requested_peak_at_least = self.requested_peak_at_least.max(requested);
        assert!(stats.requested_bytes.all.peak >= self.requested_peak_at_least);
        let used = i64::try_from(self.device.used(DEVICE)).unwrap();
        assert_eq!(stats.reserved_bytes.all.current, used, "what is reserved is what the device handed out");
        for array in
            [&stats.allocated_bytes, &stats.active, &stats.reserved_bytes, &stats.inactive_split_bytes]
        {
            for stat in [&array.all, &array.small_pool, &array.large_pool] {
                assert_eq!(stat.allocated - stat.freed, stat.current);
                assert!(stat.peak >= stat.current);
            }
        }
    }

    fn finish(mut self) {
        for block in std::mem::take(&mut self.live) {
            self.allocator.free(block.ptr).unwrap();
        }
        self.allocator.empty_cache().unwrap();
        self.check();
        assert_eq!(self.device.used(DEVICE), 0, "everything went back");
        assert_eq!(self.device.traps(), [], "nothing left while work used it");
    }
}

fn keeps_every_promise<P: Policy>(settings: Settings, lag: u64, virtual_memory: bool, ops: &[Op]) {
    let mut model = Model::new::<P>(settings, lag, virtual_memory);
    for op in ops {
        model.apply(op);
        model.check();
    }
    model.finish();
}

/// Addresses, figures and driver calls of a program.
fn trail<P: Policy>(settings: &Settings, lag: u64, ops: &[Op]) -> impl PartialEq + std::fmt::Debug + use<P> {
    let mut model = Model::new::<P>(settings.clone(), lag, true);
    let mut addresses = Vec::new();
    for op in ops {
        model.apply(op);
        addresses.extend(model.live.last().map(|b| b.ptr));
    }
    (addresses, model.stats(), model.device.calls())
}

macro_rules! properties {
    ($($policy:ident in $name:ident),*) => {$(
        mod $name {
            use super::*;

            proptest! {
                #![proptest_config(ProptestConfig { max_shrink_iters: 2000, ..ProptestConfig::default() })]

                #[test]
                fn random_programs_keep_every_promise(
                    settings in settings(),
                    lag in prop_oneof![Just(0u64), Just(3), Just(40)],
                    virtual_memory in prop::bool::weighted(0.8),
                    ops in prop::collection::vec(op(), 1..160),
                ) {
                    keeps_every_promise::<$policy>(settings, lag, virtual_memory, &ops);
                }

                #[test]
                fn equal_programs_get_equal_addresses_and_figures(
                    settings in settings(),
                    lag in 0u64..20,
                    ops in prop::collection::vec(op(), 1..120),
                ) {
                    let run = || trail::<$policy>(&settings, lag, &ops);
                    prop_assert_eq!(run(), run());
                }
            }
        }
    )*};
}

properties!(PytorchPolicy in pytorch, GranulePolicy in granule);

/// Every block is full of a byte of its own, which is there when it is freed.
#[test]
fn a03_mixed_sizes_never_overlap_and_keep_their_contents() {
    for settings in both() {
        let machine = OpenReg::new(mapped(192)).unwrap();
        contents_survive::<PytorchPolicy>(machine.clone(), settings, 5, 400);
        assert_eq!((machine.used(DEVICE), machine.traps()), (0, Vec::new()));
    }
}
