//! Which features a history had in use, and which of them met.

use std::cell::Cell;
use std::collections::BTreeMap;

macro_rules! features {
    ($($variant:ident $name:literal,)*) => {
        /// Something that a history can have in use.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u8)]
        pub enum Feature {
            $(#[doc = $name] $variant,)*
        }

        impl Feature {
            /// All of them.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// Its name in tables.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }
        }
    };
}

features! {
    Granule "granule policy",
    Pytorch "pytorch policy",
    Growable "growable",
    Views "views",
    Pools "pools",
    Captures "captures",
    Replays "replays",
    Checkpoints "checkpoints",
    RecordStream "record_stream",
    StreamEnds "streams end",
    Sleep "sleep",
    Backup "backup",
    Sharing "sharing",
    Peers "peers",
    Budgets "budgets",
    Spill "spill",
    Limits "limits",
    Refusals "refusals",
    History "history",
    Contexts "contexts",
    Snapshots "snapshots",
    Host "pinned memory",
    HostCopies "pinned copies",
    Uncached "caching off",
    Faults "faults",
    Delays "delays",
    ExactPlace "exact place",
    Fabric "fabric handles",
    Forks "forks",
}

/// Those that were in use.
#[derive(Debug, Default)]
pub struct Met(Cell<u64>);

impl Met {
    /// It is in use.
    pub fn note(&self, feature: Feature) {
        self.0.set(self.0.get() | 1 << feature as u8);
    }

    /// One bit for each.
    #[must_use]
    pub fn bits(&self) -> u64 {
        self.0.get()
    }
}

/// In how many histories each pair met.
#[derive(Clone, Debug, Default)]
pub struct Pairs(BTreeMap<(u8, u8), u64>);

impl Pairs {
    /// One more history.
    pub fn add(&mut self, met: u64) {
        let has = |n: &u8| met >> n & 1 == 1;
        let all = || 0..Feature::ALL.len() as u8;
        for one in all().filter(has) {
            for other in all().filter(has).filter(|other| *other > one) {
                *self.0.entry((one, other)).or_default() += 1;
            }
        }
    }

    /// Every pair of names, with how often it met.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, &'static str, u64)> + '_ {
        let all = || 0..Feature::ALL.len() as u8;
        let name = |n: u8| Feature::ALL[usize::from(n)].name();
        let pairs =
            all().flat_map(move |one| all().filter(move |other| *other > one).map(move |other| (one, other)));
        pairs.map(move |pair| (name(pair.0), name(pair.1), self.0.get(&pair).copied().unwrap_or(0)))
    }
}
