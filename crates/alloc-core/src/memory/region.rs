//! Device level: reserved address space and the granules of physical memory behind it.
//!
//! A region is one reservation, in which granules lie side by side or with gaps. Each granule has one state; growing, giving
//! back, sleeping, moving and sharing are all transitions of it, so that they compose. Driver work on
//! granules is done by the free functions at the end, which hold no lock: the caller sets the granules to
//! [`GranuleState::Pending`] first and commits the outcome afterwards.

mod asleep;
mod driver;
mod export;
mod leftovers;
mod mappings;

use crate::backend::HandleType;
use crate::base::steps::Counted;
use crate::memory::backup::Saved;
use crate::memory::source::SegmentSource;

use crate::sync::Arc;
use crate::types::{DeviceIndex, DevicePtr, PhysicalHandle};
use smallvec::SmallVec;
use std::collections::BTreeMap;
use std::ops::Range;

pub(crate) use driver::{Failed, back, evict, map, persist, take_down, undo};
pub(crate) use export::{Piece, ToExport};
pub(crate) use leftovers::Leftovers;
pub(crate) use mappings::{HandedOver, Place};

/// Index of a region on its device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct RegionId(pub(crate) u32);

/// State of a granule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub(crate) enum GranuleState {
    /// Address space without memory.
    Free,
    /// A thread is changing it, without holding a lock.
    Pending,
    /// Backed by memory.
    Mapped,
    /// Its memory was given up and its address kept.
    Asleep,
    /// Backed by memory that another process has, too.
    Exported,
    /// Mapped, and its memory is owned by a granule at another address.
    Alias,
}

impl GranuleState {
    /// True if memory backs it.
    #[must_use]
    pub(crate) const fn is_backed(self) -> bool {
        matches!(self, Self::Mapped | Self::Exported)
    }
}

#[derive(Clone, Copy, Debug)]
struct GranuleRecord {
    bytes: u64,
    state: GranuleState,
    handle: Option<PhysicalHandle>,
}

/// Physical memory in its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mapping {
    /// First address.
    pub(crate) addr: u64,
    pub(crate) bytes: u64,
    pub(crate) handle: PhysicalHandle,
}

impl Mapping {
    pub(crate) fn at(&self) -> DevicePtr {
        DevicePtr(self.addr)
    }

    pub(crate) fn end(&self) -> u64 {
        self.addr + self.bytes
    }
}

/// Bytes of several.
pub(crate) fn bytes_of(memory: &[Mapping]) -> u64 {
    memory.iter().map(|mapping| mapping.bytes).sum()
}

/// One reservation.
#[derive(Debug)]
pub(crate) struct Region {
    pub(crate) base: u64,
    pub(crate) bytes: u64,
    /// Granules have a multiple of so many bytes, and begin at one.
    unit: u64,
    /// Those that have memory, had some and sleep, or are being changed: by address. The rest is free.
    granules: BTreeMap<u64, GranuleRecord>,
    /// The contents of granules that sleep, by address.
    asleep: BTreeMap<u64, Saved>,
}

/// Origin of physical memory: a pool's own source, or the driver.
pub(crate) type Source = Option<Arc<dyn SegmentSource>>;

/// Memory to back granules with.
#[derive(Clone, Debug)]
pub(crate) struct Backing {
    pub(crate) device: DeviceIndex,
    /// Handle type for other processes.
    pub(crate) handle_type: HandleType,
    /// Devices with access: its own and those that reach its memory.
    pub(crate) access: SmallVec<[DeviceIndex; 4]>,
    pub(crate) source: Source,
}

impl Region {
    /// The granule that holds the byte at `addr`, and its first address. `None` where address space is free.
    fn holding(&self, addr: u64) -> Option<(u64, &GranuleRecord)> {
        let (at, granule) = self.granules.range(..=addr).next_back()?;
        (addr < at + granule.bytes).then_some((*at, granule))
    }

