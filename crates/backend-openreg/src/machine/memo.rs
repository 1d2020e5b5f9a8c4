//! What copies of reserved memory to the host find there, which has no bytes: one byte everywhere, or what was copied
//! to it while it was asked to remember.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

/// Copies of more bytes leave the host's memory as it was, so that large buffers take no pages.
pub(crate) const MOST: u64 = 1 << 20;

#[derive(Debug, Default)]
struct Bytes {
    otherwise: u8,
    /// By address; there while it remembers.
    kept: Option<BTreeMap<u64, u8>>,
}

/// The bytes of memory that has none.
#[derive(Debug, Default)]
pub(crate) struct Memo(Mutex<Bytes>);

/// One side of a copy.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Place {
    Host(u64),
    Device(u64),
}

impl Memo {
    fn with<T>(&self, visit: impl FnOnce(&mut Bytes) -> T) -> T {
        visit(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The byte that is read where nothing is remembered.
    pub(crate) fn set_otherwise(&self, byte: u8) {
        self.with(|bytes| bytes.otherwise = byte);
    }

    /// Begins to remember, or forgets everything.
    pub(crate) fn remember(&self, remembers: bool) {
        self.with(|bytes| bytes.kept = remembers.then(|| bytes.kept.take().unwrap_or_default()));
    }

    pub(crate) fn remembers(&self) -> bool {
        self.with(|bytes| bytes.kept.is_some())
    }

    /// Copies. At least one side is a device's.
    pub(crate) fn copy(&self, to: Place, from: Place, count: u64) {
        if count > MOST {
            return;
        }
        self.with(|bytes| {
            let read: Vec<u8> = match from {
                Place::Host(at) => {
                    let at = std::ptr::with_exposed_provenance::<u8>(at as usize);
                    // SAFETY: rule 2: the host range is valid and not written while the copy is queued.
                    unsafe { std::slice::from_raw_parts(at, count as usize) }.to_vec()
                }
                Place::Device(at) => {
                    let kept = bytes.kept.as_ref();
                    let byte = |at| kept.and_then(|kept| kept.get(&at)).copied().unwrap_or(bytes.otherwise);
                    (at..at + count).map(byte).collect()
                }
            };
            match to {
                Place::Host(at) => {
                    let at = std::ptr::with_exposed_provenance_mut::<u8>(at as usize);
                    // SAFETY: rule 2: the host range is valid and no one else's while the copy is queued.
                    unsafe { std::ptr::copy_nonoverlapping(read.as_ptr(), at, read.len()) };
                }
                Place::Device(at) => {
                    if let Some(kept) = &mut bytes.kept {
                        kept.extend((at..).zip(read));
                    }
                }
            }
        });
    }
}
