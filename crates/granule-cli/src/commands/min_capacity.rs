//! `granule min-capacity`: the smallest device on which nothing is refused.

use super::{Outcome, write_json};
use crate::allocator_args::AllocatorArgs;
use crate::compare::{self, Mark, new_table};
use crate::console;
use crate::failure::Failure;
use crate::size::Size;
use crate::workload::{Workload, WorkloadArgs};
use comfy_table::Cell;
use granule::config::PolicyName;
use granule::policy::PytorchPolicy;
use granule::replay::{MinCapacity, ReplayOptions, min_capacity};
use granule::round::format_bytes;
use serde::Serialize;
use std::io::Write;

/// The step of the search in recorded results, which only compare at that step.
const NATIVE_STEP: u64 = 16 << 20;

/// The arguments of `granule min-capacity`.
#[derive(clap::Args, Clone, Debug)]
#[command(after_help = "\
Examples:
  granule min-capacity train.trace.gz
  granule min-capacity train.trace.gz --conf expandable_segments:True --step 2MiB

The search takes it that more memory never hurts.")]
pub(crate) struct Args {
    #[command(flatten)]
    workload: WorkloadArgs,

    #[command(flatten)]
    allocator: AllocatorArgs,

    /// The largest device considered: 1TiB, 80G, or bytes
    #[arg(long, value_name = "SIZE", default_value = "1TiB")]
    capacity: Size,

    /// How exact the answer is
    #[arg(long, value_name = "SIZE", default_value = "16MiB")]
    step: Size,

    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Answer<'a> {
    policy: &'a str,
    conf: &'a str,
    #[serde(flatten)]
    found: MinCapacity,
    native: Option<Native>,
}

/// PyTorch's own answer, from the trace header.
#[derive(Serialize)]
struct Native {
    min_capacity: u64,
    retries_at_min_capacity: Option<u64>,
}

/// Searches and prints the answer.
pub(crate) fn run(args: &Args, out: &mut dyn Write) -> Result<Outcome, Failure> {
    let workload = Workload::read(&args.workload)?;
    let settings = args.allocator.settings()?;
    let options = ReplayOptions { capacity: args.capacity.0, settings, ..ReplayOptions::default() };
    let spinner = console::spinner("searching the smallest device");
    let width =
        |steps: u64| spinner.set_message(format!("searching the smallest device: {steps} steps left"));
    let found = match options.settings.policy {
        PolicyName::Pytorch => min_capacity::<PytorchPolicy>(&workload.trace, &options, args.step.0, width),
        other => return Err(Failure::Policy(other)),
    };
    spinner.finish_and_clear();
    let found = found.map_err(|error| Failure::replay(&workload.name, error))?;
    let native =
        compare::native_like(&workload.trace.header, &options.settings, None).and_then(|(_, native)| {
            let retries_at_min_capacity = native.retries_at_min_capacity;
            native.min_capacity.map(|min_capacity| Native { min_capacity, retries_at_min_capacity })
        });
    if args.json {
        let policy = options.settings.policy.name();
        write_json(&Answer { policy, conf: &options.settings.text, found, native }, out)?;
    } else {
        print(&workload.name, &found, native.as_ref(), out)?;
    }
    Ok(Outcome::Done)
}

fn print(
    name: &str,
    found: &MinCapacity,
    native: Option<&Native>,
    out: &mut dyn Write,
) -> Result<(), Failure> {
    writeln!(out, "{name}: {} replays, exact to {}", found.replays, format_bytes(found.step))?;
    let mut table = new_table(["figure", "granule", "PyTorch native", ""]);
    // A search in other steps ends elsewhere.
    let comparable = found.step == NATIVE_STEP;
    let mark = |ours: u64, theirs: Option<u64>, bytes: bool| match theirs {
        Some(theirs) if comparable => Mark::new(ours, theirs).text(bytes),
        Some(_) => "found in other steps".into(),
        None => String::new(),
    };
    let theirs = native.map(|n| n.min_capacity);
    table.add_row([
        Cell::new("smallest device"),
        Cell::new(format_bytes(found.min_capacity)),
        Cell::new(theirs.map(format_bytes).unwrap_or_default()),
        Cell::new(mark(found.min_capacity, theirs, true)),
    ]);
    table.add_row([
        Cell::new("in bytes"),
        Cell::new(found.min_capacity),
        Cell::new(theirs.map(|bytes| bytes.to_string()).unwrap_or_default()),
        Cell::new(""),
    ]);
    let theirs = native.and_then(|n| n.retries_at_min_capacity);
    table.add_row([
        Cell::new("retries on it"),
        Cell::new(found.retries_at_min_capacity),
        Cell::new(theirs.map(|count| count.to_string()).unwrap_or_default()),
        Cell::new(mark(found.retries_at_min_capacity.unsigned_abs(), theirs, false)),
    ]);
    compare::align_right(&mut table, [1, 2]);
    writeln!(out, "{table}")?;
    if native.is_none() {
        writeln!(out, "The file has no result of PyTorch's native allocator under these settings.")?;
    }
    Ok(())
}
