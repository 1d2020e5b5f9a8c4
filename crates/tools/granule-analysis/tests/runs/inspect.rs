//! Inspections of runs whose truth is known.

use crate::machine::{Machine, Step, UNIT, steps};
use alloc_core::config::Settings;
use alloc_core::types::PoolId;
use granule_analysis::inspect::{Comparison, Help, Inspection, Marks, Summary, Verdict, When};
use granule_analysis::layout::Layout;
use granule_analysis::replay::{ReplayOptions, replay};
use granule_analysis::rules::Rules;
use granule_analysis::run::{Allocation, Iteration, NEVER, Refusal, Run, Span};
use granule_snapshot::trace::{Event, Trace};
use proptest::prelude::*;

const MIB: u64 = 1 << 20;

fn rules() -> Rules {
    Rules::new(&Settings::default())
}

fn inspect(run: &Run, moments: &[When]) -> Inspection {
    Inspection::new(run, &rules(), moments)
}

proptest! {
    /// What is free is what the toy allocator has free, and everything sums up at every moment.
    #[test]
    fn bytes_sum_up_and_what_is_free_is_free(steps in steps(), lost in 0.0..1.0f64, at in 0u32..400) {
        let machine = Machine::after(&steps);
        let lost = (machine.entries() as f64 * lost) as usize;
        let run = Run::of_snapshot(&machine.snapshot(lost), 0);
        let layout = Layout::at(&run, run.length, &rules());
        let gaps = layout.stretches.iter().flat_map(|stretch| stretch.gaps().collect::<Vec<_>>());
        let mut ours: Vec<_> = gaps.filter(|gap| gap.size > 0).map(|gap| (gap.address, gap.size)).collect();
        ours.sort_unstable();
        let mut theirs: Vec<_> = machine.gaps().into_iter().map(|(at, size, _)| (at, size)).collect();
        theirs.sort_unstable();
        prop_assert_eq!(ours, theirs);

        let inspection = inspect(&run, &[When::Peak, When::End, When::Oom, When::At(at)]);
        for view in &inspection.moments {
            let truth = &machine.truths(lost)[view.at as usize];
            let live: u64 = truth.live.values().sum();
            prop_assert_eq!((view.live.bytes, view.live.count), (live, truth.live.len() as u64));
            let sum = |groups: Vec<(u64, u64)>| groups.iter().fold((0, 0), |sum, group| (sum.0 + group.0, sum.1 + group.1));
            macro_rules! all {
                ($($list:ident),*) => {$(
                    let groups = view.live.$list.iter().map(|group| (group.bytes, group.count)).collect();
                    prop_assert_eq!(sum(groups), (live, truth.live.len() as u64), "{}", stringify!($list));
                )*};
            }
            all!(by_size, by_class, by_stream, by_pool);
            let Some(memory) = &view.memory else { continue };
            prop_assert_eq!(memory.reserved, truth.reserved);
            prop_assert_eq!(memory.requested, live);
            prop_assert_eq!(memory.requested + memory.rounding + memory.tails + memory.waiting + memory.free, memory.reserved);
            prop_assert_eq!(memory.outside, 0);
            let by_pool = |of: fn(&granule_analysis::inspect::PoolMemory) -> u64| memory.by_pool.iter().map(of).sum::<u64>();
            prop_assert_eq!(by_pool(|group| group.reserved), memory.reserved);
            prop_assert_eq!(by_pool(|group| group.free), memory.free);
            prop_assert_eq!(by_pool(|group| group.free_pieces), memory.free_pieces);
            let wasted: u64 = view.waste.iter().map(granule_analysis::inspect::Waste::bytes).sum();
            prop_assert_eq!(wasted, memory.rounding + memory.tails);
            for blocker in &memory.blockers {
                prop_assert!(blocker.beside > blocker.block.size && blocker.would_free <= memory.reserved);
            }
        }
        let same = Comparison::new(&inspection, &inspection);
        prop_assert!(same.run.iter().all(|figure| figure.before == figure.after));
        prop_assert!(same.moments.iter().all(|change| change.by_size.is_empty() && change.by_function.is_empty()));
    }
}

