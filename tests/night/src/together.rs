//! Several threads at once, in an order that the seed chooses: at each lock and each counter of the engine another one may go on.
//!
//! They take, use and give back memory beside all that the history has, and keep none of it. What is between two operations
//! is no operation: a history has the same ones with and without threads.

use crate::contents::{Pattern, Span};
use crate::oracle;
use crate::verdict::{Finding, Verdict, caught};
use crate::wire::Wire;
use crate::world::{State, World, things};
use alloc_core::backend::Backend;
use alloc_core::host::HostAllocator;
use alloc_core::pool::{Filter, MemoryPool, PoolOptions};
use alloc_core::sleep::{Backup, Retention, SleepTag, Tags};
use alloc_core::snapshot::BlockState;
use alloc_core::types::{DeviceIndex, DevicePtr, MIB, Stream};
use alloc_core::{AllocError, CachingAllocator};
use backend_openreg::{FaultPlan, OpenReg};
use fastrand::Rng;
use shuttle::thread;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// How many threads there are, and how much each does.
const THREADS: std::ops::RangeInclusive<usize> = 2..=8;
const ACTS: std::ops::Range<usize> = 2..14;
/// Time in which all work is done.
const LONG: u64 = 1 << 30;

/// An allocator, as a thread sees it.
#[derive(Debug)]
struct Seat<'a> {
    process: usize,
    host: Option<&'a HostAllocator>,
    allocator: Arc<CachingAllocator>,
    machine: Arc<OpenReg>,
    wire: Arc<Wire>,
    /// Streams that all threads give work.
    streams: Vec<Stream>,
}

/// A block in the hands of one thread, or of none.
#[derive(Debug)]
struct Block {
    seat: usize,
    ptr: DevicePtr,
    bytes: u64,
    home: Stream,
    last: Stream,
    known: Pattern,
}

/// What the threads share. Nobody has a lock over a call of the engine, so the scheduler need not see these.
pub(crate) struct Program<'a> {
    seats: Vec<Seat<'a>>,
    devices: u16,
    /// Whether devices have virtual memory.
    growable: bool,
    state: Arc<Mutex<State>>,
    verdict: Arc<Verdict>,
    blocks: Mutex<Vec<Block>>,
    /// The most things that there were at a time, as [`World::most`] counts them.
    most: AtomicU64,
}

impl<'a> Seat<'a> {
    /// An allocator that threads may use: it caches.
    fn of(world: &'a World, site: usize) -> Option<Self> {
        let of = &world.sites[site];
        let settings = of.settings.borrow();
        if !of.allocator.is_enabled() {
            return None;
        }
        let state = world.state();
        let lanes =
            state.alive.iter().map(|lane| state.lanes[*lane]).filter(|lane| lane.process == of.process);
        Some(Self {
            process: of.process,
            host: world.processes[of.process].host.as_ref(),
            allocator: Arc::clone(&of.allocator),
            machine: Arc::clone(&world.processes[of.process].machine),
            wire: Arc::clone(&world.processes[of.process].wire),
            streams: lanes.map(|lane| lane.stream).collect(),
        })
    }
}

