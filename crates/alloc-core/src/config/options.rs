//! The one table of options: names, units, defaults, ranges, help.

/// Which texts may carry an option.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Grammar {
    /// PyTorch's variables, Granule's variable and the API.
    Pytorch,
    /// Only Granule's variable and the API.
    Granule,
}

/// Which of PyTorch's two parsers owns an option; it decides in which order errors show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Owner {
    Common,
    Device,
    Granule,
}

/// An option, by name of its field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Key {
    Backend,
    LargeSegmentSize,
    MaxSplitSize,
    MaxNonSplitRounding,
    GarbageCollectionThreshold,
    RoundupPower2Divisions,
    ExpandableSegments,
    ExpandableSegmentsReserve,
    ExpandableSegmentsReserveByClass,
    ReleaseLockOnMalloc,
    PerProcessMemoryFraction,
    ThrowOnOom,
    GraphCaptureRecordStreamReuse,
    PinnedUseHostRegister,
    PinnedNumRegisterThreads,
    PinnedReserveSegmentSize,
    PinnedUseBackgroundThreads,
    PinnedMaxRoundThreshold,
    PinnedMaxCachedSize,
    PinnedFreeCatchAll,
    Policy,
    HistoryMaxEntries,
    EarlyReuse,
    SegmentsIpc,
    MemoryLimit,
    MemorySoftLimit,
    Hardened,
    HardenedQuarantine,
}

/// What there is to know about an option, for help texts and documentation.
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
    /// What else the strict grammar takes, mostly to switch the option off again.
    pub strict_extra: Option<&'static str>,
    /// What it does.
    pub help: &'static str,
    /// Which texts may carry it.
    pub grammar: Grammar,
    pub(super) key: Key,
    pub(super) owner: Owner,
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
}

const fn option(key: Key, owner: Owner, name: &'static str) -> OptionInfo {
    OptionInfo {
        name,
        alias: None,
        unit: "boolean",
        default: "False",
        range: "True or False",
        strict_extra: None,
        help: "",
        grammar: match owner {
            Owner::Granule => Grammar::Granule,
            Owner::Common | Owner::Device => Grammar::Pytorch,
        },
        key,
        owner,
    }
}

const MB_UP: &str = "a whole number of MiB up to 17592186044415, at least large_segment_size_mb";
const MB_ANY: &str = "a whole number of MiB from 0 to 17592186044415";
const LIMIT: &str = "bytes with a unit B, K, M, G or T (40GiB or 40G, 512MiB), or a share of the device's memory over 0 and up to 1 (0.5)";
const RESERVE: &str = "a positive fraction of the device's memory (0.5) or a number of GiB (40G)";

