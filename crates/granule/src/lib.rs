//! One device-memory allocator for every accelerator.
//!
#![cfg_attr(feature = "openreg", doc = "```")]
#![cfg_attr(not(feature = "openreg"), doc = "```ignore")]
//! use granule::prelude::*;
//! use std::sync::Arc;
//!
//! fn main() -> Result<(), AllocError> {
//!     // A simulated accelerator with memory that has contents. On a GPU: `granule::backends::choose(None)`.
//!     let machine = OpenReg::new(OpenRegConfig::default().memory(MemoryMode::Mapped))?;
//!     let settings = Settings::parse("expandable_segments:True")?;
//!     let allocator = Arc::new(CachingAllocator::new(machine.clone(), settings)?);
//!
//!     let stream = machine.create_stream(DeviceIndex(0), 0)?;
//!     let mut batch = DeviceBuffer::<f32>::new(&allocator, 12 << 20, stream)?;
//!     batch.write(&[1.0, 2.0, 3.0])?;
//!     drop(batch); // freed in the order of the stream's work
//!     println!("{} bytes reserved", allocator.stats(DeviceIndex(0))?.reserved_bytes.all.current);
//!     Ok(())
//! }
//! ```
//!
//! [`CachingAllocator`] serves every device of a backend; [`DeviceBuffer`] is memory that frees itself. Begin with the [`prelude`] and these modules:
//!
//! | module | for |
//! |---|---|
//! | [`config`] | settings, and the texts they are read from |
//! | [`backends`] | which backends this build has, what they find, which one is used |
//! | [`pool`], [`graph`], [`sleep`], [`budget`] | memory of its own for a part of the program: private, captured, put to sleep, limited |
//! | [`host`] | pinned host memory |
//! | [`stats`], [`history`], [`snapshot`], [`oom`] | what can be seen of it |
//! | [`share`] | blocks that other processes open |
//!
//! `cargo run -p granule --example hello` is a first program; the [allocator's page](CachingAllocator) has every call.
//!
//! Features choose the backends and the tools that figures are exported to. Any combination builds on any machine, and
//! drivers are loaded at run time:
//!
//! | feature | gives |
//! |---|---|
//! | `openreg` (default) | the simulated accelerator: `openreg` |
//! | `cuda` | NVIDIA GPUs: `cuda` |
//! | `cuda-of-cudarc` | the same in a program that chooses the version of CUDA that cudarc declares |
//! | `hip` | AMD GPUs: `hip` |
//! | `hip-as-cuda` | AMD GPUs under CUDA's label: `hip_as_cuda`, and `cuda` where the feature `cuda` is off |
//! | `metrics` | figures for Prometheus: `metrics::prometheus` |
//! | `ranges` | ranges in the timelines of profilers, with the memory they took: `metrics::ranges` |
//!
//! Source written against `granule::cuda` alone compiles unchanged with `cuda` and with `hip-as-cuda`. The
//! types of the modules ([`labelled`]) carry the label, so that a stream of one is not given to the other.

/// An allocator for every device of a backend.
///
#[cfg_attr(feature = "openreg", doc = "```")]
#[cfg_attr(not(feature = "openreg"), doc = "```ignore")]
/// # fn main() -> Result<(), granule::AllocError> {
/// use granule::prelude::*;
///
/// let machine = OpenReg::new(OpenRegConfig::default())?;
/// let allocator = CachingAllocator::new(machine.clone(), Settings::parse("policy:granule")?)?;
/// let stream = machine.create_stream(DeviceIndex(0), 0)?;
/// let block = allocator.malloc(48 << 20, stream)?;
/// allocator.free(block)?; // the stream's next request may have it at once
/// assert_eq!(allocator.malloc(48 << 20, stream)?, block);
/// # Ok(())
/// # }
/// ```
#[doc(inline)]
pub use alloc_core::CachingAllocator;
/// Device memory for values of one type, which frees itself.
///
#[cfg_attr(feature = "openreg", doc = "```")]
#[cfg_attr(not(feature = "openreg"), doc = "```ignore")]
/// # fn main() -> Result<(), granule::AllocError> {
/// use granule::prelude::*;
/// # use std::sync::Arc;
///
/// # let machine = OpenReg::new(OpenRegConfig::default().memory(MemoryMode::Mapped))?;
/// # let allocator = Arc::new(CachingAllocator::new(machine.clone(), Settings::default())?);
/// # let stream = machine.create_stream(DeviceIndex(0), 0)?;
/// let mut buffer = DeviceBuffer::<f32>::new(&allocator, 1 << 20, stream)?;
/// buffer.write(&[1.0, 2.0, 3.0])?;
/// let mut first = [0.0; 2];
/// buffer.read(&mut first)?;
/// assert_eq!(first, [1.0, 2.0]);
/// # Ok(())
/// # }
/// ```
#[doc(inline)]
pub use alloc_core::DeviceBuffer;
pub use alloc_core::{AllocError, HostAllocator, PinnedBuffer};
pub use alloc_core::{
    backend, budget, config, graph, history, host, ledger, oom, pool, share, sleep, stats, system, types,
};
// What answers are made of: rarely named, and found from them.
#[doc(hidden)]
pub use alloc_core::{allocator, buffer, device, error, pointer, round};

pub mod backends;
pub mod labelled;
pub mod selftest;

cfg_if::cfg_if! {
    if #[cfg(feature = "cuda-of-cudarc")] {
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

/// What most programs name: `use granule::prelude::*;`
pub mod prelude {
    pub use crate::backend::Backend;
    pub use crate::config::Settings;
    #[cfg(feature = "openreg")]
    pub use crate::openreg::{MemoryMode, OpenReg, OpenRegConfig};
    pub use crate::types::{DeviceIndex, DevicePtr, GIB, KIB, MIB, Stream};
    pub use crate::{AllocError, CachingAllocator, DeviceBuffer, HostAllocator, PinnedBuffer};
}

/// Figures for the tools that watch programs.
#[cfg(any(feature = "metrics", feature = "ranges"))]
pub use granule_export::metrics;

/// The snapshot model.
pub use alloc_core::snapshot;

/// The examples of the README and of the book, run as tests.
#[cfg(all(doctest, feature = "openreg"))]
mod book {
    #[doc = include_str!("../../../README.md")]
    struct Readme;
    #[doc = include_str!("../../../docs/rust.md")]
    struct Rust;
    #[doc = include_str!("../../../docs/sleep-share-budgets.md")]
    struct SleepShareBudgets;
}
