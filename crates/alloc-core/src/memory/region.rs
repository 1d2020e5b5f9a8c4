//! Device level: reserved address space and the granules of physical memory behind it.
//!
//! A region is one reservation, cut into granules of one size. Each granule has one state; growing, giving
//! back, sleeping, moving and sharing are all transitions of it, so that they compose. Driver work on
//! granules is done by the free functions at the end, which hold no lock: the caller sets the granules to
//! [`GranuleState::Pending`] first and commits the outcome afterwards.

mod away;
mod export;
mod leftovers;
mod partial;
mod shrink;
mod sleep;

use crate::backend::{Access, Backend, BackendError, ErrorKind, HandleType, Result, VirtualMemory};
use crate::base::steps::Counted;
use crate::memory::backup::Saved;
use crate::memory::source::SegmentSource;
use crate::process::foreign::{Calls, Kind};
use crate::sync::Arc;
use crate::types::{DeviceIndex, DevicePtr, PhysicalHandle};
use smallvec::SmallVec;
use std::collections::BTreeMap;

pub(crate) use away::Place;
pub(crate) use export::{Piece, ToExport};
pub(crate) use leftovers::Leftovers;
pub(crate) use partial::Part;
pub(crate) use shrink::{Shrinking, Shrunk, give_part_back};

/// Index of a region on its device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RegionId(pub(crate) u32);

/// What a granule is at the moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum GranuleState {
    /// Address space without memory.
    Free,
    /// A thread is changing it, without holding a lock.
    Pending,
    /// Backed by memory.
    Mapped,
    /// Backed, and not to be moved or given back: something outside knows its address.
    Pinned,
    /// Its memory was given up and its address kept.
    Asleep,
    /// Backed by memory that another process has, too.
    Exported,
    /// Mapped, and its memory serves at another address of the device.
    Away,
    /// Backed in parts: a compaction took the memory of the rest away.
    Partial,
}

impl GranuleState {
    /// Whether memory is behind it.
    #[must_use]
    pub const fn is_backed(self) -> bool {
        matches!(self, Self::Mapped | Self::Pinned | Self::Exported)
    }

    /// Whether its memory may be taken for another place or given back.
    #[must_use]
    pub const fn may_leave(self) -> bool {
        matches!(self, Self::Mapped)
    }
}

#[derive(Clone, Copy, Debug)]
struct Granule {
    state: GranuleState,
    handle: Option<PhysicalHandle>,
}

/// One reservation.
#[derive(Debug)]
pub(crate) struct Region {
    pub(crate) base: u64,
    pub(crate) bytes: u64,
    /// Bytes of one granule.
    pub(crate) granule: u64,
    /// Those up to the highest that ever was backed: more may be reserved than the device has.
    granules: Vec<Granule>,
    /// The contents of granules that sleep, by address.
    asleep: BTreeMap<u64, Saved>,
    /// What is behind granules that are backed in parts.
    partial: partial::Partial,
}

/// Where physical memory comes from: a pool's own source, or the driver.
pub(crate) type Source = Option<Arc<dyn SegmentSource>>;

/// What is to be behind granules.
#[derive(Clone, Debug)]
pub(crate) struct Backing {
    pub(crate) device: DeviceIndex,
    /// Bytes of one granule.
    pub(crate) granule: u64,
    /// How it can be shared with other processes.
    pub(crate) handle_type: HandleType,
    /// Who may use it: the device itself and those that reach its memory.
    pub(crate) access: SmallVec<[DeviceIndex; 4]>,
    pub(crate) source: Source,
}

impl Granule {
    const FREE: Self = Self { state: GranuleState::Free, handle: None };
}

impl Region {
    fn range(&self, addr: u64, bytes: u64) -> std::ops::Range<usize> {
        debug_assert!(addr.is_multiple_of(self.granule) || (addr - self.base).is_multiple_of(self.granule));
        let first = ((addr - self.base) / self.granule) as usize;
        first..first + (bytes / self.granule) as usize
    }

    /// The granule with a number.
    fn at(&self, number: usize) -> Granule {
        self.granules.get(number).copied().unwrap_or(Granule::FREE)
    }

    /// Whether the address is part of it.
    pub(crate) fn contains(&self, addr: u64) -> bool {
        (self.base..self.base + self.bytes).contains(&addr)
    }

    /// Whether there is memory behind the granule at `addr`, and no thread takes it away.
    fn is_mapped(&self, addr: u64) -> bool {
        let mapped = |state: GranuleState| {
            state.is_backed() || matches!(state, GranuleState::Away | GranuleState::Partial)
        };
        self.contains(addr) && mapped(self.state_at(addr))
    }

    /// Whether a thread is changing some granule.
    pub(crate) fn is_changing(&self) -> bool {
        self.granules.iter().any(|granule| granule.state == GranuleState::Pending)
    }

