//! The kinds of policies that an arena can have, as code sees them that serves requests: each is known when that code is
//! compiled.

use super::ArenaState;
use crate::memory::block::{BlockId, SegmentId};
use crate::policy::{
    GranulePolicy, Hooks, Placed, Placement, Placing, Policy, PytorchPolicy, Remembered, granule,
};
use std::hint::unreachable_unchecked;

/// A kind of policy.
pub(super) trait Kind {
    type Placed: Placing + ?Sized;
    type Memory: Hooks + ?Sized;

    /// The free blocks of an arena of this kind.
    ///
    /// # Safety
    /// The placement is of this kind: it was made by a policy of this type, which an allocator keeps.
    unsafe fn placed(placement: &mut Placement) -> &mut Self::Placed;

    /// What its policy remembers of an arena of this kind.
    ///
    /// # Safety
    /// The memory is of this kind: it was made by a policy of this type, which an allocator keeps.
    unsafe fn memory(remembered: &mut Remembered) -> &mut Self::Memory;

    /// Takes the bytes at a [place](Hooks::place) out of the free ones. Returns the block, in no index.
    fn take_at(state: &mut ArenaState, segment: SegmentId, addr: u64, size: u64) -> Option<BlockId>;

    /// Takes a block back whose segment the policy [lends](Hooks::lends), and that is free.
    fn take_back(state: &mut ArenaState, id: BlockId);
}

impl Kind for PytorchPolicy {
    type Placed = Placed<Self>;
    type Memory = <Self as Policy>::Memory;

    #[inline(always)]
    unsafe fn placed(placement: &mut Placement) -> &mut Placed<Self> {
        match placement {
            Placement::Pytorch(placed) => placed,
            // SAFETY: the caller's promise.
            _ => unsafe { unreachable_unchecked() },
        }
    }

    #[inline(always)]
    unsafe fn memory(remembered: &mut Remembered) -> &mut Self::Memory {
        match remembered {
            Remembered::Nothing(nothing) => nothing,
            // SAFETY: the caller's promise.
            Remembered::Granule(_) => unsafe { unreachable_unchecked() },
        }
    }

    #[inline(always)]
    fn take_at(_: &mut ArenaState, _: SegmentId, _: u64, _: u64) -> Option<BlockId> {
        None
    }

    #[inline(always)]
    fn take_back(_: &mut ArenaState, _: BlockId) {}
}

impl Kind for GranulePolicy {
    type Placed = Placed<Self>;
    type Memory = <Self as Policy>::Memory;

    #[inline(always)]
    unsafe fn placed(placement: &mut Placement) -> &mut Placed<Self> {
        match placement {
            Placement::Granule(placed) => placed,
            // SAFETY: the caller's promise.
            _ => unsafe { unreachable_unchecked() },
        }
    }

    #[inline(always)]
    unsafe fn memory(remembered: &mut Remembered) -> &mut Self::Memory {
        match remembered {
            Remembered::Granule(memory) => memory,
            // SAFETY: the caller's promise.
            Remembered::Nothing(()) => unsafe { unreachable_unchecked() },
        }
    }

    #[inline(always)]
    fn take_at(state: &mut ArenaState, segment: SegmentId, addr: u64, size: u64) -> Option<BlockId> {
        granule::take_at(state, segment, addr, size)
    }

    #[inline(always)]
    fn take_back(state: &mut ArenaState, id: BlockId) {
        granule::end_loan(state, id);
    }
}

/// A policy of a program's own, which is called through a table.
pub(super) enum Custom {}

impl Kind for Custom {
    type Placed = dyn Placing;
    type Memory = dyn Hooks;

    unsafe fn placed(placement: &mut Placement) -> &mut Self::Placed {
        placement.placed_mut()
    }

    unsafe fn memory(remembered: &mut Remembered) -> &mut Self::Memory {
        remembered.hooks_mut()
    }

    fn take_at(state: &mut ArenaState, segment: SegmentId, addr: u64, size: u64) -> Option<BlockId> {
        match state.remembered {
            Remembered::Nothing(()) => None,
            Remembered::Granule(_) => granule::take_at(state, segment, addr, size),
        }
    }

    fn take_back(state: &mut ArenaState, id: BlockId) {
        match state.remembered {
            Remembered::Nothing(()) => {}
            Remembered::Granule(_) => granule::end_loan(state, id),
        }
    }
}
