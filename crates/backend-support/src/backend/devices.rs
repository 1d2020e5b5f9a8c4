//! What a family needs of the library and of the devices.

use super::DriverBackend;
use crate::calls::Calls;
use crate::driver::Family;
use backend_api::{Attribute, Backend, ErrorKind, Result};

/// Refuses where a function of a family is missing.
pub(super) fn has<D: Calls>(backend: &DriverBackend<D>, family: Family) -> Result<()> {
    D::has(backend.context.any_site(D::NAMES.attribute)?, family)
}

/// Refuses where a device says that it lacks something.
pub(super) fn every_device_has<D: Calls>(backend: &DriverBackend<D>, asked: Attribute) -> Result<()> {
    // A lost device answers nothing, and the others work on.
    for device in backend.context.devices().filter(|&device| !backend.context.is_lost(device)) {
        if backend.attribute(device, asked)? == 0 {
            let call = D::NAMES.attribute;
            let site = backend.context.site(device, call)?;
            return Err(site.refuse(ErrorKind::NotSupported, call, format!("{asked:?} is 0")));
        }
    }
    Ok(())
}
