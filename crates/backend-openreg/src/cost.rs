//! What driver calls would cost on a real device.
//!
//! The figures are orders of magnitude for a current data-centre accelerator, so that "fewer and cheaper
//! driver calls" becomes one number that is the same on every machine. They are not a measurement of any
//! one product; set your own with [`CostModel::per_call`] and [`CostModel::per_gib`].

use crate::Call;
use alloc_core::types::GIB;

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

    /// Nanoseconds for the size of one call.
    #[must_use]
    pub fn of_bytes(&self, call: Call, bytes: u64) -> u64 {
        let ns = u128::from(self.per_gib[call as usize]) * u128::from(bytes) / u128::from(GIB);
        u64::try_from(ns).unwrap_or(u64::MAX)
    }

    pub(crate) const fn depends_on_bytes(&self, call: Call) -> bool {
        self.per_gib[call as usize] != 0
    }
}

impl Default for CostModel {
    /// * Changing page tables (map, unmap, set access) takes a trip through the kernel driver: 20 µs each.
    /// * Raw malloc and free do that too and also wait for the device: 100 µs, like the device-wide wait
    ///   itself. New physical memory has to be scrubbed at memory bandwidth (about 1 TiB/s).
    /// * Queueing anything is a few microseconds; a query reads one word that the device wrote.
    /// * Page-locking host memory walks its pages: about 0.2 s per GiB.
    /// * Copies move at bus speed (about 25 GiB/s) to and from the host, at memory speed on the device; as
    ///   the direction is not part of the call's name, the bus is charged.
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
            (&[Call::PrefetchAsync, Call::WriteValue32, Call::UseMemory], 4 * MICROSECOND),
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
            (&[Call::Copy, Call::CopyAsync, Call::CopyPeerAsync, Call::PrefetchAsync], 40 * MILLISECOND),
            (&[Call::HostMalloc, Call::RegisterHost], 200 * MILLISECOND),
        ] {
            for &call in calls {
                model.per_gib[call as usize] = ns;
            }
        }
        model
    }
}
