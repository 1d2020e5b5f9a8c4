//! offset-allocator: two-level bins over one range of the device. One lock, no streams, no statistics.

use super::Peer;
use anyhow::{Result, ensure};
use offset_allocator::{Allocation, Allocator};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Sizes are rounded to this.
const UNIT: usize = 512;
const MOST_BLOCKS: u32 = 1 << 20;

/// The range, and what is handed out of it. A block is the number of its place in `blocks`, so that a free finds it
/// with one look.
struct State {
    range: Allocator,
    blocks: Vec<Option<Allocation>>,
    spare: Vec<u32>,
    high: usize,
}

pub(super) struct Offsets(Mutex<State>);

impl Offsets {
    pub(super) fn new(capacity: usize) -> Result<Self> {
        let units = u32::try_from(capacity / UNIT);
        ensure!(units.is_ok(), "offset-allocator has 32-bit offsets: {capacity} bytes are too many");
        let range = Allocator::with_max_allocs(units.unwrap_or_default(), MOST_BLOCKS);
        Ok(Self(Mutex::new(State { range, blocks: vec![None], spare: Vec::new(), high: 0 })))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Peer for Offsets {
    fn malloc(&self, bytes: usize, _stream: usize) -> usize {
        let Ok(units) = u32::try_from(bytes.div_ceil(UNIT)) else { return 0 };
        let mut state = self.state();
        let Some(block) = state.range.allocate(units) else { return 0 };
        state.high = state.high.max((block.offset as usize + units as usize) * UNIT);
        match state.spare.pop() {
            Some(place) => {
                state.blocks[place as usize] = Some(block);
                place as usize
            }
            None => {
                state.blocks.push(Some(block));
                state.blocks.len() - 1
            }
        }
    }

    fn free(&self, block: usize, _bytes: usize, _stream: usize) {
        let mut state = self.state();
        if let Some(allocation) = state.blocks.get_mut(block).and_then(Option::take) {
            state.range.free(allocation);
            state.spare.push(block as u32);
        }
    }

    fn peak_reserved(&self) -> usize {
        self.state().high
    }
}
