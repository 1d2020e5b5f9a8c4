//! Settings written back as text.

use super::options::{Key, name_of};
use super::plain::shortest;
use super::{AllocatorBackend, ConfigError, Flavour, Parsed, ReserveSize, Settings, pytorch};
use crate::types::{GIB, MIB};
use std::fmt::{Display, Write as _};

/// Settings that no text can express, such as a limit that is not a whole number of MiB.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{option} has a value that cannot be written as text; round it to what the option allows")]
pub struct Inexpressible {
    /// The option.
    pub option: &'static str,
}

impl Settings {
    /// The shortest text in PyTorch's grammar that makes the defaults into these settings: options that have
    /// their default are left out. Granule's own options and [`Settings::text`] are not in it.
    ///
    /// # Errors
    /// If a value cannot be written (it was set by hand to something no text gives).
    pub fn to_text(&self) -> Result<String, Inexpressible> {
        let plain = self.without_own_options();
        plain.if_read_back(plain.write_common(), |text, from| pytorch::parse(text, from, Flavour::Cuda))
    }

    /// The same for the strict grammar, with Granule's own options.
    ///
    /// # Errors
    /// As [`to_text`](Self::to_text).
    pub fn to_strict_text(&self) -> Result<String, Inexpressible> {
        let mut text = self.to_text()?;
        let mut add = |key, value: &dyn Display| push(&mut text, key, value);
        if let Some(policy) = self.policy {
            add(Key::Policy, &policy);
        }
        if self.history_max_entries != 0 {
            add(Key::HistoryMaxEntries, &self.history_max_entries);
        }
        if self.early_reuse {
            add(Key::EarlyReuse, &"True");
        }
        if !self.segments_ipc {
            add(Key::SegmentsIpc, &"False");
        }
        if let Some(limit) = self.memory_limit {
            add(Key::MemoryLimit, &limit);
        }
        if let Some(limit) = self.memory_soft_limit {
            add(Key::MemorySoftLimit, &limit);
        }
        if self.hardened {
            add(Key::Hardened, &"True");
        }
        if self.hardened_quarantine != Self::default().hardened_quarantine {
            add(Key::HardenedQuarantine, &(self.hardened_quarantine / MIB));
        }
        self.if_read_back(text, super::strict::parse)
    }

    /// These settings with every option of Granule's own at its default: what PyTorch can have, too.
    fn without_own_options(&self) -> Self {
        let usual = Self::default();
        Self {
            policy: usual.policy,
            history_max_entries: usual.history_max_entries,
            early_reuse: usual.early_reuse,
            segments_ipc: usual.segments_ipc,
            memory_limit: usual.memory_limit,
            memory_soft_limit: usual.memory_soft_limit,
            hardened: usual.hardened,
            hardened_quarantine: usual.hardened_quarantine,
            ..self.clone()
        }
    }

    /// The text, if reading it gives these settings again.
    fn if_read_back(
        &self,
        text: String,
        read: impl Fn(&str, &Self) -> Result<Parsed, ConfigError>,
    ) -> Result<String, Inexpressible> {
        let unwritten = match read(&text, &Self::default()) {
            Ok(back) => self.first_difference(&back.settings),
            Err(error) => {
                Some(super::options().iter().find(|o| error.option() == Some(o.name)).map_or("", |o| o.name))
            }
        };
        unwritten.map_or(Ok(text), |option| Err(Inexpressible { option }))
    }

    fn write_common(&self) -> String {
        let usual = Self::default();
        let mut text = String::new();
        let mut add = |key, changed: bool, value: &dyn Display| {
            if changed {
                push(&mut text, key, value);
            }
        };
        let mb = |bytes: u64| bytes / MIB;
        let switch = |on: bool| if on { "True" } else { "False" };
        add(Key::Backend, self.backend != AllocatorBackend::Native, &self.backend.name());
        let large = self.large_segment_size;
        add(Key::LargeSegmentSize, large != usual.large_segment_size, &mb(large));
        add(Key::MaxSplitSize, self.max_split_size != u64::MAX, &mb(self.max_split_size));
        let rounding = self.max_non_split_rounding;
        add(Key::MaxNonSplitRounding, rounding != large, &mb(rounding));
        let threshold = self.garbage_collection_threshold;
        add(Key::GarbageCollectionThreshold, threshold != 0.0, &shortest(threshold));
        let divisions = self.roundup_power2_divisions;
        add(Key::RoundupPower2Divisions, divisions != [0; 16], &divisions_text(&divisions));
        add(Key::ExpandableSegments, self.expandable_segments, &switch(true));
        if let Some(reserve) = self.expandable_segments_reserve {
            add(Key::ExpandableSegmentsReserve, true, &reserve_text(reserve));
        }
        let classes = &self.expandable_segments_reserve_by_class;
        add(Key::ExpandableSegmentsReserveByClass, !classes.is_empty(), &classes_text(classes));
        add(Key::ReleaseLockOnMalloc, self.release_lock_on_malloc, &switch(true));
        let fraction = self.per_process_memory_fraction;
        add(Key::PerProcessMemoryFraction, fraction != 1.0, &shortest(fraction));
        add(Key::ThrowOnOom, self.throw_on_oom, &switch(true));
        add(Key::GraphCaptureRecordStreamReuse, self.graph_capture_record_stream_reuse, &switch(true));
        add(Key::PinnedUseHostRegister, self.pinned_use_host_register, &switch(true));
        let threads = self.pinned_num_register_threads;
        add(Key::PinnedNumRegisterThreads, threads != usual.pinned_num_register_threads, &threads);
        let segment = self.pinned_reserve_segment_size;
        add(Key::PinnedReserveSegmentSize, segment != 0, &mb(segment));
        add(Key::PinnedUseBackgroundThreads, self.pinned_use_background_threads, &switch(true));
        let threshold = self.pinned_max_round_threshold;
        add(Key::PinnedMaxRoundThreshold, threshold != u64::MAX, &mb(threshold));
        add(
            Key::PinnedMaxCachedSize,
            self.pinned_max_cached_size != u64::MAX,
            &mb(self.pinned_max_cached_size),
        );
        add(Key::PinnedFreeCatchAll, self.pinned_free_catch_all, &switch(true));
        text
    }

