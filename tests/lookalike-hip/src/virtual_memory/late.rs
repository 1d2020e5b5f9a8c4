//! Memory that was unmapped and released, and stays taken until its addresses are given back (ROCm 6.4.0, 6.4.1 and 7.2).

use crate::personality::personality;
use alloc_core::backend::{Backend, VirtualMemory};
use alloc_core::types::{DevicePtr, PhysicalHandle};
use backend_openreg::{Driver, OpenReg};
use lookalike::Answer;
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// What holds memory that nobody else does, by the address where it was mapped.
fn kept() -> MutexGuard<'static, BTreeMap<u64, Vec<PhysicalHandle>>> {
    static KEPT: Mutex<BTreeMap<u64, Vec<PhysicalHandle>>> = Mutex::new(BTreeMap::new());
    KEPT.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Mappings are about to go.
pub(super) fn unmapping(machine: &OpenReg, at: DevicePtr, bytes: u64) -> Answer {
    if !personality()?.driver.part.releases_late {
        return Ok(());
    }
    let mut next = at.0;
    while next < at.0 + bytes {
        let mapping = machine.address_range(DevicePtr(next))?;
        kept().entry(mapping.base.0).or_default().push(Driver(machine).retain_physical(mapping.base)?);
        next = mapping.base.0 + mapping.bytes;
    }
    Ok(())
}

/// Addresses were given back.
pub(super) fn released(family: &dyn VirtualMemory, base: u64, bytes: u64) -> Answer {
    let mut kept = kept();
    let mut beyond = kept.split_off(&base);
    kept.extend(beyond.split_off(&(base + bytes)));
    drop(kept);
    for handle in beyond.into_values().flatten() {
        // SAFETY: rule 1: retained above, and not used again.
        unsafe { family.release_physical(handle) }?;
    }
    Ok(())
}
