//! The behaviours of PyTorch's allocator, as `tests/parity.toml` lists them: a test is named after the behaviour it shows.
#![allow(clippy::unwrap_used)] // a test says what is wrong by panicking

mod allocation;
mod caching;
mod checkpoints;
mod config;
mod contexts;
mod expandable;
mod graphs;
mod history;
mod host;
mod host_graphs;
mod host_history;
mod ipc;
mod oom;
mod pools;
mod stats;
