//! The model of a run against recorded workloads, with the figures that were recorded beside them.

use alloc_core::config::{Flavour, PolicyName, Settings, pytorch};
use alloc_core::snapshot::{BlockState, Snapshot};
use granule_analysis::Run;
use granule_analysis::layout::Layout;
use granule_analysis::replay::{Replay, ReplayOptions, replay};
use granule_analysis::rules::Rules;
use granule_analysis::run::Moment;
use granule_snapshot::trace::{Mark, Trace};
use granule_snapshot::{Loaded, load};
use granule_tests::{recorded, shared};

const TRACES: [&str; 6] =
    ["resnet_train", "bert_varlen", "dlrm_prefetch", "gpt2_train", "llama_generate", "llama_lora"];

fn settings(conf: &str) -> Settings {
    pytorch::parse(conf, &Settings::default(), Flavour::Cuda).expect("the settings are valid").settings
}

fn replayed(trace: &Trace, settings: Settings, capacity: Option<u64>) -> (Run, Replay) {
    let history = 8 * trace.events.len() + 4096;
    let options = ReplayOptions { settings, capacity, history, ..ReplayOptions::default() };
    let replay = replay(trace, &options, |_| {}).expect("it can be replayed");
    let snapshot = replay.allocator.snapshot(true);
    assert!(snapshot.history.as_ref().is_some_and(|history| history.complete));
    let run = Run::of_replay(trace, &[], &snapshot);
    if options.settings.policy_name() == PolicyName::Pytorch {
        let handles = Run::of_snapshot(&snapshot, 0).streams;
        check_layout(
            &Run { streams: handles, ..run.clone() },
            &snapshot,
            &options.settings,
            &options.settings.text,
        );
    }
    (run, replay)
}

fn live_at(run: &Run, at: Moment) -> u64 {
    run.allocations.iter().filter(|life| life.is_live(at)).map(|life| life.size).sum()
}

fn waiting_at(run: &Run, at: Moment) -> u64 {
    run.allocations.iter().filter(|life| life.is_waiting(at)).map(|life| life.size).sum()
}

fn at(reserved: &[(Moment, u64)], at: Moment) -> u64 {
    reserved.iter().take_while(|(moment, _)| *moment <= at).last().map_or(0, |(_, bytes)| *bytes)
}

/// The blocks that the model says are there at the end are those of the allocator's own snapshot, to the byte.
fn check_layout(run: &Run, snapshot: &Snapshot, settings: &Settings, what: &str) {
    let layout = Layout::at(run, run.length, &Rules::new(settings));
    assert_eq!(layout.outside, Vec::<u32>::new(), "{what}");
    assert_eq!(layout.stretches.len(), snapshot.segments.len(), "{what}");
    let mut segments: Vec<_> = snapshot.segments.iter().collect();
    segments.sort_by_key(|segment| segment.address);
    for (stretch, segment) in layout.stretches.iter().zip(segments) {
        assert_eq!((stretch.address, stretch.size), (segment.address, segment.total_size), "{what}");
        assert_eq!(run.streams[stretch.stream as usize], segment.stream, "{what}");
        assert_eq!(run.pools[stretch.pool as usize], segment.pool_id, "{what}");
        assert_eq!(stretch.growable, segment.is_expandable, "{what}");
        assert_eq!(stretch.small, &*segment.segment_type == "small", "{what}: {stretch:?}");
        let used = stretch.blocks.iter().map(|block| (block.address, block.size()));
        let gaps = stretch.gaps().filter(|gap| gap.size > 0).map(|gap| (gap.address, gap.size));
        let mut ours: Vec<_> = used.chain(gaps).collect();
        ours.sort_unstable();
        let theirs: Vec<_> = segment.blocks.iter().map(|block| (block.address, block.size)).collect();
        assert_eq!(ours, theirs, "{what}");
        let waits = |state| segment.blocks.iter().filter(|block| block.state == state).count();
        assert_eq!(
            stretch.blocks.iter().filter(|block| block.waits).count(),
            waits(BlockState::ActivePendingFree),
            "{what}"
        );
    }
}

