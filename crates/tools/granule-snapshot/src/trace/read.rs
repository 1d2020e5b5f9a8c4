//! Reading a trace as a stream.

use super::recording::is_unended;
use super::{Event, TraceError, TraceHeader};
use crate::Input;
use crate::pickle::Limits;
use rustc_hash::FxHashSet;
use std::io::{BufRead, BufReader, Read};

/// Longest event line in bytes. The longest sensible one has 50.
const MAX_LINE: usize = 64 << 10;
/// Longest header line in bytes.
const MAX_HEADER: usize = 16 << 20;

/// An iterator over a trace's events that checks each one: numbers are numbers, ids rise, only live blocks
/// are given back or recorded. After an error it ends.
///
/// Memory: a line, and 8 bytes or so for every live block.
#[derive(Debug)]
pub struct TraceReader<B> {
    input: B,
    header: TraceHeader,
    line: u64,
    events: u64,
    last_id: Option<u64>,
    live: FxHashSet<u64>,
    /// A line that lies across two fills of the input's buffer.
    carry: Vec<u8>,
    done: bool,
}

impl<'r> TraceReader<BufReader<Input<'r>>> {
    /// Starts on any input, gzip'd or plain, and reads the header.
    ///
    /// # Errors
    /// The input cannot be read, or its first line is not a header.
    pub fn new(reader: impl Read + 'r) -> Result<Self, TraceError> {
        let input =
            Input::new(reader, &Limits::default()).map_err(|source| TraceError::from_io(1, source))?;
        Self::from_plain(BufReader::with_capacity(1 << 16, input))
    }
}

impl<B: BufRead> TraceReader<B> {
    /// Starts on text that is already unpacked.
    ///
    /// # Errors
    /// The input cannot be read, or its first line is not a header.
    pub fn from_plain(input: B) -> Result<Self, TraceError> {
        let mut reader = Self {
            input,
            header: TraceHeader::default(),
            line: 0,
            events: 0,
            last_id: None,
            live: FxHashSet::default(),
            carry: Vec::new(),
            done: false,
        };
        let header = reader
            .next_line(MAX_HEADER, |line, _| parse_header(line))
            .transpose()?
            .unwrap_or_else(|| Err(TraceError::Header { reason: "the file is empty".into() }));
        reader.header = header?;
        reader.carry = Vec::new();
        Ok(reader)
    }

    /// What the first line says.
    #[must_use]
    pub fn header(&self) -> &TraceHeader {
        &self.header
    }

    /// Gives the header away.
    #[must_use]
    pub fn into_header(self) -> TraceHeader {
        self.header
    }

    /// The line of the last event, from 1 (the header).
    #[must_use]
    pub fn line(&self) -> u64 {
        self.line
    }

    /// Hands the next line, without its end, to `parse`; the flag says whether it ended with a newline.
    /// `None` at the end of the input. The line stays in the input's buffer unless it lies across two fills.
    fn next_line<T>(
        &mut self,
        limit: usize,
        parse: impl FnOnce(&[u8], bool) -> T,
    ) -> Option<Result<T, TraceError>> {
        self.carry.clear();
        self.line += 1;
        let mut parse = Some(parse);
        loop {
            let available = match self.input.fill_buf() {
                Ok(bytes) => bytes,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
                Err(error) => return Some(Err(TraceError::from_io(self.line, error))),
            };
            let end = memchr::memchr(b'\n', available);
            let piece = &available[..end.unwrap_or(available.len())];
            if self.carry.len() + piece.len() > limit {
                return Some(Err(TraceError::LineTooLong { line: self.line, limit }));
            }
            let complete = end.is_some();
            if complete || available.is_empty() {
                if !complete && self.carry.is_empty() {
                    return None;
                }
                let consumed = piece.len() + usize::from(complete);
                let parse = parse.take()?;
                let result = if self.carry.is_empty() {
                    parse(trim(piece), complete)
                } else {
                    self.carry.extend_from_slice(piece);
                    parse(trim(&self.carry), complete)
                };
                self.input.consume(consumed);
                return Some(Ok(result));
            }
            let consumed = piece.len();
            self.carry.extend_from_slice(piece);
            self.input.consume(consumed);
        }
    }

