//! What a pickle has built so far: an arena of nodes, with history entries and call stacks in their final
//! form as soon as they are complete. That keeps a long history small: an entry never exists as a
//! dictionary.

mod parts;

pub(super) use parts::{FIRST_KEY, MOST_KEYS, Parts};

use super::labels;
use super::room;
use crate::schema::Word;
use alloc_core::snapshot::{Action, Frame, Labels, Stack, TraceEntry};
use alloc_core::types::PoolId;
use rustc_hash::FxHashMap;
use std::sync::Arc;

/// A value on the stack, in the memo or inside a container.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Val {
    None,
    Bool(bool),
    Int(i64),
    /// From 2^63 on.
    Unsigned(u64),
    Float(f64),
    /// Index into the texts; a word's number if it is one.
    Text(u32),
    /// A tuple of two small numbers: every entry has one (its pool), which then needs no node.
    Pair(u32, u32),
    /// A dictionary that was a complete history entry from the beginning; index into the entries.
    Entry(u32),
    /// Index into the nodes.
    Node(u32),
}

/// A container.
#[derive(Debug)]
pub(super) enum Node {
    List(Vec<Val>),
    /// A list that begins as a history: of so many entries in order, from the first one's index on.
    History(u32, u32),
    Tuple(Box<[Val]>),
    Dict(Vec<(Val, Val)>),
    /// A dictionary that became a complete history entry; index into the entries.
    Entry(u32),
    /// A list that was used as a call stack.
    Stack(Stack),
}

#[derive(Debug)]
pub(super) struct Heap {
    pub(super) nodes: Vec<Node>,
    pub(super) entries: Vec<TraceEntry>,
    texts: Vec<Arc<str>>,
    text_ids: FxHashMap<Arc<str>, u32>,
    labels: labels::Table,
    text_bytes: usize,
    /// The last text that was looked up by its bytes.
    recent: u32,
    /// Values inside lists, tuples and dictionaries.
    slots: usize,
    /// The one empty stack.
    pub(super) no_frames: Stack,
}

impl Heap {
    pub(super) fn new() -> Self {
        let mut heap = Self {
            nodes: Vec::new(),
            entries: Vec::new(),
            texts: Vec::new(),
            text_ids: FxHashMap::default(),
            labels: labels::Table::default(),
            text_bytes: 0,
            recent: 0,
            slots: 0,
            no_frames: Arc::from([]),
        };
        for word in Word::ALL {
            heap.text(word.text());
        }
        heap
    }

    /// Bytes of memory in use, nearly.
    pub(super) fn footprint(&self) -> usize {
        // A text costs its counts, two references and its share of the table.
        const PER_TEXT: usize = 80;
        self.nodes.len() * size_of::<Node>()
            + self.entries.len() * size_of::<TraceEntry>()
            + self.texts.len() * PER_TEXT
            + self.text_bytes
            + self.labels.footprint()
            + self.slots * size_of::<Val>()
    }

    /// The number of a text; equal texts get the same.
    pub(super) fn text(&mut self, text: &str) -> u32 {
        if let Some(&id) = self.text_ids.get(text) {
            return id;
        }
        // The memory limit is far below 2^32 texts.
        let id = self.texts.len() as u32;
        let shared: Arc<str> = text.into();
        self.text_bytes += text.len();
        self.texts.push(Arc::clone(&shared));
        self.text_ids.insert(shared, id);
        id
    }

    /// As [`Heap::text`] for bytes that should be UTF-8; file names that are not (Python writes their odd
    /// bytes as lone surrogates) keep what is readable.
    pub(super) fn text_from(&mut self, bytes: &[u8]) -> u32 {
        // Entries repeat the same few texts, and many writers do not refer back to them.
        if self.texts[self.recent as usize].as_bytes() != bytes {
            self.recent = match std::str::from_utf8(bytes) {
                Ok(text) => self.text(text),
                Err(_) => self.text(&String::from_utf8_lossy(bytes)),
            };
        }
        self.recent
    }

