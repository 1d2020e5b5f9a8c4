//! Streams that end: their memory stays usable, in order, and their handles are never named again.

use alloc_core::backend::{Backend, BackendError, ErrorKind, EventFlags, Result};
use alloc_core::config::{ReserveSize, Settings};
use alloc_core::types::{DeviceIndex, DevicePtr, Event, GIB, MIB, Stream};
use backend_openreg::{Call, Clock, FaultPlan, MemoryMode, OpenReg, OpenRegConfig};
use granule::history::HistoryOptions;
use granule_conformance::interpose::{Hook, Interposed};
use granule_tests::policy::{Policy, PytorchPolicy};
use granule_tests::quiet::Retires;
use granule_tests::rig::DEVICE;
use granule_tests::setup::{both, growable, of, one};
use granule_tests::{Allocator, with_policy};
use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, mpsc};

fn destroy(device: &OpenReg, stream: Stream) {
    // SAFETY: rule 1: made by the test, which does not use it again.
    unsafe { device.destroy_stream(stream) }.unwrap();
}

/// What is over without a live block is given back to the last byte, and no work was disturbed.
fn nothing_is_left(device: &OpenReg, allocator: &Allocator) {
    allocator.check_invariants();
    allocator.empty_cache().unwrap();
    allocator.check_invariants();
    assert_eq!(device.used(DEVICE), 0);
    assert_eq!(allocator.stats(DEVICE).unwrap().active_bytes.all.current, 0);
    assert_eq!(device.traps(), Vec::new());
}

/// The old stream's work is held up at a gate; the new stream's must not overtake it.
fn a_new_stream_adopts_the_memory_in_order_and_without_asking_the_device<P: Policy>() {
    for settings in both() {
        let (device, allocator, _) = with_policy::<P>(one().clock(Clock::Workers), settings);
        let old = device.create_stream(DEVICE, 0).unwrap();
        let ptr = allocator.malloc(40 * MIB, old).unwrap();
        let used = device.used(DEVICE);
        let order = Arc::new(Mutex::new(Vec::new()));
        let (open, gate) = mpsc::channel::<()>();
        let noted = Arc::clone(&order);
        let held_up = move || {
            gate.recv().unwrap();
            noted.lock().unwrap().push("old");
        };
        device.launch_host_function(old, Box::new(held_up)).unwrap();
        allocator.free(ptr).unwrap();
        allocator.retire(old).unwrap();
        destroy(&device, old);

        let new = device.create_stream(DEVICE, 0).unwrap();
        assert_eq!(allocator.malloc(40 * MIB, new).unwrap(), ptr, "the memory is reused at once");
        assert_eq!(device.used(DEVICE), used);
        let noted = Arc::clone(&order);
        device.launch_host_function(new, Box::new(move || noted.lock().unwrap().push("new"))).unwrap();
        device.use_memory(new, ptr, 40 * MIB).unwrap();
        std::thread::sleep(std::time::Duration::from_millis(20));
        assert_eq!(
            *order.lock().unwrap(),
            Vec::<&str>::new(),
            "the new stream's work waits for the old one's"
        );
        open.send(()).unwrap();
        device.synchronize_stream(new).unwrap();
        assert_eq!(*order.lock().unwrap(), ["old", "new"]);
        allocator.free(ptr).unwrap();
        nothing_is_left(&device, &allocator);
    }
}

fn memory_is_adopted_in_the_order_of_retirement<P: Policy>() {
    let (device, allocator, _) = with_policy::<P>(one(), Settings::default());
    let [first, second, third] = [(); 3].map(|()| device.create_stream(DEVICE, 0).unwrap());
    let [one, two] = [first, second].map(|stream| allocator.malloc(30 * MIB, stream).unwrap());
    allocator.free(one).unwrap();
    allocator.free(two).unwrap();
    allocator.retire(second).unwrap();
    allocator.retire(first).unwrap();
    assert_eq!(allocator.malloc(30 * MIB, third).unwrap(), two, "the stream that retired first");
    allocator.check_invariants();
}

