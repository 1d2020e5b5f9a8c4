//! Devices that reach each other's memory.

use super::DriverBackend;
use crate::calls::Calls;
use crate::errors::PEER_ACCESS_ALREADY_ENABLED;
use backend_api::types::{DeviceIndex, DevicePtr, Stream};
use backend_api::{Peers, Result};

impl<D: Calls> Peers for DriverBackend<D> {
    fn can_access(&self, from: DeviceIndex, to: DeviceIndex) -> Result<bool> {
        let site = self.context.site(from, D::NAMES.can_access_peer)?;
        self.context.exists(to, D::NAMES.can_access_peer)?;
        if from == to { Ok(true) } else { D::can_access_peer(site, to) }
    }

    fn enable_access(&self, from: DeviceIndex, to: DeviceIndex) -> Result<()> {
        let other = self.context.site(to, D::NAMES.enable_peer)?;
        let entered = self.context.enter(from, D::NAMES.enable_peer)?;
        if from == to {
            return Ok(());
        }
        match D::enable_peer(*entered, other) {
            Err(error) if error.code == PEER_ACCESS_ALREADY_ENABLED => Ok(()),
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
        let call = D::NAMES.copy_peer;
        let (to, from) = (self.context.site(dst.0, call)?, self.context.site(src.0, call)?);
        let entered = self.context.enter_handle(stream.backend, stream.device, call)?;
        entered.positive(call, bytes)?;
        // SAFETY: rule 2 for both ranges until the stream has passed it.
        unsafe { D::copy_peer_async(*entered, (to, dst.1), (from, src.1), bytes as usize, stream) }
    }
}
