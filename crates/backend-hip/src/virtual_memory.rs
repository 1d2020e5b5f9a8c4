//! Virtual memory: probing it, and the calls of its family.

use crate::descriptors::out_of_descriptors;
use crate::driver::{Site, given_back, number, pointer};
use crate::hip::Hip;
use crate::layout::{properties_of, takes_descriptor_by_value};
use crate::mapping::{location, retain, set_access_of_each, unmap_each};
use crate::memory::{log_undo, positive};
use crate::physical::Memory;
use backend_api::types::{DeviceIndex, DevicePtr, PhysicalHandle};
use backend_api::{
    Access, Attribute, BackendError, ErrorKind, Granularity, HandleType, PhysicalProperties, PhysicalSharing,
    Result, ShareableHandle, VirtualMemory,
};
use hip_sys::Generation;
use hip_sys::abi7 as abi;
use std::ffi::{c_int, c_void};
use std::fs::File;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr;
use std::sync::Arc;

impl Hip {
    pub(crate) fn probe_virtual_memory(&self) -> Result<()> {
        needs!(self: hipMemGetAllocationGranularity, hipMemAddressReserve, hipMemAddressFree, hipMemCreate,
            hipMemRelease, hipMemMap, hipMemUnmap, hipMemSetAccess, hipMemGetAccess,
            hipMemRetainAllocationHandle)?;
        self.has_known_properties()?;
        self.every_device_has(Attribute::VirtualMemoryManagement)?;
        let _relaxed = self.relaxed()?;
        let device = self.device_of_thread()?;
        let bytes = self.granularity(device, Granularity::Minimum)?;
        let at = self.reserve_address(device, bytes, 0, DevicePtr::NULL)?;
        let tried = self.probe_mapping(device, at, bytes);
        // SAFETY: this probe reserved the range, and what it mapped there is unmapped.
        let released = unsafe { self.release_address(at, bytes) };
        tried.and(released)
    }

    pub(crate) fn probe_physical_sharing(&self) -> Result<()> {
        needs!(self: hipMemExportToShareableHandle, hipMemImportFromShareableHandle)
    }

    fn probe_mapping(&self, device: DeviceIndex, at: DevicePtr, bytes: u64) -> Result<()> {
        let handle = self.create_physical(device, bytes, HandleType::None)?;
        // SAFETY: the range is a whole reservation and the size is the handle's.
        let tried = unsafe { self.map(at, bytes, handle) }.and_then(|()| {
            // SAFETY: the range is mapped.
            let set = unsafe { self.set_access(at, bytes, &[device], Access::ReadWrite) };
            // SAFETY: the range is one mapping, and nothing uses it.
            let unmapped = unsafe { self.unmap(at, bytes) };
            set.and(unmapped)
        });
        // SAFETY: the handle is this probe's and is not used again.
        let released = unsafe { self.release_physical(handle) };
        tried.and(released)
    }

    /// Fabric handles need a service of the system, which only an attempt can tell.
    fn probe_fabric(&self) -> Result<()> {
        self.every_device_has(Attribute::FabricHandles)?;
        let _relaxed = self.relaxed()?;
        let device = self.device_of_thread()?;
        let bytes = self.granularity(device, Granularity::Minimum)?;
        let handle = self.create(device, bytes, HandleType::Fabric)?;
        // SAFETY: the handle is this probe's and is not used again.
        unsafe { self.release_physical(handle) }
    }

    /// 5's property struct has the size of 6's and its fields in another order; memory made with the wrong one would
    /// be something else than was asked for.
    fn has_known_properties(&self) -> Result<()> {
        if self.driver.generation > Generation::Five {
            return Ok(());
        }
        let detail =
            format!("HIP {} is older than 6.0, the oldest whose virtual memory is used", self.driver.version);
        Err(self.any_site("hipMemCreate")?.refuse(ErrorKind::NotSupported, "hipMemCreate", detail))
    }

