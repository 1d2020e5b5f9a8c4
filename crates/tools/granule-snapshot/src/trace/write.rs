//! Writing a trace.

use super::{Event, TraceHeader};
use flate2::{Compression, GzBuilder, write::GzEncoder};
use std::io::{self, Write};

/// Bytes collected before they go to the output.
const BUFFER: usize = 1 << 16;

/// Writes a gzip'd trace event by event. The same events give the same bytes: no time is put into the file.
///
/// [`TraceWriter::finish`] must be called, or the file stays incomplete.
#[derive(Debug)]
pub struct TraceWriter<W: Write>(Lines<GzEncoder<W>>);

impl<W: Write> TraceWriter<W> {
    /// Writes the header line.
    ///
    /// # Errors
    /// What `output` reports.
    pub fn new(output: W, header: &TraceHeader) -> io::Result<Self> {
        let encoder = GzBuilder::new().mtime(0).write(output, Compression::best());
        Ok(Self(Lines::new(encoder, header)?))
    }

    /// Adds a line.
    ///
    /// # Errors
    /// What the output reports.
    pub fn write(&mut self, event: &Event) -> io::Result<()> {
        self.0.write(event)
    }

    /// Completes the archive and gives the output back.
    ///
    /// # Errors
    /// What the output reports.
    pub fn finish(self) -> io::Result<W> {
        let mut output = self.0.finish()?.finish()?;
        output.flush()?;
        Ok(output)
    }
}

/// The text of a trace, line by line.
#[derive(Debug)]
pub(super) struct Lines<W: Write> {
    output: W,
    buffer: Vec<u8>,
}

impl<W: Write> Lines<W> {
    pub(super) fn new(output: W, header: &TraceHeader) -> io::Result<Self> {
        let mut buffer = Vec::with_capacity(BUFFER + 128);
        buffer.extend_from_slice(b"# ");
        serde_json::to_writer(&mut buffer, header)?;
        buffer.push(b'\n');
        Ok(Self { output, buffer })
    }

    pub(super) fn write(&mut self, event: &Event) -> io::Result<()> {
        push_line(&mut self.buffer, event)?;
        if self.buffer.len() >= BUFFER {
            self.output.write_all(&self.buffer)?;
            self.buffer.clear();
        }
        Ok(())
    }

    /// Hands on what is left and gives the output back.
    pub(super) fn finish(mut self) -> io::Result<W> {
        self.output.write_all(&self.buffer)?;
        self.output.flush()?;
        Ok(self.output)
    }
}

/// The event's line.
pub(super) fn push_line(line: &mut Vec<u8>, event: &Event) -> io::Result<()> {
    match *event {
        Event::Alloc { id, size, stream } => writeln!(line, "a {id} {size} {stream}"),
        Event::Free { id } => writeln!(line, "f {id}"),
        Event::RecordStream { id, stream } => writeln!(line, "r {id} {stream}"),
        Event::EmptyCache => line.write_all(b"e\n"),
        Event::Iteration { n } => writeln!(line, "i {n}"),
        Event::Refused { id, limit } => writeln!(line, "x {id} {limit}"),
        Event::Pool { pool } => writeln!(line, "p {pool}"),
        Event::PoolEnds { pool } => writeln!(line, "q {pool}"),
        Event::EmptyPool { pool } => writeln!(line, "e {pool}"),
    }
}
