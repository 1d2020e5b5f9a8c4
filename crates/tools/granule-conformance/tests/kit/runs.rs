//! How a run goes on over a backend that stands still or panics, and which checks it takes.

use crate::mutants::{Call, Mutant, lock, mutant};
use crate::subjects::{SETUPS, mutated};
use backend_api::types::DevicePtr;
use backend_api::{Backend, BackendError, ErrorKind, HostFunction, defaults};
use granule_conformance::child::ChildCommand;
use granule_conformance::{Line, Options, Outcome, Scorecard, Subject, checks};
use libtest_mimic::{Failed, Trial};
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, ChildStdout, Command, ExitCode, Stdio};
use std::sync::mpsc::channel;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

pub(crate) fn trials() -> [Trial; 16] {
    [
        Trial::test("runs::hold_streams_as_the_subject_says", hold_streams_as_the_subject_says),
        Trial::test("runs::end_over_a_backend_that_stands_still", end_over_a_backend_that_stands_still),
        Trial::test("runs::end_over_host_functions_that_run_inline", end_over_inline_host_functions),
        Trial::test("runs::go_on_after_panics", go_on_after_panics),
        Trial::test("runs::stop_behind_what_is_broken", stop_behind_what_is_broken),
        Trial::test(
            "runs::are_one_page_over_a_half_written_backend",
            are_one_page_over_a_half_written_backend,
        ),
        Trial::test("runs::take_the_selected_checks", take_the_selected_checks),
        Trial::test("runs::go_on_where_a_check_ends_the_process", go_on_where_a_check_ends_the_process),
        Trial::test(
            "runs::end_with_a_card_where_waits_return_early",
            end_with_a_card_where_waits_return_early,
        ),
        Trial::test("runs::repeat_what_goes_wrong_now_and_then", repeat_what_goes_wrong_now_and_then),
        Trial::test("runs::check_copies_without_pinned_memory", check_copies_without_pinned_memory),
        Trial::test("runs::check_sharing_without_attributes", check_sharing_without_attributes),
        Trial::test("runs::go_on_where_a_process_is_deaf", go_on_where_a_process_is_deaf),
        Trial::test("runs::are_told_line_by_line", are_told_line_by_line),
        Trial::test("runs::leave_whole_lines_where_they_are_killed", leave_whole_lines_where_they_are_killed),
        Trial::test("runs::end_quietly_where_nobody_reads", end_quietly_where_nobody_reads),
    ]
}

/// Backends that a run must bear.
const BORNE: &[Mutant] = &[
    mutant("runs.stands_still", "a wait for a stream never ends").synchronize_stream(|_| {
        loop {
            std::thread::park();
        }
    }),
    mutant("runs.runs_inline", "a host function runs where it is launched").launch_host_function(|call| {
        call.run_function();
        Ok(())
    }),
    mutant("runs.one_thread", "host functions run on the thread that moves all bytes")
        .launch_host_function(|call| {
            let (thread, function) = (call.kept::<Thread>(), call.function.take());
            call.function = function.map(|function| -> HostFunction {
                Box::new(move || {
                    let _busy = lock(&thread);
                    function();
                })
            });
            call.go()
        })
        .copy_async(takes_the_thread)
        .memset_async(takes_the_thread),
    // What a backend over host memory does to its caller when its waits return early, or when it is beyond help.
    mutant("runs.ends_the_process", "host_malloc ends the process").host_malloc(|_| std::process::abort()),
    mutant("runs.makes_deaf", "host_malloc stops the process").host_malloc(|call| {
        let stopped = Command::new("sh").args(["-c", "kill -STOP $PPID"]).status();
        assert!(stopped.is_ok_and(|status| status.success()), "a shell can stop its parent");
        call.go()
    }),
    mutant("runs.never_waits", "waits return at once")
        .synchronize_stream(|call| call.inner.query_stream(call.stream).map(drop))
        .synchronize_device(|call| call.inner.memory_info(call.device).map(drop))
        .synchronize_event(|call| call.inner.query_event(call.event).map(drop)),
    mutant("runs.no_attributes", "a chip answers no question about its numbers")
        .attribute(|call| defaults::attribute(call.inner, call.device, call.attribute)),
    mutant("runs.tenth_fails", "the tenth event is refused, and no other")
        .create_event(|call| call.refuse_as(ErrorKind::Other, call.turn() == 9)),
    mutant("runs.accepts_nothing", "a request for 0 bytes gives null, as on HIP")
        .malloc(|call| call.answer_if(call.bytes == 0, DevicePtr::NULL)),
    mutant("runs.half_written", "only what is about devices and memory is written").enter(|call| {
        let written = "id kind name label device attribute context memory malloc free pointer properties";
        let is_written = !call.method.starts_with("Backend::")
            || written.split(' ').any(|part| call.method.contains(part));
        assert!(is_written, "{} is not written yet", call.method);
        Ok(())
    }),
    mutant("runs.no_pinned_host", "a chip has no page-locked memory").without_pinned_host("hidden"),
    mutant("runs.no_pinned_host_and_copies_short", "besides, queued copies lose their last bytes")
        .without_pinned_host("hidden")
        .copy_async(|call| call.moves(call.bytes.saturating_sub(1))),
    mutant("runs.no_streams", "each stream is refused in other words").create_stream(|call| {
        let detail = format!("time {}", call.turn());
        Err(BackendError::new(ErrorKind::Other, 1, "orMutant", call.device, detail))
    }),
];

