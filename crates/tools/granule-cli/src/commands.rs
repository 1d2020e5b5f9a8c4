//! The commands. Each has a file with its arguments and a `run`; here they are named and nothing more.

mod check;
#[cfg(feature = "full")]
mod conformance;
#[cfg(feature = "full")]
mod estimate;
#[cfg(feature = "full")]
pub(crate) mod export;
mod inspect;
mod left_out;
mod machine;
mod min_capacity;
mod plan;
mod record;
mod replay;
mod report;
mod screen;
#[cfg(feature = "full")]
mod shell;
mod whatif;

use crate::console;
use crate::failure::Failure;
use crate::workload::{self, WorkloadArgs};
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use machine::{devices, doctor};
use serde::Serialize;
#[cfg(feature = "full")]
use shell::{completions, man};
use std::ffi::{OsStr, OsString};
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;
use tracing_subscriber::filter::LevelFilter;

/// One device-memory allocator for every accelerator.
///
/// With a file, says on one screen what took its memory and what would help; without one, of a recording that comes with it.
#[derive(Debug, Parser)]
#[command(name = "granule", version, after_help = MORE, override_usage = "granule [FILE | COMMAND]")]
pub(crate) struct Cli {
    #[command(subcommand)]
    command: Option<Command>,

    /// What the user calls this program.
    #[arg(skip)]
    program: String,

    /// What starts this command again, before its own words; empty where the executable alone does.
    #[arg(skip)]
    lead: Vec<String>,
}

impl Cli {
    /// Reads a command line.
    ///
    /// # Errors
    /// It is not one, or asks for help.
    pub(crate) fn read(words: &[OsString]) -> Result<Self, clap::Error> {
        let mut words = words.to_vec();
        if words.get(1).is_some_and(|word| is_file(word)) {
            words.insert(1, "show".into());
        }
        let matches = command().try_get_matches_from(&words);
        let matches = matches.map_err(|error| left_out::explain(error, left_out::NAMES))?;
        let mut cli = Self::from_arg_matches(&matches)?;
        cli.program =
            words.first().map_or_else(|| "granule".into(), |word| word.to_string_lossy().into_owned());
        Ok(cli)
    }

    /// The same where the executable is another's, and `lead` starts the command.
    #[must_use]
    pub(crate) fn behind(self, lead: &[String]) -> Self {
        Self { lead: lead.to_vec(), ..self }
    }

    /// The recording that the command reads, where it reads one.
    pub(crate) fn workload(&mut self) -> Option<&mut WorkloadArgs> {
        match self.command.as_mut()? {
            Command::Show(args) => Some(&mut args.workload),
            Command::Replay(args) => Some(&mut args.workload),
            Command::MinCapacity(args) => Some(&mut args.workload),
            Command::Plan(args) => Some(&mut args.workload),
            Command::Inspect(args) => Some(&mut args.workload),
            Command::Check(args) => Some(&mut args.workload),
            Command::Whatif(args) => Some(&mut args.workload),
            Command::Report(args) => Some(&mut args.workload),
            #[cfg(feature = "full")]
            Command::Export(args) => Some(&mut args.workload),
            _ => None,
        }
    }

    /// What is logged where the environment does not say it. A conformance run makes calls fail on purpose: its
    /// scorecard says what is wrong, and the warnings would not be news.
    pub(crate) fn log_level(&self) -> LevelFilter {
        match self.command {
            #[cfg(feature = "full")]
            Some(Command::Conformance(_)) => LevelFilter::OFF,
            // Nobody has the devices that these make up.
            None
            | Some(Command::Show(_) | Command::MinCapacity(_) | Command::Plan(_) | Command::Inspect(_))
            | Some(Command::Check(_) | Command::Whatif(_) | Command::Report(_)) => LevelFilter::ERROR,
            _ => LevelFilter::WARN,
        }
    }
}

/// Whether a first word means a file: it is there, or is written like one. A command's name always means the command.
fn is_file(word: &OsStr) -> bool {
    let text = word.to_string_lossy();
    let is_command = left_out::NAMES.contains(&&*text)
        || Cli::command().get_subcommands().any(|command| command.get_name() == text);
    !is_command && !text.starts_with('-') && (text.contains(['/', '.']) || Path::new(word).exists())
}

