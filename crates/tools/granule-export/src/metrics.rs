//! The figures of a running program, for the tools that watch it.
//!
//! [`metrics()`] is the one table of them: name, unit, help and how each is read. What exports them goes through that
//! table, so that all say the same:
//!
//! * `prometheus`: `prometheus::text`, or a `prometheus::Collector` for a registry.
//!
//! `ranges` is about time: `ranges::Range` names a part of the program in the timelines of NVIDIA's and AMD's profilers,
//! `ranges::MemoryRange` says how much memory that part took, too.
//!
//! Figures come from a [`Source`]: an allocator of device memory, one of pinned host memory, or both. Reading them waits
//! for nothing and is exact: whatever [`DeviceStats`](alloc_core::stats::DeviceStats) has is of one moment.

mod metric;
mod reading;
mod table;

pub use alloc_core::stats::Unit;
pub use metric::{Kind, Label, Metric, Sample, Value};
pub use reading::{DeviceReading, HostReading, PoolReading, Reading, Source};
pub use table::metrics;

#[cfg(feature = "prometheus")]
pub mod prometheus;
#[cfg(feature = "ranges")]
pub mod ranges;
