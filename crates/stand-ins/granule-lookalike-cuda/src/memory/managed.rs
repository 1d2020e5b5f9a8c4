//! Managed memory.

use crate::entry::{device, here, of_size};
use crate::header::*;
use crate::personality::since;
use backend_api::types::{DeviceIndex, DevicePtr};
use backend_api::{Backend, PointerKind};
use backend_openreg::Driver;
use lookalike::{Answer, Code};
use std::ffi::c_uint;

/// The number that stands for the host instead of a device.
const HOST: CUdevice = -1;

fn prefetch(at: CUdeviceptr, bytes: usize, to: Option<DeviceIndex>, stream: CUstream) -> Answer {
    let here = here()?;
    let stream = here.work_stream(stream)?;
    Ok(Driver(here.machine).prefetch_async(DevicePtr(at), bytes as u64, to, stream)?)
}

lookalike::entries! {
    run: crate::entry::run, status: CUresult;

    /// Takes memory that migrates.
    fn cuMemAllocManaged as cuMemAllocManaged_t(out pointer: *mut CUdeviceptr, val bytes: usize, val flags: c_uint) {
        let here = here()?;
        if !matches!(flags, CU_MEM_ATTACH_GLOBAL | CU_MEM_ATTACH_HOST) {
            return Err(Code::INVALID_VALUE);
        }
        pointer.wanted()?;
        of_size("cuMemAllocManaged", here.device, bytes)?;
        pointer.put(Driver(here.machine).malloc_managed(here.device, bytes as u64)?.0)
    }

    /// Queues a migration.
    fn cuMemPrefetchAsync as cuMemPrefetchAsync_t(
        val at: CUdeviceptr, val bytes: usize, val to: CUdevice, val stream: CUstream,
    ) {
        let to = if to == HOST { None } else { Some(device(to)?) };
        prefetch(at, bytes, to, stream)
    }

    /// Queues a migration, also to a part of the host.
    fn cuMemPrefetchAsync_v2 as cuMemPrefetchAsync_v2_t(
        val at: CUdeviceptr, val bytes: usize, val to: CUmemLocation, val flags: c_uint, val stream: CUstream,
    ) {
        since(12_020)?;
        if flags != 0 {
            return Err(Code::INVALID_VALUE);
        }
        let to = match to.type_ {
            CU_MEM_LOCATION_TYPE_DEVICE => Some(device(to.id)?),
            CU_MEM_LOCATION_TYPE_HOST
            | CU_MEM_LOCATION_TYPE_HOST_NUMA
            | CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT => None,
            _ => return Err(Code::INVALID_VALUE),
        };
        prefetch(at, bytes, to, stream)
    }

    /// A hint, of which nothing can be seen.
    fn cuMemAdvise as cuMemAdvise_t(
        val at: CUdeviceptr, val bytes: usize, val advice: CUmem_advise, val of: CUdevice,
    ) {
        let here = here()?;
        let is_managed = here.machine.pointer_info(DevicePtr(at))?.kind == PointerKind::Managed;
        let is_known = (CU_MEM_ADVISE_SET_READ_MOSTLY..=CU_MEM_ADVISE_UNSET_ACCESSED_BY).contains(&advice);
        if !is_managed || !is_known || bytes == 0 {
            return Err(Code::INVALID_VALUE);
        }
        if of == HOST { Ok(()) } else { device(of).map(drop) }
    }
}
