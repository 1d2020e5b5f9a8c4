//! Counters under the device's lock.

use crate::watch::stats::{Stat, StatArray};

/// Counters under the device's lock.
#[derive(Debug, Default)]
pub(in crate::device) struct DeviceCounters {
    pub(in crate::device) segment: StatArray,
    pub(in crate::device) oversize_segments: Stat,
    pub(in crate::device) alloc_retries: i64,
    pub(in crate::device) ooms: i64,
    pub(in crate::device) sync_all_streams: i64,
    pub(in crate::device) device_alloc: i64,
    pub(in crate::device) device_free: i64,
    pub(in crate::device) oom_rejections: i64,
    pub(in crate::device) granules_moved: i64,
    /// Values at the last reset: scopes go on counting.
    pub(in crate::device) at_reset: Events,
    /// Frees without an event, at the last reset.
    pub(in crate::device) unrecorded_at_reset: u64,
}

/// Counters that never go down.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::device) struct Events {
    pub(in crate::device) alloc_retries: i64,
    pub(in crate::device) ooms: i64,
    pub(in crate::device) sync_all_streams: i64,
    pub(in crate::device) device_alloc: i64,
    pub(in crate::device) device_free: i64,
    pub(in crate::device) oom_rejections: i64,
}

impl Events {
    pub(in crate::device) fn since(self, earlier: Self) -> Self {
        Self {
            alloc_retries: self.alloc_retries - earlier.alloc_retries,
            ooms: self.ooms - earlier.ooms,
            sync_all_streams: self.sync_all_streams - earlier.sync_all_streams,
            device_alloc: self.device_alloc - earlier.device_alloc,
            device_free: self.device_free - earlier.device_free,
            oom_rejections: self.oom_rejections - earlier.oom_rejections,
        }
    }
}

impl DeviceCounters {
    /// All since the allocator was made, whatever was reset.
    pub(in crate::device) fn events(&self) -> Events {
        Events {
            alloc_retries: self.alloc_retries,
            ooms: self.ooms,
            sync_all_streams: self.sync_all_streams,
            device_alloc: self.device_alloc,
            device_free: self.device_free,
            oom_rejections: self.oom_rejections,
        }
    }
}
