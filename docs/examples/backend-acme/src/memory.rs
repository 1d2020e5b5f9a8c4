//! Memory of devices, taken from the host's allocator. REPLACE all of it by the driver's memory calls.

use std::alloc::Layout;
use std::collections::BTreeMap;

/// Bytes per device.
pub(crate) const CAPACITY: u64 = 1 << 30;

/// What was handed out; host memory has no device.
pub(crate) struct Block {
    pub(crate) device: Option<u16>,
    pub(crate) bytes: u64,
    layout: Layout,
}

/// All of it, by base address.
#[derive(Default)]
pub(crate) struct Memory(BTreeMap<u64, Block>);

impl Memory {
    pub(crate) fn free_bytes(&self, device: u16) -> u64 {
        let mine = self.0.values().filter(|block| block.device == Some(device));
        CAPACITY - mine.map(|block| block.bytes).sum::<u64>()
    }

    /// The block that an address lies in, with its base.
    pub(crate) fn block_of(&self, ptr: u64) -> Option<(u64, &Block)> {
        let (&base, block) = self.0.range(..=ptr).next_back()?;
        (ptr - base < block.bytes).then_some((base, block))
    }

    /// The base of new memory; none where there is no room. `bytes` is not 0.
    pub(crate) fn take(&mut self, device: Option<u16>, bytes: u64, align: usize) -> Option<u64> {
        if bytes > device.map_or(CAPACITY, |device| self.free_bytes(device)) {
            return None;
        }
        let layout = Layout::from_size_align(usize::try_from(bytes).ok()?, align).ok()?;
        // SAFETY: the size is not 0.
        let base = unsafe { std::alloc::alloc(layout) }.expose_provenance() as u64;
        if base == 0 {
            return None;
        }
        self.0.insert(base, Block { device, bytes, layout });
        Some(base)
    }

    /// Takes memory back; false where no block of that owner begins there.
    pub(crate) fn give(&mut self, device: Option<u16>, base: u64) -> bool {
        if self.0.get(&base).is_none_or(|block| block.device != device) {
            return false;
        }
        let Some(block) = self.0.remove(&base) else { return false };
        // SAFETY: `take` made it with this layout, and it was in the list once.
        unsafe { std::alloc::dealloc(std::ptr::with_exposed_provenance_mut(base as usize), block.layout) };
        true
    }
}
