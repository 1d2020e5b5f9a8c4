//! The crate that programs use, over the simulated accelerator: the labelled types, the ledger, the self-test.
#![cfg(feature = "openreg")]
#![allow(clippy::unwrap_used)] // a test says what is wrong by panicking

mod labelled;
mod ledger;
mod selftest;
