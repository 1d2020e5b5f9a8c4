//! Categories: what the viewer colours allocations by, and what it sums them up by.

mod ranked;

use crate::bytes::Bytes;
use granule_analysis::Run;
use granule_analysis::inspect::Caller;
use granule_analysis::run::{Allocation, NEVER};
use serde::Serialize;

/// How many ways of putting allocations into categories there are.
pub(crate) const WAYS: usize = 6;

/// The ways, with the categories of each. Category 0 is drawn at the bottom.
#[derive(Debug)]
pub(crate) struct Classes {
    pub(crate) ways: [Way; WAYS],
    /// Category by call site, stream, pool and label, in the order of [`Tabled::ALL`].
    tables: [Vec<u8>; 4],
}

/// One way of putting allocations into categories.
#[derive(Debug, Serialize)]
pub(crate) struct Way {
    pub(crate) id: &'static str,
    /// What it is called in the viewer.
    pub(crate) title: &'static str,
    /// Names of its categories.
    pub(crate) names: Vec<String>,
    /// Whether the categories have an order, as sizes have: their colours then go from dark to bright.
    ordered: bool,
    /// Where categories are ranges: the first value of each but the first.
    bounds: Vec<u64>,
    /// Whether the last category is the rest of too many.
    pub(crate) rest: bool,
}

/// What an allocation has a number of.
#[derive(Clone, Copy, Debug)]
enum Tabled {
    Site,
    Stream,
    Pool,
    Label,
}

impl Tabled {
    const ALL: [Self; 4] = [Self::Site, Self::Stream, Self::Pool, Self::Label];

    fn of(self, life: &Allocation) -> u32 {
        match self {
            Self::Site => life.site,
            Self::Stream => life.stream,
            Self::Pool => life.pool,
            Self::Label => life.label,
        }
    }
}

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

/// Where size categories begin: 1 MiB and 10 MiB are where PyTorch's pools change.
const SIZES: [(u64, &str); 8] = [
    (0, "below 4 KiB"),
    (4 * KIB, "4 to 64 KiB"),
    (64 * KIB, "64 KiB to 1 MiB"),
    (MIB, "1 to 10 MiB"),
    (10 * MIB, "10 to 64 MiB"),
    (64 * MIB, "64 to 256 MiB"),
    (256 * MIB, "256 MiB to 1 GiB"),
    (GIB, "1 GiB and more"),
];

/// Where categories of life length begin, in entries.
const LIVES: [(u64, &str); 7] = [
    (0, "below 16 entries"),
    (16, "16 to 255"),
    (256, "256 to 4,095"),
    (4096, "4,096 to 65,535"),
    (65_536, "65,536 to 1,048,575"),
    (1 << 20, "1,048,576 and more"),
    // A life that ends is shorter than this.
    (u64::MAX, "to the end"),
];

impl Classes {
    pub(crate) fn of(run: &Run) -> Self {
        let shares = ranked::Shares::of(run);
        let site = shares.rank(run.sites.len(), Tabled::Site, |index| {
            Some(Caller::of_stack(run.sites.get(index)).place.short()).filter(|name| !name.is_empty())
        });
        let stream =
            shares.rank(run.streams.len(), Tabled::Stream, |index| match run.streams[index as usize] {
                0 => Some("default stream".to_owned()),
                handle => Some(format!("stream {handle:#x}")),
            });
        let pool = shares.rank(run.pools.len(), Tabled::Pool, |index| match run.pools[index as usize] {
            pool if pool == alloc_core::types::PoolId::DEFAULT => Some("default pool".to_owned()),
            pool => Some(format!("pool ({}, {})", pool.0, pool.1)),
        });
        let label = shares.rank(run.labels.len(), Tabled::Label, |index| {
            Some(run.labels[index as usize].to_string()).filter(|text| !text.is_empty())
        });
        let ways = [
            site.way("site", "Call site", "no stack recorded"),
            ranges("size", "Size", &SIZES),
            stream.way("stream", "Stream", "unknown stream"),
            pool.way("pool", "Pool", "unknown pool"),
            label.way("label", "Label", "no label"),
            ranges("life", "Age", &LIVES),
        ];
        let tables = [site.classes, stream.classes, pool.classes, label.classes];
        Self { ways, tables }
    }

    /// Categories of all ways together.
    pub(crate) fn total(&self) -> usize {
        self.ways.iter().map(|way| way.names.len()).sum()
    }

    /// The allocation's category in each way, numbered over all ways.
    pub(crate) fn places(&self, life: &Allocation) -> [usize; WAYS] {
        let [site, stream, pool, label] = [0, 1, 2, 3].map(|table| {
            let index = Tabled::ALL[table].of(life) as usize;
            self.tables[table].get(index).map_or(0, |class| usize::from(*class))
        });
        let classes = [site, range(&SIZES, life.size), stream, pool, label, range(&LIVES, lifetime(life))];
        let mut before = 0;
        let mut places = [0; WAYS];
        for ((place, class), way) in places.iter_mut().zip(classes).zip(&self.ways) {
            *place = before + class;
            before += way.names.len();
        }
        places
    }

    /// Adds the tables of numbers: the viewer needs them for every allocation it draws.
    pub(crate) fn write(&self, bytes: &mut Bytes) {
        for table in &self.tables {
            bytes.number(table.len() as u64);
            bytes.column(table.iter().map(|class| u64::from(*class)));
        }
    }
}

fn lifetime(life: &Allocation) -> u64 {
    match life.end {
        NEVER => u64::MAX,
        end => u64::from(end.saturating_sub(life.begin)),
    }
}

fn range(bounds: &[(u64, &str)], value: u64) -> usize {
    bounds.partition_point(|(from, _)| *from <= value).saturating_sub(1)
}

fn ranges(id: &'static str, title: &'static str, bounds: &[(u64, &str)]) -> Way {
    Way {
        id,
        title,
        names: bounds.iter().map(|(_, name)| (*name).to_owned()).collect(),
        ordered: true,
        bounds: bounds.iter().skip(1).map(|(from, _)| *from).collect(),
        rest: false,
    }
}
