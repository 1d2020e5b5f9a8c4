//! Where everything lies at a moment: the stretches of held memory, the blocks in them and what is free between.

use crate::Run;
use crate::rules::Rules;
use crate::run::{Moment, Span};

/// The address space of a run at a moment.
#[derive(Clone, Debug, Default)]
pub struct Layout {
    /// By address; they never overlap.
    pub stretches: Vec<Stretch>,
    /// Indices in [`Run::allocations`] of what is live or waiting in memory that is not held: the file is damaged, or does not
    /// say what is held.
    pub outside: Vec<u32>,
}

/// Contiguous memory that one free block could fill: a fixed segment, or growable memory without holes.
///
/// Growable memory of one pool and stream that lies side by side is taken to be one. Under Granule's own policy it may be two
/// regions, of which one is full.
#[derive(Clone, Debug)]
pub struct Stretch {
    /// First address.
    pub address: u64,
    /// Bytes.
    pub size: u64,
    /// Index in [`Run::streams`].
    pub stream: u32,
    /// Index in [`Run::pools`].
    pub pool: u32,
    /// Whether it grows.
    pub growable: bool,
    /// Whether it serves small requests only.
    pub small: bool,
    /// From when on its oldest part was held.
    pub begin: Moment,
    /// By address; they never overlap, nor leave the stretch.
    pub blocks: Vec<BlockInUse>,
}

/// A block that is not free. Its bytes are `requested` + `rounding` + `tail`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockInUse {
    /// Index in [`Run::allocations`].
    pub allocation: u32,
    /// First address.
    pub address: u64,
    /// Bytes as requested.
    pub requested: u64,
    /// Bytes by which the request was rounded up.
    pub rounding: u64,
    /// Bytes behind it that were too few to be cut off.
    pub tail: u64,
    /// Whether it was given back and waits for other streams.
    pub waits: bool,
}

impl BlockInUse {
    /// All its bytes.
    #[must_use]
    pub const fn size(&self) -> u64 {
        // They fit the stretch, which fits the address space.
        self.requested + self.rounding + self.tail
    }
}

/// Free memory between two blocks, or a block and an edge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gap {
    /// First address.
    pub address: u64,
    /// Bytes.
    pub size: u64,
}

impl Stretch {
    /// Bytes that are not free.
    #[must_use]
    pub fn used(&self) -> u64 {
        self.blocks.iter().map(BlockInUse::size).sum()
    }

    /// What is free before each block and, last, behind all of them; of no size where nothing is.
    pub fn gaps(&self) -> impl Iterator<Item = Gap> {
        let ends = self.blocks.iter().map(|block| (block.address, block.address + block.size()));
        let edge = self.address.saturating_add(self.size);
        let mut from = self.address;
        ends.chain([(edge, edge)]).map(move |(begin, end)| {
            let gap = Gap { address: from, size: begin.saturating_sub(from) };
            from = end;
            gap
        })
    }
}

impl Layout {
    /// That of `run` at a moment. Blocks are as large as `rules` make them.
    #[must_use]
    pub fn at(run: &Run, at: Moment, rules: &Rules) -> Self {
        let mut layout = Self { stretches: stretches(run, at), outside: Vec::new() };
        let mut there: Vec<u32> = (0u32..)
            .zip(&run.allocations)
            .take_while(|(_, life)| life.begin <= at)
            .filter(|(_, life)| life.is_live(at) || life.is_waiting(at))
            .map(|(index, _)| index)
            .collect();
        there.sort_by_key(|index| run.allocations[*index as usize].address);
        let mut there = there.into_iter().peekable();
        for stretch in &mut layout.stretches {
            let address = |index: &u32| run.allocations[*index as usize].address;
            while let Some(index) = there.next_if(|index| address(index) < stretch.address) {
                layout.outside.push(index);
            }
            let edge = stretch.address.saturating_add(stretch.size);
            let inside: Vec<u32> =
                std::iter::from_fn(|| there.next_if(|index| address(index) < edge)).collect();
            place(stretch, &inside, run, at, rules, &mut layout.outside);
        }
        layout.outside.extend(there);
        layout.name_small(run, rules);
        layout
    }

    /// Says which stretches are for small requests: what lies in them tells it, or what ever lay in them.
    fn name_small(&mut self, run: &Run, rules: &Rules) {
        let mut unknown = false;
        for stretch in &mut self.stretches {
            let first = stretch.blocks.first().map(|block| run.allocations[block.allocation as usize].size);
            match first {
                Some(size) => stretch.small = rules.is_small(size, stretch.growable),
                None if stretch.growable => unknown = true,
                None => stretch.small = rules.is_small_segment(stretch.size),
            }
        }
        if !unknown {
            return;
        }
        for life in &run.allocations {
            let after = self.stretches.partition_point(|stretch| stretch.address <= life.address);
            let Some(stretch) = after.checked_sub(1).map(|index| &mut self.stretches[index]) else {
                continue;
            };
            let inside = life.address - stretch.address < stretch.size;
            if inside && stretch.growable && stretch.blocks.is_empty() {
                stretch.small = rules.is_small(life.size, true);
            }
        }
    }
}

/// What is held at a moment; growable memory side by side is one. Spans end in the address space, and never overlap.
fn stretches(run: &Run, at: Moment) -> Vec<Stretch> {
    let mut held: Vec<&Span> =
        run.spans.iter().filter(|span| span.begin <= at && at < span.end && span.size > 0).collect();
    held.sort_by_key(|span| span.address);
    let mut all: Vec<Stretch> = Vec::with_capacity(held.len());
    for span in held {
        match all.last_mut() {
            Some(last)
                if last.growable
                    && span.growable
                    && last.address + last.size == span.address
                    && (last.stream, last.pool) == (span.stream, span.pool) =>
            {
                last.size += span.size;
                last.begin = last.begin.min(span.begin);
            }
            _ => all.push(Stretch {
                address: span.address,
                size: span.size,
                stream: span.stream,
                pool: span.pool,
                growable: span.growable,
                small: false,
                begin: span.begin,
                blocks: Vec::new(),
            }),
        }
    }
    all
}

/// Puts blocks, which come by address, in their stretch. Of two that begin in one place the last has it.
fn place(
    stretch: &mut Stretch,
    inside: &[u32],
    run: &Run,
    at: Moment,
    rules: &Rules,
    outside: &mut Vec<u32>,
) {
    let edge = stretch.address.saturating_add(stretch.size);
    let mut free_from = stretch.address;
    stretch.blocks.reserve(inside.len());
    for (n, index) in inside.iter().enumerate() {
        let life = &run.allocations[*index as usize];
        let next = inside.get(n + 1).map_or(edge, |next| run.allocations[*next as usize].address);
        let room = next.min(edge).saturating_sub(life.address);
        if life.address < free_from || room == 0 {
            outside.push(*index);
            continue;
        }
        let requested = life.size.min(room);
        let size = rules.block(life.size, stretch.growable).min(room);
        let tail =
            if rules.keeps_whole(room, life.size, stretch.growable) { room.saturating_sub(size) } else { 0 };
        let rounding = size.saturating_sub(requested);
        free_from = life.address + requested + rounding + tail;
        stretch.blocks.push(BlockInUse {
            allocation: *index,
            address: life.address,
            requested,
            rounding,
            tail,
            waits: life.is_waiting(at),
        });
    }
}
