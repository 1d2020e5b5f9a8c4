//! Bytes held from a device in all, and pinned in the same memory.

use super::guarantees::clamped;
use super::tenants::signed;
use crate::memory::block::Tier;
use crate::watch::stats::{Stat, StatArray};

/// Bytes held from a device in all.
#[derive(Debug, Default)]
pub(in crate::device) struct DeviceTotals {
    reserved: StatArray,
    /// The most held since a boundary of scopes.
    since_boundary: i64,
    /// Bytes being taken from the device at the moment, by threads that hold no lock.
    intents: u128,
    /// Pinned host memory that is of the device's memory: limits count it, too.
    pinned: u64,
}

impl DeviceTotals {
    /// Bytes held from the device, those being taken at the moment included.
    pub(in crate::device) fn held(&self) -> u64 {
        clamped(u128::from(self.reserved()) + self.intents)
    }

    /// Bytes that count against limits of the whole device: held, and pinned in the same memory.
    pub(in crate::device) fn counted(&self) -> u64 {
        self.held().saturating_add(self.pinned)
    }

    /// Bytes pinned in the same memory; 0 where that is not the host's.
    pub(in crate::device) fn pinned(&self) -> u64 {
        self.pinned
    }

    /// Bytes reserved or pinned, without those in flight from the device.
    pub(in crate::device) fn kept(&self) -> u64 {
        self.reserved().saturating_add(self.pinned)
    }

    /// Bytes held from the device, without those in flight.
    pub(in crate::device) fn reserved(&self) -> u64 {
        self.reserved.all.current.unsigned_abs()
    }

    /// True if nothing is in flight.
    pub(in crate::device) fn is_at_rest(&self) -> bool {
        self.intents == 0
    }

    /// The most held since the last boundary.
    pub(in crate::device) fn since_boundary(&self) -> i64 {
        self.since_boundary
    }

    pub(super) fn take(&mut self, tier: Tier, bytes: u64) {
        self.reserved.increase(tier, signed(bytes));
        self.since_boundary = self.since_boundary.max(self.reserved.all.current);
    }

    pub(super) fn give_back(&mut self, tier: Tier, bytes: u64) {
        self.reserved.decrease(tier, signed(bytes));
    }

    pub(super) fn change_intents(&mut self, change: impl FnOnce(&mut u128)) {
        change(&mut self.intents);
    }

    /// Sets the bytes pinned; returns those before.
    pub(super) fn set_pinned(&mut self, pinned: u64) -> u64 {
        std::mem::replace(&mut self.pinned, pinned)
    }

    /// Bytes reserved, over time.
    pub(super) fn figures(&self) -> StatArray {
        self.reserved
    }

    /// Changes every figure.
    pub(super) fn each(&mut self, change: impl FnMut(&mut Stat)) {
        self.reserved.each(change);
    }

    pub(super) fn restart_peak(&mut self) {
        self.since_boundary = self.reserved.all.current;
    }
}