/// A driver gives the same handle to a later stream, which is another one: its work is ordered after the
/// first one's, it has no reserve class, and it does not stand for the first one in what was recorded.
#[test]
fn a_reused_handle_is_a_new_generation() {
    let lagging = one().reuse_handles(true).clock(Clock::Virtual { lag: 1000 });
    let settings = Settings {
        expandable_segments: true,
        expandable_segments_reserve_by_class: vec![("small".into(), ReserveSize::Bytes(64 * MIB))],
        ..Settings::default()
    };
    let (device, allocator, home) = with_policy::<PytorchPolicy>(lagging, settings);
    let old = device.create_stream(DEVICE, 0).unwrap();
    allocator.set_reserve_class(old, "small").unwrap();
    let shared = allocator.malloc(30 * MIB, home).unwrap();
    device.use_memory(old, shared, 30 * MIB).unwrap();
    allocator.record_stream(shared, old).unwrap();
    let live = allocator.malloc(30 * MIB, old).unwrap();
    allocator.retire(old).unwrap();
    destroy(&device, old);
    // The simulator reuses the handle of a stream that is destroyed and idle.
    device.advance(5000);
    let new = device.create_stream(DEVICE, 0).unwrap();
    assert_eq!(new, old);

    // More than the class of the old one would allow.
    device.reset_calls();
    let large = allocator.malloc(100 * MIB, new).unwrap();
    assert_eq!(device.calls().get(Call::WaitEvent), 1, "ordered after the old one");
    // The new one is the memory's own stream now: recording it does nothing.
    allocator.record_stream(live, new).unwrap();
    device.reset_calls();
    // The block waits for what the old one was given, which is recorded; nothing is asked of the new one.
    allocator.free(shared).unwrap();
    assert_eq!(device.calls().get(Call::RecordEvent), 0);
    assert_eq!(allocator.stats(DEVICE).unwrap().granule.pending_bytes, 30 * 1024 * 1024);
    device.advance(5000);
    allocator.poll(DEVICE).unwrap();
    assert_eq!(allocator.stats(DEVICE).unwrap().granule.pending_bytes, 0);
    allocator.free(live).unwrap();
    allocator.free(large).unwrap();
    nothing_is_left(&device, &allocator);
}

/// A block that is retired with its stream does not take a later stream with that handle for its own.
fn a_later_stream_with_the_handle_is_a_user_like_any_other<P: Policy>() {
    let lagging = one().reuse_handles(true).clock(Clock::Virtual { lag: 1000 });
    let (device, allocator, _) = with_policy::<P>(lagging, Settings::default());
    let old = device.create_stream(DEVICE, 0).unwrap();
    let ptr = allocator.malloc(30 * MIB, old).unwrap();
    allocator.retire(old).unwrap();
    destroy(&device, old);
    // The simulator reuses the handle of a stream that is destroyed and idle.
    device.advance(5000);
    let new = device.create_stream(DEVICE, 0).unwrap();
    assert_eq!(new, old);
    device.use_memory(new, ptr, 30 * MIB).unwrap();
    allocator.record_stream(ptr, new).unwrap();
    allocator.free(ptr).unwrap();
    assert_eq!(allocator.stats(DEVICE).unwrap().granule.pending_bytes, 30 * 1024 * 1024);
    device.advance(5000);
    allocator.retire(new).unwrap();
    destroy(&device, new);
    nothing_is_left(&device, &allocator);
}

/// Megatron-LM issue 6885: a stream used once strands 20 GiB that a long-lived stream needs.
fn megatron_6885_a_one_shot_stream_strands_nothing<P: Policy>() {
    for settings in both() {
        let lagging =
            OpenRegConfig::default().devices(1).capacity(24 * GIB).clock(Clock::Virtual { lag: 500 });
        let (device, allocator, main) = with_policy::<P>(lagging, settings);
        let kept = allocator.malloc(MIB, main).unwrap();
        let once = device.create_stream(DEVICE, 0).unwrap();
        let ptr = allocator.malloc(20 * GIB, once).unwrap();
        device.use_memory(once, ptr, 20 * GIB).unwrap();
        allocator.free(ptr).unwrap();
        allocator.retire(once).unwrap();
        destroy(&device, once);
        device.reset_calls();
        let ptr = allocator.malloc(20 * GIB, main).expect("what the other stream left is given back for it");
        assert_eq!(device.calls().get(Call::SynchronizeDevice), 0, "its last event is enough");
        allocator.free(ptr).unwrap();
        allocator.free(kept).unwrap();
        nothing_is_left(&device, &allocator);
    }
}

