//! `granule estimate`: what a program needs, found out without a GPU.

mod needs;

use super::{Outcome, write_json};
use crate::child;
use crate::console;
use crate::failure::{Failure, Told, Wrong};
use crate::result_file::ResultFile;
use crate::signals::Signals;
use crate::size::Size;
use crate::table::Table;
use granule::round::size_text;
use granule_analysis::replay::whatif::{CARDS, Card};
use granule_estimate::{
    Drivers, Ended, EstimateError, Program, Recorded, Stopped, Torch, cache, find_program, python_of,
};
use granule_snapshot::trace::{Event, FRACTION, Trace, add_reason, did_without, sizes};
use needs::{Need, needs};
use serde::Serialize;
use std::borrow::Cow;
use std::collections::HashSet;
use std::ffi::OsString;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// What `granule estimate --help` says before the options.
pub(crate) const LONG: &str = "\
Runs a training or inference program without a GPU and says what memory it needs

The program runs unchanged, under the PyTorch of its own Python (a CUDA build, tested with 2.15), on simulated NVIDIA \
drivers, which are compiled once for that PyTorch (g++, half a minute). Every request for device memory is recorded \
and replayed: under PyTorch's own allocator, with its defaults and with expandable segments, and under Granule's.

What is not as on a real device:
  - Kernels compute nothing. What a program reads back from the device is zeros, so a loop that waits for a value does \
not end (--max-iterations, --timeout; transformers' generate does, at its length), and what depends on values (routing, early stopping) goes one way. Times mean nothing.
  - Workspaces of convolutions are made up: for NCHW tensors the bytes of the operands, up to 1 GiB, for NHWC none.
  - Kernels are chosen as for an H100 (compute capability 9.0); attention is flash or memory-efficient, never cuDNN's.
  - Memory that PyTorch's allocator does not hand out is not counted: NCCL's buffers, libraries with allocators of their own, \
other processes. --context stands for the CUDA context and the loaded kernels.
  - NCCL needs a GPU: a program that uses it does not get far. With the backend gloo DistributedDataParallel works \
(init_process_group(\"gloo\"), --devices N).

Ctrl-C ends the program, and what it asked for up to then is evaluated. The smallest device is exact to 2 MiB.";

/// The arguments of `granule estimate`.
#[derive(clap::Args, Clone, Debug)]
#[command(after_help = "\
Examples:
  granule estimate -- python train.py --batch-size 64
  granule estimate --capacity 24GiB -- python train.py     # out of memory there
  granule estimate --max-iterations 5 --stacks -o train.trace.gz -- \\
      python -m package.train
  granule estimate --python .venv/bin/python --json -- \\
      .venv/bin/accelerate launch train.py

Iterations begin behind each step of the first optimizer. A program without one
may call torch.cuda.nvtx.mark(\"iteration\"), which does nothing elsewhere.")]
pub(crate) struct Args {
    /// The command, as you would give it without granule
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<OsString>,

    /// Where the trace goes, gzip'd if the name ends in .gz; each further process or device gets a file beside it
    /// [default: the program's name and .trace.gz, here]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,

    /// Memory of a simulated device: 24GiB, 80G, or bytes; where it is too little, the error leaves a snapshot with stacks in
    /// granule-recording [default: 1TiB]
    #[arg(long, value_name = "SIZE")]
    capacity: Option<Size>,

    /// Keep who asked: a snapshot with stacks is left in granule-recording, as granule record does
    #[arg(long)]
    stacks: bool,

    /// How many devices there are
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=16))]
    devices: u32,

    /// What the CUDA context and loaded kernels take; on real cards from 300 MiB to 1 GiB (nvidia-smi shows it)
    #[arg(long, value_name = "SIZE", default_value = "512MiB")]
    context: Size,

    /// The Python whose PyTorch the command uses [default: the command's own]
    #[arg(long, value_name = "PATH")]
    python: Option<OsString>,

    /// End the program after this many iterations
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    max_iterations: Option<u64>,

    /// Interrupt the program after this many seconds; as Ctrl-C, that ends all that it has started
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..))]
    timeout: Option<u64>,

    /// Print one JSON object; what the program prints goes to standard error
    #[arg(long)]
    json: bool,
}

