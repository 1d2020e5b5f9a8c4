//! Virtual memory, and physical memory for other processes.

use super::ways::{self, FABRIC, POSIX_FD};
use super::{DriverBackend, devices};
use crate::calls::Calls;
use crate::driver::{Family, Site};
use crate::errors::{given_back, log_undo, memory_is_short};
use crate::physical::{Ending, Keeps, Memory};
use backend_api::types::{DeviceIndex, DevicePtr, PhysicalHandle};
use backend_api::{
    Access, Attribute, BackendError, ErrorKind, Granularity, HandleType, PhysicalSharing, Result,
    ShareableHandle, VirtualMemory,
};
use std::ffi::{c_int, c_uint};
use std::fs::File;
use std::os::fd::{AsFd, FromRawFd, OwnedFd};

fn handle_type_of(bits: c_uint) -> HandleType {
    match bits {
        bits if bits & FABRIC != 0 => HandleType::Fabric,
        bits if bits & POSIX_FD != 0 => HandleType::PosixFd,
        _ => HandleType::None,
    }
}

pub(super) fn probe<D: Calls>(backend: &DriverBackend<D>) -> Result<()> {
    devices::has(backend, Family::VirtualMemory)?;
    devices::every_device_has(backend, Attribute::VirtualMemoryManagement)?;
    ways::way(backend, backend.context.device_of_thread()?, HandleType::None).map(drop)
}

/// What other processes can be given must be made so: a descriptor, or a fabric handle where that is refused.
pub(super) fn probe_sharing<D: Calls>(backend: &DriverBackend<D>) -> Result<()> {
    devices::has(backend, Family::PhysicalSharing)?;
    let device = backend.context.device_of_thread()?;
    ways::way(backend, device, HandleType::PosixFd)
        .or_else(|refused| ways::way(backend, device, HandleType::Fabric).map_err(|_| refused))
        .map(drop)
}

/// What a live handle stands for.
pub(super) fn memory_of<D: Calls>(
    backend: &DriverBackend<D>,
    handle: PhysicalHandle,
    call: &'static str,
) -> Result<Memory<D::Keeps>> {
    backend.context.own(handle.backend, DeviceIndex(0), call)?;
    backend.physical.memory(handle.raw).ok_or_else(|| no_handle(call))
}

fn device_of_range<D: Calls>(backend: &DriverBackend<D>, at: DevicePtr) -> Result<DeviceIndex> {
    backend.physical.device_at(at.0).map_or_else(|| backend.context.device_of_thread(), Ok)
}

/// Takes a handle that the driver just answered into the books, or gives it up again. What is neither known nor in the
/// books is asked of the driver.
fn adopt<D: Calls>(
    backend: &DriverBackend<D>,
    site: Site<'_, D>,
    raw: u64,
    known: Option<Memory<D::Keeps>>,
    imported: Option<OwnedFd>,
) -> Result<PhysicalHandle> {
    let ask = || -> Result<_> {
        // SAFETY: the reference was just taken.
        let (device, bits) = unsafe { D::ask_physical(&backend.context, site, raw) }?;
        Ok(Memory { device, bytes: None, handle_type: handle_type_of(bits), keeps: D::Keeps::default() })
    };
    let known = known.or_else(|| backend.physical.memory(raw));
    let mut memory = known.map_or_else(ask, Ok).inspect_err(|_| {
        // SAFETY: the reference was just taken, and nobody knows it yet.
        log_undo(unsafe { D::release_physical(site, raw) });
    })?;
    if let Some(descriptor) = imported {
        memory.bytes = memory.bytes.or_else(|| size_of(&descriptor));
        memory.keeps.keep_import(descriptor);
    }
    backend.physical.add(raw, memory);
    Ok(PhysicalHandle { raw, backend: backend.context.id() })
}

/// The size of memory behind a descriptor, where the system knows it.
fn size_of(descriptor: &OwnedFd) -> Option<u64> {
    let file = descriptor.try_clone().map(File::from).and_then(|file| file.metadata());
    file.ok().map(|known| known.len()).filter(|&bytes| bytes > 0)
}

impl<D: Calls> VirtualMemory for DriverBackend<D> {
    fn granularity(&self, device: DeviceIndex, which: Granularity) -> Result<u64> {
        D::granularity(*self.context.enter(device, D::NAMES.granularity)?, which)
    }

    fn reserve_address(
        &self,
        device: DeviceIndex,
        bytes: u64,
        alignment: u64,
        hint: DevicePtr,
    ) -> Result<DevicePtr> {
        ways::reserve(self, device, bytes, alignment, hint).map_err(no_memory_taken)
    }

