//! A look at every backend.

use super::{ChoiceError, Driver, Name, VARIABLE, passed_over, start, variable};
use alloc_core::aliases;
use alloc_core::backend::{
    self, Attribute, Backend, BackendError, Granularity, HandleType, Unsupported, families,
};
use alloc_core::config::{Flavour, environment};
use alloc_core::round::size_text;
use alloc_core::system::{Shared, SharedMemory, System};
use alloc_core::types::{DeviceIndex, DevicePtr};
use serde::Serialize;
use std::fmt;
use std::path::PathBuf;

/// The folder with `proc` and `sys` that the environment's settings name (`system_root`); this machine's where they are refused.
#[must_use]
pub fn system_root() -> PathBuf {
    let named = |flavour| environment::from_env(flavour).map(|parsed| parsed.settings.system_root);
    named(Flavour::Cuda).or_else(|_| named(Flavour::Hip)).unwrap_or_else(|_| PathBuf::from("/"))
}

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
    /// The system's node that its memory is, where it is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_node: Option<u32>,
    /// What the kernel says of its memory, where the driver tells a part alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kernel_memory: Option<KernelMemory>,
    /// What it refused when it was tried, and does without.
    pub dropped: Vec<Dropped>,
}

/// The memory of an AMD APU, in bytes.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct KernelMemory {
    /// What the firmware set aside for it (`mem_info_vram_total`).
    pub vram_bytes: u64,
    /// What it may take of the host's (`mem_info_gtt_total`).
    pub gtt_bytes: u64,
    /// What the driver says that there is.
    pub driver_bytes: u64,
}

impl fmt::Display for KernelMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [vram, gtt, driver] = [self.vram_bytes, self.gtt_bytes, self.driver_bytes].map(size_text);
        write!(
            f,
            "the kernel gives the larger of {vram} of VRAM and {gtt} of GTT, as far as the host has it; the driver says {driver}"
        )
    }
}

/// Something that a device does without.
#[derive(Clone, Debug, Serialize)]
pub struct Dropped {
    /// What was refused.
    pub property: &'static str,
    /// Which call refused it, and what it answered.
    pub reason: String,
    /// What comes of doing without it.
    pub consequence: &'static str,
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
        let (devices, capabilities) = examine(&*opened.backend).map_err(|error| error.to_string())?;
        Ok((opened.driver, devices, capabilities))
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

/// The devices of a backend, and what it offers of each optional family of the contract. Blocks while a driver makes contexts
/// and tries what nobody has asked for yet.
///
/// # Errors
/// The driver's, to a question about a device.
pub fn examine(backend: &dyn Backend) -> backend::Result<(Vec<Device>, Vec<Capability>)> {
    let mut devices = devices(backend)?;
    // Families first: what a device refuses shows when they are tried.
    let capabilities = capabilities(backend);
    for device in &mut devices {
        device.dropped = dropped(backend, DeviceIndex(device.index));
    }
    Ok((devices, capabilities))
}

fn devices(backend: &dyn Backend) -> backend::Result<Vec<Device>> {
    let system = System::at(system_root());
    (0..backend.device_count()?)
        .map(|index| {
            let properties = backend.properties(DeviceIndex(index))?;
            let driver = backend.memory_info(DeviceIndex(index))?;
            let shared = SharedMemory::of(&system, backend, DeviceIndex(index));
            let memory = shared.as_ref().map_or(driver, |shared| shared.obtainable(driver));
            let apu = shared.as_ref().and_then(|shared| shared.apu.as_ref());
            let kernel_memory = apu.filter(|_| memory.total > driver.total).map(|apu| KernelMemory {
                vram_bytes: apu.vram,
                gtt_bytes: apu.gtt,
                driver_bytes: driver.total,
            });
            let which = shared.map(|shared| shared.which);
            Ok(Device {
                index,
                name: properties.name,
                total_bytes: memory.total,
                free_bytes: memory.free,
                integrated: which == Some(Shared::Host),
                memory_node: match which {
                    Some(Shared::Node(node)) => Some(node),
                    _ => None,
                },
                kernel_memory,
                dropped: Vec::new(),
            })
        })
        .collect()
}

fn capabilities(backend: &dyn Backend) -> Vec<Capability> {
    let capability = |(name, probed): (_, Result<(), Unsupported>)| Capability {
        name,
        available: probed.is_ok(),
        reason: probed.err().map(|absent| absent.reason),
    };
    families(backend).into_iter().map(capability).collect()
}

/// What a device does without, after every way to make its physical memory was tried.
fn dropped(backend: &dyn Backend, device: DeviceIndex) -> Vec<Dropped> {
    for (attribute, handle_type) in [
        (Attribute::VirtualMemoryManagement, HandleType::None),
        (Attribute::PosixFileDescriptorHandles, HandleType::PosixFd),
        (Attribute::FabricHandles, HandleType::Fabric),
    ] {
        if backend.attribute(device, attribute).is_ok_and(|offered| offered != 0)
            && try_memory(backend, device, handle_type).is_err()
        {
            // The list has the reason, where it is one of the device.
            backend.clear_error();
        }
    }
    let refused = backend.dropped(device).into_iter().chain(aliases::dropped(backend, device));
    refused
        .map(|one| Dropped { property: one.property, reason: one.reason, consequence: one.consequence })
        .chain(short_addresses(backend, device))
        .collect()
}

/// What growable segments do without where the driver has few addresses at a time: a whole device and an eighth is what they reserve.
fn short_addresses(backend: &dyn Backend, device: DeviceIndex) -> Option<Dropped> {
    let memory = backend.virtual_memory().ok()?;
    let known = |error: BackendError| {
        backend.clear_error();
        error
    };
    let granule = memory.granularity(device, Granularity::Minimum).map_err(known).ok()?.max(1);
    let total = backend.properties(device).map_err(known).ok()?.total_memory;
    let reserve = |bytes| -> backend::Result<()> {
        let at = memory.reserve_address(device, bytes, 0, DevicePtr::NULL)?;
        // SAFETY: rule 3: reserved just now, and nothing is mapped there.
        unsafe { memory.release_address(at, bytes) }
    };
    let wanted = total.saturating_add(total / 8).next_multiple_of(granule);
    let refused = reserve(wanted).map_err(known).err()?;
    let halves = std::iter::successors(Some(wanted), |bytes| Some(bytes / 2));
    let had = halves
        .skip(1)
        .map(|bytes| bytes.next_multiple_of(granule))
        .take_while(|bytes| *bytes > granule)
        .find(|bytes| reserve(*bytes).map_err(known).is_ok())?;
    let (wanted, had) = (size_text(wanted), size_text(had));
    Some(Dropped {
        property: "reservation of a whole device's addresses",
        reason: format!("{wanted} were refused and {had} were had: {refused}"),
        consequence: "growable segments are shorter, and a block lies within one",
    })
}

fn try_memory(backend: &dyn Backend, device: DeviceIndex, handle_type: HandleType) -> backend::Result<()> {
    let memory = backend.virtual_memory()?;
    let bytes = memory.granularity(device, Granularity::Minimum)?;
    let handle = memory.create_physical(device, bytes, handle_type)?;
    // SAFETY: rule 1: made just now, mapped nowhere, and not used again.
    unsafe { memory.release_physical(handle) }
}
