//! What ends a command early, in words a user can act on.

pub(crate) mod plan;

use crate::console::counted;
use granule::AllocError;
use granule::backend::BackendError;
use granule::backends::{ChoiceError, Name, VARIABLE};
use granule::config::ConfigError;
use granule::round::size_text;
use granule_analysis::replay::ReplayError;
use granule_estimate::EstimateError;
use granule_snapshot::LoadError;
use granule_snapshot::convert::ConvertError;
use granule_snapshot::trace::TraceError;
use plan::NoPlan;
use serde::Serialize;
use std::io;
use std::path::{Path, PathBuf};

/// Why a command could not do its work. Messages are whole; sources are in them already.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// The workload's file cannot be read.
    #[error("{0}")]
    Load(LoadError),
    /// The trace in this binary cannot be read.
    #[error("the bundled trace: {0}")]
    Bundled(TraceError),
    /// A snapshot gives no trace.
    #[error("{}: {error}", path.display())]
    Convert { path: PathBuf, error: ConvertError },
    /// The settings text was refused.
    #[error("{place}{error}")]
    Conf { place: &'static str, error: ConfigError },
    /// The allocator or its device could not be set up.
    #[error("{0}")]
    SetUp(AllocError),
    /// The environment asks for a backend that there is not.
    #[error("{VARIABLE}: {0}")]
    Choice(ChoiceError),
    /// A backend does not start.
    #[error("the backend {name} cannot be used: {error}")]
    Backend { name: Name, error: BackendError },
    /// No check is left to run.
    #[cfg(feature = "full")]
    #[error("no check's name contains {0}")]
    NoCheck(String),
    /// The replay could not be done.
    #[error("{workload}: {error}")]
    Replay { workload: String, error: ReplayError },
    /// A moment is asked for that there is not.
    #[error("{0}: no request was refused, so that there is no such moment")]
    NothingRefused(String),
    /// A moment behind the end.
    #[error("{name}: the history has {}, there is no moment {at}", counted(*entries, "entry"))]
    BeyondTheEnd { name: String, at: u32, entries: u32 },
    /// Growth cannot be told.
    #[error("{name}: there are too few iterations to tell growth: two are left out, and two more are needed")]
    TooFewIterations { name: String, whole: bool },
    /// A limit holds for a part of a run only.
    #[error(
        "{name}: not known: {} were reserved at most in what was recorded, within {}; {why}",
        size_text(*reserved),
        size_text(*limit)
    )]
    OnlyAPart { name: String, reserved: u64, limit: u64, why: &'static str, next: String, growth: bool },
    /// A folder has the tables of another run.
    #[cfg(feature = "full")]
    #[error("{} has the tables of the run '{there}'", path.display())]
    OtherRun { path: PathBuf, there: String },
    /// There is no plan.
    #[error("{0}")]
    Plan(#[from] NoPlan),
    /// The user's program does not start.
    #[error("{program} cannot be run: {error}")]
    Program { program: String, error: io::Error },
    /// A program could not be run without a GPU.
    #[error("{0}")]
    Estimate(#[from] EstimateError),
    /// It ran, and there is nothing to say about it.
    #[error("{0}")]
    NothingRecorded(&'static str),
    /// A file could not be written.
    #[error("{}: {error}", path.display())]
    WriteFile { path: PathBuf, error: io::Error },
    /// A file would be replaced.
    #[error("{}: there is a file of this name", .0.display())]
    Exists(PathBuf),
    /// A folder without recordings.
    #[error("{}: there is no recording in this folder", .0.display())]
    NoRecording(PathBuf),
    /// There is no place for what Python programs are given.
    #[error("{}: {error}", path.display())]
    Hook { path: PathBuf, error: io::Error },
    /// Standard output failed.
    #[error("writing the results failed: {0}")]
    Output(#[from] io::Error),
    /// The results could not be put into JSON.
    #[error("writing the results as JSON failed: {0}")]
    Json(serde_json::Error),
}

/// What ended a command, as `--json` prints it.
#[derive(Debug, Serialize)]
pub(crate) struct Told {
    pub(crate) error: Wrong,
}

/// What is wrong.
#[derive(Debug, Serialize)]
pub(crate) struct Wrong {
    message: String,
    /// What to do next, where the message does not say it.
    hint: Option<String>,
    exit_code: u8,
}

impl Wrong {
    /// What is wrong.
    pub(crate) fn message(&self) -> &str {
        &self.message
    }

    /// A failure, and what the command then ends with.
    pub(crate) fn new(failure: &Failure, exit_code: u8) -> Self {
        Self { message: failure.to_string(), hint: failure.hint(), exit_code }
    }
}

impl Told {
    /// What is wrong with a command line, without its usage.
    pub(crate) fn usage(error: &clap::Error) -> Self {
        let text = error.render().to_string();
        let ends = ["\n\nUsage:", "\n\nFor more information"].iter().filter_map(|end| text.find(end)).min();
        let message = &text[..ends.unwrap_or(text.len())];
        let message = message.strip_prefix("error: ").unwrap_or(message).trim().to_owned();
        let exit_code = u8::try_from(error.exit_code()).unwrap_or(2);
        Self { error: Wrong { message, hint: Some("--help has all options".into()), exit_code } }
    }
}

impl Failure {
    /// What the command then ends with.
    pub(crate) const EXIT_CODE: u8 = 1;

    /// A backend does not start.
    pub(crate) fn backend(name: Name, error: BackendError) -> Self {
        Self::Backend { name, error }
    }

    /// A replay of this workload went wrong.
    pub(crate) fn replay(workload: &str, error: ReplayError) -> Self {
        match error {
            ReplayError::Device(error) => Self::SetUp(error.into()),
            // Before the first event, which the workload has nothing to do with.
            ReplayError::Allocator { event: 0, source } => Self::SetUp(source),
            error => Self::Replay { workload: workload.to_owned(), error },
        }
    }

    /// What to do next, where the message does not say it.
    pub(crate) fn hint(&self) -> Option<String> {
        match self {
            Self::Convert { error: ConvertError::NoHistory { device }, .. } => Some(format!(
                "granule inspect and granule report show what there is: what is live, what is free, in which segments{}",
                device.map_or("", |_| "; --device takes another device")
            )),
            Self::Bundled(_) => {
                Some("this build is damaged; build it again, or replay a file of yours".into())
            }
            Self::Replay { error: ReplayError::NeverFits { capacity, peak_live }, .. } => {
                // Beyond both, with room for fragments, in whole GiB, which is how devices come and how --capacity is written.
                let beyond = capacity.saturating_mul(2).max(peak_live.saturating_add(peak_live / 4));
                Some(format!("search larger devices too, with --capacity {}GiB", beyond.div_ceil(1 << 30)))
            }
            Self::Backend { .. } => Some(
                "granule devices shows what this machine has; --backend openreg is the simulated accelerator"
                    .into(),
            ),
            #[cfg(feature = "full")]
            Self::NoCheck(_) => Some("--list names all checks where no --only is given".into()),
            Self::Replay { error: ReplayError::DeviceTooSmall { .. }, .. } => {
                Some("--scale makes the requests smaller, for a smaller device".into())
            }
            Self::SetUp(AllocError::Backend(_)) => Some("try another --capacity".into()),
            Self::Replay { error: ReplayError::Trace { .. }, .. } => {
                Some("the file is damaged or was edited; record it again".into())
            }
            Self::Plan(none) => none.hint(),
            Self::Program { error, .. } if error.kind() == io::ErrorKind::NotFound => {
                Some("write the program and its arguments as you would without this command".into())
            }
            Self::BeyondTheEnd { entries, .. } => {
                Some(format!("--at takes 0 to {entries}, or peak, end, oom"))
            }
            Self::TooFewIterations { whole, .. } => {
                let or = if *whole { ", or give --max-reserved only" } else { "" };
                Some(format!("record the run from its start, and more of it{or}"))
            }
            Self::OnlyAPart { next, growth, .. } => {
                let or = if *growth { " Or give --max-growth only." } else { "" };
                Some(format!("{next}{or}"))
            }
            #[cfg(feature = "full")]
            Self::OtherRun { .. } => {
                Some("give each run a folder of its own; --overwrite replaces these tables".into())
            }
            Self::NothingRefused(_) => Some("--at peak and --at end are always there".into()),
            Self::Estimate(error) => error.hint(),
            Self::NothingRecorded(_) => Some(
                "see what it printed; it must use PyTorch's own CUDA allocator, in a Python started with its environment".into(),
            ),
            Self::Hook { .. } => Some("let XDG_CACHE_HOME name a folder of your own".into()),
            Self::Exists(_) => Some("--force replaces it; -o gives another name".into()),
            Self::NoRecording(_) => Some(
                "granule record -- python train.py makes one: .pickle or .trace, also .gz; or name a file of yours".into(),
            ),
            Self::WriteFile { path, error } => Some(writing_hint(path, error)),
            _ => None,
        }
    }

    /// Whether the reader of standard output has gone.
    pub(crate) fn is_closed_pipe(&self) -> bool {
        match self {
            Self::Output(error) => error.kind() == io::ErrorKind::BrokenPipe,
            Self::Json(error) => error.io_error_kind() == Some(io::ErrorKind::BrokenPipe),
            _ => false,
        }
    }
}

fn writing_hint(path: &Path, error: &io::Error) -> String {
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            "the disk is full; free space on it, or give a path on another one".into()
        }
        io::ErrorKind::NotFound => {
            format!(
                "the directory {} does not exist; create it, or give a path in another",
                directory.display()
            )
        }
        io::ErrorKind::IsADirectory => "this is a directory; give the path of a file".into(),
        _ => "give a path in a directory that exists and that you may write to".into(),
    }
}

impl From<LoadError> for Failure {
    fn from(error: LoadError) -> Self {
        Self::Load(error)
    }
}

impl From<serde_json::Error> for Failure {
    fn from(error: serde_json::Error) -> Self {
        Self::Json(error)
    }
}
