//! Which runtime it is: a file of `tests/personalities` with a part `[hip]`.

use lookalike::personality::{Driver, Vendor};
use lookalike::settings::VARIABLE;
use lookalike::{Answer, Code};
use std::ffi::c_int;
use std::sync::OnceLock;

/// A version of the runtime.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Release {
    /// 5.2, which backends refuse by this number: all else of it is 6.4's.
    V5_2,
    /// 6.4.
    V6_4,
    /// 7.0.
    V7_0,
    /// 7.1.
    V7_1,
}

const VENDOR: Vendor = Vendor {
    name: "hip",
    calls: || granule_hip_sys::abi6::NAMES.to_vec(),
    sized: &["hipHostMalloc", "hipHostRegister", "hipMalloc", "hipMemAddressReserve", "hipMemCreate"],
    about_memory: &["hipMemCreate", "hipMemExportToShareableHandle", "hipMemMap", "hipMemSetAccess"],
};

/// A runtime's character.
#[derive(Debug)]
pub struct Personality {
    /// Its version.
    pub release: Release,
    /// What its file says.
    pub driver: Driver,
}

impl Personality {
    /// The version as the runtime packs it.
    #[must_use]
    pub const fn version(&self) -> c_int {
        match self.release {
            Release::V5_2 => 50_221_153,
            Release::V6_4 => 60_443_484,
            Release::V7_0 => 70_051_831,
            Release::V7_1 => 70_152_802,
        }
    }

    /// Whether a descriptor is imported by its number; before, by a pointer to it.
    #[must_use]
    pub fn imports_by_value(&self) -> bool {
        self.release >= Release::V7_1
    }

    /// Whether the last error outlives later calls that succeed.
    #[must_use]
    pub fn keeps_errors(&self) -> bool {
        self.release >= Release::V7_0
    }
}

fn read() -> Result<Personality, String> {
    let (driver, version) = Driver::of_environment(&VENDOR)?;
    let release = match version {
        Some((5, 2)) => Release::V5_2,
        Some((6, 4)) | None => Release::V6_4,
        Some((7, 0)) => Release::V7_0,
        Some((7, 1)) => Release::V7_1,
        Some((major, minor)) => {
            return Err(format!(
                "{VARIABLE}: {major}.{minor} is no release here; there are 5.2, 6.4, 7.0 and 7.1"
            ));
        }
    };
    Ok(Personality { release, driver })
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
