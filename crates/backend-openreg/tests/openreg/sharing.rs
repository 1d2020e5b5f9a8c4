//! Physical memory that travels to another process as a file descriptor.

use crate::support::*;
use backend_api::types::{DevicePtr, PhysicalHandle};
use backend_api::*;
use backend_openreg::{Driver, MemoryMode, OpenReg, OpenRegConfig};
use std::os::fd::AsFd;
use std::process::{Command, Stdio};

const CHILD: &str = "OPENREG_IMPORTER";

fn show(machine: &OpenReg, handle: PhysicalHandle) -> DevicePtr {
    let at = vmm(machine).reserve_address(D0, GRANULE, 0, DevicePtr::NULL).expect("there is room");
    map(machine, at, GRANULE, handle).expect("it fits");
    set_access(machine, at, GRANULE, &[D0], Access::ReadWrite).expect("it is mapped");
    at
}

/// The other process: its standard input is the exported memory.
fn importer(mode: MemoryMode) {
    let machine = machine(OpenRegConfig::default().memory(mode));
    let descriptor = std::io::stdin().as_fd().try_clone_to_owned().expect("standard input is open");
    let shared = ShareableHandle::PosixFd(descriptor);
    let handle = vmm(&machine).import_physical(D0, &shared).expect("it was exported by the same mode");
    let again = vmm(&machine).import_physical(D0, &shared).expect("twice is fine");
    drop(shared);
    assert_eq!(Driver(&machine).physical_properties(handle).expect("it lives").bytes, GRANULE);
    assert_eq!(machine.used(D0), 0, "the exporter accounts for it");
    let at = show(&machine, handle);
    release_physical(&machine, handle).expect("it is live");
    if mode == MemoryMode::Mapped {
        assert_eq!(handle, again, "the same memory is known again");
        assert_eq!(download(&machine, at.add(GRANULE - 5), 5).expect("it is mapped"), b"hello");
        upload(&machine, at, b"answer").expect("it is mapped");
    }
    unmap(&machine, at, GRANULE).expect("nothing uses it");
}

#[test]
fn physical_memory_is_shared_between_processes() {
    if let Ok(mode) = std::env::var(CHILD) {
        return importer(if mode == "mapped" { MemoryMode::Mapped } else { MemoryMode::Reserved });
    }
    for (word, mode) in [("mapped", MemoryMode::Mapped), ("reserved", MemoryMode::Reserved)] {
        let machine = machine(OpenRegConfig::default().memory(mode));
        let handle = vmm(&machine).create_physical(D0, GRANULE, HandleType::PosixFd).unwrap();
        let at = show(&machine, handle);
        upload(&machine, at.add(GRANULE - 5), b"hello").unwrap();
        let shared = vmm(&machine).export_physical(handle, HandleType::PosixFd).unwrap();
        release_physical(&machine, handle).unwrap();
        let ShareableHandle::PosixFd(descriptor) = shared else { panic!("a descriptor was asked for") };
        let output = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "sharing::physical_memory_is_shared_between_processes", "--nocapture"])
            .env(CHILD, word)
            .stdin(Stdio::from(descriptor))
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        assert!(String::from_utf8_lossy(&output.stdout).contains("1 passed"), "the child ran its part");
        if mode == MemoryMode::Mapped {
            assert_eq!(download(&machine, at, 6).unwrap(), b"answer");
        }
        unmap(&machine, at, GRANULE).unwrap();
        assert_eq!(machine.used(D0), 0);
    }
}

#[test]
fn forged_handles_are_refused() {
    let machine = mapped();
    let ipc = machine.ipc().unwrap();
    let at = machine.malloc(D0, MIB).unwrap();
    let handle = ipc.export_memory(at).unwrap();
    let forged = |place: usize, value: u64| {
        let mut forged = handle;
        forged.0[place..place + 8].copy_from_slice(&value.to_le_bytes());
        ipc.open_memory(D1, &forged)
    };
    // Inode, offset and length, in this order.
    for (place, value) in [(16, 1), (24, 1), (24, 1 << 60), (32, 0), (32, 100), (32, u64::MAX), (32, 1 << 60)]
    {
        assert_eq!(kind(forged(place, value)), ErrorKind::InvalidValue, "{value} at {place}");
    }
    let opened = ipc.open_memory(D1, &handle).unwrap();
    assert_ne!(machine.malloc(D1, 512).unwrap(), opened);
    upload(&machine, at, b"both").unwrap();
    assert_eq!(download(&machine, opened, 4).unwrap(), b"both");
}
