//! How a run is done.

use crate::peer::ChildCommand;
use std::time::Duration;

/// How a run is done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Only checks that one of these parts of names selects ([`Check::matches`](crate::Check::matches)); all where empty.
    pub only: Vec<String>,
    /// Only checks of these areas, by name; all where empty.
    pub areas: Vec<String>,
    /// How long one check may take before it counts as failed.
    pub deadline: Duration,
    /// How long a check waits for what must happen soon.
    pub patience: Duration,
    /// After so many checks of an area that did not end in time, the rest of it is skipped: a backend that stands
    /// still would take the deadline for each of them.
    pub hangs: usize,
    /// Whether an area is run although one that it needs is broken.
    pub keep_going: bool,
    /// How often each check runs; it has failed where one run did. For what goes wrong now and then.
    pub repeat: u32,
    /// How a second process is started. All checks run in one then, so that no backend ends the run. `None` runs them here,
    /// and skips those that need another process.
    pub child: Option<ChildCommand>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            only: Vec::new(),
            areas: Vec::new(),
            deadline: Duration::from_secs(20),
            patience: Duration::from_secs(10),
            hangs: 3,
            keep_going: false,
            repeat: 1,
            child: None,
        }
    }
}

impl Options {
    /// When a closed gate gives up: a check that died must not hold the driver's thread for ever.
    pub(crate) fn gate_limit(&self) -> Duration {
        self.patience * 2
    }

    /// How long a check takes where the backend stands still: until its gate gives up, or the deadline.
    pub(crate) fn standstill(&self) -> Duration {
        self.deadline.min(self.gate_limit())
    }
}
