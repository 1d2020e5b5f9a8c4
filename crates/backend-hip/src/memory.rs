//! Memory that the runtime hands out: device memory and page-locked host memory.

use crate::error::INVALID_DEVICE_POINTER;
use crate::library::HipDriver;
use backend_api::types::{DeviceIndex, DevicePtr, Stream};
use backend_api::{AddressRange, CopyKind, HostFlags, MemoryInfo, PointerInfo, PointerKind, Result};
use backend_support::errors::{INVALID_VALUE, NOT_FOUND};
use backend_support::{Context, Driver, HostCalls, MemoryCalls, Site, call, number, pointer};
use granule_hip_sys::abi6;
use granule_hip_sys::abi6::{
    hipMemcpyDeviceToDevice, hipMemcpyDeviceToHost, hipMemcpyHostToDevice, hipMemcpyHostToHost,
    hipMemcpyKind, hipMemoryType, hipPointerAttribute_t,
};
use std::ptr;

/// What a kind of memory means. None for memory that the runtime does not know.
fn kind_of(number: hipMemoryType, managed: bool) -> Option<PointerKind> {
    let kind = match number {
        abi6::hipMemoryTypeHost => PointerKind::Host,
        abi6::hipMemoryTypeDevice | abi6::hipMemoryTypeArray => PointerKind::Device,
        abi6::hipMemoryTypeManaged | abi6::hipMemoryTypeUnified => PointerKind::Managed,
        _ => return None,
    };
    Some(if managed { PointerKind::Managed } else { kind })
}

const fn driver_kind(kind: CopyKind) -> hipMemcpyKind {
    match kind {
        CopyKind::HostToHost => hipMemcpyHostToHost,
        CopyKind::HostToDevice => hipMemcpyHostToDevice,
        CopyKind::DeviceToHost => hipMemcpyDeviceToHost,
        CopyKind::DeviceToDevice => hipMemcpyDeviceToDevice,
    }
}

impl MemoryCalls for HipDriver {
    fn malloc(site: Site<'_, Self>, bytes: usize) -> Result<u64> {
        let mut ptr = ptr::null_mut();
        // SAFETY: the function writes one address.
        unsafe { call!(site.hipMalloc(&raw mut ptr, bytes)) }?;
        Ok(number(ptr))
    }

    unsafe fn free(site: Site<'_, Self>, ptr: u64) -> Result<()> {
        // SAFETY: rule 3, which the caller keeps.
        unsafe { call!(site.hipFree(pointer(ptr))) }
    }

    fn memory_info(site: Site<'_, Self>) -> Result<MemoryInfo> {
        let (mut free, mut total) = (0, 0);
        // SAFETY: the function writes two integers.
        unsafe { call!(site.hipMemGetInfo(&raw mut free, &raw mut total)) }?;
        Ok(MemoryInfo { free: free as u64, total: total as u64 })
    }

    fn pointer_info(context: &Context<Self>, ptr: DevicePtr) -> Result<PointerInfo> {
        const CALL: &str = "hipPointerGetAttributes";
        const UNMANAGED: PointerInfo =
            PointerInfo { kind: PointerKind::Unmanaged, device: None, base: DevicePtr::NULL };
        if ptr.is_null() {
            return Ok(UNMANAGED);
        }
        let site = context.site(context.device_of_thread()?, CALL)?;
        let Some(attributes) = pointer_attributes(site, ptr)? else {
            return Ok(UNMANAGED);
        };
        let managed = attributes.isManaged != 0;
        let Some(kind) = kind_of(attributes.type_, managed) else {
            return Ok(UNMANAGED);
        };
        let device = match kind {
            PointerKind::Host => None,
            _ => Some(site.driver().index_of(attributes.device).ok_or_else(|| {
                let detail =
                    format!("{ptr} belongs to device {}, which is not known here", attributes.device);
                site.invalid(CALL, detail)
            })?),
        };
        Ok(PointerInfo { kind, device, base: address_range(site, ptr)?.base })
    }

    fn address_range(context: &Context<Self>, ptr: DevicePtr) -> Result<AddressRange> {
        const CALL: &str = "hipMemGetAddressRange";
        let site = context.site(context.device_of_thread()?, CALL)?;
        let nothing = || site.invalid(CALL, format!("nothing is allocated at {ptr}"));
        if ptr.is_null() {
            return Err(nothing());
        }
        address_range(site, ptr).map_err(|failed| match failed.code {
            NOT_FOUND | INVALID_DEVICE_POINTER => nothing(),
            _ => failed,
        })
    }

    fn device_of(context: &Context<Self>, ptr: DevicePtr) -> Result<Option<DeviceIndex>> {
        Ok(Self::pointer_info(context, ptr)?.device)
    }

