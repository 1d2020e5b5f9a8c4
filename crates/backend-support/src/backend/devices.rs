//! Devices: attributes, properties, waiting.

use super::DriverBackend;
use crate::calls::{AttributeSource, Calls};
use crate::driver::Family;
use crate::errors::INVALID_VALUE;
use backend_api::types::DeviceIndex;
use backend_api::{Attribute, DeviceProperties, ErrorKind, Result};

pub(super) fn attribute<D: Calls>(
    backend: &DriverBackend<D>,
    device: DeviceIndex,
    attribute: Attribute,
) -> Result<i64> {
    let call = D::NAMES.attribute;
    let site = backend.context.site(device, call)?;
    match site.driver().attribute_source(attribute) {
        AttributeSource::Known(value) => Ok(value),
        AttributeSource::None => {
            let detail = format!("{attribute:?} has no number in {}", site.driver().api());
            Err(site.refuse(ErrorKind::NotSupported, call, detail))
        }
        AttributeSource::Asked(number) => D::ask_attribute(site, number).map(i64::from).map_err(|failed| {
            if failed.code != INVALID_VALUE {
                return failed;
            }
            let detail = format!("this {} does not know attribute {number} ({attribute:?})", D::NOUN);
            site.refuse(ErrorKind::NotSupported, call, detail)
        }),
    }
}

pub(super) fn properties<D: Calls>(
    backend: &DriverBackend<D>,
    device: DeviceIndex,
) -> Result<DeviceProperties> {
    let site = backend.context.site(device, D::NAMES.device_name)?;
    let (name, total_memory) = (D::device_name(site)?, D::total_memory(site)?);
    let warp = attribute(backend, device, Attribute::WarpSize)?;
    Ok(DeviceProperties {
        name,
        uuid: D::uuid(site)?,
        pci_bus_id: D::pci_bus_id(site)?,
        total_memory,
        warp_size: u32::try_from(warp).unwrap_or(0),
    })
}

pub(super) fn has_primary_context<D: Calls>(backend: &DriverBackend<D>, device: DeviceIndex) -> Result<bool> {
    D::has_primary_context(backend.context.site(device, D::NAMES.primary_state)?)
}

pub(super) fn synchronize_device<D: Calls>(backend: &DriverBackend<D>, device: DeviceIndex) -> Result<()> {
    D::synchronize(*backend.context.enter(device, D::NAMES.synchronize_device)?)
}

/// Refuses where a function of a family is missing.
pub(super) fn has<D: Calls>(backend: &DriverBackend<D>, family: Family) -> Result<()> {
    D::has(backend.context.any_site(D::NAMES.attribute)?, family)
}

/// Refuses where a device says that it lacks something.
pub(super) fn every_device_has<D: Calls>(backend: &DriverBackend<D>, asked: Attribute) -> Result<()> {
    for device in backend.context.devices() {
        if attribute(backend, device, asked)? == 0 {
            let call = D::NAMES.attribute;
            let site = backend.context.site(device, call)?;
            return Err(site.refuse(ErrorKind::NotSupported, call, format!("{asked:?} is 0")));
        }
    }
    Ok(())
}
