//! The operations, and of what there are many.

use super::{Cost, DEVICE, Machine};
use crate::policy::{GranulePolicy, Policy, PytorchPolicy};
use crate::quiet::{Retires, Sleeps};
use crate::sleepers::{malloc_in, tagged};
use crate::views::Numbers;
use alloc_core::backend::EventFlags;
use alloc_core::device::SegmentChange;
use alloc_core::history::HistoryOptions;
use alloc_core::pool::{Filter, MemoryPool, PoolOptions};
use alloc_core::sleep::{Backup, Retention, Tags};
use alloc_core::types::{DevicePtr, KIB, MIB, PoolId, Stream};
use std::sync::Arc;

/// That an operation's cost grows is known.
#[derive(Clone, Copy, Debug)]
pub struct Known(pub &'static str);

/// An operation beside many of something.
#[derive(Debug)]
pub struct Case {
    /// What there are many of.
    pub many: &'static str,
    /// What is done beside them.
    pub operation: &'static str,
    /// How many the benchmark has at most.
    pub most: usize,
    /// The aim, in nanoseconds besides the driver.
    pub aim: Option<f64>,
    /// Why it grows, where it does.
    pub known: Option<Known>,
    /// Its cost beside so many.
    pub cost: fn(usize) -> Cost,
}

const fn case(many: &'static str, operation: &'static str, most: usize, cost: fn(usize) -> Cost) -> Case {
    Case { many, operation, most, aim: None, known: None, cost }
}

impl Case {
    const fn aim(self, ns: f64) -> Self {
        Self { aim: Some(ns), ..self }
    }

    const fn grows(self, why: &'static str) -> Self {
        Self { known: Some(Known(why)), ..self }
    }
}

const SUMS: &str = "the figures are sums over all arenas";
/// Of a search among views.
const RUNS: &str = "every run of free memory that a view shows is looked at, for the one that fits best";

/// All of them.
pub const CASES: &[Case] = &[
    case("live blocks", "free and allocate, `pytorch`", 1_000_000, blocks::<PytorchPolicy>),
    case("live blocks", "free and allocate, `granule`", 1_000_000, blocks::<GranulePolicy>),
    case("live blocks", "snapshot, a block", 1_000_000, snapshot),
    case("history entries", "allocate and free", 1_000_000, history),
    case("streams", "allocate and free", 10_000, hit),
    case("streams", "a miss below the peak, `pytorch`", 10_000, miss::<PytorchPolicy>).aim(10_000.0),
    case("streams", "a miss below the peak, `granule`", 10_000, miss::<GranulePolicy>).aim(10_000.0),
    case("streams", "a miss at a new peak, `pytorch`", 10_000, peak::<PytorchPolicy>).aim(10_000.0),
    case("streams", "a miss at a new peak, `granule`", 10_000, peak::<GranulePolicy>).aim(10_000.0),
    case("streams", "a free, and a miss at a new peak", 10_000, peak_after_a_free).aim(10_000.0),
    case("streams", "a first request", 10_000, first).aim(20_000.0),
    case("streams", "retire one that nobody uses", 10_000, retire),
    case("streams", "statistics", 10_000, stats).grows(SUMS),
    case("streams with pending frees", "use on another stream, and free", 10_000, pending),
    case("users of a block", "record one more", 10_000, record),
    case("users of a block", "free, a user", 10_000, free_of_users),
    case("users of a block with queued work", "free, a user", 10_000, free_of_busy_users),
    case("pools", "make, use, release", 100_000, pools_in_use).aim(5_000.0),
    case("pools made and released", "make, use, release", 100_000, pools_gone).aim(5_000.0),
    case("pools released with cached memory", "make, use, release", 70_000, pools_cached).aim(5_000.0),
    case("pools", "empty the cache of one", 10_000, empty_one),
    case("pools", "sleep and wake one", 10_000, sleep_one),
    case("pools", "statistics of one", 10_000, stats_of_one),
    case("pools", "release one in a request of its own", 10_000, released_within),
    case("blocks of a pool that is gone", "statistics of the next one", 1_000_000, stats_of_the_next),
    case("pieces of free memory", "a view of two", 4_000, plan).aim(50_000.0),
    case("free blocks, and a hundredth as many views", "a miss", 100_000, crowded).aim(20_000.0),
    case("views", "a request that one serves", 2_000, search).aim(50_000.0),
    case("views that are free", "a request that one serves", 1_000, all_free).grows(RUNS),
    case("blocks of a view", "a request at an address", 400, within).aim(20_000.0),
];

/// Sizes from 512 bytes to 32 KiB, in no order.
fn size(numbers: &mut Numbers) -> u64 {
    512 << numbers.below(7)
}

fn blocks<P: Policy>(many: usize) -> Cost {
    let machine = Machine::new::<P>();
    let (stream, mut numbers) = (machine.stream(), Numbers(9));
    let mut live: Vec<DevicePtr> = (0..many).map(|_| machine.malloc(size(&mut numbers), stream)).collect();
    machine.cost(20_000, |_| {
        let at = usize::try_from(numbers.below(many as u64)).unwrap_or(0);
        machine.free(live[at]);
        live[at] = machine.malloc(size(&mut numbers), stream);
    })
}

#[allow(clippy::cast_precision_loss)]
fn snapshot(many: usize) -> Cost {
    let machine = Machine::new::<PytorchPolicy>();
    let stream = machine.stream();
    machine.fill(512, std::iter::repeat_n(stream, many));
    let cost = machine.cost(5, |_| drop(machine.allocator.snapshot(true)));
    Cost { ns: cost.ns / many as f64, steps: cost.steps / many as f64, ..cost }
}

fn history(many: usize) -> Cost {
    let machine = Machine::new::<PytorchPolicy>();
    let stream = machine.stream();
    machine.allocator.history().record(&HistoryOptions::newest(many));
    let pair = |_| machine.free(machine.malloc(512, stream));
    (0..many / 3).for_each(pair);
    machine.cost(20_000, pair)
}

fn hit(many: usize) -> Cost {
    let machine = Machine::new::<PytorchPolicy>();
    let streams = machine.streams(many);
    machine.fill(512, streams.iter().copied());
    machine.cost(20_000, |n| machine.free(machine.malloc(512, streams[n * 7 % many])))
}

/// More large blocks were live once than will be.
fn pass_a_peak(machine: &Machine, many: usize, stream: Stream) {
    let past: Vec<_> = (0..2 * many + 100).map(|_| machine.malloc(4 * MIB, stream)).collect();
    past.into_iter().for_each(|ptr| machine.free(ptr));
    let past = machine.malloc(1 << 36, stream);
    machine.free(past);
    machine.allocator.empty_cache().expect("the device takes it");
}

/// Streams with a live block each, and a peak in the past that no miss passes.
fn miss<P: Policy>(many: usize) -> Cost {
    let machine = Machine::new::<P>();
    let stream = machine.stream();
    pass_a_peak(&machine, many, stream);
    for other in machine.streams(many) {
        machine.malloc(3 * MIB, other);
        machine.free(machine.malloc(2 * MIB, other));
    }
    machine.cost(50, |_| machine.fill(64 * MIB, [stream]))
}

/// Streams with a live block each, and some idle memory, of which the first miss hears.
fn below_a_peak<P: Policy>(many: usize) -> (Machine, Vec<Stream>) {
    let machine = Machine::new::<P>();
    let streams = machine.streams(many);
    for stream in &streams {
        machine.malloc(3 * MIB, *stream);
        machine.free(machine.malloc(512, *stream));
    }
    machine.fill(64 * MIB, [machine.stream()]);
    (machine, streams)
}

fn peak<P: Policy>(many: usize) -> Cost {
    let (machine, _) = below_a_peak::<P>(many);
    let stream = machine.stream();
    machine.cost(50, |_| machine.fill(64 * MIB, [stream]))
}

/// Each time another stream needs less.
fn peak_after_a_free(many: usize) -> Cost {
    let (machine, streams) = below_a_peak::<GranulePolicy>(many);
    let stream = machine.stream();
    machine.cost(50, |n| {
        machine.free(machine.malloc(512, streams[n * 7 % many]));
        machine.fill(64 * MIB, [stream]);
    })
}

fn first(many: usize) -> Cost {
    let machine = Machine::new::<PytorchPolicy>();
    machine.fill(512, machine.streams(many));
    let new = machine.streams(100);
    machine.cost(100, |n| machine.fill(512, [new[n]]))
}

fn retire(many: usize) -> Cost {
    let machine = Machine::new::<PytorchPolicy>();
    let streams = machine.streams(many + 100);
    machine.fill(512, streams.iter().copied());
    machine.cost(100, |n| machine.allocator.retire(streams[many + n]).expect("it is known"))
}

fn stats(many: usize) -> Cost {
    let machine = Machine::new::<PytorchPolicy>();
    machine.fill(512, machine.streams(many));
    machine.cost(10, |_| drop(machine.allocator.stats(DEVICE)))
}

/// Each stream still uses a block that was freed.
fn pending(many: usize) -> Cost {
    let machine = Machine::with_lag::<GranulePolicy>(u64::MAX / 2);
    let (own, streams) = (machine.stream(), machine.streams(many));
    let used = |n: usize| {
        let ptr = machine.malloc(512, own);
        machine.allocator.record_stream(ptr, streams[n % many]).expect("it is live");
        ptr
    };
    (0..many).for_each(|n| machine.free(used(n)));
    let blocks: Vec<_> = (0..1_000).map(|_| machine.malloc(512, own)).collect();
    machine.cost(1_000, |n| {
        machine.allocator.record_stream(blocks[n], streams[n * 7 % many]).expect("it is live");
        machine.free(blocks[n]);
    })
}

fn record(many: usize) -> Cost {
    let machine = Machine::new::<PytorchPolicy>();
    let (ptr, streams) = (machine.malloc(512, machine.stream()), machine.streams(many + 1_000));
    let record = |n: usize| machine.allocator.record_stream(ptr, streams[n]).expect("it is live");
    (0..many).for_each(record);
    machine.cost(1_000, |n| record(many + n))
}

fn free_of_users(many: usize) -> Cost {
    free_of_users_on(&Machine::new::<PytorchPolicy>(), many)
}

/// The device is still at work for each of them, and others wait for that.
fn free_of_busy_users(many: usize) -> Cost {
    let machine = Machine::with_lag::<PytorchPolicy>(u64::MAX / 2);
    let device = machine.allocator.backend();
    for stream in machine.streams(many) {
        let event = device.create_event(DEVICE, EventFlags::empty()).expect("there is no limit");
        device.record_event(event, stream).expect("the stream is there");
        device.wait_event(machine.stream(), event).expect("both are there");
    }
    free_of_users_on(&machine, many)
}

#[allow(clippy::cast_precision_loss)]
fn free_of_users_on(machine: &Machine, many: usize) -> Cost {
    let (own, streams) = (machine.stream(), machine.streams(many));
    let mut used: Vec<DevicePtr> = (0..5).map(|_| machine.malloc(512, own)).collect();
    for ptr in &used {
        streams.iter().for_each(|s| machine.allocator.record_stream(*ptr, *s).expect("it is live"));
    }
    let cost = machine.cost(5, |_| machine.free(used.pop().expect("one for each")));
    Cost { ns: cost.ns / many as f64, steps: cost.steps / many as f64, ..cost }
}

fn pool(machine: &Machine) -> MemoryPool {
    MemoryPool::new(&machine.allocator, DEVICE, PoolOptions::default()).expect("the id is fresh")
}

/// A pool that has a live block.
fn used_pool(machine: &Machine, stream: Stream) -> MemoryPool {
    let pool = pool(machine);
    let _live = malloc_in(&pool, &machine.allocator, 512, stream);
    pool
}

/// Makes a pool, uses it, and lets it go with all that it has.
fn make_and_release(machine: &Machine, stream: Stream) {
    let pool = pool(machine);
    machine.free(malloc_in(&pool, &machine.allocator, 512, stream));
}

fn pools_in_use(many: usize) -> Cost {
    let machine = Machine::new::<PytorchPolicy>();
    let stream = machine.stream();
    // Arenas are numbered with 16 bits: the others are there and have no memory yet.
    let _pools: Vec<_> =
        (0..many).map(|n| if n < 50_000 { used_pool(&machine, stream) } else { pool(&machine) }).collect();
    machine.cost(100, |_| make_and_release(&machine, stream))
}

fn pools_gone(many: usize) -> Cost {
    let machine = Machine::new::<PytorchPolicy>();
    let stream = machine.stream();
    (0..many).for_each(|_| make_and_release(&machine, stream));
    machine.cost(100, |_| make_and_release(&machine, stream))
}

/// A pool is released whose memory stays until the cache is emptied.
fn pools_cached(many: usize) -> Cost {
    let machine = Machine::new::<PytorchPolicy>();
    let (allocator, stream) = (&machine.allocator, machine.stream());
    let release_one = |_| {
        let id = PoolId::fresh();
        allocator.pools().begin(DEVICE, id, Filter::Always).expect("the id is fresh");
        machine.free(machine.malloc(512, stream));
        allocator.pools().end(DEVICE, id).expect("it was begun");
        allocator.pools().release(DEVICE, id).expect("it is there");
    };
    (0..many).for_each(release_one);
    machine.cost(100, release_one)
}

fn empty_one(many: usize) -> Cost {
    let machine = Machine::new::<PytorchPolicy>();
    let stream = machine.stream();
    let pools: Vec<_> = (0..many).map(|_| used_pool(&machine, stream)).collect();
    machine.cost(100, |n| {
        let pool = &pools[n * 7 % many];
        machine.free(malloc_in(pool, &machine.allocator, 3 * MIB, stream));
        machine.allocator.pools().empty(pool.id()).expect("the device takes it");
    })
}

fn sleep_one(many: usize) -> Cost {
    let machine = Machine::new::<PytorchPolicy>();
    let stream = machine.stream();
    let _pools: Vec<_> = (0..many).map(|_| used_pool(&machine, stream)).collect();
    let sleeper = tagged(&machine.allocator, "model");
    let _live = malloc_in(&sleeper, &machine.allocator, 64 * KIB, stream);
    machine.cost(20, |_| {
        let backup = Backup::HostPinned(Retention::Keep);
        machine.allocator.put_to_sleep(Tags::Only(&["model"]), &backup).expect("it can sleep");
        machine.allocator.sleep_mode().wake(Tags::Only(&["model"])).expect("there is room");
    })
}

fn stats_of_one(many: usize) -> Cost {
    let machine = Machine::new::<PytorchPolicy>();
    let stream = machine.stream();
    let pools: Vec<_> = (0..many).map(|_| used_pool(&machine, stream)).collect();
    machine.cost(100, |n| drop(pools[n * 7 % many].stats()))
}

/// A pool's last reference goes while a request takes memory for it, as the program hears of that memory.
fn released_within(many: usize) -> Cost {
    let machine = Machine::new::<PytorchPolicy>();
    let (allocator, stream) = (&machine.allocator, machine.stream());
    pass_a_peak(&machine, many, stream);
    let _pools: Vec<_> = (0..many).map(|_| used_pool(&machine, stream)).collect();
    let weak = Arc::downgrade(allocator);
    allocator.hooks().on_segment(move |event| {
        if event.change == SegmentChange::Attached
            && let Some(allocator) = weak.upgrade()
            && allocator.pools().end(DEVICE, event.pool).is_ok()
        {
            allocator.pools().release(DEVICE, event.pool).expect("it was begun");
        }
    });
    machine.cost(100, |_| {
        allocator.pools().begin(DEVICE, PoolId::fresh(), Filter::Always).expect("the id is fresh");
        machine.fill(15 * MIB, [stream]);
    })
}

/// A large pool goes, and another one takes its place.
fn stats_of_the_next(many: usize) -> Cost {
    let machine = Machine::new::<PytorchPolicy>();
    let stream = machine.stream();
    let large = pool(&machine);
    let scope = large.enter(Filter::Always).expect("it has none yet");
    let live: Vec<_> = (0..many).map(|_| machine.malloc(512, stream)).collect();
    drop(scope);
    live.into_iter().for_each(|ptr| machine.free(ptr));
    drop(large);
    let next = used_pool(&machine, stream);
    machine.cost(100, |_| drop(next.stats()))
}

/// Free memory in so many pieces, each smaller than what is asked for, and nothing more that may be taken.
fn in_pieces(many: usize) -> (Machine, Stream) {
    let machine = Machine::new::<GranulePolicy>();
    let stream = machine.stream();
    crate::views::pieces(&machine.allocator, stream, many as u64, 12);
    (machine, stream)
}

fn plan(many: usize) -> Cost {
    let (machine, stream) = in_pieces(many);
    machine.cost(20, |n| machine.fill((17 + n as u64 % 4) * MIB, [stream]))
}

/// Blocks of which every second is free, and views whose blocks live: a request that fits nowhere takes new memory.
fn crowded(many: usize) -> Cost {
    let views = many / 100 + 1;
    let (machine, stream) = in_pieces(2 * views + 8);
    machine.fill(20 * MIB, std::iter::repeat_n(stream, views));
    let blocks: Vec<_> = (0..2 * many).map(|_| machine.malloc(2 * MIB, stream)).collect();
    blocks.into_iter().step_by(2).for_each(|ptr| machine.free(ptr));
    machine.cost(20, |n| machine.fill((130 + n as u64 % 4) * MIB, [stream]))
}

/// Each view serves a request, which is freed and asked for again.
fn search(many: usize) -> Cost {
    let (machine, stream) = in_pieces(2 * many + 8);
    let live: Vec<_> = (0..many).map(|_| machine.malloc(20 * MIB, stream)).collect();
    let other = machine.malloc(MIB, stream);
    machine.free(other);
    machine.cost(50, |n| {
        machine.free(live[n * 7 % many]);
        // Else the block would be served as it was left.
        machine.free(machine.malloc(MIB, stream));
        machine.malloc(20 * MIB, stream);
    })
}

/// Requests of larger and larger sizes, of which a view each was made for; all views are free when a pass begins.
#[allow(clippy::cast_precision_loss)]
fn all_free(many: usize) -> Cost {
    let (machine, stream) = in_pieces(2 * many + 8);
    let pass = |_| {
        let live: Vec<_> = (0..many as u64).map(|n| machine.malloc(20 * MIB + n * 512, stream)).collect();
        live.into_iter().for_each(|ptr| machine.free(ptr));
    };
    pass(0);
    let cost = machine.cost(5, pass);
    Cost { ns: cost.ns / many as f64, steps: cost.steps / many as f64, ..cost }
}

/// A view with a block for every fourth, of which one after the other is freed and comes back.
fn within(many: usize) -> Cost {
    // As large as the largest granules here, so that each touches a border of one: what does not is looked for otherwise.
    const BYTES: u64 = 24 * MIB;
    let blocks = many / 4;
    let (machine, stream) = in_pieces(2 * blocks + 8);
    let view = machine.malloc(BYTES * blocks as u64, stream);
    machine.free(view);
    let place = |n: usize| DevicePtr(view.0 + BYTES * (n % blocks) as u64);
    let take = |n: usize| machine.allocator.malloc_at(BYTES, place(n), stream).expect("it is free");
    for n in 0..blocks {
        take(n);
    }
    machine.cost(50, |n| {
        machine.free(place(n * 7));
        take(n * 7);
    })
}