    unsafe fn copy(
        site: Site<'_, Self>,
        dst: DevicePtr,
        src: DevicePtr,
        bytes: usize,
        kind: CopyKind,
    ) -> Result<()> {
        // SAFETY: rule 2 for both ranges, and the caller says truly which side is what.
        unsafe { call!(site.hipMemcpy(pointer(dst.0), pointer(src.0), bytes, driver_kind(kind))) }
    }

    unsafe fn copy_async(
        site: Site<'_, Self>,
        dst: DevicePtr,
        src: DevicePtr,
        bytes: usize,
        kind: CopyKind,
        stream: Stream,
    ) -> Result<()> {
        let (to, from, kind) = (pointer(dst.0), pointer(src.0), driver_kind(kind));
        // SAFETY: rule 2 for both ranges until the stream has passed it, and the caller says truly which side
        // is what.
        unsafe { call!(site.hipMemcpyAsync(to, from, bytes, kind, pointer(stream.raw))) }
    }

    unsafe fn memset_async(
        site: Site<'_, Self>,
        dst: DevicePtr,
        value: u8,
        bytes: usize,
        stream: Stream,
    ) -> Result<()> {
        let queue = pointer(stream.raw);
        // SAFETY: rule 2 for the range until the stream has passed it.
        unsafe { call!(site.hipMemsetAsync(pointer(dst.0), i32::from(value), bytes, queue)) }
    }
}

/// None where the runtime does not know the address: it answers a kind of its own or an error.
fn pointer_attributes(site: Site<'_, HipDriver>, ptr: DevicePtr) -> Result<Option<hipPointerAttribute_t>> {
    let mut found = hipPointerAttribute_t {
        type_: 0,
        device: 0,
        devicePointer: ptr::null_mut(),
        hostPointer: ptr::null_mut(),
        isManaged: 0,
        allocationFlags: 0,
    };
    // SAFETY: the function fills the struct; it takes any address.
    match unsafe { call!(site.hipPointerGetAttributes(&raw mut found, pointer(ptr.0))) } {
        Ok(()) => Ok(Some(found)),
        Err(failed) if matches!(failed.code, INVALID_VALUE | INVALID_DEVICE_POINTER) => Ok(None),
        Err(failed) => Err(failed),
    }
}

fn address_range(site: Site<'_, HipDriver>, ptr: DevicePtr) -> Result<AddressRange> {
    // The function writes both answers, wanted or not.
    let (mut base, mut bytes) = (ptr::null_mut(), 0);
    // SAFETY: the function writes an address and an integer; it takes any address.
    unsafe { call!(site.hipMemGetAddressRange(&raw mut base, &raw mut bytes, pointer(ptr.0))) }?;
    Ok(AddressRange { base: DevicePtr(number(base)), bytes: bytes as u64 })
}

// The runtime's bits are those of `HostFlags`: 1 portable, 2 mapped, and for new memory 4 write-combined.
impl HostCalls for HipDriver {
    fn host_malloc(site: Site<'_, Self>, bytes: usize, flags: HostFlags) -> Result<u64> {
        let mut memory = ptr::null_mut();
        // SAFETY: the function writes one address.
        unsafe { call!(site.hipHostMalloc(&raw mut memory, bytes, flags.bits())) }?;
        Ok(number(memory))
    }

    unsafe fn host_free(site: Site<'_, Self>, ptr: u64) -> Result<()> {
        // SAFETY: rule 3, which the caller keeps.
        unsafe { call!(site.hipHostFree(pointer(ptr))) }
    }

    unsafe fn register(site: Site<'_, Self>, ptr: u64, bytes: usize, flags: HostFlags) -> Result<()> {
        // SAFETY: the caller promises that the range is host memory until it is unregistered.
        unsafe { call!(site.hipHostRegister(pointer(ptr), bytes, flags.bits())) }
    }

    unsafe fn unregister(site: Site<'_, Self>, ptr: u64) -> Result<()> {
        // SAFETY: rule 3, which the caller keeps; the runtime refuses what is not registered.
        unsafe { call!(site.hipHostUnregister(pointer(ptr))) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_of_memory_have_the_runtimes_numbers() {
        use PointerKind::{Device, Host, Managed};
        let kinds = [None, Some(Host), Some(Device), Some(Managed), None];
        for (number, kind) in (0..).zip(kinds) {
            assert_eq!(kind_of(number, false), kind, "{number}");
        }
        assert_eq!(kind_of(10, false), Some(Device));
        assert_eq!(kind_of(11, false), Some(Managed));
    }

    #[test]
    fn managed_memory_is_told_by_its_flag_too() {
        assert_eq!(kind_of(2, true), Some(PointerKind::Managed));
        assert_eq!(kind_of(0, true), None, "unregistered memory has no kind");
    }
}
