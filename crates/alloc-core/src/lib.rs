//! x
pub mod backend;
pub mod config;
pub mod snapshot;
pub mod types;