    /// The granules in a range of whole ones.
    fn in_range(&self, range: Range<u64>) -> impl DoubleEndedIterator<Item = (u64, &GranuleRecord)> {
        self.granules.range(range).map(|(at, granule)| (*at, granule))
    }

    /// True if the address is part of it.
    pub(crate) fn contains(&self, addr: u64) -> bool {
        let Self { base, bytes, .. } = *self;
        (base..base + bytes).contains(&addr)
    }

    /// True if a granule of so many bytes is mapped at `addr`, and no thread unmaps it.
    fn is_mapped(&self, addr: u64, bytes: u64) -> bool {
        let granule = self.granules.get(&addr).filter(|granule| granule.bytes == bytes);
        granule.is_some_and(|granule| granule.state.is_backed() || granule.state == GranuleState::Alias)
    }

    /// True if a thread is changing some granule.
    pub(crate) fn is_changing(&self) -> bool {
        self.granules.values().any(|granule| granule.state == GranuleState::Pending)
    }

    /// The states in a range: of its granules, and of the gaps between them.
    pub(crate) fn states(&self, range: Range<u64>) -> impl Iterator<Item = GranuleState> + '_ {
        let around = self.around(range);
        let mut at = around.start;
        std::iter::from_fn(move || {
            if at >= around.end {
                return None;
            }
            let (end, state) = match self.holding(at) {
                Some((first, granule)) => (first + granule.bytes, granule.state),
                None => {
                    let next = self.granules.range(at..around.end).next();
                    (next.map_or(around.end, |(next, _)| *next), GranuleState::Free)
                }
            };
            at = end;
            Some(state)
        })
    }

    /// Widens a range to whole granules, and whole units where it is free.
    pub(crate) fn around(&self, range: Range<u64>) -> Range<u64> {
        let Range { start, end } = range;
        let low = self.holding(start).map_or_else(|| start - (start - self.base) % self.unit, |(at, _)| at);
        let high = self.holding(end - 1).map(|(at, granule)| at + granule.bytes);
        low..high.unwrap_or_else(|| (end - self.base).next_multiple_of(self.unit) + self.base)
    }

    /// The granules in a range, each with its first address, its bytes and its state.
    pub(crate) fn granules(&self, range: Range<u64>) -> impl Iterator<Item = (u64, u64, GranuleState)> {
        self.in_range(range).map(|(at, granule)| (at, granule.bytes, granule.state))
    }

    /// Bytes that have memory behind them.
    pub(crate) fn backed_bytes(&self) -> u64 {
        let backed = self.granules.values().filter(|granule| granule.state.is_backed());
        backed.map(|granule| granule.bytes).sum()
    }

    /// Address and bytes of all memory that is behind granules, or is about to go.
    pub(crate) fn held_granules(&self) -> impl Iterator<Item = (DevicePtr, u64)> + '_ {
        let held = self.granules.iter().filter(|(_, granule)| granule.handle.is_some());
        held.map(|(at, granule)| (DevicePtr(*at), granule.bytes))
    }
}

/// A device's regions.
#[derive(Debug, Default)]
pub(crate) struct Regions {
    records: Vec<Option<Region>>,
    /// Places without one.
    vacant: Vec<usize>,
    /// Bytes that sleep, in all of them.
    asleep_bytes: u64,
    /// Undos that the driver refused; tried again at the next growth or release.
    leftovers: Leftovers,
    /// Exports to other processes.
    exports: export::Exports,
    /// Memory with aliases.
    mappings: mappings::Mappings,
}

impl Regions {
    pub(crate) fn add(&mut self, base: DevicePtr, bytes: u64, unit: u64) -> RegionId {
        let (granules, asleep) = (BTreeMap::new(), BTreeMap::new());
        let region = Some(Region { base: base.0, bytes, unit, granules, asleep });
        let at = self.vacant.pop().unwrap_or_else(|| {
            self.records.push(None);
            self.records.len() - 1
        });
        self.records[at] = region;
        #[allow(clippy::cast_possible_truncation)] // one per stream and tier
        RegionId(at as u32)
    }

