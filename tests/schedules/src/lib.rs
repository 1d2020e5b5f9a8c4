//! Several threads and one allocator over the simulated accelerator, run in many chosen orders by `shuttle`.
//!
//! Every lock and every counter of the engine is a place at which another thread may go on. The machine below it has no
//! threads of its own here. A schedule that fails is printed; `cargo xtask schedules --replay` runs it again.
#![cfg(all(test, shuttle))]
#![allow(clippy::unwrap_used)] // a test says what is wrong by panicking

mod captures;
mod explore;
mod hand_over;
mod observers;
mod pools;
mod pressure;
mod rig;
mod sleep;
mod streams;
mod unified;
