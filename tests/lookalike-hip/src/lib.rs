//! A `libamdhip64.so` over the simulated accelerator.
//!
//! Entry points have the names and signatures of AMD's runtime; every one is asserted to have the type that
//! `granule-hip-sys` took from its header. What a version of the runtime lacks, the library does not export: see
//! [`exports`].
//!
//! Where the runtime lets wrong programs go on or kills them (freeing memory that queued work uses, garbage
//! for a handle, a descriptor where a pointer to one is due), this one answers with an error and counts a
//! trap (`granule_lookalike_traps`).
//!
//! # Personalities
//!
//! `GRANULE_LOOKALIKE=personality=NAME`: see [`personality`].
//!
//! # What is its own choice
//!
//! Opening memory of another process that is open already is refused with 17: the runtime promises no
//! second address that means the same, and a program must not ask for one. A synchronous copy is done
//! whatever is captured, as before 7.14.

#![allow(non_snake_case, reason = "entry points have their vendor's names")]
#![allow(non_upper_case_globals, reason = "the vendor's constants are matched against")]

pub mod capture;
pub mod codes;
pub mod context;
pub mod copy;
pub mod device;
pub mod entry;
pub mod event;
pub mod exports;
pub mod host;
pub mod imports;
pub mod ipc;
pub mod last_error;
pub mod memory;
pub mod peers;
pub mod personality;
pub mod pointer;
pub mod proc_address;
pub mod properties;
pub mod stream;
pub mod virtual_memory;
