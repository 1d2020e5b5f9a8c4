//! What can be seen of the engine: counts, history, snapshots, and reports of what went wrong.

pub(crate) mod counters;
pub mod history;
pub(crate) mod observers;
pub mod oom;
pub mod pointer;
pub mod snapshot;
pub mod stats;
