//! Virtual memory: reservations, physical memory, and mappings of one onto the other.

use super::{Extent, Memory, RangeKind};
use crate::refusal::{Answer, Refusal};
use crate::space::Span;
use backend_api::types::DeviceIndex;
use backend_api::{Access, HandleType};

/// Memory without an address.
#[derive(Debug)]
pub(crate) struct Physical {
    pub(crate) device: usize,
    pub(crate) bytes: u64,
    pub(crate) handle_type: HandleType,
    /// How many handles the program holds.
    handles: u64,
    /// The addresses it is mapped at.
    places: Vec<u64>,
    /// Capacity it takes up; 0 where it belongs to another machine.
    accounted: u64,
    pub(crate) extent: Option<Extent>,
    /// What tells it from others in an exported descriptor.
    pub(crate) identity: u64,
}

/// A physical handle shown at an address.
#[derive(Debug)]
pub(crate) struct Mapping {
    pub(crate) bytes: u64,
    pub(crate) physical: u64,
    /// Whose memory it is.
    pub(crate) device: usize,
    /// In whose address window it lies.
    pub(crate) window: usize,
    pub(crate) extent: Option<Extent>,
    pub(crate) opened: u64,
    /// One bit per device.
    readers: u64,
    writers: u64,
}

impl Mapping {
    pub(crate) const fn allows(&self, device: usize, write: bool) -> bool {
        let devices = if write { self.writers } else { self.readers };
        devices >> device & 1 == 1
    }
}

impl Memory {
    fn whole_granules(&self, bytes: u64) -> Answer<()> {
        if bytes == 0 || !bytes.is_multiple_of(self.granularity) {
            return Err(Refusal::invalid(format!(
                "{bytes} bytes are no positive multiple of the granularity {}",
                self.granularity
            )));
        }
        Ok(())
    }

    pub(crate) fn reserve(&mut self, device: usize, bytes: u64, alignment: u64, hint: u64) -> Answer<u64> {
        self.whole_granules(bytes)?;
        if alignment != 0 && !alignment.is_power_of_two() {
            return Err(Refusal::invalid(format!("alignment {alignment} is no power of two")));
        }
        self.take_addresses(device, bytes, alignment.max(self.granularity), hint, RangeKind::Reservation)
    }

    pub(crate) fn release_reservation(&mut self, at: u64, bytes: u64) -> Answer<()> {
        let exact = self
            .ranges
            .get(&at)
            .is_some_and(|range| matches!(range.kind, RangeKind::Reservation) && range.bytes == bytes);
        if !exact {
            return Err(Refusal::invalid(format!("[{at:#x}, +{bytes}) is not one whole reservation")));
        }
        if let Some((mapped, _)) = self.mappings.range(at..at + bytes).next() {
            return Err(Refusal::invalid(format!("unmap {mapped:#x} before giving its addresses back")));
        }
        self.give(at)
    }

    pub(crate) fn create(
        &mut self,
        device: usize,
        bytes: u64,
        handle_type: HandleType,
        identity: u64,
    ) -> Answer<u64> {
        self.whole_granules(bytes)?;
        let memory = &mut self.devices[device];
        memory.take_capacity(bytes)?;
        let extent = match &mut memory.store {
            None => Ok(None),
            Some(store) => store.take_physical(bytes, handle_type == HandleType::PosixFd).map(Some),
        };
        match extent {
            Ok(extent) => Ok(self.physical.insert(Physical {
                device,
                bytes,
                handle_type,
                handles: 1,
                places: Vec::new(),
                accounted: bytes,
                extent,
                identity,
            })),
            Err(refusal) => {
                memory.used -= bytes;
                Err(refusal)
            }
        }
    }

    /// Memory that another machine accounts for.
    pub(crate) fn adopt(&mut self, device: usize, bytes: u64, extent: Option<Extent>, identity: u64) -> u64 {
        self.physical.insert(Physical {
            device,
            bytes,
            handle_type: HandleType::PosixFd,
            handles: 1,
            places: Vec::new(),
            accounted: 0,
            extent,
            identity,
        })
    }

    /// The live memory with this identity, with one more handle.
    pub(crate) fn adopt_again(&mut self, identity: u64) -> Option<u64> {
        let (key, _) = self.physical.iter().find(|(_, physical)| physical.identity == identity)?;
        self.physical.get_mut(key)?.handles += 1;
        Some(key)
    }

    pub(crate) fn handle(&self, key: u64) -> Answer<&Physical> {
        self.physical
            .get(key)
            .filter(|physical| physical.handles > 0)
            .ok_or_else(|| Refusal::invalid("the physical handle is not, or no longer, one of this machine"))
    }

    pub(crate) fn release_handle(&mut self, key: u64) -> Answer<()> {
        self.handle(key)?;
        if let Some(physical) = self.physical.get_mut(key) {
            physical.handles -= 1;
        }
        self.end_if_unused(key)
    }

    /// Physical memory lives while it has a handle or a mapping.
    fn end_if_unused(&mut self, key: u64) -> Answer<()> {
        let unused = self
            .physical
            .get(key)
            .is_some_and(|physical| physical.handles == 0 && physical.places.is_empty());
        if unused && let Some(physical) = self.physical.remove(key) {
            let memory = &mut self.devices[physical.device];
            memory.used -= physical.accounted;
            if let (Some(store), Some(extent)) = (&mut memory.store, physical.extent) {
                store.give_physical(extent)?;
            }
        }
        Ok(())
    }

