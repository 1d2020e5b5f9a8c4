//! Devices, streams, events and memory that carry the label of their backend in their type.
//!
//! A module of this crate (`cuda`, `hip`, `hip_as_cuda`) names these types for one label. Its backend is
//! started once per process, at the first use, and kept.

mod allocator;
mod device;
mod host;
mod pool;
mod stream;

pub use allocator::{CachingAllocator, DeviceBuffer};
pub use device::Device;
pub use host::{HostAllocator, PinnedBuffer};
pub use pool::{CapturedGraph, GraphCapture, MemoryPool};
pub use stream::{Event, Stream};

use alloc_core::backend::{Backend, Result};
use std::fmt::Debug;
use std::sync::Arc;

/// A label: which backend stands behind the types that carry it.
pub trait Label: Copy + Debug + Send + Sync + 'static {
    /// The backend of this process. Started at the first call, which may block.
    ///
    /// # Errors
    /// The error of [`Name::open`](crate::backends::Name::open); a later call tries again.
    fn backend() -> Result<Arc<dyn Backend>>;
}

/// Declares a module that names the types for one label.
#[cfg(any(feature = "cuda-of-cudarc", feature = "hip", feature = "hip-as-cuda"))]
macro_rules! module {
    ($(#[$doc:meta])* $module:ident, $label:ident, $name:expr) => {
        $(#[$doc])*
        ///
        /// The types are those of [`labelled`](crate::labelled), for this label.
        pub mod $module {
            use $crate::{backends, labelled};
            use alloc_core::backend::{Backend, Result};
            use std::sync::{Arc, Mutex, PoisonError};

            /// The label of this module's types.
            #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
            pub struct $label;

            impl labelled::Label for $label {
                fn backend() -> Result<Arc<dyn Backend>> {
                    static STARTED: Mutex<Option<Arc<dyn Backend>>> = Mutex::new(None);
                    let mut started = STARTED.lock().unwrap_or_else(PoisonError::into_inner);
                    if let Some(backend) = &*started {
                        return Ok(Arc::clone(backend));
                    }
                    let backend = $name.open()?;
                    *started = Some(Arc::clone(&backend));
                    Ok(backend)
                }
            }

            /// A device.
            pub type Device = labelled::Device<$label>;
            /// A stream.
            pub type Stream = labelled::Stream<$label>;
            /// An event.
            pub type Event = labelled::Event<$label>;
            /// The allocator.
            pub type CachingAllocator = labelled::CachingAllocator<$label>;
            /// Memory that frees itself.
            pub type DeviceBuffer<T> = labelled::DeviceBuffer<$label, T>;
            /// A pool of the program's own.
            pub type MemoryPool = labelled::MemoryPool<$label>;
            /// A capture of a stream's work.
            pub type GraphCapture = labelled::GraphCapture<$label>;
            /// Work that can be launched again and again.
            pub type CapturedGraph = labelled::CapturedGraph<$label>;
            /// The allocator of pinned host memory.
            pub type HostAllocator = labelled::HostAllocator<$label>;
            /// Pinned host memory that frees itself.
            pub type PinnedBuffer = labelled::PinnedBuffer<$label>;
        }
    };
}

#[cfg(any(feature = "cuda-of-cudarc", feature = "hip", feature = "hip-as-cuda"))]
pub(crate) use module;
