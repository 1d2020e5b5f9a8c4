//! Granules that sleep, and where their contents are.

use super::{GranuleState, Region, RegionId, Regions};
use crate::memory::backup::Saved;
use std::ops::Range;

impl Region {
    /// The longest runs of granules in one state, within a range of whole granules.
    pub(crate) fn runs(&self, range: Range<u64>, wanted: GranuleState) -> Vec<Range<u64>> {
        let mut runs: Vec<Range<u64>> = Vec::new();
        for (at, bytes, _) in self.granules(range).filter(|(.., state)| *state == wanted) {
            match runs.last_mut().filter(|run| run.end == at) {
                Some(run) => run.end += bytes,
                None => runs.push(at..at + bytes),
            }
        }
        runs
    }

    /// The whole granules in a range that has no gap; empty where there is none.
    pub(crate) fn within(&self, range: Range<u64>) -> Range<u64> {
        let inside = |(at, granule): &(u64, &super::GranuleRecord)| at + granule.bytes <= range.end;
        let mut granules = self.in_range(range.clone()).filter(inside);
        let Some((first, granule)) = granules.next() else { return range.start..range.start };
        first..granules.next_back().map_or(first + granule.bytes, |(last, granule)| last + granule.bytes)
    }

    /// The first run of granules that sleep: of those with contents so many bytes at most, but one granule at least.
    pub(crate) fn first_asleep(&self, most: u64) -> Option<Range<u64>> {
        let asleep = self.asleep.iter().filter_map(|(at, saved)| {
            let granule = self.granules.get(at)?;
            (granule.state == GranuleState::Asleep).then_some((*at, granule.bytes, saved.is_some()))
        });
        let mut run: Option<(Range<u64>, bool)> = None;
        for (at, bytes, is_saved) in asleep {
            match &mut run {
                None => run = Some((at..at + bytes, is_saved)),
                Some((run, of_saved)) => {
                    let is_too_much = is_saved && at + bytes - run.start > most;
                    if at != run.end || is_saved != *of_saved || is_too_much {
                        break;
                    }
                    run.end += bytes;
                }
            }
        }
        run.map(|(run, _)| run)
    }

    /// Bytes that sleep.
    pub(crate) fn asleep_bytes(&self) -> u64 {
        self.saved(0..u64::MAX).map(|(_, bytes, _)| bytes).sum()
    }

    /// Saved contents of each granule of a sleeping range: first address, bytes, contents.
    pub(crate) fn saved(&self, range: Range<u64>) -> impl Iterator<Item = (u64, u64, &Saved)> {
        let saved = self.asleep.range(range);
        saved.filter_map(|(at, saved)| Some((*at, self.granules.get(at)?.bytes, saved)))
    }
}

impl Regions {
    /// Commits: the granules at these addresses sleep, with these contents.
    pub(crate) fn commit_asleep(&mut self, id: RegionId, saved: impl IntoIterator<Item = (u64, Saved)>) {
        let mut bytes = 0;
        for (at, contents) in saved {
            let granule = self.granule_mut(id, at);
            (granule.state, granule.handle) = (GranuleState::Asleep, None);
            let of_granule = granule.bytes;
            if self.get_mut(id).asleep.insert(at, contents).is_none() {
                bytes += of_granule;
            }
        }
        self.asleep_bytes += bytes;
    }

    /// Sleeping granules, which are being woken, stay asleep.
    pub(crate) fn keep_asleep(&mut self, id: RegionId, range: Range<u64>) {
        for granule in self.get_mut(id).granules.range_mut(range).map(|(_, granule)| granule) {
            (granule.state, granule.handle) = (GranuleState::Asleep, None);
        }
    }

    /// The contents of sleeping granules are not needed any more. What is returned is to be dropped without a lock.
    pub(crate) fn forget_saved(&mut self, id: RegionId, range: Range<u64>) -> Vec<Saved> {
        let region = self.get_mut(id);
        let places: Vec<_> = region.saved(range).map(|(at, bytes, _)| (at, bytes)).collect();
        let forgotten = places.iter().filter_map(|(at, _)| region.asleep.remove(at)).collect();
        self.asleep_bytes -= places.iter().map(|(_, bytes)| bytes).sum::<u64>();
        forgotten
    }

    /// All that sleeps, in bytes.
    pub(crate) fn asleep_bytes(&self) -> u64 {
        self.asleep_bytes
    }
}
