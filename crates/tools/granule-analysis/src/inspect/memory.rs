//! Memory that was held at a moment: in what hands it was, how much of it was free in how many pieces, and what kept it apart.

use super::Context;
use super::place::Caller;
use crate::layout::{BlockInUse, Layout, Stretch};
use crate::run::Moment;
use serde::{Serialize, Serializer};
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// Blocks named of one segment, those that come first by size.
const BLOCKS_NAMED: usize = 4;
/// A fixed segment is held open by few bytes where not more than this part of it is in use.
const FEW: u64 = 4;
/// Segments and blocks that are named; there is a sum of all of them.
const NAMED: usize = 100;

/// What was held from the device. Bytes: `requested` + `rounding` + `tails` + `waiting` + `free` = `reserved`.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Memory {
    /// Held from the device.
    pub reserved: u64,
    /// In the program's hands, as requested.
    pub requested: u64,
    /// What requests were rounded up by.
    pub rounding: u64,
    /// What was too little to be cut off from blocks.
    pub tails: u64,
    /// Given back by the program, and waiting for other streams.
    pub waiting: u64,
    /// Free.
    pub free: u64,
    /// Requested bytes that lie nowhere: the file does not say what was held there. 0 for files that are in order.
    pub outside: u64,
    /// Segments; growable memory without holes counts as one.
    pub segments: u64,
    /// Segments without any block: emptying the cache gives them back.
    pub idle_segments: u64,
    /// Their bytes.
    pub idle: u64,
    /// Pieces that free memory is in.
    pub free_pieces: u64,
    /// The largest of them.
    pub largest_free: u64,
    /// By pool, stream and kind; each only serves its own requests. Those with most memory first.
    pub by_pool: Vec<PoolMemory>,
    /// Fixed segments that are in use by a quarter or less, those with most free memory first; a hundred at most.
    pub held_open: Vec<HeldOpen>,
    /// How many there are.
    pub held_open_count: u64,
    /// Free bytes in all of them: what they keep from the device.
    pub held_open_free: u64,
    /// Live or waiting blocks with more free memory beside them than they have themselves, the worst first; a hundred at most.
    pub blockers: Vec<Blocker>,
}

/// Memory of one pool, stream and kind. Bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct PoolMemory {
    /// The two numbers that name the pool.
    pub pool: [u64; 2],
    /// The stream.
    pub stream: u64,
    /// Whether it is for small requests.
    pub small: bool,
    /// Held from the device.
    pub reserved: u64,
    /// In the program's hands, as requested.
    pub requested: u64,
    /// What waits for other streams.
    pub waiting: u64,
    /// Free.
    pub free: u64,
    /// Pieces that free memory is in.
    pub free_pieces: u64,
    /// The largest of them: a larger request makes the allocator ask the device for more.
    pub largest_free: u64,
    /// Segments.
    pub segments: u64,
}

/// A segment that few bytes keep from being given back.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct HeldOpen {
    /// First address.
    #[serde(serialize_with = "hexadecimal")]
    pub address: u64,
    /// Bytes.
    pub size: u64,
    /// The pool.
    pub pool: [u64; 2],
    /// The stream.
    pub stream: u64,
    /// Bytes of its blocks.
    pub used: u64,
    /// Free bytes.
    pub free: u64,
    /// How many blocks.
    pub block_count: u64,
    /// The largest of them; not all, where there are many.
    pub blocks: Vec<HeldBlock>,
}

/// A block with free memory beside it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Blocker {
    /// The block.
    #[serde(flatten)]
    pub block: HeldBlock,
    /// Free bytes on both its sides.
    pub beside: u64,
    /// Contiguous free bytes there would be without it.
    pub would_free: u64,
}

/// A block that is not free.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct HeldBlock {
    /// First address.
    #[serde(serialize_with = "hexadecimal")]
    pub address: u64,
    /// Bytes, rounded.
    pub size: u64,
    /// Bytes as requested.
    pub requested: u64,
    /// From when on it is handed out; 0 where it was there before the history began.
    pub since: Moment,
    /// In microseconds, how long that is; `None` where the file has no clock, or it was there before.
    pub age_us: Option<u64>,
    /// Whether it was given back, and waits for other streams.
    pub waits: bool,
    /// Who asked for it, where that is recorded.
    pub caller: Option<Caller>,
    /// The text that the program gave it; empty if none.
    pub label: String,
}

pub(super) fn hexadecimal<S: Serializer>(address: &u64, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&format_args!("{address:#x}"))
}

