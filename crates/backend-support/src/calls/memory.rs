//! Memory that the driver hands out: device memory, page-locked host memory, managed memory, its own pools.

use crate::context::Context;
use crate::driver::{Driver, Site};
use backend_api::types::{DeviceIndex, DevicePtr, Stream};
use backend_api::{AddressRange, CopyKind, DriverPoolAttribute, HostFlags, MemoryInfo, PointerInfo, Result};

/// Device memory, and questions about addresses.
#[allow(clippy::missing_safety_doc, reason = "said once for all calls")]
pub trait MemoryCalls: Driver {
    /// Takes memory of the current device.
    fn malloc(site: Site<'_, Self>, bytes: usize) -> Result<u64>;
    /// Gives memory back.
    unsafe fn free(site: Site<'_, Self>, ptr: u64) -> Result<()>;
    /// Free and total bytes of the current device.
    fn memory_info(site: Site<'_, Self>) -> Result<MemoryInfo>;
    /// What an address is that is no virtual memory of this backend; null may be asked.
    fn pointer_info(context: &Context<Self>, ptr: DevicePtr) -> Result<PointerInfo>;
    /// The allocation in which an address lies that is not null; `InvalidValue` where nothing is allocated.
    fn address_range(context: &Context<Self>, ptr: DevicePtr) -> Result<AddressRange>;
    /// The device in whose memory an address lies, where the driver knows one.
    fn device_of(context: &Context<Self>, ptr: DevicePtr) -> Result<Option<DeviceIndex>>;
    /// Copies; may return before the bytes have arrived on a device.
    unsafe fn copy(
        site: Site<'_, Self>,
        dst: DevicePtr,
        src: DevicePtr,
        bytes: usize,
        kind: CopyKind,
    ) -> Result<()>;
    /// Queues a copy.
    unsafe fn copy_async(
        site: Site<'_, Self>,
        dst: DevicePtr,
        src: DevicePtr,
        bytes: usize,
        kind: CopyKind,
        stream: Stream,
    ) -> Result<()>;
    /// Queues a fill.
    unsafe fn memset_async(
        site: Site<'_, Self>,
        dst: DevicePtr,
        value: u8,
        bytes: usize,
        stream: Stream,
    ) -> Result<()>;
}

/// Page-locked host memory: made so, or existing memory registered.
#[allow(clippy::missing_safety_doc, reason = "said once for all calls")]
pub trait HostCalls: Driver {
    /// Takes page-locked memory.
    fn host_malloc(site: Site<'_, Self>, bytes: usize, flags: HostFlags) -> Result<u64>;
    /// Gives it back.
    unsafe fn host_free(site: Site<'_, Self>, ptr: u64) -> Result<()>;
    /// Page-locks a range; the flags do not ask for write-combined memory.
    unsafe fn register(site: Site<'_, Self>, ptr: u64, bytes: usize, flags: HostFlags) -> Result<()>;
    /// Undoes it.
    unsafe fn unregister(site: Site<'_, Self>, ptr: u64) -> Result<()>;
    /// The address under which the current device sees page-locked memory.
    fn device_pointer(site: Site<'_, Self>, ptr: u64) -> Result<u64>;
}

/// Memory that migrates, and words written by a stream.
#[allow(clippy::missing_safety_doc, reason = "said once for all calls")]
pub trait ManagedCalls: Driver {
    /// Takes managed memory; [`MemoryCalls::free`] gives it back.
    fn malloc_managed(site: Site<'_, Self>, bytes: usize) -> Result<u64>;
    /// Queues a migration to a device that exists, or to the host.
    unsafe fn prefetch_async(
        site: Site<'_, Self>,
        ptr: DevicePtr,
        bytes: usize,
        to: Option<DeviceIndex>,
        stream: Stream,
    ) -> Result<()>;
    /// Queues the write of an aligned word.
    unsafe fn write_value32(site: Site<'_, Self>, stream: Stream, at: u64, value: u32) -> Result<()>;
}

/// The default pool of the site's device.
#[allow(clippy::missing_safety_doc, reason = "said once for all calls")]
pub trait PoolCalls: Driver {
    /// Takes memory in stream order.
    fn malloc_async(site: Site<'_, Self>, bytes: usize, stream: Stream) -> Result<u64>;
    /// Gives it back in stream order.
    unsafe fn free_async(site: Site<'_, Self>, ptr: u64, stream: Stream) -> Result<()>;
    /// Gives unused memory back until only `keep` bytes are held.
    fn trim(site: Site<'_, Self>, keep: usize) -> Result<()>;
    /// Reads a number.
    fn pool_attribute(site: Site<'_, Self>, which: DriverPoolAttribute) -> Result<u64>;
    /// Sets a number that can be set to this value.
    fn set_pool_attribute(site: Site<'_, Self>, which: DriverPoolAttribute, value: u64) -> Result<()>;
}
