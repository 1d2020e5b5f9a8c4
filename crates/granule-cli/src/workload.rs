//! What is replayed: a trace file, a snapshot's history, or the trace that comes with the command.

use crate::compare::native_like;
use crate::console::{self, counted};
use crate::failure::Failure;
use clap::Args;
use granule::config::PytorchRelease;
use granule::config::Settings;
use granule::config::environment::{GRANULE_VARIABLE, PYTORCH_VARIABLES};
use granule::files::convert::{self, Conversion, Counts, Recorded};
use granule::files::pickle::Limits;
use granule::files::trace::{NativeResult, NativeResults, Trace};
use granule::files::{Loaded, load_from_with, load_with};
use granule::replay::whatif::{Before, Doubt, Held};
use granule::snapshot::Snapshot;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A training run of a convolutional network, recorded from PyTorch.
const BUNDLED_TRACE: &[u8] = include_bytes!("../data/resnet_train.trace.gz");
/// What stands for it in the place of a path.
pub(crate) const BUNDLED: &str = "the recording that comes with granule";

/// A training run that ended out of memory, recorded from PyTorch on a simulated device.
const BUNDLED_ERROR: &[u8] = include_bytes!("../data/train-oom.pickle.gz");
const NAME: &str = "train-oom.pickle.gz";

/// Where the workload comes from.
#[derive(Args, Clone, Debug)]
pub(crate) struct WorkloadArgs {
    /// A trace, or a snapshot of torch.cuda.memory._dump_snapshot, plain or gzip'd; - is
    /// standard input
    #[arg(value_name = "TRACE|SNAPSHOT")]
    input: PathBuf,

    /// A snapshot's device [default: the first that has a history]
    #[arg(long, value_name = "INDEX")]
    device: Option<usize>,

    /// Read a snapshot whatever memory that takes: where you trust it
    #[arg(long)]
    trust: bool,

    /// The file, where it has been read before.
    #[arg(skip)]
    read: Option<Input>,
}

/// A recording in memory, which several commands can share.
#[derive(Clone, Debug)]
pub(crate) enum Input {
    Trace(Arc<Trace>),
    Snapshot(Arc<Snapshot>),
}

impl Input {
    /// Reads the file; `trust` lifts the limits of size.
    pub(crate) fn read(path: &Path, trust: bool) -> Result<Self, Failure> {
        let spinner = console::spinner(format!("reading {}", path.display()));
        let limits = if trust { Limits::trusting() } else { Limits::default() };
        let loaded = if path == Path::new("-") {
            load_from_with(std::io::stdin().lock(), "standard input", &limits)
        } else {
            load_with(path, &limits)
        };
        spinner.finish_and_clear();
        Ok(match loaded? {
            Loaded::Trace(trace) => Self::Trace(Arc::from(trace)),
            Loaded::Snapshot(snapshot) => Self::Snapshot(Arc::from(snapshot)),
        })
    }
}

impl WorkloadArgs {
    /// An out-of-memory error's snapshot with stacks, which comes with the command.
    pub(crate) fn bundled() -> Result<Self, Failure> {
        let Loaded::Snapshot(snapshot) = load_from_with(BUNDLED_ERROR, NAME, &Limits::default())? else {
            unreachable!("it is one")
        };
        Ok(Self {
            input: NAME.into(),
            device: None,
            trust: false,
            read: Some(Input::Snapshot(Arc::from(snapshot))),
        })
    }

    /// Takes what has been read for what is in the file.
    pub(crate) fn take(&mut self, read: Input) {
        self.read = Some(read);
    }

    /// The path as it was given.
    pub(crate) fn input(&self) -> &Path {
        &self.input
    }

    /// The same for another file.
    pub(crate) fn of_file(&self, input: &Path) -> Self {
        Self { input: input.to_owned(), read: None, ..self.clone() }
    }

    /// What the file is.
    pub(crate) fn load(&self) -> Result<Input, Failure> {
        match &self.read {
            Some(read) => Ok(read.clone()),
            None => Input::read(&self.input, self.trust),
        }
    }

    /// The device whose history is taken from a snapshot, if it was chosen.
    pub(crate) fn device(&self) -> Option<usize> {
        self.device
    }

