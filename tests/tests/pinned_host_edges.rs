//! Pinned host memory where calls meet: streams that retire while their blocks are freed, captures around frees and the
//! end, the thread that watches, and buffers against frees by name.
#![allow(clippy::unwrap_used)] // a test says what is wrong by panicking

use alloc_core::AllocError;
use alloc_core::backend::{Backend, CaptureMode, CaptureStatus, Result as DriverResult};
use alloc_core::config::Settings;
use alloc_core::history::HistoryOptions;
use alloc_core::host::{HostAllocator, HostOptions, PinnedBuffer};
use alloc_core::pool::Filter;
use alloc_core::snapshot::Snapshot;
use alloc_core::types::{DeviceIndex, Event, KIB, MIB, PoolId, Stream};
use backend_openreg::{Call, Clock, OpenReg, OpenRegConfig};
use conformance::interpose::{Hook, Interposed};
use granule_tests::quiet::Retires;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, mpsc};
use std::thread::{self, ThreadId};
use std::time::Duration;

const DEVICE: DeviceIndex = DeviceIndex(0);

/// Sees which thread makes which call.
#[derive(Debug, Default)]
struct Watch {
    calls: Mutex<Vec<(&'static str, ThreadId)>>,
    /// How long a question about an event takes.
    slow: Mutex<Duration>,
    /// Devices other than the first have no context.
    lone: AtomicBool,
    /// Devices that were waited for, as bits.
    waited: AtomicU64,
    /// Streams on which events were recorded.
    recorded: Mutex<Vec<Stream>>,
}

impl Watch {
    fn count(&self, method: &str) -> usize {
        self.calls.lock().unwrap().iter().filter(|(called, _)| *called == method).count()
    }

    fn all(&self) -> usize {
        self.calls.lock().unwrap().len()
    }
}

#[derive(Debug)]
struct Seen(Arc<Watch>);

impl Hook for Seen {
    fn enter(&self, method: &'static str) -> DriverResult<()> {
        self.0.calls.lock().unwrap().push((method, thread::current().id()));
        if method == "Backend::query_event" {
            let slow = *self.0.slow.lock().unwrap();
            thread::sleep(slow);
        }
        Ok(())
    }

    fn has_primary_context(&self, inner: &dyn Backend, device: DeviceIndex) -> DriverResult<bool> {
        let lone = self.0.lone.load(Ordering::Relaxed) && device != DEVICE;
        if lone { Ok(false) } else { inner.has_primary_context(device) }
    }

    fn record_event(&self, inner: &dyn Backend, event: Event, stream: Stream) -> DriverResult<()> {
        self.0.recorded.lock().unwrap().push(stream);
        inner.record_event(event, stream)
    }

