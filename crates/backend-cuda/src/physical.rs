//! What the driver does not tell about virtual memory: a handle's size and device, and what is mapped where.

use backend_api::HandleType;
use backend_api::types::DeviceIndex;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// What a physical handle stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Memory {
    pub(crate) device: DeviceIndex,
    /// Unknown for an imported handle that was not mapped yet.
    pub(crate) bytes: Option<u64>,
    pub(crate) handle_type: HandleType,
}

/// A range of addresses, and what is known about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Range<T> {
    pub(crate) at: u64,
    bytes: u64,
    what: T,
}

/// What is known about an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// Physical memory of a device is mapped there, from `base` on.
    Mapped { base: u64, device: DeviceIndex },
    /// It was reserved, and nothing is mapped there.
    Reserved,
    /// It is no virtual memory of this backend.
    Elsewhere,
}

#[derive(Debug, Default)]
struct State {
    /// Live handles with the number of references to each: an import or a retain may answer a known one.
    handles: HashMap<u64, (Memory, usize)>,
    mappings: BTreeMap<u64, Range<Memory>>,
    reservations: BTreeMap<u64, Range<DeviceIndex>>,
}

/// Handles, mappings and reservations. Entries leave before the driver is told to give something up, since it
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
        let (known, references) = state.handles.entry(raw).or_insert((memory, 0));
        known.bytes = known.bytes.or(memory.bytes);
        *references += 1;
    }

    /// One reference less; none for a handle that is not known.
    pub(crate) fn take(&self, raw: u64) -> Option<Memory> {
        let mut state = self.lock();
        let (memory, references) = state.handles.get_mut(&raw)?;
        let memory = *memory;
        *references -= 1;
        if *references == 0 {
            state.handles.remove(&raw);
        }
        Some(memory)
    }

    pub(crate) fn memory(&self, raw: u64) -> Option<Memory> {
        self.lock().handles.get(&raw).map(|(memory, _)| *memory)
    }

    /// The handle is mapped, which tells its size.
    pub(crate) fn mapped(&self, at: u64, bytes: u64, raw: u64) {
        let mut state = self.lock();
        let Some((memory, _)) = state.handles.get_mut(&raw) else { return };
        memory.bytes = Some(bytes);
        let what = *memory;
        state.mappings.insert(at, Range { at, bytes, what });
    }

    /// Forgets the mappings inside a range, and returns them.
    pub(crate) fn take_mappings(&self, at: u64, bytes: u64) -> Vec<Range<Memory>> {
        let mut state = self.lock();
        let end = at.saturating_add(bytes);
        let inside = state.mappings.range(at..end).filter(|(_, mapping)| mapping.end() <= end);
        let inside: Vec<_> = inside.map(|(_, mapping)| *mapping).collect();
        for mapping in &inside {
            state.mappings.remove(&mapping.at);
        }
        inside
    }

    pub(crate) fn put_mappings_back(&self, mappings: Vec<Range<Memory>>) {
        self.lock().mappings.extend(mappings.into_iter().map(|mapping| (mapping.at, mapping)));
    }

    /// What is mapped at an address, with its size.
    pub(crate) fn memory_at(&self, at: u64) -> Option<Memory> {
        find(&self.lock().mappings, at).map(|mapping| Memory { bytes: Some(mapping.bytes), ..mapping.what })
    }

    /// What lies at an address.
    pub(crate) fn place(&self, at: u64) -> Place {
        let state = self.lock();
        if let Some(mapping) = find(&state.mappings, at) {
            return Place::Mapped { base: mapping.at, device: mapping.what.device };
        }
        if find(&state.reservations, at).is_some() { Place::Reserved } else { Place::Elsewhere }
    }

    /// Whether something is mapped at some of the addresses.
    pub(crate) fn is_mapped_in(&self, at: u64, bytes: u64) -> bool {
        self.lock().mappings.range(at..at.saturating_add(bytes)).next().is_some()
    }

    pub(crate) fn reserved(&self, at: u64, bytes: u64, device: DeviceIndex) {
        self.lock().reservations.insert(at, Range { at, bytes, what: device });
    }

    pub(crate) fn take_reservation(&self, at: u64) -> Option<Range<DeviceIndex>> {
        self.lock().reservations.remove(&at)
    }

    pub(crate) fn put_reservation_back(&self, reservation: Range<DeviceIndex>) {
        self.lock().reservations.insert(reservation.at, reservation);
    }

    /// The device whose memory is mapped at an address, or for which it was reserved.
    pub(crate) fn device_at(&self, at: u64) -> Option<DeviceIndex> {
        let state = self.lock();
        let mapped = find(&state.mappings, at).map(|mapping| mapping.what.device);
        mapped.or_else(|| find(&state.reservations, at).map(|reservation| reservation.what))
    }
}

impl<T> Range<T> {
    fn end(&self) -> u64 {
        self.at.saturating_add(self.bytes)
    }
}

fn find<T>(ranges: &BTreeMap<u64, Range<T>>, at: u64) -> Option<&Range<T>> {
    let (_, range) = ranges.range(..=at).next_back()?;
    (at < range.end()).then_some(range)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MEMORY: Memory =
        Memory { device: DeviceIndex(1), bytes: Some(0x1000), handle_type: HandleType::PosixFd };

    #[test]
    fn a_handle_lives_until_its_last_reference_goes() {
        let physical = Physical::default();
        physical.add(7, MEMORY);
        physical.add(7, MEMORY);
        assert_eq!(physical.take(7), Some(MEMORY));
        assert_eq!(physical.memory(7), Some(MEMORY));
        assert_eq!(physical.take(7), Some(MEMORY));
        assert_eq!((physical.memory(7), physical.take(7)), (None, None));
    }

    #[test]
    fn mapping_tells_the_size_of_an_import() {
        let physical = Physical::default();
        physical.add(7, Memory { bytes: None, ..MEMORY });
        physical.mapped(0x20_0000, 0x1000, 7);
        assert_eq!(physical.memory(7), Some(MEMORY));
        physical.take(7);
        assert_eq!(physical.memory_at(0x20_0fff), Some(MEMORY), "mapped memory outlives its handle");
        assert_eq!(physical.memory_at(0x20_1000), None);
    }

    #[test]
    fn whole_mappings_leave_and_come_back() {
        let physical = Physical::default();
        physical.add(7, MEMORY);
        physical.reserved(0x20_0000, 0x4000, DeviceIndex(0));
        physical.mapped(0x20_0000, 0x1000, 7);
        physical.mapped(0x20_1000, 0x1000, 7);
        let taken = physical.take_mappings(0x20_0000, 0x1800);
        assert_eq!(taken.len(), 1, "half a mapping is none");
        assert_eq!(physical.place(0x20_1fff), Place::Mapped { base: 0x20_1000, device: DeviceIndex(1) });
        assert_eq!(physical.place(0x20_0000), Place::Reserved);
        assert_eq!(physical.place(0x20_4000), Place::Elsewhere);
        assert!(physical.is_mapped_in(0x20_0000, 0x4000) && !physical.is_mapped_in(0x20_0000, 0x1000));
        assert_eq!(physical.device_at(0x20_0000), Some(DeviceIndex(0)), "only reserved now");
        physical.put_mappings_back(taken);
        assert_eq!(physical.device_at(0x20_0000), Some(DeviceIndex(1)));
        assert!(physical.take_reservation(0x20_0000).is_some());
        physical.take_mappings(0x20_0000, 0x2000);
        assert_eq!(physical.device_at(0x20_0000), None);
    }
}
