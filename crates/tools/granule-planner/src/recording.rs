//! From a trace to problems: which requests there were, and from which request on each stream may use a block's
//! bytes again. Time is counted in requests.

use granule_snapshot::trace::{Event, Trace};
use rustc_hash::FxHashMap;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// What makes it safe that one stream gets memory which another one has used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CrossStream {
    /// Only what the program itself orders. A block recorded on a stream is used there behind its request, so from
    /// its free on that stream is behind all that was asked for earlier on the block's own stream. On its own
    /// stream a block's bytes may be used again at once: there the allocator waits for recorded streams.
    #[default]
    Ordered,
    /// The allocator makes the stream that gets the bytes wait for those that used them: all frees count for all
    /// streams.
    Waits,
}

/// Never.
pub(crate) const NEVER: u64 = u64::MAX;

/// One request of a recorded program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Request {
    pub(crate) size: u64,
    pub(crate) stream: u32,
    /// For every stream the first request from which it may use the bytes again; [`NEVER`] if there is none.
    pub(crate) ends: Vec<u64>,
}

/// The requests of a trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recording {
    pub(crate) requests: Vec<Request>,
    /// Number and first request of every iteration.
    pub(crate) iterations: Vec<(u64, u64)>,
    pub(crate) streams: usize,
    pub(crate) cross: CrossStream,
}

/// Why a trace gives no recording.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecordingError {
    /// An event names a block that is not live.
    #[error("event {event} names block {id}, which is not live there")]
    Unknown {
        /// The event's index, from 0.
        event: usize,
        /// The block.
        id: u64,
    },
    /// More streams than a plan is made for.
    #[error("{streams} streams; plans are made for up to {MAX_STREAMS}")]
    Streams {
        /// How many there are.
        streams: usize,
    },
    /// The trace has no such iteration.
    #[error("the trace has no iteration {0}")]
    NoIteration(u64),
    /// Nothing is requested.
    #[error("there is no request to make a plan for")]
    Empty,
}

/// Lifetimes take memory by the number of streams.
pub(crate) const MAX_STREAMS: usize = 64;

impl Recording {
    /// Reads a trace's events.
    ///
    /// # Errors
    /// [`RecordingError`]: events that make no sense, or too many streams.
    pub fn new(trace: &Trace, cross: CrossStream) -> Result<Self, RecordingError> {
        let named = trace.events.iter().filter_map(|event| match event {
            Event::Alloc { stream, .. } | Event::RecordStream { stream, .. } => Some(*stream as usize + 1),
            _ => None,
        });
        let streams = named.max().unwrap_or(1);
        if streams > MAX_STREAMS {
            return Err(RecordingError::Streams { streams });
        }
        let mut reader = Reader::new(streams, cross);
        let mut iterations = Vec::new();
        for (event, what) in trace.events.iter().enumerate() {
            match *what {
                Event::Alloc { id, size, stream } => reader.request(id, size, stream),
                Event::RecordStream { id, stream } => reader.record(event, id, stream)?,
                Event::Free { id } | Event::Refused { id, .. } => reader.free(event, id)?,
                Event::Iteration { n } => iterations.push((n, reader.now())),
                // Nothing that a stream could rely on.
                _ => {}
            }
        }
        Ok(Self { requests: reader.requests, iterations, streams, cross })
    }

    /// The numbers of the iterations.
    pub fn iterations(&self) -> impl Iterator<Item = u64> {
        self.iterations.iter().map(|&(n, _)| n)
    }
}

struct Live {
    index: usize,
    /// The clock of its stream at its request.
    behind: Vec<u64>,
    users: Vec<usize>,
}

struct Reader {
    requests: Vec<Request>,
    live: FxHashMap<u64, Live>,
    /// `clocks[s][t]`: what stream s does next is behind all of stream t's work up to this request.
    clocks: Vec<Vec<u64>>,
    /// Freed blocks that stream s may use when it is behind stream t's work up to some request, soonest first.
    waiting: Vec<Vec<BinaryHeap<Reverse<Freed>>>>,
    cross: CrossStream,
}

/// A freed block, ordered by when it was freed.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Freed {
    at: u64,
    index: usize,
    users: Vec<usize>,
}

impl Reader {
    fn new(streams: usize, cross: CrossStream) -> Self {
        let waiting = || (0..streams).map(|_| BinaryHeap::new()).collect();
        Self {
            requests: Vec::new(),
            live: FxHashMap::default(),
            clocks: vec![vec![0; streams]; streams],
            waiting: (0..streams).map(|_| waiting()).collect(),
            cross,
        }
    }

    fn now(&self) -> u64 {
        self.requests.len() as u64
    }

    fn request(&mut self, id: u64, size: u64, stream: u32) {
        let own = stream as usize;
        self.clocks[own][own] = self.now();
        let behind = if self.clocks.len() > 1 { self.clocks[own].clone() } else { Vec::new() };
        self.live.insert(id, Live { index: self.requests.len(), behind, users: vec![own] });
        self.requests.push(Request { size, stream, ends: vec![NEVER; self.clocks.len()] });
    }

    fn record(&mut self, event: usize, id: u64, stream: u32) -> Result<(), RecordingError> {
        let block = self.live.get_mut(&id).ok_or(RecordingError::Unknown { event, id })?;
        if !block.users.contains(&(stream as usize)) {
            block.users.push(stream as usize);
        }
        Ok(())
    }

    fn free(&mut self, event: usize, id: u64) -> Result<(), RecordingError> {
        let Live { index, behind, users } =
            self.live.remove(&id).ok_or(RecordingError::Unknown { event, id })?;
        let at = self.now();
        let own = users[0];
        for &user in &users[1..] {
            self.learn(user, &behind);
        }
        for stream in 0..self.clocks.len() {
            if stream == own || self.cross == CrossStream::Waits {
                self.requests[index].ends[stream] = at;
            } else {
                self.wait(stream, Freed { at, index, users: users.clone() });
            }
        }
        Ok(())
    }

    /// Puts a freed block where `stream` finds it when it is behind all its users' work, or ends its life there.
    fn wait(&mut self, stream: usize, freed: Freed) {
        let clock = &self.clocks[stream];
        match freed.users.iter().find(|&&user| user != stream && clock[user] < freed.at) {
            Some(&user) => self.waiting[stream][user].push(Reverse(freed)),
            None => self.requests[freed.index].ends[stream] = self.now().max(freed.at),
        }
    }

    /// `stream` is now behind all that `behind` names.
    fn learn(&mut self, stream: usize, behind: &[u64]) {
        for (user, &until) in behind.iter().enumerate() {
            let known = &mut self.clocks[stream][user];
            if user == stream || *known >= until {
                continue;
            }
            *known = until;
            while let Some(Reverse(freed)) = self.waiting[stream][user].peek()
                && freed.at <= until
            {
                if let Some(Reverse(freed)) = self.waiting[stream][user].pop() {
                    self.wait(stream, freed);
                }
            }
        }
    }
}
