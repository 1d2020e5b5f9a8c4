//! Driver pools: the default pool of each device, by handle. Pools of the program's own are not simulated.

use crate::entry::{device, driver, here};
use crate::header::*;
use crate::personality::personality;
use backend_api::Backend;
use backend_api::types::{DeviceIndex, DevicePtr, Stream};
use backend_openreg::{Driver, OpenReg, PoolFigure};
use lookalike::rules::Made;
use lookalike::{Answer, Code};
use std::collections::HashMap;
use std::ffi::{c_int, c_void};
use std::ptr::without_provenance_mut;
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

const BASE: usize = 0x6f00_0000_0000;
const STRIDE: usize = 64;

/// The default pool of a device.
pub(crate) const fn handle_of(device: DeviceIndex) -> usize {
    BASE + STRIDE * device.0 as usize
}

/// The device of a pool.
fn device_of(machine: &OpenReg, pool: usize) -> Answer<DeviceIndex> {
    let devices = machine.device_count()?;
    (0..devices).map(DeviceIndex).find(|&device| handle_of(device) == pool).ok_or(Code::INVALID_VALUE)
}

/// What was taken from the pools: base and device.
static TAKEN: LazyLock<Mutex<HashMap<u64, DeviceIndex>>> = LazyLock::new(Mutex::default);

fn taken() -> MutexGuard<'static, HashMap<u64, DeviceIndex>> {
    TAKEN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Takes memory from the pool of a stream's device.
fn take_of(machine: &OpenReg, bytes: u64, stream: Stream) -> Answer<u64> {
    let DevicePtr(base) = Driver(machine).malloc_async(bytes, stream)?;
    taken().insert(base, stream.device);
    Ok(base)
}

/// Gives memory back to its pool, in stream order.
pub(crate) fn free(machine: &OpenReg, base: u64, stream: Stream) -> Answer {
    Driver(machine).free_async(DevicePtr(base), stream)?;
    taken().remove(&base);
    Ok(())
}

/// The device from whose pool memory was taken, where it was.
pub(crate) fn owner(base: u64) -> Option<DeviceIndex> {
    taken().get(&base).copied()
}

/// What a number of a pool is, in 64 bits; none for the first three, `int`s that switch ways of reuse which the machine's pools
/// do not have: they are always on.
const fn figure(number: u32) -> Answer<Option<PoolFigure>> {
    Ok(match number {
        1..=3 => None,
        4 => Some(PoolFigure::ReleaseThreshold),
        5 => Some(PoolFigure::ReservedCurrent),
        6 => Some(PoolFigure::ReservedHigh),
        7 => Some(PoolFigure::UsedCurrent),
        8 => Some(PoolFigure::UsedHigh),
        _ => return Err(Code::INVALID_VALUE),
    })
}

fn take(bytes: usize, stream: CUstream, pool: Option<CUmemoryPool>) -> Answer<u64> {
    let here = here()?;
    let stream = here.work_stream(stream)?;
    if let Some(pool) = pool
        && device_of(here.machine, pool.addr())? != stream.device
    {
        // Memory of one device in the order of another's stream is not simulated.
        return Err(Code::NOT_SUPPORTED);
    }
    take_of(here.machine, bytes as u64, stream)
}

fn default_pool(number: CUdevice) -> Answer<CUmemoryPool> {
    Ok(without_provenance_mut(handle_of(device(number)?)))
}

lookalike::entries! {
    run: crate::entry::run, status: CUresult;

    /// A device's default pool.
    fn cuDeviceGetDefaultMemPool as cuDeviceGetDefaultMemPool_t(out pool: *mut CUmemoryPool, val number: CUdevice) {
        pool.put(default_pool(number)?)
    }

    /// A device's current pool, which is the default one.
    fn cuDeviceGetMemPool as cuDeviceGetMemPool_t(out pool: *mut CUmemoryPool, val number: CUdevice) {
        pool.put(default_pool(number)?)
    }

    /// Makes a pool a device's current one; there is only the default one.
    fn cuDeviceSetMemPool as cuDeviceSetMemPool_t(val number: CUdevice, val pool: CUmemoryPool) {
        if pool == default_pool(number)? { Ok(()) } else { Err(Code::INVALID_VALUE) }
    }

    /// Takes memory in stream order.
    fn cuMemAllocAsync as cuMemAllocAsync_t(out pointer: *mut CUdeviceptr, val bytes: usize, val stream: CUstream) {
        pointer.wanted()?;
        let here = here()?;
        personality()?.driver.of_size("cuMemAllocAsync", here.machine, here.device, bytes)?;
        pointer.put(take(bytes, stream, None)?)
    }

    /// Takes memory from a pool in stream order.
    fn cuMemAllocFromPoolAsync as cuMemAllocFromPoolAsync_t(
        out pointer: *mut CUdeviceptr, val bytes: usize, val pool: CUmemoryPool, val stream: CUstream,
    ) {
        pointer.wanted()?;
        pointer.put(take(bytes, stream, Some(pool))?)
    }

    /// Gives memory back in stream order.
    fn cuMemFreeAsync as cuMemFreeAsync_t(val pointer: CUdeviceptr, val stream: CUstream) {
        let here = here()?;
        let stream = here.work_stream(stream)?;
        free(here.machine, pointer, stream)
    }

    /// Gives unused memory back to the device.
    fn cuMemPoolTrimTo as cuMemPoolTrimTo_t(val pool: CUmemoryPool, val keep: usize) {
        let machine = driver()?;
        let device = device_of(machine, pool.addr())?;
        Ok(Driver(machine).trim_pool(device, keep as u64)?)
    }

    /// Reads a number of a pool.
    fn cuMemPoolGetAttribute as cuMemPoolGetAttribute_t(
        val pool: CUmemoryPool, val which: CUmemPool_attribute, out value: *mut c_void,
    ) {
        let machine = driver()?;
        let device = device_of(machine, pool.addr())?;
        match figure(which)? {
            None => value.cast::<c_int>().put(1),
            Some(which) => value.cast::<cuuint64_t>().put(Driver(machine).pool_figure(device, which)?),
        }
    }

    /// Sets a number of a pool.
    fn cuMemPoolSetAttribute as cuMemPoolSetAttribute_t(
        val pool: CUmemoryPool, val which: CUmemPool_attribute, out value: *mut c_void,
    ) {
        let machine = driver()?;
        let device = device_of(machine, pool.addr())?;
        match figure(which)? {
            None if value.cast::<c_int>().before()? == 1 => Ok(()),
            None => Err(Code::NOT_SUPPORTED),
            Some(which) => {
                let wanted = value.cast::<cuuint64_t>().before()?;
                Ok(Driver(machine).set_pool_figure(device, which, wanted)?)
            }
        }
    }

    /// Lets other devices reach a pool's memory: not simulated.
    fn cuMemPoolSetAccess as cuMemPoolSetAccess_t(
        val pool: CUmemoryPool, input _access: *const CUmemAccessDesc, val _count: usize,
    ) {
        device_of(driver()?, pool.addr())?;
        Err(Code::NOT_SUPPORTED)
    }

    /// A pool of the program's own: not simulated. What it is asked to be exported by may be refused before.
    fn cuMemPoolCreate as cuMemPoolCreate_t(out _pool: *mut CUmemoryPool, input properties: *const CUmemPoolProps) {
        driver()?;
        let made = Made { rdma: false, handle_types: properties.get()?.handleTypes };
        personality()?.driver.of_memory("cuMemPoolCreate", made)?;
        Err(Code::NOT_SUPPORTED)
    }
}
