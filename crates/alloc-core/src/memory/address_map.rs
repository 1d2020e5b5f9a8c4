//! Map from an address to the block that begins there, without a lock and for any 64-bit value.
//!
//! A two-level radix table over 2 MiB pages of address space. Each page has eight cache lines, and a hash of the
//! block's place in its page says which of them has its entry: a look-up costs one cache line, however many blocks
//! there are. Pages whose lines overflow get a table with an entry for each of their 4096 possible block addresses.
//! Tables are zeroed memory that the system backs when it is touched: on huge pages where much memory is
//! [expected](AddressMap::expect), since with many live blocks TLB misses are the cost of a look-up; on small ones
//! elsewhere, views among them. A huge page is the table of 8 GiB of addresses, and each of ten thousand streams has
//! regions of its own.
//!
//! Look-ups read atomics only. An entry is written once and stays in its cell until it is removed, so a reader finds
//! every block that was handed out before it asked. Tables stay until the map is dropped, so a reader never sees freed
//! memory. An entry that a reader got may be out of date: the engine compares it with the block under the arena's lock.
//!
//! All `unsafe` here has one reason: tables are zeroed allocations of atomics,
//! for which zero is a valid value, reached through `AtomicPtr`s that go from null to a table once.

mod row;

use crate::backend;
use crate::base::big_table;
use crate::memory::block::BlockId;
use crate::sync::Ordering;
use crate::sync::plain::{AtomicPtr, AtomicU64, Mutex, MutexGuard};
use crate::types::{DeviceIndex, DevicePtr};
use row::{MapEntry, claim, clear, find};
use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::fmt;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::PoisonError;

const PAGE_BITS: u32 = 21;
const SLOT_BITS: u32 = 9;
const SLOTS: usize = 1 << (PAGE_BITS - SLOT_BITS);
const NODE_BITS: u32 = 17;
const PAGES: usize = 1 << NODE_BITS;
const ROOT_BITS: u32 = 19;
/// Addresses have at most this many bits (five-level page tables).
const ADDRESS_BITS: u32 = PAGE_BITS + NODE_BITS + ROOT_BITS;
const _: () = assert!(ADDRESS_BITS == backend::ADDRESS_BITS, "as the contract has it");
/// Lines of a page, and entries of a line.
const LINES: usize = 8;
const LINE: usize = 8;

/// Place of a block's record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Location {
    /// The device.
    pub device: DeviceIndex,
    /// The arena's number on that device.
    pub arena: u16,
    /// The block in that arena's table.
    pub block: BlockId,
}

/// Entries that share a cache line.
#[repr(C, align(64))]
struct Line([AtomicU64; LINE]);

/// A page's entries by slot.
struct Dense([AtomicU64; SLOTS]);

/// Table of 2^17 pages, which is 256 GiB of addresses: 65 MiB, of which the used part gets memory.
#[repr(C)]
struct Node {
    lines: [[Line; LINES]; PAGES],
    dense: [AtomicPtr<Dense>; PAGES],
}

impl Node {
    /// The line of a page that has `slot`. Slots are often multiples of a power of two: all of their bits count.
    fn line(&self, page: usize, slot: usize) -> &[AtomicU64; LINE] {
        &self.lines[page][((slot * 0o1111) >> 9) % LINES].0
    }
}

struct Root([AtomicPtr<Node>; 1 << ROOT_BITS]);

/// Types that are valid when all their bytes are zero.
///
/// # Safety
/// All-zero bytes are a valid value of the type.
unsafe trait Zeroed: Sized {
    /// Set for types far larger than their used part: they come from the system, which clears only touched pages. The
    /// allocator would clear recycled memory by hand, and so touch all of it.
    const LARGE: bool = false;
}
// SAFETY: an array of `AtomicU64`, for which any bytes are valid.
unsafe impl Zeroed for Dense {}
// SAFETY: arrays of `AtomicU64` and of `AtomicPtr`, for which zero is 0 and null.
unsafe impl Zeroed for Node {
    const LARGE: bool = true;
}
// SAFETY: an array of `AtomicPtr`, for which zero is null.
unsafe impl Zeroed for Root {
    const LARGE: bool = true;
}

