//! What other settings would have done with a recorded workload: a grid of candidates × devices, replayed.
//!
//! [`Question::candidates`] are the settings that are tried: those the program runs with, PyTorch's defaults, what people
//! advise each other, a few combinations, the asker's own, and Granule's policy. [`Question::ask`] replays each of them
//! on each device and says per device which is the [least change that fits](Verdict::least_change).
//!
//! Replays run on all threads of rayon's pool; each thread has one engine at a time, and what is kept of a finished replay
//! is an [`Outcome`] of some hundred bytes. So memory is the trace, a second copy of it where it has iteration marks (for
//! `empty_cache` at each of them), and one replay per thread.

mod candidate;
mod capacities;
mod grid;
mod outcome;
mod rank;
mod reliability;
mod smallest;
mod tried;

pub use candidate::{Candidate, Kind};
pub use capacities::{CARDS, CONTEXT, Card, capacities};
pub use grid::{Answer, Before, Progress, Question};
pub use outcome::{FirstRefusal, Outcome};
pub use rank::{Choice, Nearest, Verdict};
pub use reliability::{Effect, NotExact, of_lag, of_snapshot, of_trace};
pub use smallest::{Smallest, SmallestDevice};
pub use tried::Tried;

/// Popular advice that a replay cannot try, and why.
pub const NOT_MODELLED: [&str; 1] =
    ["backend:cudaMallocAsync: the driver's own pools serve requests there, by rules that are not public"];
