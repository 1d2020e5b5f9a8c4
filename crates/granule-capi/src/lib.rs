//! Granule's C ABI.
//!
//! `include/granule.h` is made from these sources by `cargo xtask header`; the names here are the names there. Each
//! module is one family of functions over [`CachingAllocator`](granule::CachingAllocator), and does three things only: it
//! checks what C passed (`boundary::pass`), calls the engine (`engine`), and turns what failed into a status and a text
//! (`boundary::guard`, [`error`]). Decisions are the engine's.
//!
//! # What callers promise
//! Said once, at the head of the header, and meant by every `SAFETY` comment here that says "what callers promise": a pointer
//! is null, or points to what its type says, for the length of the call (a handle: until it is destroyed), and nobody else
//! writes there meanwhile. Addresses of device memory are numbers and may be anything. Callbacks and their `user` are good,
//! on any thread, until they are dropped.

// The names are C's.
#![allow(non_camel_case_types)]
// What callers promise is the same for all: it is said above.
#![allow(clippy::missing_safety_doc)]
// Handles are opaque to C, and structs are plain figures.
#![allow(missing_debug_implementations)]

// What C sees, in the order of the header.
pub mod about;
pub mod error;
pub mod last_error;

pub mod bytes;

pub mod allocator;

pub mod pool_id;

pub mod memory;

pub mod watch;

pub mod host;

pub mod device;

pub mod pluggable;

mod boundary;
