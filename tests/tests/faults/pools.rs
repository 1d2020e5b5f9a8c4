//! The fault loop over private pools, captures and checkpoints: every driver call of a program fails in turn, those the
//! program makes itself included. What failed works when it is made again, nothing is lost, no work is disturbed.

use alloc_core::CachingAllocator;
use alloc_core::backend::{Backend, CaptureMode, EventFlags, HandleType, Result as DriverResult};
use alloc_core::config::Settings;
use alloc_core::pool::{Filter, PhysicalSource, SegmentSource};
use alloc_core::types::{DeviceIndex, DevicePtr, MIB, PhysicalHandle, PoolId, Stream};
use backend_openreg::{Clock, OpenReg, OpenRegConfig};
use granule_tests::fault_loop::{Machine, Simulated, kind_of};
use granule_tests::policy::Policy;
use granule_tests::rig::DEVICE;
use std::cell::Cell;
use std::fmt::Debug;
use std::sync::Arc;

/// A pool's own functions: the driver's.
#[derive(Debug)]
struct Borrowed {
    backend: Arc<dyn Backend>,
    grows: bool,
}

// SAFETY: the driver's memory is disjoint, large enough and aligned (I1), and nothing else frees it.
unsafe impl SegmentSource for Borrowed {
    fn alloc(&self, bytes: u64, stream: Stream) -> Option<DevicePtr> {
        self.backend.malloc(stream.device, bytes).ok()
    }
    unsafe fn free(&self, ptr: DevicePtr, _: u64, stream: Stream) {
        // A source cannot say no: it tries until the driver takes the memory.
        // SAFETY: rule 3, by this function's contract.
        while unsafe { self.backend.free(stream.device, ptr) }.is_err() {}
    }
    fn physical(&self) -> Option<&dyn PhysicalSource> {
        self.grows.then_some(self)
    }
}

// SAFETY: handles that the device has just made, each handed out once.
unsafe impl PhysicalSource for Borrowed {
    fn create(&self, device: DeviceIndex, bytes: u64) -> Option<PhysicalHandle> {
        self.backend.virtual_memory().ok()?.create_physical(device, bytes, HandleType::None).ok()
    }
    fn release(&self, handle: PhysicalHandle) -> DriverResult<()> {
        let vm = self.backend.virtual_memory().expect("it made the handle");
        // SAFETY: rule 1: made by `create`, released once.
        unsafe { vm.release_physical(handle) }
    }
}

/// A program under test. Whatever fails is made again at once and must work then.
struct Program<'m> {
    machine: &'m dyn Machine,
    backend: Arc<dyn Backend>,
    allocator: CachingAllocator,
    stream: Stream,
    side: Stream,
    struck: Cell<bool>,
}

impl Program<'_> {
    fn again<T, E: Debug>(&self, what: impl Fn() -> Result<T, E>) -> T {
        self.machine.tick();
        what().unwrap_or_else(|error| {
            assert!(!self.struck.replace(true), "one failing call fails one operation: {error:?}");
            self.allocator.check_invariants();
            what().unwrap_or_else(|again| {
                panic!("the call after a failed one works: {error:?}, then {again:?}")
            })
        })
    }

    fn malloc(&self, bytes: u64, stream: Stream) -> DevicePtr {
        self.again(|| self.allocator.malloc(bytes, stream))
    }

    fn free(&self, ptr: DevicePtr) {
        self.allocator.free(ptr).expect("free never fails");
    }

    /// Work that uses the memory; it traps where that has left.
    fn write(&self, stream: Stream, ptr: DevicePtr) {
        // SAFETY: rule 2: a live block of this program's, on its own stream or one that is recorded.
        self.again(|| unsafe { self.backend.memset_async(ptr, 1, 512, stream) });
    }

    /// A pool that is used, shared with the side stream, left, and released while a block lives on.
    fn user_pool(&self, source: Option<Arc<dyn SegmentSource>>) {
        let pool = PoolId::fresh();
        let allocator = &self.allocator;
        allocator.pools().create(DEVICE, pool, source).unwrap();
        allocator.pools().begin(DEVICE, pool, Filter::Stream(self.stream)).unwrap();
        self.again(|| allocator.pools().prime(pool, self.stream, &[4 * MIB]));
        let (small, large) = (self.malloc(3 * MIB, self.stream), self.malloc(40 * MIB, self.stream));
        self.write(self.side, small);
        allocator.record_stream(small, self.side).unwrap();
        self.free(small);
        allocator.pools().end(DEVICE, pool).unwrap();
        for _ in 0..2 {
            allocator.pools().release(DEVICE, pool).unwrap();
        }
        self.again(|| allocator.pools().empty(pool));
        self.write(self.stream, large);
        self.free(large);
        self.again(|| allocator.empty_cache());
        assert!(allocator.pools().use_count(DEVICE, pool).is_err(), "the pool is gone with its memory");
    }

    /// A capture with a side stream, replayed around a checkpoint.
    fn captured_pool(&self) {
        let (allocator, backend, pool) = (&self.allocator, &self.backend, PoolId::fresh_for_capture());
        let capture = backend.capture().unwrap();
        let event = || self.again(|| backend.create_event(DEVICE, EventFlags::empty()));
        let (fork, join) = (event(), event());
        allocator.pools().begin(DEVICE, pool, Filter::Stream(self.stream)).unwrap();
        self.again(|| capture.begin(self.stream, CaptureMode::ThreadLocal));
        allocator.pools().mark_capture_begin(DEVICE).unwrap();
        let shared = self.malloc(5 * MIB, self.stream);
        self.write(self.stream, shared);
        self.again(|| backend.record_event(fork, self.stream));
        self.again(|| backend.wait_event(self.side, fork));
        self.write(self.side, shared);
        allocator.record_stream(shared, self.side).unwrap();
        self.free(shared);
        let kept = self.malloc(5 * MIB, self.stream);
        assert_ne!(kept, shared, "the side stream may still use it");
        self.write(self.stream, kept);
        self.again(|| backend.record_event(join, self.side));
        self.again(|| backend.wait_event(self.stream, join));
        let graph = self.again(|| capture.end(self.stream));
        allocator.pools().mark_capture_end(DEVICE).unwrap();
        allocator.pools().end(DEVICE, pool).unwrap();
        let launch = || {
            // SAFETY: rule 2: the pool keeps the graph's memory while it is in use.
            self.again(|| unsafe { capture.launch(graph, self.stream) });
        };
        launch();
        self.again(|| allocator.synchronise(DEVICE));
        let saved = self.again(|| allocator.pools().checkpoint(DEVICE, pool));
        self.free(kept);
        allocator.pools().begin(DEVICE, pool, Filter::Stream(self.stream)).unwrap();
        let other = self.malloc(30 * MIB, self.stream);
        allocator.pools().end(DEVICE, pool).unwrap();
        let delta = self.again(|| allocator.pools().restore(&saved, None));
        assert_eq!((delta.freed, delta.allocated), (vec![other], vec![kept]));
        launch();
        self.free(kept);
        self.again(|| backend.synchronize_stream(self.stream));
        // SAFETY: rule 1: no launch is queued any more, and the handles are not used again.
        self.again(|| unsafe { capture.destroy_graph(graph) });
        for event in [fork, join] {
            // SAFETY: as above.
            self.again(|| unsafe { backend.destroy_event(event) });
        }
        for _ in 0..2 {
            allocator.pools().release(DEVICE, pool).unwrap();
        }
    }
}

