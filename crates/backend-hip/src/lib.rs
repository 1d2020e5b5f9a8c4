//! AMD's HIP runtime as a Granule backend, loaded at run time.
//!
//! [`Hip::load`](DriverBackend::load) finds the runtime's library; nothing is linked when Granule is built, and a machine without
//! ROCm gets a typed error that says what was looked for.
//!
//! # The library
//!
//! [`granule_hip_sys::Library::open`] says where it is looked for; the environment variable `GRANULE_HIP_LIBRARY` names
//! one file instead, and then only that is tried. All functions are looked up once; the library stays loaded
//! until the process ends. HIP 6 and newer serve the required part; an
//! older library is refused by its version. A family is absent, with the reason, where a
//! function of it is missing or its probe fails.
//!
//! # Versions
//!
//! What differs between releases is decided by the version that the loaded library reports, never when Granule is
//! built: how a descriptor is passed to the import of physical memory (by pointer up to 7.0), and which attributes there
//! are. Virtual memory needs attribute 89, and one whole cycle that works.
//!
//! # What is here
//!
//! The backend itself is [`backend_support::DriverBackend`], as for CUDA. This crate finds the runtime, makes its calls, and
//! holds what is HIP's alone: what differs between versions, and what the runtime does not check or tell
//! ([`Abilities`](backend_support::Abilities)).
//!
//! # Where HIP needs a word
//!
//! * The current device is the thread's. A call about another device sets that one and puts the one before back on
//!   every exit.
//! * The runtime keeps the last error for the thread. A failed call of this backend clears it, and leaves alone an
//!   error that is the program's own.
//! * What the runtime does not check, or not in every version, is checked here: frees of what is no live base, IPC
//!   handles for virtual memory (which can bring the exporter's kernel driver down), giving up addresses in which
//!   something is mapped, blocking copies during a capture.
//! * Unmaps and changes of access go to the runtime one mapping at a time; what was done is undone where a later
//!   one fails.
//! * Every physical handle holds a file descriptor. "Out of memory" with nearly all descriptors open is reported
//!   as `ResourceLimit`.
//! * A host function launched into a capture runs when the graph is launched first, once: a Rust closure can be
//!   called one time only. It is dropped with the graph.
//! * `copy` waits for the null stream of the device, because the runtime's own blocking copies may return early.
//! * After one of the fatal errors (an illegal address, a failed launch, ...) every call about the device answers
//!   the same error, without asking the runtime.

#[cfg(test)]
mod scripted;

mod descriptors;
mod device;
mod driver;
mod error;
mod graph;
mod layout;
mod library;
mod mapping;
mod memory;
mod processes;
mod sharing;
mod stream;
mod virtual_memory;

use backend_support::DriverBackend;
pub use granule_hip_sys::LIBRARY_VARIABLE;
pub use processes::processes;

/// AMD's HIP runtime as a [`Backend`](backend_api::Backend). [`granule_hip_sys::Library::open`] says where the runtime is looked
/// for; the environment variable `GRANULE_HIP_LIBRARY` names one file instead.
pub type Hip = DriverBackend<library::HipDriver>;
