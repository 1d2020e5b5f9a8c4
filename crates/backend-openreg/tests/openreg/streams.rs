//! Streams and events under both clocks.

mod stress;

use crate::support::{D0, D1};
use backend_api::types::{DeviceIndex, DevicePtr, Event, Stream};
use backend_api::*;
use backend_openreg::{Clock, Lag, MemoryMode, OpenReg, OpenRegConfig, TrapKind};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

fn machine(clock: Clock) -> Arc<OpenReg> {
    OpenReg::new(OpenRegConfig::default().clock(clock)).unwrap()
}

fn event(machine: &OpenReg) -> Event {
    machine.create_event(D0, EventFlags::empty()).unwrap()
}

fn stream(machine: &OpenReg) -> Stream {
    machine.create_stream(D0, 0).unwrap()
}

/// Blocks a stream until the sender is dropped.
fn block(machine: &OpenReg, stream: Stream) -> mpsc::Sender<()> {
    let (open, gate) = mpsc::channel::<()>();
    machine.launch_host_function(stream, Box::new(move || assert!(gate.recv().is_err()))).unwrap();
    open
}

#[test]
fn without_lag_everything_is_done_at_once() {
    let machine = machine(Clock::Virtual { lag: 0 });
    let (stream, event) = (stream(&machine), event(&machine));
    assert_eq!(machine.query_event(event).unwrap(), Readiness::Ready, "never recorded");
    machine.record_event(event, stream).unwrap();
    assert_eq!(machine.query_event(event).unwrap(), Readiness::Ready);
    let ran = Arc::new(AtomicU32::new(0));
    let count = Arc::clone(&ran);
    machine
        .launch_host_function(stream, Box::new(move || assert_eq!(count.fetch_add(1, Ordering::SeqCst), 0)))
        .unwrap();
    assert_eq!(ran.load(Ordering::SeqCst), 1);
    assert_eq!(machine.query_stream(stream).unwrap(), Readiness::Ready);
}

#[test]
fn with_lag_n_work_completes_after_n_further_ticks() {
    let machine = machine(Clock::Virtual { lag: 3 });
    let (stream, first, second) = (stream(&machine), event(&machine), event(&machine));
    machine.record_event(first, stream).unwrap();
    machine.advance(2);
    assert_eq!(machine.query_event(first).unwrap(), Readiness::NotReady);
    // The third tick is an operation on another stream.
    machine.record_event(second, machine.default_stream(D0)).unwrap();
    assert_eq!(machine.query_event(first).unwrap(), Readiness::Ready);
    assert_eq!(machine.query_event(second).unwrap(), Readiness::NotReady);
    for _ in 0..10 {
        machine.query_event(second).unwrap();
    }
    assert_eq!(machine.query_event(second).unwrap(), Readiness::NotReady, "asking is no tick");
    machine.advance(3);
    assert_eq!(machine.query_event(second).unwrap(), Readiness::Ready);
}

#[test]
fn a_record_of_an_event_that_is_gone_is_not_one_of_its_handles_next_event() {
    let config = OpenRegConfig::default().clock(Clock::Virtual { lag: 5 }).reuse_handles(true);
    let machine = OpenReg::new(config).unwrap();
    let (early, late, first) = (stream(&machine), stream(&machine), event(&machine));
    Lag(50).set(&machine, late);
    machine.record_event(first, early).unwrap();
    // SAFETY: rule 1: made above, and not used again.
    unsafe { machine.destroy_event(first) }.unwrap();
    let second = event(&machine);
    assert_eq!(first, second, "handles come back");
    machine.record_event(second, late).unwrap();
    machine.advance(10);
    assert_eq!(machine.query_stream(early).unwrap(), Readiness::Ready);
    assert_eq!(machine.query_event(second).unwrap(), Readiness::NotReady, "its own stream is not there yet");
    machine.advance(50);
    assert_eq!(machine.query_event(second).unwrap(), Readiness::Ready);
}

