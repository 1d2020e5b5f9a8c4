//! Which driver it is.

use lookalike::settings::{Settings, VARIABLE};
use lookalike::{Answer, Code};
use std::sync::OnceLock;

/// A driver's character. `no-vmm` and `one-device` are a usual driver in front of another machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Personality {
    /// A current driver.
    Current,
    /// `old-driver`: version 11.4. What came later answers `NOT_SUPPORTED`; a test that wants the symbols to
    /// be absent hides them in its copy of the library (`lookalike::absence`).
    Old,
    /// `no-device`: initialisation answers `NO_DEVICE`.
    NoDevice,
    /// `stub`: what CUDA toolkits install for linking; everything answers `STUB_LIBRARY`.
    Stub,
}

/// What the driver of the machine that real programs run on says: programs refuse drivers that are older than they are.
const NEWEST: i32 = 13_020;

impl Personality {
    /// The version that the driver reports.
    #[must_use]
    pub fn version(self) -> i32 {
        match self {
            Self::Old => 11_040,
            _ if lookalike::settings().is_ok_and(|settings| settings.is_h100) => NEWEST,
            _ => crate::header::CUDA_VERSION as i32,
        }
    }
}

fn read() -> Result<Personality, String> {
    let settings = Settings::from_environment()?;
    match settings.personality.as_deref() {
        None | Some("default" | "no-vmm" | "one-device") => Ok(Personality::Current),
        Some("old-driver") => Ok(Personality::Old),
        Some("no-device") => Ok(Personality::NoDevice),
        Some("stub") => Ok(Personality::Stub),
        Some(other) => Err(format!(
            "{VARIABLE}: there is no personality `{other}`; choose default, old-driver, no-vmm, no-device, stub or \
             one-device"
        )),
    }
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

/// Refuses what came with a later version.
///
/// # Errors
/// `NOT_SUPPORTED`.
pub fn since(version: i32) -> Answer {
    if personality()?.version() < version { Err(Code::NOT_SUPPORTED) } else { Ok(()) }
}
