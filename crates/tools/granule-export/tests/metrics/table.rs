//! Nothing that the statistics have is missing in the table, and nothing is read from the wrong place.

use alloc_core::budget::{Marks, TenantStats};
use alloc_core::host::{DurationStat, HostGranuleStats, HostStats};
use alloc_core::ledger::{DeviceLedger, OtherProcess, Ours};
use alloc_core::pool::PoolStats;
use alloc_core::snapshot::HistoryStatus;
use alloc_core::stats::{DeviceStats, GranuleStats, Stat, StatArray};
use alloc_core::types::{DeviceIndex, DeviceKind, PoolId};
use granule_export::metrics::{
    DeviceReading, HostReading, Kind, Label, Metric, PoolReading, Reading, Sample, Unit, Value, metrics,
};
use std::collections::{BTreeMap, BTreeSet};

/// Every figure is another number.
struct Numbers(i64);

impl Numbers {
    fn next(&mut self) -> i64 {
        self.0 += 1;
        self.0
    }

    fn count(&mut self) -> u64 {
        self.next().unsigned_abs()
    }

    fn stat(&mut self) -> Stat {
        Stat { current: self.next(), peak: self.next(), allocated: self.next(), freed: self.next() }
    }

    fn array(&mut self) -> StatArray {
        StatArray { all: self.stat(), small_pool: self.stat(), large_pool: self.stat() }
    }

    fn time(&mut self) -> DurationStat {
        DurationStat { total: self.next(), max: self.next(), min: self.next(), count: self.next() }
    }

    fn host(&mut self) -> HostStats {
        HostStats {
            active_requests: self.stat(),
            active_bytes: self.stat(),
            allocations: self.stat(),
            allocated_bytes: self.stat(),
            host_alloc_time: self.time(),
            host_free_time: self.time(),
            granule: HostGranuleStats {
                active_requests: self.stat(),
                active_bytes: self.stat(),
                requested_bytes: self.next(),
                pending_bytes: self.next(),
                kept_bytes: self.next(),
                unrecorded_frees: self.next(),
                reserve_bytes: self.next(),
                reserve_free_bytes: self.next(),
            },
            ..HostStats::default()
        }
    }

    fn ledger(&mut self) -> DeviceLedger {
        DeviceLedger {
            total: self.count(),
            used: self.count(),
            ours: Ours::default(),
            pinned: self.count(),
            graphs: self.count(),
            process_other: self.count(),
            other_processes: vec![OtherProcess { pid: 1, bytes: self.count(), granule: None }],
            unaccounted: self.count(),
        }
    }

    fn tenant(&mut self, name: &str, pools: Vec<PoolId>) -> TenantStats {
        TenantStats {
            name: name.into(),
            marks: Marks { guarantee: self.count(), soft: Some(self.count()), hard: Some(self.count()) },
            held: self.count(),
            peak: self.count(),
            pools,
            refusals: self.count(),
            soft_crossings: self.count(),
            spills: self.count(),
            spilled_bytes: self.count(),
        }
    }

    fn pool(&mut self) -> PoolStats {
        PoolStats {
            use_count: u32::try_from(self.next()).unwrap(),
            reserved_bytes: self.array(),
            allocation: self.count(),
            allocated_bytes: self.count(),
            active_bytes: self.count(),
            requested_bytes: self.count(),
            free_bytes: self.count(),
            segments: self.count(),
        }
    }
}

