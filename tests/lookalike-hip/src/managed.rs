//! Managed memory.

use crate::entry::{device, here, of_size};
use alloc_core::backend::{Backend, PointerKind};
use alloc_core::types::{DeviceIndex, DevicePtr};
use granule_hip_sys::abi6::*;
use granule_hip_sys::abi7::{
    hipMemAdvise_v2_t, hipMemLocationTypeHost, hipMemLocationTypeHostNuma, hipMemLocationTypeHostNumaCurrent,
    hipMemPrefetchAsync_v2_t,
};
use lookalike::{Answer, Code};
use std::ffi::{c_int, c_uint, c_void};
use std::ptr::without_provenance_mut;

/// The number that stands for the host instead of a device.
const HOST: c_int = -1;

fn by_number(number: c_int) -> Answer<Option<DeviceIndex>> {
    if number == HOST { Ok(None) } else { device(number).map(Some) }
}

fn by_location(location: hipMemLocation) -> Answer<Option<DeviceIndex>> {
    match location.type_ {
        hipMemLocationTypeDevice => device(location.id).map(Some),
        hipMemLocationTypeHost | hipMemLocationTypeHostNuma | hipMemLocationTypeHostNumaCurrent => Ok(None),
        _ => Err(Code::INVALID_VALUE),
    }
}

fn prefetch(at: *const c_void, bytes: usize, to: Option<DeviceIndex>, stream: hipStream_t) -> Answer {
    let here = here()?;
    let stream = here.work_stream(stream)?;
    let at = DevicePtr(at.addr() as u64);
    // SAFETY: the machine refuses what is no managed memory.
    Ok(unsafe { here.machine.managed_memory()?.prefetch_async(at, bytes as u64, to, stream) }?)
}

/// A hint, of which nothing can be seen.
fn advise(at: *const c_void, bytes: usize, advice: hipMemoryAdvise) -> Answer {
    let is_managed = here()?.machine.pointer_info(DevicePtr(at.addr() as u64))?.kind == PointerKind::Managed;
    let is_known = (hipMemAdviseSetReadMostly..=hipMemAdviseUnsetAccessedBy).contains(&advice)
        || matches!(advice, hipMemAdviseSetCoarseGrain | hipMemAdviseUnsetCoarseGrain);
    if is_managed && is_known && bytes > 0 { Ok(()) } else { Err(Code::INVALID_VALUE) }
}

lookalike::entries! {
    run: crate::entry::run, status: hipError_t;

    /// Takes memory that migrates.
    fn hipMallocManaged as hipMallocManaged_t(out pointer: *mut *mut c_void, val bytes: usize, val flags: c_uint) {
        let here = here()?;
        pointer.wanted()?;
        of_size("hipMallocManaged", here.device, bytes)?;
        if !matches!(flags, hipMemAttachGlobal | hipMemAttachHost) {
            return Err(Code::INVALID_VALUE);
        }
        let DevicePtr(base) = here.machine.managed_memory()?.malloc_managed(here.device, bytes as u64)?;
        pointer.put(without_provenance_mut(base as usize))
    }

    /// Queues a migration.
    fn hipMemPrefetchAsync as hipMemPrefetchAsync_t(
        val at: *const c_void, val bytes: usize, val to: c_int, val stream: hipStream_t,
    ) {
        prefetch(at, bytes, by_number(to)?, stream)
    }

    /// Queues a migration, also to a part of the host.
    fn hipMemPrefetchAsync_v2 as hipMemPrefetchAsync_v2_t(
        val at: *const c_void, val bytes: usize, val to: hipMemLocation, val flags: c_uint, val stream: hipStream_t,
    ) {
        if flags != 0 {
            return Err(Code::INVALID_VALUE);
        }
        prefetch(at, bytes, by_location(to)?, stream)
    }

    /// A hint.
    fn hipMemAdvise as hipMemAdvise_t(
        val at: *const c_void, val bytes: usize, val advice: hipMemoryAdvise, val of: c_int,
    ) {
        by_number(of)?;
        advise(at, bytes, advice)
    }

    /// A hint, also about a part of the host.
    fn hipMemAdvise_v2 as hipMemAdvise_v2_t(
        val at: *const c_void, val bytes: usize, val advice: hipMemoryAdvise, val of: hipMemLocation,
    ) {
        by_location(of)?;
        advise(at, bytes, advice)
    }
}
