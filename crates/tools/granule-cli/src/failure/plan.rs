//! Why `granule plan` makes no plan, and why one cannot be read.

use granule_planner::csv::TableError;
use granule_planner::{PlanError, ReadError, RecordingError, SolveError};
use std::io;
use std::path::PathBuf;

/// Why there is no plan.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NoPlan {
    #[error("{}: {error}; check the path and that you may read the file", path.display())]
    Open { path: PathBuf, error: io::Error },
    #[error("{}: {error}", path.display())]
    Table { path: PathBuf, error: TableError },
    #[error("{}: {error}", path.display())]
    Read { path: PathBuf, error: ReadError },
    #[error("{workload}: {error}")]
    Recording { workload: String, error: RecordingError },
    #[error("{workload}: {error}")]
    Plan { workload: String, error: PlanError },
}

impl NoPlan {
    /// What to do next, where the message does not say it.
    pub(crate) fn hint(&self) -> Option<String> {
        match self {
            Self::Read { error: ReadError::Json(_), .. } => {
                Some("granule plan TRACE --iteration N -o FILE makes a plan".into())
            }
            Self::Recording { error: RecordingError::NoIteration(_), .. } => {
                Some("leave out --iteration for the whole trace".into())
            }
            Self::Plan { error: PlanError::Solve(error), .. } => match error {
                SolveError::Load { max_load, .. } => {
                    Some(format!("--capacity {max_load} is the least worth a try"))
                }
                SolveError::Unknown { .. } => Some("give it more --time-limit or more --capacity".into()),
                SolveError::NotIntervals => Some("--solver auto uses all that can be done".into()),
                _ => None,
            },
            _ => None,
        }
    }
}
