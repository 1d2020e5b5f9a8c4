//! What the tests begin with: live blocks between which memory is free, each full of a pattern of its own.

use alloc_core::CachingAllocator;
use alloc_core::compaction::CompactionReport;
use alloc_core::config::{Compact, Launches, Settings};
use alloc_core::error::Result;
use alloc_core::policy::GranulePolicy;
use alloc_core::types::{DevicePtr, MIB, Stream};
use granule_tests::Allocator;
use granule_tests::bytes::{Bytes, pattern};
use granule_tests::rig::{DEVICE, Rig};
use std::sync::LazyLock;

/// Bytes of each block.
pub(crate) const BLOCK: u64 = 3 * MIB;
/// Blocks of which every fourth stays, on granules of 16 MiB.
const BLOCKS: usize = 32;

/// What each live block is full of.
static CONTENTS: LazyLock<Vec<Vec<u8>>> = LazyLock::new(|| (0..8).map(|n| pattern(n, BLOCK)).collect());

/// Live blocks between which memory is free.
pub(crate) struct Sparse {
    pub(crate) allocator: Allocator,
    pub(crate) stream: Stream,
    /// It made the granules large.
    pub(crate) large: DevicePtr,
    pub(crate) live: Vec<DevicePtr>,
}

/// Settings under which a request compacts before it is refused, on the word of the program.
pub(crate) fn last_resort() -> Settings {
    Settings { compaction: Compact::LastResort, launches: Launches::AllocatingThread, ..Settings::default() }
}

/// Compacts the first device.
pub(crate) fn compact(allocator: &CachingAllocator) -> Result<CompactionReport> {
    // SAFETY: these tests give the device no work on other threads.
    unsafe { allocator.compact(DEVICE) }
}

impl Sparse {
    /// Some 100 MiB of which three fourths are free, in pieces, beside 128 MiB.
    pub(crate) fn new(rig: &Rig, settings: Settings) -> Self {
        let (allocator, stream) = (rig.with_policy::<GranulePolicy>(settings), rig.stream());
        let large = allocator.malloc(128 * MIB, stream).unwrap();
        Self::between(rig, allocator, stream, large)
    }

    /// The same of an allocator that has handed out one block.
    pub(crate) fn between(rig: &Rig, allocator: Allocator, stream: Stream, large: DevicePtr) -> Self {
        let blocks: Vec<_> = (0..BLOCKS).map(|_| allocator.malloc(BLOCK, stream).unwrap()).collect();
        let (live, free): (Vec<_>, Vec<_>) = blocks.into_iter().enumerate().partition(|(n, _)| n % 4 == 1);
        let live: Vec<_> = live.into_iter().map(|(_, ptr)| ptr).collect();
        for (n, ptr) in live.iter().enumerate() {
            Bytes(&*rig.backend).write(*ptr, &CONTENTS[n]);
        }
        free.into_iter().for_each(|(_, ptr)| allocator.free(ptr).unwrap());
        allocator.check_invariants();
        Self { allocator, stream, large, live }
    }

    /// Each block has its contents.
    pub(crate) fn check(&self, rig: &Rig, what: &str) {
        self.allocator.check_invariants();
        for (n, ptr) in self.live.iter().enumerate() {
            let is = Bytes(&*rig.backend).read(*ptr, BLOCK) == CONTENTS[n];
            assert!(is, "{}: {what}: block {n} at {ptr} has its contents", rig.name);
        }
    }

    /// Frees all, after which nothing is left.
    pub(crate) fn end(self, rig: &Rig) {
        self.live.iter().chain([&self.large]).for_each(|ptr| self.allocator.free(*ptr).unwrap());
        rig.nothing_is_left(&self.allocator);
    }
}
