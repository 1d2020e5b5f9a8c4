//! The crate that programs use, over the simulated accelerator: the labelled types, recordings and replays.
#![cfg(feature = "openreg")]
#![allow(clippy::unwrap_used)] // a test says what is wrong by panicking

mod labelled;
mod ledger;
mod record;
mod replay_figures;
mod replay_on;
mod replay_plan;
mod selftest;
