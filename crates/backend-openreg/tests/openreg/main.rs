//! What the simulated machine does with usual, unusual, wrong, and concurrent requests.
#![allow(clippy::unwrap_used, reason = "a test that cannot set up its machine has failed")]

mod aliases;
mod bounds;
mod capture;
mod devices;
mod families;
mod faults;
mod handles;
mod mapped;
mod memory;
mod real_programs;
mod sharing;
mod streams;
mod support;
mod usage;
mod virtual_memory;
