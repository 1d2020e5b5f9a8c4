//! Settings: what texts and variables mean, and what is refused.
#![allow(clippy::unwrap_used)] // a test says what is wrong by panicking

mod book;
mod golden;
mod options;
mod own;
mod properties;
