//! What machine and what driver a personality is: a file of `tests/personalities`, all of which are part of the library.
//!
//! `README.md` there says what a file may have. What is not known there is an error that says what fits.

use super::rules::{Made, Rule, pinned_bytes};
use super::words::{amount, bytes, family, no_call};
use super::{Settings, VARIABLE, order};
use crate::{Answer, Code};
use backend_api::types::DeviceIndex;
use backend_api::{Attribute, Backend, MemoryInfo};
use backend_openreg::{OpenReg, OpenRegConfig};
use include_dir::{Dir, include_dir};
use serde::Deserialize;
use std::collections::BTreeMap;

pub use super::words::Vendor;

static FILES: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/personalities");

/// Attributes that a file may set.
const ATTRIBUTES: [Attribute; 6] = [
    Attribute::VirtualMemoryManagement,
    Attribute::PosixFileDescriptorHandles,
    Attribute::FabricHandles,
    Attribute::GpuDirectRdmaWithVirtualMemory,
    Attribute::Integrated,
    Attribute::MemoryNode,
];

/// A file.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct File {
    #[allow(dead_code, reason = "for people, and asked for in every file")]
    about: String,
    #[serde(default)]
    machine: Machine,
    #[serde(default)]
    attributes: BTreeMap<String, i64>,
    #[serde(default)]
    memory: Figures,
    cuda: Option<Part>,
    hip: Option<Part>,
}

/// The machine.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Machine {
    devices: Option<u16>,
    capacity: Option<String>,
    /// Processes that are started by one with this machine count its devices from the other end.
    #[serde(default)]
    permuted: bool,
    #[serde(default)]
    without: Vec<String>,
}

/// What the driver says of free memory.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Figures {
    /// What it counts as used, and gives all the same: a page cache.
    cached: Option<String>,
    /// What it says that there is.
    limit: Option<String>,
}

/// One vendor's driver, as its file has it.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Part {
    version: Option<String>,
    /// What every call answers.
    answers: Option<i32>,
    /// Entry points that are not exported.
    #[serde(default)]
    lacks: Vec<String>,
    /// Memory that was unmapped and released stays taken until its addresses are given back.
    #[serde(default)]
    pub releases_late: bool,
    /// Memory is not exported again once the first descriptor is closed.
    #[serde(default)]
    pub exports_once: bool,
    /// A physical handle takes a descriptor of the process.
    #[serde(default)]
    pub takes_descriptors: bool,
    /// Memory that is mapped a second time shows other bytes there.
    #[serde(default)]
    pub maps_copies: bool,
    #[serde(default)]
    refuse: Vec<Rule>,
    #[allow(dead_code, reason = "read by `cargo xtask personalities`, and checked here")]
    #[serde(default)]
    expect: Expect,
}

/// What a program is to find.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
#[allow(dead_code, reason = "read by `cargo xtask personalities`, and checked here")]
struct Expect {
    #[serde(default)]
    skips: Vec<String>,
    #[serde(default)]
    fails: Vec<String>,
    #[serde(default)]
    drops: Vec<String>,
    #[serde(default)]
    disproves: Vec<String>,
    starts: Option<bool>,
    exact: Option<bool>,
    segments: Option<String>,
}

/// The driver of a personality.
#[derive(Debug)]
pub struct Driver {
    is_reversed: bool,
    attributes: BTreeMap<String, i64>,
    memory: Figures,
    /// What it does otherwise than others.
    pub part: Part,
}

fn read(name: &str) -> Result<File, String> {
    let found = FILES.get_file(format!("{name}.toml")).and_then(include_dir::File::contents_utf8);
    let text =
        found.ok_or_else(|| format!("there is no personality `{name}`; choose {}", names(|_| true)))?;
    toml::from_str(text).map_err(|error| format!("personality `{name}`: {error}"))
}

/// The names of all personalities for which this holds, for a sentence.
fn names(fits: impl Fn(&str) -> bool) -> String {
    let stem = |file: &'static include_dir::File<'static>| file.path().file_stem()?.to_str();
    let tomls = FILES.files().filter(|file| file.path().extension().is_some_and(|kind| kind == "toml"));
    let mut names: Vec<&str> = tomls.filter_map(stem).filter(|name| fits(name)).collect();
    names.sort_unstable();
    names.join(", ")
}

