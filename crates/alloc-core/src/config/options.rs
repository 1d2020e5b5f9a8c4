//! The one table of options: a row has an option's name, kind of value, field, default, range and effect. [`Settings`]
//! has a field for each row; parsing, printing, checking, comparing and help follow from it.

use super::refusals::Warning;
use super::values::{OptionValue, Stored, ValueKind};
use super::{AllocatorBackend, CrossStream, MemoryLimit, PolicyName, PytorchRelease, ReserveSize};
use crate::types::MIB;
use std::fmt::Debug;
use std::path::PathBuf;

/// Texts that may carry an option.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Grammar {
    /// PyTorch's variables, Granule's variable and the API.
    Pytorch,
    /// Only Granule's variable and the API.
    Granule,
}

/// Parser of PyTorch's that owns an option, which decides the order of errors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OwnedBy {
    Common,
    Device,
    Granule,
}

/// Description of an option, for help texts and documentation.
#[derive(Clone, Copy, Debug)]
pub struct OptionInfo {
    /// The name in a text.
    pub name: &'static str,
    /// Another name for the same option.
    pub alias: Option<&'static str>,
    /// Unit or type of the value.
    pub unit: &'static str,
    /// The default, as it would be written.
    pub default: &'static str,
    /// The values allowed.
    pub range: &'static str,
    /// Further values of the strict grammar, mostly to switch the option off again.
    pub strict_extra: Option<&'static str>,
    /// Its effect.
    pub help: &'static str,
    /// Texts that may carry it.
    pub grammar: Grammar,
    /// The first release of PyTorch that has it; 2.0 stands for older ones, too.
    pub since: (u16, u16),
    pub(super) key: Key,
    pub(super) owner: OwnedBy,
    pub(super) kind: ValueKind,
    pub(super) field: Field,
    /// PyTorch's message on a value outside its range, where large segments have that many MiB.
    pub(super) refuse: fn(&OptionValue, u64) -> Option<String>,
    /// Problem with its value in settings made in code.
    pub(super) wrong: fn(&Settings) -> Option<String>,
    /// Reason that it does nothing, as these settings combine it with others.
    pub(super) idle: fn(&Settings) -> Option<&'static str>,
    /// Effect that is hardly meant, as these settings combine it with others.
    pub(super) harm: fn(&Settings) -> Option<&'static str>,
}

/// The field of [`Settings`] that keeps an option.
#[derive(Clone, Copy, Debug)]
pub(super) struct Field {
    pub(super) name: &'static str,
    /// Stores a value that was checked.
    pub(super) store: fn(&mut Settings, OptionValue),
    /// Its value as a text has it.
    pub(super) written: fn(&Settings) -> String,
    pub(super) differs: fn(&Settings, &Settings) -> bool,
    /// Copies it from other settings.
    pub(super) copy: fn(&mut Settings, &Settings),
}

impl OptionInfo {
    /// The values that the strict grammar takes.
    #[must_use]
    pub fn strict_range(&self) -> String {
        match self.strict_extra {
            Some(extra) => format!("{}, or {extra}", self.range),
            None => self.range.to_owned(),
        }
    }

    /// True if settings have its default. An option that by default follows another one must have that one's value.
    pub(super) fn is_default(&self, settings: &Settings) -> bool {
        match self.key {
            Key::MaxNonSplitRounding => settings.max_non_split_rounding == settings.large_segment_size,
            _ => !(self.field.differs)(settings, &Settings::default()),
        }
    }
}

