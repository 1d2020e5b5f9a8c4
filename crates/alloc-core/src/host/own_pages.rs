//! Memory of the program's own that it pins in place: nothing is cached, but the history tells of it.

use super::driver_access::DriverAccess;
use super::shared::SharedTable;
use crate::backend::HostFlags;
use crate::error::Result;
use crate::types::DevicePtr;
use crate::watch::history::RecordContext;

/// See [`HostAllocator::register`](super::HostAllocator::register).
///
/// # Safety
/// As there.
pub(super) unsafe fn register(
    driver: &DriverAccess,
    table: &SharedTable,
    ptr: DevicePtr,
    bytes: u64,
) -> Result<()> {
    let context = table.gather(RecordContext::State, &table.calls());
    let _relaxed = driver.relaxed()?;
    // SAFETY: the range stays valid until it is unregistered, as the caller promises.
    let pin = || unsafe { driver.backend().host_registration()?.register(ptr, bytes, HostFlags::PORTABLE) };
    driver.answered(pin())?;
    table.lock().register(ptr, bytes, context.as_deref());
    Ok(())
}

/// See [`HostAllocator::note_registered`](super::HostAllocator::note_registered).
pub(super) fn note(table: &SharedTable, ptr: DevicePtr, bytes: u64) {
    let context = table.gather(RecordContext::State, &table.calls());
    table.lock().register(ptr, bytes, context.as_deref());
}

/// See [`HostAllocator::note_unregistered`](super::HostAllocator::note_unregistered).
pub(super) fn forget(table: &SharedTable, ptr: DevicePtr) {
    let calls = table.calls();
    let context = table.gather(RecordContext::All, &calls);
    table.lock().unregister(ptr, context.as_deref());
}

/// See [`HostAllocator::unregister`](super::HostAllocator::unregister).
///
/// # Safety
/// As there.
pub(super) unsafe fn unregister(driver: &DriverAccess, table: &SharedTable, ptr: DevicePtr) -> Result<()> {
    let calls = table.calls();
    let context = table.gather(RecordContext::All, &calls);
    let _relaxed = driver.relaxed()?;
    // SAFETY: rule 3, as the caller promises.
    let unpin = || unsafe { driver.backend().host_registration()?.unregister(ptr) };
    driver.answered(unpin())?;
    table.lock().unregister(ptr, context.as_deref());
    Ok(())
}
