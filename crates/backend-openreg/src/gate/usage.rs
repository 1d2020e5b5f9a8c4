//! What the driver was asked: readings to take differences of.

use crate::gate::call::{Call, CallCounts};
use crate::gate::cost::CostModel;
use std::sync::Arc;

/// What a machine's driver did up to a moment, or between two.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Usage {
    pub(crate) calls: CallCounts,
    pub(crate) served: [u64; Call::COUNT],
    pub(crate) bytes: [u64; Call::COUNT],
    pub(crate) waited_ns: u64,
    pub(crate) costs: Arc<CostModel>,
}

impl Usage {
    /// How often each call was made, failed calls included.
    #[must_use]
    pub const fn calls(&self) -> &CallCounts {
        &self.calls
    }

    /// How often `call` succeeded. Known of the calls that take, give, map or move bytes; 0 for others.
    #[must_use]
    pub const fn served(&self, call: Call) -> u64 {
        self.served[call as usize]
    }

    /// Bytes that `call` took, mapped, moved or filled; failed calls handle none.
    #[must_use]
    pub const fn bytes(&self, call: Call) -> u64 {
        self.bytes[call as usize]
    }

    /// Virtual time in nanoseconds that the host waited for queued work, beyond the calls' own cost.
    #[must_use]
    pub const fn waited_ns(&self) -> u64 {
        self.waited_ns
    }

    /// What happened since `earlier`.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let difference = |now: &[u64; Call::COUNT], then: &[u64; Call::COUNT]| {
            std::array::from_fn(|index| now[index].saturating_sub(then[index]))
        };
        Self {
            calls: self.calls.since(&earlier.calls),
            served: difference(&self.served, &earlier.served),
            bytes: difference(&self.bytes, &earlier.bytes),
            waited_ns: self.waited_ns.saturating_sub(earlier.waited_ns),
            costs: Arc::clone(&self.costs),
        }
    }

    /// Nanoseconds that the calls of one kind would have taken on a device, waits aside.
    #[must_use]
    pub fn modelled_ns_of(&self, call: Call) -> u64 {
        let bytes = self.costs.of_bytes(call, self.bytes(call));
        self.costs.of_calls(call, self.calls.get(call)).saturating_add(bytes)
    }

    /// Nanoseconds that all calls would have taken on a device, with the time that the host waited.
    #[must_use]
    pub fn modelled_ns(&self) -> u64 {
        let calls = Call::ALL.iter().map(|&call| self.modelled_ns_of(call));
        calls.fold(self.waited_ns, u64::saturating_add)
    }
}