fn retiring_twice_or_what_was_never_used_does_nothing<P: Policy>() {
    let (device, allocator, home) = with_policy::<P>(one(), Settings::default());
    let stream = device.create_stream(DEVICE, 0).unwrap();
    device.reset_calls();
    allocator.retire(stream).unwrap();
    assert_eq!(device.calls().total(), 0, "a stream that was never used needs no event");
    let ptr = allocator.malloc(30 * MIB, stream).unwrap();
    allocator.free(ptr).unwrap();
    allocator.retire(stream).unwrap();
    device.reset_calls();
    allocator.retire(stream).unwrap();
    assert_eq!(device.calls().total(), 0);
    let other = Stream { device: DeviceIndex(9), ..home };
    assert!(allocator.retire(other).is_err());
    // Without being destroyed it can begin anew, and finds its memory.
    assert_eq!(allocator.malloc(30 * MIB, stream).unwrap(), ptr);
    allocator.free(ptr).unwrap();
    nothing_is_left(&device, &allocator);
}

fn live_blocks_outlive_their_stream_and_names_in_the_history_stay<P: Policy>() {
    for settings in both() {
        let (device, allocator, _) = with_policy::<P>(one(), settings);
        allocator.history().record(&HistoryOptions::newest(100).deterministic());
        let old = device.create_stream(DEVICE, 0).unwrap();
        let [one, two] = [(); 2].map(|()| allocator.malloc(30 * MIB, old).unwrap());
        allocator.retire(old).unwrap();
        destroy(&device, old);
        allocator.check_invariants();
        assert_eq!(allocator.block_size(one), Some(30 * MIB));
        allocator.free(one).unwrap();
        let new = device.create_stream(DEVICE, 0).unwrap();
        let again = allocator.malloc(30 * MIB, new).unwrap();
        assert_eq!(again, one, "freed while its stream was retired");
        allocator.free(two).unwrap();
        assert_eq!(allocator.malloc(30 * MIB, new).unwrap(), two, "freed after another stream adopted it");
        let snapshot = allocator.snapshot(true);
        assert!(snapshot.segments.iter().all(|segment| segment.stream == new.raw));
        let streams: Vec<u64> = snapshot.device_traces[0].iter().map(|entry| entry.stream).collect();
        assert!(streams.starts_with(&[old.raw]) && streams.ends_with(&[new.raw]));
        assert!(streams.is_sorted_by_key(|stream| *stream == new.raw), "{streams:?}");
        allocator.free(again).unwrap();
        allocator.free(two).unwrap();
        nothing_is_left(&device, &allocator);
    }
}

/// What a retired stream still used is reused only after its last work, in whatever state it was.
fn uses_by_a_retired_stream_are_waited_for<P: Policy>() {
    let lagging = one().clock(Clock::Virtual { lag: 1000 });
    let (device, allocator, home) = with_policy::<P>(lagging, Settings::default());
    let user = device.create_stream(DEVICE, 0).unwrap();
    let [recorded, unrecorded, live] = [(); 3].map(|()| allocator.malloc(30 * MIB, home).unwrap());
    for ptr in [recorded, unrecorded, live] {
        device.use_memory(user, ptr, 30 * MIB).unwrap();
        allocator.record_stream(ptr, user).unwrap();
    }
    allocator.free(recorded).unwrap();
    device.set_faults(FaultPlan::none().fail_all(Call::RecordEvent, ErrorKind::Other));
    allocator.free(unrecorded).unwrap();
    device.set_faults(FaultPlan::none());
    allocator.retire(user).unwrap();
    destroy(&device, user);
    allocator.free(live).unwrap();
    let pending = || allocator.stats(DEVICE).unwrap().granule.pending_bytes;
    allocator.poll(DEVICE).unwrap();
    assert_eq!(pending(), 90 * 1024 * 1024);
    device.advance(5000);
    allocator.poll(DEVICE).unwrap();
    assert_eq!(pending(), 30 * 1024 * 1024, "one had no event");
    device.reset_calls();
    allocator.synchronise(DEVICE).unwrap();
    assert_eq!(pending(), 0);
    assert_eq!(device.calls().get(Call::SynchronizeStream), 0, "the handle is dead");
    nothing_is_left(&device, &allocator);
}

