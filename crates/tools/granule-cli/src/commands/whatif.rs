//! `granule whatif`: what other settings would have done, and the least change that fits.

pub(super) mod text;

use super::replay::parse_cost;
use super::{Outcome, write_json};
use crate::allocator_args::{self, ReleaseArgs, parse_policy};
use crate::console;
use crate::failure::Failure;
use crate::recording::rules;
use crate::size::Size;
use crate::workload::{Input, Workload, WorkloadArgs, parse_recorded, recorded_capacity};
use granule::config::PolicyName;
use granule_analysis::replay::Costs;
use granule_analysis::replay::whatif::{
    Answer, Held, Kind, NotExact, Progress, Question, Tried, of_backend, of_difference, of_lag, of_snapshot,
    of_trace,
};
use granule_analysis::{Inspection, Limit, Run};
use granule_snapshot::trace::Trace;
use indicatif::ProgressBar;
use serde::Serialize;
use std::borrow::Cow;
use std::io::Write;
use std::path::Path;
use std::sync::{Arc, Mutex};

/// The arguments of `granule whatif`.
#[derive(clap::Args, Clone, Debug)]
#[command(after_help = "\
Examples:
  granule whatif snapshot.pickle
  granule whatif train.trace.gz --capacity 24GiB,40GiB,80GiB
  granule whatif train.trace.gz --conf max_split_size_mb:64 \\
      --conf roundup_power2_divisions:[64:8,>:4]
  granule whatif train.trace.gz --capacity 12GiB --json \\
      | jq -r '.verdicts[0].advice'

What the program runs with is taken from the environment, else from the
snapshot, else it is the default. With the pytorch policy, every figure is
what PyTorch's own allocator does with the same requests. A capacity is what
the allocator can have: a card's memory without the CUDA context (some hundred
MiB) and other processes. Where no capacity is given, that of common cards is
what PyTorch reports of them, less 512 MiB for the context: 14.05 GiB of a card
of 16 GiB.

Replays run on all cores; RAYON_NUM_THREADS limits them. Memory is the trace,
twice where it has iteration marks, and one replay per core.")]
pub(crate) struct Args {
    #[command(flatten)]
    pub(super) workload: WorkloadArgs,

    /// Devices to try, by what the allocator can have of their memory: 24GiB,40GiB [default: the common cards near the
    /// need, and the device that the recording is of]
    #[arg(long, value_name = "SIZE,...", value_delimiter = ',')]
    capacity: Vec<Size>,

    /// Settings of yours to try, too, as in PYTORCH_CUDA_ALLOC_CONF; may be given several times
    #[arg(long, value_name = "STR")]
    conf: Vec<String>,

    /// Whose rules to try: pytorch or granule; may be given several times [default: both]
    #[arg(long, value_name = "NAME", value_parser = parse_policy)]
    policy: Vec<PolicyName>,

    #[command(flatten)]
    release: ReleaseArgs,

    /// How many events the device's work is behind; 0 completes everything at once
    #[arg(long, value_name = "EVENTS", default_value_t = 0)]
    lag: u64,

    /// What simulated driver calls cost, as in `granule replay`
    #[arg(long, value_name = "COSTS", default_value = "", hide_default_value = true,
          value_parser = parse_cost)]
    cost: Arc<Costs>,

    /// Show every candidate
    #[arg(long)]
    all: bool,

    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// What `--json` prints.
#[derive(Serialize)]
struct Json<'a> {
    workload: &'a str,
    file: Option<Cow<'a, str>>,
    /// This command's.
    version: &'static str,
    /// What the program runs with.
    current_conf: &'a str,
    current_policy: &'a str,
    /// Whether the pytorch policy's figures are exactly PyTorch's on the program's own requests.
    exact: bool,
    /// Why not, and which figures it concerns.
    not_exact: &'a [NotExact],
    /// Where costs are from, if a file has them.
    notes: &'a [String],
    /// The limit that refused requests when it was recorded.
    limit: Option<Limit>,
    #[serde(flatten)]
    answer: &'a Answer,
}

