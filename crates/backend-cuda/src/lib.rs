//! The NVIDIA driver API as a Granule backend, loaded at run time.
//!
//! [`Cuda::load`](DriverBackend::load) finds the driver's library; nothing is linked when Granule is built, and a machine without
//! NVIDIA's driver gets a typed error that says what was looked for.
//!
//! # The library
//!
//! `libcuda.so.1` and then `libcuda.so` are tried, in the system's search order. The environment variable
//! `GRANULE_CUDA_LIBRARY` names one file instead, and then only that is tried. Declarations are cudarc's; its
//! loader is not used, because it panics where the library or a function is missing, and because it tries
//! `libcuda.so` first, which is the toolkit's stub on many machines. All functions are looked up once, in the
//! one library that was chosen; the library stays loaded until the process ends. Drivers from CUDA 11.4 on
//! serve the required part. A family is absent, with the reason, where a function of it is missing or its
//! probe fails.
//!
//! # Contexts
//!
//! Only primary contexts are used: retained when a device is first needed, given up when the [`Cuda`] is
//! dropped. A call whose device's context is not the thread's current one pushes it and pops it again on
//! every exit. A thread without a context has device 0 as its current device.
//!
//! # What is here
//!
//! The backend itself is [`backend_support::DriverBackend`], as for HIP. This crate finds the driver and makes its calls.
//!
//! # Where CUDA needs a word
//!
//! * A host function launched into a capture runs when the graph is launched first, once: a Rust closure can
//!   be called one time only. It is dropped with the graph.
//! * The driver does not tell how large an imported physical handle is: its size is known once it is mapped.
//! * `copy` waits for the null stream of the device, because the driver's own blocking copies may return
//!   early (from pageable memory, and between device addresses).
//! * After one of the fatal errors (an illegal address, a failed launch, ...) every call about the device
//!   answers the same error, without asking the driver.

#[cfg(test)]
mod scripted;

mod device;
mod driver;
mod error;
mod graph;
mod library;
mod management;
mod memory;
mod sharing;
mod stream;
mod symbols;
mod virtual_memory;

use backend_support::DriverBackend;
pub use library::{LIBRARY_VARIABLE, version_text};
pub use management::{MANAGEMENT_VARIABLE, Management};

/// The NVIDIA driver as a [`Backend`](backend_api::Backend). The environment variable `GRANULE_CUDA_LIBRARY` names its
/// library where it is none of the usual ones. Loading creates no context. The version is CUDA's: 12010 is 12.1.
pub type Cuda = DriverBackend<library::CudaDriver>;
