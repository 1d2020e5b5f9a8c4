//! The fault loop over pinned host memory: every driver call of a program fails in turn. What failed works when it is made
//! again, nothing is lost, no work is disturbed, and in the end everything goes back.

use alloc_core::AllocError;
use alloc_core::backend::{Backend, BackendError, CaptureMode, CopyKind, ErrorKind, Result as DriverResult};
use alloc_core::config::{PolicyName, Settings};
use alloc_core::host::{HostAllocator, HostBlock, HostOptions};
use alloc_core::pool::Filter;
use alloc_core::types::{DevicePtr, KIB, MIB, PoolId, Stream};
use backend_openreg::{Call, Clock, OpenReg, OpenRegConfig};
use granule_conformance::interpose::{Hook, Interposed};
use granule_tests::quiet::Retires;
use granule_tests::rig::DEVICE;
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// Lets one call fail.
#[derive(Debug, Default)]
struct Fault {
    /// Calls until then; 0 for never.
    after: AtomicU64,
    calls: AtomicU64,
    kind: Mutex<Option<ErrorKind>>,
    struck: Mutex<Option<&'static str>>,
}

impl Fault {
    fn set(&self, k: u64, kind: ErrorKind) {
        *self.kind.lock().unwrap() = Some(kind);
        *self.struck.lock().unwrap() = None;
        self.calls.store(0, Ordering::Relaxed);
        self.after.store(k, Ordering::Relaxed);
    }
}

#[derive(Debug)]
struct Between(Arc<Fault>);

impl Hook for Between {
    fn enter(&self, method: &'static str) -> DriverResult<()> {
        let n = self.0.calls.fetch_add(1, Ordering::Relaxed) + 1;
        if n == self.0.after.load(Ordering::Relaxed) {
            *self.0.struck.lock().unwrap() = Some(method);
            let kind = self.0.kind.lock().unwrap().unwrap();
            return Err(BackendError::new(kind, 1, method, DEVICE, "planned"));
        }
        Ok(())
    }
}

/// A machine, and a driver that can fail before its calls reach the machine: those that do have worked.
struct World {
    machine: Arc<OpenReg>,
    driver: Arc<dyn Backend>,
    fault: Arc<Fault>,
    streams: [Stream; 2],
    device: DevicePtr,
}

impl World {
    fn new() -> Self {
        let config = OpenRegConfig::default().devices(1).clock(Clock::Virtual { lag: 5 });
        let machine = OpenReg::new(config).unwrap();
        let fault = Arc::new(Fault::default());
        let driver = Arc::new(Interposed::new(machine.clone(), Between(Arc::clone(&fault))));
        let streams = [0, 1].map(|_| machine.create_stream(DEVICE, 0).unwrap());
        let device = machine.malloc(DEVICE, 8 * MIB).unwrap();
        Self { machine, driver, fault, streams, device }
    }

    fn pinned(&self) -> u64 {
        let calls = self.machine.calls();
        let taken = calls.get(Call::HostMalloc) + calls.get(Call::RegisterHost);
        taken - calls.get(Call::HostFree) - calls.get(Call::UnregisterHost)
    }
}

/// A program under test. What fails is made again at once, and must work then.
struct Program<'w> {
    world: &'w World,
    host: HostAllocator,
    struck: Cell<bool>,
    live: RefCell<Vec<HostBlock>>,
}

