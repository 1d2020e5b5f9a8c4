//! Which backends this build has, what they find, and which one is used.
//!
//! [`choose`] takes the first of these:
//!
//! 1. the backend that the caller names;
//! 2. the backend that the variable `GRANULE_BACKEND` names;
//! 3. the first of `cuda`, `hip` and (where `hip` is not compiled in) `hip-as-cuda` that has a device.
//!
//! The simulated accelerator is taken only if it is named.

mod processes;
mod survey;
mod who;

pub use processes::tell_processes;
pub use survey::{Capability, Device, Dropped, KernelMemory, Report, Standing, examine, survey, system_root};
pub use who::{Other, Ours, Who, who};

use alloc_core::backend::{Backend, BackendError, ErrorKind};
use alloc_core::types::DeviceIndex;
use serde::Serialize;
use std::fmt;
use std::sync::Arc;

/// The variable that names the backend.
pub const VARIABLE: &str = "GRANULE_BACKEND";

/// A backend by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Name {
    /// NVIDIA GPUs.
    Cuda,
    /// AMD GPUs.
    Hip,
    /// AMD GPUs under CUDA's label.
    HipAsCuda,
    /// The simulated accelerator.
    #[serde(rename = "openreg")]
    OpenReg,
}

impl Name {
    /// Every name, by preference.
    pub const ALL: [Self; 4] = [Self::Cuda, Self::Hip, Self::HipAsCuda, Self::OpenReg];

