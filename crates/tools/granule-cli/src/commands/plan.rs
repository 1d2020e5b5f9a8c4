//! `granule plan`: where to put a program's requests, worked out in advance.

use super::{Outcome, write_json};
use crate::console::{self, counted};
use crate::failure::Failure;
use crate::failure::plan::NoPlan;
use crate::result_file::ResultFile;
use crate::size::Size;
use crate::table;
use crate::workload::{Workload, WorkloadArgs};
use clap::ValueEnum;
use granule::round::size_text;
use granule_analysis::replay::whatif::Doubt;
use granule_planner::csv::{self, Table};
use granule_planner::{CrossStream, Options, Pattern, Plan, PlanError, Recording, Solution, Solver, solve};
use granule_snapshot::pickle::Limits;
use serde::Serialize;
use std::borrow::Cow;
use std::fs::File;
use std::io::{BufReader, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The arguments of `granule plan`.
#[derive(clap::Args, Clone, Debug)]
#[command(after_help = "\
Examples:
  granule plan train.trace.gz --iteration 2 -o train.plan.gz
  granule plan train.trace.gz --across-streams --json
  granule plan A.csv --capacity 1MiB -o A.solution.csv

A file whose name ends in .csv is a table of buffers with the columns
id,lower,upper,size (lower is included, upper is not); its result is a table
id,offset.")]
pub(crate) struct Args {
    #[command(flatten)]
    pub(super) workload: WorkloadArgs,

    /// Where the plan goes, gzip'd if the name ends in .gz
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,

    /// Plan one iteration, which is expected to come again and again, instead of the whole trace
    #[arg(long, value_name = "N")]
    iteration: Option<u64>,

    /// Any placement up to this is good enough [default: as low as possible]
    #[arg(long, value_name = "SIZE", value_parser = Size::parse)]
    capacity: Option<Size>,

    /// What may be tried
    #[arg(long, value_name = "SOLVER", value_enum, default_value_t = SolverName::Auto)]
    solver: SolverName,

    /// When to be content with the best placement found
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    time_limit: u64,

    /// What sizes are rounded up to; a table's are taken as they are
    #[arg(long, value_name = "SIZE", default_value = "512B")]
    alignment: Size,

    /// Let streams reuse each other's memory at once; whoever follows the plan makes them wait for each other
    #[arg(long)]
    across_streams: bool,

    /// For orders that leave something to chance
    #[arg(long, value_name = "NUMBER", default_value_t = 0)]
    seed: u64,

    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum SolverName {
    /// All that the problem needs
    Auto,
    /// The best of some greedy orders
    Greedy,
    /// Greedy orders, improved by trial
    Improve,
    /// Exact search, for one stream
    Exact,
}

impl From<SolverName> for Solver {
    fn from(name: SolverName) -> Self {
        match name {
            SolverName::Auto => Self::Auto,
            SolverName::Greedy => Self::Greedy,
            SolverName::Improve => Self::Improve,
            SolverName::Exact => Self::Exact,
        }
    }
}

/// What `--json` prints.
#[derive(Serialize)]
struct Answer<'a> {
    workload: &'a str,
    file: Cow<'a, str>,
    /// This command's.
    version: &'static str,
    /// What is not exact about the workload.
    notes: &'a [String],
    /// Null for a whole trace and for a table.
    iteration: Option<u64>,
    streams: usize,
    across_streams: bool,
    requests: usize,
    /// Requests with a place.
    planned: usize,
    alignment: u64,
    /// Held throughout, and not in the plan.
    resident_bytes: u64,
    max_load: u64,
    height: u64,
    /// height / max_load.
    ratio: f64,
    /// Whether no placement is lower.
    optimal: bool,
    method: &'static str,
    seconds: f64,
    /// Of the sizes and streams in order; null for a table.
    pattern: Option<String>,
    /// Why the plan is not one of the whole program.
    doubt: Option<Doubt>,
}

/// Makes the plan, prints what it is worth and writes it.
pub(crate) fn run(args: &Args, out: &mut dyn Write) -> Result<Outcome, Failure> {
    let path = args.workload.input();
    let result = args.output.as_deref().map(ResultFile::create).transpose()?;
    let is_table = path.extension().is_some_and(|ending| ending.eq_ignore_ascii_case("csv"));
    if is_table { run_table(args, path, result, out) } else { run_trace(args, path, result, out) }
}

/// Reads a plan that this command wrote.
pub(super) fn read(path: &Path, limits: &Limits) -> Result<Plan, NoPlan> {
    let file = File::open(path).map_err(|error| NoPlan::Open { path: path.to_owned(), error })?;
    Plan::read_with(file, limits).map_err(|error| NoPlan::Read { path: path.to_owned(), error })
}

fn options(args: &Args) -> Options {
    Options {
        capacity: args.capacity.map(|size| size.0),
        time_limit: Some(Duration::from_secs(args.time_limit)),
        solver: args.solver.into(),
        seed: args.seed,
    }
}

/// Runs the solver under a spinner, and says how long it took.
fn timed<T>(what: String, work: impl FnOnce() -> T) -> (T, f64) {
    let spinner = console::spinner(what);
    let start = Instant::now();
    let done = work();
    spinner.finish_and_clear();
    (done, start.elapsed().as_secs_f64())
}

fn run_table(
    args: &Args,
    path: &Path,
    result: Option<ResultFile>,
    out: &mut dyn Write,
) -> Result<Outcome, Failure> {
    let file = File::open(path).map_err(|error| NoPlan::Open { path: path.to_owned(), error })?;
    let table =
        csv::read(BufReader::new(file)).map_err(|error| NoPlan::Table { path: path.to_owned(), error })?;
    let name = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned();
    let Table { ids, problem } = &table;
    let (solution, seconds) =
        timed(format!("placing {}", counted(ids.len(), "buffer")), || solve(problem, &options(args)));
    let solution =
        solution.map_err(|error| NoPlan::Plan { workload: name.clone(), error: PlanError::Solve(error) })?;
    let answer = Answer {
        workload: &name,
        file: path.to_string_lossy(),
        version: env!("CARGO_PKG_VERSION"),
        notes: &[],
        iteration: None,
        streams: 1,
        across_streams: args.across_streams,
        requests: ids.len(),
        planned: ids.len(),
        alignment: 1,
        resident_bytes: 0,
        max_load: solution.bound,
        height: solution.placement.height,
        ratio: ratio(&solution),
        optimal: solution.is_optimal(),
        method: solution.method.name(),
        seconds,
        pattern: None,
        doubt: None,
    };
    if let Some(result) = result {
        result.write(|file| csv::write(&table, &solution.placement, file))?;
    }
    show(args, &answer, out)?;
    Ok(Outcome::Done)
}

fn run_trace(
    args: &Args,
    path: &Path,
    result: Option<ResultFile>,
    out: &mut dyn Write,
) -> Result<Outcome, Failure> {
    let workload = Workload::read(&args.workload)?;
    let cross = if args.across_streams { CrossStream::Waits } else { CrossStream::Ordered };
    let refused = |error| NoPlan::Recording { workload: workload.name.clone(), error };
    let recording = Recording::new(&workload.trace, cross).map_err(refused)?;
    let pattern = match args.iteration {
        Some(n) => Pattern::iteration(&recording, n),
        None => Pattern::whole(&recording),
    };
    let pattern = pattern.map_err(refused)?;
    let make = || Plan::make(&workload.name, &pattern, args.alignment.0, args.across_streams, &options(args));
    let (made, seconds) = timed(format!("placing {}", counted(pattern.requests(), "request")), make);
    let (plan, solution) = made.map_err(|error| NoPlan::Plan { workload: workload.name.clone(), error })?;
    let answer = Answer {
        workload: &workload.name,
        file: path.to_string_lossy(),
        version: env!("CARGO_PKG_VERSION"),
        notes: &workload.notes,
        iteration: plan.iteration,
        streams: plan.streams,
        across_streams: plan.waits,
        requests: plan.steps().len(),
        planned: solution.placement.offsets.len(),
        alignment: plan.alignment,
        resident_bytes: plan.resident_bytes,
        max_load: plan.max_load,
        height: plan.height,
        ratio: ratio(&solution),
        optimal: solution.is_optimal(),
        method: solution.method.name(),
        seconds,
        pattern: Some(format!("{:016x}", plan.pattern())),
        doubt: plan.iteration.is_none().then(|| workload.doubt("Plan", plan.height, None)).flatten(),
    };
    if let Some(result) = result {
        result.write(|file| plan.write(file))?;
    }
    show(args, &answer, out)?;
    Ok(Outcome::Done)
}

#[allow(clippy::cast_precision_loss)]
fn ratio(solution: &Solution) -> f64 {
    // Nothing placed in nothing is as good as it gets.
    if solution.bound == 0 { 1.0 } else { solution.placement.height as f64 / solution.bound as f64 }
}

fn show(args: &Args, answer: &Answer<'_>, out: &mut dyn Write) -> Result<(), Failure> {
    if args.json {
        return write_json(answer, out);
    }
    console::doubt(answer.doubt.as_ref(), out)?;
    let part = answer.iteration.map(|n| format!(", iteration {n}")).unwrap_or_default();
    let streams = match (answer.streams, answer.across_streams) {
        (1, _) => String::new(),
        (streams, true) => format!(", {streams} streams that wait for each other"),
        (streams, false) => format!(", {streams} streams"),
    };
    let said = format!("{}{part}: {}{streams}", answer.workload, counted(answer.requests, "request"));
    writeln!(out, "{}", console::fitted(&said))?;
    let mut table = table::Table::new(["figure", "", "in bytes"]);
    for (figure, bytes) in [
        ("live at once, at most", answer.max_load),
        ("planned memory", answer.height),
        ("held from before, unplanned", answer.resident_bytes),
    ] {
        if bytes > 0 {
            table.row([figure, &size_text(bytes), &bytes.to_string()]);
        }
    }
    table.align_right([1, 2]);
    writeln!(out, "{table}")?;
    let left = answer.requests - answer.planned;
    if left > 0 {
        let (have, they_are) = if left == 1 { ("has", "it is") } else { ("have", "they are") };
        let left = counted(left, "request");
        let said = format!("{left} {have} no place in the plan: {they_are} held until made again.");
        writeln!(out, "{}", console::fitted(&said))?;
    }
    let best = if answer.optimal {
        "no placement is lower".into()
    } else {
        format!("{:.3} % above what is live at once", (answer.ratio - 1.0) * 100.0)
    };
    writeln!(out, "Found by {}: {best}.", answer.method)?;
    Ok(())
}
