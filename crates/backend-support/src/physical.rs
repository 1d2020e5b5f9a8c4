//! What drivers do not tell about virtual memory: a handle's size and device, what is mapped where, and who may use it.

use backend_api::types::DeviceIndex;
use backend_api::{Access, BackendError, HandleType, Result};
use std::collections::{BTreeMap, HashMap};
use std::fmt::Debug;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// What a backend must keep for one piece of physical memory, whichever handle it has. `()` keeps nothing.
pub trait Keeps: Clone + Debug + Default + Send + Sync + 'static {
    /// Whether imported descriptors are kept.
    const IMPORTS: bool;

    /// A descriptor for the caller; `export` makes one.
    ///
    /// # Errors
    /// What `export` answers, and what `not_copied` makes of a copy that failed.
    fn exported(
        &self,
        export: impl FnOnce() -> Result<OwnedFd>,
        not_copied: impl FnOnce(io::Error) -> BackendError,
    ) -> Result<OwnedFd>;

    /// Keeps a descriptor that was given to the driver until access is set wherever the memory is mapped.
    fn keep_import(&self, imported: OwnedFd);

    /// Whether such a descriptor is still kept.
    fn import_is_pending(&self) -> bool;

    /// Access is set wherever the memory is mapped.
    fn import_is_done(&self);

    /// Whether this is for the same memory.
    fn is_same(&self, other: &Self) -> bool;
}

impl Keeps for () {
    const IMPORTS: bool = false;

    fn exported(
        &self,
        export: impl FnOnce() -> Result<OwnedFd>,
        _not_copied: impl FnOnce(io::Error) -> BackendError,
    ) -> Result<OwnedFd> {
        export()
    }

    fn keep_import(&self, _imported: OwnedFd) {}

    fn import_is_pending(&self) -> bool {
        false
    }

    fn import_is_done(&self) {}

    fn is_same(&self, _other: &Self) -> bool {
        true
    }
}

/// What a physical handle stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Memory<K> {
    /// Whose memory it is.
    pub device: DeviceIndex,
    /// Unknown for some imported handles that were not mapped yet.
    pub bytes: Option<u64>,
    /// How it can be shared.
    pub handle_type: HandleType,
    /// What is kept for it.
    pub keeps: K,
}

/// One mapping.
#[derive(Clone, Debug)]
pub struct Mapping<K> {
    /// Where it begins.
    pub at: u64,
    /// The whole handle.
    pub bytes: u64,
    /// What is mapped.
    pub memory: Memory<K>,
    /// The handle that it was mapped by; nothing where that was given up since.
    pub handle: Option<u64>,
    /// Who was given access, where the driver takes no more than one mapping at a time; not listed is no access.
    pub access: Vec<(DeviceIndex, Access)>,
}

impl<K> Mapping<K> {
    fn end(&self) -> u64 {
        self.at.saturating_add(self.bytes)
    }

    /// What a device may do.
    #[must_use]
    pub fn access_of(&self, device: DeviceIndex) -> Access {
        self.access.iter().find(|(known, _)| *known == device).map_or(Access::None, |(_, access)| *access)
    }

    fn set_access(&mut self, device: DeviceIndex, access: Access) {
        self.access.retain(|(known, _)| *known != device);
        self.access.push((device, access));
    }
}

/// A range of reserved addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reservation {
    at: u64,
    bytes: u64,
    device: DeviceIndex,
}

/// What is known about an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// Physical memory of a device is mapped there.
    Mapped { base: u64, bytes: u64, device: DeviceIndex },
    /// It was reserved, and nothing is mapped there.
    Reserved,
    /// It is no virtual memory of this backend.
    Elsewhere,
}

/// What a range of addresses is to which an end is put.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// A reservation, which is forgotten.
    Reserved(Reservation),
    /// Something is mapped in it.
    Mapped,
    /// No reservation of this backend.
    Unknown,
}

#[derive(Debug)]
struct Books<K> {
    /// Live handles with the number of references to each: an import or a retain may answer a known one.
    handles: HashMap<u64, (Memory<K>, usize)>,
    mappings: BTreeMap<u64, Mapping<K>>,
    reservations: BTreeMap<u64, Reservation>,
}

impl<K: Keeps> Books<K> {
    fn mapping_at(&self, at: u64) -> Option<&Mapping<K>> {
        let (_, mapping) = self.mappings.range(..=at).next_back()?;
        (at < mapping.end()).then_some(mapping)
    }