fn device() -> DeviceReading {
    let mut n = Numbers(1000);
    let private = (PoolId(3, 7), n.array());
    let stats = DeviceStats {
        num_alloc_retries: n.next(),
        num_ooms: n.next(),
        max_split_size: n.next(),
        num_sync_all_streams: n.next(),
        num_device_alloc: n.next(),
        num_device_free: n.next(),
        num_oom_rejections: n.next(),
        allocation: n.array(),
        segment: n.array(),
        active: n.array(),
        inactive_split: n.array(),
        allocated_bytes: n.array(),
        reserved_bytes: n.array(),
        reserved_bytes_by_private_pools: [private].into(),
        active_bytes: n.array(),
        inactive_split_bytes: n.array(),
        requested_bytes: n.array(),
        oversize_allocations: n.stat(),
        oversize_segments: n.stat(),
        granule: GranuleStats {
            pending_bytes: n.next(),
            unrecorded_frees: n.next(),
            granules_moved: n.next(),
            asleep_bytes: n.next(),
        },
    };
    let (default, own) = (n.pool(), n.pool());
    DeviceReading {
        device: DeviceIndex(4),
        kind: DeviceKind::Cuda,
        stats,
        largest_free_block: n.count(),
        history: Some(HistoryStatus {
            recorded: true,
            complete: true,
            overwritten: n.count(),
            before_recording: n.count(),
        }),
        pools: vec![
            PoolReading { id: PoolId::DEFAULT, reserved_bytes: default.reserved_bytes, stats: Some(default) },
            PoolReading { id: private.0, reserved_bytes: private.1, stats: Some(own) },
            PoolReading { id: PoolId(0, 9), reserved_bytes: StatArray::default(), stats: None },
        ],
        tenants: vec![
            n.tenant("serving", vec![PoolId::DEFAULT]),
            TenantStats { marks: Marks::default(), ..n.tenant("none", Vec::new()) },
        ],
        ledger: Some(n.ledger()),
    }
}

fn reading() -> Reading {
    let host = HostReading { kind: DeviceKind::Cuda, stats: Numbers(2000).host() };
    Reading { devices: vec![device()], hosts: vec![host] }
}

fn samples(reading: &Reading) -> impl Iterator<Item = (&'static Metric, Sample)> {
    metrics()
        .iter()
        .flat_map(|metric| metric.samples(reading).into_iter().map(move |sample| (metric, sample)))
}

/// The key of PyTorch's that a sample is.
fn key(metric: &Metric, labels: &[Label]) -> String {
    labels
        .iter()
        .fold(metric.statistic.clone(), |key, (name, value)| key.replace(&format!("{{{name}}}"), value))
}

#[test]
fn every_key_of_the_summary_is_exported_with_its_value() {
    let reading = reading();
    let exported: BTreeMap<_, _> =
        samples(&reading).map(|(metric, sample)| (key(metric, &sample.labels), sample.value)).collect();
    let flat = device().stats.flatten();
    assert_eq!(flat.len(), 123 + 12, "PyTorch's, and those of a private pool");
    for (key, value) in flat {
        assert_eq!(exported.get(&key), Some(&Value::Int(value)), "{key}");
    }
    let flat = reading.hosts[0].stats.flatten();
    assert_eq!(flat.len(), 28);
    for (key, value) in flat {
        let micros = match exported.get(&key) {
            Some(Value::Int(value)) => *value,
            #[allow(clippy::cast_possible_truncation)] // whole and small
            Some(Value::Float(seconds)) => (seconds * 1e6).round() as i64,
            None => panic!("{key} is missing"),
        };
        assert_eq!(micros, value, "{key}");
    }
}

/// Every figure of pinned memory that PyTorch does not have.
fn of_host(figures: &HostGranuleStats) -> Vec<i64> {
    let HostGranuleStats {
        active_requests,
        active_bytes,
        requested_bytes,
        pending_bytes,
        kept_bytes,
        unrecorded_frees,
        reserve_bytes,
        reserve_free_bytes,
    } = *figures;
    let mut expected = Vec::new();
    for Stat { current, peak, allocated, freed } in [active_requests, active_bytes] {
        expected.extend([current, peak, allocated, freed]);
    }
    expected.extend([
        requested_bytes,
        pending_bytes,
        kept_bytes,
        unrecorded_frees,
        reserve_bytes,
        reserve_free_bytes,
    ]);
    expected
}

/// What is exported of a device's ledger.
fn of_ledger(ledger: &Option<DeviceLedger>) -> Vec<u64> {
    let ledger = ledger.as_ref().unwrap();
    let DeviceLedger { used, pinned, graphs, process_other, unaccounted, .. } = *ledger;
    vec![used, pinned, graphs, process_other, ledger.others(), unaccounted]
}

/// All figures of a tenant, written out for the same reason.
fn of_tenant(tenant: TenantStats) -> Vec<u64> {
    let TenantStats {
        name: _,
        marks: Marks { guarantee, soft, hard },
        held,
        peak,
        pools,
        refusals,
        soft_crossings,
        spills,
        spilled_bytes,
    } = tenant;
    let own = [guarantee, held, peak, pools.len() as u64, refusals, soft_crossings, spills, spilled_bytes];
    own.into_iter().chain(soft).chain(hard).collect()
}

