//! Driver pools: the default pool of each device. Pools of the program's own are not simulated.

use crate::entry::{device, here, of_size, ready};
use alloc_core::backend::Backend;
use granule_hip_sys::abi6::*;
use lookalike::argument::Out;
use lookalike::pools::{PoolAttribute, attribute, device_of, free, handle_of, take};
use lookalike::{Answer, Code};
use std::ffi::{c_int, c_uint, c_void};
use std::ptr::without_provenance_mut;

/// Takes memory. Nothing asked for is nothing given, and no error.
fn take_into(
    pointer: &Out<*mut c_void>,
    bytes: usize,
    stream: hipStream_t,
    pool: Option<hipMemPool_t>,
) -> Answer {
    let here = here()?;
    pointer.wanted()?;
    let stream = here.work_stream(stream)?;
    if let Some(pool) = pool
        && device_of(here.machine, pool.addr())? != stream.device
    {
        // Memory of one device in the order of another's stream is not simulated.
        return Err(Code::NOT_SUPPORTED);
    }
    let base = if bytes == 0 { 0 } else { take(here.machine, bytes as u64, stream)? };
    pointer.put(without_provenance_mut(base as usize))
}

fn default_pool(number: c_int) -> Answer<hipMemPool_t> {
    let device = device(number)?;
    ready()?.driver_pools()?;
    Ok(without_provenance_mut(handle_of(device)))
}

