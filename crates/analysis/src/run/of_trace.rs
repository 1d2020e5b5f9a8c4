//! A run of a trace: with nothing else, and with the snapshot of its replay.

use super::{Allocation, Iteration, Moment, NEVER, Run};
use alloc_core::snapshot::{Action, Snapshot, TraceEntry};
use alloc_core::types::PoolId;
use rustc_hash::FxHashMap;
use snapshot::trace::{Event, Trace};

impl Run {
    /// The run of a trace, without addresses. Its moments are the trace's events.
    #[must_use]
    pub fn of_trace(trace: &Trace) -> Self {
        let mut run = Self { pools: vec![PoolId::DEFAULT], labels: vec!["".into()], ..Self::default() };
        let mut live: FxHashMap<u64, usize> = FxHashMap::default();
        let mut last_stream = 0;
        for (at, event) in moments(trace) {
            match *event {
                Event::Alloc { id, size, stream } => {
                    live.insert(id, run.allocations.len());
                    last_stream = last_stream.max(stream);
                    run.allocations.push(Allocation {
                        begin: at,
                        end: NEVER,
                        reusable: NEVER,
                        address: 0,
                        size,
                        stream,
                        pool: 0,
                        site: 0,
                        label: 0,
                    });
                }
                Event::Free { id } => {
                    if let Some(index) = live.remove(&id) {
                        let life = &mut run.allocations[index];
                        (life.end, life.reusable) = (at, at);
                    }
                }
                Event::Iteration { n } => run.iterations.push(Iteration { at, number: n }),
                Event::EmptyCache => run.flushes.push(at),
                Event::RecordStream { .. } => {}
            }
        }
        run.length = moments(trace).last().map_or(0, |(at, _)| at);
        // A trace numbers its streams; a damaged one does not get a table of 2^32.
        run.streams = (0..=u64::from(last_stream.min(u32::from(u16::MAX)))).collect();
        run
    }

    /// The run of a trace, with the addresses that its replay gave. `snapshot` is that of the replay, with its whole
    /// history. Its moments are the history's entries; iterations and flushes are put where they were among the requests.
    #[must_use]
    pub fn of_replay(trace: &Trace, snapshot: &Snapshot) -> Self {
        let mut run = Self::of_snapshot(snapshot, 0);
        let entries = snapshot.device_traces.first().map_or(&[][..], Vec::as_slice);
        // The moments after the n-th request or free of the program.
        let served = entries.iter().zip(1..).filter(|(entry, _)| is_call(entry)).map(|(_, at)| at);
        let mut refused = entries.iter().filter(|entry| is_call(entry));
        let mut served = served;
        let mut gone = rustc_hash::FxHashSet::default();
        let mut now: Moment = 0;
        for event in &trace.events {
            match *event {
                Event::Alloc { id, .. } => {
                    now = served.next().unwrap_or(now);
                    if refused.next().is_some_and(|entry| entry.action == Action::Oom) {
                        gone.insert(id);
                    }
                }
                Event::Free { id } if !gone.contains(&id) => {
                    now = served.next().unwrap_or(now);
                    refused.next();
                }
                Event::Free { .. } | Event::RecordStream { .. } => {}
                Event::Iteration { n } => run.iterations.push(Iteration { at: now, number: n }),
                Event::EmptyCache => run.flushes.push(now),
            }
        }
        run
    }
}

/// Whether the entry is a call of the program, and not something the allocator did for it.
fn is_call(entry: &TraceEntry) -> bool {
    matches!(entry.action, Action::Alloc | Action::FreeRequested | Action::Oom)
}

/// Events with the moments at which they have happened. What is beyond 2^32 - 2 events is left out.
fn moments(trace: &Trace) -> impl Iterator<Item = (Moment, &Event)> {
    (1..NEVER).zip(&trace.events)
}
