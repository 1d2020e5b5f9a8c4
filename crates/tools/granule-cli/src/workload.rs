//! What is replayed: a trace file, a snapshot's history, or the trace that comes with the command.

use crate::console::{self, counted};
use crate::failure::Failure;
use crate::table::Table;
use clap::Args;
use granule::config::{AllocatorBackend, Settings};
use granule::round::size_text;
use granule::snapshot::Snapshot;
use granule_analysis::replay::whatif::{Before, Doubt, Held};
use granule_analysis::replay::{ReplayOptions, peak_live, replay};
use granule_snapshot::convert::{self, Conversion, ConvertError, Counts, DeviceSummary, Recorded};
use granule_snapshot::pickle::Limits;
use granule_snapshot::trace::{FORMAT, NativeResult, NativeResults, Trace};
use granule_snapshot::{Loaded, load_from_with, load_with};
use std::fs;
use std::io::IsTerminal;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread;
use std::time::Duration;

mod in_force;
pub(crate) use in_force::{InForce, Newest, parse_recorded};

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
    /// A trace or a snapshot, plain or gzip'd; - is standard input. torch.cuda.memory._dump_snapshot writes snapshots
    #[arg(value_name = "TRACE|SNAPSHOT")]
    input: PathBuf,

    /// A snapshot's device [default: one that refused a request, else the one that held most]
    #[arg(long, value_name = "INDEX")]
    device: Option<usize>,

    /// Read a file whatever memory that takes: where you trust it
    #[arg(long)]
    trust: bool,

    /// The file, where it has been read before.
    #[arg(skip)]
    read: Option<Input>,

    /// The file beside it, where that has been read before.
    #[arg(skip)]
    pub(crate) second: Option<Box<Self>>,
}

/// A recording in memory, which several commands can share.
#[derive(Clone, Debug)]
pub(crate) enum Input {
    Trace(Arc<Trace>),
    Snapshot(Arc<Snapshot>),
}

/// What a file may take, which `trust` lifts.
pub(crate) fn limits(trust: bool) -> Limits {
    if trust { Limits::trusting() } else { Limits::default() }
}

impl Input {
    /// Reads the file.
    pub(crate) fn read(path: &Path, limits: &Limits) -> Result<Self, Failure> {
        let spinner = console::spinner(format!("reading {}", path.display()));
        let waits = waits(path);
        let loaded = if path == Path::new("-") {
            load_from_with(std::io::stdin().lock(), "standard input", limits)
        } else {
            load_with(path, limits)
        };
        drop(waits);
        spinner.finish_and_clear();
        Ok(Self::of(loaded?, path))
    }

    /// Reads what is in the file that has this name, or would have it.
    pub(crate) fn of_bytes(content: &[u8], name: &Path, limits: &Limits) -> Result<Self, Failure> {
        Ok(Self::of(load_from_with(content, name, limits)?, name))
    }

    fn of(loaded: Loaded, path: &Path) -> Self {
        match loaded {
            Loaded::Trace(trace) => Self::Trace(Arc::from(trace)),
            Loaded::Snapshot(snapshot) => {
                for note in convert::left_out(&snapshot) {
                    console::note(format_args!("{}: {note}", path.display()));
                }
                Self::Snapshot(Arc::from(snapshot))
            }
        }
    }
}

/// Says after a moment what is waited for where somebody else has to write it, unless what this returns is gone by then.
fn waits(path: &Path) -> Option<Sender<()>> {
    let is_pipe = fs::metadata(path).is_ok_and(|about| about.file_type().is_fifo());
    let is_terminal = path == Path::new("-") && std::io::stdin().is_terminal();
    let from = match is_terminal {
        true => "standard input, which is this terminal".to_owned(),
        false if is_pipe => format!("{}, a pipe into which another program has to write", path.display()),
        false => return None,
    };
    let (ends, ended) = mpsc::channel();
    thread::spawn(move || {
        if ended.recv_timeout(Duration::from_secs(2)) == Err(RecvTimeoutError::Timeout) {
            console::note(format_args!("waiting for {from}"));
        }
    });
    Some(ends)
}

impl WorkloadArgs {
    /// An out-of-memory error's snapshot with stacks, which comes with the command.
    pub(crate) fn bundled() -> Result<Self, Failure> {
        let Loaded::Snapshot(snapshot) = load_from_with(BUNDLED_ERROR, NAME, &Limits::default())? else {
            unreachable!("it is one")
        };
        Ok(Self::of_read(NAME.into(), None, false, Input::Snapshot(Arc::from(snapshot))))
    }

    /// What has been read from a file.
    pub(crate) fn of_read(input: PathBuf, device: Option<usize>, trust: bool, read: Input) -> Self {
        Self { input, device, trust, read: Some(read), second: None }
    }

