//! What is measured, and what each way out of the process says of it.
#![allow(clippy::unwrap_used)] // a test says what is wrong by panicking

#[cfg(feature = "prometheus")]
mod prometheus;
#[cfg(feature = "ranges")]
mod ranges;
#[cfg(any(feature = "prometheus", feature = "ranges"))]
mod support;
mod table;
