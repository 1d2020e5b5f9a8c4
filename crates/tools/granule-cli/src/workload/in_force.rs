//! The settings, and the release, that a snapshot was recorded under.
//!
//! A snapshot has the text that was set last, the values that were in force, and segments. A program can set options one by
//! one, and each text it sets is the last; forks name their variables otherwise. So values win over the text, and what
//! segments show wins over both.

use granule::config::environment::{self, GRANULE_VARIABLE};
use granule::config::{ConfigError, Flavour, Parsed, PytorchRelease, Settings, pytorch};
use granule::snapshot::{Action, Snapshot, Value};
use std::fmt;

/// What was in force.
#[derive(Debug)]
pub(crate) struct InForce {
    /// As a text; `None` for the defaults.
    pub(crate) conf: Option<String>,
    /// What is to be said about it: where it is not what the text says.
    pub(crate) notes: Vec<String>,
    /// Why no replay can be under the same: it was changed in between.
    pub(crate) changed: Option<String>,
}

impl InForce {
    /// That of a device's history.
    pub(crate) fn of(snapshot: &Snapshot, device: usize) -> Self {
        let text = text(snapshot);
        let mut notes = Vec::new();
        let parsed = parse_recorded(text.unwrap_or_default());
        let mut settings = match &parsed {
            Ok(parsed) => parsed.settings.clone(),
            Err(error) => {
                let text = text.unwrap_or_default();
                notes.push(format!("the settings '{text}' of the recording are not understood: {error}"));
                let parts = parts(text).into_iter().filter(|part| parse_recorded(part).is_ok());
                let known = parts.collect::<Vec<_>>().join(",");
                parse_recorded(&known).map_or_else(|_| Settings::default(), |parsed| parsed.settings)
            }
        };
        // PyTorch's number cannot hold more.
        if i64::try_from(settings.max_split_size).is_err() {
            settings.max_split_size = u64::MAX;
        }
        let set = settings.clone();
        for (key, value) in &snapshot.allocator_settings {
            take(&mut settings, key, value);
        }
        let [fixed, growing] = segments(snapshot, device);
        if fixed != growing {
            settings.expandable_segments = growing > fixed;
        }
        let changed = (fixed.min(growing) > 0).then(|| {
            format!(
                "expandable_segments changed during the run: {growing} segments or parts can grow, {fixed} cannot; a replay \
                 takes {}",
                if settings.expandable_segments { "True" } else { "False" }
            )
        });
        if settings == set && parsed.is_ok() {
            return Self { conf: text.map(ToOwned::to_owned), notes, changed };
        }
        let conf = settings.to_text().ok().or(text.map(ToOwned::to_owned)).filter(|conf| !conf.is_empty());
        let said = conf.as_ref().map_or("the defaults were".into(), |conf| format!("'{conf}' was"));
        notes.push(match text {
            Some(text) => format!("the last settings that were set are '{text}', but {said} in force"),
            None => format!("no settings were set by a text, but {said} in force"),
        });
        Self { conf, notes, changed }
    }
}

/// The text that was set last, under whichever vendor's name (`PYTORCH_CUDA_ALLOC_CONF`, `PYTORCH_HIP_ALLOC_CONF`, ...).
fn text(snapshot: &Snapshot) -> Option<&str> {
    snapshot.allocator_settings.iter().find_map(|(key, value)| match value {
        Value::Str(text) if !text.is_empty() && (key.ends_with("_CONF") || &**key == GRANULE_VARIABLE) => {
            Some(&**text)
        }
        _ => None,
    })
}

/// The options of a text, of which some may be another vendor's.
fn parts(text: &str) -> Vec<&str> {
    let mut depth = 0;
    let outside = |c: char| {
        depth += i32::from(c == '[') - i32::from(c == ']');
        c == ',' && depth == 0
    };
    text.split(outside).collect()
}

