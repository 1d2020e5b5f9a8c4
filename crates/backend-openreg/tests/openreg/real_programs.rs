//! What drivers for real programs ask of the machine: work that takes no time, memory without bytes that is read.

use crate::support::*;
use backend_api::types::{DevicePtr, Event, Stream};
use backend_api::*;
use backend_openreg::{Clock, Driver, MemoryMode, OpenReg, OpenRegConfig};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, mpsc};

fn at_once(memory: MemoryMode) -> OpenRegConfig {
    OpenRegConfig::default().clock(Clock::AtOnce).memory(memory)
}

fn stream(machine: &OpenReg) -> Stream {
    machine.create_stream(D0, 0).expect("the device is there")
}

/// Blocks a stream until the sender is dropped.
fn block(machine: &OpenReg, stream: Stream) -> mpsc::Sender<()> {
    let (open, gate) = mpsc::channel::<()>();
    machine.launch_host_function(stream, Box::new(move || assert!(gate.recv().is_err()))).unwrap();
    open
}

fn event(machine: &OpenReg) -> Event {
    machine.create_event(D0, EventFlags::empty()).unwrap()
}

#[test]
fn work_is_done_where_it_is_queued_unless_a_host_function_is_before_it() {
    let machine = machine(at_once(MemoryMode::Mapped));
    let (held, other, mark) = (stream(&machine), stream(&machine), event(&machine));
    let memory = machine.malloc(D0, MIB).unwrap();
    fill(&machine, memory, 7, 4, held).unwrap();
    assert_eq!(machine.query_stream(held).unwrap(), Readiness::Ready);
    let open = block(&machine, held);
    fill(&machine, memory, 9, 4, held).unwrap();
    machine.record_event(mark, held).unwrap();
    machine.wait_event(other, mark).unwrap();
    fill(&machine, memory, 11, 1, other).unwrap();
    assert_eq!(machine.query_event(mark).unwrap(), Readiness::NotReady);
    assert_eq!(machine.query_stream(other).unwrap(), Readiness::NotReady, "it waits for the event");
    assert!(Driver(&machine).is_busy());
    assert_eq!(download(&machine, memory, 4).unwrap(), [7; 4], "the default stream waits for neither");
    drop(open);
    machine.synchronize_stream(other).unwrap();
    assert_eq!(download(&machine, memory, 4).unwrap(), [11, 9, 9, 9]);
}

#[test]
fn frees_wait_where_they_are_asked_to() {
    let machine = machine(at_once(MemoryMode::Reserved).waiting_frees(true));
    let stream = stream(&machine);
    let memory = machine.malloc(D0, MIB).unwrap();
    let open = block(&machine, stream);
    machine.use_memory(stream, memory, 64).unwrap();
    std::thread::scope(|threads| {
        threads.spawn(|| free(&machine, D0, memory).unwrap());
        drop(open);
    });
    assert_eq!(machine.query_stream(stream).unwrap(), Readiness::Ready);
    assert_eq!(machine.take_traps(), []);
}

#[test]
fn memory_without_bytes_reads_as_what_was_set_or_remembered() {
    let machine = machine(at_once(MemoryMode::Reserved).read_back(true));
    let memory = machine.malloc(D0, 4 * MIB).unwrap();
    let copy = machine.malloc(D0, 4 * MIB).unwrap();
    upload(&machine, memory, b"lost").unwrap();
    assert_eq!(download(&machine, memory, 4).unwrap(), [0; 4]);
    Driver(&machine).set_read_back(0x5a);
    assert_eq!(download(&machine, memory, 4).unwrap(), [0x5a; 4]);
    assert!(!Driver(&machine).keeps(4));
    Driver(&machine).remember(true);
    assert!(Driver(&machine).keeps(MIB) && !Driver(&machine).keeps(MIB + 1));
    upload(&machine, memory, b"kept").unwrap();
    copy_on_device(&machine, copy, memory, 8, stream(&machine)).unwrap();
    assert_eq!(download(&machine, copy, 5).unwrap(), b"kept\x5a");
    Driver(&machine).remember(false);
    assert_eq!(download(&machine, copy, 4).unwrap(), [0x5a; 4]);
    let large = download(&machine, memory, 2 * MIB).unwrap();
    assert_eq!(large[0], 0, "a large buffer is left alone");
}

