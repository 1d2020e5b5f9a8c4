//! The proof that graphs can be replayed: a little program of copies and fills over memory that it allocates while it
//! is captured is launched again and again, between other allocations and frees on its own and other streams and
//! pools. Each time it computes what it should from its input; what others hold keeps its contents; nobody is given an
//! address of the graph's.

use alloc_core::backend::{CaptureMode, CopyKind, EventFlags};
use alloc_core::config::Settings;
use alloc_core::graph::{CapturedGraph, GraphCapture};
use alloc_core::pool::{Filter, MemoryPool, PoolOptions};
use alloc_core::types::{DevicePtr, KIB, MIB, PoolId, Stream};
use backend_openreg::{Clock, MemoryMode, OpenRegConfig};
use granule_tests::Allocator;
use granule_tests::bytes::{Bytes, first_other};
use granule_tests::rig::{DEVICE, Rig, on_each};
use granule_tests::setup::free_all;
use std::ops::Range;

/// Bytes of each of the program's buffers.
const BYTES: u64 = 96 * KIB;
const HALF: u64 = BYTES / 2;

/// Copies and fills on real bytes. Every address given to it is a live block's, or a graph's own.
struct Machine<'r> {
    rig: &'r Rig,
}

impl Machine<'_> {
    fn fill(&self, stream: Stream, ptr: DevicePtr, value: u8, bytes: u64) {
        Bytes(&*self.rig.backend).fill(stream, ptr, value, bytes);
    }

    fn copy(&self, stream: Stream, dst: DevicePtr, src: DevicePtr, bytes: u64) {
        // SAFETY: rule 2: see the type; the ranges are of different blocks.
        unsafe { self.rig.backend.copy_async(dst, src, bytes, CopyKind::DeviceToDevice, stream) }.unwrap();
    }

    fn write(&self, ptr: DevicePtr, contents: &[u8]) {
        Bytes(&*self.rig.backend).write(ptr, contents);
    }

    fn read(&self, ptr: DevicePtr, bytes: u64) -> Vec<u8> {
        Bytes(&*self.rig.backend).read(ptr, bytes)
    }

    /// Later work of `to` comes after all that `from` was given.
    fn join(&self, from: Stream, to: Stream) {
        let event = self.rig.backend.create_event(DEVICE, EventFlags::empty()).unwrap();
        self.rig.backend.record_event(event, from).unwrap();
        self.rig.backend.wait_event(to, event).unwrap();
        // SAFETY: rule 1: made above, and not used again.
        unsafe { self.rig.backend.destroy_event(event) }.unwrap();
    }
}

/// The captured program: `left` = first half of the input, then 0x11; `right` = 0x22, then the input's second half, by way
/// of memory that is freed and reused within the graph, and of a second stream.
struct Program {
    graph: CapturedGraph,
    input: DevicePtr,
    left: DevicePtr,
    right: DevicePtr,
}

impl Program {
    fn capture(rig: &Rig, allocator: &Allocator, stream: Stream, pool: Option<PoolId>) -> Self {
        let machine = Machine { rig };
        let side = rig.new_stream();
        let input = allocator.malloc(BYTES, rig.stream()).unwrap();
        let capture = GraphCapture::begin(allocator, stream, CaptureMode::Global, pool).unwrap();
        let take = |bytes| allocator.malloc(bytes, stream).unwrap();
        let scratch = take(BYTES);
        machine.copy(stream, scratch, input, BYTES);
        let left = take(BYTES);
        machine.fill(stream, left, 0x11, BYTES);
        machine.copy(stream, left, scratch, HALF);
        // The second half goes on by the other stream, in memory that was freed in between.
        let carried = take(HALF);
        machine.copy(stream, carried, scratch.add(HALF), HALF);
        allocator.free(scratch).unwrap();
        let right = take(BYTES);
        assert_eq!(right, scratch, "reused within the capture");
        machine.join(stream, side);
        allocator.record_stream(right, side).unwrap();
        allocator.record_stream(carried, side).unwrap();
        machine.fill(side, right, 0x22, BYTES);
        machine.copy(side, right.add(HALF), carried, HALF);
        machine.join(side, stream);
        allocator.free(carried).unwrap();
        let graph = capture.end().unwrap();
        Self { graph, input, left, right }
    }