#[test]
fn every_other_figure_is_exported() {
    let reading = reading();
    let exported: BTreeSet<i64> = samples(&reading)
        .filter_map(|(_, sample)| match sample.value {
            Value::Int(value) => Some(value),
            Value::Float(_) => None,
        })
        .collect();
    // Written out without `..`, so that a new figure has to come by here.
    let device = device();
    let GranuleStats { pending_bytes, unrecorded_frees, granules_moved, asleep_bytes } = device.stats.granule;
    let HistoryStatus { recorded: _, complete: _, overwritten, before_recording } = device.history.unwrap();
    let mut expected = vec![pending_bytes, unrecorded_frees, granules_moved, asleep_bytes];
    let mut whole =
        |values: &[u64]| expected.extend(values.iter().map(|value| i64::try_from(*value).unwrap()));
    whole(
        &[&[overwritten, before_recording, device.largest_free_block], &of_ledger(&device.ledger)[..]]
            .concat(),
    );
    for pool in device.pools.into_iter().filter_map(|pool| pool.stats) {
        let PoolStats {
            use_count,
            reserved_bytes: _,
            allocation,
            allocated_bytes,
            active_bytes,
            requested_bytes,
            free_bytes,
            segments,
        } = pool;
        whole(&[
            use_count.into(),
            allocation,
            allocated_bytes,
            active_bytes,
            requested_bytes,
            free_bytes,
            segments,
        ]);
    }
    device.tenants.into_iter().for_each(|tenant| whole(&of_tenant(tenant)));
    expected.extend(of_host(&reading.hosts[0].stats.granule));
    for value in expected {
        assert!(exported.contains(&value), "{value} is missing");
    }
}

#[test]
fn derived_figures_are_what_they_say() {
    let reading = reading();
    let ratio = |name: &str| {
        let metric = metrics().iter().find(|metric| metric.name == name).unwrap();
        match metric.samples(&reading)[0].value {
            Value::Float(value) => value,
            Value::Int(value) => panic!("{name} is {value}"),
        }
    };
    let device = device();
    assert!((ratio("efficiency") - device.stats.efficiency()).abs() < f64::EPSILON);
    let cached: u64 =
        device.pools.iter().filter_map(|pool| pool.stats.as_ref()).map(|pool| pool.free_bytes).sum();
    #[allow(clippy::cast_precision_loss)]
    let outside = (cached - device.largest_free_block) as f64 / cached as f64;
    assert!((ratio("fragmentation") - outside).abs() < 1e-12);
}

#[test]
fn names_are_unique_and_types_fit() {
    let reading = reading();
    let mut names = BTreeSet::new();
    let mut known = BTreeSet::new();
    for metric in metrics() {
        assert!(names.insert(&metric.name), "{} twice", metric.name);
        let plain = |c: char| c.is_ascii_lowercase() || c == '_';
        assert!(metric.name.chars().all(plain), "{}", metric.name);
        assert!(!metric.name.ends_with("_total") && !metric.name.ends_with("_bytes"), "{}", metric.name);
        assert!(metric.help.ends_with('.'), "{}", metric.name);
    }
    for (metric, sample) in samples(&reading) {
        assert_eq!(sample.labels.contains(&("device", "4".into())), !metric.name.starts_with("host_"));
        assert!(sample.labels.contains(&("kind", "cuda".into())), "{}", metric.name);
        let real = matches!(metric.unit, Unit::Ratio | Unit::Seconds);
        assert_eq!(real, matches!(sample.value, Value::Float(_)), "{}", metric.name);
        assert!(metric.kind == Kind::Gauge || metric.unit != Unit::Ratio);
        assert!(known.insert((&metric.name, sample.labels)), "{} twice", metric.name);
    }
}

#[test]
fn what_is_off_is_not_exported() {
    let off = DeviceReading { history: None, ..device() };
    let off = Reading { devices: vec![off], hosts: Vec::new() };
    let named = |part: &str| samples(&off).any(|(metric, _)| metric.name.contains(part));
    assert!(!named("history") && !named("host"));
}