    /// What to call what comes from the file.
    pub(crate) fn file_name(&self) -> String {
        if self.input == Path::new("-") { "standard input".into() } else { file_name(&self.input) }
    }
}

/// A workload and what to call it.
#[derive(Debug)]
pub(crate) struct Workload {
    pub(crate) name: String,
    /// The file it comes from; `None` for the one in this binary.
    pub(crate) file: Option<PathBuf>,
    pub(crate) trace: Arc<Trace>,
    /// What is not exact about it.
    pub(crate) notes: Vec<String>,
    /// Where it comes from a snapshot.
    pub(crate) recording: Option<Origin>,
}

/// What a snapshot says about the run it is of.
#[derive(Debug)]
pub(crate) struct Origin {
    /// The device whose history it is.
    pub(crate) device: usize,
    /// The settings, if there were any.
    pub(crate) conf: Option<String>,
    /// The release of PyTorch, where the file tells that it is one that decided otherwise than the newest.
    pub(crate) release: Option<PytorchRelease>,
    pub(crate) figures: Recorded,
    /// What its history holds that a replay cannot repeat.
    pub(crate) counts: Counts,
}

impl Origin {
    /// Who recorded it.
    pub(crate) fn by(&self) -> &'static str {
        if self.figures.by_granule { "Granule" } else { "PyTorch" }
    }
}

impl Workload {
    /// Reads the file, and says what is not exact about it.
    pub(crate) fn read(args: &WorkloadArgs) -> Result<Self, Failure> {
        if args.input == Path::new(BUNDLED) {
            return Self::bundled();
        }
        match args.load()? {
            Input::Trace(trace) => Ok(Self::of_trace(trace, args)),
            Input::Snapshot(snapshot) => {
                let workload = Self::of_snapshot(&snapshot, args)?;
                workload.say_what_it_became();
                Ok(workload)
            }
        }
    }

    /// That of a trace.
    pub(crate) fn of_trace(trace: Arc<Trace>, args: &WorkloadArgs) -> Self {
        if args.device.is_some() {
            console::warning("--device is ignored: a trace has one device");
        }
        let path = args.input.as_path();
        let mut notes: Vec<String> = trace.reasons().map(ToOwned::to_owned).collect();
        for reason in &notes {
            console::note(format_args!("not exact: {reason}"));
        }
        if trace.is_cut() {
            let cut = format!(
                "holds {} of {}; it was cut: figures in its header are those of the whole run",
                trace.events.len(),
                counted(trace.header.events.unwrap_or_default(), "event")
            );
            console::warning(format_args!("{}: {cut}", path.display()));
            notes.push(cut);
        }
        let name = trace.header.workload.clone().unwrap_or_else(|| args.file_name());
        tracing::info!(name, events = trace.events.len(), "read");
        Self { name, file: Some(path.to_owned()), trace, notes, recording: None }
    }

    /// The workload in this binary.
    fn bundled() -> Result<Self, Failure> {
        let trace = Trace::from_reader(BUNDLED_TRACE).map_err(Failure::Bundled)?;
        let name = trace.header.workload.clone().unwrap_or_else(|| "bundled".into());
        Ok(Self { name, file: None, trace: Arc::new(trace), notes: Vec::new(), recording: None })
    }

    /// That of a snapshot's history.
    pub(crate) fn of_snapshot(snapshot: &Snapshot, args: &WorkloadArgs) -> Result<Self, Failure> {
        let failed = |error| Failure::Convert { path: args.input.clone(), error };
        let conversion = match args.device {
            Some(device) => convert::to_trace(snapshot, device).map_err(failed)?,
            None => {
                let mut all = convert::to_traces(snapshot).map_err(failed)?;
                let others: Vec<_> = all.iter().skip(1).map(|c| c.device.to_string()).collect();
                if !others.is_empty() {
                    console::note(format_args!(
                        "the snapshot also has histories of the devices {}; --device chooses",
                        others.join(", ")
                    ));
                }
                // There is one at least, or it would have been an error.
                all.swap_remove(0)
            }
        };
        let Conversion { mut trace, reasons, recorded, device, counts, .. } = conversion;
        let conf = recorded_conf(snapshot).map(ToOwned::to_owned);
        let release = older_release(snapshot, device).filter(|_| !recorded.by_granule);
        let recording = Origin { device, conf, release, figures: recorded, counts };
        trace.header.native = native(&recording);
        tracing::info!(events = trace.events.len(), "converted");
        Ok(Self {
            name: args.file_name(),
            file: Some(args.input.clone()),
            trace: Arc::new(trace),
            notes: reasons,
            recording: Some(recording),
        })
    }

