//! The switch that turns caching off: requests go straight to the driver then.

use super::CachingAllocator;

impl CachingAllocator {
    /// Turns caching on or off for requests to come. Off, each request is a driver call. So is each free of memory that
    /// was allocated meanwhile, whenever the free comes. Neither is counted or recorded. Memory that is cached stays
    /// cached. PyTorch: `enable`.
    pub fn enable(&self, on: bool) {
        if self.is_forked() {
            return;
        }
        let mut settings = self.settings.lock();
        settings.caching = on;
        self.devices.iter().for_each(|device| device.uncached.turn(!on));
    }

    /// True if requests are served from the cache. PyTorch: `isEnabled`.
    #[must_use]
    pub fn is_enabled(&self) -> bool {
        self.settings().caching
    }

    /// Caching is off until the returned value is dropped. That restores the state from before. PyTorch:
    /// `caching_allocator_disabled`.
    #[must_use = "caching is on again when this is dropped"]
    pub fn disabled(&self) -> CachingOff<'_> {
        let before = self.is_enabled();
        self.enable(false);
        CachingOff { allocator: self, before }
    }
}

/// Caching is off while this lives. Several may be nested.
#[derive(Debug)]
pub struct CachingOff<'a> {
    allocator: &'a CachingAllocator,
    before: bool,
}

impl Drop for CachingOff<'_> {
    fn drop(&mut self) {
        self.allocator.enable(self.before);
    }
}
