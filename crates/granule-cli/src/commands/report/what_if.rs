//! The page's tables of other settings.

use crate::commands::whatif::{ask, device, not_known};
use crate::console;
use crate::failure::Failure;
use crate::recording::Recording;
use granule::replay::whatif::{Answer, Choice, Outcome, Question, Tried, Verdict};
use granule_report::{WhatIf, WhatIfDevice, WhatIfRow};

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
            "other settings are not tried: the history has {}; --whatif tries them",
            console::counted(events, "event")
        ));
        return Ok(WhatIf::default());
    }
    let question = Question {
        current: recording.settings.clone(),
        capacities: capacity.into_iter().collect(),
        recorded_capacity: recording.capacity,
        before: recording.before,
        newest_release: recording.newest_release.map(|newest| newest.release),
        ..Question::default()
    };
    Ok(of_answer(&ask(&question, &recording.trace, &recording.name)?))
}

fn of_answer(answer: &Answer) -> WhatIf {
    let devices = answer.verdicts.iter().enumerate().map(|(device, verdict)| {
        let best = verdict.least_change.as_ref();
        // That a part of the program fits says nothing.
        let tells = |tried: &&Tried| verdict.known || !tried.outcomes[device].fits();
        let rows = answer.candidates.iter().filter(tells);
        WhatIfDevice {
            verdict: text(verdict, answer),
            steps: best.map(|choice| choice.steps.clone()).unwrap_or_default(),
            rows: rows.map(|tried| row(tried, &tried.outcomes[device], best)).collect(),
        }
    });
    WhatIf { summary: String::new(), devices: devices.collect() }
}

fn row(tried: &Tried, outcome: &Outcome, best: Option<&Choice>) -> WhatIfRow {
    #[allow(clippy::cast_precision_loss)]
    let driver_ns = outcome.modelled_driver_ns as f64;
    WhatIfRow {
        name: tried.candidate.name.clone(),
        refused: outcome.refused,
        reserved_peak: outcome.held(),
        retries: outcome.num_alloc_retries.unsigned_abs(),
        driver_ns,
        recommended: best.is_some_and(|choice| choice.candidate == tried.candidate.name),
    }
}

fn text(verdict: &Verdict, answer: &Answer) -> String {
    let device = device(verdict);
    match &verdict.least_change {
        None if !verdict.known => format!("{}.", not_known(verdict, answer)),
        None => format!("On {device}: nothing of what was tried fits."),
        Some(Choice { steps, .. }) if steps.is_empty() => format!("On {device}: fits as it is."),
        Some(choice) => format!("On {device}: fits with {}.", choice.candidate),
    }
}

#[cfg(test)]
mod tests {
    use super::{Question, of_answer};
    use granule::files::trace::Trace;
    use granule::replay::whatif::Before;

    /// It said that more had been reserved, which nobody knew.
    #[test]
    fn why_nothing_is_known_is_said_as_whatif_says_it() {
        let trace = Trace::from_reader(&b"# {}\na 0 1048576 0\n"[..]).unwrap();
        let verdict = |before| {
            let question = Question { capacities: vec![1 << 30], before, ..Question::default() };
            of_answer(&question.ask(&trace, &|_| {}).unwrap()).devices[0].verdict.clone()
        };
        assert!(verdict(Before::Unknown).contains("not known. What was reserved when the trace begins"));
        assert!(verdict(Before::Bytes(2 << 30)).contains("not known. 2.00 GiB were reserved"));
        assert_eq!(verdict(Before::Nothing), "On 1.00 GiB: fits as it is.");
    }
}
