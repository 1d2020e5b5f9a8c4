//! Mapped memory: real bytes, page protection, aliases, and two processes.

mod resident;

use crate::support::{D0, D1, GRANULE as UNIT};
use backend_api::types::{DevicePtr, MIB, Stream};
use backend_api::*;
use backend_openreg::{Clock, Driver, MemoryMode, OpenReg, OpenRegConfig, TrapKind};
use std::os::unix::process::ExitStatusExt;
use std::process::Command;
use std::sync::Arc;

const CHILD: &str = "OPENREG_TEST_CHILD";

fn machine(clock: Clock) -> Arc<OpenReg> {
    OpenReg::new(OpenRegConfig::default().memory(MemoryMode::Mapped).capacity(64 * MIB).clock(clock)).unwrap()
}

fn host(bytes: &[u8]) -> DevicePtr {
    DevicePtr(bytes.as_ptr().expose_provenance() as u64)
}

fn host_mut(bytes: &mut [u8]) -> DevicePtr {
    DevicePtr(bytes.as_mut_ptr().expose_provenance() as u64)
}

fn write(machine: &OpenReg, at: DevicePtr, bytes: &[u8]) {
    // SAFETY: rule 2: both ranges live, and the call waits.
    unsafe { machine.copy(at, host(bytes), bytes.len() as u64, CopyKind::HostToDevice) }.unwrap();
}

fn read(machine: &OpenReg, at: DevicePtr, bytes: usize) -> Vec<u8> {
    let mut into = vec![0; bytes];
    // SAFETY: rule 2: both ranges live, and the call waits.
    unsafe { machine.copy(host_mut(&mut into), at, bytes as u64, CopyKind::DeviceToHost) }.unwrap();
    into
}

/// What the kernel says about the page at `at`: `rw-s`, `---p`, ...
fn protection(at: DevicePtr) -> String {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let hex = |text: &str| u64::from_str_radix(text, 16).unwrap();
    maps.lines()
        .find_map(|line| {
            let (range, rest) = line.split_once(' ').unwrap();
            let (from, to) = range.split_once('-').unwrap();
            (hex(from) <= at.0 && at.0 < hex(to)).then(|| rest[..4].to_owned())
        })
        .unwrap_or_default()
}

/// Runs one test of this file in a process of its own, with a word for it.
fn child(test: &str, word: &str) -> std::process::Output {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture", "--test-threads=1"])
        .env(CHILD, word)
        .output()
        .unwrap()
}

fn bytes(count: usize) -> Vec<u8> {
    (0..count).map(|index| (index * 7 % 251) as u8).collect()
}

/// The size of the host's pages is 4, 16 or 64 KiB.
#[test]
fn no_two_allocations_share_a_page_of_the_host() {
    let page = rustix::param::page_size() as u64;
    let machine = machine(Clock::Virtual { lag: 0 });
    for bytes in [1, 100, 5000, page + 1] {
        let (one, two) = (machine.malloc(D0, bytes).unwrap(), machine.malloc(D0, bytes).unwrap());
        assert!(one.0.is_multiple_of(page) && two.0.is_multiple_of(page), "{one} {two} of {bytes} bytes");
        assert!(one.0.abs_diff(two.0) >= bytes.next_multiple_of(page));
        // SAFETY: rule 2: nothing is queued.
        unsafe { Driver(&machine).unprotect(one) }.unwrap();
        assert_eq!((&*protection(one), &*protection(two)), ("rw-s", "---s"), "of {bytes} bytes");
    }
}

#[test]
fn granules_are_no_smaller_than_pages_of_the_host() {
    let page = rustix::param::page_size() as u64;
    let with = |memory, granularity| {
        OpenReg::new(OpenRegConfig::default().memory(memory).granularity(granularity)).map(drop)
    };
    let refused = with(MemoryMode::Mapped, page / 2).unwrap_err();
    assert!(refused.detail.contains(&format!("from {} KiB", page >> 10)), "{refused}");
    with(MemoryMode::Mapped, page).unwrap();
    with(MemoryMode::Reserved, 4096).unwrap();
}

