//! Virtual memory.

mod fabric;

use crate::entry::{device, driver};
use crate::header::*;
use crate::personality::personality;
use backend_api::types::{DeviceIndex, DevicePtr, PhysicalHandle};
use backend_api::{Backend, HandleType, ShareableHandle, VirtualMemory};
use backend_openreg::{Driver, OpenReg};
use lookalike::argument::In;
use lookalike::rules::{Made, Makings};
use lookalike::virtual_memory::{no_flags, put_access, put_granularity, set_access};
use lookalike::{Answer, Code, contexts};
use std::collections::BTreeMap;
use std::ffi::{c_int, c_ulonglong, c_void};
use std::os::fd::{BorrowedFd, IntoRawFd, OwnedFd};
use std::sync::{Mutex, MutexGuard, PoisonError};

fn family() -> Answer<(&'static OpenReg, &'static dyn VirtualMemory)> {
    let machine = driver()?;
    Ok((machine, machine.virtual_memory()?))
}

/// Reserved ranges: lengths by base.
fn reservations() -> MutexGuard<'static, BTreeMap<CUdeviceptr, u64>> {
    static RESERVED: Mutex<BTreeMap<CUdeviceptr, u64>> = Mutex::new(BTreeMap::new());
    RESERVED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Base and length of the reservation that an address is in.
pub(crate) fn reservation_of(pointer: CUdeviceptr) -> Option<(CUdeviceptr, u64)> {
    let reservations = reservations();
    let (base, bytes) = reservations.range(..=pointer).next_back()?;
    (pointer - base < *bytes).then_some((*base, *bytes))
}

/// A handle as the machine knows it. Its numbers are the driver's plus one, so that none is 0.
fn known(machine: &OpenReg, handle: CUmemGenericAllocationHandle) -> Answer<PhysicalHandle> {
    let raw = handle.checked_sub(1).ok_or(Code::INVALID_VALUE)?;
    Ok(PhysicalHandle { raw, backend: machine.id() })
}

const fn number(handle: PhysicalHandle) -> CUmemGenericAllocationHandle {
    handle.raw + 1
}

const fn handle_type(number: CUmemAllocationHandleType) -> Answer<HandleType> {
    match number {
        CU_MEM_HANDLE_TYPE_NONE => Ok(HandleType::None),
        CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR => Ok(HandleType::PosixFd),
        CU_MEM_HANDLE_TYPE_FABRIC => Ok(HandleType::Fabric),
        // Of another operating system.
        CU_MEM_HANDLE_TYPE_WIN32 | CU_MEM_HANDLE_TYPE_WIN32_KMT => Err(Code::NOT_SUPPORTED),
        _ => Err(Code::INVALID_VALUE),
    }
}

fn place(location: CUmemLocation) -> Answer<DeviceIndex> {
    match location.type_ {
        CU_MEM_LOCATION_TYPE_DEVICE => device(location.id),
        // Physical memory of the host is not simulated.
        CU_MEM_LOCATION_TYPE_HOST
        | CU_MEM_LOCATION_TYPE_HOST_NUMA
        | CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT => Err(Code::NOT_SUPPORTED),
        _ => Err(Code::INVALID_VALUE),
    }
}

/// What memory with these properties is asked for.
fn wanted(properties: CUmemAllocationProp) -> Answer<(DeviceIndex, HandleType)> {
    if properties.type_ != CU_MEM_ALLOCATION_TYPE_PINNED {
        return Err(Code::INVALID_VALUE);
    }
    let (device, handle_type) = (place(properties.location)?, handle_type(properties.requestedHandleTypes)?);
    if handle_type != HandleType::Fabric {
        return Ok((device, handle_type));
    }
    // To the machine it is memory that can leave the process.
    fabric::is_there().map(|()| (device, HandleType::PosixFd))
}

/// How physical memory was made, for as long as it lives: while it has a handle or is mapped.
static HANDLES: Makings = Makings::new();

