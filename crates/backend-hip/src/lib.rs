//! AMD's HIP runtime as a Granule backend, loaded at run time.
//!
//! [`Hip::load`] finds the runtime's library; nothing is linked when Granule is built, and a machine without
//! ROCm gets a typed error that says what was looked for.
//!
//! # The library
//!
//! [`hip_sys::Library::open`] says where it is looked for; the environment variable `GRANULE_HIP_LIBRARY` names
//! one file instead, and then only that is tried. All functions are looked up once; the library stays loaded
//! until the process ends. HIP 5 and newer serve the required part. A family is absent, with the reason, where a
//! function of it is missing or its probe fails.
//!
//! # Versions
//!
//! What differs between releases is decided by the version that the loaded library reports, never when Granule is
//! built: the numbers of the kinds of memory, the flag for peers of shared memory, how a descriptor is passed to
//! the import of physical memory (by pointer up to 7.0), and which attributes there are. Virtual memory needs
//! HIP 6 (5 has another property struct), attribute 89, and one whole cycle that works.
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

#[macro_use]
mod driver;

mod capture;
mod context;
mod contract;
mod copy;
mod descriptors;
mod device;
mod error;
mod event;
mod hip;
mod host;
mod host_function;
mod ipc;
mod layout;
mod library;
mod managed;
mod mapping;
mod memory;
mod peers;
mod physical;
mod pools;
mod probe;
#[cfg(test)]
mod scripted;
mod stream;
mod stream_memory;
mod virtual_memory;

pub use hip::Hip;
pub use hip_sys::LIBRARY_VARIABLE;