static OPTIONS: [OptionInfo; 28] = [
    OptionInfo {
        unit: "name",
        default: "native",
        range: "native or cudaMallocAsync (on AMD also hipMallocAsync)",
        help: "Who serves requests: the caching engine or the driver's stream-ordered pools. Fixed once memory was allocated.",
        ..option(Key::Backend, Owner::Device, "backend")
    },
    OptionInfo {
        unit: "MiB",
        default: "20",
        range: "a whole number of MiB from 11 to 17592186044415",
        help: "Segment size for requests over 1 MiB and under 10 MiB, and the granule of large growable segments.",
        ..option(Key::LargeSegmentSize, Owner::Common, "large_segment_size_mb")
    },
    OptionInfo {
        unit: "MiB",
        default: "unlimited",
        range: MB_UP,
        strict_extra: Some("unlimited"),
        help: "Blocks of this size and more are not split; they serve only requests of about their size.",
        ..option(Key::MaxSplitSize, Owner::Common, "max_split_size_mb")
    },
    OptionInfo {
        unit: "MiB",
        default: "large_segment_size_mb",
        range: MB_UP,
        help: "How much larger than the request a block over max_split_size_mb may be.",
        ..option(Key::MaxNonSplitRounding, Owner::Common, "max_non_split_rounding_mb")
    },
    OptionInfo {
        unit: "share",
        default: "off",
        range: "a number between 0 and 1, both excluded",
        strict_extra: Some("0 (off)"),
        help: "Share of the memory fraction above which the oldest free segments are given back.",
        ..option(Key::GarbageCollectionThreshold, Owner::Common, "garbage_collection_threshold")
    },
    OptionInfo {
        unit: "divisions",
        default: "off",
        range: "a power of two, or a list [MiB:divisions,...,>:divisions] of powers of two where 0 divisions is off",
        strict_extra: Some("0 (off)"),
        help: "Round requests up to one of this many steps between powers of two, per size class.",
        ..option(Key::RoundupPower2Divisions, Owner::Common, "roundup_power2_divisions")
    },
    OptionInfo {
        help: "Segments that grow in place, on devices with virtual memory.",
        ..option(Key::ExpandableSegments, Owner::Common, "expandable_segments")
    },
    OptionInfo {
        unit: "share or GiB",
        default: "full",
        range: RESERVE,
        strict_extra: Some("full (9/8 of the device's memory)"),
        help: "Address space that a growable segment reserves, at most 9/8 of the device's memory.",
        ..option(Key::ExpandableSegmentsReserve, Owner::Device, "expandable_segments_reserve")
    },
    OptionInfo {
        unit: "list",
        default: "[]",
        range: "a list [class:reserve,...] where a reserve is a positive fraction (0.5) or a number of GiB (40G)",
        help: "The same for streams of a reserve class. The list replaces the earlier one.",
        ..option(Key::ExpandableSegmentsReserveByClass, Owner::Device, "expandable_segments_reserve_by_class")
    },
    OptionInfo {
        alias: Some("release_lock_on_hipmalloc"),
        help: "Accepted for compatibility; no lock is ever held over a driver call.",
        ..option(Key::ReleaseLockOnMalloc, Owner::Device, "release_lock_on_cudamalloc")
    },
    OptionInfo {
        unit: "share",
        default: "1",
        range: "a number from 0 to 1",
        help: "Share of the device's memory that this process may hold.",
        ..option(Key::PerProcessMemoryFraction, Owner::Device, "per_process_memory_fraction")
    },
    OptionInfo {
        help: "Refuse a request that cannot fit before the driver is asked.",
        ..option(Key::ThrowOnOom, Owner::Device, "throw_on_cudamalloc_oom")
    },
    OptionInfo {
        help: "Under graph capture, reuse blocks used on other streams where the graph orders the uses.",
        ..option(Key::GraphCaptureRecordStreamReuse, Owner::Device, "graph_capture_record_stream_reuse")
    },
    OptionInfo {
        alias: Some("pinned_use_hip_host_register"),
        help: "Pin host memory by registering ordinary pages.",
        ..option(Key::PinnedUseHostRegister, Owner::Device, "pinned_use_cuda_host_register")
    },
    OptionInfo {
        unit: "threads",
        default: "1",
        range: "a power of two from 1 to 128",
        help: "Threads that touch pages before they are registered.",
        ..option(Key::PinnedNumRegisterThreads, Owner::Device, "pinned_num_register_threads")
    },
    OptionInfo {
        unit: "MiB",
        default: "off",
        range: "a whole number of MiB from 1 to 17592186044415",
        strict_extra: Some("0 (off)"),
        help: "Pin one segment of this size at first use and serve small pinned requests from it.",
        ..option(Key::PinnedReserveSegmentSize, Owner::Device, "pinned_reserve_segment_size_mb")
    },
    OptionInfo {
        help: "Process the events of pinned memory on a thread of its own.",
        ..option(Key::PinnedUseBackgroundThreads, Owner::Common, "pinned_use_background_threads")
    },
    OptionInfo {
        unit: "MiB",
        default: "unlimited",
        range: MB_ANY,
        strict_extra: Some("unlimited"),
        help: "Pinned requests over this size are not rounded up to a power of two.",
        ..option(Key::PinnedMaxRoundThreshold, Owner::Common, "pinned_max_round_threshold_mb")
    },
    OptionInfo {
        unit: "MiB",
        default: "unlimited",
        range: MB_ANY,
        strict_extra: Some("unlimited"),
        help: "Pinned blocks over this size are given back when freed.",
        ..option(Key::PinnedMaxCachedSize, Owner::Common, "pinned_max_cached_size_mb")
    },
    OptionInfo {
        help: "Free pinned memory through the allocator whatever made it.",
        ..option(Key::PinnedFreeCatchAll, Owner::Device, "pinned_free_catch_all")
    },
    OptionInfo {
        unit: "name",
        default: "pytorch",
        range: "pytorch, granule",
        help: "The rules for rounding, placement, splitting, growth and release.",
        ..option(Key::Policy, Owner::Granule, "policy")
    },
    OptionInfo {
        unit: "entries",
        default: "0",
        range: "a whole number up to 4294967295; 0 is off",
        help: "How many events the history keeps; older ones are counted and dropped.",
        ..option(Key::HistoryMaxEntries, Owner::Granule, "history_max_entries")
    },
    OptionInfo {
        help: "Before taking memory from the device, take a block that only waits for other streams, and let the allocating stream wait for them.",
        ..option(Key::EarlyReuse, Owner::Granule, "early_reuse")
    },
    OptionInfo {
        default: "True",
        help: "Make the memory of growable segments so that other processes can be given it.",
        ..option(Key::SegmentsIpc, Owner::Granule, "segments_ipc")
    },
    OptionInfo {
        unit: "bytes or share",
        default: "unlimited",
        range: LIMIT,
        strict_extra: Some("unlimited"),
        help: "The most that is ever held from each device; a request beyond it is out of memory.",
        ..option(Key::MemoryLimit, Owner::Granule, "memory_limit")
    },
    OptionInfo {
        unit: "bytes or share",
        default: "unlimited",
        range: LIMIT,
        strict_extra: Some("unlimited"),
        help: "Above this much held from a device, cached memory is given back before more is taken.",
        ..option(Key::MemorySoftLimit, Owner::Granule, "memory_soft_limit")
    },
    OptionInfo {
        help: "Check, poison and hold back freed blocks, to find memory that is used after it was freed.",
        ..option(Key::Hardened, Owner::Granule, "hardened")
    },
    OptionInfo {
        unit: "MiB",
        default: "64",
        range: MB_ANY,
        help: "The most freed memory that hardened holds back on each device; 0 holds back none.",
        ..option(Key::HardenedQuarantine, Owner::Granule, "hardened_quarantine_mb")
    },
];

/// Every option, in the order in which help texts list them.
#[must_use]
pub fn options() -> &'static [OptionInfo] {
    &OPTIONS
}

/// The option of that exact name.
pub(super) fn find(name: &str) -> Option<&'static OptionInfo> {
    OPTIONS.iter().find(|o| o.name == name || o.alias == Some(name))
}

/// The name of an option.
pub(super) fn name_of(key: Key) -> &'static str {
    OPTIONS.iter().find(|o| o.key == key).map_or("", |o| o.name)
}

/// The known option closest to a name nobody knows, if one is close.
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
