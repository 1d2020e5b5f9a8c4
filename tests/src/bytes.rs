//! Real bytes on a device: for tests on machines whose memory has some.

use alloc_core::backend::{Backend, CopyKind};
use alloc_core::types::{DevicePtr, Stream};

/// Writes, reads and fills memory of a backend. Every range given to it is a live block's, and is used by nobody else
/// meanwhile.
#[derive(Clone, Copy, Debug)]
pub struct Bytes<'b>(pub &'b dyn Backend);

impl Bytes<'_> {
    /// Queues a fill.
    ///
    /// # Panics
    /// Where the machine refuses, as all functions here.
    pub fn fill(self, stream: Stream, ptr: DevicePtr, value: u8, bytes: u64) {
        // SAFETY: rule 2: see the type.
        unsafe { self.0.memset_async(ptr, value, bytes, stream) }.expect("a fill can be queued");
    }

    /// Copies `contents` to the device. Blocks.
    pub fn write(self, ptr: DevicePtr, contents: &[u8]) {
        let from = DevicePtr(contents.as_ptr() as u64);
        // SAFETY: rule 2: see the type; the host's side is a slice that lives during the call.
        unsafe { self.0.copy(ptr, from, contents.len() as u64, CopyKind::HostToDevice) }
            .expect("bytes can be written");
    }

    /// Copies `bytes` bytes from the device. Blocks.
    #[must_use]
    pub fn read(self, ptr: DevicePtr, bytes: u64) -> Vec<u8> {
        let mut contents = vec![0; usize::try_from(bytes).expect("it fits the host")];
        let to = DevicePtr(contents.as_mut_ptr() as u64);
        // SAFETY: rule 2: see the type; the host's side is a vector that lives during the call.
        unsafe { self.0.copy(to, ptr, bytes, CopyKind::DeviceToHost) }.expect("bytes can be read");
        contents
    }
}

/// Contents that tell where they belong.
#[must_use]
pub fn pattern(seed: u64, bytes: u64) -> Vec<u8> {
    (0..bytes).map(|n| (n.wrapping_mul(31) ^ n >> 8 ^ seed.wrapping_mul(131)).to_le_bytes()[0]).collect()
}
