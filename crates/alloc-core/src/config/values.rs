//! Option values once they are read, the ranges that both grammars check, and where each value goes.

use super::error::Warning;
use super::options::{Key, OptionInfo};
use super::{AllocatorBackend, MemoryLimit, PolicyName, ReserveSize, Settings};
use crate::types::{GIB, MIB};

/// The most MiB that can be expressed in bytes.
pub(super) const MAX_MB: u64 = u64::MAX / MIB;
/// Most threads that register pinned memory.
const MAX_THREADS: u64 = 128;

/// A value read from a text.
#[derive(Clone, Debug)]
pub(super) enum Value {
    Backend(AllocatorBackend),
    Megabytes(u64),
    Unlimited,
    Count(u64),
    Ratio(f64),
    Switch(bool),
    Divisions([u64; 16]),
    Reserve(Option<ReserveSize>),
    Classes(Vec<(String, ReserveSize)>),
    Policy(PolicyName),
    Limit(Option<MemoryLimit>),
}

/// How an option's value is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Backend,
    Megabytes,
    Count,
    Ratio,
    Switch,
    Divisions,
    Reserve,
    Classes,
    Policy,
    Limit,
}

pub(super) const fn kind(key: Key) -> Kind {
    match key {
        Key::Backend => Kind::Backend,
        Key::LargeSegmentSize
        | Key::MaxSplitSize
        | Key::MaxNonSplitRounding
        | Key::PinnedReserveSegmentSize
        | Key::PinnedMaxRoundThreshold
        | Key::PinnedMaxCachedSize
        | Key::HardenedQuarantine => Kind::Megabytes,
        Key::PinnedNumRegisterThreads | Key::HistoryMaxEntries => Kind::Count,
        Key::GarbageCollectionThreshold | Key::PerProcessMemoryFraction => Kind::Ratio,
        Key::RoundupPower2Divisions => Kind::Divisions,
        Key::ExpandableSegmentsReserve => Kind::Reserve,
        Key::ExpandableSegmentsReserveByClass => Kind::Classes,
        Key::Policy => Kind::Policy,
        Key::MemoryLimit | Key::MemorySoftLimit => Kind::Limit,
        Key::ExpandableSegments
        | Key::ReleaseLockOnMalloc
        | Key::ThrowOnOom
        | Key::GraphCaptureRecordStreamReuse
        | Key::PinnedUseHostRegister
        | Key::PinnedUseBackgroundThreads
        | Key::PinnedFreeCatchAll
        | Key::EarlyReuse
        | Key::SegmentsIpc
        | Key::Hardened => Kind::Switch,
    }
}

/// What PyTorch says about a value outside its range.
pub(super) fn out_of_range(option: &OptionInfo, value: &Value, large_segment: u64) -> Option<String> {
    let large_mb = large_segment / MIB;
    let bad = match (option.key, value) {
        (Key::LargeSegmentSize, Value::Megabytes(mb)) if *mb <= 10 => {
            "CachingAllocator option large_segment_size_mb must be > 10 MB".into()
        }
        (Key::MaxSplitSize | Key::MaxNonSplitRounding, Value::Megabytes(mb)) if *mb < large_mb => {
            format!("CachingAllocator option {} too small, must be >= {large_mb}", option.name)
        }
        (Key::GarbageCollectionThreshold, Value::Ratio(share)) if !(*share > 0.0 && *share < 1.0) => {
            "garbage_collect_threshold is invalid, set it in (0.0, 1.0)".into()
        }
        (Key::PerProcessMemoryFraction, Value::Ratio(share)) if !(0.0..=1.0).contains(share) => {
            "per_process_memory_fraction is invalid, set it in [0.0, 1.0]".into()
        }
        (Key::PinnedNumRegisterThreads, Value::Count(n)) if !n.is_power_of_two() => {
            format!("Number of register threads has to be power of 2, got {n}")
        }
        (Key::PinnedNumRegisterThreads, Value::Count(n)) if *n > MAX_THREADS => {
            format!("Number of register threads should be less than or equal to {MAX_THREADS}, got {n}")
        }
        (Key::PinnedReserveSegmentSize, Value::Megabytes(0)) => {
            "Pinned reserve segment size has to be greater than 0".into()
        }
        _ => return None,
    };
    Some(bad)
}

