//! `granule check`: a recorded run against limits, for continuous integration.

use super::{Outcome, write_json};
use crate::allocator_args::AllocatorArgs;
use crate::console::{self, Listener};
use crate::failure::Failure;
use crate::recording::Recording;
use crate::size::Size;
use crate::workload::{Input, WorkloadArgs};
use granule::round::size_text;
use granule_analysis::Inspection;
use granule_analysis::inspect::{Growth, Marks, Refused};
use granule_analysis::replay::whatif::Doubt;
use granule_snapshot::convert::devices;
use serde::Serialize;
use std::collections::HashSet;
use std::io::Write;
use std::sync::Arc;

/// Iterations in which a program sets up what it keeps: growth counts from the one behind them.
const SETTLING: usize = 2;

/// The arguments of `granule check`.
#[derive(clap::Args, Clone, Debug)]
#[command(group(clap::ArgGroup::new("limits").args(["max_reserved", "max_growth"]).required(true).multiple(true)))]
#[command(override_usage = "granule check [OPTIONS] --max-reserved <SIZE> <TRACE|SNAPSHOT>
       granule check [OPTIONS] --max-growth <PERCENT> <TRACE|SNAPSHOT>")]
#[command(after_help = "\
Examples:
  granule check run7/train.trace.gz --max-reserved 70GiB
  granule check snapshot.pickle --max-reserved 70GiB --max-growth 1%
  granule check snapshot.pickle --max-growth 0.5% --json | jq .exceeded

Growth is what was reserved at most in the last iteration, over that in the
first iteration after the second. A trace is replayed; a snapshot is taken as
it was recorded. That a part of a run is within --max-reserved does not tell
that the run is.

Exit codes: 0 within all limits, 6 a limit is exceeded or a request was
refused, 1 the file cannot be read or does not tell, 2 wrong usage or no
limit.")]
pub(crate) struct Args {
    #[command(flatten)]
    pub(super) workload: WorkloadArgs,

    /// The most that may be reserved: 70GiB, 512MiB, or bytes
    #[arg(long, value_name = "SIZE")]
    max_reserved: Option<Size>,

    /// By how much what is reserved may grow: 1%, 0.5%
    #[arg(long, value_name = "PERCENT", value_parser = parse_percent)]
    max_growth: Option<f64>,

    #[command(flatten)]
    allocator: AllocatorArgs,

