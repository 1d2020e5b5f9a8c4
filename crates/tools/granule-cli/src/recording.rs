//! A file as a run with addresses, for the commands that look at what happened and not only at what was asked.

use crate::allocator_args::{AllocatorArgs, native};
use crate::console;
use crate::failure::Failure;
use crate::workload::{
    InForce, Input, Newest, Workload, WorkloadArgs, differs, parse_recorded, usual_capacity,
};
use granule::config::{Settings, options};
use granule::snapshot::Snapshot;
use granule_analysis::replay::whatif::{Before, Doubt, Held};
use granule_analysis::replay::{ReplayOptions, replay};
use granule_analysis::rules::Rules;
use granule_analysis::{Inspection, Limit, Run};
use granule_snapshot::convert::{self, ConvertError, RECORD, devices};
use granule_snapshot::trace::Trace;
use std::sync::Arc;

/// A recorded run, and what there is to say about the file.
#[derive(Debug)]
pub(crate) struct Recording {
    /// What to call it.
    pub(crate) name: String,
    pub(crate) run: Run,
    /// The file, where it is a snapshot.
    pub(crate) snapshot: Option<Arc<Snapshot>>,
    /// What the program asked, for replays. Empty for a snapshot without a history.
    pub(crate) trace: Arc<Trace>,
    /// What is not exact about it.
    pub(crate) notes: Vec<String>,
    /// What besides is not exact about a replay of a snapshot's requests.
    pub(crate) replay_notes: Vec<String>,
    /// What was reserved when it began.
    pub(crate) before: Before,
    /// The most that the program held, where that is recorded.
    pub(crate) held: Option<Held>,
    /// Whether earlier history is missing, so that every peak is a lower bound.
    pub(crate) window: bool,
    /// The device's index in the snapshot; 0 for a trace.
    pub(crate) device: usize,
    /// The text of the settings it was recorded with, or of those it was replayed under; `None` if there were none.
    pub(crate) conf: Option<String>,
    /// The newest release of PyTorch that can have written the file, where it has not all options.
    pub(crate) newest_release: Option<Newest>,
    /// What that text means.
    pub(crate) settings: Settings,
    /// The device's memory in bytes, as far as it is known: of a trace the device it was replayed on, of a snapshot the least
    /// that its refused requests prove.
    pub(crate) capacity: Option<u64>,
}

impl Recording {
    /// Why a replay says nothing of the program: its file was cut, or a snapshot's does not hold what the program held.
    pub(crate) fn doubt(&self) -> Option<Doubt> {
        if self.trace.is_cut() {
            return Doubt::new("Replay", self.run.reserved_peak().1, self.held, &self.trace, self.before);
        }
        self.snapshot.as_ref().filter(|_| !self.window)?;
        differs(&self.trace, self.settings.clone(), self.held)
    }

    /// Those of its allocator.
    pub(crate) fn rules(&self) -> Rules {
        rules(&self.settings, self.newest_release)
    }

    /// The limit that refused requests, where one did.
    pub(crate) fn limit(&self) -> Option<Limit> {
        Inspection::limit(&self.run, &self.rules())
    }

    /// Reads the file. A trace is replayed with its whole history under the settings of `allocator`, on a device of `capacity`
    /// bytes, or else of the size that its header has, or else on one that is large enough; a snapshot is taken as it is.
    pub(crate) fn read(
        args: &WorkloadArgs,
        allocator: &AllocatorArgs,
        capacity: Option<u64>,
    ) -> Result<Self, Failure> {
        Self::of(args.load()?, args, allocator, capacity)
    }

    /// As [`Recording::read`], of a file that has been loaded already.
    pub(crate) fn of(
        loaded: Input,
        args: &WorkloadArgs,
        allocator: &AllocatorArgs,
        capacity: Option<u64>,
    ) -> Result<Self, Failure> {
        match loaded {
            Input::Trace(trace) => {
                let as_recorded = capacity.is_none() && !allocator.is_given();
                let workload = Workload::of_trace(trace, args);
                Self::replayed(workload, allocator.settings(None)?, capacity, as_recorded)
            }
            Input::Snapshot(snapshot) => {
                if allocator.is_given() || capacity.is_some() {
                    console::warning(
                        "--conf, --policy and --capacity are ignored: a snapshot is shown as it was recorded",
                    );
                }
                Self::recorded(snapshot, args)
            }
        }
    }

