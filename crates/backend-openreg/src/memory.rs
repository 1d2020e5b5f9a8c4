//! Device memory: what is handed out where, how it is accounted, and what backs it.

mod backing;
mod mapping;
mod pool;
mod spares;

pub(crate) use backing::Extent;
pub(crate) use mapping::{Mapping, Physical};
pub(crate) use pool::Pool;

use crate::config::{MemoryMode, OpenRegConfig};
use crate::os::{self, HostPages, Protection, Window};
use crate::refusal::{Answer, Refusal};
use crate::slab::Slab;
use crate::space::Space;
use crate::trap::TrapKind;
use backend_api::ErrorKind;
use backend_api::types::{DeviceIndex, MIB};
use backing::Store;
use std::collections::BTreeMap;

/// Requests from here on are accounted in whole granules of [`ACCOUNTED_GRANULE`].
const LARGE: u64 = MIB;
const ACCOUNTED_GRANULE: u64 = 2 * MIB;
const SMALL_UNIT: u64 = 512;

/// What a range of device addresses is.
#[derive(Debug)]
pub(crate) enum RangeKind {
    /// From `malloc`.
    Plain,
    /// From `malloc_managed`.
    Managed,
    /// A driver pool's; `live` while it is handed out.
    Pooled { live: bool },
    /// Another process's memory, opened by handle.
    Imported { handle: [u8; 64], references: u64 },
    /// Addresses without memory of their own; mappings lie in them.
    Reservation,
}

/// One range of device addresses.
#[derive(Debug)]
pub(crate) struct Range {
    pub(crate) device: usize,
    pub(crate) kind: RangeKind,
    /// As asked for.
    pub(crate) bytes: u64,
    /// Addresses it takes up.
    footprint: u64,
    /// Capacity it takes up.
    pub(crate) accounted: u64,
    /// How often it is open to the host.
    opened: u64,
    /// Where its bytes are (mapped memory).
    pub(crate) extent: Option<Extent>,
}

/// Page-locked host memory.
#[derive(Debug)]
pub(crate) struct HostRange {
    pub(crate) bytes: u64,
    /// The pages, where they were taken here and not only registered.
    pub(crate) pages: Option<HostPages>,
}

/// One device's memory.
#[derive(Debug)]
pub(crate) struct DeviceMemory {
    pub(crate) capacity: u64,
    pub(crate) used: u64,
    pub(crate) peak: u64,
    /// Base and length of its addresses.
    window: (u64, u64),
    space: Space,
    store: Option<Store>,
    /// Keeps the host out where nothing backs the addresses.
    guard: Option<Window>,
    pub(crate) pool: Pool,
}

impl DeviceMemory {
    fn take_capacity(&mut self, bytes: u64) -> Answer<()> {
        let free = self.capacity.saturating_sub(self.used);
        if bytes > free {
            return Err(Refusal::new(
                ErrorKind::OutOfMemory,
                format!("{bytes} bytes do not fit: {free} of {} are free", self.capacity),
            ));
        }
        self.used += bytes;
        self.peak = self.peak.max(self.used);
        Ok(())
    }
}

