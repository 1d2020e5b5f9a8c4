//! Many threads at once: nothing overlaps, nothing is lost, every sum is exact.

use alloc_core::backend::Backend;
use alloc_core::config::Settings;
use alloc_core::pool::Filter;
use alloc_core::types::{DevicePtr, GIB, KIB, MIB, PoolId, Stream};
use backend_openreg::{Call, Clock, Effect, Fault, FaultPlan, OpenReg, OpenRegConfig};
use granule_tests::Allocator;
use granule_tests::policy::Policy;
use granule_tests::rig::{DEVICE, on_each};
use granule_tests::setup::{both, free_all, mapped, of_bytes};
use std::collections::BTreeMap;
use std::sync::{Arc, Barrier, Mutex, mpsc};
use std::time::Duration;

const THREADS: u64 = 4;

/// Small deterministic numbers, one sequence per thread.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }
}

/// Ranges in the program's hands: entering one that overlaps panics.
#[derive(Default)]
struct Held(Mutex<BTreeMap<u64, u64>>);

impl Held {
    fn enter(&self, ptr: DevicePtr, bytes: u64) {
        let mut held = self.0.lock().unwrap();
        if let Some((addr, size)) = held.range(..ptr.0 + bytes).next_back() {
            assert!(addr + size <= ptr.0, "two threads hold the same memory");
        }
        held.insert(ptr.0, bytes);
    }

    fn leave(&self, ptr: DevicePtr) {
        self.0.lock().unwrap().remove(&ptr.0).expect("was held");
    }
}

fn stress<P: Policy>(settings: Settings, capacity: u64, operations: u64) {
    let device = OpenReg::new(OpenRegConfig::default().devices(1).capacity(capacity)).unwrap();
    let allocator = Arc::new(granule_tests::made::<P>(device.clone(), settings).unwrap());
    let streams: Vec<Stream> = (0..3).map(|_| device.create_stream(DEVICE, 0).unwrap()).collect();
    let held = Held::default();
    std::thread::scope(|scope| {
        let channels: Vec<_> = (0..THREADS).map(|_| mpsc::channel::<DevicePtr>()).collect();
        let senders: Vec<_> = channels.iter().map(|(sender, _)| sender.clone()).collect();
        for (thread, (_, incoming)) in channels.into_iter().enumerate() {
            let (allocator, streams, senders, held) = (&allocator, &streams, senders.clone(), &held);
            scope.spawn(move || {
                let mut numbers = Numbers(0x9e37_79b9 + thread as u64);
                let mut mine = Vec::new();
                for _ in 0..operations {
                    match numbers.below(20) {
                        0..9 => {
                            let most = if numbers.below(4) == 0 { 8 * MIB } else { 4096 };
                            let bytes = 1 + numbers.below(most);
                            let stream = streams[numbers.below(3) as usize];
                            match allocator.malloc(bytes, stream) {
                                Ok(ptr) => {
                                    held.enter(ptr, bytes);
                                    mine.push(ptr);
                                }
                                Err(error) => assert!(error.is_out_of_memory(), "{error}"),
                            }
                        }
                        9..16 if !mine.is_empty() => {
                            let ptr = mine.swap_remove(numbers.below(mine.len() as u64) as usize);
                            held.leave(ptr);
                            allocator.free(ptr).unwrap();
                        }
                        16 if !mine.is_empty() => {
                            // Another thread frees it.
                            let ptr = mine.swap_remove(0);
                            if let Err(mpsc::SendError(ptr)) =
                                senders[numbers.below(THREADS) as usize].send(ptr)
                            {
                                mine.push(ptr);
                            }
                        }
                        17 if !mine.is_empty() => {
                            let ptr = mine[numbers.below(mine.len() as u64) as usize];
                            allocator.record_stream(ptr, streams[numbers.below(3) as usize]).unwrap();
                        }
                        18 => {
                            let stats = allocator.stats(DEVICE).unwrap();
                            let all = &stats.allocated_bytes;
                            assert_eq!(all.all.current, all.small_pool.current + all.large_pool.current);
                            assert!(all.all.peak >= all.all.current);
                        }
                        19 if numbers.below(20) == 0 => allocator.empty_cache().unwrap(),
                        _ => {}
                    }
                    while let Ok(ptr) = incoming.try_recv() {
                        held.leave(ptr);
                        allocator.free(ptr).unwrap();
                    }
                }
                drop(senders);
                for ptr in mine.into_iter().chain(incoming.try_iter()) {
                    held.leave(ptr);
                    allocator.free(ptr).unwrap();
                }
                incoming
            });
        }
    });
    // What was on its way when its receiver ended is still held.
    for ptr in std::mem::take(&mut *held.0.lock().unwrap()).into_keys() {
        allocator.free(DevicePtr(ptr)).unwrap();
    }
    allocator.empty_cache().unwrap();
    allocator.check_invariants();
    let stats = allocator.stats(DEVICE).unwrap();
    assert_eq!((stats.active.all.current, stats.reserved_bytes.all.current), (0, 0));
    assert_eq!((device.used(DEVICE), device.traps()), (0, Vec::new()));
}

fn fixed_segments_under_four_threads<P: Policy>() {
    stress::<P>(Settings::default(), 8 << 30, 20_000);
}

fn growable_segments_under_four_threads<P: Policy>() {
    stress::<P>(Settings { expandable_segments: true, ..Settings::default() }, 8 << 30, 20_000);
}

