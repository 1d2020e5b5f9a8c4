//! An arena's free blocks, in the index of its policy.
//!
//! A request that is served from the cache, and a free, come here a few times each. The policies of the tree are told apart by
//! a number, so that their code is called directly (`arena/heap/kind.rs`); one of a program's own is called through a table.

use super::chosen::Decisions;
use super::{GranulePolicy, Policy, PytorchPolicy, Request};
use crate::memory::block::{Block, BlockId, BlockTable, Tier};
use crate::memory::index::PlacementIndex;
use crate::memory::segment::SegmentTable;
use std::any::Any;
use std::fmt::Debug;

/// A policy with its indexes, one for each tier.
#[derive(Debug)]
pub(crate) struct Placed<P: Policy> {
    policy: P,
    free: [P::Index; 2],
}

impl<P: Policy> Placed<P> {
    pub(crate) fn new(policy: P) -> Self {
        Self { policy, free: std::array::from_fn(|_| P::Index::default()) }
    }
}

/// What is asked of an arena's free blocks.
pub(crate) trait Placing: Debug + Send {
    /// What serves a request of `bytes`.
    fn request(&self, bytes: u64) -> Request;
    /// The free block for `request`, taken out.
    fn take_fit(
        &mut self,
        blocks: &BlockTable,
        segments: &SegmentTable,
        request: &Request,
    ) -> Option<BlockId>;
    /// Whether a block of `block` bytes is cut for `request`.
    fn splits(&self, block: u64, request: &Request) -> bool;
    fn insert(&mut self, block: &Block, id: BlockId);
    fn remove(&mut self, block: &Block, id: BlockId);
    /// Whether a free block has at least `bytes`.
    fn has(&self, tier: Tier, bytes: u64) -> bool;
    /// Free blocks of at least `bytes`, in the index's order.
    fn at_least(&self, tier: Tier, bytes: u64) -> Box<dyn Iterator<Item = BlockId> + '_>;
    /// Decides as `policy`, which is of the same type, from here on.
    fn follow(&mut self, policy: &dyn Decisions);
    /// Nothing is free, as at first.
    fn clear(&mut self);
    /// Panics where an index is not what it should be.
    fn check(&self, tier: Tier);
}

impl<P: Policy> Placing for Placed<P> {
    #[inline(always)]
    fn request(&self, bytes: u64) -> Request {
        self.policy.request(bytes)
    }

    #[inline(always)]
    fn take_fit(
        &mut self,
        blocks: &BlockTable,
        segments: &SegmentTable,
        request: &Request,
    ) -> Option<BlockId> {
        self.policy.take_fit(&mut self.free[request.tier as usize], blocks, segments, request)
    }

    #[inline(always)]
    fn splits(&self, block: u64, request: &Request) -> bool {
        self.policy.splits(block, request)
    }

    #[inline(always)]
    fn insert(&mut self, block: &Block, id: BlockId) {
        self.free[block.tier as usize].insert(block, id);
    }

    #[inline(always)]
    fn remove(&mut self, block: &Block, id: BlockId) {
        self.free[block.tier as usize].remove(block, id);
    }

    fn has(&self, tier: Tier, bytes: u64) -> bool {
        self.free[tier as usize].has(bytes)
    }

    fn at_least(&self, tier: Tier, bytes: u64) -> Box<dyn Iterator<Item = BlockId> + '_> {
        Box::new(self.free[tier as usize].at_least(bytes))
    }

    fn follow(&mut self, policy: &dyn Decisions) {
        let policy: &dyn Any = policy;
        match policy.downcast_ref::<P>() {
            Some(policy) => self.policy = policy.clone(),
            None => unreachable!("an allocator's policy keeps its type"),
        }
    }

    fn clear(&mut self) {
        self.free = std::array::from_fn(|_| P::Index::default());
    }

    fn check(&self, tier: Tier) {
        self.free[tier as usize].check();
    }
}

/// The free blocks of an arena. They lie in the arena itself, which is one load less on a hit.
#[derive(Debug)]
#[allow(clippy::large_enum_variant)]
#[repr(u8)]
pub(crate) enum Placement {
    Pytorch(Placed<PytorchPolicy>),
    Granule(Placed<GranulePolicy>),
    Custom(Box<dyn Placing>),
}

impl Placement {
    pub(crate) fn placed(&self) -> &dyn Placing {
        match self {
            Self::Pytorch(placed) => placed,
            Self::Granule(placed) => placed,
            Self::Custom(placed) => &**placed,
        }
    }

    pub(crate) fn placed_mut(&mut self) -> &mut (dyn Placing + 'static) {
        match self {
            Self::Pytorch(placed) => placed,
            Self::Granule(placed) => placed,
            Self::Custom(placed) => &mut **placed,
        }
    }
}
