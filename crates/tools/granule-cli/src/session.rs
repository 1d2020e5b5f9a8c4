//! Commands on a recording that was read once, for programs that ask many questions about it.

use crate::allocator_args::AllocatorArgs;
use crate::commands::{self, Cli, export};
use crate::console::Listener;
use crate::failure::{Failure, Told};
use crate::recording::Recording;
use crate::size::Size;
use crate::workload::{Input, WorkloadArgs, limits, stem};
use clap::Parser;
use granule_analysis::Run;
use granule_export::runs::Source;
use granule_snapshot::LoadError;
use std::ffi::OsString;
use std::io;
use std::path::Path;
use std::sync::Arc;

/// A recording in memory.
#[derive(Clone, Debug)]
pub struct Session(WorkloadArgs);

/// Why a session gave no answer, in the words of the command.
#[derive(Debug)]
pub struct Refused {
    /// What the message is about.
    pub kind: Kind,
    /// What is wrong.
    pub message: String,
    /// What to do next, where the message does not say it.
    pub hint: Option<String>,
}

/// What is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The options of a command.
    Usage,
    /// What is in a file, or what was asked of it.
    Input,
    /// A file cannot be read or written: the number of the operating system's error, where it is one of those.
    File(Option<i32>),
}

impl From<Failure> for Refused {
    fn from(failure: Failure) -> Self {
        let kind = match &failure {
            Failure::Load(LoadError::Open { source: error, .. })
            | Failure::WriteFile { error, .. }
            | Failure::Output(error) => Kind::File(error.raw_os_error().or_else(|| number_of(error.kind()))),
            _ => Kind::Input,
        };
        Self { kind, message: failure.to_string(), hint: failure.hint() }
    }
}

/// The number of an error that was found without asking the operating system.
fn number_of(kind: io::ErrorKind) -> Option<i32> {
    match kind {
        io::ErrorKind::IsADirectory => Some(libc::EISDIR),
        io::ErrorKind::NotFound => Some(libc::ENOENT),
        io::ErrorKind::PermissionDenied => Some(libc::EACCES),
        _ => None,
    }
}

impl From<clap::Error> for Refused {
    fn from(error: clap::Error) -> Self {
        let message = Told::usage(&error).error.message().to_owned();
        Self { kind: Kind::Usage, message, hint: None }
    }
}

impl Session {
    /// Reads a file, or its content. `device` chooses one of a snapshot's histories, `trust` lifts the limits of size. What is worth knowing is
    /// said to `listener`.
    ///
    /// # Errors
    /// The file cannot be read, or is no recording.
    pub fn open(
        path: &Path,
        content: Option<&[u8]>,
        device: Option<usize>,
        trust: bool,
        listener: &Arc<Listener>,
    ) -> Result<Self, Refused> {
        let input = listener.during(|| match content {
            Some(content) => Input::of_bytes(content, path, &limits(trust)),
            None => Input::read(path, &limits(trust)),
        })?;
        Ok(Self(WorkloadArgs::of_read(path.to_owned(), device, trust, input)))
    }

    /// What the command of this name answers under `--json`, given these options, and a second recording where it takes one. Where the command would stop early or complain
    /// by its exit code, the answer says so, too.
    ///
    /// # Errors
    /// As the command's: wrong options, input that cannot be worked with, files that cannot be read or written.
    pub fn ask(
        &self,
        command: &str,
        options: &[String],
        second: Option<&Self>,
        listener: &Arc<Listener>,
    ) -> Result<String, Refused> {
        let mut words = self.words(&[command, "--json"], options);
        words.extend(second.map(|second| second.0.input().as_os_str().to_owned()));
        let mut cli = Cli::read(&words)?;
        if let Some(workload) = cli.workload() {
            *workload = self.0.clone();
            workload.second = second.map(|second| Box::new(second.0.clone()));
        }
        let mut answer = Vec::new();
        listener.during(|| commands::run(&cli, &mut answer))?;
        Ok(String::from_utf8_lossy(&answer).into_owned())
    }

    /// What happened in the run: that of a snapshot as it was recorded, that of a trace as it is when replayed under the options
    /// `--conf`, `--policy` and `--capacity`.
    ///
    /// # Errors
    /// As [`Session::ask`].
    pub fn history(&self, options: &[String], listener: &Arc<Listener>) -> Result<History, Refused> {
        let mut args = HistoryArgs::try_parse_from(self.words(&[], options))?;
        args.workload = self.0.clone();
        let capacity = args.capacity.map(|size| size.0);
        let recording = listener.during(|| Recording::read(&args.workload, &args.allocator, capacity))?;
        Ok(History {
            id: stem(&args.workload.file_name()).to_owned(),
            file: self.0.input().to_string_lossy().into_owned(),
            settings: export::settings(&recording),
            recording,
        })
    }

    /// A command line.
    fn words(&self, first: &[&str], options: &[String]) -> Vec<OsString> {
        let mut words: Vec<OsString> = ["granule"].iter().chain(first).map(OsString::from).collect();
        words.extend(options.iter().map(OsString::from));
        words.extend(["--".into(), self.0.input().as_os_str().to_owned()]);
        words
    }
}

/// What a history is asked with.
#[derive(Debug, Parser)]
struct HistoryArgs {
    #[command(flatten)]
    workload: WorkloadArgs,

    #[command(flatten)]
    allocator: AllocatorArgs,

    /// Memory of the device a trace is replayed on, for example 24GiB [default: the one it was recorded on]
    #[arg(long, value_name = "SIZE")]
    capacity: Option<Size>,
}

/// What happened in a run.
#[derive(Debug)]
pub struct History {
    id: String,
    file: String,
    settings: Option<String>,
    recording: Recording,
}

impl History {
    /// The run.
    #[must_use]
    pub fn run(&self) -> &Run {
        &self.recording.run
    }

    /// The run as tables have it.
    #[must_use]
    pub fn source(&self) -> Source<'_> {
        export::source(&self.recording, &self.id, &self.file, self.settings.as_deref())
    }
}

#[cfg(test)]
mod tests {
    use super::Session;
    use crate::console::Listener;
    use std::path::Path;
    use std::sync::Arc;

    #[test]
    fn each_of_two_recordings_is_asked_about_its_own_device() {
        let path =
            concat!(env!("CARGO_MANIFEST_DIR"), "/../../../tests/data/cases/state/ten-null-first.pickle.gz");
        let listener = Arc::new(Listener::default());
        let of = |device| Session::open(Path::new(path), None, device, false, &listener).unwrap();
        let names = |first, second| {
            let answer = of(first).ask("inspect", &[], Some(&of(second)), &listener).unwrap();
            let answer: serde_json::Value = serde_json::from_str(&answer).unwrap();
            ["before", "after"].map(|side| answer[side]["name"].as_str().unwrap().to_owned())
        };
        let [zero, one] = [0, 1].map(|device| format!("ten-null-first.pickle.gz, device {device}"));
        assert_eq!(names(Some(0), Some(1)), [zero.clone(), one.clone()]);
        assert_eq!(names(Some(1), None), [one, zero], "one that was not chosen is not the other's");
    }
}
