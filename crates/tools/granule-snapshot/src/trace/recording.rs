//! Writing a trace while its program runs, so that what is there can be read at any time, whatever happens to the program.
//!
//! The file is a row of gzip archives, which together are one trace: the header's comes first, padded and not packed, so
//! that it can be written anew in its place when the recording has ended and the figures are known. Until then it says
//! that the recording was not ended. The last archive grows: what was flushed can be read although its end is missing.

use super::write::push_line;
use super::{Event, TraceHeader};
use flate2::write::GzEncoder;
use flate2::{Compression, GzBuilder};
use serde_json::{Value, json};
use std::io::{self, Seek, SeekFrom, Write};

/// Bytes of text in an archive.
const CHUNK: usize = 1 << 18;
/// The header's line is as long as a multiple of this.
const HEADER_ROOM: usize = 4096;
/// The key in a header's `extra` under which the recording is described.
const KEY: &str = "recording";
/// The reason that the header of a recording has as long as it is not ended.
const NOT_ENDED: &str = "the recording was not ended (the program was killed, or still runs): what came after the last line is \
                         missing";

/// A trace that is being recorded.
#[derive(Debug)]
pub struct TraceRecording<W: Write + Seek> {
    output: W,
    header: TraceHeader,
    /// Bytes of the header's archive.
    header_bytes: usize,
    /// Lines that are not in the file.
    text: Vec<u8>,
    archive: Option<Archive>,
    bytes: u64,
}

/// The last archive, whose end is not in the file.
#[derive(Debug)]
struct Archive {
    encoder: GzEncoder<Vec<u8>>,
    text_bytes: usize,
}

impl<W: Write + Seek> TraceRecording<W> {
    /// Writes the header, with a note that the recording is not ended. `about` describes the recording for people and tools,
    /// as an object.
    ///
    /// # Errors
    /// What `output` reports.
    pub fn new(mut output: W, mut header: TraceHeader, about: Value) -> io::Result<Self> {
        header.format = Some(super::FORMAT.into());
        header.extra.insert(KEY.into(), about);
        let mut unfinished = header.clone();
        add_reason(&mut unfinished, NOT_ENDED);
        unfinished.extra[KEY]["ended"] = json!(false);
        let packed = pack_header(&unfinished)?;
        output.write_all(&packed)?;
        let (bytes, text) = (packed.len() as u64, Vec::with_capacity(CHUNK + 128));
        Ok(Self { output, header, header_bytes: packed.len(), text, archive: None, bytes })
    }

    /// Adds a line. It is in the file after the next [`flush`](Self::flush), or sooner.
    ///
    /// # Errors
    /// What the output reports.
    pub fn write(&mut self, event: &Event) -> io::Result<()> {
        push_line(&mut self.text, event)?;
        if self.text.len() >= CHUNK { self.flush() } else { Ok(()) }
    }

    /// Puts all lines into the file, in one write of whole lines. Whatever happens to the program then, they can be read.
    ///
    /// # Errors
    /// What the output reports.
    pub fn flush(&mut self) -> io::Result<()> {
        if self.text.is_empty() {
            return Ok(());
        }
        let mut archive = self.archive.take().unwrap_or_else(|| Archive {
            encoder: GzBuilder::new().mtime(0).write(Vec::with_capacity(CHUNK / 3), Compression::new(4)),
            text_bytes: 0,
        });
        archive.encoder.write_all(&self.text)?;
        archive.text_bytes += self.text.len();
        self.text.clear();
        if archive.text_bytes >= CHUNK {
            return self.put(&archive.encoder.finish()?);
        }
        archive.encoder.flush()?;
        let packed = std::mem::take(archive.encoder.get_mut());
        self.archive = Some(archive);
        self.put(&packed)
    }

    fn put(&mut self, packed: &[u8]) -> io::Result<()> {
        self.output.write_all(packed)?;
        self.output.flush()?;
        self.bytes += packed.len() as u64;
        Ok(())
    }

