//! The simulated `libcuda.so.1`, as a library of its own.

pub use granule_lookalike_cuda::entries;
