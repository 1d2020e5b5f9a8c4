//! In which options two settings differ.

use super::Settings;
use super::options::{Key, name_of};

impl Settings {
    /// The names of PyTorch's options in which `other` differs from these, in the order in which help texts list them.
    ///
    /// An option that merely follows another, as `max_non_split_rounding_mb` follows `large_segment_size_mb` where it is
    /// not set, is not named. Granule's own options are not looked at.
    #[must_use]
    pub fn differences(&self, other: &Self) -> Vec<&'static str> {
        let (a, b) = (self, other);
        let follows = |s: &Self| s.max_non_split_rounding == s.large_segment_size;
        let rounding = a.max_non_split_rounding != b.max_non_split_rounding && !(follows(a) && follows(b));
        [
            (Key::Backend, a.backend != b.backend),
            (Key::LargeSegmentSize, a.large_segment_size != b.large_segment_size),
            (Key::MaxSplitSize, a.max_split_size != b.max_split_size),
            (Key::MaxNonSplitRounding, rounding),
            (
                Key::GarbageCollectionThreshold,
                a.garbage_collection_threshold != b.garbage_collection_threshold,
            ),
            (Key::RoundupPower2Divisions, a.roundup_power2_divisions != b.roundup_power2_divisions),
            (Key::ExpandableSegments, a.expandable_segments != b.expandable_segments),
            (Key::ExpandableSegmentsReserve, a.expandable_segments_reserve != b.expandable_segments_reserve),
            (
                Key::ExpandableSegmentsReserveByClass,
                a.expandable_segments_reserve_by_class != b.expandable_segments_reserve_by_class,
            ),
            (Key::ReleaseLockOnMalloc, a.release_lock_on_malloc != b.release_lock_on_malloc),
            (Key::PerProcessMemoryFraction, a.per_process_memory_fraction != b.per_process_memory_fraction),
            (Key::ThrowOnOom, a.throw_on_oom != b.throw_on_oom),
            (
                Key::GraphCaptureRecordStreamReuse,
                a.graph_capture_record_stream_reuse != b.graph_capture_record_stream_reuse,
            ),
            (Key::PinnedUseHostRegister, a.pinned_use_host_register != b.pinned_use_host_register),
            (Key::PinnedNumRegisterThreads, a.pinned_num_register_threads != b.pinned_num_register_threads),
            (Key::PinnedReserveSegmentSize, a.pinned_reserve_segment_size != b.pinned_reserve_segment_size),
            (
                Key::PinnedUseBackgroundThreads,
                a.pinned_use_background_threads != b.pinned_use_background_threads,
            ),
            (Key::PinnedMaxRoundThreshold, a.pinned_max_round_threshold != b.pinned_max_round_threshold),
            (Key::PinnedMaxCachedSize, a.pinned_max_cached_size != b.pinned_max_cached_size),
            (Key::PinnedFreeCatchAll, a.pinned_free_catch_all != b.pinned_free_catch_all),
        ]
        .into_iter()
        .filter(|(_, differs)| *differs)
        .map(|(key, _)| name_of(key))
        .collect()
    }
}

#[cfg(test)]
mod tests {
    use crate::config::{Flavour, Grammar, Settings, options, pytorch};

    /// A value of each option that is not its default.
    fn changed(option: &str) -> &'static str {
        match option {
            "backend" => "cudaMallocAsync",
            "large_segment_size_mb" | "max_split_size_mb" | "max_non_split_rounding_mb" => "64",
            "garbage_collection_threshold" | "per_process_memory_fraction" => "0.5",
            "expandable_segments_reserve" => "40G",
            "expandable_segments_reserve_by_class" => "[a:0.5]",
            "roundup_power2_divisions"
            | "pinned_num_register_threads"
            | "pinned_reserve_segment_size_mb"
            | "pinned_max_round_threshold_mb"
            | "pinned_max_cached_size_mb" => "8",
            _ => "True",
        }
    }

    #[test]
    fn every_option_of_pytorch_is_told_apart() {
        let usual = Settings::default();
        for option in options().iter().filter(|option| option.grammar == Grammar::Pytorch) {
            let text = format!("{}:{}", option.name, changed(option.name));
            let other = pytorch::parse(&text, &usual, Flavour::Cuda).unwrap().settings;
            assert_eq!(usual.differences(&other), [option.name], "{text}");
            assert_eq!(other.differences(&usual), [option.name], "{text}");
            assert!(other.differences(&other).is_empty());
        }
    }

    #[test]
    fn several_are_named_in_order() {
        let read = |text: &str| pytorch::parse(text, &Settings::default(), Flavour::Cuda).unwrap().settings;
        let (one, other) = (
            read("expandable_segments:True,garbage_collection_threshold:0.8"),
            read("max_split_size_mb:128,expandable_segments:True"),
        );
        assert_eq!(one.differences(&other), ["max_split_size_mb", "garbage_collection_threshold"]);
    }
}
