//! What one candidate did on one device.

use crate::replay::{Refusal, ReplayResult};
use serde::Serialize;
use std::collections::BTreeMap;

/// What a replay of a candidate gave, under the names of [`ReplayResult`]. Bytes unless said otherwise.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Outcome {
    /// The device's memory.
    pub capacity: u64,
    /// Requests refused; each was skipped with its later free. 0 says that the candidate fits.
    pub refused: u64,
    /// The first of them: from there on the other figures are no longer those of the real program, which would have ended.
    pub first_refusal: Option<FirstRefusal>,
    /// Most requested bytes live at once.
    pub requested_bytes_peak: i64,
    /// Most allocated bytes.
    pub allocated_bytes_peak: i64,
    /// Most active bytes.
    pub active_bytes_peak: i64,
    /// Most reserved bytes. With caching off, PyTorch counts nothing: see [`driver_peak_held`](Self::driver_peak_held).
    pub reserved_bytes_peak: i64,
    /// Segments taken and map steps.
    pub num_device_alloc: i64,
    /// Segments given back and unmap steps.
    pub num_device_free: i64,
    /// Cache flushes after a failed attempt.
    pub num_alloc_retries: i64,
    /// Out-of-memory errors.
    pub num_ooms: i64,
    /// The most the device had handed out at once.
    pub driver_peak_held: u64,
    /// Calls by driver function.
    pub device_calls: BTreeMap<String, u64>,
    /// Modelled driver time in nanoseconds, waits included.
    pub modelled_driver_ns: u64,
}

/// Where the first refused request is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct FirstRefusal {
    /// The event's number, from 1; in a trace file it is on the line after.
    pub event: usize,
    /// The iteration it is in; `None` before the first.
    pub iteration: Option<u64>,
    /// Bytes as requested.
    pub requested: u64,
}

impl Outcome {
    /// Whether nothing was refused.
    #[must_use]
    pub const fn fits(&self) -> bool {
        self.refused == 0
    }

    /// The most that was held from the device, in bytes.
    #[must_use]
    pub fn held(&self) -> u64 {
        self.driver_peak_held.max(self.reserved_bytes_peak.unsigned_abs())
    }

    pub(super) fn new(result: ReplayResult, refusal: Option<&Refusal>) -> Self {
        let simulated = result.simulated.unwrap_or_default();
        Self {
            capacity: result.capacity,
            refused: result.refused,
            first_refusal: refusal.map(FirstRefusal::from),
            requested_bytes_peak: result.requested_bytes_peak,
            allocated_bytes_peak: result.allocated_bytes_peak,
            active_bytes_peak: result.active_bytes_peak,
            reserved_bytes_peak: result.reserved_bytes_peak,
            num_device_alloc: result.num_device_alloc,
            num_device_free: result.num_device_free,
            num_alloc_retries: result.num_alloc_retries,
            num_ooms: result.num_ooms,
            driver_peak_held: simulated.driver_peak_held,
            device_calls: simulated.device_calls,
            modelled_driver_ns: simulated.modelled_driver_ns,
        }
    }
}

impl From<&Refusal> for FirstRefusal {
    fn from(refusal: &Refusal) -> Self {
        Self { event: refusal.event, iteration: refusal.iteration, requested: refusal.requested }
    }
}
