//! What is to be placed: buffers with a size and a lifetime, and where a solver put them.

/// One buffer of an interval problem: `size` bytes, live from `lower` until just before `upper`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Buffer {
    /// When it starts to need its place.
    pub lower: u64,
    /// The first moment at which its place is free again; later than `lower`.
    pub upper: u64,
    /// Bytes; not 0.
    pub size: u64,
}

/// Why some buffers are no problem that can be solved.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProblemError {
    /// A buffer of no bytes needs no place.
    #[error("buffer {buffer} has size 0; leave it out")]
    NoSize {
        /// Its index.
        buffer: usize,
    },
    /// A buffer that never lives needs no place.
    #[error(
        "buffer {buffer} ends (at {upper}) no later than it starts (at {lower}); leave it out or swap the two"
    )]
    NoLife {
        /// Its index.
        buffer: usize,
        /// Its start.
        lower: u64,
        /// Its end.
        upper: u64,
    },
    /// A buffer that outlives the period would lie on its own next instance.
    #[error("buffer {buffer} lives longer than the period of {period}; it cannot have one place")]
    OutlivesPeriod {
        /// Its index.
        buffer: usize,
        /// The period.
        period: u64,
    },
    /// A buffer of a stream that does not exist, or ends that are not one per buffer and stream.
    #[error("buffer {buffer} names a stream beyond the {streams} there are, or lacks an end for one of them")]
    Streams {
        /// Its index.
        buffer: usize,
        /// How many streams there are.
        streams: usize,
    },
    /// More bytes than 63 bits can count.
    #[error("the buffers have more bytes in all than 63 bits can count")]
    TooLarge,
}

/// When the streams of a problem may use a buffer's place again.
///
/// Time is the order in which the host made its requests, so a buffer that starts later never comes before one
/// that started earlier. What remains of happens-before is, for every buffer and every stream, the first moment
/// from which a request *on that stream* is ordered behind the buffer's last use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Streams {
    pub(crate) count: usize,
    /// The stream of every buffer's request.
    pub(crate) of: Vec<u32>,
    /// `ends[buffer * count + stream]`.
    pub(crate) ends: Vec<u64>,
}

/// Buffers to be placed so that no two that conflict share an address.
///
/// Two buffers conflict if one of them starts before the other's place is free for the stream it starts on. With
/// one stream that is the overlap of intervals.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    buffers: Vec<Buffer>,
    streams: Option<Streams>,
    period: Option<u64>,
}

impl Problem {
    /// An interval problem: everything on one stream.
    ///
    /// # Errors
    /// A buffer without size or life; more bytes than can be counted.
    pub fn new(buffers: Vec<Buffer>) -> Result<Self, ProblemError> {
        let mut total = 0u64;
        for (buffer, &Buffer { lower, upper, size }) in buffers.iter().enumerate() {
            if size == 0 {
                return Err(ProblemError::NoSize { buffer });
            }
            if upper <= lower {
                return Err(ProblemError::NoLife { buffer, lower, upper });
            }
            total = total
                .checked_add(size)
                .filter(|&total| total <= i64::MAX as u64)
                .ok_or(ProblemError::TooLarge)?;
        }
        Ok(Self { buffers, streams: None, period: None })
    }

    /// A problem with several streams. `of` is the stream of each buffer, `ends[buffer * count + stream]` the first
    /// moment from which `stream` may use the buffer's place; [`u64::MAX`] is never. A buffer's `upper` is replaced
    /// by its end on its own stream.
    ///
    /// # Errors
    /// As [`Problem::new`]; lists that do not fit the buffers.
    pub fn with_streams(
        mut buffers: Vec<Buffer>,
        count: usize,
        of: Vec<u32>,
        ends: Vec<u64>,
    ) -> Result<Self, ProblemError> {
        let misfit = |buffer| ProblemError::Streams { buffer, streams: count };
        if of.len() != buffers.len() || ends.len() != buffers.len() * count {
            return Err(misfit(of.len().min(ends.len() / count.max(1))));
        }
        for (index, buffer) in buffers.iter_mut().enumerate() {
            let own = of[index] as usize;
            if own >= count {
                return Err(misfit(index));
            }
            buffer.upper = ends[index * count + own];
            if let Some(&upper) = ends[index * count..][..count].iter().find(|&&end| end <= buffer.lower) {
                return Err(ProblemError::NoLife { buffer: index, lower: buffer.lower, upper });
            }
        }
        let problem = Self::new(buffers)?;
        Ok(if count <= 1 { problem } else { Self { streams: Some(Streams { count, of, ends }), ..problem } })
    }

