//! Memory of other processes and of other devices.

use crate::library::{HipDriver, ordinal};
use backend_api::types::{DeviceIndex, DevicePtr, Stream};
use backend_api::{IpcMemoryHandle, PointerKind, Result};
use backend_support::{Context, IpcCalls, MemoryCalls, PeerCalls, Site, call, number, pointer};
use granule_hip_sys::abi6::{hipIpcMemHandle_t, hipIpcMemLazyEnablePeerAccess};
use std::ffi::c_char;
use std::ptr;

impl IpcCalls for HipDriver {
    fn shareable_base(
        context: &Context<Self>,
        site: Site<'_, Self>,
        ptr: DevicePtr,
    ) -> Result<Option<DevicePtr>> {
        let info = Self::pointer_info(context, ptr)?;
        match info.kind {
            PointerKind::Device => Ok(Some(info.base)),
            PointerKind::Managed => Ok(None),
            _ => {
                let detail = format!("no device memory is allocated at {ptr}");
                Err(site.invalid("hipIpcGetMemHandle", detail))
            }
        }
    }

    fn export_memory(site: Site<'_, Self>, base: DevicePtr) -> Result<Option<IpcMemoryHandle>> {
        let mut handle = hipIpcMemHandle_t { reserved: [0; 64] };
        // SAFETY: the function writes 64 bytes, and refuses what cannot be shared.
        unsafe { call!(site.hipIpcGetMemHandle(&raw mut handle, pointer(base.0))) }?;
        Ok(Some(IpcMemoryHandle(handle.reserved.map(|byte| byte as u8))))
    }

    fn open_memory(site: Site<'_, Self>, handle: &IpcMemoryHandle) -> Result<u64> {
        let raw = hipIpcMemHandle_t { reserved: handle.0.map(|byte| byte as c_char) };
        let flags = hipIpcMemLazyEnablePeerAccess;
        let mut at = ptr::null_mut();
        // SAFETY: the function writes one address, and refuses bytes that no driver made.
        unsafe { call!(site.hipIpcOpenMemHandle(&raw mut at, raw, flags)) }?;
        Ok(number(at))
    }

    unsafe fn close_memory(site: Site<'_, Self>, ptr: u64) -> Result<()> {
        // SAFETY: rule 3, which the caller keeps.
        unsafe { call!(site.hipIpcCloseMemHandle(pointer(ptr))) }
    }
}

impl PeerCalls for HipDriver {
    fn can_access_peer(site: Site<'_, Self>, to: DeviceIndex) -> Result<bool> {
        let mut can = 0;
        // SAFETY: the function writes one integer.
        unsafe { call!(site.hipDeviceCanAccessPeer(&raw mut can, ordinal(site.device()), ordinal(to))) }?;
        Ok(can != 0)
    }

    fn enable_peer(site: Site<'_, Self>, to: Site<'_, Self>) -> Result<()> {
        // SAFETY: the function takes integers; the device exists.
        unsafe { call!(site.hipDeviceEnablePeerAccess(ordinal(to.device()), 0)) }
    }

    unsafe fn copy_peer_async(
        site: Site<'_, Self>,
        dst: (Site<'_, Self>, DevicePtr),
        src: (Site<'_, Self>, DevicePtr),
        bytes: usize,
        stream: Stream,
    ) -> Result<()> {
        let (to, at) = (ordinal(dst.0.device()), pointer(dst.1.0));
        let (from, source) = (ordinal(src.0.device()), pointer(src.1.0));
        let queue = pointer(stream.raw);
        // SAFETY: rule 2 for both ranges until the stream has passed it; the devices exist.
        unsafe { call!(site.hipMemcpyPeerAsync(at, to, source, from, bytes, queue)) }
    }
}
