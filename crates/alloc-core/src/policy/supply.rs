//! How the policy of a device gets memory for a request that no free block serves.

use super::engine::Engine;
use super::granule::{self, Device, Memory};
use super::{Grain, PolicyArena, Request};
use crate::error::Result;
use crate::lifetimes::call::Call;
use crate::memory::block::Tier;
use crate::types::DevicePtr;

/// An object of the policy, one for each device. What it does not do, the engine does: it takes memory from the device.
#[derive(Debug)]
pub enum Supply {
    Plain,
    Granule(Device),
}

impl Supply {
    /// Finds out what it needs to know of the device, before it gets memory for a request of this tier.
    pub(crate) fn prepare<E: Engine<Memory>>(
        &self,
        engine: &E,
        arena: &E::Arena,
        tier: Tier,
        call: &Call<'_>,
    ) {
        if let Self::Granule(device) = self {
            device.prepare(engine, arena, tier, call);
        }
    }

    /// Serves a request from free memory that lies in pieces, without a driver call.
    pub(crate) fn search<E: Engine<Memory>>(
        &self,
        engine: &E,
        arena: &E::Arena,
        request: &Request,
        call: &Call<'_>,
    ) -> Option<DevicePtr> {
        match self {
            Self::Plain => None,
            Self::Granule(device) => device.search(engine, arena, request, call),
        }
    }

    /// Gets memory for a request that misses, and serves it.
    pub(crate) fn serve<E: Engine<Memory>>(
        &self,
        engine: &E,
        arena: &E::Arena,
        request: &Request,
        is_retry: bool,
        call: &Call<'_>,
    ) -> Result<Option<DevicePtr>> {
        match self {
            Self::Plain => engine.grow(arena, request, is_retry, call),
            Self::Granule(device) => device.serve(engine, arena, request, is_retry, call),
        }
    }

    /// Memory of an arena is about to leave: what the policy keeps there for itself goes first. With `only_past`, only what the
    /// device is known to be done with.
    pub(crate) fn before_leaving<E: Engine<Memory>>(
        &self,
        engine: &E,
        arena: &E::Arena,
        only_past: bool,
        call: &Call<'_>,
    ) -> Result<()> {
        match self {
            Self::Plain => Ok(()),
            Self::Granule(_) => granule::give_up(engine, arena, u64::MAX, only_past, call),
        }
    }

    /// The granules that new memory of an arena is made of, if `size` bytes are needed; `None` where any will do.
    pub(crate) fn granule<E: Engine<Memory>>(
        &self,
        engine: &E,
        arena: &E::Arena,
        tier: Tier,
        size: u64,
    ) -> Option<Grain> {
        match self {
            Self::Plain => None,
            Self::Granule(device) => device.granule(engine, arena, tier, size),
        }
    }

    /// The unit in which a new growable segment is mapped, where new granules have `granule` bytes and the driver's unit is
    /// `minimum`.
    pub(crate) fn unit(&self, granule: u64, minimum: u64) -> u64 {
        match self {
            Self::Plain => granule,
            Self::Granule(_) => Device::unit(granule, minimum),
        }
    }

    /// Addresses of a new growable segment for `size` bytes, where the policy says `reserve`; and what they are multiples of, 0
    /// where that is the driver's business.
    pub(crate) fn reservation(&self, reserve: u64, size: u64) -> (u64, u64) {
        match self {
            Self::Plain => (reserve, 0),
            Self::Granule(_) => Device::reservation(reserve, size),
        }
    }

    /// Whether a request counts as what is missing for it from the first try on; else as PyTorch counts it.
    pub(crate) fn counts_what_is_missing(&self) -> bool {
        matches!(self, Self::Granule(_))
    }

    /// The most bytes that lie free in pieces and can serve a request.
    pub(crate) fn most_in_pieces(&self, state: &mut impl PolicyArena<Memory>, tier: Tier) -> u64 {
        match self {
            Self::Plain => 0,
            Self::Granule(device) => device.most_in_pieces(state, tier),
        }
    }

    /// What is missing for a request that nothing free serves, where free memory in pieces is part of what serves it.
    pub(crate) fn missing<E: Engine<Memory>>(
        &self,
        engine: &E,
        state: &mut E::State,
        request: &Request,
    ) -> Option<u64> {
        match self {
            Self::Plain => None,
            Self::Granule(device) => device.missing(engine, state, request),
        }
    }

    /// Notes that `in_use` bytes are needed, and returns the most that were when memory was taken.
    pub(crate) fn note_need(&self, in_use: u64) -> u64 {
        match self {
            Self::Plain => in_use,
            Self::Granule(device) => device.note_need(in_use),
        }
    }

    /// What was needed before says nothing of what follows.
    pub(crate) fn forget_need(&self) {
        if let Self::Granule(device) = self {
            device.forget_need();
        }
    }

    /// What is free in the default pool stays where it is from here on, or need not any more.
    pub(crate) fn stay_at_home(&self, home: bool) {
        if let Self::Granule(device) = self {
            device.stay_at_home(home);
        }
    }
}
