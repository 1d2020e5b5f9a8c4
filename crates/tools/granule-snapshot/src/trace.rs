//! Allocation traces: what a program asked of an allocator, in order.
//!
//! A trace is a text file, usually gzip'd. The first line is `# ` and a JSON object ([`TraceHeader`]); every
//! other line is one [`Event`]:
//!
//! | line | meaning |
//! |---|---|
//! | `a ID SIZE STREAM` | a request of SIZE bytes on STREAM, which gets the number ID |
//! | `f ID` | the block is given back |
//! | `r ID STREAM` | the block is used on STREAM too |
//! | `e` | the cache is emptied |
//! | `i N` | iteration N begins |
//! | `x ID LIMIT` | request ID was refused, for the process could have LIMIT bytes; 0 where that is unknown |
//! | `p POOL` | the requests that follow are for private pool POOL; 0 is the common one |
//! | `q POOL` | nobody uses the pool any more: its cached memory goes with the next flush |
//! | `e POOL` | what such a pool has cached is given back |
//!
//! SIZE is as requested, before any rounding, and never 0. IDs rise and are never reused. STREAM 0 is the
//! default stream, others are numbered as they appear.

mod error;
mod header;
mod read;
mod recording;
mod refused;
mod write;

pub use error::TraceError;
pub use header::{Mark, NativeResult, NativeResults, TraceHeader};
pub use read::TraceReader;
pub use recording::{TraceRecording, add_reason};
pub use refused::{FRACTION, NotServed, did_without, sizes};
pub use write::TraceWriter;

use std::fs::File;
use std::io::{self, BufRead, BufReader, Write};
use std::path::Path;

/// One call of the traced program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Event {
    /// A request.
    Alloc {
        /// The block's number; larger than every earlier one.
        id: u64,
        /// Bytes as requested; not 0.
        size: u64,
        /// The stream it is for; 0 is the default stream.
        stream: u32,
    },
    /// The block is given back.
    Free {
        /// A live block's number.
        id: u64,
    },
    /// The block is used on another stream and may be reused only when that stream is done with it.
    RecordStream {
        /// A live block's number.
        id: u64,
        /// The stream that uses it.
        stream: u32,
    },
    /// `empty_cache()`.
    EmptyCache,
    /// An iteration begins (a training step, a decode step, a request).
    Iteration {
        /// The iteration's number.
        n: u64,
    },
    /// The request was refused for want of memory: there is no block. A replay asks, and gives back at once what it gets.
    Refused {
        /// The request's number.
        id: u64,
        /// Bytes that the process could have then, what it held included; 0 where that is unknown.
        limit: u64,
    },
    /// The requests that follow are for this private pool; 0 is the common one.
    Pool {
        /// The pool's number.
        pool: u32,
    },
    /// Nobody uses the pool any more: what it has cached goes with the next flush.
    PoolEnds {
        /// The pool's number.
        pool: u32,
    },
    /// What a pool has cached that nobody uses any more is given back.
    EmptyPool {
        /// The pool's number.
        pool: u32,
    },
}

impl Event {
    /// The pool that the next request is for, where the one before it was for `pool`. One that ends is open no more.
    #[must_use]
    pub fn pool_after(&self, pool: u32) -> u32 {
        match *self {
            Self::Pool { pool } => pool,
            Self::PoolEnds { pool: ended } if ended == pool => 0,
            _ => pool,
        }
    }
}

/// A whole trace in memory, 24 bytes an event.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Trace {
    /// What the first line says.
    pub header: TraceHeader,
    /// The calls in order.
    pub events: Vec<Event>,
}

/// The version that is written.
pub const FORMAT: &str = "alloc-trace 1";

/// What files of earlier versions say of pools.
const MERGED_POOLS: &str = "private pools";

impl Trace {
    /// Reads a trace file, gzip'd or plain. Blocks on file input.
    ///
    /// # Errors
    /// [`TraceError`]: the file is missing, damaged, cut short, or a line is wrong. The error does not name
    /// the file; the caller knows it ([`crate::load`] adds it).
    pub fn load(path: impl AsRef<Path>) -> Result<Self, TraceError> {
        let file = File::open(path).map_err(|source| TraceError::Open { source })?;
        Self::from_reader(file)
    }

    /// Reads a trace, gzip'd or plain, to its end.
    ///
    /// # Errors
    /// As [`Trace::load`].
    pub fn from_reader(reader: impl io::Read) -> Result<Self, TraceError> {
        let input = crate::Input::new(reader, &crate::pickle::Limits::default())
            .map_err(|source| TraceError::from_io(1, source))?;
        Self::from_plain(BufReader::with_capacity(1 << 16, input))
    }