/// Makes [`Settings`], [`Key`] and the table of the rows
/// `Key = Owner "name": Kind, field: type = default; "help" { what is not usual }`. Lines of documentation above a row
/// are for the field alone.
macro_rules! options {
    ($(
        $(#[doc = $more:literal])*
        $key:ident = $owner:ident $name:literal: $kind:ident, $field:ident: $type:ty = $default:expr;
        $help:literal { $($own:tt)* }
    )+) => {
        /// An option, by name of its field.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(super) enum Key {
            $($key,)+
        }

        /// Every option, already checked. Sizes are bytes.
        ///
        /// Field names follow PyTorch's option names without their unit suffix.
        #[derive(Clone, Debug, PartialEq)]
        pub struct Settings {
            $(
                #[doc = concat!("`", $name, "`: ", $help)]
                $(#[doc = $more])*
                pub $field: $type,
            )+
            /// False if every request goes straight to the driver. No option: see
            /// [`environment::BYPASS_VARIABLES`](super::environment::BYPASS_VARIABLES).
            pub caching: bool,
            /// The text these settings were read from, for the snapshot; empty if none.
            pub text: String,
        }

        impl Default for Settings {
            fn default() -> Self {
                Self { $($field: $default,)+ caching: true, text: String::new() }
            }
        }

        static OPTIONS: &[OptionInfo] = &[$(
            OptionInfo {
                help: $help,
                $($own)*
                ..usual(Key::$key, OwnedBy::$owner, ValueKind::$kind, $name, Field {
                    name: stringify!($field),
                    store: |settings, value| settings.$field.store(value),
                    written: |settings| settings.$field.written(ValueKind::$kind),
                    differs: |one, other| one.$field != other.$field,
                    copy: |to, from| to.$field.clone_from(&from.$field),
                })
            },
        )+];
    };
}

/// Fields that a row leaves out, by the kind of its value.
const fn usual(key: Key, owner: OwnedBy, kind: ValueKind, name: &'static str, field: Field) -> OptionInfo {
    let (unit, default, range, strict_extra) = match kind {
        ValueKind::Backend | ValueKind::Policy | ValueKind::CrossStream => ("name", "", "", None),
        ValueKind::Release => ("release", "2.15", PytorchRelease::NAMES, None),
        ValueKind::Megabytes => ("MiB", "", MB_ANY, None),
        ValueKind::Count => ("", "", "", None),
        ValueKind::Ratio => ("share", "", "", None),
        ValueKind::Switch => ("boolean", "False", "True or False", None),
        ValueKind::Divisions => ("divisions", "off", "", Some(OFF)),
        ValueKind::Reserve => ("share or GiB", "full", RESERVE, Some("full (9/8 of the device's memory)")),
        ValueKind::Classes => ("list", "[]", "", None),
        ValueKind::Limit => ("bytes or share", UNLIMITED, LIMIT, Some(UNLIMITED)),
        ValueKind::HostReserve => ("bytes or share", "by policy", HOST_RESERVE, Some("0 (off), or default")),
        ValueKind::Path => ("path", "", PATH, None),
    };
    OptionInfo {
        name,
        alias: None,
        unit,
        default,
        range,
        strict_extra,
        help: "",
        grammar: match owner {
            OwnedBy::Granule => Grammar::Granule,
            OwnedBy::Common | OwnedBy::Device => Grammar::Pytorch,
        },
        since: (2, 0),
        key,
        owner,
        kind,
        field,
        refuse: |_, _| None,
        wrong: |_| None,
        idle: |_| None,
        harm: |_| None,
    }
}

pub(super) const UNLIMITED: &str = "unlimited";
/// Switches an option off in the strict grammar if its range does not have 0.
pub(super) const OFF: &str = "0 (off)";
const MB_UP: &str = "a whole number of MiB up to 17592186044415, at least large_segment_size_mb";
const MB_ANY: &str = "a whole number of MiB from 0 to 17592186044415";
const LIMIT: &str = "bytes with a unit B, K, M, G or T (40GiB or 40G, 512MiB), or a share of the device's memory over 0 and up to 1 (0.5)";
const HOST_RESERVE: &str = "bytes with a unit (6G), or a share of the host's memory (0.1)";
const RESERVE: &str = "a positive fraction of the device's memory (0.5) or a number of GiB (40G)";
const PATH: &str = "an absolute path without , : [ ] and blanks";
/// Most threads that register pinned memory.
const MAX_THREADS: u64 = 128;

/// Message on an unsound value in settings made in code.
fn unless(sound: bool, value: &dyn Debug, allowed: &str) -> Option<String> {
    (!sound).then(|| format!("is {value:?}; it must be {allowed}"))
}

fn too_small(option: &str, large_mb: u64) -> String {
    format!("CachingAllocator option {option} too small, must be >= {large_mb}")
}

fn unsound(limit: Option<MemoryLimit>) -> Option<String> {
    let allowed = "MemoryLimit::Fraction over 0 and up to 1, MemoryLimit::Bytes of at least 1, or None";
    unless(false, &limit.filter(|limit| !limit.is_sound())?, allowed)
}

/// Reason that a reserve of growable segments does nothing: none grow. Those of the granule policy always do.
fn fixed(settings: &Settings, reserve: bool) -> Option<&'static str> {
    let fixed = !settings.expandable_segments && settings.policy_name() == PolicyName::Pytorch;
    (fixed && reserve).then_some("segments do not grow; set expandable_segments:True")
}

