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

// Tests are compiled as they stand, where a step for each byte takes long. What follows moves and compares whole pieces.

/// Contents that tell where they belong: whose they are, and at which place each piece of 64 KiB lies.
#[must_use]
pub fn pattern(seed: u64, bytes: u64) -> Vec<u8> {
    const PIECE: usize = 1 << 16;
    let of =
        |n: usize| (n.wrapping_mul(31) ^ n >> 8).to_le_bytes()[0] ^ seed.wrapping_mul(131).to_le_bytes()[0];
    let all = usize::try_from(bytes).expect("it fits the host");
    let mut contents: Vec<u8> = (0..all.min(PIECE)).map(of).collect();
    while contents.len() < all {
        contents.extend_from_within(..contents.len().min(all - contents.len()));
    }
    for (number, piece) in contents.chunks_exact_mut(PIECE).enumerate() {
        piece[..8].copy_from_slice(&(number as u64 ^ seed << 32).to_le_bytes());
    }
    contents
}

/// The place of the first byte that is not `value`.
#[must_use]
pub fn first_other(contents: &[u8], value: u8) -> Option<usize> {
    let same = [value; 4096];
    let mut pieces = contents.chunks(same.len()).enumerate();
    let (number, piece) = pieces.find(|(_, piece)| **piece != same[..piece.len()])?;
    let within = piece.iter().position(|byte| *byte != value)?;
    Some(number * same.len() + within)
}

#[cfg(test)]
mod tests {
    use super::{first_other, pattern};
    use std::collections::BTreeSet;

    #[test]
    fn the_first_byte_that_differs_is_found() {
        let mut contents = vec![7; 10_000];
        assert_eq!([first_other(&contents, 7), first_other(&contents, 8)], [None, Some(0)]);
        for at in [9_999, 8_192, 4_096, 4_095, 1] {
            contents[at] = 0;
            assert_eq!(first_other(&contents, 7), Some(at));
        }
        assert_eq!(first_other(&[], 7), None);
    }

    #[test]
    fn a_pattern_tells_its_seed_and_its_place() {
        let (contents, piece) = (pattern(3, 200_000), 1 << 16);
        assert_eq!(contents.len(), 200_000);
        let pieces: BTreeSet<_> = contents.chunks(piece).chain(contents[..piece].chunks(4_096)).collect();
        assert_eq!(pieces.len(), 4 + 16, "each lies where it belongs");
        assert!(contents[..4_096] != pattern(4, 4_096));
    }
}