    /// As it is written on a command line.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Cuda => "cuda",
            Self::Hip => "hip",
            Self::HipAsCuda => "hip-as-cuda",
            Self::OpenReg => "openreg",
        }
    }

    /// What its devices are.
    #[must_use]
    pub const fn what(self) -> &'static str {
        match self {
            Self::Cuda => "NVIDIA GPUs",
            Self::Hip => "AMD GPUs",
            Self::HipAsCuda => "AMD GPUs seen as NVIDIA ones",
            Self::OpenReg => "simulated accelerator",
        }
    }

    /// Whether this build has it.
    #[must_use]
    pub const fn is_compiled_in(self) -> bool {
        match self {
            Self::Cuda => cfg!(feature = "cuda-of-cudarc"),
            Self::Hip => cfg!(feature = "hip"),
            Self::HipAsCuda => cfg!(feature = "hip-as-cuda"),
            Self::OpenReg => cfg!(feature = "openreg"),
        }
    }

    /// The name that `text` is.
    ///
    /// # Errors
    /// [`ChoiceError::Unknown`].
    pub fn parse(text: &str) -> Result<Self, ChoiceError> {
        let known = Self::ALL.into_iter().find(|name| name.as_str() == text);
        known.ok_or_else(|| ChoiceError::Unknown { asked: text.to_owned() })
    }

    /// Starts the backend. May block while a driver starts.
    ///
    /// # Errors
    /// [`ErrorKind::NotSupported`] where this build does not have it, else the backend's error: a driver that is
    /// missing or too old, no device.
    pub fn open(self) -> alloc_core::backend::Result<Arc<dyn Backend>> {
        self.open_with_driver().map(|opened| opened.backend)
    }

    /// [`open`](Self::open), with what is known of the driver.
    ///
    /// # Errors
    /// Those of [`open`](Self::open).
    pub fn open_with_driver(self) -> alloc_core::backend::Result<Opened> {
        match self {
            #[cfg(feature = "cuda-of-cudarc")]
            Self::Cuda => {
                let cuda = backend_cuda::Cuda::load()?;
                let version = backend_cuda::version_text(cuda.driver_version());
                let driver = Driver { library: cuda.library().to_owned(), version };
                Ok(Opened { backend: cuda, driver: Some(driver) })
            }
            #[cfg(feature = "hip")]
            Self::Hip => {
                let hip = backend_hip::Hip::load()?;
                let driver = Some(hip_driver(&hip));
                Ok(Opened { backend: hip, driver })
            }
            #[cfg(feature = "hip-as-cuda")]
            Self::HipAsCuda => {
                let hip = backend_hip::Hip::load()?;
                let driver = Some(hip_driver(&hip));
                let presented = granule_masquerade::Masquerade::new(hip, granule_masquerade::Policy::Flip)
                    .map_err(|error| refused("present HIP as CUDA", error.to_string()))?;
                Ok(Opened { backend: presented, driver })
            }
            #[cfg(feature = "openreg")]
            Self::OpenReg => {
                use backend_openreg::{Clock, MemoryMode, OpenReg, OpenRegConfig};
                // Like an accelerator: bytes are real, and work runs beside the host.
                let config = OpenRegConfig::default().memory(MemoryMode::Mapped).clock(Clock::Workers);
                Ok(Opened { backend: OpenReg::new(config.capacity(4 << 30))?, driver: None })
            }
            #[allow(unreachable_patterns)] // Reachable unless every feature is on.
            absent => Err(refused(
                "open a backend",
                format!("this build does not have {absent}; build it with the feature `{absent}`"),
            )),
        }
    }

    /// Whether [`open`](Self::open) would find a library that has what every device needs. Starts no driver and looks for no
    /// device, so the process may still fork.
    ///
    /// # Errors
    /// As [`open`](Self::open), without the errors that only a started driver knows.
    pub fn check(self) -> alloc_core::backend::Result<()> {
        match self {
            #[cfg(feature = "cuda-of-cudarc")]
            Self::Cuda => backend_cuda::Cuda::check(),
            #[cfg(feature = "hip")]
            Self::Hip => backend_hip::Hip::check(),
            #[cfg(feature = "hip-as-cuda")]
            Self::HipAsCuda => backend_hip::Hip::check(),
            #[cfg(feature = "openreg")]
            Self::OpenReg => Ok(()),
            #[allow(unreachable_patterns)] // Reachable unless every feature is on.
            other => Err(refused("check a backend", absent(other))),
        }
    }

    /// Taken without being named, where it has a device.
    fn is_automatic(self) -> bool {
        match self {
            Self::Cuda | Self::Hip => true,
            // The same devices as `hip`, which comes first.
            Self::HipAsCuda => !Self::Hip.is_compiled_in(),
            Self::OpenReg => false,
        }
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

#[cfg(any(feature = "hip", feature = "hip-as-cuda"))]
fn hip_driver(hip: &backend_hip::Hip) -> Driver {
    Driver { library: hip.library().to_owned(), version: hip.driver_version().to_string() }
}

/// A driver that was found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Driver {
    /// The name under which its library was opened.
    pub library: String,
    /// The version of CUDA or HIP that it reports.
    pub version: String,
}

/// A backend that was started.
#[derive(Clone, Debug)]
pub struct Opened {
    /// The backend.
    pub backend: Arc<dyn Backend>,
    /// Its driver; the simulated accelerator has none.
    pub driver: Option<Driver>,
}

fn refused(what: &'static str, why: String) -> BackendError {
    BackendError::new(ErrorKind::NotSupported, 0, what, DeviceIndex(0), why)
}

/// A backend that was considered and not taken.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Skipped {
    /// Which.
    pub name: Name,
    /// Why.
    pub reason: String,
}

impl fmt::Display for Skipped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.name, self.reason)
    }
}

/// The backend that is used.
#[derive(Clone, Debug)]
pub struct Chosen {
    /// Its name.
    pub name: Name,
    /// Started, with a device at least.
    pub backend: Arc<dyn Backend>,
    /// Its driver; the simulated accelerator has none.
    pub driver: Option<Driver>,
    /// Why it is this one.
    pub reason: String,
    /// What came before it.
    pub skipped: Vec<Skipped>,
}