    fn create(&self, device: DeviceIndex, bytes: u64, handle_type: HandleType) -> Result<PhysicalHandle> {
        let entered = self.enter(device, "hipMemCreate")?;
        positive(*entered, "hipMemCreate", bytes)?;
        let properties = self.allocation_properties(device, handle_type)?;
        let mut handle = ptr::null_mut();
        // SAFETY: the function writes one handle and reads the properties, which are in its layout.
        unsafe { call!(entered.hipMemCreate(&raw mut handle, bytes as usize, &raw const properties, 0)) }
            .map_err(out_of_descriptors)?;
        let raw = number(handle);
        let memory = Memory { device, bytes: Some(bytes), handle_type, descriptors: Arc::default() };
        self.physical.add(raw, memory);
        Ok(self.physical_handle(raw))
    }

    fn allocation_properties(
        &self,
        device: DeviceIndex,
        handle_type: HandleType,
    ) -> Result<abi::hipMemAllocationProp> {
        self.has_known_properties()?;
        // As PyTorch does: remote direct memory access must be asked for when the memory is made.
        let rdma =
            self.attribute(device, Attribute::GpuDirectRdmaWithVirtualMemory).is_ok_and(|has| has != 0);
        Ok(properties_of(device, handle_number(self.site(device, "hipMemCreate")?, handle_type)?, rdma))
    }

    fn physical_handle(&self, raw: u64) -> PhysicalHandle {
        PhysicalHandle { raw, backend: self.id }
    }

    /// What a live handle stands for.
    fn memory_of(&self, handle: PhysicalHandle, call: &'static str) -> Result<Memory> {
        self.own(handle.backend, DeviceIndex(0), call)?;
        self.physical.memory(handle.raw).ok_or_else(|| no_handle(call))
    }

    fn device_of_range(&self, at: DevicePtr) -> Result<DeviceIndex> {
        self.physical.device_at(at.0).map_or_else(|| self.device_of_thread(), Ok)
    }

    /// What the runtime says about a handle that this backend did not create.
    fn ask_memory(&self, site: Site<'_>, raw: u64) -> Result<Memory> {
        const CALL: &str = "hipMemGetAllocationPropertiesFromHandle";
        self.has_known_properties()?;
        let mut answer = properties_of(site.device(), abi::hipMemHandleTypeNone, false);
        // SAFETY: rule 1; the function fills the properties.
        unsafe { call!(site.hipMemGetAllocationPropertiesFromHandle(&raw mut answer, pointer(raw))) }?;
        let location = answer.location.id;
        let device = self.index_of(location).ok_or_else(|| {
            let detail = format!("the memory lies at location {location}, which is no device known here");
            site.refuse(ErrorKind::NotSupported, CALL, detail)
        })?;
        let handle_type = match answer.requestedHandleType {
            bits if bits & abi::hipMemHandleTypeFabric != 0 => HandleType::Fabric,
            bits if bits & abi::hipMemHandleTypePosixFileDescriptor != 0 => HandleType::PosixFd,
            _ => HandleType::None,
        };
        Ok(Memory { device, bytes: None, handle_type, descriptors: Arc::default() })
    }

    /// Takes a handle that the runtime just answered into the books; where `memory` cannot be told, gives the
    /// handle up again.
    fn adopt(&self, site: Site<'_>, raw: u64, memory: Result<Memory>) -> Result<PhysicalHandle> {
        let memory = memory.inspect_err(|_| {
            // SAFETY: the reference was just taken, and nobody knows it yet.
            log_undo(unsafe { call!(site.hipMemRelease(pointer(raw))) });
        })?;
        self.physical.add(raw, memory);
        Ok(self.physical_handle(raw))
    }
}

impl VirtualMemory for Hip {
    fn granularity(&self, device: DeviceIndex, which: Granularity) -> Result<u64> {
        let entered = self.enter(device, "hipMemGetAllocationGranularity")?;
        let which = match which {
            Granularity::Minimum => abi::hipMemAllocationGranularityMinimum,
            Granularity::Recommended => abi::hipMemAllocationGranularityRecommended,
        };
        let ask = |handle_type| -> Result<u64> {
            let properties = self.allocation_properties(device, handle_type)?;
            let mut bytes = 0;
            // SAFETY: the function writes one integer and reads the properties, which are in its layout.
            unsafe {
                call!(entered.hipMemGetAllocationGranularity(&raw mut bytes, &raw const properties, which))
            }?;
            Ok(bytes as u64)
        };
        // It depends on the handle type; the larger one, a multiple of the other, serves both.
        let plain = ask(HandleType::None)?;
        match ask(HandleType::PosixFd) {
            Ok(shared) => Ok(plain.max(shared)),
            Err(error) if matches!(error.kind, ErrorKind::InvalidValue | ErrorKind::NotSupported) => {
                Ok(plain)
            }
            Err(error) => Err(error),
        }
    }

