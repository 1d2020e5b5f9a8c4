//! Pieces for a view: the free parts of an arena's granules, in the order in which views take them.
//!
//! While requests are served, rows of cells are noted in which free blocks come, go or change, which costs next to nothing. Before
//! a view is planned, [`Pieces`] catches up with these rows. So a plan costs what it takes, and what changed since the last
//! one; not what is free.

use super::borders::{AllBorders, Parts, RowId};
use super::shown::Shown;
use crate::base::steps::{Counted, step, steps};
use crate::memory::block::SegmentId;
use crate::memory::segment::SegmentTable;
use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// Granules of a new view.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) granules: Vec<Shown>,
    /// Bytes of the first granule that the request leaves out.
    pub(crate) skip: u64,
    /// Bytes of memory that have to be taken first.
    pub(crate) missing: u64,
}

/// A granule, and how much of it is free from one of its ends on.
type Part = (u64, Shown);

/// The granules that a free block holds as a whole.
#[derive(Clone, Debug, PartialEq, Eq)]
struct WholeGranules {
    segment: SegmentId,
    /// Their home addresses.
    range: Range<u64>,
}

impl WholeGranules {
    fn bytes(&self) -> u64 {
        self.range.end - self.range.start
    }

    fn shown<'a>(&self, segments: &'a SegmentTable) -> impl Iterator<Item = Shown> + use<'a> {
        let (segment, granules) = (self.segment, &segments[self.segment].granules);
        granules
            .each(self.range.clone())
            .counted()
            .map(move |granule| Shown::new(segment, granules, &granule))
    }
}

/// A free block at borders of granules: its bytes, and what views can show of it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct AtBorders {
    bytes: u64,
    end: Option<Part>,
    whole: Option<WholeGranules>,
    beginning: Option<Part>,
    /// Those that are free up to their last byte and that views show.
    visible: SmallVec<[usize; 2]>,
}

/// The free parts of granules, as views can show them.
#[derive(Debug, Default)]
pub(crate) struct Pieces {
    /// Parts ordered below, by the rows in which the blocks begin.
    known: FxHashMap<RowId, SmallVec<[AtBorders; 2]>>,
    /// Free granules, those of the smallest free blocks first: by bytes of the block and address of the first.
    whole: BTreeMap<(u64, u64), WholeGranules>,
    /// Bytes of them all.
    whole_bytes: u64,
    /// Granules with a free end, the smallest first, and of equal ones the highest.
    ends: BTreeMap<(u64, Reverse<u64>), Shown>,
    /// Granules with a free beginning, the smallest first, and of equal ones the lowest.
    beginnings: BTreeMap<(u64, u64), Shown>,
    /// Granules that are free up to their last byte and that views show.
    visible: BTreeSet<(SegmentId, usize)>,
}

/// The free blocks of a row at borders of granules, as they are.
fn of_row(borders: &AllBorders, segments: &SegmentTable, (segment, row): RowId) -> SmallVec<[AtBorders; 2]> {
    let Some(borders) = borders.get(segment) else { return SmallVec::new() };
    let granules = &segments[segment].granules;
    let at_borders = |(bytes, Parts { end, whole, beginning }): (u64, Parts)| {
        let first = end.as_ref().map_or(whole.start, |(granule, _)| granule.start);
        let visible = borders.visible(borders.number(first)..borders.number(whole.end)).collect();
        let part = |part: Option<(Range<u64>, u64)>| {
            part.map(|(granule, bytes)| (bytes, Shown::new(segment, granules, &granule)))
        };
        let whole = (!whole.is_empty()).then_some(WholeGranules { segment, range: whole });
        AtBorders { bytes, end: part(end), whole, beginning: part(beginning), visible }
    };
    borders.of_row(row, granules).map(at_borders).collect()
}

impl Pieces {
    /// Follows what changed at borders of granules.
    pub(crate) fn catch_up(&mut self, borders: &mut AllBorders, segments: &SegmentTable) {
        let now = borders.take_changed().into_iter().map(|row| (row, of_row(borders, segments, row)));
        // Much of what came is gone again.
        let known = |row: &RowId| self.known.get(row).map_or(&[][..], SmallVec::as_slice);
        let changed: Vec<_> = now.filter(|(row, now)| known(row) != now.as_slice()).collect();
        // First all that went: what came, in another row, may have its place in the order.
        for (row, _) in &changed {
            for gone in self.known.remove(row).unwrap_or_default() {
                self.remove(*row, gone);
            }
        }
        for (row, now) in changed {
            now.iter().for_each(|come| self.insert(row, come));
            if !now.is_empty() {
                self.known.insert(row, now);
            }
        }
    }