lookalike::entries! {
    run: crate::entry::run, status: hipError_t;

    /// A device's default pool.
    fn hipDeviceGetDefaultMemPool as hipDeviceGetDefaultMemPool_t(out pool: *mut hipMemPool_t, val number: c_int) {
        pool.put(default_pool(number)?)
    }

    /// A device's current pool, which is the default one.
    fn hipDeviceGetMemPool as hipDeviceGetMemPool_t(out pool: *mut hipMemPool_t, val number: c_int) {
        pool.put(default_pool(number)?)
    }

    /// Makes a pool a device's current one; there is only the default one.
    fn hipDeviceSetMemPool as hipDeviceSetMemPool_t(val number: c_int, val pool: hipMemPool_t) {
        if pool == default_pool(number)? { Ok(()) } else { Err(Code::INVALID_VALUE) }
    }

    /// Takes memory in stream order.
    fn hipMallocAsync as hipMallocAsync_t(out pointer: *mut *mut c_void, val bytes: usize, val stream: hipStream_t) {
        of_size("hipMallocAsync", here()?.device, bytes)?;
        take_into(&pointer, bytes, stream, None)
    }

    /// Takes memory from a pool in stream order.
    fn hipMallocFromPoolAsync as hipMallocFromPoolAsync_t(
        out pointer: *mut *mut c_void, val bytes: usize, val pool: hipMemPool_t, val stream: hipStream_t,
    ) {
        take_into(&pointer, bytes, stream, Some(pool))
    }

    /// Gives memory back in stream order.
    fn hipFreeAsync as hipFreeAsync_t(val pointer: *mut c_void, val stream: hipStream_t) {
        let here = here()?;
        let stream = here.work_stream(stream)?;
        free(here.machine, pointer.addr() as u64, stream)
    }

    /// Gives unused memory back to the device.
    fn hipMemPoolTrimTo as hipMemPoolTrimTo_t(val pool: hipMemPool_t, val keep: usize) {
        let machine = ready()?;
        let device = device_of(machine, pool.addr())?;
        Ok(machine.driver_pools()?.trim(device, keep as u64)?)
    }

    /// Reads a number of a pool.
    fn hipMemPoolGetAttribute as hipMemPoolGetAttribute_t(
        val pool: hipMemPool_t, val which: hipMemPoolAttr, out value: *mut c_void,
    ) {
        let machine = ready()?;
        let device = device_of(machine, pool.addr())?;
        match attribute(which)? {
            PoolAttribute::Switch => value.cast::<c_int>().put(1),
            PoolAttribute::Bytes(which) => {
                value.cast::<u64>().put(machine.driver_pools()?.pool_attribute(device, which)?)
            }
        }
    }

    /// Sets a number of a pool.
    fn hipMemPoolSetAttribute as hipMemPoolSetAttribute_t(
        val pool: hipMemPool_t, val which: hipMemPoolAttr, out value: *mut c_void,
    ) {
        let machine = ready()?;
        let device = device_of(machine, pool.addr())?;
        match attribute(which)? {
            // The ways of reuse cannot be switched off here.
            PoolAttribute::Switch if value.cast::<c_int>().before()? == 1 => Ok(()),
            PoolAttribute::Switch => Err(Code::NOT_SUPPORTED),
            PoolAttribute::Bytes(which) => {
                let wanted = value.cast::<u64>().before()?;
                Ok(machine.driver_pools()?.set_pool_attribute(device, which, wanted)?)
            }
        }
    }

    /// Lets other devices reach a pool's memory: not simulated.
    fn hipMemPoolSetAccess as hipMemPoolSetAccess_t(
        val pool: hipMemPool_t, val _access: *const hipMemAccessDesc, val _count: usize,
    ) {
        device_of(ready()?, pool.addr())?;
        Err(Code::NOT_SUPPORTED)
    }

    /// What a device may do with a pool's memory: its own everything, others nothing.
    fn hipMemPoolGetAccess as hipMemPoolGetAccess_t(
        out flags: *mut hipMemAccessFlags, val pool: hipMemPool_t, input location: *mut hipMemLocation,
    ) {
        let owner = device_of(ready()?, pool.addr())?;
        let location = location.get()?;
        if location.type_ != hipMemLocationTypeDevice {
            return Err(Code::INVALID_VALUE);
        }
        let is_own = device(location.id)? == owner;
        flags.put(if is_own { hipMemAccessFlagsProtReadWrite } else { hipMemAccessFlagsProtNone })
    }

    /// A pool of the program's own: not simulated.
    fn hipMemPoolCreate as hipMemPoolCreate_t(out _pool: *mut hipMemPool_t, val _properties: *const hipMemPoolProps) {
        Err(Code::NOT_SUPPORTED)
    }

    /// Ends a pool; default pools cannot be ended.
    fn hipMemPoolDestroy as hipMemPoolDestroy_t(val _pool: hipMemPool_t) {
        Err(Code::INVALID_VALUE)
    }

    /// Shares a pool: default pools cannot be shared.
    fn hipMemPoolExportToShareableHandle as hipMemPoolExportToShareableHandle_t(
        val _shared: *mut c_void, val _pool: hipMemPool_t, val _kind: hipMemAllocationHandleType, val _flags: c_uint,
    ) {
        Err(Code::INVALID_VALUE)
    }

    /// Takes another process's pool: not simulated.
    fn hipMemPoolImportFromShareableHandle as hipMemPoolImportFromShareableHandle_t(
        out _pool: *mut hipMemPool_t, val _shared: *mut c_void, val _kind: hipMemAllocationHandleType,
        val _flags: c_uint,
    ) {
        Err(Code::NOT_SUPPORTED)
    }

    /// Shares memory of a pool: default pools cannot be shared.
    fn hipMemPoolExportPointer as hipMemPoolExportPointer_t(
        val _data: *mut hipMemPoolPtrExportData, val _pointer: *mut c_void,
    ) {
        Err(Code::INVALID_VALUE)
    }

    /// Takes memory of another process's pool: not simulated.
    fn hipMemPoolImportPointer as hipMemPoolImportPointer_t(
        out _pointer: *mut *mut c_void, val _pool: hipMemPool_t, val _data: *mut hipMemPoolPtrExportData,
    ) {
        Err(Code::NOT_SUPPORTED)
    }
}
