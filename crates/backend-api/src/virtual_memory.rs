//! Virtual memory: addresses and physical memory as separate things.

use crate::Result;
use crate::types::{DeviceIndex, DevicePtr, PhysicalHandle};
use std::fmt::Debug;
use std::os::fd::OwnedFd;

/// How a physical handle can be given to another process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum HandleType {
    /// Not at all.
    #[default]
    None,
    /// As a POSIX file descriptor.
    PosixFd,
    /// As a 64-byte fabric handle, across hosts.
    Fabric,
}

/// A physical handle on its way to another process.
#[derive(Debug)]
pub enum ShareableHandle {
    /// An open file descriptor; it must stay open until the importer has set access.
    PosixFd(OwnedFd),
    /// A fabric handle.
    Fabric([u8; 64]),
}

/// Who may do what with a mapped range.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Access {
    /// Nothing.
    None,
    /// Read.
    Read,
    /// Read and write.
    ReadWrite,
}

/// Which granularity is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Granularity {
    /// The smallest that works.
    Minimum,
    /// The one the driver likes best.
    Recommended,
}

/// Virtual memory management. None of it is stream-ordered, and none waits for queued work: rule 3 does.
/// Illegal during capture unless the relaxed mode is on, except the queries.
pub trait VirtualMemory: Debug + Send + Sync {
    /// The unit of sizes and offsets for physical memory of `device`, in bytes. Does not block; legal during capture.
    /// CUDA `cuMemGetAllocationGranularity`, HIP `hipMemGetAllocationGranularity`.
    fn granularity(&self, device: DeviceIndex, which: Granularity) -> Result<u64>;

    /// Reserves addresses, without memory. `alignment` 0 is the granularity; `hint` null lets the driver
    /// choose. May block. CUDA `cuMemAddressReserve`, HIP `hipMemAddressReserve`.
    fn reserve_address(
        &self,
        device: DeviceIndex,
        bytes: u64,
        alignment: u64,
        hint: DevicePtr,
    ) -> Result<DevicePtr>;

    /// Gives reserved addresses back; `InvalidValue` while something is mapped there. May block.
    /// CUDA `cuMemAddressFree`, HIP `hipMemAddressFree`.
    ///
    /// # Safety
    /// Rule 3: base and size of one reservation.
    unsafe fn release_address(&self, base: DevicePtr, bytes: u64) -> Result<()>;

    /// Creates physical memory; `bytes` is a multiple of the granularity. Other handle types than
    /// [`HandleType::None`] need the family that shares physical memory. Where a device refuses file descriptors the memory
    /// is private, and [`dropped`](crate::Backend::dropped) says so. May block.
    /// CUDA `cuMemCreate`, HIP `hipMemCreate`.
    fn create_physical(
        &self,
        device: DeviceIndex,
        bytes: u64,
        handle_type: HandleType,
    ) -> Result<PhysicalHandle>;

    /// Gives a handle up; the memory lives on while it is mapped or exported. May block.
    /// CUDA `cuMemRelease`, HIP `hipMemRelease`.
    ///
    /// # Safety
    /// Rule 1, and the handle is not used again.
    unsafe fn release_physical(&self, handle: PhysicalHandle) -> Result<()>;

    /// Maps a whole handle (`offset` 0) at an address inside a reservation where nothing is mapped. No one may touch
    /// the mapping before [`set_access`](Self::set_access). May block. CUDA `cuMemMap`, HIP `hipMemMap`.
    ///
    /// One handle may be mapped at several addresses at once (CUDA calls that virtual aliasing). Each mapping shows the
    /// same bytes and has its own access, and unmapping one leaves the others. Bytes written at one address are seen at
    /// all others by later work. Work is later if it comes later in the stream's order, or is ordered after the write
    /// by an event or a wait.
    ///
    /// A driver may refuse a second mapping, and nothing has changed then: allocators do without.
    ///
    /// # Safety
    /// `[at, at + bytes)` lies in one live reservation; `bytes` is the handle's size; rule 1.
    unsafe fn map(&self, at: DevicePtr, bytes: u64, handle: PhysicalHandle) -> Result<()>;

    /// Takes a mapping away; whole mappings only. May block, but does **not** wait for queued work.
    /// CUDA `cuMemUnmap`, HIP `hipMemUnmap`.
    ///
    /// # Safety
    /// Rule 3: the range is one mapping or several adjacent ones.
    unsafe fn unmap(&self, at: DevicePtr, bytes: u64) -> Result<()>;

    /// Sets what each of `devices` may do with a mapped range. May block. CUDA `cuMemSetAccess`, HIP `hipMemSetAccess`.
    ///
    /// # Safety
    /// The range is mapped; taking access away needs rule 3.
    unsafe fn set_access(
        &self,
        at: DevicePtr,
        bytes: u64,
        devices: &[DeviceIndex],
        access: Access,
    ) -> Result<()>;

    /// What `device` may do with the mapping at `at`. Does not block; legal during capture. CUDA `cuMemGetAccess`, HIP `hipMemGetAccess`.
    fn access(&self, at: DevicePtr, device: DeviceIndex) -> Result<Access>;
}

/// Physical memory that leaves the process. Without it, the one handle type is [`HandleType::None`].
///
/// File descriptors work where this is offered, unless [`Attribute::PosixFileDescriptorHandles`](crate::Attribute) is 0. Fabric
/// handles are tried where [`Attribute::FabricHandles`](crate::Attribute) is 1.
pub trait PhysicalSharing: VirtualMemory {
    /// Makes a handle that another process can import. May block. CUDA `cuMemExportToShareableHandle`,
    /// HIP `hipMemExportToShareableHandle`.
    fn export_physical(&self, handle: PhysicalHandle, handle_type: HandleType) -> Result<ShareableHandle>;

    /// Takes a handle another process exported. May block. CUDA `cuMemImportFromShareableHandle`,
    /// HIP `hipMemImportFromShareableHandle` (the descriptor is passed by pointer up to 7.0, by value from 7.1).
    fn import_physical(&self, device: DeviceIndex, shared: &ShareableHandle) -> Result<PhysicalHandle>;
}
