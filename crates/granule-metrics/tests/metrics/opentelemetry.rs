//! What a meter's provider collects.

use crate::support::program;
use alloc_core::config::Settings;
use alloc_core::host::{HostAllocator, HostOptions};
use granule_metrics::{Kind, Reading, Source, Unit, Value, metrics};
use opentelemetry::metrics::MeterProvider;
use opentelemetry_sdk::metrics::data::{AggregatedMetrics, Metric, MetricData};
use opentelemetry_sdk::metrics::{InMemoryMetricExporter, PeriodicReader, SdkMeterProvider};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

type Points = BTreeMap<Vec<(String, String)>, f64>;

#[allow(clippy::cast_precision_loss)] // small numbers
fn points(metric: &Metric) -> (bool, Points) {
    let labels = |attributes: &mut dyn Iterator<Item = &opentelemetry::KeyValue>| {
        let mut labels: Vec<_> =
            attributes.map(|label| (label.key.to_string(), label.value.to_string())).collect();
        labels.sort();
        labels
    };
    match metric.data() {
        AggregatedMetrics::I64(MetricData::Gauge(gauge)) => {
            (false, gauge.data_points().map(|p| (labels(&mut p.attributes()), p.value() as f64)).collect())
        }
        AggregatedMetrics::F64(MetricData::Gauge(gauge)) => {
            (false, gauge.data_points().map(|p| (labels(&mut p.attributes()), p.value())).collect())
        }
        AggregatedMetrics::F64(MetricData::Sum(sum)) => (
            sum.is_monotonic(),
            sum.data_points().map(|p| (labels(&mut p.attributes()), p.value())).collect(),
        ),
        AggregatedMetrics::U64(MetricData::Sum(sum)) => (
            sum.is_monotonic(),
            sum.data_points().map(|p| (labels(&mut p.attributes()), p.value() as f64)).collect(),
        ),
        other => panic!("{} is {other:?}", metric.name()),
    }
}

fn collect(
    provider: &SdkMeterProvider,
    exporter: &InMemoryMetricExporter,
) -> BTreeMap<String, (String, bool, Points)> {
    exporter.reset();
    provider.force_flush().unwrap();
    let collected = exporter.get_finished_metrics().unwrap();
    let scopes = collected.iter().flat_map(|resource| resource.scope_metrics());
    scopes
        .flat_map(|scope| scope.metrics())
        .map(|metric| {
            let (sum, points) = points(metric);
            (metric.name().to_owned(), (metric.unit().to_owned(), sum, points))
        })
        .collect()
}

fn provider() -> (SdkMeterProvider, InMemoryMetricExporter) {
    let exporter = InMemoryMetricExporter::default();
    let provider =
        SdkMeterProvider::builder().with_reader(PeriodicReader::builder(exporter.clone()).build()).build();
    (provider, exporter)
}

#[test]
fn every_metric_is_collected_with_its_unit_kind_and_value() {
    let (allocator, kept) = program();
    let (provider, exporter) = provider();
    let host = HostAllocator::new(allocator.backend().clone(), &Settings::default(), HostOptions::default())
        .unwrap();
    let host = Arc::new(host);
    let both = (Arc::downgrade(&allocator), Arc::downgrade(&host));
    granule_metrics::opentelemetry::register(&provider.meter("granule"), both.clone());
    for round in 0..2 {
        let collected = collect(&provider, &exporter);
        let reading = both.read();
        assert_eq!((reading.devices.len(), reading.hosts.len()), (1, 1));
        for metric in metrics() {
            let samples = metric.samples(&reading);
            if samples.is_empty() {
                continue;
            }
            let (unit, sum, points) = &collected[&format!("granule.{}", metric.name)];
            let expected = match metric.unit {
                Unit::Bytes => "By",
                Unit::Seconds => "s",
                Unit::Count | Unit::Ratio => "1",
            };
            assert_eq!(unit, expected, "{}", metric.name);
            assert_eq!(*sum, metric.kind == Kind::Counter, "{}", metric.name);
            assert_eq!(points.len(), samples.len(), "{}", metric.name);
            for sample in samples {
                let mut labels: Vec<_> = sample
                    .labels
                    .into_iter()
                    .map(|(name, value)| (name.to_owned(), value.into_owned()))
                    .collect();
                labels.sort();
                #[allow(clippy::cast_precision_loss)] // small numbers
                let value = match sample.value {
                    Value::Int(value) => value as f64,
                    Value::Float(value) => value,
                };
                assert!((points[&labels] - value).abs() < 1e-12, "round {round}: {} {labels:?}", metric.name);
            }
        }
        if round == 0 {
            // The next collection says what is true then.
            allocator.free(kept).unwrap();
        }
    }
    drop((allocator, host));
    assert!(
        collect(&provider, &exporter).values().all(|(_, _, points)| points.is_empty()),
        "there is nothing to say"
    );
}

/// Counts how often it is read.
#[derive(Debug)]
struct Counted {
    times: Arc<AtomicUsize>,
    reading: Reading,
}

impl Source for Counted {
    fn read(&self) -> Reading {
        self.times.fetch_add(1, Ordering::Relaxed);
        self.reading.clone()
    }
}

#[test]
fn one_collection_reads_once() {
    let times = Arc::new(AtomicUsize::new(0));
    let reading = program().0.read();
    let (provider, exporter) = provider();
    granule_metrics::opentelemetry::register(
        &provider.meter("granule"),
        Counted { times: Arc::clone(&times), reading },
    );
    for round in 1..4 {
        collect(&provider, &exporter);
        assert_eq!(times.load(Ordering::Relaxed), round);
    }
}
