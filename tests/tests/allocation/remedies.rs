//! What is tried before a request is refused: callbacks, pending frees, other threads' memory, and the last resort.

use alloc_core::AllocError;
use alloc_core::backend::{Backend, ErrorKind, Result};
use alloc_core::config::Settings;
use alloc_core::types::{DeviceIndex, DevicePtr, GIB, MIB};
use backend_openreg::{Call, Clock, Effect, Fault, FaultPlan, OpenReg, OpenRegConfig};
use granule_conformance::interpose::Hook;
use granule_tests::policy::{Policy, PytorchPolicy};
use granule_tests::rig::{DEVICE, behind};
use granule_tests::setup::{SOON, both, free_all, of, of_bytes, one};
use granule_tests::views::settle;
use granule_tests::{Allocator, with_policy};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

fn callbacks_run_before_the_device_is_asked<P: Policy>() {
    let (device, allocator, stream) =
        with_policy::<P>(OpenRegConfig::default().devices(1).capacity(64 * MIB), Settings::default());
    let kept = Arc::new(std::sync::Mutex::new(Some(allocator.malloc(40 * MIB, stream).unwrap())));
    let (weak, store) = (Arc::downgrade(&allocator), Arc::clone(&kept));
    allocator.hooks().on_low_memory(move || {
        let Some(ptr) = store.lock().unwrap().take() else { return false };
        weak.upgrade().is_some_and(|allocator| allocator.free(ptr).is_ok())
    });
    let before = device.calls().get(Call::Malloc);
    let ptr = allocator.malloc(40 * MIB, stream).unwrap();
    assert_eq!(device.calls().get(Call::Malloc), before, "the callback's memory served it");
    allocator.free(ptr).unwrap();
}

fn all_callbacks_run<P: Policy>() {
    let (_device, allocator, stream) = with_policy::<P>(of_bytes(64 * MIB), Settings::default());
    let runs = Arc::new(AtomicU32::new(0));
    for _ in 0..2 {
        let runs = Arc::clone(&runs);
        allocator.hooks().on_low_memory(move || {
            runs.fetch_add(1, Ordering::SeqCst);
            true
        });
    }
    allocator.malloc(40 * MIB, stream).unwrap();
    assert_eq!(runs.load(Ordering::SeqCst), 2);
}

/// Two threads missed at once. The one that comes second is served from what the first has taken, as if it had asked later.
fn what_another_thread_took_since_the_miss_serves<P: Policy>() {
    let (device, allocator, stream) = with_policy::<P>(of_bytes(64 * MIB), Settings::default());
    let (weak, first) = (Arc::downgrade(&allocator), AtomicBool::new(true));
    // It runs after the miss, and before memory is taken.
    allocator.hooks().on_low_memory(move || {
        if first.swap(false, Ordering::SeqCst)
            && let Some(allocator) = weak.upgrade()
        {
            std::thread::spawn(move || allocator.malloc(MIB / 2, stream).unwrap()).join().unwrap();
        }
        false
    });
    allocator.malloc(MIB / 2, stream).unwrap();
    let taken = device.calls().get(Call::Malloc) + device.calls().get(Call::CreatePhysical);
    assert_eq!(taken, 1, "one segment serves both");
}

/// A request was refused while another thread was giving the memory it needed back.
fn memory_in_another_threads_hands_is_waited_for<P: Policy>() {
    for settings in both() {
        let (device, allocator, home) = with_policy::<P>(of(100).clock(Clock::Workers), settings);
        let cached = allocator.malloc(90 * MIB, home).unwrap();
        allocator.free(cached).unwrap();
        let slow = Effect::Delay(Duration::from_millis(200));
        device.set_faults(FaultPlan::none().with(Fault::at(1, slow).of(Call::SynchronizeStream)));
        std::thread::scope(|scope| {
            scope.spawn(|| allocator.empty_cache().unwrap());
            while device.calls().get(Call::SynchronizeStream) == 0 {
                std::thread::yield_now();
            }
            let ptr = allocator.malloc(80 * MIB, home).expect("90 MiB are free");
            allocator.free(ptr).unwrap();
        });
        allocator.check_invariants();
    }
}

