//! What is written, read back.

#![allow(clippy::unwrap_used)]

mod parquet;
mod perfetto;

use alloc_core::snapshot::{Frame, Stack};
use alloc_core::types::PoolId;
use granule_analysis::Run;
use granule_analysis::run::{Allocation, Iteration, Moment, NEVER, Refusal, Span};
use granule_export::runs::{Kind, Source};
use proptest::collection::vec;
use proptest::prelude::*;

fn source<'a>(run: &'a Run, notes: &'a [String]) -> Source<'a> {
    Source {
        run,
        id: "monday",
        name: "train",
        file: "a/train.pickle",
        kind: Kind::Snapshot,
        settings: Some("expandable_segments:True"),
        device: 1,
        capacity: Some(1 << 34),
        window: true,
        notes,
    }
}

fn life(begin: Moment, end: Moment, size: u64) -> Allocation {
    Allocation {
        begin,
        end,
        reusable: end,
        address: 4096 * u64::from(begin + 1),
        size,
        stream: 0,
        pool: 0,
        site: 0,
        label: 0,
    }
}

fn stack(function: &str) -> Stack {
    let frame =
        |name: &str, line| Frame { name: name.into(), filename: "train.py".into(), line, extra: Vec::new() };
    [frame(function, 7), frame("main", 40)].into()
}

/// A small run with something of everything: 100 bytes from before, a peak of 600 at moment 3, two streams.
fn small() -> Run {
    let older = Allocation { begin: 0, ..life(0, 5, 100) };
    let second = Allocation { stream: 1, pool: 1, label: 1, ..life(2, 4, 200) };
    let late = Allocation { reusable: 9, ..life(3, 6, 300) };
    Run {
        length: 10,
        allocations: vec![older, second, late, life(7, NEVER, 50)],
        spans: vec![
            Span { begin: 0, end: 8, address: 4096, size: 1000, stream: 0, pool: 0, growable: false },
            Span { begin: 1, end: NEVER, address: 1 << 40, size: 2000, stream: 1, pool: 1, growable: true },
        ],
        iterations: vec![Iteration { at: 1, number: 5 }, Iteration { at: 4, number: 6 }],
        refusals: vec![Refusal {
            at: 6,
            size: 1 << 40,
            stream: 0,
            pool: 0,
            device_free: Some(77),
            frames: Some(stack("refused")),
        }],
        flushes: vec![7],
        notes: vec![(2, "warm-up \"done\"".into())],
        clock: (0..10).map(|entry| 1_000_000 + 10 * entry).collect(),
        streams: vec![0, 0xabc],
        pools: vec![PoolId::DEFAULT, PoolId(0, 3)],
        labels: vec!["".into(), "weights".into()],
        ..Run::default()
    }
}

/// Runs as nobody recorded them: every number is possible, also where it is an index.
fn any_run() -> impl Strategy<Value = Run> {
    let moment = || prop_oneof![0..20_u32, Just(NEVER), any::<u32>()];
    let index = || prop_oneof![0..3_u32, any::<u32>()];
    let bytes = || prop_oneof![0..1000_u64, any::<u64>()];
    let lives = (moment(), moment(), moment(), bytes(), bytes(), index(), index(), index()).prop_map(
        |(begin, end, reusable, address, size, stream, pool, site)| Allocation {
            begin,
            end,
            reusable,
            address,
            size,
            stream,
            pool,
            site,
            label: site,
        },
    );
    let spans = (moment(), moment(), bytes(), bytes(), index(), index(), any::<bool>()).prop_map(
        |(begin, end, address, size, stream, pool, growable)| Span {
            begin,
            end,
            address,
            size,
            stream,
            pool,
            growable,
        },
    );
    let refusals = (moment(), bytes(), index(), proptest::option::of(bytes())).prop_map(
        |(at, size, stream, device_free)| Refusal {
            at,
            size,
            stream,
            pool: 0,
            device_free,
            frames: Some(stack("any")),
        },
    );
    let iterations = (moment(), any::<u64>()).prop_map(|(at, number)| Iteration { at, number });
    (
        moment(),
        vec(lives, 0..20),
        vec(spans, 0..8),
        vec(refusals, 0..3),
        vec(iterations, 0..5),
        vec(any::<i64>(), 0..4),
        vec(any::<u64>(), 0..3),
        vec((moment(), "\\PC*"), 0..3),
    )
        .prop_map(|(length, allocations, spans, refusals, iterations, clock, streams, notes)| Run {
            length,
            allocations,
            spans,
            refusals,
            iterations,
            clock,
            streams,
            notes: notes.into_iter().map(|(at, text)| (at, text.into())).collect(),
            ..Run::default()
        })
}
