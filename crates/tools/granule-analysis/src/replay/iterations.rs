//! What each iteration of a workload asked of the driver.
//!
//! The allocator knows nothing of iterations; they are read from the trace. An iteration *repeats* if its ordered list
//! of (size, stream) equals that of an earlier one.

use backend_openreg::{Call, Usage};
use granule_snapshot::trace::{Event, Trace};
use rustc_hash::{FxHashMap, FxHasher};
use serde::Serialize;
use std::hash::{Hash, Hasher};

/// The unit in which memory is mapped, in bytes.
const GRANULE: u64 = 2 << 20;

/// Defines the figures once, and what is done with all of them.
macro_rules! figures {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// What was asked of the driver: counts of one iteration, or means over several.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
        pub struct DriverFigures<T> {
            $($(#[$doc])* pub $name: T,)*
        }

        impl DriverFigures<u64> {
            fn max(self, other: Self) -> Self {
                Self { $($name: self.$name.max(other.$name),)* }
            }

            fn plus(self, other: Self) -> Self {
                Self { $($name: self.$name.saturating_add(other.$name),)* }
            }

            #[allow(clippy::cast_precision_loss)]
            fn over(self, count: usize) -> DriverFigures<f64> {
                DriverFigures { $($name: self.$name as f64 / count as f64,)* }
            }
        }
    };
}

figures! {
    /// Granules of 2 MiB that were mapped, new ones and moved ones.
    granules_mapped,
    /// Granules that were unmapped.
    granules_unmapped,
    /// Granules mapped beyond those that were created: memory that was there and got another address.
    granules_moved,
    /// Calls that made physical memory: handles, and raw allocations of the driver.
    physical_creations,
    /// Bytes of physical memory that these made.
    created_bytes,
    /// Times the host waited for an event, a stream or a device.
    host_waits,
    /// Of these, waits for a whole device. Raw frees count, as a driver waits for the device in them.
    device_wide_waits,
    /// Driver time in nanoseconds by the simulated device's cost model, host waits included.
    modelled_driver_ns,
}

impl DriverFigures<u64> {
    pub(super) fn of(usage: &Usage) -> Self {
        let calls = |call| usage.calls().get(call);
        let granules = |bytes: u64| bytes.div_ceil(GRANULE);
        let mapped = granules(usage.bytes(Call::Map));
        let device_wide_waits = calls(Call::SynchronizeDevice) + calls(Call::Free);
        Self {
            granules_mapped: mapped,
            granules_unmapped: granules(usage.bytes(Call::Unmap)),
            granules_moved: mapped.saturating_sub(granules(usage.bytes(Call::CreatePhysical))),
            physical_creations: usage.served(Call::CreatePhysical) + usage.served(Call::Malloc),
            created_bytes: usage.bytes(Call::CreatePhysical) + usage.bytes(Call::Malloc),
            host_waits: calls(Call::SynchronizeEvent) + calls(Call::SynchronizeStream) + device_wide_waits,
            device_wide_waits,
            modelled_driver_ns: usage.modelled_ns(),
        }
    }
}

/// One iteration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Iteration {
    /// Its number in the trace.
    pub iteration: u64,
    /// Whether an earlier iteration made the same requests in the same order.
    pub repeats: bool,
    /// By how much it raised the most requested bytes live at once.
    pub requested_peak_growth: u64,
}

/// One iteration and what it asked of the driver.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct IterationFigures {
    /// Which one.
    #[serde(flatten)]
    pub iteration: Iteration,
    /// What it asked for.
    #[serde(flatten)]
    pub driver: DriverFigures<u64>,
}

/// Several iterations together.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Summary {
    /// How many they are.
    pub iterations: usize,
    /// Means of one iteration.
    pub mean: DriverFigures<f64>,
    /// The most of one iteration, figure by figure.
    pub max: DriverFigures<u64>,
}

impl Summary {
    fn of<'a>(chosen: impl Iterator<Item = &'a IterationFigures>) -> Option<Self> {
        let zero = (0, DriverFigures::default(), DriverFigures::default());
        let (iterations, sum, max) = chosen
            .fold(zero, |(count, sum, max), next| (count + 1, next.driver.plus(sum), next.driver.max(max)));
        (iterations > 0).then(|| Self { iterations, mean: sum.over(iterations), max })
    }
}

/// The iterations after the second: the first two find out what the workload needs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct AfterSecond {
    /// All of them; `None` if there are none.
    pub all: Option<Summary>,
    /// Those that repeat an earlier iteration; `None` if none does.
    pub repeating: Option<Summary>,
}

impl AfterSecond {
    pub(super) fn of(iterations: &[IterationFigures]) -> Self {
        let after = || iterations.iter().skip(2);
        Self {
            all: Summary::of(after()),
            repeating: Summary::of(after().filter(|one| one.iteration.repeats)),
        }
    }
}

