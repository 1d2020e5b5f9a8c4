//! Growth from iteration to iteration: what is live at each mark, and who has more live at each than at the one before.

use super::Context;
use super::period::repetition;
use super::place::Caller;
use crate::run::{Iteration, IterationFigures, Moment};
use rustc_hash::FxHashMap;
use serde::Serialize;
use std::cmp::Reverse;

/// Equal parts of a run in which nothing repeats.
const SLICES: u32 = 10;
/// Marks at which counts are compared; of more, so many are taken, as evenly as it goes.
const COMPARED: usize = 256;
/// Growth is looked for over so many steps at least.
const FEWEST_STEPS: usize = 3;

/// What the marks are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Marks {
    /// Iterations that the file has.
    #[default]
    Iterations,
    /// The file has none, but its requests repeat.
    Repetition,
    /// Neither: equal parts of the history.
    Slices,
}

/// Live memory at each mark, and what grows.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Growth {
    /// What the marks are.
    pub marks: Marks,
    /// How many requests repeat, where the marks are told by that.
    pub period: Option<usize>,
    /// From each mark to the next, or to the end of the run.
    pub steps: Vec<Step>,
    /// By how many bytes what is live grows per step, on average, after the first step; negative where it shrinks. `None` where there are too
    /// few steps to say, and where they are slices: where those begin within an iteration is chance.
    pub per_step: Option<i64>,
    /// Who has more live at each mark than at the one before, what grew most first.
    pub suspects: Vec<Suspect>,
}

/// What happened from a mark to the next. Bytes are requested ones, but for those held from the device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Step {
    /// The iteration's number, or the part's.
    pub number: u64,
    /// From when on.
    pub at: Moment,
    /// Live at its begin.
    pub live: u64,
    /// Most that was live in it.
    pub peak_live: u64,
    /// Most that was held from the device in it.
    pub peak_reserved: u64,
    /// Requests that were served.
    pub allocations: u64,
    /// Blocks that were given back.
    pub frees: u64,
}

/// Allocations that grow in number: a leak, or something that is kept on purpose.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Suspect {
    /// Who asks for them, where that is recorded.
    pub caller: Option<Caller>,
    /// Their size, where it is not.
    pub size: Option<u64>,
    /// The text that the program gave them; empty if none.
    pub label: String,
    /// In how many steps there came to be more of them, and never fewer.
    pub grew_in: u64,
    /// Of how many.
    pub steps: u64,
    /// How many there were at the first mark that counts, and how many at the last.
    pub count: [u64; 2],
    /// Their bytes then.
    pub bytes: [u64; 2],
}

impl Suspect {
    /// By how much they grew.
    #[must_use]
    pub const fn grown(&self) -> u64 {
        self.bytes[1].saturating_sub(self.bytes[0])
    }
}

impl Growth {
    pub(super) fn new(context: &Context<'_>) -> Self {
        let run = context.run;
        let (marks, iterations, period) = if run.iterations.len() > 1 {
            (Marks::Iterations, run.iterations.clone(), None)
        } else if let Some((iterations, period)) = repetition(run) {
            (Marks::Repetition, iterations, Some(period))
        } else {
            (Marks::Slices, slices(run.length), None)
        };
        let figures = run.figures_of(&iterations);
        let steps: Vec<Step> = figures.iter().map(Step::from).collect();
        let compared = compared(&steps);
        let per_step = if marks == Marks::Slices { None } else { per_step(&steps) };
        let mut suspects =
            if compared.len() > FEWEST_STEPS { suspects(context, &compared) } else { Vec::new() };
        if marks == Marks::Slices {
            // Parts begin anywhere in what the program does.
            suspects.retain(|suspect| suspect.grew_in == suspect.steps);
        }
        Self { marks, period, steps, per_step, suspects }
    }
}

impl From<&IterationFigures> for Step {
    fn from(figures: &IterationFigures) -> Self {
        Self {
            number: figures.number,
            at: figures.begin,
            live: figures.live_at_begin,
            peak_live: figures.peak_live,
            peak_reserved: figures.peak_reserved,
            allocations: figures.allocations,
            frees: figures.frees,
        }
    }
}

