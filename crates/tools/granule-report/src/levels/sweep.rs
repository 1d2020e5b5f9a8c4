//! One walk through the run for the bins, and one for what each category held at their moments.

use super::{Bin, Rows};
use granule_analysis::Run;
use granule_analysis::run::{Allocation, Change, Moment};

/// A bin for each range of moments, from the first to the last of it. Ranges are in order; one may be told again.
pub(super) fn bins(run: &Run, ranges: impl Iterator<Item = (Moment, Moment)>) -> Vec<Bin> {
    let reserved = run.reserved();
    let mut reserved = reserved.iter().copied().peekable();
    let mut held = 0;
    let mut changes = run.changes().peekable();
    let mut live = run.live_before();
    let bin = |((first, last), row)| {
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
    ranges.zip(0..).map(bin).collect()
}

fn after(run: &Run, live: u64, change: Change) -> u64 {
    let size = run.allocations[change.allocation].size;
    if change.begins { live.saturating_add(size) } else { live.saturating_sub(size) }
}

/// Live bytes by category, for the moment of each bin. An allocation is in all of its `places`.
pub(super) fn rows<const WAYS: usize>(
    run: &Run,
    bins: &[Bin],
    width: usize,
    places: impl Fn(&Allocation) -> [usize; WAYS],
) -> Rows {
    let mut live = vec![0u64; width];
    let older = run.allocations.iter().take_while(|life| life.is_older()).filter(|life| life.is_live(0));
    for life in older {
        for place in places(life) {
            live[place] = live[place].saturating_add(life.size);
        }
    }
    let mut changes = run.changes().peekable();
    let mut bytes = Vec::with_capacity(bins.len() * live.len());
    for bin in bins {
        while let Some(change) = changes.next_if(|change| change.at <= bin.at) {
            let life = &run.allocations[change.allocation];
            for place in places(life) {
                live[place] = match change.begins {
                    true => live[place].saturating_add(life.size),
                    false => live[place].saturating_sub(life.size),
                };
            }
        }
        bytes.extend_from_slice(&live);
    }
    Rows { bytes, width }
}