/// The replay's own figures, at each iteration mark and in all.
fn check(run: &Run, replay: &Replay, what: &str) {
    let result = &replay.result;
    assert_eq!(run.peak().1, result.requested_bytes_peak as u64, "{what}");
    assert_eq!(run.reserved_peak().1, result.reserved_bytes_peak as u64, "{what}");
    assert_eq!(run.refusals.len() as u64, result.refused, "{what}");
    assert_eq!(run.iterations.len(), result.marks.len(), "{what}");
    let steps = run.reserved();
    for (iteration, Mark { iteration: number, requested, reserved, .. }) in
        run.iterations.iter().zip(&result.marks)
    {
        assert_eq!(iteration.number, *number, "{what}");
        // PyTorch's figure has what waits for other streams in it; reading it may end the wait.
        let (live, waiting) = (live_at(run, iteration.at), waiting_at(run, iteration.at));
        let at_once = replay.allocator.policy_name() == PolicyName::Pytorch.name();
        let expected = if at_once { live + waiting } else { live };
        assert_eq!(expected, *requested, "{what}: iteration {number}");
        assert_eq!(at(&steps, iteration.at), *reserved, "{what}: iteration {number}");
    }
}

#[test]
fn runs_of_recorded_traces_have_the_recorded_figures() {
    for name in TRACES {
        let Some(trace) = recorded(name) else { continue };
        let plain = Run::of_trace(&trace);
        assert_eq!(Some(plain.peak().1), trace.header.peak_live_requested, "{name}");
        assert_eq!(Some(live_at(&plain, plain.length)), trace.header.live_at_end, "{name}");
        for conf in ["", "expandable_segments:True", "max_split_size_mb:32,roundup_power2_divisions:4"] {
            let (run, replay) = replayed(&trace, settings(conf), None);
            check(&run, &replay, &format!("{name} {conf}"));
            assert_eq!(run.peak().1, plain.peak().1, "{name}");
            assert_eq!(run.allocations.len(), plain.allocations.len(), "{name}");
            for (with_place, without) in run.allocations.iter().zip(&plain.allocations) {
                assert_eq!(with_place.size, without.size, "{name}");
                let streams = run.streams[with_place.stream as usize];
                assert_eq!(streams, plain.streams[without.stream as usize], "{name}");
            }
        }
        let (run, replay) =
            replayed(&trace, Settings { policy: Some(PolicyName::Granule), ..settings("") }, None);
        check(&run, &replay, &format!("{name} granule"));
    }
}

/// Requests that were refused, with retries that gave segments back before them, move no mark.
#[test]
fn marks_stay_where_they_are_when_requests_are_refused() {
    for name in TRACES {
        let Some(trace) = recorded(name) else { continue };
        let capacity = trace.header.peak_live_requested.unwrap() * 4 / 5;
        let (run, replay) = replayed(&trace, settings(""), Some(capacity));
        assert!(replay.result.refused > 0, "{name}");
        check(&run, &replay, name);
    }
}

#[test]
fn runs_of_recorded_snapshots_have_what_the_snapshots_say() {
    let Some(folder) = shared() else {
        println!("skipped: the recorded snapshots are not at hand (set GRANULE_SHARED to their folder)");
        return;
    };
    for name in ["bert_varlen_expandable", "gpt2_train_stacks", "graph_pools"] {
        let path = folder.join("snapshots").join(format!("{name}.pickle.gz"));
        let Loaded::Snapshot(snapshot) = load(path).unwrap() else { panic!("{name} is a snapshot") };
        let run = Run::of_snapshot(&snapshot, 0);
        let end = run.length;
        let reserved: u64 = snapshot.segments.iter().map(|segment| segment.total_size).sum();
        assert_eq!(at(&run.reserved(), end), reserved, "{name}");
        let conf = if name.contains("expandable") { "expandable_segments:True" } else { "" };
        check_layout(&run, &snapshot, &settings(conf), name);
        let blocks = snapshot.segments.iter().flat_map(|segment| &segment.blocks);
        let mut live: Vec<_> = blocks
            .filter(|block| block.state == BlockState::ActiveAllocated)
            .map(|block| (block.address, block.requested_size))
            .collect();
        live.sort_unstable();
        let mut ours: Vec<_> = run.allocations.iter().filter(|life| life.is_live(end)).collect();
        ours.sort_by_key(|life| life.address);
        assert_eq!(ours.iter().map(|life| (life.address, life.size)).collect::<Vec<_>>(), live, "{name}");
        // Everything lies in memory that was held all the while.
        for life in &run.allocations {
            let holds = run.spans.iter().filter(|span| span.begin <= life.begin && life.end <= span.end);
            let mut held: Vec<_> = holds.map(|span| (span.address, span.address + span.size)).collect();
            held.sort_unstable();
            let to = life.address + life.size;
            let end =
                held.iter().fold(life.address, |at, (from, end)| if *from <= at { at.max(*end) } else { at });
            assert!(end >= to, "{name}: {life:?}");
        }
        assert_eq!(run.sites.is_empty(), name != "gpt2_train_stacks");
    }
}