/// What `--json` prints.
#[derive(Serialize)]
struct Answer<'a> {
    /// This command's.
    version: &'static str,
    command: Vec<String>,
    torch: &'a str,
    /// The program's; null where a signal ended it.
    exit_code: Option<i32>,
    timed_out: bool,
    /// By Ctrl-C or a job manager.
    interrupted: bool,
    /// Why there is nothing in `recordings`; null where there is.
    error: Option<Wrong>,
    /// Bytes of each device that are taken before the first request.
    context: u64,
    /// What was looked at, in bytes as PyTorch reports them.
    cards: &'static [Card],
    recordings: &'a [Found],
}

/// One recording and what it needs. Bytes unless said otherwise.
#[derive(Serialize)]
struct Found {
    pid: u32,
    device: u32,
    /// The trace's file.
    trace: PathBuf,
    events: u64,
    iterations: u64,
    requested_bytes_peak: u64,
    /// Requests that were refused; the figures are of a program that gets that memory, but for what is left out.
    refused: u64,
    /// Which of them are in no figure, and why.
    left_out: Vec<String>,
    needs: Vec<Need>,
}

impl Args {
    fn capacity(&self) -> u64 {
        self.capacity.map_or(1 << 40, |size| size.0)
    }

    /// The program, recorded where somebody wants to know who asked. `lead` starts this command once more.
    fn program(&self, lead: &[String]) -> Result<Program, Failure> {
        let mut command = Vec::new();
        if self.stacks || self.capacity.is_some() {
            let failed = |error| Failure::Program { program: "granule record".into(), error };
            let started = if lead.is_empty() {
                vec![std::env::current_exe().map_err(failed)?.into_os_string()]
            } else {
                lead.iter().map(OsString::from).collect()
            };
            command.extend(started);
            command.push("record".into());
            command.extend((!self.stacks).then(|| "--on-oom".into()));
            command.push("--".into());
        }
        command.extend(self.command.iter().cloned());
        Ok(Program {
            command,
            capacity: self.capacity(),
            devices: self.devices,
            context: self.context.0,
            iterations: self.max_iterations,
            timeout: self.timeout.map(Duration::from_secs),
            quiet: self.json,
        })
    }
}

/// Runs the program, works out what it needs, prints it.
pub(crate) fn run(args: &Args, lead: &[String], out: &mut dyn Write) -> Result<Outcome, Failure> {
    let command = args.command.first().map(OsString::as_os_str).unwrap_or_default();
    if find_program(command).is_none() {
        let error = rustix::io::Errno::NOENT.into();
        return Err(EstimateError::Start { program: command.to_string_lossy().into_owned(), error }.into());
    }
    let python = args.python.clone().unwrap_or_else(|| python_of(command));
    let torch = Torch::find(&python)?;
    // What follows is printed by others.
    out.flush()?;
    let not_started = |error| Failure::Program { program: command.to_string_lossy().into_owned(), error };
    let mut signals = Signals::keep().map_err(not_started)?;
    let drivers = match drivers(&torch, &mut signals) {
        Err(error @ EstimateError::Interrupted { signal }) => {
            console::note(&error);
            let code = u8::try_from(128 + signal).unwrap_or(Failure::EXIT_CODE);
            if args.json {
                write_json(&Told { error: Wrong::new(&error.into(), code) }, out)?;
            }
            return Ok(Outcome::Child(code.into()));
        }
        drivers => drivers?,
    };
    // A place that cannot be written is noticed before the program has run for hours.
    drop(ResultFile::create(args.output.as_deref().unwrap_or(Path::new("estimate.trace.gz")))?);
    let mut ended = args.program(lead)?.run(&drivers, &torch, &mut || signals.received())?;
    drop(signals);
    say_how_it_ended(args, &ended);
    let nothing = ended.recorded.is_empty().then(|| Failure::NothingRecorded(nothing_recorded(&ended)));
    if let Some(failure) = &nothing {
        console::error(failure);
        failure.hint().into_iter().for_each(console::hint);
        if !args.json {
            return Ok(outcome(&ended));
        }
    }
    let found = evaluate(args, &mut ended.recorded)?;
    if args.json {
        write_json(&answer(args, &torch, &ended, &found, nothing.as_ref()), out)?;
    } else {
        print(args, &torch, &ended, &found, out)?;
    }
    Ok(outcome(&ended))
}

