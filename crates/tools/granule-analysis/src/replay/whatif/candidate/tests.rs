use super::{Candidate, Kind, items, quoted, same_options, splits_of};
use crate::replay::whatif::Question;
use alloc_core::config::{Flavour, PolicyName, Settings, environment, pytorch};
use alloc_core::types::MIB;
use granule_snapshot::trace::{Event, Trace};

fn read(text: &str) -> Settings {
    pytorch::parse(text, &Settings::default(), Flavour::Cuda).unwrap().settings
}

fn trace(sizes: &[u64], marks: bool) -> Trace {
    let mut events: Vec<Event> =
        (0..).zip(sizes).map(|(id, size)| Event::Alloc { id, size: *size, stream: 0 }).collect();
    events.extend(marks.then_some(Event::Iteration { n: 0 }));
    Trace { events, ..Trace::default() }
}

fn of(current: &str, own: &[&str]) -> Vec<Candidate> {
    let own = own.iter().map(|text| read(text)).collect();
    Question { current: read(current), own, ..Question::default() }.candidates(&trace(&[], false))
}

fn find<'c>(all: &'c [Candidate], name: &str) -> &'c Candidate {
    all.iter().find(|candidate| candidate.name == name).unwrap_or_else(|| panic!("no {name}"))
}

#[test]
fn every_candidate_is_its_text_and_there_are_no_doubles() {
    for current in ["", "expandable_segments:True", "max_split_size_mb:128,garbage_collection_threshold:0.6"]
    {
        let all = of(current, &["max_split_size_mb:64", "expandable_segments:True"]);
        for candidate in &all {
            let settings = Settings { caching: true, ..candidate.settings.clone() };
            if settings.policy_name() == PolicyName::Pytorch {
                assert!(same_options(&read(&candidate.conf), &settings), "{}", candidate.name);
            }
            assert_eq!(
                all.iter().filter(|other| other.name == candidate.name).count(),
                1,
                "{}",
                candidate.name
            );
        }
        assert_eq!(all[0].kind, Kind::Current);
        assert_eq!((all[0].conf.as_str(), all[0].changed_options.len()), (current, 0));
        assert!(all[0].steps().is_empty(), "nothing is to be done for what is there");
        assert_eq!(find(&all, "max_split_size_mb:64").kind, Kind::Yours);
    }
}

#[test]
fn changes_are_counted_from_what_the_program_runs_with() {
    let all = of("max_split_size_mb:128,garbage_collection_threshold:0.6", &[]);
    let changed = |name: &str| find(&all, name).changed_options.clone();
    assert_eq!(changed("default"), ["max_split_size_mb", "garbage_collection_threshold"]);
    assert_eq!(changed("max_split_size_mb:128"), ["garbage_collection_threshold"], "a part is left out");
    assert_eq!(changed("garbage_collection_threshold:0.6"), ["max_split_size_mb"]);
    let more = "max_split_size_mb:128,garbage_collection_threshold:0.6,expandable_segments:True";
    assert_eq!(changed(more), ["expandable_segments"], "and something is added");
    assert_eq!(find(&all, "default").steps(), ["unset PYTORCH_CUDA_ALLOC_CONF"]);
}

#[test]
fn limits_of_the_program_stay() {
    let all = of("per_process_memory_fraction:0.5,max_split_size_mb:512", &[]);
    assert!(all.iter().all(|candidate| {
        candidate.settings.per_process_memory_fraction == 0.5 || candidate.kind != Kind::Advice
    }));
    let advice = find(&all, "per_process_memory_fraction:0.5,expandable_segments:True");
    assert_eq!(advice.changed_options, ["max_split_size_mb", "expandable_segments"]);
}

#[test]
fn what_only_granule_has_is_not_given_to_pytorch() {
    let parsed = environment::read(
        |name| match name {
            "PYTORCH_CUDA_ALLOC_CONF" => Some("max_split_size_mb:128".into()),
            "GRANULE_CONF" => Some("policy:granule,memory_limit:8G".into()),
            _ => None,
        },
        Flavour::Cuda,
    );
    let question = Question { current: parsed.unwrap().settings, ..Question::default() };
    let all = question.candidates(&trace(&[], false));
    let granule = find(&all, "policy:granule");
    assert_eq!(granule.kind, Kind::Current);
    assert_eq!(granule.granule_conf.as_deref(), Some("policy:granule,memory_limit:8GiB"));
    assert!(granule.settings.memory_limit.is_some());
    let split = find(&all, "max_split_size_mb:128");
    assert_eq!((split.settings.memory_limit, split.policy), (None, "pytorch"));
    assert!(split.effort > granule.effort, "it would be another allocator");
}

#[test]
fn one_policy_may_be_asked_for() {
    let policies = vec![PolicyName::Granule];
    let all = Question { policies, ..Question::default() }.candidates(&trace(&[], true));
    assert_eq!(all.iter().map(|c| c.name.as_str()).collect::<Vec<_>>(), ["policy:granule"]);
    let policies = vec![PolicyName::Pytorch];
    let all = Question { policies, ..Question::default() }.candidates(&trace(&[], true));
    assert!(all.iter().all(|candidate| candidate.policy == "pytorch"));
    let flushing = find(&all, "empty_cache() every iteration");
    assert!(
        flushing.empty_cache_each_iteration && flushing.steps()[0].starts_with("torch.cuda.empty_cache()")
    );
    assert!(of("", &[]).iter().all(|candidate| !candidate.empty_cache_each_iteration), "no marks");
    let bypass = find(&all, "PYTORCH_NO_CUDA_MEMORY_CACHING=1");
    assert_eq!(bypass.steps(), ["export PYTORCH_NO_CUDA_MEMORY_CACHING=1"]);
}

#[test]
fn splits_lie_where_the_large_requests_are() {
    let sizes = [30, 30, 60, 100, 100, 80, 4, 20].map(|mb| mb * MIB);
    // 400 MiB in requests over 20: a quarter is reached with the 60, half with the 80, three quarters with a 100.
    assert_eq!(splits_of(&trace(&sizes, false)), [60, 80, 100]);
    assert_eq!(splits_of(&trace(&[20 * MIB], false)), [0_u64; 0]);
    assert_eq!(
        splits_of(&trace(&[20 * MIB + 1], false)),
        [21],
        "whole MiB, and never too small to be allowed"
    );
    assert_eq!(splits_of(&trace(&[u64::MAX; 3], false)).len(), 1, "sums do not overflow");
}

#[test]
fn texts_are_parted_at_their_own_commas() {
    assert_eq!(items("a:1, b:[1:2,>:3] ,c:4,"), ["a:1", "b:[1:2,>:3]", "c:4"]);
    assert_eq!(items("]a:[1"), ["]a:[1"]);
}

#[test]
fn values_are_quoted_where_a_shell_would_read_them() {
    assert_eq!(
        quoted("expandable_segments:True,max_split_size_mb:128"),
        "expandable_segments:True,max_split_size_mb:128"
    );
    assert_eq!(quoted("roundup_power2_divisions:[256:1,>:8]"), "'roundup_power2_divisions:[256:1,>:8]'");
    assert_eq!(quoted("it's"), r"'it'\''s'");
}
