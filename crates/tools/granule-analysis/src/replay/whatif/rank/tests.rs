use super::{Before, Doubt, Effort, Held, Trace, ranked, verdict};
use crate::replay::whatif::{Candidate, Kind, Outcome, Question, Tried};
use proptest::prelude::*;

/// A candidate that changes so many options, and what it did on one device.
fn tried(name: usize, effort: Effort, refused: u64, retries: i64, ns: u64) -> Tried {
    let mut candidate: Candidate = Question::default().candidates(&Trace::default()).remove(0);
    let changed = if let Effort::Options(count) = effort { count } else { 0 };
    candidate.name = name.to_string();
    candidate.conf = format!("conf{name}");
    candidate.kind = Kind::Advice;
    candidate.changed_options = vec!["an_option"; changed];
    candidate.effort = effort;
    candidate.caching = effort != Effort::NoCaching;
    let outcome =
        Outcome { refused, num_alloc_retries: retries, modelled_driver_ns: ns, ..Outcome::default() };
    Tried { candidate, roomy: Outcome::default(), outcomes: vec![outcome] }
}

#[test]
fn fewer_changes_come_before_fewer_retries_and_those_before_less_time() {
    let all = [
        tried(0, Effort::Options(0), 1, 0, 0),
        tried(1, Effort::Options(2), 0, 0, 10),
        tried(2, Effort::Options(1), 0, 5, 10),
        tried(3, Effort::Options(1), 0, 4, 30),
        tried(4, Effort::Options(1), 0, 4, 20),
        tried(5, Effort::Program, 0, 0, 1),
        tried(6, Effort::OtherAllocator, 0, 0, 1),
        tried(7, Effort::NoCaching, 0, 0, 0),
    ];
    let answer = verdict(&all, 0, 100, 1, true, false);
    assert_eq!((answer.capacity, answer.fitting), (100, 6), "without caching does not count");
    let least = answer.least_change.unwrap();
    assert_eq!((least.candidate.as_str(), least.num_alloc_retries), ("4", 4));
    assert_eq!(least.steps, ["export PYTORCH_CUDA_ALLOC_CONF=conf4"]);
    assert_eq!(answer.without_retries.unwrap().candidate, "1");
    assert!(answer.nearest.is_none());
}

/// `max_split_size_mb` served a recording up to its out-of-memory error quickest, by wasting what the rest would have needed.
#[test]
fn of_two_without_retries_the_one_that_takes_less_is_the_answer() {
    let mut wasteful = tried(0, Effort::Options(1), 0, 0, 10);
    wasteful.roomy.reserved_bytes_peak = 200;
    let mut sparing = tried(1, Effort::Options(1), 0, 0, 20);
    sparing.roomy.reserved_bytes_peak = 100;
    assert_eq!(verdict(&[wasteful, sparing], 0, 100, 1, true, false).least_change.unwrap().candidate, "1");
}

#[test]
fn another_allocator_is_the_answer_only_where_settings_and_program_are_none() {
    let all = [
        tried(0, Effort::Options(1), 3, 0, 0),
        tried(1, Effort::NoCaching, 0, 0, 1),
        tried(2, Effort::OtherAllocator, 0, 0, 9),
        tried(3, Effort::Program, 1, 0, 1),
    ];
    assert_eq!(verdict(&all, 0, 1, 1, true, false).least_change.unwrap().candidate, "2");
}

#[test]
fn where_nothing_fits_the_nearest_setting_is_named() {
    let all = [
        tried(0, Effort::Options(0), 9, 0, 0),
        tried(1, Effort::Options(1), 2, 0, 0),
        tried(2, Effort::NoCaching, 0, 0, 7),
    ];
    let answer = verdict(&all, 0, 1, 1, true, false);
    assert!(answer.least_change.is_none() && answer.without_retries.is_none());
    assert_eq!(answer.nearest.unwrap().candidate, "1");
    assert_eq!(answer.without_caching.unwrap().modelled_driver_ns, 7, "no answer, but said");
    assert!(verdict(&[], 0, 1, 1, true, false).nearest.is_none());
}

/// The page's winner stood second last, below settings that its own table showed refused.
#[test]
fn the_answer_comes_first_and_the_others_by_outcome() {
    let all = [
        tried(0, Effort::Options(1), 9, 0, 0),
        tried(1, Effort::NoCaching, 0, 0, 1),
        tried(2, Effort::Options(2), 0, 0, 0),
        tried(3, Effort::Options(1), 0, 2, 0),
        tried(4, Effort::Options(1), 3, 0, 0),
    ];
    let answer = verdict(&all, 0, 100, 1, true, false);
    let order: Vec<&str> =
        ranked(&all, 0, &answer).iter().map(|tried| tried.candidate.name.as_str()).collect();
    assert_eq!(order, ["3", "2", "1", "4", "0"]);
    assert_eq!(answer.text, "On 100 bytes: fits with one change, an_option");
    // A program that ended refused may ask for more.
    let until = verdict(&all, 0, 100, 1, true, true).text;
    assert_eq!(until, "On 100 bytes, up to the refusal: fits with one change, an_option");
}

