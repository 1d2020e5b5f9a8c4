//! Peer access.

use crate::{Answer, Code, Here};
use backend_api::Backend;
use backend_api::types::DeviceIndex;
use backend_openreg::OpenReg;
use std::collections::HashSet;
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

/// Which device was enabled to reach which other.
static ENABLED: LazyLock<Mutex<HashSet<(DeviceIndex, DeviceIndex)>>> = LazyLock::new(Mutex::default);

fn enabled() -> MutexGuard<'static, HashSet<(DeviceIndex, DeviceIndex)>> {
    ENABLED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether a device can reach another's memory.
pub fn can_access(machine: &OpenReg, from: DeviceIndex, to: DeviceIndex) -> Answer<bool> {
    match machine.peers() {
        Ok(family) => Ok(family.can_access(from, to)?),
        Err(_) => Ok(false),
    }
}

/// Lets the current device reach another's memory; not again.
///
/// # Errors
/// `itself` for the current device; `INVALID_VALUE` for flags, of which there are none; `PEER_ACCESS_UNSUPPORTED`;
/// `PEER_ACCESS_ALREADY_ENABLED`.
pub fn enable(here: Here, peer: DeviceIndex, flags: u32, itself: Code) -> Answer {
    if flags != 0 {
        return Err(Code::INVALID_VALUE);
    }
    if peer == here.device {
        return Err(itself);
    }
    if !can_access(here.machine, here.device, peer)? {
        return Err(Code::PEER_ACCESS_UNSUPPORTED);
    }
    let mut enabled = enabled();
    if enabled.contains(&(here.device, peer)) {
        return Err(Code::PEER_ACCESS_ALREADY_ENABLED);
    }
    here.machine.peers()?.enable_access(here.device, peer)?;
    enabled.insert((here.device, peer));
    Ok(())
}

/// Takes it back, which the simulated devices cannot.
///
/// # Errors
/// `NOT_SUPPORTED`; `PEER_ACCESS_NOT_ENABLED` where it was not.
pub fn disable(here: Here, peer: DeviceIndex) -> Answer {
    let is_enabled = enabled().contains(&(here.device, peer));
    Err(if is_enabled { Code::NOT_SUPPORTED } else { Code::PEER_ACCESS_NOT_ENABLED })
}