    /// Launches it on new input, and looks at what it made.
    fn replay(&mut self, rig: &Rig, stream: Stream, round: u64) {
        let machine = Machine { rig };
        let contents: Vec<u8> = (0..BYTES).map(|n| (n * 31 + round * 7) as u8).collect();
        machine.write(self.input, &contents);
        // SAFETY: the input is live, and the rest is the graph's own pool's.
        unsafe { self.graph.launch(stream) }.unwrap();
        rig.backend.synchronize_stream(stream).unwrap();
        let (first, second) = contents.split_at(HALF as usize);
        let left = [first, &[0x11; HALF as usize]].concat();
        assert!(machine.read(self.left, BYTES) == left, "round {round}: the left result");
        let right = [&[0x22; HALF as usize], second].concat();
        assert!(machine.read(self.right, BYTES) == right, "round {round}: the right result");
    }

    /// Addresses that belong to the graph.
    fn territory(&self, allocator: &Allocator) -> Vec<Range<u64>> {
        let segments = self.graph.pools().flat_map(|pool| allocator.pools().snapshot(pool, false).segments);
        segments.map(|segment| segment.address..segment.address + segment.total_size).collect()
    }
}

/// What the rest of the program does meanwhile: blocks come and go, each filled with a value of its own.
struct Bustle<'r> {
    machine: Machine<'r>,
    allocator: &'r Allocator,
    live: Vec<(DevicePtr, u64, u8, Stream)>,
    forbidden: Vec<Range<u64>>,
    random: u64,
}

impl<'r> Bustle<'r> {
    fn new(rig: &'r Rig, allocator: &'r Allocator, forbidden: Vec<Range<u64>>) -> Self {
        assert!(!forbidden.is_empty());
        Self { machine: Machine { rig }, allocator, live: Vec::new(), forbidden, random: 42 }
    }

    fn next(&mut self, below: u64) -> u64 {
        self.random =
            self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.random >> 33) % below
    }

    fn go_on(&mut self, streams: &[Stream], steps: usize) {
        for _ in 0..steps {
            let n = self.next(u64::MAX >> 33) as usize;
            if self.live.len() > 12 || (n.is_multiple_of(3) && !self.live.is_empty()) {
                let index = n % self.live.len();
                self.give(index);
            } else {
                let sizes = [600, 40 * KIB, BYTES, 300 * KIB, MIB + 1];
                self.take(sizes[n % 5], streams[n / 7 % streams.len()]);
            }
        }
    }

    fn take(&mut self, bytes: u64, stream: Stream) {
        let ptr = self.allocator.malloc(bytes, stream).unwrap();
        let range = ptr.0..ptr.0 + bytes;
        let overlaps = |other: &Range<u64>| other.start < range.end && range.start < other.end;
        assert!(!self.forbidden.iter().any(overlaps), "{range:x?} is the graph's");
        let others = self.live.iter().map(|(ptr, bytes, ..)| ptr.0..ptr.0 + bytes);
        assert!(!others.into_iter().any(|other| overlaps(&other)), "{range:x?} is live");
        let value = self.next(200) as u8 + 1;
        self.machine.fill(stream, ptr, value, bytes);
        self.live.push((ptr, bytes, value, stream));
    }

    fn give(&mut self, index: usize) {
        let (ptr, bytes, value, stream) = self.live.swap_remove(index);
        self.machine.rig.backend.synchronize_stream(stream).unwrap();
        let contents = self.machine.read(ptr, bytes);
        assert!(
            first_other(&contents, value).is_none(),
            "someone wrote to a block of {bytes} bytes at {ptr}"
        );
        self.allocator.free(ptr).unwrap();
    }

    fn give_all(&mut self) {
        while !self.live.is_empty() {
            self.give(0);
        }
    }
}

