//! A run of requests that a plan is made for: one iteration, taken to come again and again, or a whole trace.

use crate::problem::{Buffer, Problem, ProblemError};
use crate::recording::{NEVER, Recording, RecordingError, Request};

/// Requests in order, with how long their bytes are held.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern {
    /// Which iteration it is; `None` for a whole trace.
    pub iteration: Option<u64>,
    /// Whether the first request is expected behind the last one again.
    pub repeats: bool,
    /// Bytes that were held from before the first request until after the last one; they are not planned.
    pub resident_bytes: u64,
    pub(crate) streams: usize,
    pub(crate) requests: Vec<Occurrence>,
}

/// A request of a pattern.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Occurrence {
    pub(crate) size: u64,
    pub(crate) stream: u32,
    /// For every stream: how many requests later it may use the bytes again. Empty if they are held for longer
    /// than until the same request comes again; then it gets no place in the plan.
    pub(crate) lives: Vec<u64>,
}

/// A problem, and which request each of its buffers is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Planned {
    /// The buffers, with sizes rounded up to the alignment.
    pub problem: Problem,
    /// For every buffer the index of its request in the pattern.
    pub requests: Vec<usize>,
}

impl Pattern {
    /// How many requests there are.
    #[must_use]
    pub fn requests(&self) -> usize {
        self.requests.len()
    }

    /// The whole trace; what is never freed is held until the end.
    ///
    /// # Errors
    /// Nothing is requested.
    pub fn whole(recording: &Recording) -> Result<Self, RecordingError> {
        let all = recording.requests.len() as u64;
        let held = |(at, request): (u64, &Request)| Occurrence {
            size: request.size,
            stream: request.stream,
            lives: request.ends.iter().map(|&end| end.min(all) - at).collect(),
        };
        let requests = (0u64..).zip(&recording.requests).map(held).collect();
        Self { iteration: None, repeats: false, resident_bytes: 0, streams: recording.streams, requests }
            .checked()
    }

    /// The requests of one iteration. What outlives its end is held until it was freed in the next one.
    ///
    /// # Errors
    /// There is no such iteration, or nothing is requested in it.
    pub fn iteration(recording: &Recording, n: u64) -> Result<Self, RecordingError> {
        let index = recording.iterations.iter().position(|&(number, _)| number == n);
        let index = index.ok_or(RecordingError::NoIteration(n))?;
        let from = recording.iterations[index].1;
        let to = recording.iterations.get(index + 1).map_or(recording.requests.len() as u64, |&(_, at)| at);
        let period = to - from;
        let held = |(at, request): (u64, &Request)| {
            let own = request.ends[request.stream as usize];
            let stays = own == NEVER || own - at > period;
            // On other streams it can be held all the time.
            let lives = request.ends.iter().map(|&end| end.saturating_sub(at).min(period)).collect();
            Occurrence {
                size: request.size,
                stream: request.stream,
                lives: if stays { Vec::new() } else { lives },
            }
        };
        let requests = (from..).zip(&recording.requests[from as usize..to as usize]).map(held).collect();
        let before = recording.requests[..from as usize].iter();
        let resident = before.filter(|request| request.ends[request.stream as usize] >= to);
        Self {
            iteration: Some(n),
            repeats: true,
            resident_bytes: resident.map(|request| request.size).sum(),
            streams: recording.streams,
            requests,
        }
        .checked()
    }

    fn checked(self) -> Result<Self, RecordingError> {
        if self.requests.is_empty() { Err(RecordingError::Empty) } else { Ok(self) }
    }

    /// The placement problem of the requests that can have a place, with sizes rounded up to `alignment`.
    ///
    /// # Errors
    /// A size of 0, or sizes too large to add up.
    pub fn problem(&self, alignment: u64) -> Result<Planned, ProblemError> {
        let mut planned = Vec::with_capacity(self.requests.len());
        let mut buffers = Vec::with_capacity(self.requests.len());
        let mut of = Vec::with_capacity(self.requests.len());
        let mut ends = Vec::with_capacity(self.requests.len() * self.streams);
        for (index, request) in
            self.requests.iter().enumerate().filter(|(_, request)| !request.lives.is_empty())
        {
            let lower = index as u64;
            let size =
                request.size.checked_next_multiple_of(alignment.max(1)).ok_or(ProblemError::TooLarge)?;
            planned.push(index);
            buffers.push(Buffer { lower, upper: lower + 1, size });
            of.push(request.stream);
            ends.extend(request.lives.iter().map(|life| lower + life));
        }
        let problem = Problem::with_streams(buffers, self.streams, of, ends)?;
        let period = self.requests.len() as u64;
        let problem = if self.repeats { problem.repeating(period)? } else { problem };
        Ok(Planned { problem, requests: planned })
    }
}
