//! Memory that the driver hands out: device memory and page-locked host memory.

use crate::context::Context;
use crate::driver::{Driver, Site};
use backend_api::types::{DeviceIndex, DevicePtr, Stream};
use backend_api::{AddressRange, CopyKind, HostFlags, MemoryInfo, PointerInfo, Result};

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
}
