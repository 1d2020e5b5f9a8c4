//! `granule record`: runs a program and records what it does with device memory.

use super::Outcome;
use crate::child;
use crate::console;
use crate::failure::Failure;
use crate::python_hook;
use crate::size::Size;
use clap::ValueEnum;
use granule::round::size_text;
use granule_snapshot::record::{RecordOptions, Stacks, VARIABLE};
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{fs, io};

/// The arguments of `granule record`.
#[derive(clap::Args, Clone, Debug)]
#[command(after_help = "\
Examples:
  granule record -- python train.py
  granule record -o run7 --on-oom -- torchrun --nproc-per-node 8 train.py
  PYTHONPATH=$(granule record --hook-path) GRANULE_RECORD=run7,keep=4 \\
      python train.py

The program is not changed. With PyTorch's own allocator, PyTorch's recorder
is switched on when CUDA starts, and snapshots are written: before an
OutOfMemoryError reaches the program, at its end, and on the signal USR1 (kill
-USR1 PID). While it runs, a file that ends in so-far.pickle has what there is
so far, for a process that is killed or aborts. It is written at most once a
second, and takes a hundredth of the time. With --rotate, one is also written
each time before the history would lose what no file has; PyTorch stands still
for about 10 microseconds an entry then. With Granule as the allocator
(granule_torch) an exact trace is written while the program runs.

Names say whose a file is: r the rank (RANK), p the process, d the device, and
files are numbered. Not seen: Python's options -I and -E, PyTorch before 2.5.")]
pub(crate) struct Args {
    /// Where files go; made if it is not there
    #[arg(short, long, value_name = "DIR", default_value = "granule-recording")]
    output: PathBuf,

    /// Entries of the history that a snapshot has, the newest [default: 200000]
    #[arg(long, value_name = "N")]
    max_entries: Option<std::num::NonZeroUsize>,

    /// Size at which a file is followed by the next [default: 256MiB for traces; snapshots only if given]
    #[arg(long, value_name = "SIZE")]
    rotate: Option<Size>,

    /// How many files are kept, the newest; 0 keeps all
    #[arg(long, value_name = "N", default_value_t = 8)]
    keep: usize,

    /// Which stacks are recorded with the history
    #[arg(long, value_name = "STACKS", value_enum, default_value_t = StackNames::Python)]
    stacks: StackNames,

    /// Leave files only where a request failed for want of memory
    #[arg(long)]
    on_oom: bool,

    /// Print what to put into PYTHONPATH, so that a program records itself without this command
    #[arg(long, conflicts_with = "program")]
    hook_path: bool,

    /// The program and its arguments
    #[arg(last = true, value_name = "PROGRAM", required_unless_present = "hook_path")]
    program: Vec<OsString>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum StackNames {
    /// None
    None,
    /// Those of the Python program
    Python,
    /// Those of C++, too; writing them takes long
    All,
}

impl From<StackNames> for Stacks {
    fn from(name: StackNames) -> Self {
        match name {
            StackNames::None => Self::None,
            StackNames::Python => Self::Python,
            StackNames::All => Self::All,
        }
    }
}

/// Runs the program and says what was recorded.
pub(crate) fn run(args: &Args, out: &mut dyn Write) -> Result<Outcome, Failure> {
    if args.hook_path {
        writeln!(out, "{}", python_hook::folder()?.display())?;
        return Ok(Outcome::Done);
    }
    let Some((program, arguments)) = args.program.split_first() else { return Ok(Outcome::Done) };
    child::must_be_there(program)?;
    let failed = |error| Failure::WriteFile { path: args.output.clone(), error };
    fs::create_dir_all(&args.output).map_err(failed)?;
    let options = RecordOptions {
        // Programs change their directory.
        directory: args.output.canonicalize().map_err(failed)?,
        rotate: args.rotate.map(|size| size.0),
        keep: args.keep,
        max_entries: args.max_entries.map(Into::into),
        stacks: args.stacks.into(),
        on_oom: args.on_oom,
    };
    if options.directory.to_string_lossy().contains(',') {
        return Err(failed(io::Error::other("the path has a comma; give one without")));
    }
    let before = files(&options.directory).map_err(failed)?;
    let mut command = Command::new(program);
    command.args(arguments).env(VARIABLE, options.to_string()).env("GRANULE_RECORD_COMMAND", "1");
    python_hook::add(&mut command, &["granule_record"])?;
    let status = child::run(&mut command)?;
    let after = files(&options.directory).map_err(failed)?;
    let new: Vec<&PathBuf> = after.difference(&before).collect();
    say(args, &new);
    Ok(Outcome::Child(child::exit_code(status)))
}

/// What is in the directory.
fn files(directory: &Path) -> io::Result<BTreeSet<PathBuf>> {
    let names = fs::read_dir(directory)?.filter_map(Result::ok).map(|entry| entry.file_name());
    let is_ours = |name: &OsString| name.to_string_lossy().starts_with("granule-");
    Ok(names.filter(is_ours).map(PathBuf::from).collect())
}

/// Says which files there are and what to do next. The program's own output is on standard output.
fn say(args: &Args, new: &[&PathBuf]) {
    let Some(first) = new.first() else {
        if args.on_oom {
            console::note("no request failed for want of memory: nothing is left");
        } else {
            console::warning(
                "nothing was recorded: no process of the program used CUDA through PyTorch 2.5 or later",
            );
            console::hint("Python's options -I and -E switch the recorder off");
        }
        return;
    };
    console::note(format_args!("recorded in {}:", args.output.display()));
    const MOST: usize = 16;
    for name in new.iter().take(MOST) {
        let bytes = fs::metadata(args.output.join(name)).map_or(0, |file| file.len());
        console::note(format_args!("  {}  {}", name.display(), size_text(bytes)));
    }
    if new.len() > MOST {
        console::note(format_args!("  and {} more", new.len() - MOST));
    }
    // A failure is what one wants to look at.
    let chosen = new.iter().find(|name| name.to_string_lossy().contains("-oom")).unwrap_or(first);
    console::hint(format_args!("granule inspect {}", args.output.join(chosen).display()));
}
