//! Streams: their names, their ends, and the memory that goes from one to another.
#![allow(clippy::unwrap_used)] // a test says what is wrong by panicking

mod default;
mod ended;
mod retirement;
