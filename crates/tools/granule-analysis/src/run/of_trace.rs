//! A run of a trace with nothing else.

use super::{Allocation, Iteration, Moment, NEVER, Run};
use alloc_core::types::PoolId;
use granule_snapshot::trace::{Event, Trace};
use rustc_hash::FxHashMap;

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
                Event::Free { id } | Event::Refused { id, .. } => {
                    if let Some(index) = live.remove(&id) {
                        let life = &mut run.allocations[index];
                        (life.end, life.reusable) = (at, at);
                    }
                }
                Event::Iteration { n } => run.iterations.push(Iteration { at, number: n }),
                Event::EmptyCache => run.flushes.push(at),
                _ => {}
            }
        }
        run.length = moments(trace).last().map_or(0, |(at, _)| at);
        // A trace numbers its streams; a damaged one does not get a table of 2^32.
        run.streams = (0..=u64::from(last_stream.min(u32::from(u16::MAX)))).collect();
        run
    }
}

/// Events with the moments at which they have happened. What is beyond 2^32 - 2 events is left out.
fn moments(trace: &Trace) -> impl Iterator<Item = (Moment, &Event)> {
    (1..NEVER).zip(&trace.events)
}
