//! `granule devices`: what this build can run on.

use super::{Outcome, write_json};
use crate::compare::table::Table;
use crate::failure::Failure;
use granule::backends::{self, Name, Report, Standing, Who};
use granule::round::size_text;
use serde::Serialize;
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
    backends: &'a [Report],
    #[serde(skip_serializing_if = "Option::is_none")]
    who: Option<&'a [Who]>,
}

/// Looks at every backend and prints what was found.
pub(crate) fn run(args: &Args, out: &mut dyn Write) -> Result<Outcome, Failure> {
    let backends = backends::survey().map_err(Failure::Choice)?;
    let chosen = backends.iter().find(|b| b.state == Standing::Chosen).map(|b| b.name);
    let who = match chosen.filter(|_| args.who) {
        Some(name) => {
            backends::who(&backends::choose(Some(name)).map_err(Failure::Choice)?).map_err(Failure::SetUp)?
        }
        None => Vec::new(),
    };
    if args.json {
        write_json(&Answer { chosen, backends: &backends, who: args.who.then_some(&who[..]) }, out)?;
        return Ok(Outcome::Done);
    }
    for backend in &backends {
        let state = match backend.state {
            Standing::Chosen => "chosen",
            Standing::Available => "available",
            Standing::Skipped => "skipped",
        };
        // That it is available needs no reason; that it is not the one that is used does.
        let between = if backend.state == Standing::Available { ";" } else { ":" };
        writeln!(out, "{} ({}): {state}{between} {}", backend.name, backend.what, backend.reason)?;
        if backend.devices.is_empty() {
            continue;
        }
        let mut devices = Table::new(["device", "name", "memory", "free"]);
        for device in &backend.devices {
            let (total, free) = (size_text(device.total_bytes), size_text(device.free_bytes));
            devices.row([&device.index.to_string(), &device.name, &total, &free]);
        }
        devices.align_right([2, 3]);
        writeln!(out, "{devices}")?;
        let mut dropped = Table::new(["device", "does without", "so", "why"]);
        for device in &backend.devices {
            for one in &device.dropped {
                dropped.row([&device.index.to_string(), one.property, one.consequence, &one.reason]);
            }
        }
        if backend.devices.iter().any(|device| !device.dropped.is_empty()) {
            writeln!(out, "{dropped}")?;
        }
        let mut capabilities = Table::new(["capability", "available", "why not"]);
        for capability in &backend.capabilities {
            let available = if capability.available { "yes" } else { "no" };
            let reason = capability.reason.as_deref().unwrap_or_default();
            capabilities.row([capability.name, available, reason]);
        }
        writeln!(out, "{capabilities}")?;
    }
    if args.who {
        write!(out, "{}", told(&who))?;
    }
    Ok(Outcome::Done)
}

/// Whose the memory is, for people.
fn told(who: &[Who]) -> String {
    if who.is_empty() {
        return "whose the memory is: no backend is chosen; name one in GRANULE_BACKEND\n".into();
    }
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
        row("nobody's that is known", one.unaccounted);
        row("free", one.total.saturating_sub(one.used));
    }
    table.align_right([2]);
    format!("{table}\n")
}
