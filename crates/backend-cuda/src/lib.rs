//! The NVIDIA driver API as a Granule backend, loaded at run time.
//!
//! [`Cuda::load`] finds the driver's library; nothing is linked when Granule is built, and a machine without
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
//! # Where CUDA needs a word
//!
//! * A host function launched into a capture runs when the graph is launched first, once: a Rust closure can
//!   be called one time only. It is dropped with the graph.
//! * The driver does not tell how large an imported physical handle is: its size is known once it is mapped.
//! * `copy` waits for the null stream of the device, because the driver's own blocking copies may return
//!   early (from pageable memory, and between device addresses).
//! * After one of the fatal errors (an illegal address, a failed launch, ...) every call about the device
//!   answers the same error, without asking the driver.
//! * A multicast object is given up with [`VirtualMemory::release_physical`], which takes its handle's value.
//!
//! [`VirtualMemory::release_physical`]: backend_api::VirtualMemory::release_physical

#[macro_use]
mod driver;

mod capture;
mod context;
mod contract;
mod copy;
mod cuda;
mod device;
mod error;
mod event;
mod host;
mod host_function;
mod ipc;
mod library;
mod managed;
mod memory;
mod multicast;
mod peers;
mod physical;
mod pools;
mod probe;
mod stream;
mod stream_memory;
mod symbols;
mod virtual_memory;

#[cfg(test)]
mod scripted;

pub use cuda::Cuda;
pub use library::LIBRARY_VARIABLE;