    fn reserve_address(
        &self,
        device: DeviceIndex,
        bytes: u64,
        alignment: u64,
        hint: DevicePtr,
    ) -> Result<DevicePtr> {
        let entered = self.enter(device, "hipMemAddressReserve")?;
        positive(*entered, "hipMemAddressReserve", bytes)?;
        let (mut at, hint) = (ptr::null_mut(), pointer(hint.0));
        // SAFETY: the function writes one address.
        unsafe {
            call!(entered.hipMemAddressReserve(&raw mut at, bytes as usize, alignment as usize, hint, 0))
        }
        .map_err(no_memory_taken)?;
        let at = number(at);
        self.physical.reserved(at, bytes, device);
        Ok(DevicePtr(at))
    }

    unsafe fn release_address(&self, base: DevicePtr, bytes: u64) -> Result<()> {
        let release = || {
            let entered = self.enter(self.device_of_range(base)?, "hipMemAddressFree")?;
            let reservation = self.physical.take_reservation(base.0, bytes).ok_or_else(|| {
                let detail =
                    format!("{bytes} bytes at {base} are no reservation, or something is mapped there");
                entered.invalid("hipMemAddressFree", detail)
            })?;
            // SAFETY: rule 3, which the caller keeps; nothing is mapped in the range.
            unsafe { call!(entered.hipMemAddressFree(pointer(base.0), bytes as usize)) }
                .inspect_err(|_| self.physical.put_reservation_back(reservation))
        };
        given_back(release())
    }

    fn create_physical(
        &self,
        device: DeviceIndex,
        bytes: u64,
        handle_type: HandleType,
    ) -> Result<PhysicalHandle> {
        if handle_type == HandleType::Fabric {
            self.probes.fabric.answer("fabric handles", || self.probe_fabric())?;
        }
        self.create(device, bytes, handle_type)
    }

    unsafe fn release_physical(&self, handle: PhysicalHandle) -> Result<()> {
        let release = || {
            const CALL: &str = "hipMemRelease";
            let entered = self.enter(self.memory_of(handle, CALL)?.device, CALL)?;
            let memory = self.physical.take(handle.raw).ok_or_else(|| no_handle(CALL))?;
            // SAFETY: rule 1, and the caller uses the handle no more.
            unsafe { call!(entered.hipMemRelease(pointer(handle.raw))) }
                .inspect_err(|_| self.physical.add(handle.raw, memory))
        };
        given_back(release())
    }

    unsafe fn map(&self, at: DevicePtr, bytes: u64, handle: PhysicalHandle) -> Result<()> {
        let memory = self.memory_of(handle, "hipMemMap")?;
        let entered = self.enter(memory.device, "hipMemMap")?;
        positive(*entered, "hipMemMap", bytes)?;
        if memory.bytes.is_some_and(|whole| whole != bytes) {
            return Err(entered.invalid("hipMemMap", "a handle is mapped whole: the size must be its size"));
        }
        // SAFETY: the caller promises a free range in one reservation; rule 1 for the handle.
        unsafe { call!(entered.hipMemMap(pointer(at.0), bytes as usize, 0, pointer(handle.raw), 0)) }?;
        self.physical.mapped(at.0, bytes, handle.raw);
        Ok(())
    }

