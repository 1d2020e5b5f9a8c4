//! The runtime's own stream-ordered pools.

use crate::context::ordinal;
use crate::driver::{Site, number, pointer};
use crate::hip::Hip;
use crate::memory::{aligned, log_undo, positive};
use backend_api::types::{DeviceIndex, DevicePtr, Stream};
use backend_api::{Attribute, DriverPoolAttribute, DriverPools, Result};
use hip_sys::abi6::{
    hipMemPool_t, hipMemPoolAttr, hipMemPoolAttrReleaseThreshold, hipMemPoolAttrReservedMemCurrent,
    hipMemPoolAttrReservedMemHigh, hipMemPoolAttrUsedMemCurrent, hipMemPoolAttrUsedMemHigh,
};
use std::collections::HashSet;
use std::ptr;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// What the pools have handed out: the runtime does not say of an address whether it may be shared by IPC.
#[derive(Debug, Default)]
pub(crate) struct Pooled(Mutex<HashSet<u64>>);

impl Pooled {
    fn lock(&self) -> MutexGuard<'_, HashSet<u64>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn contains(&self, ptr: DevicePtr) -> bool {
        self.lock().contains(&ptr.0)
    }

    /// Forgets an address for the length of a call that gives it back, before the runtime can hand it out again.
    pub(crate) fn giving_back(&self, ptr: DevicePtr, give_back: impl FnOnce() -> Result<()>) -> Result<()> {
        let known = self.lock().remove(&ptr.0);
        give_back().inspect_err(|_| {
            if known {
                self.lock().insert(ptr.0);
            }
        })
    }
}

fn attribute_number(which: DriverPoolAttribute) -> hipMemPoolAttr {
    match which {
        DriverPoolAttribute::ReleaseThreshold => hipMemPoolAttrReleaseThreshold,
        DriverPoolAttribute::ReservedCurrent => hipMemPoolAttrReservedMemCurrent,
        DriverPoolAttribute::ReservedHigh => hipMemPoolAttrReservedMemHigh,
        DriverPoolAttribute::UsedCurrent => hipMemPoolAttrUsedMemCurrent,
        DriverPoolAttribute::UsedHigh => hipMemPoolAttrUsedMemHigh,
    }
}

impl Hip {
    pub(crate) fn probe_driver_pools(&self) -> Result<()> {
        needs!(self: hipMallocAsync, hipFreeAsync, hipDeviceGetDefaultMemPool, hipMemPoolTrimTo,
            hipMemPoolGetAttribute, hipMemPoolSetAttribute)?;
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
    fn pool(&self, site: Site<'_>) -> Result<hipMemPool_t> {
        let mut pool = ptr::null_mut();
        // SAFETY: the function writes one handle.
        unsafe { call!(site.hipDeviceGetDefaultMemPool(&raw mut pool, ordinal(site.device()))) }?;
        Ok(pool)
    }
}

impl DriverPools for Hip {
    fn malloc_async(&self, bytes: u64, stream: Stream) -> Result<DevicePtr> {
        let entered = self.enter_handle(stream.backend, stream.device, "hipMallocAsync")?;
        positive(*entered, "hipMallocAsync", bytes)?;
        let mut ptr = ptr::null_mut();
        // SAFETY: rule 1; the function writes one address.
        unsafe { call!(entered.hipMallocAsync(&raw mut ptr, bytes as usize, pointer(stream.raw))) }?;
        let handed_out = aligned(*entered, number(ptr), "hipMallocAsync").inspect_err(|_| {
            // SAFETY: nobody knows the address yet.
            log_undo(unsafe { call!(entered.hipFreeAsync(ptr, pointer(stream.raw))) });
        })?;
        self.pooled.lock().insert(handed_out.0);
        Ok(handed_out)
    }

    unsafe fn free_async(&self, ptr: DevicePtr, stream: Stream) -> Result<()> {
        let entered = self.enter_handle(stream.backend, stream.device, "hipFreeAsync")?;
        if ptr.is_null() {
            return Err(entered.invalid("hipFreeAsync", "null is no memory of the pool"));
        }
        self.pooled.giving_back(ptr, || {
            // SAFETY: rule 3 in stream order, which the caller keeps.
            unsafe { call!(entered.hipFreeAsync(pointer(ptr.0), pointer(stream.raw))) }
        })
    }

    fn trim(&self, device: DeviceIndex, keep: u64) -> Result<()> {
        let entered = self.enter(device, "hipMemPoolTrimTo")?;
        let pool = self.pool(*entered)?;
        // SAFETY: the runtime's default pool lives as long as the runtime.
        unsafe { call!(entered.hipMemPoolTrimTo(pool, keep as usize)) }
    }

    fn pool_attribute(&self, device: DeviceIndex, which: DriverPoolAttribute) -> Result<u64> {
        let entered = self.enter(device, "hipMemPoolGetAttribute")?;
        let pool = self.pool(*entered)?;
        let mut value: u64 = 0;
        // SAFETY: for these attributes the function writes one 64-bit integer.
        unsafe {
            call!(entered.hipMemPoolGetAttribute(pool, attribute_number(which), (&raw mut value).cast()))
        }?;
        Ok(value)
    }

    fn set_pool_attribute(&self, device: DeviceIndex, which: DriverPoolAttribute, value: u64) -> Result<()> {
        let entered = self.enter(device, "hipMemPoolSetAttribute")?;
        let settable = match which {
            DriverPoolAttribute::ReleaseThreshold => true,
            DriverPoolAttribute::ReservedHigh | DriverPoolAttribute::UsedHigh => value == 0,
            DriverPoolAttribute::ReservedCurrent | DriverPoolAttribute::UsedCurrent => false,
        };
        if !settable {
            let detail = format!("{which:?} cannot be set to {value}; highs can be set to 0");
            return Err(entered.invalid("hipMemPoolSetAttribute", detail));
        }
        let pool = self.pool(*entered)?;
        let mut value: u64 = value;
        // SAFETY: for these attributes the function reads one 64-bit integer.
        unsafe {
            call!(entered.hipMemPoolSetAttribute(pool, attribute_number(which), (&raw mut value).cast()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use backend_api::{BackendError, ErrorKind};

    #[test]
    fn a_refused_free_leaves_the_memory_known() {
        let pooled = Pooled::default();
        let ptr = DevicePtr(0x1000);
        pooled.lock().insert(ptr.0);
        let refused = BackendError::new(ErrorKind::InvalidValue, 1, "hipFreeAsync", DeviceIndex(0), "");
        pooled.giving_back(ptr, || Err(refused)).unwrap_err();
        assert!(pooled.contains(ptr));
        pooled.giving_back(ptr, || Ok(())).unwrap();
        assert!(!pooled.contains(ptr));
    }

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
