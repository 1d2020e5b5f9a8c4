//! Which backends this build has, what they found, and which one is used.

use granule::backend::{Backend, Result, Unsupported};
use granule::openreg::{OpenReg, OpenRegConfig};
use granule::types::DeviceIndex;
use serde::Serialize;
use std::sync::Arc;

/// Starts a backend.
type Open = fn() -> Result<Arc<dyn Backend>>;

/// A way to reach devices, by preference: real devices before simulated ones.
struct Known {
    name: &'static str,
    what: &'static str,
    /// Absent where this build does not have it.
    open: Option<Open>,
}

const KNOWN: [Known; 3] = [
    Known { name: "cuda", what: "NVIDIA GPUs", open: None },
    Known { name: "hip", what: "AMD GPUs", open: None },
    Known { name: "openreg", what: "simulated accelerator", open: Some(open_openreg) },
];

fn open_openreg() -> Result<Arc<dyn Backend>> {
    Ok(OpenReg::new(OpenRegConfig::default())?)
}

/// The backend a replay runs on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReplayBackend {
    /// The simulated accelerator.
    OpenReg,
}

impl ReplayBackend {
    /// What it runs on, with its article.
    pub(crate) const fn device(self) -> &'static str {
        match self {
            Self::OpenReg => "a simulated device",
        }
    }
}

/// Reads `--backend`.
pub(crate) fn parse(name: &str) -> std::result::Result<ReplayBackend, String> {
    if name == "openreg" {
        return Ok(ReplayBackend::OpenReg);
    }
    let there: Vec<_> = KNOWN.iter().filter(|b| b.open.is_some()).map(|b| b.name).collect();
    let there = there.join(", ");
    Err(match KNOWN.iter().find(|b| b.name == name) {
        Some(known) => {
            format!("{} ({}) is not available yet; this build has: {there}", known.name, known.what)
        }
        None => format!("there is no such backend; this build has: {there}"),
    })
}

/// What became of a backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum State {
    /// It is used unless another is asked for.
    Chosen,
    /// It works; a preferred one is used.
    Available,
    /// It cannot be used.
    Skipped,
}

/// One backend, as found.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    pub(crate) name: &'static str,
    pub(crate) what: &'static str,
    pub(crate) compiled_in: bool,
    pub(crate) state: State,
    /// Why it has that state.
    pub(crate) reason: String,
    pub(crate) devices: Vec<Device>,
    pub(crate) capabilities: Vec<Capability>,
}

/// One device.
#[derive(Debug, Serialize)]
pub(crate) struct Device {
    pub(crate) index: u16,
    pub(crate) name: String,
    pub(crate) total_bytes: u64,
    pub(crate) free_bytes: u64,
}

/// An optional family of the contract.
#[derive(Debug, Serialize)]
pub(crate) struct Capability {
    pub(crate) name: &'static str,
    pub(crate) available: bool,
    /// Why not; absent where it is available.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) reason: Option<String>,
}

/// Looks at every backend there is, by preference. The first that has a device is the chosen one.
pub(crate) fn survey() -> Vec<Report> {
    let mut reports: Vec<_> = KNOWN.iter().map(look).collect();
    let first = reports.iter().position(|r| r.state == State::Available);
    if let Some(chosen) = first.and_then(|n| reports.get_mut(n)) {
        chosen.state = State::Chosen;
        chosen.reason = "the first, by preference, that has a device".into();
    }
    reports
}

fn look(known: &Known) -> Report {
    let mut report = Report {
        name: known.name,
        what: known.what,
        compiled_in: known.open.is_some(),
        state: State::Skipped,
        reason: "not available yet".into(),
        devices: Vec::new(),
        capabilities: Vec::new(),
    };
    let Some(open) = known.open else { return report };
    let found = open().and_then(|backend| Ok((devices(&*backend)?, capabilities(&*backend))));
    match found {
        Ok((devices, _)) if devices.is_empty() => {
            report.reason = "the driver works and finds no device".into()
        }
        Ok((devices, capabilities)) => {
            report.state = State::Available;
            report.reason = "it works; another comes first by preference".into();
            report.devices = devices;
            report.capabilities = capabilities;
        }
        Err(error) => report.reason = error.to_string(),
    }
    report
}

fn devices(backend: &dyn Backend) -> Result<Vec<Device>> {
    (0..backend.device_count()?)
        .map(|index| {
            let properties = backend.properties(DeviceIndex(index))?;
            let memory = backend.memory_info(DeviceIndex(index))?;
            Ok(Device { index, name: properties.name, total_bytes: memory.total, free_bytes: memory.free })
        })
        .collect()
}

fn capabilities(backend: &dyn Backend) -> Vec<Capability> {
    fn capability<T>(name: &'static str, probed: std::result::Result<T, Unsupported>) -> Capability {
        Capability { name, available: probed.is_ok(), reason: probed.err().map(|absent| absent.reason) }
    }
    vec![
        capability("virtual memory", backend.virtual_memory()),
        capability("IPC", backend.ipc()),
        capability("peer access", backend.peers()),
        capability("graph capture", backend.capture()),
        capability("driver pools", backend.driver_pools()),
        capability("host registration", backend.host_registration()),
        capability("managed memory", backend.managed_memory()),
        capability("stream memory operations", backend.stream_memory()),
        capability("multicast", backend.multicast()),
        capability("host access", backend.host_access()),
    ]
}
