//! Blocks: parts of a segment, linked to their neighbours by index.
//!
//! A block's record is one cache line. Records are kept in one table per arena and recycled, so handing
//! out and taking back memory touches no heap.

pub use crate::base::ids::{BlockId, Tier};

use crate::base::big_table;
use crate::base::steps::Counted;

/// Index of a segment in its arena's table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SegmentId(pub(crate) u32);

/// Phase of a block's life, in one byte: a hit compares and writes it.
///
/// ```text
///   Free ── hand out ──▶ Live ── free ──▶ Free, or Pending while other streams use it ── last event ──▶ Free
///   Free, Unmapped ── take for a driver call ──▶ Busy ── map, unmap, roll back ──▶ Free, Unmapped
///   Live ◀── an owner takes it, gives it up ──▶ Live, owned          (awake and asleep alike)
///   Live, awake ◀── sleep, wake ──▶ Live, asleep ── free ──▶ FreeAsleep ── wake ──▶ Free, Unmapped
///   Free (owner) ── a view takes it ──▶ Lent          Alias (view) ── is used ──▶ Live
///   Free ── another stream owns its memory ──▶ Alias ── owns it again ──▶ Free, or is unmapped ──▶ Unmapped
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockPhase {
    /// In the program's hands.
    Live(Live),
    /// In its tier's index, with memory.
    Free,
    /// Free, on granules that all sleep; in no index.
    FreeAsleep,
    /// Given back; other streams may still use it.
    Pending,
    /// Address space of a growable segment without memory, in its tier's list.
    Unmapped,
    /// Being mapped, unmapped or given back by a thread that holds no lock, or parked (`arena/short.rs`): nobody else may touch it.
    Busy,
    /// Memory that a block in a view uses, at its owner's address.
    Lent,
    /// An alias that no block uses: its memory is its owner's, who may use it at another address. Part of a view, or a granule
    /// whose memory went to another stream.
    Alias,
    /// The record is not in use.
    Unused,
}

/// Holder and memory of a live block. Anyone frees it by its address, or only its owner does, a
/// [`DeviceBuffer`](crate::DeviceBuffer).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Live {
    /// Freed by its address; all of it has memory.
    Awake,
    /// Freed by its address; some of it has no memory.
    Asleep,
    /// Freed by its owner; all of it has memory.
    OwnedAwake,
    /// Freed by its owner; some of it has no memory.
    OwnedAsleep,
}

impl Live {
    pub(crate) const fn new(owned: bool, asleep: bool) -> Self {
        match (owned, asleep) {
            (false, false) => Self::Awake,
            (false, true) => Self::Asleep,
            (true, false) => Self::OwnedAwake,
            (true, true) => Self::OwnedAsleep,
        }
    }

    pub(crate) const fn is_owned(self) -> bool {
        matches!(self, Self::OwnedAwake | Self::OwnedAsleep)
    }

    pub(crate) const fn is_asleep(self) -> bool {
        matches!(self, Self::Asleep | Self::OwnedAsleep)
    }
}

/// One block. Sizes and addresses are bytes and multiples of 512.
#[derive(Clone, Debug)]
#[repr(align(64))]
pub struct Block {
    /// First address.
    pub addr: u64,
    /// Length.
    pub size: u64,
    /// Bytes last requested; stale once free.
    pub requested: u64,
    /// The stream's epoch at the last free: granules may leave once it has passed.
    pub epoch: u64,
    /// The tier's search counter when the block became free: its age for garbage collection.
    pub born: u64,
    /// Neighbour below in the segment.
    pub prev: BlockId,
    /// Neighbour above in the segment.
    pub next: BlockId,
    /// The segment.
    pub segment: SegmentId,
    /// First node of the list of other streams that use it.
    pub uses: u32,
    /// Tie-breaker among free blocks of one size, before the address: by default the segment's place in creation order.
    pub order: u32,
    /// Events still awaited.
    pub pending: u16,
    /// Current phase.
    pub state: BlockPhase,
    /// Its tier.
    pub tier: Tier,
}

