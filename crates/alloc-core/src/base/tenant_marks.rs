//! Tenants by number, and the marks that bound what one holds: what reports and errors say of them.

use crate::types::DeviceIndex;
use std::fmt;

/// A tenant of a device. Numbers are not used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TenantId {
    pub(crate) device: DeviceIndex,
    pub(crate) number: u32,
}

impl TenantId {
    /// Its device.
    #[must_use]
    pub const fn device(self) -> DeviceIndex {
        self.device
    }
}

impl fmt::Display for TenantId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of device {}", self.number, self.device)
    }
}

/// A budget on a certain device, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Marks {
    /// Guaranteed; 0 is nothing.
    pub guarantee: u64,
    /// Beyond it, cached memory goes back before more is taken.
    pub soft: Option<u64>,
    /// Beyond it nothing is taken.
    pub hard: Option<u64>,
}
