//! The table of all metrics. Whoever adds a figure to the statistics adds a line here.

use crate::metric::{Kind, Metric, Part, Read, TimePart, Unit, Value};
use crate::reading::DeviceReading;
use alloc_core::budget::TenantStats;
use alloc_core::hardened::HardenedStats;
use alloc_core::host::{DurationStat, HostStats};
use alloc_core::pool::PoolStats;
use alloc_core::snapshot::HistoryStatus;
use alloc_core::stats::{DeviceStats, Stat, StatArray};
use std::sync::LazyLock;

/// All metrics.
#[must_use]
pub fn metrics() -> &'static [Metric] {
    static METRICS: LazyLock<Vec<Metric>> = LazyLock::new(|| {
        let arrays = ARRAYS.iter().flat_map(|(name, unit, key, help, read)| {
            four(name, *unit, &format!("{key}.{{pool}}"), help, |part| Read::Tiers(*read, part))
        });
        let stats = STATS.iter().flat_map(|(name, unit, key, help, read)| {
            four(name, *unit, key, help, |part| Read::Stat(*read, part))
        });
        let key = "reserved_bytes_by_private_pools.{id}.{pool}";
        let of_pools =
            four("pool_reserved", Unit::Bytes, key, "Bytes held from the device, by pool", Read::PoolTiers);
        let scalars = SCALARS
            .iter()
            .map(|(name, kind, unit, key, help, read)| one(name, *kind, *unit, key, help, Read::One(*read)));
        let pools = POOLS
            .iter()
            .map(|(name, unit, help, read)| one(name, Kind::Gauge, *unit, "", help, Read::Pools(*read)));
        let tenants = TENANTS
            .iter()
            .map(|(name, kind, unit, help, read)| one(name, *kind, *unit, "", help, Read::Tenants(*read)));
        let host_stats = HOST_STATS.iter().flat_map(|(name, unit, key, help, read)| {
            four(name, *unit, key, help, |part| Read::HostStat(*read, part))
        });
        let host_times = HOST_TIMES.iter().flat_map(|(name, key, help, read)| times(name, key, help, *read));
        let hosts = HOST
            .iter()
            .map(|(name, kind, unit, key, help, read)| one(name, *kind, *unit, key, help, Read::Host(*read)));
        let devices = arrays.chain(stats).chain(scalars).chain(of_pools).chain(pools).chain(tenants);
        devices.chain(host_stats).chain(host_times).chain(hosts).collect()
    });
    &METRICS
}

fn one(name: &str, kind: Kind, unit: Unit, key: &str, help: &str, read: Read) -> Metric {
    Metric { name: name.into(), unit, kind, help: format!("{help}."), statistic: key.into(), read }
}

/// Durations are five metrics.
fn times(name: &str, key: &str, help: &str, read: fn(&HostStats) -> DurationStat) -> [Metric; 5] {
    TimePart::ALL.map(|part| {
        let (suffix, key_suffix, kind, unit, what) = match part {
            TimePart::Total => ("", "total", Kind::Counter, Unit::Seconds, "all together"),
            TimePart::Max => {
                ("_max", "max", Kind::Gauge, Unit::Seconds, "the longest since peaks were reset")
            }
            TimePart::Min => {
                ("_min", "min", Kind::Gauge, Unit::Seconds, "the shortest since peaks were reset")
            }
            TimePart::Mean => ("_mean", "avg", Kind::Gauge, Unit::Seconds, "the mean"),
            TimePart::Count => ("_calls", "count", Kind::Counter, Unit::Count, "how many"),
        };
        let (name, key) = (format!("{name}{suffix}"), format!("{key}.{key_suffix}"));
        one(&name, kind, unit, &key, &format!("{help}: {what}"), Read::HostTime(read, part))
    })
}

/// A quantity over time is four metrics.
fn four(name: &str, unit: Unit, key: &str, help: &str, read: impl Fn(Part) -> Read) -> [Metric; 4] {
    Part::ALL.map(|part| {
        let (suffix, key_suffix, kind, what) = match part {
            Part::Current => ("", "current", Kind::Gauge, "now"),
            Part::Peak => ("_peak", "peak", Kind::Gauge, "the most since peaks were reset"),
            Part::Increase => ("_increase", "allocated", Kind::Counter, "all increases"),
            Part::Decrease => ("_decrease", "freed", Kind::Counter, "all decreases"),
        };
        let key = if key.is_empty() { String::new() } else { format!("{key}.{key_suffix}") };
        one(&format!("{name}{suffix}"), kind, unit, &key, &format!("{help}: {what}"), read(part))
    })
}

