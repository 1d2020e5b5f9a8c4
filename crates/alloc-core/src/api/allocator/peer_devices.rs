//! Devices that reach each other's memory, and copies between them.

use super::CachingAllocator;
use crate::backend::CopyKind;
use crate::error::{AllocError, Result};
use crate::process::stream_identity::named;
use crate::types::{DeviceIndex, DevicePtr, Stream};

/// Access of devices to each other's memory: [`CachingAllocator::peers`].
#[derive(Clone, Copy, Debug)]
pub struct Peers<'a>(&'a CachingAllocator);

impl<'a> Peers<'a> {
    pub(super) fn of(allocator: &'a CachingAllocator) -> Self {
        Self(allocator)
    }

    /// True if `from` could reach the memory of `to`. Does not block. PyTorch: `canDeviceAccessPeer`.
    ///
    /// # Errors
    /// [`AllocError::InvalidDevice`]; the driver's error.
    pub fn can_access(self, from: DeviceIndex, to: DeviceIndex) -> Result<bool> {
        self.0.device(from)?;
        self.0.device(to)?;
        match self.0.backend.peers() {
            Ok(peers) if from != to => Ok(peers.can_access(from, to)?),
            _ => Ok(from == to),
        }
    }

    /// Lets work of `from` use memory of `to`: the memory that this allocator holds there and will take, growable
    /// segments included. Doing it twice is fine. May block. PyTorch: `enablePeerAccess`.
    ///
    /// # Errors
    /// [`AllocError::InvalidDevice`]; [`AllocError::Limit`] where the backend has no peers; the driver's error. Nothing
    /// has changed then for memory that will be taken, and the call can be made again.
    pub fn enable(self, from: DeviceIndex, to: DeviceIndex) -> Result<()> {
        self.0.device(from)?;
        let owner = self.0.device(to)?;
        if from == to {
            return Ok(());
        }
        let peers = self.0.backend.peers().map_err(|_| {
            AllocError::Limit(
                "this backend's devices cannot reach each other's memory; copy through copy_async",
            )
        })?;
        owner.noticing(peers.enable_access(from, to).map_err(AllocError::Backend))?;
        owner.noticing(owner.open_to(from))
    }

    /// True if work of `from` may use memory of `to`, through [`enable`](Self::enable).
    ///
    /// # Errors
    /// [`AllocError::InvalidDevice`].
    pub fn is_enabled(self, from: DeviceIndex, to: DeviceIndex) -> Result<bool> {
        self.0.device(from)?;
        Ok(self.0.device(to)?.accounting.is_reached_by(from))
    }

    /// Queues a copy between two devices, or within one, by the way that works. It is a plain copy where the stream's
    /// device reaches both sides or neither device has growable memory. Otherwise it is the driver's peer copy. Does
    /// not block. PyTorch: `memcpyAsync`.
    ///
    /// # Errors
    /// [`AllocError::ForeignStream`], [`AllocError::InvalidDevice`]; the driver's error.
    ///
    /// # Safety
    /// Both ranges are device memory of the devices named, and stay so until `stream` has passed the copy.
    pub unsafe fn copy_async(
        self,
        dst: (DeviceIndex, DevicePtr),
        src: (DeviceIndex, DevicePtr),
        bytes: u64,
        stream: Stream,
    ) -> Result<()> {
        let stream = named(self.0.own(stream)?)?;
        let sides = [self.0.device(dst.0)?, self.0.device(src.0)?];
        if bytes == 0 {
            return Ok(());
        }
        let direct = dst.0 == src.0 && dst.0 == stream.device
            || sides.iter().all(|side| side.accounting.is_reached_by(stream.device))
            || sides.iter().all(|side| !side.accounting.has_growable_memory());
        let queued = match self.0.backend.peers() {
            // SAFETY: rule 2, by this function's contract.
            Ok(peers) if !direct => unsafe { peers.copy_peer_async(dst, src, bytes, stream) },
            // SAFETY: as above.
            _ => unsafe { self.0.backend.copy_async(dst.1, src.1, bytes, CopyKind::DeviceToDevice, stream) },
        };
        sides[0].noticing(queued.map_err(AllocError::Backend))
    }
}
