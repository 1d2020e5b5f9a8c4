//! Whether larger devices serve what a smaller one did. Nothing promises it: a policy decides otherwise on a device that is full
//! later.

use super::capacity::attempt;
use super::{ReplayError, ReplayOptions};
use granule_snapshot::trace::Trace;
use rayon::prelude::*;
use serde::Serialize;

/// The driver hands memory out in this unit, in bytes: devices in between are alike.
const UNIT: u64 = 2 << 20;
/// The largest device tried has this part more than the smallest.
const PART: u64 = 10;

/// What [`larger_devices`] found.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct LargerDevices {
    /// Devices tried.
    pub tried: u64,
    /// Those of them on which a request was refused, in bytes, the smallest first.
    pub refused: Vec<u64>,
}

/// Tries so many larger devices than one that serves all of `trace`, evenly up to 1.1 times that one. There are fewer where
/// these would differ by less than 2 MiB. Replays run in parallel.
///
/// # Errors
/// Those of [`replay`](super::replay).
pub fn larger_devices(
    trace: &Trace,
    options: &ReplayOptions,
    smallest: u64,
    count: u64,
) -> Result<LargerDevices, ReplayError> {
    let trace = &*trace.demand().0;
    let tried = capacities(smallest, count);
    let refuses = |capacity: u64| Ok((capacity, attempt(trace, options, capacity)?.is_none()));
    let found: Vec<(u64, bool)> = tried.into_par_iter().map(refuses).collect::<Result<_, ReplayError>>()?;
    Ok(LargerDevices {
        tried: found.len() as u64,
        refused: found.into_iter().filter(|(_, refuses)| *refuses).map(|(capacity, _)| capacity).collect(),
    })
}

fn capacities(smallest: u64, count: u64) -> Vec<u64> {
    let units = smallest / PART / UNIT;
    let count = count.min(units);
    (1..=count).map(|n| smallest.saturating_add(n.saturating_mul(units) / count * UNIT)).collect()
}

#[cfg(test)]
mod tests {
    use super::capacities;

    #[test]
    fn devices_are_tried_evenly_up_to_a_tenth_more() {
        assert_eq!(capacities(1000 << 20, 1), [1100 << 20], "as many as were asked for");
        assert_eq!(capacities(1000 << 20, 4), [24, 50, 74, 100].map(|mib| (1000 + mib) << 20));
        assert_eq!(capacities(800 << 20, 4), [20, 40, 60, 80].map(|mib| (800 + mib) << 20));
        assert_eq!(capacities(60 << 20, 40), [62, 64, 66].map(|mib| mib << 20));
        assert!(capacities(8 << 20, 4).is_empty() && capacities(1 << 30, 0).is_empty());
        assert_eq!(capacities(u64::MAX, 3).len(), 3);
    }
}
