//! What rounding costs.

use crate::Run;
use crate::layout::Layout;
use rustc_hash::FxHashMap;
use serde::Serialize;
use std::cmp::Reverse;

/// What requests of one size waste at a moment. Bytes, of all of them together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Waste {
    /// Bytes of each as requested.
    pub size: u64,
    /// Live blocks of them.
    pub count: u64,
    /// What they were rounded up by.
    pub rounding: u64,
    /// What was too little to be cut off behind them.
    pub tails: u64,
}

impl Waste {
    /// Both kinds.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        self.rounding.saturating_add(self.tails)
    }
}

/// By requested size, the worst first; sizes that waste nothing are left out.
pub(super) fn waste(run: &Run, layout: &Layout) -> Vec<Waste> {
    let mut sizes: FxHashMap<u64, Waste> = FxHashMap::default();
    let blocks = layout.stretches.iter().flat_map(|stretch| &stretch.blocks).filter(|block| !block.waits);
    for block in blocks {
        let size = run.allocations[block.allocation as usize].size;
        let waste = sizes.entry(size).or_insert(Waste { size, ..Waste::default() });
        waste.count += 1;
        waste.rounding += block.rounding;
        waste.tails += block.tail;
    }
    let mut wasted: Vec<_> = sizes.into_values().filter(|waste| waste.bytes() > 0).collect();
    wasted.sort_by_key(|waste| (Reverse(waste.bytes()), waste.size));
    wasted
}
