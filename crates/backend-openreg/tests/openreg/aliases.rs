//! One memory at several addresses, and memory that moves while queued work uses it.

use crate::support::{D0, GRANULE as UNIT};
use backend_api::types::{DevicePtr, Event, MIB, PhysicalHandle, Stream};
use backend_api::*;
use backend_openreg::{Clock, MemoryMode, OpenReg, OpenRegConfig, TrapKind};
use std::sync::Arc;

const LAG: u64 = 10;

/// A machine whose work completes [`LAG`] ticks late, sixteen units of its addresses, and two streams.
struct Rig {
    machine: Arc<OpenReg>,
    base: DevicePtr,
    streams: [Stream; 2],
}

impl Rig {
    fn new() -> Self {
        let config = OpenRegConfig::default().devices(1).capacity(64 * MIB).prefix_maps(true);
        let machine = OpenReg::new(config.clock(Clock::Virtual { lag: LAG }).operations_tick(false)).unwrap();
        let base =
            machine.virtual_memory().unwrap().reserve_address(D0, 16 * UNIT, 0, DevicePtr::NULL).unwrap();
        let streams = [machine.default_stream(D0), machine.create_stream(D0, 0).unwrap()];
        Self { machine, base, streams }
    }

    fn vm(&self) -> &dyn VirtualMemory {
        self.machine.virtual_memory().unwrap()
    }

    fn physical(&self, units: u64) -> PhysicalHandle {
        self.vm().create_physical(D0, units * UNIT, HandleType::None).unwrap()
    }

    fn at(&self, unit: u64) -> DevicePtr {
        self.base.add(unit * UNIT)
    }

    fn map(&self, unit: u64, units: u64, handle: PhysicalHandle) -> Result<()> {
        // SAFETY: the tests map inside the reservation, or it is refused.
        unsafe { self.vm().map(self.at(unit), units * UNIT, handle) }?;
        // SAFETY: it is mapped.
        unsafe { self.vm().set_access(self.at(unit), units * UNIT, &[D0], Access::ReadWrite) }
    }

    fn unmap(&self, unit: u64, units: u64) -> Result<()> {
        // SAFETY: whole mappings; what is in use is trapped, that is what is tested.
        unsafe { self.vm().unmap(self.at(unit), units * UNIT) }
    }

    fn work(&self, stream: usize, unit: u64) -> Result<()> {
        self.machine.use_memory(self.streams[stream], self.at(unit), UNIT)
    }

    /// Stream `later` goes on when what `earlier` was given is done.
    fn order(&self, earlier: usize, later: usize) -> Event {
        let event = self.machine.create_event(D0, EventFlags::empty()).unwrap();
        self.machine.record_event(event, self.streams[earlier]).unwrap();
        self.machine.wait_event(self.streams[later], event).unwrap();
        event
    }

    fn trapped(&self) -> Vec<TrapKind> {
        self.machine.take_traps().into_iter().map(|trap| trap.kind).collect()
    }
}

#[test]
fn a_handle_is_mapped_several_times_whole_or_its_first_bytes() {
    let rig = Rig::new();
    let handle = rig.physical(3);
    rig.map(0, 3, handle).unwrap();
    rig.map(4, 1, handle).unwrap();
    rig.map(8, 2, handle).unwrap();
    assert_eq!(rig.machine.used(D0), 3 * UNIT, "it is there once");
    let refused = rig.map(12, 4, handle).unwrap_err();
    assert_eq!(refused.kind, ErrorKind::InvalidValue, "no more than it has");
    rig.work(0, 4).unwrap();
    rig.work(0, 9).unwrap();
    assert!(rig.work(0, 5).is_err(), "only the first unit is mapped at 4");
    assert_eq!(rig.trapped(), [TrapKind::Unallocated]);
    // SAFETY: not used again; mappings keep the memory.
    unsafe { rig.vm().release_physical(handle) }.unwrap();
    rig.machine.advance(LAG);
    for (unit, units, left) in [(0, 3, 3), (8, 2, 3), (4, 1, 0)] {
        rig.unmap(unit, units).unwrap();
        assert_eq!(rig.machine.used(D0), left * UNIT);
    }
}

#[test]
fn aliases_can_be_switched_off() {
    let machine = OpenReg::new(OpenRegConfig::default().devices(1).without_aliases()).unwrap();
    let base = machine.virtual_memory().unwrap().reserve_address(D0, 16 * UNIT, 0, DevicePtr::NULL).unwrap();
    let rig = Rig { streams: [machine.default_stream(D0); 2], machine, base };
    let handle = rig.physical(1);
    rig.map(0, 1, handle).unwrap();
    assert_eq!(rig.map(1, 1, handle).unwrap_err().kind, ErrorKind::InvalidValue);
    rig.unmap(0, 1).unwrap();
    rig.map(1, 1, handle).unwrap();
}