/// True if `bytes` is a limit. A value beyond every device is unlimited, however it is written.
const fn limits(bytes: u64) -> bool {
    bytes < 1 << 50
}

/// Reason that an option of PyTorch's rules does nothing under other rules.
fn foreign(settings: &Settings, set: bool) -> Option<&'static str> {
    (set && settings.policy_name() == PolicyName::Granule)
        .then_some("policy:granule neither rounds up to divisions nor keeps blocks whole")
}

options! {
    Backend = Device "backend": Backend, backend: AllocatorBackend = AllocatorBackend::Native;
    "Who serves requests: the caching engine or the driver's stream-ordered pools. Fixed once memory was allocated." {
        default: "native",
        range: "native or cudaMallocAsync (on AMD also hipMallocAsync)",
    }

    LargeSegmentSize = Common "large_segment_size_mb": Megabytes, large_segment_size: u64 = 20 * MIB;
    "Segment size for requests over 1 MiB and under 10 MiB, and the granule of large growable segments." {
        since: (2, 10),
        default: "20",
        range: "a whole number of MiB from 11 to 17592186044415",
        refuse: |value, _| {
            matches!(value, OptionValue::Megabytes(..=10))
                .then(|| "CachingAllocator option large_segment_size_mb must be > 10 MB".into())
        },
        wrong: |s| {
            let size = s.large_segment_size;
            let sound = size > 10 * MIB && size.is_multiple_of(MIB) && size < 1 << 50;
            unless(sound, &size, "whole MiB, over 10 MiB")
        },
    }

    /// `u64::MAX` is unlimited.
    MaxSplitSize = Common "max_split_size_mb": Megabytes, max_split_size: u64 = u64::MAX;
    "Blocks of this size and more are not split; they serve only requests of about their size." {
        default: UNLIMITED,
        range: MB_UP,
        strict_extra: Some(UNLIMITED),
        refuse: |value, large_mb| {
            matches!(value, OptionValue::Megabytes(mb) if *mb < large_mb)
                .then(|| too_small("max_split_size_mb", large_mb))
        },
        wrong: |s| {
            unless(s.max_split_size >= s.large_segment_size, &s.max_split_size, "at least large_segment_size")
        },
        idle: |s| foreign(s, limits(s.max_split_size)),
        harm: |s| match s.policy_name() {
            PolicyName::Pytorch if s.expandable_segments && limits(s.max_split_size) => Some(
                "with expandable_segments:True makes segments grow where free memory would do: a free part of that size and more \
                 serves no smaller request; leave out one of the two",
            ),
            PolicyName::Pytorch if s.max_split_size == s.large_segment_size => Some(
                "is no more than large_segment_size_mb, so that no such segment is split: each request of 1 to 10 MiB takes one of its \
                 own; set it higher",
            ),
            _ => None,
        },
    }

    /// Default the large segment size.
    MaxNonSplitRounding = Common "max_non_split_rounding_mb": Megabytes, max_non_split_rounding: u64 = 20 * MIB;
    "How much larger than the request a block over max_split_size_mb may be." {
        since: (2, 6),
        default: "large_segment_size_mb",
        range: MB_UP,
        refuse: |value, large_mb| {
            matches!(value, OptionValue::Megabytes(mb) if *mb < large_mb)
                .then(|| too_small("max_non_split_rounding_mb", large_mb))
        },
        wrong: |s| {
            let rounding = s.max_non_split_rounding;
            unless(rounding >= s.large_segment_size, &rounding, "at least large_segment_size")
        },
        idle: |s| {
            foreign(s, true).or_else(|| {
                (!limits(s.max_split_size))
                    .then_some("it concerns blocks of max_split_size_mb and more; set that too")
            })
        },
    }

    /// 0 is off.
    GarbageCollectionThreshold = Common "garbage_collection_threshold": Ratio, garbage_collection_threshold: f64 = 0.0;
    "Share of the memory fraction above which the oldest free segments are given back." {
        default: "off",
        range: "a number between 0 and 1, both excluded",
        strict_extra: Some(OFF),
        refuse: |value, _| {
            matches!(value, OptionValue::Ratio(share) if !(*share > 0.0 && *share < 1.0))
                .then(|| "garbage_collect_threshold is invalid, set it in (0.0, 1.0)".into())
        },
        wrong: |s| {
            let share = s.garbage_collection_threshold;
            unless((0.0..1.0).contains(&share), &share, "0 (off) or between 0 and 1")
        },
        idle: |s| {
            let counts = s.per_process_memory_fraction < 1.0 || s.memory_limit.is_some();
            match s.policy_name() {
                _ if s.garbage_collection_threshold == 0.0 => None,
                _ if !counts => Some(
                    "it counts from a memory fraction; set per_process_memory_fraction below 1 (or limit the device otherwise)",
                ),
                PolicyName::Pytorch if s.expandable_segments => {
                    Some("segments that grow are not collected; leave out one of the two")
                }
                _ => None,
            }
        },
    }

    /// For sizes of 1 MiB, 2 MiB, ... 32 GiB; 0 and 1 are off.
    RoundupPower2Divisions = Common "roundup_power2_divisions": Divisions, roundup_power2_divisions: [u64; 16] = [0; 16];
    "Round requests up to one of this many steps between powers of two, per size class." {
        range: "a power of two, or a list [MiB:divisions,...,>:divisions] of powers of two where 0 divisions is off",
        wrong: |s| {
            let wrong = s.roundup_power2_divisions.iter().find(|d| **d != 0 && !d.is_power_of_two());
            unless(false, wrong?, "0 (off) or a power of two")
        },
        idle: |s| {
            let divisions = s.roundup_power2_divisions;
            let off = divisions.contains(&1) && divisions.iter().all(|d| *d <= 1);
            off.then_some("1 division is off; give 2 or more")
                .or_else(|| foreign(s, divisions.iter().any(|d| *d > 1)))
        },
    }

    ExpandableSegments = Common "expandable_segments": Switch, expandable_segments: bool = false;
    "Segments that grow in place, on devices with virtual memory." { since: (2, 1), }

    ExpandableSegmentsReserve = Device "expandable_segments_reserve": Reserve,
        expandable_segments_reserve: Option<ReserveSize> = None;
    "Address space that a growable segment reserves, at most 9/8 of the device's memory. Under `granule`, `full` is at most 2 048 granules of the size that new ones have then." {
        since: (2, 15),
        idle: |s| fixed(s, s.expandable_segments_reserve.is_some()),
    }

    /// In the order given.
    ExpandableSegmentsReserveByClass = Device "expandable_segments_reserve_by_class": Classes,
        expandable_segments_reserve_by_class: Vec<(String, ReserveSize)> = Vec::new();
    "The same for streams of a reserve class. The list replaces the earlier one." {
        since: (2, 15),
        range: "a list [class:reserve,...] where a reserve is a positive fraction (0.5) or a number of GiB (40G)",
        idle: |s| fixed(s, !s.expandable_segments_reserve_by_class.is_empty()),
    }

    ReleaseLockOnMalloc = Device "release_lock_on_cudamalloc": Switch, release_lock_on_malloc: bool = false;
    "Accepted for compatibility; no lock is ever held over a driver call." {
        since: (2, 2),
        alias: Some("release_lock_on_hipmalloc"),
        idle: |s| s.release_lock_on_malloc.then_some("no lock is ever held over a driver call"),
    }

    PerProcessMemoryFraction = Device "per_process_memory_fraction": Ratio, per_process_memory_fraction: f64 = 1.0;
    "Share of the device's memory that this process may hold." {
        since: (2, 10),
        default: "1",
        range: "a number from 0 to 1",
        refuse: |value, _| {
            matches!(value, OptionValue::Ratio(share) if !(0.0..=1.0).contains(share))
                .then(|| "per_process_memory_fraction is invalid, set it in [0.0, 1.0]".into())
        },
        wrong: |s| {
            let share = s.per_process_memory_fraction;
            unless((0.0..=1.0).contains(&share), &share, "from 0 to 1")
        },
        harm: |s| {
            (s.per_process_memory_fraction == 0.0)
                .then_some("of 0 refuses every request; leave it out, or set it over 0")
        },
    }

    ThrowOnOom = Device "throw_on_cudamalloc_oom": Switch, throw_on_oom: bool = false;
    "Refuse a request that cannot fit before the driver is asked." { since: (2, 15), }

    GraphCaptureRecordStreamReuse = Device "graph_capture_record_stream_reuse": Switch,
        graph_capture_record_stream_reuse: bool = false;
    "Under graph capture, reuse blocks used on other streams where the graph orders the uses." { since: (2, 9), }

    PinnedUseHostRegister = Device "pinned_use_cuda_host_register": Switch, pinned_use_host_register: bool = false;
    "Pin host memory by registering ordinary pages." {
        since: (2, 2),
        alias: Some("pinned_use_hip_host_register"),
    }

    PinnedNumRegisterThreads = Device "pinned_num_register_threads": Count, pinned_num_register_threads: u64 = 1;
    "Threads that touch pages before they are registered." {
        since: (2, 2),
        unit: "threads",
        default: "1",
        range: "a power of two from 1 to 128",
        refuse: |value, _| match value {
            OptionValue::Count(n) if !n.is_power_of_two() => {
                Some(format!("Number of register threads has to be power of 2, got {n}"))
            }
            OptionValue::Count(n) if *n > MAX_THREADS => {
                Some(format!("Number of register threads should be less than or equal to {MAX_THREADS}, got {n}"))
            }
            _ => None,
        },
        idle: |s| {
            (s.pinned_num_register_threads > 1 && !s.pinned_use_host_register)
                .then_some("threads only help to register pages; set pinned_use_cuda_host_register:True")
        },
    }

    /// 0 is off.
    PinnedReserveSegmentSize = Device "pinned_reserve_segment_size_mb": Megabytes, pinned_reserve_segment_size: u64 = 0;
    "Pin one segment of this size at first use and serve small pinned requests from it." {
        since: (2, 10),
        default: "off",
        range: "a whole number of MiB from 1 to 17592186044415",
        strict_extra: Some(OFF),
        refuse: |value, _| {
            matches!(value, OptionValue::Megabytes(0)).then(|| "Pinned reserve segment size has to be greater than 0".into())
        },
    }

    PinnedUseBackgroundThreads = Common "pinned_use_background_threads": Switch, pinned_use_background_threads: bool = false;
    "Process the events of pinned memory on a thread of its own." { since: (2, 6), }

    /// `u64::MAX` is unlimited.
    PinnedMaxRoundThreshold = Common "pinned_max_round_threshold_mb": Megabytes, pinned_max_round_threshold: u64 = u64::MAX;
    "Pinned requests over this size are not rounded up to a power of two." {
        since: (2, 13),
        default: UNLIMITED,
        strict_extra: Some(UNLIMITED),
        harm: |s| {
            (s.pinned_max_round_threshold > s.pinned_max_cached_size).then_some(
                "is larger than pinned_max_cached_size_mb: sizes between them are rounded up but not cached",
            )
        },
    }

    /// `u64::MAX` is unlimited.
    PinnedMaxCachedSize = Common "pinned_max_cached_size_mb": Megabytes, pinned_max_cached_size: u64 = u64::MAX;
    "Pinned blocks over this size are given back when freed." {
        since: (2, 13),
        default: UNLIMITED,
        strict_extra: Some(UNLIMITED),
    }

    /// `None` follows the policy.
    PinnedSizes = Granule "pinned_sizes": Policy, pinned_sizes: Option<PolicyName> = None;
    "Sizes of pinned memory: PyTorch's powers of two, or pages." {
        default: "the policy's",
        range: PolicyName::NAMES,
    }

    PinnedSpare = Granule "pinned_spare": Ratio, pinned_spare: f64 = 0.02;
    "What `pinned_sizes:granule` may hold beyond the most in use at once; more of it pins less often." {
        default: "0.02",
        range: "a number from 0 to 1",
        refuse: |value, _| {
            matches!(value, OptionValue::Ratio(share) if !(0.0..=1.0).contains(share))
                .then(|| "pinned_spare is invalid, set it in [0, 1]".into())
        },
        wrong: |s| unless((0.0..=1.0).contains(&s.pinned_spare), &s.pinned_spare, "from 0 to 1"),
    }

    PinnedFreeCatchAll = Device "pinned_free_catch_all": Switch, pinned_free_catch_all: bool = false;
    "Log what fails when pinned memory is freed, and go on." { since: (2, 15), }

    /// Chosen when an allocator is made, and fixed from then on. `None` is the default, or what a running allocator has; see
    /// [`policy_name`](Self::policy_name).
    Policy = Granule "policy": Policy, policy: Option<PolicyName> = None;
    "The rules for rounding, placement, splitting, growth and release." {
        default: "pytorch",
        range: PolicyName::NAMES,
    }

    /// Chosen when an allocator is made, and fixed from then on. `None` is the default, or what a running allocator has; see
    /// [`pytorch_release`](Self::pytorch_release).
    PytorchRelease = Granule "pytorch_release": Release, pytorch_release: Option<PytorchRelease> = None;
    "The release of PyTorch that policy:pytorch decides as. Fixed once the allocator is made." {
        idle: |s| {
            (s.policy_name() != PolicyName::Pytorch && s.pytorch_release.is_some())
                .then_some("only policy:pytorch decides as a release of PyTorch")
        },
    }

    /// 0 is off.
    HistoryMaxEntries = Granule "history_max_entries": Count, history_max_entries: u64 = 0;
    "How many events the history keeps; older ones are counted and dropped." {
        unit: "entries",
        default: "0",
        range: "a whole number up to 4294967295; 0 is off",
    }

    CrossStream = Granule "cross_stream": CrossStream, cross_stream: CrossStream = CrossStream::Completed;
    "Which free memory of other streams a stream takes before the device's: what the device is done with, or none." {
        default: "completed",
        range: "completed, never",
        idle: |s| {
            (s.policy_name() == PolicyName::Pytorch && s.cross_stream != CrossStream::default())
                .then_some("policy:pytorch keeps each stream's memory to itself, as PyTorch does; set policy:granule")
        },
    }

    GranuleSize = Granule "granule_size_mb": Megabytes, granule_size: u64 = 0;
    "The size of granules for large requests of the default pool, where policy:granule can show free pieces as one: small ones waste less memory, large ones take fewer driver calls. 0 chooses by what is held; a nearly full device has at most 8 MiB." {
        default: "0",
        range: "a whole number of MiB up to 1024; 0 chooses",
        refuse: |value, _| matches!(value, OptionValue::Megabytes(1025..)).then(|| "over 1024".into()),
        wrong: |s| unless(s.granule_size <= 1024 * MIB, &s.granule_size, "at most 1 GiB"),
        idle: |s| {
            (s.policy_name() == PolicyName::Pytorch && s.granule_size != 0)
                .then_some("policy:pytorch has no granules; set policy:granule")
        },
    }

    /// Read when a device makes its first. [`environment::SEGMENTS_IPC_VARIABLE`](super::environment::SEGMENTS_IPC_VARIABLE)
    /// sets it, too.
    SegmentsIpc = Granule "segments_ipc": Switch, segments_ipc: bool = true;
    "Make the memory of growable segments so that other processes can be given it." {
        default: "True",
    }

    /// `None` is unlimited.
    MemoryLimit = Granule "memory_limit": Limit, memory_limit: Option<MemoryLimit> = None;
    "The most that is ever held from each device; a request beyond it is out of memory." {
        wrong: |s| unsound(s.memory_limit),
    }

    /// `None` is unlimited.
    MemorySoftLimit = Granule "memory_soft_limit": Limit, memory_soft_limit: Option<MemoryLimit> = None;
    "Above this much held from a device, cached memory is given back before more is taken." {
        wrong: |s| unsound(s.memory_soft_limit),
        idle: |s| {
            let beyond = s.memory_soft_limit.zip(s.memory_limit).is_some_and(|(soft, hard)| soft.is_beyond(hard));
            beyond.then_some("memory_limit comes first; set a lower soft limit")
        },
    }

    /// Read when an allocator is made, and fixed from then on. `None` is the default; 0 bytes are off.
    HostReserve = Granule "host_reserve": HostReserve, host_reserve: Option<MemoryLimit> = None;
    "What requests leave of the host's memory to the rest of the machine, on devices that share it. By default 2 GiB or 5 %, whichever is more, at most a quarter; off under policy:pytorch." {
        wrong: |s| unsound(s.host_reserve.filter(|reserve| *reserve != MemoryLimit::Bytes(0))),
    }

    /// Read when an allocator is made, and fixed from then on.
    Publish = Granule "publish": Switch, publish: bool = false;
    "Tell the user's other processes what is held of each device, in a file in the run directory, for their ledgers." {}

    /// Read when an allocator is made, and fixed from then on.
    SystemRoot = Granule "system_root": Path, system_root: PathBuf = PathBuf::from("/");
    "The folder whose proc and sys are read, for tests and mounted hosts." {
        default: "/",
        wrong: |s| unless(s.system_root.is_absolute(), &s.system_root, "an absolute path"),
    }
}