    fn next_event(&mut self) -> Option<Result<Event, TraceError>> {
        loop {
            let parsed = self.next_line(MAX_LINE, |text, complete| {
                if text.is_empty() {
                    return Ok(None);
                }
                parse_event(text).map(|event| Some((event, complete))).map_err(|reason| {
                    let shown = &text[..text.len().min(60)];
                    (reason, String::from_utf8_lossy(shown).into_owned(), complete)
                })
            })?;
            let line = self.line;
            return Some(match parsed {
                Err(error) => Err(error),
                Ok(Ok(None)) => continue,
                Ok(Ok(Some((event, complete)))) => {
                    self.events += 1;
                    self.check_cut(complete).and_then(|()| self.check_order(event)).map(|()| event)
                }
                Ok(Err((reason, text, complete))) => {
                    let cut = self.check_cut(complete);
                    Err(cut.err().unwrap_or(TraceError::BadLine { line, reason, text }))
                }
            });
        }
    }

    /// A last line without newline in a file with too few events was cut: its numbers may lack digits.
    fn check_cut(&self, complete: bool) -> Result<(), TraceError> {
        match self.header.events {
            Some(expected) if !complete && self.events < expected => {
                Err(TraceError::TruncatedLine { line: self.line, found: self.events, expected })
            }
            _ => Ok(()),
        }
    }

    fn check_order(&mut self, event: Event) -> Result<(), TraceError> {
        let reason = match event {
            Event::Alloc { id, .. } => match self.last_id {
                Some(last) if id <= last => format!(
                    "request {id} comes after request {last}: ids must rise and are never reused; \
                     renumber the requests in file order"
                ),
                _ => {
                    self.last_id = Some(id);
                    self.live.insert(id);
                    return Ok(());
                }
            },
            Event::Free { id } | Event::Refused { id, .. } if !self.live.remove(&id) => {
                self.not_live(id, "given back")
            }
            Event::RecordStream { id, .. } if !self.live.contains(&id) => self.not_live(id, "recorded"),
            _ => return Ok(()),
        };
        Err(TraceError::BadOrder { line: self.line, reason })
    }

    fn not_live(&self, id: u64, what: &str) -> String {
        if self.last_id.is_some_and(|last| id <= last) {
            format!(
                "block {id} is {what}, but it is not live here (given back before, or never requested); \
                     remove the line"
            )
        } else {
            format!(
                "block {id} is {what} before any line requests it; \
                     the trace's beginning is missing, or remove the line"
            )
        }
    }
}

impl<B: BufRead> Iterator for TraceReader<B> {
    type Item = Result<Event, TraceError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.done {
            return None;
        }
        let mut item = self.next_event();
        // A program that was killed while it wrote: what it had written before is whole.
        if matches!(item, Some(Err(TraceError::TruncatedGzip { .. }))) && is_unended(&self.header) {
            item = None;
        }
        self.done = !matches!(item, Some(Ok(_)));
        item
    }
}

/// Takes a carriage return from the end.
fn trim(line: &[u8]) -> &[u8] {
    line.strip_suffix(b"\r").unwrap_or(line)
}

fn parse_header(line: &[u8]) -> Result<TraceHeader, TraceError> {
    let reason = match line {
        [b'#', json @ ..] => match serde_json::from_slice(json) {
            Ok(header) => return Ok(header),
            Err(error) => format!("the header is not what it should be: {error}"),
        },
        [0x80, ..] => "this is a pickle, not a trace; convert the snapshot to a trace first".into(),
        _ => "no header".into(),
    };
    Err(TraceError::Header { reason })
}

