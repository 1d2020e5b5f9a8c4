//! Virtual memory, and physical memory for other processes.

use crate::context::Context;
use crate::driver::{Driver, Site};
use crate::physical::{Keeps, Mapping};
use backend_api::types::{DeviceIndex, DevicePtr};
use backend_api::{Access, Granularity, Result};
use std::ffi::{c_uint, c_ulonglong, c_void};
use std::os::fd::BorrowedFd;

/// Virtual memory. Shared handles have the types 0 (none), 1 (file descriptor) and 8 (fabric); access is 0 (none), 1
/// (read) or 3 (read and write).
#[allow(clippy::missing_safety_doc, reason = "said once for all calls")]
pub trait VirtualMemoryCalls: Driver {
    /// What must be kept for a piece of physical memory.
    type Keeps: Keeps;

    /// The unit of sizes and addresses, for memory of the site's device of any handle type.
    fn granularity(site: Site<'_, Self>, which: Granularity) -> Result<u64>;
    /// Reserves addresses.
    fn reserve_addresses(site: Site<'_, Self>, bytes: usize, alignment: usize, hint: u64) -> Result<u64>;
    /// Gives addresses back in which nothing is mapped.
    unsafe fn free_addresses(site: Site<'_, Self>, at: u64, bytes: usize) -> Result<()>;
    /// Takes physical memory of the site's device; `rdma`: which network cards can be given.
    fn create_physical(site: Site<'_, Self>, bytes: usize, handle_type: c_uint, rdma: bool) -> Result<u64>;
    /// Gives one reference to physical memory back.
    unsafe fn release_physical(site: Site<'_, Self>, handle: u64) -> Result<()>;
    /// Maps a whole handle.
    unsafe fn map(site: Site<'_, Self>, at: u64, bytes: usize, handle: u64) -> Result<()>;
    /// Unmaps; `mappings` make up the range where the driver does not check that
    /// ([`Abilities::checks_mappings`](crate::Abilities)).
    unsafe fn unmap(
        site: Site<'_, Self>,
        at: u64,
        bytes: usize,
        mappings: &[Mapping<Self::Keeps>],
    ) -> Result<()>;
    /// Sets what devices that exist may do; `mappings` as for [`unmap`](Self::unmap), otherwise none.
    unsafe fn set_access(
        site: Site<'_, Self>,
        at: u64,
        bytes: usize,
        mappings: &[Mapping<Self::Keeps>],
        devices: &[DeviceIndex],
        access: Access,
    ) -> Result<()>;
    /// The number of what the site's device may do.
    fn access(site: Site<'_, Self>, at: DevicePtr) -> Result<c_ulonglong>;
    /// The device and the handle types of a handle.
    ///
    /// # Safety
    /// The handle is live.
    unsafe fn ask_physical(
        context: &Context<Self>,
        site: Site<'_, Self>,
        handle: u64,
    ) -> Result<(DeviceIndex, c_uint)>;

    /// Writes the shared form of a handle: a descriptor, or 64 bytes.
    ///
    /// # Safety
    /// The handle is live, has that type, and `out` has room for its shared form.
    unsafe fn export_physical(
        site: Site<'_, Self>,
        handle: u64,
        handle_type: c_uint,
        out: *mut c_void,
    ) -> Result<()>;
    /// The handle of what another process shared by a descriptor.
    fn import_descriptor(site: Site<'_, Self>, descriptor: BorrowedFd<'_>) -> Result<u64>;
    /// The handle of what another process shared by fabric.
    fn import_fabric(site: Site<'_, Self>, bytes: [u8; 64]) -> Result<u64>;
}
