//! One walk through the run for the bins, and one for what each category held at their moments.

use super::Bin;
use crate::classes::Classes;
use granule_analysis::Run;
use granule_analysis::run::{Change, Moment};

/// The finest bins.
pub(super) fn bins(run: &Run, shift: u32) -> Vec<Bin> {
    let reserved = run.reserved();
    let mut reserved = reserved.iter().copied().peekable();
    let mut held = 0;
    let mut changes = run.changes().peekable();
    let mut live = run.live_before();
    let count = (u64::from(run.length) >> shift) as u32 + 1;
    let bin = |row| {
        let first: Moment = row << shift;
        let last = first.saturating_add((1 << shift) - 1);
        // What was held as the bin began counts, unless that changed at its very first moment.
        while let Some((_, bytes)) = reserved.next_if(|(at, _)| *at <= first) {
            held = bytes;
        }
        let mut most_held = held;
        while let Some((_, bytes)) = reserved.next_if(|(at, _)| *at <= last) {
            held = bytes;
            most_held = most_held.max(bytes);
        }
        while let Some(change) = changes.next_if(|change| change.at <= first) {
            live = after(run, live, change);
        }
        let mut bin = Bin { at: first, most: live, least: live, reserved: most_held, row };
        while let Some(at) = changes.peek().map(|change| change.at).filter(|at| *at <= last) {
            while let Some(change) = changes.next_if(|change| change.at == at) {
                live = after(run, live, change);
            }
            if live > bin.most {
                (bin.at, bin.most) = (at, live);
            }
            bin.least = bin.least.min(live);
        }
        bin
    };
    (0..count).map(bin).collect()
}

fn after(run: &Run, live: u64, change: Change) -> u64 {
    let size = run.allocations[change.allocation].size;
    if change.begins { live.saturating_add(size) } else { live.saturating_sub(size) }
}

/// Live bytes by category, for the moment of each bin.
pub(super) fn rows(run: &Run, classes: &Classes, bins: &[Bin]) -> Vec<u64> {
    let mut live = vec![0u64; classes.total()];
    let older = run.allocations.iter().take_while(|life| life.is_older()).filter(|life| life.is_live(0));
    for life in older {
        for place in classes.places(life) {
            live[place] = live[place].saturating_add(life.size);
        }
    }
    let mut changes = run.changes().peekable();
    let mut rows = Vec::with_capacity(bins.len() * live.len());
    for bin in bins {
        while let Some(change) = changes.next_if(|change| change.at <= bin.at) {
            let life = &run.allocations[change.allocation];
            for place in classes.places(life) {
                live[place] = match change.begins {
                    true => live[place].saturating_add(life.size),
                    false => live[place].saturating_sub(life.size),
                };
            }
        }
        rows.extend_from_slice(&live);
    }
    rows
}
