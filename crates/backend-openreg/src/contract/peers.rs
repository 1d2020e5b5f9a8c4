//! Peer access.

use super::checks::{memo, prepare_copy};
use crate::gate::call::Call;
use crate::memory::index;
use crate::openreg::OpenReg;
use crate::refusal::{Answer, Refusal};
use backend_api::types::{DeviceIndex, DevicePtr, Stream};
use backend_api::{CopyKind, Peers, Result};

impl OpenReg {
    fn exists(&self, device: DeviceIndex) -> Answer<()> {
        if device.0 < self.config.devices {
            Ok(())
        } else {
            Err(Refusal::invalid(format!("there is no device {device}")))
        }
    }
}

impl Peers for OpenReg {
    fn can_access(&self, from: DeviceIndex, to: DeviceIndex) -> Result<bool> {
        self.call(Call::CanAccessPeer, from, |_| {
            self.exists(to)?;
            Ok(from != to && self.reaches(from, to))
        })
    }

    fn enable_access(&self, from: DeviceIndex, to: DeviceIndex) -> Result<()> {
        self.call(Call::EnablePeerAccess, from, |mut state| {
            self.exists(to)?;
            if !self.reaches(from, to) {
                return Err(Refusal::unsupported(format!(
                    "device {from} cannot reach memory of device {to}"
                )));
            }
            state.memory.peers[index(from)][index(to)] = true;
            Ok(())
        })
    }

    unsafe fn copy_peer_async(
        &self,
        dst: (DeviceIndex, DevicePtr),
        src: (DeviceIndex, DevicePtr),
        bytes: u64,
        stream: Stream,
    ) -> Result<()> {
        self.enqueue(Call::CopyPeerAsync, stream, |state, device| {
            self.exists(dst.0)?;
            self.exists(src.0)?;
            for (owner, at) in [dst, src] {
                if let Some(found) = state.memory.owner_of(at.0).filter(|&found| found != index(owner)) {
                    return Err(Refusal::invalid(format!("{at} belongs to device {found}, not {owner}")));
                }
            }
            let prepared = prepare_copy(
                memo(&self.config, &self.machine),
                state,
                device,
                (dst.1.0, src.1.0),
                bytes,
                CopyKind::DeviceToDevice,
            )?;
            self.gate.charge(Call::CopyPeerAsync, bytes);
            Ok(prepared)
        })
    }
}