    /// What a replay of a snapshot's history is a replay of, and what is not exact about it.
    fn say_what_it_became(&self) {
        if let Some(recording) = &self.recording {
            console::note(format_args!(
                "{}: a snapshot; its history of device {} became {}",
                self.name,
                recording.device,
                counted(self.trace.events.len(), "event")
            ));
        }
        for reason in &self.notes {
            console::note(format_args!("not exact: {reason}"));
        }
    }

    /// What the program had reserved when the recording began.
    pub(crate) fn before(&self) -> Before {
        match &self.recording {
            Some(recording) if recording.figures.window => Before::Bytes(recording.figures.reserved_start),
            None if self.trace.is_window() => Before::Unknown,
            _ => Before::Nothing,
        }
    }

    /// The most that the program held, where that is recorded: under these settings, or else under any.
    pub(crate) fn held(&self, settings: Option<&Settings>) -> Option<Held> {
        let header = &self.trace.header;
        let (_, native) = match settings {
            Some(settings) => {
                native_like(header, &Settings { pytorch_release: None, ..settings.clone() }, None)?
            }
            None => header.native.iter().next()?,
        };
        let by = self.recording.as_ref().map_or("PyTorch", Origin::by);
        Some(Held { by, bytes: native.reserved_bytes_peak? })
    }

    /// Why `what`, of so many bytes, says nothing of the program where only a part of it was recorded.
    pub(crate) fn doubt(&self, what: &str, bytes: u64, settings: Option<&Settings>) -> Option<Doubt> {
        let part = self.before() != Before::Nothing || self.trace.is_cut();
        Doubt::new(what, bytes, self.held(settings), part).filter(|_| part)
    }

    /// History entries that a replay hardly exceeds: a request may make two records besides those of segments.
    pub(crate) fn history_entries(&self) -> usize {
        self.trace.events.len().saturating_mul(8).saturating_add(4096)
    }
}

/// The recorded figures, in the place where a trace has them.
fn native(recording: &Origin) -> NativeResults {
    let result = NativeResult {
        conf: recording.conf.clone().unwrap_or_default(),
        reserved_bytes_peak: Some(recording.figures.reserved_peak),
        ..NativeResult::default()
    };
    NativeResults(vec![("snapshot".into(), result)])
}

/// A file's name without the endings that recordings have.
pub(crate) fn stem(name: &str) -> &str {
    let name = name.strip_suffix(".gz").unwrap_or(name);
    [".trace", ".pickle", ".pkl"].into_iter().find_map(|ending| name.strip_suffix(ending)).unwrap_or(name)
}

fn file_name(path: &Path) -> String {
    path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned()
}

/// The release that wrote a snapshot, where it is one whose choices differ from the newest's: settings have a word since 2.13 that
/// was not there before, and entries of the history one since 2.12. Of those before, 2.10 and 2.11 choose alike.
fn older_release(snapshot: &Snapshot, device: usize) -> Option<PytorchRelease> {
    let has = |word: &str| snapshot.allocator_settings.iter().any(|(key, _)| &**key == word);
    // Files of other tools have no settings.
    if !has("max_split_size") || has("max_cached_size") {
        return None;
    }
    let entry = snapshot.device_traces.get(device)?.first()?;
    Some(if entry.labels.pool_id.is_some() { PytorchRelease::V2_12 } else { PytorchRelease::V2_11 })
}

/// What the variable of the settings (`PYTORCH_CUDA_ALLOC_CONF`, `GRANULE_CONF`) was when the snapshot was recorded, if it was
/// set.
pub(crate) fn recorded_conf(snapshot: &Snapshot) -> Option<&str> {
    use granule::snapshot::Value;
    let names = [PYTORCH_VARIABLES[0], GRANULE_VARIABLE];
    let conf = snapshot.allocator_settings.iter().find(|(key, _)| names.contains(&&**key));
    match conf {
        Some((_, Value::Str(text))) if !text.is_empty() => Some(text),
        _ => None,
    }
}
