//! What a storage promises, over drivers that move real bytes: also what a newer release of CubeCL has to pass.
#![allow(clippy::unwrap_used)] // a test says what is wrong by panicking

mod bytes;
mod held;
#[path = "../../examples/held/memory.rs"]
mod memory;
mod order;
mod refusals;
#[path = "../../examples/held/replay.rs"]
mod replay;
mod support;
