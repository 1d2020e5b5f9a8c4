//! Memory that is mapped in more than one place.
//!
//! One granule *owns* memory: there it is free or in use, and counts as held. Other mappings of it are *aliases*: slots of
//! views, and granules that owned it before and may again without a driver call, because it went to another stream.

use super::{GranuleState, RegionId, Regions};
use crate::memory::block::{BlockId, SegmentId};
use crate::types::PhysicalHandle;
use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use std::collections::BTreeMap;

/// A granule of an arena.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// The arena's number.
    pub(crate) arena: u16,
    pub(crate) segment: SegmentId,
    pub(crate) region: RegionId,
    pub(crate) addr: u64,
    /// The one block that covers it, while it is an alias.
    pub(crate) block: BlockId,
}

/// A granule whose memory serves another arena.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HandedOver {
    pub(crate) alias: Place,
    /// Its owner.
    pub(crate) owner: Place,
}

#[derive(Clone, Copy, Debug)]
enum Alias {
    /// Part of a view.
    Slot { arena: u16, addr: u64 },
    /// A granule that owned the memory before.
    Granule(Place),
}

impl Alias {
    fn addr(&self) -> u64 {
        match *self {
            Self::Slot { addr, .. } | Self::Granule(Place { addr, .. }) => addr,
        }
    }
}

/// Memory with aliases.
#[derive(Debug)]
struct Aliased {
    owner: Place,
    bytes: u64,
    aliases: SmallVec<[Alias; 2]>,
}

impl Aliased {
    /// The granule of an arena that is one of them.
    fn granule_in(&self, number: u16) -> Option<Place> {
        self.aliases.iter().find_map(|alias| match alias {
            Alias::Granule(place) if place.arena == number => Some(*place),
            _ => None,
        })
    }
}

/// All memory with aliases.
#[derive(Debug, Default)]
pub(super) struct Mappings {
    memory: FxHashMap<PhysicalHandle, Aliased>,
    /// That of granules which are aliases, by arena and address.
    granules: BTreeMap<(u16, u64), PhysicalHandle>,
    /// Their bytes.
    granule_bytes: u64,
}

impl Mappings {
    fn add(&mut self, memory: PhysicalHandle, bytes: u64, owner: Place, alias: Alias) {
        let empty = Aliased { owner, bytes, aliases: SmallVec::new() };
        let of = self.memory.entry(memory).or_insert(empty);
        of.owner = owner;
        of.aliases.push(alias);
        if let Alias::Granule(place) = alias {
            self.granules.insert((place.arena, place.addr), memory);
            self.granule_bytes += bytes;
        }
    }

    /// The alias at `addr`, if there is one, is none any more.
    fn remove(&mut self, memory: PhysicalHandle, addr: u64) {
        let Some(of) = self.memory.get_mut(&memory) else { return };
        let Some(at) = of.aliases.iter().position(|alias| alias.addr() == addr) else { return };
        if let Alias::Granule(place) = of.aliases.swap_remove(at) {
            self.granules.remove(&(place.arena, place.addr));
            self.granule_bytes -= of.bytes;
        }
        if of.aliases.is_empty() {
            self.memory.remove(&memory);
        }
    }
}

impl Regions {
    /// A view has an alias of a granule at `addr`.
    pub(crate) fn add_slot(&mut self, owner: Place, addr: u64) {
        let (bytes, memory) = self.memory_of(owner);
        self.mappings.add(memory, bytes, owner, Alias::Slot { arena: owner.arena, addr });
    }

    /// The alias at `addr` of a view, which showed a granule of its arena, is unmapped.
    pub(crate) fn remove_slot(&mut self, shown: Place, addr: u64) {
        let (_, memory) = self.memory_of(shown);
        self.mappings.remove(memory, addr);
    }

    /// The memory of a granule is owned by `to` from here on, which maps it already; the granule is an alias.
    pub(crate) fn hand_over(&mut self, from: Place, to: Place) {
        let (bytes, memory) = self.memory_of(from);
        self.granule_mut(from.region, from.addr).state = GranuleState::Alias;
        self.granule_mut(to.region, to.addr).state = GranuleState::Mapped;
        self.mappings.remove(memory, to.addr);
        self.mappings.add(memory, bytes, to, Alias::Granule(from));
    }

    /// A granule that was an alias is unmapped.
    pub(crate) fn remove_alias(&mut self, place: Place) {
        let (_, memory) = self.memory_of(place);
        self.mappings.remove(memory, place.addr);
        let gone = self.get_mut(place.region).granules.remove(&place.addr);
        debug_assert!(gone.is_some_and(|granule| granule.state == GranuleState::Pending), "by one thread");
    }

