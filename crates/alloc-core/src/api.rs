//! Values that a program holds: the allocator, buffers, graphs and pools.

pub mod allocator;
pub mod buffer;
pub mod graph;
pub mod pool;
#[cfg(doctest)]
mod soundness;