/// The one thread of a driver.
#[derive(Default)]
struct Thread;

fn takes_the_thread(call: &mut Call<'_, backend_api::Result<()>>) -> backend_api::Result<()> {
    if call.bytes > 0 && call.stream.backend == call.inner.id() {
        let thread = call.kept::<Thread>();
        call.inner.launch_host_function(call.stream, Box::new(move || drop(lock(&thread))))?;
    }
    call.go()
}

/// What holds streams of that driver without its thread.
static DRIVER: OnceLock<Arc<dyn Backend>> = OnceLock::new();

fn hold_streams_as_the_subject_says() -> Result<(), Failed> {
    let name = "runs.one_thread";
    let areas = ["copies", "streams", "events", "ordering", "threads"].map(str::to_owned).to_vec();
    let patience = Duration::from_millis(500);
    let options = Options { areas, patience, keep_going: true, ..Options::default() };
    if run_over(name, &options)?.is_green() {
        return Err("a host function that waits holds only its stream".into());
    }
    let driver = DRIVER.get_or_init(|| SETUPS[0].open().expect("it opens"));
    let mutant = BORNE.iter().find(|mutant| mutant.name == name).ok_or("no such subject")?;
    let subject = Subject::new(name, || Ok(mutant.over(Arc::clone(driver)))).held_by(|stream| {
        let (opener, opened) = channel::<()>();
        let driver = DRIVER.get().expect("it is open");
        driver.launch_host_function(stream, Box::new(move || _ = opened.recv()))?;
        Ok(Box::new(move || drop(opener)))
    });
    let card = granule_conformance::run(&subject, &options, |_| Ok(()))??;
    if card.is_green() { Ok(()) } else { Err(card.to_string().into()) }
}

/// One of them over the first set-up; second processes find it by name.
pub(crate) fn subject(name: &str) -> Option<Subject> {
    BORNE.iter().find(|mutant| mutant.name == name).map(mutated)
}

/// A run over one of them.
fn run_over(name: &str, options: &Options) -> Result<Scorecard, Failed> {
    Ok(granule_conformance::run(&subject(name).ok_or("no such subject")?, options, |_| Ok(()))??)
}

fn end_over_a_backend_that_stands_still() -> Result<(), Failed> {
    let options = Options { deadline: Duration::from_secs(1), ..Options::default() };
    stops_after_three_of_each_area("runs.stands_still", options, "it did not end within 1 s")
}

/// Here it is the gates that give up, and the checks fail in their own words.
fn end_over_inline_host_functions() -> Result<(), Failed> {
    let options = Options { patience: Duration::from_millis(300), ..Options::default() };
    stops_after_three_of_each_area("runs.runs_inline", options, "")
}

