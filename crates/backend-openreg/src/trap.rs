//! Traps: wrong uses of memory that a real device would answer with corruption or a dead context.

use crate::Call;
use backend_api::types::{DeviceIndex, DevicePtr};

/// What was wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum TrapKind {
    /// Work was queued on memory that is not allocated, or not mapped.
    Unallocated,
    /// Work was queued on mapped memory that the device may not use that way.
    NoAccess,
    /// A kernel was queued on another device's memory without peer access.
    NoPeerAccess,
    /// Memory was freed, unmapped or closed while queued work uses it.
    StillInUse,
    /// Work was queued on memory that another stream's queued work uses, through another address or for another
    /// user, and nothing makes it wait for that.
    NotOrdered,
    /// A host function panicked.
    HostFunctionPanicked,
}

/// One trapped call. Except for a panicked host function, the call failed with `InvalidValue` and changed
/// nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trap {
    /// What was wrong.
    pub kind: TrapKind,
    /// The call that did it.
    pub call: Call,
    /// The device it was about.
    pub device: DeviceIndex,
    /// First address of the range; null for a host function.
    pub ptr: DevicePtr,
    /// Length of the range in bytes; 0 for a host function.
    pub bytes: u64,
}
