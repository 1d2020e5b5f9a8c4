//! The table of all metrics: what follows from the rows of the statistics, and what is computed beyond them.

use crate::metrics::metric::{Kind, Metric, Read, Value};
use crate::metrics::reading::DeviceReading;
use alloc_core::budget::TenantStats;
use alloc_core::host::HostStats;
use alloc_core::ledger::DeviceLedger;
use alloc_core::pool::PoolStats;
use alloc_core::snapshot::HistoryStatus;
use alloc_core::stats::{self, DeviceStats, Figure, Unit};
use std::sync::LazyLock;

/// All metrics.
#[must_use]
pub fn metrics() -> &'static [Metric] {
    static METRICS: LazyLock<Vec<Metric>> = LazyLock::new(|| {
        let devices = DeviceStats::figures().iter().flat_map(|figure| of_figure(figure, Read::Device));
        let computed = SCALARS
            .iter()
            .map(|(name, kind, unit, help, read)| one(name, *kind, *unit, "", help, Read::One(*read)));
        let key = "reserved_bytes_by_private_pools.{id}.{pool}";
        let help = "Bytes held from the device, by pool";
        let reserved =
            OVER_TIME.iter().map(|part| part.of("pool_reserved", Unit::Bytes, key, help, Read::Reserved));
        let pools = POOLS
            .iter()
            .map(|(name, unit, help, read)| one(name, Kind::Gauge, *unit, "", help, Read::Pools(*read)));
        let tenants = TENANTS
            .iter()
            .map(|(name, kind, unit, help, read)| one(name, *kind, *unit, "", help, Read::Tenants(*read)));
        let hosts = |wanted: fn(&stats::Read<HostStats>) -> bool| {
            let figures = HostStats::figures().iter().filter(move |figure| wanted(&figure.read));
            figures.flat_map(|figure| of_figure(figure, Read::Host))
        };
        let counts = HOST_COUNTS.iter().map(|(name, key, help, read)| {
            one(name, Kind::Counter, Unit::Count, key, help, Read::HostOne(*read))
        });
        let devices = devices.chain(computed).chain(reserved).chain(pools).chain(tenants);
        let devices = devices.chain(hosts(|read| matches!(read, stats::Read::Stat(_))));
        let devices = devices.chain(hosts(|read| matches!(read, stats::Read::Time(_)))).chain(counts);
        devices.chain(hosts(|read| matches!(read, stats::Read::Counter(_) | stats::Read::Gauge(_)))).collect()
    });
    &METRICS
}

fn one(name: &str, kind: Kind, unit: Unit, key: &str, help: &str, read: Read) -> Metric {
    Metric { name: name.into(), unit, kind, help: format!("{help}."), statistic: key.into(), read }
}

/// Which of a figure's values a metric is.
struct Part {
    /// Its name among them.
    key: Option<&'static str>,
    /// What the metric's name has after the figure's.
    suffix: &'static str,
    kind: Kind,
    /// How many, whatever the figure counts.
    is_count: bool,
    /// What it says beyond the figure's help.
    help: &'static str,
}

const fn part(key: &'static str, suffix: &'static str, kind: Kind, help: &'static str) -> Part {
    Part { key: Some(key), suffix, kind, is_count: false, help }
}

const COUNTER: [Part; 1] = [Part { key: None, ..part("", "", Kind::Counter, "") }];
const GAUGE: [Part; 1] = [Part { key: None, ..part("", "", Kind::Gauge, "") }];
const OVER_TIME: [Part; 4] = [
    part("current", "", Kind::Gauge, ": now"),
    part("peak", "_peak", Kind::Gauge, ": the most since peaks were reset"),
    part("allocated", "_increase", Kind::Counter, ": all increases"),
    part("freed", "_decrease", Kind::Counter, ": all decreases"),
];
const TIMES: [Part; 5] = [
    part("total", "", Kind::Counter, ": all together"),
    part("max", "_max", Kind::Gauge, ": the longest since peaks were reset"),
    part("min", "_min", Kind::Gauge, ": the shortest since peaks were reset"),
    part("avg", "_mean", Kind::Gauge, ": the mean"),
    Part { is_count: true, ..part("count", "_calls", Kind::Counter, ": how many") },
];

