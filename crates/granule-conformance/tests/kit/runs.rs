//! How a run goes on over a backend that stands still or panics, and which checks it takes.

use crate::mutants::{self, hook, hooked};
use crate::subjects::SETUPS;
use backend_api::types::{DeviceIndex, DevicePtr, Event, Stream};
use backend_api::{
    Attribute, Backend, CopyKind, ErrorKind, EventFlags, HostFlags, PinnedHost, Result, Unsupported, defaults,
};
use granule_conformance::child::ChildCommand;
use granule_conformance::interpose::{Hook, Interposed};
use granule_conformance::{Options, Outcome, Progress, Scorecard, Subject, checks};
use libtest_mimic::{Failed, Trial};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

pub(crate) fn trials() -> [Trial; 9] {
    [
        Trial::test("runs::end_over_a_backend_that_stands_still", end_over_a_backend_that_stands_still),
        Trial::test("runs::end_over_host_functions_that_run_inline", end_over_inline_host_functions),
        Trial::test("runs::go_on_after_panics", go_on_after_panics),
        Trial::test("runs::take_the_selected_checks", take_the_selected_checks),
        Trial::test("runs::go_on_where_a_check_ends_the_process", go_on_where_a_check_ends_the_process),
        Trial::test(
            "runs::end_with_a_card_where_waits_return_early",
            end_with_a_card_where_waits_return_early,
        ),
        Trial::test("runs::repeat_what_goes_wrong_now_and_then", repeat_what_goes_wrong_now_and_then),
        Trial::test("runs::check_copies_without_pinned_memory", check_copies_without_pinned_memory),
        Trial::test("runs::check_sharing_without_attributes", check_sharing_without_attributes),
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
    granule_conformance::run(&subject, options, progress)
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

// What a backend over host memory does to its caller when its waits return early, or when it is beyond help.
hook! { EndsTheProcess {
    fn host_malloc(&self, _: &dyn PinnedHost, _: u64, _: HostFlags) -> Result<DevicePtr> {
        std::process::abort()
    }
} }

hook! { NeverWaits {
    fn synchronize_stream(&self, inner: &dyn Backend, stream: Stream) -> Result<()> {
        inner.query_stream(stream).map(drop)
    }

    fn synchronize_device(&self, inner: &dyn Backend, device: DeviceIndex) -> Result<()> {
        inner.memory_info(device).map(drop)
    }

    fn synchronize_event(&self, inner: &dyn Backend, event: Event) -> Result<()> {
        inner.query_event(event).map(drop)
    }
} }

// A chip that answers no question about its numbers.
hook! { NoAttributes {
    fn attribute(&self, inner: &dyn Backend, device: DeviceIndex, attribute: Attribute) -> Result<i64> {
        defaults::attribute(inner, device, attribute)
    }
} }

/// Subjects of this file that second processes find by name.
pub(crate) fn subject(name: &str) -> Option<Subject> {
    let make: fn(Arc<dyn Backend>) -> Arc<dyn Backend> = match name {
        "runs.ends_the_process" => hooked::<EndsTheProcess>,
        "runs.never_waits" => hooked::<NeverWaits>,
        "runs.no_attributes" => hooked::<NoAttributes>,
        _ => return None,
    };
    Some(Subject::new(name, move || Ok(make(SETUPS[0].open()?))))
}

fn run_apart(name: &'static str, only: &[&str]) -> std::result::Result<Scorecard, Failed> {
    let child = Some(ChildCommand::with_arguments([name.to_owned()]));
    let only = only.iter().map(|part| (*part).to_owned()).collect();
    let subject = subject(name).ok_or("no such subject")?;
    Ok(granule_conformance::run(&subject, &Options { only, child, ..Options::default() }, |_| {})?)
}

/// A check that ends its process has failed, and the next ones run.
fn go_on_where_a_check_ends_the_process() -> std::result::Result<(), Failed> {
    let card = run_apart("runs.ends_the_process", &["host.", "device.count"])?;
    let failed: Vec<&str> = card.checks.iter().filter_map(|check| failure(&check.outcome)).collect();
    let told = failed.iter().filter(|why| why.contains("it ended its process (signal: 6 (SIGABRT)")).count();
    let links = card.to_string().matches("see: https://").count();
    if told < 5
        || links != failed.len()
        || card.passed < 3
        || card.checks.iter().any(|c| c.see.is_some() != failure(&c.outcome).is_some())
    {
        return Err(format!("{card}").into());
    }
    Ok(())
}

fn end_with_a_card_where_waits_return_early() -> std::result::Result<(), Failed> {
    let card = run_apart("runs.never_waits", &["copies.", "streams.synchronize", "memory.aligned"])?;
    let caught = card.failures().any(|name| name == "streams.synchronize_waits");
    if !caught || card.passed == 0 { Err(format!("{card}").into()) } else { Ok(()) }
}

/// The family says that physical memory is shared, attributes or not.
fn check_sharing_without_attributes() -> std::result::Result<(), Failed> {
    let card = run_apart("runs.no_attributes", &["ipc.physical_memory", "ipc.exported_memory"])?;
    if card.passed == 3 && card.is_green() { Ok(()) } else { Err(format!("{card}").into()) }
}

/// Refuses its tenth event only.
#[derive(Debug, Default)]
struct TenthFails(AtomicU32);

impl Hook for TenthFails {
    fn create_event(&self, inner: &dyn Backend, device: DeviceIndex, flags: EventFlags) -> Result<Event> {
        match self.0.fetch_add(1, Ordering::SeqCst) {
            9 => Err(mutants::error(ErrorKind::Other)),
            _ => inner.create_event(device, flags),
        }
    }
}

fn repeat_what_goes_wrong_now_and_then() -> std::result::Result<(), Failed> {
    let only = vec!["events.handle_names_its_backend".to_owned()];
    let once = Options { only, ..Options::default() };
    let often = Options { repeat: 20, ..once.clone() };
    let (once, often) =
        (run_over(hooked::<TenthFails>, &once, |_| {})?, run_over(hooked::<TenthFails>, &often, |_| {})?);
    let why = often.checks.first().and_then(|check| failure(&check.outcome)).unwrap_or_default();
    if once.passed == 1 && why.starts_with("run 10 of 20: ") {
        Ok(())
    } else {
        Err(format!("{once}\n{often}").into())
    }
}

/// A chip without page-locked memory, whose queued copies may lose their last bytes.
#[derive(Debug, Default)]
struct NoPinnedHost {
    lost: u64,
}

impl Hook for NoPinnedHost {
    fn pinned_host_family<'a>(
        &self,
        _: &'a dyn Backend,
    ) -> std::result::Result<&'a dyn PinnedHost, Unsupported> {
        Err(Unsupported { family: "pinned host memory", reason: "hidden".into() })
    }

    unsafe fn copy_async(
        &self,
        inner: &dyn Backend,
        dst: DevicePtr,
        src: DevicePtr,
        bytes: u64,
        kind: CopyKind,
        stream: Stream,
    ) -> Result<()> {
        // SAFETY: the caller's promise, passed on for a part of the range.
        unsafe { inner.copy_async(dst, src, bytes - self.lost.min(bytes), kind, stream) }
    }
}

/// Copies are asked of every chip, page-locked memory is not.
fn check_copies_without_pinned_memory() -> std::result::Result<(), Failed> {
    let options = Options { only: vec!["copies.".into(), "host.".into()], ..Options::default() };
    let over = |lost| {
        let make = move |inner| Arc::new(Interposed::new(inner, NoPinnedHost { lost })) as Arc<dyn Backend>;
        run_over(make, &options, |_| {})
    };
    let (right, wrong) = (over(0)?, over(1)?);
    let passed = |name: &str| name.starts_with("copies.");
    let as_due = right.checks.iter().all(|check| (check.outcome == Outcome::Passed) == passed(check.name));
    let caught = |name| wrong.failures().any(|failed| failed == name);
    if as_due && caught("copies.queued_to_device") && caught("copies.queued_from_device") {
        Ok(())
    } else {
        Err(format!("{right}\n{wrong}").into())
    }
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
        ("PinnedHost::host_free", "host."),
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
