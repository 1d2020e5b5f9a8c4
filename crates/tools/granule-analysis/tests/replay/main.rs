//! Recordings and replays over the simulated accelerator.
#![allow(clippy::unwrap_used)] // a test says what is wrong by panicking

mod figures;
mod on;
mod plan;
mod record;
