//! Defects that were found and must not come back: one test each, saying what went wrong.
#![allow(clippy::unwrap_used)] // a test says what is wrong by panicking

use alloc_core::backend::{Backend, ErrorKind};
use alloc_core::config::{ReserveSize, Settings};
use alloc_core::history::HistoryOptions;
use alloc_core::policy::{Policy, PytorchPolicy};
use alloc_core::types::{DeviceIndex, MIB, Stream};
use alloc_core::{AllocError, CachingAllocator, DeviceBuffer};
use backend_openreg::{Call, Clock, Effect, Fault, FaultPlan, OpenReg, OpenRegConfig};
use granule_tests::{Allocator, with_policy};
use std::any::Any;
use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Barrier, Mutex, mpsc};
use std::time::Duration;

const DEVICE: DeviceIndex = DeviceIndex(0);

fn setup<P: Policy>(config: OpenRegConfig, settings: Settings) -> (Arc<OpenReg>, Allocator<P>, Stream) {
    with_policy::<P>(config.devices(1), settings)
}

fn of(mebibytes: u64) -> OpenRegConfig {
    OpenRegConfig::default().capacity(mebibytes * MIB)
}

fn both() -> [Settings; 2] {
    [Settings::default(), Settings { expandable_segments: true, ..Settings::default() }]
}

/// A request was refused while another thread was giving the memory it needed back.
fn memory_in_another_threads_hands_is_waited_for<P: Policy>() {
    for settings in both() {
        let (device, allocator, home) = setup::<P>(of(100).clock(Clock::Workers), settings);
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

/// One stream's destruction made every later flush of the device fail, and leaked its memory.
fn a_destroyed_stream_does_not_stop_the_flush<P: Policy>() {
    for settings in both() {
        let (device, allocator, home) = setup::<P>(of(100), settings);
        let side = device.create_stream(DEVICE, 0).unwrap();
        let ptr = allocator.malloc(60 * MIB, side).unwrap();
        allocator.free(ptr).unwrap();
        // SAFETY: nothing uses the stream's handle after this but the allocator, which has to cope.
        unsafe { device.destroy_stream(side) }.unwrap();
        let ptr = allocator.malloc(60 * MIB, home).expect("the dead stream's memory can be had");
        allocator.free(ptr).unwrap();
        allocator.empty_cache().unwrap();
        assert_eq!(device.used(DEVICE), 0);
    }
}

/// A block recorded on a stream that was then destroyed stayed pending for ever, and stopped every flush.
fn a_recorded_stream_may_be_destroyed_before_the_free<P: Policy>() {
    let (device, allocator, home) = setup::<P>(of(100), Settings::default());
    let side = device.create_stream(DEVICE, 0).unwrap();
    let ptr = allocator.malloc(60 * MIB, home).unwrap();
    allocator.record_stream(ptr, side).unwrap();
    // SAFETY: as above.
    unsafe { device.destroy_stream(side) }.unwrap();
    allocator.free(ptr).unwrap();
    let again = allocator.malloc(70 * MIB, home).expect("the block comes back");
    assert_eq!(allocator.stats(DEVICE).unwrap().granule.pending_bytes, 0);
    allocator.free(again).unwrap();
    let absent = Stream { device: DeviceIndex(200), ..home };
    let ptr = allocator.malloc(1, home).unwrap();
    assert!(matches!(allocator.record_stream(ptr, absent), Err(AllocError::InvalidDevice { .. })));
}

/// A mapping that could not be undone made its address space, and every later request, fail for ever.
fn what_a_driver_refuses_to_undo_is_tried_again<P: Policy>() {
    let [_, growable] = both();
    let (device, allocator, home) = setup::<P>(of(200), growable);
    let stuck = FaultPlan::none().fail_all(Call::SetAccess, ErrorKind::Other);
    device.set_faults(stuck.fail_all(Call::Unmap, ErrorKind::Other));
    assert!(matches!(allocator.malloc(30 * MIB, home), Err(AllocError::Backend(_))));
    device.set_faults(FaultPlan::none());
    let ptr = allocator.malloc(30 * MIB, home).expect("the driver works again");
    allocator.free(ptr).unwrap();
    allocator.empty_cache().unwrap();
    allocator.check_invariants();
    assert_eq!(device.used(DEVICE), 0);
}

/// A synchronisation went on for as long as other threads freed blocks.
fn a_synchronisation_waits_only_for_what_was_pending<P: Policy>() {
    let (device, allocator, home) = setup::<P>(of(4000).clock(Clock::Workers), Settings::default());
    let side = device.create_stream(DEVICE, 0).unwrap();
    let (started, stop) = (Barrier::new(2), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for round in 0..50_000 {
                if round == 20 {
                    started.wait();
                }
                if stop.load(Ordering::SeqCst) {
                    return;
                }
                let ptr = allocator.malloc(MIB, home).unwrap();
                device.use_memory_for(side, ptr, 512, Duration::from_micros(300)).unwrap();
                allocator.record_stream(ptr, side).unwrap();
                allocator.free(ptr).unwrap();
                std::thread::sleep(Duration::from_micros(100));
            }
            panic!("the synchronisation did not end while blocks were freed");
        });
        started.wait();
        allocator.synchronise(DEVICE).unwrap();
        stop.store(true, Ordering::SeqCst);
    });
}

