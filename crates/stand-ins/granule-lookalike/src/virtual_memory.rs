//! Virtual memory, where both vendors number alike.

use crate::argument::Out;
use crate::{Answer, Code};
use backend_api::types::{DeviceIndex, DevicePtr};
use backend_api::{Access, Granularity, VirtualMemory};

/// There are no flags yet.
///
/// # Errors
/// `INVALID_VALUE` for any.
pub const fn no_flags(flags: u64) -> Answer {
    if flags == 0 { Ok(()) } else { Err(Code::INVALID_VALUE) }
}

/// Tells the unit of sizes.
///
/// # Errors
/// `INVALID_VALUE` for an unknown option; what the machine says.
pub fn put_granularity(
    family: &dyn VirtualMemory,
    device: DeviceIndex,
    option: u32,
    place: &Out<usize>,
) -> Answer {
    let which = match option {
        0 => Granularity::Minimum,
        1 => Granularity::Recommended,
        _ => return Err(Code::INVALID_VALUE),
    };
    place.wanted()?;
    place.put(family.granularity(device, which)? as usize)
}

/// Sets what devices may do with mapped memory. All is read before `is_opened` is told and any is set: an
/// error changes nothing.
///
/// # Errors
/// `INVALID_VALUE` for an unknown number, and without a device; what the machine says.
pub fn set_access(
    family: &dyn VirtualMemory,
    at: DevicePtr,
    bytes: usize,
    all: impl IntoIterator<Item = Answer<(DeviceIndex, u32)>>,
    is_opened: impl FnOnce() -> Answer,
) -> Answer {
    let read = |one: Answer<(DeviceIndex, u32)>| {
        let (device, number) = one?;
        let access = match number {
            0 => Access::None,
            1 => Access::Read,
            3 => Access::ReadWrite,
            _ => return Err(Code::INVALID_VALUE),
        };
        Ok((device, access))
    };
    let all = all.into_iter().map(read).collect::<Answer<Vec<_>>>()?;
    is_opened()?;
    for (device, access) in all {
        // SAFETY: the machine refuses what is not whole mappings, and to take away what queued work uses.
        unsafe { family.set_access(at, bytes as u64, &[device], access) }?;
    }
    Ok(())
}

/// Tells what a device may do with mapped memory.
pub fn put_access(
    family: &dyn VirtualMemory,
    at: DevicePtr,
    device: DeviceIndex,
    place: &Out<u64>,
) -> Answer {
    place.wanted()?;
    place.put(match family.access(at, device)? {
        Access::None => 0,
        Access::Read => 1,
        Access::ReadWrite => 3,
    })
}
