//! `granule min-capacity`: the smallest device on which nothing is refused.

use super::{Outcome, write_json};
use crate::allocator_args::AllocatorArgs;
use crate::compare::Mark;
use crate::console;
use crate::failure::Failure;
use crate::size::Size;
use crate::table::Table;
use crate::workload::{Workload, WorkloadArgs};
use granule::round::size_text;
use granule_analysis::replay::whatif::Doubt;
use granule_analysis::replay::{
    LargerDevices, MinCapacity, ReplayOptions, larger_devices, min_capacity, peak_live,
};
use serde::Serialize;
use std::borrow::Cow;
use std::io::Write;
use std::path::Path;

/// The step of the search in recorded results, which only compare at that step.
const NATIVE_STEP: u64 = 16 << 20;

/// The arguments of `granule min-capacity`.
#[derive(clap::Args, Clone, Debug)]
#[command(after_help = "\
Examples:
  granule min-capacity train.trace.gz
  granule min-capacity train.trace.gz --conf expandable_segments:True \\
      --step 2MiB

The search takes it that more memory never hurts; --try-larger looks.")]
pub(crate) struct Args {
    #[command(flatten)]
    pub(super) workload: WorkloadArgs,

    #[command(flatten)]
    allocator: AllocatorArgs,

    /// The largest device considered: 1TiB, 80G, or bytes
    #[arg(long, value_name = "SIZE", default_value = "1TiB")]
    capacity: Size,

    /// How exact the answer is
    #[arg(long, value_name = "SIZE", default_value = "16MiB")]
    step: Size,

    /// Try N larger devices, too, up to 1.1 times
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true)]
    try_larger: u64,

    /// How many events the device's work is behind; 0 completes everything at once
    #[arg(long, value_name = "EVENTS", default_value_t = 0)]
    lag: u64,

    /// Let the device have no virtual memory, as some devices do
    #[arg(long)]
    no_virtual_memory: bool,

    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Answer<'a> {
    workload: &'a str,
    file: Option<Cow<'a, str>>,
    /// This command's.
    version: &'static str,
    /// What is not exact about the workload.
    notes: &'a [String],
    policy: &'a str,
    conf: &'a str,
    lag: u64,
    /// Why the device is no smallest one of the program.
    doubt: Option<&'a Doubt>,
    #[serde(flatten)]
    found: MinCapacity,
    /// Absent (null) where that larger devices serve, too, is only assumed.
    larger: Option<LargerDevices>,
    native: Option<Native>,
}

/// PyTorch's own answer, from the trace header.
#[derive(Serialize)]
struct Native {
    min_capacity: u64,
    retries_at_min_capacity: Option<u64>,
    /// `same` or `differs`; null where the answers are not to be compared.
    verdict: Option<&'static str>,
}

/// Searches and prints the answer.
pub(crate) fn run(args: &Args, out: &mut dyn Write) -> Result<Outcome, Failure> {
    let workload = Workload::read(&args.workload)?;
    let settings = args.allocator.settings(workload.recording.as_ref())?;
    let step = useful_step(args.step.0, &workload);
    let options = ReplayOptions {
        capacity: Some(args.capacity.0),
        settings,
        lag: args.lag,
        no_virtual_memory: args.no_virtual_memory,
        ..ReplayOptions::default()
    };
    let spinner = console::spinner("searching the smallest device");
    let width =
        |steps: u64| spinner.set_message(format!("searching the smallest device: {steps} steps left"));
    let found = min_capacity(&workload.trace, &options, step, width);
    let found = found.and_then(|found| {
        let larger = (args.try_larger > 0)
            .then(|| larger_devices(&workload.trace, &options, found.min_capacity, args.try_larger));
        Ok((found, larger.transpose()?))
    });
    spinner.finish_and_clear();
    let (found, larger) = found.map_err(|error| Failure::replay(&workload.name, error))?;
    let comparable = found.step == NATIVE_STEP && options.lag == 0 && !workload.trace.is_cut();
    let recorded = workload.native_like(&options.settings, None);
    let native = recorded.and_then(|(_, native)| {
        let min_capacity = native.min_capacity?;
        let verdict = if found.min_capacity == min_capacity { "same" } else { "differs" };
        Some(Native {
            min_capacity,
            retries_at_min_capacity: native.retries_at_min_capacity,
            verdict: comparable.then_some(verdict),
        })
    });
    let doubt = workload.doubt("Smallest device", found.min_capacity, Some(&options.settings));
    if args.json {
        let policy = options.settings.policy_name().name();
        let answer = Answer {
            workload: &workload.name,
            file: workload.file.as_deref().map(Path::to_string_lossy),
            version: env!("CARGO_PKG_VERSION"),
            notes: &workload.notes,
            policy,
            conf: &options.settings.text,
            lag: options.lag,
            doubt: doubt.as_ref(),
            found,
            larger,
            native,
        };
        write_json(&answer, out)?;
    } else {
        console::doubt(doubt.as_ref(), out)?;
        print(&workload.name, (&found, larger.as_ref()), native.as_ref(), comparable, out)?;
    }
    Ok(Outcome::Done)
}

