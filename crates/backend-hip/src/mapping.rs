//! Calls about several mappings. The runtime takes no more than one whole mapping at a time.

use crate::descriptors::Descriptors;
use crate::layout::location;
use crate::library::HipDriver;
use backend_api::types::DeviceIndex;
use backend_api::{Access, Result};
use backend_support::errors::log_undo;
use backend_support::{Mapping, call, number, pointer};
use granule_hip_sys::abi6 as abi;
use std::ptr;

type Site<'c> = backend_support::Site<'c, HipDriver>;
type OneMapping = Mapping<Descriptors>;

/// Takes mappings away one by one, and maps again what was already gone where one is refused.
pub(crate) fn unmap_each(site: Site<'_>, mappings: &[OneMapping]) -> Result<()> {
    if let [one] = mappings {
        // SAFETY: rule 3, which the caller keeps: this is one whole mapping.
        return unsafe { call!(site.hipMemUnmap(pointer(one.at), one.bytes as usize)) };
    }
    // A handle may be given up while it is mapped; to map it again takes a reference.
    let mut held = Vec::with_capacity(mappings.len());
    let retained = mappings.iter().try_for_each(|mapping| {
        held.push(retain(site, mapping.at)?);
        Ok(())
    });
    let unmapped = retained.and_then(|()| {
        for (done, mapping) in mappings.iter().enumerate() {
            // SAFETY: as above.
            unsafe { call!(site.hipMemUnmap(pointer(mapping.at), mapping.bytes as usize)) }.inspect_err(
                |_| {
                    for (mapping, &raw) in mappings.iter().zip(&held).take(done) {
                        log_undo(map_again(site, mapping, raw));
                    }
                },
            )?;
        }
        Ok(())
    });
    for raw in held {
        // SAFETY: gives back the reference that was taken above.
        log_undo(unsafe { call!(site.hipMemRelease(pointer(raw))) });
    }
    unmapped
}

pub(crate) fn retain(site: Site<'_>, at: u64) -> Result<u64> {
    let mut handle = ptr::null_mut();
    // SAFETY: the function writes one handle, and refuses an address where nothing is mapped.
    unsafe { call!(site.hipMemRetainAllocationHandle(&raw mut handle, pointer(at))) }?;
    Ok(number(handle))
}

fn map_again(site: Site<'_>, mapping: &OneMapping, raw: u64) -> Result<()> {
    // SAFETY: the mapping was here a moment ago, and the handle is held.
    unsafe { call!(site.hipMemMap(pointer(mapping.at), mapping.bytes as usize, 0, pointer(raw), 0)) }?;
    mapping.access.iter().try_for_each(|&(device, access)| set_access(site, mapping, &[device], access))
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
