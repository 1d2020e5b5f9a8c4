//! Virtual memory, and physical memory for other processes.

use crate::library::CudaDriver;
use backend_api::types::{DeviceIndex, DevicePtr};
use backend_api::{Access, ErrorKind, Granularity, Result};
use backend_support::{Context, Driver, Mapping, Site, VirtualMemoryCalls, call};
use cudarc::driver::sys::{
    CUmemAccess_flags, CUmemAccessDesc, CUmemAllocationGranularity_flags, CUmemAllocationHandleType,
    CUmemAllocationProp, CUmemAllocationProp_st__bindgen_ty_1 as AllocationFlags, CUmemAllocationType,
    CUmemLocation, CUmemLocationType,
};
use std::ffi::{c_int, c_uint, c_ulonglong, c_void};
use std::os::fd::{AsRawFd, BorrowedFd};
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

/// What memory of the site's device is to be.
fn properties(site: Site<'_, CudaDriver>, handle_type: c_uint, rdma: bool) -> Result<CUmemAllocationProp> {
    Ok(CUmemAllocationProp {
        type_: CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED,
        requestedHandleTypes: CUmemAllocationHandleType(handle_type),
        location: location(site.driver(), site.device())?,
        win32HandleMetaData: ptr::null_mut(),
        allocFlags: AllocationFlags {
            compressionType: 0,
            gpuDirectRDMACapable: u8::from(rdma),
            usage: 0,
            reserved: [0; 4],
        },
    })
}

fn location(driver: &CudaDriver, device: DeviceIndex) -> Result<CUmemLocation> {
    let id = driver.device(device)?.number;
    Ok(CUmemLocation { type_: CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE, id })
}

fn import(site: Site<'_, CudaDriver>, from: *mut c_void, handle_type: c_uint) -> Result<u64> {
    let mut raw = 0;
    // SAFETY: the function writes one handle, and reads what is usual for the type; it refuses what no driver exported.
    unsafe { call!(site.cuMemImportFromShareableHandle(&raw mut raw, from, handle_type)) }?;
    Ok(raw)
}

impl VirtualMemoryCalls for CudaDriver {
    type Keeps = ();

    fn granularity(site: Site<'_, Self>, which: Granularity) -> Result<u64> {
        let properties = properties(site, NO_HANDLE, false)?;
        let which = match which {
            Granularity::Minimum => CUmemAllocationGranularity_flags::CU_MEM_ALLOC_GRANULARITY_MINIMUM,
            Granularity::Recommended => {
                CUmemAllocationGranularity_flags::CU_MEM_ALLOC_GRANULARITY_RECOMMENDED
            }
        } as c_uint;
        let mut bytes = 0;
        // SAFETY: the function writes one integer and reads the properties.
        unsafe { call!(site.cuMemGetAllocationGranularity(&raw mut bytes, &raw const properties, which)) }?;
        Ok(bytes as u64)
    }

    fn reserve_addresses(site: Site<'_, Self>, bytes: usize, alignment: usize, hint: u64) -> Result<u64> {
        let mut at = 0;
        // SAFETY: the function writes one address.
        unsafe { call!(site.cuMemAddressReserve(&raw mut at, bytes, alignment, hint, 0)) }?;
        Ok(at)
    }

    unsafe fn free_addresses(site: Site<'_, Self>, at: u64, bytes: usize) -> Result<()> {
        // SAFETY: rule 3, which the caller keeps; nothing is mapped in the range.
        unsafe { call!(site.cuMemAddressFree(at, bytes)) }
    }

    fn create_physical(site: Site<'_, Self>, bytes: usize, handle_type: c_uint, rdma: bool) -> Result<u64> {
        let properties = properties(site, handle_type, rdma)?;
        let mut raw = 0;
        // SAFETY: the function writes one handle and reads the properties.
        unsafe { call!(site.cuMemCreate(&raw mut raw, bytes, &raw const properties, 0)) }?;
        Ok(raw)
    }