/// Takes a value that decides where memory goes.
fn take(settings: &mut Settings, key: &str, value: &Value) {
    match (key, value) {
        ("expandable_segments", Value::Bool(on)) => settings.expandable_segments = *on,
        ("expandable_segments", Value::Int(on)) => settings.expandable_segments = *on != 0,
        // Below 0 is no limit.
        ("max_split_size", Value::Int(bytes)) => {
            settings.max_split_size = u64::try_from(*bytes).unwrap_or(u64::MAX)
        }
        ("garbage_collection_threshold", Value::Float(share)) => {
            settings.garbage_collection_threshold = *share
        }
        ("garbage_collection_threshold", Value::Int(0)) => settings.garbage_collection_threshold = 0.0,
        ("roundup_power2_divisions", Value::Dict(classes)) => {
            for (class, divisions) in classes {
                let mb = match class {
                    Value::Str(mb) => mb.parse().unwrap_or(0u64),
                    Value::Int(mb) => u64::try_from(*mb).unwrap_or(0),
                    _ => 0,
                };
                let index = mb.checked_ilog2().filter(|_| mb.is_power_of_two());
                let place = index.and_then(|index| settings.roundup_power2_divisions.get_mut(index as usize));
                if let (Some(place), Value::Int(divisions @ 0..)) = (place, divisions) {
                    *place = divisions.cast_unsigned();
                }
            }
        }
        _ => {}
    }
}

/// How many segments cannot grow, and how many can. Those of Granule's own policy grow whatever is set, and tell nothing.
fn segments(snapshot: &Snapshot, device: usize) -> [usize; 2] {
    let segments = snapshot.segments.iter().filter(|segment| usize::try_from(segment.device) == Ok(device));
    let history = snapshot.device_traces.get(device).map_or(&[][..], Vec::as_slice);
    let taken = history.iter().filter_map(|entry| match entry.action {
        Action::SegmentMap => Some(true),
        Action::SegmentAlloc => Some(false),
        _ => None,
    });
    let mut counts = [0; 2];
    let shown = segments.map(|segment| segment.is_expandable).chain(taken);
    shown.filter(|_| snapshot.history.is_none()).for_each(|grows| counts[usize::from(grows)] += 1);
    counts
}

/// Settings as a file has them: PyTorch's, or those of a snapshot that Granule wrote, which has options of its own.
pub(crate) fn parse_recorded(text: &str) -> Result<Parsed, ConfigError> {
    pytorch::parse(text, &Settings::default(), Flavour::Cuda).or_else(|error| {
        let own = |name: &str| (name == environment::GRANULE_VARIABLE).then(|| text.to_owned());
        environment::read(own, Flavour::Cuda).map_err(|_| error)
    })
}

/// The newest release of PyTorch that can have written a snapshot.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Newest {
    pub(crate) release: (u16, u16),
    /// What shows it.
    why: &'static str,
}

impl Newest {
    /// `None` for one that has all options, and where nothing tells: each release wrote words that were not there before.
    pub(crate) fn of(snapshot: &Snapshot, device: usize) -> Option<Self> {
        let has = |word: &str| snapshot.allocator_settings.iter().any(|(key, _)| &**key == word);
        let labels = &snapshot.device_traces.get(device)?.first()?.labels;
        let (minor, why) = match () {
            () if snapshot.history.is_some() || has("max_cached_size") => return None,
            () if labels.pool_id.is_some() => (12, "its settings have no max_cached_size"),
            () if labels.user_metadata.is_some() => (11, "its entries have no pool_id"),
            () if labels.compile_context.is_some() => (9, "its entries have no user_metadata"),
            () if has("max_split_size") => (6, "its entries have no compile_context"),
            () if snapshot.allocator_settings.is_empty() && snapshot.unread.actions.is_empty() => {
                (0, "it has no settings")
            }
            // Another's.
            () => return None,
        };
        Some(Self { release: (2, minor), why })
    }

    /// The release that a replay decides as: no other decides more like it.
    pub(crate) fn decides(self) -> PytorchRelease {
        if self.release < (2, 12) { PytorchRelease::V2_11 } else { PytorchRelease::V2_13 }
    }

    /// The settings, with that release where they name none.
    pub(crate) fn settle(newest: Option<Self>, settings: Settings) -> Settings {
        let pytorch_release = settings.pytorch_release.or(newest.map(Self::decides));
        Settings { pytorch_release, ..settings }
    }

    /// Why that is not exact, where the release is another.
    pub(crate) fn about(self) -> Option<String> {
        let ((major, minor), decides) = (self.release, self.decides());
        (format!("{major}.{minor}") != decides.name()).then(|| {
            let program = if minor == 12 { "2.12" } else { "before 2.11" };
            format!("the program ran with PyTorch {program}, and a replay decides as {decides}: its figures are about right")
        })
    }
}

impl fmt::Display for Newest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "about {}.{} at most: {}", self.release.0, self.release.1, self.why)
    }
}