    fn reservation_at(&self, at: u64) -> Option<&Reservation> {
        let (_, range) = self.reservations.range(..=at).next_back()?;
        (at < range.at.saturating_add(range.bytes)).then_some(range)
    }

    /// The mappings that make up a range, whole and without gaps.
    fn whole_mappings(&self, at: u64, bytes: u64) -> Option<Vec<Mapping<K>>> {
        let (mut next, end) = (at, at.checked_add(bytes)?);
        let mut found = Vec::new();
        while next < end {
            let mapping = self.mappings.get(&next).filter(|mapping| mapping.end() <= end)?;
            next = mapping.end();
            found.push(mapping.clone());
        }
        Some(found)
    }

    /// The mappings inside a range, whatever else is there.
    fn mappings_in(&self, at: u64, bytes: u64) -> Vec<Mapping<K>> {
        let end = at.saturating_add(bytes);
        let begin_inside = self.mappings.range(at..end).map(|(_, mapping)| mapping);
        begin_inside.filter(|mapping| mapping.end() <= end).cloned().collect()
    }
}

/// Handles, mappings and reservations. Entries leave before the driver is told to give something up, since it may hand
/// the same number out again at once, and come back where it refuses.
#[derive(Debug)]
pub(crate) struct Physical<K>(Mutex<Books<K>>);

impl<K> Default for Physical<K> {
    fn default() -> Self {
        let state =
            Books { handles: HashMap::new(), mappings: BTreeMap::new(), reservations: BTreeMap::new() };
        Self(Mutex::new(state))
    }
}

impl<K: Keeps> Physical<K> {
    fn lock(&self) -> MutexGuard<'_, Books<K>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One more reference to a handle.
    pub(crate) fn add(&self, raw: u64, memory: Memory<K>) {
        let mut state = self.lock();
        let bytes = memory.bytes;
        let (known, references) = state.handles.entry(raw).or_insert((memory, 0));
        known.bytes = known.bytes.or(bytes);
        *references += 1;
    }

    /// One reference less; none for a handle that is not known.
    pub(crate) fn take(&self, raw: u64) -> Option<Memory<K>> {
        let mut state = self.lock();
        let (memory, references) = state.handles.get_mut(&raw)?;
        let memory = memory.clone();
        *references -= 1;
        if *references == 0 {
            state.handles.remove(&raw);
        }
        Some(memory)
    }

    pub(crate) fn memory(&self, raw: u64) -> Option<Memory<K>> {
        self.lock().handles.get(&raw).map(|(memory, _)| memory.clone())
    }

    /// The handle is mapped, which tells its size.
    pub(crate) fn mapped(&self, at: u64, bytes: u64, raw: u64) {
        let mut state = self.lock();
        let Some((memory, _)) = state.handles.get_mut(&raw) else { return };
        memory.bytes = Some(bytes);
        let memory = memory.clone();
        state.mappings.insert(at, Mapping { at, bytes, memory, handle: Some(raw), access: Vec::new() });
    }

    /// Forgets the mappings inside a range, and returns them. `whole`: only where they make up the range; otherwise the
    /// driver is to say what is wrong.
    pub(crate) fn take_mappings(&self, at: u64, bytes: u64, whole: bool) -> Option<Vec<Mapping<K>>> {
        let mut state = self.lock();
        let mut taken = if whole { state.whole_mappings(at, bytes)? } else { state.mappings_in(at, bytes) };
        for mapping in &mut taken {
            state.mappings.remove(&mapping.at);
            let is_live = |raw: &u64| {
                state.handles.get(raw).is_some_and(|(memory, _)| memory.keeps.is_same(&mapping.memory.keeps))
            };
            mapping.handle = mapping.handle.filter(is_live);
        }
        Some(taken)
    }

    pub(crate) fn put_mappings_back(&self, mappings: Vec<Mapping<K>>) {
        self.lock().mappings.extend(mappings.into_iter().map(|mapping| (mapping.at, mapping)));
    }

    /// The mappings that make up a range; none where the range is no such sum.
    pub(crate) fn whole_mappings(&self, at: u64, bytes: u64) -> Option<Vec<Mapping<K>>> {
        self.lock().whole_mappings(at, bytes)
    }