    /// Takes what has been read for what is in the file.
    pub(crate) fn take(&mut self, read: Input) {
        self.read = Some(read);
    }

    /// The path as it was given.
    pub(crate) fn input(&self) -> &Path {
        &self.input
    }

    /// What a file may take.
    pub(crate) fn limits(&self) -> Limits {
        limits(self.trust)
    }

    /// The same for another file, or the one beside it as that was read.
    pub(crate) fn of_file(&self, input: &Path) -> Self {
        let same = || Self { input: input.to_owned(), read: None, ..self.clone() };
        self.second.as_deref().cloned().unwrap_or_else(same)
    }

    /// What the file is.
    pub(crate) fn load(&self) -> Result<Input, Failure> {
        match &self.read {
            Some(read) => Ok(read.clone()),
            None => Input::read(&self.input, &self.limits()),
        }
    }

    /// The device whose history is taken from a snapshot, if it was chosen.
    pub(crate) fn device(&self) -> Option<usize> {
        self.device
    }

    /// The same for another device.
    pub(crate) fn of_device(&self, device: usize) -> Self {
        Self { device: Some(device), ..self.clone() }
    }

    /// What to call a device's history, where the snapshot has several; which they are is said where none was chosen.
    pub(crate) fn name_of(&self, devices: &[DeviceSummary], device: usize) -> String {
        if devices.len() < 2 {
            return self.file_name();
        }
        if self.device.is_none() {
            let mut table = Table::new(["device", "reserved at most", "requests refused"]);
            for one in devices {
                table.row([
                    &*one.device.to_string(),
                    &size_text(one.reserved_peak),
                    &one.refused.to_string(),
                ]);
            }
            console::note(format_args!(
                "the snapshot has several devices, and what follows is about device {device}; --device chooses\n{table}"
            ));
        }
        format!("{}, device {device}", self.file_name())
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
    /// The settings in force, if they were not the defaults.
    pub(crate) conf: Option<String>,
    /// What is to be said about them.
    pub(crate) about_conf: Vec<String>,
    /// How they changed, where they did.
    pub(crate) changed: Option<String>,
    /// The newest release of PyTorch that can have written it, where it has not all options.
    pub(crate) release: Option<Newest>,
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
        Self::of(&args.load()?, args)
    }