/// The rest of an area is skipped behind three of its checks, and the next one begins anew.
fn stops_after_three_of_each_area(name: &str, options: Options, why_failed: &str) -> Result<(), Failed> {
    let areas = ["streams", "events", "ordering"].map(str::to_owned).to_vec();
    let card = run_over(name, &Options { areas, keep_going: true, ..options })?;
    let not_run = Outcome::Skipped("not run: 3 checks of its area did not end in time".into());
    for area in card.checks.chunk_by(|a, b| a.area == b.area) {
        let failed: Vec<_> = area.iter().filter_map(|check| check.outcome.failure()).collect();
        let (ran, rest) = area.split_at(area.iter().take_while(|check| check.outcome != not_run).count());
        let as_due = failed.len() >= 3
            && failed.iter().all(|why| why.contains(why_failed))
            && ran[ran.len() - 1].outcome.failure().is_some()
            && rest.len() >= 3
            && rest.iter().all(|check| check.outcome == not_run);
        if !as_due {
            return Err(format!("{area:#?}").into());
        }
    }
    Ok(())
}

/// A check as it ends, its area behind its last check, the card at the end.
fn are_told_line_by_line() -> Result<(), Failed> {
    let areas = ["device", "ipc"].map(str::to_owned).to_vec();
    let options = Options { areas: areas.clone(), ..Options::default() };
    let mut told = Vec::new();
    let subject = Subject::new("told", || SETUPS[0].open());
    let card = granule_conformance::run(&subject, &options, |line| {
        told.push((matches!(line, Line::Check(_)), serde_json::to_value(line)?, line.to_string()));
        Ok(())
    })??;
    let (checks, others): (Vec<_>, Vec<_>) = told.iter().partition(|(check, ..)| *check);
    let names: Vec<_> = checks.iter().map(|(_, json, _)| json["name"].as_str()).collect();
    let due: Vec<_> = card.checks.iter().map(|check| Some(check.name)).collect();
    let last =
        told.iter().rposition(|(_, json, _)| json["name"].as_str().is_some_and(|n| n.starts_with("device.")));
    let [(_, device, text), (_, ipc, _), (_, all, totals)] = others[..] else {
        return Err(format!("{told:#?}").into());
    };
    let of = |json: &serde_json::Value| {
        ["passed", "failed", "skipped"].map(|name| json[name].as_u64().unwrap_or(0))
    };
    let sums = std::array::from_fn(|i| of(device)[i] + of(ipc)[i]);
    let as_due = names == due
        && names.len() as u64 == of(all).iter().sum::<u64>()
        && of(all) == sums
        && (&device["area"], &ipc["area"], &all["backend"])
            == (&"device".into(), &"ipc".into(), &"told".into())
        && last.is_some_and(|last| told[last + 1].1 == *device)
        && text.starts_with("device: ")
        && told.iter().all(|(check, _, text)| !check || text.is_empty())
        && *totals == format!("told: {}\n", card.tally);
    if as_due { Ok(()) } else { Err(format!("{told:#?}").into()) }
}

/// Names the subject over which this program is a vendor's.
pub(crate) const PROGRAM: &str = "KIT_PROGRAM";

/// Is the program of the subject of this name.
pub(crate) fn program(name: String) -> ExitCode {
    let found = subject(&name).expect("the tests name subjects of this file");
    granule_conformance::main(&name, move || found.open())
}

/// A vendor's program, of which the first line is read while a check hangs.
fn hanging_program(deadline: &str) -> Result<(Child, BufReader<ChildStdout>, String), Failed> {
    let mut program = Command::new(std::env::current_exe()?)
        .args(["--json", "--deadline", deadline, "memory.aligned", "streams."])
        .env(PROGRAM, "runs.stands_still")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    let mut out = BufReader::new(program.stdout.take().ok_or("its output is piped")?);
    let mut first = String::new();
    out.read_line(&mut first)?;
    Ok((program, out, first))
}

