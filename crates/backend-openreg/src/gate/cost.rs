//! What driver calls would cost on a real device.
//!
//! The figures are orders of magnitude for a current data-centre accelerator, so that "fewer and cheaper
//! driver calls" becomes one number that is the same on every machine. They are assumed, and not a measurement of
//! any one product; set your own with [`CostModel::per_call`] and [`CostModel::per_gib`], or as text.
//!
//! Besides the calls, time that the host waits for queued work is driver time: what was still missing on the
//! virtual clock when the wait began.

mod text;

pub use text::BadCost;

use crate::Call;
use backend_api::types::GIB;

const MICROSECOND: u64 = 1_000;
const MILLISECOND: u64 = 1_000_000;

/// Nanoseconds per call, plus nanoseconds per GiB that a call handles.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CostModel {
    per_call: [u64; Call::COUNT],
    per_gib: [u64; Call::COUNT],
}

impl CostModel {
    /// Everything is free.
    #[must_use]
    pub const fn zero() -> Self {
        Self { per_call: [0; Call::COUNT], per_gib: [0; Call::COUNT] }
    }

    /// Sets what one `call` costs, in nanoseconds.
    #[must_use]
    pub const fn per_call(mut self, call: Call, ns: u64) -> Self {
        self.per_call[call as usize] = ns;
        self
    }

    /// Sets what `call` costs per GiB it handles, in nanoseconds.
    #[must_use]
    pub const fn per_gib(mut self, call: Call, ns: u64) -> Self {
        self.per_gib[call as usize] = ns;
        self
    }

    /// Nanoseconds for `count` calls, sizes aside.
    #[must_use]
    pub const fn of_calls(&self, call: Call, count: u64) -> u64 {
        self.per_call[call as usize].saturating_mul(count)
    }

    /// Nanoseconds for the bytes that calls handle.
    #[must_use]
    pub fn of_bytes(&self, call: Call, bytes: u64) -> u64 {
        let ns = u128::from(self.per_gib[call as usize]) * u128::from(bytes) / u128::from(GIB);
        u64::try_from(ns).unwrap_or(u64::MAX)
    }
}

impl Default for CostModel {
    /// | what | costs | why |
    /// |---|---|---|
    /// | map, unmap, set access | 20 µs, 50 µs a GiB | a trip through the kernel driver, and one page-table entry for each 2 MiB. The vAttention paper (arXiv 2405.04437) reports tens of microseconds to map and open a page of 2 MiB |
    /// | create, release, import | 30 µs, creating 1 ms a GiB | new memory is scrubbed, at about 1 TiB/s. The GMLake paper (arXiv 2401.08156) finds 2 GiB made of 2 MiB handles two orders of magnitude dearer than one raw malloc: the number of calls counts, not the bytes |
    /// | raw malloc and free, a device-wide wait | 100 µs, malloc 1 ms a GiB | they change page tables and wait for the device; that a free synchronises is why NVIDIA's article on these calls ("Introducing Low-Level GPU Virtual Memory Management") advises mapping instead |
    /// | addresses, exporting | 5 µs | book-keeping of the driver |
    /// | queueing, queries | 0.5 to 4 µs | a query reads one word that the device wrote |
    /// | page-locking | 200 µs, 200 ms a GiB | it walks the pages |
    /// | copies | 4 to 10 µs, 40 ms a GiB | the bus; the direction is not part of the call's name |
    fn default() -> Self {
        let mut model = Self::zero();
        for (calls, ns) in [
            (&[Call::Map, Call::Unmap, Call::SetAccess][..], 20 * MICROSECOND),
            (&[Call::Malloc, Call::Free, Call::MallocManaged, Call::SynchronizeDevice], 100 * MICROSECOND),
            (&[Call::CreatePhysical, Call::ReleasePhysical, Call::ImportPhysical], 30 * MICROSECOND),
            (&[Call::ReserveAddress, Call::ReleaseAddress, Call::ExportPhysical], 5 * MICROSECOND),
            (&[Call::OpenMemory, Call::CloseMemory, Call::OpenEvent], 50 * MICROSECOND),
            (
                &[Call::HostMalloc, Call::HostFree, Call::RegisterHost, Call::UnregisterHost],
                200 * MICROSECOND,
            ),
            (&[Call::CreateStream, Call::DestroyStream], 30 * MICROSECOND),
            (&[Call::SynchronizeStream, Call::SynchronizeEvent, Call::Copy], 10 * MICROSECOND),
            (
                &[Call::CopyAsync, Call::CopyPeerAsync, Call::MemsetAsync, Call::LaunchHostFunction],
                4 * MICROSECOND,
            ),
            (&[Call::UseMemory], 4 * MICROSECOND),
            (&[Call::BeginCapture, Call::EndCapture, Call::LaunchGraph], 10 * MICROSECOND),
            (&[Call::MallocAsync, Call::FreeAsync, Call::MemoryInfo], 3 * MICROSECOND),
            (&[Call::TrimPool, Call::EnablePeerAccess], 100 * MICROSECOND),
            (&[Call::RecordEvent, Call::WaitEvent, Call::CreateEvent, Call::DestroyEvent], MICROSECOND),
            (&[Call::QueryEvent, Call::QueryStream, Call::PointerInfo], MICROSECOND / 2),
        ] {
            for &call in calls {
                model.per_call[call as usize] = ns;
            }
        }
        for (calls, ns) in [
            (&[Call::Malloc, Call::CreatePhysical, Call::MallocManaged, Call::MemsetAsync][..], MILLISECOND),
            (&[Call::Map, Call::SetAccess, Call::Unmap], 50 * MICROSECOND),
            (&[Call::Copy, Call::CopyAsync, Call::CopyPeerAsync], 40 * MILLISECOND),
            (&[Call::HostMalloc, Call::RegisterHost], 200 * MILLISECOND),
        ] {
            for &call in calls {
                model.per_gib[call as usize] = ns;
            }
        }
        model
    }
}
