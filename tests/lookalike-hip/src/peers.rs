//! Peer access.

use crate::entry::{device, here, ready};
use alloc_core::backend::Backend;
use alloc_core::types::DeviceIndex;
use granule_hip_sys::abi6::*;
use lookalike::{Answer, Code};
use std::collections::HashSet;
use std::ffi::{c_int, c_uint};
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

/// Which device was enabled to reach which other.
static ENABLED: LazyLock<Mutex<HashSet<(DeviceIndex, DeviceIndex)>>> = LazyLock::new(Mutex::default);

fn enabled() -> MutexGuard<'static, HashSet<(DeviceIndex, DeviceIndex)>> {
    ENABLED.lock().unwrap_or_else(PoisonError::into_inner)
}

fn can_access(from: DeviceIndex, to: DeviceIndex) -> Answer<bool> {
    match ready()?.peers() {
        Ok(family) => Ok(family.can_access(from, to)?),
        Err(_) => Ok(false),
    }
}

lookalike::entries! {
    run: crate::entry::run, status: hipError_t;

    /// Whether a device can reach another's memory.
    fn hipDeviceCanAccessPeer as hipDeviceCanAccessPeer_t(out can: *mut c_int, val from: c_int, val to: c_int) {
        let (from, to) = (device(from)?, device(to)?);
        can.wanted()?;
        can.put(c_int::from(can_access(from, to)?))
    }

    /// Lets the current device reach another's memory; not again.
    fn hipDeviceEnablePeerAccess as hipDeviceEnablePeerAccess_t(val peer: c_int, val flags: c_uint) {
        let (here, peer) = (here()?, device(peer)?);
        if flags != 0 {
            return Err(Code::INVALID_VALUE);
        }
        if peer == here.device {
            return Err(Code::INVALID_DEVICE);
        }
        if !can_access(here.device, peer)? {
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

    /// Takes it back: the simulated devices keep it.
    fn hipDeviceDisablePeerAccess as hipDeviceDisablePeerAccess_t(val peer: c_int) {
        let (here, peer) = (here()?, device(peer)?);
        let is_enabled = enabled().contains(&(here.device, peer));
        Err(if is_enabled { Code::NOT_SUPPORTED } else { Code(hipErrorPeerAccessNotEnabled.cast_signed()) })
    }
}
