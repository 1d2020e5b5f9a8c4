//! Which candidate is the answer.

use super::candidate::Effort;
use super::{Card, FirstRefusal, Outcome, Tried};
use serde::Serialize;
use std::cmp::Reverse;

/// The answer for one device.
#[derive(Clone, Debug, Serialize)]
pub struct Verdict {
    /// What the allocator can have of the device's memory, in bytes.
    pub capacity: u64,
    /// The card of which that is so.
    pub card: Option<&'static Card>,
    /// Whether the workload tells. It does not tell where the workload fits, but the memory that the program had
    /// reserved before may not.
    pub known: bool,
    /// How many candidates fit, those without caching left out.
    pub fitting: usize,
    /// The candidate that fits with the fewest options changed. Ties are settled in this order: the fewest retries, the
    /// least memory where memory is no object, the lowest modelled driver time. `None` if nothing fits.
    ///
    /// A change of the program comes after all settings, and another allocator after that. Turning caching off is no answer.
    pub least_change: Option<Choice>,
    /// Where the least change has to flush the cache to fit: the least change that does not.
    pub without_retries: Option<Choice>,
    /// Where nothing fits: the candidate with the fewest refused requests.
    pub nearest: Option<Nearest>,
    /// Where nothing fits but a program without caching: the cost of that.
    pub without_caching: Option<Choice>,
}

/// A candidate that fits, and how to choose it.
#[derive(Clone, Debug, Serialize)]
pub struct Choice {
    /// The candidate's name.
    pub candidate: String,
    /// The allocator's rules: `pytorch` or `granule`.
    pub policy: &'static str,
    /// The options that differ from what the program runs with.
    pub changed_options: Vec<&'static str>,
    /// The exact value of `PYTORCH_CUDA_ALLOC_CONF`; empty for the defaults.
    pub conf: String,
    /// The exact value of `GRANULE_CONF`, where Granule has to be the program's allocator.
    pub granule_conf: Option<String>,
    /// What to do, line by line, for a shell or in the program; empty where nothing has to be changed.
    pub steps: Vec<String>,
    /// Most reserved bytes.
    pub reserved_bytes_peak: i64,
    /// Cache flushes after a failed attempt.
    pub num_alloc_retries: i64,
    /// Modelled driver time in nanoseconds.
    pub modelled_driver_ns: u64,
}

/// A candidate that does not fit.
#[derive(Clone, Debug, Serialize)]
pub struct Nearest {
    /// The candidate's name.
    pub candidate: String,
    /// The exact value of `PYTORCH_CUDA_ALLOC_CONF`.
    pub conf: String,
    /// Requests refused.
    pub refused: u64,
    /// The first of them, where the program would have ended.
    pub first_refusal: Option<FirstRefusal>,
}

/// What is compared: less is better.
///
/// What a candidate takes where there is room says how much is left for what was not recorded: an out-of-memory error's snapshot
/// ends with the error.
type Key = (Effort, i64, i64, u64);

fn key(tried: &Tried, outcome: &Outcome) -> Key {
    let roomy = tried.roomy.reserved_bytes_peak;
    (tried.candidate.effort, outcome.num_alloc_retries, roomy, outcome.modelled_driver_ns)
}

/// The answer for the device whose outcomes are at `index`.
pub(super) fn verdict(tried: &[Tried], index: usize, capacity: u64) -> Verdict {
    let all = || tried.iter().filter_map(|tried| Some((tried, tried.outcomes.get(index)?)));
    let fitting =
        || all().filter(|(tried, outcome)| outcome.fits() && tried.candidate.effort < Effort::NoCaching);
    let least = fitting().min_by_key(|(tried, outcome)| key(tried, outcome));
    let smooth = fitting()
        .filter(|(_, outcome)| outcome.num_alloc_retries == 0)
        .min_by_key(|(tried, outcome)| key(tried, outcome));
    let uncached = all().find(|(tried, outcome)| outcome.fits() && !tried.candidate.caching);
    let retries = least.is_some_and(|(_, outcome)| outcome.num_alloc_retries > 0);
    let nearest = all()
        .filter(|(tried, _)| tried.candidate.effort.is_settings())
        .min_by_key(|(tried, outcome)| (outcome.refused, Reverse(first_event(outcome)), key(tried, outcome)));
    Verdict {
        capacity,
        card: Card::of_capacity(capacity),
        known: true,
        fitting: fitting().count(),
        least_change: least.map(Choice::new),
        without_retries: smooth.filter(|_| retries).map(Choice::new),
        nearest: nearest.filter(|_| least.is_none()).map(|(tried, outcome)| Nearest {
            candidate: tried.candidate.name.clone(),
            conf: tried.candidate.conf.clone(),
            refused: outcome.refused,
            first_refusal: outcome.first_refusal,
        }),
        without_caching: uncached.filter(|_| least.is_none()).map(Choice::new),
    }
}

fn first_event(outcome: &Outcome) -> usize {
    outcome.first_refusal.map_or(usize::MAX, |refusal| refusal.event)
}

impl Verdict {
    /// The same of a workload that is not all that the program needs: that it fits says nothing.
    pub(super) fn of_a_part(self) -> Self {
        if self.least_change.is_none() && self.without_caching.is_none() {
            return self;
        }
        Self {
            known: false,
            fitting: 0,
            least_change: None,
            without_retries: None,
            without_caching: None,
            nearest: None,
            ..self
        }
    }
}

impl Choice {
    fn new((tried, outcome): (&Tried, &Outcome)) -> Self {
        let candidate = &tried.candidate;
        Self {
            candidate: candidate.name.clone(),
            policy: candidate.policy,
            changed_options: candidate.changed_options.clone(),
            conf: candidate.conf.clone(),
            granule_conf: candidate.granule_conf.clone(),
            steps: candidate.steps(),
            reserved_bytes_peak: outcome.reserved_bytes_peak,
            num_alloc_retries: outcome.num_alloc_retries,
            modelled_driver_ns: outcome.modelled_driver_ns,
        }
    }
}

#[cfg(test)]
#[path = "rank/tests.rs"]
mod tests;
