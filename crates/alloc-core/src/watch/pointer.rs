//! Wrong pointers: diagnosis of an address that is no live block.

use crate::types::{DeviceIndex, DevicePtr};
use crate::watch::snapshot::{Action, TraceEntry};
use std::fmt;

/// A refused pointer: it is not the first address of a live block on which the call may act. Nothing was done.
#[derive(Clone, Debug)]
pub struct BadPointer {
    /// The address.
    pub ptr: DevicePtr,
    /// The problem with it.
    pub problem: Problem,
    /// The newest entries of the history about this address, oldest first; empty where none is recorded.
    pub history: Vec<TraceEntry>,
}

/// Problem with a pointer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Problem {
    /// It was freed already, and its memory is free again. With history this is what the newest entry says; without, it
    /// is inferred from a free block that begins there.
    Freed,
    /// It was freed already; other streams still use its memory.
    PendingFree {
        /// Bytes as requested.
        requested: u64,
    },
    /// It lies inside a live block.
    InsideBlock {
        /// First address of that block: the address to use.
        block: DevicePtr,
        /// The block's bytes, rounded.
        bytes: u64,
        /// The block's bytes as requested.
        requested: u64,
    },
    /// It lies in memory that this allocator holds and that is in nobody's hands.
    NotHandedOut {
        /// The device.
        device: DeviceIndex,
        /// First address of the segment.
        segment: DevicePtr,
        /// Bytes of the segment.
        bytes: u64,
    },
    /// A [`DeviceBuffer`](crate::DeviceBuffer) has the block, and frees it.
    Owned,
    /// A live block that came straight from the driver, while caching was off: it has no stream, segment or history.
    NotCached,
    /// It lies in no segment over the [registered memory](crate::share::RegisteredMemory) that was asked.
    NotRegistered,
    /// It lies in no memory of this allocator.
    Foreign,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotRegistered => {
                write!(f, "it lies in no pool over this registered memory: allocate it in such a pool")
            }
            Self::Freed => write!(f, "it was freed already (double free)"),
            Self::PendingFree { requested } => {
                write!(
                    f,
                    "it was freed already (double free), and its {requested} bytes wait for other streams, or for processes that \
                     have it open"
                )
            }
            Self::InsideBlock { block, bytes, requested } => write!(
                f,
                "it lies inside the live block at {block} ({requested} bytes were requested, {bytes} given); name its \
                 first address"
            ),
            Self::NotHandedOut { device, segment, bytes } => write!(
                f,
                "it lies in free memory of this allocator (segment {segment}, {bytes} bytes, device {device}): it was \
                 freed before, or never handed out; history tells which (record_history)"
            ),
            Self::Owned => write!(
                f,
                "a DeviceBuffer has the block and frees it: drop the buffer, or take the address out (into_raw)"
            ),
            Self::NotCached => write!(f, "it was allocated while caching was off and can only be freed"),
            Self::Foreign => write!(f, "it lies in no memory of this allocator"),
        }
    }
}

impl fmt::Display for BadPointer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "invalid device pointer: {}: {}", self.ptr, self.problem)?;
        for TraceEntry { action, addr, size, stream, time_us, frames, .. } in &self.history {
            write!(
                f,
                "\n  {} of {size} bytes at {addr:#x}, stream {stream:#x}, time {time_us} us",
                action.name()
            )?;
            for frame in frames.iter().flat_map(|frames| frames.iter()) {
                write!(f, "\n    {}:{} {}", frame.filename, frame.line, frame.name)?;
            }
        }
        Ok(())
    }
}

/// True if the newest entry about a block that begins at `ptr` is a free.
pub(crate) fn says_freed(history: &[TraceEntry], ptr: DevicePtr) -> bool {
    let of_block = |entry: &&TraceEntry| {
        entry.addr == ptr.0
            && matches!(entry.action, Action::Alloc | Action::FreeRequested | Action::FreeCompleted)
    };
    history.iter().rfind(of_block).is_some_and(|entry| entry.action != Action::Alloc)
}