/// Runs the program with call `k` failing (0: none). Returns the calls it made, and whether one operation failed.
fn run<P: Policy>(machine: &dyn Machine, settings: &Settings, k: u64) -> (u64, bool) {
    let backend = machine.backend();
    let new_stream = || backend.create_stream(DEVICE, 0).unwrap();
    let (stream, side) = (new_stream(), new_stream());
    let allocator = granule_tests::made::<P>(backend.clone(), settings.clone()).unwrap();
    let (used, traps, calls) = (machine.used(), machine.traps(), machine.calls());
    let program = Program { machine, backend, allocator, stream, side, struck: Cell::new(false) };
    machine.fail(k, kind_of(k));
    program.user_pool(None);
    for grows in [false, true] {
        program.user_pool(Some(Arc::new(Borrowed { backend: program.backend.clone(), grows })));
    }
    program.captured_pool();
    program.again(|| program.allocator.empty_cache());
    program.allocator.empty_cache().expect("and once more: what a failure left behind goes now");
    program.allocator.check_invariants();
    assert_eq!(machine.used(), used, "bytes return to the baseline (call {k})");
    assert_eq!(machine.traps(), traps, "no memory left while work used it (call {k})");
    let stats = program.allocator.stats(DEVICE).unwrap();
    assert_eq!((stats.reserved_bytes.all.current, stats.active_bytes.all.current), (0, 0), "call {k}");
    let outcome = (machine.calls() - calls, program.struck.get());
    machine.fail(0, kind_of(k));
    let backend = Arc::clone(&program.backend);
    drop(program);
    for stream in [stream, side] {
        // SAFETY: rule 1: made above, and nothing uses it any more.
        unsafe { backend.destroy_stream(stream) }.unwrap();
    }
    outcome
}

fn every_call_of_pools_captures_and_checkpoints_may_fail<P: Policy>() {
    let growable = Settings { expandable_segments: true, ..Settings::default() };
    let reusing = Settings { graph_capture_record_stream_reuse: true, ..growable.clone() };
    for settings in [Settings::default(), growable, reusing] {
        let config = OpenRegConfig::default().devices(1).clock(Clock::Virtual { lag: 3 });
        let machine = Simulated { device: OpenReg::new(config).unwrap(), lag: 3 };
        let (calls, struck) = run::<P>(&machine, &settings, 0);
        assert!(!struck && calls > 60, "the program makes {calls} calls");
        let noticed = (1..=calls).filter(|k| run::<P>(&machine, &settings, *k).1).count();
        println!("{calls} calls failed in turn, {noticed} operations noticed");
        assert!(noticed as u64 > calls / 4, "most failures are somebody's: {noticed} of {calls}");
    }
}

granule_tests::for_each_policy!(every_call_of_pools_captures_and_checkpoints_may_fail);
