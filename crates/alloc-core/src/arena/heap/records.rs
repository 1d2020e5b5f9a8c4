//! The order in which blocks got their records, where the policy asks for it.

use crate::memory::block::{BlockId, Tier};
use crate::memory::layout::Layout;
use crate::memory::order::Order;
use crate::memory::segment::Segment;
use crate::policy::Placement;

/// The parts of a heap that know the order of records.
pub(super) struct Records<'a> {
    order: &'a mut Order,
    layout: &'a mut Layout,
    placement: &'a mut Placement,
}

impl<'a> Records<'a> {
    #[inline(always)]
    pub(super) fn new(order: &'a mut Order, layout: &'a mut Layout, placement: &'a mut Placement) -> Self {
        Self { order, layout, placement }
    }

    /// The order of a new record for a part of a block, which is in no index.
    pub(super) fn of_part(&mut self, id: BlockId) -> u32 {
        self.make_room();
        self.order.of_part(self.layout.blocks()[id].order)
    }

    /// The order of the record of a segment's first block.
    pub(super) fn of_segment(&mut self, segment: &Segment) -> u32 {
        self.make_room();
        self.order.of_segment(segment)
    }

    fn make_room(&mut self) {
        if self.order.is_spent() {
            self.number_anew();
        }
    }

    /// Gives the blocks the lowest numbers in the order that they have: once in 2^32 records.
    #[cold]
    fn number_anew(&mut self) {
        let free = Tier::ALL.map(|tier| self.placement.placed().at_least(tier, 0).collect::<Vec<_>>());
        self.placement.placed_mut().clear();
        let mut all: Vec<_> = self.layout.blocks().iter().map(|(id, block)| (block.order, id)).collect();
        all.sort_unstable_by_key(|(order, _)| *order);
        let mut count = 0;
        for (_, id) in all {
            self.layout.blocks_mut()[id].order = count;
            count += 1;
        }
        self.order.number_anew(count);
        let blocks = self.layout.blocks();
        free.into_iter().flatten().for_each(|id| self.placement.placed_mut().insert(&blocks[id], id));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arena::Heap;
    use crate::arena::Shared;
    use crate::arena::heap::kind::{self, NewRecord, OfKind, of_kind};
    use crate::config::{PytorchRelease, Settings};
    use crate::memory::block::{BlockPhase, Tier};
    use crate::memory::segment::Origin;
    use crate::policy::PytorchPolicy;
    use crate::policy::{Chosen, Ground, Placement};
    use crate::sync::Arc;
    use crate::types::DevicePtr;

    #[test]
    fn records_are_numbered_anew_in_their_order_before_numbers_end() {
        let settings = Settings { pytorch_release: Some(PytorchRelease::V2_12), ..Settings::default() };
        let policy: Chosen = Arc::new(PytorchPolicy::new(&settings, false));
        let mut heap = Heap::new(&policy, 0, Arc::new(Shared::default()));
        let segment = Segment::new(DevicePtr(1 << 20), 8192, 0, Tier::Small, Origin::Fixed);
        let (_, mut block) = heap.add_segment(segment, BlockPhase::Busy);
        let mut lower = Vec::new();
        heap.order.number_anew(u32::MAX - 2);
        for _ in 0..4 {
            lower.push(block);
            // As for a request: what is cut off above is free, and the next part comes from it.
            let of = |heap: &mut Heap, id| of_kind!(heap, typed => typed.cut_above(id, 1024, BlockPhase::Free, NewRecord::Lower));
            let upper = of(&mut heap, block);
            heap.insert_free(block);
            heap.take_free(upper);
            block = upper;
        }
        let order = |id: &BlockId| heap.layout.blocks()[*id].order;
        assert_eq!(order(&block), 0, "the segment's own record is the oldest");
        assert!(
            lower.iter().map(order).is_sorted_by(|a, b| a < b),
            "{:?}",
            lower.iter().map(order).collect::<Vec<_>>()
        );
        let free: Vec<_> = heap.free(Tier::Small, 0);
        assert_eq!(free, lower, "and the index agrees");
        heap.placement.placed().check(Tier::Small);
    }
}