    fn insert(&mut self, (segment, _): RowId, come: &AtBorders) {
        if let Some(whole) = &come.whole {
            self.whole_bytes += whole.bytes();
            self.whole.insert((come.bytes, whole.range.start), whole.clone());
        }
        self.ends.extend(come.end.map(|(bytes, shown)| ((bytes, Reverse(shown.addr)), shown)));
        self.beginnings.extend(come.beginning.map(|(bytes, shown)| ((bytes, shown.addr), shown)));
        self.visible.extend(come.visible.iter().map(|number| (segment, *number)));
    }

    fn remove(&mut self, (segment, _): RowId, gone: AtBorders) {
        step();
        if let Some(whole) = gone.whole {
            self.whole_bytes -= whole.bytes();
            self.whole.remove(&(gone.bytes, whole.range.start));
        }
        gone.end.map(|(bytes, shown)| self.ends.remove(&(bytes, Reverse(shown.addr))));
        gone.beginning.map(|(bytes, shown)| self.beginnings.remove(&(bytes, shown.addr)));
        for number in gone.visible {
            self.visible.remove(&(segment, number));
        }
    }

    /// The granules that are free up to their last byte and that views show.
    pub(crate) fn visible(&self) -> impl Iterator<Item = (SegmentId, usize)> {
        self.visible.iter().counted().copied()
    }

    /// The two granules with the largest free ends, the larger first, of those that are of at least `least` bytes and do not
    /// hold `size`.
    fn ends(&self, size: u64, least: u64) -> [Option<Part>; 2] {
        let from = |bytes: u64| (bytes, Reverse(u64::MAX));
        let mut ends = self.ends.range(from(size.min(least))..from(size)).rev();
        std::array::from_fn(|_| ends.next().map(|((bytes, _), shown)| (*bytes, *shown)))
    }

    /// The largest free beginning in bytes of a granule other than that whose end comes first.
    fn largest_beginning(&self, head: Option<Part>) -> u64 {
        let beside = self.beginnings.iter().rev().find(|(_, shown)| is_other(head, shown));
        beside.map_or(0, |((bytes, _), _)| *bytes)
    }

    /// A view that begins with `head`: then whole granules follow, last the smallest beginning that does.
    fn plan(&self, segments: &SegmentTable, head: Option<Part>, size: u64, granule: u64) -> Plan {
        let mut plan = Plan { granules: Vec::new(), skip: 0, missing: 0 };
        let mut left = size;
        if let Some((end, shown)) = head {
            plan.skip = shown.bytes - end;
            plan.granules.push(shown);
            left -= end;
        }
        let largest = self.largest_beginning(head);
        if left > largest + self.whole_bytes {
            // Whole granules are taken, and the largest beginning does for the rest.
            plan.missing = (left - self.whole_bytes - largest).next_multiple_of(granule);
            return plan;
        }
        for shown in self.whole.values().flat_map(|whole| whole.shown(segments)) {
            if left <= largest {
                break;
            }
            plan.granules.push(shown);
            left -= shown.bytes.min(left);
        }
        let mut beginnings = self.beginnings.range((left, 0)..).filter(|(_, shown)| is_other(head, shown));
        plan.granules.extend(beginnings.next().filter(|_| left > 0).map(|(_, shown)| *shown));
        plan
    }

    /// Plans a view for `size` bytes: first the granule with the largest free end, if that has `least` bytes, then
    /// whole free ones, last the smallest free beginning that does. `granule` is the size of granules to come.
    pub(crate) fn plan_view(&self, segments: &SegmentTable, size: u64, granule: u64, least: u64) -> Plan {
        let [first, second] = self.ends(size, least);
        let plan = self.plan(segments, first, size, granule);
        if plan.missing == 0 {
            return plan;
        }
        // The largest end and the largest beginning may be one granule's, which comes once.
        let other = self.plan(segments, second, size, granule);
        if other.missing < plan.missing { other } else { plan }
    }

    /// The most bytes that a view could show in one piece.
    pub(crate) fn most(&self) -> u64 {
        let both = |head: Option<Part>| head.map_or(0, |(end, _)| end) + self.largest_beginning(head);
        let [first, second] = self.ends(u64::MAX, 1);
        self.whole_bytes + [None, first, second].map(both).into_iter().max().unwrap_or(0)
    }

    /// Panics where it is not what the borders say, but for rows that changed since.
    pub(crate) fn check(&self, borders: &AllBorders, segments: &SegmentTable) {
        let mut all = Self::default();
        for (row, known) in &self.known {
            known.iter().for_each(|come| all.insert(*row, come));
            if !borders.is_changed(*row) {
                assert_eq!(
                    *known,
                    of_row(borders, segments, *row),
                    "what is free at borders is known row by row"
                );
            }
        }
        assert_eq!(all.whole, self.whole, "free granules are in order");
        assert_eq!(all.whole_bytes, self.whole_bytes, "and counted");
        assert_eq!((&all.ends, &all.beginnings), (&self.ends, &self.beginnings), "so are parts of granules");
        assert_eq!(all.visible, self.visible, "and what views show of them");
        let rows =
            borders.iter().flat_map(|(segment, borders)| borders.rows().map(move |row| (segment, row)));
        for row in rows.filter(|row| !borders.is_changed(*row) && !self.known.contains_key(row)) {
            assert!(of_row(borders, segments, row).is_empty(), "no row is missed");
        }
        steps(self.known.len());
    }
}

