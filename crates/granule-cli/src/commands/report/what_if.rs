//! The page's table of other settings.

use crate::commands::whatif::ask;
use crate::console;
use crate::failure::Failure;
use crate::recording::Recording;
use granule::replay::whatif::{Answer, Choice, Question, Verdict};
use granule::round::format_bytes;
use report::{WhatIf, WhatIfRow};

/// Events up to which the table is worked out unasked: beyond that it takes longer than the page.
const UNASKED: usize = 200_000;

/// Tries other settings on what the program asked for. `wanted` says that the user has decided; else a long workload and one
/// without requests are left out, and the page says so.
pub(super) fn table(
    recording: &Recording,
    capacity: Option<u64>,
    wanted: Option<bool>,
) -> Result<WhatIf, Failure> {
    let events = recording.trace.events.len();
    if events == 0 || wanted == Some(false) {
        return Ok(WhatIf::default());
    }
    if wanted.is_none() && events > UNASKED {
        console::note(format_args!(
            "other settings are not tried: the history has {events} events; --whatif tries them"
        ));
        return Ok(WhatIf::default());
    }
    let question = Question {
        current: recording.settings.clone(),
        capacities: capacity.into_iter().collect(),
        recorded_capacity: recording.capacity,
        ..Question::default()
    };
    Ok(of_answer(&ask(&question, &recording.trace, &recording.name)?))
}

fn of_answer(answer: &Answer) -> WhatIf {
    let summary: Vec<String> = answer.verdicts.iter().map(verdict).collect();
    let rows = answer.verdicts.iter().enumerate().flat_map(|(device, verdict)| {
        let best = verdict.least_change.as_ref().map(|choice| &choice.candidate);
        answer.candidates.iter().map(move |tried| {
            let outcome = &tried.outcomes[device];
            WhatIfRow {
                name: tried.candidate.name.clone(),
                // With another policy or without caching, the text alone does not give it.
                conf: Some(tried.candidate.conf.clone()).filter(|conf| {
                    !conf.is_empty() && tried.candidate.caching && tried.candidate.policy == "pytorch"
                }),
                capacity: Some(outcome.capacity),
                fits: outcome.fits(),
                refused: outcome.refused,
                reserved_peak: outcome.held(),
                retries: outcome.num_alloc_retries.unsigned_abs(),
                driver_ns: outcome.modelled_driver_ns as f64,
                recommended: best == Some(&tried.candidate.name),
            }
        })
    });
    WhatIf { summary: summary.join(" "), rows: rows.collect() }
}

fn verdict(verdict: &Verdict) -> String {
    let device = format_bytes(verdict.capacity);
    match &verdict.least_change {
        None => format!("On {device}: nothing of what was tried fits."),
        Some(Choice { steps, .. }) if steps.is_empty() => format!("On {device}: fits as it is."),
        Some(choice) => format!("On {device}: fits with {}.", choice.candidate),
    }
}