    unsafe fn unmap(&self, at: DevicePtr, bytes: u64) -> Result<()> {
        let unmap = || {
            let entered = self.enter(self.device_of_range(at)?, "hipMemUnmap")?;
            positive(*entered, "hipMemUnmap", bytes)?;
            let mappings = self
                .physical
                .take_mappings(at.0, bytes)
                .ok_or_else(|| entered.invalid("hipMemUnmap", not_whole(at, bytes)))?;
            unmap_each(*entered, &mappings).inspect_err(|_| self.physical.put_mappings_back(mappings))
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
        const CALL: &str = "hipMemSetAccess";
        let entered = self.enter(self.device_of_range(at)?, CALL)?;
        positive(*entered, CALL, bytes)?;
        for &device in devices {
            self.device(device, CALL)?;
        }
        let mappings = self
            .physical
            .whole_mappings(at.0, bytes)
            .ok_or_else(|| entered.invalid(CALL, not_whole(at, bytes)))?;
        set_access_of_each(*entered, &mappings, devices, access)?;
        self.physical.set_access(&mappings, devices, access);
        Ok(())
    }

    fn access(&self, at: DevicePtr, device: DeviceIndex) -> Result<Access> {
        let entered = self.enter(device, "hipMemGetAccess")?;
        let location = location(device);
        let mut flags = 0;
        // SAFETY: the function writes one integer, and refuses an address where nothing is mapped.
        unsafe { call!(entered.hipMemGetAccess(&raw mut flags, &raw const location, pointer(at.0))) }?;
        match flags {
            0 => Ok(Access::None),
            1 => Ok(Access::Read),
            3 => Ok(Access::ReadWrite),
            other => {
                let detail = format!("the runtime answers access {other}, which is not known here");
                Err(entered.refuse(ErrorKind::Other, "hipMemGetAccess", detail))
            }
        }
    }

    fn retain_physical(&self, at: DevicePtr) -> Result<PhysicalHandle> {
        const CALL: &str = "hipMemRetainAllocationHandle";
        let entered = self.enter(self.device_of_range(at)?, CALL)?;
        let Some(mapping) = self.physical.mapping_at(at.0) else {
            return Err(entered.invalid(CALL, format!("nothing is mapped at {at}")));
        };
        let raw = retain(*entered, mapping.at)?;
        let memory = Memory { bytes: Some(mapping.bytes), ..mapping.memory };
        self.adopt(*entered, raw, Ok(memory))
    }

    fn physical_properties(&self, handle: PhysicalHandle) -> Result<PhysicalProperties> {
        const CALL: &str = "hipMemGetAllocationPropertiesFromHandle";
        let memory = self.memory_of(handle, CALL)?;
        let bytes = memory.bytes.ok_or_else(|| {
            let detail = "the runtime does not tell the size of an imported handle; it is known once mapped";
            BackendError::new(ErrorKind::NotSupported, 0, CALL, memory.device, detail)
        })?;
        Ok(PhysicalProperties { device: memory.device, bytes, handle_type: memory.handle_type })
    }
}

impl PhysicalSharing for Hip {
    fn export_physical(&self, handle: PhysicalHandle, handle_type: HandleType) -> Result<ShareableHandle> {
        const CALL: &str = "hipMemExportToShareableHandle";
        let memory = self.memory_of(handle, CALL)?;
        let entered = self.enter(memory.device, CALL)?;
        if handle_type == HandleType::None || handle_type != memory.handle_type {
            let detail = format!(
                "the handle was created as {:?} and is to be exported as {handle_type:?}",
                memory.handle_type
            );
            return Err(entered.refuse(ErrorKind::NotSupported, CALL, detail));
        }
        let kind = handle_number(*entered, handle_type)?;
        let source = pointer(handle.raw);
        if handle_type == HandleType::Fabric {
            let mut bytes = [0_u8; 64];
            let out: *mut c_void = bytes.as_mut_ptr().cast();
            // SAFETY: rule 1; for this type the function writes 64 bytes.
            unsafe { call!(entered.hipMemExportToShareableHandle(out, source, kind, 0)) }
                .map_err(no_memory_taken)?;
            return Ok(ShareableHandle::Fabric(bytes));
        }
        let export = || {
            let mut descriptor: c_int = -1;
            let out: *mut c_void = (&raw mut descriptor).cast();
            // SAFETY: rule 1; for this type the function writes one descriptor.
            unsafe { call!(entered.hipMemExportToShareableHandle(out, source, kind, 0)) }
                .map_err(no_memory_taken)?;
            if descriptor < 0 {
                return Err(entered.refuse(ErrorKind::Other, CALL, "the runtime answered no descriptor"));
            }
            // SAFETY: the descriptor was just opened for the caller, who owns it.
            Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
        };
        let not_copied = |error| entered.refuse(ErrorKind::ResourceLimit, CALL, format!("dup: {error}"));
        memory.descriptors.exported(export, not_copied).map(ShareableHandle::PosixFd)
    }

