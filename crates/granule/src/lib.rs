//! One device-memory allocator for every accelerator: the facade.
//!
//! [`CachingAllocator`] serves every device of a [`backend`]; [`DeviceBuffer`] is memory that frees itself in
//! the order of its stream's work. [`backends`] says which backends this build has, what they find, and which
//! one is used.
//!
//! Features choose the backends and what figures are exported to; any combination builds on any machine, and drivers are loaded at run time:
//!
//! | feature | gives |
//! |---|---|
//! | `openreg` (default) | the simulated accelerator (`openreg`), replay of recorded workloads (`replay`), and the files of both worlds (`files`) |
//! | `record` (default) | recording what a program asks while it runs: `record::Recorder` |
//! | `cuda` | NVIDIA GPUs: `cuda` |
//! | `hip` | AMD GPUs: `hip` |
//! | `hip-as-cuda` | AMD GPUs under CUDA's label: `hip_as_cuda`, and `cuda` where the feature `cuda` is off |
//! | `metrics` | figures for Prometheus: `metrics::prometheus` |
//! | `opentelemetry` | figures for OpenTelemetry: `metrics::opentelemetry` |
//! | `ranges` | ranges in the timelines of profilers, with the memory they took: `metrics::ranges` |
//!
//! Source written against `granule::cuda` alone compiles unchanged with `cuda` and with `hip-as-cuda`. The
//! types of the modules ([`labelled`]) carry the label, so that a stream of one is not given to the other.

pub use alloc_core::{
    AllocError, CachingAllocator, DeviceBuffer, HostAllocator, PinnedBuffer, allocator, backend, budget,
    buffer, config, device, error, graph, hardened, history, host, oom, pointer, policy, pool, round, share,
    sleep, stats, types,
};

pub mod backends;
pub mod labelled;
pub mod record;

#[cfg(feature = "openreg")]
pub mod replay;

cfg_if::cfg_if! {
    if #[cfg(feature = "cuda")] {
        labelled::module!(
            /// NVIDIA GPUs.
            cuda, Cuda, backends::Name::Cuda
        );
    } else if #[cfg(feature = "hip-as-cuda")] {
        pub use hip_as_cuda as cuda;
    }
}

#[cfg(feature = "hip-as-cuda")]
labelled::module!(
    /// AMD GPUs under CUDA's label.
    hip_as_cuda, HipAsCuda, backends::Name::HipAsCuda
);

#[cfg(feature = "hip")]
labelled::module!(
    /// AMD GPUs.
    hip, Hip, backends::Name::Hip
);

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

/// Figures for the tools that watch programs.
#[cfg(any(feature = "metrics", feature = "opentelemetry", feature = "ranges"))]
pub use granule_metrics as metrics;

/// The snapshot model.
pub use alloc_core::snapshot;

/// The README's examples, run as tests.
#[cfg(all(doctest, feature = "openreg"))]
#[doc = include_str!("../../../README.md")]
pub struct ReadmeExamples;
