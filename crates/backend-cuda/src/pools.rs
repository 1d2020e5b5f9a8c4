//! The driver's own stream-ordered pools.

use crate::cuda::Cuda;
use crate::driver::{Site, pointer};
use crate::memory::{aligned, log_undo, positive};
use backend_api::types::{DeviceIndex, DevicePtr, Stream};
use backend_api::{Attribute, DriverPoolAttribute, DriverPools, Result};
use cudarc::driver::sys::{CUmemPool_attribute, CUmemoryPool, cuuint64_t};
use std::ffi::c_uint;
use std::ptr;

fn attribute_number(which: DriverPoolAttribute) -> c_uint {
    (match which {
        DriverPoolAttribute::ReleaseThreshold => CUmemPool_attribute::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD,
        DriverPoolAttribute::ReservedCurrent => CUmemPool_attribute::CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT,
        DriverPoolAttribute::ReservedHigh => CUmemPool_attribute::CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH,
        DriverPoolAttribute::UsedCurrent => CUmemPool_attribute::CU_MEMPOOL_ATTR_USED_MEM_CURRENT,
        DriverPoolAttribute::UsedHigh => CUmemPool_attribute::CU_MEMPOOL_ATTR_USED_MEM_HIGH,
    }) as c_uint
}

impl Cuda {
    pub(crate) fn probe_driver_pools(&self) -> Result<()> {
        needs!(self: cuMemAllocAsync, cuMemFreeAsync, cuDeviceGetDefaultMemPool, cuMemPoolTrimTo,
            cuMemPoolGetAttribute, cuMemPoolSetAttribute)?;
        self.every_device_has(Attribute::MemoryPools)?;
        let _relaxed = self.relaxed()?;
        let stream = self.create_stream(self.device_of_thread()?, 0)?;
        let tried = self.malloc_async(1, stream).and_then(|memory| {
            // SAFETY: the memory is this probe's, and nothing uses it.
            unsafe { self.free_async(memory, stream) }?;
            self.synchronize_stream(stream)
        });
        // SAFETY: the stream is this probe's and is not used again.
        let destroyed = unsafe { self.destroy_stream(stream) };
        tried.and(destroyed)
    }

    /// The pool that serves a device unless the program chose another.
    fn pool(&self, site: Site<'_>) -> Result<CUmemoryPool> {
        let device = self.device(site.device(), "cuDeviceGetDefaultMemPool")?.number;
        let mut pool = ptr::null_mut();
        // SAFETY: the function writes one handle.
        unsafe { call!(site.cuDeviceGetDefaultMemPool(&raw mut pool, device)) }?;
        Ok(pool)
    }
}

impl DriverPools for Cuda {
    fn malloc_async(&self, bytes: u64, stream: Stream) -> Result<DevicePtr> {
        let entered = self.enter_handle(stream.backend, stream.device, "cuMemAllocAsync")?;
        positive(*entered, "cuMemAllocAsync", bytes)?;
        let mut ptr = 0;
        // SAFETY: rule 1; the function writes one address.
        unsafe { call!(entered.cuMemAllocAsync(&raw mut ptr, bytes as usize, pointer(stream.raw))) }?;
        aligned(*entered, ptr, "cuMemAllocAsync").inspect_err(|_| {
            // SAFETY: nobody knows the address yet.
            log_undo(unsafe { call!(entered.cuMemFreeAsync(ptr, pointer(stream.raw))) });
        })
    }

    unsafe fn free_async(&self, ptr: DevicePtr, stream: Stream) -> Result<()> {
        let entered = self.enter_handle(stream.backend, stream.device, "cuMemFreeAsync")?;
        if ptr.is_null() {
            return Err(entered.invalid("cuMemFreeAsync", "null is no memory of the pool"));
        }
        // SAFETY: rule 3 in stream order, which the caller keeps.
        unsafe { call!(entered.cuMemFreeAsync(ptr.0, pointer(stream.raw))) }
    }

    fn trim(&self, device: DeviceIndex, keep: u64) -> Result<()> {
        let entered = self.enter(device, "cuMemPoolTrimTo")?;
        let pool = self.pool(*entered)?;
        // SAFETY: the driver's default pool lives as long as the driver.
        unsafe { call!(entered.cuMemPoolTrimTo(pool, keep as usize)) }
    }

    fn pool_attribute(&self, device: DeviceIndex, which: DriverPoolAttribute) -> Result<u64> {
        let entered = self.enter(device, "cuMemPoolGetAttribute")?;
        let pool = self.pool(*entered)?;
        let mut value: cuuint64_t = 0;
        // SAFETY: for these attributes the function writes one 64-bit integer.
        unsafe {
            call!(entered.cuMemPoolGetAttribute(pool, attribute_number(which), (&raw mut value).cast()))
        }?;
        Ok(value)
    }

    fn set_pool_attribute(&self, device: DeviceIndex, which: DriverPoolAttribute, value: u64) -> Result<()> {
        let entered = self.enter(device, "cuMemPoolSetAttribute")?;
        let settable = match which {
            DriverPoolAttribute::ReleaseThreshold => true,
            DriverPoolAttribute::ReservedHigh | DriverPoolAttribute::UsedHigh => value == 0,
            DriverPoolAttribute::ReservedCurrent | DriverPoolAttribute::UsedCurrent => false,
        };
        if !settable {
            let detail = format!("{which:?} cannot be set to {value}; highs can be set to 0");
            return Err(entered.invalid("cuMemPoolSetAttribute", detail));
        }
        let pool = self.pool(*entered)?;
        let mut value: cuuint64_t = value;
        // SAFETY: for these attributes the function reads one 64-bit integer.
        unsafe {
            call!(entered.cuMemPoolSetAttribute(pool, attribute_number(which), (&raw mut value).cast()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_have_the_headers_numbers() {
        let numbers = [
            (DriverPoolAttribute::ReleaseThreshold, 4),
            (DriverPoolAttribute::ReservedCurrent, 5),
            (DriverPoolAttribute::ReservedHigh, 6),
            (DriverPoolAttribute::UsedCurrent, 7),
            (DriverPoolAttribute::UsedHigh, 8),
        ];
        for (which, number) in numbers {
            assert_eq!(attribute_number(which), number, "{which:?}");
        }
    }
}
