//! Virtual memory.

mod late;
mod sharing;

use crate::entry::{current, device, ready};
use crate::imports;
use crate::personality::{Release, personality};
use alloc_core::backend::{Backend, HandleType, VirtualMemory};
use alloc_core::types::{DeviceIndex, DevicePtr, PhysicalHandle};
use backend_openreg::{Driver, OpenReg};
use granule_hip_sys::abi6::*;
use granule_hip_sys::abi7::hipMemAllocationTypeUncached;
use lookalike::argument::{In, Out};
use lookalike::rules::{Made, Makings};
use lookalike::virtual_memory::{no_flags, put_access, put_granularity, set_access};
use lookalike::{Answer, Code};
use std::collections::HashMap;
use std::ffi::{c_int, c_ulonglong, c_void};
use std::fs::File;
use std::ptr::{null_mut, without_provenance_mut};
use std::sync::{LazyLock, Mutex, PoisonError};

/// A descriptor for each physical handle, for a runtime that takes them.
static DESCRIPTORS: LazyLock<Mutex<HashMap<u64, File>>> = LazyLock::new(Mutex::default);

fn family() -> Answer<(&'static OpenReg, &'static dyn VirtualMemory)> {
    let machine = ready()?;
    Ok((machine, machine.virtual_memory()?))
}

/// A handle as the machine knows it; its numbers are the runtime's.
fn known(machine: &OpenReg, handle: hipMemGenericAllocationHandle_t) -> PhysicalHandle {
    PhysicalHandle { raw: handle.addr() as u64, backend: machine.id() }
}

const fn number(handle: PhysicalHandle) -> hipMemGenericAllocationHandle_t {
    without_provenance_mut(handle.raw as usize)
}

const fn handle_type(number: hipMemAllocationHandleType) -> Answer<HandleType> {
    match number {
        hipMemHandleTypeNone => Ok(HandleType::None),
        hipMemHandleTypePosixFileDescriptor => Ok(HandleType::PosixFd),
        // Of another operating system.
        hipMemHandleTypeWin32 | hipMemHandleTypeWin32Kmt => Err(Code::NOT_SUPPORTED),
        // Fabric handles came after 7.1.
        _ => Err(Code::INVALID_VALUE),
    }
}

fn place(location: hipMemLocation) -> Answer<DeviceIndex> {
    if location.type_ == hipMemLocationTypeDevice { device(location.id) } else { Err(Code::INVALID_VALUE) }
}

/// What memory with these properties is asked for.
fn wanted(properties: &In<hipMemAllocationProp>) -> Answer<(DeviceIndex, HandleType)> {
    let properties = properties.get()?;
    let kind = properties.type_;
    let is_uncached = kind == hipMemAllocationTypeUncached && personality()?.release >= Release::V7_0;
    if kind != hipMemAllocationTypePinned && !is_uncached {
        return Err(Code::INVALID_VALUE);
    }
    Ok((place(properties.location)?, handle_type(properties.requestedHandleType)?))
}

fn put_properties(place: &Out<hipMemAllocationProp>, device: DeviceIndex, handle_type: HandleType) -> Answer {
    let requested = match handle_type {
        HandleType::PosixFd => hipMemHandleTypePosixFileDescriptor,
        _ => hipMemHandleTypeNone,
    };
    let id = c_int::from(device.0);
    place.put(hipMemAllocationProp {
        type_: hipMemAllocationTypePinned,
        requestedHandleType: requested,
        location: hipMemLocation { type_: hipMemLocationTypeDevice, id },
        win32HandleMetaData: null_mut(),
        allocFlags: hipMemAllocationProp__bindgen_ty_1 {
            compressionType: 0,
            gpuDirectRDMACapable: 0,
            usage: 0,
        },
    })
}

/// How physical memory was made.
pub(crate) static HANDLES: Makings = Makings::new();
static MAPPINGS: Makings = Makings::new();

fn made(properties: &In<hipMemAllocationProp>) -> Answer<Made> {
    let properties = properties.get()?;
    let rdma = properties.allocFlags.gpuDirectRDMACapable != 0;
    Ok(Made { rdma, handle_types: properties.requestedHandleType })
}

pub(crate) fn of_memory(function: &str, made: Made) -> Answer {
    personality()?.driver.of_memory(function, made)
}

fn address(pointer: *mut c_void) -> DevicePtr {
    DevicePtr(pointer.addr() as u64)
}

/// Takes a descriptor for a handle. Where there is none left, the runtime says that memory is out.
fn take_descriptor(handle: PhysicalHandle) -> Answer {
    if personality()?.driver.part.takes_descriptors {
        let file = File::open("/dev/null").map_err(|_| Code::OUT_OF_MEMORY)?;
        DESCRIPTORS.lock().unwrap_or_else(PoisonError::into_inner).insert(handle.raw, file);
    }
    Ok(())
}

fn release(machine: &OpenReg, family: &dyn VirtualMemory, handle: PhysicalHandle) -> Answer {
    // SAFETY: the machine refuses what is no live handle.
    unsafe { family.release_physical(handle) }?;
    if personality()?.driver.part.takes_descriptors && Driver(machine).physical_properties(handle).is_err() {
        DESCRIPTORS.lock().unwrap_or_else(PoisonError::into_inner).remove(&handle.raw);
    }
    imports::released(handle.raw);
    Ok(())
}

