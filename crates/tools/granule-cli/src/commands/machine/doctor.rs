//! `granule doctor`: what a machine is, what works on it and what does not, to be pasted into an issue.

mod conflicts;
mod limits;
mod personality;
mod private;
mod text;

use super::{Outcome, write_json};
use crate::backends::{self as named, Named};
use crate::failure::Failure;
pub(super) use conflicts::flavour;
use conflicts::{Conflict, Severity, conflict};
use granule::backend::Backend;
use granule::backends::{self, Capability, Chosen, Device, Driver, Name, Skipped};
use granule::config::{Settings, environment};
use granule::oom::HostRoom;
use granule::selftest::{self, SelfTest};
use granule::system::System;
use limits::{Limits, Machine};
use personality::Personality;
use private::Private;
use serde::Serialize;
use std::io::Write;
use std::sync::Arc;
use std::time::Duration;

/// The arguments of `granule doctor`.
#[derive(clap::Args, Clone, Debug)]
#[command(after_help = "\
Examples:
  granule doctor
  granule doctor --backend hip --json | jq .selftest.passed

Exit code 7 where no device can be used, no allocator starts with the
environment's settings, or the self-test fails.")]
pub(crate) struct Args {
    /// The backend: openreg (the simulated accelerator), cuda, hip or
    /// hip-as-cuda [default: as 'granule devices' chooses]
    #[arg(long, value_name = "NAME", value_parser = named::parse)]
    backend: Option<Named>,

    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// The self-test takes no longer, whatever a driver does.
const LIMIT: Duration = Duration::from_secs(10);

/// What was found before the self-test, and what that came to.
#[derive(Serialize)]
struct Answer<'a> {
    healthy: bool,
    granule: &'static str,
    #[serde(flatten)]
    found: &'a Found,
    selftest: Option<SelfTest>,
}

#[derive(Serialize)]
struct Found {
    driver: Standing,
    /// Machines with a character of their own that this one resembles.
    personality: Vec<Personality>,
    devices: Vec<Device>,
    families: Vec<Capability>,
    dropped: Vec<Dropped>,
    machine: Machine,
    limits: Limits,
    conflicts: Vec<Conflict>,
}

/// The backend that is used and its driver, or why there is none.
#[derive(Serialize)]
struct Standing {
    backend: Option<Name>,
    #[serde(flatten)]
    driver: Option<Driver>,
    reason: String,
    skipped: Vec<Skipped>,
}

/// What a device refused, and does without.
#[derive(Serialize)]
struct Dropped {
    device: u16,
    #[serde(flatten)]
    what: backends::Dropped,
}

/// Looks at the machine, tests it, and prints both.
pub(crate) fn run(args: &Args, out: &mut dyn Write) -> Result<Outcome, Failure> {
    let (found, settings, backend) = look(args.backend.map(|named| named.0));
    let private = Private::of_environment();
    if !args.json {
        // First: a driver may hang or end the process in the self-test.
        write!(out, "{}", private.hidden(&text::found(&found)))?;
        out.flush()?;
    }
    let selftest = backend.map(|backend| selftest::run(backend, &settings, LIMIT));
    let sound = found.conflicts.iter().all(|conflict| conflict.severity != Severity::Error);
    let healthy = sound && selftest.as_ref().is_some_and(|test| test.passed);
    if args.json {
        let answer = Answer { healthy, granule: env!("CARGO_PKG_VERSION"), found: &found, selftest };
        let answer = serde_json::to_value(&answer).map_err(Failure::Json)?;
        write_json(&private.hidden_in(answer), out)?;
    } else {
        write!(out, "{}", private.hidden(&text::tested(selftest.as_ref(), healthy)))?;
    }
    Ok(if healthy { Outcome::Done } else { Outcome::Unhealthy })
}

fn look(asked: Option<Name>) -> (Found, Settings, Option<Arc<dyn Backend>>) {
    let chosen = backends::choose(asked);
    let read = environment::from_env(flavour(chosen.as_ref().ok().map(|chosen| chosen.name)));
    // Those that are refused are a conflict.
    let settings = read.as_ref().map(|parsed| parsed.settings.clone()).unwrap_or_default();
    let system = System::at(&settings.system_root);
    let mut found = Found {
        driver: standing(&chosen),
        personality: Vec::new(),
        devices: Vec::new(),
        families: Vec::new(),
        dropped: Vec::new(),
        machine: Machine::here(&system),
        limits: Limits::here(&system),
        conflicts: conflicts::found(read, &system),
    };
    let backend = match chosen {
        Ok(Chosen { backend, .. }) => match backends::examine(&*backend) {
            Ok((devices, families)) => {
                (found.devices, found.families) = (devices, families);
                Some(backend)
            }
            Err(error) => {
                found.driver.reason = format!("a device does not answer: {error}");
                None
            }
        },
        Err(_) => None,
    };
    for device in &found.devices {
        let of = |what| Dropped { device: device.index, what };
        found.dropped.extend(device.dropped.iter().cloned().map(of));
    }
    if found.devices.iter().any(|device| device.integrated) {
        match HostRoom::of(&system, &settings) {
            Ok(Some(room)) if room.reserve > 0 => found.machine.host_reserve_bytes = Some(room.reserve),
            Ok(room) => found.conflicts.extend(room.map(|room| conflict(Severity::Note, room.to_string()))),
            Err(problem) => found.conflicts.push(conflict(Severity::Error, problem)),
        }
    }
    found.personality = personality::found(&found.devices, &found.machine);
    (found, settings, backend)
}

fn standing(chosen: &Result<Chosen, backends::ChoiceError>) -> Standing {
    match chosen {
        Ok(chosen) => Standing {
            backend: Some(chosen.name),
            driver: chosen.driver.clone(),
            reason: chosen.reason.clone(),
            skipped: chosen.skipped.clone(),
        },
        Err(error) => {
            Standing { backend: None, driver: None, reason: error.to_string(), skipped: Vec::new() }
        }
    }
}
