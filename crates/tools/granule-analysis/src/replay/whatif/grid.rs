//! The replays: every candidate on every device, on all threads.

use super::candidate::{candidates, has_iterations};
use super::rank::{ranked, verdict};
use super::smallest::{Smallest, smallest};
use super::{Candidate, Doubt, Held, Kind, NOT_MODELLED, Outcome, Tried, Verdict, capacities};
use crate::replay::{CostModel, ReplayError, ReplayOptions, peak_live, replay};
use alloc_core::config::{OptionInfo, PolicyName, Settings, options};
use alloc_core::types::GIB;
use granule_snapshot::trace::{Event, Trace, did_without};
use rayon::prelude::*;
use serde::Serialize;
use std::collections::BTreeMap;

/// What is asked.
#[derive(Clone, Debug)]
pub struct Question {
    /// What the program runs with.
    pub current: Settings,
    /// More settings to try.
    pub own: Vec<Settings>,
    /// Whose rules are tried.
    pub policies: Vec<PolicyName>,
    /// Devices, by their memory in bytes; empty for [`capacities`].
    pub capacities: Vec<u64>,
    /// The memory of the device that the recording is of, where that is known.
    pub recorded_capacity: Option<u64>,
    /// What the program had reserved when the workload begins.
    pub before: Before,
    /// The most that the program held from its device, where that is recorded.
    pub held: Option<Held>,
    /// Why nothing is known of devices that nobody chose: a limit that is not known refused requests.
    pub limited: Option<String>,
    /// How many events a stream's work is behind; 0 completes everything at once.
    pub lag: u64,
    /// What driver calls cost.
    pub costs: CostModel,
    /// The newest release of PyTorch that the program can run with, where it has not all options: those that came later are
    /// not advised.
    pub newest_release: Option<(u16, u16)>,
}

/// What a program had reserved when its workload begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Before {
    /// Nothing: the workload is the program's from its start.
    #[default]
    Nothing,
    /// So many bytes, and the program needed some of them.
    Bytes(u64),
    /// The bytes are not recorded.
    Unknown,
}

impl Before {
    /// Bytes, as far as they are known.
    #[must_use]
    pub const fn bytes(self) -> Option<u64> {
        match self {
            Self::Nothing => Some(0),
            Self::Bytes(bytes) => Some(bytes),
            Self::Unknown => None,
        }
    }
}

impl Default for Question {
    fn default() -> Self {
        Self {
            current: Settings::default(),
            own: Vec::new(),
            policies: PolicyName::ALL.to_vec(),
            capacities: Vec::new(),
            recorded_capacity: None,
            before: Before::Nothing,
            held: None,
            limited: None,
            lag: 0,
            costs: CostModel::default(),
            newest_release: None,
        }
    }
}

/// What is going on.
#[derive(Clone, Copy, Debug)]
pub enum Progress {
    /// The grid begins: this many events are to be replayed.
    Grid {
        /// Replays.
        replays: usize,
        /// Events of all of them together.
        events: u64,
    },
    /// So many more events are done.
    Events(u64),
    /// The grid is done, and something did not fit: the smallest device is searched.
    Smallest,
}

/// The answer. Sizes are bytes.
#[derive(Clone, Debug, Serialize)]
pub struct Answer {
    /// Why it says nothing of the program that something fits; `None` where it does.
    pub doubt: Option<Doubt>,
    /// Which requests were refused when it was recorded, and are no part of the answer: the program did without.
    pub did_without: Option<String>,
    /// Whether the program was refused and asked for no more: what it would ask for later is not known.
    pub ends_refused: bool,
    /// Most requested bytes live at once: no device can be smaller.
    pub peak_requested: u64,
    /// Reserved when the workload begins; `None` where that is not recorded.
    pub reserved_before: Option<u64>,
    /// Events of the workload.
    pub events: u64,
    /// Whether the workload says where iterations begin.
    pub has_iterations: bool,
    /// How many events the device's work was behind.
    pub lag: u64,
    /// The memory of the device for [`Tried::roomy`], on which memory is no object.
    pub roomy_capacity: u64,
    /// Replays of the grid.
    pub replays: usize,
    /// One verdict per device, ascending.
    pub verdicts: Vec<Verdict>,
    /// Where some device fits nothing.
    pub smallest: Option<Smallest>,
    /// What was tried, by what it did on the smallest device that has an answer, else on the largest: the answer first.
    pub candidates: Vec<Tried>,
    /// Popular advice that was not tried, and why.
    pub not_tried: Vec<String>,
}