#[test]
fn what_a_private_pool_refused_is_judged_by_what_that_pool_had_free() {
    let verdict = |last: &str| {
        // Two blocks of 40 MiB are free in pool 7 when 60 MiB are refused.
        let pool = "p 7\na 0 41943040 0\na 1 41943040 0\nf 0\nf 1";
        let text = format!("# {{}}\n{pool}\n{last}\n");
        let trace = Trace::from_reader(text.as_bytes()).unwrap();
        let (asked, refused) = trace.served();
        let options = ReplayOptions { history: 100, ..ReplayOptions::default() };
        let snapshot = replay(&asked, &options, |_| {}).unwrap().allocator.snapshot(true);
        let run = Run::of_replay(&asked, &refused, &snapshot);
        let inspection = Inspection::new(&run, &Rules::new(&Settings::default()), &[]);
        inspection.refused.unwrap().verdict
    };
    assert_eq!(verdict("a 2 62914560 0\nx 2 104857600"), Verdict::Fragmented);
    assert_eq!(verdict("a 2 62914560 0\np 0\nx 2 104857600"), Verdict::Fragmented);
    assert_eq!(verdict("p 0\na 2 62914560 0\nx 2 104857600"), Verdict::HeldElsewhere);
    assert_eq!(verdict("p 8\na 2 62914560 0\nx 2 104857600"), Verdict::HeldElsewhere);
    // Of 160 MiB in the common pool 78 are free, which a flush does not give back.
    let cut = "p 0\na 3 83886080 0\na 4 83886080 0\nf 3\nf 4\na 5 42991616 0\na 6 42991616 0";
    let common = &format!("{cut}\np 9\na 7 62914560 0\nx 7 252706816");
    assert_eq!(verdict(common), Verdict::HeldElsewhere, "a pool that has nothing");
}

#[test]
fn callers_and_labels_are_those_of_the_requests() {
    let alloc = |bytes, label, site| Step::Alloc { place: 0, bytes, label, site };
    let machine = Machine::after(&[
        Step::Take { units: 4, stream: 0, pool: 0 },
        alloc(3000, 1, 2),
        alloc(1000, 2, 2),
        alloc(700, 1, 0),
        alloc(600, 0, 1),
    ]);
    let inspection = inspect(&Run::of_snapshot(&machine.snapshot(0), 0), &[When::End]);
    let live = &inspection.moments[0].live;
    let callers: Vec<_> =
        live.by_caller.iter().map(|group| (group.key.place.short(), group.bytes, group.count)).collect();
    let forward = |line: u32| format!("someone/model.py:{line} forward");
    assert_eq!(callers, [(forward(2), 4000, 2), (String::new(), 700, 1), (forward(1), 600, 1)]);
    let through = live.by_caller[0].key.through.as_ref().map(|place| place.short());
    assert_eq!(through.as_deref(), Some("nn/functional.py:10 linear"));
    let labels: Vec<_> = live.by_label.iter().map(|group| (&*group.key.label, group.bytes)).collect();
    assert_eq!(labels, [("weights", 3700), ("activations", 1000), ("", 600)]);
}

/// A run made by hand: fixed segments of 20 MiB each, and blocks in them.
fn fixed(segments: &[(u64, u64)], blocks: &[(u64, u64)]) -> Run {
    let span = |&(address, size): &(u64, u64)| Span {
        begin: 0,
        end: NEVER,
        address,
        size,
        stream: 0,
        pool: 0,
        growable: false,
    };
    let life = |&(address, size): &(u64, u64)| Allocation {
        begin: 0,
        end: NEVER,
        reusable: NEVER,
        address,
        size,
        stream: 0,
        pool: 0,
        site: 0,
        label: 0,
    };
    Run {
        length: 1,
        spans: segments.iter().map(span).collect(),
        allocations: blocks.iter().map(life).collect(),
        streams: vec![0],
        pools: vec![PoolId::DEFAULT],
        labels: vec!["".into()],
        ..Run::default()
    }
}

