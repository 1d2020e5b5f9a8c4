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
            let header = &mut Arc::make_mut(trace).header;
            let reasons = header.extra.get_mut("reasons").and_then(|reasons| reasons.as_array_mut());
            for reason in reasons.into_iter().flatten() {
                if let Some(text) = reason.as_str() {
                    *reason = hidden.text(&text.into()).to_string().into();
                }
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
    // Values of options are numbers and known words, but for this one. What is no option is nobody's.
    let system_root = Settings::default().system_root;
    recording.settings.system_root.clone_from(&system_root);
    let parsed = recording.conf.as_deref().and_then(|conf| parse_recorded(conf).ok());
    let known = parsed.and_then(|parsed| Settings { system_root, ..parsed.settings }.to_text().ok());
    recording.conf = known.filter(|text| !text.is_empty());
    recording.settings.text = recording.conf.clone().unwrap_or_default();
}