#[test]
fn waiting_completes_what_it_must_and_no_more() {
    let machine = machine(Clock::Virtual { lag: 1_000_000 });
    let (a, b, c) = (stream(&machine), stream(&machine), stream(&machine));
    let (on_a, on_b, on_c) = (event(&machine), event(&machine), event(&machine));
    machine.record_event(on_a, a).unwrap();
    machine.wait_event(b, on_a).unwrap();
    machine.record_event(on_b, b).unwrap();
    machine.record_event(on_c, c).unwrap();
    machine.synchronize_event(on_b).unwrap();
    assert_eq!(machine.query_event(on_a).unwrap(), Readiness::Ready, "b waited for it");
    assert_eq!(machine.query_event(on_c).unwrap(), Readiness::NotReady);
    assert_eq!(machine.query_stream(c).unwrap(), Readiness::NotReady);
    machine.synchronize_device(D0).unwrap();
    assert_eq!(machine.query_stream(c).unwrap(), Readiness::Ready);
}

#[test]
fn long_chains_of_waits_need_no_deep_stack() {
    let machine = machine(Clock::Virtual { lag: u64::MAX });
    let streams = [stream(&machine), stream(&machine)];
    let mut last = event(&machine);
    for turn in 0..100_000 {
        machine.wait_event(streams[turn % 2], last).unwrap();
        let next = event(&machine);
        machine.record_event(next, streams[turn % 2]).unwrap();
        // SAFETY: it is not used again; the wait on it holds (rule 1).
        unsafe { machine.destroy_event(last) }.unwrap();
        last = next;
    }
    machine.synchronize_event(last).unwrap();
    assert_eq!(machine.query_event(last).unwrap(), Readiness::Ready);
}

fn a_wait_captures_the_event_as_it_is(clock: Clock) {
    let machine = machine(clock);
    let (a, b, c) = (stream(&machine), stream(&machine), stream(&machine));
    let mark = event(&machine);
    machine.record_event(mark, a).unwrap();
    machine.synchronize_stream(a).unwrap();
    let gate = block_if_workers(&machine, c, clock);
    machine.wait_event(b, mark).unwrap();
    machine.record_event(mark, c).unwrap();
    // b waits for the first record, not for the one that hangs on c.
    machine.synchronize_stream(b).unwrap();
    if clock == Clock::Workers {
        assert_eq!(machine.query_event(mark).unwrap(), Readiness::NotReady);
    }
    drop(gate);
    machine.synchronize_event(mark).unwrap();
    assert_eq!(machine.query_event(mark).unwrap(), Readiness::Ready);
}

fn block_if_workers(machine: &OpenReg, stream: Stream, clock: Clock) -> Option<mpsc::Sender<()>> {
    (clock == Clock::Workers).then(|| block(machine, stream))
}

#[test]
fn a_wait_captures_the_event_as_it_is_under_every_clock() {
    for clock in [Clock::Workers, Clock::Virtual { lag: 0 }, Clock::Virtual { lag: 50 }] {
        a_wait_captures_the_event_as_it_is(clock);
    }
}

#[test]
fn a_re_recorded_event_means_its_last_record() {
    let machine = machine(Clock::Virtual { lag: 5 });
    let (stream, event) = (stream(&machine), event(&machine));
    machine.record_event(event, stream).unwrap();
    machine.advance(3);
    machine.record_event(event, stream).unwrap();
    machine.advance(2);
    assert_eq!(machine.query_event(event).unwrap(), Readiness::NotReady, "only the first record was passed");
    machine.advance(3);
    assert_eq!(machine.query_event(event).unwrap(), Readiness::Ready);
}

#[test]
fn time_stamps_are_exact_on_the_virtual_clock() {
    let config = OpenRegConfig::default().clock(Clock::Virtual { lag: 0 });
    let machine = OpenReg::new(config.clone()).unwrap();
    let timed = || machine.create_event(D0, EventFlags::TIMING).unwrap();
    let (start, end) = (timed(), timed());
    let memory = machine.malloc(D0, 512).unwrap();
    machine.record_event(start, machine.default_stream(D0)).unwrap();
    machine.use_memory_for(machine.default_stream(D0), memory, 512, Duration::from_millis(7)).unwrap();
    machine.record_event(end, machine.default_stream(D0)).unwrap();
    assert_eq!(machine.elapsed_ms(start, end).unwrap(), 7.002);
    assert_eq!(machine.elapsed_ms(start, event(&machine)).unwrap_err().kind, ErrorKind::NotSupported);
    assert_eq!(machine.elapsed_ms(start, timed()).unwrap_err().kind, ErrorKind::InvalidValue);
    let untimed = OpenReg::new(config.without_event_timing()).unwrap();
    let one = untimed.create_event(D0, EventFlags::TIMING).unwrap();
    untimed.record_event(one, untimed.default_stream(D0)).unwrap();
    assert_eq!(untimed.elapsed_ms(one, one).unwrap_err().kind, ErrorKind::NotSupported);
}

