//! Private pools: whose memory serves whom, where it comes from, and who may hold how much.
#![allow(clippy::unwrap_used)] // a test says what is wrong by panicking

mod budgets;
mod checkpoints;
mod fairness;
mod private;
mod registered;
mod shown;
mod sources;
mod spill;