fn leave_whole_lines_where_they_are_killed() -> Result<(), Failed> {
    let start = Instant::now();
    let (mut program, mut out, mut lines) = hanging_program("60")?;
    // Before or in the first check that waits for a stream.
    program.kill()?;
    program.wait()?;
    out.read_to_string(&mut lines)?;
    let read: Vec<serde_json::Value> = lines.lines().map(serde_json::from_str).collect::<Result<_, _>>()?;
    let whole = read[0]["name"] == "memory.aligned" && read.iter().all(|line| line["backend"].is_null());
    let soon = start.elapsed() < Duration::from_secs(50);
    if whole && soon { Ok(()) } else { Err(format!("{:?}: {lines}", start.elapsed()).into()) }
}

fn end_quietly_where_nobody_reads() -> Result<(), Failed> {
    let (mut program, mut out, first) = hanging_program("2")?;
    let mut line = String::new();
    // A check that failed says where to read on; that counts, though nobody reads the totals.
    while !line.contains("\"see\":") {
        line.clear();
        if out.read_line(&mut line)? == 0 {
            return Err("nothing failed".into());
        }
    }
    drop(out);
    let mut said = String::new();
    program.stderr.take().ok_or("its errors are piped")?.read_to_string(&mut said)?;
    let status = program.wait()?;
    if status.code() == Some(1) && said.is_empty() && first.contains("memory.aligned") {
        Ok(())
    } else {
        Err(format!("{status}: {said}\n{first}").into())
    }
}

fn run_apart(name: &'static str, only: &[&str]) -> Result<Scorecard, Failed> {
    let child = Some(ChildCommand::with_arguments([name.to_owned()]));
    let only = only.iter().map(|part| (*part).to_owned()).collect();
    run_over(name, &Options { only, child, keep_going: true, ..Options::default() })
}

/// A check that ends its process has failed, and the next ones run.
fn go_on_where_a_check_ends_the_process() -> Result<(), Failed> {
    let card = run_apart("runs.ends_the_process", &["host.", "device.count"])?;
    let failed: Vec<&str> = card.checks.iter().filter_map(|check| check.outcome.failure()).collect();
    let told = failed.iter().filter(|why| why.contains("it ended its process (signal: 6 (SIGABRT)")).count();
    let links = card.to_string().matches("see: docs/new-backend.md#").count();
    if told < 5
        || links != failed.len()
        || card.tally.passed < 3
        || card.checks.iter().any(|c| c.see.is_some() != c.outcome.failure().is_some())
    {
        return Err(format!("{card}").into());
    }
    Ok(())
}

/// A process that does not answer is killed, and the next check has another.
fn go_on_where_a_process_is_deaf() -> Result<(), Failed> {
    let name = "runs.makes_deaf";
    let options = Options {
        only: ["host.malloc_is_not_null", "errors.unknown_codes"].map(str::to_owned).to_vec(),
        deadline: Duration::from_secs(1),
        child: Some(ChildCommand::with_arguments([name.to_owned()])),
        ..Options::default()
    };
    let card = run_over(name, &options)?;
    let why = card.checks.first().and_then(|check| check.outcome.failure()).unwrap_or_default();
    let deaf = why == "its process was deaf for 11 s (signal: 9 (SIGKILL))";
    if deaf && card.tally.failed == 1 && card.tally.passed >= 1 {
        Ok(())
    } else {
        Err(format!("{card}").into())
    }
}

fn end_with_a_card_where_waits_return_early() -> Result<(), Failed> {
    let card = run_apart("runs.never_waits", &["copies.", "streams.synchronize", "memory.aligned"])?;
    let caught = card.failures().any(|name| name == "streams.synchronize_waits");
    if !caught || card.tally.passed == 0 { Err(format!("{card}").into()) } else { Ok(()) }
}

/// The family says that physical memory is shared, attributes or not.
fn check_sharing_without_attributes() -> Result<(), Failed> {
    let card = run_apart("runs.no_attributes", &["ipc.physical_memory", "ipc.exported_memory"])?;
    if card.tally.passed == 3 && card.is_green() { Ok(()) } else { Err(format!("{card}").into()) }
}

