//! Copies and fills.
//!
//! Nothing to copy is success. Where the name says which side is the host, the machine refuses another kind
//! of address there, except page-locked memory on a device's side.

use crate::entry::{Here, here};
use crate::header::*;
use alloc_core::backend::{Backend, CopyKind, PointerKind};
use alloc_core::types::{DeviceIndex, DevicePtr, Stream};
use lookalike::{Answer, Code, contexts, graphs};
use std::ffi::{c_uchar, c_void};
use std::sync::Arc;

/// One side of a copy.
#[derive(Clone, Copy, Debug)]
enum Side {
    /// The program says that it is host memory.
    Host(u64),
    /// The program says that the driver knows it.
    Known(u64),
    /// The driver is to find out.
    Any(u64),
}

impl Side {
    fn resolve(self, here: Here) -> Answer<(DevicePtr, bool)> {
        let (at, is_any) = match self {
            Self::Host(at) => return Ok((DevicePtr(at), false)),
            Self::Known(at) => (at, false),
            Self::Any(at) => (at, true),
        };
        match here.machine.pointer_info(DevicePtr(at))?.kind {
            PointerKind::Device | PointerKind::Managed => Ok((DevicePtr(at), true)),
            PointerKind::Host => Ok((DevicePtr(at), false)),
            PointerKind::Unmanaged if is_any => Ok((DevicePtr(at), false)),
            // The machine traps the use of an address that is nothing.
            PointerKind::Unmanaged => Ok((DevicePtr(at), true)),
        }
    }
}

fn copy(to: Side, from: Side, bytes: usize, stream: Option<CUstream>) -> Answer {
    let here = here()?;
    let stream = stream.map(|handle| here.work_stream(handle)).transpose()?;
    if bytes == 0 {
        return Ok(());
    }
    let ((to, to_device), (from, from_device)) = (to.resolve(here)?, from.resolve(here)?);
    let kind = match (to_device, from_device) {
        (true, true) => CopyKind::DeviceToDevice,
        (true, false) => CopyKind::HostToDevice,
        (false, true) => CopyKind::DeviceToHost,
        (false, false) => CopyKind::HostToHost,
    };
    let bytes = bytes as u64;
    match stream {
        Some(stream) => queue(here, to, from, bytes, kind, stream)?,
        None => {
            let stream = here.machine.default_stream(here.device);
            graphs::default_stream_is_free(here.machine, stream)?;
            // The machine takes the thread's device for the one that copies.
            here.machine.set_device(here.device)?;
            // SAFETY: the machine checks device ranges; the caller promises host ranges until it returns, which is when the
            // copy is done.
            unsafe { here.machine.copy(to, from, bytes, kind) }?;
        }
    }
    Ok(())
}

/// Queues a copy. Host memory that the driver does not know (pageable) is read before the call returns, and filled before
/// it returns; only a graph uses it later.
fn queue(here: Here, to: DevicePtr, from: DevicePtr, bytes: u64, kind: CopyKind, stream: Stream) -> Answer {
    let machine = here.machine;
    let is_pageable = |at| Ok::<_, Code>(machine.pointer_info(at)?.kind == PointerKind::Unmanaged);
    let is_captured = graphs::info(machine, stream)?.status != CU_STREAM_CAPTURE_STATUS_NONE;
    let is_staged = !is_captured && kind == CopyKind::HostToDevice && is_pageable(from)?;
    let is_waited_for = !is_captured && kind == CopyKind::DeviceToHost && is_pageable(to)?;
    if !is_staged {
        // SAFETY: the machine checks device ranges; the caller promises host ranges until the stream passed.
        unsafe { machine.copy_async(to, from, bytes, kind, stream) }?;
        return if is_waited_for { Ok(machine.synchronize_stream(stream)?) } else { Ok(()) };
    }
    let theirs = std::ptr::with_exposed_provenance(from.0 as usize);
    // SAFETY: the caller promises that many bytes of host memory.
    let staged: Arc<[u8]> = unsafe { std::slice::from_raw_parts::<u8>(theirs, bytes as usize) }.into();
    let at = DevicePtr(staged.as_ptr().expose_provenance() as u64);
    // SAFETY: as above, with bytes that live until the stream has passed the copy.
    unsafe { machine.copy_async(to, at, bytes, kind, stream) }?;
    let passed = Arc::clone(&staged);
    if machine.launch_host_function(stream, Box::new(move || drop(passed))).is_err() {
        machine.synchronize_stream(stream)?;
    }
    Ok(())
}

fn peer_copy(
    to: (CUcontext, u64),
    from: (CUcontext, u64),
    bytes: usize,
    stream: Stream,
    here: Here,
) -> Answer {
    let side = |(context, at): (CUcontext, u64)| -> Answer<(DeviceIndex, DevicePtr)> {
        let device = contexts::device_of(context.addr())?;
        contexts::usable(device)?;
        Ok((device, DevicePtr(at)))
    };
    let (to, from) = (side(to)?, side(from)?);
    if bytes == 0 {
        return Ok(());
    }
    let bytes = bytes as u64;
    match here.machine.peers() {
        // SAFETY: the machine checks both ranges.
        Ok(family) => unsafe { family.copy_peer_async(to, from, bytes, stream) }?,
        // Without peer access drivers copy through the host; the machine's copy engine reaches everything.
        // SAFETY: as above.
        Err(_) => unsafe { here.machine.copy_async(to.1, from.1, bytes, CopyKind::DeviceToDevice, stream) }?,
    }
    Ok(())
}

