//! What many tests begin and end with: settings, machines, and small questions.

use crate::policy::Policy;
use crate::rig::DEVICE;
use crate::{Allocator, with_policy};
use alloc_core::config::Settings;
use alloc_core::types::{DevicePtr, GIB, MIB, Stream};
use backend_openreg::{MemoryMode, OpenReg, OpenRegConfig};
use std::sync::Arc;
use std::time::Duration;

/// Long enough for anything that does not wait, on a busy machine too: it passes only where a test fails.
pub const SOON: Duration = Duration::from_secs(30);

/// Settings with growable segments.
#[must_use]
pub fn growable() -> Settings {
    Settings { expandable_segments: true, ..Settings::default() }
}

/// Fixed segments, and growable ones.
#[must_use]
pub fn both() -> [Settings; 2] {
    [Settings::default(), growable()]
}

/// A machine with one device of so many bytes.
#[must_use]
pub fn of_bytes(capacity: u64) -> OpenRegConfig {
    OpenRegConfig::default().devices(1).capacity(capacity)
}

/// A machine with one device of so many MiB.
#[must_use]
pub fn of(mebibytes: u64) -> OpenRegConfig {
    of_bytes(mebibytes * MIB)
}

/// The same with memory that has bytes.
#[must_use]
pub fn mapped(mebibytes: u64) -> OpenRegConfig {
    of(mebibytes).memory(MemoryMode::Mapped)
}

/// A machine with one device of 8 GiB.
#[must_use]
pub fn one() -> OpenRegConfig {
    of_bytes(8 * GIB)
}

/// An allocator with that much room.
///
/// # Panics
/// Where the settings are refused.
#[must_use]
pub fn roomy<P: Policy>(settings: Settings) -> (Arc<OpenReg>, Allocator, Stream) {
    with_policy::<P>(one(), settings)
}

/// Frees blocks.
///
/// # Panics
/// Where one is not live.
pub fn free_all(allocator: &Allocator, blocks: impl IntoIterator<Item = DevicePtr>) {
    blocks.into_iter().for_each(|ptr| allocator.free(ptr).expect("the block is live"));
}

/// What is held of the first device.
///
/// # Panics
/// Where the allocator does not know it.
#[must_use]
pub fn reserved(allocator: &Allocator) -> i64 {
    allocator.stats(DEVICE).expect("the device is there").reserved_bytes.all.current
}