/// Why no backend is used.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
pub enum ChoiceError {
    /// There is no backend of that name.
    #[error(
        "there is no backend '{asked}'; there are {}{}",
        list(|_| true),
        if Name::ALL.into_iter().all(Name::is_compiled_in) {
            String::new()
        } else {
            format!(", of which this build has {}", list(Name::is_compiled_in))
        }
    )]
    Unknown {
        /// What was asked for.
        asked: String,
    },
    /// The one that was named cannot be used.
    #[error("{wanted} asks for the backend {}, which cannot be used: {}", skipped.name, skipped.reason)]
    Named {
        /// Who named it.
        wanted: String,
        /// The backend and the reason.
        skipped: Skipped,
    },
    /// None can be used.
    #[error(
        "no backend can be used:{}\n{}",
        skipped.iter().map(|one| format!("\n  {one}")).collect::<String>(),
        what_to_do()
    )]
    Nothing {
        /// All that were considered.
        skipped: Vec<Skipped>,
    },
}

/// As people read it, for `main` shows errors so.
impl fmt::Debug for ChoiceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

fn what_to_do() -> String {
    let real = [Name::Cuda, Name::Hip, Name::HipAsCuda].into_iter().any(Name::is_compiled_in);
    let device = if real {
        "Install a driver"
    } else {
        "Build with the feature of your devices, as in granule = { path = \"...\", features = [\"cuda\"] } (or \"hip\")"
    };
    let simulated = if Name::OpenReg.is_compiled_in() {
        format!("name the simulated accelerator: {VARIABLE}=openreg")
    } else {
        "build with the feature `openreg` for the simulated accelerator".to_owned()
    };
    format!("{device}, or {simulated}")
}

fn list(wanted: impl Fn(Name) -> bool) -> String {
    let names: Vec<_> = Name::ALL.into_iter().filter(|name| wanted(*name)).map(Name::as_str).collect();
    if names.is_empty() { "none".into() } else { names.join(", ") }
}

/// Picks and starts a backend; the order is that of the [module](self). May block while drivers start.
///
/// # Errors
/// [`ChoiceError`] with the reason for every backend that was considered.
pub fn choose(explicit: Option<Name>) -> Result<Chosen, ChoiceError> {
    choose_from(explicit, variable().as_deref(), start)
}

/// What the variable says, if anything.
fn variable() -> Option<String> {
    let text = std::env::var_os(VARIABLE).filter(|text| !text.is_empty())?;
    // What is not UTF-8 is no backend's name either, and must not read as "none was named".
    Some(text.to_string_lossy().into_owned())
}

fn choose_from(
    explicit: Option<Name>,
    variable: Option<&str>,
    start: impl Fn(Name) -> Result<Opened, String>,
) -> Result<Chosen, ChoiceError> {
    let named = match (explicit, variable) {
        (Some(name), _) => Some((name, "the caller".to_owned())),
        (None, Some(text)) => Some((Name::parse(text)?, format!("{VARIABLE}={text}"))),
        (None, None) => None,
    };
    if let Some((name, wanted)) = named {
        return match start(name) {
            Ok(Opened { backend, driver }) => {
                let reason = format!("{wanted} asks for it");
                Ok(Chosen { name, backend, driver, reason, skipped: Vec::new() })
            }
            Err(reason) => Err(ChoiceError::Named { wanted, skipped: Skipped { name, reason } }),
        };
    }
    let mut skipped = Vec::new();
    for name in Name::ALL {
        match passed_over(name).map_or_else(|| start(name), Err) {
            Ok(Opened { backend, driver }) => {
                let reason = "the first, by preference, that has a device".into();
                return Ok(Chosen { name, backend, driver, reason, skipped });
            }
            Err(reason) => skipped.push(Skipped { name, reason }),
        }
    }
    Err(ChoiceError::Nothing { skipped })
}

/// Why a backend is not even tried where none is named.
fn passed_over(name: Name) -> Option<String> {
    if !name.is_compiled_in() {
        return Some(absent(name));
    }
    if name.is_automatic() {
        return None;
    }
    Some(match name {
        Name::HipAsCuda => "the same devices as hip; used only if you name it".into(),
        _ => "used only if you name it".into(),
    })
}

