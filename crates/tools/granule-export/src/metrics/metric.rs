//! What a metric is.

use crate::metrics::reading::{DeviceReading, HostReading, PoolReading, Reading};
use alloc_core::budget::TenantStats;
use alloc_core::host::HostStats;
use alloc_core::pool::PoolStats;
use alloc_core::stats::{DeviceStats, Figure, Unit};
use alloc_core::types::PoolId;
use std::borrow::Cow;

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

/// How figures are read.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Read {
    /// One of a device.
    One(fn(&DeviceReading) -> Option<Value>),
    /// A part of a figure of a device.
    Device(&'static Figure<DeviceStats>, Option<&'static str>),
    /// A part of what each pool holds.
    Reserved(Option<&'static str>),
    /// One for each pool.
    Pools(fn(&PoolStats) -> u64),
    /// One for each tenant.
    Tenants(fn(&TenantStats) -> Option<u64>),
    /// A part of a figure of host memory.
    Host(&'static Figure<HostStats>, Option<&'static str>),
    /// One of host memory.
    HostOne(fn(&HostStats) -> i64),
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
            Read::Device(figure, part) => {
                let values = figure.values(&reading.stats).into_iter().filter(|value| value.part == part);
                values
                    .map(|value| sample(value.pool.map(pool_label).as_slice(), self.value(value.value)))
                    .collect()
            }
            Read::Reserved(part) => {
                let of = |pool: &PoolReading| {
                    let id = id_label(pool.id);
                    let values = pool.reserved_bytes.values().into_iter().filter(|value| value.part == part);
                    let labels = |tier: Option<&'static str>| [Some(id.clone()), tier.map(pool_label)];
                    values
                        .map(|value| {
                            let labels: Vec<Label> = labels(value.pool).into_iter().flatten().collect();
                            sample(&labels, self.value(value.value))
                        })
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
            Read::Host(..) | Read::HostOne(_) => Vec::new(),
        }
    }

    fn of_host(&self, reading: &HostReading) -> Option<Sample> {
        let value = match self.read {
            Read::HostOne(read) => self.value(read(&reading.stats)),
            Read::Host(figure, part) => {
                let mut values = figure.values(&reading.stats).into_iter();
                self.value(values.find(|value| value.part == part)?.value)
            }
            _ => return None,
        };
        Some(Sample { labels: vec![("kind", reading.kind.name().into())], value })
    }

    /// Statistics count durations in microseconds.
    fn value(&self, value: i64) -> Value {
        #[allow(clippy::cast_precision_loss)]
        match self.unit {
            Unit::Seconds => Value::Float(value as f64 / 1e6),
            _ => Value::Int(value),
        }
    }
}

fn pool_label(tier: &'static str) -> Label {
    ("pool", tier.into())
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
