//! Physical memory that was given back and keeps its pages for the next that is asked for: the memory of a real device is
//! there all the time.

use super::Extent;
use crate::os::SharedFile;
use std::collections::BTreeMap;
use std::io;

/// Whether it is alone in a file, and its bytes.
type Key = (bool, u64);

/// What one device keeps.
#[derive(Debug)]
pub(super) struct Spares {
    /// Bytes that may be kept.
    most: u64,
    /// Bytes that are kept.
    kept: u64,
    extents: BTreeMap<Key, Vec<Extent>>,
}

impl Spares {
    pub(super) const fn new(most: u64) -> Self {
        Self { most, kept: 0, extents: BTreeMap::new() }
    }

    /// A file for memory of the device. Only where its pages stay is a view worth its page faults.
    pub(super) fn file(&self, name: &str, bytes: u64) -> io::Result<SharedFile> {
        if self.most == 0 { SharedFile::create(name, bytes) } else { SharedFile::create_in_view(name, bytes) }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.extents.is_empty()
    }

    /// Keeps it. What is returned goes: sizes that nobody asks for any more, or this one where they would not make room.
    pub(super) fn keep(&mut self, key: Key, extent: Extent) -> Vec<Extent> {
        let of_kind = self.extents.get(&key).map_or(0, |kept| kept.len() as u64 * extent.bytes);
        if of_kind + extent.bytes > self.most {
            return vec![extent];
        }
        let mut gone = Vec::new();
        while self.kept + extent.bytes > self.most {
            gone.extend(self.take_other_than(key));
        }
        self.kept += extent.bytes;
        self.extents.entry(key).or_default().push(extent);
        gone
    }

    /// What was last kept of this kind.
    pub(super) fn take(&mut self, key: Key) -> Option<Extent> {
        let found = self.extents.get_mut(&key)?;
        let extent = found.pop();
        if found.is_empty() {
            self.extents.remove(&key);
        }
        self.kept -= extent.as_ref().map_or(0, |extent| extent.bytes);
        extent
    }

    pub(super) fn take_any(&mut self) -> Option<Extent> {
        let key = *self.extents.keys().next()?;
        self.take(key)
    }

    /// Something that is not of this kind.
    fn take_other_than(&mut self, key: Key) -> Option<Extent> {
        let other = self.extents.keys().copied().find(|&other| other != key)?;
        self.take(other)
    }
}
