//! What a metric is.

use crate::reading::{DeviceReading, HostReading, PoolReading, Reading};
use alloc_core::budget::TenantStats;
use alloc_core::host::{DurationStat, HostStats};
use alloc_core::pool::PoolStats;
use alloc_core::stats::{DeviceStats, Stat, StatArray};
use alloc_core::types::PoolId;
use std::borrow::Cow;

/// What a metric's values are counted in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Bytes.
    Bytes,
    /// Things; the name says which.
    Count,
    /// Parts of one.
    Ratio,
    /// Seconds.
    Seconds,
}

/// Whether a metric's values may go down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A level.
    Gauge,
    /// A sum of what has happened. It begins anew where the program resets accumulated statistics.
    Counter,
}

/// One figure.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value {
    /// Bytes and counts.
    Int(i64),
    /// Ratios and seconds.
    Float(f64),
}

/// A label's name and value.
pub type Label = (&'static str, Cow<'static, str>);

/// One figure, and whose it is.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    /// `device` (not for host memory) and `kind`, and what tells it from the metric's other samples.
    pub labels: Vec<Label>,
    /// The figure.
    pub value: Value,
}

/// Part of a [`Stat`].
#[derive(Clone, Copy, Debug)]
pub(crate) enum Part {
    Current,
    Peak,
    Increase,
    Decrease,
}

impl Part {
    pub(crate) const ALL: [Self; 4] = [Self::Current, Self::Peak, Self::Increase, Self::Decrease];

    pub(crate) fn of(self, stat: &Stat) -> i64 {
        match self {
            Self::Current => stat.current,
            Self::Peak => stat.peak,
            Self::Increase => stat.allocated,
            Self::Decrease => stat.freed,
        }
    }
}

/// Part of a [`DurationStat`].
#[derive(Clone, Copy, Debug)]
pub(crate) enum TimePart {
    Total,
    Max,
    Min,
    Mean,
    Count,
}

impl TimePart {
    pub(crate) const ALL: [Self; 5] = [Self::Total, Self::Max, Self::Min, Self::Mean, Self::Count];

    pub(crate) fn of(self, time: &DurationStat) -> Value {
        match self {
            Self::Total => seconds(time.total),
            Self::Max => seconds(time.max),
            Self::Min => seconds(time.min),
            Self::Mean => seconds(time.avg()),
            Self::Count => Value::Int(time.count),
        }
    }
}

fn seconds(micros: i64) -> Value {
    #[allow(clippy::cast_precision_loss)]
    Value::Float(micros as f64 / 1e6)
}

/// How figures are read.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Read {
    /// One of a device.
    One(fn(&DeviceReading) -> Option<Value>),
    /// One of a device, over time.
    Stat(fn(&DeviceStats) -> Stat, Part),
    /// One for each of PyTorch's pools.
    Tiers(fn(&DeviceStats) -> &StatArray, Part),
    /// One for each pool, and in it for each of PyTorch's.
    PoolTiers(Part),
    /// One for each pool.
    Pools(fn(&PoolStats) -> u64),
    /// One for each tenant.
    Tenants(fn(&TenantStats) -> Option<u64>),
    /// One of host memory.
    Host(fn(&HostStats) -> i64),
    /// One of host memory, over time.
    HostStat(fn(&HostStats) -> Stat, Part),
    /// How long something took.
    HostTime(fn(&HostStats) -> DurationStat, TimePart),
}

/// A metric: what it is called, what it means, and how it is read.
#[derive(Clone, Debug)]
pub struct Metric {
    /// Without a prefix, a unit, or what marks a sum: `reserved_peak`.
    pub name: String,
    /// The unit.
    pub unit: Unit,
    /// Level or sum.
    pub kind: Kind,
    /// One sentence about it.
    pub help: String,
    /// The key of the same figure in PyTorch's `memory_stats()` or `host_memory_stats()`, with the names of labels in
    /// braces; empty where PyTorch has none.
    pub statistic: String,
    pub(crate) read: Read,
}

impl Metric {
    /// All figures of a reading.
    #[must_use]
    pub fn samples(&self, reading: &Reading) -> Vec<Sample> {
        let devices = reading.devices.iter().flat_map(|device| self.of_device(device));
        devices.chain(reading.hosts.iter().filter_map(|host| self.of_host(host))).collect()
    }

    fn of_device(&self, reading: &DeviceReading) -> Vec<Sample> {
        let sample = |own: &[Label], value: Value| {
            let device = ("device", reading.device.0.to_string().into());
            let mut labels = vec![device, ("kind", reading.kind.name().into())];
            labels.extend_from_slice(own);
            Sample { labels, value }
        };
        match self.read {
            Read::One(read) => read(reading).map(|value| sample(&[], value)).into_iter().collect(),
            Read::Stat(read, part) => vec![sample(&[], Value::Int(part.of(&read(&reading.stats))))],
            Read::Tiers(read, part) => tiers(read(&reading.stats))
                .map(|(tier, stat)| sample(&[tier], Value::Int(part.of(stat))))
                .collect(),
            Read::PoolTiers(part) => {
                let of = |pool: &PoolReading| {
                    let id = id_label(pool.id);
                    tiers(&pool.reserved_bytes)
                        .map(|(tier, stat)| sample(&[id.clone(), tier], Value::Int(part.of(stat))))
                        .collect::<Vec<_>>()
                };
                reading.pools.iter().flat_map(of).collect()
            }
            Read::Pools(read) => {
                let there = reading.pools.iter().filter_map(|pool| Some((pool.id, pool.stats.as_ref()?)));
                there.map(|(id, stats)| sample(&[id_label(id)], read(stats).into())).collect()
            }
            Read::Tenants(read) => {
                let of = |tenant: &TenantStats| {
                    let name = ("tenant", tenant.name.to_string().into());
                    Some(sample(&[name], read(tenant)?.into()))
                };
                reading.tenants.iter().filter_map(of).collect()
            }
            Read::Host(_) | Read::HostStat(..) | Read::HostTime(..) => Vec::new(),
        }
    }

    fn of_host(&self, reading: &HostReading) -> Option<Sample> {
        let value = match self.read {
            Read::Host(read) => Value::Int(read(&reading.stats)),
            Read::HostStat(read, part) => Value::Int(part.of(&read(&reading.stats))),
            Read::HostTime(read, part) => part.of(&read(&reading.stats)),
            Read::One(_)
            | Read::Stat(..)
            | Read::Tiers(..)
            | Read::PoolTiers(_)
            | Read::Pools(_)
            | Read::Tenants(_) => return None,
        };
        Some(Sample { labels: vec![("kind", reading.kind.name().into())], value })
    }
}

fn tiers(array: &StatArray) -> impl Iterator<Item = (Label, &Stat)> {
    [("all", &array.all), ("small_pool", &array.small_pool), ("large_pool", &array.large_pool)]
        .into_iter()
        .map(|(tier, stat)| (("pool", tier.into()), stat))
}

/// As in PyTorch's keys.
fn id_label(id: PoolId) -> Label {
    ("id", format!("{}_{}", id.0, id.1).into())
}

impl From<u64> for Value {
    fn from(value: u64) -> Self {
        Self::Int(i64::try_from(value).unwrap_or(i64::MAX))
    }
}
