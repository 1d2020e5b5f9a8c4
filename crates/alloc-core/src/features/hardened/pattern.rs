//! The patterns, and reading them back.

use crate::backend::{Backend, BackendError, CopyKind, ErrorKind, Result};
use crate::sync::assert_unlocked;
use crate::types::DevicePtr;

/// A request is larger by this, so that a canary follows it in any block.
pub(crate) const MARGIN: u64 = 16;
/// The longest canary: as much as rounding leaves behind most requests.
pub(crate) const CANARY_BYTES: u64 = 512;
/// What follows a block's bytes.
pub(crate) const CANARY: u8 = 0xc5;
/// What a freed block is filled with. Read as floating-point numbers it is large and odd, and no program's usual fill.
pub(crate) const POISON: u8 = 0xdb;

/// Bytes read at a time.
const CHUNK: usize = 1 << 18;

/// Where memory differs from its pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mismatch {
    /// First byte that differs.
    pub(crate) at: DevicePtr,
    /// Bytes that differ.
    pub(crate) bytes: u64,
    /// The first of them.
    pub(crate) found: u8,
}

/// Reads device memory back and compares it with a pattern.
#[derive(Debug, Default)]
pub(crate) struct Reader {
    buffer: Vec<u8>,
}

impl Reader {
    /// Where `bytes` at `ptr` are not all `pattern`. Blocks. `NotSupported` where the memory holds no bytes, as that of
    /// a simulated device which only reserves it.
    ///
    /// # Safety
    /// Rule 2 of the contract for the range; nothing writes to it on purpose meanwhile.
    pub(crate) unsafe fn compare(
        &mut self,
        backend: &dyn Backend,
        ptr: DevicePtr,
        bytes: u64,
        pattern: u8,
    ) -> Result<Option<Mismatch>> {
        assert_unlocked();
        let mut mismatch: Option<Mismatch> = None;
        let mut done = 0;
        while done < bytes {
            let length = (bytes - done).min(CHUNK as u64);
            let at = ptr.add(done);
            // SAFETY: the caller's.
            let mut found = unsafe { self.read(backend, at, length, !pattern) }?;
            if is_all(found, !pattern) {
                // Nothing was copied, or exactly this is there: another filling tells.
                // SAFETY: the caller's.
                found = unsafe { self.read(backend, at, length, pattern) }?;
                if is_all(found, pattern) {
                    let detail = "the device's memory holds no bytes that could be checked";
                    let device = backend.current_device().unwrap_or_default();
                    return Err(BackendError::new(ErrorKind::NotSupported, 0, "copy", device, detail));
                }
            }
            if !is_all(found, pattern) {
                let wrong = |(_, byte): &(u64, &u8)| **byte != pattern;
                let mut differing = (0..).zip(found).filter(wrong);
                if let Some((offset, found)) = differing.next() {
                    let found = Mismatch { at: at.add(offset), bytes: 0, found: *found };
                    mismatch.get_or_insert(found).bytes += 1 + differing.count() as u64;
                }
            }
            done += length;
        }
        Ok(mismatch)
    }

    /// Reads `bytes` at `at` into the buffer, which is full of `filling` before.
    ///
    /// # Safety
    /// Rule 2 of the contract for the range.
    unsafe fn read(
        &mut self,
        backend: &dyn Backend,
        at: DevicePtr,
        bytes: u64,
        filling: u8,
    ) -> Result<&[u8]> {
        let length = usize::try_from(bytes).unwrap_or(CHUNK);
        if self.buffer.len() < length {
            self.buffer = vec![0; length];
        }
        let buffer = &mut self.buffer[..length];
        buffer.fill(filling);
        let host = DevicePtr(buffer.as_mut_ptr().expose_provenance() as u64);
        // SAFETY: rule 2: the caller's for the device range; the host range is this reader's buffer, `bytes` long, which
        // nobody else has.
        unsafe { backend.copy(host, at, bytes, CopyKind::DeviceToHost) }?;
        Ok(buffer)
    }
}

/// Whether every byte is `byte`: the first one is, and each of the others is like the one before it. So many are compared at a
/// time, however this is compiled.
fn is_all(bytes: &[u8], byte: u8) -> bool {
    match bytes.split_first() {
        Some((first, others)) => *first == byte && *others == bytes[..others.len()],
        None => true,
    }
}
