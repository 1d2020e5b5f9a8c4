//! Copies and fills.
//!
//! Nothing to copy is success.

use crate::entry::here;
use crate::header::*;
use backend_api::types::{DeviceIndex, DevicePtr, Stream};
use backend_api::{Backend, CopyKind, PointerKind};
use backend_openreg::Driver;
use lookalike::copies::{Copy, Side};
use lookalike::{Answer, Code, Here, contexts, graphs};
use std::ffi::{c_uchar, c_uint, c_ushort, c_void};
use std::sync::Arc;

fn copy(to: Side, from: Side, bytes: usize, stream: Option<CUstream>) -> Answer {
    let here = here()?;
    let stream = stream.map(|handle| here.work_stream(handle)).transpose()?;
    if bytes == 0 {
        return Ok(());
    }
    let copy = Copy::of(here, to, from, bytes)?;
    let Some(stream) = stream else {
        graphs::default_stream_is_free(here.machine, here.machine.default_stream(here.device))?;
        // The machine takes the thread's device for the one that copies.
        here.machine.set_device(here.device)?;
        // SAFETY: the machine checks device ranges; the caller promises host ranges until it returns, which is when the
        // copy is done.
        return Ok(unsafe { here.machine.copy(copy.to, copy.from, copy.bytes, copy.kind) }?);
    };
    queue(here, copy, stream)
}

/// Queues a copy. Host memory that the driver does not know (pageable) is read before the call returns, and filled before
/// it returns; only a graph uses it later.
fn queue(here: Here, Copy { to, from, bytes, kind }: Copy, stream: Stream) -> Answer {
    let machine = here.machine;
    let is_pageable = |at| Ok::<_, Code>(machine.pointer_info(at)?.kind == PointerKind::Unmanaged);
    let is_captured = graphs::info(machine, stream)?.status != CU_STREAM_CAPTURE_STATUS_NONE;
    let is_staged =
        !is_captured && kind == CopyKind::HostToDevice && Driver(machine).keeps(bytes) && is_pageable(from)?;
    if !is_staged {
        // SAFETY: the machine checks device ranges; the caller promises host ranges until the stream passed.
        unsafe { machine.copy_async(to, from, bytes, kind, stream) }?;
        // A machine that does work at once has done it already.
        let is_waited_for =
            !is_captured && kind == CopyKind::DeviceToHost && Driver(machine).is_busy() && is_pageable(to)?;
        return if is_waited_for { Ok(machine.synchronize_stream(stream)?) } else { Ok(()) };
    }
    let theirs = std::ptr::with_exposed_provenance(from.0 as usize);
    // SAFETY: the caller promises that many bytes of host memory.
    let staged: Arc<[u8]> = unsafe { std::slice::from_raw_parts::<u8>(theirs, bytes as usize) }.into();
    Ok(Driver(machine).copy_kept(stream, to, staged)?)
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

/// Fills with so many values, on a stream or, without one, at once.
fn fill(at: CUdeviceptr, value: &[u8], count: usize, stream: Option<CUstream>) -> Answer {
    let here = here()?;
    let is_waited_for = stream.is_none();
    let stream = here.work_stream(stream.unwrap_or(std::ptr::null_mut()))?;
    if !at.is_multiple_of(value.len() as u64) {
        return Err(Code::INVALID_VALUE);
    }
    if count > 0 {
        let bytes = (count as u64).checked_mul(value.len() as u64).ok_or(Code::INVALID_VALUE)?;
        Driver(here.machine).fill(stream, DevicePtr(at), value, bytes)?;
    }
    if is_waited_for { Ok(here.machine.synchronize_stream(stream)?) } else { Ok(()) }
}

/// Copies rows, each for itself.
fn copy_rows(rows: &CUDA_MEMCPY2D, stream: Option<CUstream>) -> Answer {
    let side = |kind: CUmemorytype, host: u64, device: u64, first: usize| match kind {
        CU_MEMORYTYPE_HOST => Ok(Side::Any(host + first as u64)),
        CU_MEMORYTYPE_DEVICE | CU_MEMORYTYPE_UNIFIED => Ok(Side::Any(device + first as u64)),
        // Arrays are not simulated.
        _ => Err(Code::NOT_SUPPORTED),
    };
    for row in 0..rows.Height {
        let to = (rows.dstY + row) * rows.dstPitch + rows.dstXInBytes;
        let from = (rows.srcY + row) * rows.srcPitch + rows.srcXInBytes;
        let to = side(rows.dstMemoryType, rows.dstHost.addr() as u64, rows.dstDevice, to)?;
        let from = side(rows.srcMemoryType, rows.srcHost.addr() as u64, rows.srcDevice, from)?;
        copy(to, from, rows.WidthInBytes, stream)?;
    }
    Ok(())
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
        let stream = here.work_stream(std::ptr::null_mut::<c_void>())?;
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
        fill(at, &[value], bytes, None)
    }

    /// Queues a fill.
    fn cuMemsetD8Async as cuMemsetD8Async_t(
        val at: CUdeviceptr, val value: c_uchar, val bytes: usize, val stream: CUstream,
    ) {
        fill(at, &[value], bytes, Some(stream))
    }

    /// Fills device memory with words of two bytes.
    fn cuMemsetD16_v2 as cuMemsetD16_v2_t(val at: CUdeviceptr, val value: c_ushort, val count: usize) {
        fill(at, &value.to_ne_bytes(), count, None)
    }

    /// Queues such a fill.
    fn cuMemsetD16Async as cuMemsetD16Async_t(
        val at: CUdeviceptr, val value: c_ushort, val count: usize, val stream: CUstream,
    ) {
        fill(at, &value.to_ne_bytes(), count, Some(stream))
    }

    /// Fills device memory with words of four bytes.
    fn cuMemsetD32_v2 as cuMemsetD32_v2_t(val at: CUdeviceptr, val value: c_uint, val count: usize) {
        fill(at, &value.to_ne_bytes(), count, None)
    }

    /// Queues such a fill.
    fn cuMemsetD32Async as cuMemsetD32Async_t(
        val at: CUdeviceptr, val value: c_uint, val count: usize, val stream: CUstream,
    ) {
        fill(at, &value.to_ne_bytes(), count, Some(stream))
    }

    /// Copies rows.
    fn cuMemcpy2D_v2 as cuMemcpy2D_v2_t(input rows: *const CUDA_MEMCPY2D) {
        copy_rows(&rows.get()?, None)
    }

    /// Copies rows at any addresses.
    fn cuMemcpy2DUnaligned_v2 as cuMemcpy2DUnaligned_v2_t(input rows: *const CUDA_MEMCPY2D) {
        copy_rows(&rows.get()?, None)
    }

    /// Queues a copy of rows.
    fn cuMemcpy2DAsync_v2 as cuMemcpy2DAsync_v2_t(input rows: *const CUDA_MEMCPY2D, val stream: CUstream) {
        copy_rows(&rows.get()?, Some(stream))
    }
}