#[test]
fn both_addresses_show_the_same_bytes() {
    let config = OpenRegConfig::default().devices(1).memory(MemoryMode::Mapped).prefix_maps(true);
    let rig = Rig { machine: OpenReg::new(config).unwrap(), ..Rig::new() };
    let base = rig.vm().reserve_address(D0, 16 * UNIT, 0, DevicePtr::NULL).unwrap();
    let rig = Rig { streams: [rig.machine.default_stream(D0); 2], base, ..rig };
    let handle = rig.physical(2);
    rig.map(0, 2, handle).unwrap();
    rig.map(5, 1, handle).unwrap();
    let stream = rig.streams[0];
    // SAFETY: the range is mapped and open.
    unsafe { rig.machine.memset_async(rig.at(0), 0x5A, 2 * UNIT, stream) }.unwrap();
    let mut bytes = [0_u8; 16];
    let (host, last) = (DevicePtr(bytes.as_mut_ptr() as u64), rig.at(5).add(UNIT - 16));
    // SAFETY: both ranges are valid for 16 bytes.
    unsafe { rig.machine.copy(host, last, 16, CopyKind::DeviceToHost) }.unwrap();
    assert_eq!(bytes, [0x5A; 16]);
}

#[test]
fn memory_does_not_move_under_queued_work() {
    let rig = Rig::new();
    let handle = rig.physical(1);
    rig.map(0, 1, handle).unwrap();
    rig.map(1, 1, handle).unwrap();
    rig.work(0, 0).unwrap();
    assert_eq!(rig.unmap(0, 1).unwrap_err().kind, ErrorKind::InvalidValue);
    assert_eq!(rig.trapped(), [TrapKind::StillInUse]);
    rig.unmap(1, 1).unwrap();
    rig.machine.advance(LAG - 1);
    rig.unmap(0, 1).unwrap_err();
    rig.machine.advance(1);
    rig.unmap(0, 1).unwrap();
    assert_eq!(rig.trapped(), [TrapKind::StillInUse]);
}

#[test]
fn another_stream_waits_before_it_uses_the_other_address() {
    let rig = Rig::new();
    let handle = rig.physical(1);
    rig.map(0, 1, handle).unwrap();
    rig.map(7, 1, handle).unwrap();
    rig.work(0, 0).unwrap();
    rig.work(0, 7).unwrap();
    assert_eq!(rig.trapped(), [], "one stream is in order by itself");
    assert_eq!(rig.work(1, 7).unwrap_err().kind, ErrorKind::InvalidValue);
    assert_eq!(rig.trapped(), [TrapKind::NotOrdered]);
    rig.order(0, 1);
    rig.work(1, 7).unwrap();
    assert_eq!(rig.trapped(), [], "the event orders the two");
    // What stream 0 gets from here on is not what stream 1 waits for, and not the other way round either.
    rig.work(0, 0).unwrap_err();
    rig.machine.advance(LAG);
    rig.work(0, 0).unwrap();
    assert_eq!(rig.trapped(), [TrapKind::NotOrdered], "what is done is in no one's way");
}

#[test]
fn waits_count_through_other_streams() {
    let rig = Rig::new();
    let third = rig.machine.create_stream(D0, 0).unwrap();
    let handle = rig.physical(1);
    rig.map(0, 1, handle).unwrap();
    rig.map(7, 1, handle).unwrap();
    rig.work(0, 0).unwrap();
    rig.order(0, 1);
    let event = rig.machine.create_event(D0, EventFlags::empty()).unwrap();
    rig.machine.record_event(event, rig.streams[1]).unwrap();
    rig.machine.wait_event(third, event).unwrap();
    rig.machine.use_memory(third, rig.at(7), UNIT).unwrap();
    assert_eq!(rig.trapped(), []);
}

#[test]
fn memory_passes_from_one_user_to_another_in_order() {
    let rig = Rig::new();
    let handle = rig.physical(1);
    rig.map(0, 1, handle).unwrap();
    let as_user = |user, stream: usize| rig.machine.use_memory_as(user, rig.streams[stream], rig.at(0), 512);
    as_user(0, 0).unwrap();
    as_user(0, 1).unwrap();
    as_user(1, 0).unwrap_err();
    assert_eq!(rig.trapped(), [TrapKind::NotOrdered], "user 0 still works on stream 1");
    rig.order(1, 0);
    as_user(1, 0).unwrap();
    rig.work(1, 0).unwrap();
    assert_eq!(rig.trapped(), [], "work of no one in particular is not asked");
}

#[test]
fn a_stream_is_ordered_after_another_without_a_call() {
    let rig = Rig::new();
    let handle = rig.physical(1);
    rig.map(0, 1, handle).unwrap();
    let as_user = |user, stream: usize| rig.machine.use_memory_as(user, rig.streams[stream], rig.at(0), 512);
    as_user(0, 0).unwrap();
    let calls = rig.machine.calls();
    rig.machine.order(rig.streams[0], rig.streams[1]).unwrap();
    assert_eq!(rig.machine.calls(), calls);
    as_user(1, 1).unwrap();
    assert_eq!(rig.trapped(), []);
    // What a capture records has not been queued, and the other stream's work is no part of the graph.
    rig.machine.capture().unwrap().begin(rig.streams[1], CaptureMode::Relaxed).unwrap();
    for (earlier, later) in [(0, 1), (1, 0)] {
        rig.machine.order(rig.streams[earlier], rig.streams[later]).unwrap_err();
    }
}
