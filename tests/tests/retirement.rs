//! Retirement and adoption where calls fail, threads meet, and streams are captured; and the last resort, where
//! threads meet over memory.
#![allow(clippy::unwrap_used)] // a test says what is wrong by panicking

use alloc_core::CachingAllocator;
use alloc_core::backend::{
    Backend, BackendError, Capture, CaptureMode, CaptureStatus, ErrorKind, EventFlags, Readiness, Result,
};
use alloc_core::config::Settings;
use alloc_core::error::AllocError;
use alloc_core::policy::{Policy, PytorchPolicy};
use alloc_core::pool::{Filter, SegmentSource};
use alloc_core::types::{DeviceIndex, DevicePtr, Event, GIB, MIB, PoolId, Stream};
use backend_openreg::{Call, Clock, Effect, Fault, FaultPlan, OpenReg, OpenRegConfig};
use conformance::interpose::{Hook, Interposed};
use granule::history::HistoryOptions;
use granule_tests::quiet::Retires;
use granule_tests::{Allocator, with_policy};
use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak, mpsc};
use std::time::Duration;

const DEVICE: DeviceIndex = DeviceIndex(0);
/// Long enough for anything that does not wait.
const SOON: Duration = Duration::from_secs(3);

fn config() -> OpenRegConfig {
    OpenRegConfig::default().devices(1).capacity(8 * GIB)
}

fn behind<H: Hook, P: Policy>(
    config: OpenRegConfig,
    hook: H,
) -> (Arc<OpenReg>, Arc<Interposed<H>>, Allocator<P>, Stream) {
    let device = OpenReg::new(config).unwrap();
    let backend = Arc::new(Interposed::new(device.clone(), hook));
    let allocator = CachingAllocator::<P>::new(backend.clone(), Settings::default()).unwrap();
    let home = device.default_stream(DEVICE);
    (device, backend, Arc::new(allocator), home)
}

/// "It is not retired then": no device may treat it so, or what it is given afterwards is not waited for.
fn a_stream_that_is_refused_on_one_device_is_retired_on_none<P: Policy>() {
    for first_to_fail in [1, 2] {
        let lagging = config().devices(2).clock(Clock::Virtual { lag: 1000 });
        let (device, allocator, home) = with_policy::<P>(lagging, Settings::default());
        allocator.enable_peer_access(DeviceIndex(1), DEVICE).unwrap();
        let user = device.create_stream(DeviceIndex(1), 0).unwrap();
        let own = allocator.malloc(30 * MIB, user).unwrap();
        let shared = allocator.malloc(30 * MIB, home).unwrap();
        device.use_memory(user, shared, 30 * MIB).unwrap();
        allocator.record_stream(shared, user).unwrap();
        // No event can be made, from the first or the second on, and nothing can be waited for.
        let fail = Fault::from(first_to_fail, Effect::Fail(ErrorKind::Other)).of(Call::CreateEvent);
        let faults = FaultPlan::none()
            .with(fail)
            .fail_all(Call::SynchronizeStream, ErrorKind::Other)
            .fail_all(Call::SynchronizeDevice, ErrorKind::Other);
        device.set_faults(faults);
        let retired = allocator.retire(user);
        device.set_faults(FaultPlan::none());
        device.advance(5000);
        if retired.is_err() {
            // As it is not retired, the program goes on with it.
            device.use_memory(user, shared, 30 * MIB).unwrap();
        }
        allocator.free(shared).unwrap();
        allocator.poll(DEVICE).unwrap();
        let pending = allocator.stats(DEVICE).unwrap().granule.pending_bytes;
        assert_eq!(pending > 0, retired.is_err(), "pending while the stream uses the block, and no longer");
        device.advance(5000);
        allocator.free(own).unwrap();
        allocator.retire(user).unwrap();
        allocator.check_invariants();
        allocator.empty_cache().unwrap();
        assert_eq!(device.traps(), Vec::new());
    }
}

