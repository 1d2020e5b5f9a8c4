//! The smaller optional families: pinned host memory, IPC, peers, driver pools, host registration, managed memory, stream
//! memory operations, multicast, and the simulator's host access.

use crate::types::{BackendId, DeviceIndex, DevicePtr, Event, PhysicalHandle, Stream};
use crate::{Access, MemoryInfo, Result};
use std::fmt::Debug;

/// A memory handle that can be sent to another process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct IpcMemoryHandle(pub [u8; 64]);

/// An event handle that can be sent to another process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct IpcEventHandle(pub [u8; 64]);

/// Sharing with other processes. Blocking: opens may block. Illegal during capture.
pub trait Ipc: Debug + Send + Sync {
    /// A handle for a whole `malloc` allocation; ranges of virtual memory answer `NotSupported`.
    /// CUDA `cuIpcGetMemHandle`, HIP `hipIpcGetMemHandle`, OpenReg `orGetIpcMemHandle`.
    fn export_memory(&self, base: DevicePtr) -> Result<IpcMemoryHandle>;

    /// Maps what another process exported; the same bytes again give the same address and one more
    /// reference. CUDA `cuIpcOpenMemHandle`, HIP `hipIpcOpenMemHandle`, OpenReg `orOpenIpcMemHandle`.
    fn open_memory(&self, device: DeviceIndex, handle: &IpcMemoryHandle) -> Result<DevicePtr>;

    /// Gives one reference back. CUDA `cuIpcCloseMemHandle`, HIP `hipIpcCloseMemHandle`,
    /// OpenReg `orCloseIpcMemHandle`.
    ///
    /// # Safety
    /// Rule 3: `ptr` came from `open_memory`.
    unsafe fn close_memory(&self, ptr: DevicePtr) -> Result<()>;

    /// A handle for an event made with `INTERPROCESS`. CUDA `cuIpcGetEventHandle`, HIP `hipIpcGetEventHandle`.
    fn export_event(&self, event: Event) -> Result<IpcEventHandle>;

    /// Opens another process's event. CUDA `cuIpcOpenEventHandle`, HIP `hipIpcOpenEventHandle`.
    fn open_event(&self, device: DeviceIndex, handle: &IpcEventHandle) -> Result<Event>;
}

/// Devices that reach each other's memory.
pub trait Peers: Debug + Send + Sync {
    /// Whether `from` can reach `to`'s memory. Does not block. CUDA `cuDeviceCanAccessPeer`,
    /// HIP `hipDeviceCanAccessPeer`.
    fn can_access(&self, from: DeviceIndex, to: DeviceIndex) -> Result<bool>;

    /// Lets `from` reach `to`'s memory; enabling twice is fine. CUDA `cuCtxEnablePeerAccess`,
    /// HIP `hipDeviceEnablePeerAccess`.
    fn enable_access(&self, from: DeviceIndex, to: DeviceIndex) -> Result<()>;

    /// Queues a copy between devices, through the host where there is no direct way. Stream-ordered.
    /// CUDA `cuMemcpyPeerAsync`, HIP `hipMemcpyPeerAsync`.
    ///
    /// # Safety
    /// Rule 2 for both ranges, until the stream has passed it.
    unsafe fn copy_peer_async(
        &self,
        dst: (DeviceIndex, DevicePtr),
        src: (DeviceIndex, DevicePtr),
        bytes: u64,
        stream: Stream,
    ) -> Result<()>;
}

/// A settable or readable number of a driver pool, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DriverPoolAttribute {
    /// What the pool keeps instead of giving back at a synchronisation; settable.
    ReleaseThreshold,
    /// Held from the device now.
    ReservedCurrent,
    /// Most held; setting it to 0 resets it.
    ReservedHigh,
    /// Handed out now.
    UsedCurrent,
    /// Most handed out; setting it to 0 resets it.
    UsedHigh,
}

/// The driver's stream-ordered allocator, with one default pool per device.
pub trait DriverPools: Debug + Send + Sync {
    /// Takes memory in stream order. Does not block. CUDA `cuMemAllocAsync`, HIP `hipMallocAsync`.
    fn malloc_async(&self, bytes: u64, stream: Stream) -> Result<DevicePtr>;

    /// Gives it back in stream order. Does not block. CUDA `cuMemFreeAsync`, HIP `hipFreeAsync`.
    ///
    /// # Safety
    /// Rule 3, in stream order: work queued on `stream` before may still use it.
    unsafe fn free_async(&self, ptr: DevicePtr, stream: Stream) -> Result<()>;

    /// Gives unused memory back until only `keep` bytes are held. Blocks.
    /// CUDA `cuMemPoolTrimTo`, HIP `hipMemPoolTrimTo`.
    fn trim(&self, device: DeviceIndex, keep: u64) -> Result<()>;

    /// Reads a number. CUDA `cuMemPoolGetAttribute`, HIP `hipMemPoolGetAttribute`.
    fn pool_attribute(&self, device: DeviceIndex, which: DriverPoolAttribute) -> Result<u64>;

    /// Sets a number. CUDA `cuMemPoolSetAttribute`, HIP `hipMemPoolSetAttribute`.
    fn set_pool_attribute(&self, device: DeviceIndex, which: DriverPoolAttribute, value: u64) -> Result<()>;
}

