//! Memory of other processes and of other devices.

use crate::context::Context;
use crate::driver::{Driver, Site};
use backend_api::types::{DeviceIndex, DevicePtr, Stream};
use backend_api::{IpcMemoryHandle, Result};

/// Memory and events of other processes.
#[allow(clippy::missing_safety_doc, reason = "said once for all calls")]
pub trait IpcCalls: Driver {
    /// Where the allocation begins in which an address lies; none where it cannot be shared this way.
    fn shareable_base(
        context: &Context<Self>,
        site: Site<'_, Self>,
        ptr: DevicePtr,
    ) -> Result<Option<DevicePtr>>;
    /// The handle of an allocation; none where the driver says that it cannot be shared this way.
    fn export_memory(site: Site<'_, Self>, base: DevicePtr) -> Result<Option<IpcMemoryHandle>>;
    /// Opens what another process exported.
    fn open_memory(site: Site<'_, Self>, handle: &IpcMemoryHandle) -> Result<u64>;
    /// Closes it.
    unsafe fn close_memory(site: Site<'_, Self>, ptr: u64) -> Result<()>;
}

/// Devices that reach each other's memory.
#[allow(clippy::missing_safety_doc, reason = "said once for all calls")]
pub trait PeerCalls: Driver {
    /// Whether the site's device can reach the memory of another one that exists.
    fn can_access_peer(site: Site<'_, Self>, to: DeviceIndex) -> Result<bool>;
    /// Lets it.
    fn enable_peer(site: Site<'_, Self>, to: Site<'_, Self>) -> Result<()>;
    /// Queues a copy between devices.
    unsafe fn copy_peer_async(
        site: Site<'_, Self>,
        dst: (Site<'_, Self>, DevicePtr),
        src: (Site<'_, Self>, DevicePtr),
        bytes: usize,
        stream: Stream,
    ) -> Result<()>;
}
