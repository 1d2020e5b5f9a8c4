//! Memory that the driver hands out: device memory and page-locked host memory.

use crate::library::CudaDriver;
use backend_api::types::{DeviceIndex, DevicePtr, Stream};
use backend_api::{
    AddressRange, CopyKind, ErrorKind, HostFlags, MemoryInfo, PointerInfo, PointerKind, Result,
};
use backend_support::errors::{INVALID_CONTEXT, INVALID_VALUE, NOT_FOUND};
use backend_support::{Context, HostCalls, MemoryCalls, Site, call, number, pointer};
use cudarc::driver::sys::{CUmemorytype, CUpointer_attribute};
use std::ffi::{c_int, c_uint};
use std::ptr;

use CUpointer_attribute as Asked;

impl MemoryCalls for CudaDriver {
    fn malloc(site: Site<'_, Self>, bytes: usize) -> Result<u64> {
        let mut ptr = 0;
        // SAFETY: the function writes one address.
        unsafe { call!(site.cuMemAlloc_v2(&raw mut ptr, bytes)) }?;
        Ok(ptr)
    }

    unsafe fn free(site: Site<'_, Self>, ptr: u64) -> Result<()> {
        // SAFETY: rule 3, which the caller keeps; the driver refuses what it did not hand out.
        unsafe { call!(site.cuMemFree_v2(ptr)) }
    }

    fn memory_info(site: Site<'_, Self>) -> Result<MemoryInfo> {
        let (mut free, mut total) = (0, 0);
        // SAFETY: the function writes two integers.
        unsafe { call!(site.cuMemGetInfo_v2(&raw mut free, &raw mut total)) }?;
        Ok(MemoryInfo { free: free as u64, total: total as u64 })
    }

    fn pointer_info(context: &Context<Self>, ptr: DevicePtr) -> Result<PointerInfo> {
        with_some_context(context, "cuPointerGetAttribute", |site| {
            let asked: Result<c_uint> = pointer_attribute(site, Asked::CU_POINTER_ATTRIBUTE_MEMORY_TYPE, ptr);
            let memory_type = match asked {
                Ok(memory_type) => memory_type,
                // The driver's words for an address it does not know, and for a process that has no memory yet.
                Err(error) if matches!(error.code, INVALID_VALUE | INVALID_CONTEXT) => {
                    let kind = PointerKind::Unmanaged;
                    return Ok(PointerInfo { kind, device: None, base: DevicePtr::NULL });
                }
                Err(error) => return Err(error),
            };
            let managed: Result<c_uint> =
                pointer_attribute(site, Asked::CU_POINTER_ATTRIBUTE_IS_MANAGED, ptr);
            let kind = if optional(managed)?.is_some_and(|managed| managed != 0) {
                PointerKind::Managed
            } else if memory_type == CUmemorytype::CU_MEMORYTYPE_HOST as c_uint {
                PointerKind::Host
            } else {
                PointerKind::Device
            };
            let device = match kind {
                PointerKind::Host => None,
                _ => Some(device_of(site, ptr)?),
            };
            let start: Result<u64> =
                pointer_attribute(site, Asked::CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, ptr);
            let base = match optional(start)? {
                Some(base) => DevicePtr(base),
                None => address_range(site, ptr)?.base,
            };
            Ok(PointerInfo { kind, device, base })
        })
    }

    fn address_range(context: &Context<Self>, ptr: DevicePtr) -> Result<AddressRange> {
        with_some_context(context, "cuMemGetAddressRange", |site| {
            address_range(site, ptr).map_err(|error| match error.code {
                // It says so where the address lies in nothing it knows.
                NOT_FOUND => site.invalid("cuMemGetAddressRange", format!("nothing is allocated at {ptr}")),
                _ => error,
            })
        })
    }

    fn device_of(context: &Context<Self>, ptr: DevicePtr) -> Result<Option<DeviceIndex>> {
        optional(with_some_context(context, "cuPointerGetAttribute", |site| device_of(site, ptr)))
    }

    unsafe fn copy(
        site: Site<'_, Self>,
        dst: DevicePtr,
        src: DevicePtr,
        bytes: usize,
        kind: CopyKind,
    ) -> Result<()> {
        match kind {
            // SAFETY: rule 2 for both ranges, and the caller says truly which side is what.
            CopyKind::HostToHost => unsafe { call!(site.cuMemcpy(dst.0, src.0, bytes)) },
            // SAFETY: as above.
            CopyKind::HostToDevice => unsafe { call!(site.cuMemcpyHtoD_v2(dst.0, pointer(src.0), bytes)) },
            // SAFETY: as above.
            CopyKind::DeviceToHost => unsafe { call!(site.cuMemcpyDtoH_v2(pointer(dst.0), src.0, bytes)) },
            // SAFETY: as above.
            CopyKind::DeviceToDevice => unsafe { call!(site.cuMemcpyDtoD_v2(dst.0, src.0, bytes)) },
        }
    }

    unsafe fn copy_async(
        site: Site<'_, Self>,
        dst: DevicePtr,
        src: DevicePtr,
        bytes: usize,
        kind: CopyKind,
        stream: Stream,
    ) -> Result<()> {
        let queue = pointer(stream.raw);
        match kind {
            // SAFETY: rule 2 for both ranges until the stream has passed it, and the caller says truly which
            // side is what.
            CopyKind::HostToHost => unsafe { call!(site.cuMemcpyAsync(dst.0, src.0, bytes, queue)) },
            // SAFETY: as above.
            CopyKind::HostToDevice => unsafe {
                call!(site.cuMemcpyHtoDAsync_v2(dst.0, pointer(src.0), bytes, queue))
            },
            // SAFETY: as above.
            CopyKind::DeviceToHost => unsafe {
                call!(site.cuMemcpyDtoHAsync_v2(pointer(dst.0), src.0, bytes, queue))
            },
            // SAFETY: as above.
            CopyKind::DeviceToDevice => unsafe {
                call!(site.cuMemcpyDtoDAsync_v2(dst.0, src.0, bytes, queue))
            },
        }
    }

