//! The smaller optional families: pinned host memory, IPC, peers, and host registration.

use crate::Result;
use crate::types::{DeviceIndex, DevicePtr, Stream};
use std::fmt::Debug;

/// A memory handle that can be sent to another process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct IpcMemoryHandle(pub [u8; 64]);

/// Sharing with other processes. Illegal during capture.
pub trait Ipc: Debug + Send + Sync {
    /// A handle for a whole `malloc` allocation; ranges of virtual memory answer `NotSupported`. Does not block.
    /// CUDA `cuIpcGetMemHandle`, HIP `hipIpcGetMemHandle`, OpenReg `orGetIpcMemHandle`.
    fn export_memory(&self, base: DevicePtr) -> Result<IpcMemoryHandle>;

    /// Maps what another process exported; the same bytes again give the same address and one more
    /// reference. May block. CUDA `cuIpcOpenMemHandle`, HIP `hipIpcOpenMemHandle`, OpenReg `orOpenIpcMemHandle`.
    fn open_memory(&self, device: DeviceIndex, handle: &IpcMemoryHandle) -> Result<DevicePtr>;

    /// Gives one reference back. May block. CUDA `cuIpcCloseMemHandle`, HIP `hipIpcCloseMemHandle`,
    /// OpenReg `orCloseIpcMemHandle`.
    ///
    /// # Safety
    /// Rule 3: `ptr` came from `open_memory`.
    unsafe fn close_memory(&self, ptr: DevicePtr) -> Result<()>;
}

/// Devices that reach each other's memory.
pub trait Peers: Debug + Send + Sync {
    /// Whether `from` can reach `to`'s memory. Does not block. CUDA `cuDeviceCanAccessPeer`,
    /// HIP `hipDeviceCanAccessPeer`.
    fn can_access(&self, from: DeviceIndex, to: DeviceIndex) -> Result<bool>;

    /// Lets `from` reach `to`'s memory; enabling twice is fine. May block. CUDA `cuCtxEnablePeerAccess`,
    /// HIP `hipDeviceEnablePeerAccess`.
    fn enable_access(&self, from: DeviceIndex, to: DeviceIndex) -> Result<()>;

    /// Queues a copy between devices, through the host where there is no direct way. Does not block. Stream-ordered.
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
}