    fn synchronize_device(&self, inner: &dyn Backend, device: DeviceIndex) -> DriverResult<()> {
        self.0.waited.fetch_or(1 << device.0, Ordering::Relaxed);
        inner.synchronize_device(device)
    }
}

fn world(clock: Clock) -> (Arc<OpenReg>, Arc<dyn Backend>, Arc<Watch>) {
    let machine = OpenReg::new(OpenRegConfig::default().devices(2).clock(clock)).unwrap();
    let watch = Arc::new(Watch::default());
    let driver = Arc::new(Interposed::new(machine.clone(), Seen(Arc::clone(&watch))));
    (machine, driver, watch)
}

fn over(driver: &Arc<dyn Backend>, settings: &Settings) -> HostAllocator {
    HostAllocator::new(driver.clone(), settings, HostOptions::default()).unwrap()
}

fn background() -> Settings {
    Settings { pinned_use_background_threads: true, ..Settings::default() }
}

/// A free takes its block's streams with it, one after the other; who retires the last of many comes in between.
#[test]
fn a_stream_does_not_retire_under_a_free_that_names_it() {
    let (machine, driver, watch) = world(Clock::Virtual { lag: 0 });
    let host = over(&driver, &Settings::default());
    let streams: Vec<Stream> = (0..64).map(|_| machine.create_stream(DEVICE, 0).unwrap()).collect();
    let last = streams[streams.len() - 1];
    let named = || watch.recorded.lock().unwrap().iter().filter(|stream| **stream == last).count();
    for round in 0..500u32 {
        let block = host.allocate(KIB).unwrap();
        for stream in &streams {
            assert!(host.record_event(block.ptr, block.id, *stream).unwrap());
        }
        let begun = AtomicBool::new(false);
        let before = thread::scope(|scope| {
            scope.spawn(|| {
                begun.store(true, Ordering::Release);
                host.free(block.id).unwrap();
            });
            while !begun.load(Ordering::Acquire) {
                std::hint::spin_loop();
            }
            (0..round % 50 * 40).for_each(|_| std::hint::spin_loop());
            host.retire(last).unwrap();
            named()
        });
        assert_eq!(named(), before, "round {round}: a free named a stream that had retired");
    }
}

/// A stream that cannot retire yet is as it was.
#[test]
fn a_stream_that_could_not_retire_keeps_its_pool() {
    let (machine, driver, _) = world(Clock::Virtual { lag: 0 });
    let host = over(&driver, &Settings::default());
    let stream = machine.create_stream(DEVICE, 0).unwrap();
    let pool = PoolId::fresh_for_capture();
    let used = host.allocate(KIB).unwrap();
    assert!(host.record_event(used.ptr, used.id, stream).unwrap());
    let capture = machine.capture().unwrap();
    capture.begin(stream, CaptureMode::Relaxed).unwrap();
    host.begin_pool(pool, &Filter::CaptureOf(stream)).unwrap();
    host.retire(stream).unwrap_err();
    let inside = host.allocate_for(MIB, stream).unwrap();
    host.record_history(&HistoryOptions::newest(1)).unwrap();
    let mut seen = Snapshot::default();
    host.add_to_snapshot(&mut seen, false);
    let segment = seen.host_segments.iter().find(|segment| segment.address == inside.ptr.0).unwrap();
    assert_eq!(segment.pool_id, pool, "the capture goes on");
    let graph = capture.end(stream).unwrap();
    // SAFETY: rule 1: it was never launched.
    unsafe { capture.destroy_graph(graph) }.unwrap();
}

/// Giving memory back is what a capture forbids: whatever a free or the end gives back, the capture is whole.
#[test]
fn large_blocks_and_the_reserve_go_back_without_breaking_a_capture() {
    let (machine, driver, _) = world(Clock::Virtual { lag: 0 });
    let settings =
        Settings { pinned_max_cached_size: MIB, pinned_reserve_segment_size: MIB, ..Settings::default() };
    let host = over(&driver, &settings);
    let large = host.allocate(2 * MIB).unwrap();
    let stream = machine.create_stream(DEVICE, 0).unwrap();
    let capture = machine.capture().unwrap();
    capture.begin(stream, CaptureMode::Global).unwrap();
    host.free(large.id).unwrap();
    assert_eq!(host.stats().num_host_free(), 1);
    drop(host);
    assert_eq!(machine.calls().get(Call::HostMalloc), machine.calls().get(Call::HostFree));
    assert!(matches!(capture.status(stream).unwrap(), CaptureStatus::Active(_)), "the capture is whole");
    let graph = capture.end(stream).unwrap();
    // SAFETY: rule 1: it was never launched.
    unsafe { capture.destroy_graph(graph) }.unwrap();
}

#[test]
fn the_end_makes_no_contexts() {
    let (machine, driver, watch) = world(Clock::Virtual { lag: 0 });
    let host = over(&driver, &Settings::default());
    watch.lone.store(true, Ordering::Relaxed);
    let stream = machine.create_stream(DEVICE, 0).unwrap();
    let capture = machine.capture().unwrap();
    capture.begin(stream, CaptureMode::Global).unwrap();
    let kept = host.allocate_for(MIB, stream).unwrap();
    assert!(host.record_event(kept.ptr, kept.id, stream).unwrap());
    let graph = capture.end(stream).unwrap();
    // SAFETY: rule 1: it was never launched.
    unsafe { capture.destroy_graph(graph) }.unwrap();
    host.free(kept.id).unwrap();
    drop(host);
    assert_eq!(machine.calls().get(Call::HostMalloc), machine.calls().get(Call::HostFree));
    assert_eq!(watch.waited.load(Ordering::Relaxed), 1, "only devices in use are waited for");
}

/// A free that waits for the end of a capture is looked at in the thread's rhythm, not without a pause.
#[test]
fn the_thread_keeps_its_rhythm_while_a_free_waits_for_a_capture() {
    let (machine, driver, watch) = world(Clock::Virtual { lag: 0 });
    let host = over(&driver, &background());
    let stream = machine.create_stream(DEVICE, 0).unwrap();
    let block = host.allocate(KIB).unwrap();
    assert!(host.record_event(block.ptr, block.id, stream).unwrap());
    let capture = machine.capture().unwrap();
    capture.begin(stream, CaptureMode::Global).unwrap();
    host.free(block.id).unwrap();
    thread::sleep(Duration::from_millis(5));
    let before = watch.count("Capture::status");
    let begun = std::time::Instant::now();
    thread::sleep(Duration::from_millis(50));
    let looks = (watch.count("Capture::status") - before) as u128;
    let most = begun.elapsed().as_micros() / 100 + 2;
    assert!(looks <= most, "{looks} looks, where the rhythm allows {most}");
    let graph = capture.end(stream).unwrap();
    // SAFETY: rule 1: it was never launched.
    unsafe { capture.destroy_graph(graph) }.unwrap();
    let deadline = std::time::Instant::now() + Duration::from_secs(20);
    while host.stats().active_requests.current > 0 {
        assert!(std::time::Instant::now() < deadline, "nobody noticed");
        thread::sleep(Duration::from_millis(1));
    }
}

/// The other half of N07: with a thread that watches, requests of the default pool ask about no event.
#[test]
fn with_a_thread_that_watches_requests_ask_about_no_event() {
    let (machine, driver, watch) = world(Clock::Workers);
    let host = over(&driver, &background());
    let stream = machine.create_stream(DEVICE, 0).unwrap();
    let (open, gate) = mpsc::channel::<()>();
    let wait = move || {
        let _ = gate.recv();
    };
    machine.launch_host_function(stream, Box::new(wait)).unwrap();
    let block = host.allocate(KIB).unwrap();
    assert!(host.record_event(block.ptr, block.id, stream).unwrap());
    host.free(block.id).unwrap();
    for n in 0..50 {
        host.allocate(KIB << (n % 3)).unwrap();
    }
    let asks = |mine: bool| {
        let calls = watch.calls.lock().unwrap();
        let asked = calls.iter().filter(|(method, _)| *method == "Backend::query_event");
        asked.filter(|(_, by)| (*by == thread::current().id()) == mine).count()
    };
    while asks(false) == 0 {
        thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(asks(true), 0);
    drop(open);
}

/// Gives the thread that watches much to ask, slowly, and waits until it has begun.
fn busy(machine: &OpenReg, host: &HostAllocator, watch: &Watch) {
    *watch.slow.lock().unwrap() = Duration::from_millis(2);
    for _ in 0..20 {
        let stream = machine.create_stream(DEVICE, 0).unwrap();
        let block = host.allocate(KIB).unwrap();
        assert!(host.record_event(block.ptr, block.id, stream).unwrap());
        host.free(block.id).unwrap();
    }
    while watch.count("Backend::query_event") == 0 {
        thread::sleep(Duration::from_millis(1));
    }
}

/// Whoever unloads the driver after `abandon` unloads it under nobody.
#[test]
fn after_the_driver_was_abandoned_the_thread_calls_it_no_more() {
    let (machine, driver, watch) = world(Clock::Virtual { lag: 1_000_000 });
    let host = over(&driver, &background());
    busy(&machine, &host, &watch);
    host.abandon();
    let calls = watch.all();
    thread::sleep(Duration::from_millis(100));
    assert_eq!(watch.all(), calls);
    drop(host);
    assert_eq!(watch.all(), calls);
}

static SEEN_AT_EXIT: OnceLock<Arc<Watch>> = OnceLock::new();

/// Comes after the engine's own handler, as that of a driver does which was loaded before the engine was.
extern "C" fn unload() {
    let Some(watch) = SEEN_AT_EXIT.get() else { return };
    let calls = watch.all();
    thread::sleep(Duration::from_millis(100));
    if watch.all() != calls {
        // SAFETY: ends the process at once.
        unsafe { libc::_exit(3) }
    }
}

/// A driver that unloads with the process is not called by a thread that nobody can wait for.
#[test]
fn the_end_of_the_process_waits_for_the_thread() {
    const ENDS: &str = "GRANULE_TEST_ENDS";
    if std::env::var_os(ENDS).is_none() {
        let mut again = std::process::Command::new(std::env::current_exe().unwrap());
        let name = "the_end_of_the_process_waits_for_the_thread";
        let status = again.args(["--exact", name]).env(ENDS, "1").status().unwrap();
        assert_eq!(status.code(), Some(0), "3: the driver was called while it was unloading");
        return;
    }
    // SAFETY: the handler calls nothing that is gone by then.
    assert_eq!(unsafe { libc::atexit(unload) }, 0);
    let (machine, driver, watch) = world(Clock::Virtual { lag: 1_000_000 });
    SEEN_AT_EXIT.set(Arc::clone(&watch)).unwrap();
    let host = over(&driver, &background());
    busy(&machine, &host, &watch);
    std::process::exit(0);
}

/// Safe code cannot make two buffers of one block.
#[test]
fn a_buffers_block_is_not_freed_behind_its_back() {
    let machine = OpenReg::new(OpenRegConfig::default().devices(1)).unwrap();
    let host = Arc::new(HostAllocator::new(machine, &Settings::default(), HostOptions::default()).unwrap());
    let first = PinnedBuffer::zeroed(&host, 100).unwrap();
    let refused = host.free(first.block().id).unwrap_err();
    assert!(matches!(refused, AllocError::UnknownHostBlock { id } if id == first.block().id.0));
    let second = PinnedBuffer::copied(&host, &[7; 100]).unwrap();
    assert_ne!(first.ptr(), second.ptr());
    assert_eq!((first.as_slice(), second.as_slice()), (&[0; 100][..], &[7; 100][..]));
    // Given up, it is the program's.
    let raw = first.into_raw();
    host.free(raw.id).unwrap();
    host.free(raw.id).unwrap_err();
    let again = host.allocate(100).unwrap();
    assert_eq!(again.ptr, raw.ptr);
    host.free(again.id).unwrap();
    drop(second);
    assert_eq!(host.stats().active_requests.current, 0);
}
