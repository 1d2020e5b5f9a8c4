//! The thread that watches for pinned blocks that are free again.

use crate::watched::{Watch, over, world};
use alloc_core::backend::{Backend, CaptureMode};
use alloc_core::config::Settings;
use alloc_core::host::HostAllocator;
use alloc_core::types::{KIB, MIB};
use backend_openreg::{Call, Clock, OpenReg};
use granule_tests::alone::{child, is_child};
use granule_tests::pinned::{calls, host, nothing_is_left, working};
use granule_tests::rig::{DEVICE, on_each};
use std::sync::{Arc, OnceLock, mpsc};
use std::thread;
use std::time::{Duration, Instant};

fn background() -> Settings {
    Settings { pinned_use_background_threads: true, ..Settings::default() }
}

#[test]
fn n07_with_a_background_thread_a_ready_block_needs_no_call_that_allocates() {
    on_each(&working(), |rig| {
        let users = Arc::strong_count(&rig.backend);
        let host = host(rig, &background());
        let stream = rig.new_stream();
        let block = host.allocate(MIB).unwrap();
        for round in 0..3 {
            let gate = rig.hold(stream);
            let used = if round == 0 { block } else { host.allocate(MIB).unwrap() };
            assert_eq!(used.ptr, block.ptr, "the same block each time");
            assert!(host.record_event(used.ptr, used.id, stream).unwrap());
            host.free(used.id).unwrap();
            assert_eq!(host.stats().active_requests.current, 1);
            gate.open();
            let deadline = Instant::now() + Duration::from_secs(20);
            while host.stats().active_requests.current > 0 {
                assert!(Instant::now() < deadline, "{}: nobody noticed", rig.name);
                thread::sleep(Duration::from_millis(1));
            }
        }
        // While nothing waits, it does not bother the driver.
        let queries = calls(rig, Call::QueryEvent);
        thread::sleep(Duration::from_millis(20));
        assert_eq!(calls(rig, Call::QueryEvent), queries);
        nothing_is_left(rig, host);
        assert_eq!(Arc::strong_count(&rig.backend), users, "the thread is gone, with all it had");
    });
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
    // The clock runs wherever looks are counted, however long this thread is kept from going on.
    let begun = Instant::now();
    let before = watch.count("Capture::status");
    thread::sleep(Duration::from_millis(50));
    let looks = (watch.count("Capture::status") - before) as u128;
    let most = begun.elapsed().as_micros() / 100 + 2;
    assert!(looks <= most, "{looks} looks, where the rhythm allows {most}");
    let graph = capture.end(stream).unwrap();
    // SAFETY: rule 1: it was never launched.
    unsafe { capture.destroy_graph(graph) }.unwrap();
    let deadline = Instant::now() + Duration::from_secs(20);
    while host.stats().active_requests.current > 0 {
        assert!(Instant::now() < deadline, "nobody noticed");
        thread::sleep(Duration::from_millis(1));
    }
}

/// Requests of the default pool do not; without the thread, each asks.
#[test]
fn n07_with_a_thread_that_watches_requests_ask_about_no_event() {
    let (machine, driver, watch) = world(Clock::Workers);
    let (host, alone) = (over(&driver, &background()), over(&driver, &Settings::default()));
    let stream = machine.create_stream(DEVICE, 0).unwrap();
    let (open, gate) = mpsc::channel::<()>();
    let wait = move || {
        let _ = gate.recv();
    };
    machine.launch_host_function(stream, Box::new(wait)).unwrap();
    for host in [&host, &alone] {
        let block = host.allocate(KIB).unwrap();
        assert!(host.record_event(block.ptr, block.id, stream).unwrap());
        host.free(block.id).unwrap();
    }
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
    alone.allocate(KIB).unwrap();
    assert_eq!(asks(true), 1);
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
    const THIS: &str = "background::the_end_of_the_process_waits_for_the_thread";
    if !is_child(THIS) {
        let status = child(THIS).status;
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
