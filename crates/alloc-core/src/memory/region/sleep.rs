//! Granules that sleep, and where their contents are.

use super::{Granule, GranuleState, Region, RegionId, Regions};
use crate::memory::backup::Saved;
use std::ops::Range;

impl Region {
    /// The state of the granule that holds `addr`.
    pub(crate) fn state_at(&self, addr: u64) -> GranuleState {
        self.at(((addr - self.base) / self.granule) as usize).state
    }

    /// The granules that a range touches: whole ones.
    pub(crate) fn around(&self, range: Range<u64>) -> Range<u64> {
        let low = (range.start - self.base) / self.granule * self.granule + self.base;
        let high = (range.end - self.base).next_multiple_of(self.granule) + self.base;
        low..high
    }

    /// The whole granules in a range; empty where there is none.
    pub(crate) fn within(&self, range: Range<u64>) -> Range<u64> {
        let low = (range.start - self.base).next_multiple_of(self.granule) + self.base;
        let high = (range.end - self.base) / self.granule * self.granule + self.base;
        low..high.max(low)
    }

    /// The longest runs of granules in one state, within a range of whole granules.
    pub(crate) fn runs(&self, range: Range<u64>, wanted: GranuleState) -> Vec<Range<u64>> {
        let mut runs: Vec<Range<u64>> = Vec::new();
        for at in range.step_by(self.granule as usize) {
            if self.state_at(at) != wanted {
                continue;
            }
            match runs.last_mut().filter(|run| run.end == at) {
                Some(run) => run.end += self.granule,
                None => runs.push(at..at + self.granule),
            }
        }
        runs
    }

    /// The first run of granules that sleep: of those with contents so many bytes at most, but one granule at least.
    pub(crate) fn first_asleep(&self, most: u64) -> Option<Range<u64>> {
        let mut asleep = self.asleep.iter().filter(|(at, _)| self.state_at(**at) == GranuleState::Asleep);
        let (&first, saved) = asleep.next()?;
        let mut end = first + self.granule;
        for (&at, other) in asleep {
            let is_too_much = saved.is_some() && at + self.granule - first > most;
            if at != end || other.is_some() != saved.is_some() || is_too_much {
                break;
            }
            end += self.granule;
        }
        Some(first..end)
    }

    /// Bytes that sleep.
    pub(crate) fn asleep_bytes(&self) -> u64 {
        self.asleep.len() as u64 * self.granule
    }

    /// Where the contents of each granule of a sleeping range are.
    pub(crate) fn saved(&self, range: Range<u64>) -> impl Iterator<Item = (u64, &Saved)> {
        self.asleep.range(range).map(|(at, saved)| (*at, saved))
    }
}

impl Regions {
    /// Commits: the granules from `addr` on sleep, with these contents.
    pub(crate) fn commit_asleep(&mut self, id: RegionId, addr: u64, saved: Vec<Saved>) {
        let region = self.get_mut(id);
        let (mut at, mut bytes) = (addr, 0);
        for contents in saved {
            let index = ((at - region.base) / region.granule) as usize;
            region.granules[index] = Granule { state: GranuleState::Asleep, handle: None };
            if region.asleep.insert(at, contents).is_none() {
                bytes += region.granule;
            }
            at += region.granule;
        }
        self.asleep_bytes += bytes;
    }

    /// Sleeping granules, which are being woken, stay asleep.
    pub(crate) fn keep_asleep(&mut self, id: RegionId, range: Range<u64>) {
        let region = self.get_mut(id);
        let granules = region.range(range.start, range.end - range.start);
        region.granules[granules].fill(Granule { state: GranuleState::Asleep, handle: None });
    }

    /// The contents of sleeping granules are not needed any more. What is returned is to be dropped without a lock.
    pub(crate) fn forget_saved(&mut self, id: RegionId, range: Range<u64>) -> Vec<Saved> {
        let region = self.get_mut(id);
        let places: Vec<u64> = region.asleep.range(range).map(|(at, _)| *at).collect();
        let forgotten: Vec<_> = places.into_iter().filter_map(|at| region.asleep.remove(&at)).collect();
        self.asleep_bytes -= forgotten.len() as u64 * self.get_mut(id).granule;
        forgotten
    }

    /// All that sleeps, in bytes.
    pub(crate) fn asleep_bytes(&self) -> u64 {
        self.asleep_bytes
    }
}