/// The documentation: waits only where another thread waits *for the same stream*. A program may need the
/// retirement's return to let the other stream go on.
fn retiring_does_not_wait_for_an_unrelated_stream<P: Policy>() {
    let (device, allocator, _) = with_policy::<P>(config().clock(Clock::Workers), Settings::default());
    let [slow, done] = [(); 2].map(|()| device.create_stream(DEVICE, 0).unwrap());
    let [one, two] = [slow, done].map(|stream| allocator.malloc(30 * MIB, stream).unwrap());
    let (open, gate) = mpsc::channel::<()>();
    device.launch_host_function(slow, Box::new(move || gate.recv().unwrap())).unwrap();
    allocator.free(one).unwrap();
    allocator.free(two).unwrap();
    device.reset_calls();
    std::thread::scope(|scope| {
        scope.spawn(|| allocator.empty_cache().unwrap());
        while device.calls().get(Call::SynchronizeStream) == 0 {
            std::thread::yield_now();
        }
        let (returned, retirement) = mpsc::channel();
        let allocator = &allocator;
        scope.spawn(move || returned.send(allocator.retire(done)));
        let retired = retirement.recv_timeout(SOON);
        open.send(()).unwrap();
        assert!(retired.is_ok(), "it waits for a stream that has nothing to do with it");
    });
}

/// Some events are broken: nobody can ask about them or wait for them.
#[derive(Debug, Default)]
struct BrokenEvents {
    last: AtomicU64,
    broken: Mutex<HashSet<u64>>,
}

impl BrokenEvents {
    fn check(&self, event: Event) -> Result<()> {
        if self.broken.lock().unwrap().contains(&event.raw) {
            return Err(BackendError::new(ErrorKind::Other, 1, "event", DEVICE, "broken"));
        }
        Ok(())
    }

    /// The event that was recorded last breaks.
    fn break_last(&self) {
        self.broken.lock().unwrap().insert(self.last.load(Ordering::Relaxed));
    }
}

impl Hook for BrokenEvents {
    fn record_event(&self, inner: &dyn Backend, event: Event, stream: Stream) -> Result<()> {
        self.last.store(event.raw, Ordering::Relaxed);
        inner.record_event(event, stream)
    }
    fn wait_event(&self, inner: &dyn Backend, stream: Stream, event: Event) -> Result<()> {
        self.check(event)?;
        inner.wait_event(stream, event)
    }
    fn query_event(&self, inner: &dyn Backend, event: Event) -> Result<Readiness> {
        self.check(event)?;
        inner.query_event(event)
    }
    fn synchronize_event(&self, inner: &dyn Backend, event: Event) -> Result<()> {
        self.check(event)?;
        inner.synchronize_event(event)
    }
}

/// One retired stream whose event is broken must not keep the memory of all that retire after it from use.
fn a_broken_event_strands_no_other_stream_s_memory<P: Policy>() {
    let (device, backend, allocator, _) = behind::<_, P>(config(), BrokenEvents::default());
    let [broken, sound] = [(); 2].map(|()| device.create_stream(DEVICE, 0).unwrap());
    let [one, two] = [broken, sound].map(|stream| allocator.malloc(30 * MIB, stream).unwrap());
    allocator.free(one).unwrap();
    allocator.free(two).unwrap();
    allocator.retire(broken).unwrap();
    backend.hook().break_last();
    allocator.retire(sound).unwrap();
    let used = device.used(DEVICE);
    for _ in 0..20 {
        let stream = device.create_stream(DEVICE, 0).unwrap();
        let ptr = allocator.malloc(30 * MIB, stream).unwrap();
        allocator.free(ptr).unwrap();
        allocator.retire(stream).unwrap();
        allocator.check_invariants();
    }
    // The first new one may begin with nothing; it must not go on like that.
    assert!(device.used(DEVICE) <= used + 30 * MIB, "every new stream takes memory of its own");
}

