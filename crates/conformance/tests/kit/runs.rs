//! How a run goes on over a backend that stands still or panics, and which checks it takes.

use crate::mutants::{hook, hooked};
use crate::subjects::SETUPS;
use alloc_core::backend::{Backend, Result};
use alloc_core::types::Stream;
use conformance::interpose::{Hook, Interposed};
use conformance::{Options, Outcome, Progress, Scorecard, Subject, checks};
use libtest_mimic::{Failed, Trial};
use std::sync::Arc;
use std::time::Duration;

pub(crate) fn trials() -> [Trial; 4] {
    [
        Trial::test("runs::end_over_a_backend_that_stands_still", end_over_a_backend_that_stands_still),
        Trial::test("runs::end_over_host_functions_that_run_inline", end_over_inline_host_functions),
        Trial::test("runs::go_on_after_panics", go_on_after_panics),
        Trial::test("runs::take_the_selected_checks", take_the_selected_checks),
    ]
}

hook! { StandsStill {
    fn synchronize_stream(&self, _: &dyn Backend, _: Stream) -> Result<()> {
        loop {
            std::thread::park();
        }
    }
}}

hook! { RunsInline {
    fn launch_host_function(
        &self,
        _: &dyn Backend,
        _: Stream,
        function: Box<dyn FnOnce() + Send + 'static>,
    ) -> Result<()> {
        function();
        Ok(())
    }
}}

/// A run over the first set-up behind a hook, without second processes.
fn run_over(
    make: impl Fn(Arc<dyn Backend>) -> Arc<dyn Backend> + Send + Sync + 'static,
    options: &Options,
    progress: impl FnMut(Progress<'_>),
) -> Result<Scorecard> {
    let subject = Subject::new("hooked", move || Ok(make(SETUPS[0].open()?)));
    conformance::run(&subject, options, progress)
}

fn end_over_a_backend_that_stands_still() -> std::result::Result<(), Failed> {
    let options = Options { deadline: Duration::from_secs(1), ..Options::default() };
    stops_after_three::<StandsStill>(&options, "it did not end within 1 s")
}

/// Here it is the gates that give up, and the checks fail in their own words.
fn end_over_inline_host_functions() -> std::result::Result<(), Failed> {
    let options = Options { patience: Duration::from_millis(300), ..Options::default() };
    stops_after_three::<RunsInline>(&options, "")
}

fn stops_after_three<H: Hook + Default>(
    options: &Options,
    why_failed: &str,
) -> std::result::Result<(), Failed> {
    let mut told = Vec::new();
    let card = run_over(hooked::<H>, options, |progress| {
        if let Progress::Ended(check) = progress {
            told.push((check.name, check.outcome.clone()));
        }
    })?;
    let outcomes: Vec<_> = card.checks.iter().map(|check| (check.name, check.outcome.clone())).collect();
    let failed: Vec<_> = outcomes.iter().filter_map(|(_, o)| failure(o)).collect();
    let not_run = Outcome::Skipped("not run: 3 checks before did not end in time".into());
    let last_failure = outcomes.iter().rposition(|(_, o)| failure(o).is_some()).unwrap_or_default();
    let rest = &outcomes[last_failure + 1..];
    if failed.len() < 3
        || !failed.iter().all(|why| why.contains(why_failed))
        || rest.len() < 100
        || !rest.iter().all(|(_, outcome)| *outcome == not_run)
    {
        return Err(format!("{card}").into());
    }
    // What is told as it goes is what the card says in the end.
    if told != outcomes { Err("the progress told something else".into()) } else { Ok(()) }
}

fn failure(outcome: &Outcome) -> Option<&str> {
    if let Outcome::Failed(why) = outcome { Some(why) } else { None }
}

/// Panics in one method, wherever it is called.
#[derive(Debug)]
struct Panics(&'static str);

impl Hook for Panics {
    fn enter(&self, method: &'static str) -> Result<()> {
        if method == self.0 {
            // Unwinds like a panic, without a message on the terminal.
            std::panic::resume_unwind(Box::new(format!("{method} is broken")));
        }
        Ok(())
    }
}

/// A panic fails the check, also where it comes from a drop and the next drops panic too.
fn go_on_after_panics() -> std::result::Result<(), Failed> {
    for (method, area) in [
        ("Backend::free", "memory."),
        ("Backend::free", "copies."),
        ("Backend::free", "engine."),
        ("Backend::synchronize_device", "copies."),
        ("Backend::destroy_stream", "streams."),
        ("Backend::destroy_event", "events."),
        ("Backend::host_free", "host."),
        ("Backend::set_device", "device."),
        ("VirtualMemory::unmap", "virtual_memory."),
    ] {
        let options = Options { only: vec![area.into()], ..Options::default() };
        let make = move |inner| Arc::new(Interposed::new(inner, Panics(method))) as Arc<dyn Backend>;
        let card = run_over(make, &options, |_| {})?;
        let why = format!("it panicked: {method} is broken");
        if !card.checks.iter().any(|check| failure(&check.outcome) == Some(&why)) {
            return Err(format!("{method} in {area}: {card}").into());
        }
    }
    Ok(())
}

fn take_the_selected_checks() -> std::result::Result<(), Failed> {
    let names = |parts: &[&str]| -> Vec<&str> {
        let parts: Vec<String> = parts.iter().map(|part| (*part).to_owned()).collect();
        checks::selected(&parts).map(|check| check.name).collect()
    };
    let all: Vec<&str> = checks::all().map(|check| check.name).collect();
    let expect = |parts: &[&str], wanted: &dyn Fn(&str) -> bool| {
        let due: Vec<&str> = all.iter().copied().filter(|name| wanted(name)).collect();
        let found = names(parts);
        if found == due { Ok(()) } else { Err(format!("{parts:?}: {found:?}, where {due:?} was due")) }
    };
    expect(&[], &|_| true)?;
    expect(&["memory."], &|name| name.starts_with("memory."))?;
    expect(&["memory.", "ipc"], &|name| name.starts_with("memory.") || name.contains("ipc"))?;
    expect(&["malloc_of_nothing"], &|name| name.ends_with("malloc_of_nothing"))?;
    expect(&["memory.malloc_of_nothing"], &|name| name == "memory.malloc_of_nothing")?;
    expect(&["emory."], &|_| false)?;
    // And a run takes what is selected.
    let options = Options { only: vec!["peers.".into()], ..Options::default() };
    let card = run_over(|inner| inner, &options, |_| {})?;
    let ran: Vec<&str> = card.checks.iter().map(|check| check.name).collect();
    if ran == names(&["peers."]) { Ok(()) } else { Err(format!("{ran:?}").into()) }
}
