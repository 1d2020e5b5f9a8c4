//! The kinds of policies that an arena can have, as code sees them that serves requests: each is known when that code is
//! compiled.

use super::Heap;
use crate::memory::block::{Block, BlockId, BlockPhase, SegmentId, Tier};
use crate::memory::layout::Layout;
use crate::policy::{
    GranulePolicy, Hooks, Placed, Placement, Placing, Policy, PytorchPolicy, Remembered, Request,
};
use std::hint::unreachable_unchecked;
use std::marker::PhantomData;

/// A kind of policy.
pub(in crate::arena) trait Kind {
    type Placed: Placing + ?Sized + 'static;
    type Memory: Hooks + ?Sized + 'static;

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
}

/// A policy of a program's own, which is called through a table.
pub(in crate::arena) enum Custom {}

impl Kind for Custom {
    type Placed = dyn Placing;
    type Memory = dyn Hooks;

    unsafe fn placed(placement: &mut Placement) -> &mut Self::Placed {
        placement.placed_mut()
    }

    unsafe fn memory(remembered: &mut Remembered) -> &mut Self::Memory {
        remembered.hooks_mut()
    }
}

/// A heap whose policy is of a kind.
pub(in crate::arena) struct OfKind<'a, K> {
    heap: &'a mut Heap,
    kind: PhantomData<K>,
}

impl<'a, K: Kind> OfKind<'a, K> {
    /// # Safety
    /// The heap's policy is of this kind.
    #[inline(always)]
    pub(in crate::arena) unsafe fn new(heap: &'a mut Heap) -> Self {
        Self { heap, kind: PhantomData }
    }

    /// What it consists of, as this kind knows it.
    #[inline(always)]
    fn into_parts(self) -> (&'a mut Layout, &'a mut K::Placed, &'a mut K::Memory) {
        let Heap { layout, placement, remembered, .. } = self.heap;
        // SAFETY: the promise that [`new`](Self::new) was given.
        let placed = unsafe { K::placed(placement) };
        // SAFETY: as above.
        (layout, placed, unsafe { K::memory(remembered) })
    }

    /// The same for a moment.
    #[inline(always)]
    fn parts(&mut self) -> (&mut Layout, &mut K::Placed, &mut K::Memory) {
        OfKind::<K> { heap: &mut *self.heap, kind: PhantomData }.into_parts()
    }

    /// What its policy remembers.
    #[inline(always)]
    pub(in crate::arena) fn memory(&mut self) -> &mut K::Memory {
        self.parts().2
    }

    /// What serves a request of `bytes`.
    #[inline(always)]
    pub(in crate::arena) fn request(&mut self, bytes: u64) -> Request {
        self.parts().1.request(bytes)
    }

    /// Whether the policy cuts a block of `block` bytes for `request`.
    #[inline(always)]
    pub(in crate::arena) fn splits(&mut self, block: u64, request: &Request) -> bool {
        self.parts().1.splits(block, request)
    }

    /// Takes the block that serves `request` out of the free ones, which do not age by that.
    #[inline(always)]
    pub(in crate::arena) fn find(&mut self, request: &Request) -> Option<BlockId> {
        let (layout, placed, memory) = self.parts();
        let found = placed.take_fit(layout.blocks(), layout.segments(), request)?;
        memory.removed(layout.blocks(), found);
        Some(found)
    }

    /// Whether free blocks of a segment are the policy's to take back.
    #[inline(always)]
    pub(in crate::arena) fn lends(&mut self, segment: SegmentId) -> bool {
        let (layout, _, memory) = self.parts();
        memory.lends(layout.segments(), segment)
    }