/// What a wait for the whole device has shown to be done is not asked about again.
fn a_broken_event_does_no_harm_once_its_work_is_known_to_be_done<P: Policy>() {
    let (device, backend, allocator, home) = behind::<_, P>(config(), BrokenEvents::default());
    let user = device.create_stream(DEVICE, 0).unwrap();
    let ptrs = [(); 2].map(|()| allocator.malloc(30 * MIB, home).unwrap());
    ptrs.iter().for_each(|ptr| allocator.record_stream(*ptr, user).unwrap());
    let own = allocator.malloc(MIB, user).unwrap();
    allocator.free(own).unwrap();
    allocator.retire(user).unwrap();
    backend.hook().break_last();
    allocator.free(ptrs[0]).unwrap();
    allocator.synchronise(DEVICE).unwrap();
    allocator.free(ptrs[1]).unwrap();
    let next = allocator.malloc(30 * MIB, home).expect("nothing has to be asked");
    let new = device.create_stream(DEVICE, 0).unwrap();
    assert_eq!(allocator.malloc(MIB, new).unwrap(), own, "nor waited for");
    allocator.free(own).unwrap();
    allocator.free(next).unwrap();
    allocator.check_invariants();
}

/// A captured stream cannot wait for work outside its capture: trying breaks the capture.
#[test]
fn adopting_memory_breaks_no_capture() {
    for retires in [false, true] {
        let (device, allocator, _) = with_policy::<PytorchPolicy>(config(), Settings::default());
        let [old, new] = [(); 2].map(|()| device.create_stream(DEVICE, 0).unwrap());
        let ptr = allocator.malloc(30 * MIB, old).unwrap();
        allocator.free(ptr).unwrap();
        if retires {
            allocator.retire(old).unwrap();
        }
        let capture = device.capture().unwrap();
        capture.begin(new, CaptureMode::Relaxed).unwrap();
        let ptr = allocator.malloc(30 * MIB, new).unwrap();
        let graph = capture.end(new).unwrap_or_else(|error| panic!("retired before: {retires}: {error}"));
        // SAFETY: rule 1: not used again.
        unsafe { capture.destroy_graph(graph) }.unwrap();
        allocator.free(ptr).unwrap();
        // Out of the capture, the next new one gets what was retired.
        let later = device.create_stream(DEVICE, 0).unwrap();
        let used = device.used(DEVICE);
        let ptr = allocator.malloc(30 * MIB, later).unwrap();
        assert_eq!(device.used(DEVICE) == used, retires);
        allocator.free(ptr).unwrap();
        allocator.check_invariants();
    }
}

/// Holds up the calls that order one stream after others.
#[derive(Debug)]
struct SlowWait {
    slow: AtomicU64,
    entered: Mutex<mpsc::Sender<()>>,
    gate: Mutex<mpsc::Receiver<()>>,
}

impl Hook for SlowWait {
    fn wait_event(&self, inner: &dyn Backend, stream: Stream, event: Event) -> Result<()> {
        if self.slow.load(Ordering::Relaxed) == stream.raw {
            self.entered.lock().unwrap().send(()).unwrap();
            self.gate.lock().unwrap().recv().unwrap();
        }
        inner.wait_event(stream, event)
    }
}

/// With more streams than the table of likely arenas has places, too, a request that the cache can serve waits
/// for no other thread's driver call.
fn a_stream_with_an_arena_never_waits_for_another_s_adoption<P: Policy>() {
    let (entered, has_entered) = mpsc::channel();
    let (open, gate) = mpsc::channel();
    let hook = SlowWait { slow: AtomicU64::new(0), entered: Mutex::new(entered), gate: Mutex::new(gate) };
    let (device, backend, allocator, _) = behind::<_, P>(config(), hook);
    let serve = |stream| allocator.free(allocator.malloc(512, stream).unwrap()).unwrap();
    let streams: Vec<_> = (0..1100).map(|_| device.create_stream(DEVICE, 0).unwrap()).collect();
    streams.iter().for_each(|stream| serve(*stream));
    let [ends, begins] = [(); 2].map(|()| device.create_stream(DEVICE, 0).unwrap());
    serve(ends);
    allocator.retire(ends).unwrap();
    backend.hook().slow.store(begins.raw, Ordering::Relaxed);
    std::thread::scope(|scope| {
        scope.spawn(|| serve(begins));
        has_entered.recv().unwrap();
        let (served, all) = mpsc::channel();
        let (serve, streams) = (&serve, &streams);
        scope.spawn(move || {
            for stream in streams {
                serve(*stream);
                let _ = served.send(());
            }
        });
        let count = (0..streams.len()).take_while(|_| all.recv_timeout(SOON).is_ok()).count();
        open.send(()).unwrap();
        assert_eq!(count, streams.len(), "a cached block was there for each");
    });
}