    /// That of a file that has been loaded already.
    pub(crate) fn of(loaded: &Input, args: &WorkloadArgs) -> Result<Self, Failure> {
        match loaded {
            Input::Trace(trace) => Ok(Self::of_trace(Arc::clone(trace), args)),
            Input::Snapshot(snapshot) => {
                let workload = Self::of_snapshot(snapshot, args)?;
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
        if trace.lacks_pools() {
            let pools = "the trace does not say what private pools served (CUDA graphs, MemPool), which share no free memory: \
                         the program held at least what is shown; record it anew";
            notes.insert(0, pools.into());
        }
        notes.extend(trace.later_format().map(|format| {
            format!("the trace is of the format '{format}', and this granule knows '{FORMAT}': what is new in it is not understood")
        }));
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
        let devices = convert::devices(snapshot);
        let recorded = devices.iter().any(|one| one.history);
        let device = args.device.or_else(|| Some(devices.first().filter(|_| recorded)?.device));
        let without =
            if devices.is_empty() { ConvertError::Nothing } else { ConvertError::NoHistory { device: None } };
        let device = device.ok_or_else(|| failed(without))?;
        let conversion = convert::to_trace(snapshot, device).map_err(failed)?;
        let Conversion { mut trace, mut reasons, recorded, device, counts, .. } = conversion;
        let InForce { conf, notes: about_conf, changed } = InForce::of(snapshot, device);
        reasons.extend(changed.clone());
        let release = Newest::of(snapshot, device);
        reasons.extend(release.and_then(Newest::about));
        let recording = Origin { device, conf, about_conf, changed, release, figures: recorded, counts };
        trace.header.native = native(&recording);
        tracing::info!(events = trace.events.len(), "converted");
        Ok(Self {
            name: args.name_of(&devices, device),
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
            recording.about_conf.iter().for_each(console::note);
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

    /// The native result under the same settings, with its name; of several, the one on a device of `capacity`.
    pub(crate) fn native_like(
        &self,
        settings: &Settings,
        capacity: Option<u64>,
    ) -> Option<(&str, &NativeResult)> {
        let own = self.recording.as_ref().and_then(|recording| recording.release).map(Newest::decides);
        let pytorch_release = settings.pytorch_release.filter(|release| Some(*release) != own);
        let wanted = comparable(&Settings { pytorch_release, ..settings.clone() });
        let header = &self.trace.header;
        let same: Vec<_> = header
            .native
            .iter()
            .filter(|(_, native)| {
                parse_recorded(&native.conf).is_ok_and(|theirs| comparable(&theirs.settings) == wanted)
            })
            .collect();
        same.iter().find(|(_, native)| native.capacity == capacity).or(same.first()).copied()
    }

    /// The most that the program held, where that is recorded: under these settings, or else under any.
    pub(crate) fn held(&self, settings: Option<&Settings>) -> Option<Held> {
        let header = &self.trace.header;
        let (_, native) = match settings {
            Some(settings) => self.native_like(settings, None)?,
            None => header.native.iter().next()?,
        };
        let by = self.recording.as_ref().map_or("PyTorch", Origin::by);
        Some(Held { by, bytes: native.reserved_bytes_peak? })
    }

    /// Why `what`, of so many bytes, says nothing of the program: where the recording lacks a part of it, or a replay under the
    /// program's own settings does not hold what the program held.
    pub(crate) fn doubt(&self, what: &str, bytes: u64, settings: Option<&Settings>) -> Option<Doubt> {
        if self.before() != Before::Nothing || self.trace.is_part() {
            return Doubt::new(what, bytes, self.held(settings), &self.trace, self.before());
        }
        let recording = self.recording.as_ref()?;
        let parsed = recording.conf.as_deref().and_then(|conf| parse_recorded(conf).ok());
        let settings = parsed.map_or_else(Settings::default, |parsed| parsed.settings);
        differs(&self.trace, Newest::settle(recording.release, settings), self.held(None))
    }

    /// History entries that a replay hardly exceeds: a request may make two records besides those of segments.
    pub(crate) fn history_entries(&self) -> usize {
        self.trace.events.len().saturating_mul(8).saturating_add(4096)
    }
}

/// Why a replay under the program's own settings says nothing of it, where it does not hold what the program `held`.
pub(crate) fn differs(trace: &Trace, settings: Settings, held: Option<Held>) -> Option<Doubt> {
    let backend = AllocatorBackend::Native;
    let settings = Settings { backend, caching: true, ..settings };
    let capacity = Some(usual_capacity(trace));
    let options = ReplayOptions { settings, capacity, unwatched: true, ..ReplayOptions::default() };
    let peak = replay(trace, &options, |_| {}).ok()?.result.reserved_bytes_peak.unsigned_abs();
    Doubt::new("Replay", peak, held, trace, Before::Nothing)
}

/// The device that a trace was recorded on, or what the process could have where requests were refused, if that was not less
/// at first.
pub(crate) fn recorded_capacity(trace: &Trace) -> Option<u64> {
    let of_header = trace.header.native.iter().find_map(|(_, native)| native.capacity);
    of_header.or_else(|| trace.refusals().1.filter(|limit| *limit >= peak_live(&trace.served().0)))
}

/// That, or the usual simulated one, or one on which there is room to spare.
pub(crate) fn usual_capacity(trace: &Trace) -> u64 {
    recorded_capacity(trace).unwrap_or_else(|| {
        let usual = ReplayOptions::default().simulated_capacity();
        usual.max(peak_live(trace).saturating_mul(2).min(1 << 50))
    })
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

/// The settings without what is not PyTorch's.
fn comparable(settings: &Settings) -> Settings {
    Settings { policy: None, history_max_entries: 0, text: String::new(), ..settings.clone() }
}

fn file_name(path: &Path) -> String {
    path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::Workload;
    use granule::config::{PolicyName, Settings};
    use granule_snapshot::trace::{NativeResult, NativeResults, Trace, TraceHeader};
    use std::sync::Arc;

    #[test]
    fn native_results_are_found_by_what_their_settings_mean() {
        let native = |conf: &str, capacity| NativeResult {
            conf: conf.into(),
            capacity: Some(capacity),
            ..NativeResult::default()
        };
        let header = TraceHeader {
            native: NativeResults(vec![
                ("unreadable".into(), native("no_such_option:1", 80)),
                ("default".into(), native("", 80)),
                ("small".into(), native("", 24)),
                ("split".into(), native("max_split_size_mb:128", 80)),
            ]),
            ..TraceHeader::default()
        };
        let trace = Arc::new(Trace { header, ..Trace::default() });
        let workload =
            Workload { name: String::new(), file: None, trace, notes: Vec::new(), recording: None };
        let name =
            |settings: &Settings, capacity| workload.native_like(settings, capacity).map(|(name, _)| name);
        let plain = Settings {
            text: "backend:native".into(),
            policy: Some(PolicyName::Pytorch),
            ..Settings::default()
        };
        assert_eq!(name(&plain, Some(24)), Some("small"));
        assert_eq!(name(&plain, Some(99)), Some("default"), "the first, where none has this capacity");
        let split = Settings { max_split_size: 128 << 20, history_max_entries: 7, ..Settings::default() };
        assert_eq!(name(&split, None), Some("split"));
        let growable = Settings { expandable_segments: true, ..Settings::default() };
        assert_eq!(name(&growable, Some(80)), None);
    }
}
