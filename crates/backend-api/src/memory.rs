//! Plain argument and answer types of the required part.

use crate::types::{DeviceIndex, DevicePtr};
use bitflags::bitflags;

/// The answer of a query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Readiness {
    /// All of it is done.
    Ready,
    /// Something is still running.
    NotReady,
}

impl Readiness {
    /// True for [`Readiness::Ready`].
    #[must_use]
    pub const fn is_ready(self) -> bool {
        matches!(self, Self::Ready)
    }
}

/// Driver's view of a device's memory, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryInfo {
    /// Not taken by anyone.
    pub free: u64,
    /// All there is.
    pub total: u64,
}

/// What an address points into.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PointerKind {
    /// Nothing the driver knows.
    Unmanaged,
    /// Page-locked or registered host memory.
    Host,
    /// Device memory.
    Device,
    /// Memory that migrates.
    Managed,
}

/// Answer of [`Backend::pointer_info`](crate::Backend::pointer_info).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PointerInfo {
    /// Whose memory.
    pub kind: PointerKind,
    /// The owning device; `None` for host and unmanaged memory.
    pub device: Option<DeviceIndex>,
    /// Start of the allocation; null for unmanaged memory.
    pub base: DevicePtr,
}

/// An allocation's extent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AddressRange {
    /// First address.
    pub base: DevicePtr,
    /// Length in bytes.
    pub bytes: u64,
}

/// Which side of a copy is what.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CopyKind {
    /// Host to host.
    HostToHost,
    /// Host to device.
    HostToDevice,
    /// Device to host.
    DeviceToHost,
    /// Device to device, possibly another one.
    DeviceToDevice,
}

/// Questions about a device. Numbers differ between drivers: backends translate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Attribute {
    /// Major part of the compute capability or architecture.
    ComputeCapabilityMajor,
    /// Minor part of the compute capability or architecture.
    ComputeCapabilityMinor,
    /// Number of multiprocessors or compute units.
    MultiprocessorCount,
    /// Threads per warp or wavefront.
    WarpSize,
    /// 1 where virtual memory management is offered.
    VirtualMemoryManagement,
    /// 1 where physical handles export as POSIX file descriptors.
    PosixFileDescriptorHandles,
    /// 1 where physical handles export as fabric handles.
    FabricHandles,
    /// 1 where GPUDirect RDMA works on virtual memory.
    GpuDirectRdmaWithVirtualMemory,
    /// 1 for an integrated device that shares host memory.
    Integrated,
    /// The system's node that a device's own memory is, where the system gives programs that, too; -1 where it is none.
    MemoryNode,
}

/// What a device is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceProperties {
    /// The product's name.
    pub name: String,
    /// 16 bytes that identify the device, where the driver has them.
    pub uuid: Option<[u8; 16]>,
    /// `domain:bus:device.function`, where the driver has it.
    pub pci_bus_id: Option<String>,
    /// Total memory in bytes.
    pub total_memory: u64,
    /// Threads per warp or wavefront.
    pub warp_size: u32,
}

/// Stream priorities that make a difference: `least` ≥ 0 ≥ `greatest`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PriorityRange {
    /// The least urgent.
    pub least: i32,
    /// The most urgent (negative).
    pub greatest: i32,
}

bitflags! {
    /// How an event is made.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
    pub struct EventFlags: u32 {
        /// It keeps a time stamp.
        const TIMING = 1;
        /// A thread that waits for it sleeps instead of spinning.
        const BLOCKING_SYNC = 2;
    }
}

bitflags! {
    /// How page-locked host memory is made.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
    pub struct HostFlags: u32 {
        /// Page-locked for every device.
        const PORTABLE = 1;
        /// Mapped into device addresses.
        const MAPPED = 2;
        /// Write-combined: fast to write, slow to read.
        const WRITE_COMBINED = 4;
    }
}
