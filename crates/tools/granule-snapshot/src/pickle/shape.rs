//! What stays the same from one history entry to the next.
//!
//! Writers give all entries the same keys in the same order, so most bytes of an entry are those of the one
//! before. A [`Shape`] knows them; an entry that has it is four numbers and an action.

use super::heap::Heap;
use super::memo::{Memo, Slot};
use super::opcode;
use crate::schema::Word;
use alloc_core::snapshot::{Action, Labels, TraceEntry};
use std::sync::Arc;

/// The longest rest, from the key after the numbers to SETITEMS.
const REST: usize = 64;

/// More than the longest entry of a shape: a start, an action, four keys with numbers and a rest.
const LONGEST: usize = 4 + 2 + 4 * (2 + 10) + REST;

/// Most values that the rest of an entry stores in the memo: a context, metadata and a pool.
const STORES: usize = 3;

/// An entry is `start action key addr key size key stream key time rest`.
#[derive(Clone, Debug)]
pub(super) struct Shape {
    /// From behind EMPTY_DICT to the key of the action: a store if there is one, MARK, BINGET, index.
    start: [u8; 4],
    stores_itself: bool,
    /// A BINGET of each number's key.
    keys: [[u8; 2]; 4],
    /// Zero beyond its length.
    rest: [u8; REST],
    rest_mask: [u8; REST],
    rest_length: usize,
    /// What the rest stores.
    stores: [Slot; STORES],
    stores_length: usize,
    /// What the rest means.
    labels: Arc<Labels>,
    /// The memo's state in which all of this holds.
    rewrites: u64,
}

impl Shape {
    /// Whether entries of a shape have a key at that place.
    pub(super) fn has_key(place: usize, key: Word) -> bool {
        match place {
            0 => key == Word::Action,
            1 => key == Word::Addr,
            2 => key == Word::Size,
            3 => key == Word::Stream,
            4 => key == Word::TimeUs,
            _ => matches!(key, Word::CompileContext | Word::UserMetadata | Word::PoolId),
        }
    }

    /// The shape of an entry that was just read from the first `length` of `bytes`, which follow its
    /// EMPTY_DICT; `None` if it has none. Its keys must be those of [`Shape::has_key`]; `stores` is what it
    /// stored, by MEMOIZE only.
    pub(super) fn of(
        bytes: &[u8],
        length: usize,
        entry: &TraceEntry,
        stores: &[Slot],
        memo: &Memo,
    ) -> Option<Self> {
        let stores_itself = bytes.first() == Some(&opcode::MEMOIZE);
        let start = usize::from(stores_itself) + 3;
        let [opcode::MARK, opcode::BINGET, _, opcode::BINGET, _] = *bytes.get(start - 3..)?.first_chunk()?
        else {
            return None;
        };
        let mut position = start + 2;
        let mut keys = [[0; 2]; 4];
        for key in &mut keys {
            *key = *bytes.get(position..)?.first_chunk()?;
            let (_, length) = number(bytes.get(position + 2..)?)?;
            if key[0] != opcode::BINGET {
                return None;
            }
            position += 2 + length;
        }
        let tail = bytes.get(position..length)?;
        let stores = stores.get(usize::from(stores_itself)..)?;
        if tail.len() > REST || stores.len() > STORES {
            return None;
        }
        let mut shape = Self {
            start: [0; 4],
            stores_itself,
            keys,
            rest: [0; REST],
            rest_mask: [0; REST],
            rest_length: tail.len(),
            stores: [Slot::Empty; STORES],
            stores_length: stores.len(),
            labels: Arc::clone(&entry.labels),
            rewrites: memo.rewrites(),
        };
        shape.start[..start].copy_from_slice(bytes.get(..start)?);
        shape.rest[..tail.len()].copy_from_slice(tail);
        shape.rest_mask[..tail.len()].fill(0xff);
        shape.stores[..stores.len()].copy_from_slice(stores);
        Some(shape)
    }

    /// Reads an entry of this shape from behind its EMPTY_DICT and adds it; gives the number of bytes taken.
    /// `None` for any other, with nothing changed.
    #[inline]
    pub(super) fn read(&self, bytes: &[u8], heap: &mut Heap, memo: &mut Memo) -> Option<usize> {
        let bytes: &[u8; LONGEST] = bytes.first_chunk()?;
        let mut position = 3 + usize::from(self.stores_itself);
        let mut start: [u8; 4] = *bytes.first_chunk()?;
        if !self.stores_itself {
            start[3] = 0;
        }
        let [get, action] = *bytes[position..].first_chunk()?;
        if start != self.start || get != opcode::BINGET || self.rewrites != memo.rewrites() {
            return None;
        }
        let action = heap.action(memo.get(action.into())?)?;
        position += 2;
        // One by one, so that they stay in registers.
        let [addr_key, size_key, stream_key, time_key] = self.keys;
        let (addr, position) = value_of(addr_key, bytes, position)?;
        let (size, position) = value_of(size_key, bytes, position)?;
        let (stream, position) = value_of(stream_key, bytes, position)?;
        let (time_us, position) = value_of(time_key, bytes, position)?;
        let rest: &[u8; REST] = bytes.get(position..)?.first_chunk()?;
        let differs = (0..REST)
            .fold(0, |differs, index| differs | ((rest[index] ^ self.rest[index]) & self.rest_mask[index]));
        if differs != 0 || addr | size | stream < 0 || action == Action::Oom {
            return None;
        }
        let stores = self.stores.get(..self.stores_length)?;
        memo.memoize(self.stores_itself.then(|| heap.next_entry()), stores)?;
        let labels = Arc::clone(&self.labels);
        heap.add_entry(|| TraceEntry {
            action,
            addr: addr.cast_unsigned(),
            size: size.cast_unsigned(),
            stream: stream.cast_unsigned(),
            time_us,
            labels,
            frames: None,
        });
        Some(position + self.rest_length)
    }
}

/// The number that follows a key at a position, and the position behind it.
#[inline(always)]
fn value_of(key: [u8; 2], bytes: &[u8; LONGEST], position: usize) -> Option<(i64, usize)> {
    let (found, value) = bytes.get(position..)?.split_first_chunk()?;
    let (number, length) = number(value)?;
    (*found == key).then_some((number, position + 2 + length))
}

/// A number at the start of `bytes` and the length of its operation.
#[inline(always)]
fn number(bytes: &[u8]) -> Option<(i64, usize)> {
    let window: &[u8; 10] = bytes.first_chunk()?;
    let [_, a, b, c, d, ..] = *window;
    Some(match window[0] {
        opcode::BININT1 => (a.into(), 2),
        opcode::BININT2 => (u16::from_le_bytes([a, b]).into(), 3),
        opcode::BININT => (i32::from_le_bytes([a, b, c, d]).into(), 5),
        opcode::LONG1 if (1..=8).contains(&a) => {
            let unused = 64 - 8 * u32::from(a);
            (i64::from_le_bytes(*window.last_chunk()?) << unused >> unused, 2 + usize::from(a))
        }
        _ => return None,
    })
}
