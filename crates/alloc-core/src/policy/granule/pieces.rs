//! What a view can be made of: the free parts of an arena's granules.

use super::borders::{Borders, Parts};
use super::memory::Memory;
use super::shown::Shown;
use crate::base::steps::Counted;
use crate::memory::block::SegmentId;
use crate::policy::ground::Ground;
use std::cmp::Reverse;
use std::ops::Range;

/// What a new view is to show.
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

/// The free granules of a free block.
struct Whole<'a> {
    /// Bytes of the block.
    block: u64,
    segment: SegmentId,
    borders: &'a Borders,
    granules: Range<usize>,
}

impl Whole<'_> {
    fn addr(&self) -> u64 {
        self.borders.address(self.granules.start)
    }

    fn bytes(&self) -> u64 {
        self.granules.len() as u64 * self.borders.granule()
    }

    fn shown(&self) -> impl Iterator<Item = Shown> {
        self.granules.clone().counted().map(|number| shown(self.segment, self.borders, number))
    }
}

fn shown(segment: SegmentId, borders: &Borders, number: usize) -> Shown {
    Shown { segment, number, addr: borders.address(number), bytes: borders.granule() }
}

/// The free parts of granules, as views can show them.
#[derive(Default)]
struct Pieces<'a> {
    /// Free granules, those of the smallest free blocks first.
    whole: Vec<Whole<'a>>,
    /// The two granules with the largest free ends, the larger first.
    ends: [Option<Part>; 2],
    /// Granules with a free beginning, the smallest first.
    beginnings: Vec<Part>,
}

impl Pieces<'_> {
    fn add_end(&mut self, end: Part) {
        let rank = |part: Option<Part>| part.map(|(bytes, shown)| (bytes, Reverse(shown.addr)));
        let [first, second] = self.ends;
        if rank(Some(end)) > rank(first) {
            self.ends = [Some(end), first];
        } else if rank(Some(end)) > rank(second) {
            self.ends[1] = Some(end);
        }
    }

    /// Granules with a free beginning other than that whose end comes first.
    fn beginnings_beside(&self, head: Option<Part>) -> impl DoubleEndedIterator<Item = &Part> {
        self.beginnings.iter().filter(move |(_, shown)| head.is_none_or(|(_, first)| first != *shown))
    }

    /// The largest of them in bytes.
    fn largest_beginning(&self, head: Option<Part>) -> u64 {
        self.beginnings_beside(head).next_back().map_or(0, |(bytes, _)| *bytes)
    }

    /// A view that begins with `head`: then whole granules follow, last the smallest beginning that does.
    fn plan(&self, head: Option<Part>, size: u64, granule: u64) -> Plan {
        let mut plan = Plan { granules: Vec::new(), skip: 0, missing: 0 };
        let mut left = size;
        if let Some((end, shown)) = head {
            plan.skip = shown.bytes - end;
            plan.granules.push(shown);
            left -= end;
        }
        let largest = self.largest_beginning(head);
        let mut whole = self.whole.iter().flat_map(Whole::shown);
        while left > largest {
            let Some(shown) = whole.next() else {
                // Whole granules are taken, and the largest beginning does for the rest.
                plan.missing = (left - largest).next_multiple_of(granule);
                return plan;
            };
            plan.granules.push(shown);
            left -= shown.bytes.min(left);
        }
        let last = self.beginnings_beside(head).find(|(bytes, _)| left > 0 && *bytes >= left);
        plan.granules.extend(last.map(|(_, shown)| *shown));
        plan
    }

    /// The most bytes that lie side by side in a view of all that.
    fn most(&self) -> u64 {
        let both = |head: Option<Part>| head.map_or(0, |(end, _)| end) + self.largest_beginning(head);
        let whole: u64 = self.whole.iter().map(Whole::bytes).sum();
        whole + [None, self.ends[0], self.ends[1]].map(both).into_iter().max().unwrap_or(0)
    }
}

/// What is free of the granules, where free ends of `least` bytes are worth a mapping of their own, and such that hold
/// `size` are not asked for.
fn pieces<G: Ground<Memory>>(ground: &G, size: u64, least: u64) -> Pieces<'_> {
    let mut pieces = Pieces::default();
    for (segment, borders) in ground.memory().borders().iter() {
        for id in borders.free_blocks().counted() {
            let block = &ground.layout().blocks()[id];
            let Parts { end, whole, beginning } = borders.parts(block);
            if !whole.is_empty() {
                pieces.whole.push(Whole { block: block.size, segment, borders, granules: whole });
            }
            // What is backed in parts has no memory that could be mapped as a whole.
            let end = end.filter(|(number, _)| borders.may_show(*number));
            let beginning = beginning.filter(|(number, _)| borders.may_show(*number));
            if let Some((number, bytes)) = end
                && (size.min(least)..size).contains(&bytes)
            {
                pieces.add_end((bytes, shown(segment, borders, number)));
            }
            pieces
                .beginnings
                .extend(beginning.map(|(number, bytes)| (bytes, shown(segment, borders, number))));
        }
    }
    pieces.whole.sort_unstable_by_key(|whole| (whole.block, whole.addr()));
    pieces.beginnings.sort_unstable_by_key(|(bytes, shown)| (*bytes, shown.addr));
    pieces
}

/// What a view for `size` bytes would show: first the granule with the largest free end, if that has `least` bytes, then
/// whole free ones, last the smallest free beginning that does. `granule` is the size of granules to come.
pub(crate) fn plan_view(ground: &impl Ground<Memory>, size: u64, granule: u64, least: u64) -> Plan {
    let pieces = pieces(ground, size, least);
    let plan = pieces.plan(pieces.ends[0], size, granule);
    if plan.missing == 0 {
        return plan;
    }
    // The largest end and the largest beginning may be one granule's, which comes once.
    let other = pieces.plan(pieces.ends[1], size, granule);
    if other.missing < plan.missing { other } else { plan }
}

/// The most bytes that a view could show in one piece.
pub(crate) fn most_shown(ground: &impl Ground<Memory>) -> u64 {
    pieces(ground, u64::MAX, 1).most()
}
