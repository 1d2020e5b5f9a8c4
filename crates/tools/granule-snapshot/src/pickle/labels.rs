//! The labels of history entries, made once for each kind.

use alloc_core::snapshot::Labels;
use alloc_core::types::PoolId;
use rustc_hash::FxHashMap;
use std::sync::Arc;

/// What labels are made of, with texts by number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Key {
    pub(super) compile_context: Option<u32>,
    pub(super) user_metadata: Option<u32>,
    pub(super) pool_id: Option<PoolId>,
}

/// All labels so far.
#[derive(Debug, Default)]
pub(super) struct Table {
    known: FxHashMap<Key, Arc<Labels>>,
    /// Those that were asked for last: most entries have the labels of the one before.
    recent: (Key, Arc<Labels>),
}

impl Table {
    /// Bytes of memory in use, nearly.
    pub(super) fn footprint(&self) -> usize {
        self.known.capacity() * size_of::<(Key, Arc<Labels>)>() + self.known.len() * size_of::<Labels>()
    }

    /// The labels of that key; equal keys get the same.
    #[inline]
    pub(super) fn get(&mut self, key: Key, texts: &[Arc<str>]) -> Arc<Labels> {
        if self.recent.0 != key {
            let text = |id: u32| Arc::clone(&texts[id as usize]);
            let labels = self.known.entry(key).or_insert_with(|| {
                Arc::new(Labels {
                    compile_context: key.compile_context.map(text),
                    user_metadata: key.user_metadata.map(text),
                    pool_id: key.pool_id,
                    extra: Vec::new(),
                })
            });
            self.recent = (key, Arc::clone(labels));
        }
        Arc::clone(&self.recent.1)
    }
}
