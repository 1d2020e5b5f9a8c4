//! The smallest device on which a workload is never refused memory.

use super::iterations::Live;
use super::{ReplayError, ReplayOptions, ReplayResult, replay};
use granule_snapshot::trace::{Event, Trace};
use rayon::prelude::*;
use serde::Serialize;
use std::collections::BTreeMap;

/// The answer of [`min_capacity`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct MinCapacity {
    /// Bytes, a multiple of the step.
    pub min_capacity: u64,
    /// Most requested bytes live at once: no device can be smaller.
    pub peak_live: u64,
    /// How often the allocator flushed its cache on that device.
    pub retries_at_min_capacity: i64,
    /// Iterations that repeat an earlier one.
    pub repeating_iterations: u64,
    /// How often these iterations waited for the whole device, all together, on the smallest device.
    pub device_wide_waits_in_repeating_iterations: u64,
    /// Modelled driver time of the whole run on the smallest device, in nanoseconds.
    pub modelled_driver_ns: u64,
    /// The step of the search in bytes.
    pub step: u64,
    /// Replays done.
    pub replays: u64,
}

/// Bisects to `step` bytes. What was refused when the trace was recorded, and the program did without, is not asked for. It assumes that more memory never hurts; [`larger_devices`](super::larger_devices) tries. `options.capacity` is the largest device
/// considered. Replays run in parallel: while the middle is tried, so are the middles of both halves, because one of
/// these is wanted next. `progress` is told the width of the search in steps.
///
/// # Errors
/// [`ReplayError::NeverFits`] where even the largest device is too small; the errors of [`replay`].
pub fn min_capacity(
    trace: &Trace,
    options: &ReplayOptions,
    step: u64,
    mut progress: impl FnMut(u64),
) -> Result<MinCapacity, ReplayError> {
    let trace = &*trace.demand().0;
    let step = step.max(1);
    let largest = options.simulated_capacity();
    let whole = attempt(trace, options, largest)?
        .ok_or_else(|| ReplayError::NeverFits { capacity: largest, peak_live: peak_live(trace) })?;
    let held = whole.simulated.as_ref().map_or(largest, |figures| figures.driver_peak_held);
    let peak = peak_live(trace);
    let mut low = i128::from(peak / step) - 1;
    let mut high = i128::from(held.div_ceil(step));
    let mut best = Fit::of(&whole);
    let mut replays = 1;
    let mut known: BTreeMap<i128, Option<Fit>> = BTreeMap::new();
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
                        Ok((*m, attempt(trace, options, capacity)?.as_ref().map(Fit::of)))
                    })
                    .collect::<Result<_, ReplayError>>()?;
                replays += tried.len() as u64;
                known.extend(tried);
                known[&middle]
            }
        };
        match fits {
            Some(fit) => (high, best) = (middle, fit),
            None => low = middle,
        }
    }
    let min_capacity = u64::try_from(high).unwrap_or(0).saturating_mul(step);
    let Fit { retries, repeating, device_wide_waits, modelled_driver_ns } = best;
    Ok(MinCapacity {
        min_capacity,
        peak_live: peak,
        retries_at_min_capacity: retries,
        repeating_iterations: repeating,
        device_wide_waits_in_repeating_iterations: device_wide_waits,
        modelled_driver_ns,
        step,
        replays,
    })
}

/// A replay on a device of this size; none where a request is refused.
pub(super) fn attempt(
    trace: &Trace,
    options: &ReplayOptions,
    capacity: u64,
) -> Result<Option<ReplayResult>, ReplayError> {
    let options = ReplayOptions {
        capacity: Some(capacity),
        stop_on_oom: true,
        history: 0,
        unwatched: true,
        ..options.clone()
    };
    let result = replay(trace, &options, |_| {})?.result;
    Ok((result.refused == 0).then_some(result))
}

/// What a replay that was refused nothing had to do for it.
#[derive(Clone, Copy, Debug)]
struct Fit {
    retries: i64,
    repeating: u64,
    device_wide_waits: u64,
    modelled_driver_ns: u64,
}

impl Fit {
    fn of(result: &ReplayResult) -> Self {
        let simulated = result.simulated.as_ref();
        let iterations = simulated.map_or(&[][..], |figures| &figures.iterations);
        let repeating = || iterations.iter().filter(|one| one.iteration.repeats);
        Self {
            retries: result.num_alloc_retries,
            repeating: repeating().count() as u64,
            device_wide_waits: repeating().map(|one| one.driver.device_wide_waits).sum(),
            modelled_driver_ns: simulated.map_or(0, |figures| figures.modelled_driver_ns),
        }
    }
}

/// The most requested bytes live at once: no device can be smaller.
#[must_use]
pub fn peak_live(trace: &Trace) -> u64 {
    let trace = trace.demand().0;
    let mut live = Live::of(&trace);
    for event in &trace.events {
        match *event {
            Event::Alloc { id, size, .. } => {
                live.requested(id, size);
            }
            Event::Free { id } | Event::Refused { id, .. } => live.freed(id),
            _ => {}
        }
    }
    live.peak
}