    /// Notes what some devices may do with some mappings now. Imports that wait for no more access are done.
    pub(crate) fn set_access(&self, mappings: &[Mapping<K>], devices: &[DeviceIndex], access: Access) {
        let mut state = self.lock();
        for mapping in mappings {
            if let Some(known) = state.mappings.get_mut(&mapping.at) {
                devices.iter().for_each(|&device| known.set_access(device, access));
            }
        }
        for mapping in mappings {
            let keeps = &mapping.memory.keeps;
            let waits = |other: &Mapping<K>| other.memory.keeps.is_same(keeps) && other.access.is_empty();
            // Few wait, and the search for others goes through all that is mapped.
            if keeps.import_is_pending() && !state.mappings.values().any(waits) {
                keeps.import_is_done();
            }
        }
    }

    pub(crate) fn reserved(&self, at: u64, bytes: u64, device: DeviceIndex) {
        self.lock().reservations.insert(at, Reservation { at, bytes, device });
    }

    /// What lies at an address.
    pub(crate) fn place(&self, at: u64) -> Place {
        let state = self.lock();
        if let Some(mapping) = state.mapping_at(at) {
            return Place::Mapped { base: mapping.at, bytes: mapping.bytes, device: mapping.memory.device };
        }
        if state.reservation_at(at).is_some() { Place::Reserved } else { Place::Elsewhere }
    }

    /// Forgets a reservation in which nothing is mapped.
    pub(crate) fn take_reservation(&self, at: u64, bytes: u64, of_any_size: bool) -> Ending {
        let mut state = self.lock();
        if state.mappings.range(at..at.saturating_add(bytes)).next().is_some() {
            return Ending::Mapped;
        }
        match state.reservations.get(&at).copied().filter(|known| of_any_size || known.bytes == bytes) {
            Some(reservation) => {
                state.reservations.remove(&at);
                Ending::Reserved(reservation)
            }
            None => Ending::Unknown,
        }
    }

    pub(crate) fn put_reservation_back(&self, reservation: Reservation) {
        self.lock().reservations.insert(reservation.at, reservation);
    }