fn absent(name: Name) -> String {
    format!("it is not in this build; build with the feature `{name}`")
}

/// A backend with a device, or why not.
fn start(name: Name) -> Result<Opened, String> {
    if !name.is_compiled_in() {
        return Err(absent(name));
    }
    let opened = name.open_with_driver().map_err(|error| error.to_string())?;
    match opened.backend.device_count() {
        Ok(0) => Err("the driver works and finds no device".into()),
        Ok(_) => Ok(opened),
        Err(error) => Err(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::{ChoiceError, Name, choose_from, start};

    #[test]
    fn a_wrong_name_is_answered_with_the_right_ones() {
        let error = choose_from(None, Some("cude"), start).unwrap_err();
        assert!(matches!(error, ChoiceError::Unknown { .. }));
        assert!(error.to_string().contains("cuda, hip, hip-as-cuda, openreg"), "{error}");
    }

    #[test]
    fn a_backend_that_is_not_compiled_in_is_refused_with_the_feature() {
        for name in Name::ALL.into_iter().filter(|name| !name.is_compiled_in()) {
            let error = choose_from(Some(name), None, start).unwrap_err().to_string();
            assert!(error.contains(&format!("feature `{name}`")), "{error}");
        }
    }

    #[cfg(feature = "openreg")]
    #[test]
    fn the_simulated_accelerator_is_taken_where_it_is_named() {
        let by_variable = choose_from(None, Some("openreg"), start).unwrap();
        assert_eq!((by_variable.name, by_variable.backend.name()), (Name::OpenReg, "openreg"));
        assert_eq!(choose_from(Some(Name::OpenReg), Some("nonsense"), start).unwrap().name, Name::OpenReg);
    }

    #[cfg(all(
        feature = "openreg",
        not(any(feature = "cuda-of-cudarc", feature = "hip", feature = "hip-as-cuda"))
    ))]
    #[test]
    fn without_a_feature_for_devices_the_error_names_it() {
        let error = choose_from(None, None, start).unwrap_err().to_string();
        assert!(error.contains("features = [\"cuda\"] } (or \"hip\")"), "{error}");
        assert!(error.contains("GRANULE_BACKEND=openreg"), "{error}");
    }

    #[cfg(all(feature = "openreg", feature = "cuda-of-cudarc", feature = "hip"))]
    #[test]
    fn the_simulated_accelerator_is_never_a_silent_fallback() {
        match choose_from(None, None, start) {
            Ok(chosen) => assert_ne!(chosen.name, Name::OpenReg),
            Err(ChoiceError::Nothing { skipped }) => {
                assert_eq!(skipped.len(), 4);
                assert!(skipped.iter().all(|one| !one.reason.is_empty()));
            }
            Err(other) => panic!("{other}"),
        }
    }

    /// With a driver for each that is asked.
    #[cfg(all(feature = "openreg", feature = "cuda-of-cudarc", feature = "hip", feature = "hip-as-cuda"))]
    #[test]
    fn cuda_comes_before_hip_and_hip_before_its_masquerade() {
        let has = |there: &'static [Name]| {
            move |name: Name| match there.contains(&name) {
                true => start(Name::OpenReg),
                false => Err("nothing there".to_owned()),
            }
        };
        let chosen = |there| choose_from(None, None, has(there)).map(|chosen| chosen.name);
        assert_eq!(chosen(&[Name::Cuda, Name::Hip, Name::HipAsCuda]).unwrap(), Name::Cuda);
        assert_eq!(chosen(&[Name::Hip, Name::HipAsCuda]).unwrap(), Name::Hip);
        assert!(matches!(chosen(&[Name::HipAsCuda, Name::OpenReg]), Err(ChoiceError::Nothing { .. })));
    }
}