    /// A block that is in no index is in the program's hands.
    #[inline(always)]
    pub(in crate::arena) fn give(self, id: BlockId, requested: u64) -> &'a Block {
        let (layout, _, memory) = self.into_parts();
        let block = &mut layout.blocks_mut()[id];
        (block.state, block.requested) = (BlockPhase::Allocated, requested);
        memory.gave(block);
        block
    }

    /// Keeps a block as it is for the next request of its size; none is kept yet.
    #[inline(always)]
    pub(in crate::arena) fn park(self, id: BlockId) -> &'a mut Block {
        let (layout, _, memory) = self.into_parts();
        let block = &mut layout.blocks_mut()[id];
        block.state = BlockPhase::Busy;
        memory.park(block, id);
        block
    }

    /// Puts a block that is in no index among the free ones, as it is.
    #[inline(always)]
    pub(in crate::arena) fn insert_free(&mut self, id: BlockId) {
        let (block, memory) = self.put_in_index(id);
        memory.inserted(block, id);
    }

    /// Puts a block [back](Self::take_out) that has become longer or shorter at its end.
    #[inline(always)]
    pub(in crate::arena) fn put_back(&mut self, id: BlockId) {
        let (block, memory) = self.put_in_index(id);
        memory.resized(block, id);
    }

    /// [Puts](Self::put_back) a block back that took over what is above it, or [one](Self::insert_free) that was not among the free.
    #[inline(always)]
    pub(in crate::arena) fn put_joined(&mut self, id: BlockId, was_free: bool) {
        let (block, memory) = self.put_in_index(id);
        if was_free {
            memory.resized(block, id);
        } else {
            memory.inserted(block, id);
        }
    }

    #[inline(always)]
    fn put_in_index(&mut self, id: BlockId) -> (&Block, &mut K::Memory) {
        let born = |tier: Tier| self.heap.shared.searches(tier);
        let born = self.heap.ages.then(|| born(self.heap.layout.blocks()[id].tier));
        let (layout, placed, memory) = self.parts();
        let block = &mut layout.blocks_mut()[id];
        block.state = BlockPhase::Free;
        if let Some(born) = born {
            block.born = born;
        }
        placed.insert(block, id);
        (block, memory)
    }

    /// Takes a free block out of its index; its state is the caller's business.
    #[inline(always)]
    pub(in crate::arena) fn take_from_index(&mut self, id: BlockId) {
        let (layout, placed, memory) = self.parts();
        placed.remove(&layout.blocks()[id], id);
        memory.removed(layout.blocks(), id);
    }

    /// Takes a free block out of its index for a moment: it stays free from its first byte on, and is [put back](Self::put_back).
    #[inline(always)]
    pub(in crate::arena) fn take_out(&mut self, id: BlockId) {
        let (layout, placed, _) = self.parts();
        placed.remove(&layout.blocks()[id], id);
    }

    /// Takes the bytes from `low` to `high` out of a free block, as busy. What is beside them stays free.
    #[inline(always)]
    pub(in crate::arena) fn take_range(&mut self, id: BlockId, low: u64, high: u64) -> BlockId {
        let block = &mut self.heap.layout.blocks_mut()[id];
        let (addr, end) = (block.addr, block.end());
        let requested = std::mem::take(&mut block.requested);
        let mut middle = id;
        if addr < low {
            self.take_out(id);
            middle = self.cut_above(id, low - addr, BlockPhase::Busy);
            self.put_back(id);
        } else {
            self.take_from_index(id);
        }
        if high < end {
            self.cut_above(middle, high - low, BlockPhase::Free);
        }
        let block = &mut self.heap.layout.blocks_mut()[middle];
        (block.requested, block.state) = (requested, BlockPhase::Busy);
        middle
    }

    /// Cuts a block, which is in no index, after `size` bytes. The lower part keeps the id and the state; the upper part
    /// gets `upper_state` and goes into the list of that state.
    #[inline(always)]
    pub(in crate::arena) fn cut_above(&mut self, id: BlockId, size: u64, upper_state: BlockPhase) -> BlockId {
        let upper = self.heap.layout.blocks_mut().cut(id, size);
        match upper_state {
            BlockPhase::Free => self.insert_free(upper),
            BlockPhase::Unmapped => self.heap.insert_unmapped(upper),
            _ => self.heap.layout.blocks_mut()[upper].state = upper_state,
        }
        upper
    }
}

/// Does it for the kind of policy that a heap has.
macro_rules! of_kind {
    ($heap:expr, $typed:ident => $do:expr) => {
        match $heap.placement {
            Placement::Granule(_) => {
                // SAFETY: it is of the kind that was just found.
                let mut $typed = unsafe { OfKind::<crate::policy::GranulePolicy>::new($heap) };
                $do
            }
            Placement::Pytorch(_) => {
                // SAFETY: as above.
                let mut $typed = unsafe { OfKind::<crate::policy::PytorchPolicy>::new($heap) };
                $do
            }
            Placement::Custom(_) => {
                // SAFETY: as above.
                let mut $typed = unsafe { OfKind::<kind::Custom>::new($heap) };
                $do
            }
        }
    };
}
pub(super) use of_kind;