    fn import_physical(&self, device: DeviceIndex, shared: &ShareableHandle) -> Result<PhysicalHandle> {
        const CALL: &str = "hipMemImportFromShareableHandle";
        let entered = self.enter(device, CALL)?;
        let mut fabric: [u8; 64];
        let mut descriptor: c_int;
        let mut copied = None;
        let (from, kind): (*mut c_void, _) = match shared {
            ShareableHandle::PosixFd(fd) => {
                // The copy stays open until access is set, whatever becomes of the caller's.
                let not_copied =
                    |error| entered.refuse(ErrorKind::ResourceLimit, CALL, format!("dup: {error}"));
                let copy = copied.insert(fd.try_clone().map_err(not_copied)?);
                descriptor = copy.as_raw_fd();
                let from = if takes_descriptor_by_value(self.driver.version) {
                    ptr::without_provenance_mut(descriptor as usize)
                } else {
                    (&raw mut descriptor).cast()
                };
                (from, abi::hipMemHandleTypePosixFileDescriptor)
            }
            ShareableHandle::Fabric(handle) => {
                self.probes.fabric.answer("fabric handles", || self.probe_fabric())?;
                fabric = *handle;
                (fabric.as_mut_ptr().cast(), abi::hipMemHandleTypeFabric)
            }
        };
        let mut handle = ptr::null_mut();
        // SAFETY: the function writes one handle, and reads what is usual for the type and the version; it refuses
        // what no runtime exported.
        unsafe { call!(entered.hipMemImportFromShareableHandle(&raw mut handle, from, kind)) }
            .map_err(no_memory_taken)?;
        let raw = number(handle);
        let memory = self.physical.memory(raw).map_or_else(|| self.ask_memory(*entered, raw), Ok);
        self.adopt(*entered, raw, memory.map(|memory| import_of(memory, copied)))
    }
}

/// Memory that was imported from a descriptor, or from none: the descriptor is kept, and tells the size where the
/// system knows it.
fn import_of(mut memory: Memory, descriptor: Option<OwnedFd>) -> Memory {
    let Some(descriptor) = descriptor else { return memory };
    let file = descriptor.try_clone().map(File::from).and_then(|file| file.metadata());
    let bytes = file.ok().map(|known| known.len()).filter(|&bytes| bytes > 0);
    memory.bytes = memory.bytes.or(bytes);
    memory.descriptors.keep_import(descriptor);
    memory
}

fn handle_number(site: Site<'_>, handle_type: HandleType) -> Result<abi::hipMemAllocationHandleType> {
    match handle_type {
        HandleType::None => Ok(abi::hipMemHandleTypeNone),
        HandleType::PosixFd => Ok(abi::hipMemHandleTypePosixFileDescriptor),
        HandleType::Fabric => Ok(abi::hipMemHandleTypeFabric),
        other => {
            let detail = format!("{other:?} handles are not known here");
            Err(site.refuse(ErrorKind::NotSupported, "hipMemCreate", detail))
        }
    }
}

fn no_handle(call: &'static str) -> BackendError {
    let detail = "the physical handle is not, or no longer, one of this backend";
    BackendError::new(ErrorKind::InvalidValue, 0, call, DeviceIndex(0), detail)
}

fn not_whole(at: DevicePtr, bytes: u64) -> String {
    format!("{bytes} bytes at {at} are not one or several whole mappings")
}

/// "Out of memory" from a call that takes no device memory: addresses or descriptors ran out, and emptying a
/// cache would not help.
fn no_memory_taken(error: BackendError) -> BackendError {
    match out_of_descriptors(error) {
        error if error.kind == ErrorKind::OutOfMemory => {
            BackendError { kind: ErrorKind::ResourceLimit, ..error }
        }
        error => error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_that_run_out_are_no_lack_of_memory() {
        let failed = |kind| BackendError::new(kind, 2, "hipMemAddressReserve", DeviceIndex(0), "");
        assert_eq!(no_memory_taken(failed(ErrorKind::OutOfMemory)).kind, ErrorKind::ResourceLimit);
        assert_eq!(no_memory_taken(failed(ErrorKind::InvalidValue)).kind, ErrorKind::InvalidValue);
    }
}
