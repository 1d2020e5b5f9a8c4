//! Memory that drivers offer their programs, and no backend of Granule asks for: driver pools, managed memory, events for
//! other processes, and what is mapped where.

use super::Driver;
use crate::gate::call::Call;
use crate::machine::work::{Spans, Work};
use crate::memory::{RangeKind, index};
use crate::refusal::Refusal;
use backend_api::types::{DeviceIndex, DevicePtr, PhysicalHandle, Stream};
use backend_api::{HandleType, Result};

const NO_POOLS_IN_GRAPHS: &str = "pool memory inside graphs is not simulated; take it before the capture";

/// A settable or readable number of a driver pool, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PoolFigure {
    /// What the pool keeps instead of giving back at a synchronisation; settable.
    ReleaseThreshold,
    /// Held from the device now.
    ReservedCurrent,
    /// Most held; setting it to 0 resets it.
    ReservedHigh,
    /// Handed out now.
    UsedCurrent,
    /// Most handed out; setting it to 0 resets it.
    UsedHigh,
}

/// What a physical handle is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PhysicalProperties {
    /// Where the memory is.
    pub device: DeviceIndex,
    /// Its size in bytes.
    pub bytes: u64,
    /// How it can be shared.
    pub handle_type: HandleType,
}

/// The default pool of each device.
impl Driver<'_> {
    /// Takes memory in stream order. Does not block.
    ///
    /// # Errors
    /// `OutOfMemory`; `NotSupported` during capture.
    pub fn malloc_async(&self, bytes: u64, stream: Stream) -> Result<DevicePtr> {
        self.0.call(Call::MallocAsync, stream.device, |mut state| {
            let key = self.0.names.stream(&state, stream)?;
            if state.capture_of(key).is_some() {
                return Err(Refusal::unsupported(NO_POOLS_IN_GRAPHS));
            }
            state.memory.pool_take(index(stream.device), bytes).map(DevicePtr)
        })
    }

    /// Gives it back in stream order: work queued on `stream` before may still use it. Does not block.
    ///
    /// # Errors
    /// `InvalidValue`, and a trap, for what is no memory of the pool; `NotSupported` during capture.
    pub fn free_async(&self, ptr: DevicePtr, stream: Stream) -> Result<()> {
        self.0.call(Call::FreeAsync, stream.device, |mut state| {
            let key = self.0.names.stream(&state, stream)?;
            if state.capture_of(key).is_some() {
                return Err(Refusal::unsupported(NO_POOLS_IN_GRAPHS));
            }
            self.0.machine.prepare(&mut state, key)?;
            state.memory.pool_retire(ptr.0)?;
            self.0.machine.submit(state, key, Work::PoolFree(ptr.0), Spans::default(), None)
        })
    }

    /// Gives unused memory back until only `keep` bytes are held. Blocks.
    ///
    /// # Errors
    /// `InvalidValue` for a device that does not exist; a broken capture.
    pub fn trim_pool(&self, device: DeviceIndex, keep: u64) -> Result<()> {
        self.0.unsafe_call(Call::TrimPool, device, |mut state| state.memory.pool_trim(index(device), keep))
    }

    /// Reads a number of a pool.
    ///
    /// # Errors
    /// `InvalidValue` for a device that does not exist.
    pub fn pool_figure(&self, device: DeviceIndex, which: PoolFigure) -> Result<u64> {
        self.0.call(Call::GetPoolAttribute, device, |state| {
            let pool = &state.memory.devices[index(device)].pool;
            Ok(match which {
                PoolFigure::ReleaseThreshold => pool.release_threshold,
                PoolFigure::ReservedCurrent => pool.reserved,
                PoolFigure::ReservedHigh => pool.reserved_high,
                PoolFigure::UsedCurrent => pool.used,
                PoolFigure::UsedHigh => pool.used_high,
            })
        })
    }

    /// Sets a number of a pool.
    ///
    /// # Errors
    /// `InvalidValue` for one that cannot be set to this.
    pub fn set_pool_figure(&self, device: DeviceIndex, which: PoolFigure, value: u64) -> Result<()> {
        self.0.call(Call::SetPoolAttribute, device, |mut state| {
            let pool = &mut state.memory.devices[index(device)].pool;
            match (which, value) {
                (PoolFigure::ReleaseThreshold, _) => pool.release_threshold = value,
                (PoolFigure::ReservedHigh, 0) => pool.reserved_high = pool.reserved,
                (PoolFigure::UsedHigh, 0) => pool.used_high = pool.used,
                _ => {
                    return Err(Refusal::invalid(format!(
                        "{which:?} cannot be set to {value}; highs can be set to 0"
                    )));
                }
            }
            Ok(())
        })
    }
}

/// Managed memory.
impl Driver<'_> {
    /// Takes memory that host and devices reach; `free` gives it back. May block.
    ///
    /// # Errors
    /// `OutOfMemory`; `InvalidValue` for 0 bytes.
    pub fn malloc_managed(&self, device: DeviceIndex, bytes: u64) -> Result<DevicePtr> {
        let taken = self.0.unsafe_call(Call::MallocManaged, device, |mut state| {
            state.memory.take(index(device), bytes, RangeKind::Managed).map(DevicePtr)
        });
        if taken.is_ok() {
            self.0.gate.charge(Call::MallocManaged, bytes);
        }
        taken
    }
}

/// What is mapped where.
impl Driver<'_> {
    /// The handle mapped at an address, with one more reference: release it.
    ///
    /// # Errors
    /// `InvalidValue` where nothing is mapped.
    pub fn retain_physical(&self, at: DevicePtr) -> Result<PhysicalHandle> {
        self.0.call(Call::RetainPhysical, self.0.device_at(at), |mut state| {
            state.memory.retain(at.0).map(|raw| self.0.names.new_physical(raw))
        })
    }

    /// What a handle is.
    ///
    /// # Errors
    /// `InvalidValue` for a handle that is not live.
    pub fn physical_properties(&self, handle: PhysicalHandle) -> Result<PhysicalProperties> {
        self.0.call(Call::PhysicalProperties, self.0.device_of_handle(handle), |state| {
            let physical = state.memory.handle(self.0.names.physical(handle)?)?;
            Ok(PhysicalProperties {
                device: DeviceIndex(physical.device as u16),
                bytes: physical.bytes,
                handle_type: physical.handle_type,
            })
        })
    }
}