fn answer<'a>(
    args: &Args,
    torch: &'a Torch,
    ended: &Ended,
    found: &'a [Found],
    nothing: Option<&Failure>,
) -> Answer<'a> {
    Answer {
        version: env!("CARGO_PKG_VERSION"),
        command: args.command.iter().map(|word| word.to_string_lossy().into_owned()).collect(),
        torch: &torch.version,
        exit_code: ended.status.code(),
        timed_out: ended.stopped == Stopped::Timeout,
        interrupted: ended.stopped == Stopped::Interrupted,
        error: nothing.map(|failure| Wrong::new(failure, Failure::EXIT_CODE)),
        context: args.context.0,
        cards: &CARDS,
        recordings: found,
    }
}

fn drivers(torch: &Torch, signals: &mut Signals) -> Result<Drivers, EstimateError> {
    let mut spinner = None;
    let drivers = Drivers::prepare(&cache()?, torch, &mut || signals.received(), || {
        console::note(format_args!(
            "building simulated drivers for torch {}, once, in half a minute",
            torch.version
        ));
        spinner = Some(console::spinner("building"));
    });
    if let Some(spinner) = spinner {
        spinner.finish_and_clear();
    }
    drivers
}

fn say_how_it_ended(args: &Args, ended: &Ended) {
    if ended.recorded.is_empty() {
        return;
    }
    if ended.stopped == Stopped::Interrupted {
        console::note("the program was interrupted; the figures are those up to then");
    } else if ended.stopped == Stopped::Timeout {
        console::note(format_args!(
            "the program was interrupted after {} s, as --timeout says; the figures are those up to then",
            args.timeout.unwrap_or_default()
        ));
    } else if !ended.status.success() {
        console::warning(format_args!(
            "the program failed ({}); the figures are those up to then",
            ended.status
        ));
    }
}

fn nothing_recorded(ended: &Ended) -> &'static str {
    if ended.stopped != Stopped::No {
        "the program was ended before it asked PyTorch for device memory"
    } else if ended.status.success() {
        "the program asked PyTorch for no device memory"
    } else {
        "the program failed before it asked PyTorch for device memory"
    }
}

/// The program's own failure is the command's; being stopped as one was told is none, and nothing to say about it is one.
fn outcome(ended: &Ended) -> Outcome {
    let status = ended.status;
    if ended.recorded.is_empty() {
        return Outcome::Child(Failure::EXIT_CODE.into());
    }
    if status.success() || ended.stopped != Stopped::No {
        return Outcome::Done;
    }
    Outcome::Child(child::exit_code(status))
}

/// How many requests were refused. That is said, also in the trace.
fn refused(args: &Args, trace: &mut Trace) -> u64 {
    let (count, limit) = trace.refusals();
    if count > 0 {
        let limit = limit.unwrap_or_default();
        let of_the_device = args.capacity().saturating_sub(args.context.0);
        let why = if limit < of_the_device {
            format!(", a part of {}, as {FRACTION} says", size_text(of_the_device))
        } else {
            String::new()
        };
        let said = format!(
            "{count} {} refused when it was recorded: the process could have {}{why}",
            if count == 1 { "request was" } else { "requests were" },
            size_text(limit)
        );
        console::warning(&said);
        add_reason(&mut trace.header, &said);
    }
    count
}

