//! Devices that keep the pages of released physical memory.

use crate::support::{D0, GRANULE as UNIT, map, release_physical, set_access, unmap, vmm};
use backend_api::types::{DevicePtr, MIB, PhysicalHandle};
use backend_api::*;
use backend_openreg::{MemoryMode, OpenReg, OpenRegConfig};
use std::sync::Arc;

fn machine(resident: u64) -> Arc<OpenReg> {
    let config = OpenRegConfig::default().memory(MemoryMode::Mapped).capacity(64 * MIB).resident(resident);
    OpenReg::new(config).unwrap()
}

/// Memory of one handle, at an address.
struct Shown<'m> {
    machine: &'m OpenReg,
    at: DevicePtr,
    bytes: u64,
    handle: PhysicalHandle,
}

impl<'m> Shown<'m> {
    fn new(machine: &'m OpenReg, bytes: u64, handle_type: HandleType) -> Self {
        let at = vmm(machine).reserve_address(D0, bytes, 0, DevicePtr::NULL).unwrap();
        let handle = vmm(machine).create_physical(D0, bytes, handle_type).unwrap();
        map(machine, at, bytes, handle).unwrap();
        set_access(machine, at, bytes, &[D0], Access::ReadWrite).unwrap();
        Self { machine, at, bytes, handle }
    }

    fn fill(&self, value: u8) {
        let stream = self.machine.default_stream(D0);
        // SAFETY: rule 2: mapped until the stream has passed it.
        unsafe { self.machine.memset_async(self.at, value, self.bytes, stream) }.unwrap();
        self.machine.synchronize_stream(stream).unwrap();
    }

    /// Its first and its last byte.
    fn ends(&self) -> [u8; 2] {
        [0, self.bytes - 1].map(|skip| {
            let mut byte = [0_u8; 1];
            let into = DevicePtr(byte.as_mut_ptr().expose_provenance() as u64);
            // SAFETY: rule 2: both sides live, and the call waits.
            unsafe { self.machine.copy(into, self.at.add(skip), 1, CopyKind::DeviceToHost) }.unwrap();
            byte[0]
        })
    }

    fn give_back(self) {
        unmap(self.machine, self.at, self.bytes).unwrap();
        release_physical(self.machine, self.handle).unwrap();
    }
}

/// What new memory holds after memory with other bytes was given back.
fn seen_after(resident: u64, handle_type: HandleType, given_back: u64, asked: u64) -> [u8; 2] {
    let machine = machine(resident);
    let first = Shown::new(&machine, given_back, handle_type);
    assert_eq!(first.ends(), [0, 0], "a new device's memory is zero");
    first.fill(7);
    assert_eq!(first.ends(), [7, 7]);
    first.give_back();
    assert_eq!(machine.used(D0), 0, "what is kept is free");
    Shown::new(&machine, asked, handle_type).ends()
}

#[test]
fn released_memory_keeps_its_pages_for_the_next_of_its_size_if_that_is_asked_for() {
    for handle_type in [HandleType::None, HandleType::PosixFd] {
        let seen = |resident, given_back, asked| seen_after(resident, handle_type, given_back, asked);
        assert_eq!(seen(0, UNIT, UNIT), [0, 0], "by default it goes back to the host");
        assert_eq!(seen(UNIT, UNIT, UNIT), [7, 7], "the same pages");
        assert_eq!(seen(UNIT, 2 * UNIT, 2 * UNIT), [0, 0], "more than may be kept");
        assert_eq!(seen(4 * UNIT, UNIT, 2 * UNIT), [0, 0], "another size");
    }
}

#[test]
fn sizes_that_nobody_asks_for_any_more_make_room() {
    for handle_type in [HandleType::None, HandleType::PosixFd] {
        let machine = machine(2 * UNIT);
        let small = [(); 2].map(|()| Shown::new(&machine, UNIT, handle_type));
        small.into_iter().for_each(|shown| {
            shown.fill(7);
            shown.give_back();
        });
        let large = Shown::new(&machine, 2 * UNIT, handle_type);
        large.fill(9);
        large.give_back();
        let (large, small) =
            (Shown::new(&machine, 2 * UNIT, handle_type), Shown::new(&machine, UNIT, handle_type));
        assert_eq!((large.ends(), small.ends()), ([9, 9], [0, 0]));
        large.give_back();
        Shown::new(&machine, 3 * UNIT, handle_type).give_back();
        let large = Shown::new(&machine, 2 * UNIT, handle_type);
        assert_eq!(large.ends(), [9, 9], "what is too large to be kept takes nothing's place");
    }
}

#[test]
fn memory_that_others_may_have_is_not_kept() {
    let machine = machine(4 * UNIT);
    let first = Shown::new(&machine, UNIT, HandleType::PosixFd);
    first.fill(7);
    let sharing = machine.physical_sharing().unwrap();
    let exported = sharing.export_physical(first.handle, HandleType::PosixFd).unwrap();
    first.give_back();
    let next = Shown::new(&machine, UNIT, HandleType::PosixFd);
    assert_eq!(next.ends(), [0, 0]);
    next.fill(9);
    let imported = sharing.import_physical(D0, &exported).unwrap();
    let at = vmm(&machine).reserve_address(D0, UNIT, 0, DevicePtr::NULL).unwrap();
    map(&machine, at, UNIT, imported).unwrap();
    set_access(&machine, at, UNIT, &[D0], Access::ReadWrite).unwrap();
    let others = Shown { machine: &machine, at, bytes: UNIT, handle: imported };
    assert_eq!(others.ends(), [7, 7], "the importer's bytes stay as they were");
    others.give_back();
    assert_eq!(
        Shown::new(&machine, UNIT, HandleType::PosixFd).ends(),
        [0, 0],
        "another's memory is not kept either"
    );
}

/// Whoever gets memory by descriptor could make its file shorter, and a copy would then end the process.
#[test]
fn a_file_in_view_of_copies_cannot_be_made_shorter() {
    let machine = machine(UNIT);
    let shown = Shown::new(&machine, UNIT, HandleType::PosixFd);
    let exported =
        machine.physical_sharing().unwrap().export_physical(shown.handle, HandleType::PosixFd).unwrap();
    let ShareableHandle::PosixFd(descriptor) = exported else { panic!("asked for a descriptor") };
    std::fs::File::from(descriptor).set_len(0).unwrap_err();
    shown.fill(3);
    assert_eq!(shown.ends(), [3, 3]);
}
