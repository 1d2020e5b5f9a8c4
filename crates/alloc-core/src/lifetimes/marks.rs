//! Moments of a stream that others may wait for: an event for all that the stream had freed by then.

use crate::process::held_event::HeldEvent;
use crate::sync::Arc;
use std::collections::VecDeque;

/// The most that are kept of one stream. Of more, each second goes.
const MOST: usize = 32;
/// Requests and frees between two of them, at least.
const APART: u64 = 4;

/// A moment of a stream.
#[derive(Clone, Debug)]
pub(crate) struct Mark {
    /// All that was freed up to this epoch comes before it.
    pub(crate) epoch: u64,
    /// When it was made, by the clock of the device's requests and frees.
    pub(crate) clock: u64,
    pub(crate) event: Arc<HeldEvent>,
}

/// The marks of one stream, in order.
#[derive(Debug, Default)]
pub(crate) struct Marks(VecDeque<Mark>);

impl Marks {
    /// Whether there is none since about `clock`.
    pub(crate) fn is_due(&self, clock: u64) -> bool {
        self.0.back().is_none_or(|newest| newest.clock.saturating_add(APART) <= clock)
    }

    /// One more, unless a younger one is there. What is returned goes: drop it without a lock.
    pub(crate) fn push(&mut self, mark: Mark) -> Vec<Mark> {
        if self.0.back().is_some_and(|newest| newest.epoch >= mark.epoch) {
            return vec![mark];
        }
        self.0.push_back(mark);
        if self.0.len() <= MOST {
            return Vec::new();
        }
        // The newest stays.
        let all = std::mem::take(&mut self.0);
        let (kept, gone): (Vec<_>, Vec<_>) = all.into_iter().rev().enumerate().partition(|(n, _)| n % 2 == 0);
        self.0.extend(kept.into_iter().rev().map(|(_, mark)| mark));
        gone.into_iter().map(|(_, mark)| mark).collect()
    }

    /// The newest that is no younger than `clock`.
    pub(crate) fn newest(&self, clock: u64) -> Option<&Mark> {
        self.0.iter().rev().find(|mark| mark.clock <= clock)
    }

    /// The oldest that comes after what was freed in `epoch`.
    pub(crate) fn covering(&self, epoch: u64) -> Option<&Mark> {
        self.0.iter().find(|mark| mark.epoch >= epoch)
    }

    /// The device has passed all up to `epoch`. What is returned goes, as in [`push`](Self::push).
    pub(crate) fn pass(&mut self, epoch: u64) -> Vec<Mark> {
        let passed = self.0.partition_point(|mark| mark.epoch <= epoch);
        self.0.drain(..passed).collect()
    }
}