/// A query that takes its time; waiting for an event fails once; what names a destroyed event is counted.
#[derive(Debug)]
struct SlowQuery {
    entered: Mutex<mpsc::Sender<()>>,
    gate: Mutex<mpsc::Receiver<()>>,
    dead: Mutex<HashSet<u64>>,
    named: AtomicU64,
}

impl Hook for SlowQuery {
    fn query_event(&self, inner: &dyn Backend, event: Event) -> Result<Readiness> {
        self.entered.lock().unwrap().send(()).unwrap();
        self.gate.lock().unwrap().recv().unwrap();
        if self.dead.lock().unwrap().contains(&event.raw) {
            self.named.fetch_add(1, Ordering::Relaxed);
        }
        inner.query_event(event)
    }
    fn synchronize_event(&self, _: &dyn Backend, _: Event) -> Result<()> {
        Err(BackendError::new(ErrorKind::Other, 1, "synchronize event", DEVICE, "broken"))
    }
    unsafe fn destroy_event(&self, inner: &dyn Backend, event: Event) -> Result<()> {
        self.dead.lock().unwrap().insert(event.raw);
        // SAFETY: rule 1: the caller's promise, passed on.
        unsafe { inner.destroy_event(event) }
    }
}

/// Rule 1: a broken event is destroyed only when no other thread can still ask for it.
fn no_thread_names_an_event_that_another_has_destroyed<P: Policy>() {
    let (entered, has_entered) = mpsc::channel();
    let (open, gate) = mpsc::channel();
    let hook = SlowQuery {
        entered: Mutex::new(entered),
        gate: Mutex::new(gate),
        dead: Mutex::default(),
        named: AtomicU64::new(0),
    };
    let (device, backend, allocator, home) = behind::<_, P>(config(), hook);
    let user = device.create_stream(DEVICE, 0).unwrap();
    let ptr = allocator.malloc(30 * MIB, home).unwrap();
    allocator.record_stream(ptr, user).unwrap();
    allocator.free(ptr).unwrap();
    std::thread::scope(|scope| {
        // This one may fail: the event is broken.
        let polls = scope.spawn(|| allocator.poll(DEVICE).is_ok());
        has_entered.recv().unwrap();
        allocator.synchronise(DEVICE).unwrap();
        open.send(()).unwrap();
        polls.join().unwrap();
    });
    assert_eq!(backend.hook().named.load(Ordering::Relaxed), 0);
    assert_eq!(allocator.stats(DEVICE).unwrap().granule.pending_bytes, 0);
    drop(allocator);
    let calls = device.calls();
    assert_eq!(calls.get(Call::CreateEvent), calls.get(Call::DestroyEvent), "events are destroyed");
}

/// No event is left when the allocator goes, in whatever state its streams and blocks are.
fn no_event_outlives_the_allocator<P: Policy>() {
    let (device, allocator, home) =
        with_policy::<P>(config().clock(Clock::Virtual { lag: 1000 }), Settings::default());
    let [user, other, own] = [(); 3].map(|()| device.create_stream(DEVICE, 0).unwrap());
    let ptrs = [(); 4].map(|()| allocator.malloc(30 * MIB, home).unwrap());
    for ptr in ptrs {
        allocator.record_stream(ptr, user).unwrap();
        allocator.record_stream(ptr, other).unwrap();
        device.use_memory(user, ptr, 64).unwrap();
    }
    allocator.malloc(MIB, own).unwrap();
    allocator.free(ptrs[0]).unwrap();
    device.set_faults(FaultPlan::none().fail_all(Call::RecordEvent, ErrorKind::Other));
    allocator.free(ptrs[1]).unwrap();
    device.set_faults(FaultPlan::none());
    allocator.retire(user).unwrap();
    allocator.retire(own).unwrap();
    allocator.free(ptrs[2]).unwrap();
    drop(allocator);
    let calls = device.calls();
    assert_eq!(calls.get(Call::CreateEvent), calls.get(Call::DestroyEvent));
    let probe = device.create_event(DEVICE, EventFlags::empty()).unwrap();
    // SAFETY: rule 1.
    unsafe { device.destroy_event(probe) }.unwrap();
}

