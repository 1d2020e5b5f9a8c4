//! Peer access.

use crate::entry::{device, here, ready};
use granule_hip_sys::abi6::*;
use lookalike::{Code, peers};
use std::ffi::{c_int, c_uint};

lookalike::entries! {
    run: crate::entry::run, status: hipError_t;

    /// Whether a device can reach another's memory.
    fn hipDeviceCanAccessPeer as hipDeviceCanAccessPeer_t(out can: *mut c_int, val from: c_int, val to: c_int) {
        let (from, to) = (device(from)?, device(to)?);
        can.wanted()?;
        can.put(c_int::from(peers::can_access(ready()?, from, to)?))
    }

    /// Lets the current device reach another's memory; not again.
    fn hipDeviceEnablePeerAccess as hipDeviceEnablePeerAccess_t(val peer: c_int, val flags: c_uint) {
        peers::enable(here()?, device(peer)?, flags, Code::INVALID_DEVICE)
    }

    /// Takes it back: the simulated devices keep it.
    fn hipDeviceDisablePeerAccess as hipDeviceDisablePeerAccess_t(val peer: c_int) {
        peers::disable(here()?, device(peer)?)
    }
}
