//! `granule devices`: what this build can run on.

use super::{Outcome, write_json};
use crate::console;
use crate::failure::Failure;
use crate::table::Table;
use granule::backends::{self, Name, Report, Standing, Who};
use granule::config::environment;
use granule::oom::HostRoom;
use granule::round::size_text;
use granule::system::System;
use serde::Serialize;
use std::fmt::Write as _;
use std::io::Write;

/// The arguments of `granule devices`.
#[derive(clap::Args, Clone, Debug)]
#[command(after_help = "\
Examples:
  granule devices
  granule devices --who
  granule devices --json | jq .chosen")]
pub(crate) struct Args {
    /// Say whose the memory of the chosen backend's devices is
    #[arg(long)]
    who: bool,

    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Answer<'a> {
    chosen: Option<Name>,
    /// Why none is chosen, and what to do.
    not_chosen: Option<&'a str>,
    /// Why no allocator starts with the environment's settings.
    settings_refused: Option<&'a str>,
    backends: &'a [Report],
    #[serde(skip_serializing_if = "Option::is_none")]
    who: Option<&'a [Who]>,
}

/// Looks at every backend and prints what was found.
pub(crate) fn run(args: &Args, out: &mut dyn Write) -> Result<Outcome, Failure> {
    let backends = backends::survey().map_err(Failure::Choice)?;
    let chosen = backends.iter().find(|b| b.state == Standing::Chosen);
    let refused = settings_refused(chosen);
    let chosen = chosen.map(|report| report.name);
    if let Some(refused) = &refused {
        console::warning(format_args!("no allocator starts: {refused}"));
    }
    let not_chosen = if chosen.is_none() { backends::choose(None).err() } else { None };
    let not_chosen = not_chosen.map(|error| error.to_string());
    let who = match chosen.filter(|_| args.who) {
        Some(name) => {
            backends::who(&backends::choose(Some(name)).map_err(Failure::Choice)?).map_err(Failure::SetUp)?
        }
        None => Vec::new(),
    };
    if args.json {
        let (not_chosen, settings_refused) = (not_chosen.as_deref(), refused.as_deref());
        let who = args.who.then_some(&who[..]);
        write_json(&Answer { chosen, not_chosen, settings_refused, backends: &backends, who }, out)?;
        return Ok(Outcome::Done);
    }
    for backend in &backends {
        write!(out, "{}", found(backend))?;
    }
    // What was found is above.
    let what_to_do = not_chosen.as_deref().and_then(|why| why.lines().last());
    match what_to_do {
        Some(why) => writeln!(out, "{}", console::fitted(&format!("no backend is chosen: {why}")))?,
        None if args.who => write!(out, "{}", told(&who))?,
        None => {}
    }
    Ok(Outcome::Done)
}

/// What the environment's settings are refused for.
fn settings_refused(chosen: Option<&Report>) -> Option<String> {
    match environment::from_env(super::doctor::flavour(chosen.map(|report| report.name))) {
        Ok(parsed) => {
            let system = System::at(&parsed.settings.system_root);
            let shares = chosen.is_some_and(|report| report.devices.iter().any(|device| device.integrated));
            let reserve = || HostRoom::of(&system, &parsed.settings).err().filter(|_| shares);
            system.problem().or_else(reserve)
        }
        Err(error) => Some(error.to_string()),
    }
}

/// A backend, for people.
fn found(backend: &Report) -> String {
    let state = match backend.state {
        Standing::Chosen => "chosen",
        Standing::Available => "available",
        Standing::Skipped => "skipped",
    };
    // That it is available needs no reason; that it is not the one that is used does.
    let between = if backend.state == Standing::Available { ";" } else { ":" };
    let said = format!("{} ({}): {state}{between} {}", backend.name, backend.what, backend.reason);
    let mut said = console::fitted(&said) + "\n";
    if backend.devices.is_empty() {
        return said;
    }
    let mut devices = Table::new(["device", "name", "memory", "free"]);
    for device in &backend.devices {
        let (total, free) = (size_text(device.total_bytes), size_text(device.free_bytes));
        devices.row([&device.index.to_string(), &device.name, &total, &free]);
    }
    devices.align_right([2, 3]);
    let _ = writeln!(said, "{devices}");
    for (index, memory) in backend.devices.iter().filter_map(|d| Some((d.index, d.kernel_memory?))) {
        let _ = writeln!(said, "{}", console::fitted(&format!("memory of device {index}: {memory}")));
    }
    let mut dropped = Table::new(["device", "does without", "so", "why"]);
    for device in &backend.devices {
        for one in &device.dropped {
            dropped.row([&device.index.to_string(), one.property, one.consequence, &one.reason]);
        }
    }
    if backend.devices.iter().any(|device| !device.dropped.is_empty()) {
        let _ = writeln!(said, "{dropped}");
    }
    let mut capabilities = Table::new(["capability", "available", "why not"]);
    for capability in &backend.capabilities {
        let available = if capability.available { "yes" } else { "no" };
        let reason = capability.reason.as_deref().unwrap_or_default();
        capabilities.row([capability.name, available, reason]);
    }
    let _ = writeln!(said, "{capabilities}");
    said
}

/// Whose the memory is, for people.
fn told(who: &[Who]) -> String {
    let mut table = Table::new(["device", "whose", "bytes"]);
    for one in who {
        let device = one.device.to_string();
        let mut row = |whose: &str, bytes: u64| table.row([&device, whose, &size_text(bytes)]);
        row("used, of all", one.used);
        for other in &one.other_processes {
            let granule =
                other.granule.map_or_else(String::new, |held| format!(", {} by Granule", size_text(held)));
            row(&format!("process {}{granule}", other.pid), other.bytes);
        }
        let own = one.process_other + one.pinned + one.ours.live + one.ours.cached + one.ours.pending;
        for (whose, bytes) in [("this command", own), ("graphs, kept by the driver", one.graphs)] {
            if bytes > 0 {
                row(whose, bytes);
            }
        }
        row("nobody's that is known", one.unaccounted);
        row("free", one.total.saturating_sub(one.used));
    }
    table.align_right([2]);
    format!("{table}\n")
}
