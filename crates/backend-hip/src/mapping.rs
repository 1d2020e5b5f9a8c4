//! Calls about several mappings. The runtime takes no more than one whole mapping at a time.

use crate::descriptors::Descriptors;
use crate::layout::location;
use crate::library::HipDriver;
use backend_api::types::DeviceIndex;
use backend_api::{Access, Result};
use backend_support::errors::log_undo;
use backend_support::{Mapping, call, pointer};
use granule_hip_sys::abi6 as abi;

type Site<'c> = backend_support::Site<'c, HipDriver>;
type OneMapping = Mapping<Descriptors>;

/// Takes mappings away one by one, and maps again what was already gone where one is refused, as far as its handle is live.
/// Runtimes up to ROCm 6.2 count no reference in `hipMemRetainAllocationHandle`: what is asked for and released again there
/// is released once too often.
pub(crate) fn unmap_each(site: Site<'_>, mappings: &[OneMapping]) -> Result<()> {
    for (done, mapping) in mappings.iter().enumerate() {
        // SAFETY: rule 3, which the caller keeps: this is one whole mapping.
        unsafe { call!(site.hipMemUnmap(pointer(mapping.at), mapping.bytes as usize)) }
            .inspect_err(|_| mappings[..done].iter().for_each(|gone| map_again(site, gone)))?;
    }
    Ok(())
}

fn map_again(site: Site<'_>, mapping: &OneMapping) {
    let Some(raw) = mapping.handle else {
        tracing::error!(at = mapping.at, "what was unmapped has no handle to be mapped by again");
        return;
    };
    // SAFETY: the mapping was here a moment ago, and the handle is live.
    let mapped =
        unsafe { call!(site.hipMemMap(pointer(mapping.at), mapping.bytes as usize, 0, pointer(raw), 0)) };
    let mut access = mapping.access.iter();
    log_undo(mapped.and_then(|()| {
        access.try_for_each(|&(device, access)| set_access(site, mapping, &[device], access))
    }));
}

/// Sets the access of some mappings one by one, and sets what it was before where one is refused.
pub(crate) fn set_access_of_each(
    site: Site<'_>,
    mappings: &[OneMapping],
    devices: &[DeviceIndex],
    access: Access,
) -> Result<()> {
    for (done, mapping) in mappings.iter().enumerate() {
        set_access(site, mapping, devices, access).inspect_err(|_| {
            for mapping in mappings.iter().take(done) {
                for &device in devices {
                    log_undo(set_access(site, mapping, &[device], mapping.access_of(device)));
                }
            }
        })?;
    }
    Ok(())
}

fn set_access(site: Site<'_>, mapping: &OneMapping, devices: &[DeviceIndex], access: Access) -> Result<()> {
    let flags = match access {
        Access::None => abi::hipMemAccessFlagsProtNone,
        Access::Read => abi::hipMemAccessFlagsProtRead,
        Access::ReadWrite => abi::hipMemAccessFlagsProtReadWrite,
    };
    let wanted: Vec<_> =
        devices.iter().map(|&device| abi::hipMemAccessDesc { location: location(device), flags }).collect();
    let (at, bytes) = (pointer(mapping.at), mapping.bytes as usize);
    // SAFETY: the range is one whole mapping; the pointer and the count are one slice's.
    unsafe { call!(site.hipMemSetAccess(at, bytes, wanted.as_ptr(), wanted.len())) }
}