    unsafe fn release_address(&self, base: DevicePtr, bytes: u64) -> Result<()> {
        let release = || {
            let call = D::NAMES.free_addresses;
            let entered = self.context.enter(device_of_range(self, base)?, call)?;
            let reservation =
                match self.physical.take_reservation(base.0, bytes, D::ABILITIES.checks_mappings) {
                    Ending::Reserved(reservation) => Some(reservation),
                    // No driver promises a check of its own.
                    Ending::Mapped => {
                        let detail = format!("something is mapped in the {bytes} bytes at {base}");
                        return Err(entered.invalid(call, detail));
                    }
                    Ending::Unknown if D::ABILITIES.checks_mappings => None,
                    Ending::Unknown => {
                        let detail = format!("{bytes} bytes at {base} are no reservation");
                        return Err(entered.invalid(call, detail));
                    }
                };
            // SAFETY: rule 3, which the caller keeps; nothing is mapped in the range.
            unsafe { D::free_addresses(*entered, base.0, bytes as usize) }.inspect_err(|_| {
                if let Some(reservation) = reservation {
                    self.physical.put_reservation_back(reservation);
                }
            })
        };
        given_back(release())
    }

    fn create_physical(
        &self,
        device: DeviceIndex,
        bytes: u64,
        handle_type: HandleType,
    ) -> Result<PhysicalHandle> {
        ways::create(self, device, bytes, ways::usable(self, device, handle_type)?)
    }

    unsafe fn release_physical(&self, handle: PhysicalHandle) -> Result<()> {
        let release = || {
            let call = D::NAMES.release_physical;
            let entered = self.context.enter(memory_of(self, handle, call)?.device, call)?;
            let memory = self.physical.take(handle.raw).ok_or_else(|| no_handle(call))?;
            // SAFETY: rule 1, and the caller uses the handle no more.
            unsafe { D::release_physical(*entered, handle.raw) }
                .inspect_err(|_| self.physical.add(handle.raw, memory))
        };
        given_back(release())
    }

    unsafe fn map(&self, at: DevicePtr, bytes: u64, handle: PhysicalHandle) -> Result<()> {
        let call = D::NAMES.map;
        let memory = memory_of(self, handle, call)?;
        let entered = self.context.enter(memory.device, call)?;
        entered.positive(call, bytes)?;
        if memory.bytes.is_some_and(|whole| whole != bytes) {
            return Err(entered.invalid(call, "a handle is mapped whole: the size must be its size"));
        }
        // SAFETY: the caller promises a free range in one reservation; rule 1 for the handle.
        unsafe { D::map(*entered, at.0, bytes as usize, handle.raw) }.map_err(memory_is_short)?;
        self.physical.mapped(at.0, bytes, handle.raw);
        Ok(())
    }

    unsafe fn unmap(&self, at: DevicePtr, bytes: u64) -> Result<()> {
        let unmap = || {
            let call = D::NAMES.unmap;
            let entered = self.context.enter(device_of_range(self, at)?, call)?;
            entered.positive(call, bytes)?;
            let taken = self
                .physical
                .take_mappings(at.0, bytes, !D::ABILITIES.checks_mappings)
                .ok_or_else(|| entered.invalid(call, not_whole(at, bytes)))?;
            // SAFETY: rule 3, which the caller keeps.
            unsafe { D::unmap(*entered, at.0, bytes as usize, &taken) }
                .inspect_err(|_| self.physical.put_mappings_back(taken))
        };
        given_back(unmap())
    }

    unsafe fn set_access(
        &self,
        at: DevicePtr,
        bytes: u64,
        devices: &[DeviceIndex],
        access: Access,
    ) -> Result<()> {
        // A driver that checks mappings itself is not asked which imports are done.
        const { assert!(!(D::ABILITIES.checks_mappings && D::Keeps::IMPORTS)) };
        let call = D::NAMES.set_access;
        let entered = self.context.enter(device_of_range(self, at)?, call)?;
        entered.positive(call, bytes)?;
        for &device in devices {
            self.context.exists(device, call)?;
        }
        let mappings = if D::ABILITIES.checks_mappings {
            Vec::new()
        } else {
            let whole = self.physical.whole_mappings(at.0, bytes);
            whole.ok_or_else(|| entered.invalid(call, not_whole(at, bytes)))?
        };
        // SAFETY: the caller promises a mapped range.
        unsafe { D::set_access(*entered, at.0, bytes as usize, &mappings, devices, access) }?;
        if !mappings.is_empty() {
            self.physical.set_access(&mappings, devices, access);
        }
        Ok(())
    }