    /// A replay on another device, or under other settings, asks again for what was refused, unless the program did without.
    fn replayed(
        workload: Workload,
        settings: Settings,
        capacity: Option<u64>,
        as_recorded: bool,
    ) -> Result<Self, Failure> {
        let (asked, refused) = match as_recorded {
            true => workload.trace.served(),
            false => (workload.trace.demand().0, Vec::new()),
        };
        let mut options = ReplayOptions {
            capacity: Some(capacity.unwrap_or_else(|| usual_capacity(&workload.trace))),
            history: workload.history_entries(),
            settings,
            ..ReplayOptions::default()
        };
        let once = |options: &ReplayOptions| replay_recording(&workload.name, &asked, options);
        let mut snapshot = once(&options)?;
        // A request that many granules serve at once makes a record for each. The same replay makes the same records.
        let lost = snapshot.history.as_ref().map_or(0, |history| history.overwritten);
        if lost > 0 {
            options.history = options.history.saturating_add(usize::try_from(lost).unwrap_or(usize::MAX));
            snapshot = once(&options)?;
        }
        let before = workload.before();
        let held = workload.held(Some(&options.settings));
        let mut run = Run::of_replay(&asked, &refused, &snapshot);
        let of_settings = Limit::of_settings(&options.settings);
        run.limit = of_settings.or_else(|| Limit::of_trace(&workload.trace).filter(|_| as_recorded));
        let Workload { name, trace, notes, .. } = workload;
        // A replay counts its records, it has no clock.
        run.clock = Vec::new();
        let window = trace.is_part();
        let ReplayOptions { capacity, settings, .. } = options;
        let conf = Some(settings.text.clone()).filter(|text| !text.is_empty());
        let replay_notes = Vec::new();
        Ok(Self {
            name,
            run,
            snapshot: None,
            trace,
            notes,
            replay_notes,
            before,
            held,
            window,
            device: 0,
            conf,
            settings,
            capacity,
            newest_release: None,
        })
    }

    fn recorded(snapshot: Arc<Snapshot>, args: &WorkloadArgs) -> Result<Self, Failure> {
        let (device, name, trace, mut notes, window, before, held) = match Workload::of_snapshot(
            &snapshot, args,
        ) {
            Ok(workload) => {
                let (before, held) = (workload.before(), workload.held(None));
                let Workload { name, trace, notes, recording, .. } = workload;
                let (device, window) =
                    recording.map_or((0, false), |from| (from.device, from.figures.window));
                (device, name, trace, notes, window, before, held)
            }
            Err(failure) => {
                let device = state_only(&snapshot, args, failure)?;
                let whole = snapshot.device_traces.iter().all(Vec::is_empty);
                let what = if whole { "the snapshot".into() } else { format!("device {device}") };
                let note = format!(
                    "{what} has no history: what is there is the memory of the moment of the snapshot, and nothing before; for the \
                     rest record the run from its start: {RECORD}"
                );
                let notes = std::iter::once(note).chain(convert::unknown_actions(&snapshot)).collect();
                let name = args.name_of(&devices(&snapshot), device);
                (device, name, Arc::default(), notes, true, Before::Unknown, None)
            }
        };
        let InForce { conf, notes: about_conf, changed } = InForce::of(&snapshot, device);
        about_conf.iter().chain(&changed).for_each(console::note);
        let settings = match conf.as_deref().map(parse_recorded) {
            Some(Ok(parsed)) => {
                parsed.warnings.iter().for_each(console::warning);
                native(parsed.settings)
            }
            _ => Settings::default(),
        };
        // The first are that history is missing. The others are about replays; a snapshot is shown as it is.
        let of_history = usize::from(window) + usize::from(!snapshot.unread.actions.is_empty());
        let replay_notes = notes.split_off(of_history.min(notes.len()));
        for reason in &notes {
            console::note(format_args!("not exact: {reason}"));
        }
        let mut run = Run::of_snapshot(&snapshot, device);
        run.limit = Limit::of_settings(&settings);
        let newest_release = Newest::of(&snapshot, device);
        newest_release.and_then(Newest::about).iter().for_each(console::note);
        let settings = Newest::settle(newest_release, settings);
        let capacity = convert::recorded(&snapshot, device).capacity;
        let snapshot = Some(snapshot);
        Ok(Self {
            name,
            run,
            snapshot,
            trace,
            notes,
            replay_notes,
            before,
            held,
            window,
            device,
            conf,
            settings,
            capacity,
            newest_release,
        })
    }
}

/// Those of a program's allocator, which may be of an older release.
pub(crate) fn rules(settings: &Settings, newest_release: Option<Newest>) -> Rules {
    let rules = Rules::new(settings);
    let grow = options().iter().find(|option| option.name == "expandable_segments");
    match (newest_release, grow) {
        (Some(newest), Some(grow)) if newest.release < grow.since => rules.without_growing(),
        _ => rules,
    }
}

/// The snapshot of a replay, with its whole history. The allocator is gone when it returns, so that its history is not kept
/// twice.
fn replay_recording(name: &str, trace: &Trace, options: &ReplayOptions) -> Result<Snapshot, Failure> {
    let bar = console::progress_bar(trace.events.len(), "replaying", "events");
    let replayed = replay(trace, options, |done| bar.set_position(done as u64));
    bar.finish_and_clear();
    let replayed = replayed.map_err(|error| Failure::replay(name, error))?;
    Ok(replayed.allocator.snapshot(true))
}

/// The device of a snapshot that has no history: the one that was asked for, or the one that holds most.
fn state_only(snapshot: &Snapshot, args: &WorkloadArgs, failure: Failure) -> Result<usize, Failure> {
    if !matches!(failure, Failure::Convert { error: ConvertError::NoHistory { .. }, .. }) {
        return Err(failure);
    }
    let all = devices(snapshot);
    let mut found =
        all.iter().map(|one| one.device).filter(|one| args.device().is_none_or(|asked| asked == *one));
    found.next().ok_or(failure)
}