/// Page-locked host memory. A chip without it is copied to from ordinary memory.
pub trait PinnedHost: Debug + Send + Sync {
    /// Page-locked host memory, aligned to 64 bytes at least. **Blocks.** CUDA `cuMemHostAlloc`, HIP `hipHostMalloc`,
    /// OpenReg `orMallocHost`.
    fn host_malloc(&self, bytes: u64, flags: crate::HostFlags) -> Result<DevicePtr>;

    /// Gives page-locked memory back. Null is fine. **Blocks.** CUDA `cuMemFreeHost`, HIP `hipHostFree`,
    /// OpenReg `orFreeHost`.
    ///
    /// # Safety
    /// Rule 3.
    unsafe fn host_free(&self, ptr: DevicePtr) -> Result<()>;
}

/// Page-locking of memory that exists.
pub trait HostRegistration: Debug + Send + Sync {
    /// Page-locks a range. Blocks. CUDA `cuMemHostRegister`, HIP `hipHostRegister`.
    ///
    /// # Safety
    /// The range is valid host memory until it is unregistered.
    unsafe fn register(&self, ptr: DevicePtr, bytes: u64, flags: crate::HostFlags) -> Result<()>;

    /// Undoes it; null is `InvalidValue`. Blocks. CUDA `cuMemHostUnregister`, HIP `hipHostUnregister`.
    ///
    /// # Safety
    /// Rule 3.
    unsafe fn unregister(&self, ptr: DevicePtr) -> Result<()>;

    /// The address under which `device` sees page-locked host memory.
    /// CUDA `cuMemHostGetDevicePointer`, HIP `hipHostGetDevicePointer`.
    fn device_pointer(&self, device: DeviceIndex, ptr: DevicePtr) -> Result<DevicePtr>;
}

/// Memory that migrates between host and devices.
pub trait ManagedMemory: Debug + Send + Sync {
    /// Takes managed memory; free it with [`free`](crate::Backend::free). May block.
    /// CUDA `cuMemAllocManaged`, HIP `hipMallocManaged`.
    fn malloc_managed(&self, device: DeviceIndex, bytes: u64) -> Result<DevicePtr>;

    /// Queues a migration to a device, or to the host. Stream-ordered.
    /// CUDA `cuMemPrefetchAsync`, HIP `hipMemPrefetchAsync`.
    ///
    /// # Safety
    /// Rule 2 for the range.
    unsafe fn prefetch_async(
        &self,
        ptr: DevicePtr,
        bytes: u64,
        to: Option<DeviceIndex>,
        stream: Stream,
    ) -> Result<()>;
}

/// Words written by a stream.
pub trait StreamMemory: Debug + Send + Sync {
    /// Queues the write of a 32-bit word. Stream-ordered. CUDA `cuStreamWriteValue32`,
    /// HIP `hipStreamWriteValue32`.
    ///
    /// # Safety
    /// Rule 2 for the four bytes at `at`, aligned to 4.
    unsafe fn write_value32(&self, stream: Stream, at: DevicePtr, value: u32) -> Result<()>;
}

/// A multicast object (`CUmemGenericAllocationHandle` made by `cuMulticastCreate`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MulticastHandle {
    /// The driver's handle.
    pub raw: u64,
    /// The backend that made it.
    pub backend: BackendId,
}

/// One address that writes to many devices. CUDA `cuMulticast*`; no HIP counterpart.
pub trait Multicast: Debug + Send + Sync {
    /// The unit of sizes, in bytes. CUDA `cuMulticastGetGranularity`.
    fn multicast_granularity(&self, devices: u32, bytes: u64) -> Result<u64>;
    /// A new object for `devices` devices. CUDA `cuMulticastCreate`.
    fn create(&self, devices: u32, bytes: u64) -> Result<MulticastHandle>;
    /// Adds a device. CUDA `cuMulticastAddDevice`.
    fn add_device(&self, object: MulticastHandle, device: DeviceIndex) -> Result<()>;
    /// Binds physical memory. CUDA `cuMulticastBindMem`.
    ///
    /// # Safety
    /// Rule 1 for both handles; the memory stays unreleased while bound.
    unsafe fn bind(
        &self,
        object: MulticastHandle,
        offset: u64,
        memory: PhysicalHandle,
        bytes: u64,
    ) -> Result<()>;
    /// Undoes [`bind`](Self::bind). CUDA `cuMulticastUnbind`.
    ///
    /// # Safety
    /// Rule 3.
    unsafe fn unbind(
        &self,
        object: MulticastHandle,
        device: DeviceIndex,
        offset: u64,
        bytes: u64,
    ) -> Result<()>;
}

/// Host access to device memory, for tests on simulated devices. OpenReg `orMemoryUnprotect` and
/// `orMemoryProtect`; real accelerators do not have it.
pub trait HostAccess: Debug + Send + Sync {
    /// Opens the allocation (or mapping) that holds `ptr` to the host; counted.
    ///
    /// # Safety
    /// Rule 2, until [`protect`](Self::protect).
    unsafe fn unprotect(&self, ptr: DevicePtr) -> Result<()>;

    /// Closes it again; at count 0 a touch by the host faults.
    ///
    /// # Safety
    /// The caller opened it with [`unprotect`](Self::unprotect), and no longer touches it on the strength of that.
    unsafe fn protect(&self, ptr: DevicePtr) -> Result<()>;

    /// What the host may do with the byte at `ptr` now.
    fn host_access_of(&self, ptr: DevicePtr) -> Result<Access>;

    /// Memory of the device as the simulator accounts for it.
    fn accounted(&self, device: DeviceIndex) -> Result<MemoryInfo>;
}