/// The iterations of a trace, in order. Events before the first mark are in none.
#[must_use]
pub fn iterations(trace: &Trace) -> Vec<Iteration> {
    let mut found: Vec<Iteration> = Vec::new();
    let mut seen = Seen::default();
    let mut requests = FxHasher::default();
    let mut live = Live::of(trace);
    let mut begin = 0;
    for (at, event) in trace.events.iter().enumerate() {
        match *event {
            Event::Alloc { id, size, stream } => {
                (size, stream).hash(&mut requests);
                let growth = live.requested(id, size);
                if let Some(last) = found.last_mut() {
                    last.requested_peak_growth += growth;
                }
            }
            Event::Free { id } | Event::Refused { id, .. } => live.freed(id),
            Event::Iteration { n } => {
                let hash = std::mem::take(&mut requests).finish();
                if let Some(last) = found.last_mut() {
                    last.repeats = seen.before(&trace.events[begin..at], hash);
                }
                begin = at;
                found.push(Iteration { iteration: n, repeats: false, requested_peak_growth: 0 });
            }
            _ => {}
        }
    }
    if let Some(last) = found.last_mut() {
        last.repeats = seen.before(&trace.events[begin..], requests.finish());
    }
    found
}

/// What is live at an event of a trace, by request: bytes.
#[derive(Debug)]
pub(super) struct Live {
    /// By number; freed blocks have none.
    sizes: Vec<u64>,
    /// Of numbers that are far from counting up.
    wild: FxHashMap<u64, u64>,
    now: u64,
    pub(super) peak: u64,
}

impl Live {
    /// Before the first event.
    pub(super) fn of(trace: &Trace) -> Self {
        Self { sizes: vec![0; trace.events.len()], wild: FxHashMap::default(), now: 0, peak: 0 }
    }

    /// A block is requested; returns by how much that raises the peak.
    pub(super) fn requested(&mut self, id: u64, size: u64) -> u64 {
        match usize::try_from(id).ok().and_then(|id| self.sizes.get_mut(id)) {
            Some(place) => *place = size,
            None => {
                self.wild.insert(id, size);
            }
        }
        self.now = self.now.saturating_add(size);
        let growth = self.now.saturating_sub(self.peak);
        self.peak += growth;
        growth
    }

    /// It is given back.
    pub(super) fn freed(&mut self, id: u64) {
        let size = match usize::try_from(id).ok().and_then(|id| self.sizes.get_mut(id)) {
            Some(place) => std::mem::take(place),
            None => self.wild.remove(&id).unwrap_or(0),
        };
        self.now = self.now.saturating_sub(size);
    }
}

/// The iterations so far, by a hash of their requests.
#[derive(Default)]
struct Seen<'a>(FxHashMap<u64, Vec<&'a [Event]>>);

impl<'a> Seen<'a> {
    /// Whether an iteration with the same requests came before this one, which is noted.
    fn before(&mut self, events: &'a [Event], hash: u64) -> bool {
        let alike = self.0.entry(hash).or_default();
        let repeats = alike.iter().any(|earlier| requests(earlier).eq(requests(events)));
        if !repeats {
            alike.push(events);
        }
        repeats
    }
}

/// Sizes and streams in order.
fn requests(events: &[Event]) -> impl Iterator<Item = (u64, u32)> + '_ {
    events.iter().filter_map(|event| match *event {
        Event::Alloc { size, stream, .. } => Some((size, stream)),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::{Iteration, iterations};
    use granule_snapshot::trace::{Event, Trace};

    fn trace(iterations: &[&[(u64, u32)]]) -> Trace {
        let mut id = 0;
        let mut events = vec![Event::Alloc { id: 1_000, size: 100, stream: 0 }];
        for (n, requests) in (0..).zip(iterations) {
            events.push(Event::Iteration { n });
            let first = id;
            for &(size, stream) in *requests {
                events.push(Event::Alloc { id, size, stream });
                id += 1;
            }
            events.extend((first..id).map(|id| Event::Free { id }));
        }
        Trace { events, ..Trace::default() }
    }

    #[test]
    fn an_iteration_repeats_if_an_earlier_one_asked_for_the_same_in_the_same_order() {
        let found = iterations(&trace(&[
            &[(8, 0), (4, 0)],
            &[(4, 0), (8, 0)],
            &[(8, 0), (4, 0)],
            &[(8, 0), (4, 1)],
            &[(8, 0)],
            &[(4, 0), (8, 0)],
        ]));
        let repeats: Vec<bool> = found.iter().map(|one| one.repeats).collect();
        assert_eq!(repeats, [false, false, true, false, false, true]);
    }

    #[test]
    fn growth_of_the_peak_belongs_to_the_iteration_that_makes_it() {
        let found = iterations(&trace(&[&[(50, 0)], &[(20, 0), (60, 0)], &[(70, 0)]]));
        let growth: Vec<u64> = found.iter().map(|one| one.requested_peak_growth).collect();
        assert_eq!(growth, [50, 30, 0], "what was live before the first mark is no one's");
        assert_eq!(found[1], Iteration { iteration: 1, repeats: false, requested_peak_growth: 30 });
        assert_eq!(iterations(&Trace::default()), []);
    }
}
