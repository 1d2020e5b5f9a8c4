//! Which candidate is the answer.

use super::candidate::Effort;
use super::{Before, Card, FirstRefusal, Outcome, Tried};
use alloc_core::round::size_text;
use granule_snapshot::convert::RECORD;
use granule_snapshot::trace::Trace;
use serde::Serialize;
use std::cmp::Reverse;

/// The answer for one device.
#[derive(Clone, Debug, Serialize)]
pub struct Verdict {
    /// In a sentence, for people.
    pub text: String,
    /// For a shell: the steps of the least change, line by line; the sentence as a comment where there is nothing to do or
    /// nothing to say. Never empty.
    pub advice: String,
    /// What the allocator can have of the device's memory, in bytes.
    pub capacity: u64,
    /// The card of which that is so.
    pub card: Option<&'static Card>,
    /// Whether the workload tells. It does not where it fits, but is not all of the program: see
    /// [`Answer::doubt`](super::Answer::doubt).
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

/// Why it says nothing of the program that a replay fits.
#[derive(Clone, Debug, Serialize)]
pub struct Doubt {
    /// In words, with what to do about it.
    pub text: String,
    /// What was worked out, in bytes: the most that the replay held from the device, or what `what` says.
    pub replayed: u64,
    /// The most that the program held, where that is recorded.
    pub recorded: Option<u64>,
}

/// The most that a program held from its device while it was recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Held {
    /// Who held it: `PyTorch` or `Granule`.
    pub by: &'static str,
    /// How much, in bytes.
    pub bytes: u64,
}

/// A replay that holds less than this of what the program held, or the program of it, is not one of that program, in percent.
const ALIKE: u128 = 95;

impl Doubt {
    /// Why a recording is not the whole run, in which this was reserved `before`, and what to do about it.
    #[must_use]
    pub fn missing(trace: &Trace, before: Before) -> Option<(&'static str, String)> {
        match () {
            () if trace.is_cut() => Some(("the file was cut", "Fetch it again.".into())),
            () if before != Before::Nothing => Some((
                "the recording is a window of the run",
                format!("Record the run from its start: {RECORD}."),
            )),
            () => trace
                .lacks_pools()
                .then(|| ("the trace does not say which pools served what", "Record the run anew.".into())),
        }
    }

    /// What there is to doubt where `what` (a replay of `trace` under the program's own settings) took `replayed` bytes, and the
    /// program `held`.
    #[must_use]
    pub fn new(what: &str, replayed: u64, held: Option<Held>, trace: &Trace, before: Before) -> Option<Self> {
        let less = |one: u64, other: u64| u128::from(one) * 100 < u128::from(other) * ALIKE;
        let short = held.is_some_and(|held| less(replayed, held.bytes));
        // What was refused is served where there is room.
        let beyond = held.is_some_and(|held| less(held.bytes, replayed)) && trace.refusals().0 == 0;
        let anew = "Record the run anew: granule record -- python train.py.";
        let (why, next) = match Self::missing(trace, before) {
            Some(missing) => missing,
            None if short => ("what took the rest is not in the file", anew.into()),
            None if beyond => ("what kept it lower is not in the file", anew.into()),
            None => return None,
        };
        let theirs = held.map_or_else(
            || "what the program held is not recorded".to_owned(),
            |Held { by, bytes }| format!("{by} held {}", size_text(bytes)),
        );
        let text = format!("{what} {}, {theirs}: {why}. Do not choose by this. {next}", size_text(replayed));
        Some(Self { text, replayed, recorded: held.map(|held| held.bytes) })
    }
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

/// The candidates by what they did on the device whose outcomes are at `index`: the answer first, then those that fit, those with
/// fewer retries before others, and those that are refused least before others.
pub(super) fn ranked<'t>(tried: &'t [Tried], index: usize, verdict: &Verdict) -> Vec<&'t Tried> {
    let best = verdict.least_change.as_ref().map(|choice| choice.candidate.as_str());
    let mut ranked: Vec<&Tried> = tried.iter().collect();
    ranked.sort_by_key(|tried| {
        let outcome = &tried.outcomes[index];
        let refused = (outcome.refused, Reverse(first_event(outcome)));
        let cached = (!tried.candidate.caching, outcome.num_alloc_retries);
        (best != Some(tried.candidate.name.as_str()), refused, cached, key(tried, outcome))
    });
    ranked
}