    /// The first option in which two settings differ.
    fn first_difference(&self, other: &Self) -> Option<&'static str> {
        // What no option gives is left out.
        let options = |s: &Self| Self { text: String::new(), caching: true, ..s.clone() };
        let (mut left, right) = (options(self), options(other));
        if left == right {
            return None;
        }
        // Take one option after the other from the other side; the one that changes anything is it.
        let steps: [(Key, Take); 12] = [
            (Key::LargeSegmentSize, |l, r| l.large_segment_size = r.large_segment_size),
            (Key::MaxSplitSize, |l, r| l.max_split_size = r.max_split_size),
            (Key::MaxNonSplitRounding, |l, r| l.max_non_split_rounding = r.max_non_split_rounding),
            (Key::GarbageCollectionThreshold, |l, r| {
                l.garbage_collection_threshold = r.garbage_collection_threshold
            }),
            (Key::RoundupPower2Divisions, |l, r| l.roundup_power2_divisions = r.roundup_power2_divisions),
            (Key::ExpandableSegmentsReserve, |l, r| {
                l.expandable_segments_reserve = r.expandable_segments_reserve
            }),
            (Key::ExpandableSegmentsReserveByClass, |l, r| {
                l.expandable_segments_reserve_by_class.clone_from(&r.expandable_segments_reserve_by_class);
            }),
            (Key::PerProcessMemoryFraction, |l, r| {
                l.per_process_memory_fraction = r.per_process_memory_fraction
            }),
            (Key::PinnedReserveSegmentSize, |l, r| {
                l.pinned_reserve_segment_size = r.pinned_reserve_segment_size
            }),
            (Key::PinnedMaxRoundThreshold, |l, r| {
                l.pinned_max_round_threshold = r.pinned_max_round_threshold
            }),
            (Key::PinnedMaxCachedSize, |l, r| l.pinned_max_cached_size = r.pinned_max_cached_size),
            (Key::HardenedQuarantine, |l, r| l.hardened_quarantine = r.hardened_quarantine),
        ];
        steps.into_iter().find_map(|(key, take)| {
            let before = left.clone();
            take(&mut left, &right);
            (before != left).then(|| name_of(key))
        })
    }
}

/// Takes one option from other settings.
type Take = fn(&mut Settings, &Settings);

fn push(text: &mut String, key: Key, value: &dyn Display) {
    let comma = if text.is_empty() { "" } else { "," };
    // Writing to a string cannot fail.
    let _ = write!(text, "{comma}{}:{value}", name_of(key));
}

#[allow(clippy::cast_precision_loss)]
fn reserve_text(size: ReserveSize) -> String {
    match size {
        ReserveSize::Fraction(share) => shortest(share),
        ReserveSize::Bytes(bytes) => format!("{}G", shortest(bytes as f64 / GIB as f64)),
    }
}

fn classes_text(classes: &[(String, ReserveSize)]) -> String {
    let entries: Vec<_> =
        classes.iter().map(|(name, size)| format!("{name}:{}", reserve_text(*size))).collect();
    format!("[{}]", entries.join(","))
}

/// The first entry of a list fills all classes up to its own, later ones only their own, and `>` all that
/// follow the one before it.
fn divisions_text(table: &[u64; 16]) -> String {
    let [first, .., last] = *table;
    if table.iter().all(|n| *n == first) {
        return first.to_string();
    }
    let head = table.iter().take_while(|n| **n == first).count() - 1;
    let tail = 16 - table.iter().rev().take_while(|n| **n == last).count();
    let mut entries = vec![format!("{}:{first}", 1u64 << head)];
    let mut written = head;
    for (index, n) in table.iter().enumerate().skip(head + 1) {
        if *n == 0 {
            continue;
        }
        if index >= tail && written + 1 == index && index < 15 {
            entries.push(format!(">:{n}"));
            break;
        }
        entries.push(format!("{}:{n}", 1u64 << index));
        written = index;
    }
    format!("[{}]", entries.join(","))
}