/// `.least_change.conf` was an empty text wherever no setting of PyTorch's was the answer.
#[test]
fn advice_is_never_empty() {
    let advice = |all: &[Tried], tells| verdict(all, 0, 100, 1, tells, false).advice;
    let fits = |effort| [tried(0, effort, 0, 0, 0)];
    assert_eq!(advice(&fits(Effort::Options(1)), true), "export PYTORCH_CUDA_ALLOC_CONF=conf0");
    assert_eq!(advice(&fits(Effort::Options(0)), true), "# On 100 bytes: fits as it is");
    assert_eq!(
        advice(&[tried(0, Effort::Options(0), 1, 0, 0)], true),
        "# On 100 bytes: nothing of what was tried fits"
    );
    let doubtful = verdict(&fits(Effort::Options(1)), 0, 100, 1, false, false);
    assert!(doubtful.advice.starts_with("# On 100 bytes: not known"), "{}", doubtful.advice);
    assert!(!doubtful.known && doubtful.least_change.is_none() && doubtful.fitting == 0);
}

#[test]
fn a_replay_that_holds_much_less_than_the_program_is_doubted_and_a_part_always() {
    let held = |bytes| Some(Held { by: "PyTorch", bytes });
    let trace = |text: &str| Trace::from_reader(text.as_bytes()).unwrap();
    let (whole, refused) = (trace("# {}\na 0 1 0\n"), trace("# {}\na 0 1 0\nx 0 0\n"));
    let pools = trace("# {\"reasons\": [\"private pools\"]}\n");
    let doubt = |trace, before, held| Doubt::new("Replay", 10 << 30, held, trace, before).map(|one| one.text);
    for (trace, held) in [(&whole, None), (&whole, held(10 << 30)), (&refused, held(9 << 30))] {
        assert_eq!(doubt(trace, Before::Nothing, held), None);
    }
    let text = |trace, before, held| doubt(trace, before, held).unwrap();
    let short = text(&whole, Before::Nothing, held(33 << 30));
    assert!(short.starts_with("Replay 10.00 GiB, PyTorch held 33.00 GiB: what took the rest"), "{short}");
    let beyond = text(&whole, Before::Nothing, held(9 << 30));
    assert!(beyond.starts_with("Replay 10.00 GiB, PyTorch held 9.00 GiB: what kept it lower"), "{beyond}");
    let window = text(&whole, Before::Unknown, held(10 << 30));
    assert!(window.contains("PyTorch held 10.00 GiB: the recording is a window of the run"), "{window}");
    assert!(text(&pools, Before::Nothing, None).contains("what the program held is not recorded"));
}

fn effort() -> impl Strategy<Value = Effort> {
    prop_oneof![
        4 => (0_usize..4).prop_map(Effort::Options),
        1 => Just(Effort::Program),
        1 => Just(Effort::OtherAllocator),
        1 => Just(Effort::NoCaching),
    ]
}

proptest! {
    /// No candidate that fits changes less than the answer; of those that change as much none has fewer retries, and of
    /// those none takes less time.
    #[test]
    fn the_answer_is_the_least_change(
        all in prop::collection::vec((effort(), 0_u64..3, 0_i64..3, 0_u64..3), 0..12),
    ) {
        let all: Vec<Tried> = all
            .into_iter()
            .enumerate()
            .map(|(name, (effort, refused, retries, ns))| tried(name, effort, refused, retries, ns))
            .collect();
        let fits = |tried: &&Tried| tried.candidate.caching && tried.outcomes[0].refused == 0;
        let fitting = || all.iter().filter(fits);
        let answer = verdict(&all, 0, 1, 1, true, false);
        prop_assert_eq!(answer.fitting, fitting().count());
        prop_assert_eq!(answer.least_change.is_some(), fitting().next().is_some());
        if let Some(least) = answer.least_change {
            let chosen = &all[least.candidate.parse::<usize>().unwrap()];
            prop_assert_eq!(chosen.outcomes[0].refused, 0);
            for other in fitting() {
                let (a, b) = (chosen.candidate.effort, other.candidate.effort);
                prop_assert!(a <= b, "{a:?} {b:?}");
                let (one, another) = (&chosen.outcomes[0], &other.outcomes[0]);
                if a == b {
                    prop_assert!(one.num_alloc_retries <= another.num_alloc_retries);
                    if one.num_alloc_retries == another.num_alloc_retries {
                        prop_assert!(one.modelled_driver_ns <= another.modelled_driver_ns);
                    }
                }
            }
            if let Some(smooth) = answer.without_retries {
                prop_assert!(chosen.outcomes[0].num_alloc_retries > 0);
                let smooth = &all[smooth.candidate.parse::<usize>().unwrap()];
                prop_assert_eq!(smooth.outcomes[0].num_alloc_retries, 0);
            }
        }
    }
}
