//! Settings: what they are, and the two ways to read them from text.
//!
//! [`pytorch::parse`] takes what PyTorch takes, [`strict::parse`] takes only what is meant, and
//! [`environment::read`] knows which variables hold which. [`options()`] lists every option. Reading a text changes
//! nothing by itself: it gives new [`Settings`], or an error that says what to write instead.

mod differences;
pub mod environment;
mod error;
mod limit;
mod number;
mod options;
mod plain;
pub mod pytorch;
pub mod strict;
mod text;
mod tokens;
mod values;

pub use error::{ConfigError, ExceptionClass, Warning};
pub use limit::MemoryLimit;
pub use options::{Grammar, OptionInfo, options};
pub use text::Inexpressible;

use crate::types::MIB;
use std::fmt;
use std::str::FromStr;

/// Which vendor's names a text may use beside CUDA's.
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
    /// What was accepted but is probably not meant; at most 64 per text.
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
    /// A program's own, by its [`NAME`](crate::policy::Policy::NAME); see
    /// [`CachingAllocator::with_policy`](crate::CachingAllocator::with_policy).
    Custom(&'static str),
}

impl PolicyName {
    /// Every policy that a text can name.
    pub const ALL: &'static [Self] = &[Self::Pytorch, Self::Granule];

    /// The name in a text.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Pytorch => "pytorch",
            Self::Granule => "granule",
            Self::Custom(name) => name,
        }
    }
}

impl fmt::Display for PolicyName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Custom(name) => write!(f, "custom:{name}"),
            own => f.write_str(own.name()),
        }
    }
}

/// Which allocator serves requests.
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

/// How much address space a growable segment reserves.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ReserveSize {
    /// A share of the device's memory.
    Fraction(f64),
    /// Bytes.
    Bytes(u64),
}

/// Every option, already checked. Sizes are bytes.
///
/// Field names follow PyTorch's option names without their unit suffix.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// `backend`.
    pub backend: AllocatorBackend,
    /// `large_segment_size_mb`: segment size for requests over 1 MiB and under 10 MiB, and the granule of
    /// large growable segments. Default 20 MiB.
    pub large_segment_size: u64,
    /// `max_split_size_mb`: blocks of this size and more are not split. `u64::MAX` is unlimited.
    pub max_split_size: u64,
    /// `max_non_split_rounding_mb`: how much larger than the request an oversize block may be. Default the
    /// large segment size.
    pub max_non_split_rounding: u64,
    /// `garbage_collection_threshold`: share of the allowed maximum above which old blocks are given back;
    /// 0 is off.
    pub garbage_collection_threshold: f64,
    /// `roundup_power2_divisions` for sizes of 1 MiB, 2 MiB, ... 32 GiB; 0 and 1 are off.
    pub roundup_power2_divisions: [u64; 16],
    /// `expandable_segments`: growable segments where the device has virtual memory.
    pub expandable_segments: bool,
    /// `expandable_segments_reserve`.
    pub expandable_segments_reserve: Option<ReserveSize>,
    /// `expandable_segments_reserve_by_class`, in the order given.
    pub expandable_segments_reserve_by_class: Vec<(String, ReserveSize)>,
    /// `release_lock_on_cudamalloc`: accepted; no lock is ever held over a driver call here.
    pub release_lock_on_malloc: bool,
    /// `per_process_memory_fraction`, 0 to 1.
    pub per_process_memory_fraction: f64,
    /// `throw_on_cudamalloc_oom`: refuse before the driver is asked.
    pub throw_on_oom: bool,
    /// `graph_capture_record_stream_reuse`.
    pub graph_capture_record_stream_reuse: bool,
    /// `pinned_use_cuda_host_register`.
    pub pinned_use_host_register: bool,
    /// `pinned_num_register_threads`.
    pub pinned_num_register_threads: u64,
    /// `pinned_reserve_segment_size_mb`; 0 is off.
    pub pinned_reserve_segment_size: u64,
    /// `pinned_use_background_threads`.
    pub pinned_use_background_threads: bool,
    /// `pinned_max_round_threshold_mb`; `u64::MAX` is unlimited.
    pub pinned_max_round_threshold: u64,
    /// `pinned_max_cached_size_mb`; `u64::MAX` is unlimited.
    pub pinned_max_cached_size: u64,
    /// `pinned_free_catch_all`.
    pub pinned_free_catch_all: bool,
    /// `policy` (Granule's own): who decides. Chosen when an allocator is made, and fixed from then on. `None` is the default,
    /// or what a running allocator has; see [`policy_name`](Self::policy_name).
    pub policy: Option<PolicyName>,
    /// `history_max_entries` (Granule's own): how many events the history keeps; 0 is off.
    pub history_max_entries: u64,
    /// `early_reuse` (Granule's own): where no other block fits, take one that only waits for work on other
    /// streams, and let the allocating stream wait for that work, before memory is taken from the device.
    pub early_reuse: bool,
    /// `segments_ipc` (Granule's own, and [`environment::SEGMENTS_IPC_VARIABLE`]): growable memory is made so that other
    /// processes can be given it. Read when a device makes its first. Default on.
    pub segments_ipc: bool,
    /// `memory_limit` (Granule's own): the most that is ever held from each device. `None` is unlimited.
    pub memory_limit: Option<MemoryLimit>,
    /// `memory_soft_limit` (Granule's own): above it, cached memory is given back before more is taken. `None`
    /// is unlimited.
    pub memory_soft_limit: Option<MemoryLimit>,
    /// `hardened` (Granule's own): freed blocks are checked, poisoned and held back for a while.
    pub hardened: bool,
    /// `hardened_quarantine_mb` (Granule's own): the most freed memory that is held back on each device. Default
    /// 64 MiB.
    pub hardened_quarantine: u64,
    /// False if every request goes straight to the driver. No option: see [`environment::BYPASS_VARIABLES`].
    pub caching: bool,
    /// The text these settings were read from, for the snapshot; empty if none.
    pub text: String,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            backend: AllocatorBackend::Native,
            large_segment_size: 20 * MIB,
            max_split_size: u64::MAX,
            max_non_split_rounding: 20 * MIB,
            garbage_collection_threshold: 0.0,
            roundup_power2_divisions: [0; 16],
            expandable_segments: false,
            expandable_segments_reserve: None,
            expandable_segments_reserve_by_class: Vec::new(),
            release_lock_on_malloc: false,
            per_process_memory_fraction: 1.0,
            throw_on_oom: false,
            graph_capture_record_stream_reuse: false,
            pinned_use_host_register: false,
            pinned_num_register_threads: 1,
            pinned_reserve_segment_size: 0,
            pinned_use_background_threads: false,
            pinned_max_round_threshold: u64::MAX,
            pinned_max_cached_size: u64::MAX,
            pinned_free_catch_all: false,
            policy: None,
            history_max_entries: 0,
            early_reuse: false,
            segments_ipc: true,
            memory_limit: None,
            memory_soft_limit: None,
            hardened: false,
            hardened_quarantine: 64 * MIB,
            caching: true,
            text: String::new(),
        }
    }
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
}