/// Name, unit, PyTorch's key, help, where.
type Array = (&'static str, Unit, &'static str, &'static str, fn(&DeviceStats) -> &StatArray);

#[rustfmt::skip]
const ARRAYS: [Array; 9] = [
    ("allocations", Unit::Count, "allocation", "Blocks in the program's hands", |s| &s.allocation),
    ("allocated", Unit::Bytes, "allocated_bytes", "Bytes in the program's hands, rounded", |s| &s.allocated_bytes),
    ("active_blocks", Unit::Count, "active", "Blocks handed out or pending", |s| &s.active),
    ("active", Unit::Bytes, "active_bytes", "Bytes handed out or pending, rounded", |s| &s.active_bytes),
    ("requested", Unit::Bytes, "requested_bytes", "Bytes handed out or pending, as requested", |s| &s.requested_bytes),
    ("segments", Unit::Count, "segment", "Fixed segments held", |s| &s.segment),
    ("reserved", Unit::Bytes, "reserved_bytes", "Bytes held from the device", |s| &s.reserved_bytes),
    ("inactive_split_blocks", Unit::Count, "inactive_split", "Free blocks of segments that are split", |s| &s.inactive_split),
    ("inactive_split", Unit::Bytes, "inactive_split_bytes", "Bytes of free blocks of segments that are split", |s| &s.inactive_split_bytes),
];

type Single = (&'static str, Unit, &'static str, &'static str, fn(&DeviceStats) -> Stat);

#[rustfmt::skip]
const STATS: [Single; 2] = [
    ("oversize_allocations", Unit::Count, "oversize_allocations", "Blocks of max_split_size and more handed out", |s| s.oversize_allocations),
    ("oversize_segments", Unit::Count, "oversize_segments", "Segments of max_split_size and more held", |s| s.oversize_segments),
];

type Scalar = (&'static str, Kind, Unit, &'static str, &'static str, fn(&DeviceReading) -> Option<Value>);

#[rustfmt::skip]
const SCALARS: &[Scalar] = {
    use Kind::{Counter, Gauge};
    use Unit::{Bytes, Count, Ratio};
    &[
        ("alloc_retries", Counter, Count, "num_alloc_retries", "Failed attempts after which the cache was flushed and the driver asked again", |r| int(r.stats.num_alloc_retries)),
        ("ooms", Counter, Count, "num_ooms", "Out-of-memory errors raised", |r| int(r.stats.num_ooms)),
        ("oom_rejections", Counter, Count, "num_oom_rejections", "Requests refused before the driver was asked", |r| int(r.stats.num_oom_rejections)),
        ("sync_all_streams", Counter, Count, "num_sync_all_streams", "Passes that waited for everything", |r| int(r.stats.num_sync_all_streams)),
        ("device_allocs", Counter, Count, "num_device_alloc", "Driver calls that took memory: segments and map steps", |r| int(r.stats.num_device_alloc)),
        ("device_frees", Counter, Count, "num_device_free", "Driver calls that gave memory back: segments and unmap steps", |r| int(r.stats.num_device_free)),
        ("max_split", Gauge, Bytes, "max_split_size", "The option max_split_size; -1 when unlimited", |r| int(r.stats.max_split_size)),
        ("pending", Gauge, Bytes, "", "Bytes given back that wait for other streams", |r| int(r.stats.granule.pending_bytes)),
        ("unrecorded_frees", Counter, Count, "", "Frees whose event could not be recorded", |r| int(r.stats.granule.unrecorded_frees)),
        ("granules_moved", Counter, Count, "", "Physical granules moved between places", |r| int(r.stats.granule.granules_moved)),
        ("asleep", Gauge, Bytes, "", "Bytes of blocks that have given their memory back and keep their addresses", |r| int(r.stats.granule.asleep_bytes)),
        ("cached", Gauge, Bytes, "", "Bytes that are free and backed by memory", |r| Some(cached(r).into())),
        ("largest_free_block", Gauge, Bytes, "", "The largest free block that is cached", |r| Some(r.largest_free_block.into())),
        ("efficiency", Gauge, Ratio, "", "Memory efficiency E: peak requested over peak reserved bytes; 1 when nothing was reserved", |r| Some(Value::Float(r.stats.efficiency()))),
        ("fragmentation", Gauge, Ratio, "", "The part of the cached bytes that is outside the largest free block; 0 when nothing is cached", |r| Some(Value::Float(fragmentation(r)))),
        ("history_complete", Gauge, Count, "", "1 while the history has every operation", |r| history(r, |h| h.complete.into())),
        ("history_overwritten_entries", Counter, Count, "", "History entries overwritten because the ring was full", |r| history(r, |h| h.overwritten)),
        ("history_unseen_operations", Counter, Count, "", "Operations before the history was switched on", |r| history(r, |h| h.before_recording)),
        ("quarantined_blocks", Gauge, Count, "", "Hardened mode: blocks in quarantine", |r| hardened(r, |h| h.quarantined)),
        ("quarantined", Gauge, Bytes, "", "Hardened mode: bytes in quarantine, rounded", |r| hardened(r, |h| h.quarantined_bytes)),
        ("quarantine_protected", Gauge, Bytes, "", "Hardened mode: bytes in quarantine that the device cannot access", |r| hardened(r, |h| h.protected_bytes)),
        ("hardened_checked_blocks", Counter, Count, "", "Hardened mode: blocks checked", |r| hardened(r, |h| h.checked)),
        ("hardened_unchecked_blocks", Counter, Count, "", "Hardened mode: freed blocks that were not checked, or not wholly", |r| hardened(r, |h| h.unchecked)),
        ("hardened_corruptions", Counter, Count, "", "Hardened mode: corruptions found", |r| hardened(r, |h| h.corruptions)),
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

type OfHost = (&'static str, Unit, &'static str, &'static str, fn(&HostStats) -> Stat);

#[rustfmt::skip]
const HOST_STATS: [OfHost; 6] = [
    ("host_active_blocks", Unit::Count, "active_requests", "Pinned blocks handed out or pending, peaks summed over sizes as in PyTorch", |s| s.active_requests),
    ("host_active", Unit::Bytes, "active_bytes", "Bytes of pinned blocks handed out or pending, peaks summed over sizes as in PyTorch", |s| s.active_bytes),
    ("host_blocks", Unit::Count, "allocations", "Pinned blocks held from the driver", |s| s.allocations),
    ("host_held", Unit::Bytes, "allocated_bytes", "Bytes of pinned blocks held from the driver", |s| s.allocated_bytes),
    ("host_exact_active_blocks", Unit::Count, "", "Pinned blocks handed out or pending, with an exact peak", |s| s.granule.active_requests),
    ("host_exact_active", Unit::Bytes, "", "Bytes of pinned blocks handed out or pending, with an exact peak", |s| s.granule.active_bytes),
];

type HostTime = (&'static str, &'static str, &'static str, fn(&HostStats) -> DurationStat);

#[rustfmt::skip]
const HOST_TIMES: [HostTime; 2] = [
    ("host_alloc", "host_alloc_time", "Driver calls that pinned memory", |s| s.host_alloc_time),
    ("host_free", "host_free_time", "Driver calls that gave pinned memory back", |s| s.host_free_time),
];

type HostScalar = (&'static str, Kind, Unit, &'static str, &'static str, fn(&HostStats) -> i64);

#[rustfmt::skip]
const HOST: &[HostScalar] = {
    use Kind::{Counter, Gauge};
    use Unit::{Bytes, Count};
    &[
        ("host_device_allocs", Counter, Count, "num_host_alloc", "Pinned blocks taken from the driver", HostStats::num_host_alloc),
        ("host_device_frees", Counter, Count, "num_host_free", "Pinned blocks given back to the driver", HostStats::num_host_free),
        ("host_requested", Gauge, Bytes, "", "Bytes of pinned blocks handed out or pending, as requested", |s| s.granule.requested_bytes),
        ("host_pending", Gauge, Bytes, "", "Bytes of pinned blocks given back that wait for devices", |s| s.granule.pending_bytes),
        ("host_kept", Gauge, Bytes, "", "Bytes of pinned blocks given back that graphs may use", |s| s.granule.kept_bytes),
        ("host_unrecorded_frees", Counter, Count, "", "Uses of pinned blocks whose event could not be recorded", |s| s.granule.unrecorded_frees),
        ("host_reserve", Gauge, Bytes, "", "Bytes of the reserve for pinned blocks", |s| s.granule.reserve_bytes),
        ("host_reserve_free", Gauge, Bytes, "", "Bytes of the reserve that no block has", |s| s.granule.reserve_free_bytes),
    ]
};

#[allow(clippy::unnecessary_wraps, reason = "the table's type")]
fn int(value: i64) -> Option<Value> {
    Some(Value::Int(value))
}

fn history(reading: &DeviceReading, of: impl Fn(&HistoryStatus) -> u64) -> Option<Value> {
    reading.history.as_ref().map(|history| of(history).into())
}

fn hardened(reading: &DeviceReading, of: impl Fn(&HardenedStats) -> u64) -> Option<Value> {
    reading.hardened.as_ref().map(|hardened| of(hardened).into())
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
