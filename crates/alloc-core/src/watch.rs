//! Observation of the engine: counts, history, snapshots, and reports of failures.

pub(crate) mod counters;
pub mod history;
pub(crate) mod observers;
pub mod oom;
pub mod pointer;
pub mod snapshot;
pub mod stats;