#[test]
fn handles_of_others_and_dead_ones_are_refused() {
    let (one, two) = (machine(Clock::Virtual { lag: 0 }), machine(Clock::Virtual { lag: 0 }));
    let (of_two, event) = (stream(&two), event(&one));
    let invalid = |result: Result<()>| assert_eq!(result.unwrap_err().kind, ErrorKind::InvalidValue);
    invalid(one.synchronize_stream(of_two));
    invalid(two.record_event(event, of_two));
    invalid(one.record_event(event, one.default_stream(D1)));
    let dead = stream(&one);
    // SAFETY: the handle is of this machine; using it again is what is tested, and is answered.
    unsafe { one.destroy_stream(dead) }.unwrap();
    invalid(one.synchronize_stream(dead));
    assert_ne!(stream(&one).raw, dead.raw);
    let reusing = OpenReg::new(OpenRegConfig::default().reuse_handles(true)).unwrap();
    let first = stream(&reusing);
    // SAFETY: rule 1.
    unsafe { reusing.destroy_stream(first) }.unwrap();
    assert_eq!(stream(&reusing).raw, first.raw);
    // SAFETY: refused.
    invalid(unsafe { one.destroy_stream(one.default_stream(D0)) });
}

#[test]
fn the_current_device_belongs_to_the_thread() {
    let machine = machine(Clock::Virtual { lag: 0 });
    machine.set_device(D1).unwrap();
    assert!(machine.set_device(DeviceIndex(9)).is_err());
    assert!(machine.malloc(DeviceIndex(9), 1).is_err());
    machine.malloc(D0, 1).unwrap();
    assert_eq!(machine.current_device().unwrap(), D1);
    std::thread::scope(|scope| {
        scope.spawn(|| assert_eq!(machine.current_device().unwrap(), D0));
    });
    {
        let guard = DeviceGuard::new(&*machine, D0).unwrap();
        assert_eq!((guard.previous(), machine.current_device().unwrap()), (D1, D0));
    }
    assert_eq!(machine.current_device().unwrap(), D1);
}

#[test]
fn workers_run_while_the_caller_goes_on() {
    let machine = machine(Clock::Workers);
    let (stream, event) = (stream(&machine), event(&machine));
    let gate = block(&machine, stream);
    machine.record_event(event, stream).unwrap();
    assert_eq!(machine.query_event(event).unwrap(), Readiness::NotReady);
    assert_eq!(machine.query_stream(stream).unwrap(), Readiness::NotReady, "a running task counts");
    let ptr = machine.malloc(D0, 4096).unwrap();
    machine.use_memory(stream, ptr, 4096).unwrap();
    // SAFETY: trapped, that is what is tested.
    assert!(unsafe { machine.free(D0, ptr) }.is_err());
    assert_eq!(machine.take_traps()[0].kind, TrapKind::StillInUse);
    drop(gate);
    machine.synchronize_event(event).unwrap();
    machine.synchronize_device(D0).unwrap();
    assert_eq!(machine.query_stream(stream).unwrap(), Readiness::Ready);
    // SAFETY: the device has finished (rule 3).
    unsafe { machine.free(D0, ptr) }.unwrap();
}

#[test]
fn a_destroyed_stream_still_does_its_work() {
    let machine = machine(Clock::Workers);
    let doomed = stream(&machine);
    let gate = block(&machine, doomed);
    let (done, finished) = mpsc::channel();
    machine.launch_host_function(doomed, Box::new(move || done.send(()).unwrap())).unwrap();
    // SAFETY: the handle is not used again.
    unsafe { machine.destroy_stream(doomed) }.unwrap();
    drop(gate);
    finished.recv_timeout(Duration::from_secs(10)).unwrap();
}

#[test]
fn streams_wait_for_each_other_across_devices() {
    let machine = machine(Clock::Workers);
    let (a, b) = (stream(&machine), machine.create_stream(D1, 0).unwrap());
    let order = Arc::new(Mutex::new(Vec::new()));
    let note = |stream, name: &'static str| {
        let order = Arc::clone(&order);
        machine.launch_host_function(stream, Box::new(move || order.lock().unwrap().push(name))).unwrap();
    };
    let gate = block(&machine, a);
    note(a, "a");
    let mark = event(&machine);
    machine.record_event(mark, a).unwrap();
    machine.wait_event(b, mark).unwrap();
    note(b, "b");
    drop(gate);
    machine.synchronize_stream(b).unwrap();
    assert_eq!(*order.lock().unwrap(), ["a", "b"]);
}