impl Answer {
    /// The candidates by what they did on the device of the verdict at `index`: the answer first.
    #[must_use]
    pub fn ranked(&self, index: usize) -> Vec<&Tried> {
        ranked(&self.candidates, index, &self.verdicts[index])
    }
}

impl Question {
    /// What a piece of advice would change that the program's release does not have.
    fn lacking(&self, candidate: &Candidate) -> Vec<&'static OptionInfo> {
        let advised = candidate.kind != Kind::Yours;
        let changed = |option: &&OptionInfo| advised && candidate.changed_options.contains(&option.name);
        let newer = |option: &&OptionInfo| self.newest_release.is_some_and(|newest| option.since > newest);
        options().iter().filter(changed).filter(newer).collect()
    }

    fn not_tried(&self, trace: &Trace) -> Vec<String> {
        let mut reasons: Vec<String> = NOT_MODELLED.iter().map(|&reason| reason.to_owned()).collect();
        if !has_iterations(trace) {
            let why = "the recording does not say where iterations begin";
            reasons.push(format!("torch.cuda.empty_cache() at every iteration: {why}"));
        }
        let all = candidates(&self.current, &self.own, &self.policies, trace);
        let lacking: BTreeMap<_, _> =
            all.iter().flat_map(|one| self.lacking(one)).map(|option| (option.name, option.since)).collect();
        reasons.extend(lacking.iter().map(|(name, (major, minor))| {
            format!("{name}: it came with PyTorch {major}.{minor}, and the recording is of an older one")
        }));
        reasons
    }

    /// Replays everything. Uses all threads of rayon's pool and blocks until all is done; `progress` is called from them.
    ///
    /// # Errors
    /// What [`replay`] gives. Refused requests are no error.
    pub fn ask(&self, trace: &Trace, progress: &(dyn Fn(Progress) + Sync)) -> Result<Answer, ReplayError> {
        let whole = trace;
        let (demand, survived) = whole.demand();
        let trace = &*demand;
        let peak_requested = peak_live(trace);
        // What is left of the refused requests had no other behind it.
        let ends_refused = !trace.served().1.is_empty();
        let devices = self.devices(peak_requested);
        let roomy = roomy(peak_requested, &devices, self.recorded_capacity);
        let mut on = devices.clone();
        on.push(roomy);
        on.dedup();
        let candidates = self.candidates(trace);
        let replays = candidates.len() * on.len();
        let mut outcomes = self.outcomes(&candidates, &on, trace, progress)?;
        // Events are counted as the file has them.
        for first in outcomes.iter_mut().filter_map(|outcome| outcome.first_refusal.as_mut()) {
            first.event += survived.partition_point(|one| one.at < first.event);
        }
        let mut outcomes = outcomes.into_iter();
        let candidates: Vec<Tried> = candidates
            .into_iter()
            .map(|candidate| {
                let mut outcomes: Vec<Outcome> = outcomes.by_ref().take(on.len()).collect();
                let roomy = outcomes.last().cloned().unwrap_or_default();
                outcomes.truncate(devices.len());
                Tried { candidate, roomy, outcomes }
            })
            .collect();
        let current = candidates.iter().find(|tried| tried.candidate.kind == Kind::Current);
        // Of other settings it is no wonder that they hold less.
        let (replayed, held) = match current.or(candidates.first()) {
            Some(tried) => (tried.roomy.held(), self.held.filter(|_| current.is_some())),
            None => (0, None),
        };
        let limited =
            || Some(Doubt { text: self.limited.clone()?, replayed, recorded: held.map(|held| held.bytes) });
        let doubt = Doubt::new("Replay", replayed, held, whole, self.before).or_else(limited);
        let on_device = |(index, capacity): (usize, &u64)| {
            verdict(&candidates, index, *capacity, peak_requested, doubt.is_none(), ends_refused)
        };
        let verdicts: Vec<Verdict> = devices.iter().enumerate().map(on_device).collect();
        // Of a part of the program, the smallest device is not the program's.
        let smallest = if doubt.is_none() && verdicts.iter().any(|verdict| verdict.least_change.is_none()) {
            progress(Progress::Smallest);
            Some(smallest(trace, &candidates, roomy, self.lag)?)
        } else {
            None
        };
        let decides = verdicts.iter().position(|one| one.least_change.is_some());
        let decides = decides.or(verdicts.len().checked_sub(1));
        let candidates = match decides {
            Some(index) => ranked(&candidates, index, &verdicts[index]).into_iter().cloned().collect(),
            None => candidates,
        };
        Ok(Answer {
            doubt,
            did_without: did_without(&survived),
            ends_refused,
            peak_requested,
            reserved_before: self.before.bytes(),
            events: trace.events.len() as u64,
            has_iterations: has_iterations(trace),
            lag: self.lag,
            roomy_capacity: roomy,
            replays,
            verdicts,
            smallest,
            candidates,
            not_tried: self.not_tried(trace),
        })
    }

    /// The candidates, without doubles: the current settings first, Granule's policy and caching off last.
    #[must_use]
    pub fn candidates(&self, trace: &Trace) -> Vec<Candidate> {
        let mut all = candidates(&self.current, &self.own, &self.policies, trace);
        all.retain(|candidate| self.lacking(candidate).is_empty());
        all
    }

    /// The devices that are asked about, ascending.
    fn devices(&self, peak_requested: u64) -> Vec<u64> {
        let mut devices = match self.capacities.as_slice() {
            [] => {
                let need = peak_requested.max(self.before.bytes().unwrap_or(0));
                capacities(need, self.recorded_capacity)
            }
            chosen => chosen.to_vec(),
        };
        devices.sort_unstable();
        devices.dedup();
        devices
    }

    /// Candidate by candidate, what each did on every device.
    fn outcomes(
        &self,
        candidates: &[Candidate],
        devices: &[u64],
        trace: &Trace,
        progress: &(dyn Fn(Progress) + Sync),
    ) -> Result<Vec<Outcome>, ReplayError> {
        let flushed = candidates.iter().any(|c| c.empty_cache_each_iteration).then(|| flushing(trace));
        let jobs: Vec<(&Candidate, u64)> = candidates
            .iter()
            .flat_map(|candidate| devices.iter().map(move |device| (candidate, *device)))
            .collect();
        let length = |candidate: &Candidate| trace_of(candidate, trace, flushed.as_ref()).events.len() as u64;
        let events = jobs.iter().map(|(candidate, _)| length(candidate)).sum();
        progress(Progress::Grid { replays: jobs.len(), events });
        let options = ReplayOptions {
            lag: self.lag,
            costs: self.costs.clone(),
            unwatched: true,
            ..ReplayOptions::default()
        };
        jobs.par_iter()
            // One at a time, so that no thread is left with several long ones.
            .with_max_len(1)
            .map(|(candidate, capacity)| {
                let trace = trace_of(candidate, trace, flushed.as_ref());
                attempt(candidate, trace, *capacity, &options, progress)
            })
            .collect()
    }
}