/// A zeroed table straight from the allocator, without passing over the stack: the system hands out untouched zero
/// pages, so only used ones cost memory.
fn new_zeroed<T: Zeroed>() -> NonNull<T> {
    const { assert!(std::mem::size_of::<T>() > 0) };
    let layout = Layout::new::<T>();
    if T::LARGE {
        return big_table::reserve_zeroed(layout).cast();
    }
    // SAFETY: the layout has a size above 0, asserted above.
    let raw = unsafe { alloc_zeroed(layout) };
    NonNull::new(raw.cast::<T>()).unwrap_or_else(|| handle_alloc_error(layout))
}

/// Gives a table of [`new_zeroed`] back.
///
/// # Safety
/// `table` came from `new_zeroed` and is not used again.
unsafe fn delete<T: Zeroed>(table: *mut T) {
    let (raw, layout) = (table.cast::<u8>(), Layout::new::<T>());
    // Tables hold atomics only, so there is nothing to drop.
    if T::LARGE {
        // SAFETY: by this function's contract, from `reserve_zeroed` with this layout, and given back once.
        unsafe { big_table::release_zeroed(raw, layout) };
    } else {
        // SAFETY: by this function's contract, allocated with this layout and not freed before.
        unsafe { dealloc(raw, layout) };
    }
}

/// The table behind `cell`, made on first use and then passed to `keep`. Two threads may race; the loser's table is
/// given back.
fn get_or_make<T: Zeroed>(cell: &AtomicPtr<T>, keep: impl FnOnce(NonNull<T>)) -> &T {
    let there = cell.load(Ordering::Acquire);
    let table = if there.is_null() {
        let fresh = new_zeroed::<T>();
        match cell.compare_exchange(std::ptr::null_mut(), fresh.as_ptr(), Ordering::AcqRel, Ordering::Acquire)
        {
            Ok(_) => {
                keep(fresh);
                fresh.as_ptr()
            }
            Err(winner) => {
                // SAFETY: `fresh` was made above and never published.
                unsafe { delete(fresh.as_ptr()) };
                winner
            }
        }
    } else {
        there
    };
    // SAFETY: cells only ever go from null to a table of `new_zeroed`, which lives until the map is
    // dropped, and `cell` is borrowed from the map.
    unsafe { &*table }
}

fn get<T: Zeroed>(cell: &AtomicPtr<T>) -> Option<&T> {
    let table = cell.load(Ordering::Acquire);
    // SAFETY: as in `get_or_make`; null becomes `None`.
    unsafe { table.as_ref() }
}

/// Tables of a map: its end need not look for them in millions of cells.
#[derive(Default)]
struct Tables {
    nodes: Vec<NonNull<Node>>,
    dense: Vec<NonNull<Dense>>,
}

/// The map. Sharing it between devices lets a free name a pointer only.
pub(crate) struct AddressMap {
    root: NonNull<Root>,
    tables: Mutex<Tables>,
}

// SAFETY: everything behind `root` is atomics, tables are only freed by `drop`, which has `&mut`, and their list is locked.
unsafe impl Send for AddressMap {}
// SAFETY: as for `Send`.
unsafe impl Sync for AddressMap {}

impl Default for AddressMap {
    fn default() -> Self {
        Self { root: new_zeroed(), tables: Mutex::default() }
    }
}

impl AddressMap {
    /// True for addresses that can be entered: 57 bits, aligned to 512.
    #[must_use]
    pub(crate) const fn can_hold(ptr: DevicePtr) -> bool {
        ptr.0 >> ADDRESS_BITS == 0 && ptr.0.trailing_zeros() >= SLOT_BITS
    }

    fn root(&self) -> &Root {
        // SAFETY: made in `default`, freed only in `drop`.
        unsafe { self.root.as_ref() }
    }