/// The command line as clap knows it. Help fits a terminal; a negative number is a value, so that the option says what is wrong
/// with it.
pub(crate) fn command() -> clap::Command {
    let command = Cli::command().term_width(console::WIDTH.into()).disable_help_subcommand(true);
    let command =
        command.help_template("{about-with-newline}\n{usage-heading} {usage}\n\n{subcommands}{after-help}");
    // What is replayed without a file comes with the command.
    let command = command.mut_subcommand("replay", |replay| {
        replay.mut_arg("input", |input| {
            input.required(false).default_value(workload::BUNDLED).hide_default_value(true)
        })
    });
    fitted(match left_out::help(left_out::NAMES) {
        Some(said) => command.after_help(format!("{said}\n\n{MORE}")),
        None => command,
    })
}

/// Options that few need: `-h` is without them.
const RARE: &[&str] = &[
    "across-streams",
    "alignment",
    "cost",
    "device",
    "hook-path",
    "lag",
    "metrics",
    "no-virtual-memory",
    "no-whatif",
    "of-peak",
    "overwrite",
    "points",
    "pytorch",
    "scale",
    "seed",
    "slices",
    "time-limit",
    "title",
    "trust",
    "try-larger",
];

/// `-h` is one screen: the usual options, of each the first words, and two examples. `--help` and the manual page have all.
fn fitted(command: clap::Command) -> clap::Command {
    let all = command.get_after_help().map(ToString::to_string).unwrap_or_default();
    let examples = all.lines().take_while(|line| !line.ends_with('\\') && !line.is_empty()).take(3);
    let examples = examples.collect::<Vec<_>>().join("\n");
    command
        .mut_args(|arg| {
            let is_rare = arg.get_long().is_some_and(|name| RARE.contains(&name));
            let takes_value = arg.get_action().takes_values() && arg.get_long().is_some();
            let arg = if takes_value { arg.allow_negative_numbers(true) } else { arg };
            let all = arg.get_help().map(ToString::to_string).unwrap_or_default();
            let end = [" [", "; ", ": "].iter().filter_map(|end| all.find(end)).min();
            let first = all[..end.unwrap_or(all.len())].to_owned();
            arg.help(first).long_help(all).hide_short_help(is_rare)
        })
        .after_help(examples)
        .after_long_help(all)
        .mut_subcommands(fitted)
}

const MORE: &str = "\
Examples:
  granule snapshot.pickle
  granule replay train.trace.gz --capacity 24GiB

Environment:
  PYTORCH_CUDA_ALLOC_CONF   settings, where no --conf is given; or the variable
                            PYTORCH_HIP_ALLOC_CONF or PYTORCH_ALLOC_CONF
  GRANULE_CONF              settings on top of those: memory_limit:40GiB
  GRANULE_BACKEND           cuda, hip, hip-as-cuda or openreg
  GRANULE_CUDA_LIBRARY, GRANULE_HIP_LIBRARY      path of the driver's library
  GRANULE_LOG               what is logged: debug

Exit codes:
  0  done (requests that were refused are a result, not a failure)
  1  the input or the settings are wrong; the message says what to do
  2  wrong usage
  3  a request was refused under --stop-on-oom
  4  a backend broke a rule of the contract (granule conformance)
  5  the simulated device caught a wrong use of memory (granule replay)
  6  a limit is exceeded or a request was refused (granule check)
  7  no device can be used, or the self-test failed (granule doctor)

With --json, a command prints JSON, also where it fails (docs/json.md).";

#[derive(Debug, Subcommand)]
enum Command {
    /// Says what there is to say of a recording, on one screen
    #[command(hide = true)]
    Show(screen::Args),
    /// Replays a recorded run, beside PyTorch's own allocator
    Replay(replay::Args),
    /// Finds the smallest device that never refuses memory
    MinCapacity(min_capacity::Args),
    /// Works out where requests go, as low as possible
    Plan(plan::Args),
    /// Says what took the memory, and why a request was refused
    Inspect(inspect::Args),
    /// Holds a recorded run against limits
    Check(check::Args),
    /// Says which setting would have fitted
    Whatif(whatif::Args),
    /// Writes a web page that shows memory at any moment
    Report(report::Args),
    /// Runs a program without a GPU: what memory does it need?
    #[cfg(feature = "full")]
    #[command(long_about = estimate::LONG)]
    Estimate(estimate::Args),
    /// Runs a program and records what it does with memory
    Record(record::Args),
    /// Writes a run for other tools: Parquet tables, Perfetto
    #[cfg(feature = "full")]
    Export(export::Args),
    /// Checks a backend against the device contract
    #[cfg(feature = "full")]
    Conformance(conformance::Args),
    /// Shows the backends of this build and their devices
    Devices(devices::Args),
    /// Tests this machine and says what to put into an issue
    Doctor(doctor::Args),
    /// Prints completions for a shell
    #[cfg(feature = "full")]
    Completions(completions::Args),
    /// Prints the manual page, or writes all of them
    #[cfg(feature = "full")]
    Man(man::Args),
}

