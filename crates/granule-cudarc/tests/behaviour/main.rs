//! What a buffer promises, over a driver that moves real bytes: also what a newer release of cudarc has to pass.
#![allow(clippy::unwrap_used)] // a test says what is wrong by panicking

mod bytes;
mod ends;
mod refusals;
mod reuse;
mod support;