impl Program<'_> {
    /// Has threads run to their ends. While a stream is captured, there is one thread.
    pub(crate) fn run(world: &World, seed: u64, op: usize) {
        let random = &mut Rng::with_seed(seed ^ (op as u64) << 32);
        if world.state().captured.is_some() {
            return;
        }
        let seats: Vec<_> = (0..world.sites.len()).filter_map(|site| Seat::of(world, site)).collect();
        if seats.is_empty() {
            return;
        }
        // What launches may write comes before and after all of it.
        let settle = || world.processes.iter().for_each(|process| process.machine.advance(LONG));
        settle();
        let program = Program {
            seats,
            devices: world.setup.devices,
            growable: world.setup.growable,
            state: Arc::clone(&world.shared),
            verdict: Arc::clone(&world.verdict),
            blocks: Mutex::default(),
            most: AtomicU64::default(),
        };
        thread::scope(|scope| {
            for _ in 0..random.usize(THREADS) {
                let (program, mut own) = (&program, random.fork());
                scope.spawn(move || {
                    let acts = own.usize(ACTS);
                    let done = caught(|| {
                        for _ in 0..acts {
                            program.act(&mut own);
                            program.count();
                        }
                    });
                    if let Err(Finding { oracle, what }) = done {
                        program.verdict.find(oracle, what);
                    }
                });
            }
        });
        while let Some(block) = program.pick(random) {
            program.give(block);
        }
        world.most.set(world.most.get().max(program.most.load(Ordering::Relaxed)));
        settle();
        oracle::quiet(world);
    }

    fn act(&self, random: &mut Rng) {
        let seat = random.usize(0..self.seats.len());
        let of = &self.seats[seat];
        let (stream, device) = (self.stream(of, random), DeviceIndex(random.u16(0..self.devices)));
        match random.u8(0..30) {
            0..9 => {
                // Nobody has the list over a call of the engine.
                let taken = self.take(seat, stream, bytes(random));
                self.blocks().extend(taken);
            }
            9..15 => self.pick(random).into_iter().for_each(|block| self.give(block)),
            15..18 => self.use_elsewhere(random),
            18 => drop(self.done(of, "empty_cache", of.allocator.empty_cache())),
            19 => drop(self.done(of, "poll", of.allocator.poll(device))),
            20 => drop(self.done(of, "synchronise", of.allocator.synchronise(device))),
            21 => drop(self.done(of, "stats", of.allocator.stats(device))),
            22 => self.with_a_stream(seat, device, random),
            23 => self.look(of),
            24..27 => self.in_a_pool(seat, stream, random),
            27 => self.asleep(seat, stream, random),
            _ => self.pinned(of, stream, random),
        }
    }

    fn count(&self) {
        let machines: BTreeMap<_, _> = self.seats.iter().map(|seat| (seat.process, &seat.machine)).collect();
        let things: usize = machines.values().map(|machine| things(machine)).sum();
        let blocks = self.blocks().len() + self.state().blocks.len();
        self.most.fetch_max((things + blocks) as u64, Ordering::Relaxed);
    }

    fn stream(&self, of: &Seat<'_>, random: &mut Rng) -> Stream {
        of.streams[random.usize(0..of.streams.len())]
    }

    fn blocks(&self) -> MutexGuard<'_, Vec<Block>> {
        self.blocks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.try_lock().expect("nobody has the state over a call of the engine")
    }

    /// What was done, which only a driver that fails and a full device prevent.
    fn done<T>(&self, of: &Seat<'_>, what: &str, done: Result<T, AllocError>) -> Option<T> {
        let refused = |error: &AllocError| {
            let full = error.is_out_of_memory() || matches!(error, AllocError::NoRoomToWake { .. });
            let allowed = full || self.state().faulty[of.process];
            self.verdict.expect(allowed, "refused", || format!("{what} beside other threads: {error}"));
        };
        done.inspect_err(refused).ok()
    }

    /// A block that no thread has in its hands, into those of this one.
    fn pick(&self, random: &mut Rng) -> Option<Block> {
        let mut blocks = self.blocks();
        let count = blocks.len();
        (count > 0).then(|| blocks.swap_remove(random.usize(0..count)))
    }

    /// Asks for memory, and writes it.
    fn take(&self, seat: usize, stream: Stream, bytes: u64) -> Option<Block> {
        let of = &self.seats[seat];
        let ptr = self.done(of, "malloc", of.allocator.malloc(bytes, stream))?;
        let size = of.allocator.block_size(ptr).unwrap_or(bytes);
        let tag = {
            let mut state = self.state();
            if let Some((at, end)) = state.claim(of.process, ptr, size) {
                let what = format!("{ptr}+{size} was handed out, and {at:#x} to {end:#x} is live");
                self.verdict.find("overlap", what);
            }
            state.saw(ptr.0 & ((1 << 38) - 1));
            state.number()
        };
        let known = Pattern { tag, version: 0 };
        let block = Block { seat, ptr, bytes, home: stream, last: stream, known };
        self.work(&block, None, Some(known));
        Some(block)
    }

    /// Work of the block's last stream finds `old` there, and leaves `new`.
    fn work(&self, block: &Block, old: Option<Pattern>, new: Option<Pattern>) {
        let machine = &self.seats[block.seat].machine;
        let (tag, stream, ptr, bytes) = (block.known.tag, block.last, block.ptr, block.bytes);
        if let Err(error) = machine.use_memory_as(tag, stream, ptr, bytes) {
            self.verdict.find("order", format!("block {tag} at {ptr}, beside other threads: {error}"));
        }
        Span { machine, stream, ptr, bytes }.work(&self.verdict, tag, old, new);
    }

    /// Another stream uses a block, and the engine is told.
    fn use_elsewhere(&self, random: &mut Rng) {
        let Some(mut block) = self.pick(random) else { return };
        let of = &self.seats[block.seat];
        let stream = self.stream(of, random);
        let told = of.allocator.record_stream(block.ptr, stream);
        // Peers are another matter.
        if told.is_ok() && stream.device == block.home.device {
            let ordered = of.machine.order(block.last, stream);
            self.verdict.expect(ordered.is_ok(), "machine", || format!("order: {ordered:?}"));
            let next = Pattern { version: block.known.version + 1, ..block.known };
            block.last = stream;
            self.work(&block, Some(block.known), Some(next));
            block.known = next;
        }
        self.done(of, "record_stream", told);
        self.blocks().push(block);
    }

    /// Looks at a block once more, and gives it back.
    fn give(&self, block: Block) {
        self.work(&block, Some(block.known), None);
        self.let_go(block);
    }

    fn let_go(&self, block: Block) {
        let of = &self.seats[block.seat];
        self.state().unclaim(of.process, block.ptr);
        if self.done(of, "free", of.allocator.free(block.ptr)).is_none() {
            of.machine.set_faults(FaultPlan::none());
            let again = of.allocator.free(block.ptr);
            self.verdict.expect(again.is_ok(), "free", || format!("{block:?} once more: {again:?}"));
        }
    }

    /// A stream comes, has memory, and ends.
    fn with_a_stream(&self, seat: usize, device: DeviceIndex, random: &mut Rng) {
        let of = &self.seats[seat];
        let stream = match of.machine.create_stream(device, 0) {
            Ok(stream) => stream,
            Err(error) => return self.verdict.find("machine", error.to_string()),
        };
        of.wire.set_dead(stream, false);
        if let Some(block) = self.take(seat, stream, bytes(random)) {
            self.give(block);
        }
        for other in self.seats.iter().filter(|other| other.process == of.process) {
            // SAFETY: what uses memory of the stream was queued before, and it is not named again.
            self.done(of, "retire_stream", unsafe { other.allocator.retire_stream(stream) });
        }
        of.wire.set_dead(stream, true);
        // SAFETY: rule 1: made above, and not named again.
        let ended = unsafe { of.machine.destroy_stream(stream) };
        self.verdict.expect(ended.is_ok(), "machine", || format!("{ended:?}"));
    }

    /// A private pool comes, and serves this thread.
    fn take_in(
        &self,
        seat: usize,
        stream: Stream,
        options: PoolOptions,
        random: &mut Rng,
    ) -> Option<(MemoryPool, Block)> {
        let of = &self.seats[seat];
        let pool =
            self.done(of, "MemoryPool::new", MemoryPool::new(&of.allocator, stream.device, options))?;
        let scope = self.done(of, "enter", pool.enter(Filter::this_thread()))?;
        let block = self.take(seat, stream, bytes(random));
        drop(scope);
        block.map(|block| (pool, block))
    }

    /// A private pool ends, perhaps before its block.
    fn in_a_pool(&self, seat: usize, stream: Stream, random: &mut Rng) {
        let options = PoolOptions { use_on_oom: random.bool(), ..PoolOptions::default() };
        let Some((_pool, block)) = self.take_in(seat, stream, options, random) else { return };
        if random.bool() { self.blocks().push(block) } else { self.give(block) }
    }

    /// A private pool sleeps with what this thread has in it, and wakes.
    fn asleep(&self, seat: usize, stream: Stream, random: &mut Rng) {
        let of = &self.seats[seat];
        // No other pool has it.
        let tag = format!("thread {}", self.state().number());
        let options = PoolOptions { sleep_tag: Some(SleepTag::new(&tag)), ..PoolOptions::default() };
        // On a device without virtual memory nothing sleeps.
        let taken = if self.growable { self.take_in(seat, stream, options, random) } else { None };
        let Some((_pool, block)) = taken else { return };
        let (modes, tags) = (of.allocator.sleep_mode(), [tag.as_str()]);
        // SAFETY: what uses the pool's memory was queued before, and nothing uses it until it is awake.
        let slept = unsafe { modes.sleep(Tags::Only(&tags), &Backup::HostPinned(Retention::Release)) };
        self.done(of, "sleep", slept);
        self.done(of, "wake", modes.wake(Tags::Only(&tags)));
        if modes.is_asleep(block.ptr) == Some(true) {
            self.let_go(block);
        } else {
            self.give(block);
        }
    }

    /// Page-locked memory comes, is used by a stream, and goes back.
    fn pinned(&self, of: &Seat<'_>, stream: Stream, random: &mut Rng) {
        let Some(host) = of.host else { return };
        let taken = host.allocate_for(random.u64(1..1 << 20), stream);
        let Some(block) = self.done(of, "allocate page-locked memory", taken) else { return };
        self.done(of, "record_event", host.record_event(block.ptr, block.id, stream));
        self.done(of, "free page-locked memory", host.free(block.id));
        if random.u8(0..4) == 0 {
            self.done(of, "empty the cache of page-locked memory", host.empty_cache());
        }
    }

    /// A snapshot shows no two blocks that overlap.
    fn look(&self, of: &Seat<'_>) {
        let snapshot = of.allocator.snapshot(false);
        let blocks = snapshot.segments.iter().flat_map(|segment| &segment.blocks);
        let live = blocks.filter(|block| block.state == BlockState::ActiveAllocated);
        let mut live: Vec<_> = live.map(|block| (block.address, block.size)).collect();
        live.sort_unstable();
        let apart = live.windows(2).all(|two| two[0].0 + two[0].1 <= two[1].0);
        self.verdict.expect(apart, "snapshot", || format!("blocks overlap: {live:x?}"));
    }
}

fn bytes(random: &mut Rng) -> u64 {
    match random.u8(0..8) {
        0..3 => random.u64(1..4096),
        3..5 => random.u64(4096..MIB),
        5..7 => random.u64(MIB..8 * MIB),
        _ => random.u64(8 * MIB..40 * MIB),
    }
}