fn machine(clock: Clock) -> OpenRegConfig {
    OpenRegConfig::default().devices(1).capacity(256 * MIB).memory(MemoryMode::Mapped).clock(clock)
}

fn all_settings() -> impl Iterator<Item = Settings> {
    [(false, false), (false, true), (true, false), (true, true)].into_iter().map(|(growable, reuse)| {
        Settings {
            expandable_segments: growable,
            graph_capture_record_stream_reuse: reuse,
            ..Settings::default()
        }
    })
}

fn prove(clock: Clock) {
    on_each(&machine(clock), |rig| {
        for settings in all_settings() {
            let allocator = rig.allocator(settings);
            let streams = [rig.stream(), rig.new_stream(), rig.new_stream()];
            let own = streams[1];
            let mut program = Program::capture(rig, &allocator, own, None);
            let mut bustle = Bustle::new(rig, &allocator, program.territory(&allocator));
            let pool = MemoryPool::new(&allocator, DEVICE, PoolOptions::default()).unwrap();
            for round in 0..12 {
                program.replay(rig, streams[round as usize % 3], round);
                bustle.go_on(&streams, 15);
                {
                    let _scope = pool.enter(Filter::this_thread()).unwrap();
                    bustle.go_on(&streams, 10);
                }
                match round {
                    // Its results are dead from here on; its addresses are not.
                    4 => {
                        [program.left, program.right].into_iter().for_each(|ptr| allocator.free(ptr).unwrap())
                    }
                    6 => allocator.empty_cache().unwrap(),
                    8 => {
                        bustle.give_all();
                        allocator.empty_cache().unwrap();
                    }
                    _ => {}
                }
                assert_eq!(program.territory(&allocator), bustle.forbidden, "its memory is where it was");
                allocator.check_invariants();
            }
            assert_eq!(rig.device.traps(), []);
            bustle.give_all();
            let Program { graph, input, .. } = program;
            drop(graph);
            allocator.free(input).unwrap();
            // Now others may have it.
            allocator.empty_cache().unwrap();
            bustle.forbidden.clear();
            bustle.go_on(&streams, 30);
            bustle.give_all();
            drop(pool);
            rig.nothing_is_left(&allocator);
        }
    });
}

#[test]
fn a_replayed_graph_finds_its_memory_as_it_left_it() {
    prove(Clock::Virtual { lag: 3 });
}

#[test]
fn a_replayed_graph_finds_its_memory_beside_true_asynchrony() {
    prove(Clock::Workers);
}

/// Two graphs in one pool, replayed in turn: the second works where the first's freed memory was, and both hold the pool.
#[test]
fn graphs_that_share_a_pool_take_turns() {
    on_each(&machine(Clock::Virtual { lag: 2 }), |rig| {
        for settings in all_settings() {
            let allocator = rig.allocator(settings);
            let streams = [rig.stream(), rig.new_stream()];
            let mut first = Program::capture(rig, &allocator, streams[1], None);
            let pool = first.graph.pools().next();
            // The first one's results are dead when the second is captured: they share addresses.
            allocator.free(first.left).unwrap();
            allocator.free(first.right).unwrap();
            let mut second = Program::capture(rig, &allocator, streams[1], pool);
            let [ours, theirs] = [&first, &second].map(|program| [program.left, program.right]);
            assert!(ours.iter().any(|ptr| theirs.contains(ptr)), "{ours:?} {theirs:?}");
            let mut bustle = Bustle::new(rig, &allocator, second.territory(&allocator));
            for round in 0..6 {
                first.replay(rig, streams[1], round);
                bustle.go_on(&streams, 10);
                second.replay(rig, streams[1], round + 100);
                bustle.go_on(&streams, 10);
            }
            drop(first.graph);
            allocator.empty_cache().unwrap();
            assert_eq!(second.territory(&allocator), bustle.forbidden, "the second still holds it");
            second.replay(rig, streams[0], 1000);
            bustle.give_all();
            free_all(&allocator, [second.left, second.right, second.input, first.input]);
            drop(second.graph);
            assert_eq!(rig.device.traps(), []);
            rig.nothing_is_left(&allocator);
        }
    });
}
