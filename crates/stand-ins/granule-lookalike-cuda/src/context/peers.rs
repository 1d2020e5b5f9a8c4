//! Peer access.

use crate::entry::{device, driver, here};
use crate::header::*;
use backend_api::Backend;
use backend_api::types::DeviceIndex;
use lookalike::{Answer, Code, contexts};
use std::collections::HashSet;
use std::ffi::{c_int, c_uint};
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

/// Which device was enabled to reach which other.
static ENABLED: LazyLock<Mutex<HashSet<(DeviceIndex, DeviceIndex)>>> = LazyLock::new(Mutex::default);

fn enabled() -> MutexGuard<'static, HashSet<(DeviceIndex, DeviceIndex)>> {
    ENABLED.lock().unwrap_or_else(PoisonError::into_inner)
}

fn can_access(from: DeviceIndex, to: DeviceIndex) -> Answer<bool> {
    match driver()?.peers() {
        Ok(family) => Ok(family.can_access(from, to)?),
        Err(_) => Ok(false),
    }
}

lookalike::entries! {
    run: crate::entry::run, status: CUresult;

    /// Whether a device can reach another's memory.
    fn cuDeviceCanAccessPeer as cuDeviceCanAccessPeer_t(out can: *mut c_int, val from: CUdevice, val to: CUdevice) {
        let (from, to) = (device(from)?, device(to)?);
        can.wanted()?;
        can.put(c_int::from(can_access(from, to)?))
    }

    /// What devices can do with each other's memory.
    fn cuDeviceGetP2PAttribute as cuDeviceGetP2PAttribute_t(
        out value: *mut c_int, val which: CUdevice_P2PAttribute, val from: CUdevice, val to: CUdevice,
    ) {
        let (from, to) = (device(from)?, device(to)?);
        let asks_for_access = matches!(
            which,
            CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED | CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED
        );
        value.put(c_int::from(asks_for_access && can_access(from, to)?))
    }

    /// Lets the current context reach another's memory.
    fn cuCtxEnablePeerAccess as cuCtxEnablePeerAccess_t(val peer: CUcontext, val flags: c_uint) {
        let here = here()?;
        let peer = contexts::device_of(peer.addr())?;
        contexts::usable(peer)?;
        if flags != 0 {
            return Err(Code::INVALID_VALUE);
        }
        if peer == here.device {
            return Err(Code::INVALID_CONTEXT);
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
    fn cuCtxDisablePeerAccess as cuCtxDisablePeerAccess_t(val peer: CUcontext) {
        let here = here()?;
        let peer = contexts::device_of(peer.addr())?;
        let is_enabled = enabled().contains(&(here.device, peer));
        Err(if is_enabled { Code::NOT_SUPPORTED } else { Code::PEER_ACCESS_NOT_ENABLED })
    }
}
