//! What a candidate did on every device.

use super::{Candidate, Outcome};
use serde::Serialize;

/// A candidate and what it did.
#[derive(Clone, Debug, Serialize)]
pub struct Tried {
    /// What was tried.
    #[serde(flatten)]
    pub candidate: Candidate,
    /// Where memory is no object.
    pub roomy: Outcome,
    /// Per device, in the order of [`Answer::verdicts`](super::Answer::verdicts).
    pub outcomes: Vec<Outcome>,
}
