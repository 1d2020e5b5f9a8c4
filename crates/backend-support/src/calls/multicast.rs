//! One address that writes to many devices. A driver that has it makes all of these calls, and one that has not says
//! why.

use crate::driver::{Driver, Site};
use backend_api::{ErrorKind, Result};

fn refused<D: Driver, T>(site: Site<'_, D>, call: &'static str) -> Result<T> {
    Err(site.refuse(ErrorKind::NotSupported, call, format!("the {} has no multicast objects", D::NOUN)))
}

/// Multicast objects.
#[allow(clippy::missing_safety_doc, reason = "said once for all calls")]
pub trait MulticastCalls: Driver {
    /// Why there are none, where there are none.
    const NO_MULTICAST: Option<&'static str>;

    /// The unit of sizes.
    fn multicast_granularity(site: Site<'_, Self>, _devices: u32, _bytes: usize) -> Result<u64> {
        refused(site, Self::NAMES.multicast_granularity)
    }
    /// A new object.
    fn create_multicast(site: Site<'_, Self>, _devices: u32, _bytes: usize) -> Result<u64> {
        refused(site, Self::NAMES.create_multicast)
    }
    /// Adds the site's device.
    fn add_multicast_device(site: Site<'_, Self>, _object: u64) -> Result<()> {
        refused(site, Self::NAMES.add_multicast_device)
    }
    /// Binds physical memory.
    unsafe fn bind_multicast(
        site: Site<'_, Self>,
        _object: u64,
        _offset: usize,
        _memory: u64,
        _bytes: usize,
    ) -> Result<()> {
        refused(site, Self::NAMES.bind_multicast)
    }
    /// Undoes it for the site's device.
    unsafe fn unbind_multicast(
        site: Site<'_, Self>,
        _object: u64,
        _offset: usize,
        _bytes: usize,
    ) -> Result<()> {
        refused(site, Self::NAMES.unbind_multicast)
    }
}
