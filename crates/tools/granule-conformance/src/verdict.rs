//! How a check ends.

use backend_api::{BackendError, Unsupported};
use serde::{Deserialize, Serialize};

/// How a check ends: `Ok` where the rule holds.
pub type Verdict = std::result::Result<(), Stop>;

/// Why a check ended early.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stop {
    /// The rule is broken.
    Failed(String),
    /// The rule does not apply here, and why.
    Skipped(String),
}

/// A driver call that should have worked did not.
impl From<BackendError> for Stop {
    fn from(error: BackendError) -> Self {
        Self::Failed(error.to_string())
    }
}

/// A family that is absent has nothing to check.
impl From<Unsupported> for Stop {
    fn from(absent: Unsupported) -> Self {
        Self::Skipped(absent.to_string())
    }
}

/// Something around the check went wrong: a pipe, a child process.
impl From<std::io::Error> for Stop {
    fn from(error: std::io::Error) -> Self {
        Self::Failed(error.to_string())
    }
}

/// How one check ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "outcome", content = "why", rename_all = "snake_case")]
pub enum Outcome {
    /// The rule holds.
    Passed,
    /// The rule is broken, and how.
    Failed(String),
    /// The rule does not apply, and why.
    Skipped(String),
}

impl Outcome {
    /// How the rule is broken, where it is.
    #[must_use]
    pub fn failure(&self) -> Option<&str> {
        if let Self::Failed(why) = self { Some(why) } else { None }
    }
}