    #[cold]
    fn tables(&self) -> MutexGuard<'_, Tables> {
        self.tables.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[inline]
    fn place(ptr: DevicePtr) -> (usize, usize, usize) {
        let page = ptr.0 >> PAGE_BITS;
        let slot = (ptr.0 >> SLOT_BITS) as usize & (SLOTS - 1);
        ((page >> NODE_BITS) as usize, page as usize & (PAGES - 1), slot)
    }

    /// Entry at `ptr`. Takes no lock; any value may be asked.
    #[must_use]
    #[inline(always)]
    pub(crate) fn get(&self, ptr: DevicePtr) -> Option<Location> {
        // Moves the low bits, which must be zero, next to the high bits, which must be, too: one test for both.
        let slots = ptr.0.rotate_right(SLOT_BITS);
        if slots >> (ADDRESS_BITS - SLOT_BITS) != 0 {
            return None;
        }
        let (node, page, slot) = Self::place(ptr);
        let node = get(&self.root().0[node])?;
        if let Some(entry) = find(node.line(page, slot), slot) {
            return Some(entry.location());
        }
        let entry = MapEntry(get(&node.dense[page])?.0[slot].load(Ordering::Acquire));
        (entry != MapEntry::EMPTY).then(|| entry.location())
    }

    /// Enters a block. The caller holds the lock of the arena that owns the address, and nothing is
    /// entered there; `ptr` satisfies [`can_hold`](Self::can_hold).
    #[inline]
    pub(crate) fn insert(&self, ptr: DevicePtr, at: Location) {
        debug_assert!(Self::can_hold(ptr), "the segment's address was checked when it was made");
        let (node, page, slot) = Self::place(ptr);
        let entry = MapEntry::new(slot, at);
        let node = get_or_make(&self.root().0[node], |made| self.tables().nodes.push(made));
        if !claim(node.line(page, slot), entry) {
            let dense = get_or_make(&node.dense[page], |made| self.tables().dense.push(made));
            dense.0[slot].store(entry.0, Ordering::Release);
        }
    }

    /// Expects much memory at these addresses, of at most 57 bits: their tables may take more of the host's memory than
    /// their used part. Asks the system.
    pub(crate) fn expect(&self, addresses: Range<u64>) {
        debug_assert!(
            addresses.end <= 1 << ADDRESS_BITS,
            "the segment's addresses were checked when it was made"
        );
        let pages = addresses.start >> PAGE_BITS..addresses.end.div_ceil(1 << PAGE_BITS);
        let mut first = pages.start;
        while first < pages.end {
            let (node, page) = ((first >> NODE_BITS) as usize, first as usize & (PAGES - 1));
            let end = (page as u64 + pages.end - first).min(PAGES as u64);
            let table = get_or_make(&self.root().0[node], |made| self.tables().nodes.push(made));
            big_table::prefer_huge_pages_around(&table.lines, page..end as usize);
            first += end - page as u64;
        }
    }

    /// Takes an entry out. The caller holds the lock of the arena that owns the address.
    #[inline(always)]
    pub(crate) fn remove(&self, ptr: DevicePtr) {
        let (node, page, slot) = Self::place(ptr);
        let Some(node) = get(&self.root().0[node]) else { return };
        if clear(node.line(page, slot), slot) {
            return;
        }
        if let Some(dense) = get(&node.dense[page]) {
            dense.0[slot].store(0, Ordering::Release);
        }
    }
}

impl fmt::Debug for AddressMap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AddressMap").field("nodes", &self.tables().nodes.len()).finish()
    }
}