/// Stores a value that was checked.
pub(super) fn store(s: &mut Settings, key: Key, value: Value) {
    let bytes = |mb: u64| mb.min(MAX_MB) * MIB;
    match (key, value) {
        (Key::Backend, Value::Backend(x)) => s.backend = x,
        (Key::LargeSegmentSize, Value::Megabytes(mb)) => s.large_segment_size = bytes(mb),
        (Key::MaxSplitSize, Value::Megabytes(mb)) => s.max_split_size = bytes(mb),
        (Key::MaxSplitSize, Value::Unlimited) => s.max_split_size = u64::MAX,
        (Key::MaxNonSplitRounding, Value::Megabytes(mb)) => s.max_non_split_rounding = bytes(mb),
        (Key::GarbageCollectionThreshold, Value::Ratio(x)) => s.garbage_collection_threshold = x,
        (Key::RoundupPower2Divisions, Value::Divisions(x)) => s.roundup_power2_divisions = x,
        (Key::ExpandableSegments, Value::Switch(x)) => s.expandable_segments = x,
        (Key::ExpandableSegmentsReserve, Value::Reserve(x)) => s.expandable_segments_reserve = x,
        (Key::ExpandableSegmentsReserveByClass, Value::Classes(x)) => {
            s.expandable_segments_reserve_by_class = x
        }
        (Key::ReleaseLockOnMalloc, Value::Switch(x)) => s.release_lock_on_malloc = x,
        (Key::PerProcessMemoryFraction, Value::Ratio(x)) => s.per_process_memory_fraction = x,
        (Key::ThrowOnOom, Value::Switch(x)) => s.throw_on_oom = x,
        (Key::GraphCaptureRecordStreamReuse, Value::Switch(x)) => s.graph_capture_record_stream_reuse = x,
        (Key::PinnedUseHostRegister, Value::Switch(x)) => s.pinned_use_host_register = x,
        (Key::PinnedNumRegisterThreads, Value::Count(x)) => s.pinned_num_register_threads = x,
        (Key::PinnedReserveSegmentSize, Value::Megabytes(mb)) => s.pinned_reserve_segment_size = bytes(mb),
        (Key::PinnedUseBackgroundThreads, Value::Switch(x)) => s.pinned_use_background_threads = x,
        (Key::PinnedMaxRoundThreshold, Value::Megabytes(mb)) => s.pinned_max_round_threshold = bytes(mb),
        (Key::PinnedMaxRoundThreshold, Value::Unlimited) => s.pinned_max_round_threshold = u64::MAX,
        (Key::PinnedMaxCachedSize, Value::Megabytes(mb)) => s.pinned_max_cached_size = bytes(mb),
        (Key::PinnedMaxCachedSize, Value::Unlimited) => s.pinned_max_cached_size = u64::MAX,
        (Key::PinnedFreeCatchAll, Value::Switch(x)) => s.pinned_free_catch_all = x,
        (Key::Policy, Value::Policy(x)) => s.policy = Some(x),
        (Key::HistoryMaxEntries, Value::Count(x)) => s.history_max_entries = x,
        (Key::EarlyReuse, Value::Switch(x)) => s.early_reuse = x,
        (Key::SegmentsIpc, Value::Switch(x)) => s.segments_ipc = x,
        (Key::MemoryLimit, Value::Limit(x)) => s.memory_limit = x,
        (Key::MemorySoftLimit, Value::Limit(x)) => s.memory_soft_limit = x,
        (Key::Hardened, Value::Switch(x)) => s.hardened = x,
        (Key::HardenedQuarantine, Value::Megabytes(mb)) => s.hardened_quarantine = bytes(mb),
        (key, value) => debug_assert!(false, "{key:?} does not take {value:?}"),
    }
}

/// The two words of a boolean.
pub(super) fn switch(token: &str) -> Option<bool> {
    match token {
        "True" => Some(true),
        "False" => Some(false),
        _ => None,
    }
}

