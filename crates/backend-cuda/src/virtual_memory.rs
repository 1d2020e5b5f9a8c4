//! Virtual memory.

use crate::cuda::Cuda;
use crate::driver::{Site, given_back, pointer};
use crate::memory::{log_undo, positive};
use crate::physical::Memory;
use backend_api::types::{DeviceIndex, DevicePtr, PhysicalHandle};
use backend_api::{
    Access, Attribute, BackendError, ErrorKind, Granularity, HandleType, PhysicalProperties, PhysicalSharing,
    Result, ShareableHandle, VirtualMemory,
};
use cudarc::driver::sys::{
    CUmemAccess_flags, CUmemAccessDesc, CUmemAllocationGranularity_flags, CUmemAllocationHandleType,
    CUmemAllocationProp, CUmemAllocationProp_st__bindgen_ty_1 as AllocationFlags, CUmemAllocationType,
    CUmemLocation, CUmemLocationType,
};
use std::ffi::{c_int, c_uint, c_void};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr;

const NO_HANDLE: c_uint = 0;
const POSIX_FD: c_uint = 1;
/// Newer than the declarations (CUDA 12.3).
const FABRIC: c_uint = 8;

/// What the driver writes for `CUmemAllocationProp`: type, handle types, the location's type and number, and
/// more. As integers, because the declared enumerations may lack the driver's numbers.
#[repr(C, align(8))]
#[derive(Default)]
struct PropertyWords([c_uint; 8]);

const _: () = assert!(size_of::<PropertyWords>() == size_of::<CUmemAllocationProp>());
const _: () = assert!(align_of::<PropertyWords>() == align_of::<CUmemAllocationProp>());

