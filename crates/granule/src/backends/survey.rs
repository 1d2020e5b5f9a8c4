//! A look at every backend.

use super::{ChoiceError, Driver, Name, VARIABLE, passed_over, start, variable};
use alloc_core::backend::{self, Attribute, Backend, Unsupported, families};
use alloc_core::system::System;
use alloc_core::types::DeviceIndex;
use serde::Serialize;

/// What became of a backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Standing {
    /// It is used unless another is asked for.
    Chosen,
    /// It works; a preferred one is used, or it has to be named.
    Available,
    /// It cannot be used.
    Skipped,
}

/// One backend, as found.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Which.
    pub name: Name,
    /// What its devices are.
    pub what: &'static str,
    /// Whether this build has it.
    pub compiled_in: bool,
    /// What became of it.
    pub state: Standing,
    /// Why it has that state.
    pub reason: String,
    /// Its driver, where it has one and could be started.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub driver: Option<Driver>,
    /// Its devices.
    pub devices: Vec<Device>,
    /// The optional families of the contract.
    pub capabilities: Vec<Capability>,
}

/// One device.
#[derive(Clone, Debug, Serialize)]
pub struct Device {
    /// Its index.
    pub index: u16,
    /// The product's name.
    pub name: String,
    /// All its memory, in bytes.
    pub total_bytes: u64,
    /// What of it can be had, in bytes.
    pub free_bytes: u64,
    /// Whether it shares the host's memory.
    pub integrated: bool,
}

/// An optional family of the contract.
#[derive(Clone, Debug, Serialize)]
pub struct Capability {
    /// Its name.
    pub name: &'static str,
    /// Whether it is offered.
    pub available: bool,
    /// Why not; absent where it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// Looks at every backend there is, by preference, starting and leaving each. The chosen backend is that which
/// [`choose`](super::choose) would take without being told. Blocks while drivers start.
///
/// # Errors
/// [`ChoiceError::Unknown`] where the variable names no backend; none is looked at then.
pub fn survey() -> Result<Vec<Report>, ChoiceError> {
    let asked = variable().as_deref().map(Name::parse).transpose()?;
    let mut reports: Vec<Report> = Vec::new();
    for name in Name::ALL {
        let mut report = look(name);
        if report.state == Standing::Available {
            let taken = reports.iter().any(|other| other.state == Standing::Chosen);
            (report.state, report.reason) = place(name, asked, taken);
        }
        // A driver that is missing is missing for both labels.
        if let Some(before) = reports.last().filter(|before| same_driver(before, &report)) {
            report.reason = format!("as {}", before.name);
        }
        reports.push(report);
    }
    Ok(reports)
}

/// What becomes of a backend that works; `taken` where one before it is the chosen one.
fn place(name: Name, asked: Option<Name>, taken: bool) -> (Standing, String) {
    match (asked, passed_over(name)) {
        (Some(asked), _) if asked == name => (Standing::Chosen, format!("{VARIABLE}={asked} asks for it")),
        (Some(asked), _) => (Standing::Available, format!("{VARIABLE}={asked} asks for another")),
        (None, None) if !taken => (Standing::Chosen, "the first, by preference, that has a device".into()),
        (None, None) => (Standing::Available, "another comes first by preference".into()),
        (None, Some(why)) => (Standing::Available, why),
    }
}

fn same_driver(before: &Report, report: &Report) -> bool {
    report.state == Standing::Skipped
        && before.state == Standing::Skipped
        && report.compiled_in
        && report.reason == before.reason
}

fn look(name: Name) -> Report {
    let mut report = Report {
        name,
        what: name.what(),
        compiled_in: name.is_compiled_in(),
        state: Standing::Skipped,
        reason: String::new(),
        driver: None,
        devices: Vec::new(),
        capabilities: Vec::new(),
    };
    let found = start(name).and_then(|opened| {
        let devices = devices(&*opened.backend).map_err(|error| error.to_string())?;
        Ok((opened.driver, devices, capabilities(&*opened.backend)))
    });
    match found {
        Ok((driver, devices, capabilities)) => {
            report.state = Standing::Available;
            report.driver = driver;
            report.devices = devices;
            report.capabilities = capabilities;
        }
        Err(reason) => report.reason = reason,
    }
    report
}

/// The devices of a backend. May block while a driver makes contexts.
///
/// # Errors
/// The driver's, to a question about a device.
pub fn devices(backend: &dyn Backend) -> backend::Result<Vec<Device>> {
    (0..backend.device_count()?)
        .map(|index| {
            let properties = backend.properties(DeviceIndex(index))?;
            let driver = backend.memory_info(DeviceIndex(index))?;
            let integrated = backend.attribute(DeviceIndex(index), Attribute::Integrated) == Ok(1);
            let memory = if integrated { System::default().obtainable(driver) } else { driver };
            Ok(Device {
                index,
                name: properties.name,
                total_bytes: memory.total,
                free_bytes: memory.free,
                integrated,
            })
        })
        .collect()
}

/// What a backend offers of each optional family of the contract. A family that was not asked for before is probed, which
/// calls the driver.
#[must_use]
pub fn capabilities(backend: &dyn Backend) -> Vec<Capability> {
    let capability = |(name, probed): (_, Result<(), Unsupported>)| Capability {
        name,
        available: probed.is_ok(),
        reason: probed.err().map(|absent| absent.reason),
    };
    families(backend).into_iter().map(capability).collect()
}