#[test]
fn bytes_go_in_around_and_out() {
    for clock in [Clock::Workers, Clock::Virtual { lag: 0 }, Clock::Virtual { lag: 100 }] {
        let machine = machine(clock);
        let stream = machine.create_stream(D0, 0).unwrap();
        let data = bytes(3_000_000);
        let (one, two) = (machine.malloc(D0, 3_000_000).unwrap(), machine.malloc(D1, 3_000_000).unwrap());
        assert_eq!(read(&machine, one, 100), [0; 100], "new memory is zero");
        write(&machine, one, &data);
        // SAFETY: rule 2: all of it lives until the stream is synchronised.
        unsafe { machine.copy_async(two.add(16), one.add(32), 2_000_000, CopyKind::DeviceToDevice, stream) }
            .unwrap();
        // SAFETY: as above.
        unsafe { machine.memset_async(two, 0xAB, 16, stream) }.unwrap();
        Driver(&machine).fill(stream, two.add(2_900_000), &[1, 2, 3, 4], 4).unwrap();
        machine.synchronize_stream(stream).unwrap();
        let out = read(&machine, two, 3_000_000);
        assert_eq!(out[..16], [0xAB; 16]);
        assert_eq!(out[16..2_000_016], data[32..2_000_032]);
        assert_eq!(out[2_900_000..2_900_004], [1, 2, 3, 4]);
        // SAFETY: rule 3.
        unsafe { machine.free(D0, one) }.unwrap();
        assert_eq!(machine.malloc(D0, 3_000_000).unwrap(), one);
        assert_eq!(read(&machine, one, 3_000_000), vec![0; 3_000_000], "freed bytes do not come back");
    }
}

#[test]
fn the_host_is_kept_out_until_it_asks() {
    let machine = machine(Clock::Virtual { lag: 0 });
    let (ptr, next) = (machine.malloc(D0, 100).unwrap(), machine.malloc(D0, 100).unwrap());
    assert_eq!(protection(ptr), "---s");
    write(&machine, ptr, b"hello");
    assert_eq!(protection(ptr), "---s", "the device's own work opens nothing");
    for _ in 0..2 {
        // SAFETY: rule 2 until it is protected again.
        unsafe { Driver(&machine).unprotect(ptr.add(3)) }.unwrap();
    }
    assert_eq!((protection(ptr).as_str(), protection(next).as_str()), ("rw-s", "---s"));
    assert_eq!(Driver(&machine).host_access_of(ptr).unwrap(), Access::ReadWrite);
    let pointer = std::ptr::with_exposed_provenance_mut::<u8>(ptr.0 as usize);
    // SAFETY: five bytes of live device memory that is open to the host.
    let seen = unsafe { std::slice::from_raw_parts(pointer, 5) };
    assert_eq!(seen, b"hello");
    // SAFETY: as above.
    unsafe { pointer.write(b'j') };
    // SAFETY: opened above, and not touched on the strength of it.
    unsafe { Driver(&machine).protect(ptr) }.unwrap();
    assert_eq!(protection(ptr), "rw-s", "opened twice, closed once");
    // SAFETY: opened above, and not touched on the strength of it.
    unsafe { Driver(&machine).protect(ptr) }.unwrap();
    assert_eq!(
        (protection(ptr).as_str(), Driver(&machine).host_access_of(ptr).unwrap()),
        ("---s", Access::None)
    );
    // SAFETY: refused: nothing is open.
    let refused = unsafe { Driver(&machine).protect(ptr) };
    assert_eq!(refused.unwrap_err().kind, ErrorKind::InvalidValue);
    assert_eq!(read(&machine, ptr, 5), b"jello");
    // SAFETY: rule 3.
    unsafe { machine.free(D0, ptr) }.unwrap();
    assert_eq!(protection(ptr), "---p", "the window stays closed");
    assert!(Driver(&machine).host_access_of(ptr).is_err());
    let managed = Driver(&machine).malloc_managed(D0, 100).unwrap();
    assert_eq!(protection(managed), "rw-s");
    assert_eq!(machine.pointer_info(managed).unwrap().kind, PointerKind::Managed);
}

#[test]
fn touching_device_memory_from_the_host_faults() {
    if std::env::var_os(CHILD).is_some() {
        let machine = machine(Clock::Virtual { lag: 0 });
        let ptr = machine.malloc(D0, 4096).unwrap();
        let pointer = std::ptr::with_exposed_provenance::<u8>(ptr.0 as usize);
        // SAFETY: the page is mapped without access: the process ends here, which is what is tested.
        std::process::exit(i32::from(unsafe { pointer.read_volatile() }));
    }
    let status = child("mapped::touching_device_memory_from_the_host_faults", "touch").status;
    assert_eq!(status.signal(), Some(11), "{status}");
}