impl Cuda {
    pub(crate) fn probe_virtual_memory(&self) -> Result<()> {
        needs!(self: cuMemGetAllocationGranularity, cuMemAddressReserve, cuMemAddressFree, cuMemCreate,
            cuMemRelease, cuMemMap, cuMemUnmap, cuMemSetAccess, cuMemGetAccess)?;
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
        needs!(self: cuMemExportToShareableHandle, cuMemImportFromShareableHandle)
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

    fn create(&self, device: DeviceIndex, bytes: u64, handle_type: HandleType) -> Result<PhysicalHandle> {
        let entered = self.enter(device, "cuMemCreate")?;
        positive(*entered, "cuMemCreate", bytes)?;
        let properties = self.allocation_properties(*entered, handle_type)?;
        let mut raw = 0;
        // SAFETY: the function writes one handle and reads the properties.
        unsafe { call!(entered.cuMemCreate(&raw mut raw, bytes as usize, &raw const properties, 0)) }?;
        self.physical.add(raw, Memory { device, bytes: Some(bytes), handle_type });
        Ok(self.physical_handle(raw))
    }

    fn allocation_properties(&self, site: Site<'_>, handle_type: HandleType) -> Result<CUmemAllocationProp> {
        let device = site.device();
        // As PyTorch does: remote direct memory access must be asked for when the memory is made.
        let rdma =
            self.attribute(device, Attribute::GpuDirectRdmaWithVirtualMemory).is_ok_and(|has| has != 0);
        Ok(CUmemAllocationProp {
            type_: CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED,
            requestedHandleTypes: CUmemAllocationHandleType(handle_bits(site, handle_type)?),
            location: self.location(device)?,
            win32HandleMetaData: ptr::null_mut(),
            allocFlags: AllocationFlags {
                compressionType: 0,
                gpuDirectRDMACapable: u8::from(rdma),
                usage: 0,
                reserved: [0; 4],
            },
        })
    }

    fn location(&self, device: DeviceIndex) -> Result<CUmemLocation> {
        let id = self.device(device, "cuMemSetAccess")?.number;
        Ok(CUmemLocation { type_: CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE, id })
    }

    fn physical_handle(&self, raw: u64) -> PhysicalHandle {
        PhysicalHandle { raw, backend: self.id }
    }

    /// What a live handle stands for.
    pub(crate) fn memory_of(&self, handle: PhysicalHandle, call: &'static str) -> Result<Memory> {
        self.own(handle.backend, DeviceIndex(0), call)?;
        self.physical.memory(handle.raw).ok_or_else(|| no_handle(call))
    }

    fn device_of_range(&self, at: DevicePtr) -> Result<DeviceIndex> {
        self.physical.device_at(at.0).map_or_else(|| self.device_of_thread(), Ok)
    }

    /// What the driver says about a handle, for those that this backend did not create.
    fn ask_memory(&self, site: Site<'_>, raw: u64) -> Result<Memory> {
        const CALL: &str = "cuMemGetAllocationPropertiesFromHandle";
        let mut answer = PropertyWords::default();
        // SAFETY: the function fills the properties, for which there is room.
        unsafe { call!(site.cuMemGetAllocationPropertiesFromHandle((&raw mut answer).cast(), raw)) }?;
        let [_, handle_bits, place, id, ..] = answer.0;
        let on_device = place == CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE as c_uint;
        let device = c_int::try_from(id).ok().filter(|_| on_device).and_then(|number| self.index_of(number));
        let device = device.ok_or_else(|| {
            let detail =
                format!("the memory lies at {id} of location type {place}, which is no device known here");
            site.refuse(ErrorKind::NotSupported, CALL, detail)
        })?;
        let handle_type = match handle_bits {
            bits if bits & FABRIC != 0 => HandleType::Fabric,
            bits if bits & POSIX_FD != 0 => HandleType::PosixFd,
            _ => HandleType::None,
        };
        Ok(Memory { device, bytes: None, handle_type })
    }

    /// Takes a handle that the driver just answered into the books, or gives it up again.
    fn adopt(&self, site: Site<'_>, raw: u64, known: Option<Memory>) -> Result<PhysicalHandle> {
        let known = known.or_else(|| self.physical.memory(raw));
        let memory = known.map_or_else(|| self.ask_memory(site, raw), Ok);
        let memory = memory.inspect_err(|_| {
            // SAFETY: the reference was just taken, and nobody knows it yet.
            log_undo(unsafe { call!(site.cuMemRelease(raw)) });
        })?;
        self.physical.add(raw, memory);
        Ok(self.physical_handle(raw))
    }
}

impl VirtualMemory for Cuda {
    fn granularity(&self, device: DeviceIndex, which: Granularity) -> Result<u64> {
        let entered = self.enter(device, "cuMemGetAllocationGranularity")?;
        let properties = self.allocation_properties(*entered, HandleType::None)?;
        let which = match which {
            Granularity::Minimum => CUmemAllocationGranularity_flags::CU_MEM_ALLOC_GRANULARITY_MINIMUM,
            Granularity::Recommended => {
                CUmemAllocationGranularity_flags::CU_MEM_ALLOC_GRANULARITY_RECOMMENDED
            }
        } as c_uint;
        let mut bytes = 0;
        // SAFETY: the function writes one integer and reads the properties.
        unsafe {
            call!(entered.cuMemGetAllocationGranularity(&raw mut bytes, &raw const properties, which))
        }?;
        Ok(bytes as u64)
    }

    fn reserve_address(
        &self,
        device: DeviceIndex,
        bytes: u64,
        alignment: u64,
        hint: DevicePtr,
    ) -> Result<DevicePtr> {
        let entered = self.enter(device, "cuMemAddressReserve")?;
        positive(*entered, "cuMemAddressReserve", bytes)?;
        let mut at = 0;
        // SAFETY: the function writes one address.
        unsafe {
            call!(entered.cuMemAddressReserve(&raw mut at, bytes as usize, alignment as usize, hint.0, 0))
        }
        .map_err(no_memory_taken)?;
        self.physical.reserved(at, bytes, device);
        Ok(DevicePtr(at))
    }

