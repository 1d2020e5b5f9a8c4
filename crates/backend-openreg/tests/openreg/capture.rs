//! Stream capture: recording, joining, breaking, launching.

use crate::support::D0;
use backend_api::types::{DevicePtr, Event, MIB, Stream};
use backend_api::*;
use backend_openreg::{Clock, Driver, OpenReg, OpenRegConfig, TrapKind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

struct Rig {
    machine: Arc<OpenReg>,
    a: Stream,
    b: Stream,
    mark: Event,
    memory: DevicePtr,
}

fn rig() -> Rig {
    let machine = OpenReg::new(OpenRegConfig::default().clock(Clock::Virtual { lag: 4 })).unwrap();
    let stream = || machine.create_stream(D0, 0).unwrap();
    let (a, b) = (stream(), stream());
    let mark = machine.create_event(D0, EventFlags::empty()).unwrap();
    let memory = machine.malloc(D0, MIB).unwrap();
    Rig { machine, a, b, mark, memory }
}

fn broken<T: std::fmt::Debug>(result: Result<T>) {
    assert_eq!(result.unwrap_err().kind, ErrorKind::CaptureViolation);
}

#[test]
fn captured_work_runs_at_the_launch_and_not_before() {
    let Rig { machine, a, memory, .. } = rig();
    let capture = machine.capture().unwrap();
    assert_eq!(capture.status(a).unwrap(), CaptureStatus::None);
    capture.begin(a, CaptureMode::Global).unwrap();
    let CaptureStatus::Active(id) = capture.status(a).unwrap() else { panic!("not active") };
    assert!(id > 0);
    assert_eq!(capture.frontier(a).unwrap(), []);
    machine.use_memory(a, memory, 64).unwrap();
    machine.use_memory(a, memory.add(64), 64).unwrap();
    let frontier = capture.frontier(a).unwrap();
    assert_eq!(frontier.len(), 1);
    let before = capture.dependencies(a, frontier[0]).unwrap();
    assert_eq!(before.len(), 1);
    assert_eq!(capture.dependencies(a, before[0]).unwrap(), []);
    let graph = capture.end(a).unwrap();
    assert_eq!(capture.status(a).unwrap(), CaptureStatus::None);
    assert_eq!(machine.query_stream(a).unwrap(), Readiness::Ready, "nothing was queued");
    // SAFETY: the memory lives until the stream has passed the work (rule 2).
    unsafe { capture.launch(graph, a) }.unwrap();
    assert_eq!(machine.query_stream(a).unwrap(), Readiness::NotReady);
    // SAFETY: trapped, that is what is tested.
    assert!(unsafe { machine.free(D0, memory) }.is_err());
    assert_eq!(machine.take_traps()[0].kind, TrapKind::StillInUse);
    machine.synchronize_stream(a).unwrap();
    // SAFETY: rule 3.
    unsafe { machine.free(D0, memory) }.unwrap();
    // SAFETY: trapped, that is what is tested.
    assert!(unsafe { capture.launch(graph, a) }.is_err());
    assert_eq!(machine.take_traps()[0].kind, TrapKind::Unallocated);
    // SAFETY: not used again.
    unsafe { capture.destroy_graph(graph) }.unwrap();
    // SAFETY: a dead graph is answered.
    assert!(unsafe { capture.launch(graph, a) }.is_err());
}

#[test]
fn streams_join_through_events_and_must_come_back() {
    let Rig { machine, a, b, mark, memory } = rig();
    let capture = machine.capture().unwrap();
    let fork = |join_back: bool| {
        capture.begin(a, CaptureMode::Global).unwrap();
        machine.use_memory(a, memory, 1).unwrap();
        machine.record_event(mark, a).unwrap();
        machine.wait_event(b, mark).unwrap();
        assert_eq!(capture.status(b).unwrap(), capture.status(a).unwrap());
        assert_eq!(capture.frontier(b).unwrap(), capture.frontier(a).unwrap());
        machine.use_memory(b, memory, 1).unwrap();
        machine.use_memory(a, memory, 1).unwrap();
        if join_back {
            machine.record_event(mark, b).unwrap();
            machine.wait_event(a, mark).unwrap();
            assert_eq!(capture.frontier(a).unwrap().len(), 2);
        }
        let ended = capture.end(a);
        assert_eq!(capture.status(b).unwrap(), CaptureStatus::None, "the end is the end for all");
        ended
    };
    let graph = fork(true).unwrap();
    // SAFETY: the memory lives (rule 2).
    unsafe { capture.launch(graph, b) }.unwrap();
    machine.synchronize_device(D0).unwrap();
    broken(fork(false));
    machine.use_memory(b, memory, 1).unwrap();
    assert_eq!(machine.query_stream(b).unwrap(), Readiness::NotReady, "b runs its own work again");
}

#[test]
fn calls_that_disturb_break_the_capture() {
    let Rig { machine, a, b, mark, .. } = rig();
    let capture = machine.capture().unwrap();
    machine.record_event(mark, b).unwrap();
    let captured = machine.create_event(D0, EventFlags::empty()).unwrap();
    let disturb: [(&str, &dyn Fn() -> Result<()>); 7] = [
        ("malloc", &|| machine.malloc(D0, 1).map(drop)),
        ("query event", &|| machine.query_event(mark).map(drop)),
        ("synchronize event", &|| machine.synchronize_event(captured)),
        ("query stream", &|| machine.query_stream(a).map(drop)),
        ("synchronize stream", &|| machine.synchronize_stream(a)),
        ("synchronize device", &|| machine.synchronize_device(D0)),
        ("wait for outside work", &|| machine.wait_event(a, mark)),
    ];
    for (name, call) in disturb {
        capture.begin(a, CaptureMode::Global).unwrap();
        machine.record_event(captured, a).unwrap();
        let used = machine.used(D0);
        assert_eq!(call().unwrap_err().kind, ErrorKind::CaptureViolation, "{name}");
        assert_eq!(machine.used(D0), used);
        assert_eq!(capture.status(a).unwrap(), CaptureStatus::Invalidated, "{name}");
        broken(machine.launch_host_function(a, Box::new(|| ())));
        broken(capture.end(a));
        assert_eq!(capture.status(a).unwrap(), CaptureStatus::None);
    }
    assert_eq!(machine.query_stream(b).unwrap(), Readiness::NotReady, "another stream may be asked");
}

#[test]
fn modes_say_whom_a_capture_stops() {
    let Rig { machine, a, .. } = rig();
    let capture = machine.capture().unwrap();
    let elsewhere = |mode: CaptureMode| {
        std::thread::scope(|scope| {
            let asked = scope.spawn(|| {
                assert_eq!(capture.exchange_mode(mode).unwrap(), CaptureMode::Global);
                machine.malloc(D0, 1).is_ok()
            });
            asked.join().unwrap()
        })
    };
    for (begun, thread, allowed) in [
        (CaptureMode::Global, CaptureMode::Global, false),
        (CaptureMode::Global, CaptureMode::ThreadLocal, true),
        (CaptureMode::Global, CaptureMode::Relaxed, true),
        (CaptureMode::ThreadLocal, CaptureMode::Global, true),
        (CaptureMode::Relaxed, CaptureMode::Global, true),
    ] {
        capture.begin(a, begun).unwrap();
        assert_eq!(elsewhere(thread), allowed, "{begun:?} capture, {thread:?} thread");
        assert_eq!(capture.end(a).is_ok(), allowed);
    }
    capture.begin(a, CaptureMode::ThreadLocal).unwrap();
    let before = capture.exchange_mode(CaptureMode::Relaxed).unwrap();
    machine.malloc(D0, 1).unwrap();
    assert_eq!(capture.exchange_mode(before).unwrap(), CaptureMode::Relaxed);
    broken(machine.malloc(D0, 1));
    broken(capture.end(a));
    capture.begin(a, CaptureMode::Relaxed).unwrap();
    machine.malloc(D0, 1).unwrap();
    capture.end(a).unwrap();
}

#[test]
fn captures_do_not_mix() {
    let Rig { machine, a, b, mark, .. } = rig();
    let capture = machine.capture().unwrap();
    broken(capture.begin(machine.default_stream(D0), CaptureMode::Global));
    capture.begin(a, CaptureMode::Relaxed).unwrap();
    broken(capture.begin(a, CaptureMode::Relaxed));
    capture.begin(b, CaptureMode::Relaxed).unwrap();
    machine.record_event(mark, a).unwrap();
    broken(machine.wait_event(b, mark));
    broken(capture.end(a));
    broken(capture.end(b));
    assert_eq!(capture.end(a).unwrap_err().kind, ErrorKind::InvalidValue, "nothing to end");
    capture.begin(a, CaptureMode::Relaxed).unwrap();
    machine.record_event(mark, a).unwrap();
    machine.wait_event(b, mark).unwrap();
    broken(capture.end(b));
    broken(capture.end(a));
}

#[test]
fn what_a_graph_retains_ends_with_graph_and_launches() {
    let Rig { machine, a, memory, .. } = rig();
    let capture = machine.capture().unwrap();
    let released = Arc::new(AtomicU32::new(0));
    let ran = Arc::new(AtomicU32::new(0));
    let make = || {
        capture.begin(a, CaptureMode::Global).unwrap();
        machine.use_memory(a, memory, 1).unwrap();
        let (released, ran) = (Arc::clone(&released), Arc::clone(&ran));
        let count = move |counter: &AtomicU32| assert!(counter.fetch_add(1, Ordering::SeqCst) < 9);
        machine.launch_host_function(a, Box::new(move || count(&ran))).unwrap();
        Driver(&machine).retain_until_graph_ends(a, Box::new(move || count(&released))).unwrap();
    };
    make();
    let graph = capture.end(a).unwrap();
    // SAFETY: the memory lives (rule 2).
    unsafe { capture.launch(graph, a) }.unwrap();
    // SAFETY: not used again.
    unsafe { capture.destroy_graph(graph) }.unwrap();
    assert_eq!((ran.load(Ordering::SeqCst), released.load(Ordering::SeqCst)), (0, 0));
    machine.synchronize_stream(a).unwrap();
    assert_eq!((ran.load(Ordering::SeqCst), released.load(Ordering::SeqCst)), (1, 1));
    make();
    broken(machine.synchronize_stream(a));
    broken(capture.end(a));
    assert_eq!(
        (ran.load(Ordering::SeqCst), released.load(Ordering::SeqCst)),
        (1, 2),
        "a broken capture releases too"
    );
}
