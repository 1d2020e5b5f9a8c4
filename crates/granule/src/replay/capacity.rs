//! The smallest device on which a workload is never refused memory.

use super::{ReplayError, ReplayOptions, replay};
use alloc_core::policy::Policy;
use rayon::prelude::*;
use serde::Serialize;
use snapshot::trace::{Event, Trace};
use std::collections::BTreeMap;

/// The answer of [`min_capacity`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct MinCapacity {
    /// Bytes, a multiple of the step.
    pub min_capacity: u64,
    /// How often the allocator flushed its cache on that device.
    pub retries_at_min_capacity: i64,
    /// The step of the search in bytes.
    pub step: u64,
    /// Replays done.
    pub replays: u64,
}

/// Bisects to `step` bytes, taking it that more memory never hurts; `options.capacity` is the largest device
/// considered. Replays run in parallel: while the middle is tried, so are the middles of both halves,
/// of which one is wanted next. `progress` is told the width of the search in steps.
///
/// # Errors
/// [`ReplayError::NeverFits`] where even the largest device is too small, and what [`replay`] gives.
pub fn min_capacity<P: Policy>(
    trace: &Trace,
    options: &ReplayOptions,
    step: u64,
    mut progress: impl FnMut(u64),
) -> Result<MinCapacity, ReplayError> {
    let step = step.max(1);
    let attempt = |capacity: u64| {
        let options =
            ReplayOptions { capacity: Some(capacity), stop_on_oom: true, history: 0, ..options.clone() };
        let result = replay::<P>(trace, &options, |_| {})?.result;
        Ok::<_, ReplayError>((result.refused == 0).then_some(result))
    };
    let largest = options.simulated_capacity();
    let whole = attempt(largest)?
        .ok_or_else(|| ReplayError::NeverFits { capacity: largest, peak_live: peak_live(trace) })?;
    let held = whole.simulated.map_or(largest, |figures| figures.driver_peak_held);
    let mut low = i128::from(peak_live(trace) / step) - 1;
    let mut high = i128::from(held.div_ceil(step));
    let mut retries = 0;
    let mut replays = 1;
    let mut known: BTreeMap<i128, Option<i64>> = BTreeMap::new();
    while high - low > 1 {
        progress(u64::try_from(high - low).unwrap_or(u64::MAX));
        let middle = low.midpoint(high);
        let fits = match known.get(&middle) {
            Some(fits) => *fits,
            None => {
                let wanted: Vec<_> = [middle, low.midpoint(middle), middle.midpoint(high)]
                    .into_iter()
                    .filter(|m| *m > low && *m < high)
                    .collect();
                let tried: Vec<_> = wanted
                    .par_iter()
                    .map(|m| {
                        let capacity = u64::try_from(*m).unwrap_or(0).saturating_mul(step);
                        Ok((*m, attempt(capacity)?.map(|result| result.num_alloc_retries)))
                    })
                    .collect::<Result<_, ReplayError>>()?;
                replays += tried.len() as u64;
                known.extend(tried);
                known[&middle]
            }
        };
        match fits {
            Some(count) => (high, retries) = (middle, count),
            None => low = middle,
        }
    }
    let min_capacity = u64::try_from(high).unwrap_or(0).saturating_mul(step);
    Ok(MinCapacity { min_capacity, retries_at_min_capacity: retries, step, replays })
}

/// The most requested bytes live at once: no device can be smaller.
#[must_use]
pub fn peak_live(trace: &Trace) -> u64 {
    let mut sizes = std::collections::HashMap::new();
    let (mut live, mut peak) = (0u64, 0u64);
    for event in &trace.events {
        match *event {
            Event::Alloc { id, size, .. } => {
                live = live.saturating_add(size);
                peak = peak.max(live);
                sizes.insert(id, size);
            }
            Event::Free { id } => live = live.saturating_sub(sizes.remove(&id).unwrap_or(0)),
            _ => {}
        }
    }
    peak
}
