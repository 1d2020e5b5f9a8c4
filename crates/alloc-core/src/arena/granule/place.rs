//! Free bytes at a given address, at home or in a view.

use super::Granule;
use super::views::take_in_view;
use crate::arena::ArenaOf;
use crate::memory::block::{BlockId, SegmentId};

/// Takes the `size` bytes at `addr` out of the free ones of a growable segment or a view; what is beside them stays free.
/// Returns the block, in no index; nothing is taken where some of them are not free, or the segment is not there any more.
#[inline(always)]
pub(crate) fn take_at(
    arena: &mut ArenaOf<Granule>,
    segment: SegmentId,
    addr: u64,
    size: u64,
) -> Option<BlockId> {
    let heap = arena.heap_mut();
    if !heap.layout().blocks().may_cut() {
        return None;
    }
    let Some(borders) = heap.known().borders().get(segment) else {
        return take_in_view(arena, segment, addr, size);
    };
    // Another segment may have the number by now.
    let block = addr.checked_sub(borders.base()).and_then(|_| borders.holder(addr, addr + size))?;
    Some(heap.take_range(block, addr, addr + size))
}