    /// Shows a handle (or its first bytes, where that is allowed) at an address. It may be shown at others already.
    pub(crate) fn map(&mut self, at: u64, bytes: u64, key: u64) -> Answer<()> {
        let physical = self.handle(key)?;
        self.whole_granules(bytes)?;
        if bytes > physical.bytes || (bytes < physical.bytes && !self.prefix_maps) {
            return Err(Refusal::invalid(format!(
                "a handle of {} bytes is mapped as a whole, not {bytes}",
                physical.bytes
            )));
        }
        if let (Some(place), false) = (physical.places.first(), self.may_alias) {
            return Err(Refusal::invalid(format!("the handle is mapped at {place:#x} already")));
        }
        let reservation = self.ranges.range(..=at).next_back().filter(|(base, range)| {
            matches!(range.kind, RangeKind::Reservation)
                && at - **base <= range.bytes - bytes.min(range.bytes)
                && bytes <= range.bytes
        });
        let Some((_, reservation)) = reservation else {
            return Err(Refusal::invalid(format!("[{at:#x}, +{bytes}) does not lie in one reservation")));
        };
        if !at.is_multiple_of(self.granularity) {
            return Err(Refusal::invalid(format!(
                "{at:#x} is no multiple of the granularity {}",
                self.granularity
            )));
        }
        if let Some((base, mapping)) = self.mappings.range(..at + bytes).next_back()
            && base + mapping.bytes > at
        {
            return Err(Refusal::invalid(format!("something is mapped at {base:#x} already")));
        }
        let window = reservation.device;
        if let (Some(store), Some(extent)) = (&self.devices[window].store, &physical.extent) {
            store.window.show(at, bytes, &extent.file, extent.offset)?;
        }
        let mapping = Mapping {
            bytes,
            physical: key,
            device: physical.device,
            window,
            extent: physical.extent.clone(),
            opened: 0,
            readers: 0,
            writers: 0,
        };
        self.mappings.insert(at, mapping);
        if let Some(physical) = self.physical.get_mut(key) {
            physical.places.push(at);
            self.aliases += u64::from(physical.places.len() > 1);
        }
        Ok(())
    }

    /// Checks that a range is made of whole mappings, one after another.
    pub(crate) fn whole_mappings(&self, at: u64, bytes: u64) -> Answer<()> {
        let end = at.checked_add(bytes).filter(|_| bytes > 0);
        let mut from = at;
        for (&base, mapping) in self.mappings.range(at..) {
            if base != from || end.is_none_or(|end| from >= end) {
                break;
            }
            from += mapping.bytes;
        }
        if end != Some(from) {
            return Err(Refusal::invalid(format!(
                "[{at:#x}, +{bytes}) is not one whole mapping or several adjacent ones"
            )));
        }
        Ok(())
    }

    pub(crate) fn unmap(&mut self, at: u64, bytes: u64) -> Answer<()> {
        self.whole_mappings(at, bytes)?;
        let window = self.mappings.get(&at).map_or(0, |mapping| mapping.window);
        if let Some(store) = &self.devices[window].store {
            store.window.hide(at, bytes)?;
        }
        let mut from = at;
        while from < at + bytes {
            let Some(mapping) = self.mappings.remove(&from) else { break };
            if let Some(physical) = self.physical.get_mut(mapping.physical) {
                self.aliases -= u64::from(physical.places.len() > 1);
                physical.places.retain(|&place| place != from);
            }
            from += mapping.bytes;
            self.end_if_unused(mapping.physical)?;
        }
        Ok(())
    }

    /// Sets access to whole mappings; the caller has checked that they are whole.
    pub(crate) fn set_access(&mut self, at: u64, bytes: u64, devices: &[DeviceIndex], access: Access) {
        let mask = devices.iter().fold(0_u64, |mask, device| mask | 1 << device.0);
        for (_, mapping) in self.mappings.range_mut(at..at + bytes) {
            mapping.readers =
                if access == Access::None { mapping.readers & !mask } else { mapping.readers | mask };
            mapping.writers =
                if access == Access::ReadWrite { mapping.writers | mask } else { mapping.writers & !mask };
        }
    }

    /// The other addresses at which the memory of a range is mapped, too.
    pub(crate) fn aliases_of(&self, span: Span) -> Vec<Span> {
        let mut others = Vec::new();
        if self.aliases == 0 {
            return others;
        }
        let first = self.mappings.range(..=span.start).next_back().map_or(span.start, |(&base, _)| base);
        for (&base, mapping) in self.mappings.range(first..span.end) {
            let Some(physical) = self.physical.get(mapping.physical) else { continue };
            let (from, to) = (span.start.max(base), span.end.min(base + mapping.bytes));
            for &place in physical.places.iter().filter(|&&place| place != base && from < to) {
                let shown = self.mappings.get(&place).map_or(0, |other| other.bytes);
                let (skip, end) = ((from - base).min(shown), (to - base).min(shown));
                others.push(Span { start: place + skip, end: place + end, user: span.user });
            }
        }
        others
    }

    fn mapping_at(&self, at: u64) -> Answer<&Mapping> {
        self.mappings
            .range(..=at)
            .next_back()
            .filter(|(base, mapping)| at - **base < mapping.bytes)
            .map(|(_, mapping)| mapping)
            .ok_or_else(|| Refusal::invalid(format!("nothing is mapped at {at:#x}")))
    }

    pub(crate) fn access(&self, at: u64, device: usize) -> Answer<Access> {
        let mapping = self.mapping_at(at)?;
        Ok(match (mapping.allows(device, true), mapping.allows(device, false)) {
            (true, _) => Access::ReadWrite,
            (false, true) => Access::Read,
            (false, false) => Access::None,
        })
    }

    pub(crate) fn retain(&mut self, at: u64) -> Answer<u64> {
        let key = self.mapping_at(at)?.physical;
        if let Some(physical) = self.physical.get_mut(key) {
            physical.handles += 1;
        }
        Ok(key)
    }
}