/// Promise 3: where no event can be made or recorded, the stream is waited for; where that fails, nothing changed.
fn retiring_survives_failing_calls<P: Policy>() {
    for failing in [Call::CreateEvent, Call::RecordEvent] {
        let lagging = one().clock(Clock::Virtual { lag: 1000 });
        let (device, allocator, home) = with_policy::<P>(lagging, Settings::default());
        let old = device.create_stream(DEVICE, 0).unwrap();
        let ptr = allocator.malloc(30 * MIB, old).unwrap();
        device.use_memory(old, ptr, 30 * MIB).unwrap();
        allocator.free(ptr).unwrap();
        let broken = FaultPlan::none().fail_all(failing, ErrorKind::Other);
        let more = broken.clone().fail_all(Call::SynchronizeStream, ErrorKind::Other);
        device.set_faults(more.fail_all(Call::SynchronizeDevice, ErrorKind::Other));
        allocator.retire(old).unwrap_err();
        allocator.check_invariants();
        assert_eq!(allocator.malloc(30 * MIB, old).unwrap(), ptr, "it is not retired");
        allocator.free(ptr).unwrap();
        device.set_faults(broken);
        allocator.retire(old).unwrap();
        device.set_faults(FaultPlan::none());
        destroy(&device, old);
        device.reset_calls();
        let new = device.create_stream(DEVICE, 0).unwrap();
        assert_eq!(allocator.malloc(30 * MIB, new).unwrap(), ptr);
        assert_eq!(device.calls().get(Call::WaitEvent), 0, "its work is known to be done");
        let other = allocator.malloc(MIB, home).unwrap();
        allocator.free(ptr).unwrap();
        allocator.free(other).unwrap();
        nothing_is_left(&device, &allocator);
    }
}

/// Promise 3 for every driver call of a life in which streams come and go.
fn any_failing_call_around_retirement_loses_nothing<P: Policy>() {
    for settings in both() {
        let mut k = 0;
        loop {
            let lagging = one().capacity(256 * MIB).clock(Clock::Virtual { lag: 20 });
            let (device, allocator, home) = with_policy::<P>(lagging, settings.clone());
            let streams = [(); 12].map(|()| device.create_stream(DEVICE, 0).unwrap());
            device.reset_calls();
            device.set_faults(FaultPlan::none().fail_nth(k, ErrorKind::Other));
            let mut kept =
                allocator.malloc(30 * MIB, home).or_else(|_| allocator.malloc(30 * MIB, home)).unwrap();
            for stream in streams {
                let malloc =
                    |bytes| allocator.malloc(bytes, stream).or_else(|_| allocator.malloc(bytes, stream));
                let own = malloc(70 * MIB).unwrap();
                // Where the call that fails is this one, there is no use.
                let _ = device.use_memory(stream, own, 70 * MIB);
                let _ = device.use_memory(stream, kept, 30 * MIB);
                allocator.record_stream(kept, stream).unwrap();
                allocator.free(kept).unwrap();
                kept = malloc(30 * MIB).unwrap();
                allocator.free(own).unwrap();
                allocator.retire(stream).or_else(|_| allocator.retire(stream)).unwrap();
                allocator.check_invariants();
                device.advance(7);
            }
            let calls = device.calls().total();
            device.set_faults(FaultPlan::none());
            allocator.free(kept).unwrap();
            nothing_is_left(&device, &allocator);
            k += 1;
            if k > calls {
                assert!(calls > 40, "there was something to fail");
                break;
            }
        }
    }
}

