//! Which runtime it is.
//!
//! | name | runtime |
//! |---|---|
//! | `rocm5` | 5.2, as Debian 12 has it |
//! | `rocm6`, `default`, none | 6.4 |
//! | `rocm70` | 7.0: the last that imports descriptors by pointer |
//! | `rocm7` | 7.1 |
//! | `few-descriptors` | 7.1, where every physical handle takes a file descriptor of the process |
//! | `no-device`, `no-vmm`, `one-device` | 6.4 in front of another machine |

use granule_hip_sys::Generation;
use lookalike::settings::{Settings, VARIABLE};
use lookalike::{Answer, Code};
use std::ffi::c_int;
use std::sync::OnceLock;

/// A version of the runtime.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Release {
    /// 5.2.
    V5_2,
    /// 6.4.
    V6_4,
    /// 7.0.
    V7_0,
    /// 7.1.
    V7_1,
}

/// A runtime's character.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Personality {
    /// Its version.
    pub release: Release,
    /// Whether a physical handle takes a descriptor, so that there is memory left when they run out.
    pub takes_descriptors: bool,
}

impl Personality {
    /// The version as the runtime packs it.
    #[must_use]
    pub const fn version(self) -> c_int {
        match self.release {
            Release::V5_2 => 50_221_153,
            Release::V6_4 => 60_443_484,
            Release::V7_0 => 70_051_831,
            Release::V7_1 => 70_152_802,
        }
    }

    /// Whose layouts and numbers it has.
    #[must_use]
    pub const fn generation(self) -> Generation {
        match self.release {
            Release::V5_2 => Generation::Five,
            Release::V6_4 => Generation::Six,
            Release::V7_0 | Release::V7_1 => Generation::Seven,
        }
    }

    /// Whether a descriptor is imported by its number; before, by a pointer to it.
    #[must_use]
    pub fn imports_by_value(self) -> bool {
        self.release >= Release::V7_1
    }

    /// Whether the last error outlives later calls that succeed.
    #[must_use]
    pub fn keeps_errors(self) -> bool {
        self.release >= Release::V7_0
    }

    /// What every call answers on a machine without a device.
    #[must_use]
    pub const fn no_device(self) -> Code {
        match self.release {
            Release::V5_2 => Code::INVALID_DEVICE,
            _ => Code::NO_DEVICE,
        }
    }
}

fn read() -> Result<Personality, String> {
    let settings = Settings::from_environment()?;
    let name = settings.personality.as_deref().unwrap_or("default");
    let release = match name {
        "rocm5" => Release::V5_2,
        "rocm6" | "default" | "no-device" | "no-vmm" | "one-device" => Release::V6_4,
        "rocm70" => Release::V7_0,
        "rocm7" | "few-descriptors" => Release::V7_1,
        other => {
            return Err(format!(
                "{VARIABLE}: there is no personality `{other}`; choose rocm5, rocm6, rocm70, rocm7, few-descriptors, \
                 no-device, no-vmm or one-device"
            ));
        }
    };
    Ok(Personality { release, takes_descriptors: name == "few-descriptors" })
}

/// Which one the environment asks for.
///
/// # Errors
/// `UNKNOWN` for settings that make no sense; what is wrong is printed once.
pub fn personality() -> Answer<Personality> {
    static READ: OnceLock<Option<Personality>> = OnceLock::new();
    let report = |message| eprintln!("lookalike driver: {message}");
    READ.get_or_init(|| read().map_err(report).ok()).ok_or(Code::UNKNOWN)
}
