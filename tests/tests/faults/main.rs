//! Each driver call fails in turn: nothing is lost, and what failed works when it is made again.
#![allow(clippy::unwrap_used)] // a test says what is wrong by panicking

mod drivers;
mod pools;
mod sleep;
mod workloads;
