//! Damaged and contradictory files: whatever can be read is looked at without a panic, and what is said of it sums up.

use crate::machine::{Machine, Step, steps};
use alloc_core::config::{PolicyName, Settings};
use alloc_core::snapshot::{Action, Snapshot};
use granule_analysis::inspect::{Comparison, When};
use granule_analysis::replay::{ReplayOptions, replay};
use granule_analysis::rules::Rules;
use granule_analysis::{Inspection, Run};
use granule_snapshot::pickle::{self, Protocol};
use granule_snapshot::trace::{Event, Trace, TraceHeader};
use granule_snapshot::{Loaded, convert, load_from};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};

/// Everything that is said of a run.
fn look(run: &Run, at: u32) -> Inspection {
    let moments = [When::Peak, When::End, When::Oom, When::At(at)];
    let growable = Settings { expandable_segments: true, ..Settings::default() };
    let granule = Settings { policy: Some(PolicyName::Granule), ..Settings::default() };
    for settings in [growable, granule] {
        let _ = Inspection::new(run, &Rules::new(&settings), &moments);
    }
    let inspection = Inspection::new(run, &Rules::new(&Settings::default()), &moments);
    for memory in inspection.moments.iter().filter_map(|view| view.memory.as_ref()) {
        let parts = [memory.requested, memory.rounding, memory.tails, memory.waiting, memory.free];
        assert_eq!(parts.iter().map(|bytes| u128::from(*bytes)).sum::<u128>(), u128::from(memory.reserved));
    }
    let _ = (run.iteration_figures(), run.reserved_peak(), run.live_before());
    inspection
}

fn look_at_snapshot(snapshot: &Snapshot, at: u32) {
    let (first, second) = (Run::of_snapshot(snapshot, 0), Run::of_snapshot(snapshot, 1));
    let (first, second) = (look(&first, at), look(&second, at));
    let _ = Comparison::new(&first, &second);
    let _ = convert::to_traces(snapshot);
}

/// Numbers that damaged files have.
fn wild() -> impl Strategy<Value = u64> {
    prop_oneof![
        any::<u64>(),
        0u64..1 << 12,
        select(vec![0, 1, 511, 512, 1 << 20, 1 << 30, 1 << 40, 1 << 60, 1 << 63, u64::MAX - 511, u64::MAX]),
    ]
}

/// One thing that is wrong.
#[derive(Clone, Debug)]
enum Damage {
    Address(Index, u64),
    Size(Index, u64),
    Stream(Index, u64),
    Time(Index, i64),
    What(Index, Action),
    /// An entry is there twice, somewhere else.
    Twice(Index, Index),
    Missing(Index),
    Swapped(Index, Index),
    /// An address of one entry in another.
    SameAddress(Index, Index),
    SegmentAddress(Index, u64),
    SegmentSize(Index, u64),
    BlockAddress(Index, Index, u64),
    BlockSize(Index, Index, u64),
    SegmentTwice(Index),
    Device(Index, i64),
}

fn damage() -> impl Strategy<Value = Damage> {
    let at = any::<Index>;
    prop_oneof![
        (at(), wild()).prop_map(|(at, to)| Damage::Address(at, to)),
        (at(), wild()).prop_map(|(at, to)| Damage::Size(at, to)),
        (at(), wild()).prop_map(|(at, to)| Damage::Stream(at, to)),
        (at(), any::<i64>()).prop_map(|(at, to)| Damage::Time(at, to)),
        (at(), select(Action::ALL.to_vec())).prop_map(|(at, to)| Damage::What(at, to)),
        (at(), at()).prop_map(|(from, to)| Damage::Twice(from, to)),
        at().prop_map(Damage::Missing),
        (at(), at()).prop_map(|(a, b)| Damage::Swapped(a, b)),
        (at(), at()).prop_map(|(a, b)| Damage::SameAddress(a, b)),
        (at(), wild()).prop_map(|(at, to)| Damage::SegmentAddress(at, to)),
        (at(), wild()).prop_map(|(at, to)| Damage::SegmentSize(at, to)),
        (at(), at(), wild()).prop_map(|(at, block, to)| Damage::BlockAddress(at, block, to)),
        (at(), at(), wild()).prop_map(|(at, block, to)| Damage::BlockSize(at, block, to)),
        at().prop_map(Damage::SegmentTwice),
        (at(), -2i64..3).prop_map(|(at, to)| Damage::Device(at, to)),
    ]
}

