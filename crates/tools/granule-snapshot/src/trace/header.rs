//! The first line of a trace.

use super::Event;
use super::refused::survived;
use rustc_hash::{FxHashMap, FxHashSet};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// What the first line of a trace says; everything is optional, unknown keys are kept.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct TraceHeader {
    /// Name of the traced program.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workload: Option<String>,
    /// How the trace was made.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// What PyTorch's own allocator did with the same program, by configuration name (`default`,
    /// `expandable`), in file order.
    #[serde(skip_serializing_if = "NativeResults::is_empty")]
    pub native: NativeResults,
    /// The PyTorch version of the recording.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub torch: Option<String>,
    /// The format's name and version, `alloc-trace 1`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub format: Option<String>,
    /// Lines after the header.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub events: Option<u64>,
    /// Requests.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allocs: Option<u64>,
    /// Streams in use, the default stream included.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub streams: Option<u64>,
    /// The most requested bytes live at once: no allocator can hold less.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub peak_live_requested: Option<u64>,
    /// Requested bytes live after the last event.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub live_at_end: Option<u64>,
    /// Sum of all requests in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes_requested_in_all: Option<u64>,
    /// `i` lines.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub iterations: Option<u64>,
    /// Keys this type does not know, in file order.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

/// Native results by configuration name, in file order.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NativeResults(pub Vec<(String, NativeResult)>);

impl NativeResults {
    /// The result under that configuration name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&NativeResult> {
        self.0.iter().find(|(known, _)| known == name).map(|(_, result)| result)
    }

    /// Names and results in file order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &NativeResult)> {
        self.0.iter().map(|(name, result)| (name.as_str(), result))
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl Serialize for NativeResults {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(name, result)| (name, result)))
    }
}

impl<'de> Deserialize<'de> for NativeResults {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        // `serde_json::Map` keeps the file's order.
        Map::deserialize(deserializer)?
            .into_iter()
            .map(|(name, value)| Ok((name, serde_json::from_value(value)?)))
            .collect::<Result<_, serde_json::Error>>()
            .map(Self)
            .map_err(serde::de::Error::custom)
    }
}

/// What PyTorch's own allocator did with a trace's program. Bytes unless said otherwise.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct NativeResult {
    /// The value of `PYTORCH_CUDA_ALLOC_CONF`; empty for the defaults.
    pub conf: String,
    /// The device's capacity.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub capacity: Option<u64>,
    /// Most requested bytes live at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requested_bytes_peak: Option<u64>,
    /// Most allocated bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allocated_bytes_peak: Option<u64>,
    /// Most active bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub active_bytes_peak: Option<u64>,
    /// Most reserved bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reserved_bytes_peak: Option<u64>,
    /// Device allocations (mappings of growable segments included).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub num_device_alloc: Option<u64>,
    /// Device frees.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub num_device_free: Option<u64>,
    /// Times the cache was flushed and the device asked again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub num_alloc_retries: Option<u64>,
    /// Refused requests.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub num_ooms: Option<u64>,
    /// Figures at the beginning of each iteration.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub marks: Vec<Mark>,
    /// Least capacity on which a replay is never refused memory, to 16 MiB.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_capacity: Option<u64>,
    /// Retries on that capacity.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retries_at_min_capacity: Option<u64>,
    /// Keys this type does not know (driver calls, checks of the recording), in file order.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

/// Figures at the beginning of an iteration; in files `[n, requested, allocated, reserved, device_allocs]`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "(u64, u64, u64, u64, u64)", into = "(u64, u64, u64, u64, u64)")]
pub struct Mark {
    /// The iteration.
    pub iteration: u64,
    /// Requested bytes.
    pub requested: u64,
    /// Allocated bytes.
    pub allocated: u64,
    /// Reserved bytes.
    pub reserved: u64,
    /// Device allocations so far.
    pub device_allocs: u64,
}

impl From<(u64, u64, u64, u64, u64)> for Mark {
    fn from((iteration, requested, allocated, reserved, device_allocs): (u64, u64, u64, u64, u64)) -> Self {
        Self { iteration, requested, allocated, reserved, device_allocs }
    }
}

impl From<Mark> for (u64, u64, u64, u64, u64) {
    fn from(mark: Mark) -> Self {
        (mark.iteration, mark.requested, mark.allocated, mark.reserved, mark.device_allocs)
    }
}

impl TraceHeader {
    /// Fills counts and sums from the events.
    pub(super) fn summarise(&mut self, events: &[Event]) {
        let (mut sizes, survived) = (FxHashMap::default(), survived(events));
        let mut streams = FxHashSet::from_iter([0]);
        let (mut live, mut peak, mut total, mut allocs, mut iterations) = (0u64, 0u64, 0u64, 0u64, 0u64);
        for event in events {
            match *event {
                Event::Alloc { id, size, stream } => {
                    // What the program did without is no demand.
                    let needed = if survived.contains(&id) { 0 } else { size };
                    sizes.insert(id, needed);
                    streams.insert(stream);
                    live = live.saturating_add(needed);
                    total = total.saturating_add(size);
                    peak = peak.max(live);
                    allocs += 1;
                }
                Event::Free { id } | Event::Refused { id, .. } => {
                    live = live.saturating_sub(sizes.remove(&id).unwrap_or(0));
                }
                Event::RecordStream { stream, .. } => {
                    streams.insert(stream);
                }
                Event::EmptyCache | Event::Pool { .. } | Event::PoolEnds { .. } | Event::EmptyPool { .. } => {
                }
                Event::Iteration { .. } => iterations += 1,
            }
        }
        self.format = Some(super::FORMAT.into());
        self.events = Some(events.len() as u64);
        self.allocs = Some(allocs);
        self.streams = Some(streams.len() as u64);
        self.peak_live_requested = Some(peak);
        self.live_at_end = Some(live);
        self.bytes_requested_in_all = Some(total);
        self.iterations = Some(iterations);
    }
}
