//! Level of detail: the run in bins, coarser and coarser.
//!
//! A bin of 2^k moments tells the most and the least that was live in it, the first moment at which that most was live, and
//! what each category held at that moment. So a chart drawn from bins shows every peak at its true height, whatever the zoom,
//! and its categories add up to it: a column of the chart is the state at one real moment, and no average of many.
//!
//! Runs that are short enough to be drawn from their allocations alone have no levels.

mod sweep;
mod visible;

use crate::bytes::Bytes;
use crate::classes::Classes;
use crate::lives::{self, Addresses};
use crate::section::Section;
use granule_analysis::Run;
use granule_analysis::run::{Allocation, Moment};
use std::io;

/// Bins in a section.
pub(crate) const TILE: usize = 2048;
/// Finest bins: below 2^this moments there is little to be saved over looking at the allocations themselves.
const FINEST: u32 = 6;
/// Finest bins that there may be, which bounds the memory that a long run takes.
const MOST_BINS: u64 = 1 << 19;

/// Some moments of the run, taken together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bin {
    /// First moment at which most was live.
    pub(crate) at: Moment,
    /// Requested bytes live then.
    pub(crate) most: u64,
    /// Fewest requested bytes live.
    pub(crate) least: u64,
    /// Most reserved bytes.
    pub(crate) reserved: u64,
    /// Which of the [`Rows`] is of `at`.
    row: u32,
}

/// Live bytes by category, at some moments.
#[derive(Debug, Default)]
pub(crate) struct Rows {
    bytes: Vec<u64>,
    /// Categories in a row.
    width: usize,
}

/// Bins of 2^shift moments.
#[derive(Debug)]
pub(crate) struct Level {
    pub(crate) shift: u32,
    pub(crate) bins: Vec<Bin>,
}

/// All levels, the finest first.
#[derive(Debug)]
pub(crate) struct Levels {
    pub(crate) levels: Vec<Level>,
    /// Live bytes by category, for each finest bin.
    rows: Rows,
    /// Allocations smaller than this are not told one by one.
    visible: u64,
}

/// Moments of a finest bin, as a power of two.
pub(crate) fn finest(run: &Run) -> u32 {
    (FINEST..31).find(|shift| moments(run).div_ceil(1 << shift) <= MOST_BINS).unwrap_or(31)
}

/// Moments in a window that is narrow enough to be drawn from its allocations.
pub(crate) fn narrow(run: &Run) -> u64 {
    (TILE as u64) << finest(run)
}

fn moments(run: &Run) -> u64 {
    u64::from(run.length) + 1
}

impl Levels {
    pub(crate) fn of(run: &Run, classes: &Classes) -> Self {
        let mut levels = Self { levels: Vec::new(), rows: Rows::default(), visible: 0 };
        if moments(run) <= narrow(run) {
            return levels;
        }
        levels.fill(run, classes, finest(run));
        levels
    }

    fn fill(&mut self, run: &Run, classes: &Classes, shift: u32) {
        let count = (u64::from(run.length) >> shift) as u32 + 1;
        let ranges = (0..count).map(|bin| {
            let first: Moment = bin << shift;
            (first, first.saturating_add((1 << shift) - 1))
        });
        let mut bins = sweep::bins(run, ranges);
        self.rows = sweep::rows(run, &bins, classes.total(), |life| classes.places(life));
        // A pixel of a chart that is as high as a laptop's screen.
        self.visible = bins.iter().map(|bin| bin.most).max().unwrap_or(0) / 768;
        let mut shift = shift;
        while bins.len() > TILE {
            let coarser =
                bins.chunks(2).map(|pair| pair.iter().copied().reduce(Bin::with).unwrap_or(pair[0]));
            let coarser = coarser.collect();
            self.levels.push(Level { shift, bins });
            bins = coarser;
            shift += 1;
        }
        self.levels.push(Level { shift, bins });
    }
}

impl Rows {
    /// What each category held at the bin's moment.
    fn of(&self, bin: &Bin) -> &[u64] {
        let from = bin.row as usize * self.width;
        &self.bytes[from..from + self.width]
    }
}

impl Bin {
    /// Both together; `self` is the earlier.
    fn with(self, later: Self) -> Self {
        let high = if later.most > self.most { later } else { self };
        Self { least: self.least.min(later.least), reserved: self.reserved.max(later.reserved), ..high }
    }
}

/// The sections of a level, in order.
pub(crate) fn sections(
    levels: &Levels,
    level: &Level,
    run: &Run,
    addresses: Addresses,
) -> Vec<impl Fn() -> io::Result<Section>> {
    let visible = visible::by_tile(run, level, levels.visible);
    let tiles = level.bins.chunks(TILE).zip(visible).enumerate();
    let section = move |(index, (bins, visible)): (usize, (&[Bin], Vec<u32>))| {
        let bins = bins.to_vec();
        move || {
            let mut bytes = Bytes::default();
            write_bins(&mut bytes, &bins, &levels.rows);
            lives::allocations(&mut bytes, run, &visible, addresses);
            Section::new(format!("level-{}-{index}", level.shift), &bytes)
        }
    };
    tiles.map(section).collect()
}

/// The section of a run in bins of these moments, with what it held by category. `place` is an allocation's category.
pub(crate) fn section_of_ranges(
    id: String,
    run: &Run,
    ranges: impl Iterator<Item = (Moment, Moment)>,
    categories: usize,
    place: impl Fn(&Allocation) -> usize,
) -> io::Result<Section> {
    let bins = sweep::bins(run, ranges);
    let rows = sweep::rows(run, &bins, categories, |life| [place(life)]);
    let mut bytes = Bytes::default();
    write_bins(&mut bytes, &bins, &rows);
    Section::new(id, &bytes)
}

fn write_bins(bytes: &mut Bytes, bins: &[Bin], rows: &Rows) {
    bytes.number(bins.len() as u64);
    bytes.steps(bins.iter().map(|bin| u64::from(bin.at)));
    bytes.steps(bins.iter().map(|bin| bin.most));
    bytes.column(bins.iter().map(|bin| bin.most - bin.least));
    bytes.steps(bins.iter().map(|bin| bin.reserved));
    for class in 0..rows.width {
        bytes.steps(bins.iter().map(|bin| rows.of(bin)[class]));
    }
}