/// How a command ended.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Outcome {
    /// It did its work.
    Done,
    /// It stopped at a refused request, as it was told to.
    StoppedOnOom,
    /// A backend broke a rule of the contract.
    #[cfg(feature = "full")]
    BrokenContract,
    /// The simulated device caught a use of memory that had left.
    Trapped,
    /// A limit is exceeded.
    Exceeded,
    /// The machine cannot be used as it is.
    Unhealthy,
    /// Another process, run by this one, ended so.
    Child(ExitCode),
}

impl Outcome {
    pub(crate) fn exit_code(self) -> ExitCode {
        match self {
            Self::Done => ExitCode::SUCCESS,
            Self::StoppedOnOom => ExitCode::from(3),
            #[cfg(feature = "full")]
            Self::BrokenContract => ExitCode::from(4),
            Self::Trapped => ExitCode::from(5),
            Self::Exceeded => ExitCode::from(6),
            Self::Unhealthy => ExitCode::from(7),
            Self::Child(code) => code,
        }
    }
}

/// Runs what the command line asks for; results go to `out`, everything else to standard error.
pub(crate) fn run(cli: &Cli, out: &mut dyn Write) -> Result<Outcome, Failure> {
    match &cli.command {
        None => screen::run_bundled(&cli.program, out),
        Some(Command::Show(args)) => screen::run(args, &cli.program, out),
        Some(Command::Replay(args)) => replay::run(args, out),
        Some(Command::MinCapacity(args)) => min_capacity::run(args, out),
        Some(Command::Plan(args)) => plan::run(args, out),
        Some(Command::Inspect(args)) => inspect::run(args, out),
        Some(Command::Check(args)) => check::run(args, out),
        Some(Command::Whatif(args)) => whatif::run(args, out),
        Some(Command::Report(args)) => report::run(args, out),
        #[cfg(feature = "full")]
        Some(Command::Estimate(args)) => estimate::run(args, &cli.lead, out),
        Some(Command::Record(args)) => record::run(args, out),
        #[cfg(feature = "full")]
        Some(Command::Export(args)) => export::run(args, out),
        #[cfg(feature = "full")]
        Some(Command::Conformance(args)) => conformance::run(args, &cli.lead, out),
        Some(Command::Devices(args)) => devices::run(args, out),
        Some(Command::Doctor(args)) => doctor::run(args, out),
        #[cfg(feature = "full")]
        Some(Command::Completions(args)) => completions::run(args, out),
        #[cfg(feature = "full")]
        Some(Command::Man(args)) => man::run(args, out),
    }
}

/// The version of what commands print as JSON. It grows where a name or a meaning changes; more names are no change.
const SCHEMA: u32 = 1;

/// What every JSON answer has.
#[derive(Serialize)]
struct Versioned<'a, T> {
    schema: u32,
    #[serde(flatten)]
    answer: &'a T,
}

/// One JSON object on one line.
pub(crate) fn write_json(answer: &impl Serialize, out: &mut dyn Write) -> Result<(), Failure> {
    serde_json::to_writer(&mut *out, &Versioned { schema: SCHEMA, answer })?;
    writeln!(out)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::command;

    #[test]
    fn the_command_line_is_consistent() {
        command().debug_assert();
    }

    #[test]
    fn every_command_has_an_example() {
        for command in command().get_subcommands().filter(|command| !command.is_hide_set()) {
            let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            assert!(help.contains(&format!("granule {}", command.get_name())), "{}", command.get_name());
        }
    }
}
