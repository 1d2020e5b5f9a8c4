//! Default streams under their several names, and stream handles that come back.

use alloc_core::CachingAllocator;
use alloc_core::backend::{Backend, Result};
use alloc_core::config::Settings;
use alloc_core::pool::Filter;
use alloc_core::types::{DeviceKind, DevicePtr, Event, GIB, MIB, PoolId, Stream};
use backend_openreg::{Call, Clock, OpenReg, OpenRegConfig};
use granule_conformance::interpose::{Hook, Interposed};
use granule_tests::policy::{Policy, PytorchPolicy};
use granule_tests::quiet::Retires;
use granule_tests::rig::DEVICE;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, mpsc};
use std::thread::ThreadId;

const LEGACY: u64 = 1;
const PER_THREAD: u64 = 2;

fn config() -> OpenRegConfig {
    OpenRegConfig::default().devices(1).capacity(8 * GIB).clock(Clock::Workers)
}

/// A driver whose handle 2 is another stream in each thread.
#[derive(Debug)]
struct Driver {
    kind: DeviceKind,
    of_threads: Mutex<HashMap<ThreadId, Stream>>,
    /// Calls that name a default stream, with the handle as it was given, and by whom.
    named: Mutex<Vec<(&'static str, u64, ThreadId)>>,
}

impl Driver {
    fn new(kind: DeviceKind) -> Arc<Self> {
        Arc::new(Self { kind, of_threads: Mutex::default(), named: Mutex::default() })
    }

    /// The stream behind a handle, in the calling thread.
    fn stream(&self, inner: &dyn Backend, stream: Stream) -> Stream {
        match stream.raw {
            PER_THREAD => *self
                .of_threads
                .lock()
                .unwrap()
                .entry(std::thread::current().id())
                .or_insert_with(|| inner.create_stream(stream.device, 0).unwrap()),
            LEGACY => Stream { raw: 0, ..stream },
            _ => stream,
        }
    }

    fn note(&self, call: &'static str, inner: &dyn Backend, stream: Stream) -> Stream {
        if [0, LEGACY, PER_THREAD].contains(&stream.raw) {
            self.named.lock().unwrap().push((call, stream.raw, std::thread::current().id()));
        }
        self.stream(inner, stream)
    }

    fn take_named(&self) -> Vec<(&'static str, u64, ThreadId)> {
        std::mem::take(&mut *self.named.lock().unwrap())
    }
}

#[derive(Debug)]
struct Names(Arc<Driver>);

impl Hook for Names {
    fn kind(&self, _: &dyn Backend) -> DeviceKind {
        self.0.kind
    }

    fn record_event(&self, inner: &dyn Backend, event: Event, stream: Stream) -> Result<()> {
        inner.record_event(event, self.0.note("record", inner, stream))
    }

    fn wait_event(&self, inner: &dyn Backend, stream: Stream, event: Event) -> Result<()> {
        inner.wait_event(self.0.note("wait", inner, stream), event)
    }

    fn synchronize_stream(&self, inner: &dyn Backend, stream: Stream) -> Result<()> {
        inner.synchronize_stream(self.0.note("synchronize", inner, stream))
    }
}

struct Rig {
    machine: Arc<OpenReg>,
    driver: Arc<Driver>,
    allocator: CachingAllocator,
}

impl Rig {
    fn new<P: Policy>(kind: DeviceKind) -> Self {
        let machine = OpenReg::new(config()).unwrap();
        let driver = Driver::new(kind);
        let backend = Arc::new(Interposed::new(machine.clone(), Names(Arc::clone(&driver))));
        let allocator = granule_tests::made::<P>(backend, Settings::default()).unwrap();
        Self { machine, driver, allocator }
    }

    /// The stream with a handle.
    fn stream(&self, raw: u64) -> Stream {
        Stream { raw, ..self.machine.default_stream(DEVICE) }
    }

    fn malloc(&self, raw: u64) -> DevicePtr {
        self.allocator.malloc(40 * MIB, self.stream(raw)).unwrap()
    }

    /// Work on a stream as the calling thread knows it, held up until what is returned is dropped.
    fn hold(&self, raw: u64) -> mpsc::Sender<()> {
        let (open, gate) = mpsc::channel::<()>();
        let stream = self.driver.stream(&*self.machine, self.stream(raw));
        self.machine.launch_host_function(stream, Box::new(move || _ = gate.recv())).unwrap();
        open
    }

