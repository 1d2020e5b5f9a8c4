//! `granule replay`: a recorded workload, once through the allocator.

mod refusal;

use super::{Outcome, plan, write_json};
use crate::allocator_args::AllocatorArgs;
use crate::backends::{self, Named};
use crate::compare::{self, Conditions, NativeAnswer};
use crate::console::{self, counted};
use crate::failure::Failure;
use crate::result_file::ResultFile;
use crate::size::Size;
use crate::workload::{Workload, WorkloadArgs};
use granule::CachingAllocator;
use granule::backends::Name;
use granule::config::Settings;
use granule::metrics::prometheus;
use granule_analysis::replay::whatif::Doubt;
use granule_analysis::replay::{
    BadCost, Costs, Replay, ReplayOptions, ReplayResult, costs, peak_live, replay, replay_on,
};
use granule_snapshot::pickle::{self, Protocol};
use granule_snapshot::trace::Trace;
use refusal::FirstOom;
use serde::Serialize;
use std::borrow::Cow;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The arguments of `granule replay`.
#[derive(clap::Args, Clone, Debug)]
#[command(after_help = "\
Examples:
  granule replay train.trace.gz
  granule replay train.trace.gz --conf expandable_segments:True --capacity 24GiB
  granule replay train.trace.gz --of-peak 1.02 --lag 1000 \\
      --cost map=10us,create-physical=30us+1ms/GiB
  granule replay train.trace.gz --backend cuda
  granule replay train.trace.gz --plan train.plan.gz --policy granule
  granule replay snapshot.pickle --json | jq .reserved_bytes_peak")]
pub(crate) struct Args {
    #[command(flatten)]
    pub(super) workload: WorkloadArgs,

    #[command(flatten)]
    allocator: AllocatorArgs,

    #[command(flatten)]
    run: RunArgs,

    /// Print the figures as one JSON object
    #[arg(long)]
    json: bool,
}

/// How the replay is done.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct RunArgs {
    /// The device: openreg (simulated), cuda, hip or hip-as-cuda
    #[arg(long, value_name = "NAME", default_value = "openreg", value_parser = backends::parse)]
    backend: Named,

    /// The device's memory: 80GiB, 512MiB or bytes [default: 80GiB simulated, all of a real device]
    #[arg(long, value_name = "SIZE")]
    capacity: Option<Size>,

    /// The same as a multiple of the most bytes live at once: 1.02
    #[arg(long, value_name = "FACTOR", value_parser = parse_factor, conflicts_with = "capacity")]
    of_peak: Option<f64>,

    /// Multiply every request by this
    #[arg(long, value_name = "FACTOR", value_parser = parse_factor)]
    scale: Option<f64>,

    /// Write a snapshot, which pytorch.org/memory_viz opens
    #[arg(long, value_name = "FILE")]
    snapshot: Option<PathBuf>,

    /// Write the figures at the end, for Prometheus
    #[arg(long, value_name = "FILE")]
    metrics: Option<PathBuf>,

    /// Serve requests where a plan of `granule plan` has them, while it fits
    #[arg(long, value_name = "FILE")]
    plan: Option<PathBuf>,

    /// End at the first refused request, with exit code 3
    #[arg(long)]
    stop_on_oom: bool,

    /// How many events the simulated device is behind
    #[arg(long, value_name = "EVENTS", default_value_t = 0)]
    lag: u64,

    /// What simulated driver calls cost: map=20us+1ms/GiB,... or a file: a card's driver.jsonl
    #[arg(long, value_name = "COSTS", default_value = "", hide_default_value = true,
          value_parser = parse_cost)]
    cost: Arc<Costs>,

    /// Let the simulated device have no virtual memory
    #[arg(long)]
    no_virtual_memory: bool,
}

impl RunArgs {
    fn capacity(&self, trace: &Trace) -> Option<u64> {
        #[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        let of_peak = |factor: f64| (peak_live(trace) as f64 * factor).ceil() as u64;
        self.of_peak.map(of_peak).or(self.capacity.map(|size| size.0))
    }