    unsafe fn release_physical(site: Site<'_, Self>, handle: u64) -> Result<()> {
        // SAFETY: rule 1, and the caller uses the handle no more.
        unsafe { call!(site.cuMemRelease(handle)) }
    }

    unsafe fn map(site: Site<'_, Self>, at: u64, bytes: usize, handle: u64) -> Result<()> {
        // SAFETY: the caller promises a free range in one reservation; rule 1 for the handle.
        unsafe { call!(site.cuMemMap(at, bytes, 0, handle, 0)) }
    }

    unsafe fn unmap(site: Site<'_, Self>, at: u64, bytes: usize, _mappings: &[Mapping<()>]) -> Result<()> {
        // SAFETY: rule 3, which the caller keeps.
        unsafe { call!(site.cuMemUnmap(at, bytes)) }
    }

    unsafe fn set_access(
        site: Site<'_, Self>,
        at: u64,
        bytes: usize,
        _mappings: &[Mapping<()>],
        devices: &[DeviceIndex],
        access: Access,
    ) -> Result<()> {
        let flags = match access {
            Access::None => CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_NONE,
            Access::Read => CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READ,
            Access::ReadWrite => CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
        };
        let wanted: Result<Vec<_>> = devices
            .iter()
            .map(|&device| Ok(CUmemAccessDesc { location: location(site.driver(), device)?, flags }))
            .collect();
        let wanted = wanted?;
        if wanted.is_empty() {
            return Ok(());
        }
        // SAFETY: the caller promises a mapped range; the pointer and the count are one slice's.
        unsafe { call!(site.cuMemSetAccess(at, bytes, wanted.as_ptr(), wanted.len())) }
    }

    fn access(site: Site<'_, Self>, at: DevicePtr) -> Result<c_ulonglong> {
        let location = location(site.driver(), site.device())?;
        let mut flags = 0;
        // SAFETY: the function writes one integer, and refuses an address where nothing is mapped.
        unsafe { call!(site.cuMemGetAccess(&raw mut flags, &raw const location, at.0)) }?;
        Ok(flags)
    }

    unsafe fn ask_physical(
        context: &Context<Self>,
        site: Site<'_, Self>,
        handle: u64,
    ) -> Result<(DeviceIndex, c_uint)> {
        const CALL: &str = "cuMemGetAllocationPropertiesFromHandle";
        let mut answer = PropertyWords::default();
        // SAFETY: the function fills the properties, for which there is room.
        unsafe { call!(site.cuMemGetAllocationPropertiesFromHandle((&raw mut answer).cast(), handle)) }?;
        let [_, handle_types, place, id, ..] = answer.0;
        let on_device = place == CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE as c_uint;
        let number = c_int::try_from(id).ok().filter(|_| on_device);
        let device = number.and_then(|number| context.driver().index_of(number)).ok_or_else(|| {
            let detail =
                format!("the memory lies at {id} of location type {place}, which is no device known here");
            site.refuse(ErrorKind::NotSupported, CALL, detail)
        })?;
        Ok((device, handle_types))
    }

    unsafe fn export_physical(
        site: Site<'_, Self>,
        handle: u64,
        handle_type: c_uint,
        out: *mut c_void,
    ) -> Result<()> {
        // SAFETY: the caller's handle and room.
        unsafe { call!(site.cuMemExportToShareableHandle(out, handle, handle_type, 0)) }
    }

    fn import_descriptor(site: Site<'_, Self>, descriptor: BorrowedFd<'_>) -> Result<u64> {
        // The descriptor is passed by value, in the place of the pointer.
        import(site, ptr::without_provenance_mut(descriptor.as_raw_fd() as usize), POSIX_FD)
    }

    fn import_fabric(site: Site<'_, Self>, mut bytes: [u8; 64]) -> Result<u64> {
        import(site, bytes.as_mut_ptr().cast(), FABRIC)
    }
}