/// One line; the error says what was expected.
fn parse_event(line: &[u8]) -> Result<Event, String> {
    let (event, rest) = match line {
        [b'a', b' ', rest @ ..] => {
            let (id, rest) = number(rest, "the id", true)?;
            let (size, rest) = number(rest, "the size", true)?;
            let (stream, rest) = small(rest, "stream")?;
            if size == 0 {
                return Err(
                    "a request of 0 bytes never reaches an allocator; remove the line and its 'f'".into()
                );
            }
            (Event::Alloc { id, size, stream }, rest)
        }
        [b'f', b' ', rest @ ..] => {
            let (id, rest) = number(rest, "the id", false)?;
            (Event::Free { id }, rest)
        }
        [b'r', b' ', rest @ ..] => {
            let (id, rest) = number(rest, "the id", true)?;
            let (stream, rest) = small(rest, "stream")?;
            (Event::RecordStream { id, stream }, rest)
        }
        [b'i', b' ', rest @ ..] => {
            let (n, rest) = number(rest, "the iteration", false)?;
            (Event::Iteration { n }, rest)
        }
        [b'x', b' ', rest @ ..] => {
            let (id, rest) = number(rest, "the id", true)?;
            let (limit, rest) = number(rest, "the limit", false)?;
            (Event::Refused { id, limit }, rest)
        }
        [which @ (b'p' | b'q' | b'e'), b' ', rest @ ..] => {
            let (pool, rest) = small(rest, "pool")?;
            let event = match which {
                b'p' => Event::Pool { pool },
                b'q' => Event::PoolEnds { pool },
                _ => Event::EmptyPool { pool },
            };
            (event, rest)
        }
        [b'e', rest @ ..] => (Event::EmptyCache, rest),
        _ => {
            return Err(
                "not an event; expected 'a ID SIZE STREAM', 'f ID', 'r ID STREAM', 'e', 'i N', 'x ID LIMIT', 'p POOL', 'q POOL' \
                 or 'e POOL'"
                    .into()
            );
        }
    };
    if rest.is_empty() { Ok(event) } else { Err("something follows the event".into()) }
}

/// The number of a stream or pool.
fn small<'t>(text: &'t [u8], what: &str) -> Result<(u32, &'t [u8]), String> {
    let (value, rest) = number(text, &format!("the {what}"), false)?;
    let value = u32::try_from(value)
        .map_err(|_| format!("the {what} number does not fit 32 bits; number {what}s from 0"))?;
    Ok((value, rest))
}

/// So many digits fit 64 bits, whatever they are.
const CERTAIN: usize = 19;

/// A decimal number; with `more`, also the space after it.
#[inline(always)]
fn number<'t>(text: &'t [u8], what: &str, more: bool) -> Result<(u64, &'t [u8]), String> {
    let mut value = 0u64;
    let mut digits = 0;
    for &byte in text {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            break;
        }
        value = value.wrapping_mul(10).wrapping_add(u64::from(digit));
        digits += 1;
    }
    let rest = &text[digits..];
    match rest {
        [b' ', rest @ ..] if more && (1..=CERTAIN).contains(&digits) => Ok((value, rest)),
        [] if !more && (1..=CERTAIN).contains(&digits) => Ok((value, rest)),
        _ => unusual_number(text, what, more, digits),
    }
}

/// A long number, or none.
#[cold]
#[inline(never)]
fn unusual_number<'t>(
    text: &'t [u8],
    what: &str,
    more: bool,
    digits: usize,
) -> Result<(u64, &'t [u8]), String> {
    let (number, rest) = text.split_at(digits);
    let add = |value: u64, byte: &u8| value.checked_mul(10)?.checked_add(u64::from(byte - b'0'));
    let Some(value) = number.iter().try_fold(0, add) else {
        return Err(format!("{what} does not fit 64 bits"));
    };
    match rest {
        _ if digits == 0 && rest.is_empty() => Err(format!("{what} is missing")),
        _ if digits == 0 => Err(format!("{what} is not a number")),
        [b' ', rest @ ..] if more => Ok((value, rest)),
        [] if more => Err(format!("the line ends after {what}")),
        [] => Ok((value, rest)),
        _ => Err(format!("{what} is not a number")),
    }
}