impl Part {
    fn of(
        &self,
        name: &str,
        unit: Unit,
        key: &str,
        help: &str,
        read: impl FnOnce(Option<&'static str>) -> Read,
    ) -> Metric {
        let unit = if self.is_count { Unit::Count } else { unit };
        let key = match self.key {
            Some(part) if !key.is_empty() => format!("{key}.{part}"),
            _ => key.to_owned(),
        };
        let (name, help) = (format!("{name}{}", self.suffix), format!("{help}{}", self.help));
        one(&name, self.kind, unit, &key, &help, read(self.key))
    }
}

/// The metrics of a figure, one for each of its values.
fn of_figure<S>(
    figure: &'static Figure<S>,
    read: fn(&'static Figure<S>, Option<&'static str>) -> Read,
) -> Vec<Metric> {
    let parts: &[Part] = match figure.read {
        stats::Read::Counter(_) => &COUNTER,
        stats::Read::Gauge(_) => &GAUGE,
        stats::Read::Stat(_) | stats::Read::Array(_) => &OVER_TIME,
        stats::Read::Time(_) => &TIMES,
    };
    let key = match figure.read {
        _ if figure.is_own => String::new(),
        stats::Read::Array(_) => format!("{}.{{pool}}", figure.name),
        _ => figure.name.to_owned(),
    };
    let metric =
        |part: &Part| part.of(figure.metric, figure.unit, &key, figure.help(), |part| read(figure, part));
    parts.iter().map(metric).collect()
}

/// What is computed, or is no statistic.
type Scalar = (&'static str, Kind, Unit, &'static str, fn(&DeviceReading) -> Option<Value>);

#[rustfmt::skip]
const SCALARS: &[Scalar] = {
    use Kind::{Counter, Gauge};
    use Unit::{Bytes, Count, Ratio};
    &[
        ("cached", Gauge, Bytes, "Bytes that are free and backed by memory", |r| Some(cached(r).into())),
        ("largest_free_block", Gauge, Bytes, "The largest free block that is cached", |r| Some(r.largest_free_block.into())),
        ("efficiency", Gauge, Ratio, "Memory efficiency E: peak requested over peak reserved bytes; 1 when nothing was reserved", |r| Some(Value::Float(r.stats.efficiency()))),
        ("fragmentation", Gauge, Ratio, "The part of the cached bytes that is outside the largest free block; 0 when nothing is cached", |r| Some(Value::Float(fragmentation(r)))),
        ("history_complete", Gauge, Count, "1 while the history has every operation", |r| history(r, |h| h.complete.into())),
        ("history_overwritten_entries", Counter, Count, "History entries overwritten because the ring was full", |r| history(r, |h| h.overwritten)),
        ("history_unseen_operations", Counter, Count, "Operations before the history was switched on", |r| history(r, |h| h.before_recording)),
        ("device_used", Gauge, Bytes, "With publish:True: bytes of the device that are taken, by whomever", |r| ledger(r, |l| l.used)),
        ("device_pinned", Gauge, Bytes, "With publish:True: bytes of host memory that this process has pinned, where that is the device's memory", |r| ledger(r, |l| l.pinned)),
        ("device_graphs", Gauge, Bytes, "With publish:True: bytes that graphs took beyond their pools, when they were launched first", |r| ledger(r, |l| l.graphs)),
        ("device_process_other", Gauge, Bytes, "With publish:True: bytes that this process has beyond the allocator's, as far as they are known", |r| ledger(r, |l| l.process_other)),
        ("device_other_processes", Gauge, Bytes, "With publish:True: bytes that other processes have, as far as they are known", |r| ledger(r, DeviceLedger::others)),
        ("device_unaccounted", Gauge, Bytes, "With publish:True: bytes that are taken by nobody who is known", |r| ledger(r, |l| l.unaccounted)),
    ]
};

type OfPool = (&'static str, Unit, &'static str, fn(&PoolStats) -> u64);

#[rustfmt::skip]
const POOLS: [OfPool; 7] = [
    ("pool_references", Unit::Count, "References to a pool", |s| s.use_count.into()),
    ("pool_allocations", Unit::Count, "Blocks of a pool in the program's hands", |s| s.allocation),
    ("pool_allocated", Unit::Bytes, "Bytes of a pool in the program's hands, rounded", |s| s.allocated_bytes),
    ("pool_active", Unit::Bytes, "Bytes of a pool handed out or pending, rounded", |s| s.active_bytes),
    ("pool_requested", Unit::Bytes, "Bytes of a pool handed out or pending, as requested", |s| s.requested_bytes),
    ("pool_free", Unit::Bytes, "Bytes that a pool has cached", |s| s.free_bytes),
    ("pool_segments", Unit::Count, "Segments of a pool, fixed ones and growable ones that have memory", |s| s.segments),
];

type OfTenant = (&'static str, Kind, Unit, &'static str, fn(&TenantStats) -> Option<u64>);

#[rustfmt::skip]
const TENANTS: &[OfTenant] = {
    use Kind::{Counter, Gauge};
    use Unit::{Bytes, Count};
    &[
        ("tenant_held", Gauge, Bytes, "Bytes that a tenant holds from the device", |s| Some(s.held)),
        ("tenant_held_peak", Gauge, Bytes, "Bytes that a tenant holds from the device: the most since peaks were reset", |s| Some(s.peak)),
        ("tenant_pools", Gauge, Count, "Pools of a tenant", |s| u64::try_from(s.pools.len()).ok()),
        ("tenant_guarantee", Gauge, Bytes, "Bytes that a tenant can always have", |s| Some(s.marks.guarantee)),
        ("tenant_soft_limit", Gauge, Bytes, "A tenant's soft limit, if it has one", |s| s.marks.soft),
        ("tenant_hard_limit", Gauge, Bytes, "A tenant's hard limit, if it has one", |s| s.marks.hard),
        ("tenant_refusals", Counter, Count, "Requests of a tenant that ended in an out-of-memory error", |s| Some(s.refusals)),
        ("tenant_soft_crossings", Counter, Count, "How often a tenant crossed its soft limit upwards", |s| Some(s.soft_crossings)),
        ("tenant_spills", Counter, Count, "How often a spill hook made room for a tenant's request", |s| Some(s.spills)),
        ("tenant_spilled", Counter, Bytes, "Bytes that spill hooks said they had freed for a tenant", |s| Some(s.spilled_bytes)),
    ]
};

type HostCount = (&'static str, &'static str, &'static str, fn(&HostStats) -> i64);

/// PyTorch's counts that are part of other figures here.
#[rustfmt::skip]
const HOST_COUNTS: [HostCount; 2] = [
    ("host_device_allocs", "num_host_alloc", "Pinned blocks taken from the driver", HostStats::num_host_alloc),
    ("host_device_frees", "num_host_free", "Pinned blocks given back to the driver", HostStats::num_host_free),
];

fn history(reading: &DeviceReading, of: impl Fn(&HistoryStatus) -> u64) -> Option<Value> {
    reading.history.as_ref().map(|history| of(history).into())
}

fn ledger(reading: &DeviceReading, of: impl Fn(&DeviceLedger) -> u64) -> Option<Value> {
    reading.ledger.as_ref().map(|ledger| of(ledger).into())
}

fn cached(reading: &DeviceReading) -> u64 {
    reading.pools.iter().filter_map(|pool| pool.stats.as_ref()).map(|stats| stats.free_bytes).sum()
}

fn fragmentation(reading: &DeviceReading) -> f64 {
    // The two were read one after the other.
    let cached = cached(reading).max(reading.largest_free_block);
    if cached == 0 {
        return 0.0;
    }
    #[allow(clippy::cast_precision_loss)]
    let outside = 1.0 - reading.largest_free_block as f64 / cached as f64;
    outside
}