/// Two threads could take more than the memory fraction allows: it was checked, and taken later.
fn the_fraction_holds_under_threads<P: Policy>() {
    for _ in 0..300 {
        let (device, allocator, home) = setup::<P>(of(1000), Settings::default());
        let other = device.create_stream(DEVICE, 0).unwrap();
        allocator.set_memory_fraction(0.5, DEVICE).unwrap();
        let start = Barrier::new(2);
        std::thread::scope(|scope| {
            for stream in [home, other] {
                let (allocator, start) = (&allocator, &start);
                scope.spawn(move || {
                    start.wait();
                    let _ = allocator.malloc(300 * MIB, stream);
                });
            }
        });
        assert!(allocator.stats(DEVICE).unwrap().reserved_bytes.all.peak <= 500 << 20);
    }
}

/// A snapshot after a change of the history's clock mixed two numberings and panicked.
fn the_history_clock_can_be_changed<P: Policy>() {
    let (_device, allocator, home) = setup::<P>(of(100), Settings::default());
    for deterministic in [true, false, true] {
        allocator.record_history(&HistoryOptions { deterministic, ..HistoryOptions::newest(100) });
        for _ in 0..5 {
            let ptr = allocator.malloc(100, home).unwrap();
            allocator.free(ptr).unwrap();
        }
        let snapshot = allocator.snapshot(true);
        assert!(snapshot.device_traces[0].len() >= 15);
        assert_eq!(snapshot.history.unwrap().overwritten, 0);
    }
}

/// A lack of address space was raised as a driver error, without the ladder that gives regions back.
fn a_lack_of_address_space_is_a_lack_of_memory<P: Policy>() {
    let [_, growable] = both();
    let (device, allocator, home) = setup::<P>(of(100), growable);
    device.set_faults(FaultPlan::none().fail_all(Call::ReserveAddress, ErrorKind::OutOfMemory));
    assert!(allocator.malloc(MIB, home).unwrap_err().is_out_of_memory());
    device.set_faults(FaultPlan::none().fail_nth_of(Call::ReserveAddress, 1, ErrorKind::OutOfMemory));
    let ptr = allocator.malloc(MIB, home).expect("the retry reserves");
    assert_eq!(allocator.stats(DEVICE).unwrap().num_alloc_retries, 2);
    allocator.free(ptr).unwrap();
}

/// Settings made in code were not checked; a small large segment handed out memory beyond its segment.
fn settings_made_in_code_are_checked<P: Policy>() {
    let device = OpenReg::new(of(100)).unwrap();
    let wrong = [
        Settings { large_segment_size: MIB, ..Settings::default() },
        Settings { large_segment_size: 0, ..Settings::default() },
        Settings { max_split_size: MIB, ..Settings::default() },
        Settings { garbage_collection_threshold: 1.5, ..Settings::default() },
        Settings { per_process_memory_fraction: f64::NAN, ..Settings::default() },
        Settings { roundup_power2_divisions: [3; 16], ..Settings::default() },
    ];
    for settings in wrong {
        let error = CachingAllocator::<P>::new(device.clone(), settings.clone()).unwrap_err();
        assert!(error.to_string().contains("it must be"), "{error}");
        let allocator = CachingAllocator::<P>::new(device.clone(), Settings::default()).unwrap();
        assert!(allocator.configure(settings).is_err());
    }
}

thread_local! {
    static KEPT: RefCell<Option<Box<dyn Any>>> = const { RefCell::new(None) };
}

/// A buffer dropped with its thread panicked in debug builds.
fn a_buffer_may_go_with_its_thread<P: Policy>() {
    let (_device, allocator, home) = setup::<P>(of(100), Settings::default());
    let inside = Arc::clone(&allocator);
    let thread = std::thread::spawn(move || {
        KEPT.with_borrow_mut(|kept| *kept = Some(Box::new(DeviceBuffer::new(&inside, 100, home).unwrap())));
    });
    thread.join().unwrap();
    assert_eq!(allocator.stats(DEVICE).unwrap().allocation.all.current, 0);
}