lookalike::entries! {
    run: crate::entry::run, status: hipError_t;

    /// The unit of sizes.
    fn hipMemGetAllocationGranularity as hipMemGetAllocationGranularity_t(
        out bytes: *mut usize, input properties: *const hipMemAllocationProp,
        val option: hipMemAllocationGranularity_flags,
    ) {
        let (_, family) = family()?;
        let (device, _) = wanted(&properties)?;
        put_granularity(family, device, option, &bytes)
    }

    /// Reserves addresses.
    fn hipMemAddressReserve as hipMemAddressReserve_t(
        out base: *mut *mut c_void, val bytes: usize, val alignment: usize, val hint: *mut c_void,
        val flags: c_ulonglong,
    ) {
        let (_, family) = family()?;
        no_flags(flags)?;
        base.wanted()?;
        let (machine, device) = current()?;
        personality()?.driver.of_size("hipMemAddressReserve", machine, device, bytes)?;
        let at = family.reserve_address(device, bytes as u64, alignment as u64, address(hint))?;
        base.put(without_provenance_mut(at.0 as usize))
    }

    /// Gives addresses back.
    fn hipMemAddressFree as hipMemAddressFree_t(val base: *mut c_void, val bytes: usize) {
        let (_, family) = family()?;
        // SAFETY: the machine refuses what is no whole reservation, and while something is mapped.
        unsafe { family.release_address(address(base), bytes as u64) }?;
        late::released(family, base.addr() as u64, bytes as u64)
    }

    /// Creates physical memory.
    fn hipMemCreate as hipMemCreate_t(
        out handle: *mut hipMemGenericAllocationHandle_t, val bytes: usize,
        input properties: *const hipMemAllocationProp, val flags: c_ulonglong,
    ) {
        let (machine, family) = family()?;
        no_flags(flags)?;
        handle.wanted()?;
        let made = made(&properties)?;
        of_memory("hipMemCreate", made)?;
        let (device, handle_type) = wanted(&properties)?;
        personality()?.driver.of_size("hipMemCreate", machine, device, bytes)?;
        let created = family.create_physical(device, bytes as u64, handle_type)?;
        take_descriptor(created).or_else(|code| release(machine, family, created).and(Err(code)))?;
        HANDLES.remember(created.raw, made);
        handle.put(number(created))
    }

    /// Gives a handle up.
    fn hipMemRelease as hipMemRelease_t(val handle: hipMemGenericAllocationHandle_t) {
        let (machine, family) = family()?;
        release(machine, family, known(machine, handle))
    }

    /// Maps physical memory.
    fn hipMemMap as hipMemMap_t(
        val at: *mut c_void, val bytes: usize, val offset: usize, val handle: hipMemGenericAllocationHandle_t,
        val flags: c_ulonglong,
    ) {
        let (machine, family) = family()?;
        no_flags(flags)?;
        if offset != 0 {
            return Err(Code::INVALID_VALUE);
        }
        let (at, handle) = (address(at), known(machine, handle));
        let made = HANDLES.of(handle.raw);
        of_memory("hipMemMap", made)?;
        // SAFETY: the machine checks the reservation, the handle and its size.
        unsafe { family.map(at, bytes as u64, handle) }?;
        imports::mapped(handle.raw, at.0);
        MAPPINGS.remember(at.0, made);
        Ok(())
    }

    /// Takes mappings away.
    fn hipMemUnmap as hipMemUnmap_t(val at: *mut c_void, val bytes: usize) {
        let (machine, family) = family()?;
        let at = address(at);
        late::unmapping(machine, at, bytes as u64)?;
        // SAFETY: the machine refuses what is not whole mappings, and what queued work uses.
        unsafe { family.unmap(at, bytes as u64) }?;
        imports::unmapped(at.0, bytes as u64);
        Ok(())
    }

    /// Sets what devices may do with one mapping: the runtime takes no range of several.
    fn hipMemSetAccess as hipMemSetAccess_t(
        val at: *mut c_void, val bytes: usize, input access: *const hipMemAccessDesc, val count: usize,
    ) {
        let (machine, family) = family()?;
        let at = address(at);
        of_memory("hipMemSetAccess", MAPPINGS.of(at.0))?;
        if count == 0 {
            return Err(Code::INVALID_VALUE);
        }
        let mapping = machine.address_range(at)?;
        if (mapping.base, mapping.bytes) != (at, bytes as u64) {
            return Err(Code::INVALID_VALUE);
        }
        let all = access.list(count)?.into_iter().map(|one| Ok((place(one.location)?, one.flags)));
        set_access(family, at, bytes, all, || imports::opened(at.0))
    }

    /// What a device may do with mapped memory.
    fn hipMemGetAccess as hipMemGetAccess_t(
        out flags: *mut c_ulonglong, input location: *const hipMemLocation, val at: *mut c_void,
    ) {
        let (_, family) = family()?;
        put_access(family, address(at), place(location.get()?)?, &flags)
    }

    /// The handle mapped at an address, with one more reference.
    fn hipMemRetainAllocationHandle as hipMemRetainAllocationHandle_t(
        out handle: *mut hipMemGenericAllocationHandle_t, val at: *mut c_void,
    ) {
        let (machine, _) = family()?;
        handle.wanted()?;
        handle.put(number(Driver(machine).retain_physical(address(at))?))
    }

    /// What a handle is.
    fn hipMemGetAllocationPropertiesFromHandle as hipMemGetAllocationPropertiesFromHandle_t(
        out properties: *mut hipMemAllocationProp, val handle: hipMemGenericAllocationHandle_t,
    ) {
        let (machine, _) = family()?;
        properties.wanted()?;
        let found = Driver(machine).physical_properties(known(machine, handle))?;
        put_properties(&properties, found.device, found.handle_type)
    }
}