fn slices(length: Moment) -> Vec<Iteration> {
    let at = |part: u32| (u64::from(length) * u64::from(part) / u64::from(SLICES)) as Moment;
    if length < SLICES {
        return Vec::new();
    }
    (0..SLICES).map(|part| Iteration { at: at(part), number: u64::from(part) }).collect()
}

/// The steps without the first, in which a program sets up what it keeps, where enough are left.
fn settled<T>(steps: &[T]) -> &[T] {
    if steps.len() > FEWEST_STEPS + 1 { &steps[1..] } else { steps }
}

fn per_step(steps: &[Step]) -> Option<i64> {
    let steps = settled(steps);
    let [first, .., last] = steps else { return None };
    let by = (i128::from(last.live) - i128::from(first.live)) / (steps.len() as i128 - 1);
    (steps.len() > FEWEST_STEPS)
        .then(|| i64::try_from(by).unwrap_or(if by < 0 { i64::MIN } else { i64::MAX }))
}

/// The moments at which counts are compared.
fn compared(steps: &[Step]) -> Vec<Moment> {
    let steps = settled(steps);
    let taken = steps.len().min(COMPARED);
    let mut moments: Vec<_> =
        (0..taken).map(|n| steps[n * (steps.len() - 1) / taken.saturating_sub(1).max(1)].at).collect();
    moments.dedup();
    moments
}

/// What allocations are counted together: those of a caller, or without one those of a size; with the same text.
type Kind = (u32, u64, u32);

/// Allocations that are alive at some marks: from which on, and up to before which.
struct Kept {
    kind: u32,
    from: u32,
    to: u32,
    size: u64,
}

fn suspects(context: &Context<'_>, marks: &[Moment]) -> Vec<Suspect> {
    let mut kinds: FxHashMap<Kind, u32> = FxHashMap::default();
    let mut names: Vec<Kind> = Vec::new();
    let mut kept: Vec<Kept> = Vec::new();
    for life in &context.run.allocations {
        let from = marks.partition_point(|mark| *mark < life.begin);
        let to = marks.partition_point(|mark| *mark < life.end);
        if from >= to {
            continue;
        }
        let caller = context.callers.number(life.site);
        let kind = (caller, if caller == 0 { life.size } else { 0 }, life.label);
        let number = *kinds.entry(kind).or_insert_with(|| {
            names.push(kind);
            names.len() as u32 - 1
        });
        kept.push(Kept { kind: number, from: from as u32, to: to as u32, size: life.size });
    }
    kept.sort_unstable_by_key(|kept| kept.kind);
    let groups = kept.chunk_by(|a, b| a.kind == b.kind);
    let mut suspects: Vec<_> = groups
        .filter_map(|group| suspect(context, names[group[0].kind as usize], group, marks.len()))
        .collect();
    suspects.sort_by_key(|suspect| Reverse(suspect.grown()));
    suspects
}

/// A suspect if they never become fewer, and become more in most steps.
fn suspect(context: &Context<'_>, kind: Kind, group: &[Kept], marks: usize) -> Option<Suspect> {
    // Changes at each mark.
    let mut counts = vec![0i64; marks + 1];
    let mut bytes = vec![0i128; marks + 1];
    for kept in group {
        counts[kept.from as usize] += 1;
        counts[kept.to as usize] -= 1;
        bytes[kept.from as usize] += i128::from(kept.size);
        bytes[kept.to as usize] -= i128::from(kept.size);
    }
    let steps = &counts[1..marks];
    let grew_in = steps.iter().filter(|change| **change > 0).count();
    if steps.iter().any(|change| *change < 0) || grew_in * 2 <= steps.len() {
        return None;
    }
    let end = |bytes: i128| u64::try_from(bytes).unwrap_or(u64::MAX);
    let (caller, size, label) = kind;
    Some(Suspect {
        caller: (caller != 0).then(|| context.callers.get(caller).clone()),
        size: (caller == 0).then_some(size),
        label: context.label(label),
        grew_in: grew_in as u64,
        steps: steps.len() as u64,
        count: [counts[0].unsigned_abs(), counts[..marks].iter().sum::<i64>().unsigned_abs()],
        bytes: [end(bytes[0]), end(bytes[..marks].iter().sum())],
    })
}
