//! The smallest device on which anything fits.

use super::{Candidate, Tried};
use crate::replay::{MinCapacity, ReplayError, ReplayOptions, min_capacity, replay};
use alloc_core::config::PolicyName;
use alloc_core::types::MIB;
use granule_snapshot::trace::Trace;
use serde::Serialize;

/// The smallest devices, found to 16 MiB. The search assumes that more memory never hurts.
///
/// A candidate that changes more than another counts as smaller only where it saves 1 %.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Smallest {
    /// With a setting of PyTorch's.
    pub pytorch: Option<SmallestDevice>,
    /// With Granule's policy.
    pub granule: Option<SmallestDevice>,
}

/// A device and what fits on it.
#[derive(Clone, Debug, Serialize)]
pub struct SmallestDevice {
    /// The candidate's name.
    pub candidate: String,
    /// The exact value of `PYTORCH_CUDA_ALLOC_CONF`.
    pub conf: String,
    /// The exact value of `GRANULE_CONF`, where Granule has to be the program's allocator.
    pub granule_conf: Option<String>,
    /// What to do, line by line.
    pub steps: Vec<String>,
    /// What was found.
    #[serde(flatten)]
    pub found: MinCapacity,
}

const STEP: u64 = 16 * MIB;

/// `roomy` is a device on which memory is no object.
pub(super) fn smallest(
    trace: &Trace,
    tried: &[Tried],
    roomy: u64,
    lag: u64,
) -> Result<Smallest, ReplayError> {
    let mut candidates: Vec<&Tried> =
        tried.iter().filter(|tried| tried.candidate.effort.is_settings() && tried.roomy.fits()).collect();
    // Of candidates that need the same, the least change.
    candidates.sort_by_key(|tried| tried.candidate.effort);
    let mut found = Smallest::default();
    for tried in candidates {
        let candidate = &tried.candidate;
        let options =
            ReplayOptions { lag, capacity: Some(roomy), unwatched: true, ..ReplayOptions::default() };
        let options = ReplayOptions { settings: candidate.settings.clone(), ..options };
        let best = match candidate.settings.policy_name() {
            PolicyName::Granule => &mut found.granule,
            _ => &mut found.pytorch,
        };
        search(trace, candidate, &options, best)?;
    }
    Ok(found)
}

/// Replaces the best so far where this candidate needs less.
fn search(
    trace: &Trace,
    candidate: &Candidate,
    options: &ReplayOptions,
    best: &mut Option<SmallestDevice>,
) -> Result<(), ReplayError> {
    let mut largest = options.simulated_capacity();
    if let Some(best) = best {
        // One replay says whether the search is worth it.
        let smallest = best.found.min_capacity;
        largest = smallest.saturating_sub(STEP.max(smallest / 100));
        let smaller = ReplayOptions { capacity: Some(largest), stop_on_oom: true, ..options.clone() };
        if largest < best.found.peak_live || replay(trace, &smaller, |_| {})?.result.refused > 0 {
            return Ok(());
        }
    }
    let options = ReplayOptions { capacity: Some(largest), ..options.clone() };
    let found = min_capacity(trace, &options, STEP, |_| {})?;
    *best = Some(SmallestDevice {
        candidate: candidate.name.clone(),
        conf: candidate.conf.clone(),
        granule_conf: candidate.granule_conf.clone(),
        steps: candidate.steps(),
        found,
    });
    Ok(())
}
