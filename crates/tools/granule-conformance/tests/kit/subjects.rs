//! What the kit runs over here, by name: a second process finds its subject by the same name.

use crate::mutants::{self, Mutant};
use crate::runs;
use backend_api::types::DeviceIndex;
use backend_api::{Backend, Result};
use backend_openreg::{Clock, MemoryMode, OpenReg, OpenRegConfig};
use granule_conformance::child::{self, ChildCommand};
use granule_conformance::{Options, Subject};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

/// A set-up of the simulator.
pub(crate) struct Setup {
    pub(crate) name: &'static str,
    config: fn(OpenRegConfig) -> OpenRegConfig,
    /// What it does not have: words of the only reasons for which checks may be skipped.
    lacks: &'static [&'static str],
}

/// Devices of which one does not reach another are missing.
const ONE_WAY: &str = "every device reaches every other";

pub(crate) static SETUPS: [Setup; 7] = [
    Setup { name: "two_devices", config: |config| config, lacks: &[ONE_WAY] },
    Setup { name: "one_device", config: |config| config.devices(1), lacks: &["second device", ONE_WAY] },
    Setup { name: "eight_devices", config: |config| config.devices(8), lacks: &[ONE_WAY] },
    Setup {
        name: "without_virtual_memory",
        config: OpenRegConfig::without_virtual_memory,
        lacks: &["virtual memory", ONE_WAY],
    },
    Setup {
        name: "without_event_timing",
        config: OpenRegConfig::without_event_timing,
        lacks: &["event timing", ONE_WAY],
    },
    Setup { name: "one_way_peers", config: one_way_peers, lacks: &[] },
    Setup { name: "small_pages", config: small_pages, lacks: &[ONE_WAY] },
];

/// Granules as small as the host can map.
fn small_pages(config: OpenRegConfig) -> OpenRegConfig {
    config.granularity(rustix::param::page_size() as u64)
}

/// The second device reaches the first, and not the other way round.
fn one_way_peers(config: OpenRegConfig) -> OpenRegConfig {
    config.without_peer(DeviceIndex(0), DeviceIndex(1))
}

impl Setup {
    pub(crate) fn open(&self) -> Result<Arc<dyn Backend>> {
        let real = OpenRegConfig::default().memory(MemoryMode::Mapped).clock(Clock::Workers);
        Ok(OpenReg::new((self.config)(real))?)
    }

    pub(crate) fn subject(&'static self) -> Subject {
        Subject::new(format!("openreg, {}", self.name), || self.open())
    }

    pub(crate) fn options(&self) -> Options {
        Options { child: Some(child_command(self.name)), ..Options::default() }
    }

    /// Whether a check may be skipped for this reason.
    pub(crate) fn may_skip(&self, why: &str) -> bool {
        self.lacks.iter().any(|part| why.contains(part))
    }
}

/// A mutant over the first set-up, on a machine of its own.
pub(crate) fn mutated(mutant: &'static Mutant) -> Subject {
    Subject::new(mutant.name, || Ok(mutant.over(SETUPS[0].open()?)))
}

/// What a wrong backend delays is not waited for as long as what a right one does.
pub(crate) fn impatient(mutant: &'static Mutant) -> Options {
    // Only where the mutant is about other processes are they started: they take most of the time.
    let needs_child = mutant.caught_by.starts_with("ipc.");
    Options {
        deadline: Duration::from_secs(10),
        patience: Duration::from_millis(600),
        // The check that must catch it is run, whatever the ones before it did.
        hangs: usize::MAX,
        keep_going: true,
        child: needs_child.then(|| child_command(mutant.name)),
        ..Options::default()
    }
}

fn child_command(subject: &str) -> ChildCommand {
    ChildCommand::with_arguments([subject.to_owned()])
}

/// Plays the child over the set-up or the mutant that the last argument names.
pub(crate) fn serve_child() -> ExitCode {
    let name = std::env::args().next_back().unwrap_or_default();
    if let Some(setup) = SETUPS.iter().find(|setup| setup.name == name) {
        return child::serve(&setup.subject());
    }
    if let Some(subject) = runs::subject(&name) {
        return child::serve(&subject);
    }
    match mutants::all().find(|mutant| mutant.name == name) {
        Some(mutant) => child::serve(&mutated(mutant)),
        None => ExitCode::FAILURE,
    }
}
