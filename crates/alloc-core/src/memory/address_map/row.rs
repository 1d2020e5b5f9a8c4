//! A row of cells with an entry each, shared by arenas that lock nothing in common.

use super::Location;
use crate::memory::block::BlockId;
use crate::sync::{Ordering, plain};
use crate::types::DeviceIndex;

/// `slot:12 | device:8 | arena:16 | block + 1:28`; 0 is empty.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct MapEntry(pub(super) u64);

impl MapEntry {
    pub(super) const EMPTY: Self = Self(0);

    pub(super) fn new(slot: usize, at: Location) -> Self {
        debug_assert!(at.device.0 < 256 && at.block.index() < (1 << 28) - 1, "fits an entry");
        Self(
            (slot as u64) << 52
                | u64::from(at.device.0) << 44
                | u64::from(at.arena) << 28
                | (u64::from(at.block.index()) + 1),
        )
    }

    fn slot(self) -> usize {
        (self.0 >> 52) as usize
    }

    #[allow(clippy::cast_possible_truncation)] // the masks leave what fits
    pub(super) fn location(self) -> Location {
        Location {
            device: DeviceIndex((self.0 >> 44) as u16 & 0xff),
            arena: (self.0 >> 28) as u16,
            block: BlockId::new((self.0 & 0x0fff_ffff) as u32 - 1),
        }
    }
}

/// Word of a cell: the standard library's, or a model's.
pub(super) trait Word {
    fn load(&self, order: Ordering) -> u64;
    fn store(&self, value: u64, order: Ordering);
    fn compare_exchange(&self, old: u64, new: u64, done: Ordering, not: Ordering) -> Result<u64, u64>;
}

macro_rules! words {
    ($($word:ty),*) => {$(
        impl Word for $word {
            #[inline(always)]
            fn load(&self, order: Ordering) -> u64 {
                self.load(order)
            }
            #[inline(always)]
            fn store(&self, value: u64, order: Ordering) {
                self.store(value, order);
            }
            #[inline(always)]
            fn compare_exchange(&self, old: u64, new: u64, done: Ordering, not: Ordering) -> Result<u64, u64> {
                self.compare_exchange(old, new, done, not)
            }
        }
    )*};
}

words!(plain::AtomicU64);
#[cfg(loom)]
words!(crate::sync::AtomicU64);

/// Cells of a row, from the one where the entry of `slot` is if no other was in its way. Slots that share a row start
/// at different cells.
#[inline(always)]
fn from_own<W: Word, const N: usize>(cells: &[W; N], slot: usize) -> impl Iterator<Item = &W> {
    let own = (slot * 0o111) >> 6;
    (0..N).map(move |n| &cells[(own + n) % N])
}

/// The entry of `slot` in a row of cells.
#[inline]
pub(super) fn find<W: Word, const N: usize>(cells: &[W; N], slot: usize) -> Option<MapEntry> {
    from_own(cells, slot)
        .map(|cell| MapEntry(cell.load(Ordering::Acquire)))
        .find(|entry| entry.slot() == slot && *entry != MapEntry::EMPTY)
}

/// Puts an entry into a free cell. Segments of two arenas may share a page, so a cell is claimed, not
/// just written.
#[inline]
pub(super) fn claim<W: Word, const N: usize>(cells: &[W; N], entry: MapEntry) -> bool {
    from_own(cells, entry.slot()).any(|cell| {
        cell.load(Ordering::Relaxed) == 0
            && cell.compare_exchange(0, entry.0, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    })
}

/// Empties the cell of `slot`, if it is in this row.
#[inline]
pub(super) fn clear<W: Word, const N: usize>(cells: &[W; N], slot: usize) -> bool {
    let mut cells = from_own(cells, slot);
    let cell = cells.find(|cell| {
        let entry = MapEntry(cell.load(Ordering::Relaxed));
        entry.slot() == slot && entry != MapEntry::EMPTY
    });
    cell.inspect(|cell| cell.store(0, Ordering::Release)).is_some()
}

#[cfg(all(test, loom))]
mod models {
    use super::*;
    use crate::sync::{Arc, AtomicU64, models};

    fn entry(slot: usize, block: u32) -> MapEntry {
        MapEntry::new(slot, Location { device: DeviceIndex(0), arena: 0, block: BlockId::new(block) })
    }

    /// Two arenas write to one row: each finds its own entry, and a third one's that stays.
    #[test]
    fn writers_of_a_row_do_not_disturb_each_other() {
        models::check(|| {
            let row: Arc<[AtomicU64; 3]> = Arc::new([0, 0, 0].map(AtomicU64::new));
            assert!(claim(&*row, entry(9, 9)));
            let write = |slot: usize, block| {
                let row = Arc::clone(&row);
                move || {
                    assert!(claim(&*row, entry(slot, block)), "there is room for all");
                    assert!(find(&*row, slot) == Some(entry(slot, block)));
                    assert!(clear(&*row, slot));
                    assert!(find(&*row, slot).is_none());
                }
            };
            let other = loom::thread::spawn(write(1, 1));
            write(2, 2)();
            assert!(find(&*row, 9) == Some(entry(9, 9)), "it was there all the time");
            other.join().expect("the writer ends well");
        });
    }

    /// A thread that finds an entry sees everything done before it was entered.
    #[test]
    fn an_entry_publishes_its_block() {
        models::check(|| {
            let shared = Arc::new(([0, 0].map(AtomicU64::new), AtomicU64::new(0)));
            let reads = Arc::clone(&shared);
            // The reader is spawned: with the threads the other way round, loom leaves the telling orders out.
            let reader = loom::thread::spawn(move || {
                if let Some(found) = find(&reads.0, 1) {
                    assert!(found == entry(1, 1));
                    assert_eq!(reads.1.load(Ordering::Relaxed), 7);
                }
            });
            shared.1.store(7, Ordering::Relaxed);
            assert!(claim(&shared.0, entry(1, 1)));
            reader.join().expect("the reader ends well");
            assert!(find(&shared.0, 1).is_some());
        });
    }
}
