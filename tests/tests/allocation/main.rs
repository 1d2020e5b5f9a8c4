//! Allocation and free: which memory serves a request, when it is free again, what is refused, and what holds for any program.
#![allow(clippy::unwrap_used)] // a test says what is wrong by panicking

mod buffers;
mod giving_back;
mod growable;
mod limits;
mod making;
mod model;
mod pending;
mod placement;
mod pointers;
mod remedies;
mod threads;
mod uncached;
