//! The driver's own stream-ordered pools.

use super::{DriverBackend, devices, graphs, memory};
use crate::calls::Calls;
use crate::driver::Family;
use crate::errors::memory_is_short;
use backend_api::types::{DeviceIndex, DevicePtr, Stream};
use backend_api::{Attribute, Backend, DriverPoolAttribute, DriverPools, Result};

pub(super) fn probe<D: Calls>(backend: &DriverBackend<D>) -> Result<()> {
    devices::has(backend, Family::DriverPools)?;
    devices::every_device_has(backend, Attribute::MemoryPools)?;
    let _relaxed = graphs::relaxed(backend)?;
    let stream = backend.create_stream(backend.context.device_of_thread()?, 0)?;
    let tried = backend.malloc_async(1, stream).and_then(|memory| {
        // SAFETY: the memory is this probe's, and nothing uses it.
        unsafe { backend.free_async(memory, stream) }?;
        backend.synchronize_stream(stream)
    });
    // SAFETY: the stream is this probe's and is not used again.
    let destroyed = unsafe { backend.destroy_stream(stream) };
    tried.and(destroyed)
}

impl<D: Calls> DriverPools for DriverBackend<D> {
    fn malloc_async(&self, bytes: u64, stream: Stream) -> Result<DevicePtr> {
        let call = D::NAMES.malloc_async;
        let entered = self.context.enter_handle(stream.backend, stream.device, call)?;
        entered.positive(call, bytes)?;
        let ptr = D::malloc_async(*entered, bytes as usize, stream).map_err(memory_is_short)?;
        // SAFETY: nobody knows the address yet.
        let ptr = memory::aligned(*entered, ptr, call, || unsafe { D::free_async(*entered, ptr, stream) })?;
        if !D::ABILITIES.tells_shareable {
            self.pooled.insert(ptr);
        }
        Ok(ptr)
    }

    unsafe fn free_async(&self, ptr: DevicePtr, stream: Stream) -> Result<()> {
        let call = D::NAMES.free_async;
        let entered = self.context.enter_handle(stream.backend, stream.device, call)?;
        if ptr.is_null() {
            return Err(entered.invalid(call, "null is no memory of the pool"));
        }
        // SAFETY: rule 3 in stream order, which the caller keeps.
        let free = || unsafe { D::free_async(*entered, ptr.0, stream) };
        if D::ABILITIES.tells_shareable { free() } else { self.pooled.giving_back(ptr, free) }
    }

    fn trim(&self, device: DeviceIndex, keep: u64) -> Result<()> {
        D::trim(*self.context.enter(device, D::NAMES.trim_pool)?, keep as usize)
    }

    fn pool_attribute(&self, device: DeviceIndex, which: DriverPoolAttribute) -> Result<u64> {
        D::pool_attribute(*self.context.enter(device, D::NAMES.pool_attribute)?, which)
    }

    fn set_pool_attribute(&self, device: DeviceIndex, which: DriverPoolAttribute, value: u64) -> Result<()> {
        let call = D::NAMES.set_pool_attribute;
        let entered = self.context.enter(device, call)?;
        let settable = match which {
            DriverPoolAttribute::ReleaseThreshold => true,
            DriverPoolAttribute::ReservedHigh | DriverPoolAttribute::UsedHigh => value == 0,
            DriverPoolAttribute::ReservedCurrent | DriverPoolAttribute::UsedCurrent => false,
        };
        if !settable {
            let detail = format!("{which:?} cannot be set to {value}; highs can be set to 0");
            return Err(entered.invalid(call, detail));
        }
        D::set_pool_attribute(*entered, which, value)
    }
}
