//! Memory of other processes and of other devices.

use crate::driver::primary_context;
use crate::library::CudaDriver;
use crate::memory::{optional, pointer_attribute};
use backend_api::types::{DeviceIndex, DevicePtr, Stream};
use backend_api::{IpcMemoryHandle, Result};
use backend_support::errors::INVALID_VALUE;
use backend_support::{Context, IpcCalls, MemoryCalls, PeerCalls, Site, call, pointer};
use cudarc::driver::sys::{CUipcMem_flags, CUipcMemHandle, CUpointer_attribute};
use std::ffi::{c_char, c_uint};

/// Whether virtual memory is mapped at an address.
fn is_mapped(site: Site<'_, CudaDriver>, ptr: DevicePtr) -> bool {
    let mut handle = 0;
    // SAFETY: the function writes one handle, and refuses an address where nothing is mapped.
    let retained = unsafe { call!(site.cuMemRetainAllocationHandle(&raw mut handle, pointer(ptr.0))) };
    // SAFETY: gives back the reference that was just taken.
    retained.is_ok() && unsafe { call!(site.cuMemRelease(handle)) }.is_ok()
}

impl IpcCalls for CudaDriver {
    fn shareable_base(
        context: &Context<Self>,
        site: Site<'_, Self>,
        ptr: DevicePtr,
    ) -> Result<Option<DevicePtr>> {
        let which = CUpointer_attribute::CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE;
        let asked: Result<c_uint> = pointer_attribute(site, which, ptr);
        if optional(asked)? == Some(0) {
            return Ok(None);
        }
        Ok(Some(Self::address_range(context, ptr)?.base))
    }

    fn export_memory(site: Site<'_, Self>, base: DevicePtr) -> Result<Option<IpcMemoryHandle>> {
        let mut handle = CUipcMemHandle { reserved: [0; 64] };
        // SAFETY: the function writes 64 bytes, and refuses what cannot be shared.
        let asked = unsafe { call!(site.cuIpcGetMemHandle(&raw mut handle, base.0)) };
        match asked {
            Ok(()) => Ok(Some(IpcMemoryHandle(handle.reserved.map(|byte| byte as u8)))),
            Err(failed) if failed.code == INVALID_VALUE && is_mapped(site, base) => Ok(None),
            Err(failed) => Err(failed),
        }
    }

    fn open_memory(site: Site<'_, Self>, handle: &IpcMemoryHandle) -> Result<u64> {
        let raw = CUipcMemHandle { reserved: handle.0.map(|byte| byte as c_char) };
        let flags = CUipcMem_flags::CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS as c_uint;
        let mut at = 0;
        // SAFETY: the function writes one address, and refuses bytes that no driver made.
        unsafe { call!(site.cuIpcOpenMemHandle_v2(&raw mut at, raw, flags)) }?;
        Ok(at)
    }

    unsafe fn close_memory(site: Site<'_, Self>, ptr: u64) -> Result<()> {
        // SAFETY: rule 3, which the caller keeps.
        unsafe { call!(site.cuIpcCloseMemHandle(ptr)) }
    }
}

impl PeerCalls for CudaDriver {
    fn can_access_peer(site: Site<'_, Self>, to: DeviceIndex) -> Result<bool> {
        let driver = site.driver();
        let (own, other) = (driver.device(site.device())?.number, driver.device(to)?.number);
        let mut can = 0;
        // SAFETY: the function writes one integer.
        unsafe { call!(site.cuDeviceCanAccessPeer(&raw mut can, own, other)) }?;
        Ok(can != 0)
    }

    fn enable_peer(site: Site<'_, Self>, to: Site<'_, Self>) -> Result<()> {
        let other = primary_context(to)?;
        // SAFETY: the context is a primary one that this backend retains.
        unsafe { call!(site.cuCtxEnablePeerAccess(other, 0)) }
    }

    unsafe fn copy_peer_async(
        site: Site<'_, Self>,
        dst: (Site<'_, Self>, DevicePtr),
        src: (Site<'_, Self>, DevicePtr),
        bytes: usize,
        stream: Stream,
    ) -> Result<()> {
        let (to, from) = (primary_context(dst.0)?, primary_context(src.0)?);
        let queue = pointer(stream.raw);
        // SAFETY: rule 2 for both ranges until the stream has passed it; the contexts are retained.
        unsafe { call!(site.cuMemcpyPeerAsync(dst.1.0, to, src.1.0, from, bytes, queue)) }
    }
}