fn repeat_what_goes_wrong_now_and_then() -> Result<(), Failed> {
    let only = vec!["events.handle_names_its_backend".to_owned()];
    let once = Options { only, ..Options::default() };
    let often = Options { repeat: 20, ..once.clone() };
    let (once, often) = (run_over("runs.tenth_fails", &once)?, run_over("runs.tenth_fails", &often)?);
    let why = often.checks.first().and_then(|check| check.outcome.failure()).unwrap_or_default();
    if once.tally.passed == 1 && why.starts_with("run 10 of 20: ") {
        Ok(())
    } else {
        Err(format!("{once}\n{often}").into())
    }
}

/// One mistake is one failure: what needs the broken area is not run, but where the run keeps going.
fn stop_behind_what_is_broken() -> Result<(), Failed> {
    let areas = ["device", "memory", "copies", "errors"].map(str::to_owned).to_vec();
    let options = Options { areas, ..Options::default() };
    let card = run_over("runs.accepts_nothing", &options)?;
    let not_run = Outcome::Skipped("not run: mend memory first".into());
    let mut behind = card.checks.iter().skip_while(|check| !check.name.starts_with("copies."));
    let text = card.to_string();
    if !card.failures().eq(["memory.malloc_of_nothing"])
        || !behind.all(|check| check.outcome == not_run)
        || !text.contains("\nmend memory first, then run the kit again; --keep-going ")
    {
        return Err(text.into());
    }
    let all = run_over("runs.accepts_nothing", &Options { keep_going: true, ..options })?;
    let failed: Vec<_> = all.failures().collect();
    if failed.len() > 2 && failed.iter().any(|name| name.starts_with("errors.")) {
        return Ok(());
    }
    Err(format!("{failed:?}").into())
}

/// The lines that a vendor sees of it.
fn seen(arguments: &[&str]) -> Result<String, Failed> {
    let mut program = Command::new(std::env::current_exe()?);
    program.args(arguments).env(PROGRAM, "runs.half_written").env("RUST_BACKTRACE", "1");
    let output = program.output()?;
    let text = String::from_utf8([output.stdout, output.stderr].concat())?;
    if output.status.code() == Some(1) { Ok(text) } else { Err(text.into()) }
}

/// How many failures are told, each of which is named once, and nothing else.
fn told_once(text: &str) -> Result<usize, Failed> {
    let words: Vec<&str> = text.split([' ', ':', ',', '\n']).collect();
    let times = |name: &str| words.iter().filter(|word| **word == name).count();
    let told: Vec<usize> = checks::all().map(|check| times(check.name)).filter(|times| *times > 0).collect();
    let failed = format!(" {} failed, ", told.len());
    let as_due = told.iter().all(|times| *times == 1)
        && text.lines().any(|line| line.starts_with("runs.") && line.contains(&failed));
    if as_due { Ok(told.len()) } else { Err(format!("{told:?}\n{text}").into()) }
}

fn are_one_page_over_a_half_written_backend() -> Result<(), Failed> {
    let page = seen(&[])?;
    println!("{page}");
    if page.lines().count() > 60
        || told_once(&page)? < 8
        || !page.contains("is not written yet (a panic at ")
        || page.contains("stack backtrace")
        || !page.contains("\nengine: ")
    {
        return Err(format!("{} lines", page.lines().count()).into());
    }
    // Also where more fail in an area than are told in full, each in other words, and others pass behind them.
    let mut text = String::new();
    let subject = subject("runs.no_streams").ok_or("no such subject")?;
    let options = Options { areas: vec!["copies".into()], ..Options::default() };
    granule_conformance::run(&subject, &options, |line| {
        text += &line.to_string();
        Ok(())
    })??;
    if text.matches("         see: ").count() != 5 || told_once(&text)? < 10 {
        return Err(text.into());
    }
    let long = seen(&["--backtrace", "device.", "memory."])?;
    if long.contains("stack backtrace") { Ok(()) } else { Err(long.into()) }
}