/// The answer for the device whose outcomes are at `index`. `peak_requested` is what the workload has live at once; `tells` is false where
/// it says nothing of the program that the workload fits; `ends_refused` is true where the program was refused, and asked for no more.
pub(super) fn verdict(
    tried: &[Tried],
    index: usize,
    capacity: u64,
    peak_requested: u64,
    tells: bool,
    ends_refused: bool,
) -> Verdict {
    let all = || tried.iter().filter_map(|tried| Some((tried, tried.outcomes.get(index)?)));
    let fitting =
        || all().filter(|(tried, outcome)| outcome.fits() && tried.candidate.effort < Effort::NoCaching);
    let known = tells || !all().any(|(_, outcome)| outcome.fits());
    let least = fitting().filter(|_| known).min_by_key(|(tried, outcome)| key(tried, outcome));
    let smooth = fitting()
        .filter(|(_, outcome)| outcome.num_alloc_retries == 0)
        .min_by_key(|(tried, outcome)| key(tried, outcome));
    let nothing = known && least.is_none();
    let uncached = all().find(|(tried, outcome)| nothing && outcome.fits() && !tried.candidate.caching);
    let retries = least.is_some_and(|(_, outcome)| outcome.num_alloc_retries > 0);
    let nearest = all()
        .filter(|(tried, _)| nothing && tried.candidate.effort.is_settings())
        .min_by_key(|(tried, outcome)| (outcome.refused, Reverse(first_event(outcome)), key(tried, outcome)));
    let least_change = least.map(Choice::new);
    let card = Card::of_capacity(capacity);
    let memory = size_text(capacity);
    let device =
        card.map_or(memory.clone(), |card| format!("a card of {} ({memory} for the allocator)", card.name));
    let what = match &least_change {
        Some(choice) => choice.headline(),
        None if !known => "not known: the recording does not tell".into(),
        None if peak_requested > capacity => {
            format!("nothing can fit: the program requests {} at once", size_text(peak_requested))
        }
        None => "nothing of what was tried fits".into(),
    };
    let until = if ends_refused && least_change.is_some() { ", up to the refusal" } else { "" };
    let text = format!("On {device}{until}: {what}");
    let steps = least_change.as_ref().map(|choice| choice.steps.join("\n"));
    Verdict {
        advice: steps.filter(|steps| !steps.is_empty()).unwrap_or_else(|| format!("# {text}")),
        text,
        capacity,
        card,
        known,
        fitting: if known { fitting().count() } else { 0 },
        least_change,
        without_retries: smooth.filter(|_| retries).map(Choice::new),
        nearest: nearest.map(|(tried, outcome)| Nearest {
            candidate: tried.candidate.name.clone(),
            conf: tried.candidate.conf.clone(),
            refused: outcome.refused,
            first_refusal: outcome.first_refusal,
        }),
        without_caching: uncached.map(Choice::new),
    }
}

fn first_event(outcome: &Outcome) -> usize {
    outcome.first_refusal.map_or(usize::MAX, |refusal| refusal.event)
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

    fn headline(&self) -> String {
        match (self.policy, self.changed_options.as_slice(), self.steps.as_slice()) {
            (_, _, []) => "fits as it is".into(),
            ("granule", _, _) => {
                "fits with Granule's policy, and with no setting of PyTorch's that was tried".into()
            }
            (_, [], _) => format!("fits with {}, and with no setting that was tried", self.candidate),
            (_, [one], _) => format!("fits with one change, {one}"),
            (_, several, _) => format!("fits with {} changes, {}", several.len(), several.join(" and ")),
        }
    }
}

#[cfg(test)]
#[path = "rank/tests.rs"]
mod tests;