fn fill(at: CUdeviceptr, value: u8, bytes: usize, stream: Stream, here: Here) -> Answer {
    if bytes == 0 {
        return Ok(());
    }
    // SAFETY: the machine checks the range.
    Ok(unsafe { here.machine.memset_async(DevicePtr(at), value, bytes as u64, stream) }?)
}

lookalike::entries! {
    run: crate::entry::run, status: CUresult;

    /// Copies; the driver finds out what the addresses are.
    fn cuMemcpy as cuMemcpy_t(val to: CUdeviceptr, val from: CUdeviceptr, val bytes: usize) {
        copy(Side::Any(to), Side::Any(from), bytes, None)
    }

    /// Queues such a copy.
    fn cuMemcpyAsync as cuMemcpyAsync_t(
        val to: CUdeviceptr, val from: CUdeviceptr, val bytes: usize, val stream: CUstream,
    ) {
        copy(Side::Any(to), Side::Any(from), bytes, Some(stream))
    }

    /// Copies host memory to a device.
    fn cuMemcpyHtoD_v2 as cuMemcpyHtoD_v2_t(val to: CUdeviceptr, input from: *const c_void, val bytes: usize) {
        copy(Side::Known(to), Side::Host(from.address()), bytes, None)
    }

    /// Queues a copy of host memory to a device.
    fn cuMemcpyHtoDAsync_v2 as cuMemcpyHtoDAsync_v2_t(
        val to: CUdeviceptr, input from: *const c_void, val bytes: usize, val stream: CUstream,
    ) {
        copy(Side::Known(to), Side::Host(from.address()), bytes, Some(stream))
    }

    /// Copies device memory to the host.
    fn cuMemcpyDtoH_v2 as cuMemcpyDtoH_v2_t(out to: *mut c_void, val from: CUdeviceptr, val bytes: usize) {
        copy(Side::Host(to.address()), Side::Known(from), bytes, None)
    }

    /// Queues a copy of device memory to the host.
    fn cuMemcpyDtoHAsync_v2 as cuMemcpyDtoHAsync_v2_t(
        out to: *mut c_void, val from: CUdeviceptr, val bytes: usize, val stream: CUstream,
    ) {
        copy(Side::Host(to.address()), Side::Known(from), bytes, Some(stream))
    }

    /// Copies device memory.
    fn cuMemcpyDtoD_v2 as cuMemcpyDtoD_v2_t(val to: CUdeviceptr, val from: CUdeviceptr, val bytes: usize) {
        copy(Side::Known(to), Side::Known(from), bytes, None)
    }

    /// Queues a copy of device memory.
    fn cuMemcpyDtoDAsync_v2 as cuMemcpyDtoDAsync_v2_t(
        val to: CUdeviceptr, val from: CUdeviceptr, val bytes: usize, val stream: CUstream,
    ) {
        copy(Side::Known(to), Side::Known(from), bytes, Some(stream))
    }

    /// Copies between contexts.
    fn cuMemcpyPeer as cuMemcpyPeer_t(
        val to: CUdeviceptr, val to_context: CUcontext, val from: CUdeviceptr, val from_context: CUcontext,
        val bytes: usize,
    ) {
        let here = here()?;
        let stream = here.work_stream(std::ptr::null_mut())?;
        peer_copy((to_context, to), (from_context, from), bytes, stream, here)?;
        Ok(here.machine.synchronize_stream(stream)?)
    }

    /// Queues a copy between contexts.
    fn cuMemcpyPeerAsync as cuMemcpyPeerAsync_t(
        val to: CUdeviceptr, val to_context: CUcontext, val from: CUdeviceptr, val from_context: CUcontext,
        val bytes: usize, val stream: CUstream,
    ) {
        let here = here()?;
        let stream = here.work_stream(stream)?;
        peer_copy((to_context, to), (from_context, from), bytes, stream, here)
    }

    /// Fills device memory.
    fn cuMemsetD8_v2 as cuMemsetD8_v2_t(val at: CUdeviceptr, val value: c_uchar, val bytes: usize) {
        let here = here()?;
        let stream = here.work_stream(std::ptr::null_mut())?;
        fill(at, value, bytes, stream, here)?;
        Ok(here.machine.synchronize_stream(stream)?)
    }

    /// Queues a fill.
    fn cuMemsetD8Async as cuMemsetD8Async_t(
        val at: CUdeviceptr, val value: c_uchar, val bytes: usize, val stream: CUstream,
    ) {
        let here = here()?;
        let stream = here.work_stream(stream)?;
        fill(at, value, bytes, stream, here)
    }
}
