//! Where pinned memory lies.

use crate::machines::{calls, idle, machine};
use alloc_core::backend::Backend;
use alloc_core::config::Settings;
use alloc_core::host::{HostAllocator, HostBlock, HostOptions, NumaPolicy};
use alloc_core::types::{DeviceIndex, MIB};
use backend_openreg::{Call, Families, OpenReg, OpenRegConfig};
use granule_tests::pinned::nothing_is_pinned;
use granule_tests::rig::DEVICE;
use std::path::Path;

/// Where a page is: the number of its node.
fn node_of(block: &HostBlock) -> Option<i32> {
    let (mut node, nothing): (i32, u64) = (-1, 0);
    // MPOL_F_NODE and MPOL_F_ADDR.
    let flags: u64 = 1 | 2;
    // SAFETY: writes the number of a node, about a page that is there.
    let asked = unsafe {
        libc::syscall(libc::SYS_get_mempolicy, &raw mut node, nothing, nothing, block.ptr.0, flags)
    };
    (asked == 0).then_some(node)
}

/// A system that says on which node the first device is.
fn sysfs(root: &Path, machine: &OpenReg, node: &str) {
    let bus = machine.properties(DEVICE).unwrap().pci_bus_id.unwrap();
    let device = root.join("bus/pci/devices").join(bus);
    std::fs::create_dir_all(&device).unwrap();
    std::fs::create_dir_all(root.join("devices/system/node/node0")).unwrap();
    std::fs::write(device.join("numa_node"), node).unwrap();
}

#[test]
fn memory_lies_near_a_device_where_the_system_says_where_that_is() {
    let root = tempfile::tempdir().unwrap();
    for families in [Families::all(), Families::all() - Families::HOST_REGISTRATION] {
        let machine = machine(OpenRegConfig::default().devices(2).families(families));
        let on = |numa: NumaPolicy, settings: &Settings| {
            let options = HostOptions { numa, sysfs: root.path().to_owned(), ..HostOptions::default() };
            HostAllocator::new(machine.clone(), settings, options).unwrap()
        };
        sysfs(root.path(), &machine, "0\n");
        let near = on(NumaPolicy::NearDevice(DEVICE), &Settings::default());
        assert_eq!(near.node(), Some(0));
        let block = near.allocate(3 * MIB).unwrap();
        // Our pages, placed before they exist; or the driver's, by the thread's policy.
        let registers = families.contains(Families::HOST_REGISTRATION);
        assert_eq!(calls(&machine, Call::RegisterHost), u64::from(registers));
        assert_eq!(calls(&machine, Call::HostMalloc), u64::from(!registers));
        let at = std::ptr::with_exposed_provenance_mut::<u8>(block.ptr.0 as usize);
        // SAFETY: the whole of the block.
        unsafe { at.write_bytes(1, block.size as usize) };
        assert!(node_of(&block).is_none_or(|node| node == 0));
        near.free(block.id).unwrap();
        drop(near);
        nothing_is_pinned(&machine);
        // Where the system has no answer, it places the memory, and all goes on.
        sysfs(root.path(), &machine, "-1\n");
        for unknown in
            [NumaPolicy::NearDevice(DEVICE), NumaPolicy::NearDevice(DeviceIndex(1)), NumaPolicy::Node(7)]
        {
            let host = on(unknown, &Settings::default());
            assert_eq!(host.node(), None, "{unknown:?}");
            host.free(host.allocate(MIB).unwrap().id).unwrap();
        }
        assert_eq!(on(NumaPolicy::Node(0), &Settings::default()).node(), Some(0));
        assert_eq!(on(NumaPolicy::System, &Settings::default()).node(), None);
        nothing_is_pinned(&machine);
    }
    let machine = idle();
    let real = HostOptions { numa: NumaPolicy::Node(0), ..HostOptions::default() };
    let host = HostAllocator::new(machine.clone(), &Settings::default(), real).unwrap();
    host.free(host.allocate(MIB).unwrap().id).unwrap();
}