    /// The memory of the device that a trace is replayed on [default: that of
    /// the recording]
    #[arg(long, value_name = "SIZE")]
    capacity: Option<Size>,

    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// What `--json` prints.
#[derive(Serialize)]
struct Answer {
    /// Whether nothing is exceeded.
    ok: bool,
    /// Most reserved bytes.
    reserved_peak: u64,
    /// By what part of it reserved memory grew; null where there are too few iterations to say.
    growth: Option<f64>,
    /// Requests that were refused: what was reserved is then less than the run needs.
    refused: usize,
    /// Why the first of them was, in words; null where none was.
    why: Option<String>,
    limits: Limits,
    /// The names of the figures that are beyond their limits.
    exceeded: Vec<&'static str>,
    /// Whether earlier history is missing: the peak may have been higher.
    lower_bounds: bool,
    /// Why it is, and what to do.
    #[serde(skip)]
    missing: Option<(&'static str, String)>,
}

/// Null where none is given.
#[derive(Serialize)]
struct Limits {
    reserved_peak: Option<u64>,
    growth: Option<f64>,
}

/// Looks, and says whether all is within its limits.
pub(crate) fn run(args: &Args, out: &mut dyn Write) -> Result<Outcome, Failure> {
    let loaded = args.workload.load()?;
    let devices = match &loaded {
        Input::Snapshot(snapshot) if args.workload.device().is_none() => devices(snapshot),
        _ => Vec::new(),
    };
    let of_devices = devices.iter().map(|one| args.workload.of_device(one.device));
    let each = if devices.len() > 1 { of_devices.collect() } else { vec![args.workload.clone()] };
    let capacity = args.capacity.map(|size| size.0);
    // What is to be said of several devices is said once.
    let listener = Arc::new(Listener::beside_a_terminal());
    let read = |workload| Ok(look(args, Recording::of(loaded.clone(), workload, &args.allocator, capacity)?));
    let all = listener.during(|| each.iter().map(read).collect::<Result<Vec<_>, Failure>>());
    let mut said = listener.messages();
    let mut known = HashSet::new();
    said.retain(|message| known.insert(message.text.clone()));
    said.iter().for_each(|message| console::say(message.kind, &message.text));
    let all = all?;
    if args.max_growth.is_some() && all.iter().all(|(_, answer)| answer.growth.is_none()) {
        let (name, whole) = (args.workload.file_name(), all.iter().all(|(_, answer)| !answer.lower_bounds));
        return Err(Failure::TooFewIterations { name, whole });
    }
    if !args.json {
        for (name, answer) in &all {
            writeln!(out, "{}", console::fitted(&line(name, answer)))?;
        }
    }
    if let Some(limit) = args.max_reserved
        && all.iter().all(|(_, answer)| answer.ok)
        && let Some((name, answer)) = all.iter().find(|(_, answer)| answer.lower_bounds)
    {
        let (name, reserved, limit) = (name.clone(), answer.reserved_peak, limit.0);
        let (why, next) = answer.missing.clone().unwrap_or_default();
        return Err(Failure::OnlyAPart { name, reserved, limit, why, next, growth: answer.growth.is_some() });
    }
    if let Some((why, next)) = all.iter().find_map(|(_, answer)| answer.missing.clone()) {
        console::note(format_args!("what was reserved besides is not checked: {why}. {next}"));
    }
    let worst = all.into_iter().map(|(_, answer)| answer).reduce(Answer::worse);
    let Some(worst) = worst else { return Ok(Outcome::Done) };
    if args.json {
        write_json(&worst, out)?;
    }
    Ok(if worst.ok { Outcome::Done } else { Outcome::Exceeded })
}

impl Answer {
    /// Of two devices: what is beyond its limit on one is beyond it.
    fn worse(mut self, other: Self) -> Self {
        self.exceeded.extend(other.exceeded);
        self.exceeded.sort_unstable();
        self.exceeded.dedup();
        Self {
            ok: self.ok && other.ok,
            reserved_peak: self.reserved_peak.max(other.reserved_peak),
            growth: self.growth.into_iter().chain(other.growth).reduce(f64::max),
            refused: self.refused + other.refused,
            why: self.why.or(other.why),
            lower_bounds: self.lower_bounds || other.lower_bounds,
            ..self
        }
    }
}

/// What is beyond its limit on one device.
fn look(args: &Args, recording: Recording) -> (String, Answer) {
    let inspection = Inspection::new(&recording.run, &recording.rules(), &[]);
    let growth = growth(&inspection.growth);
    let limits = Limits { reserved_peak: args.max_reserved.map(|size| size.0), growth: args.max_growth };
    let reserved_peak = inspection.run.peak_reserved;
    let mut exceeded = Vec::new();
    exceeded.extend(limits.reserved_peak.filter(|most| reserved_peak > *most).map(|_| "reserved_peak"));
    // What does not fit is within no limit, however little it reserved.
    let refused = recording.run.refusals.len();
    let why = inspection.refused.as_ref().map(Refused::why);
    exceeded.extend((refused > 0).then_some("refused"));
    exceeded.extend(limits.growth.zip(growth).filter(|(most, is)| is > most).map(|_| "growth"));
    let lower_bounds = recording.window;
    let ok = exceeded.is_empty();
    let missing = Doubt::missing(&recording.trace, recording.before).filter(|_| lower_bounds);
    let answer = Answer { ok, reserved_peak, growth, refused, why, limits, exceeded, lower_bounds, missing };
    (recording.name, answer)
}

/// What was reserved in the last iteration over that in the first after the second; `None` where there are too few.
#[allow(clippy::cast_precision_loss)]
fn growth(growth: &Growth) -> Option<f64> {
    let steps = growth.steps.get(SETTLING..).filter(|_| growth.marks != Marks::Slices)?;
    let [first, .., last] = steps else { return None };
    let grown = last.peak_reserved as f64 - first.peak_reserved as f64;
    // One division, as that of a percentage by 100: what grew by just the limit is within it.
    (first.peak_reserved > 0).then(|| grown / first.peak_reserved as f64)
}

fn line(name: &str, answer: &Answer) -> String {
    let verdict = |figure: &str| if answer.exceeded.contains(&figure) { "exceeded" } else { "within" };
    let mut parts = Vec::new();
    let at_least = if answer.lower_bounds { "at least " } else { "" };
    let reserved = format!("{at_least}{}", size_text(answer.reserved_peak));
    parts.push(match answer.limits.reserved_peak {
        Some(most) => {
            format!("{reserved} reserved at most, {} {}", verdict("reserved_peak"), size_text(most))
        }
        None => format!("{reserved} reserved at most"),
    });
    if let Some(growth) = answer.growth {
        let grown = format!("growth {:+.2} %", growth * 100.0);
        parts.push(match answer.limits.growth {
            Some(most) => format!("{grown}, {} {:.2} %", verdict("growth"), most * 100.0),
            None => grown,
        });
    } else if answer.limits.growth.is_some() {
        parts.push("growth not known: too few iterations".into());
    }
    if let Some(why) = &answer.why {
        let requests = if answer.refused == 1 { "request was" } else { "requests were" };
        parts.push(format!("{} {requests} refused: {why}", answer.refused));
    }
    let whole = match () {
        () if !answer.ok => "exceeded",
        () if answer.lower_bounds && answer.limits.reserved_peak.is_some() => "not known",
        () => "ok",
    };
    format!("{whole}: {name}: {}", parts.join("; "))
}

fn parse_percent(text: &str) -> Result<f64, String> {
    let number = text.strip_suffix('%').and_then(|number| number.trim().parse::<f64>().ok());
    match number {
        Some(percent) if percent.is_finite() && percent >= 0.0 => Ok(percent / 100.0),
        _ => Err("write a percentage, for example 1% or 0.5%".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::parse_percent;

    #[test]
    fn percentages_have_their_sign() {
        assert_eq!(parse_percent("1%"), Ok(0.01));
        assert_eq!(parse_percent("0 %"), Ok(0.0));
        for bad in ["1", "%", "-1%", "nan%", "inf%", "one%"] {
            assert!(parse_percent(bad).is_err(), "{bad}");
        }
    }
}
