//! Peer access.

use crate::entry::{device, driver, here};
use crate::header::*;
use lookalike::{Code, contexts, peers};
use std::ffi::{c_int, c_uint};

lookalike::entries! {
    run: crate::entry::run, status: CUresult;

    /// Whether a device can reach another's memory.
    fn cuDeviceCanAccessPeer as cuDeviceCanAccessPeer_t(out can: *mut c_int, val from: CUdevice, val to: CUdevice) {
        let (from, to) = (device(from)?, device(to)?);
        can.wanted()?;
        can.put(c_int::from(peers::can_access(driver()?, from, to)?))
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
        value.put(c_int::from(asks_for_access && peers::can_access(driver()?, from, to)?))
    }

    /// Lets the current context reach another's memory.
    fn cuCtxEnablePeerAccess as cuCtxEnablePeerAccess_t(val peer: CUcontext, val flags: c_uint) {
        let here = here()?;
        let peer = contexts::device_of(peer.addr())?;
        contexts::usable(peer)?;
        peers::enable(here, peer, flags, Code::INVALID_CONTEXT)
    }

    /// Takes it back: the simulated devices keep it.
    fn cuCtxDisablePeerAccess as cuCtxDisablePeerAccess_t(val peer: CUcontext) {
        peers::disable(here()?, contexts::device_of(peer.addr())?)
    }
}
