//! What a program has in its hands.

pub mod allocator;
pub mod buffer;
pub mod graph;
pub mod pool;
#[cfg(doctest)]
mod soundness;
