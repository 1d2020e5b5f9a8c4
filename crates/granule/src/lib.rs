//! One device-memory allocator for every accelerator: the facade.
//!
//! [`CachingAllocator`] serves every device of a [`backend`]; [`DeviceBuffer`] is memory that frees itself in
//! the order of its stream's work. With the feature `openreg` (on by default) there are the simulated
//! accelerator (`openreg`), the replay of recorded workloads on it (`replay`), and the files of both worlds
//! (`files`). The README has an example, which is a test of this crate.

pub use alloc_core::{
    AllocError, CachingAllocator, DeviceBuffer, allocator, backend, buffer, config, device, error, history,
    oom, policy, round, stats, types,
};

#[cfg(feature = "openreg")]
pub mod replay;

/// The simulated accelerator.
#[cfg(feature = "openreg")]
pub mod openreg {
    pub use backend_openreg::*;
}

/// Snapshots and traces: reading, writing, converting.
#[cfg(feature = "openreg")]
pub mod files {
    pub use snapshot::{LoadError, Loaded, convert, json, load, load_from, pickle, trace};
}

/// The snapshot model.
pub use alloc_core::snapshot;

/// The README's examples, run as tests.
#[cfg(all(doctest, feature = "openreg"))]
#[doc = include_str!("../../../README.md")]
pub struct ReadmeExamples;
