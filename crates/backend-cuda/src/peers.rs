//! Devices that reach each other's memory.

use crate::cuda::Cuda;
use crate::driver::pointer;
use crate::error;
use crate::memory::positive;
use backend_api::types::{DeviceIndex, DevicePtr, Stream};
use backend_api::{Peers, Result};

impl Cuda {
    pub(crate) fn probe_peers(&self) -> Result<()> {
        needs!(self: cuDeviceCanAccessPeer, cuCtxEnablePeerAccess, cuMemcpyPeerAsync)
    }
}

impl Peers for Cuda {
    fn can_access(&self, from: DeviceIndex, to: DeviceIndex) -> Result<bool> {
        let site = self.site(from, "cuDeviceCanAccessPeer")?;
        let own = self.device(from, "cuDeviceCanAccessPeer")?.number;
        let other = self.device(to, "cuDeviceCanAccessPeer")?.number;
        if from == to {
            return Ok(true);
        }
        let mut can = 0;
        // SAFETY: the function writes one integer.
        unsafe { call!(site.cuDeviceCanAccessPeer(&raw mut can, own, other)) }?;
        Ok(can != 0)
    }

    fn enable_access(&self, from: DeviceIndex, to: DeviceIndex) -> Result<()> {
        let other = self.context(self.site(to, "cuCtxEnablePeerAccess")?)?;
        let entered = self.enter(from, "cuCtxEnablePeerAccess")?;
        if from == to {
            return Ok(());
        }
        // SAFETY: the context is a primary one that this backend retains.
        match unsafe { call!(entered.cuCtxEnablePeerAccess(other, 0)) } {
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
        const CALL: &str = "cuMemcpyPeerAsync";
        let to = self.context(self.site(dst.0, CALL)?)?;
        let from = self.context(self.site(src.0, CALL)?)?;
        let entered = self.enter_handle(stream.backend, stream.device, CALL)?;
        positive(*entered, CALL, bytes)?;
        let (length, queue) = (bytes as usize, pointer(stream.raw));
        // SAFETY: rule 2 for both ranges until the stream has passed it; the contexts are retained.
        unsafe { call!(entered.cuMemcpyPeerAsync(dst.1.0, to, src.1.0, from, length, queue)) }
    }
}
