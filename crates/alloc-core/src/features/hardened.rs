//! Hardened mode (`hardened`): finds programs that write where they must not, at a price.
//!
//! * **Canary**: a block is at least 16 bytes larger than asked for, and what follows the program's bytes (512 bytes at
//!   most) holds a pattern. A write past the end changes it.
//! * **Poison**: a freed block is filled with another pattern, on its own stream, after the work of every stream
//!   that uses it.
//! * **Quarantine**: freed blocks are held back, [`pending`](crate::pointer::Problem::Quarantined), until those of their
//!   device have more bytes than `hardened_quarantine`; the oldest leave first. A second free is an error that says so.
//!   A flush, a wait for pending frees, or a request that finds no memory empties it.
//! * **Protection**: with growable segments, a request over 1 MiB gets whole granules of its own, and they are
//!   inaccessible to the device while in quarantine: whatever uses them fails at once, reads included. Smaller blocks
//!   share granules and are only poisoned.
//!
//! Both patterns are checked when a block leaves the quarantine; what differs is reported to
//! [observers](crate::allocator::Hooks::on_corruption), counted, and logged.
//!
//! **A free may wait for the device**: for the block's own stream where memory is protected, and for the oldest blocks where
//! the quarantine is full. While a capture is under way on the device nothing is waited for: no block is protected, the
//! quarantine grows beyond its bound, and what has to leave it, because a request finds no memory, goes unchecked. Memory of pools
//! that graphs use is left alone: their replays write to freed blocks rightly. So are blocks whose stream is retired,
//! and blocks at an address that the program named.

mod pattern;
mod quarantine;

pub(crate) use pattern::{CANARY, CANARY_BYTES, MARGIN, Mismatch, POISON, Reader};
pub(crate) use quarantine::{Quarantine, Quarantined};

use crate::sync::Arc;
use crate::types::{DeviceIndex, DevicePtr};
use crate::watch::pointer::write_history;
use crate::watch::snapshot::TraceEntry;
use std::fmt;

/// What a program did to memory that was not its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Corruption {
    /// It wrote past the end of a block.
    Overflow,
    /// It wrote to a block after it had freed it.
    UseAfterFree,
}

impl fmt::Display for Corruption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Overflow => "written past the end of a block",
            Self::UseAfterFree => "written to a block after its free",
        })
    }
}

/// Memory that was written by somebody who must not: found when its block left the quarantine.
#[derive(Clone, Debug)]
pub struct CorruptionReport {
    /// What happened.
    pub corruption: Corruption,
    /// The device.
    pub device: DeviceIndex,
    /// First address of the block.
    pub ptr: DevicePtr,
    /// The block's bytes as requested.
    pub requested: u64,
    /// The first byte that was changed.
    pub at: DevicePtr,
    /// Bytes that were changed.
    pub bytes: u64,
    /// What the first of them is now.
    pub found: u8,
    /// The newest entries of the history about the block, oldest first; empty where none is recorded.
    pub history: Vec<TraceEntry>,
}

impl fmt::Display for CorruptionReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "memory corruption on device {}: {} bytes {}, {} of {} bytes; the first at {} (offset {}) is now {:#04x}",
            self.device,
            self.bytes,
            self.corruption,
            self.ptr,
            self.requested,
            self.at,
            self.at.0.saturating_sub(self.ptr.0),
            self.found,
        )?;
        write_history(f, &self.history)
    }
}

/// Sees corrupted memory. It may panic and use the allocator: see [code of the program](crate#code-of-the-program).
pub type CorruptionObserver = Arc<dyn Fn(&CorruptionReport) + Send + Sync>;

/// What hardened mode has done on a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct HardenedStats {
    /// Blocks in quarantine.
    pub quarantined: u64,
    /// Their bytes, rounded.
    pub quarantined_bytes: u64,
    /// Bytes of them that the device cannot access.
    pub protected_bytes: u64,
    /// Blocks that were checked.
    pub checked: u64,
    /// Freed blocks that were not, or not wholly: see the [module](self), and driver errors.
    pub unchecked: u64,
    /// Corruptions found.
    pub corruptions: u64,
}
