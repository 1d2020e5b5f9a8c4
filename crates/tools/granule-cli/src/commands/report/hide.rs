//! What `--anonymous` takes out of a recording.

use crate::failure::Failure;
use crate::recording::Recording;
use crate::workload::{Input, WorkloadArgs, parse_recorded};
use granule::config::Settings;
use granule_analysis::Anonymous;
use std::sync::Arc;

/// Loads the file, without the names that only remarks on it have.
pub(super) fn load(workload: &WorkloadArgs, hidden: Option<&mut Anonymous>) -> Result<Input, Failure> {
    let mut input = workload.load()?;
    let Some(hidden) = hidden else { return Ok(input) };
    match &mut input {
        Input::Snapshot(snapshot) => {
            let unread = &mut Arc::make_mut(snapshot).unread;
            for names in [&mut unread.actions, &mut unread.incomplete] {
                *names = names.iter().map(|(name, count)| (hidden.text(name), *count)).collect();
            }
        }
        Input::Trace(trace) => {
            if let Some(later) = trace.later_format() {
                let later = hidden.text(&later.into()).to_string();
                Arc::make_mut(trace).header.format = Some(later);
            }
        }
    }
    Ok(input)
}

/// Hides what a recording of a file loaded so tells of who made it.
pub(super) fn recording(recording: &mut Recording, several: bool, hidden: &mut Anonymous) {
    hidden.hide(&mut recording.run);
    let device = if several { format!(", device {}", recording.device) } else { String::new() };
    recording.name = format!("recording{device}");
    // What a trace says of itself is still read where it stands: only what is shown of it goes.
    for note in &mut recording.notes {
        if recording.trace.reasons().any(|reason| reason == note) {
            *note = hidden.text(&note.as_str().into()).to_string();
        }
    }
    hide_settings(&mut recording.settings, hidden);
    let parsed = recording.conf.as_deref().and_then(|conf| parse_recorded(conf).ok());
    let known = parsed.and_then(|mut parsed| {
        hide_settings(&mut parsed.settings, hidden);
        parsed.settings.to_text().ok()
    });
    recording.conf = known.filter(|text| !text.is_empty());
    recording.settings.text = recording.conf.clone().unwrap_or_default();
}

/// Values of options are numbers and known words, but for these.
fn hide_settings(settings: &mut Settings, hidden: &mut Anonymous) {
    settings.system_root = Settings::default().system_root;
    for (class, _) in &mut settings.expandable_segments_reserve_by_class {
        *class = hidden.text(&class.as_str().into()).to_string();
    }
}
