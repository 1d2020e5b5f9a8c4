//! What is tried: settings, and popular advice beyond settings.

use alloc_core::config::{AllocatorBackend, Flavour, Grammar, PolicyName, Settings, pytorch};
use alloc_core::types::MIB;
use granule_snapshot::trace::{Event, Trace};
use serde::Serialize;

/// Where a candidate comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// What the program runs with.
    Current,
    /// PyTorch's defaults.
    Default,
    /// What people advise each other.
    Advice,
    /// Two pieces of advice together.
    Combination,
    /// The asker's own.
    Yours,
    /// Granule's policy.
    Granule,
}

/// One thing to try.
#[derive(Clone, Debug, Serialize)]
pub struct Candidate {
    /// What to call it; no two in a grid have the same name.
    pub name: String,
    /// Where it comes from.
    pub kind: Kind,
    /// The allocator's rules: `pytorch` or `granule`.
    pub policy: &'static str,
    /// The exact value of `PYTORCH_CUDA_ALLOC_CONF`; empty for the defaults.
    pub conf: String,
    /// The exact value of `GRANULE_CONF`, where Granule has to be the program's allocator.
    pub granule_conf: Option<String>,
    /// Off is `PYTORCH_NO_CUDA_MEMORY_CACHING=1`.
    pub caching: bool,
    /// `torch.cuda.empty_cache()` at the end of every iteration: a change of the program.
    pub empty_cache_each_iteration: bool,
    /// The options that differ from what the program runs with.
    pub changed_options: Vec<&'static str>,
    /// The settings of its replays.
    #[serde(skip)]
    pub settings: Settings,
    #[serde(skip)]
    pub(super) effort: Effort,
}

/// What Granule's policy is called in settings.
const GRANULE: &str = "policy:granule";

/// Sizes in MiB that people advise for `max_split_size_mb`.
const POPULAR_SPLITS: [u64; 3] = [128, 256, 512];

const POPULAR: [&str; 7] = [
    "roundup_power2_divisions:2",
    "roundup_power2_divisions:4",
    "roundup_power2_divisions:8",
    "roundup_power2_divisions:16",
    "roundup_power2_divisions:[256:1,512:2,1024:4,>:8]",
    "garbage_collection_threshold:0.6",
    "garbage_collection_threshold:0.8",
];

const COMBINATIONS: [&str; 7] = [
    "expandable_segments:True,roundup_power2_divisions:4",
    "expandable_segments:True,roundup_power2_divisions:8",
    "expandable_segments:True,max_split_size_mb:128",
    "max_split_size_mb:128,garbage_collection_threshold:0.6",
    "max_split_size_mb:512,garbage_collection_threshold:0.8",
    "max_split_size_mb:512,roundup_power2_divisions:8",
    // Collection counts from a limit below the whole device; without one it never happens.
    "garbage_collection_threshold:0.8,per_process_memory_fraction:0.99",
];

/// What one has to do for a candidate, the least first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Effort {
    /// Change this many options.
    Options(usize),
    /// Change the program.
    Program,
    /// Take another allocator.
    OtherAllocator,
    /// Do without one, which costs most of a program's speed.
    NoCaching,
}

impl Effort {
    pub(super) const fn is_settings(self) -> bool {
        !matches!(self, Self::Program | Self::NoCaching)
    }
}

impl Candidate {
    /// What to do for it, line by line; empty where nothing has to be changed.
    #[must_use]
    pub fn steps(&self) -> Vec<String> {
        let mut steps = Vec::new();
        if self.empty_cache_each_iteration {
            steps.push("torch.cuda.empty_cache()  # in the program, at the end of every iteration".into());
        }
        if self.kind == Kind::Current || (steps.is_empty() && self.effort == Effort::Options(0)) {
            return steps;
        }
        if !self.changed_options.is_empty() {
            steps.push(match self.conf.as_str() {
                "" => "unset PYTORCH_CUDA_ALLOC_CONF".into(),
                conf => format!("export PYTORCH_CUDA_ALLOC_CONF={}", quoted(conf)),
            });
        }
        if !self.caching {
            steps.push("export PYTORCH_NO_CUDA_MEMORY_CACHING=1".into());
        }
        if let Some(conf) = &self.granule_conf {
            steps.push(format!("export GRANULE_TORCH=1 GRANULE_CONF={}", quoted(conf)));
        }
        steps
    }
}