#[test]
fn what_holds_a_segment_open_is_named() {
    let (a, b) = (1 << 30, 1 << 31);
    let run = fixed(&[(a, 20 * MIB), (b, 20 * MIB)], &[(a + 8 * MIB, 2 * MIB), (b, 18 * MIB)]);
    let inspection = inspect(&run, &[When::End]);
    let memory = inspection.moments[0].memory.as_ref().unwrap();
    assert_eq!((memory.held_open_count, memory.held_open_free), (1, 18 * MIB));
    let open = &memory.held_open[0];
    assert_eq!((open.address, open.used, open.block_count), (a, 2 * MIB, 1));
    assert_eq!(open.blocks[0].address, a + 8 * MIB);
    let [blocker] = &memory.blockers[..] else { panic!("{:?}", memory.blockers) };
    assert_eq!(
        (blocker.block.address, blocker.beside, blocker.would_free),
        (a + 8 * MIB, 18 * MIB, 20 * MIB)
    );
    assert_eq!((memory.largest_free, memory.free, memory.free_pieces), (10 * MIB, 20 * MIB, 3));
}

#[test]
fn tails_are_no_free_memory() {
    let a = 1 << 30;
    let run = fixed(&[(a, 20 * MIB)], &[(a, 19 * MIB + 100)]);
    let inspection = inspect(&run, &[When::End]);
    let memory = inspection.moments[0].memory.as_ref().unwrap();
    assert_eq!((memory.free, memory.rounding, memory.tails), (0, 412, MIB - 512));
    let waste = inspection.moments[0].waste[0];
    assert_eq!((waste.size, waste.count, waste.rounding, waste.tails), (19 * MIB + 100, 1, 412, MIB - 512));
}

fn refused(run: Run, size: u64, device_free: Option<u64>) -> (Verdict, u64, usize) {
    let refusal = Refusal { at: 1, size, stream: 0, pool: 0, device_free, frames: None };
    let run = Run { refusals: vec![refusal], ..run };
    let inspection = inspect(&run, &[When::Oom]);
    assert_eq!(inspection.moments.len(), 1);
    let refused = inspection.refused.unwrap();
    (refused.verdict, refused.missing, refused.in_the_way.len())
}

#[test]
fn a_refusal_says_why() {
    let a = 1 << 30;
    // Free: 8 MiB, 10 MiB.
    let run = || fixed(&[(a, 20 * MIB)], &[(a + 8 * MIB, 2 * MIB)]);
    assert_eq!(refused(run(), 12 * MIB, Some(MIB)), (Verdict::Fragmented, 0, 1));
    assert_eq!(refused(run(), 9 * MIB, Some(MIB)).0, Verdict::OtherPool, "a free block fits");
    assert_eq!(refused(run(), 12 * MIB, Some(64 * MIB)).0, Verdict::Limited, "the device has room");
    assert_eq!(refused(run(), 22 * MIB, Some(6 * MIB)), (Verdict::SplitBetweenCacheAndDevice, 0, 0));
    assert_eq!(refused(run(), 40 * MIB, Some(6 * MIB)), (Verdict::TooLittle, 16 * MIB, 0));
    assert_eq!(refused(run(), 40 * MIB, None).0, Verdict::Unknown);
    let mut elsewhere = run();
    elsewhere.spans[0].pool = 1;
    elsewhere.pools.push(PoolId(1, 0));
    assert_eq!(refused(elsewhere, 12 * MIB, Some(MIB)).0, Verdict::HeldElsewhere);
}

/// The summary of a run on a device of 26 MiB, in which one request was refused.
fn summary_of(run: Run, size: u64, device_free: Option<u64>) -> Summary {
    let refusal = Refusal { at: 1, size, stream: 0, pool: 0, device_free, frames: None };
    let inspection = inspect(&Run { refusals: vec![refusal], ..run }, &[]);
    Summary::new(&inspection, Some(26 * MIB), false, None)
}