    pub(super) fn shared_text(&self, id: u32) -> Arc<str> {
        Arc::clone(&self.texts[id as usize])
    }

    pub(super) fn add(&mut self, node: Node) -> Val {
        self.slots += match &node {
            Node::List(items) => items.len(),
            Node::Tuple(items) => items.len(),
            Node::Dict(pairs) => 2 * pairs.len(),
            Node::History(..) | Node::Entry(_) | Node::Stack(_) => 0,
        };
        let index = self.nodes.len() as u32;
        room::make(&mut self.nodes, 1);
        self.nodes.push(node);
        Val::Node(index)
    }

    pub(super) fn tuple(&mut self, items: &[Val]) -> Val {
        if let [Val::Int(first), Val::Int(second)] = *items
            && let (Ok(first), Ok(second)) = (u32::try_from(first), u32::try_from(second))
        {
            return Val::Pair(first, second);
        }
        self.add(Node::Tuple(items.into()))
    }

    /// Adds items to a list.
    pub(super) fn append(&mut self, list: Val, items: &[Val]) -> Result<(), &'static str> {
        let Val::Node(index) = list else { return Err("items are added to something that is not a list") };
        let node = &mut self.nodes[index as usize];
        match node {
            Node::List(known) if known.is_empty() && !items.is_empty() && is_history(items, items[0]) => {
                let Val::Entry(first) = items[0] else { return Ok(()) };
                *node = Node::History(first, items.len() as u32);
                Ok(())
            }
            Node::History(first, count) if is_history(items, Val::Entry(*first + *count)) => {
                *count += items.len() as u32;
                Ok(())
            }
            Node::History(first, count) => {
                let mut all: Vec<_> = (*first..*first + *count).map(Val::Entry).collect();
                all.extend_from_slice(items);
                self.slots += all.len();
                *node = Node::List(all);
                Ok(())
            }
            Node::List(known) => {
                room::make_in_list(known, items.len());
                known.extend_from_slice(items);
                self.slots += items.len();
                Ok(())
            }
            Node::Stack(_) => Err("a call stack is changed after it was used"),
            _ => Err("items are added to something that is not a list"),
        }
    }

    /// Adds keys and values, alternating, to a dictionary.
    pub(super) fn set_items(&mut self, dict: Val, items: &[Val]) -> Result<(), &'static str> {
        if self.entry_number(dict).is_some() {
            return Err("a history entry is changed after it was complete");
        }
        let Val::Node(index) = dict else { return Err("keys are set in something that is not a dictionary") };
        let Node::Dict(pairs) = &self.nodes[index as usize] else {
            return Err("keys are set in something that is not a dictionary");
        };
        if !items.len().is_multiple_of(2) {
            return Err("the last key has no value");
        }
        let number = self.entries.len() as u32;
        if pairs.is_empty() && self.entry(items).is_some() {
            self.nodes[index as usize] = Node::Entry(number);
        } else if let Node::Dict(pairs) = &mut self.nodes[index as usize] {
            pairs.extend(items.chunks_exact(2).map(|pair| (pair[0], pair[1])));
            self.slots += items.len();
        }
        Ok(())
    }

    /// The labels of that key.
    #[inline]
    pub(super) fn labels(&mut self, key: labels::Key) -> Arc<Labels> {
        self.labels.get(key, &self.texts)
    }

    #[inline(always)]
    pub(super) fn add_entry(&mut self, entry: impl FnOnce() -> TraceEntry) {
        room::push(&mut self.entries, entry);
    }

    /// The value of the next entry.
    #[inline]
    pub(super) fn next_entry(&self) -> Val {
        Val::Entry(self.entries.len() as u32)
    }

    /// The number of the history entry that a value is.
    #[inline]
    pub(super) fn entry_number(&self, value: Val) -> Option<u32> {
        match value {
            Val::Entry(number) => Some(number),
            Val::Node(node) => match self.nodes[node as usize] {
                Node::Entry(number) => Some(number),
                _ => None,
            },
            _ => None,
        }
    }

    /// Adds the history entry that a whole dictionary makes; `None` if it has anything unusual, for
    /// [`super::convert`] to look at.
    fn entry(&mut self, items: &[Val]) -> Option<()> {
        if items.len() >= 2 * MOST_KEYS || items.first() != Some(&FIRST_KEY) {
            return None;
        }
        let mut parts = Parts::default();
        for pair in items.chunks_exact(2) {
            parts.set(self, pair[0], pair[1])?;
        }
        parts.finish(self)
    }

    /// The action a text names.
    pub(super) fn action(&self, value: Val) -> Option<Action> {
        let Val::Text(id) = value else { return None };
        Word::from_id(id)?.action()
    }

    #[inline]
    pub(super) fn shared(&self, value: Val) -> Option<Arc<str>> {
        match value {
            Val::Text(id) => Some(self.shared_text(id)),
            _ => None,
        }
    }

    /// The call stack that a list makes, made once; `None` if a frame has anything unusual.
    pub(super) fn stack(&mut self, value: Val) -> Option<Stack> {
        let Val::Node(index) = value else { return None };
        let stack: Stack = match &self.nodes[index as usize] {
            Node::Stack(stack) => return Some(Arc::clone(stack)),
            Node::List(items) if items.is_empty() => Arc::clone(&self.no_frames),
            Node::List(items) => items.iter().map(|&item| self.frame(item)).collect::<Option<_>>()?,
            _ => return None,
        };
        self.nodes[index as usize] = Node::Stack(Arc::clone(&stack));
        Some(stack)
    }

    fn frame(&self, value: Val) -> Option<Frame> {
        let Val::Node(index) = value else { return None };
        let Node::Dict(pairs) = &self.nodes[index as usize] else { return None };
        let (mut name, mut filename, mut line) = (None, None, None);
        for &(key, value) in pairs {
            let Val::Text(key) = key else { return None };
            match Word::from_id(key)? {
                Word::Name => name = Some(self.shared(value)?),
                Word::Filename => filename = Some(self.shared(value)?),
                Word::Line => line = Some(value.unsigned()?),
                _ => return None,
            }
        }
        Some(Frame { name: name?, filename: filename?, line: line?, extra: Vec::new() })
    }
}

