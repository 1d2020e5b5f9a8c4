//! Calls that are `unsafe` because work of the program could lose its memory. Tests queue none that would: what uses memory
//! that sleeps, or a stream that has ended, is what they see refused or caught by the simulated device.

use alloc_core::error::Result;
use alloc_core::sleep::{Backup, SleepReport, Tags};
use alloc_core::types::Stream;
use alloc_core::{CachingAllocator, HostAllocator};

/// [`SleepMode::sleep`](alloc_core::allocator::SleepMode::sleep) for tests.
pub trait Sleeps {
    /// Puts pools to sleep whose memory the test does not use before it wakes.
    ///
    /// # Errors
    /// Those of [`SleepMode::sleep`](alloc_core::allocator::SleepMode::sleep).
    fn put_to_sleep(&self, tags: Tags<'_>, backup: &Backup) -> Result<SleepReport>;
}

impl Sleeps for CachingAllocator {
    fn put_to_sleep(&self, tags: Tags<'_>, backup: &Backup) -> Result<SleepReport> {
        // SAFETY: the tests queue no work that uses the memory while it sleeps, and have no values that would.
        unsafe { self.sleep_mode().sleep(tags, backup) }
    }
}

/// [`CachingAllocator::retire_stream`] and [`HostAllocator::retire_stream`] for tests.
pub trait Retires {
    /// Says that the test gives `stream` no more work.
    ///
    /// # Errors
    /// Those of [`CachingAllocator::retire_stream`].
    fn retire(&self, stream: Stream) -> Result<()>;
}

impl Retires for CachingAllocator {
    fn retire(&self, stream: Stream) -> Result<()> {
        // SAFETY: what the tests give the stream they gave it before, and have no values that would.
        unsafe { self.retire_stream(stream) }
    }
}

impl Retires for HostAllocator {
    fn retire(&self, stream: Stream) -> Result<()> {
        // SAFETY: as above.
        unsafe { self.retire_stream(stream) }
    }
}
