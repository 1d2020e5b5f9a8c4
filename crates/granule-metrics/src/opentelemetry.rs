//! Figures as instruments of an OpenTelemetry meter.
//!
//! Names are those of [`metrics`](crate::metrics()) after `granule.`; units are `By`, `s` and `1`.

use crate::metric::{Kind, Metric, Value};
use crate::reading::{Reading, Source};
use alloc_core::stats::Unit;
use opentelemetry::KeyValue;
use opentelemetry::metrics::{AsyncInstrument, Meter};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Adds an observable instrument to `meter` for each metric. They are read when the meter's provider collects, and
/// last as long as it does; a `source` that is a [`Weak`](std::sync::Weak) reference does not keep the allocator alive.
///
/// ```
/// use opentelemetry::metrics::Meter;
/// use std::sync::Arc;
///
/// fn watch(meter: &Meter, allocator: &Arc<alloc_core::CachingAllocator>) {
///     granule_metrics::opentelemetry::register(meter, Arc::downgrade(allocator));
/// }
/// ```
pub fn register(meter: &Meter, source: impl Source + 'static) {
    let latest = Arc::new(Latest::new(source));
    for metric in crate::metrics() {
        let name = format!("granule.{}", metric.name);
        let unit = match metric.unit {
            Unit::Bytes => "By",
            Unit::Seconds => "s",
            Unit::Count | Unit::Ratio => "1",
        };
        let whole = matches!(metric.unit, Unit::Bytes | Unit::Count);
        macro_rules! instrument {
            ($make:ident, $variant:ident, $value:ident => $observed:expr) => {{
                let (seen, latest) = (AtomicU64::default(), Arc::clone(&latest));
                let observe = move |to: &dyn AsyncInstrument<_>| {
                    latest.each(&seen, metric, |value, labels| {
                        if let Value::$variant($value) = value {
                            to.observe($observed, labels);
                        }
                    });
                };
                meter
                    .$make(name)
                    .with_description(metric.help.as_str())
                    .with_unit(unit)
                    .with_callback(observe)
                    .build();
            }};
        }
        match (metric.kind, whole) {
            (Kind::Counter, true) => instrument!(u64_observable_counter, Int, value => value.unsigned_abs()),
            (Kind::Counter, false) => instrument!(f64_observable_counter, Float, value => value),
            (Kind::Gauge, true) => instrument!(i64_observable_gauge, Int, value => value),
            (Kind::Gauge, false) => instrument!(f64_observable_gauge, Float, value => value),
        }
    }
}

/// The latest figures. A provider asks one instrument after the other: the first that has seen them already
/// reads them anew, for itself and for those that come after it.
#[derive(Debug)]
struct Latest {
    source: Box<dyn Source>,
    /// With its number.
    reading: Mutex<(u64, Arc<Reading>)>,
}

impl Latest {
    fn new(source: impl Source + 'static) -> Self {
        Self { source: Box::new(source), reading: Mutex::default() }
    }

    /// Figures newer than those with the number `seen`, which becomes theirs.
    fn newer(&self, seen: &AtomicU64) -> Arc<Reading> {
        let mut latest = self.reading.lock().unwrap_or_else(PoisonError::into_inner);
        if latest.0 == seen.load(Ordering::Relaxed) {
            *latest = (latest.0 + 1, Arc::new(self.source.read()));
        }
        seen.store(latest.0, Ordering::Relaxed);
        Arc::clone(&latest.1)
    }

    fn each(&self, seen: &AtomicU64, metric: &Metric, mut observe: impl FnMut(Value, &[KeyValue])) {
        for sample in metric.samples(&self.newer(seen)) {
            let labels = sample.labels.into_iter().map(|(name, value)| KeyValue::new(name, value));
            observe(sample.value, &labels.collect::<Vec<_>>());
        }
    }
}