/// A flush released an address range in which a mapping was left over, and failed with that.
fn leftovers_are_tried_before_the_rest_is_given_back<P: Policy>() {
    let [_, growable] = both();
    let (device, allocator, home) = with_policy::<P>(of(200), growable);
    let stuck = FaultPlan::none().fail_all(Call::SetAccess, ErrorKind::OutOfMemory);
    device.set_faults(stuck.fail_all(Call::Unmap, ErrorKind::Other));
    assert!(allocator.malloc(30 * MIB, home).is_err());
    device.set_faults(FaultPlan::none());
    allocator.empty_cache().expect("the driver works again");
    assert_eq!(device.used(DEVICE), 0);
    assert_eq!(device.calls().get(Call::ReserveAddress), device.calls().get(Call::ReleaseAddress));
}

/// Many handles were left over. A request that nothing served tried all of them again, three times each, at each of its attempts
/// to take memory (found by a night, seed 11032).
fn leftovers_are_tried_again_a_few_times_for_a_request<P: Policy>() {
    let [_, growable] = both();
    let (device, allocator, home) = with_policy::<P>(of(400), growable);
    let live = allocator.malloc(40 * MIB, home).unwrap();
    let refusals = |stuck: u64| {
        let stuck = (0..stuck).map(|_| allocator.malloc(21 * MIB, home).unwrap()).collect::<Vec<_>>();
        stuck.into_iter().for_each(|ptr| allocator.free(ptr).unwrap());
        let full = FaultPlan::none().fail_all(Call::CreatePhysical, ErrorKind::OutOfMemory);
        device.set_faults(full.fail_all(Call::ReleasePhysical, ErrorKind::Other));
        allocator.empty_cache().unwrap();
        let before = device.calls().get(Call::ReleasePhysical);
        assert!(allocator.malloc(390 * MIB, home).unwrap_err().is_out_of_memory());
        let calls = device.calls().get(Call::ReleasePhysical) - before;
        device.set_faults(FaultPlan::none());
        allocator.empty_cache().expect("the driver works again");
        assert_eq!(device.used(DEVICE), allocator.stats(DEVICE).unwrap().reserved_bytes.all.current as u64);
        calls
    };
    let [few, many] = [1, 12].map(refusals);
    assert!(few > 0 && many <= few, "{many} calls about a dozen, {few} about one");
    allocator.free(live).unwrap();
}

/// One segment that could not be given back failed a request that another segment would have served.
fn one_refusal_of_the_driver_does_not_fail_a_request_that_fits<P: Policy>() {
    let (device, allocator, home) = with_policy::<P>(of(100), Settings::default());
    let blocks: Vec<_> = (0..2).map(|_| allocator.malloc(45 * MIB, home).unwrap()).collect();
    free_all(&allocator, blocks);
    device.set_faults(FaultPlan::none().fail_nth_of(Call::Free, 2, ErrorKind::Other));
    let ptr = allocator.malloc(50 * MIB, home).expect("one of the two went back");
    allocator.free(ptr).unwrap();
    allocator.check_invariants();
}

/// A request that was refused had asked the driver once more than PyTorch does.
#[test]
fn a_refusal_asks_the_driver_as_often_as_pytorch() {
    for (settings, call, failed) in [
        // The attempt, and the one after everything was given back.
        (Settings::default(), Call::Malloc, 2),
        // Handles of 20 MiB: three of five are made, and given back again, in each of the two attempts.
        (Settings { expandable_segments: true, ..Settings::default() }, Call::CreatePhysical, 8),
    ] {
        let (device, allocator, home) = with_policy::<PytorchPolicy>(of(100), settings);
        let live = allocator.malloc(40 * MIB, home).unwrap();
        let before = device.calls().get(call);
        assert!(matches!(allocator.malloc(90 * MIB, home), Err(AllocError::OutOfMemory(_))));
        assert_eq!(device.calls().get(call) - before, failed);
        let stats = allocator.stats(DEVICE).unwrap();
        assert_eq!((stats.num_alloc_retries, stats.num_ooms), (1, 1));
        allocator.free(live).unwrap();
    }
}

/// Lets a test act at the moment of the n-th log line of its thread.
struct AtLine {
    left: AtomicUsize,
    act: Mutex<Option<Box<dyn FnOnce() + Send>>>,
}

impl tracing::Subscriber for AtLine {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        *metadata.level() <= tracing::Level::INFO
    }
    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }
    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}
    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}
    fn event(&self, _: &tracing::Event<'_>) {
        if self.left.fetch_sub(1, Ordering::SeqCst) == 1
            && let Some(act) = self.act.lock().unwrap().take()
        {
            act();
        }
    }
    fn enter(&self, _: &tracing::span::Id) {}
    fn exit(&self, _: &tracing::span::Id) {}
}

