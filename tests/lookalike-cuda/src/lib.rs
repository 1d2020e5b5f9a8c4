//! The `libcuda.so.1` of `granule-lookalike-cuda` as a library of its own, for tests, which load it as a driver.

pub use granule_lookalike_cuda::{entries, header};
