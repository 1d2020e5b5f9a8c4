//! The numbered values that later operations refer to.

use super::heap::Val;
use super::room;

/// How far an index may be ahead of the byte offset. Every store takes a byte at least, so that numbers
/// without large gaps stay below it; a writer may reserve some (ours does).
const SLACK: u64 = 1024;

#[derive(Debug, Default)]
pub(super) struct Memo {
    slots: Vec<Slot>,
    /// Values that do not fit a slot.
    others: Vec<Val>,
    /// Stored values, which is the next index of MEMOIZE.
    stored: usize,
    /// How often another value came under a known index.
    rewrites: u64,
}

/// A stored value, in half a value's size: many writers store three values an entry.
#[derive(Clone, Copy, Debug)]
pub(super) enum Slot {
    Empty,
    Text(u32),
    Pair(u16, u16),
    Entry(u32),
    Node(u32),
    /// Index into the others.
    Other(u32),
}

/// How much a memo holds; see [`Memo::reset`].
#[derive(Clone, Copy, Debug)]
pub(super) struct Mark {
    length: usize,
    stored: usize,
}

impl Memo {
    pub(super) fn stored(&self) -> usize {
        self.stored
    }

    /// The first index beyond all others.
    pub(super) fn next(&self) -> u64 {
        self.slots.len() as u64
    }

    /// Changes whenever an index no longer means what it meant.
    pub(super) fn rewrites(&self) -> u64 {
        self.rewrites
    }

    /// Bytes of memory in use.
    pub(super) fn footprint(&self) -> usize {
        self.slots.len() * size_of::<Slot>() + self.others.capacity() * size_of::<Val>()
    }

    #[inline]
    pub(super) fn get(&self, index: u64) -> Option<Val> {
        Some(match *usize::try_from(index).ok().and_then(|index| self.slots.get(index))? {
            Slot::Empty => return None,
            Slot::Text(id) => Val::Text(id),
            Slot::Pair(first, second) => Val::Pair(first.into(), second.into()),
            Slot::Entry(number) => Val::Entry(number),
            Slot::Node(index) => Val::Node(index),
            Slot::Other(index) => self.others[index as usize],
        })
    }

    #[inline]
    fn slot(&mut self, value: Val) -> Slot {
        match value {
            Val::Text(id) => return Slot::Text(id),
            Val::Entry(number) => return Slot::Entry(number),
            Val::Node(index) => return Slot::Node(index),
            Val::Pair(first, second) => {
                if let (Ok(first), Ok(second)) = (u16::try_from(first), u16::try_from(second)) {
                    return Slot::Pair(first, second);
                }
            }
            Val::None | Val::Bool(_) | Val::Int(_) | Val::Unsigned(_) | Val::Float(_) => {}
        }
        // The memory limit is far below 2^32 values.
        let index = self.others.len() as u32;
        self.others.push(value);
        Slot::Other(index)
    }

    /// Whether an index of an operation at `offset` is in proportion to it.
    pub(super) fn is_sound(index: u64, offset: u64) -> bool {
        index <= offset + SLACK
    }

    /// Stores a value under any sound index.
    #[inline]
    pub(super) fn put(&mut self, index: u64, value: Val) {
        if self.push_at(index, value).is_some() {
            return;
        }
        let index = index as usize;
        if index >= self.slots.len() {
            self.slots.resize(index + 1, Slot::Empty);
        }
        if matches!(self.slots[index], Slot::Empty) {
            self.stored += 1;
        } else {
            self.rewrites += 1;
        }
        self.slots[index] = self.slot(value);
    }

    /// Stores a value if `index` is the next one beyond all others.
    #[inline]
    pub(super) fn push_at(&mut self, index: u64, value: Val) -> Option<()> {
        if index != self.next() {
            return None;
        }
        let slot = self.slot(value);
        room::make(&mut self.slots, 1);
        self.slots.push(slot);
        self.stored += 1;
        Some(())
    }

    /// Stores an entry, if any, and more values as MEMOIZE does, if that is beyond all other indexes.
    #[inline]
    pub(super) fn memoize(&mut self, entry: Option<Val>, more: &[Slot]) -> Option<()> {
        let count = usize::from(entry.is_some()) + more.len();
        if count == 0 {
            return Some(());
        }
        if self.stored != self.slots.len() {
            return None;
        }
        room::make(&mut self.slots, count);
        if let Some(entry) = entry {
            let slot = self.slot(entry);
            self.slots.push(slot);
        }
        self.slots.extend_from_slice(more);
        self.stored += count;
        Some(())
    }

    /// What was stored since the mark by [`Memo::push_at`].
    pub(super) fn since(&self, mark: Mark) -> &[Slot] {
        &self.slots[mark.length..]
    }

    pub(super) fn mark(&self) -> Mark {
        Mark { length: self.slots.len(), stored: self.stored }
    }

    /// Forgets what [`Memo::push_at`] stored since the mark. Values that need more than a slot stay, unused.
    pub(super) fn reset(&mut self, mark: Mark) {
        self.slots.truncate(mark.length);
        self.stored = mark.stored;
    }
}
