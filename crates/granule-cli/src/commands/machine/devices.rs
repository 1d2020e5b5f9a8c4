//! `granule devices`: what this build can run on.

use super::{Outcome, write_json};
use crate::compare::table::Table;
use crate::failure::Failure;
use granule::backends::{self, Name, Report, Standing};
use granule::round::size_text;
use serde::Serialize;
use std::io::Write;

/// The arguments of `granule devices`.
#[derive(clap::Args, Clone, Debug)]
#[command(after_help = "\
Examples:
  granule devices
  granule devices --json | jq .chosen")]
pub(crate) struct Args {
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Answer<'a> {
    chosen: Option<Name>,
    backends: &'a [Report],
}

/// Looks at every backend and prints what was found.
pub(crate) fn run(args: &Args, out: &mut dyn Write) -> Result<Outcome, Failure> {
    let backends = backends::survey().map_err(Failure::Choice)?;
    let chosen = backends.iter().find(|b| b.state == Standing::Chosen).map(|b| b.name);
    if args.json {
        write_json(&Answer { chosen, backends: &backends }, out)?;
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
    Ok(Outcome::Done)
}