    /// The device whose memory is mapped at an address, or for which it was reserved.
    pub(crate) fn device_at(&self, at: u64) -> Option<DeviceIndex> {
        let state = self.lock();
        let mapped = state.mapping_at(at).map(|mapping| mapping.memory.device);
        mapped.or_else(|| state.reservation_at(at).map(|reservation| reservation.device))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::sync::Arc;

    /// Keeps one imported descriptor.
    #[derive(Clone, Debug, Default)]
    struct Imported(Arc<Mutex<Option<OwnedFd>>>);

    impl Keeps for Imported {
        const IMPORTS: bool = true;

        fn exported(
            &self,
            export: impl FnOnce() -> Result<OwnedFd>,
            _not_copied: impl FnOnce(io::Error) -> BackendError,
        ) -> Result<OwnedFd> {
            export()
        }

        fn keep_import(&self, imported: OwnedFd) {
            *self.0.lock().unwrap() = Some(imported);
        }

        fn import_is_pending(&self) -> bool {
            self.0.lock().unwrap().is_some()
        }

        fn import_is_done(&self) {
            *self.0.lock().unwrap() = None;
        }

        fn is_same(&self, other: &Self) -> bool {
            Arc::ptr_eq(&self.0, &other.0)
        }
    }

    fn memory<K: Keeps>(bytes: Option<u64>) -> Memory<K> {
        Memory { device: DeviceIndex(1), bytes, handle_type: HandleType::PosixFd, keeps: K::default() }
    }

    #[test]
    fn a_handle_lives_until_its_last_reference_goes() {
        let physical = Physical::<()>::default();
        physical.add(7, memory(Some(0x1000)));
        physical.add(7, memory(Some(0x1000)));
        assert!(physical.take(7).is_some() && physical.memory(7).is_some());
        assert!(physical.take(7).is_some() && physical.memory(7).is_none());
        assert!(physical.take(7).is_none());
    }

    #[test]
    fn mapping_tells_the_size_of_an_import() {
        let physical = Physical::<()>::default();
        physical.add(7, memory(None));
        physical.mapped(0x20_0000, 0x1000, 7);
        assert_eq!(physical.memory(7), Some(memory(Some(0x1000))));
        physical.take(7);
        let found = physical.lock().mapping_at(0x20_0fff).cloned().unwrap();
        assert_eq!((found.at, found.bytes), (0x20_0000, 0x1000), "mapped memory outlives its handle");
        assert!(physical.lock().mapping_at(0x20_1000).is_none());
    }

    fn two_mappings() -> Physical<()> {
        let physical = Physical::<()>::default();
        physical.add(7, memory(Some(0x1000)));
        physical.reserved(0x20_0000, 0x4000, DeviceIndex(0));
        physical.mapped(0x20_0000, 0x1000, 7);
        physical.mapped(0x20_1000, 0x1000, 7);
        physical
    }

    #[test]
    fn whole_mappings_leave_and_come_back() {
        let physical = two_mappings();
        assert!(physical.take_mappings(0x20_0000, 0x1800, true).is_none(), "half a mapping is none");
        assert!(physical.take_mappings(0x20_0000, 0x3000, true).is_none(), "nor is a gap");
        let taken = physical.take_mappings(0x20_0000, 0x2000, true).unwrap();
        assert_eq!(taken.len(), 2);
        assert_eq!(physical.device_at(0x20_0000), Some(DeviceIndex(0)), "only reserved now");
        physical.put_mappings_back(taken);
        assert_eq!(physical.device_at(0x20_1000), Some(DeviceIndex(1)));
    }

    #[test]
    fn what_lies_inside_a_range_leaves_where_the_driver_judges_the_range() {
        let physical = two_mappings();
        let taken = physical.take_mappings(0x20_0000, 0x1800, false).unwrap();
        assert_eq!(taken.len(), 1, "half a mapping is none");
        let second = Place::Mapped { base: 0x20_1000, bytes: 0x1000, device: DeviceIndex(1) };
        assert_eq!(physical.place(0x20_1fff), second);
        assert_eq!(physical.place(0x20_0000), Place::Reserved);
        assert_eq!(physical.place(0x20_4000), Place::Elsewhere);
        physical.put_mappings_back(taken);
        assert_eq!(physical.device_at(0x20_0000), Some(DeviceIndex(1)));
    }

    #[test]
    fn a_reservation_stays_while_something_is_mapped_in_it() {
        let physical = two_mappings();
        assert_eq!(physical.take_reservation(0x20_0000, 0x4000, false), Ending::Mapped);
        physical.take_mappings(0x20_0000, 0x2000, true).unwrap();
        assert_eq!(physical.take_reservation(0x20_0000, 0x2000, false), Ending::Unknown, "not its size");
        assert_eq!(physical.place(0x20_3fff), Place::Reserved);
        let Ending::Reserved(taken) = physical.take_reservation(0x20_0000, 0x4000, false) else {
            panic!("nothing is mapped in it");
        };
        assert_eq!((physical.place(0x20_0000), physical.device_at(0x20_0000)), (Place::Elsewhere, None));
        physical.put_reservation_back(taken);
        assert_eq!(physical.place(0x20_0000), Place::Reserved);
    }

    #[test]
    fn access_is_remembered_for_every_mapping() {
        let physical = two_mappings();
        let both = physical.whole_mappings(0x20_0000, 0x2000).unwrap();
        physical.set_access(&both, &[DeviceIndex(0), DeviceIndex(2)], Access::ReadWrite);
        physical.set_access(&both[1..], &[DeviceIndex(0)], Access::Read);
        let [first, second] =
            [0x20_0000, 0x20_1000].map(|at| physical.lock().mapping_at(at).cloned().unwrap());
        assert_eq!(first.access_of(DeviceIndex(0)), Access::ReadWrite);
        assert_eq!(second.access_of(DeviceIndex(0)), Access::Read);
        assert_eq!(second.access_of(DeviceIndex(2)), Access::ReadWrite);
        assert_eq!(second.access_of(DeviceIndex(1)), Access::None);
    }

    #[test]
    fn an_imported_descriptor_stays_until_every_mapping_has_access() {
        // Writing works for as long as the reading end is open.
        let (reader, mut writer) = std::io::pipe().unwrap();
        let imported = memory::<Imported>(None);
        imported.keeps.keep_import(reader.into());
        let physical = Physical::default();
        physical.add(7, imported);
        physical.mapped(0x20_0000, 0x1000, 7);
        physical.mapped(0x40_0000, 0x1000, 7);
        for (at, is_open) in [(0x20_0000, true), (0x40_0000, false)] {
            let mapping = physical.whole_mappings(at, 0x1000).unwrap();
            physical.set_access(&mapping, &[DeviceIndex(0)], Access::ReadWrite);
            assert_eq!(writer.write_all(b"x").is_ok(), is_open, "{at:#x}");
        }
    }
}