/// The machine of a personality, made of what it is otherwise.
///
/// # Errors
/// A sentence that says what is wrong, and what fits.
pub(crate) fn machine(name: &str, mut config: OpenRegConfig) -> Result<OpenRegConfig, String> {
    let machine = read(name)?.machine;
    let wrong = |what: &str| format!("personality `{name}`: machine.{what}");
    if let Some(devices) = machine.devices {
        config = config.devices(devices);
    }
    if let Some(text) = machine.capacity {
        config = config.capacity(
            bytes(&text).ok_or_else(|| wrong("capacity is bytes, or a number with KiB, MiB, GiB"))?,
        );
    }
    for absent in machine.without {
        config = config.without(
            family(&absent)
                .ok_or_else(|| wrong("without has vmm, ipc, peers, capture, registration or timing"))?,
        );
    }
    Ok(config)
}

impl Driver {
    /// This vendor's driver that the environment asks for, and its version as two numbers, where its file has one.
    ///
    /// # Errors
    /// A sentence that says what is wrong, and what fits.
    pub fn of_environment(vendor: &Vendor) -> Result<(Self, Option<(u32, u32)>), String> {
        // Read anew: this is asked while the library is loaded, and a copy of that process has an environment of its own.
        let settings = Settings::from_environment()?;
        let driver = Self::find(settings.personality.as_deref().unwrap_or("default"), vendor);
        driver
            .and_then(|driver| driver.version().map(|version| (driver, version)))
            .map_err(|wrong| format!("{VARIABLE}: {wrong}"))
    }

    fn find(name: &str, vendor: &Vendor) -> Result<Self, String> {
        let of_vendor = |file: &File| match vendor.name {
            "cuda" => file.cuda.clone(),
            _ => file.hip.clone(),
        };
        let file = read(name)?;
        let Some(part) = of_vendor(&file) else {
            let fitting = names(|other| read(other).is_ok_and(|other| of_vendor(&other).is_some()));
            return Err(format!("the personality `{name}` has no part [{}]; choose {fitting}", vendor.name));
        };
        let wrong = |what: String| format!("personality `{name}`: {what}");
        for attribute in file.attributes.keys() {
            if !ATTRIBUTES.iter().any(|known| format!("{known:?}") == *attribute) {
                return Err(wrong(format!("there is no attribute `{attribute}`; there are {ATTRIBUTES:?}")));
            }
        }
        for text in [&file.memory.cached, &file.memory.limit].into_iter().flatten() {
            amount(text, 0).ok_or_else(|| wrong(format!("`{text}` is no size: write 75% or 2GiB")))?;
        }
        for call in &part.lacks {
            if !(vendor.calls)().contains(&call.as_str()) {
                return Err(wrong(format!("lacks: {}", no_call(call, vendor))));
            }
        }
        for rule in &part.refuse {
            rule.check(vendor).map_err(wrong)?;
        }
        if !matches!(part.expect.segments.as_deref(), None | Some("growable" | "fixed")) {
            return Err(wrong("expect.segments is growable or fixed".into()));
        }
        let is_reversed = file.machine.permuted && order::is_started_by_another();
        Ok(Self { is_reversed, attributes: file.attributes, memory: file.memory, part })
    }

    fn version(&self) -> Result<Option<(u32, u32)>, String> {
        let Some(text) = &self.part.version else { return Ok(None) };
        let parts =
            text.split_once('.').and_then(|(major, minor)| Some((major.parse().ok()?, minor.parse().ok()?)));
        parts.map(Some).ok_or_else(|| format!("version is `{text}`; write for example \"12.4\""))
    }

    /// What a call answers that does nothing: what every call answers, or what a rule without conditions on its arguments says.
    ///
    /// # Errors
    /// That code.
    pub fn of_call(&self, function: &str) -> Answer {
        if let Some(code) = self.part.answers {
            return Err(Code(code));
        }
        self.part.refuse.iter().try_for_each(|rule| rule.of_call(function))
    }

    /// Refuses a request for memory, or addresses, of a device by its size.
    ///
    /// # Errors
    /// The rule's code; what the machine says.
    pub fn of_size(&self, function: &str, machine: &OpenReg, device: DeviceIndex, bytes: usize) -> Answer {
        let held = || Ok((machine.used(device), machine.properties(device)?.total_memory));
        self.part.refuse.iter().try_for_each(|rule| rule.of_size(function, bytes as u64, held))
    }

    /// The same for page-locked memory.
    ///
    /// # Errors
    /// The rule's code.
    pub fn of_pinned(&self, function: &str, bytes: usize) -> Answer {
        let held = || Ok((pinned_bytes(), u64::MAX));
        self.part.refuse.iter().try_for_each(|rule| rule.of_size(function, bytes as u64, held))
    }