/// Every option, in the order in which help texts list them.
#[must_use]
pub fn options() -> &'static [OptionInfo] {
    OPTIONS
}

/// The option of that exact name.
pub(super) fn find(name: &str) -> Option<&'static OptionInfo> {
    OPTIONS.iter().find(|o| o.name == name || o.alias == Some(name))
}

/// An option's row.
pub(super) fn row(key: Key) -> &'static OptionInfo {
    // Rows stand in the order of their keys.
    &OPTIONS[key as usize]
}

/// Warnings about options named in the text that do nothing, or harm, in these settings.
pub(super) fn without_effect(s: &Settings, named: &[Key]) -> Vec<Warning> {
    let named_ones = OPTIONS.iter().filter(|o| named.contains(&o.key));
    named_ones
        .filter_map(|o| {
            let idle = (o.idle)(s).map(|why| Warning::NoEffect { option: o.name, why });
            idle.or_else(|| Some(Warning::Harm { option: o.name, what: (o.harm)(s)? }))
        })
        .collect()
}

/// The known option closest to an unknown name, if one is close.
pub(super) fn nearest(name: &str, grammar: Grammar) -> Option<&'static str> {
    // Names are short; a long token is not a typing mistake, and comparing it would cost its length.
    if name.len() > 64 {
        return None;
    }
    let lower = name.to_lowercase();
    OPTIONS
        .iter()
        .filter(|o| grammar == Grammar::Granule || o.grammar == Grammar::Pytorch)
        .flat_map(|o| std::iter::once(o.name).chain(o.alias))
        .map(|known| (strsim::jaro_winkler(&lower, known), known))
        .filter(|(likeness, _)| *likeness > 0.87)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, known)| known)
}
