//! Settings, and the two grammars that read them from text.
//!
//! [`pytorch::parse`] takes what PyTorch takes, [`strict::parse`] takes only what is meant, and
//! [`environment::read`] knows which variables hold which. [`options()`] lists every option. Reading a text changes
//! nothing by itself: it gives new [`Settings`], or an error that says what to write instead.

pub mod environment;
mod limit;
mod number;
mod options;
mod plain;
pub mod pytorch;
mod pytorch_release;
mod refusals;
pub mod strict;
mod text;
mod tokens;
mod values;

pub use limit::{MemoryLimit, usual_host_reserve};
pub use options::{Grammar, OptionInfo, Settings, options};
pub use pytorch_release::PytorchRelease;
pub use refusals::{ConfigError, ExceptionClass, Warning};
pub use text::Inexpressible;

use std::fmt;
use std::str::FromStr;

/// Vendor whose names a text may use beside CUDA's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum Flavour {
    /// A CUDA build of PyTorch.
    #[default]
    Cuda,
    /// A ROCm build: `backend:hipMallocAsync` is known too.
    Hip,
}

/// Settings read from a text, and what is dubious about it.
#[derive(Clone, Debug, PartialEq)]
pub struct Parsed {
    /// The settings to use from now on.
    pub settings: Settings,
    /// Accepted parts that are probably not meant; at most 64 per text.
    pub warnings: Vec<Warning>,
}

/// The set of rules by which the engine rounds, places, splits, grows and releases.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum PolicyName {
    /// PyTorch's native allocator, to the byte.
    #[default]
    Pytorch,
    /// One memory for all sizes, constant time, no waste.
    Granule,
}

impl PolicyName {
    /// All of them.
    pub const ALL: &'static [Self] = &[Self::Pytorch, Self::Granule];

    /// Their names, for help texts.
    const NAMES: &str = "pytorch, granule";

    /// The name in a text.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Pytorch => "pytorch",
            Self::Granule => "granule",
        }
    }
}

impl fmt::Display for PolicyName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Free memory of other streams that a stream may reuse.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum CrossStream {
    /// Memory that the device is known to be done with.
    #[default]
    Completed,
    /// None.
    Never,
}

impl CrossStream {
    /// All of them.
    pub const ALL: &'static [Self] = &[Self::Completed, Self::Never];

    /// The one of that name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.iter().find(|one| one.name() == name).copied()
    }

    /// The name in a text.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Completed => "completed",
            Self::Never => "never",
        }
    }
}

/// Allocator that serves requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum AllocatorBackend {
    /// The caching engine (`backend:native`).
    #[default]
    Native,
    /// The driver's stream-ordered pools (`backend:cudaMallocAsync`).
    DriverPools,
}

impl AllocatorBackend {
    /// The name in a text: PyTorch's, which is CUDA's where there is only one.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Native => "native",
            Self::DriverPools => "cudaMallocAsync",
        }
    }

    fn from_name(name: &str, flavour: Flavour) -> Option<Self> {
        match (name, flavour) {
            ("native", _) => Some(Self::Native),
            ("cudaMallocAsync", _) | ("hipMallocAsync", Flavour::Hip) => Some(Self::DriverPools),
            _ => None,
        }
    }

    /// The names that exist, in PyTorch's words.
    const fn names(flavour: Flavour) -> &'static str {
        match flavour {
            Flavour::Cuda => "native and cudaMallocAsync",
            Flavour::Hip => "native, cudaMallocAsync, and hipMallocAsync",
        }
    }
}

/// Address space that a growable segment reserves.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ReserveSize {
    /// A share of the device's memory.
    Fraction(f64),
    /// Bytes.
    Bytes(u64),
}

impl Settings {
    /// Refuses `next` if it wants another backend than these settings, which are those of a running allocator.
    /// Every other option may change at any time.
    ///
    /// # Errors
    /// With PyTorch's text, where the backends differ.
    pub fn check_backend_change(&self, next: &Self) -> Result<(), ConfigError> {
        if self.backend == next.backend {
            return Ok(());
        }
        let (old, new) = (self.backend.name(), next.backend.name());
        let text = format!(
            "Allocator backend parsed at runtime != allocator backend parsed at load time, {new} != {old}"
        );
        let why = format!("the running allocator is {old}; choose the backend before the first allocation");
        Err(ConfigError::new(ExceptionClass::RuntimeError, text).because(why).of("backend").allowed(old))
    }

    /// Reads a text in the [strict] grammar, that of `GRANULE_CONF`: PyTorch's options and Granule's own, each at most
    /// once. What has no effect is logged as a warning. `text.parse::<Settings>()` does the same;
    /// [`pytorch::parse`] takes what `PYTORCH_CUDA_ALLOC_CONF` takes, [`environment::from_env`] reads the variables.
    ///
    /// ```
    /// use alloc_core::config::Settings;
    ///
    /// let settings = Settings::parse("expandable_segments:True,memory_limit:40GiB")?;
    /// assert!(settings.expandable_segments);
    /// let error = Settings::parse("expandable_segment:True").unwrap_err();
    /// assert!(error.to_string().contains("did you mean 'expandable_segments'?"));
    /// # Ok::<(), alloc_core::config::ConfigError>(())
    /// ```
    ///
    /// # Errors
    /// Names the token, its place in the text and what is allowed there.
    pub fn parse(text: &str) -> Result<Self, ConfigError> {
        let Parsed { settings, warnings } = strict::parse(text, &Self::default())?;
        for warning in warnings {
            tracing::warn!(%warning, text, "settings from a text");
        }
        Ok(settings)
    }

    /// The policy that the settings name, else the default.
    #[must_use]
    pub fn policy_name(&self) -> PolicyName {
        self.policy.unwrap_or_default()
    }

    /// The bytes of a host with `total` that requests leave to the rest of the machine; 0 where `host_reserve` is off.
    #[must_use]
    pub fn host_reserve_of(&self, total: u64) -> u64 {
        match (self.host_reserve, self.policy_name()) {
            (Some(reserve), _) => reserve.bytes(total),
            (None, PolicyName::Granule) => usual_host_reserve(total),
            (None, PolicyName::Pytorch) => 0,
        }
    }

    /// The release of PyTorch that the `pytorch` policy decides as, else the default.
    #[must_use]
    pub fn pytorch_release(&self) -> PytorchRelease {
        self.pytorch_release.unwrap_or_default()
    }

    /// Checks what the parsers check, for settings made in code.
    ///
    /// # Errors
    /// A text that names the field, its value and what is allowed.
    pub fn validate(&self) -> Result<(), String> {
        let wrong = options().iter().find_map(|o| Some(format!("{} {}", o.field.name, (o.wrong)(self)?)));
        wrong.map_or(Ok(()), Err)
    }
}

impl FromStr for Settings {
    type Err = ConfigError;

    /// [`Settings::parse`].
    fn from_str(text: &str) -> Result<Self, ConfigError> {
        Self::parse(text)
    }
}

impl ReserveSize {
    /// Bytes on a device with `total` bytes of memory, capped at 9/8 of it.
    #[must_use]
    pub fn bytes(self, total: u64) -> u64 {
        let full = total.saturating_add(total / 8);
        match self {
            #[allow(clippy::cast_precision_loss, clippy::cast_sign_loss)]
            Self::Fraction(share) => ((total as f64 * share) as u64).min(full),
            Self::Bytes(bytes) => bytes.min(full),
        }
    }
}