/// What an address lies in.
#[derive(Debug)]
pub(crate) enum Place<'m> {
    Range(u64, &'m Range),
    Mapping(u64, &'m Mapping),
}

/// All memory of the machine.
#[derive(Debug)]
pub(crate) struct Memory {
    pub(crate) devices: Vec<DeviceMemory>,
    pub(crate) granularity: u64,
    pub(crate) ranges: BTreeMap<u64, Range>,
    pub(crate) mappings: BTreeMap<u64, Mapping>,
    pub(crate) physical: Slab<Physical>,
    /// Mappings of memory that is mapped elsewhere, too.
    aliases: u64,
    prefix_maps: bool,
    may_alias: bool,
    pub(crate) host: BTreeMap<u64, HostRange>,
    /// Which device may run kernels on which device's memory, once enabled.
    pub(crate) peers: Vec<Vec<bool>>,
}

impl Memory {
    pub(crate) fn new(config: &OpenRegConfig) -> std::io::Result<Self> {
        let count = usize::from(config.devices);
        let mut stores = match config.memory {
            MemoryMode::Reserved => Vec::new(),
            MemoryMode::Mapped => Store::for_devices(count, config.addresses, config.resident)?,
        }
        .into_iter();
        let is_guarded = config.memory == MemoryMode::Reserved && config.read_back;
        let (_, each) = backing::reserved_window(0, count, config.addresses);
        let mut guards = if is_guarded { backing::windows(count, each)? } else { Vec::new() }.into_iter();
        let devices = (0..count)
            .map(|device| {
                let store = stores.next();
                let (guarded, guard) = guards.next().unzip();
                let reserved = || match guarded {
                    Some(base) => (base, each),
                    None => backing::reserved_window(device, count, config.addresses),
                };
                let (base, bytes) = store.as_ref().map_or_else(reserved, Store::window);
                DeviceMemory {
                    guard,
                    capacity: config.capacity_or_default(),
                    used: config.context,
                    peak: config.context,
                    window: (base, bytes),
                    space: Space::new(base, bytes),
                    store,
                    pool: Pool::default(),
                }
            })
            .collect();
        Ok(Self {
            devices,
            granularity: config.granularity,
            ranges: BTreeMap::new(),
            mappings: BTreeMap::new(),
            physical: Slab::new(false),
            aliases: 0,
            prefix_maps: config.prefix_maps,
            may_alias: config.aliases,
            host: BTreeMap::new(),
            peers: (0..count).map(|from| (0..count).map(|to| from == to).collect()).collect(),
        })
    }

    /// Takes memory of `device`.
    pub(crate) fn take(&mut self, device: usize, bytes: u64, kind: RangeKind) -> Answer<u64> {
        if bytes == 0 {
            return Err(Refusal::invalid("0 bytes were asked for"));
        }
        let (unit, alignment) =
            if bytes >= LARGE { (ACCOUNTED_GRANULE, ACCOUNTED_GRANULE) } else { (SMALL_UNIT, SMALL_UNIT) };
        let memory = &mut self.devices[device];
        // Page protection is exact only where no two allocations share a page.
        let is_managed = matches!(kind, RangeKind::Managed);
        let guarded = memory.store.is_some() || (memory.guard.is_some() && is_managed);
        let page = if guarded { os::page() } else { 1 };
        let sizes = bytes.checked_next_multiple_of(unit);
        let sizes = sizes.and_then(|accounted| Some((accounted, accounted.checked_next_multiple_of(page)?)));
        // A size beyond all numbers is beyond the capacity too, however large that was set.
        let Some((accounted, footprint)) = sizes else {
            let detail = format!("{bytes} bytes fit on no device");
            return Err(Refusal::new(ErrorKind::OutOfMemory, detail));
        };
        memory.take_capacity(accounted)?;
        let taken = memory.place(footprint, alignment.max(page), is_managed);
        match taken {
            Ok((at, extent)) => {
                self.ranges
                    .insert(at, Range { device, kind, bytes, footprint, accounted, opened: 0, extent });
                Ok(at)
            }
            Err(refusal) => {
                memory.used -= accounted;
                // No driver has a word for memory that has no addresses: `cudaMalloc` says that there is no memory.
                match refusal.kind {
                    ErrorKind::ResourceLimit => {
                        Err(Refusal::new(ErrorKind::OutOfMemory, format!("no addresses for {bytes} bytes")))
                    }
                    _ => Err(refusal),
                }
            }
        }
    }

    /// Takes addresses of `device` without capacity, for a reservation or an import.
    pub(crate) fn take_addresses(
        &mut self,
        device: usize,
        bytes: u64,
        alignment: u64,
        hint: u64,
        kind: RangeKind,
    ) -> Answer<u64> {
        let space = &mut self.devices[device].space;
        let hinted =
            (hint != 0 && hint.is_multiple_of(alignment) && space.take_at(hint, bytes)).then_some(hint);
        let at = hinted.or_else(|| space.take(bytes, alignment)).ok_or_else(|| {
            Refusal::new(ErrorKind::ResourceLimit, format!("no {bytes} free addresses in a row"))
        })?;
        self.ranges.insert(
            at,
            Range { device, kind, bytes, footprint: bytes, accounted: 0, opened: 0, extent: None },
        );
        Ok(at)
    }

    /// Gives a whole range back.
    pub(crate) fn give(&mut self, at: u64) -> Answer<()> {
        let Some(range) = self.ranges.get(&at) else {
            return Err(Refusal::invalid(format!("{at:#x} is not the base of a live allocation")));
        };
        let memory = &mut self.devices[range.device];
        if let Some(store) = &memory.store {
            store.window.hide(at, range.footprint)?;
            if let (Some(extent), RangeKind::Plain | RangeKind::Managed | RangeKind::Pooled { .. }) =
                (&range.extent, &range.kind)
            {
                extent.file.discard(extent.offset, range.footprint)?;
            }
        }
        if let (Some(guard), RangeKind::Managed) = (&memory.guard, &range.kind) {
            guard.hide(at, range.footprint)?;
        }
        memory.used -= range.accounted;
        memory.space.give(at, range.footprint);
        self.ranges.remove(&at);
        Ok(())
    }

    /// Shows a range that was taken without memory; for imports.
    pub(crate) fn show(&mut self, at: u64, extent: Extent) -> Answer<()> {
        let Some(range) = self.ranges.get_mut(&at) else { return Err(Refusal::invalid("no such range")) };
        if let Some(store) = &self.devices[range.device].store {
            store.window.show(at, range.footprint, &extent.file, extent.offset)?;
        }
        range.extent = Some(extent);
        Ok(())
    }

    /// What `at` lies in. Addresses of a reservation where nothing is mapped are in nothing.
    pub(crate) fn place_of(&self, at: u64) -> Option<Place<'_>> {
        let (&base, range) = self.ranges.range(..=at).next_back()?;
        if matches!(range.kind, RangeKind::Reservation) {
            let (&base, mapping) = self.mappings.range(..=at).next_back()?;
            return (at - base < mapping.bytes).then_some(Place::Mapping(base, mapping));
        }
        (at - base < range.bytes).then_some(Place::Range(base, range))
    }

    /// The device whose memory `at` lies in.
    pub(crate) fn owner_of(&self, at: u64) -> Option<usize> {
        self.place_of(at).map(|place| match place {
            Place::Range(_, range) => range.device,
            Place::Mapping(_, mapping) => mapping.device,
        })
    }

    /// Whether `at` lies in a device's window, allocated or not.
    pub(crate) fn is_device_address(&self, at: u64) -> bool {
        self.devices.iter().any(|memory| at >= memory.window.0 && at - memory.window.0 < memory.window.1)
    }

    /// The page-locked host range that holds `at`.
    pub(crate) fn host_of(&self, at: u64) -> Option<(u64, &HostRange)> {
        let (&base, range) = self.host.range(..=at).next_back()?;
        (at - base < range.bytes).then_some((base, range))
    }

    /// Checks that `[at, at + bytes)` may be used by work of `device`. `kernel`: it runs there itself;
    /// copies may also go through the memory's own device.
    pub(crate) fn check(&self, device: usize, at: u64, bytes: u64, write: bool, kernel: bool) -> Answer<()> {
        let end = at.checked_add(bytes).ok_or_else(|| Refusal::invalid("the range wraps around"))?;
        let mut from = at;
        while from < end {
            match self.place_of(from) {
                Some(Place::Range(base, range))
                    if !matches!(range.kind, RangeKind::Pooled { live: false }) =>
                {
                    let managed = matches!(range.kind, RangeKind::Managed);
                    if kernel && !managed && !self.peers[device][range.device] {
                        return Err(Refusal::trap(
                            TrapKind::NoPeerAccess,
                            at,
                            bytes,
                            format!("device {device} has no peer access to device {}", range.device),
                        ));
                    }
                    from = base + range.bytes;
                    if from < end {
                        // Neighbours are other allocations: one operation stays in one.
                        break;
                    }
                }
                Some(Place::Mapping(base, mapping)) => {
                    if !mapping.allows(device, write) && (kernel || !mapping.allows(mapping.device, write)) {
                        return Err(Refusal::trap(
                            TrapKind::NoAccess,
                            at,
                            bytes,
                            format!(
                                "device {device} has no access to the mapping at {base:#x}; set it first"
                            ),
                        ));
                    }
                    from = base + mapping.bytes;
                }
                _ => break,
            }
        }
        if from < end {
            let detail = format!("{from:#x} is not allocated; the range is [{at:#x}, {end:#x})");
            return Err(Refusal::trap(TrapKind::Unallocated, at, bytes, detail));
        }
        Ok(())
    }

    /// Where the bytes of a checked range are; empty for reserved memory.
    pub(crate) fn extents(&self, at: u64, bytes: u64) -> Vec<Extent> {
        let (mut from, end, mut extents) = (at, at + bytes, Vec::new());
        while from < end {
            let (base, length, extent) = match self.place_of(from) {
                Some(Place::Range(base, range)) => (base, range.bytes, range.extent.as_ref()),
                Some(Place::Mapping(base, mapping)) => (base, mapping.bytes, mapping.extent.as_ref()),
                None => break,
            };
            let Some(extent) = extent else { break };
            let next = end.min(base + length);
            extents.push(extent.part(from - base, next - from));
            from = next;
        }
        extents
    }

    /// Opens the allocation or mapping at `at` to the host (`delta` 1) or closes it again (`delta` −1).
    pub(crate) fn open_to_host(&mut self, at: u64, delta: i64) -> Answer<()> {
        let (base, length) = match self.place_of(at) {
            Some(Place::Range(base, range)) => (base, range.footprint),
            Some(Place::Mapping(base, mapping)) => (base, mapping.bytes),
            None => return Err(Refusal::invalid(format!("{at:#x} is not allocated"))),
        };
        let (device, managed, opened) = match self.ranges.get_mut(&base) {
            Some(range) if !matches!(range.kind, RangeKind::Reservation) => {
                (range.device, matches!(range.kind, RangeKind::Managed), &mut range.opened)
            }
            // A mapping may begin where its reservation does.
            _ => match self.mappings.get_mut(&base) {
                Some(mapping) => (mapping.window, false, &mut mapping.opened),
                None => return Err(Refusal::invalid(format!("{at:#x} is not allocated"))),
            },
        };
        let after = opened.checked_add_signed(delta).ok_or_else(|| {
            Refusal::invalid(format!("{at:#x} is not open to the host; it was closed more often than opened"))
        })?;
        let changes = (*opened == 0) != (after == 0) && !managed;
        if let (true, Some(store)) = (changes, &self.devices[device].store) {
            store.window.protect(
                base,
                length,
                if after > 0 { Protection::ReadWrite } else { Protection::None },
            )?;
        }
        *opened = after;
        Ok(())
    }

    /// Whether the host may touch the byte at `at` now.
    pub(crate) fn is_open_to_host(&self, at: u64) -> Answer<bool> {
        match self.place_of(at) {
            Some(Place::Range(_, range)) => Ok(range.opened > 0 || matches!(range.kind, RangeKind::Managed)),
            Some(Place::Mapping(_, mapping)) => Ok(mapping.opened > 0),
            None => Err(Refusal::invalid(format!("{at:#x} is not allocated"))),
        }
    }
}

impl DeviceMemory {
    /// Finds addresses and shows memory there.
    fn place(&mut self, footprint: u64, alignment: u64, open: bool) -> Answer<(u64, Option<Extent>)> {
        let Some(at) = self.space.take(footprint, alignment) else {
            return Err(Refusal::new(ErrorKind::ResourceLimit, "the device's address window is full"));
        };
        let Some(store) = &self.store else {
            if let (true, Some(guard)) = (open, &self.guard) {
                guard.open(at, footprint)?;
            }
            return Ok((at, None));
        };
        let extent = store.behind(at, footprint);
        let shown = store.window.show(at, footprint, &extent.file, extent.offset).and_then(|()| {
            if open { store.window.protect(at, footprint, Protection::ReadWrite) } else { Ok(()) }
        });
        if let Err(error) = shown {
            // The window is still closed there, so the addresses can be given back as they are.
            let _ = store.window.hide(at, footprint);
            self.space.give(at, footprint);
            return Err(error.into());
        }
        Ok((at, Some(extent)))
    }
}

/// The index of a device for tables.
pub(crate) fn index(device: DeviceIndex) -> usize {
    usize::from(device.0)
}
