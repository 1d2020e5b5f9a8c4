//! The device contract as a test kit.
//!
//! Every rule of [`backend_api`] is a named [`Check`]; a run over a backend gives a [`Scorecard`]. A
//! backend in or out of this tree runs the kit in a program of its own:
//!
//! ```no_run
//! use backend_api::{Backend, Result};
//! use backend_openreg::{Clock, MemoryMode, OpenReg, OpenRegConfig};
//! use std::sync::Arc;
//!
//! fn open() -> Result<Arc<dyn Backend>> {
//!     let config = OpenRegConfig::default().memory(MemoryMode::Mapped).clock(Clock::Workers);
//!     Ok(OpenReg::new(config)?)
//! }
//!
//! fn main() -> std::process::ExitCode {
//!     granule_conformance::main("openreg", open)
//! }
//! ```
//!
//! What a backend needs for it: streams that run beside the host (the kit holds one still with a host function that waits,
//! or as [`Subject::held_by`] says), and memory that keeps its bytes. A family that the backend does not offer is skipped
//! with the backend's own reason. Checks that need a second process start this program again ([`child`]). With such a process at hand all
//! checks run in one, so that a backend that corrupts memory ends a check and not the run.
//!
//! That the kit fails when it should is proved by its own test (`tests/kit`), over backends that are wrong in
//! one way each, made with [`interpose`]. Each of these mutants is caught by the check that it names, and
//! every check fails on one of them at least. `cargo test -p granule-conformance --test kit -- matrix` prints which
//! check catches what; with `GRANULE_LONG=1` every mutant meets every check, not only those of its own area.

mod check;
pub mod checks;
mod context;
mod guide;
pub mod interpose;
mod options;
mod peer;
mod program;
mod runner;
mod scorecard;
mod service;
mod subject;
mod verdict;

pub use check::{Area, Check};
pub use context::{Buffer, Context, Gate, HostBuffer, LocalEvent, LocalStream};
pub use options::Options;
pub use program::{main, main_over};
pub use runner::run;
pub use scorecard::{Line, Scorecard, Scored, Tally};
pub use subject::{Hold, Subject};
pub use verdict::{Outcome, Stop, Verdict};

/// The second process: this program again, over a backend of its own.
pub mod child {
    pub use crate::peer::{ChildCommand, is_child};
    pub use crate::service::{BACKTRACE, serve};
}