fn apply(snapshot: &mut Snapshot, damage: &Damage) {
    let history = &mut snapshot.device_traces[0];
    let segments = &mut snapshot.segments;
    let entry = |at: &Index, length: usize| (length > 0).then(|| at.index(length));
    let of = entry;
    let (entries, held) = (history.len(), segments.len());
    match damage {
        Damage::Address(at, to) => of(at, entries).into_iter().for_each(|at| history[at].addr = *to),
        Damage::Size(at, to) => of(at, entries).into_iter().for_each(|at| history[at].size = *to),
        Damage::Stream(at, to) => of(at, entries).into_iter().for_each(|at| history[at].stream = *to),
        Damage::Time(at, to) => of(at, entries).into_iter().for_each(|at| history[at].time_us = *to),
        Damage::What(at, to) => of(at, entries).into_iter().for_each(|at| history[at].action = *to),
        Damage::Twice(from, to) => {
            if let (Some(from), Some(to)) = (of(from, entries), of(to, entries)) {
                history.insert(to, history[from].clone());
            }
        }
        Damage::Missing(at) => of(at, entries).into_iter().for_each(|at| drop(history.remove(at))),
        Damage::Swapped(a, b) => {
            if let (Some(a), Some(b)) = (of(a, entries), of(b, entries)) {
                history.swap(a, b);
            }
        }
        Damage::SameAddress(a, b) => {
            if let (Some(a), Some(b)) = (of(a, entries), of(b, entries)) {
                history[a].addr = history[b].addr;
            }
        }
        Damage::SegmentAddress(at, to) => of(at, held).into_iter().for_each(|at| segments[at].address = *to),
        Damage::SegmentSize(at, to) => of(at, held).into_iter().for_each(|at| segments[at].total_size = *to),
        Damage::BlockAddress(at, block, to) => {
            let Some(segment) = of(at, held).map(|at| &mut segments[at]) else { return };
            let blocks = segment.blocks.len();
            of(block, blocks).into_iter().for_each(|at| segment.blocks[at].address = *to);
        }
        Damage::BlockSize(at, block, to) => {
            let Some(segment) = of(at, held).map(|at| &mut segments[at]) else { return };
            let blocks = segment.blocks.len();
            of(block, blocks).into_iter().for_each(|at| segment.blocks[at].requested_size = *to);
        }
        Damage::SegmentTwice(at) => {
            of(at, held).into_iter().for_each(|at| segments.push(segments[at].clone()));
        }
        Damage::Device(at, to) => of(at, held).into_iter().for_each(|at| segments[at].device = *to),
    }
}

/// Bytes of a file that are changed, left out or there twice.
fn damage_bytes(bytes: &mut Vec<u8>, at: Index, how: u8, to: u8) {
    if bytes.is_empty() {
        return;
    }
    let at = at.index(bytes.len());
    match how % 4 {
        0 => bytes[at] = to,
        1 => drop(bytes.remove(at)),
        2 => bytes.insert(at, to),
        _ => bytes.truncate(at),
    }
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let size = prop_oneof![4 => 1u64..4 << 20, 1 => wild()];
    let id = || prop_oneof![6 => 0u64..40, 1 => wild()];
    let event = prop_oneof![
        6 => (id(), size, 0u32..3).prop_map(|(id, size, stream)| Event::Alloc { id, size, stream }),
        5 => id().prop_map(|id| Event::Free { id }),
        1 => (id(), 0u32..3).prop_map(|(id, stream)| Event::RecordStream { id, stream }),
        1 => Just(Event::EmptyCache),
        1 => wild().prop_map(|n| Event::Iteration { n }),
        1 => (id(), wild()).prop_map(|(id, limit)| Event::Refused { id, limit }),
        1 => (0u32..3).prop_map(|pool| Event::Pool { pool }),
        1 => (0u32..3).prop_map(|pool| Event::PoolEnds { pool }),
        1 => (0u32..3).prop_map(|pool| Event::EmptyPool { pool }),
    ];
    vec(event, 0..80)
}

