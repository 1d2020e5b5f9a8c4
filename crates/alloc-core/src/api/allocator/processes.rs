//! Blocks that other processes use.

use super::CachingAllocator;
use crate::device::Device;
use crate::error::{AllocError, Result};
use crate::features::share::handle::Handle;
use crate::features::share::{ImportedMemory, SharedBlock};
use crate::sync::Arc;
use crate::types::{DeviceIndex, DevicePtr};

/// Memory that an allocator shares with other processes: [`CachingAllocator::sharing`].
#[derive(Clone, Copy, Debug)]
pub struct Sharing<'a>(&'a CachingAllocator);

impl<'a> Sharing<'a> {
    pub(super) fn of(allocator: &'a CachingAllocator) -> Self {
        Self(allocator)
    }

    /// Lets other processes open the live block at `ptr`. The handle is the same bytes on every call as long as the
    /// block lives and does not sleep, and opens nothing afterwards. A free does not wait for processes that have the
    /// block open. The block stays pending until they have closed it or have ended. Later calls notice that, as with
    /// other pending frees. Blocks. PyTorch: `shareIpcHandle`.
    ///
    /// # Errors
    /// * [`AllocError::InvalidPointer`] where `ptr` is no live block, or one that a
    ///   [`DeviceBuffer`](crate::DeviceBuffer) has (the buffer can share it);
    /// * [`AllocError::Share`] where its memory cannot leave the process;
    /// * [`AllocError::Asleep`]; [`AllocError::Backend`] for driver errors.
    ///
    /// The call can be made again.
    pub fn share(self, ptr: DevicePtr) -> Result<SharedBlock> {
        self.share_held_by(ptr, false)
    }

    /// [`share`](Self::share) of a block that a value has, or that none has.
    pub(crate) fn share_held_by(self, ptr: DevicePtr, owned: bool) -> Result<SharedBlock> {
        if let Some(process_state) = self.0.process_state() {
            return Err(process_state.refusal());
        }
        let shared = match self.0.map.get(ptr) {
            Some(at) => {
                let device = self.0.device(at.device)?;
                device.noticing(device.share(ptr, at, owned))?
            }
            None => self.share_uncached(ptr, owned)?,
        };
        shared.ok_or_else(|| match self.0.sleep_mode().is_asleep(ptr) {
            Some(true) => AllocError::Asleep { what: format!("the block at {ptr}") },
            _ => self.0.bad_pointer(ptr),
        })
    }

    fn share_uncached(self, ptr: DevicePtr, owned: bool) -> Result<Option<SharedBlock>> {
        let is_there = |device: &&Device| device.uncached.is_owned(ptr) == Some(owned);
        let Some(device) = self.0.all_devices().find(is_there) else { return Ok(None) };
        device.noticing(device.share_uncached(ptr))
    }

    /// Opens a block by the handle that [`share`](Self::share) gave in another process, for use on `device`. The block
    /// begins [`offset`](SharedBlock::offset) bytes from the base. The same handle gives the same memory for as long as
    /// somebody has it; the last one to drop it waits for the device and closes it. A handle that is damaged, of
    /// another allocator, or of a block that is gone, is refused and never mapped. Blocks. PyTorch: `getIpcDevPtr`.
    ///
    /// # Errors
    /// [`AllocError::Open`] says why the handle cannot be opened; [`AllocError::Backend`] for driver errors. Nothing is
    /// left open, and the call can be made again.
    pub fn open(self, device: DeviceIndex, handle: &[u8]) -> Result<Arc<ImportedMemory>> {
        let device = self.0.device(device)?;
        let read = Handle::from_bytes(handle).map_err(|problem| AllocError::Open { problem })?;
        if self.0.devices.iter().any(|device| device.exchange.is_exporter(read.exporter.nonce)) {
            let problem = "the block is this process's own, as long as it is not freed: use the address it was allocated at".into();
            return Err(AllocError::Open { problem });
        }
        device.noticing(device.open_shared(handle, read))
    }

    /// Bytes of address space on `device` that show other processes' memory: never more than the memory that is shown.
    ///
    /// # Errors
    /// [`AllocError::InvalidDevice`].
    pub fn imported_bytes(self, device: DeviceIndex) -> Result<u64> {
        Ok(self.0.seen_device(device)?.exchange.imports().bytes())
    }
}
