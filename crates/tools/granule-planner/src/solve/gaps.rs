//! Which addresses are taken: by whom does not matter, only where the gaps are.

/// Sorted ranges of addresses that neither meet nor touch.
#[derive(Clone, Debug, Default)]
pub(crate) struct Taken(Vec<(u64, u64)>);

impl Taken {
    /// Adds a range.
    pub(crate) fn add(&mut self, from: u64, to: u64) {
        let ranges = &mut self.0;
        // Those that touch the new one become one with it.
        let first = ranges.partition_point(|&(_, end)| end < from);
        let beyond = first + ranges[first..].partition_point(|&(start, _)| start <= to);
        if first == beyond {
            ranges.insert(first, (from, to));
            return;
        }
        ranges[first] = (from.min(ranges[first].0), to.max(ranges[beyond - 1].1));
        ranges.drain(first + 1..beyond);
    }

    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Finds gaps in the union of several [`Taken`].
#[derive(Debug, Default)]
pub(crate) struct Finder<'a> {
    /// What is left of each one above the addresses looked at.
    lists: Vec<&'a [(u64, u64)]>,
}

impl<'a> Finder<'a> {
    pub(crate) fn include(&mut self, taken: &'a Taken) {
        if !taken.is_empty() {
            self.lists.push(&taken.0);
        }
    }

    /// The lowest address at or above `from` that begins a gap of at least `size`.
    pub(crate) fn first_fit(&mut self, from: u64, size: u64) -> u64 {
        let mut at = from;
        loop {
            let before = at;
            for list in &mut self.lists {
                skip(list, at);
                while let Some(&(start, end)) = list.first()
                    && start < at + size
                {
                    at = end;
                    skip(list, at);
                }
            }
            if at == before {
                return at;
            }
        }
    }

    /// The address that begins the smallest gap of at least `size`; the space above everything is the last resort.
    pub(crate) fn best_fit(&mut self, size: u64) -> u64 {
        let mut best: Option<(u64, u64)> = None;
        let mut from = 0;
        loop {
            let at = self.first_fit(from, size);
            let next = self.lists.iter().filter_map(|list| list.first()).map(|&(start, _)| start).min();
            let Some(next) = next else { return best.map_or(at, |(_, best)| best) };
            if best.is_none_or(|(room, _)| next - at < room) {
                best = Some((next - at, at));
            }
            from = next;
        }
    }
}

/// Drops the ranges that end at or before `at`.
fn skip(list: &mut &[(u64, u64)], at: u64) {
    // Mostly none or few: look near the front first.
    let mut step = 1;
    while step < list.len() && list[step - 1].1 <= at {
        *list = &list[step..];
        step *= 2;
    }
    let dropped = list[..step.min(list.len())].partition_point(|&(_, end)| end <= at);
    *list = &list[dropped..];
}