/// More than any device has.
const BEYOND_ALL: u64 = 16 << 40;

/// What the program needs, and what is left out of it: what it did without, and what no device has.
fn demand(trace: &Trace) -> (Cow<'_, Trace>, Vec<String>) {
    let (demand, left) = trace.demand();
    let mut said: Vec<_> = did_without(&left).into_iter().collect();
    let wild: HashSet<u64> = demand
        .events
        .iter()
        .filter_map(|event| match event {
            Event::Alloc { id, size, .. } if *size > BEYOND_ALL => Some(*id),
            _ => None,
        })
        .collect();
    let (had, wild) = demand.without(|id| wild.contains(&id));
    if wild.is_empty() {
        return (demand, said);
    }
    said.push(format!("no device has the {} that were refused: what follows is without them", sizes(&wild)));
    let mut had = had.into_owned();
    had.summarise();
    (Cow::Owned(had), said)
}

/// Writes the traces and replays them.
fn evaluate(args: &Args, recorded: &mut [Recorded]) -> Result<Vec<Found>, Failure> {
    let spinner = console::spinner("working out what it needs");
    let found = recorded.iter_mut().enumerate().map(|(n, one)| {
        let refused = refused(args, &mut one.trace);
        let path = output(args.output.as_deref(), &one.trace, (n > 0).then_some((one.pid, one.device)));
        ResultFile::create(&path)?.write(|file| one.trace.write_plain(file))?;
        let header = &one.trace.header;
        let (asked, left_out) = demand(&one.trace);
        Ok(Found {
            pid: one.pid,
            device: one.device,
            events: header.events.unwrap_or_default(),
            iterations: header.iterations.unwrap_or_default(),
            requested_bytes_peak: asked.header.peak_live_requested.unwrap_or_default(),
            refused,
            left_out,
            needs: needs(&path.to_string_lossy(), &asked, args.context.0)?,
            trace: path,
        })
    });
    let found = found.collect();
    spinner.finish_and_clear();
    found
}

/// The first recording goes where it was told, others beside it, named by process and device.
fn output(given: Option<&Path>, trace: &Trace, other: Option<(u32, u32)>) -> PathBuf {
    const ENDING: &str = ".trace.gz";
    let name = || format!("{}{ENDING}", trace.header.workload.as_deref().unwrap_or("program"));
    let first = given.map_or_else(|| PathBuf::from(name()), Path::to_owned);
    let Some((pid, device)) = other else { return first };
    let name = first.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let endings = [ENDING, ".gz", ".trace"];
    let (stem, ending) =
        endings.iter().find_map(|ending| Some((name.strip_suffix(ending)?, *ending))).unwrap_or((&name, ""));
    first.with_file_name(format!("{stem}.{pid}-{device}{ending}"))
}

fn print(
    args: &Args,
    torch: &Torch,
    ended: &Ended,
    found: &[Found],
    out: &mut dyn Write,
) -> Result<(), Failure> {
    // Where it is not done, more may come.
    let done = ended.stopped == Stopped::No && ended.status.success();
    for one in found {
        let whose = if found.len() > 1 {
            format!("process {}, device {}: ", one.pid, one.device)
        } else {
            String::new()
        };
        let said = format!(
            "{whose}peak requested {}; {}, {}, under torch {}",
            size_text(one.requested_bytes_peak),
            console::counted(one.events, "event"),
            console::counted(one.iterations, "iteration"),
            torch.version
        );
        writeln!(out, "{}", console::wrapped(&said))?;
        for said in &one.left_out {
            writeln!(out, "{}", console::wrapped(&format!("{said}.")))?;
        }
        let mut table = Table::new([
            "allocator",
            "settings",
            "peak reserved",
            "smallest device",
            if done { "fits on a card of" } else { "at least a card of" },
        ]);
        for need in &one.needs {
            table.row([
                need.allocator,
                if need.conf.is_empty() { "default" } else { &need.conf },
                &size_text(need.reserved_bytes_peak),
                &size_text(need.min_capacity),
                &card(need),
            ]);
        }
        table.align_right([2, 3]);
        writeln!(out, "{table}")?;
        if !done {
            writeln!(out, "These figures are lower bounds: the program ended before it was done.")?;
        }
    }
    let said = format!(
        "Cards: what PyTorch reports on the smallest of that size, less {} for the context (--context). Kernels did not run and \
         convolution workspaces are made up: granule estimate --help has the limits.",
        size_text(args.context.0)
    );
    writeln!(out, "{}", console::wrapped(&said))?;
    for one in found {
        writeln!(out, "Trace: {}", one.trace.display())?;
    }
    if let Some(one) = found.first() {
        let trace = one.trace.display();
        writeln!(out, "What next:\n  granule whatif {trace}")?;
        writeln!(out, "  granule inspect {trace}\n  granule report {trace} -o report.html")?;
    }
    Ok(())
}

