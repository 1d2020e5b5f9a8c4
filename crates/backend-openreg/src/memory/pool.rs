//! A driver pool: freed memory is kept for the next request until a synchronisation gives it back.

use super::{Memory, RangeKind, SMALL_UNIT};
use crate::refusal::{Answer, Refusal};
use std::collections::{BTreeMap, BTreeSet};

/// The default pool of one device. Figures are bytes.
#[derive(Debug, Default)]
pub(crate) struct Pool {
    pub(crate) release_threshold: u64,
    pub(crate) reserved: u64,
    pub(crate) reserved_high: u64,
    pub(crate) used: u64,
    pub(crate) used_high: u64,
    /// Idle memory: accounted size, then addresses.
    idle: BTreeMap<u64, BTreeSet<u64>>,
}

impl Memory {
    /// Takes memory from the device's pool: idle memory of up to twice the size, else new memory.
    pub(crate) fn pool_take(&mut self, device: usize, bytes: u64) -> Answer<u64> {
        if bytes == 0 {
            return Err(Refusal::invalid("0 bytes were asked for"));
        }
        let pool = &mut self.devices[device].pool;
        // Idle memory is kept by its accounted size, of which 512 bytes are the least.
        let least = bytes.max(SMALL_UNIT);
        let found = pool
            .idle
            .range(least..=least.saturating_mul(2))
            .next()
            .and_then(|(&size, places)| places.first().map(|&at| (size, at)));
        let at = match found {
            Some((size, at)) => {
                let emptied = pool.idle.get_mut(&size).is_some_and(|places| {
                    places.remove(&at);
                    places.is_empty()
                });
                if emptied {
                    pool.idle.remove(&size);
                }
                at
            }
            None => {
                // The pool's own idle memory goes first when the device is full.
                let at = match self.take(device, bytes, RangeKind::Pooled { live: true }) {
                    Err(refusal) if refusal.kind == backend_api::ErrorKind::OutOfMemory => {
                        self.pool_trim(device, 0)?;
                        self.take(device, bytes, RangeKind::Pooled { live: true })?
                    }
                    taken => taken?,
                };
                let accounted = self.ranges.get(&at).map_or(0, |range| range.accounted);
                let pool = &mut self.devices[device].pool;
                pool.reserved += accounted;
                pool.reserved_high = pool.reserved_high.max(pool.reserved);
                at
            }
        };
        if let Some(range) = self.ranges.get_mut(&at) {
            range.kind = RangeKind::Pooled { live: true };
            range.bytes = bytes;
            let pool = &mut self.devices[device].pool;
            pool.used += range.accounted;
            pool.used_high = pool.used_high.max(pool.used);
        }
        Ok(at)
    }

    /// Marks pool memory as handed back; it is idle only once its stream has passed the free.
    pub(crate) fn pool_retire(&mut self, at: u64) -> Answer<usize> {
        match self.ranges.get_mut(&at) {
            Some(range) if matches!(range.kind, RangeKind::Pooled { live: true }) => {
                range.kind = RangeKind::Pooled { live: false };
                Ok(range.device)
            }
            _ => Err(Refusal::invalid(format!("{at:#x} is not live memory of a driver pool"))),
        }
    }

    /// The stream has passed the free of `at`.
    pub(crate) fn pool_give(&mut self, at: u64) {
        if let Some(range) = self.ranges.get(&at) {
            let pool = &mut self.devices[range.device].pool;
            pool.used -= range.accounted;
            pool.idle.entry(range.accounted).or_default().insert(at);
        }
    }

    /// Gives idle memory back to the device until no more than `keep` bytes are reserved.
    pub(crate) fn pool_trim(&mut self, device: usize, keep: u64) -> Answer<()> {
        while self.devices[device].pool.reserved > keep {
            let pool = &mut self.devices[device].pool;
            let Some(mut largest) = pool.idle.last_entry() else { break };
            let size = *largest.key();
            let at = largest.get_mut().pop_first();
            if largest.get().is_empty() {
                largest.remove();
            }
            if let Some(at) = at {
                self.give(at)?;
                self.devices[device].pool.reserved -= size;
            }
        }
        Ok(())
    }
}