    /// The replay of `trace`, with `history` entries of its history kept.
    fn options(&self, trace: &Trace, settings: Settings, history: usize) -> ReplayOptions {
        ReplayOptions {
            history,
            settings,
            capacity: self.capacity(trace),
            lag: self.lag,
            costs: self.cost.model.clone(),
            no_virtual_memory: self.no_virtual_memory,
            stop_on_oom: self.stop_on_oom,
            ..ReplayOptions::default()
        }
    }
}

/// What `--json` prints.
#[derive(Serialize)]
struct Answer<'a> {
    workload: &'a str,
    /// Absent (null) for the workload in this binary.
    file: Option<Cow<'a, str>>,
    /// This command's.
    version: &'static str,
    /// What is not exact about the workload, and where costs are from.
    notes: Vec<&'a String>,
    backend: Name,
    /// Why it says nothing of the program that this fits.
    doubt: Option<&'a Doubt>,
    #[serde(flatten)]
    result: &'a ReplayResult,
    first_oom: Option<FirstOom<'a>>,
    native: Option<NativeAnswer<'a>>,
}

/// Replays and prints the figures.
pub(crate) fn run(args: &Args, out: &mut dyn Write) -> Result<Outcome, Failure> {
    let Args { workload, allocator, run: args, json } = args;
    let plan = |path: &PathBuf| plan::read(path, &workload.limits()).map(Arc::new);
    let plan = args.plan.as_ref().map(plan).transpose()?;
    let workload = &Workload::read(workload)?;
    let settings = allocator.settings(workload.recording.as_ref())?;
    let file = args.snapshot.as_deref().map(ResultFile::create).transpose()?;
    let metrics = args.metrics.as_deref().map(ResultFile::create).transpose()?;
    let scaled;
    let trace = match args.scale {
        Some(factor) => {
            scaled = workload.trace.scaled(factor);
            &scaled
        }
        None => &workload.trace,
    };
    let history = if file.is_some() { history_entries(workload, &settings) } else { 0 };
    let options = ReplayOptions { plan, ..args.options(trace, settings, history) };
    let replayed = replayed(workload, trace, &options, args)?;
    let conditions = Conditions {
        settings: &options.settings,
        device: args.backend.device(),
        scale: args.scale,
        lag: options.lag,
        costs: &options.costs,
        whole: replayed.result.events == workload.trace.events.len() as u64 && !workload.trace.is_cut(),
        reserved_end: replayed.stats.reserved_bytes.all.current.unsigned_abs(),
    };
    // Files are written whether or not anybody reads the figures, which are there whether or not a file can be written.
    let written = write_files(metrics, file, &replayed.allocator);
    let shown = show(workload, &replayed, &conditions, args, *json, out);
    // The figures come before the messages that explain them.
    let shown = shown.and_then(|()| Ok(out.flush()?));
    written?;
    shown?;
    args.cost.note.iter().for_each(console::note);
    explain(workload, &replayed, args.snapshot.as_deref());
    Ok(outcome(&replayed.result, options.stop_on_oom))
}

/// How the command ends. An answer that a trap makes doubtful is none.
fn outcome(result: &ReplayResult, stop_on_oom: bool) -> Outcome {
    if result.simulated.as_ref().is_some_and(|simulated| simulated.traps > 0) {
        return Outcome::Trapped;
    }
    if stop_on_oom && result.refused > 0 { Outcome::StoppedOnOom } else { Outcome::Done }
}

/// The figures, as a table or as JSON.
fn show(
    workload: &Workload,
    replayed: &Replay,
    conditions: &Conditions<'_>,
    args: &RunArgs,
    json: bool,
    out: &mut dyn Write,
) -> Result<(), Failure> {
    let held = replayed.result.reserved_bytes_peak.unsigned_abs();
    let doubt = workload.doubt("Replay", held, Some(conditions.settings));
    if !json {
        console::doubt(doubt.as_ref(), out)?;
        writeln!(out, "{}", compare::report(workload, &replayed.result, conditions))?;
        return Ok(());
    }
    let answer = Answer {
        workload: &workload.name,
        file: workload.file.as_deref().map(Path::to_string_lossy),
        version: env!("CARGO_PKG_VERSION"),
        notes: workload.notes.iter().chain(&args.cost.note).collect(),
        backend: args.backend.0,
        doubt: doubt.as_ref(),
        result: &replayed.result,
        first_oom: replayed.first_refusal.as_ref().map(FirstOom::from),
        native: compare::native_answer(workload, &replayed.result, conditions),
    };
    write_json(&answer, out)
}

