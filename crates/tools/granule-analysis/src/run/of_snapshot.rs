//! A run of a snapshot's history.

use super::reserved::ReservedRanges;
use super::{Allocation, Iteration, Moment, NEVER, Refusal, Run, Span};
use alloc_core::snapshot::{Action, BlockState, Labels, SegmentInfo, Snapshot, Stack, TraceEntry};
use alloc_core::types::PoolId;
use granule_snapshot::convert;
use rustc_hash::{FxHashMap, FxHashSet};
use std::sync::Arc;

impl Run {
    /// The run of one device's history. Without a history, what is held at the end is all there is.
    ///
    /// What was there before the history began is told from what was given back without a request, and from what is there at the
    /// end without one. Its begin is 0.
    #[must_use]
    pub fn of_snapshot(snapshot: &Snapshot, device: usize) -> Self {
        let history = snapshot.device_traces.get(device).map_or(&[][..], Vec::as_slice);
        let history = &history[..history.len().min(NEVER as usize - 1)];
        let segments: Vec<_> = snapshot
            .segments
            .iter()
            .filter(|segment| usize::try_from(segment.device) == Ok(device))
            .collect();
        let mut maker = Maker::new(history.len());
        maker.older(&segments, history);
        for (entry, at) in history.iter().zip(1..) {
            maker.entry(entry, at);
        }
        let mut run = maker.finish(history);
        // Fewer than NEVER, see above.
        let marks = convert::steps(snapshot, device).into_iter();
        run.iterations = marks.map(|(at, number)| Iteration { at: at as Moment, number }).collect();
        run
    }
}

/// Makes a run, entry by entry.
struct Maker {
    run: Run,
    /// Live allocations by address.
    live: FxHashMap<u64, u32>,
    /// Given back and not yet reusable, by address.
    waiting: FxHashMap<u64, u32>,
    /// Addresses of what waits at the end.
    still_waits: FxHashSet<u64>,
    held: ReservedRanges,
    streams: FxHashMap<u64, u32>,
    pools: FxHashMap<PoolId, u32>,
    labels: FxHashMap<Arc<str>, u32>,
    /// The labels of the entry before, which most entries share.
    last: Option<(Arc<Labels>, (u32, u32))>,
}

impl Maker {
    fn new(entries: usize) -> Self {
        let run = Run {
            streams: vec![0],
            pools: vec![PoolId::DEFAULT],
            labels: vec!["".into()],
            allocations: Vec::with_capacity(entries / 2),
            ..Run::default()
        };
        Self {
            run,
            live: FxHashMap::default(),
            waiting: FxHashMap::default(),
            still_waits: FxHashSet::default(),
            held: ReservedRanges::default(),
            streams: FxHashMap::from_iter([(0, 0)]),
            pools: FxHashMap::from_iter([(PoolId::DEFAULT, 0)]),
            labels: FxHashMap::from_iter([("".into(), 0)]),
            last: None,
        }
    }

    /// What was there before the first entry.
    fn older(&mut self, segments: &[&SegmentInfo], history: &[TraceEntry]) {
        let blocks = segments.iter().flat_map(|segment| &segment.blocks);
        let waits = blocks.filter(|block| block.state == BlockState::ActivePendingFree);
        self.still_waits = waits.map(|block| block.address).collect();
        // From the end back: what was taken was not there before, what was given back was.
        let mut held = ReservedRanges::default();
        for segment in segments {
            let span = self.span(segment.address, segment.total_size, segment.stream, Some(segment.pool_id));
            held.take(Span { growable: segment.is_expandable, ..span });
        }
        for entry in history.iter().rev() {
            match entry.action {
                Action::SegmentAlloc | Action::SegmentMap => held.give_back(entry.addr, entry.size, NEVER),
                Action::SegmentFree | Action::SegmentUnmap => {
                    let span = self.span(entry.addr, entry.size, entry.stream, entry.labels.pool_id);
                    held.take(Span { growable: entry.action == Action::SegmentUnmap, ..span });
                }
                _ => {}
            }
        }
        for span in held.spans() {
            self.held.take(*span);
        }
        for (address, older) in there_before(segments, history) {
            let stream = self.stream(older.stream);
            let pool = self.pool(older.pool);
            let site = self.run.sites.index(older.frames.as_ref());
            self.begin(Allocation {
                begin: 0,
                end: if older.waits { 0 } else { NEVER },
                reusable: NEVER,
                address,
                size: older.size,
                stream,
                pool,
                site,
                label: 0,
            });
        }
    }

    fn span(&mut self, address: u64, size: u64, stream: u64, pool: Option<PoolId>) -> Span {
        let (stream, pool) = (self.stream(stream), self.pool(pool.unwrap_or(PoolId::DEFAULT)));
        Span { begin: 0, end: NEVER, address, size, stream, pool, growable: false }
    }

