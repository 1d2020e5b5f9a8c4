//! What a history entry is made of.

use super::{Heap, Val};
use crate::pickle::labels;
use crate::schema::Word;
use alloc_core::snapshot::{Action, TraceEntry};

/// What an entry begins with, in every writer's files.
pub(in crate::pickle) const FIRST_KEY: Val = Val::Text(Word::Action as u32);

/// Picklers set at most this many keys at a time; after so many, more may follow.
pub(in crate::pickle) const MOST_KEYS: usize = 1000;

/// What is known of an entry.
#[derive(Default)]
pub(in crate::pickle) struct Parts {
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
    pub(in crate::pickle) fn set(&mut self, heap: &Heap, key: Val, value: Val) -> Option<()> {
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
    pub(in crate::pickle) fn finish(self, heap: &mut Heap) -> Option<()> {
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
