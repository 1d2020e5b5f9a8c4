//! What other settings would have done with a recorded workload: a grid of candidates × devices, replayed.
//!
//! [`Question::candidates`] are the settings that are tried: the program's own, PyTorch's defaults, popular advice, a
//! few combinations, the asker's own, and Granule's policy. [`Question::ask`] replays each candidate on each device. It
//! says per device which is the [least change that fits](Verdict::least_change).
//!
//! Replays run on all threads of rayon's pool. Each thread has one engine at a time, and a finished replay leaves an
//! [`Outcome`] of some hundred bytes. So memory is needed for the trace and for one replay per thread. A trace with
//! iteration marks needs memory for a second copy, too (for `empty_cache` at each mark).

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
pub use rank::{Choice, Doubt, Held, Nearest, Verdict};
pub use reliability::{Effect, NotExact, of_backend, of_difference, of_lag, of_snapshot, of_trace};
pub use smallest::{Smallest, SmallestDevice};
pub use tried::Tried;

/// Popular advice that a replay cannot try, and why.
pub const NOT_MODELLED: [&str; 1] =
    ["backend:cudaMallocAsync: the driver's own pools serve requests there, by rules that are not public"];
