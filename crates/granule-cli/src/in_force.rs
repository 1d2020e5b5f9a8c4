//! The settings a snapshot was recorded under.
//!
//! A snapshot has the text that was set last, the values that were in force, and segments. A program can set options one by
//! one, and each text it sets is the last; forks name their variables otherwise. So values win over the text, and what
//! segments show wins over both.

use crate::allocator_args::parse_recorded;
use granule::config::Settings;
use granule::config::environment::GRANULE_VARIABLE;
use granule::snapshot::{Action, Snapshot, Value};

/// What was in force.
#[derive(Debug)]
pub(crate) struct InForce {
    /// As a text; `None` for the defaults.
    pub(crate) conf: Option<String>,
    /// What is to be said about it: where it is not what the text says.
    pub(crate) notes: Vec<String>,
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
                Settings::default()
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
        if let Some(grow) = grows(snapshot, device) {
            settings.expandable_segments = grow;
        }
        if settings == set && parsed.is_ok() {
            return Self { conf: text.map(ToOwned::to_owned), notes };
        }
        let conf = settings.to_text().ok().or(text.map(ToOwned::to_owned)).filter(|conf| !conf.is_empty());
        let said = conf.as_ref().map_or("the defaults were".into(), |conf| format!("'{conf}' was"));
        notes.push(match text {
            Some(text) => format!("the last settings that were set are '{text}', but {said} in force"),
            None => format!("no settings were set by a text, but {said} in force"),
        });
        Self { conf, notes }
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

/// Whether segments grow, where all show the same. Those of Granule's own policy grow whatever is set.
fn grows(snapshot: &Snapshot, device: usize) -> Option<bool> {
    let segments = snapshot.segments.iter().filter(|segment| usize::try_from(segment.device) == Ok(device));
    let history = snapshot.device_traces.get(device).map_or(&[][..], Vec::as_slice);
    let taken = history.iter().filter_map(|entry| match entry.action {
        Action::SegmentMap => Some(true),
        Action::SegmentAlloc => Some(false),
        _ => None,
    });
    let mut shown = segments.map(|segment| segment.is_expandable).chain(taken);
    let first = shown.next().filter(|_| snapshot.history.is_none())?;
    shown.all(|grow| grow == first).then_some(first)
}