const _: () = assert!(std::mem::size_of::<Block>() == 64, "a block record is one cache line");
const _: () = assert!(std::mem::size_of::<BlockPhase>() == 1, "a phase is one byte");

/// End of a use list.
pub const NO_USES: u32 = u32::MAX;

impl Block {
    /// A record that is not in use.
    const VACANT: Self = Self {
        addr: 0,
        size: 0,
        requested: 0,
        epoch: 0,
        born: 0,
        prev: BlockId::NONE,
        next: BlockId::NONE,
        segment: SegmentId(0),
        uses: NO_USES,
        order: 0,
        pending: 0,
        state: BlockPhase::Unused,
        tier: Tier::Large,
    };

    /// A free block of the large tier, for tests of what holds such.
    #[cfg(test)]
    pub(crate) fn free(addr: u64, size: u64) -> Self {
        Self { addr, size, state: BlockPhase::Free, ..Self::VACANT }
    }

    /// First address after it.
    #[must_use]
    pub fn end(&self) -> u64 {
        self.addr + self.size
    }

    /// Its holder and its memory, if it is live.
    pub(crate) fn live(&self) -> Option<Live> {
        if let BlockPhase::Live(live) = self.state { Some(live) } else { None }
    }

    /// True if it is live, and all of it has memory.
    pub(crate) fn is_awake(&self) -> bool {
        self.live().is_some_and(|live| !live.is_asleep())
    }

    /// True if anyone may free it by this address.
    #[inline(always)]
    pub(crate) fn is_handed_out_at(&self, addr: u64) -> bool {
        self.addr == addr && self.state == BlockPhase::Live(Live::Awake)
    }

    /// Part of a segment that has other blocks too (PyTorch: `is_split`).
    #[must_use]
    pub fn is_split(&self) -> bool {
        self.prev != BlockId::NONE || self.next != BlockId::NONE
    }
}

/// All block records of an arena.
#[derive(Debug, Default)]
pub struct BlockTable {
    records: Vec<Block>,
    /// Records to be used again: how many, and the first of a list that goes on in their `next`.
    vacant: usize,
    first_vacant: Option<BlockId>,
}

impl BlockTable {
    /// True if a block may still be cut for a request. The address map can name 2^28 records, which is
    /// 128 GiB in blocks of 512 bytes; some are kept for segments and for giving memory back.
    #[must_use]
    pub fn may_cut(&self) -> bool {
        self.len() < (1 << 28) - (1 << 20)
    }

    /// Stores a record.
    ///
    /// # Panics
    /// Beyond 2^28 records; [`may_cut`](Self::may_cut) keeps well away from it.
    pub fn add(&mut self, block: Block) -> BlockId {
        let id = self.take_vacant();
        self[id] = block;
        id
    }

    /// A record to be written.
    #[inline(always)]
    fn take_vacant(&mut self) -> BlockId {
        match self.first_vacant {
            Some(id) => {
                self.vacant -= 1;
                self.first_vacant = self[id].next.some();
                id
            }
            None => self.push_vacant(),
        }
    }

    #[cold]
    #[inline(never)]
    fn push_vacant(&mut self) -> BlockId {
        assert!(self.records.len() < (1 << 28) - 1, "more than 2^28 blocks in one arena");
        #[allow(clippy::cast_possible_truncation)] // checked above
        let id = BlockId::new(self.records.len() as u32);
        big_table::push(&mut self.records, Block::VACANT);
        id
    }