/// A device on which memory is no object: at least twice what is requested at once, and at least all that are asked about.
fn roomy(peak: u64, devices: &[u64], recorded: Option<u64>) -> u64 {
    let wanted = peak.saturating_mul(2).max(recorded.unwrap_or(80 * GIB));
    devices.last().map_or(wanted, |largest| wanted.max(*largest))
}

fn trace_of<'t>(candidate: &Candidate, trace: &'t Trace, flushed: Option<&'t Trace>) -> &'t Trace {
    flushed.filter(|_| candidate.empty_cache_each_iteration).unwrap_or(trace)
}

/// The trace of a program that calls `empty_cache` at the end of every iteration.
fn flushing(trace: &Trace) -> Trace {
    let marks = trace.events.iter().filter(|event| matches!(event, Event::Iteration { .. })).count();
    let mut events = Vec::with_capacity(trace.events.len() + marks);
    let mut begun = false;
    for event in &trace.events {
        if matches!(event, Event::Iteration { .. }) && std::mem::replace(&mut begun, true) {
            events.push(Event::EmptyCache);
        }
        events.push(*event);
    }
    Trace { header: trace.header.clone(), events }
}

fn attempt(
    candidate: &Candidate,
    trace: &Trace,
    capacity: u64,
    options: &ReplayOptions,
    progress: &(dyn Fn(Progress) + Sync),
) -> Result<Outcome, ReplayError> {
    let options =
        ReplayOptions { settings: candidate.settings.clone(), capacity: Some(capacity), ..options.clone() };
    let mut told = 0;
    let progress = |done: usize| {
        progress(Progress::Events((done - told) as u64));
        told = done;
    };
    let replayed = replay(trace, &options, progress)?;
    Ok(Outcome::new(replayed.result, replayed.first_refusal.as_ref()))
}

#[cfg(test)]
#[path = "grid/tests.rs"]
mod tests;