/// Handles by the addresses that they are mapped at.
fn mapped() -> MutexGuard<'static, BTreeMap<CUdeviceptr, CUmemGenericAllocationHandle>> {
    static MAPPED: Mutex<BTreeMap<CUdeviceptr, CUmemGenericAllocationHandle>> = Mutex::new(BTreeMap::new());
    MAPPED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A handle was released or a mapping taken away: was it the last of its memory?
fn may_have_ended(machine: &OpenReg, handle: CUmemGenericAllocationHandle) -> Answer {
    let has_handles = Driver(machine).physical_properties(known(machine, handle)?).is_ok();
    // The machine's numbers never come back, so nothing else can have this one by now.
    if !has_handles && !mapped().values().any(|other| *other == handle) {
        fabric::forget(handle);
        HANDLES.forget(handle);
    }
    Ok(())
}

/// Gives a handle up.
pub(crate) fn release(machine: &OpenReg, handle: CUmemGenericAllocationHandle) -> Answer {
    // SAFETY: the machine refuses what is no live handle.
    unsafe { machine.virtual_memory()?.release_physical(known(machine, handle)?) }?;
    may_have_ended(machine, handle)
}

/// As what the physical memory mapped at an address can be exported.
///
/// # Errors
/// Where none is mapped there.
pub(crate) fn handle_types_at(pointer: CUdeviceptr) -> Answer<CUmemAllocationHandleType> {
    let (machine, _) = family()?;
    let handle = number(Driver(machine).retain_physical(DevicePtr(pointer))?);
    let handle_types = HANDLES.of(handle).handle_types;
    release(machine, handle)?;
    Ok(handle_types)
}

fn made(properties: CUmemAllocationProp) -> Made {
    Made {
        rdma: properties.allocFlags.gpuDirectRDMACapable != 0,
        handle_types: properties.requestedHandleTypes,
    }
}

fn of_memory(function: &str, made: Made) -> Answer {
    personality()?.driver.of_memory(function, made)
}

/// A copy of a descriptor that a caller passes by value, in the place of a pointer.
fn passed(shared: *mut c_void) -> Answer<OwnedFd> {
    let descriptor = c_int::try_from(shared.addr()).map_err(|_| Code::INVALID_VALUE)?;
    // SAFETY: the caller promises that it is open; where it is not, the copy fails. It is not -1: no
    // address is negative.
    let borrowed = unsafe { BorrowedFd::borrow_raw(descriptor) };
    borrowed.try_clone_to_owned().map_err(|_| Code::INVALID_VALUE)
}