/// Requests miss all the time.
fn a_device_that_is_too_small_under_four_threads<P: Policy>() {
    for expandable_segments in [false, true] {
        stress::<P>(Settings { expandable_segments, ..Settings::default() }, 96 << 20, 6_000);
    }
}

/// Two threads, each on its own stream, both below their peaks: the recorded peak is the true one.
fn peaks_over_streams_are_exact_under_threads<P: Policy>() {
    let device = OpenReg::new(OpenRegConfig::default().devices(1)).unwrap();
    let allocator = granule_tests::made::<P>(device.clone(), Settings::default()).unwrap();
    let streams: Vec<Stream> = (0..2).map(|_| device.create_stream(DEVICE, 0).unwrap()).collect();
    let barrier = Barrier::new(2);
    std::thread::scope(|scope| {
        for stream in &streams {
            let (allocator, barrier) = (&allocator, &barrier);
            scope.spawn(move || {
                for round in 1..=200u64 {
                    let ptr = allocator.malloc(round * 512, *stream).unwrap();
                    barrier.wait();
                    // Both hold theirs here: the sum is exactly 2 * round * 512, the most so far.
                    assert_eq!(
                        allocator.stats(DEVICE).unwrap().allocated_bytes.all.peak.unsigned_abs(),
                        2 * round * 512
                    );
                    barrier.wait();
                    allocator.free(ptr).unwrap();
                    barrier.wait();
                }
            });
        }
    });
}

/// Memory freed by a destructor of the thread's, when Rust has forgotten the thread already.
fn a_thread_may_free_memory_to_its_very_end<P: Policy>() {
    struct Last(Allocator, DevicePtr, Stream);

    extern "C" fn at_end(last: *mut std::ffi::c_void) {
        // SAFETY: made by `Box::into_raw` below, and given to this function once.
        let Last(allocator, ptr, stream) = *unsafe { Box::from_raw(last.cast::<Last>()) };
        allocator.malloc(40 * MIB, stream).unwrap();
        // A free looks closer while something is captured.
        allocator.pools().mark_capture_begin(DEVICE).unwrap();
        allocator.free(ptr).unwrap();
        allocator.pools().mark_capture_end(DEVICE).unwrap();
    }

    on_each(&mapped(64), |rig| {
        let allocator = rig.with_policy::<P>(Settings::default());
        let ptr = allocator.malloc(1000, rig.stream()).unwrap();
        let last = Last(Arc::clone(&allocator), ptr, rig.stream());
        std::thread::scope(|scope| {
            let ends = move || {
                let mut key = 0;
                // SAFETY: a function that takes what is set below.
                assert_eq!(unsafe { libc::pthread_key_create(&raw mut key, Some(at_end)) }, 0);
                let last = Box::into_raw(Box::new(last));
                // SAFETY: a key of this thread's making.
                assert_eq!(unsafe { libc::pthread_setspecific(key, last.cast()) }, 0);
            };
            scope.spawn(ends).join().unwrap();
        });
        allocator.synchronise(DEVICE).unwrap();
        assert_eq!(allocator.stats(DEVICE).unwrap().allocation.all.current, 1);
    });
}

#[test]
fn a09_threads_at_once_get_what_they_would_get_in_turn() {
    // Blocks that fill a segment, and blocks of which several share one: 2 threads on each of 2 streams.
    for (bytes, fixed) in [(20 * MIB, 4), (3 * MIB, 2), (512 * KIB, 2)] {
        for (settings, segments) in both().into_iter().zip([fixed, 2]) {
            on_each(&of_bytes(8 * GIB).clock(Clock::Workers), |rig| {
                let slow = Fault::from(1, Effect::Delay(Duration::from_millis(2)));
                let slow = FaultPlan::none().with(slow.of(Call::Malloc)).with(slow.of(Call::CreatePhysical));
                rig.device.set_faults(slow);
                let allocator = rig.allocator(settings.clone());
                let pool = PoolId::fresh();
                allocator.pools().begin(DEVICE, pool, Filter::Always).unwrap();
                let streams = [rig.new_stream(), rig.new_stream()];
                let (start, blocks) = (Barrier::new(4), Mutex::new(Vec::new()));
                std::thread::scope(|scope| {
                    for thread in 0..4 {
                        let (allocator, start, blocks) = (&allocator, &start, &blocks);
                        scope.spawn(move || {
                            start.wait();
                            let ptr = allocator.malloc(bytes, streams[thread % 2]).unwrap();
                            blocks.lock().unwrap().push(ptr);
                        });
                    }
                });
                let mut blocks = blocks.into_inner().unwrap();
                blocks.sort();
                assert!(blocks.windows(2).all(|pair| pair[0].0 + bytes <= pair[1].0), "{blocks:?}");
                let seen = allocator.pools().snapshot(pool, false).segments;
                assert_eq!(seen.len(), segments, "{bytes} bytes: {seen:?}");
                let held: u64 = seen.iter().map(|segment| segment.total_size).sum();
                assert_eq!(held, rig.used());
                allocator.pools().end(DEVICE, pool).unwrap();
                allocator.pools().release(DEVICE, pool).unwrap();
                free_all(&allocator, blocks);
                rig.nothing_is_left(&allocator);
            });
        }
    }
}

granule_tests::for_each_policy!(
    fixed_segments_under_four_threads,
    growable_segments_under_four_threads,
    a_device_that_is_too_small_under_four_threads,
    peaks_over_streams_are_exact_under_threads,
    a_thread_may_free_memory_to_its_very_end,
);