impl Program<'_> {
    fn again<T>(&self, what: impl Fn() -> Result<T, AllocError>) -> T {
        self.world.machine.advance(1);
        what().unwrap_or_else(|error| {
            assert!(matches!(error, AllocError::Backend(_)), "{error:?}");
            assert!(!self.struck.replace(true), "one failing call fails one operation: {error:?}");
            what().unwrap_or_else(|again| {
                panic!("the call after a failed one works: {error:?}, then {again:?}")
            })
        })
    }

    fn allocate(&self, bytes: u64, stream: Option<Stream>) -> HostBlock {
        let block = self.again(|| match stream {
            Some(stream) => self.host.allocate_for(bytes, stream),
            None => self.host.allocate(bytes),
        });
        let mut live = self.live.borrow_mut();
        let apart = |other: &HostBlock| {
            block.ptr.0 + block.size <= other.ptr.0 || other.ptr.0 + other.size <= block.ptr.0
        };
        assert!(live.iter().all(apart), "two blocks share memory");
        live.push(block);
        block
    }

    fn free(&self, block: HostBlock) {
        self.live.borrow_mut().retain(|other| other.id != block.id);
        match self.host.free(block.id) {
            Ok(()) => {}
            // A large block that the driver did not take back: it is cached.
            Err(AllocError::Backend(error)) => {
                assert!(!self.struck.replace(true), "one failing call fails one operation: {error:?}");
            }
            Err(error) => panic!("{error:?}"),
        }
    }

    fn copy(&self, block: HostBlock, bytes: u64, stream: Stream) {
        let copy = || {
            // SAFETY: rule 2: the blocks of this allocator wait for the stream; a trap would tell.
            unsafe {
                self.host.copy_async(self.world.device, block.ptr, bytes, CopyKind::HostToDevice, stream)
            }
        };
        self.again(copy);
    }

    fn run(&self) {
        let [stream, side] = self.world.streams;
        let host = &self.host;
        let small = self.allocate(1000, None);
        let large = self.allocate(3 * MIB, None);
        self.copy(large, 3 * MIB, stream);
        self.copy(large, MIB, side);
        self.free(large);
        let other = self.allocate(3 * MIB, None);
        assert_ne!(other.ptr, large.ptr, "it is in use");
        self.again(|| host.poll());
        self.free(other);
        for round in 0..3 {
            let block = self.allocate(KIB << round, Some(stream));
            self.again(|| host.record_event(block.ptr, block.id, side).map(|found| assert!(found)));
            self.free(block);
            self.again(|| host.empty_cache());
        }
        // What is too much to be kept goes back.
        self.free(self.allocate(8 * MIB, None));
        self.free(self.allocate(12 * MIB, None));
        self.captured(stream);
        // A pool of its own, released while it has a block.
        let pool = PoolId::fresh();
        self.again(|| host.begin_pool(pool, &Filter::CaptureOf(stream)));
        let outside = self.allocate(64 * KIB, Some(stream));
        self.again(|| host.end_pool(pool));
        self.again(|| host.release_pool(pool));
        self.free(outside);
        // A stream that ends with work on its way.
        let last = self.world.machine.create_stream(DEVICE, 0).unwrap();
        let (freed, held) = (self.allocate(32 * KIB, None), self.allocate(32 * KIB, None));
        self.copy(freed, 32 * KIB, last);
        self.copy(held, 32 * KIB, last);
        self.free(freed);
        self.again(|| host.retire(last));
        // SAFETY: rule 1: it was retired; its work still runs.
        unsafe { self.world.machine.destroy_stream(last) }.unwrap();
        self.free(held);
        self.again(|| host.synchronise());
        self.free(small);
        self.again(|| host.empty_cache());
    }

    fn captured(&self, stream: Stream) {
        // The program's own calls do not fail: what they are is not under test here.
        let capture = self.world.machine.capture().unwrap();
        let before = self.allocate(16 * KIB, None);
        self.copy(before, 16 * KIB, stream);
        capture.begin(stream, CaptureMode::Global).unwrap();
        // Something of before that is freed now, and things of the graph's.
        self.free(before);
        let (used, unused) = (self.allocate(128 * KIB, Some(stream)), self.allocate(256 * KIB, Some(stream)));
        self.copy(used, 128 * KIB, stream);
        self.free(used);
        self.free(unused);
        let again = self.allocate(128 * KIB, Some(stream));
        assert_ne!(again.ptr, used.ptr, "a graph uses it");
        self.free(again);
        let graph = capture.end(stream).unwrap_or_else(|error| {
            panic!(
                "the capture is whole, whatever failed ({:?}): {error}",
                self.world.fault.struck.lock().unwrap()
            )
        });
        // SAFETY: rule 1: it was never launched.
        unsafe { capture.destroy_graph(graph) }.unwrap();
    }
}

