//! Copies: what the addresses of both sides are.
//!
//! Where the program says which side is the host, the machine refuses another kind of address there, except page-locked
//! memory on a device's side.

use crate::{Answer, Here};
use backend_api::types::DevicePtr;
use backend_api::{Backend, CopyKind, PointerKind};

/// One side of a copy.
#[derive(Clone, Copy, Debug)]
pub enum Side {
    /// The program says that it is host memory.
    Host(u64),
    /// The program says that the driver knows it.
    Known(u64),
    /// The driver is to find out.
    Any(u64),
}

impl Side {
    /// The address, and whether a device's memory is there.
    fn resolve(self, here: Here) -> Answer<(DevicePtr, bool)> {
        let (at, is_any) = match self {
            Self::Host(at) => return Ok((DevicePtr(at), false)),
            Self::Known(at) => (DevicePtr(at), false),
            Self::Any(at) => (DevicePtr(at), true),
        };
        match here.machine.pointer_info(at)?.kind {
            PointerKind::Device | PointerKind::Managed => Ok((at, true)),
            PointerKind::Host => Ok((at, false)),
            // The machine traps the use of an address that is nothing.
            PointerKind::Unmanaged => Ok((at, !is_any)),
        }
    }
}

/// A copy with both its sides known.
#[derive(Clone, Copy, Debug)]
pub struct Copy {
    /// Where the bytes go.
    pub to: DevicePtr,
    /// Where they are.
    pub from: DevicePtr,
    /// How many.
    pub bytes: u64,
    /// Between which kinds of memory.
    pub kind: CopyKind,
}

impl Copy {
    /// Finds out what both sides are.
    pub fn of(here: Here, to: Side, from: Side, bytes: usize) -> Answer<Self> {
        let ((to, to_device), (from, from_device)) = (to.resolve(here)?, from.resolve(here)?);
        let kind = match (to_device, from_device) {
            (true, true) => CopyKind::DeviceToDevice,
            (true, false) => CopyKind::HostToDevice,
            (false, true) => CopyKind::DeviceToHost,
            (false, false) => CopyKind::HostToHost,
        };
        Ok(Self { to, from, bytes: bytes as u64, kind })
    }
}
