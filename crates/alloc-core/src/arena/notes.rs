//! Ledger of an arena's blocks: counters, history, and the epochs that the device is done with.

use crate::lifetimes::epoch::Epochs;
use crate::memory::block::{Block, BlockId, Tier};
use crate::policy::Holding;
use crate::watch::counters::{Count, Counters};
use crate::watch::history::Recorder;

/// An arena's counters, epochs and history.
#[derive(Debug)]
pub(crate) struct Ledger {
    counters: Counters,
    /// Epochs of frees, and those that are closed.
    epochs: Epochs,
    history: Recorder,
    /// Size from which on a block is oversize.
    oversize: u64,
    /// The most bytes in use when memory was taken.
    most_needed: u64,
}

/// Change of inactive splits: a number of blocks, and bytes.
pub(super) type Splits = (i64, i64);

#[allow(clippy::cast_possible_wrap)] // block sizes are under 2^60
pub(super) fn signed(bytes: u64) -> i64 {
    bytes as i64
}

impl Ledger {
    pub(super) fn new(number: u16, oversize: u64) -> Self {
        Self {
            counters: Counters::new(number),
            epochs: Epochs::default(),
            history: Recorder::default(),
            oversize,
            most_needed: 0,
        }
    }

    #[inline(always)]
    pub(crate) fn counters(&self) -> &Counters {
        &self.counters
    }

    pub(crate) fn counters_mut(&mut self) -> &mut Counters {
        &mut self.counters
    }

    pub(crate) fn epochs(&self) -> &Epochs {
        &self.epochs
    }

    pub(crate) fn epochs_mut(&mut self) -> &mut Epochs {
        &mut self.epochs
    }

    pub(crate) fn history(&self) -> &Recorder {
        &self.history
    }

    pub(crate) fn history_mut(&mut self) -> &mut Recorder {
        &mut self.history
    }

    /// Sets the size from which on a block is oversize.
    pub(super) fn set_oversize(&mut self, oversize: u64) {
        self.oversize = oversize;
    }

    /// Forgets the most needed so far: it says nothing of what follows.
    pub(crate) fn forget_need(&mut self) {
        self.most_needed = 0;
    }

    /// Figures of its blocks when memory is taken for `size` more bytes.
    pub(super) fn holding(&mut self, size: u64) -> Holding {
        let in_use = self.counters.both(Count::ActiveBytes).unsigned_abs();
        // The request itself may be refused, and then was not needed.
        self.most_needed = self.most_needed.max(in_use);
        let most = self.most_needed.max(in_use.saturating_add(size));
        Holding { most, in_use, taken_back: self.counters.bytes_taken_back() }
    }

    /// Counts a change of inactive splits: free blocks beside others in fixed segments.
    #[inline(always)]
    pub(super) fn change_splits(&mut self, tier: Tier, (blocks, bytes): Splits) {
        if (blocks, bytes) != (0, 0) {
            self.counters.change_splits(tier, blocks, bytes);
        }
    }

    /// Counts a block that is handed out; if it is the one that came back last, it was used for `before` bytes.
    #[inline(always)]
    pub(super) fn gave(&mut self, id: BlockId, block: &Block, before: Option<u64>) {
        let Block { tier, size, requested, .. } = *block;
        match before {
            Some(before) => self.counters.give_again(tier, size, (before, requested)),
            None => self.counters.give(tier, size, requested),
        }
        if size >= self.oversize {
            self.counters.change_oversize(tier, 1);
        }
        if self.history.is_on() {
            self.note(id, block, Recorder::allocated);
        }
    }

    /// Counts a block that came back and has no further users.
    #[inline(always)]
    pub(super) fn took_back(&mut self, id: BlockId, block: &mut Block) {
        block.epoch = self.epochs.current();
        self.leave_oversize(block);
        if self.history.is_on() {
            self.note(id, block, Recorder::freed);
        }
        self.counters.take_back(block.tier, block.size, block.requested);
    }

    /// Counts a block that came back and has further users.
    pub(super) fn suspended(&mut self, id: BlockId, block: &mut Block) {
        block.epoch = self.epochs.current();
        self.leave_oversize(block);
        self.note(id, block, Recorder::free_requested);
        self.counters.suspend(block.tier, block.size);
    }

    /// Counts a [suspended](Self::suspended) block that nobody uses any more.
    pub(super) fn released(&mut self, id: BlockId, block: &Block) {
        self.note(id, block, Recorder::free_completed);
        self.counters.release(block.tier, block.size, block.requested);
    }

    #[inline(always)]
    fn leave_oversize(&mut self, block: &Block) {
        if block.size >= self.oversize {
            self.counters.change_oversize(block.tier, -1);
        }
    }

    /// Records something about a block. Off the hot path, which only asks if anything is recorded.
    #[cold]
    #[inline(never)]
    fn note(&mut self, id: BlockId, block: &Block, record: impl FnOnce(&mut Recorder, BlockId, u64, u64)) {
        record(&mut self.history, id, block.addr, block.requested);
    }
}