fn card(need: &Need) -> String {
    match (need.card, need.retries_on_card) {
        (None, _) => "none of these".into(),
        (Some(card), Some(1)) => format!("{}, with a cache flush", card.name),
        (Some(card), Some(retries)) if retries > 0 => format!("{}, with {retries} cache flushes", card.name),
        (Some(card), _) => card.name.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::needs::needs;
    use super::{demand, output};
    use granule_snapshot::trace::{Trace, TraceHeader};
    use std::path::Path;

    #[test]
    fn what_was_refused_is_no_demand_where_the_program_went_on_or_no_device_has_it() {
        let of = |lines: &str| {
            let mut trace = Trace::from_reader(format!("# {{}}\n{lines}").as_bytes()).unwrap();
            trace.summarise();
            let (asked, said) = demand(&trace);
            let needs = needs("one", &asked, 0).unwrap();
            assert!(needs.iter().all(|need| need.card.is_some()));
            (asked.header.peak_live_requested.unwrap(), said)
        };
        let (peak, said) = of("a 0 20000000 0\na 1 1125899906842624 0\nx 1 9\na 2 128000000 0\n");
        assert_eq!((peak, said.len()), (148_000_000, 1));
        assert!(said[0].contains("of 1024.00 TiB; the program went on"), "{said:?}");
        let (peak, said) = of("a 0 20000000 0\na 1 1125899906842624 0\nx 1 9\n");
        assert_eq!(peak, 20_000_000);
        assert!(said[0].contains("no device has the 1024.00 TiB"), "{said:?}");
        assert_eq!(of("a 0 20000000 0\na 1 30000000 0\nx 1 9\n"), (50_000_000, vec![]));
        let wild = "a 1 1125899906842624 0\nx 1 9\na 2 30000000 0\nx 2 9\na 3 35184372088832 0\nx 3 9\n";
        let (peak, said) = of(&format!("a 0 20000000 0\n{wild}"));
        assert_eq!((peak, said.len()), (50_000_000, 1), "only what no device has is left out: {said:?}");
        assert!(said[0].contains("has the 1024.00 TiB, 32.00 TiB that"), "{said:?}");
    }

    #[test]
    fn every_recording_has_a_file_of_its_own() {
        let header = TraceHeader { workload: Some("train".into()), ..TraceHeader::default() };
        let trace = Trace { header, ..Trace::default() };
        let path = |given: Option<&str>, other| output(given.map(Path::new), &trace, other);
        assert_eq!(path(None, None), Path::new("train.trace.gz"));
        assert_eq!(path(None, Some((7, 1))), Path::new("train.7-1.trace.gz"));
        assert_eq!(path(Some("out/a.gz"), None), Path::new("out/a.gz"));
        assert_eq!(path(Some("out/a.gz"), Some((7, 0))), Path::new("out/a.7-0.gz"));
        assert_eq!(path(Some("a"), Some((7, 0))), Path::new("a.7-0"));
    }
}