/// A machine on which another thread's flush has `mebibytes` in its hands until the returned function is called.
fn flush_under_way<P: Policy>(
    capacity: u64,
    mebibytes: u64,
) -> (Arc<OpenReg>, Allocator, impl FnOnce() + Send) {
    let (device, allocator, _) = with_policy::<P>(of(capacity).clock(Clock::Workers), Settings::default());
    let stream = device.create_stream(DEVICE, 0).unwrap();
    settle(&device, &allocator, stream);
    let ptr = allocator.malloc(mebibytes * MIB, stream).unwrap();
    let (open, gate) = mpsc::channel::<()>();
    device.launch_host_function(stream, Box::new(move || gate.recv().unwrap_or(()))).unwrap();
    allocator.free(ptr).unwrap();
    let flusher = Arc::clone(&allocator);
    let thread = std::thread::spawn(move || flusher.empty_cache().unwrap());
    while device.calls().get(Call::SynchronizeStream) == 0 {
        std::thread::yield_now();
    }
    let finish = move || {
        open.send(()).unwrap();
        thread.join().unwrap();
    };
    (device, allocator, finish)
}

/// The other thread's flush ended between the last refusal and the look at what is under way.
fn memory_that_comes_back_at_the_last_moment_is_found<P: Policy>() {
    let (device, allocator, finish) = flush_under_way::<P>(100, 80);
    let other = device.create_stream(DEVICE, 0).unwrap();
    // The driver's second refusal is the last before the request would fail.
    let at_line = AtLine { left: AtomicUsize::new(2), act: Mutex::new(Some(Box::new(finish))) };
    let ptr = tracing::subscriber::with_default(at_line, || allocator.malloc(80 * MIB, other));
    allocator.free(ptr.expect("80 MiB went back to the device")).unwrap();
}

/// Short operations of busy threads used up the patience for the one that had the memory.
fn busy_threads_do_not_use_up_the_patience_for_a_slow_one<P: Policy>() {
    let (device, allocator, finish) = flush_under_way::<P>(1000, 70);
    allocator.set_memory_fraction(0.1, DEVICE).unwrap();
    let [wanting, busy, user] = [0; 3].map(|_| device.create_stream(DEVICE, 0).unwrap());
    let (open, gate) = mpsc::channel::<()>();
    device.launch_host_function(user, Box::new(move || gate.recv().unwrap_or(()))).unwrap();
    let pending = allocator.malloc(100, busy).unwrap();
    allocator.record_stream(pending, user).unwrap();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let request = scope.spawn(|| allocator.malloc(70 * MIB, wanting).map_err(|e| e.to_string()));
        scope.spawn(|| {
            // Long enough for the request to wait for the flush.
            std::thread::sleep(Duration::from_millis(50));
            allocator.free(pending).unwrap();
            while !stop.load(Ordering::SeqCst) {
                let ptr = allocator.malloc(100, busy).unwrap();
                allocator.free(ptr).unwrap();
            }
        });
        std::thread::sleep(Duration::from_millis(300));
        finish();
        open.send(()).unwrap();
        let served = request.join().unwrap();
        stop.store(true, Ordering::SeqCst);
        allocator.free(served.expect("70 MiB were on their way")).unwrap();
    });
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
        let (device, _, allocator, home) =
            behind::<_, PytorchPolicy>(one().capacity(GIB), Settings::default(), hook);
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
    let (device, allocator, home) = with_policy::<P>(one().capacity(GIB), Settings::default());
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
        let answer = answers.recv_timeout(2 * SOON);
        rests.store(1, Ordering::Relaxed);
        assert!(matches!(answer, Ok(Err(AllocError::OutOfMemory(_)))), "{answer:?}");
    });
    allocator.free(live).unwrap();
    allocator.check_invariants();
}

granule_tests::for_each_policy!(
    callbacks_run_before_the_device_is_asked,
    all_callbacks_run,
    what_another_thread_took_since_the_miss_serves,
    memory_in_another_threads_hands_is_waited_for,
    leftovers_are_tried_before_the_rest_is_given_back,
    leftovers_are_tried_again_a_few_times_for_a_request,
    one_refusal_of_the_driver_does_not_fail_a_request_that_fits,
    memory_that_comes_back_at_the_last_moment_is_found,
    busy_threads_do_not_use_up_the_patience_for_a_slow_one,
    a_request_is_refused_in_the_end_while_others_never_rest,
);