    fn nothing_is_left(&self) {
        self.allocator.check_invariants();
        self.allocator.empty_cache().unwrap();
        assert_eq!((self.machine.used(DEVICE), self.machine.traps()), (0, Vec::new()));
    }
}

/// Runs `work` on another thread, to its end.
fn elsewhere<R: Send>(work: impl FnOnce() -> R + Send) -> R {
    std::thread::scope(|scope| scope.spawn(work).join().unwrap())
}

fn the_legacy_stream_is_the_default_stream<P: Policy>() {
    for kind in [DeviceKind::Cuda, DeviceKind::Hip] {
        let rig = Rig::new::<P>(kind);
        let ptr = rig.malloc(0);
        rig.allocator.record_stream(ptr, rig.stream(LEGACY)).unwrap();
        rig.allocator.free(ptr).unwrap();
        assert_eq!(rig.malloc(LEGACY), ptr, "its own stream, which is no other use");
        assert_eq!(rig.driver.take_named(), [], "so no event is needed");
        let streams: Vec<u64> = rig.allocator.snapshot(false).segments.iter().map(|s| s.stream).collect();
        assert_eq!(streams, [0]);
        rig.allocator.free(ptr).unwrap();
        rig.nothing_is_left();
    }
}

#[test]
fn other_kinds_of_devices_may_number_their_streams_from_1() {
    let rig = Rig::new::<PytorchPolicy>(DeviceKind::PrivateUse1);
    let on_default = rig.malloc(0);
    rig.allocator.free(on_default).unwrap();
    let on_1 = rig.malloc(1);
    assert_ne!(on_1, on_default);
    rig.allocator.free(on_1).unwrap();
    let on_2 = rig.malloc(2);
    assert!(on_2 != on_1 && on_2 != on_default);
    rig.allocator.free(on_2).unwrap();
    assert_eq!(elsewhere(|| rig.malloc(2)), on_2, "one stream, whichever thread names it");
}

fn threads_do_not_share_their_default_streams_memory<P: Policy>() {
    for kind in [DeviceKind::Cuda, DeviceKind::Hip] {
        let rig = Rig::new::<P>(kind);
        let mine = rig.malloc(PER_THREAD);
        rig.allocator.free(mine).unwrap();
        let (others, again) = elsewhere(|| {
            let ptr = rig.malloc(PER_THREAD);
            rig.allocator.free(ptr).unwrap();
            (ptr, rig.malloc(PER_THREAD))
        });
        assert_eq!(others, again);
        assert_ne!(mine, others, "my stream's work may still use it");
        assert_eq!(rig.malloc(PER_THREAD), mine);
        let streams: Vec<u64> = rig.allocator.snapshot(false).segments.iter().map(|s| s.stream).collect();
        assert_eq!(streams, [PER_THREAD, PER_THREAD], "as their threads call them");
        rig.allocator.free(mine).unwrap();
        // A block may be freed on any thread: it goes back to its own stream.
        rig.allocator.free(others).unwrap();
        assert_eq!(rig.malloc(PER_THREAD), mine);
        rig.allocator.free(mine).unwrap();
        rig.nothing_is_left();
    }
}

fn a_thread_that_frees_what_its_own_default_stream_uses_records_an_event_there<P: Policy>() {
    let rig = Rig::new::<P>(DeviceKind::Cuda);
    let me = std::thread::current().id();
    let ptr = rig.malloc(0);
    rig.allocator.record_stream(ptr, rig.stream(PER_THREAD)).unwrap();
    let held = rig.hold(PER_THREAD);
    rig.allocator.free(ptr).unwrap();
    assert_eq!(rig.driver.take_named(), [("record", PER_THREAD, me)]);
    assert_ne!(rig.malloc(0), ptr, "it waits for the stream");
    drop(held);
    rig.allocator.synchronise(DEVICE).unwrap();
    assert_eq!(rig.malloc(0), ptr);
    assert_eq!(rig.allocator.stats(DEVICE).unwrap().granule.unrecorded_frees, 0);
}

fn a_free_on_another_thread_names_no_wrong_stream_and_waits_for_the_device<P: Policy>() {
    for kind in [DeviceKind::Cuda, DeviceKind::Hip] {
        let rig = Rig::new::<P>(kind);
        let ptr = rig.malloc(0);
        rig.allocator.record_stream(ptr, rig.stream(PER_THREAD)).unwrap();
        let held = rig.hold(PER_THREAD);
        elsewhere(|| {
            // It has a default stream of its own, which is idle.
            rig.driver.stream(&*rig.machine, rig.stream(PER_THREAD));
            rig.allocator.free(ptr).unwrap();
            assert_ne!(rig.malloc(0), ptr);
        });
        assert_eq!(rig.driver.take_named(), [], "there is no name for it there");
        assert_eq!(rig.allocator.stats(DEVICE).unwrap().granule.unrecorded_frees, 1);
        assert_ne!(rig.malloc(0), ptr, "still in use");
        let waits = rig.machine.calls().get(Call::SynchronizeDevice);
        elsewhere(|| {
            drop(held);
            rig.allocator.synchronise(DEVICE).unwrap();
        });
        assert_eq!(rig.machine.calls().get(Call::SynchronizeDevice), waits + 1);
        assert_eq!(rig.driver.take_named(), []);
        assert_eq!(rig.malloc(0), ptr);
    }
}

fn another_threads_cached_memory_is_given_back_after_a_wait_for_the_device<P: Policy>() {
    let rig = Rig::new::<P>(DeviceKind::Cuda);
    let ptr = rig.malloc(PER_THREAD);
    rig.allocator.free(ptr).unwrap();
    let waits = rig.machine.calls().get(Call::SynchronizeDevice);
    elsewhere(|| rig.nothing_is_left());
    assert_eq!(rig.machine.calls().get(Call::SynchronizeDevice), waits + 1);
    assert_eq!(rig.driver.take_named(), []);
}

fn a_thread_that_ends_passes_its_streams_memory_on<P: Policy>() {
    let rig = Rig::new::<P>(DeviceKind::Cuda);
    let (ptr, before) = elsewhere(|| {
        let ptr = rig.malloc(PER_THREAD);
        rig.allocator.free(ptr).unwrap();
        rig.allocator.retire(rig.stream(PER_THREAD)).unwrap();
        (ptr, std::thread::current().id())
    });
    let me = std::thread::current().id();
    assert_eq!(rig.malloc(PER_THREAD), ptr, "another thread's stream adopts it");
    assert_eq!(rig.driver.take_named(), [("record", PER_THREAD, before), ("wait", PER_THREAD, me)]);
    rig.allocator.free(ptr).unwrap();
    rig.nothing_is_left();
}

fn scopes_for_a_threads_default_stream_serve_that_one_only<P: Policy>() {
    let rig = Rig::new::<P>(DeviceKind::Cuda);
    let pool = PoolId::fresh();
    rig.allocator.pools().begin(DEVICE, pool, Filter::Stream(rig.stream(PER_THREAD))).unwrap();
    rig.malloc(PER_THREAD);
    elsewhere(|| rig.malloc(PER_THREAD));
    rig.allocator.pools().end(DEVICE, pool).unwrap();
    assert_eq!(rig.allocator.pools().stats(DEVICE, pool).unwrap().allocation, 1);

    let asked = Arc::new(Mutex::new(Vec::new()));
    let noted = Arc::clone(&asked);
    let custom = Filter::Custom(Arc::new(move |stream: Stream| {
        noted.lock().unwrap().push(stream.raw);
        false
    }));
    rig.allocator.pools().begin(DEVICE, pool, custom).unwrap();
    rig.malloc(PER_THREAD);
    assert_eq!(*asked.lock().unwrap(), [PER_THREAD], "filters see streams as the program names them");
}

/// The handle comes back from the driver; to the engine it is another stream, in every pool.
fn a_handle_that_comes_back_is_a_new_stream_in_every_pool<P: Policy>() {
    let machine =
        OpenReg::new(OpenRegConfig::default().devices(1).capacity(8 * GIB).reuse_handles(true)).unwrap();
    let allocator = granule_tests::made::<P>(machine.clone(), Settings::default()).unwrap();
    let pool = PoolId::fresh();
    let own = machine.default_stream(DEVICE);
    let old = machine.create_stream(DEVICE, 0).unwrap();
    let outside = allocator.malloc(40 * MIB, old).unwrap();
    allocator.pools().begin(DEVICE, pool, Filter::Always).unwrap();
    let inside = allocator.malloc(40 * MIB, old).unwrap();
    let used = allocator.malloc(30 * MIB, own).unwrap();
    allocator.record_stream(used, old).unwrap();
    allocator.free(inside).unwrap();
    allocator.free(outside).unwrap();
    allocator.retire(old).unwrap();
    // SAFETY: rule 1: made by the test, which does not use it again.
    unsafe { machine.destroy_stream(old) }.unwrap();
    let new = machine.create_stream(DEVICE, 0).unwrap();
    assert_eq!(new, old, "the driver has used the handle again");

    let calls = machine.calls();
    assert_eq!(allocator.malloc(40 * MIB, new).unwrap(), inside, "its pool's memory, adopted");
    assert_eq!(
        machine.calls().get(Call::WaitEvent),
        calls.get(Call::WaitEvent) + 1,
        "after the old stream's end"
    );
    allocator.pools().end(DEVICE, pool).unwrap();
    assert_eq!(
        allocator.malloc(40 * MIB, new).unwrap(),
        outside,
        "the default pool's arena has an end of its own"
    );
    assert_eq!(machine.calls().get(Call::WaitEvent), calls.get(Call::WaitEvent) + 2);
    allocator.free(used).unwrap();
    assert_eq!(
        machine.calls().get(Call::RecordEvent),
        calls.get(Call::RecordEvent),
        "the new stream never used it"
    );

    allocator.free(inside).unwrap();
    allocator.free(outside).unwrap();
    allocator.pools().release(DEVICE, pool).unwrap();
    allocator.empty_cache().unwrap();
    allocator.check_invariants();
    assert_eq!((machine.used(DEVICE), machine.traps()), (0, Vec::new()));
}

granule_tests::for_each_policy!(
    the_legacy_stream_is_the_default_stream,
    threads_do_not_share_their_default_streams_memory,
    a_thread_that_frees_what_its_own_default_stream_uses_records_an_event_there,
    a_free_on_another_thread_names_no_wrong_stream_and_waits_for_the_device,
    another_threads_cached_memory_is_given_back_after_a_wait_for_the_device,
    a_thread_that_ends_passes_its_streams_memory_on,
    scopes_for_a_threads_default_stream_serve_that_one_only,
    a_handle_that_comes_back_is_a_new_stream_in_every_pool,
);
