//! History entries, which a long file has by the million.
//!
//! Whichever way an entry is read, [`Parts`] decides what it becomes. The careful way leads through the
//! operations of [`super::machine`] one by one. The quick way, [`Quick`], reads a whole entry from the
//! bytes at hand and keeps nothing between; where an entry has anything unusual, it leaves everything as it
//! was and the careful way begins again at the same place.

use super::heap::{Heap, Val};
use super::labels;
use super::memo::Memo;
use super::opcode;
use super::shape::Shape;
use crate::schema::Word;
use alloc_core::snapshot::{Action, TraceEntry};

/// What an entry begins with, in every writer's files.
pub(super) const FIRST_KEY: Val = Val::Text(Word::Action as u32);

/// Picklers set at most this many keys at a time; after so many, more may follow.
pub(super) const MOST_KEYS: usize = 1000;

/// What is known of an entry.
#[derive(Default)]
pub(super) struct Parts {
    action: Option<Action>,
    addr: Option<u64>,
    device_free: Option<u64>,
    size: Option<u64>,
    stream: Option<u64>,
    time_us: Option<i64>,
    labels: labels::Key,
    frames: Option<Val>,
}

impl Parts {
    /// Takes a key and its value; `None` for anything unusual.
    #[inline]
    pub(super) fn set(&mut self, heap: &Heap, key: Val, value: Val) -> Option<()> {
        let Val::Text(key) = key else { return None };
        match Word::from_id(key)? {
            Word::Action => self.action = Some(heap.action(value)?),
            Word::Addr => self.addr = Some(value.unsigned()?),
            Word::DeviceFree => self.device_free = Some(value.unsigned()?),
            Word::Size => self.size = Some(value.unsigned()?),
            Word::Stream => self.stream = Some(value.unsigned()?),
            Word::TimeUs => self.time_us = Some(value.signed()?),
            Word::CompileContext => self.labels.compile_context = Some(value.text()?),
            Word::UserMetadata => self.labels.user_metadata = Some(value.text()?),
            Word::PoolId => self.labels.pool_id = Some(value.pair()?),
            Word::Frames => self.frames = Some(value),
            _ => return None,
        }
        Some(())
    }

    /// Adds the entry to the heap's; `None` if it lacks a part or has one too many. A list becomes a call
    /// stack only here, when nothing else can be unusual any more.
    #[inline]
    pub(super) fn finish(self, heap: &mut Heap) -> Option<()> {
        let action = self.action?;
        let addr = match (self.addr, self.device_free) {
            (Some(addr), None) if action != Action::Oom => addr,
            (None, Some(free)) if action == Action::Oom => free,
            _ => return None,
        };
        let (size, stream, time_us) = (self.size?, self.stream?, self.time_us?);
        let frames = match self.frames {
            Some(list) => Some(heap.stack(list)?),
            None => None,
        };
        let labels = heap.labels(self.labels);
        heap.add_entry(|| TraceEntry { action, addr, size, stream, time_us, labels, frames });
        Some(())
    }
}

/// The quick way, over the bytes that follow the EMPTY_DICT of what may be an entry.
pub(super) struct Quick<'m> {
    pub(super) rest: &'m [u8],
    pub(super) heap: &'m mut Heap,
    pub(super) memo: &'m mut Memo,
    /// That of an entry before, which is tried first.
    pub(super) shape: &'m mut Option<Shape>,
}