#[test]
fn one_physical_memory_shows_at_two_addresses() {
    let machine = machine(Clock::Virtual { lag: 0 });
    let vm = machine.virtual_memory().unwrap();
    for handle_type in [HandleType::None, HandleType::PosixFd] {
        let base = vm.reserve_address(D0, 3 * UNIT, 0, DevicePtr::NULL).unwrap();
        let handles = [(); 2].map(|()| vm.create_physical(D0, UNIT, handle_type).unwrap());
        for (place, handle) in [(0, 0), (1, 1), (2, 0)] {
            // SAFETY: inside the reservation, where nothing is mapped.
            unsafe { vm.map(base.add(place * UNIT), UNIT, handles[handle]) }.unwrap();
        }
        // SAFETY: all three are mapped.
        unsafe { vm.set_access(base, 3 * UNIT, &[D0], Access::ReadWrite) }.unwrap();
        let data = bytes(2 * UNIT as usize);
        write(&machine, base.add(5), &data[..2 * UNIT as usize - 5]);
        let first = read(&machine, base, UNIT as usize);
        assert_eq!(first[5..], data[..UNIT as usize - 5]);
        assert_eq!(read(&machine, base.add(2 * UNIT), UNIT as usize), first, "the alias");
        assert_eq!(read(&machine, base.add(UNIT), 100), data[UNIT as usize - 5..UNIT as usize + 95]);
        // SAFETY: rule 3.
        unsafe { vm.unmap(base, UNIT) }.unwrap();
        assert_eq!(protection(base), "---p");
        assert_eq!(
            read(&machine, base.add(2 * UNIT), UNIT as usize),
            first,
            "moved by mapping, not by copying"
        );
        // SAFETY: mapped there after.
        unsafe { vm.map(base, UNIT, handles[1]) }.unwrap();
        // SAFETY: mapped.
        unsafe { vm.set_access(base, UNIT, &[D0], Access::Read) }.unwrap();
        assert_eq!(read(&machine, base, 95), data[UNIT as usize - 5..UNIT as usize + 90]);
        // SAFETY: refused, that is what is tested.
        let refused = unsafe { machine.memset_async(base, 0, 1, machine.default_stream(D0)) };
        assert!(refused.is_err());
        assert_eq!(machine.take_traps()[0].kind, TrapKind::NoAccess);
    }
}