fn a_stream_that_cannot_be_ordered_begins_with_no_memory<P: Policy>() {
    let (device, allocator, _) = with_policy::<P>(one(), Settings::default());
    let [old, new, third] = [(); 3].map(|()| device.create_stream(DEVICE, 0).unwrap());
    let ptr = allocator.malloc(30 * MIB, old).unwrap();
    allocator.free(ptr).unwrap();
    allocator.retire(old).unwrap();
    destroy(&device, old);
    device.set_faults(FaultPlan::none().fail_all(Call::WaitEvent, ErrorKind::Other));
    let fresh = allocator.malloc(30 * MIB, new).unwrap();
    assert_ne!(fresh, ptr);
    device.set_faults(FaultPlan::none());
    allocator.check_invariants();
    let adopted = allocator.malloc(30 * MIB, third).unwrap();
    assert_eq!(adopted, ptr, "the next one gets it");
    allocator.free(fresh).unwrap();
    allocator.free(adopted).unwrap();
    nothing_is_left(&device, &allocator);
}

/// Streams come and go: arenas, events and places of the tables are used again.
fn a_hundred_thousand_short_lived_streams_cost_no_more_than_one<P: Policy>() {
    let (device, allocator, _) = with_policy::<P>(one(), Settings::default());
    let mut made = 0;
    for _ in 0..100_000 {
        let stream = device.create_stream(DEVICE, 0).unwrap();
        let ptr = allocator.malloc(MIB, stream).unwrap();
        allocator.free(ptr).unwrap();
        allocator.retire(stream).unwrap();
        destroy(&device, stream);
        made += 1;
    }
    assert_eq!((made, allocator.stats(DEVICE).unwrap().num_device_alloc), (100_000, 1));
    let calls = device.calls();
    assert!(calls.get(Call::CreateEvent) - calls.get(Call::DestroyEvent) <= 1, "events are destroyed");
    nothing_is_left(&device, &allocator);
}

/// Refuses, and counts, calls that name a destroyed stream.
#[derive(Debug, Default)]
struct Morgue {
    dead: Mutex<HashSet<u64>>,
    named: AtomicU64,
}

impl Morgue {
    fn check(&self, stream: Stream) -> Result<()> {
        if self.dead.lock().unwrap().contains(&stream.raw) {
            self.named.fetch_add(1, Ordering::Relaxed);
            return Err(BackendError::new(ErrorKind::InvalidValue, 1, "stream", DEVICE, "destroyed"));
        }
        Ok(())
    }
}

impl Hook for Morgue {
    unsafe fn destroy_stream(&self, inner: &dyn Backend, stream: Stream) -> Result<()> {
        self.check(stream)?;
        self.dead.lock().unwrap().insert(stream.raw);
        // SAFETY: rule 1: the caller's promise, passed on.
        unsafe { inner.destroy_stream(stream) }
    }
    fn synchronize_stream(&self, inner: &dyn Backend, stream: Stream) -> Result<()> {
        self.check(stream)?;
        inner.synchronize_stream(stream)
    }
    fn wait_event(&self, inner: &dyn Backend, stream: Stream, event: Event) -> Result<()> {
        self.check(stream)?;
        inner.wait_event(stream, event)
    }
    fn record_event(&self, inner: &dyn Backend, event: Event, stream: Stream) -> Result<()> {
        self.check(stream)?;
        inner.record_event(event, stream)
    }
}

