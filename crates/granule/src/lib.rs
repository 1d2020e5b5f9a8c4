//! One device-memory allocator for every accelerator.
#![cfg_attr(feature = "openreg", doc = include_str!("../../../README.md"))]

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
    pub use snapshot::{LoadError, Loaded, convert, json, load, pickle, trace};
}

/// The snapshot model.
pub use alloc_core::snapshot;
