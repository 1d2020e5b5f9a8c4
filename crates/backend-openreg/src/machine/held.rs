//! What programs have of a machine, counted: whoever has given everything back finds what was there before.

use super::Simulated;
use crate::memory::RangeKind;
use backend_api::types::{DeviceIndex, DevicePtr};

/// How much of each kind is in programs' hands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Held {
    /// Allocations of device memory, imported ones included.
    pub allocations: usize,
    /// Reservations of address space.
    pub reservations: usize,
    /// Places at which virtual memory is mapped.
    pub mappings: usize,
    /// Physical memory: what has a handle or a mapping.
    pub physical: usize,
    /// Ranges of page-locked host memory.
    pub host: usize,
    /// Streams, default ones and destroyed ones with work included.
    pub streams: usize,
    /// Events.
    pub events: usize,
    /// Captures that have not ended.
    pub captures: usize,
    /// Graphs.
    pub graphs: usize,
}

impl Held {
    pub(crate) fn of(state: &Simulated) -> Self {
        let Simulated { memory, queues, captures, .. } = state;
        let reserves = |kind: &RangeKind| matches!(kind, RangeKind::Reservation);
        let reservations = memory.ranges.values().filter(|range| reserves(&range.kind)).count();
        Self {
            allocations: memory.ranges.len() - reservations,
            reservations,
            mappings: memory.mappings.len(),
            physical: memory.physical.iter().count(),
            host: memory.host.len(),
            streams: queues.streams.iter().count(),
            events: queues.events.iter().count(),
            captures: captures.active.len(),
            graphs: captures.graphs.iter().count(),
        }
    }
}

/// A place at which virtual memory is mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mapped {
    /// Its first address.
    pub at: DevicePtr,
    /// Its length.
    pub bytes: u64,
    /// Whose memory it is.
    pub device: DeviceIndex,
    /// Tells the physical memory from others of the machine: equal where one memory is mapped twice.
    pub identity: u64,
}

impl Mapped {
    pub(crate) fn all(state: &Simulated) -> Vec<Self> {
        let mappings = state.memory.mappings.iter();
        let each = mappings.map(|(at, mapping)| Self {
            at: DevicePtr(*at),
            bytes: mapping.bytes,
            device: DeviceIndex(mapping.device as u16),
            identity: mapping.physical,
        });
        each.collect()
    }
}