/// Runs the program with call `k` failing (0: none). Returns the calls it made, and what failed.
fn run(settings: &Settings, k: u64, kind: ErrorKind) -> (u64, Option<&'static str>) {
    let world = World::new();
    let host = HostAllocator::new(world.driver.clone(), settings, HostOptions::default()).unwrap();
    world.fault.set(k, kind);
    let program = Program { world: &world, host, struck: Cell::new(false), live: RefCell::default() };
    program.run();
    let (calls, struck) = (world.fault.calls.load(Ordering::Relaxed), *world.fault.struck.lock().unwrap());
    world.fault.set(0, kind);
    let host = program.host;
    host.synchronise().unwrap();
    host.empty_cache().unwrap();
    let stats = host.stats();
    let kept = stats.granule.kept_bytes;
    assert!(kept >= 128 * KIB as i64, "graphs keep what they use");
    assert_eq!((stats.granule.pending_bytes, stats.active_bytes.current), (0, kept), "call {k}: {struck:?}");
    assert_eq!(stats.allocated_bytes.current, kept, "call {k}: {struck:?}");
    assert_eq!(stats.granule.requested_bytes, kept, "call {k}: {struck:?}");
    // In the reserve there are no calls to count by.
    if settings.pinned_reserve_segment_size == 0 {
        assert_eq!(world.pinned(), stats.allocations.current as u64, "call {k}: {struck:?}");
    }
    drop(host);
    assert_eq!(world.pinned(), 0, "call {k} ({struck:?}): everything goes back");
    assert_eq!(world.machine.traps(), Vec::new(), "call {k} ({struck:?})");
    (calls, struck)
}

/// Nobody can ask again after the end, so the end itself tries what failed once more.
#[test]
fn every_driver_call_of_the_end_fails_in_turn_and_everything_goes_back() {
    for settings in [
        Settings { pinned_reserve_segment_size: 4 * MIB, ..Settings::default() },
        Settings { pinned_use_host_register: true, ..Settings::default() },
    ] {
        for k in 1.. {
            let world = World::new();
            let host = HostAllocator::new(world.driver.clone(), &settings, HostOptions::default()).unwrap();
            let [stream, side] = world.streams;
            let capture = world.machine.capture().unwrap();
            let (cached, waits) = (host.allocate(8 * MIB).unwrap(), host.allocate(KIB).unwrap());
            assert!(host.record_event(waits.ptr, waits.id, side).unwrap());
            capture.begin(stream, CaptureMode::Global).unwrap();
            let kept = host.allocate_for(16 * MIB, stream).unwrap();
            assert!(host.record_event(kept.ptr, kept.id, stream).unwrap());
            let graph = capture.end(stream).unwrap();
            // SAFETY: rule 1: it was never launched.
            unsafe { capture.destroy_graph(graph) }.unwrap();
            [cached, waits, kept].into_iter().for_each(|block| host.free(block.id).unwrap());
            assert_eq!(host.stats().granule.kept_bytes, 16 * MIB as i64);
            world.fault.set(k, ErrorKind::Other);
            drop(host);
            let struck = *world.fault.struck.lock().unwrap();
            assert_eq!(world.pinned(), 0, "call {k}: {struck:?}");
            assert_eq!(world.machine.traps(), Vec::new(), "call {k}: {struck:?}");
            if struck.is_none() {
                assert!(k > 8, "{k} calls");
                break;
            }
        }
    }
}

#[test]
fn every_driver_call_fails_in_turn_and_nothing_is_lost() {
    let usual = Settings::default();
    let all = [
        usual.clone(),
        Settings { pinned_use_host_register: true, pinned_num_register_threads: 4, ..usual.clone() },
        Settings { pinned_reserve_segment_size: 4 * MIB, ..usual.clone() },
        Settings { pinned_max_cached_size: MIB, pinned_max_round_threshold: MIB, ..usual.clone() },
        Settings { pinned_sizes: Some(PolicyName::Granule), ..usual.clone() },
        Settings { pinned_max_cached_size: MIB, pinned_free_catch_all: true, ..usual },
    ];
    let mut failed = BTreeSet::new();
    for settings in &all {
        let (calls, _) = run(settings, 0, ErrorKind::Other);
        assert!(calls > 100, "{calls} calls");
        for k in 1..=calls {
            for kind in [ErrorKind::Other, ErrorKind::OutOfMemory] {
                failed.extend(run(settings, k, kind).1);
            }
        }
    }
    let all = [
        "Backend::device_count",
        "Backend::has_primary_context",
        "Backend::current_device",
        "PinnedHost::host_malloc",
        "PinnedHost::host_free",
        "Backend::create_event",
        "Backend::record_event",
        "Backend::query_event",
        "Backend::synchronize_event",
        "Backend::pointer_info",
        "Backend::copy_async",
        "Capture::status",
        "Capture::exchange_mode",
        "HostRegistration::register",
        "HostRegistration::unregister",
    ];
    let missing: Vec<_> = all.iter().filter(|call| !failed.contains(*call)).collect();
    assert!(missing.is_empty(), "these never failed: {missing:?}; these did: {failed:?}");
}
