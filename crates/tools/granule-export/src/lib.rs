//! Granule for the tools of others.
//!
//! - [`metrics`] has the figures of a running program: Prometheus reads them (feature `prometheus`), and profilers show
//!   ranges with the memory they took (`ranges`);
//! - `runs` writes a recorded run as Parquet tables and as a trace for Perfetto (`runs`), or has the tables in memory
//!   (`arrow`).

pub mod metrics;
#[cfg(feature = "runs")]
pub mod runs;