    /// Refuses physical memory by how it was made.
    ///
    /// # Errors
    /// The rule's code.
    pub fn of_memory(&self, function: &str, made: Made) -> Answer {
        self.part.refuse.iter().try_for_each(|rule| rule.of_memory(function, made))
    }

    /// Entry points that are not exported.
    pub fn lacks(&self) -> impl Iterator<Item = &str> {
        self.part.lacks.iter().map(String::as_str)
    }

    /// What identifies the device that this process calls `device`.
    ///
    /// # Errors
    /// `NOT_SUPPORTED` where nothing does; what the machine says.
    pub fn uuid(&self, machine: &OpenReg, device: DeviceIndex) -> Answer<[u8; 16]> {
        let last = machine.device_count()?.saturating_sub(1);
        let meant = if self.is_reversed { DeviceIndex(last.saturating_sub(device.0)) } else { device };
        machine.properties(meant)?.uuid.ok_or(Code::NOT_SUPPORTED)
    }

    /// What the file says of an attribute.
    #[must_use]
    pub fn attribute(&self, attribute: Attribute) -> Option<i64> {
        self.attributes.get(&format!("{attribute:?}")).copied()
    }

    /// All memory, where the machine has `total`.
    #[must_use]
    pub fn total(&self, total: u64) -> u64 {
        self.memory(MemoryInfo { free: total, total }).total
    }

    /// What the driver says where the machine says `info`.
    #[must_use]
    pub fn memory(&self, info: MemoryInfo) -> MemoryInfo {
        let of = |text: &Option<String>| text.as_deref().and_then(|text| amount(text, info.total));
        let total = of(&self.memory.limit).unwrap_or(info.total).min(info.total);
        let used = info.total - info.free + of(&self.memory.cached).unwrap_or(0);
        MemoryInfo { free: total.saturating_sub(used), total }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const VENDOR: Vendor = Vendor {
        name: "cuda",
        calls: || vec!["cuMemCreate", "cuMemMap"],
        sized: &["cuMemCreate"],
        about_memory: &["cuMemMap"],
    };

    fn part(text: &str) -> Result<(), String> {
        let file: File = toml::from_str(text).map_err(|error| error.to_string())?;
        file.cuda.unwrap().refuse.iter().try_for_each(|rule| rule.check(&VENDOR))
    }

    #[test]
    fn what_is_not_known_is_an_error_that_says_what_fits() {
        part("about = 'x'\n[[cuda.refuse]]\ncalls = ['cuMemCreate']\nanswer = 2\nabove = '1GiB'").unwrap();
        for (wrong, says) in [
            ("about = 'x'\ncolour = 1\n[cuda]", "unknown field `colour`, expected one of"),
            ("about = 'x'\n[cuda]\nversions = '1'", "unknown field `versions`, expected one of `version`"),
            (
                "about = 'x'\n[[cuda.refuse]]\ncalls = ['cuMemCrate']\nanswer = 2",
                "the simulated cuda driver has no call `cuMemCrate`; near: ",
            ),
            (
                "about = 'x'\n[[cuda.refuse]]\ncalls = ['cuMemMap']\nanswer = 2\nabove = '1GiB'",
                "sizes; these can: cuMemCreate",
            ),
            (
                "about = 'x'\n[[cuda.refuse]]\ncalls = ['cuMemCreate']\nanswer = 2\nabove = 'much'",
                "`much` is no size",
            ),
            (
                "about = 'x'\n[[cuda.refuse]]\ncalls = ['cuMemMap']\nanswer = 2\nmade-with = 'love'",
                "unknown variant `love`",
            ),
            (
                "about = 'x'\n[[cuda.refuse]]\ncalls = ['cuMemMap']\nanswer = 2\nrepeats = 1",
                "only refusals of sizes",
            ),
            (
                "about = 'x'\n[[cuda.refuse]]\ncalls = ['cuMemCreate']\nanswer = 2\nabove = '1GiB'\nwithout-context = true",
                "one of made-with, above, beyond and without-context",
            ),
        ] {
            let message = part(wrong).unwrap_err();
            assert!(message.contains(says), "{message}");
        }
        let unknown = read("wls2").unwrap_err();
        assert!(unknown.contains("no personality `wls2`; choose ") && unknown.contains("wsl2"), "{unknown}");
    }
}
