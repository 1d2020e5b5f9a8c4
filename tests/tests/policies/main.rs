//! The policies: `pytorch` does what PyTorch does, `granule` shows free pieces as one, and a third one fits the same engine.
#![allow(clippy::unwrap_used)] // a test says what is wrong by panicking

mod aliases;
mod decisions;
mod drivers;
mod exactness;
mod fixed_segments;
mod given_up;
mod granule;
mod hand_over;
mod modes;
mod monotone;
mod native;
mod needs;
mod parked;
mod places;
mod releases;
mod repeats;
mod views;
