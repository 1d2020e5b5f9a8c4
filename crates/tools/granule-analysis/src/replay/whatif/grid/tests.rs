use super::{Progress, Question, flushing};
use crate::replay::whatif::Candidate;
use crate::replay::{ReplayError, ReplayOptions, replay};
use alloc_core::types::MIB;
use granule_snapshot::trace::{Event, Trace};
use proptest::prelude::*;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

/// A large block is freed, small ones are put where it was, and then there is no room for a middling one.
fn holes(marks: bool) -> Trace {
    let alloc = |id, mb: u64| Event::Alloc { id, size: mb * MIB, stream: 0 };
    let mut events = vec![Event::Iteration { n: 0 }, alloc(0, 100), Event::Free { id: 0 }];
    events.push(Event::Iteration { n: 1 });
    events.extend((1..5).map(|id| alloc(id, 12)));
    events.push(alloc(5, 70));
    events.retain(|event| marks || !matches!(event, Event::Iteration { .. }));
    Trace { events, ..Trace::default() }
}

fn ask(trace: &Trace, capacities: &[u64]) -> super::Answer {
    let question =
        Question { capacities: capacities.iter().map(|mb| mb * MIB).collect(), ..Question::default() };
    question.ask(trace, &|_| {}).unwrap()
}

#[test]
fn each_device_has_its_answer() {
    let answer = ask(&holes(true), &[1024, 130, 90, 130]);
    assert_eq!(answer.peak_requested, 118 * MIB);
    let devices: Vec<u64> = answer.verdicts.iter().map(|verdict| verdict.capacity / MIB).collect();
    assert_eq!(devices, [90, 130, 1024], "ascending, without doubles");
    let [small, tight, large] = &answer.verdicts[..] else { unreachable!() };
    assert!(small.least_change.is_none() && small.fitting == 0);
    assert!(small.nearest.as_ref().unwrap().first_refusal.unwrap().requested > 0);
    let tight = tight.least_change.as_ref().unwrap();
    assert_eq!(
        (tight.conf.as_str(), tight.changed_options.as_slice()),
        ("expandable_segments:True", &["expandable_segments"][..])
    );
    assert_eq!(tight.steps, ["export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"]);
    let large = large.least_change.as_ref().unwrap();
    assert_eq!((large.candidate.as_str(), large.steps.len()), ("default", 0));
    let smallest = answer.smallest.unwrap();
    let found = smallest.pytorch.unwrap();
    assert_eq!((found.candidate.as_str(), found.found.min_capacity / MIB), ("expandable_segments:True", 128));
    assert_eq!(smallest.granule.unwrap().found.min_capacity / MIB, 128);
    assert!(
        ask(&holes(true), &[1024]).smallest.is_none(),
        "it is searched only where something does not fit"
    );
}

#[test]
fn progress_tells_all_events_and_what_comes_next() {
    let (done, said) = (AtomicU64::new(0), Mutex::new(Vec::new()));
    let trace = holes(true);
    let question = Question { capacities: vec![90 * MIB], ..Question::default() };
    let answer = question.ask(&trace, &|progress| match progress {
        Progress::Events(more) => drop(done.fetch_add(more, Ordering::Relaxed)),
        other => said.lock().unwrap().push(other),
    });
    let said = said.into_inner().unwrap();
    let [Progress::Grid { replays, events }, Progress::Smallest] = said[..] else { panic!("{said:?}") };
    assert_eq!((replays, events), (answer.unwrap().replays, done.into_inner()));
}

#[test]
fn the_cache_is_given_back_where_an_iteration_ends() {
    let flushed = flushing(&holes(true));
    let at: Vec<usize> =
        (0..).zip(&flushed.events).filter(|(_, e)| **e == Event::EmptyCache).map(|(n, _)| n).collect();
    assert_eq!(at, [3], "before the second mark, and not before the first");
    let answer = ask(&holes(true), &[1024]);
    let held = |name: &str| {
        answer.candidates.iter().find(|tried| tried.candidate.name == name).unwrap().roomy.held() / MIB
    };
    assert_eq!((held("default"), held("empty_cache() every iteration")), (170, 118));
    assert!(answer.not_tried.iter().all(|reason| !reason.contains("empty_cache")));
    let without = ask(&holes(false), &[1024]);
    assert!(without.not_tried.iter().any(|reason| reason.contains("empty_cache")));
}

#[test]
fn caching_off_is_what_the_driver_gives() {
    let answer = ask(&holes(false), &[120, 70]);
    let off = answer.candidates.iter().find(|tried| !tried.candidate.caching).unwrap();
    assert_eq!(
        (off.roomy.held() / MIB, off.roomy.reserved_bytes_peak),
        (118, 0),
        "PyTorch counts nothing then"
    );
    assert_eq!((off.outcomes[0].refused, off.outcomes[1].refused), (2, 0), "the first and the last");
    assert_eq!(off.outcomes[0].first_refusal.unwrap().requested, 100 * MIB);
}

#[test]
fn damaged_traces_are_errors() {
    let trace = Trace { events: vec![Event::Free { id: 7 }], ..Trace::default() };
    let error = Question::default().ask(&trace, &|_| {}).unwrap_err();
    assert!(matches!(error, ReplayError::Trace { event: 1, .. }), "{error}");
    let nothing = Question::default().ask(&Trace::default(), &|_| {}).unwrap();
    assert_eq!((nothing.peak_requested, nothing.verdicts.len()), (0, 2));
}

/// What `granule replay` says of a candidate.
fn refused(trace: &Trace, candidate: &Candidate, capacity: u64) -> u64 {
    let options = ReplayOptions {
        settings: candidate.settings.clone(),
        capacity: Some(capacity),
        ..ReplayOptions::default()
    };
    let flushed;
    let trace = if candidate.empty_cache_each_iteration {
        flushed = flushing(trace);
        &flushed
    } else {
        trace
    };
    replay(trace, &options, |_| {}).unwrap().result.refused
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    /// Over random programs: the answer fits when it is replayed by itself, and nothing that changes fewer options does.
    #[test]
    fn nothing_that_changes_less_fits(
        steps in prop::collection::vec((1_u64..90, 0_u32..2, any::<prop::sample::Index>(), any::<bool>()), 20..120),
        spare in 0_u64..120,
    ) {
        let (mut live, mut events) = (Vec::new(), Vec::new());
        for (id, (mb, stream, victim, frees)) in (0..).zip(steps) {
            if id % 30 == 0 {
                events.push(Event::Iteration { n: id / 30 });
            }
            if frees && !live.is_empty() {
                events.push(Event::Free { id: live.swap_remove(victim.index(live.len())) });
            }
            events.push(Event::Alloc { id, size: mb * MIB, stream });
            live.push(id);
        }
        let trace = Trace { events, ..Trace::default() };
        let capacity = super::peak_live(&trace) + spare * MIB;
        let question = Question { capacities: vec![capacity], ..Question::default() };
        let answer = question.ask(&trace, &|_| {}).unwrap();
        let all = question.candidates(&trace);
        let least = answer.verdicts[0].least_change.as_ref();
        let chosen = least.map(|least| all.iter().find(|c| c.name == least.candidate).unwrap());
        for candidate in &all {
            let refused = refused(&trace, candidate, capacity);
            match chosen {
                Some(chosen) if chosen.name == candidate.name => prop_assert_eq!(refused, 0),
                Some(chosen) if candidate.effort < chosen.effort => prop_assert!(refused > 0, "{}", candidate.name),
                Some(_) => {}
                None => prop_assert!(refused > 0 || !candidate.caching, "{}", candidate.name),
            }
        }
    }
}
