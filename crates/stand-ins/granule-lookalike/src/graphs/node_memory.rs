//! What a driver holds of each device for the memory nodes of all graphs: it takes it at the first launch there, and keeps it for
//! graphs to come.

use super::unseen;
use crate::argument::Out;
use crate::machine::settings;
use crate::{Answer, Code};
use backend_api::Backend;
use backend_api::types::{DeviceIndex, DevicePtr};
use backend_openreg::OpenReg;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::ffi::c_void;
use std::sync::{Mutex, MutexGuard, PoisonError};

fn held() -> MutexGuard<'static, BTreeMap<DeviceIndex, DevicePtr>> {
    static HELD: Mutex<BTreeMap<DeviceIndex, DevicePtr>> = Mutex::new(BTreeMap::new());
    HELD.lock().unwrap_or_else(PoisonError::into_inner)
}

fn bytes() -> Answer<u64> {
    Ok(settings().map_err(|_| Code::UNKNOWN)?.node_memory)
}

/// A graph of the device is launched.
///
/// # Errors
/// `OUT_OF_MEMORY` where there is none for its nodes.
pub(super) fn take(machine: &OpenReg, device: DeviceIndex) -> Answer {
    let bytes = bytes()?;
    let mut held = held();
    if let (true, Entry::Vacant(place)) = (bytes > 0, held.entry(device)) {
        place.insert(unseen(machine, |machine| Ok(machine.malloc(device, bytes)?))?);
    }
    Ok(())
}

/// Tells what is held of a device, which is what is used of it; what was held most is not kept. Both vendors number alike.
///
/// # Errors
/// `NOT_SUPPORTED` for what was held most; `INVALID_VALUE` for an unknown number.
pub fn put(device: DeviceIndex, number: u32, value: &Out<c_void>) -> Answer {
    value.wanted()?;
    match number {
        0 | 2 => value.cast().put(if held().contains_key(&device) { bytes()? } else { 0 }),
        1 | 3 => Err(Code::NOT_SUPPORTED),
        _ => Err(Code::INVALID_VALUE),
    }
}