/// Whether values are history entries in order, beginning with one.
fn is_history(values: &[Val], first: Val) -> bool {
    let Val::Entry(first) = first else { return false };
    values.iter().zip(first..).all(|(&value, number)| value == Val::Entry(number))
}

/// The number that languages without whole numbers write so.
#[allow(clippy::cast_possible_truncation)]
fn whole(value: f64) -> Option<i64> {
    const EXACT: f64 = 9_007_199_254_740_992.0;
    (value.abs() <= EXACT && value.fract() == 0.0).then_some(value as i64)
}

impl Val {
    pub(super) fn unsigned(self) -> Option<u64> {
        match self {
            Self::Int(value) => u64::try_from(value).ok(),
            Self::Unsigned(value) => Some(value),
            Self::Bool(value) => Some(value.into()),
            Self::Float(value) => u64::try_from(whole(value)?).ok(),
            _ => None,
        }
    }

    pub(super) fn signed(self) -> Option<i64> {
        match self {
            Self::Int(value) => Some(value),
            Self::Bool(value) => Some(value.into()),
            Self::Float(value) => whole(value),
            _ => None,
        }
    }

    /// The number of a text.
    pub(super) fn text(self) -> Option<u32> {
        match self {
            Self::Text(id) => Some(id),
            _ => None,
        }
    }

    pub(super) fn pair(self) -> Option<PoolId> {
        match self {
            Self::Pair(first, second) => Some(PoolId(first.into(), second.into())),
            _ => None,
        }
    }
}
