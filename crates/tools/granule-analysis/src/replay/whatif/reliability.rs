//! Which conclusions are not exact, and how.

use alloc_core::config::AllocatorBackend;
use granule_snapshot::convert::{Counts, Recorded};
use granule_snapshot::trace::Trace;
use serde::Serialize;

/// Something that keeps figures from being exactly those of the program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct NotExact {
    /// What is missing or different.
    pub reason: String,
    /// The figures of an outcome that it concerns, by their names.
    pub figures: Vec<&'static str>,
    /// How they differ.
    pub effect: Effect,
    /// What that means for the conclusions, in words.
    pub meaning: &'static str,
}

/// On which side of the true figure an inexact one lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Effect {
    /// The true one is this or more.
    LowerBound,
    /// The true one may be more; it is less at most by chance.
    ProbablyTooLow,
    /// The true one may be less.
    ProbablyTooHigh,
    /// The figures are right up to a moment, and nothing is known about later.
    RightUntil,
    /// Nothing is said about the program.
    Other,
}

const PEAKS: [&str; 5] = [
    "requested_bytes_peak",
    "allocated_bytes_peak",
    "active_bytes_peak",
    "reserved_bytes_peak",
    "driver_peak_held",
];
const HELD: [&str; 2] = ["reserved_bytes_peak", "driver_peak_held"];
const CALLS: [&str; 5] =
    ["num_device_alloc", "num_device_free", "num_alloc_retries", "device_calls", "modelled_driver_ns"];
const REFUSALS: [&str; 3] = ["refused", "num_ooms", "first_refusal"];

