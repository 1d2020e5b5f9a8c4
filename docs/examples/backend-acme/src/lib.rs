//! A Granule backend for acme.
//!
//! It works from the first build, over host memory, and passes the required part of the conformance kit:
//! `cargo run --example conformance`. To bring the accelerator up, go through `backend.rs` from the top and put
//! the driver's calls where a comment says `REPLACE`; run the kit after each. `memory.rs` and `queue.rs` stand in for
//! the accelerator until then: delete them at the end.

mod backend;
mod memory;
mod queue;

pub use backend::AcmeBackend;