#[test]
fn fills_repeat_a_pattern_and_kept_bytes_outlive_their_source() {
    let machine = machine(at_once(MemoryMode::Mapped));
    let (memory, stream) = (machine.malloc(D0, MIB).unwrap(), stream(&machine));
    Driver(&machine).fill(stream, memory, &[1, 2, 3, 4], 10).unwrap();
    assert_eq!(download(&machine, memory, 11).unwrap(), [1, 2, 3, 4, 1, 2, 3, 4, 1, 2, 0]);
    assert_eq!(kind(Driver(&machine).fill(stream, memory, &[1], 0)), ErrorKind::InvalidValue);
    let open = block(&machine, stream);
    Driver(&machine).copy_kept(stream, memory, b"bytes".as_slice().into()).unwrap();
    drop(open);
    machine.synchronize_stream(stream).unwrap();
    assert_eq!(download(&machine, memory, 5).unwrap(), b"bytes");
}

#[test]
fn a_host_call_runs_with_every_launch_of_its_graph() {
    let machine = machine(at_once(MemoryMode::Reserved));
    let (stream, ran) = (stream(&machine), Arc::new(AtomicU32::new(0)));
    let capture = machine.capture().unwrap();
    capture.begin(stream, CaptureMode::Global).unwrap();
    let count = Arc::clone(&ran);
    let call = move || {
        count.fetch_add(1, Ordering::SeqCst);
    };
    Driver(&machine).host_call(stream, call).unwrap();
    let graph = capture.end(stream).unwrap();
    for _ in 0..3 {
        // SAFETY: rule 2: the graph uses no memory.
        unsafe { capture.launch(graph, stream) }.unwrap();
    }
    machine.synchronize_stream(stream).unwrap();
    assert_eq!(ran.load(Ordering::SeqCst), 3);
}

#[test]
fn what_captured_work_waits_for_can_be_changed() {
    let machine = machine(at_once(MemoryMode::Reserved).maps_during_capture(true));
    let stream = stream(&machine);
    let capture = machine.capture().unwrap();
    capture.begin(stream, CaptureMode::Global).unwrap();
    machine.use_memory(stream, DevicePtr::NULL, 0).unwrap();
    let first = capture.frontier(stream).unwrap();
    let marker = Driver(&machine).add_empty_node(stream, &first).unwrap();
    assert_eq!(capture.frontier(stream).unwrap(), first, "nothing waits for a node that was only added");
    assert_eq!(capture.dependencies(stream, marker).unwrap(), first);
    Driver(&machine).set_frontier(stream, &[marker], true).unwrap();
    assert_eq!(capture.frontier(stream).unwrap(), [first[0], marker]);
    Driver(&machine).set_frontier(stream, &[marker], false).unwrap();
    assert_eq!(capture.frontier(stream).unwrap(), [marker]);
    assert_eq!(
        kind(Driver(&machine).set_frontier(stream, &[CaptureNode(99)], false)),
        ErrorKind::InvalidValue
    );
    map_new(&machine, D0, GRANULE).unwrap();
    capture.end(stream).expect("maps broke nothing, and every stream's last node is reached");
}

#[test]
fn a_machine_has_the_addresses_and_the_context_that_it_was_asked_for() {
    let config = || at_once(MemoryMode::Reserved).devices(1).addresses(1 << 44).context(3 * MIB);
    let machine = machine(config());
    assert_eq!((machine.used(D0), machine.peak_used(D0)), (3 * MIB, 3 * MIB));
    vmm(&machine).reserve_address(D0, 12 << 40, 0, DevicePtr::NULL).expect("more than 8 TiB");
    assert!(OpenReg::new(config().addresses(3 << 40)).is_err(), "no power of two");
    assert!(OpenReg::new(config().devices(8)).is_err(), "too many for eight");
}

#[test]
fn memory_without_bytes_is_opened_by_its_address() {
    let config = at_once(MemoryMode::Reserved).address_sharing(true);
    let (exporter, importer) = (machine(config.clone()), machine(config));
    let memory = exporter.malloc(D0, 3 * MIB).unwrap();
    let handle = exporter.ipc().unwrap().export_memory(memory).unwrap();
    let ipc = importer.ipc().unwrap();
    let opened = ipc.open_memory(D0, &handle).unwrap();
    assert_eq!(ipc.open_memory(D0, &handle).unwrap(), opened, "once, and counted");
    assert_eq!(importer.address_range(opened).unwrap().bytes, 3 * MIB);
    assert_eq!(importer.used(D0), 0, "the exporter accounts for it");
    for _ in 0..2 {
        assert!(importer.address_range(opened).is_ok());
        // SAFETY: rule 3: nothing uses it.
        unsafe { ipc.close_memory(opened) }.unwrap();
    }
    assert!(importer.address_range(opened).is_err());
}
