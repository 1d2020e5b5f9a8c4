//! What a recorded run did with memory.
//!
//! A [`Run`] is the one model that every tool looks at: each allocation with its life, each stretch of memory that was
//! held from the device, iteration marks, refused requests, call sites. It is made of a snapshot with a history
//! ([`Run::of_snapshot`]), of a trace alone ([`Run::of_trace`], which has no addresses), or of a trace and the snapshot of
//! its replay ([`Run::of_replay`]), which has everything.
//!
//! [`replay`] gives a recorded run to another allocator, other settings or another device, and [`replay::whatif`] looks for the least
//! change that fits.
//!
//! Time is counted in the history's entries: 0 is before the first, and what entry `n` did holds from `n + 1` on.

mod anonymous;
pub mod curve;
pub mod inspect;
pub mod layout;
mod limit;
pub mod replay;
pub mod rules;
pub mod run;

pub use anonymous::Anonymous;
pub use inspect::Inspection;
pub use limit::Limit;
pub use run::Run;
