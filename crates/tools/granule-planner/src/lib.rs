//! Offline placement: where to put allocations that are known in advance, so that they need as little memory as
//! possible (dynamic storage allocation).
//!
//! - [`Problem`]: buffers with a size and a lifetime; lifetimes are intervals, or say for every stream from when on
//!   it may use the bytes again, and may go on behind the end of a period;
//! - [`solve`]: lower bound, greedy orders, improvement by trial, exact search; whatever it returns has passed
//!   [`verify`], which shares no code with the solvers;
//! - [`Recording`], [`Pattern`]: the problem of a recorded trace, or of one of its iterations;
//! - [`Plan`], [`PlanCursor`]: a placement in terms of what a program asks for, and how to follow it while the
//!   program runs.
//!
//! Nothing here knows a device or an allocator.

mod cursor;
mod file;
mod pattern;
mod plan;
mod problem;
mod recording;
mod solve;

pub mod csv;
pub mod verify;

pub use cursor::{Advice, CursorCounts, PlanCursor};
pub use file::ReadError;
pub use pattern::{Pattern, Planned};
pub use plan::{BadPlan, Plan, PlanError, Step};
pub use problem::{Buffer, Placement, Problem, ProblemError};
pub use recording::{CrossStream, Recording, RecordingError};
pub use solve::bounds::max_load;
pub use solve::{Method, Options, Solution, SolveError, Solver, solve};