fn is_other(head: Option<Part>, shown: &Shown) -> bool {
    head.is_none_or(|(_, first)| first != *shown)
}

#[cfg(test)]
mod tests {
    use super::super::borders::Borders;
    use super::*;
    use crate::memory::block::{Block, BlockId, Tier};
    use crate::memory::region::RegionId;
    use crate::memory::segment::{Origin, Segment};
    use crate::types::{DevicePtr, MIB};
    use proptest::prelude::*;

    const BASE: u64 = 1 << 40;
    const GRANULE: u64 = 8 * MIB;

    /// The most of `pieces` from the free blocks alone: whole granules, with the end and the beginning of two others.
    fn most(free: &BTreeMap<u64, (u64, BlockId)>) -> u64 {
        let (mut whole, mut ends, mut beginnings) = (0, Vec::new(), Vec::new());
        for (low, (high, _)) in free {
            let (first, last) = (low.next_multiple_of(GRANULE), high / GRANULE * GRANULE);
            if first > *high {
                continue;
            }
            whole += last - first;
            ends.push((first - low, first / GRANULE));
            beginnings.push((high - last, last / GRANULE + 1));
        }
        let pairs = ends.iter().flat_map(|end| beginnings.iter().map(move |beginning| (end, beginning)));
        let of_two = pairs.filter(|(end, beginning)| end.1 != beginning.1);
        let best = of_two.map(|(end, beginning)| end.0 + beginning.0).max().unwrap_or(0);
        let alone = ends.iter().chain(&beginnings).map(|(bytes, _)| *bytes).max().unwrap_or(0);
        whole + best.max(alone)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        /// Blocks come and go anywhere, in rows of cells of their own or in one, and it is caught up with now and then.
        #[test]
        fn what_views_can_show_follows_the_free_blocks(
            steps in prop::collection::vec((0u64..100, 1u64..40, any::<bool>()), 1..200)
        ) {
            let (mut all, mut pieces) = (AllBorders::default(), Pieces::default());
            let mut segments = SegmentTable::default();
            let origin = Origin::Growable { region: RegionId(0), unit: 2 * MIB };
            let segment = Segment::new(DevicePtr(BASE), 400 * GRANULE, 0, Tier::Large, origin);
            let id = segments.add(segment);
            segments.granules_mut(id).unwrap().set(BASE, std::iter::repeat_n(GRANULE, 200));
            all.insert(id, Borders::new(BASE, 2 * MIB));
            let mut free: BTreeMap<u64, (u64, BlockId)> = BTreeMap::new();
            for (number, (place, mib, looks)) in steps.into_iter().enumerate() {
                let (low, high) = (place * 2 * MIB, (place * 2 + mib) * MIB);
                let overlapping: Vec<u64> =
                    free.range(..high).filter(|(_, (end, _))| *end > low).map(|(low, _)| *low).collect();
                if overlapping.is_empty() {
                    let id = BlockId::new(u32::try_from(number).unwrap());
                    all.insert_free(&Block::free(BASE + low, high - low), id);
                    free.insert(low, (high, id));
                }
                for low in overlapping {
                    let (high, id) = free.remove(&low).unwrap();
                    all.remove_free(&Block::free(BASE + low, high - low), id);
                }
                if looks {
                    pieces.catch_up(&mut all, &segments);
                    pieces.check(&all, &segments);
                    prop_assert_eq!(pieces.most(), most(&free));
                    let (size, finest) = (mib * 4 * MIB, 2 * MIB);
                    let plan = pieces.plan_view(&segments, size, finest, 1);
                    // Free bytes from a place on, at most to the granule's end.
                    let run = |at: u64| {
                        let below = free.range(..=at).next_back();
                        below.map_or(0, |(_, (high, _))| high.saturating_sub(at)).min(GRANULE - at % GRANULE)
                    };
                    let begins = plan.granules.iter().map(|shown| shown.addr - BASE);
                    let skips = std::iter::once(plan.skip).chain(std::iter::repeat(0));
                    let runs: Vec<u64> = begins.zip(skips).map(|(begin, skip)| run(begin + skip)).collect();
                    let enough = runs.iter().sum::<u64>() >= size;
                    prop_assert!(plan.missing > 0 || enough, "it is enough, or something is missing");
                    let inner = runs.iter().skip(1).rev().skip(1);
                    prop_assert!(inner.copied().all(|run| run == GRANULE), "and in one piece");
                }
            }
        }
    }
}