/// Four threads with streams of their own that end all the time, and blocks that go from one to another.
fn threads_retire_streams_and_no_call_names_a_dead_one<P: Policy>() {
    for settings in both() {
        let device = OpenReg::new(one().capacity(GIB).clock(Clock::Workers)).unwrap();
        let backend = Arc::new(Interposed::new(device.clone(), Morgue::default()));
        let allocator = Arc::new(granule_tests::made::<P>(backend.clone(), settings).unwrap());
        // Each with the event behind its last use.
        let passed: Mutex<Vec<(DevicePtr, Event)>> = Mutex::new(Vec::new());
        std::thread::scope(|scope| {
            for thread in 0..4u64 {
                let (allocator, backend, device, passed) = (&allocator, &backend, &device, &passed);
                scope.spawn(move || {
                    for round in 0..150 {
                        let stream = backend.create_stream(DEVICE, 0).unwrap();
                        for n in 0..6 {
                            let bytes = MIB * (1 + (n * 7 + round + thread) % 24);
                            let ptr = allocator.malloc(bytes, stream).unwrap();
                            device.use_memory(stream, ptr, bytes).unwrap();
                            let used = backend.create_event(DEVICE, EventFlags::empty()).unwrap();
                            backend.record_event(used, stream).unwrap();
                            passed.lock().unwrap().push((ptr, used));
                            let taken = {
                                let mut passed = passed.lock().unwrap();
                                let at = (n + round) as usize % passed.len();
                                (passed.len() > 8).then(|| passed.swap_remove(at))
                            };
                            let Some((taken, used)) = taken else { continue };
                            backend.wait_event(stream, used).unwrap();
                            device.use_memory(stream, taken, MIB).unwrap();
                            backend.record_event(used, stream).unwrap();
                            allocator.record_stream(taken, stream).unwrap();
                            // This one goes on to other threads, the oldest goes back.
                            let oldest = {
                                let mut passed = passed.lock().unwrap();
                                passed.push((taken, used));
                                passed.swap_remove(0)
                            };
                            allocator.free(oldest.0).unwrap();
                            // SAFETY: rule 1: made above, and taken out of the list.
                            unsafe { backend.destroy_event(oldest.1) }.unwrap();
                        }
                        if round % 10 == thread {
                            allocator.empty_cache().unwrap();
                        }
                        allocator.retire(stream).unwrap();
                        // SAFETY: rule 1: made above, and not used again.
                        unsafe { backend.destroy_stream(stream) }.unwrap();
                    }
                });
            }
        });
        for (ptr, used) in passed.into_inner().unwrap() {
            allocator.free(ptr).unwrap();
            // SAFETY: rule 1: made above, and not used again.
            unsafe { backend.destroy_event(used) }.unwrap();
        }
        assert_eq!(
            backend.hook().named.load(Ordering::Relaxed),
            0,
            "a destroyed handle was given to the driver"
        );
        assert_eq!(allocator.stats(DEVICE).unwrap().granule.unrecorded_frees, 0);
        nothing_is_left(&device, &allocator);
        assert_eq!(backend.hook().named.load(Ordering::Relaxed), 0);
    }
}

/// Each short-lived stream left what it had cached behind, where nobody else could use it: 20 GiB in a training run.
fn megatron_6885_the_memory_of_one_shot_streams_is_used_again<P: Policy>() {
    for settings in [Settings::default(), growable()] {
        let config = of(64 * 1024).memory(MemoryMode::Reserved).clock(Clock::Virtual { lag: 20 });
        let (device, allocator, _) = with_policy::<P>(config, settings);
        for _ in 0..20 {
            let stream = device.create_stream(DEVICE, 0).unwrap();
            let ptr = allocator.malloc(GIB, stream).unwrap();
            device.use_memory(stream, ptr, GIB).unwrap();
            allocator.free(ptr).unwrap();
            allocator.retire(stream).unwrap();
            // SAFETY: rule 1: made above, and not used again.
            unsafe { device.destroy_stream(stream) }.unwrap();
        }
        let stats = allocator.stats(DEVICE).unwrap();
        assert!(
            stats.reserved_bytes.all.peak <= (GIB + 20 * MIB) as i64,
            "{}",
            stats.reserved_bytes.all.peak
        );
        assert!(device.traps().is_empty());
    }
}

granule_tests::for_each_policy!(
    a_new_stream_adopts_the_memory_in_order_and_without_asking_the_device,
    memory_is_adopted_in_the_order_of_retirement,
    a_later_stream_with_the_handle_is_a_user_like_any_other,
    megatron_6885_a_one_shot_stream_strands_nothing,
    retiring_twice_or_what_was_never_used_does_nothing,
    live_blocks_outlive_their_stream_and_names_in_the_history_stay,
    uses_by_a_retired_stream_are_waited_for,
    retiring_survives_failing_calls,
    any_failing_call_around_retirement_loses_nothing,
    a_stream_that_cannot_be_ordered_begins_with_no_memory,
    a_hundred_thousand_short_lived_streams_cost_no_more_than_one,
    threads_retire_streams_and_no_call_names_a_dead_one,
    megatron_6885_the_memory_of_one_shot_streams_is_used_again,
);
