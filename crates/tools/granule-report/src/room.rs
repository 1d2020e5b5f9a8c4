//! What requests take beyond their bytes, so that the page counts free pieces as `granule inspect` does.

use crate::bytes::Bytes;
use granule_analysis::Run;
use granule_analysis::rules::Rules;
use rustc_hash::FxHashSet;

/// Beyond that a rest is always cut off, whatever the rules.
const MOST_KEPT: u64 = 64 << 20;

/// Appends all sizes of requests, ascending, with the bytes by which each is rounded up, and those behind it that are too few
/// to be cut off.
pub(crate) fn write(bytes: &mut Bytes, run: &Run, rules: &Rules) {
    let growable = run.spans.iter().any(|span| span.growable);
    let sizes: FxHashSet<u64> = run.allocations.iter().map(|life| life.size).collect();
    let mut sizes: Vec<u64> = sizes.into_iter().collect();
    sizes.sort_unstable();
    let block = |size: u64| rules.block(size, growable).max(size);
    bytes.number(sizes.len() as u64);
    bytes.steps(sizes.iter().copied());
    bytes.column(sizes.iter().map(|size| block(*size) - size));
    bytes.column(sizes.iter().map(|size| kept(rules, *size, block(*size), growable)));
}

/// The most bytes behind a block of `block` bytes that it keeps.
fn kept(rules: &Rules, size: u64, block: u64, growable: bool) -> u64 {
    let keeps = |rest: u64| rules.keeps_whole(block.saturating_add(rest), size, growable);
    let (mut low, mut high) = (0, MOST_KEPT + 1);
    while high - low > 1 {
        let middle = low.midpoint(high);
        if keeps(middle) { low = middle } else { high = middle }
    }
    low
}

#[cfg(test)]
mod tests {
    use super::kept;
    use alloc_core::config::Settings;
    use granule_analysis::rules::Rules;

    #[test]
    fn large_blocks_keep_what_is_too_little() {
        let rules = Rules::new(&Settings::default());
        let kept = |size: u64| kept(&rules, size, rules.block(size, false), false);
        assert!(kept(1000) < 512, "small ones are cut wherever a block is left");
        assert_eq!(kept(20 << 20), 1 << 20);
    }
}
