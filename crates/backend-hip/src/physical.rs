//! What the runtime does not tell about virtual memory: a handle's size and device, what is mapped where, and
//! who may use it.

use crate::descriptors::Descriptors;
use backend_api::types::DeviceIndex;
use backend_api::{Access, HandleType};
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What a physical handle stands for.
#[derive(Clone, Debug)]
pub(crate) struct Memory {
    pub(crate) device: DeviceIndex,
    /// Unknown for some imported handles that were not mapped yet.
    pub(crate) bytes: Option<u64>,
    pub(crate) handle_type: HandleType,
    pub(crate) descriptors: Arc<Descriptors>,
}

/// One mapping: the runtime takes unmaps and changes of access for no more than one at a time.
#[derive(Clone, Debug)]
pub(crate) struct Mapping {
    pub(crate) at: u64,
    pub(crate) bytes: u64,
    pub(crate) memory: Memory,
    /// Who was given access; not listed is no access.
    pub(crate) access: Vec<(DeviceIndex, Access)>,
}

impl Mapping {
    fn end(&self) -> u64 {
        self.at.saturating_add(self.bytes)
    }

    pub(crate) fn access_of(&self, device: DeviceIndex) -> Access {
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
    pub(crate) at: u64,
    bytes: u64,
    device: DeviceIndex,
}

#[derive(Debug, Default)]
struct State {
    /// Live handles with the number of references to each: an import or a retain may answer a known one.
    handles: HashMap<u64, (Memory, usize)>,
    mappings: BTreeMap<u64, Mapping>,
    reservations: BTreeMap<u64, Reservation>,
}

impl State {
    fn mapping_at(&self, at: u64) -> Option<&Mapping> {
        let (_, mapping) = self.mappings.range(..=at).next_back()?;
        (at < mapping.end()).then_some(mapping)
    }

    fn reservation_at(&self, at: u64) -> Option<&Reservation> {
        let (_, range) = self.reservations.range(..=at).next_back()?;
        (at < range.at.saturating_add(range.bytes)).then_some(range)
    }

    /// The mappings that make up a range, whole and without gaps.
    fn whole_mappings(&self, at: u64, bytes: u64) -> Option<Vec<Mapping>> {
        let (mut next, end) = (at, at.checked_add(bytes)?);
        let mut found = Vec::new();
        while next < end {
            let mapping = self.mappings.get(&next).filter(|mapping| mapping.end() <= end)?;
            next = mapping.end();
            found.push(mapping.clone());
        }
        Some(found)
    }
}

/// Handles, mappings and reservations. Entries leave before the runtime is told to give something up, since it
/// may hand the same number out again at once, and come back where it refuses.
#[derive(Debug, Default)]
pub(crate) struct Physical(Mutex<State>);

impl Physical {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One more reference to a handle.
    pub(crate) fn add(&self, raw: u64, memory: Memory) {
        let mut state = self.lock();
        let bytes = memory.bytes;
        let (known, references) = state.handles.entry(raw).or_insert((memory, 0));
        known.bytes = known.bytes.or(bytes);
        *references += 1;
    }

    /// One reference less; none for a handle that is not known.
    pub(crate) fn take(&self, raw: u64) -> Option<Memory> {
        let mut state = self.lock();
        let (memory, references) = state.handles.get_mut(&raw)?;
        let memory = memory.clone();
        *references -= 1;
        if *references == 0 {
            state.handles.remove(&raw);
        }
        Some(memory)
    }

    pub(crate) fn memory(&self, raw: u64) -> Option<Memory> {
        self.lock().handles.get(&raw).map(|(memory, _)| memory.clone())
    }

    /// The handle is mapped, which tells its size.
    pub(crate) fn mapped(&self, at: u64, bytes: u64, raw: u64) {
        let mut state = self.lock();
        let Some((memory, _)) = state.handles.get_mut(&raw) else { return };
        memory.bytes = Some(bytes);
        let memory = memory.clone();
        state.mappings.insert(at, Mapping { at, bytes, memory, access: Vec::new() });
    }

    /// Forgets the mappings that make up a range, and returns them; none where the range is no such sum.
    pub(crate) fn take_mappings(&self, at: u64, bytes: u64) -> Option<Vec<Mapping>> {
        let mut state = self.lock();
        let whole = state.whole_mappings(at, bytes)?;
        for mapping in &whole {
            state.mappings.remove(&mapping.at);
        }
        Some(whole)
    }

    pub(crate) fn put_mappings_back(&self, mappings: Vec<Mapping>) {
        self.lock().mappings.extend(mappings.into_iter().map(|mapping| (mapping.at, mapping)));
    }

    /// The mappings that make up a range; none where the range is no such sum.
    pub(crate) fn whole_mappings(&self, at: u64, bytes: u64) -> Option<Vec<Mapping>> {
        self.lock().whole_mappings(at, bytes)
    }

    /// Notes what some devices may do with some mappings now. Imports that wait for no more access are done.
    pub(crate) fn set_access(&self, mappings: &[Mapping], devices: &[DeviceIndex], access: Access) {
        let mut state = self.lock();
        for mapping in mappings {
            if let Some(known) = state.mappings.get_mut(&mapping.at) {
                devices.iter().for_each(|&device| known.set_access(device, access));
            }
        }
        for mapping in mappings {
            let descriptors = &mapping.memory.descriptors;
            let same = |other: &Mapping| Arc::ptr_eq(&other.memory.descriptors, descriptors);
            // Few wait, and the search for others goes through all that is mapped.
            if descriptors.import_is_pending()
                && !state.mappings.values().any(|other| same(other) && other.access.is_empty())
            {
                descriptors.import_is_done();
            }
        }
    }

