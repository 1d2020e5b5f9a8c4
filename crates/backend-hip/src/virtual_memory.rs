//! Virtual memory, and physical memory for other processes.

use crate::descriptors::{Descriptors, out_of_descriptors};
use crate::layout::{location, properties_of, takes_descriptor_by_value};
use crate::library::HipDriver;
use crate::mapping::{set_access_of_each, unmap_each};
use backend_api::types::{DeviceIndex, DevicePtr};
use backend_api::{Access, ErrorKind, Granularity, Result};
use backend_support::{Context, Driver, Mapping, Site, VirtualMemoryCalls, call, number, pointer};
use granule_hip_sys::abi7 as abi;
use std::ffi::{c_uint, c_ulonglong, c_void};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr;

const _: () = {
    assert!(abi::hipMemHandleTypeNone == 0);
    assert!(abi::hipMemHandleTypePosixFileDescriptor == 1);
    assert!(abi::hipMemHandleTypeFabric == 8);
};

fn import(
    site: Site<'_, HipDriver>,
    from: *mut c_void,
    handle_type: abi::hipMemAllocationHandleType,
) -> Result<u64> {
    let mut handle = ptr::null_mut();
    // SAFETY: the function writes one handle, and reads what is usual for the type and the version; it refuses
    // what no runtime exported.
    unsafe { call!(site.hipMemImportFromShareableHandle(&raw mut handle, from, handle_type)) }
        .map_err(out_of_descriptors)?;
    Ok(number(handle))
}

impl VirtualMemoryCalls for HipDriver {
    type Keeps = Descriptors;

    fn granularity(site: Site<'_, Self>, which: Granularity) -> Result<u64> {
        let which = match which {
            Granularity::Minimum => abi::hipMemAllocationGranularityMinimum,
            Granularity::Recommended => abi::hipMemAllocationGranularityRecommended,
        };
        let ask = |handle_type| -> Result<u64> {
            let properties = properties_of(site.device(), handle_type, false);
            let mut bytes = 0;
            // SAFETY: the function writes one integer and reads the properties, which are in its layout.
            unsafe {
                call!(site.hipMemGetAllocationGranularity(&raw mut bytes, &raw const properties, which))
            }?;
            Ok(bytes as u64)
        };
        // It depends on the handle type; the larger one, a multiple of the other, serves both.
        let plain = ask(abi::hipMemHandleTypeNone)?;
        match ask(abi::hipMemHandleTypePosixFileDescriptor) {
            Ok(shared) => Ok(plain.max(shared)),
            Err(error) if matches!(error.kind, ErrorKind::InvalidValue | ErrorKind::NotSupported) => {
                Ok(plain)
            }
            Err(error) => Err(error),
        }
    }

    fn reserve_addresses(site: Site<'_, Self>, bytes: usize, alignment: usize, hint: u64) -> Result<u64> {
        let (mut at, hint) = (ptr::null_mut(), pointer(hint));
        // SAFETY: the function writes one address.
        unsafe { call!(site.hipMemAddressReserve(&raw mut at, bytes, alignment, hint, 0)) }
            .map_err(out_of_descriptors)?;
        Ok(number(at))
    }

    unsafe fn free_addresses(site: Site<'_, Self>, at: u64, bytes: usize) -> Result<()> {
        // SAFETY: rule 3, which the caller keeps; nothing is mapped in the range.
        unsafe { call!(site.hipMemAddressFree(pointer(at), bytes)) }
    }

    fn create_physical(site: Site<'_, Self>, bytes: usize, handle_type: c_uint, rdma: bool) -> Result<u64> {
        let properties = properties_of(site.device(), handle_type, rdma);
        let mut handle = ptr::null_mut();
        // SAFETY: the function writes one handle and reads the properties, which are in its layout.
        unsafe { call!(site.hipMemCreate(&raw mut handle, bytes, &raw const properties, 0)) }
            .map_err(out_of_descriptors)?;
        Ok(number(handle))
    }

    unsafe fn release_physical(site: Site<'_, Self>, handle: u64) -> Result<()> {
        // SAFETY: rule 1, and the caller uses the handle no more.
        unsafe { call!(site.hipMemRelease(pointer(handle))) }
    }

    unsafe fn map(site: Site<'_, Self>, at: u64, bytes: usize, handle: u64) -> Result<()> {
        // SAFETY: the caller promises a free range in one reservation; rule 1 for the handle.
        unsafe { call!(site.hipMemMap(pointer(at), bytes, 0, pointer(handle), 0)) }
    }

    unsafe fn unmap(
        site: Site<'_, Self>,
        _at: u64,
        _bytes: usize,
        mappings: &[Mapping<Descriptors>],
    ) -> Result<()> {
        unmap_each(site, mappings)
    }

    unsafe fn set_access(
        site: Site<'_, Self>,
        _at: u64,
        _bytes: usize,
        mappings: &[Mapping<Descriptors>],
        devices: &[DeviceIndex],
        access: Access,
    ) -> Result<()> {
        set_access_of_each(site, mappings, devices, access)
    }

    fn access(site: Site<'_, Self>, at: DevicePtr) -> Result<c_ulonglong> {
        let location = location(site.device());
        let mut flags = 0;
        // SAFETY: the function writes one integer, and refuses an address where nothing is mapped.
        unsafe { call!(site.hipMemGetAccess(&raw mut flags, &raw const location, pointer(at.0))) }?;
        Ok(flags)
    }

    unsafe fn ask_physical(
        context: &Context<Self>,
        site: Site<'_, Self>,
        handle: u64,
    ) -> Result<(DeviceIndex, c_uint)> {
        const CALL: &str = "hipMemGetAllocationPropertiesFromHandle";
        let mut answer = properties_of(site.device(), abi::hipMemHandleTypeNone, false);
        // SAFETY: rule 1; the function fills the properties.
        unsafe { call!(site.hipMemGetAllocationPropertiesFromHandle(&raw mut answer, pointer(handle))) }?;
        let location = answer.location.id;
        let device = context.driver().index_of(location).ok_or_else(|| {
            let detail = format!("the memory lies at location {location}, which is no device known here");
            site.refuse(ErrorKind::NotSupported, CALL, detail)
        })?;
        Ok((device, answer.requestedHandleType))
    }

    unsafe fn export_physical(
        site: Site<'_, Self>,
        handle: u64,
        handle_type: c_uint,
        out: *mut c_void,
    ) -> Result<()> {
        // SAFETY: the caller's handle and room.
        unsafe { call!(site.hipMemExportToShareableHandle(out, pointer(handle), handle_type, 0)) }
            .map_err(out_of_descriptors)
    }

    fn import_descriptor(site: Site<'_, Self>, descriptor: BorrowedFd<'_>) -> Result<u64> {
        let mut descriptor = descriptor.as_raw_fd();
        let from = if takes_descriptor_by_value(site.driver().version) {
            ptr::without_provenance_mut(descriptor as usize)
        } else {
            (&raw mut descriptor).cast()
        };
        import(site, from, abi::hipMemHandleTypePosixFileDescriptor)
    }

    fn import_fabric(site: Site<'_, Self>, mut bytes: [u8; 64]) -> Result<u64> {
        import(site, bytes.as_mut_ptr().cast(), abi::hipMemHandleTypeFabric)
    }
}