fn list(parts: &[&[&'static str]]) -> Vec<&'static str> {
    parts.concat()
}

/// What a workload that was made of a snapshot leaves open; empty if nothing.
#[must_use]
pub fn of_snapshot(counts: &Counts, recorded: &Recorded) -> Vec<NotExact> {
    of_window(counts, recorded).into_iter().chain(of_history(counts)).flatten().collect()
}

/// What came before the history.
fn of_window(counts: &Counts, recorded: &Recorded) -> [Option<NotExact>; 2] {
    [
        not_exact(
            recorded.window,
            "the history is a window of the run: what came before is missing".into(),
            list(&[&PEAKS]),
            Effect::LowerBound,
            "what fits here fits for the window only; what is refused here would hardly have fitted either",
        ),
        not_exact(
            recorded.window && counts.live_before > 0,
            format!("before it {} lived, requested first, side by side", blocks(counts.live_before)),
            list(&[&HELD, &CALLS, &REFUSALS]),
            Effect::ProbablyTooLow,
            "the real program's memory was in more pieces by then: it reserves more, and retries more often",
        ),
    ]
}

/// What the history does not tell of itself.
fn of_history(counts: &Counts) -> [Option<NotExact>; 7] {
    [
        not_exact(
            counts.delayed_frees > 0,
            format!(
                "{} waited for other streams, which the replay does not know",
                plural(counts.delayed_frees, "free")
            ),
            list(&[&["active_bytes_peak"], &HELD, &CALLS, &REFUSALS]),
            Effect::ProbablyTooLow,
            "the replay reuses that memory at once; the program had to take other memory meanwhile",
        ),
        not_exact(
            counts.segments_returned > 0,
            format!(
                "{} given back, and whether the program called empty_cache is not recorded",
                plural(counts.segments_returned, "segment")
            ),
            list(&[&HELD]),
            Effect::ProbablyTooHigh,
            "the replay gives memory back only where it has to; device calls and driver time leave such flushes out",
        ),
        not_exact(
            counts.empty_caches > 0,
            format!(
                "{} of empty_cache inferred from segments that were given back",
                plural(counts.empty_caches, "call")
            ),
            list(&[&HELD, &CALLS]),
            Effect::Other,
            "where the program called it for nothing, that is not known",
        ),
        not_exact(
            counts.refused > 0,
            format!("the recording has {} itself", plural(counts.refused, "refused request")),
            list(&[&PEAKS, &CALLS, &REFUSALS]),
            Effect::RightUntil,
            "a device it fits on serves what was refused; what the program would have asked for after that is not known",
        ),
        not_exact(
            counts.inferred_pool_requests > 0,
            format!(
                "{} served by private pools (graphs, MemPool), and pools that were gone at the end are not known",
                plural(counts.inferred_pool_requests, "request")
            ),
            list(&[&HELD, &CALLS, &REFUSALS]),
            Effect::LowerBound,
            "pools do not share free memory: the program reserves more",
        ),
        not_exact(
            counts.missing_frees > 0,
            format!("{} missing in the history", plural(counts.missing_frees, "free")),
            list(&[&PEAKS, &CALLS, &REFUSALS]),
            Effect::ProbablyTooHigh,
            "such blocks are taken to live until another gets their address",
        ),
        not_exact(
            counts.unknown_actions > 0,
            format!("{} of unknown actions skipped", plural(counts.unknown_actions, "history record")),
            list(&[&PEAKS, &CALLS, &REFUSALS]),
            Effect::Other,
            "what they did to memory is not in any figure",
        ),
    ]
}

fn not_exact(
    applies: bool,
    reason: String,
    figures: Vec<&'static str>,
    effect: Effect,
    meaning: &'static str,
) -> Option<NotExact> {
    applies.then_some(NotExact { reason, figures, effect, meaning })
}

/// What a trace leaves open; empty if nothing.
#[must_use]
pub fn of_trace(trace: &Trace) -> Vec<NotExact> {
    let figures = || list(&[&PEAKS, &CALLS, &REFUSALS]);
    let mut found: Vec<NotExact> = trace
        .reasons()
        .map(|reason| NotExact {
            reason: reason.to_owned(),
            figures: figures(),
            effect: if trace.is_window() { Effect::LowerBound } else { Effect::Other },
            meaning: if trace.is_window() {
                "what fits here fits for the recorded part only"
            } else {
                "the replay is of these requests; those of the program were not quite the same"
            },
        })
        .collect();
    if trace.lacks_pools() {
        found.push(NotExact {
            reason: "the trace does not say what private pools served (graphs, MemPool)".into(),
            figures: list(&[&HELD, &CALLS, &REFUSALS]),
            effect: Effect::LowerBound,
            meaning: "pools do not share free memory: the program reserves at least this; record it anew",
        });
    }
    if trace.is_cut() {
        let all = trace.header.events.unwrap_or_default();
        found.push(NotExact {
            reason: format!("the file was cut: it holds {} of {all} events", trace.events.len()),
            figures: figures(),
            effect: Effect::LowerBound,
            meaning: "what fits here fits for this part only",
        });
    }
    found
}

/// What a device that is behind leaves open; `None` where it is not.
#[must_use]
pub fn of_lag(lag: u64) -> Option<NotExact> {
    (lag > 0).then(|| NotExact {
        reason: format!("the device's work is {} behind, as on no particular real one", plural(lag, "event")),
        figures: list(&[&["active_bytes_peak"], &HELD, &CALLS, &REFUSALS]),
        effect: Effect::Other,
        meaning: "figures compare the candidates with each other; a real device is sometimes further behind, and sometimes less",
    })
}

/// What leaves open that a replay is not like the program: what was seen to differ.
#[must_use]
pub fn of_difference(reason: String) -> NotExact {
    NotExact {
        reason,
        figures: list(&[&HELD, &CALLS, &REFUSALS]),
        effect: Effect::Other,
        meaning: "the program's memory did not lie as a replay's does",
    }
}

/// What a program leaves open that ran with pools of the driver's; `None` for PyTorch's own.
#[must_use]
pub fn of_backend(backend: AllocatorBackend) -> Option<NotExact> {
    not_exact(
        backend != AllocatorBackend::Native,
        "the program ran with backend:cudaMallocAsync, whose rules are not public".into(),
        list(&[&PEAKS, &CALLS, &REFUSALS]),
        Effect::Other,
        "figures are those of backend:native on these requests",
    )
}

fn blocks(count: u64) -> String {
    plural(count, "block")
}

fn plural(count: u64, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::{Effect, of_lag, of_snapshot, of_trace};
    use granule_snapshot::convert::{Counts, Recorded};
    use granule_snapshot::trace::Trace;

    #[test]
    fn what_is_exact_has_nothing_to_say() {
        assert!(of_snapshot(&Counts::default(), &Recorded::default()).is_empty());
        assert!(of_trace(&Trace::default()).is_empty());
        assert!(of_lag(0).is_none() && of_lag(1).is_some());
    }

    #[test]
    fn every_reason_names_the_figures_it_concerns() {
        let counts = Counts {
            live_before: 1,
            delayed_frees: 2,
            segments_returned: 1,
            empty_caches: 1,
            refused: 1,
            inferred_pool_requests: 3,
            missing_frees: 1,
            unknown_actions: 1,
            contradictions: 0,
        };
        let recorded = Recorded { window: true, ..Recorded::default() };
        let found = of_snapshot(&counts, &recorded);
        let effects: Vec<Effect> = found.iter().map(|one| one.effect).collect();
        assert_eq!(
            effects,
            [
                Effect::LowerBound,
                Effect::ProbablyTooLow,
                Effect::ProbablyTooLow,
                Effect::ProbablyTooHigh,
                Effect::Other,
                Effect::RightUntil,
                Effect::LowerBound,
                Effect::ProbablyTooHigh,
                Effect::Other,
            ]
        );
        assert!(found.iter().all(|one| !one.figures.is_empty() && !one.meaning.is_empty()));
        assert!(found[2].reason.starts_with("2 frees waited"), "{}", found[2].reason);
    }

    #[test]
    fn a_cut_or_windowed_trace_gives_lower_bounds() {
        let text = br#"# {"events": 5, "reasons": ["it began late"], "recording": {"window": true}}
a 0 512 0
"#;
        let found = of_trace(&Trace::from_reader(&text[..]).unwrap());
        assert_eq!(found.len(), 2);
        assert!(found.iter().all(|one| one.effect == Effect::LowerBound));
        let text = br#"# {"reasons": ["one free is missing"]}
a 0 512 0
"#;
        let found = of_trace(&Trace::from_reader(&text[..]).unwrap());
        assert_eq!((found.len(), found[0].effect), (1, Effect::Other));
    }
}