/// The candidates, without doubles: the current settings first, Granule's policy and caching off last.
pub(super) fn candidates(
    current: &Settings,
    own: &[Settings],
    policies: &[PolicyName],
    trace: &Trace,
) -> Vec<Candidate> {
    let kept = kept(current);
    let granule = (current.policy_name() == PolicyName::Granule).then(|| current.clone());
    let mut list = List { current: plain(current), granule, candidates: Vec::new() };
    if policies.contains(&PolicyName::Pytorch) {
        list.settings(trace, &kept, own);
        if has_iterations(trace) {
            list.empty_cache();
        }
    }
    if policies.contains(&PolicyName::Granule) {
        list.granule(&kept);
    }
    // A capture cannot ask the driver for memory, and private pools are mostly those of graphs.
    let graphs = trace.events.iter().any(|event| matches!(event, Event::Pool { .. }));
    if policies.contains(&PolicyName::Pytorch) && !graphs {
        list.caching_off(kept);
    }
    // No candidate is another PyTorch.
    for candidate in
        list.candidates.iter_mut().filter(|one| one.settings.policy_name() == PolicyName::Pytorch)
    {
        candidate.settings.pytorch_release = current.pytorch_release;
    }
    list.candidates
}

/// Whether the trace says where iterations begin.
pub(super) fn has_iterations(trace: &Trace) -> bool {
    trace.events.iter().any(|event| matches!(event, Event::Iteration { .. }))
}

/// What of the settings PyTorch can have, too.
fn plain(current: &Settings) -> Settings {
    let read = |text: &str| pytorch::parse(text, &Settings::default(), Flavour::Cuda).ok();
    let canonical = current
        .to_text()
        .ok()
        .and_then(|text| read(&text))
        .map_or_else(Settings::default, |read| read.settings);
    let native = Settings { backend: AllocatorBackend::Native, ..canonical };
    // As it was written, where that says all of it.
    let written = read(&current.text).filter(|written| same_options(&written.settings, &native));
    written.map_or(native, |written| written.settings)
}

/// The settings without what says how memory is cut and held: what every candidate keeps, such as limits.
fn kept(current: &Settings) -> Settings {
    let usual = Settings::default();
    let kept = Settings {
        large_segment_size: usual.large_segment_size,
        max_split_size: usual.max_split_size,
        max_non_split_rounding: usual.max_non_split_rounding,
        garbage_collection_threshold: usual.garbage_collection_threshold,
        roundup_power2_divisions: usual.roundup_power2_divisions,
        expandable_segments: usual.expandable_segments,
        text: String::new(),
        ..plain(current)
    };
    let text = kept.to_text().unwrap_or_default();
    Settings { text, ..kept }
}

struct List {
    /// What the program runs with, without what PyTorch cannot have.
    current: Settings,
    /// The same, where it runs with Granule's policy.
    granule: Option<Settings>,
    candidates: Vec<Candidate>,
}

impl List {
    /// Everything that is one value of `PYTORCH_CUDA_ALLOC_CONF`.
    fn settings(&mut self, trace: &Trace, kept: &Settings, own: &[Settings]) {
        let current = self.current.clone();
        if self.granule.is_none() {
            self.push(Kind::Current, current.clone());
        }
        self.push(Kind::Default, kept.clone());
        self.text(Kind::Advice, &kept.text, "expandable_segments:True");
        let mut splits = POPULAR_SPLITS.to_vec();
        splits.extend(splits_of(trace));
        splits.sort_unstable();
        splits.dedup();
        for split in splits {
            self.text(Kind::Advice, &kept.text, &format!("max_split_size_mb:{split}"));
        }
        for advice in POPULAR {
            self.text(Kind::Advice, &kept.text, advice);
        }
        for combination in COMBINATIONS {
            self.text(Kind::Combination, &kept.text, combination);
        }
        // What the program runs with, with a little more or less; doubles are left out.
        let items = items(&current.text);
        for advice in ["expandable_segments:True", "roundup_power2_divisions:8"] {
            self.text(Kind::Combination, &current.text, advice);
        }
        for left_out in 0..items.len() {
            let others: Vec<&str> =
                items.iter().enumerate().filter(|(at, _)| *at != left_out).map(|(_, item)| *item).collect();
            self.text(Kind::Combination, &others.join(","), "");
        }
        for settings in own {
            self.push(Kind::Yours, settings.clone());
        }
    }

    /// Settings in the words of a text, and of one before it.
    fn text(&mut self, kind: Kind, before: &str, text: &str) {
        let all = [items(before), items(text)].concat();
        // What is named twice would have to replace what is there, which is another candidate.
        let twice = all.iter().enumerate().any(|(at, item)| all[..at].iter().any(|b| name(b) == name(item)));
        let parsed = pytorch::parse(&all.join(","), &Settings::default(), Flavour::Cuda);
        if let (false, Ok(parsed)) = (twice, parsed) {
            self.push(kind, parsed.settings);
        }
    }