/// A reserve size: a fraction, or GiB with the suffix `G`; positive, finite, and nothing after it.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss)]
pub(super) fn reserve(token: &str) -> Option<ReserveSize> {
    let (number, gib) = match token.strip_suffix(['G', 'g']) {
        Some(number) => (number, true),
        None => (token, false),
    };
    let value: f64 = number.parse().ok().filter(|v: &f64| v.is_finite() && *v > 0.0)?;
    // The cast saturates, as PyTorch's conversion does.
    Some(if gib { ReserveSize::Bytes((value * GIB as f64) as u64) } else { ReserveSize::Fraction(value) })
}

/// Puts the divisions of one list entry into the table. `>` stands for everything after the last boundary.
#[derive(Clone, Debug)]
pub(super) struct DivisionTable {
    pub(super) table: [u64; 16],
    last: usize,
    first: bool,
}

impl DivisionTable {
    pub(super) fn new() -> Self {
        Self { table: [0; 16], last: 0, first: true }
    }

    /// Everything past the last boundary.
    pub(super) fn rest(&mut self, divisions: u64) {
        self.table[self.last + 1..].fill(divisions);
    }

    /// The class that starts at `boundary_mb`, a power of two. The first boundary also fills all below it.
    pub(super) fn class(&mut self, boundary_mb: u64, divisions: u64) {
        let index = (boundary_mb.trailing_zeros() as usize).min(15);
        let from = if self.first { 0 } else { index };
        self.table[from..=index].fill(divisions);
        self.first = false;
        self.last = index;
    }
}

/// Options of these settings that do nothing, or harm, as they are combined, of those named in the text.
pub(super) fn without_effect(s: &Settings, named: &[Key]) -> Vec<Warning> {
    let pools = s.backend == AllocatorBackend::DriverPools;
    // The granule policy's segments grow whatever is set.
    let fixed = !s.expandable_segments && s.policy_name() == PolicyName::Pytorch;
    let rules: [(Key, bool, &'static str); 8] = [
        (
            Key::GarbageCollectionThreshold,
            s.garbage_collection_threshold > 0.0
                && s.per_process_memory_fraction >= 1.0
                && s.memory_limit.is_none(),
            "it counts from a memory fraction; set per_process_memory_fraction below 1 (or limit the device otherwise)",
        ),
        (
            Key::MaxNonSplitRounding,
            s.max_split_size == u64::MAX,
            "it concerns blocks of max_split_size_mb and more; set that too",
        ),
        (
            Key::ExpandableSegmentsReserve,
            fixed && s.expandable_segments_reserve.is_some(),
            "segments do not grow; set expandable_segments:True",
        ),
        (
            Key::ExpandableSegmentsReserveByClass,
            fixed && !s.expandable_segments_reserve_by_class.is_empty(),
            "segments do not grow; set expandable_segments:True",
        ),
        (Key::ReleaseLockOnMalloc, s.release_lock_on_malloc, "no lock is ever held over a driver call"),
        (
            Key::PinnedNumRegisterThreads,
            s.pinned_num_register_threads > 1 && !s.pinned_use_host_register,
            "threads only help to register pages; set pinned_use_cuda_host_register:True",
        ),
        (
            Key::MemorySoftLimit,
            s.memory_soft_limit.zip(s.memory_limit).is_some_and(|(soft, hard)| soft.is_beyond(hard)),
            "memory_limit comes first; set a lower soft limit",
        ),
        (
            Key::HardenedQuarantine,
            !s.hardened && s.hardened_quarantine != Settings::default().hardened_quarantine,
            "freed blocks are held back only in hardened mode; set hardened:True",
        ),
    ];
    let idle = rules.into_iter().filter(|(key, idle, _)| *idle && named.contains(key));
    let mut warnings: Vec<_> =
        idle.map(|(key, _, why)| Warning::NoEffect { option: super::options::name_of(key), why }).collect();
    let engine_option = |key: &Key| !matches!(key, Key::Backend | Key::Policy | Key::HistoryMaxEntries);
    if pools && named.iter().any(engine_option) {
        warnings.push(Warning::BackendIgnoresOptions);
    }
    if s.expandable_segments && s.max_split_size != u64::MAX && named.contains(&Key::MaxSplitSize) {
        warnings.push(Warning::GrowsInstead);
    }
    if s.pinned_max_round_threshold > s.pinned_max_cached_size
        && named.contains(&Key::PinnedMaxRoundThreshold)
    {
        warnings.push(Warning::RoundsPastCache);
    }
    warnings
}