    /// The states in a range of whole granules.
    pub(crate) fn states(&self, addr: u64, bytes: u64) -> impl Iterator<Item = GranuleState> + '_ {
        self.range(addr, bytes).map(|number| self.at(number).state)
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
    /// What the driver refused to undo; tried again at the next growth or release.
    leftovers: Leftovers,
    /// What other processes have of them.
    exports: export::Exports,
    /// Granules that are mapped in a second place, too: the address there, and their bytes.
    shown: BTreeMap<u64, u64>,
    /// Where granules are mapped whose memory serves elsewhere.
    away: away::Away,
    /// Their bytes.
    away_bytes: u64,
}

impl Regions {
    pub(crate) fn add(&mut self, base: DevicePtr, bytes: u64, granule: u64) -> RegionId {
        let (granules, asleep, partial) = (Vec::new(), BTreeMap::new(), partial::Partial::default());
        let region = Some(Region { base: base.0, bytes, granule, granules, asleep, partial });
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

    /// What the driver refused to undo is tried again later.
    pub(crate) fn keep(&mut self, leftovers: Leftovers) {
        self.leftovers.append(leftovers);
    }

    /// What is to be tried again.
    pub(crate) fn take_leftovers(&mut self) -> Leftovers {
        std::mem::take(&mut self.leftovers)
    }

    /// Whether something is still mapped in a range where nothing should be.
    pub(crate) fn has_leftovers_in(&self, base: u64, bytes: u64) -> bool {
        self.leftovers.maps_in(base, bytes)
    }

    /// Whether there is memory behind the granule at `addr`, at its home or in a second place.
    pub(crate) fn is_mapped(&self, addr: u64) -> bool {
        self.shown.contains_key(&addr) || self.iter().any(|region| region.is_mapped(addr))
    }

    /// Granules are mapped in a second place from now on.
    pub(crate) fn show(&mut self, places: impl IntoIterator<Item = (u64, u64)>) {
        self.shown.extend(places);
    }

    /// They are not any more.
    pub(crate) fn hide(&mut self, places: &[u64]) {
        for at in places {
            self.shown.remove(at);
        }
    }

    /// Where granules are mapped in a second place, and their bytes.
    pub(crate) fn shown(&self) -> &BTreeMap<u64, u64> {
        &self.shown
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Region> {
        self.records.iter().counted().flatten()
    }

    /// The memory behind the granule at `addr`.
    pub(crate) fn handle(&self, id: RegionId, addr: u64) -> Option<PhysicalHandle> {
        let region = self.get(id)?;
        region.at(region.range(addr, region.granule).start).handle
    }

    /// Publishes the intent to back or vacate a range; returns its handles.
    pub(crate) fn begin(&mut self, id: RegionId, addr: u64, bytes: u64) -> Vec<Option<PhysicalHandle>> {
        let region = self.get_mut(id);
        let range = region.range(addr, bytes);
        if region.granules.len() < range.end {
            region.granules.resize(range.end, Granule::FREE);
        }
        region.granules[range]
            .iter_mut()
            .map(|granule| {
                granule.state = GranuleState::Pending;
                granule.handle
            })
            .collect()
    }

    /// Commits: `handles` are now behind the range.
    pub(crate) fn commit_backed(&mut self, id: RegionId, addr: u64, handles: &[PhysicalHandle]) {
        let region = self.get_mut(id);
        let range = region.range(addr, handles.len() as u64 * region.granule);
        for (granule, handle) in region.granules[range].iter_mut().zip(handles) {
            *granule = Granule { state: GranuleState::Mapped, handle: Some(*handle) };
        }
    }

    fn granule_mut(&mut self, id: RegionId, addr: u64) -> &mut Granule {
        let region = self.get_mut(id);
        let number = region.range(addr, region.granule).start;
        &mut region.granules[number]
    }

    /// The memory of a granule serves at `home` from here on, where it may have been away, and is away where it served.
    pub(crate) fn send_away(&mut self, from: Place, home: Place) {
        let granule = self.granule_mut(from.region, from.addr);
        granule.state = GranuleState::Away;
        let Some(memory) = granule.handle else { unreachable!("what is backed has a handle") };
        self.away_bytes += self.get(from.region).map_or(0, |region| region.granule);
        let serves = self.granule_mut(home.region, home.addr);
        if serves.state == GranuleState::Away {
            serves.state = GranuleState::Mapped;
            self.away_bytes -= self.get(home.region).map_or(0, |region| region.granule);
        }
        self.away.send(memory, from, home);
    }

    /// What was away at `addr` is not mapped there any more.
    pub(crate) fn forget_away(&mut self, id: RegionId, addr: u64) {
        let granule = std::mem::replace(self.granule_mut(id, addr), Granule::FREE);
        debug_assert_eq!(granule.state, GranuleState::Pending, "one thread takes it away");
        if let Some(memory) = granule.handle {
            self.away.remove(memory, addr);
        }
        self.away_bytes -= self.get(id).map_or(0, |region| region.granule);
    }

    /// What was away at `addr` is [on its way](Self::begin) no more, and stays mapped.
    pub(crate) fn stay_away(&mut self, id: RegionId, addr: u64) {
        self.granule_mut(id, addr).state = GranuleState::Away;
    }

    /// Where the memory of a granule is mapped in an arena, away.
    pub(crate) fn place_in(&self, arena: u16, id: RegionId, addr: u64) -> Option<Place> {
        self.away.place(self.handle(id, addr)?, arena)
    }

    /// Whether the memory of a granule is mapped elsewhere, too, where it served before.
    pub(crate) fn is_elsewhere(&self, id: RegionId, addr: u64) -> bool {
        !self.away.is_empty() && self.handle(id, addr).is_some_and(|memory| self.away.has(memory))
    }

    /// The granules of an arena whose memory serves elsewhere, and where it does.
    pub(crate) fn away_from(&self, arena: u16) -> Vec<(Place, Place)> {
        let places = self.away.iter().filter(|(_, place, _)| place.arena == arena);
        places.map(|(_, place, home)| (*place, *home)).collect()
    }

    /// Bytes of granules whose memory serves elsewhere.
    pub(crate) fn away_bytes(&self) -> u64 {
        self.away_bytes
    }

    /// Panics where what is away is not the memory of another granule.
    pub(crate) fn check_away(&self) {
        let mut bytes = 0;
        for (memory, place, home) in self.away.iter() {
            let Some(region) = self.get(place.region) else { unreachable!("what is away has a region") };
            let state = region.state_at(place.addr);
            assert!(matches!(state, GranuleState::Away | GranuleState::Pending), "what is away is marked");
            assert_eq!(self.handle(place.region, place.addr), Some(memory), "and stays mapped");
            assert_eq!(self.handle(home.region, home.addr), Some(memory), "which is known");
            bytes += region.granule;
        }
        assert_eq!(bytes, self.away_bytes, "what is away adds up");
    }

    /// Commits: nothing is behind the range.
    pub(crate) fn commit_vacant(&mut self, id: RegionId, addr: u64, bytes: u64) {
        let region = self.get_mut(id);
        let range = region.range(addr, bytes);
        region.granules[range].fill(Granule::FREE);
    }
}

/// How often a cleanup call is tried: a driver that fails once is survived, a dead one is not waited for.
const CLEANUP_TRIES: usize = 3;

/// A call that cleans up, tried again where it fails.
pub(crate) fn persist(what: &str, mut call: impl FnMut() -> Result<()>) -> Result<()> {
    let mut outcome = call();
    for _ in 1..CLEANUP_TRIES {
        match &outcome {
            Err(error) if error.kind != ErrorKind::DeviceLost => {
                tracing::warn!(%error, "{what} failed and is tried again");
                outcome = call();
            }
            _ => break,
        }
    }
    outcome
}

/// Puts fresh physical memory behind `count` granules at `at`. On an error everything is undone.
/// Calls the driver; hold no lock.
pub(crate) fn back(
    backend: &dyn Backend,
    vm: &dyn VirtualMemory,
    backing: &Backing,
    at: DevicePtr,
    count: usize,
    calls: &Calls<'_>,
) -> std::result::Result<Vec<PhysicalHandle>, Failed> {
    crate::sync::assert_unlocked();
    let mut handles = Vec::with_capacity(count);
    for _ in 0..count {
        match create(vm, backing, calls) {
            Ok(handle) => handles.push(handle),
            Err(error) => {
                backend.clear_error();
                let mut leftovers = Leftovers::default();
                release(vm, handles, &backing.source, &mut leftovers, calls);
                return Err(Failed { error, leftovers: Box::new(leftovers) });
            }
        }
    }
    put(backend, vm, backing, at, handles, calls)
}

/// Puts physical memory that nothing maps behind granules at `at`. On an error it is given back.
/// Calls the driver; hold no lock.
fn put(
    backend: &dyn Backend,
    vm: &dyn VirtualMemory,
    backing: &Backing,
    at: DevicePtr,
    handles: Vec<PhysicalHandle>,
    calls: &Calls<'_>,
) -> std::result::Result<Vec<PhysicalHandle>, Failed> {
    crate::sync::assert_unlocked();
    let granule = backing.granule;
    let mut mapped = 0;
    let attempt = (|| {
        for (n, handle) in handles.iter().enumerate() {
            let place = at.add(n as u64 * granule);
            // SAFETY: rule 1: the handle has this size, and nothing maps it. The range lies in a live
            // reservation whose granules this thread has set to `Pending`, so nothing is mapped there.
            unsafe { vm.map(place, granule, *handle) }?;
            mapped += 1;
        }
        // SAFETY: the whole range was mapped just above.
        unsafe { vm.set_access(at, handles.len() as u64 * granule, &backing.access, Access::ReadWrite) }
    })();
    let Err(error) = attempt else { return Ok(handles) };
    backend.clear_error();
    let mut leftovers = Leftovers::default();
    let (on_the_way, unmapped) = handles.split_at(mapped);
    // SAFETY: mapped above, never handed out, so no work can use it.
    unsafe { undo(vm, backing, at, on_the_way, &mut leftovers, calls) };
    release(vm, unmapped.to_vec(), &backing.source, &mut leftovers, calls);
    Err(Failed { error, leftovers: Box::new(leftovers) })
}

/// Takes memory away again that [`back`] has put behind the granules from `at` on. What the driver refuses is left over.
/// Calls the driver; hold no lock.
///
/// # Safety
/// Rule 3: each handle is mapped at its granule, and nobody has used it.
pub(crate) unsafe fn undo(
    vm: &dyn VirtualMemory,
    backing: &Backing,
    at: DevicePtr,
    handles: &[PhysicalHandle],
    leftovers: &mut Leftovers,
    calls: &Calls<'_>,
) {
    for n in (0..handles.len()).rev() {
        let place = at.add(n as u64 * backing.granule);
        // SAFETY: by this function's contract.
        if let Err(error) = persist("undoing a mapping", || unsafe { vm.unmap(place, backing.granule) }) {
            tracing::error!(%error, %place, "a granule could not be unmapped; it is tried again later");
            leftovers.keep_mapping(place, backing.granule);
        }
    }
    release(vm, handles.to_vec(), &backing.source, leftovers, calls);
}

/// A driver failure, and what could not be undone.
#[derive(Debug)]
pub(crate) struct Failed {
    pub(crate) error: BackendError,
    pub(crate) leftovers: Box<Leftovers>,
}

/// Takes the memory behind the granules from `at` on away, in ascending order, until the driver refuses.
/// Returns how many were vacated, what is left over, and the refusal.
/// Calls the driver; hold no lock.
///
/// # Safety
/// Rule 3: each handle is mapped at its granule, and no queued work uses the range.
pub(crate) unsafe fn vacate(
    vm: &dyn VirtualMemory,
    at: DevicePtr,
    granule: u64,
    handles: &[PhysicalHandle],
    source: &Source,
    calls: &Calls<'_>,
) -> (usize, Leftovers, Result<()>) {
    crate::sync::assert_unlocked();
    let mut leftovers = Leftovers::default();
    for (n, handle) in handles.iter().enumerate() {
        // SAFETY: by this function's contract.
        let unmapped = unsafe { vm.unmap(at.add(n as u64 * granule), granule) };
        if let Err(error) = unmapped {
            return (n, leftovers, Err(error));
        }
        release(vm, vec![*handle], source, &mut leftovers, calls);
    }
    (handles.len(), leftovers, Ok(()))
}

/// New physical memory from the source.
fn create(vm: &dyn VirtualMemory, backing: &Backing, calls: &Calls<'_>) -> Result<PhysicalHandle> {
    let Backing { device, granule, handle_type, ref source, .. } = *backing;
    let Some(source) = source else { return vm.create_physical(device, granule, handle_type) };
    let create = || source.physical().and_then(|physical| physical.create(device, granule));
    calls.call(Kind::Source, create).flatten().ok_or_else(|| {
        let detail = "the pool's own source has no physical memory left";
        BackendError::new(ErrorKind::OutOfMemory, 0, "physical source", device, detail)
    })
}

/// Releases handles; those that are refused, also because a source panics, are left over.
fn release(
    vm: &dyn VirtualMemory,
    handles: Vec<PhysicalHandle>,
    source: &Source,
    leftovers: &mut Leftovers,
    calls: &Calls<'_>,
) {
    // SAFETY: rule 1: created by this backend and released once; on an error it is kept and tried later.
    let to_driver = |handle| unsafe { vm.release_physical(handle) };
    for handle in handles {
        let released = match source {
            None => Some(persist("releasing memory", || to_driver(handle))),
            Some(source) => calls.call(Kind::Source, || {
                persist("releasing memory", || {
                    source.physical().map_or_else(|| to_driver(handle), |physical| physical.release(handle))
                })
            }),
        };
        if let Some(Err(error)) = &released {
            tracing::error!(%error, "physical memory could not be released; it is tried again later");
        }
        if !matches!(released, Some(Ok(()))) {
            leftovers.keep_handle(handle, source.clone());
        }
    }
}
