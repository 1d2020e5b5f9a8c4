//! Figures as Prometheus reads them: OpenMetrics text.
//!
//! Names are those of [`metrics`](crate::metrics::metrics()) after `granule_`, with the unit at their end, and `_total` after
//! sums: `granule_reserved_bytes{device="0",kind="cuda",pool="all"}`.
//!
//! Whatever serves HTTP can serve them, for example the standard library:
//!
//! ```no_run
//! use alloc_core::CachingAllocator;
//! use std::io::{Read, Write};
//!
//! fn serve(allocator: &CachingAllocator) -> std::io::Result<()> {
//!     for connection in std::net::TcpListener::bind("127.0.0.1:9400")?.incoming() {
//!         let mut connection = connection?;
//!         // One scrape fits in one read; what it says does not matter.
//!         let _ = connection.read(&mut [0; 4096])?;
//!         let text = granule_export::metrics::prometheus::text(allocator);
//!         let (kind, length) = (granule_export::metrics::prometheus::CONTENT_TYPE, text.len());
//!         write!(connection, "HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\n\r\n{text}")?;
//!     }
//!     Ok(())
//! }
//! ```

use crate::metrics::metric::{Kind, Value};
use crate::metrics::reading::{Reading, Source};
use alloc_core::stats::Unit;
use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::{self, Registry};
use std::fmt;

/// What a server says the text is.
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// The figures of `source`, as a whole answer to a scrape.
///
/// # Panics
/// Never: writing to memory does not fail.
#[must_use]
pub fn text(source: &(impl Source + ?Sized)) -> String {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(Read(source.read())));
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &registry).expect("memory takes any text");
    text
}

/// The figures beside a program's own metrics: read anew on each scrape.
///
/// ```
/// use prometheus_client::registry::Registry;
/// use std::sync::Arc;
///
/// fn add(registry: &mut Registry, allocator: &Arc<alloc_core::CachingAllocator>) {
///     // The registry does not keep the allocator alive.
///     let collector = granule_export::metrics::prometheus::Collector::new(Arc::downgrade(allocator));
///     registry.register_collector(Box::new(collector));
/// }
/// ```
///
/// For two allocators of one kind of device, give each a registry of its own with a label
/// (`Registry::sub_registry_with_label`).
#[derive(Debug)]
pub struct Collector {
    source: Box<dyn Source>,
}

impl Collector {
    /// A collector of the figures of `source`.
    pub fn new(source: impl Source + 'static) -> Self {
        Self { source: Box::new(source) }
    }
}

impl prometheus_client::collector::Collector for Collector {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        encode(&self.source.read(), encoder)
    }
}

/// Figures that were read already.
#[derive(Debug)]
struct Read(Reading);

impl prometheus_client::collector::Collector for Read {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        encode(&self.0, encoder)
    }
}

fn encode(reading: &Reading, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
    for metric in crate::metrics::metrics() {
        let samples = metric.samples(reading);
        if samples.is_empty() {
            continue;
        }
        let name = format!("granule_{}", metric.name);
        let unit = match metric.unit {
            Unit::Bytes => Some(registry::Unit::Bytes),
            Unit::Ratio => Some(registry::Unit::Other("ratio".into())),
            Unit::Seconds => Some(registry::Unit::Seconds),
            Unit::Count => None,
        };
        let kind = match metric.kind {
            Kind::Gauge => MetricType::Gauge,
            Kind::Counter => MetricType::Counter,
        };
        let mut family = encoder.encode_descriptor(&name, &metric.help, unit.as_ref(), kind)?;
        for sample in samples {
            let labels: &[_] = &sample.labels;
            let mut one = family.encode_family(&labels)?;
            match (metric.kind, sample.value) {
                (Kind::Gauge, Value::Int(value)) => one.encode_gauge(&value)?,
                (Kind::Gauge, Value::Float(value)) => one.encode_gauge(&value)?,
                (Kind::Counter, Value::Int(value)) => {
                    one.encode_counter::<NoLabelSet, _, u64>(&value.unsigned_abs(), None)?;
                }
                (Kind::Counter, Value::Float(value)) => {
                    one.encode_counter::<NoLabelSet, _, u64>(&value, None)?
                }
            }
        }
    }
    Ok(())
}