/// Steps larger than the workload would only say that one step is enough.
fn useful_step(step: u64, workload: &Workload) -> u64 {
    let peak = peak_live(&workload.trace);
    if step <= peak || step <= NATIVE_STEP {
        return step;
    }
    console::warning(format_args!(
        "--step {} is larger than the workload, which has up to {} live at once; searching in steps of {}",
        size_text(step),
        size_text(peak),
        size_text(NATIVE_STEP)
    ));
    NATIVE_STEP
}

fn print(
    name: &str,
    (found, larger): (&MinCapacity, Option<&LargerDevices>),
    native: Option<&Native>,
    comparable: bool,
    out: &mut dyn Write,
) -> Result<(), Failure> {
    writeln!(
        out,
        "{name}: {}, exact to {}",
        console::counted(found.replays, "replay"),
        size_text(found.step)
    )?;
    let mut table = Table::new(["figure", "granule", "PyTorch native", ""]);
    let mark = |ours: u64, theirs: Option<u64>, bytes: bool| match theirs {
        Some(theirs) if comparable => Mark::new(ours, theirs).text(bytes, theirs),
        // A search in other steps, or on a device that is behind, ends elsewhere.
        Some(_) => "not compared".into(),
        None => String::new(),
    };
    let theirs = native.map(|n| n.min_capacity);
    let native_text = |text: fn(u64) -> String, theirs: Option<u64>| theirs.map(text).unwrap_or_default();
    table.row([
        "smallest device",
        &size_text(found.min_capacity),
        &native_text(size_text, theirs),
        &mark(found.min_capacity, theirs, true),
    ]);
    let bytes = found.min_capacity.to_string();
    table.row(["in bytes", &bytes, &native_text(|bytes| bytes.to_string(), theirs), ""]);
    let theirs = native.and_then(|n| n.retries_at_min_capacity);
    table.row([
        "retries on it",
        &found.retries_at_min_capacity.to_string(),
        &native_text(|count| count.to_string(), theirs),
        &mark(found.retries_at_min_capacity.unsigned_abs(), theirs, false),
    ]);
    let repeating = if found.repeating_iterations > 0 {
        found.device_wide_waits_in_repeating_iterations.to_string()
    } else {
        "none repeats".into()
    };
    table.row(["device-wide waits in repeating iterations", &repeating, "", ""]);
    #[allow(clippy::cast_precision_loss)]
    let time = console::format_time(found.modelled_driver_ns as f64);
    table.row(["modelled driver time on it", &time, "", ""]);
    let refuse = larger.map_or_else(
        || "assumed to serve".into(),
        |larger| format!("{} of {} refuse", larger.refused.len(), larger.tried),
    );
    table.row(["larger devices", &refuse, "", ""]);
    table.align_right([1, 2]);
    writeln!(out, "{table}")?;
    if native.is_none() {
        writeln!(out, "The file has no result of PyTorch's native allocator under these settings.")?;
    }
    Ok(())
}
