//! The page's tables of other settings.

use crate::commands::whatif::{ask, under};
use crate::console;
use crate::failure::Failure;
use crate::recording::Recording;
use granule_analysis::replay::whatif::{Answer, Choice, Outcome, Question, Tried};
use granule_report::{WhatIf, WhatIfDevice, WhatIfRow};

/// Events up to which the table is worked out unasked: beyond that it takes longer than the page.
const UNASKED: usize = 200_000;

/// Tries other settings on what the program asked for. `wanted` says that the user has decided; else a long workload and one
/// without requests are left out, and a note says so.
pub(in crate::commands) fn answer(
    recording: &Recording,
    capacity: Option<u64>,
    wanted: Option<bool>,
) -> Result<Option<Answer>, Failure> {
    let events = recording.trace.events.len();
    if events == 0 || wanted == Some(false) {
        return Ok(None);
    }
    if wanted.is_none() && events > UNASKED {
        console::note(format_args!(
            "other settings are not tried: the history has {}; granule whatif tries them",
            console::counted(events, "event")
        ));
        return Ok(None);
    }
    let question = Question {
        current: recording.settings.clone(),
        capacities: capacity.into_iter().collect(),
        recorded_capacity: recording.capacity,
        before: recording.before,
        held: recording.held,
        newest_release: recording.newest_release.map(|newest| newest.release),
        ..Question::default()
    };
    let question = under(recording.limit(), question);
    ask(&question, &recording.trace, &recording.name).map(Some)
}

/// The tables of an answer.
pub(super) fn of_answer(answer: &Answer) -> WhatIf {
    let devices = answer.verdicts.iter().enumerate().map(|(device, verdict)| {
        let best = verdict.least_change.as_ref();
        // That a part of the program fits says nothing.
        let tells = |tried: &&Tried| verdict.known || !tried.outcomes[device].fits();
        let rows = answer.ranked(device).into_iter().filter(tells);
        WhatIfDevice {
            capacity: verdict.capacity,
            verdict: format!("{}.", verdict.text),
            steps: best.map(|choice| choice.steps.clone()).unwrap_or_default(),
            rows: rows.map(|tried| row(tried, &tried.outcomes[device], best)).collect(),
        }
    });
    let doubt = answer.doubt.as_ref().map(|doubt| doubt.text.clone());
    let summary = doubt.or_else(|| Some(format!("{}.", answer.did_without.as_ref()?))).unwrap_or_default();
    WhatIf { summary, devices: devices.collect() }
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

#[cfg(test)]
mod tests {
    use super::{Question, of_answer};
    use granule_analysis::replay::whatif::{Before, Held};
    use granule_snapshot::trace::Trace;

    #[test]
    fn a_part_of_a_run_gets_the_comparison_in_place_of_a_verdict() {
        let trace = Trace::from_reader(&b"# {}\na 0 1048576 0\n"[..]).unwrap();
        let page = |before| {
            let held = Some(Held { by: "PyTorch", bytes: 2 << 30 });
            let question = Question { capacities: vec![1 << 30], before, held, ..Question::default() };
            of_answer(&question.ask(&trace, &|_| {}).unwrap())
        };
        for before in [Before::Unknown, Before::Bytes(1 << 20), Before::Bytes(2 << 30), Before::Nothing] {
            let page = page(before);
            assert!(page.summary.starts_with("Replay 2.00 MiB, PyTorch held 2.00 GiB: "), "{}", page.summary);
            assert!(page.devices[0].verdict.contains("not known"), "{}", page.devices[0].verdict);
            assert!(page.devices[0].rows.is_empty() && page.devices[0].steps.is_empty());
        }
    }
}
