//! A Granule backend for OpenCL 2: any device with shared virtual memory, through the loader that the machine has.
//!
//! `driver.rs` finds devices and knows when a command is done; `backend.rs` is the device contract. `cargo run --example
//! conformance` checks it, and `cargo run --example work` computes with it.

mod backend;
mod driver;

pub use backend::OpenClBackend;