#[test]
fn a_summary_says_the_peak_the_refusal_and_what_would_help() {
    let a = 1 << 30;
    let run = || fixed(&[(a, 20 * MIB)], &[(a + 8 * MIB, 2 * MIB)]);
    let fragmented = summary_of(run(), 12 * MIB, Some(MIB));
    assert_eq!((fragmented.why, fragmented.help), (Some(Verdict::Fragmented), Help::ExpandableSegments));
    assert_eq!(
        fragmented.text,
        "At most 2.00 MiB were live at once and 20.00 MiB reserved, of 26.00 MiB. One request was refused, of 12.00 MiB: \
         enough was free, but not in one piece. expandable_segments:True lets free memory be joined and change hands; \
         granule whatif tries it."
    );
    let mut growable = run();
    growable.spans[0].growable = true;
    let fragmented = summary_of(growable, 12 * MIB, Some(MIB));
    assert_eq!(fragmented.help, Help::OneBlockLess, "expandable segments are no news to it");
    assert!(fragmented.text.ends_with("Without one block of 2.00 MiB there would have been room for it."));
    let too_little = summary_of(run(), 40 * MIB, Some(6 * MIB));
    assert_eq!(too_little.help, Help::NeedLess);
    assert!(
        too_little.text.contains("16.00 MiB were missing, more than was ever live"),
        "{}",
        too_little.text
    );
    let too_little = summary_of(run(), 25 * MIB, Some(6 * MIB));
    assert!(too_little.text.contains("1.00 MiB less to keep, or a larger device"), "{}", too_little.text);
    assert_eq!(summary_of(run(), 9 * MIB, Some(MIB)).help, Help::RaiseLimit);
    assert_eq!(summary_of(run(), 40 * MIB, None).help, Help::OtherSettings);
}

#[test]
fn expandable_segments_are_advised_only_where_they_would_help() {
    let a = 1 << 30;
    let run = || fixed(&[(a, 20 * MIB)], &[(a + 8 * MIB, 2 * MIB)]);
    // Free memory of another stream changes hands; that of a private pool and what waits for work do not.
    let mut other_stream = run();
    other_stream.spans[0].stream = 1;
    assert_eq!(summary_of(other_stream, 12 * MIB, Some(MIB)).help, Help::ExpandableSegments);
    let mut private = run();
    private.spans[0].pool = 1;
    private.pools.push(PoolId(1, 0));
    let private = summary_of(private, 12 * MIB, Some(MIB));
    assert_eq!((private.why, private.help), (Some(Verdict::HeldElsewhere), Help::OtherSettings));
    assert!(!private.text.contains("expandable_segments"), "{}", private.text);
    // They were on, and all that is there is of before.
    let refusal = Refusal { at: 1, size: 12 * MIB, stream: 0, pool: 0, device_free: Some(MIB), frames: None };
    let on = Rules::new(&Settings { expandable_segments: true, ..Settings::default() });
    let inspection = Inspection::new(&Run { refusals: vec![refusal], ..run() }, &on, &[]);
    assert_eq!(Summary::new(&inspection, None, false, None).help, Help::OneBlockLess);
}

#[test]
fn a_summary_without_a_refusal_says_what_could_be_saved() {
    let a = 1 << 30;
    let of = |run: &Run, lower_bounds| Summary::new(&inspect(run, &[]), None, lower_bounds, None);
    let loose = of(&fixed(&[(a, 20 * MIB)], &[(a, 2 * MIB)]), false);
    assert_eq!(loose.help, Help::OtherSettings);
    assert!(loose.text.contains("No request was refused. 18.00 MiB more were reserved"), "{}", loose.text);
    let tight = of(&fixed(&[(a, 20 * MIB)], &[(a, 19 * MIB)]), true);
    assert_eq!((tight.help, tight.lower_bounds), (Help::Nothing, true));
    assert!(tight.text.starts_with("At least 19.00 MiB were live at once"), "{}", tight.text);
    let growing = of(&program(8, 2, true), false);
    assert_eq!(growing.help, Help::StopGrowth);
    assert!(
        growing.text.contains("grows by 5.86 KiB with every iteration, most of it in requests of 2.93 KiB"),
        "{}",
        growing.text
    );
    let sentences = |summary: &Summary| summary.text.matches(". ").count() + 1;
    assert!([loose, tight, growing].iter().all(|summary| sentences(summary) <= 3));
}