/// Replays the grid and prints the answer.
pub(crate) fn run(args: &Args, out: &mut dyn Write) -> Result<Outcome, Failure> {
    // What is wrong with the arguments is said before a large file is read.
    let own =
        args.conf.iter().map(|text| allocator_args::from_option(text)).collect::<Result<Vec<_>, _>>()?;
    let loaded = args.workload.load()?;
    let workload = Workload::of(&loaded, &args.workload)?;
    let recorded = workload.recording.as_ref();
    let conf = recorded.and_then(|recording| recording.conf.as_deref());
    let current = args.release.on(allocator_args::current(conf)?, recorded);
    let held = workload.held(Some(&current));
    let newest = recorded.and_then(|origin| origin.release);
    let limit = match &loaded {
        Input::Trace(trace) => Limit::of_trace(trace),
        Input::Snapshot(snapshot) if workload.trace.refusals().0 > 0 => {
            let device = recorded.map_or(0, |origin| origin.device);
            let run = Run { limit: Limit::of_settings(&current), ..Run::of_snapshot(snapshot, device) };
            Inspection::limit(&run, &rules(&current, newest))
        }
        Input::Snapshot(_) => None,
    };
    let question = Question {
        current,
        own,
        policies: if args.policy.is_empty() { PolicyName::ALL.to_vec() } else { args.policy.clone() },
        capacities: args.capacity.iter().map(|size| size.0).collect(),
        recorded_capacity: recorded_capacity(&workload.trace).or_else(|| recorded?.figures.capacity),
        before: workload.before(),
        held,
        lag: args.lag,
        costs: args.cost.model.clone(),
        newest_release: newest.map(|newest| newest.release),
        ..Question::default()
    };
    let question = under(limit, question);
    let answer = ask(&question, &workload.trace, &workload.name)?;
    let not_exact = not_exact(&workload, args.lag, &answer, held);
    if args.json {
        let json = Json {
            workload: &workload.name,
            file: workload.file.as_deref().map(Path::to_string_lossy),
            version: env!("CARGO_PKG_VERSION"),
            current_conf: &question.current.text,
            current_policy: question.current.policy_name().name(),
            exact: not_exact.is_empty(),
            not_exact: &not_exact,
            notes: args.cost.note.as_slice(),
            limit,
            answer: &answer,
        };
        write_json(&json, out)?;
    } else {
        if let Some(limit) = limit.filter(|_| question.limited.is_none()) {
            writeln!(out, "{}\n", console::strong(&console::wrapped(&format!("{}.", limit.said()))))?;
        }
        text::print(&workload.name, &answer, &not_exact, args.all, out)?;
    }
    args.cost.note.iter().for_each(console::note);
    Ok(Outcome::Done)
}

/// The same under a limit that refused requests. Where its bytes are not told, only devices that somebody chose have an answer.
pub(super) fn under(limit: Option<Limit>, question: Question) -> Question {
    let Some(limit) = limit.filter(|limit| !limit.lifted && question.capacities.is_empty()) else {
        return question;
    };
    let told = limit.bytes.or_else(|| question.recorded_capacity.filter(|_| limit.set_by.is_some()));
    let limited = told.is_none().then(|| {
        format!(
            "{}. Do not choose by this: give what the process may have, with --capacity 8GiB.",
            limit.said()
        )
    });
    Question { capacities: told.into_iter().collect(), limited, ..question }
}

/// Why figures are not exactly those of the program.
fn not_exact(workload: &Workload, lag: u64, answer: &Answer, held: Option<Held>) -> Vec<NotExact> {
    let mut found = match &workload.recording {
        Some(recording) => of_snapshot(&recording.counts, &recording.figures),
        None => of_trace(&workload.trace),
    };
    let changed = workload.recording.as_ref().and_then(|recording| recording.changed.clone());
    let about = workload.recording.as_ref().and_then(|recording| recording.release?.about());
    found.extend(changed.into_iter().chain(about).map(of_difference));
    if found.is_empty() {
        let current = answer.candidates.iter().find(|tried| tried.candidate.kind == Kind::Current);
        let other = |tried: &&Tried| {
            workload.recording.is_some() && held.is_some_and(|held| held.bytes != tried.roomy.held())
        };
        let differs = answer.doubt.is_some() || current.filter(other).is_some();
        found.extend(differs.then(|| of_difference("a replay does not hold what the program held".into())));
    }
    found.extend(of_lag(lag));
    let conf = workload.recording.as_ref().and_then(|recording| recording.conf.as_deref());
    let parsed = conf.and_then(|conf| parse_recorded(conf).ok());
    found.extend(parsed.and_then(|parsed| of_backend(parsed.settings.backend)));
    found
}

/// Replays the grid, with progress on standard error. `name` is the workload's.
pub(super) fn ask(question: &Question, trace: &Trace, name: &str) -> Result<Answer, Failure> {
    let bar = console::progress_bar(0, "replaying", "events");
    let spinner: Mutex<Option<ProgressBar>> = Mutex::new(None);
    let answer = question.ask(trace, &|progress| match progress {
        Progress::Grid { events, .. } => bar.set_length(events),
        Progress::Events(more) => bar.inc(more),
        Progress::Smallest => {
            console::leave(&bar);
            let searching = console::spinner("searching the smallest device");
            *spinner.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = Some(searching);
        }
    });
    match spinner.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner) {
        Some(spinner) => spinner.finish_and_clear(),
        None => console::leave(&bar),
    }
    answer.map_err(|error| Failure::replay(name, error))
}