/// A long history of many short-lived streams is read in one pass, because everything is locked meanwhile.
fn a_history_of_many_streams_is_read_quickly<P: Policy>() {
    const STREAMS: usize = 30_000;
    let (device, allocator, _) = with_policy::<P>(config(), Settings::default());
    allocator.record_history(&HistoryOptions::newest(1_000_000).deterministic());
    let mut raws = Vec::new();
    let begun = std::time::Instant::now();
    for _ in 0..STREAMS {
        let stream = device.create_stream(DEVICE, 0).unwrap();
        for _ in 0..4 {
            allocator.free(allocator.malloc(MIB, stream).unwrap()).unwrap();
        }
        allocator.retire(stream).unwrap();
        raws.push(stream.raw);
    }
    println!("lives: {:?}", begun.elapsed());
    let begun = std::time::Instant::now();
    let trace = allocator.snapshot(true).device_traces.swap_remove(0);
    let took = begun.elapsed();
    println!("snapshot: {took:?}");
    let mut streams: Vec<u64> = trace.iter().map(|entry| entry.stream).collect();
    streams.dedup();
    assert_eq!(streams, raws, "each stream's records carry its handle");
    assert!(took < Duration::from_secs(1), "{took:?}");
}

/// Recording the end of a captured stream would make it part of the graph, and say nothing.
fn a_captured_stream_does_not_retire<P: Policy>() {
    let (device, allocator, _) = with_policy::<P>(config(), Settings::default());
    let [stream, next] = [(); 2].map(|()| device.create_stream(DEVICE, 0).unwrap());
    let ptr = allocator.malloc(30 * MIB, stream).unwrap();
    allocator.free(ptr).unwrap();
    let capture = device.capture().unwrap();
    capture.begin(stream, CaptureMode::Relaxed).unwrap();
    let refused = allocator.retire(stream);
    assert!(
        matches!(refused, Err(AllocError::Backend(ref e)) if e.kind == ErrorKind::CaptureViolation),
        "{refused:?}"
    );
    let again = allocator.malloc(30 * MIB, stream).unwrap();
    assert_eq!(again, ptr, "it is not retired");
    allocator.free(ptr).unwrap();
    let graph = capture.end(stream).unwrap();
    // SAFETY: rule 1: not used again.
    unsafe { capture.destroy_graph(graph) }.unwrap();
    allocator.retire(stream).unwrap();
    assert_eq!(allocator.malloc(30 * MIB, next).unwrap(), ptr, "now it is");
    allocator.free(ptr).unwrap();
    allocator.check_invariants();
}

/// Notes the streams whose place in a graph was asked for.
#[derive(Debug, Default)]
struct AskedStreams(Mutex<Vec<u64>>);

impl Hook for AskedStreams {
    fn status(&self, inner: &dyn Capture, stream: Stream) -> Result<CaptureStatus> {
        self.0.lock().unwrap().push(stream.raw);
        inner.status(stream)
    }
}

/// A block whose stream is gone is freed during a capture, and its memory reused after.
fn a_free_during_a_capture_names_no_retired_stream<P: Policy>() {
    let settings = Settings { graph_capture_record_stream_reuse: true, ..Settings::default() };
    for before in [true, false] {
        let device = OpenReg::new(config()).unwrap();
        let backend = Arc::new(Interposed::new(device.clone(), AskedStreams::default()));
        let allocator = Arc::new(CachingAllocator::<P>::new(backend.clone(), settings.clone()).unwrap());
        let [own, captured] = [(); 2].map(|()| device.create_stream(DEVICE, 0).unwrap());
        let ptr = allocator.malloc(30 * MIB, own).unwrap();
        let capture = device.capture().unwrap();
        capture.begin(captured, CaptureMode::Relaxed).unwrap();
        allocator.mark_capture_begin(DEVICE).unwrap();
        allocator.record_stream(ptr, captured).unwrap();
        let retire = || {
            allocator.retire(own).unwrap();
            backend.hook().0.lock().unwrap().clear();
        };
        if before {
            retire();
        }
        allocator.free(ptr).unwrap();
        if !before {
            retire();
        }
        let asked = |stream: Stream| backend.hook().0.lock().unwrap().contains(&stream.raw);
        let other = allocator.malloc(MIB, captured).unwrap();
        assert!(asked(captured) && !asked(own));
        let graph = capture.end(captured).unwrap();
        allocator.mark_capture_end(DEVICE).unwrap();
        // SAFETY: rule 1: not used again.
        unsafe { capture.destroy_graph(graph) }.unwrap();
        allocator.free(other).unwrap();
        let next = device.create_stream(DEVICE, 0).unwrap();
        assert_eq!(allocator.malloc(30 * MIB, next).unwrap(), ptr);
        assert!(!asked(own));
        allocator.free(ptr).unwrap();
        allocator.check_invariants();
    }
}