    unsafe fn memset_async(
        site: Site<'_, Self>,
        dst: DevicePtr,
        value: u8,
        bytes: usize,
        stream: Stream,
    ) -> Result<()> {
        // SAFETY: rule 2 for the range until the stream has passed it.
        unsafe { call!(site.cuMemsetD8Async(dst.0, value, bytes, pointer(stream.raw))) }
    }
}

/// Asks with a context current where one exists, without creating any: where there is none, there is no memory to ask
/// about either.
fn with_some_context<T>(
    context: &Context<CudaDriver>,
    call: &'static str,
    ask: impl FnOnce(Site<'_, CudaDriver>) -> Result<T>,
) -> Result<T> {
    match any_retained(context) {
        Some(device) => ask(*context.enter(device, call)?),
        None => ask(context.any_site(call)?),
    }
}

/// A device whose context exists because this backend retains it, one that works if there is such a one; none where
/// nothing was done yet.
fn any_retained(context: &Context<CudaDriver>) -> Option<DeviceIndex> {
    let retained = |device: &DeviceIndex| context.driver().is_retained(*device);
    let works = |device: &DeviceIndex| retained(device) && !context.is_lost(*device);
    context.devices().find(works).or_else(|| context.devices().find(retained))
}

fn device_of(site: Site<'_, CudaDriver>, ptr: DevicePtr) -> Result<DeviceIndex> {
    let ordinal: c_int = pointer_attribute(site, Asked::CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, ptr)?;
    // The attribute counts devices as `cuDeviceGet` does.
    let known = |index: &u16| usize::from(*index) < site.driver().devices.len();
    u16::try_from(ordinal).ok().filter(known).map(DeviceIndex).ok_or_else(|| {
        let detail = format!("{ptr} belongs to device {ordinal}, which is not known here");
        site.invalid("cuPointerGetAttribute", detail)
    })
}

/// One attribute of an address; `T` is the type that the driver writes for it.
pub(crate) fn pointer_attribute<T: Default>(
    site: Site<'_, CudaDriver>,
    which: Asked,
    ptr: DevicePtr,
) -> Result<T> {
    let mut value = T::default();
    // SAFETY: the driver writes a `T` for this attribute, and answers any address that it does not know.
    unsafe { call!(site.cuPointerGetAttribute((&raw mut value).cast(), which as c_uint, ptr.0)) }?;
    Ok(value)
}

/// No answer where the driver says that the address or the question is none it knows.
pub(crate) fn optional<T>(asked: Result<T>) -> Result<Option<T>> {
    match asked {
        Ok(answer) => Ok(Some(answer)),
        Err(error)
            if matches!(error.kind, ErrorKind::InvalidValue | ErrorKind::NotSupported)
                || error.code == INVALID_CONTEXT =>
        {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

fn address_range(site: Site<'_, CudaDriver>, ptr: DevicePtr) -> Result<AddressRange> {
    let (mut base, mut bytes) = (0, 0);
    // SAFETY: the function writes two integers.
    unsafe { call!(site.cuMemGetAddressRange_v2(&raw mut base, &raw mut bytes, ptr.0)) }?;
    Ok(AddressRange { base: DevicePtr(base), bytes: bytes as u64 })
}

/// Asks a second time where memory is short. On WSL2 such an error comes again with the next call (WSL 14078), whatever that asks
/// for: so it comes here, and not to a request that could be served.
fn asked_again(mut ask: impl FnMut() -> Result<()>) -> Result<()> {
    ask().or_else(|error| if error.kind == ErrorKind::OutOfMemory { ask() } else { Err(error) })
}

// The driver's bits for both ways are those of `HostFlags`: 1 portable, 2 mapped, 4 write-combined.
impl HostCalls for CudaDriver {
    fn host_malloc(site: Site<'_, Self>, bytes: usize, flags: HostFlags) -> Result<u64> {
        let mut memory = ptr::null_mut();
        asked_again(|| {
            // SAFETY: the function writes one address.
            unsafe { call!(site.cuMemHostAlloc(&raw mut memory, bytes, flags.bits())) }
        })?;
        Ok(number(memory))
    }

    unsafe fn host_free(site: Site<'_, Self>, ptr: u64) -> Result<()> {
        // SAFETY: rule 3, which the caller keeps; the driver refuses what it did not hand out.
        unsafe { call!(site.cuMemFreeHost(pointer(ptr))) }
    }

    unsafe fn register(site: Site<'_, Self>, ptr: u64, bytes: usize, flags: HostFlags) -> Result<()> {
        asked_again(|| {
            // SAFETY: the caller promises that the range is host memory until it is unregistered.
            unsafe { call!(site.cuMemHostRegister_v2(pointer(ptr), bytes, flags.bits())) }
        })
    }

    unsafe fn unregister(site: Site<'_, Self>, ptr: u64) -> Result<()> {
        // SAFETY: rule 3, which the caller keeps; the driver refuses what is not registered.
        unsafe { call!(site.cuMemHostUnregister(pointer(ptr))) }
    }
}