lookalike::entries! {
    run: crate::entry::run, status: CUresult;

    /// The unit of sizes.
    fn cuMemGetAllocationGranularity as cuMemGetAllocationGranularity_t(
        out bytes: *mut usize, input properties: *const CUmemAllocationProp, val option: CUmemAllocationGranularity_flags,
    ) {
        let (_, family) = family()?;
        let (device, _) = wanted(properties.get()?)?;
        put_granularity(family, device, option, &bytes)
    }

    /// Reserves addresses.
    fn cuMemAddressReserve as cuMemAddressReserve_t(
        out base: *mut CUdeviceptr, val bytes: usize, val alignment: usize, val hint: CUdeviceptr,
        val flags: c_ulonglong,
    ) {
        let (machine, family) = family()?;
        no_flags(flags)?;
        base.wanted()?;
        // Needs no context; the machine keeps the addresses of its devices apart.
        let device = contexts::current_device().unwrap_or_default();
        personality()?.driver.of_size("cuMemAddressReserve", machine, device, bytes)?;
        let reserved = family.reserve_address(device, bytes as u64, alignment as u64, DevicePtr(hint))?.0;
        reservations().insert(reserved, bytes as u64);
        base.put(reserved)
    }

    /// Gives addresses back.
    fn cuMemAddressFree as cuMemAddressFree_t(val base: CUdeviceptr, val bytes: usize) {
        let (_, family) = family()?;
        // SAFETY: the machine refuses what is no whole reservation, and while something is mapped.
        unsafe { family.release_address(DevicePtr(base), bytes as u64) }?;
        reservations().remove(&base);
        Ok(())
    }

    /// Creates physical memory.
    fn cuMemCreate as cuMemCreate_t(
        out handle: *mut CUmemGenericAllocationHandle, val bytes: usize, input properties: *const CUmemAllocationProp,
        val flags: c_ulonglong,
    ) {
        let (machine, family) = family()?;
        no_flags(flags)?;
        handle.wanted()?;
        let properties = properties.get()?;
        let made = made(properties);
        of_memory("cuMemCreate", made)?;
        let (device, handle_type) = wanted(properties)?;
        personality()?.driver.of_size("cuMemCreate", machine, device, bytes)?;
        let created = number(family.create_physical(device, bytes as u64, handle_type)?);
        HANDLES.remember(created, made);
        handle.put(created)
    }

    /// Gives a handle up.
    fn cuMemRelease as cuMemRelease_t(val handle: CUmemGenericAllocationHandle) {
        let (machine, _) = family()?;
        release(machine, handle)
    }

    /// Maps physical memory.
    fn cuMemMap as cuMemMap_t(
        val at: CUdeviceptr, val bytes: usize, val offset: usize, val handle: CUmemGenericAllocationHandle,
        val flags: c_ulonglong,
    ) {
        let (machine, family) = family()?;
        no_flags(flags)?;
        if offset != 0 {
            return Err(Code::INVALID_VALUE);
        }
        let made = HANDLES.of(handle);
        of_memory("cuMemMap", made)?;
        let physical = known(machine, handle)?;
        let is_second = mapped().values().any(|other| *other == handle);
        if is_second && personality()?.driver.part.maps_copies {
            let device = Driver(machine).physical_properties(physical)?.device;
            let other = family.create_physical(device, bytes as u64, HandleType::None)?;
            // SAFETY: the machine checks the reservation, the handle and its size.
            let shown = unsafe { family.map(DevicePtr(at), bytes as u64, other) };
            // SAFETY: made above; it lives while it is mapped.
            unsafe { family.release_physical(other) }?;
            shown?;
        } else {
            // SAFETY: the machine checks the reservation, the handle and its size.
            unsafe { family.map(DevicePtr(at), bytes as u64, physical) }?;
        }
        mapped().insert(at, handle);
        Ok(())
    }

    /// Takes mappings away.
    fn cuMemUnmap as cuMemUnmap_t(val at: CUdeviceptr, val bytes: usize) {
        let (machine, family) = family()?;
        // SAFETY: the machine refuses what is not whole mappings, and what queued work uses.
        unsafe { family.unmap(DevicePtr(at), bytes as u64) }?;
        let gone: Vec<_> = mapped().extract_if(at..at + bytes as u64, |_, _| true).collect();
        gone.into_iter().try_for_each(|(_, handle)| may_have_ended(machine, handle))
    }

    /// Sets what devices may do with mapped memory.
    fn cuMemSetAccess as cuMemSetAccess_t(
        val at: CUdeviceptr, val bytes: usize, input access: *const CUmemAccessDesc, val count: usize,
    ) {
        let (_, family) = family()?;
        let made = mapped().get(&at).map_or_else(Made::default, |handle| HANDLES.of(*handle));
        of_memory("cuMemSetAccess", made)?;
        if count == 0 {
            return Err(Code::INVALID_VALUE);
        }
        let all = access.list(count)?.into_iter().map(|one| Ok((place(one.location)?, one.flags)));
        set_access(family, DevicePtr(at), bytes, all, || Ok(()))
    }

    /// What a device may do with mapped memory.
    fn cuMemGetAccess as cuMemGetAccess_t(
        out flags: *mut c_ulonglong, input location: *const CUmemLocation, val at: CUdeviceptr,
    ) {
        let (_, family) = family()?;
        put_access(family, DevicePtr(at), place(location.get()?)?, &flags)
    }

    /// For another process: a descriptor, by value, or a fabric handle.
    fn cuMemExportToShareableHandle as cuMemExportToShareableHandle_t(
        out shared: *mut c_void, val handle: CUmemGenericAllocationHandle, val kind: CUmemAllocationHandleType,
        val flags: c_ulonglong,
    ) {
        let (machine, _) = family()?;
        no_flags(flags)?;
        shared.wanted()?;
        let made = HANDLES.of(handle);
        of_memory("cuMemExportToShareableHandle", made)?;
        let physical = known(machine, handle)?;
        // Memory leaves the process in the way that it was made for.
        match (handle_type(kind)?, made.handle_types) {
            (HandleType::Fabric, CU_MEM_HANDLE_TYPE_FABRIC) => {
                shared.cast::<[u8; 64]>().put(fabric::export(machine, handle, physical)?)
            }
            (_, CU_MEM_HANDLE_TYPE_FABRIC) => Err(Code::NOT_SUPPORTED),
            (handle_type, _) => match machine.physical_sharing()?.export_physical(physical, handle_type)? {
                ShareableHandle::PosixFd(descriptor) => shared.cast::<c_int>().put(descriptor.into_raw_fd()),
                ShareableHandle::Fabric(_) => Err(Code::NOT_SUPPORTED),
            },
        }
    }

    /// Takes a descriptor, which stays the caller's, or a fabric handle of another process.
    fn cuMemImportFromShareableHandle as cuMemImportFromShareableHandle_t(
        out handle: *mut CUmemGenericAllocationHandle, val shared: *mut c_void, val kind: CUmemAllocationHandleType,
    ) {
        let (machine, _) = family()?;
        handle.wanted()?;
        let made = Made { rdma: false, handle_types: kind };
        let handle_type = handle_type(kind)?;
        of_memory("cuMemImportFromShareableHandle", made)?;
        let descriptor = match handle_type {
            HandleType::PosixFd => passed(shared)?,
            HandleType::None => return Err(Code::INVALID_VALUE),
            // SAFETY: the caller promises a pointer to a handle of this kind.
            _ => fabric::import(&unsafe { In::new(shared.cast::<[u8; 64]>().cast_const()) }.get()?)?,
        };
        // Memory from elsewhere belongs to the current device.
        let device = contexts::current_device()?;
        let shared = ShareableHandle::PosixFd(descriptor);
        let imported = number(machine.physical_sharing()?.import_physical(device, &shared)?);
        // What this process made itself stays as it was made.
        HANDLES.remember_new(imported, made);
        handle.put(imported)
    }

    /// The handle mapped at an address, with one more reference.
    fn cuMemRetainAllocationHandle as cuMemRetainAllocationHandle_t(
        out handle: *mut CUmemGenericAllocationHandle, val at: *mut c_void,
    ) {
        let (machine, _) = family()?;
        handle.wanted()?;
        handle.put(number(Driver(machine).retain_physical(DevicePtr(at.addr() as u64))?))
    }

    /// What a handle is.
    fn cuMemGetAllocationPropertiesFromHandle as cuMemGetAllocationPropertiesFromHandle_t(
        out properties: *mut CUmemAllocationProp, val handle: CUmemGenericAllocationHandle,
    ) {
        let (machine, _) = family()?;
        properties.wanted()?;
        let found = Driver(machine).physical_properties(known(machine, handle)?)?;
        let made = HANDLES.of(handle);
        properties.put(CUmemAllocationProp {
            type_: CU_MEM_ALLOCATION_TYPE_PINNED,
            requestedHandleTypes: made.handle_types,
            location: CUmemLocation { type_: CU_MEM_LOCATION_TYPE_DEVICE, id: c_int::from(found.device.0) },
            win32HandleMetaData: std::ptr::null_mut(),
            allocFlags: CUmemAllocationProp_st__bindgen_ty_1 {
                compressionType: 0,
                gpuDirectRDMACapable: made.rdma.into(),
                usage: 0,
                reserved: [0; 4],
            },
        })
    }
}