    /// Cuts a block after `size` bytes. The lower part keeps the record; the upper one, which is returned, is busy, and
    /// nobody else uses it.
    #[inline(never)]
    pub(crate) fn cut(&mut self, lower: BlockId, size: u64) -> BlockId {
        let upper = self.take_vacant();
        let block = &mut self[lower];
        let Block { addr, size: whole, requested, epoch, born, next, segment, order, tier, .. } = *block;
        debug_assert!(size > 0 && size < whole, "both parts keep something");
        (block.size, block.next) = (size, upper);
        self[upper] = Block {
            addr: addr + size,
            size: whole - size,
            requested,
            epoch,
            born,
            prev: lower,
            next,
            segment,
            uses: NO_USES,
            order,
            pending: 0,
            state: BlockPhase::Busy,
            tier,
        };
        if let Some(next) = next.some() {
            self[next].prev = upper;
        }
        upper
    }

    /// Gives a record back for reuse.
    pub fn remove(&mut self, id: BlockId) {
        let next = self.first_vacant.unwrap_or(BlockId::NONE);
        let record = &mut self[id];
        record.state = BlockPhase::Unused;
        record.next = next;
        self.first_vacant = Some(id);
        self.vacant += 1;
    }

    /// The record, if the id is one this table ever gave out.
    #[must_use]
    pub fn get(&self, id: BlockId) -> Option<&Block> {
        self.records.get(id.index() as usize)
    }

    /// All records in use, in table order.
    pub fn iter(&self) -> impl Iterator<Item = (BlockId, &Block)> {
        (0u32..)
            .map(BlockId::new)
            .zip(&self.records)
            .counted()
            .filter(|(_, block)| block.state != BlockPhase::Unused)
    }

    /// A block and those above it in its segment.
    pub(crate) fn upwards(&self, from: BlockId) -> impl Iterator<Item = (BlockId, &Block)> {
        std::iter::successors(Some(from), |id| self[*id].next.some()).map(|id| (id, &self[id]))
    }

    /// Records in use.
    #[must_use]
    pub fn len(&self) -> usize {
        self.records.len() - self.vacant
    }

    /// True when no record is in use.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Lets `lower` take over `upper`, its neighbour above, whose record goes.
    pub fn absorb_above(&mut self, lower: BlockId, upper: BlockId) {
        let Block { size, next, epoch, .. } = self[upper];
        let record = &mut self[lower];
        record.size += size;
        record.next = next;
        record.epoch = record.epoch.max(epoch);
        if let Some(next) = next.some() {
            self[next].prev = lower;
        }
        self.remove(upper);
    }
}

impl std::ops::Index<BlockId> for BlockTable {
    type Output = Block;
    fn index(&self, id: BlockId) -> &Block {
        &self.records[id.index() as usize]
    }
}

impl std::ops::IndexMut<BlockId> for BlockTable {
    fn index_mut(&mut self, id: BlockId) -> &mut Block {
        &mut self.records[id.index() as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_a_block_are_neighbours() {
        let mut table = BlockTable::default();
        let whole = table.add(Block { requested: 7, epoch: 3, ..Block::free(512, 2048) });
        let top = table.cut(whole, 1536);
        let middle = table.cut(whole, 512);
        let places = |table: &BlockTable| -> Vec<_> {
            table.upwards(whole).map(|(id, block)| (id, block.prev, block.addr, block.size)).collect()
        };
        let expected =
            [(whole, BlockId::NONE, 512, 512), (middle, whole, 1024, 1024), (top, middle, 2048, 512)];
        assert_eq!(places(&table), expected);
        let Block { requested, epoch, state, uses, .. } = table[middle];
        assert_eq!((requested, epoch, state, uses), (7, 3, BlockPhase::Busy, NO_USES));
        // Freed records are used again.
        table.absorb_above(whole, middle);
        assert_eq!(table.len(), 2);
        assert_eq!(table.cut(whole, 1024), middle);
        let expected =
            [(whole, BlockId::NONE, 512, 1024), (middle, whole, 1536, 512), (top, middle, 2048, 512)];
        assert_eq!(places(&table), expected);
    }
}
