//! Events that are passed late, by kernels launched, as on a device that is busy: what waits for events to pass, such as
//! frees of memory that several streams use, then takes as long as there.
//!
//! Work itself is not late: only questions about an event are answered so. Who waits, for the event, its stream or its
//! device, finds it passed.

use backend_api::types::{DeviceIndex, Stream};
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// Kernels that were launched, and graphs.
static LAUNCHES: AtomicU64 = AtomicU64::new(0);
/// The last record of events that lag, by handle.
static LAGGING: Mutex<Option<HashMap<usize, Record>>> = Mutex::new(None);

#[derive(Clone, Copy)]
struct Record {
    launches: u64,
    stream: Stream,
}

fn lag() -> u64 {
    crate::settings().map_or(0, |settings| settings.event_lag)
}

fn with<T>(visit: impl FnOnce(&mut HashMap<usize, Record>) -> T) -> T {
    visit(LAGGING.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert_default())
}

/// Counts a kernel or a graph.
pub fn launched() {
    LAUNCHES.fetch_add(1, Ordering::Relaxed);
}

/// How many there were.
#[must_use]
pub fn launches() -> u64 {
    LAUNCHES.load(Ordering::Relaxed)
}

/// An event was recorded on a stream.
pub(crate) fn recorded(event: usize, stream: Stream) {
    if lag() > 0 {
        with(|lagging| lagging.insert(event, Record { launches: launches(), stream }));
    }
}

/// Whether an event that its stream has passed may be seen as passed.
pub(crate) fn is_over(event: usize) -> bool {
    let lag = lag();
    lag == 0 || with(|lagging| lagging.get(&event).is_none_or(|record| launches() >= record.launches + lag))
}

/// Something waited for an event, or it is gone.
pub(crate) fn forget(event: usize) {
    if lag() > 0 {
        with(|lagging| lagging.remove(&event));
    }
}

/// Something waited for a stream.
pub(crate) fn stream_waited_for(stream: Stream) {
    if lag() > 0 {
        with(|lagging| lagging.retain(|_, record| record.stream != stream));
    }
}

/// Something waited for a device.
pub fn device_waited_for(device: DeviceIndex) {
    if lag() > 0 {
        with(|lagging| lagging.retain(|_, record| record.stream.device != device));
    }
}
