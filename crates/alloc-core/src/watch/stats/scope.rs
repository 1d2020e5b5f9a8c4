//! Statistics of a part of the program.

/// A quantity of bytes while a scope lasted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct ScopeBytes {
    /// At its begin.
    pub begin: i64,
    /// At its end, or when it was read.
    pub end: i64,
    /// The most in between: exact, never less than either.
    pub peak: i64,
}

/// Activity of a device, by all threads, while a scope lasted. Names as in [`DeviceStats`](super::DeviceStats).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct ScopeStats {
    /// Bytes in the program's hands, rounded.
    pub allocated_bytes: ScopeBytes,
    /// Bytes handed out or pending, rounded.
    pub active_bytes: ScopeBytes,
    /// Bytes handed out or pending, as requested.
    pub requested_bytes: ScopeBytes,
    /// Bytes held from the device.
    pub reserved_bytes: ScopeBytes,
    /// Blocks handed out.
    pub num_allocations: i64,
    /// Blocks that the program gave back.
    pub num_frees: i64,
    /// Failed attempts after which the cache was flushed and the driver asked again.
    pub num_alloc_retries: i64,
    /// Out-of-memory errors raised.
    pub num_ooms: i64,
    /// Passes that waited for everything.
    pub num_sync_all_streams: i64,
    /// Segments taken from the device and map steps.
    pub num_device_alloc: i64,
    /// Segments given back and unmap steps.
    pub num_device_free: i64,
    /// Requests refused before the driver was asked (`throw_on_cudamalloc_oom`).
    pub num_oom_rejections: i64,
}

impl ScopeStats {
    /// Memory efficiency E of the scope: peak requested over peak reserved bytes; 1 when nothing was reserved.
    #[must_use]
    pub fn efficiency(&self) -> f64 {
        super::efficiency(self.requested_bytes.peak, self.reserved_bytes.peak)
    }
}
