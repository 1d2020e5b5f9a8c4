//! History entries, which a long file has by the million.
//!
//! Whichever way an entry is read, its [`Parts`] decide what it becomes. The careful way leads through the
//! operations of [`super::machine`] one by one. The quick way, [`Quick`], reads a whole entry from the
//! bytes at hand and keeps nothing between; where an entry has anything unusual, it leaves everything as it
//! was and the careful way begins again at the same place.

use super::heap::{FIRST_KEY, Heap, MOST_KEYS, Parts, Val};
use super::memo::Memo;
use super::opcode;
use super::shape::Shape;
use crate::schema::Word;

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