    /// The same buffers, requested again every `period`: time is a circle. Ends count on from the start, so they
    /// may lie beyond the period; on other streams than its own a buffer may take up the whole circle.
    ///
    /// # Errors
    /// A buffer starts outside the period or outlives it on its own stream.
    pub fn repeating(self, period: u64) -> Result<Self, ProblemError> {
        for (buffer, Buffer { lower, upper, .. }) in self.buffers.iter().enumerate() {
            if *lower >= period || upper - lower > period {
                return Err(ProblemError::OutlivesPeriod { buffer, period });
            }
        }
        // A circle on which nothing crosses the beginning is a line.
        let ends = self.streams.iter().flat_map(|streams| &streams.ends);
        let crosses = self.buffers.iter().map(|buffer| &buffer.upper).chain(ends).any(|&end| end > period);
        Ok(Self { period: crosses.then_some(period), ..self })
    }

    /// The buffers, in the order in which they were given.
    #[must_use]
    pub fn buffers(&self) -> &[Buffer] {
        &self.buffers
    }

    /// How many streams there are.
    #[must_use]
    pub fn streams(&self) -> usize {
        self.streams.as_ref().map_or(1, |streams| streams.count)
    }

    /// The stream on which a buffer is requested.
    #[must_use]
    pub fn stream(&self, buffer: usize) -> usize {
        self.streams.as_ref().map_or(0, |streams| streams.of[buffer] as usize)
    }

    /// The first moment from which `stream` may use the buffer's place.
    #[must_use]
    pub fn end(&self, buffer: usize, stream: usize) -> u64 {
        match &self.streams {
            None => self.buffers[buffer].upper,
            Some(streams) => streams.ends[buffer * streams.count + stream],
        }
    }

    /// After which time the same buffers come again, where some are still live then.
    #[must_use]
    pub fn period(&self) -> Option<u64> {
        self.period
    }

    /// Whether lifetimes are plain intervals, which is what the exact search needs.
    #[must_use]
    pub fn is_interval(&self) -> bool {
        self.streams.is_none() && self.period.is_none()
    }

    /// Whether two buffers need different addresses.
    #[must_use]
    pub fn conflict(&self, a: usize, b: usize) -> bool {
        a != b && (self.holds(a, b) || self.holds(b, a))
    }

    /// Whether `b` starts while `a` still holds its place for the stream of `b`.
    fn holds(&self, a: usize, b: usize) -> bool {
        let (start, from) = (self.buffers[b].lower, self.buffers[a].lower);
        let end = self.end(a, self.stream(b));
        let within = |start: u64| from <= start && start < end;
        within(start) || self.period.is_some_and(|period| within(start.saturating_add(period)))
    }
}

/// Where a solver put the buffers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placement {
    /// The address of each buffer, in the problem's order.
    pub offsets: Vec<u64>,
    /// The first address beyond all buffers.
    pub height: u64,
}

impl Placement {
    /// A placement with these offsets, one for each buffer of `problem`.
    #[must_use]
    pub fn new(problem: &Problem, offsets: Vec<u64>) -> Self {
        let tops =
            offsets.iter().zip(problem.buffers()).map(|(offset, buffer)| offset.saturating_add(buffer.size));
        Self { height: tops.max().unwrap_or(0), offsets }
    }
}