    fn access(&self, at: DevicePtr, device: DeviceIndex) -> Result<Access> {
        let entered = self.context.enter(device, D::NAMES.access)?;
        match D::access(*entered, at)? {
            0 => Ok(Access::None),
            1 => Ok(Access::Read),
            3 => Ok(Access::ReadWrite),
            other => {
                let detail = format!("the {} answers access {other}, which is not known here", D::NOUN);
                Err(entered.refuse(ErrorKind::Other, D::NAMES.access, detail))
            }
        }
    }
}

impl<D: Calls> PhysicalSharing for DriverBackend<D> {
    fn export_physical(&self, handle: PhysicalHandle, handle_type: HandleType) -> Result<ShareableHandle> {
        let call = D::NAMES.export_physical;
        let memory = memory_of(self, handle, call)?;
        let entered = self.context.enter(memory.device, call)?;
        if handle_type == HandleType::None || handle_type != memory.handle_type {
            let why = self.ways[usize::from(memory.device.0)].why_not(handle_type);
            let why = why.map_or_else(String::new, |why| format!("; that was refused: {why}"));
            let detail = format!(
                "the handle was created as {:?} and is to be exported as {handle_type:?}{why}",
                memory.handle_type
            );
            return Err(entered.refuse(ErrorKind::NotSupported, call, detail));
        }
        let bits = ways::handle_bits(*entered, handle_type)?;
        if handle_type == HandleType::Fabric {
            let mut bytes = [0_u8; 64];
            // SAFETY: rule 1; for this type the function writes 64 bytes.
            unsafe { D::export_physical(*entered, handle.raw, bits, bytes.as_mut_ptr().cast()) }
                .map_err(no_memory_taken)?;
            return Ok(ShareableHandle::Fabric(bytes));
        }
        let export = || {
            let mut descriptor: c_int = -1;
            // SAFETY: rule 1; for this type the function writes one descriptor.
            unsafe { D::export_physical(*entered, handle.raw, bits, (&raw mut descriptor).cast()) }
                .map_err(no_memory_taken)?;
            if descriptor < 0 {
                let detail = format!("the {} answered no descriptor", D::NOUN);
                return Err(entered.refuse(ErrorKind::Other, call, detail));
            }
            // SAFETY: the descriptor was just opened for the caller, who owns it.
            Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
        };
        let not_copied = |error| entered.refuse(ErrorKind::ResourceLimit, call, format!("dup: {error}"));
        memory.keeps.exported(export, not_copied).map(ShareableHandle::PosixFd)
    }

    fn import_physical(&self, device: DeviceIndex, shared: &ShareableHandle) -> Result<PhysicalHandle> {
        let call = D::NAMES.import_physical;
        let entered = self.context.enter(device, call)?;
        let mut kept = None;
        let raw = match shared {
            ShareableHandle::PosixFd(fd) => {
                if D::Keeps::IMPORTS {
                    // The copy stays open until access is set, whatever becomes of the caller's.
                    kept = Some(fd.try_clone().map_err(|error| {
                        entered.refuse(ErrorKind::ResourceLimit, call, format!("dup: {error}"))
                    })?);
                }
                D::import_descriptor(*entered, kept.as_ref().unwrap_or(fd).as_fd())
            }
            ShareableHandle::Fabric(bytes) => {
                if !D::ABILITIES.checks_handle_types {
                    ways::way(self, device, HandleType::Fabric)?;
                }
                D::import_fabric(*entered, *bytes)
            }
        }
        .map_err(no_memory_taken)?;
        adopt(self, *entered, raw, None, kept)
    }
}

fn no_handle(call: &'static str) -> BackendError {
    let detail = "the physical handle is not, or no longer, one of this backend";
    BackendError::new(ErrorKind::InvalidValue, 0, call, DeviceIndex(0), detail)
}

fn not_whole(at: DevicePtr, bytes: u64) -> String {
    format!("{bytes} bytes at {at} are not one or several whole mappings")
}

/// "Out of memory" from a call that takes no device memory: addresses or descriptors ran out, and emptying a cache would
/// not help.
fn no_memory_taken(error: BackendError) -> BackendError {
    match error.kind {
        ErrorKind::OutOfMemory => BackendError { kind: ErrorKind::ResourceLimit, ..error },
        _ => error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_that_run_out_are_no_lack_of_memory() {
        let failed = |kind| BackendError::new(kind, 2, "memAddressReserve", DeviceIndex(0), "");
        assert_eq!(no_memory_taken(failed(ErrorKind::OutOfMemory)).kind, ErrorKind::ResourceLimit);
        assert_eq!(no_memory_taken(failed(ErrorKind::InvalidValue)).kind, ErrorKind::InvalidValue);
    }
}
