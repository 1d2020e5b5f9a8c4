//! For tests of whole programs: what they have of a machine, and how late streams are.

use crate::machine::Simulated;
use crate::memory::RangeKind;
use crate::openreg::OpenReg;
use backend_api::types::Stream;

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
    /// What programs have of `machine` now: whoever has given everything back finds what was there before. Costs no call.
    #[must_use]
    pub fn of(machine: &OpenReg) -> Self {
        let state = machine.machine.lock();
        let Simulated { memory, queues, captures, .. } = &*state;
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

/// How many ticks after it was queued the work of a stream completes, whatever the machine's clock says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lag(pub u64);

impl Lag {
    /// Is that of `stream` from here on, so that streams fall behind each other. Does nothing for a stream that is not this
    /// machine's, and under [`Clock::Workers`](crate::Clock::Workers). Costs no call.
    pub fn set(self, machine: &OpenReg, stream: Stream) {
        let mut state = machine.machine.lock();
        if let Ok(key) = machine.names.stream(&state, stream)
            && let Ok(stream) = state.queues.stream_mut(key)
        {
            stream.lag = Some(self.0);
        }
    }
}
