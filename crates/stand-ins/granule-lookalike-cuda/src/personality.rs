//! Which driver it is: a file of `tests/personalities` with a part `[cuda]`.

use lookalike::personality::{Driver, Vendor};
use lookalike::settings::Settings;
use lookalike::{Answer, Code};
use std::sync::OnceLock;

const VENDOR: Vendor = Vendor {
    name: "cuda",
    calls: || crate::entries().map(|entry| entry.name).collect(),
    sized: &[
        "cuMemAddressReserve",
        "cuMemAllocAsync",
        "cuMemAllocHost_v2",
        "cuMemAllocManaged",
        "cuMemAlloc_v2",
        "cuMemCreate",
        "cuMemHostAlloc",
        "cuMemHostRegister_v2",
    ],
    about_memory: &[
        "cuMemCreate",
        "cuMemExportToShareableHandle",
        "cuMemImportFromShareableHandle",
        "cuMemMap",
        "cuMemPoolCreate",
        "cuMemSetAccess",
    ],
};

/// A driver's character.
#[derive(Debug)]
pub struct Personality {
    /// What its file says.
    pub driver: Driver,
    version: i32,
}

/// What the driver of the machine that real programs run on says: programs refuse drivers that are older than they are.
const NEWEST: i32 = 13_020;

impl Personality {
    /// The version that the driver reports.
    #[must_use]
    pub const fn version(&self) -> i32 {
        self.version
    }
}

fn read() -> Result<Personality, String> {
    let (driver, version) = Driver::of_environment(&VENDOR)?;
    let version = match version {
        Some((major, minor)) => i32::try_from(major * 1000 + minor * 10).unwrap_or(i32::MAX),
        None if Settings::from_environment()?.is_h100 => NEWEST,
        None => crate::header::CUDA_VERSION as i32,
    };
    Ok(Personality { driver, version })
}

/// Which one the environment asks for.
///
/// # Errors
/// `UNKNOWN` for settings that make no sense; what is wrong is printed once.
pub fn personality() -> Answer<&'static Personality> {
    static READ: OnceLock<Option<Personality>> = OnceLock::new();
    let report = |message| eprintln!("lookalike driver: {message}");
    READ.get_or_init(|| read().map_err(report).ok()).as_ref().ok_or(Code::UNKNOWN)
}

/// Refuses what came with a later version.
///
/// # Errors
/// `NOT_SUPPORTED`.
pub fn since(version: i32) -> Answer {
    if personality()?.version() < version { Err(Code::NOT_SUPPORTED) } else { Ok(()) }
}

/// What the loader runs before `dlopen` returns.
#[cfg(target_os = "linux")]
#[used]
#[unsafe(link_section = ".init_array")]
static AT_LOAD: extern "C" fn() = hide_absent;

#[cfg(target_os = "linux")]
extern "C" fn hide_absent() {
    let Ok(personality) = personality() else { return };
    let names: Vec<&str> = personality.driver.lacks().collect();
    lookalike::absence::hide_here(&names);
}
