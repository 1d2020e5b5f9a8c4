//! Free bytes at a given address, at home or in a view.

use super::home::free_range;
use super::memory::Memory;
use super::views::take_in_view;
use crate::memory::block::{BlockId, SegmentId};
use crate::memory::segment::Segment;
use crate::policy::ground::{Ground, PolicyArena};

/// Takes the `size` bytes at `addr` out of the free ones of a growable segment or a view; what is beside them stays free.
/// Returns the block, in no index; nothing is taken where some of them are not free, or the segment is not there any more.
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
    if ground.memory().borders().get(segment).is_none() {
        return take_in_view(arena, segment, addr, size);
    }
    let Segment { base, bytes, .. } = ground.layout().segments()[segment];
    if addr < base || addr + size > base + bytes {
        return None;
    }
    let block = free_range(ground, segment, addr, addr + size)?;
    Some(ground.take_range(block, addr, addr + size))
}
