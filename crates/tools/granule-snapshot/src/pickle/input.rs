//! The bytes of a pickle, read in chunks, with their offsets.

use super::error::{Location, PickleError};
use super::opcode;
use std::io::{self, Read};

/// Bytes fetched at once. Memory is checked once a chunk.
const CHUNK: usize = 128 << 10;

pub(super) struct Input<R> {
    reader: R,
    buffer: Vec<u8>,
    position: usize,
    filled: usize,
    /// Offset of the buffer's first byte.
    base: u64,
    max_bytes: u64,
    /// The operation being carried out.
    pub(super) at: Location,
}

impl<R: Read> Input<R> {
    pub(super) fn new(reader: R, max_bytes: u64) -> Self {
        Self {
            reader,
            buffer: vec![0; CHUNK],
            position: 0,
            filled: 0,
            base: 0,
            max_bytes,
            at: Location { offset: 0, opcode: 0 },
        }
    }

    /// Offset of the next byte.
    pub(super) fn offset(&self) -> u64 {
        self.base + self.position as u64
    }

    /// Whether fewer than `count` bytes are at hand, so that [`Input::fill`] should be called.
    pub(super) fn is_low(&self, count: usize) -> bool {
        self.filled - self.position < count
    }

    /// The bytes at hand.
    pub(super) fn at_hand(&self) -> &[u8] {
        &self.buffer[self.position..self.filled]
    }

    /// Passes over some of the bytes at hand.
    pub(super) fn skip(&mut self, count: usize) {
        self.position += count;
    }

    /// Moves what is left to the front and reads on, until the buffer is full or the input ends.
    pub(super) fn fill(&mut self) -> Result<(), PickleError> {
        self.buffer.copy_within(self.position..self.filled, 0);
        self.base += self.position as u64;
        self.filled -= self.position;
        self.position = 0;
        while self.filled < self.buffer.len() {
            match self.reader.read(&mut self.buffer[self.filled..]) {
                Ok(0) => break,
                Ok(count) => self.filled += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(PickleError::from_io(self.base + self.filled as u64, error)),
            }
        }
        if self.base + self.filled as u64 > self.max_bytes {
            return Err(PickleError::Limit {
                offset: self.offset(),
                what: format!("the pickle is longer than {} bytes", self.max_bytes),
            });
        }
        Ok(())
    }

    pub(super) fn truncated(&self) -> PickleError {
        PickleError::Truncated { at: self.at, end: self.base + self.filled as u64 }
    }

    pub(super) fn malformed(&self, what: impl Into<String>) -> PickleError {
        if self.at.offset == 0 && self.at.opcode != opcode::PROTO {
            // Nothing sensible came before: most likely a file of another kind.
            return PickleError::NotAPickle { at: self.at };
        }
        PickleError::Malformed { at: self.at, what: what.into() }
    }

    /// The next operation.
    pub(super) fn opcode(&mut self) -> Result<u8, PickleError> {
        self.at = Location { offset: self.offset(), opcode: 0 };
        let opcode = self.byte()?;
        self.at.opcode = opcode;
        Ok(opcode)
    }

    #[inline]
    pub(super) fn byte(&mut self) -> Result<u8, PickleError> {
        Ok(self.array::<1>()?[0])
    }

    /// Four bytes, the lowest first.
    #[inline]
    pub(super) fn word(&mut self) -> Result<u32, PickleError> {
        self.array().map(u32::from_le_bytes)
    }

    #[inline]
    pub(super) fn array<const N: usize>(&mut self) -> Result<[u8; N], PickleError> {
        if let Some(bytes) = self.buffer[self.position..self.filled].first_chunk::<N>() {
            self.position += N;
            return Ok(*bytes);
        }
        self.fill()?;
        let bytes = *self.buffer[..self.filled].first_chunk::<N>().ok_or_else(|| self.truncated())?;
        self.position = N;
        Ok(bytes)
    }

    /// Hands `count` bytes to `take`. Long runs are collected piece by piece, so that a wrong length costs
    /// no more memory than the input has bytes.
    pub(super) fn bytes<T>(&mut self, count: u64, take: impl FnOnce(&[u8]) -> T) -> Result<T, PickleError> {
        if count > (self.filled - self.position) as u64 {
            self.fill()?;
        }
        if let Some(count) = usize::try_from(count).ok().filter(|&count| count <= self.filled - self.position)
        {
            let result = take(&self.buffer[self.position..self.position + count]);
            self.position += count;
            return Ok(result);
        }
        let mut whole = Vec::new();
        let mut missing = count;
        loop {
            let piece = (self.filled - self.position).min(usize::try_from(missing).unwrap_or(usize::MAX));
            whole.extend_from_slice(&self.buffer[self.position..self.position + piece]);
            self.position += piece;
            missing -= piece as u64;
            if missing == 0 {
                return Ok(take(&whole));
            }
            self.fill()?;
            if self.filled == 0 {
                return Err(self.truncated());
            }
        }
    }

    /// Hands the rest of the line to `take`, without its end.
    pub(super) fn line<T>(&mut self, take: impl FnOnce(&[u8]) -> T) -> Result<T, PickleError> {
        let mut whole = Vec::new();
        loop {
            let available = &self.buffer[self.position..self.filled];
            if let Some(end) = available.iter().position(|&byte| byte == b'\n') {
                let piece = &available[..end];
                self.position += end + 1;
                if whole.is_empty() {
                    return Ok(take(piece));
                }
                whole.extend_from_slice(piece);
                return Ok(take(&whole));
            }
            whole.extend_from_slice(available);
            self.position = self.filled;
            self.fill()?;
            if self.filled == 0 {
                return Err(self.truncated());
            }
        }
    }
}