impl Settings {
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

    /// Checks what the parsers check, for settings made in code.
    ///
    /// # Errors
    /// A text that names the field, its value and what is allowed.
    pub fn validate(&self) -> Result<(), String> {
        let refuse = |field: &str, value: &dyn std::fmt::Debug, allowed: &str| {
            Err(format!("{field} is {value:?}; it must be {allowed}"))
        };
        let large = self.large_segment_size;
        if large <= 10 * MIB || !large.is_multiple_of(MIB) || large >= 1 << 50 {
            return refuse("large_segment_size", &large, "whole MiB, over 10 MiB");
        }
        if self.max_split_size < large {
            return refuse("max_split_size", &self.max_split_size, "at least large_segment_size");
        }
        if self.max_non_split_rounding < large {
            return refuse(
                "max_non_split_rounding",
                &self.max_non_split_rounding,
                "at least large_segment_size",
            );
        }
        if !(0.0..1.0).contains(&self.garbage_collection_threshold) {
            return refuse(
                "garbage_collection_threshold",
                &self.garbage_collection_threshold,
                "0 (off) or between 0 and 1",
            );
        }
        if !(0.0..=1.0).contains(&self.per_process_memory_fraction) {
            return refuse("per_process_memory_fraction", &self.per_process_memory_fraction, "from 0 to 1");
        }
        if let Some(wrong) = self.roundup_power2_divisions.iter().find(|d| **d != 0 && !d.is_power_of_two()) {
            return refuse("roundup_power2_divisions", wrong, "0 (off) or a power of two");
        }
        for (field, limit) in
            [("memory_limit", self.memory_limit), ("memory_soft_limit", self.memory_soft_limit)]
        {
            if let Some(limit) = limit.filter(|limit| !limit.is_sound()) {
                let allowed =
                    "MemoryLimit::Fraction over 0 and up to 1, MemoryLimit::Bytes of at least 1, or None";
                return refuse(field, &limit, allowed);
            }
        }
        Ok(())
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
