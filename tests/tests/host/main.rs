//! Pinned host memory.
#![allow(clippy::unwrap_used)] // a test says what is wrong by panicking

mod background;
mod blocks;
mod buffers;
mod caching;
mod drivers;
mod ending;
mod faults;
mod graphs;
mod history;
mod machines;
mod model;
mod places;
mod streams;
mod watched;
