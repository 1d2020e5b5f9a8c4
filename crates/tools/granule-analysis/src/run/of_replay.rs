//! A run of a trace and the snapshot of its replay.

use super::{Iteration, Moment, NEVER, Refusal, Run};
use alloc_core::snapshot::{Action, Snapshot, TraceEntry};
use alloc_core::types::PoolId;
use granule_snapshot::trace::{Event, NotServed, Trace};
use rustc_hash::{FxHashMap, FxHashSet};

impl Run {
    /// The run of a trace, with the addresses that its replay gave. `snapshot` is that of the replay, with its whole
    /// history. Its moments are the history's entries; iterations and flushes are put where they were among the requests, and
    /// streams have the trace's numbers. There is no clock: a trace has none, and the replay's says nothing about the program.
    /// What was `refused` when it was recorded has not been asked for again.
    #[must_use]
    pub fn of_replay(trace: &Trace, refused: &[NotServed], snapshot: &Snapshot) -> Self {
        let mut run = Self { clock: Vec::new(), ..Self::of_snapshot(snapshot, 0) };
        let entries = snapshot.device_traces.first().map_or(&[][..], Vec::as_slice);
        let mut done = Done { entries, next: 0 };
        let mut live = FxHashSet::default();
        let mut streams = FxHashMap::default();
        let mut pools = FxHashMap::from_iter([(0, PoolId::DEFAULT)]);
        // A pool that was not served has nothing.
        let (mut open, unserved) = (0, PoolId::fresh());
        let mut unrecorded = Vec::new();
        let mut refused = refused.iter().peekable();
        for (at, event) in trace.events.iter().enumerate() {
            open = event.pool_after(open);
            let pool_of = |pool| pools.get(&pool).copied().unwrap_or(unserved);
            match *event {
                Event::Alloc { id, size, stream } => match done.request(size) {
                    Some(served) if served.action == Action::Alloc => {
                        live.insert(id);
                        streams.insert(served.stream, u64::from(stream));
                        pools.insert(open, served.labels.pool_id.unwrap_or(PoolId::DEFAULT));
                    }
                    // Nothing is asked for 0 bytes, which are served.
                    None if size > 0 => {
                        unrecorded.push((done.moment(), size, stream.into(), pool_of(open), 0))
                    }
                    _ => {}
                },
                Event::Free { id } | Event::Refused { id, .. } if live.remove(&id) => done.free(),
                Event::Iteration { n } => run.iterations.push(Iteration { at: done.moment(), number: n }),
                Event::EmptyCache => {
                    done.flush();
                    match refused.next_if(|one| one.at == at) {
                        Some(one) => {
                            let pool = pool_of(one.pool);
                            unrecorded.push((done.moment(), one.size, one.stream.into(), pool, one.limit));
                        }
                        None => run.flushes.push(done.moment()),
                    }
                }
                Event::PoolEnds { pool } if pool != 0 => {
                    pools.remove(&pool);
                }
                _ => {}
            }
        }
        for handle in &mut run.streams {
            *handle = streams.get(handle).copied().unwrap_or(*handle);
        }
        let held = run.reserved();
        for (at, size, stream, pool, limit) in unrecorded {
            let (stream, pool) = (index_of(&mut run.streams, stream), index_of(&mut run.pools, pool));
            let place = run.refusals.partition_point(|refusal| refusal.at <= at);
            let steps = held.partition_point(|(step, _)| *step <= at);
            let held = steps.checked_sub(1).map_or(0, |step| held[step].1);
            let device_free = (limit > 0).then(|| limit.saturating_sub(held));
            run.refusals.insert(place, Refusal { at, size, stream, pool, device_free, frames: None });
        }
        run
    }
}

/// Where it stands in the table, or now stands.
fn index_of<T: PartialEq>(table: &mut Vec<T>, one: T) -> u32 {
    let known = table.iter().position(|other| *other == one);
    let index = known.unwrap_or_else(|| {
        table.push(one);
        table.len() - 1
    });
    u32::try_from(index).unwrap_or(0)
}

/// How far the history has been followed.
struct Done<'a> {
    entries: &'a [TraceEntry],
    /// The entry after those that have happened.
    next: usize,
}

impl<'a> Done<'a> {
    /// The entry of a request. There is none where it was refused before the device was asked.
    fn request(&mut self, size: u64) -> Option<&'a TraceEntry> {
        let (at, entry) = self.next_call()?;
        let fits = match entry.action {
            Action::Alloc => entry.size == size,
            // Its size is the rounded one. What is more than any device has is refused without an entry.
            Action::Oom => entry.size >= size,
            _ => false,
        };
        fits.then(|| {
            self.next = at + 1;
            entry
        })
    }

    /// A live block is given back.
    fn free(&mut self) {
        if let Some((at, entry)) = self.next_call() {
            self.next = at + 1;
            let completed =
                |next: &&TraceEntry| next.action == Action::FreeCompleted && next.addr == entry.addr;
            self.next += usize::from(self.entries.get(self.next).filter(completed).is_some());
        }
    }

    /// The cache is emptied: what then leaves the device leaves it now, and not for the next request.
    fn flush(&mut self) {
        let leaves = |entry: &&TraceEntry| {
            matches!(entry.action, Action::FreeCompleted | Action::SegmentFree | Action::SegmentUnmap)
        };
        self.next += self.entries[self.next..].iter().take_while(leaves).count();
    }

    /// The program's next call, past what the allocator does for it.
    fn next_call(&self) -> Option<(usize, &'a TraceEntry)> {
        let is_call =
            |entry: &TraceEntry| matches!(entry.action, Action::Alloc | Action::FreeRequested | Action::Oom);
        let ahead = self.entries[self.next..].iter().position(is_call)?;
        Some((self.next + ahead, &self.entries[self.next + ahead]))
    }

    fn moment(&self) -> Moment {
        Moment::try_from(self.next).unwrap_or(NEVER - 1)
    }
}
