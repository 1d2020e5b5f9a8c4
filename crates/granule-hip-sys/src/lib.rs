//! HIP declarations made by bindgen, one module per ABI generation, and the loader of libamdhip64.
//!
//! The layouts and numbers of 6 held in 7, which added to them: [`abi6`] fits every library that [`Library::open`] takes, and
//! [`abi7`] one that reports 7. Versions before 6 laid out the same sizes otherwise, and are refused.
//!
//! ```no_run
//! use granule_hip_sys::{Library, abi6};
//!
//! let library = Library::open()?;
//! // SAFETY: the library has these signatures and is never unloaded.
//! let functions = unsafe { abi6::Functions::load(|name| library.symbol(name)) };
//! assert!(functions.hipMalloc.is_some());
//! # Ok::<(), granule_hip_sys::LoadError>(())
//! ```
//!
//! Nothing is linked: building needs neither ROCm nor libclang, and a program that links this crate starts on a machine
//! without either. [`Library::open`] tells where it looks. `cargo xtask bindgen` makes `abi6` anew from
//! headers; `abi7` is an overlay written by hand over `abi6`, whose layouts held.
//!
//! # Why not a public crate
//!
//! Seen in November 2026: `hip-runtime-sys`, `hip-sys`, `hip-rs` and `rocm-rs` link at build time, and their builds fail
//! on a machine without ROCm or libclang. `cubecl-hip-sys` opens the library at run time, but it chooses its declarations
//! on the machine that builds, does not try the names that runtime packages install (`.so.5` to `.so.7`), wants hiprtc
//! too, and aborts the process when a library or a symbol is missing. Its 7.14 declarations are good, and serve here as
//! a second opinion in tests.

// C names, and no comments of the vendor's header.
#[allow(missing_docs, non_camel_case_types, non_snake_case, non_upper_case_globals)]
pub mod abi6;
#[allow(missing_docs, non_camel_case_types, non_snake_case, non_upper_case_globals)]
pub mod abi7;
mod library;
mod version;

pub use library::{Attempt, LIBRARY_VARIABLE, Library, LoadError};
pub use version::Version;