/// Copies are asked of every chip, page-locked memory is not.
fn check_copies_without_pinned_memory() -> Result<(), Failed> {
    let options = Options { only: vec!["copies.".into(), "host.".into()], ..Options::default() };
    let right = run_over("runs.no_pinned_host", &options)?;
    let wrong = run_over("runs.no_pinned_host_and_copies_short", &options)?;
    let passed = |name: &str| name.starts_with("copies.");
    let as_due = right.checks.iter().all(|check| (check.outcome == Outcome::Passed) == passed(check.name));
    let caught = |name| wrong.failures().any(|failed| failed == name);
    if as_due && caught("copies.queued_to_device") && caught("copies.queued_from_device") {
        Ok(())
    } else {
        Err(format!("{right}\n{wrong}").into())
    }
}

/// Backends that panic in one method, wherever it is called, and areas in which they do.
const PANICKING: &[(Mutant, &str)] = &[
    (mutant("free", "").free(panics), "memory."),
    (mutant("free", "").free(panics), "copies."),
    (mutant("free", "").free(panics), "engine."),
    (mutant("synchronize_device", "").synchronize_device(panics), "copies."),
    (mutant("destroy_stream", "").destroy_stream(panics), "streams."),
    (mutant("destroy_event", "").destroy_event(panics), "events."),
    (mutant("host_free", "").host_free(panics), "host."),
    (mutant("set_device", "").set_device(panics), "device."),
    (mutant("unmap", "").unmap(panics), "virtual_memory."),
];

/// Unwinds like a panic, without a message on the terminal.
fn panics(_: &mut Call<'_, backend_api::Result<()>>) -> backend_api::Result<()> {
    std::panic::resume_unwind(Box::new("the method is broken".to_owned()))
}

/// A panic fails the check, also where it comes from a drop and the next drops panic too.
fn go_on_after_panics() -> Result<(), Failed> {
    for (mutant, area) in PANICKING {
        let options = Options { only: vec![(*area).into()], ..Options::default() };
        let card = granule_conformance::run(&mutated(mutant), &options, |_| Ok(()))??;
        let broken = "it panicked: the method is broken";
        if !card.checks.iter().any(|check| check.outcome.failure() == Some(broken)) {
            return Err(format!("{} in {area}: {card}", mutant.name).into());
        }
    }
    Ok(())
}

fn take_the_selected_checks() -> Result<(), Failed> {
    let names = |areas: &[&str], parts: &[&str]| -> Vec<&str> {
        let [areas, only] =
            [areas, parts].map(|words| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>());
        let options = Options { areas, only, ..Options::default() };
        checks::selected(&options).map(|check| check.name).collect()
    };
    let all: Vec<&str> = checks::all().map(|check| check.name).collect();
    let expect = |areas: &[&str], parts: &[&str], wanted: &dyn Fn(&str) -> bool| {
        let due: Vec<&str> = all.iter().copied().filter(|name| wanted(name)).collect();
        let found = names(areas, parts);
        if found == due {
            Ok(())
        } else {
            Err(format!("{areas:?} {parts:?}: {found:?}, where {due:?} was due"))
        }
    };
    expect(&[], &[], &|_| true)?;
    expect(&[], &["memory."], &|name| name.starts_with("memory."))?;
    expect(&[], &["memory.", "ipc"], &|name| name.starts_with("memory.") || name.contains("ipc"))?;
    expect(&[], &["malloc_of_nothing"], &|name| name.ends_with("malloc_of_nothing"))?;
    expect(&[], &["memory.malloc_of_nothing"], &|name| name == "memory.malloc_of_nothing")?;
    expect(&[], &["emory."], &|_| false)?;
    expect(&["memory", "ipc"], &[], &|name| name.starts_with("memory.") || name.starts_with("ipc."))?;
    expect(&["memory"], &["malloc_of", "ipc."], &|name| name.starts_with("memory.malloc_of"))?;
    // And a run takes what is selected.
    let options = Options { only: vec!["peers.".into()], ..Options::default() };
    let card = granule_conformance::run(&SETUPS[0].subject(), &options, |_| Ok(()))??;
    let ran: Vec<&str> = card.checks.iter().map(|check| check.name).collect();
    if ran == names(&[], &["peers."]) { Ok(()) } else { Err(format!("{ran:?}").into()) }
}