    fn push(&mut self, kind: Kind, settings: Settings) {
        let same = |there: &Candidate| {
            there.caching && there.effort.is_settings() && same_options(&there.settings, &settings)
        };
        if self.candidates.iter().any(same) {
            return;
        }
        let conf = settings.text.clone();
        let name = if conf.is_empty() { "default".to_owned() } else { conf.clone() };
        let changed_options = self.current.differences(&settings);
        let effort = match self.granule {
            None => Effort::Options(changed_options.len()),
            Some(_) => Effort::OtherAllocator,
        };
        self.candidates.push(Candidate {
            name,
            kind,
            policy: settings.policy_name().name(),
            conf,
            granule_conf: None,
            caching: true,
            empty_cache_each_iteration: false,
            changed_options,
            settings,
            effort,
        });
    }

    /// Popular advice that changes the program, on top of what it runs with.
    fn empty_cache(&mut self) {
        let Some(current) = self.candidates.iter().find(|candidate| candidate.kind == Kind::Current) else {
            return;
        };
        self.candidates.push(Candidate {
            name: "empty_cache() every iteration".into(),
            kind: Kind::Advice,
            empty_cache_each_iteration: true,
            effort: Effort::Program,
            ..current.clone()
        });
    }

    fn granule(&mut self, kept: &Settings) {
        let is_current = self.granule.is_some();
        let settings = self.granule.take();
        let settings =
            settings.unwrap_or_else(|| Settings { policy: Some(PolicyName::Granule), ..kept.clone() });
        self.candidates.push(Candidate {
            name: GRANULE.into(),
            kind: if is_current { Kind::Current } else { Kind::Granule },
            policy: settings.policy_name().name(),
            conf: settings.to_text().unwrap_or_default(),
            granule_conf: Some(granule_conf(&settings)),
            caching: true,
            empty_cache_each_iteration: false,
            changed_options: Vec::new(),
            settings,
            effort: if is_current { Effort::Options(0) } else { Effort::OtherAllocator },
        });
    }

    /// Advice for finding errors that is also given against running out of memory.
    fn caching_off(&mut self, kept: Settings) {
        let settings = Settings { caching: false, ..kept };
        self.candidates.push(Candidate {
            name: "PYTORCH_NO_CUDA_MEMORY_CACHING=1".into(),
            kind: Kind::Advice,
            policy: settings.policy_name().name(),
            conf: settings.text.clone(),
            granule_conf: None,
            caching: false,
            empty_cache_each_iteration: false,
            changed_options: Vec::new(),
            settings,
            effort: Effort::NoCaching,
        });
    }
}

/// Whether both are the same but for how they are written.
fn same_options(a: &Settings, b: &Settings) -> bool {
    let options = |s: &Settings| Settings { text: String::new(), ..s.clone() };
    options(a) == options(b)
}

/// Granule's own options, as `GRANULE_CONF` has them.
fn granule_conf(settings: &Settings) -> String {
    settings.only(Grammar::Granule).to_strict_text().unwrap_or_else(|_| GRANULE.into())
}

/// The parts of a text: commas within brackets do not part it.
fn items(text: &str) -> Vec<&str> {
    let mut depth = 0_usize;
    let parts = text.split(|c: char| {
        match c {
            '[' => depth += 1,
            ']' => depth = depth.saturating_sub(1),
            _ => {}
        }
        c == ',' && depth == 0
    });
    parts.map(str::trim).filter(|item| !item.is_empty()).collect()
}

/// The option that a part of a text sets.
fn name(item: &str) -> &str {
    item.split(':').next().unwrap_or(item).trim()
}

/// Values of `max_split_size_mb` that lie where this workload's large requests do: the sizes below which a quarter, half
/// and three quarters of the bytes are that go to requests beyond the usual segment.
fn splits_of(trace: &Trace) -> Vec<u64> {
    let smallest = Settings::default().large_segment_size;
    let mut sizes: Vec<u64> = trace
        .events
        .iter()
        .filter_map(|event| match event {
            Event::Alloc { size, .. } if *size > smallest => Some(*size),
            _ => None,
        })
        .collect();
    sizes.sort_unstable();
    let all: u128 = sizes.iter().map(|size| u128::from(*size)).sum();
    let mut quarters = 1..=3_u128;
    let mut next = quarters.next();
    let (mut below, mut found) = (0_u128, Vec::new());
    for size in sizes {
        below += u128::from(size);
        while next.is_some_and(|quarter| below * 4 >= all * quarter) {
            found.push(size.div_ceil(MIB));
            next = quarters.next();
        }
    }
    found.dedup();
    found
}

/// A value as a shell takes it.
fn quoted(value: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || ":._,-/=+%@".contains(c);
    if value.chars().all(plain) { value.to_owned() } else { format!("'{}'", value.replace('\'', "'\\''")) }
}

#[cfg(test)]
#[path = "candidate/tests.rs"]
mod tests;