#[test]
fn urgent_streams_go_first_when_the_device_is_full() {
    let machine = OpenReg::new(OpenRegConfig::default().clock(Clock::Workers).concurrency(1)).unwrap();
    let range = machine.priority_range(D0).unwrap();
    assert!(range.least >= 0 && range.greatest < 0);
    let (normal, urgent) = (stream(&machine), machine.create_stream(D0, i32::MIN).unwrap());
    let memory = machine.malloc(D0, 512).unwrap();
    let order = Arc::new(Mutex::new(Vec::new()));
    let first = machine.create_event(D0, EventFlags::empty()).unwrap();
    // One kernel takes the device's only place while both streams fill up behind it.
    let gate = block(&machine, machine.default_stream(D0));
    machine.record_event(first, machine.default_stream(D0)).unwrap();
    for (stream, name) in [(normal, "normal"), (urgent, "urgent")] {
        machine.wait_event(stream, first).unwrap();
        for _ in 0..3 {
            // A normal kernel may begin first: so long has the urgent stream's thread to wake up.
            machine.use_memory_for(stream, memory, 512, Duration::from_millis(100)).unwrap();
        }
        let order = Arc::clone(&order);
        machine.launch_host_function(stream, Box::new(move || order.lock().unwrap().push(name))).unwrap();
    }
    drop(gate);
    machine.synchronize_device(D0).unwrap();
    assert_eq!(*order.lock().unwrap(), ["urgent", "normal"]);
}

#[test]
fn a_panicking_host_function_is_trapped() {
    for clock in [Clock::Workers, Clock::Virtual { lag: 0 }] {
        let machine = machine(clock);
        let stream = stream(&machine);
        machine.launch_host_function(stream, Box::new(|| panic!("on purpose"))).unwrap();
        machine.synchronize_stream(stream).unwrap();
        assert_eq!(machine.traps()[0].kind, TrapKind::HostFunctionPanicked);
    }
}

#[test]
fn kernels_compute_in_stream_order_and_again_with_every_launch_of_a_graph() {
    let machine =
        OpenReg::new(OpenRegConfig::default().memory(MemoryMode::Mapped).clock(Clock::Workers)).unwrap();
    let (first, second) = (stream(&machine), stream(&machine));
    let [to, from] = [machine.malloc(D0, 512).unwrap(), machine.malloc(D0, 512).unwrap()];
    let add = |to: &mut [u8], from: &[u8]| to.iter_mut().zip(from).for_each(|(to, from)| *to += from);
    let launch = |stream| machine.launch_kernel(stream, (to, 512), (from, 512), add).unwrap();

    let open = block(&machine, first);
    // SAFETY: rule 2: memory of this test, given back at its end.
    unsafe { machine.memset_async(to, 40, 512, first).unwrap() };
    // SAFETY: as above.
    unsafe { machine.memset_async(from, 2, 512, first).unwrap() };
    launch(first);
    drop(open);
    machine.order(first, second).unwrap();
    let capture = machine.capture().unwrap();
    machine.synchronize_device(D0).unwrap();
    capture.begin(second, CaptureMode::Relaxed).unwrap();
    launch(second);
    let graph = capture.end(second).unwrap();
    for _ in 0..2 {
        // SAFETY: what it uses lives until the end of the test.
        unsafe { capture.launch(graph, second).unwrap() };
    }
    machine.synchronize_device(D0).unwrap();
    let mut read = [0_u8; 512];
    let at = DevicePtr(read.as_mut_ptr().expose_provenance() as u64);
    // SAFETY: rule 2: the host's bytes are this test's, and the copy returns when it is done.
    unsafe { machine.copy(at, to, 512, CopyKind::DeviceToHost).unwrap() };
    assert_eq!(read, [46; 512], "40 + 2, and twice 2 more");
    assert!(machine.take_traps().is_empty());

    let beyond = machine.launch_kernel(first, (to, 1 << 20), (from, 512), add).unwrap_err();
    assert_eq!(beyond.kind, ErrorKind::InvalidValue);
    assert_eq!(machine.take_traps().len(), 1, "a range that is not allocated is trapped");
}
