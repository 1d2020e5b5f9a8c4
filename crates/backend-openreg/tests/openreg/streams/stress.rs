//! Many threads at once: the accounting stays exact and no correct use is trapped.

use crate::support::*;
use backend_api::*;
use backend_openreg::{Clock, MemoryMode, OpenReg, OpenRegConfig};

/// What one thread does: takes memory, works on it, waits in one of several ways, gives it back.
fn churn(machine: &OpenReg, thread: u64, mode: MemoryMode) {
    let device = if thread.is_multiple_of(2) { D0 } else { D1 };
    let stream = machine.create_stream(device, -(thread as i32)).expect("streams are cheap");
    let event = machine.create_event(device, EventFlags::empty()).expect("events are cheap");
    for round in 0..40 {
        let bytes = 1 + (thread * 7919 + round * 104_729) % (3 * MIB);
        let at = machine.malloc(device, bytes).expect("there is room for all");
        let virtual_at = map_new(machine, device, GRANULE).expect("there is room for all");
        fill(machine, at, thread as u8, bytes, stream).expect("it is allocated");
        fill(machine, virtual_at, round as u8, GRANULE, stream).expect("it is mapped");
        machine.record_event(event, stream).expect("both are of one device");
        match round % 4 {
            0 => machine.synchronize_event(event).expect("it will come"),
            1 => machine.synchronize_stream(stream).expect("it will end"),
            2 => machine.synchronize_device(device).expect("it will end"),
            _ => {
                while !machine.query_event(event).expect("it is recorded").is_ready() {
                    machine.advance(1);
                    std::thread::yield_now();
                }
            }
        }
        if mode == MemoryMode::Mapped {
            let last = download(machine, at.add(bytes - 1), 1).expect("it is allocated");
            assert_eq!(last, [thread as u8]);
        }
        unmap(machine, virtual_at, GRANULE).expect("its work is done");
        release_address(machine, virtual_at, GRANULE).expect("nothing is mapped there");
        free(machine, device, at).expect("its work is done");
    }
    destroy_event(machine, event).expect("it is live");
    destroy_stream(machine, stream).expect("it is live");
    assert_eq!(kind(machine.query_stream(stream)), ErrorKind::InvalidValue);
}

#[test]
fn threads_do_not_disturb_each_other() {
    for clock in [Clock::Workers, Clock::Virtual { lag: 0 }, Clock::Virtual { lag: 7 }] {
        for mode in [MemoryMode::Reserved, MemoryMode::Mapped] {
            let machine = machine(OpenRegConfig::default().memory(mode).clock(clock).concurrency(3));
            std::thread::scope(|scope| {
                for thread in 0..6 {
                    let machine = &machine;
                    scope.spawn(move || churn(machine, thread, mode));
                }
            });
            assert_eq!(machine.traps(), [], "{clock:?}, {mode:?}");
            assert_eq!((machine.used(D0), machine.used(D1)), (0, 0), "{clock:?}, {mode:?}");
        }
    }
}
