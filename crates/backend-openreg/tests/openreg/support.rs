//! Calls of the contract that are `unsafe` for the sake of real devices, as safe functions: the simulated
//! machine checks device addresses and handles itself, and host addresses come from slices here.

use backend_api::types::{DeviceIndex, DevicePtr, Event, PhysicalHandle, Stream};
use backend_api::*;
use backend_openreg::{Clock, MemoryMode, OpenReg, OpenRegConfig};
use std::fmt::Debug;
use std::sync::Arc;

pub(crate) use backend_api::types::{GIB, MIB};

pub(crate) const D0: DeviceIndex = DeviceIndex(0);
pub(crate) const D1: DeviceIndex = DeviceIndex(1);
pub(crate) const GRANULE: u64 = 2 * MIB;

/// A virtual machine whose work is `lag` ticks late.
pub(crate) fn late(lag: u64) -> Arc<OpenReg> {
    machine(OpenRegConfig::default().clock(Clock::Virtual { lag }))
}

pub(crate) fn mapped() -> Arc<OpenReg> {
    machine(OpenRegConfig::default().memory(MemoryMode::Mapped))
}

pub(crate) fn machine(config: OpenRegConfig) -> Arc<OpenReg> {
    OpenReg::new(config).expect("the set-up is a good one")
}

/// The kind of an error that must be there.
#[track_caller]
pub(crate) fn kind<T: Debug>(answer: Result<T>) -> ErrorKind {
    answer.expect_err("the call must be refused").kind
}

pub(crate) fn free(machine: &OpenReg, device: DeviceIndex, ptr: DevicePtr) -> Result<()> {
    // SAFETY: rule 3 is checked by the machine, which answers wrong frees with an error.
    unsafe { machine.free(device, ptr) }
}

pub(crate) fn host_free(machine: &OpenReg, ptr: DevicePtr) -> Result<()> {
    // SAFETY: rule 3: the tests keep no reference into the memory; wrong frees are answered with an error.
    unsafe { machine.host_free(ptr) }
}

pub(crate) fn destroy_stream(machine: &OpenReg, stream: Stream) -> Result<()> {
    // SAFETY: rule 1 is checked by the machine.
    unsafe { machine.destroy_stream(stream) }
}

pub(crate) fn destroy_event(machine: &OpenReg, event: Event) -> Result<()> {
    // SAFETY: rule 1 is checked by the machine.
    unsafe { machine.destroy_event(event) }
}

pub(crate) fn fill(machine: &OpenReg, at: DevicePtr, value: u8, bytes: u64, stream: Stream) -> Result<()> {
    // SAFETY: rule 2 is checked by the machine.
    unsafe { machine.memset_async(at, value, bytes, stream) }
}

pub(crate) fn copy_on_device(
    machine: &OpenReg,
    to: DevicePtr,
    from: DevicePtr,
    bytes: u64,
    stream: Stream,
) -> Result<()> {
    // SAFETY: rule 2 is checked by the machine.
    unsafe { machine.copy_async(to, from, bytes, CopyKind::DeviceToDevice, stream) }
}

pub(crate) fn upload(machine: &OpenReg, to: DevicePtr, bytes: &[u8]) -> Result<()> {
    let from = DevicePtr(bytes.as_ptr().expose_provenance() as u64);
    // SAFETY: rule 2: the slice outlives the call, which waits; the machine checks the device side.
    unsafe { machine.copy(to, from, bytes.len() as u64, CopyKind::HostToDevice) }
}

pub(crate) fn download(machine: &OpenReg, from: DevicePtr, bytes: u64) -> Result<Vec<u8>> {
    let mut into = vec![0; bytes as usize];
    let to = DevicePtr(into.as_mut_ptr().expose_provenance() as u64);
    // SAFETY: rule 2: the vector outlives the call, which waits; the machine checks the device side.
    unsafe { machine.copy(to, from, bytes, CopyKind::DeviceToHost) }?;
    Ok(into)
}

pub(crate) fn vmm(machine: &OpenReg) -> &dyn PhysicalSharing {
    machine.physical_sharing().expect("virtual memory and its sharing are on")
}

pub(crate) fn map(machine: &OpenReg, at: DevicePtr, bytes: u64, handle: PhysicalHandle) -> Result<()> {
    // SAFETY: reservation, size and rule 1 are checked by the machine.
    unsafe { vmm(machine).map(at, bytes, handle) }
}

pub(crate) fn unmap(machine: &OpenReg, at: DevicePtr, bytes: u64) -> Result<()> {
    // SAFETY: rule 3 is checked by the machine.
    unsafe { vmm(machine).unmap(at, bytes) }
}

pub(crate) fn set_access(
    machine: &OpenReg,
    at: DevicePtr,
    bytes: u64,
    devices: &[DeviceIndex],
    access: Access,
) -> Result<()> {
    // SAFETY: that the range is mapped, and rule 3, are checked by the machine.
    unsafe { vmm(machine).set_access(at, bytes, devices, access) }
}

pub(crate) fn release_address(machine: &OpenReg, at: DevicePtr, bytes: u64) -> Result<()> {
    // SAFETY: rule 3 is checked by the machine.
    unsafe { vmm(machine).release_address(at, bytes) }
}

pub(crate) fn release_physical(machine: &OpenReg, handle: PhysicalHandle) -> Result<()> {
    // SAFETY: rule 1 is checked by the machine.
    unsafe { vmm(machine).release_physical(handle) }
}

/// Reserves, creates, maps and opens `bytes` to their own device; the handle is released already.
pub(crate) fn map_new(machine: &OpenReg, device: DeviceIndex, bytes: u64) -> Result<DevicePtr> {
    let at = vmm(machine).reserve_address(device, bytes, 0, DevicePtr::NULL)?;
    let handle = vmm(machine).create_physical(device, bytes, HandleType::None)?;
    map(machine, at, bytes, handle)?;
    release_physical(machine, handle)?;
    set_access(machine, at, bytes, &[device], Access::ReadWrite)?;
    Ok(at)
}