/// Two growable segments side by side, of which the second is said to go past the last address.
#[test]
fn memory_past_the_last_address_is_not_held() {
    let steps = [Step::Map { page: 0, pages: 1 }, Step::Map { page: 2, pages: 1 }];
    let mut snapshot = Machine::after(&steps).snapshot(2);
    let [first, second] = &mut snapshot.segments[..] else { panic!("two segments") };
    second.address = first.address + first.total_size;
    second.total_size = u64::MAX;
    let first = first.address;
    look_at_snapshot(&snapshot, 0);
    let run = Run::of_snapshot(&snapshot, 0);
    assert_eq!(run.spans.iter().map(|span| span.size).sum::<u64>(), u64::MAX - first);
}

proptest! {
    #[test]
    fn snapshots_that_contradict_themselves(
        steps in steps(),
        lost in any::<Index>(),
        damages in vec(damage(), 1..12),
        at in any::<u32>(),
    ) {
        let machine = Machine::after(&steps);
        let mut snapshot = machine.snapshot(lost.index(machine.entries() + 1));
        for damage in &damages {
            apply(&mut snapshot, damage);
        }
        look_at_snapshot(&snapshot, at);
    }

    #[test]
    fn pickles_with_damaged_bytes(
        steps in steps(),
        damages in vec((any::<Index>(), any::<u8>(), any::<u8>()), 1..6),
        at in any::<u32>(),
    ) {
        let snapshot = Machine::after(&steps).snapshot(0);
        let mut bytes = Vec::new();
        pickle::write(&snapshot, &mut bytes, Protocol::default()).expect("memory takes all");
        for (at, how, to) in damages {
            damage_bytes(&mut bytes, at, how, to);
        }
        match load_from(&bytes[..], "damaged") {
            Ok(Loaded::Snapshot(snapshot)) => look_at_snapshot(&snapshot, at),
            Ok(Loaded::Trace(trace)) => drop(look(&Run::of_trace(&trace), at)),
            Err(error) => prop_assert!(error.to_string().starts_with("damaged")),
        }
    }

    #[test]
    fn traces_that_make_no_sense(events in events(), at in any::<u32>()) {
        let trace = Trace { header: TraceHeader::default(), events };
        let alone = look(&Run::of_trace(&trace), at);
        let options = ReplayOptions { capacity: Some(64 << 20), history: 4096, ..ReplayOptions::default() };
        // A trace that cannot be replayed is refused in words.
        let (asked, refused) = trace.served();
        if let Ok(replayed) = replay(&asked, &options, |_| {}) {
            let run = Run::of_replay(&asked, &refused, &replayed.allocator.snapshot(true));
            prop_assert_eq!(run.refusals.len() as u64, replayed.result.refused + refused.len() as u64);
            let _ = Comparison::new(&alone, &look(&run, at));
        }
    }

    #[test]
    fn trace_files_with_damaged_bytes(
        events in events(),
        damages in vec((any::<Index>(), any::<u8>(), any::<u8>()), 1..6),
        at in any::<u32>(),
    ) {
        let mut text = String::from("# {\"workload\": \"x\"}\n");
        for event in events {
            text.push_str(&match event {
                Event::Alloc { id, size, stream } => format!("a {id} {size} {stream}\n"),
                Event::Free { id } => format!("f {id}\n"),
                Event::RecordStream { id, stream } => format!("r {id} {stream}\n"),
                Event::EmptyCache => "e\n".into(),
                Event::Iteration { n } => format!("i {n}\n"),
                Event::Refused { id, limit } => format!("x {id} {limit}\n"),
                Event::Pool { pool } => format!("p {pool}\n"),
                Event::PoolEnds { pool } => format!("q {pool}\n"),
                Event::EmptyPool { pool } => format!("e {pool}\n"),
            });
        }
        let mut bytes = text.into_bytes();
        for (at, how, to) in damages {
            damage_bytes(&mut bytes, at, how, to);
        }
        match load_from(&bytes[..], "damaged") {
            Ok(Loaded::Snapshot(snapshot)) => look_at_snapshot(&snapshot, at),
            Ok(Loaded::Trace(trace)) => drop(look(&Run::of_trace(&trace), at)),
            Err(error) => prop_assert!(error.to_string().starts_with("damaged")),
        }
    }
}
