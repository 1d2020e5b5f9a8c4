//! A recorded run.
//!
//! - [`parquet`] writes it as tables that DuckDB, Polars, Spark and the like read; [`schema`] has the columns. Every row
//!   names its run, so that the files of thousands of runs are one table;
//!   With the feature `arrow`, [`Table::batches`](parquet::Table::batches) has the same rows in memory;
//! - [`perfetto`] writes it as a trace that ui.perfetto.dev opens, beside a profiler's own.
//!
//! Both are made of a [`granule_analysis::Run`]. What is in memory beside the run is bounded: rows go out in groups.

mod clock;
#[cfg(feature = "arrow")]
mod columns;
mod events;
pub mod parquet;
pub mod perfetto;
mod rows;
pub mod schema;

use granule_analysis::Run;

/// A run, and what there is to say about it.
#[derive(Clone, Debug)]
pub struct Source<'a> {
    /// What happened.
    pub run: &'a Run,
    /// What the run is called in every table; runs that are put together have different ones.
    pub id: &'a str,
    /// The workload's name.
    pub name: &'a str,
    /// The file it was read from.
    pub file: &'a str,
    /// What kind of file that was.
    pub kind: Kind,
    /// The allocator's settings, if there were any.
    pub settings: Option<&'a str>,
    /// The device's index.
    pub device: usize,
    /// Bytes of the device's memory, as far as that is known.
    pub capacity: Option<u64>,
    /// Whether earlier history is missing.
    pub window: bool,
    /// What is not exact about it.
    pub notes: &'a [String],
}

/// The kind of a recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A trace, replayed: what the program asked for is recorded, what the allocator did is computed.
    Trace,
    /// A snapshot: both are recorded.
    Snapshot,
}

impl Kind {
    /// Its name in tables.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Trace => "trace",
            Self::Snapshot => "snapshot",
        }
    }
}