/// A program of `steps` iterations that keeps `kept` of the blocks of 3000 bytes that it requests in each.
fn program(steps: u64, kept: u64, marks: bool) -> Run {
    let mut events = vec![Event::Alloc { id: 0, size: 1 << 20, stream: 0 }];
    let mut id = 0;
    for n in 0..steps {
        if marks {
            events.push(Event::Iteration { n });
        }
        let first = id + 1;
        for k in 0..10 {
            id += 1;
            events.push(Event::Alloc { id, size: if k < kept { 3000 } else { 5000 + k }, stream: 0 });
        }
        events.extend((first + kept..=id).map(|id| Event::Free { id }));
    }
    Run::of_trace(&Trace { events, ..Trace::default() })
}

#[test]
fn what_grows_in_every_iteration_is_a_suspect() {
    for (marks, kind) in [(true, Marks::Iterations), (false, Marks::Repetition)] {
        let growth = inspect(&program(8, 2, marks), &[]).growth;
        assert_eq!(growth.marks, kind);
        assert_eq!(growth.per_step, Some(6000), "{growth:?}");
        let [suspect] = &growth.suspects[..] else { panic!("{:?}", growth.suspects) };
        assert_eq!((suspect.size, suspect.grew_in), (Some(3000), suspect.steps));
        assert_eq!(
            (suspect.grown(), suspect.count[1] - suspect.count[0]),
            (6000 * suspect.steps, 2 * suspect.steps)
        );
        let growth = inspect(&program(8, 0, marks), &[]).growth;
        assert_eq!((growth.per_step, growth.suspects), (Some(0), Vec::new()));
    }
    assert_eq!(inspect(&program(3, 2, true), &[]).growth.per_step, None, "too few to say");
}

#[test]
fn a_run_that_does_not_repeat_is_cut_into_equal_parts() {
    let alloc = |id: u64| Event::Alloc { id, size: 1000 + id, stream: 0 };
    let run = Run::of_trace(&Trace { events: (0..100).map(alloc).collect(), ..Trace::default() });
    let growth = inspect(&run, &[]).growth;
    assert_eq!((growth.marks, growth.steps.len(), growth.steps[3].at), (Marks::Slices, 10, 30));
}

#[test]
fn an_iteration_is_named_from_its_mark_on() {
    let run = Run { length: 9, iterations: vec![Iteration { at: 3, number: 70 }], ..Run::default() };
    assert_eq!([0, 3, 4, 9].map(|at| run.iteration_at(at)), [None, None, Some(70), Some(70)]);
}

#[test]
fn two_runs_differ_by_what_was_added() {
    let alloc = |bytes, site| Step::Alloc { place: 0, bytes, label: 0, site };
    let before = [Step::Take { units: 5, stream: 0, pool: 0 }, alloc(4000, 1), alloc(500, 0)];
    let after = [before.as_slice(), &[alloc(9000, 0), alloc(7000, 2)]].concat();
    let of = |steps: &[Step]| inspect(&Run::of_snapshot(&Machine::after(steps).snapshot(0), 0), &[When::End]);
    let comparison = Comparison::new(&of(&before), &of(&after));
    assert_eq!((comparison.run[0].before, comparison.run[0].after), (4500, 20500));
    let end = &comparison.moments[0];
    // Both lines are of one function.
    let functions: Vec<_> =
        end.by_function.iter().map(|change| (&*change.key.function, change.bytes, change.count)).collect();
    assert_eq!(functions, [("", [500, 9500], [1, 2]), ("forward", [4000, 11000], [1, 2])]);
    let sizes: Vec<_> = end.by_size.iter().map(|change| (change.key.size, change.bytes)).collect();
    assert_eq!(sizes, [(9000, [0, 9000]), (7000, [0, 7000])]);
    let free = end.memory.iter().find(|figure| figure.name == "free").unwrap();
    assert_eq!(free.before - free.after, 9216 + 7168);
    assert_eq!(free.before, 5 * UNIT - 4096 - 512);
}
