//! Compaction: memory between live blocks goes back to the device, and each block has its contents at its address all the same.
#![allow(clippy::unwrap_used)] // a test says what is wrong by panicking

mod ample;
mod exclusions;
mod faults;
mod last_resort;
mod moves;
mod programs;
