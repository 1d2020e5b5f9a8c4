//! Retirement and adoption where calls fail, threads meet, and streams are captured; and the last resort, where
//! threads meet over memory.

use alloc_core::backend::{
    Backend, BackendError, Capture, CaptureMode, CaptureStatus, ErrorKind, EventFlags, Readiness, Result,
};
use alloc_core::config::Settings;
use alloc_core::error::AllocError;
use alloc_core::types::{DeviceIndex, Event, MIB, Stream};
use backend_openreg::{Call, Clock, Effect, Fault, FaultPlan, OpenReg};
use granule_conformance::interpose::{Hook, Interposed};
use granule_tests::policy::{Policy, PytorchPolicy};
use granule_tests::quiet::Retires;
use granule_tests::rig::{DEVICE, behind};
use granule_tests::setup::{SOON, one};
use granule_tests::with_policy;
use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, mpsc};

/// "It is not retired then": no device may treat it so, or what it is given afterwards is not waited for.
fn a_stream_that_is_refused_on_one_device_is_retired_on_none<P: Policy>() {
    for first_to_fail in [1, 2] {
        let lagging = one().devices(2).clock(Clock::Virtual { lag: 1000 });
        let (device, allocator, home) = with_policy::<P>(lagging, Settings::default());
        allocator.peers().enable(DeviceIndex(1), DEVICE).unwrap();
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
    let (device, allocator, _) = with_policy::<P>(one().clock(Clock::Workers), Settings::default());
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
    let (device, backend, allocator, _) = behind::<_, P>(one(), Settings::default(), BrokenEvents::default());
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
    let (device, backend, allocator, home) =
        behind::<_, P>(one(), Settings::default(), BrokenEvents::default());
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
        let (device, allocator, _) = with_policy::<PytorchPolicy>(one(), Settings::default());
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
    let (device, backend, allocator, _) = behind::<_, P>(one(), Settings::default(), hook);
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
    let (device, backend, allocator, home) = behind::<_, P>(one(), Settings::default(), hook);
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
        with_policy::<P>(one().clock(Clock::Virtual { lag: 1000 }), Settings::default());
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

/// Recording the end of a captured stream would make it part of the graph, and say nothing.
fn a_captured_stream_does_not_retire<P: Policy>() {
    let (device, allocator, _) = with_policy::<P>(one(), Settings::default());
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
        let device = OpenReg::new(one()).unwrap();
        let backend = Arc::new(Interposed::new(device.clone(), AskedStreams::default()));
        let allocator = Arc::new(granule_tests::made::<P>(backend.clone(), settings.clone()).unwrap());
        let [own, captured] = [(); 2].map(|()| device.create_stream(DEVICE, 0).unwrap());
        let ptr = allocator.malloc(30 * MIB, own).unwrap();
        let capture = device.capture().unwrap();
        capture.begin(captured, CaptureMode::Relaxed).unwrap();
        allocator.pools().mark_capture_begin(DEVICE).unwrap();
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
        allocator.pools().mark_capture_end(DEVICE).unwrap();
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
    let (device, allocator, home) = with_policy::<P>(one().clock(Clock::Workers), Settings::default());
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

granule_tests::for_each_policy!(
    a_stream_that_is_refused_on_one_device_is_retired_on_none,
    retiring_does_not_wait_for_an_unrelated_stream,
    a_broken_event_strands_no_other_stream_s_memory,
    a_broken_event_does_no_harm_once_its_work_is_known_to_be_done,
    a_stream_with_an_arena_never_waits_for_another_s_adoption,
    no_thread_names_an_event_that_another_has_destroyed,
    no_event_outlives_the_allocator,
    a_captured_stream_does_not_retire,
    a_free_during_a_capture_names_no_retired_stream,
    a_stream_can_be_retired_by_several_threads,
);