/// Says on standard error what the figures leave open.
fn explain(workload: &Workload, replayed: &Replay, snapshot: Option<&Path>) {
    if let Some(path) = snapshot {
        console::note(format_args!(
            "the snapshot is in {}; https://pytorch.org/memory_viz opens it",
            path.display()
        ));
    }
    if let Some(simulated) = replayed.result.simulated.as_ref().filter(|figures| figures.traps > 0) {
        console::warning(format_args!(
            "the simulated device caught {} of memory after it had left; please report this",
            counted(simulated.traps, "use")
        ));
    }
    refusal::report(replayed.first_refusal.as_ref(), &replayed.result, workload.recording.is_none());
}

/// The replay, on the simulated device or on a real one.
fn replayed(
    workload: &Workload,
    trace: &Trace,
    options: &ReplayOptions,
    args: &RunArgs,
) -> Result<Replay, Failure> {
    let backend = args.backend.open_real().map_err(|error| Failure::backend(args.backend.0, error))?;
    if backend.is_some() && args.lag > 0 {
        console::warning("--lag is ignored: a real device takes the time it takes");
    }
    if backend.is_some() && args.no_virtual_memory {
        console::warning("--no-virtual-memory is ignored: a real device has what it has");
    }
    let bar = console::progress_bar(trace.events.len(), "replaying", "events");
    let progress = |done| bar.set_position(done as u64);
    let replayed = match backend {
        Some(backend) => replay_on(backend, trace, options, progress),
        None => replay(trace, options, progress),
    };
    console::leave(&bar);
    replayed.map_err(|error| Failure::replay(&workload.name, error))
}

fn write_files(
    metrics: Option<ResultFile>,
    snapshot: Option<ResultFile>,
    allocator: &CachingAllocator,
) -> Result<(), Failure> {
    if let Some(metrics) = metrics {
        metrics.write(|to| to.write_all(prometheus::text(allocator).as_bytes()))?;
    }
    if let Some(file) = snapshot {
        let snapshot = allocator.snapshot(true);
        file.write(|to| pickle::write(&snapshot, to, Protocol::default()))?;
    }
    Ok(())
}

fn parse_factor(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(factor) if factor.is_finite() && factor > 0.0 => Ok(factor),
        _ => Err("a factor is a positive number, for example 0.5".into()),
    }
}

/// For every command that takes `--cost`.
pub(super) fn parse_cost(text: &str) -> Result<Arc<Costs>, BadCost> {
    costs(text).map(Arc::new)
}

/// As many as chosen, or enough for every event.
fn history_entries(workload: &Workload, settings: &Settings) -> usize {
    match usize::try_from(settings.history_max_entries) {
        Ok(0) | Err(_) => workload.history_entries(),
        Ok(chosen) => chosen,
    }
}

#[cfg(test)]
mod tests {
    use super::{Outcome, outcome};
    use granule_analysis::replay::{ReplayResult, SimulatedFigures};

    #[test]
    fn a_trap_ends_with_a_code_of_its_own() {
        let result = |traps, refused| {
            let simulated = Some(SimulatedFigures { traps, ..SimulatedFigures::default() });
            ReplayResult { refused, simulated, ..ReplayResult::default() }
        };
        assert!(matches!(outcome(&result(0, 0), true), Outcome::Done));
        assert!(matches!(outcome(&result(0, 1), true), Outcome::StoppedOnOom));
        assert!(matches!(outcome(&result(0, 1), false), Outcome::Done));
        assert!(matches!(outcome(&result(1, 1), true), Outcome::Trapped));
    }
}