    /// A granule that was to be [unmapped](Self::begin) stays an alias.
    pub(crate) fn keep_alias(&mut self, place: Place) {
        self.granule_mut(place.region, place.addr).state = GranuleState::Alias;
    }

    /// True if the memory of a granule has aliases: it cannot leave before they do.
    pub(crate) fn has_aliases(&self, id: RegionId, addr: u64) -> bool {
        !self.mappings.memory.is_empty() && self.mapped_as(id, addr).is_some()
    }

    /// The granule of an arena that is an alias of one of another arena.
    pub(crate) fn alias_in(&self, arena: u16, owner: Place) -> Option<Place> {
        self.mapped_as(owner.region, owner.addr)?.granule_in(arena)
    }

    /// True if a view of the same arena shows a granule.
    pub(crate) fn is_shown(&self, place: Place) -> bool {
        let is_slot = |alias: &Alias| matches!(alias, Alias::Slot { arena, .. } if *arena == place.arena);
        self.mapped_as(place.region, place.addr).is_some_and(|memory| memory.aliases.iter().any(is_slot))
    }

    /// True if one of its slots is at `addr`.
    pub(crate) fn is_slot(&self, id: RegionId, granule: u64, addr: u64) -> bool {
        let is_there = |alias: &Alias| matches!(alias, Alias::Slot { .. }) && alias.addr() == addr;
        self.mapped_as(id, granule).is_some_and(|memory| memory.aliases.iter().any(is_there))
    }

    /// The granules of an arena that are aliases, by address, and the owners of their memory.
    pub(crate) fn aliases_of(&self, arena: u16) -> Vec<HandedOver> {
        let granules = self.mappings.granules.range((arena, 0)..=(arena, u64::MAX));
        let memory = granules.filter_map(|(_, memory)| self.mappings.memory.get(memory));
        memory.filter_map(|of| Some(HandedOver { alias: of.granule_in(arena)?, owner: of.owner })).collect()
    }

    /// Bytes of granules that are aliases.
    pub(crate) fn alias_bytes(&self) -> u64 {
        self.mappings.granule_bytes
    }

    /// Addresses and bytes of what views map.
    pub(crate) fn slots<'a>(&'a self) -> impl Iterator<Item = (u64, u64)> {
        let all = |memory: &'a Aliased| memory.aliases.iter().map(|alias| (alias, memory.bytes));
        let slot = |(alias, bytes): (&Alias, u64)| {
            matches!(alias, Alias::Slot { .. }).then_some((alias.addr(), bytes))
        };
        self.mappings.memory.values().flat_map(all).filter_map(slot)
    }

    fn mapped_as(&self, id: RegionId, addr: u64) -> Option<&Aliased> {
        self.mappings.memory.get(&self.handle(id, addr)?)
    }

    fn memory_of(&self, place: Place) -> (u64, PhysicalHandle) {
        let granule = self.get(place.region).and_then(|region| region.granules.get(&place.addr));
        match granule.and_then(|granule| Some((granule.bytes, granule.handle?))) {
            Some(found) => found,
            None => unreachable!("what is mapped is a granule with a handle"),
        }
    }

    /// Panics where an alias is not the memory of its owner.
    pub(crate) fn check_mappings(&self) {
        let (mut bytes, mut granules) = (0, 0);
        for (memory, of) in &self.mappings.memory {
            assert_eq!(
                self.handle(of.owner.region, of.owner.addr),
                Some(*memory),
                "the owner has the memory"
            );
            assert!(!of.aliases.is_empty(), "what has no aliases is not here");
            for alias in &of.aliases {
                let Alias::Granule(place) = *alias else { continue };
                let state = self
                    .get(place.region)
                    .and_then(|region| region.states(place.addr..place.addr + of.bytes).next());
                assert!(
                    matches!(state, Some(GranuleState::Alias | GranuleState::Pending)),
                    "a granule that is an alias says so"
                );
                assert_eq!(self.memory_of(place), (of.bytes, *memory), "and maps the memory");
                assert_eq!(
                    self.mappings.granules.get(&(place.arena, place.addr)),
                    Some(memory),
                    "and is found by its arena"
                );
                (bytes, granules) = (bytes + of.bytes, granules + 1);
            }
        }
        assert_eq!(
            (bytes, granules),
            (self.mappings.granule_bytes, self.mappings.granules.len()),
            "aliases add up"
        );
    }
}
