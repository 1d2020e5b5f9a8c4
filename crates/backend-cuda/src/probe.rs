//! Which optional families there are: each is probed once, at the first question, by using it.

use crate::cuda::Cuda;
use backend_api::types::DeviceIndex;
use backend_api::{Attribute, ErrorKind, Result};
use backend_support::Probe;

/// What is known about every family.
#[derive(Debug, Default)]
pub(crate) struct Probes {
    pub(crate) virtual_memory: Probe,
    pub(crate) physical_sharing: Probe,
    pub(crate) fabric: Probe,
    pub(crate) ipc: Probe,
    pub(crate) peers: Probe,
    pub(crate) capture: Probe,
    pub(crate) driver_pools: Probe,
    pub(crate) host_registration: Probe,
    pub(crate) managed_memory: Probe,
    pub(crate) stream_memory: Probe,
    pub(crate) multicast: Probe,
}

impl Cuda {
    /// Refuses where one of some functions was not found in the library.
    pub(crate) fn needs(&self, functions: &[(&'static str, bool)]) -> Result<()> {
        match functions.iter().find(|(_, found)| !found) {
            Some((missing, _)) => Err(self.any_site(missing)?.missing(missing)),
            None => Ok(()),
        }
    }

    /// Refuses where a device says that it lacks something.
    pub(crate) fn every_device_has(&self, attribute: Attribute) -> Result<()> {
        for index in 0..self.devices.len() {
            let device = DeviceIndex(u16::try_from(index).unwrap_or(u16::MAX));
            if self.attribute(device, attribute)? == 0 {
                let detail = format!("{attribute:?} is 0");
                return Err(self.site(device, "cuDeviceGetAttribute")?.refuse(
                    ErrorKind::NotSupported,
                    "cuDeviceGetAttribute",
                    detail,
                ));
            }
        }
        Ok(())
    }
}
