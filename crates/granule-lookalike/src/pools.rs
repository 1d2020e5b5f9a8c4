//! Driver pools by handle: one default pool per device. Others cannot be made here.

use crate::{Answer, Code};
use backend_api::types::{DeviceIndex, DevicePtr, Stream};
use backend_api::{Backend, DriverPoolAttribute};
use backend_openreg::OpenReg;
use std::collections::HashMap;
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

const BASE: usize = 0x6f00_0000_0000;
const STRIDE: usize = 64;

/// The default pool of a device.
#[must_use]
pub const fn handle_of(device: DeviceIndex) -> usize {
    BASE + STRIDE * device.0 as usize
}

/// The device of a pool.
///
/// # Errors
/// `INVALID_VALUE` for what is no pool.
pub fn device_of(machine: &OpenReg, pool: usize) -> Answer<DeviceIndex> {
    let devices = machine.device_count()?;
    (0..devices).map(DeviceIndex).find(|&device| handle_of(device) == pool).ok_or(Code::INVALID_VALUE)
}

/// What was taken from the pools: base and device.
static TAKEN: LazyLock<Mutex<HashMap<u64, DeviceIndex>>> = LazyLock::new(Mutex::default);

fn taken() -> MutexGuard<'static, HashMap<u64, DeviceIndex>> {
    TAKEN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Takes memory from the pool of a stream's device.
///
/// # Errors
/// What the machine says.
pub fn take(machine: &OpenReg, bytes: u64, stream: Stream) -> Answer<u64> {
    let DevicePtr(base) = machine.driver_pools()?.malloc_async(bytes, stream)?;
    taken().insert(base, stream.device);
    Ok(base)
}

/// Gives memory back to its pool, in stream order.
///
/// # Errors
/// What the machine says; it refuses what is not taken from a pool.
pub fn free(machine: &OpenReg, base: u64, stream: Stream) -> Answer {
    // SAFETY: the machine refuses what is not the base of memory taken from a pool; work queued before may
    // still use it.
    unsafe { machine.driver_pools()?.free_async(DevicePtr(base), stream) }?;
    taken().remove(&base);
    Ok(())
}

/// The device from whose pool memory was taken, where it was.
#[must_use]
pub fn owner(base: u64) -> Option<DeviceIndex> {
    taken().get(&base).copied()
}

/// An attribute of a pool by number; the first three are switches, which both vendors number alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PoolAttribute {
    /// An `int`: a way of reuse that the machine's pools do not have; always on.
    Switch,
    /// 64 bits.
    Bytes(DriverPoolAttribute),
}

/// What a number means.
///
/// # Errors
/// `INVALID_VALUE` for an unknown one.
pub const fn attribute(number: u32) -> Answer<PoolAttribute> {
    Ok(match number {
        1..=3 => PoolAttribute::Switch,
        4 => PoolAttribute::Bytes(DriverPoolAttribute::ReleaseThreshold),
        5 => PoolAttribute::Bytes(DriverPoolAttribute::ReservedCurrent),
        6 => PoolAttribute::Bytes(DriverPoolAttribute::ReservedHigh),
        7 => PoolAttribute::Bytes(DriverPoolAttribute::UsedCurrent),
        8 => PoolAttribute::Bytes(DriverPoolAttribute::UsedHigh),
        _ => return Err(Code::INVALID_VALUE),
    })
}
