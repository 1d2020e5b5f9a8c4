//! Devices that reach each other's memory.

use crate::context::ordinal;
use crate::driver::pointer;
use crate::error;
use crate::hip::Hip;
use crate::memory::positive;
use backend_api::types::{DeviceIndex, DevicePtr, Stream};
use backend_api::{Peers, Result};

impl Hip {
    pub(crate) fn probe_peers(&self) -> Result<()> {
        needs!(self: hipDeviceCanAccessPeer, hipDeviceEnablePeerAccess, hipMemcpyPeerAsync)
    }
}

impl Peers for Hip {
    fn can_access(&self, from: DeviceIndex, to: DeviceIndex) -> Result<bool> {
        let site = self.site(from, "hipDeviceCanAccessPeer")?;
        self.device(to, "hipDeviceCanAccessPeer")?;
        if from == to {
            return Ok(true);
        }
        let mut can = 0;
        // SAFETY: the function writes one integer.
        unsafe { call!(site.hipDeviceCanAccessPeer(&raw mut can, ordinal(from), ordinal(to))) }?;
        Ok(can != 0)
    }

    fn enable_access(&self, from: DeviceIndex, to: DeviceIndex) -> Result<()> {
        self.site(to, "hipDeviceEnablePeerAccess")?;
        let entered = self.enter(from, "hipDeviceEnablePeerAccess")?;
        if from == to {
            return Ok(());
        }
        // SAFETY: the function takes integers; the device exists.
        match unsafe { call!(entered.hipDeviceEnablePeerAccess(ordinal(to), 0)) } {
            Err(error) if error.code == error::PEER_ACCESS_ALREADY_ENABLED => Ok(()),
            answer => answer,
        }
    }

    unsafe fn copy_peer_async(
        &self,
        dst: (DeviceIndex, DevicePtr),
        src: (DeviceIndex, DevicePtr),
        bytes: u64,
        stream: Stream,
    ) -> Result<()> {
        const CALL: &str = "hipMemcpyPeerAsync";
        self.site(dst.0, CALL)?;
        self.site(src.0, CALL)?;
        let entered = self.enter_handle(stream.backend, stream.device, CALL)?;
        positive(*entered, CALL, bytes)?;
        let (to, from) = (pointer(dst.1.0), pointer(src.1.0));
        let (length, queue) = (bytes as usize, pointer(stream.raw));
        // SAFETY: rule 2 for both ranges until the stream has passed it; the devices exist.
        unsafe { call!(entered.hipMemcpyPeerAsync(to, ordinal(dst.0), from, ordinal(src.0), length, queue)) }
    }
}
