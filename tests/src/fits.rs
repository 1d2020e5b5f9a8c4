//! Whether a request would fit under the `granule` policy: worked out from what the driver has mapped and what the program
//! holds, and from nothing that the allocator says.

use alloc_core::backend::{Result, VirtualMemory};
use alloc_core::types::{DevicePtr, MIB, PhysicalHandle};
use granule_conformance::interpose::Hook;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// What memory comes in at least.
const UNIT: u64 = 2 * MIB;
/// Requests up to this have memory of their own.
const SMALL: u64 = MIB;

/// A live block of a program.
#[derive(Clone, Copy, Debug)]
pub struct Held {
    /// Its address.
    pub ptr: DevicePtr,
    /// Its size in bytes, rounded.
    pub bytes: u64,
    /// Its stream, as the program numbers them.
    pub stream: usize,
}

/// What is in use of one granule, from any address.
#[derive(Debug, Default)]
struct Use {
    bytes: u64,
    /// From, to, stream and whether it is memory for small requests.
    ranges: Vec<(u64, u64, usize, bool)>,
}

impl Use {
    /// Free bytes at the beginning and at the end, and the most in one piece.
    fn free(&self) -> (u64, u64, u64) {
        let first = self.ranges.iter().map(|range| range.0).min().unwrap_or(self.bytes);
        let last = self.ranges.iter().map(|range| range.1).max().unwrap_or(0);
        let mut ends: Vec<_> = self.ranges.iter().map(|range| (range.0, range.1)).collect();
        ends.sort_unstable();
        let gap = ends.windows(2).map(|pair| pair[1].0.saturating_sub(pair[0].1)).max().unwrap_or(0);
        (first, self.bytes - last, gap.max(first).max(self.bytes - last))
    }
}

/// What is mapped: by address, its bytes and the physical memory.
#[derive(Debug, Default)]
pub struct Mappings(Mutex<BTreeMap<u64, (u64, PhysicalHandle)>>);

impl Mappings {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, (u64, PhysicalHandle)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn uses(&self, live: &[Held]) -> Vec<Use> {
        let mut uses: HashMap<PhysicalHandle, Use> = HashMap::new();
        for (at, (bytes, handle)) in self.lock().iter() {
            let granule = uses.entry(*handle).or_default();
            granule.bytes = *bytes;
            for held in live {
                let (low, high) = (held.ptr.0.max(*at), (held.ptr.0 + held.bytes).min(at + bytes));
                if low < high {
                    granule.ranges.push((low - at, high - at, held.stream, held.bytes <= SMALL));
                }
            }
        }
        uses.into_values().collect()
    }

    /// Whether `size` bytes fit on `stream`, while the program holds `live` and the device has `left` bytes more: in a gap, or
    /// in what is free side by side, whole granules and the best end and beginning of others, together with what the device
    /// still has.
    #[must_use]
    pub fn fits(&self, size: u64, stream: usize, live: &[Held], left: u64) -> bool {
        let uses = self.uses(live);
        let whole: u64 =
            uses.iter().filter(|granule| granule.ranges.is_empty()).map(|granule| granule.bytes).sum();
        let to_be_had = left / UNIT * UNIT + whole;
        let own = |granule: &&Use| {
            let (_, _, of, small) = granule.ranges[0];
            of == stream && small == (size <= SMALL)
        };
        let used = || uses.iter().filter(|granule| !granule.ranges.is_empty()).filter(own);
        let parts: Vec<_> = used().map(Use::free).collect();
        if parts.iter().any(|(.., gap)| *gap >= size) {
            return true;
        }
        if size <= SMALL {
            return to_be_had >= UNIT;
        }
        let nothing = [(0, 0, 0)];
        let all = || parts.iter().chain(&nothing).enumerate();
        let pairs = all().flat_map(|(n, end)| all().map(move |other| (n, end, other)));
        let joined =
            pairs.filter(|(n, _, (other, _))| n != other).map(|(_, end, (_, other))| end.1 + other.0);
        let missing = size.saturating_sub(joined.max().unwrap_or(0));
        missing.next_multiple_of(UNIT) <= to_be_had
    }
}

impl Hook for Mappings {
    unsafe fn map(
        &self,
        inner: &dyn VirtualMemory,
        at: DevicePtr,
        bytes: u64,
        handle: PhysicalHandle,
    ) -> Result<()> {
        // SAFETY: rules 1 to 3 are the caller's promise, passed on.
        unsafe { inner.map(at, bytes, handle) }?;
        self.lock().insert(at.0, (bytes, handle));
        Ok(())
    }

    unsafe fn unmap(&self, inner: &dyn VirtualMemory, at: DevicePtr, bytes: u64) -> Result<()> {
        // SAFETY: rules 1 to 3 are the caller's promise, passed on.
        unsafe { inner.unmap(at, bytes) }?;
        self.lock().retain(|known, _| !(at.0..at.0 + bytes).contains(known));
        Ok(())
    }
}
