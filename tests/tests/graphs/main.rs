//! Captures, and the graphs that come of them.
#![allow(clippy::unwrap_used)] // a test says what is wrong by panicking

mod beside;
mod captures;
mod held;
mod launches;
mod memory;
mod over_hip;
mod replays;