impl Quick<'_> {
    /// Reads an entry up to its SETITEMS and adds it to the heap's; gives the number of bytes taken. The
    /// memo's indexes must be in proportion to the offset, as [`super::machine`] checks.
    #[inline]
    pub(super) fn entry(self) -> Option<usize> {
        if let Some(shape) = &*self.shape
            && let Some(length) = shape.read(self.rest, self.heap, self.memo)
        {
            return Some(length);
        }
        self.entry_of_any_shape()
    }

    fn entry_of_any_shape(mut self) -> Option<usize> {
        let bytes = self.rest;
        let stored = self.memo.mark();
        let Some(has_shape) = self.new_entry() else {
            self.memo.reset(stored);
            return None;
        };
        let length = bytes.len() - self.rest.len();
        if has_shape
            && let Some(entry) = self.heap.entries.last()
            && let Some(shape) = Shape::of(bytes, length, entry, self.memo.since(stored), self.memo)
        {
            *self.shape = Some(shape);
        }
        Some(length)
    }

    /// Adds the entry; tells whether it may have a [`Shape`].
    fn new_entry(&mut self) -> Option<bool> {
        let mut has_shape = true;
        self.store(self.heap.next_entry(), &mut has_shape)?;
        self.rest = self.rest.strip_prefix(&[opcode::MARK])?;
        let mut parts = Parts::default();
        for number in 0..MOST_KEYS {
            if let [opcode::SETITEMS, rest @ ..] = self.rest {
                self.rest = rest;
                parts.finish(self.heap)?;
                return Some(has_shape);
            }
            let key = self.value(&mut has_shape)?;
            if number == 0 && key != FIRST_KEY {
                return None;
            }
            let Val::Text(id) = key else { return None };
            has_shape &= Shape::has_key(number, Word::from_id(id)?);
            let value = self.value(&mut has_shape)?;
            parts.set(self.heap, key, value)?;
        }
        None
    }

    /// A value of a kind that entries have.
    #[inline(always)]
    fn value(&mut self, has_shape: &mut bool) -> Option<Val> {
        Some(match *self.rest {
            [opcode::BINGET, index, ref rest @ ..] => {
                self.rest = rest;
                self.memo.get(index.into())?
            }
            [opcode::LONG_BINGET, a, b, c, d, ref rest @ ..] => {
                self.rest = rest;
                self.memo.get(u32::from_le_bytes([a, b, c, d]).into())?
            }
            // A pool, which is the only thing in an entry that begins with two numbers.
            [opcode::BININT1, first, opcode::BININT1, second, opcode::TUPLE2, ref rest @ ..] => {
                self.rest = rest;
                let pool = Val::Pair(first.into(), second.into());
                self.store(pool, has_shape)?;
                pool
            }
            [opcode::BININT1, number, ref rest @ ..] => {
                self.rest = rest;
                Val::Int(number.into())
            }
            [opcode::BININT2, a, b, ref rest @ ..] => {
                self.rest = rest;
                Val::Int(u16::from_le_bytes([a, b]).into())
            }
            [opcode::BININT, a, b, c, d, ref rest @ ..] => {
                self.rest = rest;
                Val::Int(i32::from_le_bytes([a, b, c, d]).into())
            }
            [opcode::LONG1, length @ 1..=8, ref rest @ ..] => {
                let unused = 64 - 8 * u32::from(length);
                let number = i64::from_le_bytes(*rest.first_chunk()?) << unused >> unused;
                self.rest = &rest[usize::from(length)..];
                Val::Int(number)
            }
            [opcode::SHORT_BINUNICODE, length, ref rest @ ..] => {
                let (text, rest) = rest.split_at_checked(length.into())?;
                self.rest = rest;
                let text = Val::Text(self.heap.text_from(text));
                self.store(text, has_shape)?;
                text
            }
            _ => return None,
        })
    }

    /// Stores a value if the next operation does so, under the next free index as all writers do. An index
    /// that is written out differs from entry to entry, which then have no common shape.
    #[inline(always)]
    fn store(&mut self, value: Val, has_shape: &mut bool) -> Option<()> {
        let (index, rest) = match *self.rest {
            [opcode::MEMOIZE, ref rest @ ..] => (self.memo.stored() as u64, rest),
            [opcode::BINPUT, index, ref rest @ ..] => {
                *has_shape = false;
                (index.into(), rest)
            }
            [opcode::LONG_BINPUT, a, b, c, d, ref rest @ ..] => {
                *has_shape = false;
                (u32::from_le_bytes([a, b, c, d]).into(), rest)
            }
            _ => return Some(()),
        };
        self.rest = rest;
        self.memo.push_at(index, value)
    }
}