    /// The same program with every request multiplied by `factor`, rounded up to a byte: for a device of another
    /// size. The header's results are those of the program as recorded.
    #[must_use]
    pub fn scaled(&self, factor: f64) -> Self {
        let mut scaled = self.clone();
        for event in &mut scaled.events {
            if let Event::Alloc { size, .. } = event
                && *size > 0
            {
                #[allow(
                    clippy::cast_precision_loss,
                    clippy::cast_possible_truncation,
                    clippy::cast_sign_loss
                )]
                let bytes = (*size as f64 * factor).ceil() as u64;
                *size = bytes.max(1);
            }
        }
        scaled
    }

    /// Reads the text of a trace to its end.
    pub(crate) fn from_plain(input: impl BufRead) -> Result<Self, TraceError> {
        let mut reader = TraceReader::from_plain(input)?;
        // The header's count is only a hint: it may be wrong, so it reserves no more than 24 MiB.
        let mut events = Vec::with_capacity(reader.header().events.unwrap_or(0).min(1 << 20) as usize);
        for event in &mut reader {
            events.push(event?);
        }
        Ok(Self { header: reader.into_header(), events })
    }

    /// Writes the trace, gzip'd.
    ///
    /// # Errors
    /// What `output` reports.
    pub fn write(&self, output: impl Write) -> io::Result<()> {
        let mut writer = TraceWriter::new(output, &self.header)?;
        for event in &self.events {
            writer.write(event)?;
        }
        writer.finish()?;
        Ok(())
    }

    /// Writes the trace as plain text.
    ///
    /// # Errors
    /// What `output` reports.
    pub fn write_plain(&self, output: impl Write) -> io::Result<()> {
        let mut lines = write::Lines::new(output, &self.header)?;
        for event in &self.events {
            lines.write(event)?;
        }
        lines.finish()?;
        Ok(())
    }

    /// Whether the file holds fewer events than its header says: it was cut, and figures of the header
    /// (peaks, native results) are those of the whole run.
    #[must_use]
    pub fn is_cut(&self) -> bool {
        self.header.events.is_some_and(|events| events > self.events.len() as u64)
    }

    /// Why a replay does not ask exactly what the program asked, as whoever made the trace says; for people. That it
    /// [lacks pools](Self::lacks_pools) is none of these.
    pub fn reasons(&self) -> impl Iterator<Item = &str> {
        self.all_reasons().filter(|reason| !reason.contains(MERGED_POOLS))
    }

    fn all_reasons(&self) -> impl Iterator<Item = &str> {
        let reasons = self.header.extra.get("reasons").and_then(|reasons| reasons.as_array());
        reasons.into_iter().flatten().filter_map(|reason| reason.as_str())
    }

    /// The version of its format, where it is a later one: what is new in it is not understood.
    #[must_use]
    pub fn later_format(&self) -> Option<&str> {
        self.header.format.as_deref().filter(|format| *format != FORMAT)
    }

    /// Whether its recording began after the program did.
    #[must_use]
    pub fn is_window(&self) -> bool {
        self.header.extra.get("recording").is_some_and(|about| about["window"] == true)
    }

    /// Whether the program may have held more than it tells: every peak is a lower bound.
    #[must_use]
    pub fn is_part(&self) -> bool {
        self.is_window() || self.is_cut() || self.lacks_pools()
    }

    /// Whether private pools served requests without a word in the trace, or may have: files of earlier versions.
    #[must_use]
    pub fn lacks_pools(&self) -> bool {
        let says = self.header.extra.contains_key("pools");
        let merges = self.all_reasons().any(|reason| reason.contains(MERGED_POOLS));
        let is_estimate = self.header.source.as_deref() == Some("granule estimate");
        !says && (merges || is_estimate && self.header.streams.is_some_and(|streams| streams > 1))
    }

    /// How many requests were refused when it was recorded, and the most that the process could have then.
    #[must_use]
    pub fn refusals(&self) -> (u64, Option<u64>) {
        let limits = self.events.iter().filter_map(|event| match event {
            Event::Refused { limit, .. } => Some(*limit),
            _ => None,
        });
        let (count, most) = limits.fold((0, 0), |(count, most), limit| (count + 1, most.max(limit)));
        (count, Some(most).filter(|most| *most > 0))
    }

    /// Fills the header's counts and sums (`events`, `allocs`, `streams`, `iterations`,
    /// `peak_live_requested`, `live_at_end`, `bytes_requested_in_all`) from the events.
    pub fn summarise(&mut self) {
        self.header.summarise(&self.events);
    }
}