#[test]
fn two_machines_live_side_by_side() {
    let machines = [machine(Clock::Virtual { lag: 0 }), machine(Clock::Virtual { lag: 0 })];
    let ptrs = [0, 1].map(|index| machines[index].malloc(D0, 64).unwrap());
    assert_ne!(ptrs[0], ptrs[1]);
    for index in [0, 1] {
        write(&machines[index], ptrs[index], &[index as u8 + 1; 64]);
    }
    assert_eq!(read(&machines[0], ptrs[0], 64), [1; 64]);
    assert_eq!(machines[0].pointer_info(ptrs[1]).unwrap().kind, PointerKind::Unmanaged);
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(text: &str) -> [u8; 64] {
    std::array::from_fn(|at| u8::from_str_radix(&text[2 * at..2 * at + 2], 16).unwrap())
}

/// The other process: opens memory and event, waits for the event in stream order, answers in the memory.
fn importer(word: &str) {
    let machine = machine(Clock::Workers);
    let ipc = machine.ipc().unwrap();
    let (memory, event) = word.split_once(':').unwrap();
    let (memory, event) = (IpcMemoryHandle(unhex(memory)), unhex(event));
    let opened = ipc.open_memory(D1, &memory).unwrap();
    assert_eq!(ipc.open_memory(D1, &memory).unwrap(), opened, "the same bytes, the same address");
    assert_eq!(machine.used(D1), 0);
    assert_eq!(machine.pointer_info(opened.add(9)).unwrap().device, Some(D1));
    // SAFETY: a pointer that is no allocation of this machine is answered.
    let freed = unsafe { machine.free(D1, opened) };
    assert_eq!(freed.unwrap_err().kind, ErrorKind::InvalidValue, "an importer closes, and never frees");
    let event = Driver(&machine).open_event(D1, &event).unwrap();
    let stream: Stream = machine.create_stream(D1, 0).unwrap();
    machine.wait_event(stream, event).unwrap();
    machine.synchronize_stream(stream).unwrap();
    assert_eq!(machine.query_event(event).unwrap(), Readiness::Ready);
    let seen = read(&machine, opened, 1000);
    assert_eq!(seen, bytes(1000));
    write(&machine, opened, b"answer");
    for _ in 0..2 {
        // SAFETY: rule 3: opened twice.
        unsafe { ipc.close_memory(opened) }.unwrap();
    }
    // SAFETY: a closed pointer is answered.
    assert!(unsafe { ipc.close_memory(opened) }.is_err());
}

#[test]
fn memory_and_events_are_shared_between_processes() {
    if let Ok(word) = std::env::var(CHILD) {
        return importer(&word);
    }
    let machine = machine(Clock::Workers);
    let ipc = machine.ipc().unwrap();
    let ptr = machine.malloc(D0, 3 * MIB).unwrap();
    let event = Driver(&machine).create_shared_event(D0).unwrap();
    let stream = machine.create_stream(D0, 0).unwrap();
    let data = bytes(1000);
    // Longer than this thread may be kept from asking about the event.
    machine
        .launch_host_function(stream, Box::new(|| std::thread::sleep(std::time::Duration::from_secs(1))))
        .unwrap();
    // SAFETY: rule 2: both live to the end of the test.
    unsafe { machine.copy_async(ptr, host(&data), 1000, CopyKind::HostToDevice, stream) }.unwrap();
    machine.record_event(event, stream).unwrap();
    assert_eq!(machine.query_event(event).unwrap(), Readiness::NotReady);
    let word = format!(
        "{}:{}",
        hex(&ipc.export_memory(ptr).unwrap().0),
        hex(&Driver(&machine).export_event(event).unwrap())
    );
    let output = child("mapped::memory_and_events_are_shared_between_processes", &word);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    machine.synchronize_stream(stream).unwrap();
    assert_eq!(read(&machine, ptr, 6), b"answer", "real shared memory, not a copy");
}

#[test]
fn what_cannot_be_shared_says_why() {
    let machine = machine(Clock::Virtual { lag: 0 });
    let ipc = machine.ipc().unwrap();
    let kind = |error: BackendError| error.kind;
    let ptr = machine.malloc(D0, MIB).unwrap();
    assert_eq!(ipc.export_memory(ptr.add(1)).map_err(kind), Err(ErrorKind::InvalidValue));
    let vm = machine.virtual_memory().unwrap();
    let base = vm.reserve_address(D0, UNIT, 0, DevicePtr::NULL).unwrap();
    let handle = vm.create_physical(D0, UNIT, HandleType::None).unwrap();
    // SAFETY: inside the reservation.
    unsafe { vm.map(base, UNIT, handle) }.unwrap();
    assert_eq!(ipc.export_memory(base).map_err(kind), Err(ErrorKind::NotSupported));
    assert_eq!(ipc.open_memory(D0, &IpcMemoryHandle([7; 64])).map_err(kind), Err(ErrorKind::InvalidValue));
    assert_eq!(Driver(&machine).open_event(D0, &[7; 64]).map_err(kind), Err(ErrorKind::InvalidValue));
    let plain = machine.create_event(D0, EventFlags::empty()).unwrap();
    assert_eq!(Driver(&machine).export_event(plain).map_err(kind), Err(ErrorKind::InvalidValue));
    let stale = ipc.export_memory(ptr).unwrap();
    let mut gone = stale;
    gone.0[4..8].copy_from_slice(&u32::MAX.to_le_bytes());
    assert_eq!(ipc.open_memory(D0, &gone).map_err(kind), Err(ErrorKind::InvalidValue));
    let shared = Driver(&machine).create_shared_event(D0).unwrap();
    machine.record_event(shared, machine.default_stream(D0)).unwrap();
    let opened = Driver(&machine).open_event(D0, &Driver(&machine).export_event(shared).unwrap()).unwrap();
    assert_eq!(machine.query_event(opened).unwrap(), Readiness::Ready);
}
