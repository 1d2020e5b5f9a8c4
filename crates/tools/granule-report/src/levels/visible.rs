//! Which allocations can be made out at a level.

use super::{Level, TILE};
use granule_analysis::Run;
use granule_analysis::run::Moment;

/// Allocations that a tile tells at most: beyond that, those that cover least of the chart are left to the sums.
const MOST: usize = 6000;

/// Allocations to tell one by one in each tile, by index, ascending: at least `smallest` bytes, and live at the moments of two
/// bins or more.
pub(super) fn by_tile(run: &Run, level: &Level, smallest: u64) -> Vec<Vec<u32>> {
    let mut tiles: Vec<Vec<(u128, u32)>> = vec![Vec::new(); level.bins.len().div_ceil(TILE)];
    for (life, index) in run.allocations.iter().zip(0..) {
        if life.size < smallest.max(1) {
            continue;
        }
        let (from, to) = (first_bin(level, life.begin), first_bin(level, life.end));
        if to < from + 2 {
            continue;
        }
        for (tile, lives) in tiles.iter_mut().enumerate().take((to - 1) / TILE + 1).skip(from / TILE) {
            let covered = to.min((tile + 1) * TILE) - from.max(tile * TILE);
            lives.push((covered as u128 * u128::from(life.size), index));
        }
    }
    tiles.into_iter().map(largest).collect()
}

/// The first bin whose moment is not before `at`.
fn first_bin(level: &Level, at: Moment) -> usize {
    let bin = (at >> level.shift) as usize;
    match level.bins.get(bin) {
        Some(found) => bin + usize::from(found.at < at),
        None => level.bins.len(),
    }
}

fn largest(mut lives: Vec<(u128, u32)>) -> Vec<u32> {
    if lives.len() > MOST {
        lives.select_nth_unstable_by(MOST, |a, b| b.cmp(a));
        lives.truncate(MOST);
    }
    let mut indexes: Vec<u32> = lives.into_iter().map(|(_, index)| index).collect();
    indexes.sort_unstable();
    indexes
}
