//! History entries, which a long file has by the million.
//!
//! Whichever way an entry is read, [`Parts`] decides what it becomes. The careful way leads through the
//! operations of [`super::machine`] one by one. The quick way, [`Quick`], reads a whole entry from the
//! bytes at hand and keeps nothing between; where an entry has anything unusual, it leaves everything as it
//! was and the careful way begins again at the same place.

use super::heap::{Heap, Val};
use super::memo::Memo;
use super::opcode;
use super::room;
use crate::schema::Word;
use alloc_core::snapshot::{Action, TraceEntry};
use alloc_core::types::PoolId;
use std::sync::Arc;

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
    compile_context: Option<Arc<str>>,
    user_metadata: Option<Arc<str>>,
    pool_id: Option<PoolId>,
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
            Word::CompileContext => self.compile_context = Some(heap.shared(value)?),
            Word::UserMetadata => self.user_metadata = Some(heap.shared(value)?),
            Word::PoolId => self.pool_id = Some(value.pair()?),
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
        room::make(&mut heap.entries, 1);
        heap.entries.push(TraceEntry {
            action,
            addr,
            size,
            stream,
            time_us,
            compile_context: self.compile_context,
            user_metadata: self.user_metadata,
            pool_id: self.pool_id,
            frames,
            extra: Vec::new(),
        });
        Some(())
    }
}

/// The quick way, over the bytes that follow the EMPTY_DICT of what may be an entry.
pub(super) struct Quick<'m> {
    pub(super) rest: &'m [u8],
    pub(super) heap: &'m mut Heap,
    pub(super) memo: &'m mut Memo,
}

impl Quick<'_> {
    /// Reads an entry up to its SETITEMS; gives it as a value and the number of bytes taken. The memo's
    /// indexes must be in proportion to the offset, as [`super::machine`] checks.
    #[inline]
    pub(super) fn entry(mut self) -> Option<(Val, usize)> {
        let length = self.rest.len();
        let stored = self.memo.mark();
        match self.new_entry() {
            Some(value) => Some((value, length - self.rest.len())),
            None => {
                self.memo.reset(stored);
                None
            }
        }
    }

    #[inline]
    fn new_entry(&mut self) -> Option<Val> {
        let value = self.heap.next_entry();
        self.store(value)?;
        self.rest = self.rest.strip_prefix(&[opcode::MARK])?;
        let mut parts = Parts::default();
        for number in 0..MOST_KEYS {
            if let [opcode::SETITEMS, rest @ ..] = self.rest {
                self.rest = rest;
                parts.finish(self.heap)?;
                return Some(value);
            }
            let key = self.value()?;
            if number == 0 && key != FIRST_KEY {
                return None;
            }
            let value = self.value()?;
            parts.set(self.heap, key, value)?;
        }
        None
    }

    /// A value of a kind that entries have.
    #[inline(always)]
    fn value(&mut self) -> Option<Val> {
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
                self.store(pool)?;
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
                self.store(text)?;
                text
            }
            _ => return None,
        })
    }

    /// Stores a value if the next operation does so, under the next free index as all writers do.
    #[inline(always)]
    fn store(&mut self, value: Val) -> Option<()> {
        let (index, rest) = match *self.rest {
            [opcode::MEMOIZE, ref rest @ ..] => (self.memo.stored() as u64, rest),
            [opcode::BINPUT, index, ref rest @ ..] => (index.into(), rest),
            [opcode::LONG_BINPUT, a, b, c, d, ref rest @ ..] => {
                (u32::from_le_bytes([a, b, c, d]).into(), rest)
            }
            _ => return Some(()),
        };
        self.rest = rest;
        self.memo.push_at(index, value)
    }
}