impl Drop for AddressMap {
    fn drop(&mut self) {
        let Tables { nodes, dense } = std::mem::take(&mut *self.tables());
        for table in dense {
            // SAFETY: a table of `new_zeroed`, noted once; `&mut self` means no reader is left.
            unsafe { delete(table.as_ptr()) };
        }
        for table in nodes {
            // SAFETY: as above.
            unsafe { delete(table.as_ptr()) };
        }
        // SAFETY: as above; `self.root` is not used after this.
        unsafe { delete(self.root.as_ptr()) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashMap;

    fn at(block: u32) -> Location {
        Location { device: DeviceIndex(3), arena: 777, block: BlockId::new(block) }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]
        #[test]
        fn behaves_like_a_map(ops in prop::collection::vec((any::<bool>(), 0u64..3, 0u64..40, 0u32..1 << 27), 0..400)) {
            let map = AddressMap::default();
            let mut model = HashMap::new();
            for (add, page, slot, block) in ops {
                let ptr = DevicePtr((1 << 50) + page * (1 << 40) + slot * 512);
                if add && !model.contains_key(&ptr) {
                    map.insert(ptr, at(block));
                    model.insert(ptr, at(block));
                } else if !add && model.remove(&ptr).is_some() {
                    map.remove(ptr);
                }
                prop_assert_eq!(map.get(ptr), model.get(&ptr).copied());
            }
            for (ptr, location) in &model {
                prop_assert_eq!(map.get(*ptr), Some(*location));
            }
        }

        #[test]
        fn any_value_may_be_asked(value in any::<u64>()) {
            prop_assert_eq!(AddressMap::default().get(DevicePtr(value)), None);
        }
    }

    /// Addresses in two nodes: the end of one, and the beginning of the next.
    #[test]
    fn what_is_expected_is_found_as_ever() {
        let (map, border) = (AddressMap::default(), 5u64 << (PAGE_BITS + NODE_BITS));
        for _ in 0..2 {
            map.expect(border - (9 << 30) - 1..border + 1);
            assert_eq!(map.tables().nodes.len(), 2);
        }
        map.expect((1 << ADDRESS_BITS) - 1..1 << ADDRESS_BITS);
        for ptr in [border - 512, border, (1 << ADDRESS_BITS) - 512].map(DevicePtr) {
            map.insert(ptr, at(7));
            assert_eq!(map.get(ptr), Some(at(7)));
        }
    }

    #[test]
    fn full_pages_and_extreme_locations_work() {
        let map = AddressMap::default();
        let last = Location { device: DeviceIndex(255), arena: u16::MAX, block: BlockId::new((1 << 28) - 2) };
        for slot in 0..4096u64 {
            map.insert(DevicePtr((1 << 56) + slot * 512), last);
        }
        for slot in 0..4096u64 {
            assert_eq!(map.get(DevicePtr((1 << 56) + slot * 512)), Some(last));
            map.remove(DevicePtr((1 << 56) + slot * 512));
            assert_eq!(map.get(DevicePtr((1 << 56) + slot * 512)), None);
        }
        for odd in [1, 511, u64::MAX, 1 << 57, (1 << 56) + 1] {
            assert_eq!(map.get(DevicePtr(odd)), None);
        }
    }

    #[test]
    fn threads_that_share_a_page_do_not_disturb_each_other() {
        // Miri takes long for each, and looks at more orders.
        let rounds = if cfg!(miri) { 40 } else { 2000 };
        let map = AddressMap::default();
        std::thread::scope(|scope| {
            for thread in 0..4u64 {
                let map = &map;
                scope.spawn(move || {
                    for round in 0..rounds {
                        let ptr = DevicePtr((1 << 40) + (thread * 16 + round % 16) * 512);
                        let mine = at(u32::try_from(thread * 1000 + round).unwrap());
                        map.insert(ptr, mine);
                        assert_eq!(map.get(ptr), Some(mine));
                        map.remove(ptr);
                        assert_eq!(map.get(ptr), None);
                    }
                });
            }
        });
    }
    #[test]
    fn threads_that_only_look_see_a_table_whole() {
        let map = AddressMap::default();
        // The first is in a line of its page, the last in the table behind them.
        let all: Vec<_> =
            (0..80_u32).map(|n| (DevicePtr((1 << 40) + u64::from(n) * 8 * 512), at(n))).collect();
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    for (ptr, entered) in &all {
                        let found = loop {
                            match map.get(*ptr) {
                                Some(found) => break found,
                                None => std::thread::yield_now(),
                            }
                        };
                        assert_eq!(found, *entered);
                    }
                });
            }
            all.iter().for_each(|(ptr, entered)| map.insert(*ptr, *entered));
        });
    }
}
