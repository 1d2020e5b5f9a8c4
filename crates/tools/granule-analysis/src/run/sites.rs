//! Call sites: stacks, each kept once.

use alloc_core::snapshot::{Frame, Stack};
use rustc_hash::FxHashMap;
use std::hash::{Hash, Hasher};

/// A call site's stack, innermost frame first; empty where none was recorded.
pub type Site = Stack;

/// All call sites; index 0 is the one of allocations without a stack.
#[derive(Clone, Debug)]
pub struct Sites {
    stacks: Vec<Site>,
    /// By where the stack lies: readers share equal ones, so that most are found by address.
    by_place: FxHashMap<usize, u32>,
    by_content: FxHashMap<u64, Vec<u32>>,
}

impl Default for Sites {
    fn default() -> Self {
        Self {
            stacks: vec![Site::from([])],
            by_place: FxHashMap::default(),
            by_content: FxHashMap::default(),
        }
    }
}

impl Sites {
    /// How many there are, the empty one included.
    #[must_use]
    pub fn len(&self) -> usize {
        self.stacks.len()
    }

    /// Whether no allocation has a stack.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.stacks.len() == 1
    }

    /// The stack of that index; the empty one for an index that is not there.
    #[must_use]
    pub fn get(&self, index: u32) -> &[Frame] {
        self.stacks.get(index as usize).map_or(&[], |stack| stack)
    }

    /// All stacks by index.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &[Frame]> {
        self.stacks.iter().map(|stack| &**stack)
    }

    /// Puts another in the place of each stack.
    pub(crate) fn replace(&mut self, other: impl FnMut(&[Frame]) -> Stack) {
        self.stacks = self.iter().map(other).collect();
    }

    /// The index of a stack, which is kept.
    pub(crate) fn index(&mut self, stack: Option<&Stack>) -> u32 {
        let Some(stack) = stack.filter(|stack| !stack.is_empty()) else { return 0 };
        let place = stack.as_ptr().addr();
        if let Some(index) = self.by_place.get(&place) {
            return *index;
        }
        let same_hash = self.by_content.entry(hash(stack)).or_default();
        let known = same_hash.iter().copied().find(|index| self.stacks[*index as usize][..] == stack[..]);
        let index = known.unwrap_or_else(|| {
            // More stacks than 2^32 do not fit any memory.
            let index = u32::try_from(self.stacks.len()).unwrap_or(u32::MAX);
            self.stacks.push(stack.clone());
            same_hash.push(index);
            index
        });
        // The place is the kept stack's only if that very stack is kept alive.
        if known.is_none() {
            self.by_place.insert(place, index);
        }
        index
    }
}

fn hash(stack: &[Frame]) -> u64 {
    let mut hasher = rustc_hash::FxHasher::default();
    for frame in stack {
        (&frame.name, &frame.filename, frame.line).hash(&mut hasher);
    }
    hasher.finish()
}
