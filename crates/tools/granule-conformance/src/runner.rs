//! Runs checks, each on a thread of its own and with a deadline.

use crate::peer::{ChildCommand, Peer};
use crate::scorecard::{Line, MEND, Scorecard, Scored, Tally};
use crate::{Area, Check, Context, Hold, Options, Outcome, Stop, Subject, checks, guide};
use backend_api::{Backend, Result};
use std::backtrace::Backtrace;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind, set_hook};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

/// Runs the kit over a subject, and tells each line of the scorecard as soon as it is known.
///
/// # Errors
/// Where the backend does not start. The inner error is that of `tell`, and has ended the run.
pub fn run(
    subject: &Subject,
    options: &Options,
    tell: impl FnMut(Line<'_>) -> io::Result<()>,
) -> Result<io::Result<Scorecard>> {
    let backend = subject.open()?;
    let place = match &options.child {
        Some(command) => {
            // It starts; from here on it is the other process's.
            drop(backend);
            Place::Apart { command, peer: None }
        }
        None => Place::Here(backend, subject.hold),
    };
    Ok(run_areas(subject.name(), place, options, tell))
}

fn run_areas(
    backend: &str,
    mut place: Place<'_>,
    options: &Options,
    mut tell: impl FnMut(Line<'_>) -> io::Result<()>,
) -> io::Result<Scorecard> {
    let checks: Vec<&Check> = checks::selected(options).collect();
    let mut scored: Vec<Scored> = Vec::with_capacity(checks.len());
    let mut broken: Vec<(Area, &str)> = Vec::new();
    for area in checks.chunk_by(|a, b| a.area == b.area) {
        let (first, mut hangs, of) = (scored.len(), 0, area[0].area);
        let stops = |(broken, _): &&(Area, _)| !options.keep_going && of.builds_on(*broken);
        let mend = broken.iter().find(stops).map(|(_, area)| *area);
        for check in area {
            let outcome = if let Some(mend) = mend {
                Outcome::Skipped(format!("{MEND}{mend} first"))
            } else if hangs < options.hangs {
                let (outcome, late) = run_repeatedly(**check, &mut place, options);
                hangs += usize::from(late);
                outcome
            } else {
                Outcome::Skipped(format!("not run: {hangs} checks of its area did not end in time"))
            };
            let see = outcome.failure().map(|_| guide::link(check));
            let mut told = scored[first..].iter().filter(|o| o.outcome.failure().is_some() && !o.brief);
            let brief = outcome.failure().is_some()
                && (told.clone().count() >= MOST_TOLD || told.any(|other| other.outcome == outcome));
            let check = Scored { name: check.name, area: check.area, rule: check.rule, outcome, see, brief };
            tell(Line::Check(&check))?;
            scored.push(check);
        }
        let (area, checks) = (area[0].area_name(), &scored[first..]);
        let tally = Tally::of(checks);
        broken.extend((tally.failed > 0).then_some((of, area)));
        tell(Line::Area { area, tally, checks })?;
    }
    let card = Scorecard { backend: backend.to_owned(), tally: Tally::of(&scored), checks: scored };
    tell(Line::Card(&card))?;
    Ok(card)
}

/// So many failures of an area are told in full.
const MOST_TOLD: usize = 5;

/// Where the last panic of a process of checks came from.
static PANICKED: Mutex<Option<String>> = Mutex::new(None);

/// From here on a panic is told by the check that fails with it, and its stack where that is wanted.
pub(crate) fn keep_panics(backtraces: bool) {
    set_hook(Box::new(move |panic| {
        *PANICKED.lock().unwrap_or_else(PoisonError::into_inner) = panic.location().map(ToString::to_string);
        if backtraces {
            eprintln!("{panic}\nstack backtrace:\n{}", Backtrace::force_capture());
        }
    }));
}

/// Where checks run.
enum Place<'o> {
    /// In this process.
    Here(Arc<dyn Backend>, Option<Hold>),
    /// In another one, which is started when a check needs it.
    Apart { command: &'o ChildCommand, peer: Option<Peer> },
}

impl Place<'_> {
    fn run(&mut self, check: Check, options: &Options) -> Outcome {
        let (command, peer) = match self {
            Self::Here(backend, hold) => return run_one(check, backend, *hold, options),
            Self::Apart { command, peer } => (command, peer),
        };
        let started = match peer.take() {
            Some(peer) => Ok(peer),
            None => command.start(),
        };
        let (outcome, left) = match started {
            Ok(started) => started.check(check.name, options.deadline, options.patience, command),
            Err(Stop::Failed(why) | Stop::Skipped(why)) => (Outcome::Failed(why), None),
        };
        // What a broken check left behind must not disturb the next.
        *peer = left.filter(|_| outcome.failure().is_none());
        outcome
    }
}

/// How it ended, and whether it failed because the backend stands still.
fn run_repeatedly(check: Check, place: &mut Place<'_>, options: &Options) -> (Outcome, bool) {
    for time in 1..=options.repeat.max(1) {
        let start = Instant::now();
        match place.run(check, options) {
            Outcome::Passed => {}
            Outcome::Failed(why) => {
                let late = start.elapsed() >= options.standstill();
                let run = if options.repeat > 1 {
                    format!("run {time} of {}: ", options.repeat)
                } else {
                    String::new()
                };
                return (Outcome::Failed(format!("{run}{why}")), late);
            }
            skipped @ Outcome::Skipped(_) => return (skipped, false),
        }
    }
    (Outcome::Passed, false)
}

/// A fresh thread gives each check a fresh current device, and lets a check that hangs be left behind.
pub(crate) fn run_one(
    check: Check,
    backend: &Arc<dyn Backend>,
    hold: Option<Hold>,
    options: &Options,
) -> Outcome {
    let context = Context::new(Arc::clone(backend), hold, options);
    let (answer, answers) = channel();
    // A panic that an earlier check caught itself is none of this one.
    *PANICKED.lock().unwrap_or_else(PoisonError::into_inner) = None;
    let work = move || {
        let verdict = catch_unwind(AssertUnwindSafe(|| (check.run)(&context)));
        // Nobody listens where the deadline has passed.
        let _ = answer.send(verdict);
    };
    if let Err(error) = std::thread::Builder::new().name(check.name.to_owned()).spawn(work) {
        return Outcome::Failed(format!("no thread could be started: {error}"));
    }
    let why = match answers.recv_timeout(options.deadline) {
        Ok(Ok(Ok(()))) => return Outcome::Passed,
        Ok(Ok(Err(Stop::Skipped(why)))) => return Outcome::Skipped(why),
        Ok(Ok(Err(Stop::Failed(why)))) => shortened(why),
        Ok(Err(panic)) => shortened(format!("it panicked: {}", message(&*panic))),
        Err(RecvTimeoutError::Timeout) => {
            format!("it did not end within {} s", options.deadline.as_secs_f32())
        }
        Err(RecvTimeoutError::Disconnected) => "its thread ended without an answer".into(),
    };
    let panicked = PANICKED.lock().unwrap_or_else(PoisonError::into_inner).take();
    Outcome::Failed(panicked.map_or(why.clone(), |place| format!("{why} (a panic at {place})")))
}

/// Memory that differs is shown by its beginning only.
fn shortened(mut why: String) -> String {
    const MOST: usize = 600;
    if why.len() > MOST {
        why.truncate(why.floor_char_boundary(MOST));
        why.push_str(" ...");
    }
    why
}

fn message(panic: &(dyn std::any::Any + Send)) -> &str {
    panic
        .downcast_ref::<String>()
        .map(String::as_str)
        .or_else(|| panic.downcast_ref::<&str>().copied())
        .unwrap_or("no message")
}
