//! Free bytes at a given address, at home or in a view.

use super::memory::Memory;
use super::views::take_in_view;
use crate::memory::block::{BlockId, SegmentId};
use crate::policy::ground::{Ground, PolicyArena};

/// Takes the `size` bytes at `addr` out of the free ones of a growable segment or a view; what is beside them stays free.
/// Returns the block, in no index; nothing is taken where some of them are not free, or the segment is not there any more.
#[inline(always)]
pub(crate) fn take_at(
    arena: &mut impl PolicyArena<Memory>,
    segment: SegmentId,
    addr: u64,
    size: u64,
) -> Option<BlockId> {
    let ground = arena.ground_mut();
    if !ground.layout().blocks().may_cut() {
        return None;
    }
    let Some(borders) = ground.memory().borders().get(segment) else {
        return take_in_view(arena, segment, addr, size);
    };
    // Another segment may have the number by now.
    let block = addr.checked_sub(borders.base()).and_then(|_| borders.holder(addr, addr + size))?;
    Some(ground.take_range(block, addr, addr + size))
}