/// Two threads say at once that a stream ends.
fn a_stream_can_be_retired_by_several_threads<P: Policy>() {
    let (device, allocator, home) = with_policy::<P>(config().clock(Clock::Workers), Settings::default());
    for _ in 0..300 {
        let stream = device.create_stream(DEVICE, 0).unwrap();
        let [own, shared] = [stream, home].map(|stream| allocator.malloc(30 * MIB, stream).unwrap());
        allocator.record_stream(shared, stream).unwrap();
        allocator.free(own).unwrap();
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| allocator.retire(stream).unwrap());
            }
            scope.spawn(|| allocator.free(shared).unwrap());
        });
        allocator.synchronise(DEVICE).unwrap();
        allocator.check_invariants();
        assert_eq!(device.used(DEVICE), 60 * MIB, "each adopts what the one before it had");
    }
}

/// At one request for memory, another thread is let in.
#[derive(Debug)]
struct LetIn {
    bytes: u64,
    /// The attempts that are left before.
    attempts: AtomicU64,
    enter: Mutex<mpsc::Sender<()>>,
    left: Mutex<mpsc::Receiver<()>>,
}

impl Hook for LetIn {
    fn malloc(&self, inner: &dyn Backend, device: DeviceIndex, bytes: u64) -> Result<DevicePtr> {
        if bytes == self.bytes && self.attempts.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.enter.lock().unwrap().send(()).unwrap();
            self.left.lock().unwrap().recv().unwrap();
        }
        inner.malloc(device, bytes)
    }
}

/// A thread gives all that is cached back, and another has it before the first can take it: one small block at
/// a time is in the program's hands, the rest is cached. There always is room, so the request must not fail.
#[test]
fn what_others_cached_meanwhile_is_no_reason_to_refuse() {
    for attempt in [1, 2] {
        let (enter, entered) = mpsc::channel();
        let (leave, left) = mpsc::channel();
        let attempts = AtomicU64::new(attempt);
        let hook = LetIn { bytes: 700 * MIB, attempts, enter: Mutex::new(enter), left: Mutex::new(left) };
        let (device, _, allocator, home) = behind::<_, PytorchPolicy>(config().capacity(GIB), hook);
        let others: Vec<_> = (0..20).map(|_| device.create_stream(DEVICE, 0).unwrap()).collect();
        let serve = |bytes, stream| allocator.free(allocator.malloc(bytes, stream).unwrap()).unwrap();
        // The first attempt fails because of it.
        serve(400 * MIB, others[0]);
        std::thread::scope(|scope| {
            let (others, serve) = (&others, &serve);
            scope.spawn(move || {
                entered.recv().unwrap();
                others.iter().for_each(|stream| serve(24 * MIB, *stream));
                leave.send(()).unwrap();
            });
            let ptr = allocator.malloc(700 * MIB, home).expect("all that is in the way is cached");
            allocator.free(ptr).unwrap();
        });
        allocator.check_invariants();
    }
}

