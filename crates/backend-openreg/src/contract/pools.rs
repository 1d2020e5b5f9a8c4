//! Driver pools.

use crate::gate::call::Call;
use crate::machine::work::{Spans, Work};
use crate::memory::index;
use crate::openreg::OpenReg;
use crate::refusal::Refusal;
use backend_api::types::{DeviceIndex, DevicePtr, Stream};
use backend_api::{DriverPoolAttribute, DriverPools, Result};

const NO_POOLS_IN_GRAPHS: &str = "pool memory inside graphs is not simulated; take it before the capture";

impl DriverPools for OpenReg {
    fn malloc_async(&self, bytes: u64, stream: Stream) -> Result<DevicePtr> {
        self.call(Call::MallocAsync, stream.device, |mut state| {
            let key = self.names.stream(&state, stream)?;
            if state.capture_of(key).is_some() {
                return Err(Refusal::unsupported(NO_POOLS_IN_GRAPHS));
            }
            state.memory.pool_take(index(stream.device), bytes).map(DevicePtr)
        })
    }

    unsafe fn free_async(&self, ptr: DevicePtr, stream: Stream) -> Result<()> {
        self.call(Call::FreeAsync, stream.device, |mut state| {
            let key = self.names.stream(&state, stream)?;
            if state.capture_of(key).is_some() {
                return Err(Refusal::unsupported(NO_POOLS_IN_GRAPHS));
            }
            self.machine.prepare(&mut state, key)?;
            state.memory.pool_retire(ptr.0)?;
            self.machine.submit(state, key, Work::PoolFree(ptr.0), Spans::default(), None)
        })
    }

    fn trim(&self, device: DeviceIndex, keep: u64) -> Result<()> {
        self.unsafe_call(Call::TrimPool, device, |mut state| state.memory.pool_trim(index(device), keep))
    }

    fn pool_attribute(&self, device: DeviceIndex, which: DriverPoolAttribute) -> Result<u64> {
        self.call(Call::GetPoolAttribute, device, |state| {
            let pool = &state.memory.devices[index(device)].pool;
            Ok(match which {
                DriverPoolAttribute::ReleaseThreshold => pool.release_threshold,
                DriverPoolAttribute::ReservedCurrent => pool.reserved,
                DriverPoolAttribute::ReservedHigh => pool.reserved_high,
                DriverPoolAttribute::UsedCurrent => pool.used,
                DriverPoolAttribute::UsedHigh => pool.used_high,
            })
        })
    }

    fn set_pool_attribute(&self, device: DeviceIndex, which: DriverPoolAttribute, value: u64) -> Result<()> {
        self.call(Call::SetPoolAttribute, device, |mut state| {
            let pool = &mut state.memory.devices[index(device)].pool;
            match (which, value) {
                (DriverPoolAttribute::ReleaseThreshold, _) => pool.release_threshold = value,
                (DriverPoolAttribute::ReservedHigh, 0) => pool.reserved_high = pool.reserved,
                (DriverPoolAttribute::UsedHigh, 0) => pool.used_high = pool.used,
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