fn absurd_sizes_are_refused_and_change_nothing<P: Policy>() {
    let rounded = Settings { roundup_power2_divisions: [4; 16], ..Settings::default() };
    for settings in both().into_iter().chain([rounded]) {
        let (_device, allocator, home) = setup::<P>(of(100), settings);
        for bytes in [(1u64 << 60) - 1, (1 << 59) + 1, u64::MAX, 1 << 60] {
            assert!(allocator.malloc(bytes, home).unwrap_err().is_out_of_memory());
        }
        allocator.check_invariants();
    }
}

/// Reserve classes were read and not used.
#[test]
fn a_streams_reserve_class_sizes_its_regions() {
    let settings = Settings {
        expandable_segments: true,
        expandable_segments_reserve_by_class: vec![("side".into(), ReserveSize::Bytes(40 * MIB))],
        ..Settings::default()
    };
    let (device, allocator, home) = setup::<PytorchPolicy>(of(400), settings);
    let side = device.create_stream(DEVICE, 0).unwrap();
    allocator.set_reserve_class(side, "side").unwrap();
    assert!(
        allocator.malloc(100 * MIB, side).unwrap_err().is_out_of_memory(),
        "40 MiB of addresses are too few"
    );
    allocator.malloc(100 * MIB, home).unwrap();
    allocator.set_reserve_class(side, "").unwrap();
    allocator.malloc(100 * MIB, side).unwrap();
}

/// A flush released an address range in which a mapping was left over, and failed with that.
fn leftovers_are_tried_before_the_rest_is_given_back<P: Policy>() {
    let [_, growable] = both();
    let (device, allocator, home) = setup::<P>(of(200), growable);
    let stuck = FaultPlan::none().fail_all(Call::SetAccess, ErrorKind::OutOfMemory);
    device.set_faults(stuck.fail_all(Call::Unmap, ErrorKind::Other));
    assert!(allocator.malloc(30 * MIB, home).is_err());
    device.set_faults(FaultPlan::none());
    allocator.empty_cache().expect("the driver works again");
    assert_eq!(device.used(DEVICE), 0);
    assert_eq!(device.calls().get(Call::ReserveAddress), device.calls().get(Call::ReleaseAddress));
}

/// One segment that could not be given back failed a request that another segment would have served.
fn one_refusal_of_the_driver_does_not_fail_a_request_that_fits<P: Policy>() {
    let (device, allocator, home) = setup::<P>(of(100), Settings::default());
    let blocks: Vec<_> = (0..2).map(|_| allocator.malloc(45 * MIB, home).unwrap()).collect();
    for ptr in blocks {
        allocator.free(ptr).unwrap();
    }
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
        let (device, allocator, home) = setup::<PytorchPolicy>(of(100), settings);
        let live = allocator.malloc(40 * MIB, home).unwrap();
        let before = device.calls().get(call);
        assert!(matches!(allocator.malloc(90 * MIB, home), Err(AllocError::OutOfMemory(_))));
        assert_eq!(device.calls().get(call) - before, failed);
        let stats = allocator.stats(DEVICE).unwrap();
        assert_eq!((stats.num_alloc_retries, stats.num_ooms), (1, 1));
        allocator.free(live).unwrap();
    }
}

/// The address map touched megabytes for its first entry.
fn an_allocator_costs_little_until_it_is_used<P: Policy>() {
    let resident = || {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
        line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap()
    };
    let before = resident();
    let machines: Vec<_> = (0..16)
        .map(|_| {
            let (device, allocator, home) = setup::<P>(of(100), Settings::default());
            (allocator.malloc(1000, home).unwrap(), device, allocator)
        })
        .collect();
    let each = (resident() - before) / machines.len() as u64;
    // A huge page for the map's first entries is 2 MiB; other tests of this process run beside.
    assert!(each < 4096, "{each} KiB for an allocator with one block");
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
) -> (Arc<OpenReg>, Allocator<P>, impl FnOnce() + Send) {
    let (device, allocator, _) = setup::<P>(of(capacity).clock(Clock::Workers), Settings::default());
    let stream = device.create_stream(DEVICE, 0).unwrap();
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

granule_tests::for_each_policy!(
    memory_in_another_threads_hands_is_waited_for,
    a_destroyed_stream_does_not_stop_the_flush,
    a_recorded_stream_may_be_destroyed_before_the_free,
    what_a_driver_refuses_to_undo_is_tried_again,
    a_synchronisation_waits_only_for_what_was_pending,
    the_fraction_holds_under_threads,
    the_history_clock_can_be_changed,
    a_lack_of_address_space_is_a_lack_of_memory,
    settings_made_in_code_are_checked,
    a_buffer_may_go_with_its_thread,
    absurd_sizes_are_refused_and_change_nothing,
    leftovers_are_tried_before_the_rest_is_given_back,
    one_refusal_of_the_driver_does_not_fail_a_request_that_fits,
    an_allocator_costs_little_until_it_is_used,
    memory_that_comes_back_at_the_last_moment_is_found,
    busy_threads_do_not_use_up_the_patience_for_a_slow_one,
);