    /// Bytes written.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Ends the recording: `complete` puts the figures into the header.
    ///
    /// # Errors
    /// What the output reports.
    pub fn finish(mut self, complete: impl FnOnce(&mut TraceHeader, &mut Value)) -> io::Result<W> {
        self.flush()?;
        if let Some(archive) = self.archive.take() {
            self.put(&archive.encoder.finish()?)?;
        }
        let mut about = self.header.extra.get(KEY).cloned().unwrap_or_else(|| json!({}));
        complete(&mut self.header, &mut about);
        about["ended"] = json!(true);
        self.header.extra.insert(KEY.into(), about);
        let packed = pack_header(&self.header)?;
        // One that has outgrown its place stays as it was: the lines are what counts.
        if packed.len() == self.header_bytes {
            self.output.seek(SeekFrom::Start(0))?;
            self.output.write_all(&packed)?;
            self.output.seek(SeekFrom::End(0))?;
            self.output.flush()?;
        }
        Ok(self.output)
    }
}

/// Adds a reason why a replay does not ask exactly what the program asked.
pub fn add_reason(header: &mut TraceHeader, reason: &str) {
    header.extra.insert("exact".into(), false.into());
    let reasons = header.extra.entry("reasons").or_insert_with(|| json!([]));
    if let Some(reasons) = reasons.as_array_mut() {
        reasons.push(reason.into());
    }
}

/// Whether the header is of a recording that was not ended.
pub(super) fn is_unended(header: &TraceHeader) -> bool {
    header.extra.get(KEY).is_some_and(|about| about["ended"] == json!(false))
}

/// The header's line as an archive of its own, whose length depends on the room that the line takes alone.
fn pack_header(header: &TraceHeader) -> io::Result<Vec<u8>> {
    let mut line = b"# ".to_vec();
    serde_json::to_writer(&mut line, header)?;
    line.resize((line.len() + 1).next_multiple_of(HEADER_ROOM) - 1, b' ');
    line.push(b'\n');
    let mut encoder =
        GzBuilder::new().mtime(0).write(Vec::with_capacity(line.len() + 64), Compression::none());
    encoder.write_all(&line)?;
    encoder.finish()
}

#[cfg(test)]
mod tests {
    use super::super::Trace;
    use super::*;
    use std::io::Cursor;

    const EVENTS: [Event; 4] = [
        Event::Alloc { id: 0, size: 512, stream: 0 },
        Event::Iteration { n: 0 },
        Event::RecordStream { id: 0, stream: 1 },
        Event::Free { id: 0 },
    ];

    fn recorded(flushes: usize) -> TraceRecording<Cursor<Vec<u8>>> {
        let mut recording =
            TraceRecording::new(Cursor::new(Vec::new()), TraceHeader::default(), json!({"device": 3}))
                .unwrap();
        for (at, event) in EVENTS.iter().enumerate() {
            recording.write(event).unwrap();
            if at < flushes {
                recording.flush().unwrap();
            }
        }
        recording
    }

    #[test]
    fn an_ended_recording_is_a_trace_with_its_figures() {
        let output = recorded(2).finish(|header, about| {
            header.events = Some(4);
            about["waits"] = json!(7);
        });
        let trace = Trace::from_reader(output.unwrap().into_inner().as_slice()).unwrap();
        assert_eq!(trace.events, EVENTS);
        assert_eq!(trace.header.events, Some(4));
        let about = &trace.header.extra["recording"];
        assert_eq!(
            (&about["device"], &about["waits"], &about["ended"]),
            (&json!(3), &json!(7), &json!(true))
        );
        assert!(!trace.header.extra.contains_key("reasons"));
    }

    /// Wherever a program is killed, what was flushed can be read, and the header says that more is missing.
    #[test]
    fn a_recording_that_was_cut_anywhere_is_read_up_to_there() {
        let recording = recorded(3);
        let header = recording.header_bytes;
        let whole = recording.output.into_inner();
        let mut most = 0;
        for end in header..=whole.len() {
            let trace = Trace::from_reader(&whole[..end]).unwrap();
            assert_eq!(trace.events, EVENTS[..trace.events.len()]);
            assert!(trace.events.len() >= most);
            most = trace.events.len();
            assert_eq!(trace.header.extra["exact"], json!(false));
            assert!(trace.header.extra["reasons"][0].as_str().unwrap().contains("not ended"));
        }
        assert_eq!(most, 3, "the last line was never flushed");
        assert!(Trace::from_reader(&whole[..header / 2]).is_err(), "there is no header");
    }
}