/// A request that nothing can serve is refused although other threads never rest.
fn a_request_is_refused_in_the_end_while_others_never_rest<P: Policy>() {
    let (device, allocator, home) = with_policy::<P>(config().capacity(GIB), Settings::default());
    let live = allocator.malloc(600 * MIB, home).unwrap();
    let rests = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let stream = device.create_stream(DEVICE, 0).unwrap();
                while rests.load(Ordering::Relaxed) == 0 {
                    allocator.free(allocator.malloc(24 * MIB, stream).unwrap()).unwrap();
                    allocator.empty_cache().unwrap();
                }
            });
        }
        let (refused, answers) = mpsc::channel();
        let allocator = &allocator;
        scope.spawn(move || refused.send(allocator.malloc(500 * MIB, home)));
        let answer = answers.recv_timeout(10 * SOON);
        rests.store(1, Ordering::Relaxed);
        assert!(matches!(answer, Ok(Err(AllocError::OutOfMemory(_)))), "{answer:?}");
    });
    allocator.free(live).unwrap();
    allocator.check_invariants();
}

/// Gets its memory from the allocator that asks for it, and fails where that fails.
#[derive(Debug)]
struct Circular<P: Policy> {
    allocator: OnceLock<Weak<CachingAllocator<P>>>,
    stream: Stream,
    refusals: AtomicU64,
}

// SAFETY: it gives memory that the allocator handed out and that nobody else has.
unsafe impl<P: Policy> SegmentSource for Circular<P> {
    fn alloc(&self, bytes: u64, _: Stream) -> Option<DevicePtr> {
        let allocator = self.allocator.get()?.upgrade()?;
        let given = allocator.malloc(bytes, self.stream);
        self.refusals.fetch_add(u64::from(given.is_err()), Ordering::Relaxed);
        given.ok()
    }
    unsafe fn free(&self, ptr: DevicePtr, _: u64, _: Stream) {
        let allocator = self.allocator.get().and_then(Weak::upgrade);
        allocator.unwrap().free(ptr).unwrap();
    }
}

/// A pool's source may use the allocator, also where there is not enough memory: it must not wait for the request
/// that it serves.
fn a_source_that_uses_the_allocator_is_refused_and_does_not_wait_for_itself<P: Policy>() {
    let (device, allocator, home) = with_policy::<P>(config().capacity(GIB), Settings::default());
    let other = device.create_stream(DEVICE, 0).unwrap();
    let source =
        Arc::new(Circular { allocator: OnceLock::new(), stream: other, refusals: AtomicU64::new(0) });
    source.allocator.set(Arc::downgrade(&allocator)).unwrap();
    let pool = PoolId::fresh();
    allocator.create_pool(DEVICE, pool, Some(source.clone())).unwrap();
    allocator.begin_pool(DEVICE, pool, Filter::Stream(home)).unwrap();
    let live = allocator.malloc(600 * MIB, other).unwrap();
    let (answered, answers) = mpsc::channel();
    let thread = {
        let allocator = Arc::clone(&allocator);
        std::thread::spawn(move || answered.send(allocator.malloc(500 * MIB, home)))
    };
    let answer = answers.recv_timeout(SOON).expect("no thread waits for itself");
    assert!(matches!(answer, Err(AllocError::OutOfMemory(_))), "{answer:?}");
    thread.join().unwrap().unwrap();
    assert!(source.refusals.load(Ordering::Relaxed) > 0);
    allocator.end_pool(DEVICE, pool).unwrap();
    allocator.release_pool(DEVICE, pool).unwrap();
    allocator.free(live).unwrap();
    allocator.check_invariants();
}

granule_tests::for_each_policy!(
    a_stream_that_is_refused_on_one_device_is_retired_on_none,
    retiring_does_not_wait_for_an_unrelated_stream,
    a_broken_event_strands_no_other_stream_s_memory,
    a_broken_event_does_no_harm_once_its_work_is_known_to_be_done,
    a_stream_with_an_arena_never_waits_for_another_s_adoption,
    no_thread_names_an_event_that_another_has_destroyed,
    no_event_outlives_the_allocator,
    a_history_of_many_streams_is_read_quickly,
    a_captured_stream_does_not_retire,
    a_free_during_a_capture_names_no_retired_stream,
    a_stream_can_be_retired_by_several_threads,
    a_request_is_refused_in_the_end_while_others_never_rest,
    a_source_that_uses_the_allocator_is_refused_and_does_not_wait_for_itself,
);