    fn entry(&mut self, entry: &TraceEntry, at: Moment) {
        match entry.action {
            Action::Alloc if entry.size > 0 => {
                let stream = self.stream(entry.stream);
                let (pool, label) = self.labels(&entry.labels);
                let site = self.run.sites.index(entry.frames.as_ref());
                self.lost(entry.addr, at);
                self.begin(Allocation {
                    begin: at,
                    end: NEVER,
                    reusable: NEVER,
                    address: entry.addr,
                    size: entry.size,
                    stream,
                    pool,
                    site,
                    label,
                });
            }
            Action::FreeRequested => {
                if let Some(index) = self.live.remove(&entry.addr) {
                    self.run.allocations[index as usize].end = at;
                    self.waiting.insert(entry.addr, index);
                }
            }
            Action::FreeCompleted => {
                if let Some(index) = self.waiting.remove(&entry.addr) {
                    self.run.allocations[index as usize].reusable = at;
                } else if let Some(index) = self.live.remove(&entry.addr) {
                    // Its free_requested was not recorded.
                    let life = &mut self.run.allocations[index as usize];
                    (life.end, life.reusable) = (at, at);
                }
            }
            Action::SegmentAlloc | Action::SegmentMap => {
                let span = self.span(entry.addr, entry.size, entry.stream, entry.labels.pool_id);
                self.held.take(Span { begin: at, growable: entry.action == Action::SegmentMap, ..span });
            }
            Action::SegmentFree | Action::SegmentUnmap => self.held.give_back(entry.addr, entry.size, at),
            Action::Oom => {
                let (stream, pool) = (self.stream(entry.stream), self.labels(&entry.labels).0);
                self.run.refusals.push(Refusal {
                    at,
                    size: entry.size,
                    stream,
                    pool,
                    device_free: entry.device_free(),
                    frames: entry.frames.clone(),
                });
            }
            Action::Annotate => self.note(entry, at),
            _ => {}
        }
    }

    fn begin(&mut self, life: Allocation) {
        // A history has fewer than 2^32 entries, and its segments were read into memory.
        let Ok(index) = u32::try_from(self.run.allocations.len()) else { return };
        let known = if life.end == NEVER { &mut self.live } else { &mut self.waiting };
        known.insert(life.address, index);
        self.run.allocations.push(life);
    }

    /// Another request got the address: the free is missing.
    fn lost(&mut self, address: u64, at: Moment) {
        for index in [self.live.remove(&address), self.waiting.remove(&address)].into_iter().flatten() {
            let life = &mut self.run.allocations[index as usize];
            life.end = life.end.min(at);
            life.reusable = life.reusable.min(at);
        }
    }

    fn note(&mut self, entry: &TraceEntry, at: Moment) {
        if let Some(text) = entry.labels.user_metadata.as_ref().filter(|text| !text.is_empty()) {
            self.run.notes.push((at, text.clone()));
        }
    }

    fn stream(&mut self, handle: u64) -> u32 {
        let next = self.run.streams.len() as u32;
        *self.streams.entry(handle).or_insert_with(|| {
            self.run.streams.push(handle);
            next
        })
    }

    fn pool(&mut self, pool: PoolId) -> u32 {
        let next = self.run.pools.len() as u32;
        *self.pools.entry(pool).or_insert_with(|| {
            self.run.pools.push(pool);
            next
        })
    }

    /// Pool and label of an entry.
    fn labels(&mut self, labels: &Arc<Labels>) -> (u32, u32) {
        if let Some((last, found)) = &self.last
            && Arc::ptr_eq(last, labels)
        {
            return *found;
        }
        let pool = self.pool(labels.pool_id.unwrap_or(PoolId::DEFAULT));
        let text = labels.user_metadata.clone().unwrap_or_default();
        let next = self.run.labels.len() as u32;
        let label = *self.labels.entry(text.clone()).or_insert_with(|| {
            self.run.labels.push(text);
            next
        });
        self.last = Some((labels.clone(), (pool, label)));
        (pool, label)
    }

    fn finish(self, history: &[TraceEntry]) -> Run {
        let Self { mut run, held, waiting, still_waits, .. } = self;
        // What does not wait at the end has become reusable, although that was not recorded.
        for (_, index) in waiting.into_iter().filter(|(address, _)| !still_waits.contains(address)) {
            let life = &mut run.allocations[index as usize];
            life.reusable = life.end;
        }
        // Fewer than NEVER, see above.
        run.length = history.len() as Moment;
        run.spans = held.finish();
        if history.iter().any(|entry| entry.time_us != 0) {
            run.clock = history.iter().map(|entry| entry.time_us).collect();
        }
        run
    }
}

/// An allocation from before the history.
struct Older {
    size: u64,
    stream: u64,
    pool: PoolId,
    frames: Option<Stack>,
    /// Whether it was given back already, and waited for other streams.
    waits: bool,
}

/// Those that were given back, or became reusable, without what comes before that; and those that are there at the end
/// although nothing tells of them. By address.
fn there_before(segments: &[&SegmentInfo], history: &[TraceEntry]) -> Vec<(u64, Older)> {
    let mut known = FxHashSet::default();
    let mut older = Vec::new();
    for entry in history {
        match entry.action {
            Action::Alloc => {
                known.insert(entry.addr);
            }
            Action::FreeRequested | Action::FreeCompleted if known.insert(entry.addr) && entry.size > 0 => {
                let pool = entry.labels.pool_id.unwrap_or(PoolId::DEFAULT);
                let waits = entry.action == Action::FreeCompleted;
                let life = Older { size: entry.size, stream: entry.stream, pool, frames: None, waits };
                older.push((entry.addr, life));
            }
            _ => {}
        }
    }
    for segment in segments {
        for block in &segment.blocks {
            let there = block.state != BlockState::Inactive && block.requested_size > 0;
            if there && !known.contains(&block.address) {
                let life = Older {
                    size: block.requested_size,
                    stream: segment.stream,
                    pool: segment.pool_id,
                    frames: block.frames.clone(),
                    waits: block.state == BlockState::ActivePendingFree,
                };
                older.push((block.address, life));
            }
        }
    }
    older.sort_by_key(|(address, _)| *address);
    older
}