impl Memory {
    pub(super) fn at(context: &Context<'_>, at: Moment, layout: &Layout) -> Self {
        let mut memory = Self::default();
        let mut pools: BTreeMap<(u32, u32, bool), PoolMemory> = BTreeMap::new();
        let mut blockers = Vec::new();
        let mut held_open = Vec::new();
        for stretch in &layout.stretches {
            memory.add(stretch);
            let (pool, stream) = (context.pool(stretch.pool), context.stream(stretch.stream));
            let group = pools.entry((stretch.pool, stretch.stream, stretch.small)).or_insert_with(|| {
                PoolMemory { pool, stream, small: stretch.small, ..PoolMemory::default() }
            });
            group.add(stretch);
            blockers.extend(blockers_of(stretch));
            if !stretch.growable && !stretch.blocks.is_empty() && stretch.used() <= stretch.size / FEW {
                held_open.push(stretch);
            }
        }
        for index in &layout.outside {
            memory.outside = memory.outside.saturating_add(context.run.allocations[*index as usize].size);
        }
        memory.by_pool = pools.into_values().collect();
        memory.by_pool.sort_by_key(|group| Reverse(group.reserved));
        memory.held_open_count = held_open.len() as u64;
        memory.held_open_free = held_open.iter().map(|stretch| stretch.size - stretch.used()).sum();
        held_open.sort_by_key(|stretch| (Reverse(stretch.size - stretch.used()), stretch.address));
        held_open.truncate(NAMED);
        memory.held_open = held_open.into_iter().map(|stretch| context.held_open(stretch, at)).collect();
        blockers.sort_by_key(|(block, beside)| (Reverse(*beside), block.address));
        blockers.truncate(NAMED);
        memory.blockers = blockers.into_iter().map(|one| context.blocker(one, at)).collect();
        memory
    }

    fn add(&mut self, stretch: &Stretch) {
        self.reserved += stretch.size;
        self.segments += 1;
        if stretch.blocks.is_empty() {
            self.idle_segments += 1;
            self.idle += stretch.size;
        }
        for block in &stretch.blocks {
            if block.waits {
                self.waiting += block.size();
            } else {
                self.requested += block.requested;
                self.rounding += block.rounding;
                self.tails += block.tail;
            }
        }
        let (free, pieces, largest) = free_in(stretch);
        self.free += free;
        self.free_pieces += pieces;
        self.largest_free = self.largest_free.max(largest);
    }
}

impl PoolMemory {
    fn add(&mut self, stretch: &Stretch) {
        self.reserved += stretch.size;
        self.segments += 1;
        for block in &stretch.blocks {
            *(if block.waits { &mut self.waiting } else { &mut self.requested }) +=
                if block.waits { block.size() } else { block.requested };
        }
        let (free, pieces, largest) = free_in(stretch);
        self.free += free;
        self.free_pieces += pieces;
        self.largest_free = self.largest_free.max(largest);
    }
}

/// Free bytes, in how many pieces, and the largest.
pub(super) fn free_in(stretch: &Stretch) -> (u64, u64, u64) {
    stretch
        .gaps()
        .filter(|gap| gap.size > 0)
        .fold((0, 0, 0), |(free, pieces, largest), gap| (free + gap.size, pieces + 1, largest.max(gap.size)))
}

/// Blocks with more free memory beside them than they have themselves, with that memory.
pub(super) fn blockers_of(stretch: &Stretch) -> impl Iterator<Item = (&BlockInUse, u64)> {
    let gaps: Vec<u64> = stretch.gaps().map(|gap| gap.size).collect();
    let beside = gaps.windows(2).map(|sides| sides[0] + sides[1]).collect::<Vec<_>>();
    stretch.blocks.iter().zip(beside).filter(|(block, beside)| *beside > block.size())
}

impl Context<'_> {
    fn held_open(&self, stretch: &Stretch, at: Moment) -> HeldOpen {
        let mut blocks: Vec<_> = stretch.blocks.iter().collect();
        blocks.sort_by_key(|block| (Reverse(block.size()), block.address));
        HeldOpen {
            address: stretch.address,
            size: stretch.size,
            pool: self.pool(stretch.pool),
            stream: self.stream(stretch.stream),
            used: stretch.used(),
            free: stretch.size - stretch.used(),
            block_count: stretch.blocks.len() as u64,
            blocks: blocks.into_iter().take(BLOCKS_NAMED).map(|block| self.held(block, at)).collect(),
        }
    }

    pub(super) fn blocker(&self, (block, beside): (&BlockInUse, u64), at: Moment) -> Blocker {
        Blocker { block: self.held(block, at), beside, would_free: beside + block.size() }
    }

    fn held(&self, block: &BlockInUse, at: Moment) -> HeldBlock {
        let life = &self.run.allocations[block.allocation as usize];
        HeldBlock {
            address: block.address,
            size: block.size(),
            requested: life.size,
            since: life.begin,
            age_us: self.run.time_between(life.begin, at),
            waits: block.waits,
            caller: (life.site != 0).then(|| self.callers.get(self.callers.number(life.site)).clone()),
            label: self.label(life.label),
        }
    }
}