    pub(crate) fn remove(&mut self, id: RegionId) {
        let gone = self.records[id.0 as usize].take();
        self.asleep_bytes -= gone.map_or(0, |region| region.asleep_bytes());
        self.vacant.push(id.0 as usize);
    }

    pub(crate) fn get(&self, id: RegionId) -> Option<&Region> {
        self.records.get(id.0 as usize)?.as_ref()
    }

    fn get_mut(&mut self, id: RegionId) -> &mut Region {
        match &mut self.records[id.0 as usize] {
            Some(region) => region,
            None => unreachable!("a segment's region is there as long as the segment"),
        }
    }

    /// Keeps what the driver refused to undo, to try again.
    pub(crate) fn keep(&mut self, leftovers: Leftovers) {
        self.leftovers.append(leftovers);
    }

    /// Takes them, to try again.
    pub(crate) fn take_leftovers(&mut self) -> Leftovers {
        std::mem::take(&mut self.leftovers)
    }

    /// True if something is still mapped in a range where nothing should be.
    pub(crate) fn has_leftovers_in(&self, base: u64, bytes: u64) -> bool {
        self.leftovers.maps_in(base, bytes)
    }

    /// True if a granule of so many bytes is mapped at `addr`, in its region or in a view.
    pub(crate) fn is_mapped(&self, addr: u64, bytes: u64) -> bool {
        self.slots().any(|slot| slot == (addr, bytes))
            || self.iter().any(|region| region.is_mapped(addr, bytes))
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Region> {
        self.records.iter().counted().flatten()
    }

    /// The memory behind the granule at `addr`.
    pub(crate) fn handle(&self, id: RegionId, addr: u64) -> Option<PhysicalHandle> {
        self.get(id)?.granules.get(&addr)?.handle
    }

    /// Publishes the intent to put memory behind granules of these sizes, which lie one after the other from `addr` on in free
    /// address space.
    pub(crate) fn begin_backing(&mut self, id: RegionId, addr: u64, sizes: &[u64]) {
        let region = self.get_mut(id);
        let mut at = addr;
        for bytes in sizes.iter().copied() {
            debug_assert!(
                bytes.is_multiple_of(region.unit) && (at - region.base).is_multiple_of(region.unit)
            );
            let granule = GranuleRecord { bytes, state: GranuleState::Pending, handle: None };
            let before = region.granules.insert(at, granule);
            debug_assert!(before.is_none(), "memory comes to free address space");
            at += bytes;
        }
    }

    /// Publishes the intent to change what is behind the granules in a range. Returns their memory, where they have any.
    pub(crate) fn begin(&mut self, id: RegionId, range: Range<u64>) -> Vec<Mapping> {
        let begin = |(addr, granule): (&u64, &mut GranuleRecord)| {
            granule.state = GranuleState::Pending;
            let (addr, bytes) = (*addr, granule.bytes);
            granule.handle.map(|handle| Mapping { addr, bytes, handle })
        };
        self.get_mut(id).granules.range_mut(range).filter_map(begin).collect()
    }

    /// Commits: this memory is behind granules now, each of its size.
    pub(crate) fn commit_backed(&mut self, id: RegionId, memory: &[Mapping]) {
        let region = self.get_mut(id);
        for Mapping { addr, bytes, handle } in memory.iter().copied() {
            let granule = GranuleRecord { bytes, state: GranuleState::Mapped, handle: Some(handle) };
            region.granules.insert(addr, granule);
        }
    }

    fn granule_mut(&mut self, id: RegionId, addr: u64) -> &mut GranuleRecord {
        match self.get_mut(id).granules.get_mut(&addr) {
            Some(granule) => granule,
            None => unreachable!("a granule is there until it is free"),
        }
    }

    /// Commits: nothing is behind the range, which is free address space.
    pub(crate) fn commit_vacant(&mut self, id: RegionId, range: Range<u64>) {
        let region = self.get_mut(id);
        let gone: SmallVec<[u64; 8]> = region.granules.range(range).map(|(at, _)| *at).collect();
        for at in gone {
            region.granules.remove(&at);
        }
    }
}