    unsafe fn release_address(&self, base: DevicePtr, bytes: u64) -> Result<()> {
        let release = || {
            let entered = self.enter(self.device_of_range(base)?, "cuMemAddressFree")?;
            // The driver promises no check of its own.
            if self.physical.is_mapped_in(base.0, bytes) {
                let detail = format!("something is mapped in the {bytes} bytes at {base}");
                return Err(entered.invalid("cuMemAddressFree", detail));
            }
            let taken = self.physical.take_reservation(base.0);
            // SAFETY: rule 3, which the caller keeps; nothing is mapped in the range.
            unsafe { call!(entered.cuMemAddressFree(base.0, bytes as usize)) }.inspect_err(|_| {
                if let Some(reservation) = taken {
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
        if handle_type == HandleType::Fabric {
            self.probes.fabric.answer("fabric handles", || self.probe_fabric())?;
        }
        self.create(device, bytes, handle_type)
    }

    unsafe fn release_physical(&self, handle: PhysicalHandle) -> Result<()> {
        let release = || {
            const CALL: &str = "cuMemRelease";
            let entered = self.enter(self.memory_of(handle, CALL)?.device, CALL)?;
            let memory = self.physical.take(handle.raw).ok_or_else(|| no_handle(CALL))?;
            // SAFETY: rule 1, and the caller uses the handle no more.
            unsafe { call!(entered.cuMemRelease(handle.raw)) }
                .inspect_err(|_| self.physical.add(handle.raw, memory))
        };
        given_back(release())
    }

    unsafe fn map(&self, at: DevicePtr, bytes: u64, handle: PhysicalHandle) -> Result<()> {
        let memory = self.memory_of(handle, "cuMemMap")?;
        let entered = self.enter(memory.device, "cuMemMap")?;
        positive(*entered, "cuMemMap", bytes)?;
        if memory.bytes.is_some_and(|whole| whole != bytes) {
            return Err(entered.invalid("cuMemMap", "a handle is mapped whole: the size must be its size"));
        }
        // SAFETY: the caller promises a free range in one reservation; rule 1 for the handle.
        unsafe { call!(entered.cuMemMap(at.0, bytes as usize, 0, handle.raw, 0)) }?;
        self.physical.mapped(at.0, bytes, handle.raw);
        Ok(())
    }

    unsafe fn unmap(&self, at: DevicePtr, bytes: u64) -> Result<()> {
        let unmap = || {
            let entered = self.enter(self.device_of_range(at)?, "cuMemUnmap")?;
            positive(*entered, "cuMemUnmap", bytes)?;
            let taken = self.physical.take_mappings(at.0, bytes);
            // SAFETY: rule 3, which the caller keeps.
            unsafe { call!(entered.cuMemUnmap(at.0, bytes as usize)) }
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
        let entered = self.enter(self.device_of_range(at)?, "cuMemSetAccess")?;
        positive(*entered, "cuMemSetAccess", bytes)?;
        let flags = match access {
            Access::None => CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_NONE,
            Access::Read => CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READ,
            Access::ReadWrite => CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
        };
        let wanted: Result<Vec<_>> = devices
            .iter()
            .map(|&device| Ok(CUmemAccessDesc { location: self.location(device)?, flags }))
            .collect();
        let wanted = wanted?;
        if wanted.is_empty() {
            return Ok(());
        }
        // SAFETY: the caller promises a mapped range; the pointer and the count are one slice's.
        unsafe { call!(entered.cuMemSetAccess(at.0, bytes as usize, wanted.as_ptr(), wanted.len())) }
    }

    fn access(&self, at: DevicePtr, device: DeviceIndex) -> Result<Access> {
        let entered = self.enter(device, "cuMemGetAccess")?;
        let location = self.location(device)?;
        let mut flags = 0;
        // SAFETY: the function writes one integer, and refuses an address where nothing is mapped.
        unsafe { call!(entered.cuMemGetAccess(&raw mut flags, &raw const location, at.0)) }?;
        match flags {
            0 => Ok(Access::None),
            1 => Ok(Access::Read),
            3 => Ok(Access::ReadWrite),
            other => {
                let detail = format!("the driver answers access {other}, which is not known here");
                Err(entered.refuse(ErrorKind::Other, "cuMemGetAccess", detail))
            }
        }
    }

    fn retain_physical(&self, at: DevicePtr) -> Result<PhysicalHandle> {
        let entered = self.enter(self.device_of_range(at)?, "cuMemRetainAllocationHandle")?;
        let known = self.physical.memory_at(at.0);
        let mut raw = 0;
        // SAFETY: the function writes one handle, and refuses an address where nothing is mapped.
        unsafe { call!(entered.cuMemRetainAllocationHandle(&raw mut raw, pointer(at.0))) }?;
        self.adopt(*entered, raw, known)
    }

    fn physical_properties(&self, handle: PhysicalHandle) -> Result<PhysicalProperties> {
        const CALL: &str = "cuMemGetAllocationPropertiesFromHandle";
        let memory = self.memory_of(handle, CALL)?;
        let bytes = memory.bytes.ok_or_else(|| {
            let detail = "the driver does not tell the size of an imported handle; it is known once mapped";
            BackendError::new(ErrorKind::NotSupported, 0, CALL, memory.device, detail)
        })?;
        Ok(PhysicalProperties { device: memory.device, bytes, handle_type: memory.handle_type })
    }
}

impl PhysicalSharing for Cuda {
    fn export_physical(&self, handle: PhysicalHandle, handle_type: HandleType) -> Result<ShareableHandle> {
        const CALL: &str = "cuMemExportToShareableHandle";
        let memory = self.memory_of(handle, CALL)?;
        let entered = self.enter(memory.device, CALL)?;
        if handle_type == HandleType::None || handle_type != memory.handle_type {
            let detail = format!(
                "the handle was created as {:?} and is to be exported as {handle_type:?}",
                memory.handle_type
            );
            return Err(entered.refuse(ErrorKind::NotSupported, CALL, detail));
        }
        let bits = handle_bits(*entered, handle_type)?;
        if handle_type == HandleType::Fabric {
            let mut bytes = [0_u8; 64];
            let out: *mut c_void = bytes.as_mut_ptr().cast();
            // SAFETY: for this type the function writes 64 bytes.
            unsafe { call!(entered.cuMemExportToShareableHandle(out, handle.raw, bits, 0)) }
                .map_err(no_memory_taken)?;
            return Ok(ShareableHandle::Fabric(bytes));
        }
        let mut descriptor: c_int = -1;
        let out: *mut c_void = (&raw mut descriptor).cast();
        // SAFETY: for this type the function writes one descriptor.
        unsafe { call!(entered.cuMemExportToShareableHandle(out, handle.raw, bits, 0)) }
            .map_err(no_memory_taken)?;
        if descriptor < 0 {
            return Err(entered.refuse(ErrorKind::Other, CALL, "the driver answered no descriptor"));
        }
        // SAFETY: the descriptor was just opened for the caller, who owns it.
        Ok(ShareableHandle::PosixFd(unsafe { OwnedFd::from_raw_fd(descriptor) }))
    }

    fn import_physical(&self, device: DeviceIndex, shared: &ShareableHandle) -> Result<PhysicalHandle> {
        let entered = self.enter(device, "cuMemImportFromShareableHandle")?;
        let mut fabric: [u8; 64];
        let (from, bits): (*mut c_void, c_uint) = match shared {
            // The descriptor is passed by value, in the place of the pointer.
            ShareableHandle::PosixFd(fd) => (ptr::without_provenance_mut(fd.as_raw_fd() as usize), POSIX_FD),
            ShareableHandle::Fabric(bytes) => {
                fabric = *bytes;
                (fabric.as_mut_ptr().cast(), FABRIC)
            }
        };
        let mut raw = 0;
        // SAFETY: the function writes one handle, and reads what is usual for the type; it refuses what no
        // driver exported.
        unsafe { call!(entered.cuMemImportFromShareableHandle(&raw mut raw, from, bits)) }
            .map_err(no_memory_taken)?;
        self.adopt(*entered, raw, None)
    }
}

fn handle_bits(site: Site<'_>, handle_type: HandleType) -> Result<c_uint> {
    match handle_type {
        HandleType::None => Ok(NO_HANDLE),
        HandleType::PosixFd => Ok(POSIX_FD),
        HandleType::Fabric => Ok(FABRIC),
        other => {
            let detail = format!("{other:?} handles are not known here");
            Err(site.refuse(ErrorKind::NotSupported, "cuMemCreate", detail))
        }
    }
}

fn no_handle(call: &'static str) -> BackendError {
    let detail = "the physical handle is not, or no longer, one of this backend";
    BackendError::new(ErrorKind::InvalidValue, 0, call, DeviceIndex(0), detail)
}

/// "Out of memory" from a call that takes no device memory: addresses or descriptors ran out, and emptying a
/// cache would not help.
fn no_memory_taken(error: BackendError) -> BackendError {
    match error.kind {
        ErrorKind::OutOfMemory => BackendError { kind: ErrorKind::ResourceLimit, ..error },
        _ => error,
    }
}