    /// What is mapped at an address.
    pub(crate) fn mapping_at(&self, at: u64) -> Option<Mapping> {
        self.lock().mapping_at(at).cloned()
    }

    pub(crate) fn reserved(&self, at: u64, bytes: u64, device: DeviceIndex) {
        self.lock().reservations.insert(at, Reservation { at, bytes, device });
    }

    /// Forgets a reservation and returns it; none where there is no such one, or something is mapped in it.
    pub(crate) fn take_reservation(&self, at: u64, bytes: u64) -> Option<Reservation> {
        let mut state = self.lock();
        state.reservations.get(&at).filter(|reservation| reservation.bytes == bytes)?;
        if state.mappings.range(at..at.saturating_add(bytes)).next().is_some() {
            return None;
        }
        state.reservations.remove(&at)
    }

    pub(crate) fn put_reservation_back(&self, reservation: Reservation) {
        self.lock().reservations.insert(reservation.at, reservation);
    }

    /// True for addresses of virtual memory, mapped or not.
    pub(crate) fn is_virtual(&self, at: u64) -> bool {
        self.lock().reservation_at(at).is_some()
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

    fn memory(bytes: Option<u64>) -> Memory {
        Memory {
            device: DeviceIndex(1),
            bytes,
            handle_type: HandleType::PosixFd,
            descriptors: Arc::default(),
        }
    }

    fn bytes_of(memory: Option<Memory>) -> Option<u64> {
        memory.and_then(|memory| memory.bytes)
    }

    #[test]
    fn a_handle_lives_until_its_last_reference_goes() {
        let physical = Physical::default();
        physical.add(7, memory(Some(0x1000)));
        physical.add(7, memory(Some(0x1000)));
        assert!(physical.take(7).is_some() && physical.memory(7).is_some());
        assert!(physical.take(7).is_some() && physical.memory(7).is_none());
        assert!(physical.take(7).is_none());
    }

    #[test]
    fn mapping_tells_the_size_of_an_import() {
        let physical = Physical::default();
        physical.add(7, memory(None));
        physical.mapped(0x20_0000, 0x1000, 7);
        assert_eq!(bytes_of(physical.memory(7)), Some(0x1000));
        physical.take(7);
        let found = physical.mapping_at(0x20_0fff).unwrap();
        assert_eq!((found.at, found.bytes), (0x20_0000, 0x1000), "mapped memory outlives its handle");
        assert!(physical.mapping_at(0x20_1000).is_none());
    }

    fn two_mappings() -> Physical {
        let physical = Physical::default();
        physical.add(7, memory(Some(0x1000)));
        physical.reserved(0x20_0000, 0x4000, DeviceIndex(0));
        physical.mapped(0x20_0000, 0x1000, 7);
        physical.mapped(0x20_1000, 0x1000, 7);
        physical
    }

    #[test]
    fn whole_mappings_leave_and_come_back() {
        let physical = two_mappings();
        assert!(physical.take_mappings(0x20_0000, 0x1800).is_none(), "half a mapping is none");
        assert!(physical.take_mappings(0x20_0000, 0x3000).is_none(), "nor is a gap");
        let taken = physical.take_mappings(0x20_0000, 0x2000).unwrap();
        assert_eq!(taken.len(), 2);
        assert_eq!(physical.device_at(0x20_0000), Some(DeviceIndex(0)), "only reserved now");
        physical.put_mappings_back(taken);
        assert_eq!(physical.device_at(0x20_1000), Some(DeviceIndex(1)));
    }

    #[test]
    fn a_reservation_stays_while_something_is_mapped_in_it() {
        let physical = two_mappings();
        assert!(physical.take_reservation(0x20_0000, 0x4000).is_none());
        physical.take_mappings(0x20_0000, 0x2000).unwrap();
        assert!(physical.take_reservation(0x20_0000, 0x2000).is_none(), "not its size");
        assert!(physical.is_virtual(0x20_3fff) && !physical.is_virtual(0x20_4000));
        assert!(physical.take_reservation(0x20_0000, 0x4000).is_some());
        assert!(!physical.is_virtual(0x20_0000));
    }

    #[test]
    fn access_is_remembered_for_every_mapping() {
        let physical = two_mappings();
        let both = physical.whole_mappings(0x20_0000, 0x2000).unwrap();
        physical.set_access(&both, &[DeviceIndex(0), DeviceIndex(2)], Access::ReadWrite);
        physical.set_access(&both[1..], &[DeviceIndex(0)], Access::Read);
        let (first, second) =
            (physical.mapping_at(0x20_0000).unwrap(), physical.mapping_at(0x20_1000).unwrap());
        assert_eq!(first.access_of(DeviceIndex(0)), Access::ReadWrite);
        assert_eq!(second.access_of(DeviceIndex(0)), Access::Read);
        assert_eq!(second.access_of(DeviceIndex(2)), Access::ReadWrite);
        assert_eq!(second.access_of(DeviceIndex(1)), Access::None);
    }

    #[test]
    fn an_imported_descriptor_stays_until_every_mapping_has_access() {
        // Writing works for as long as the reading end is open.
        let (reader, mut writer) = std::io::pipe().unwrap();
        let imported = memory(None);
        imported.descriptors.keep_import(reader.into());
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
