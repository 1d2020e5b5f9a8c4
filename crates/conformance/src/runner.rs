//! Runs checks, each on a thread of its own and with a deadline.

use crate::child::ChildCommand;
use crate::context::Context;
use crate::scorecard::{Outcome, Scorecard, Scored};
use crate::{Check, Stop, checks};
use alloc_core::backend::{Backend, Result};
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

/// What is checked: a backend by name, and how to start it.
pub struct Subject {
    name: String,
    open: Box<dyn Fn() -> Result<Arc<dyn Backend>> + Send + Sync>,
}

impl fmt::Debug for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Subject").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Subject {
    /// A subject; `open` is called once here and once in each child process.
    pub fn new(
        name: impl Into<String>,
        open: impl Fn() -> Result<Arc<dyn Backend>> + Send + Sync + 'static,
    ) -> Self {
        Self { name: name.into(), open: Box::new(open) }
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Starts the backend.
    ///
    /// # Errors
    /// What the backend says.
    pub fn open(&self) -> Result<Arc<dyn Backend>> {
        (self.open)()
    }
}

/// How a run is done.
#[derive(Clone, Debug)]
pub struct Options {
    /// Only checks whose names contain one of these; all where empty.
    pub only: Vec<String>,
    /// How long one check may take before it counts as failed.
    pub deadline: Duration,
    /// How long a check waits for what must happen soon.
    pub patience: Duration,
    /// How a second process is started; `None` skips the checks that need one.
    pub child: Option<ChildCommand>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            only: Vec::new(),
            deadline: Duration::from_secs(60),
            patience: Duration::from_secs(10),
            child: None,
        }
    }
}

/// Runs the kit over a subject. `progress` is told the name of each check before it starts.
///
/// # Errors
/// Where the backend does not start.
pub fn run(subject: &Subject, options: &Options, mut progress: impl FnMut(&Check)) -> Result<Scorecard> {
    let backend = subject.open()?;
    let wanted = |check: &&Check| {
        options.only.is_empty() || options.only.iter().any(|part| check.name.contains(part.as_str()))
    };
    let scored = checks::all()
        .filter(wanted)
        .map(|check| {
            progress(check);
            let outcome = run_one(*check, &backend, options);
            Scored { name: check.name, area: check.area, rule: check.rule, outcome }
        })
        .collect();
    Ok(Scorecard::new(subject.name(), scored))
}

/// A fresh thread gives each check a fresh current device, and lets a check that hangs be left behind.
pub(crate) fn run_one(check: Check, backend: &Arc<dyn Backend>, options: &Options) -> Outcome {
    let context = Context::new(Arc::clone(backend), options);
    let (answer, answers) = channel();
    let work = move || {
        let verdict = catch_unwind(AssertUnwindSafe(|| (check.run)(&context)));
        // Nobody listens where the deadline has passed.
        let _ = answer.send(verdict);
    };
    if let Err(error) = std::thread::Builder::new().name(check.name.to_owned()).spawn(work) {
        return Outcome::Failed(format!("no thread could be started: {error}"));
    }
    match answers.recv_timeout(options.deadline) {
        Ok(Ok(Ok(()))) => Outcome::Passed,
        Ok(Ok(Err(Stop::Failed(why)))) => Outcome::Failed(shortened(why)),
        Ok(Ok(Err(Stop::Skipped(why)))) => Outcome::Skipped(why),
        Ok(Err(panic)) => Outcome::Failed(format!("it panicked: {}", message(&*panic))),
        Err(RecvTimeoutError::Timeout) => {
            Outcome::Failed(format!("it did not end within {} s", options.deadline.as_secs_f32()))
        }
        Err(RecvTimeoutError::Disconnected) => Outcome::Failed("its thread ended without an answer".into()),
    }
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
