//! What figures are made of.

use granule::stats::{DurationStat, Stat, StatArray};

/// One quantity over time.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct granule_stat {
    /// Now.
    pub current: i64,
    /// The most since the peaks were reset.
    pub peak: i64,
    /// All increases since the accumulated figures were reset.
    pub allocated: i64,
    /// All decreases since then.
    pub freed: i64,
}

/// A quantity in total and by tier.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct granule_stat_array {
    /// Both tiers.
    pub all: granule_stat,
    /// Requests of up to 1 MiB.
    pub small_pool: granule_stat,
    /// Larger ones.
    pub large_pool: granule_stat,
}

/// How long calls took, in microseconds.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct granule_duration_stat {
    /// All of them together.
    pub total: i64,
    /// The longest since the peaks were reset.
    pub max: i64,
    /// The shortest since then; 0 where there was none.
    pub min: i64,
    /// Calls.
    pub count: i64,
}

impl From<Stat> for granule_stat {
    fn from(Stat { current, peak, allocated, freed }: Stat) -> Self {
        Self { current, peak, allocated, freed }
    }
}

impl From<StatArray> for granule_stat_array {
    fn from(StatArray { all, small_pool, large_pool }: StatArray) -> Self {
        Self { all: all.into(), small_pool: small_pool.into(), large_pool: large_pool.into() }
    }
}

impl From<DurationStat> for granule_duration_stat {
    fn from(DurationStat { total, max, min, count }: DurationStat) -> Self {
        Self { total, max, min, count }
    }
}
