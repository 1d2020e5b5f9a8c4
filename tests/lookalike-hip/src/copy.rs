//! Copies and fills.
//!
//! Nothing to copy is success.

use crate::entry::{device, here};
use alloc_core::backend::{Backend, CaptureMode};
use alloc_core::types::{DevicePtr, Stream};
use granule_hip_sys::abi6::*;
use lookalike::copies::{Copy, Side};
use lookalike::{Answer, Code, Here};
use std::ffi::{c_int, c_uchar, c_void};

fn sides(to: u64, from: u64, kind: hipMemcpyKind) -> Answer<(Side, Side)> {
    Ok(match kind {
        hipMemcpyHostToHost => (Side::Host(to), Side::Host(from)),
        hipMemcpyHostToDevice => (Side::Known(to), Side::Host(from)),
        hipMemcpyDeviceToHost => (Side::Host(to), Side::Known(from)),
        hipMemcpyDeviceToDevice | hipMemcpyDeviceToDeviceNoCU => (Side::Known(to), Side::Known(from)),
        hipMemcpyDefault => (Side::Any(to), Side::Any(from)),
        _ => return Err(Code(hipErrorInvalidMemcpyDirection.cast_signed())),
    })
}

/// Copies now, also while a stream is captured: before 7.14 the runtime does not object.
fn finish(here: Here, copy: Copy) -> Answer {
    let capture = here.machine.capture().ok();
    let before = capture.map(|family| family.exchange_mode(CaptureMode::Relaxed)).transpose()?;
    // SAFETY: the machine checks device ranges; the caller promises host ranges.
    let copied = unsafe { here.machine.copy(copy.to, copy.from, copy.bytes, copy.kind) };
    if let Some((family, mode)) = capture.zip(before) {
        family.exchange_mode(mode)?;
    }
    Ok(copied?)
}

fn copy((to, from): (Side, Side), bytes: usize, stream: Option<hipStream_t>) -> Answer {
    let here = here()?;
    let stream = stream.map(|handle| here.work_stream(handle)).transpose()?;
    if bytes == 0 {
        return Ok(());
    }
    let copy = Copy::of(here, to, from, bytes)?;
    let Some(stream) = stream else { return finish(here, copy) };
    // SAFETY: the machine checks device ranges; the caller promises host ranges until the stream passed.
    Ok(unsafe { here.machine.copy_async(copy.to, copy.from, copy.bytes, copy.kind, stream) }?)
}

fn peer_copy(to: (c_int, u64), from: (c_int, u64), bytes: usize, stream: Stream, here: Here) -> Answer {
    let (to, from) = ((device(to.0)?, DevicePtr(to.1)), (device(from.0)?, DevicePtr(from.1)));
    if bytes == 0 {
        return Ok(());
    }
    // SAFETY: the machine checks both ranges.
    Ok(unsafe { here.machine.peers()?.copy_peer_async(to, from, bytes as u64, stream) }?)
}

fn fill(at: *mut c_void, value: u8, bytes: usize, stream: hipStream_t) -> Answer<(Here, Stream)> {
    let here = here()?;
    let stream = here.work_stream(stream)?;
    if bytes > 0 {
        let at = DevicePtr(at.addr() as u64);
        // SAFETY: the machine checks the range.
        unsafe { here.machine.memset_async(at, value, bytes as u64, stream) }?;
    }
    Ok((here, stream))
}

/// A fill that is done when it returns.
fn fill_now(at: *mut c_void, value: u8, bytes: usize) -> Answer {
    let (here, stream) = fill(at, value, bytes, std::ptr::null_mut())?;
    Ok(here.machine.synchronize_stream(stream)?)
}

fn address<T>(pointer: *const T) -> u64 {
    pointer.addr() as u64
}

lookalike::entries! {
    run: crate::entry::run, status: hipError_t;

    /// Copies.
    fn hipMemcpy as hipMemcpy_t(
        val to: *mut c_void, val from: *const c_void, val bytes: usize, val kind: hipMemcpyKind,
    ) {
        copy(sides(address(to), address(from), kind)?, bytes, None)
    }

    /// Queues a copy.
    fn hipMemcpyAsync as hipMemcpyAsync_t(
        val to: *mut c_void, val from: *const c_void, val bytes: usize, val kind: hipMemcpyKind, val stream: hipStream_t,
    ) {
        copy(sides(address(to), address(from), kind)?, bytes, Some(stream))
    }

    /// Copies host memory to a device.
    fn hipMemcpyHtoD as hipMemcpyHtoD_t(val to: hipDeviceptr_t, val from: *mut c_void, val bytes: usize) {
        copy((Side::Known(address(to)), Side::Host(address(from))), bytes, None)
    }

    /// Queues a copy of host memory to a device.
    fn hipMemcpyHtoDAsync as hipMemcpyHtoDAsync_t(
        val to: hipDeviceptr_t, val from: *mut c_void, val bytes: usize, val stream: hipStream_t,
    ) {
        copy((Side::Known(address(to)), Side::Host(address(from))), bytes, Some(stream))
    }

    /// Copies device memory to the host.
    fn hipMemcpyDtoH as hipMemcpyDtoH_t(val to: *mut c_void, val from: hipDeviceptr_t, val bytes: usize) {
        copy((Side::Host(address(to)), Side::Known(address(from))), bytes, None)
    }

    /// Queues a copy of device memory to the host.
    fn hipMemcpyDtoHAsync as hipMemcpyDtoHAsync_t(
        val to: *mut c_void, val from: hipDeviceptr_t, val bytes: usize, val stream: hipStream_t,
    ) {
        copy((Side::Host(address(to)), Side::Known(address(from))), bytes, Some(stream))
    }

    /// Copies device memory.
    fn hipMemcpyDtoD as hipMemcpyDtoD_t(val to: hipDeviceptr_t, val from: hipDeviceptr_t, val bytes: usize) {
        copy((Side::Known(address(to)), Side::Known(address(from))), bytes, None)
    }

    /// Queues a copy of device memory.
    fn hipMemcpyDtoDAsync as hipMemcpyDtoDAsync_t(
        val to: hipDeviceptr_t, val from: hipDeviceptr_t, val bytes: usize, val stream: hipStream_t,
    ) {
        copy((Side::Known(address(to)), Side::Known(address(from))), bytes, Some(stream))
    }

    /// Copies between devices.
    fn hipMemcpyPeer as hipMemcpyPeer_t(
        val to: *mut c_void, val to_device: c_int, val from: *const c_void, val from_device: c_int, val bytes: usize,
    ) {
        let here = here()?;
        let stream = here.work_stream(std::ptr::null_mut::<c_void>())?;
        peer_copy((to_device, address(to)), (from_device, address(from)), bytes, stream, here)?;
        Ok(here.machine.synchronize_stream(stream)?)
    }

    /// Queues a copy between devices.
    fn hipMemcpyPeerAsync as hipMemcpyPeerAsync_t(
        val to: *mut c_void, val to_device: c_int, val from: *const c_void, val from_device: c_int, val bytes: usize,
        val stream: hipStream_t,
    ) {
        let here = here()?;
        let stream = here.work_stream(stream)?;
        peer_copy((to_device, address(to)), (from_device, address(from)), bytes, stream, here)
    }

    /// Fills device memory.
    fn hipMemset as hipMemset_t(val at: *mut c_void, val value: c_int, val bytes: usize) {
        fill_now(at, value as u8, bytes)
    }

    /// Queues a fill.
    fn hipMemsetAsync as hipMemsetAsync_t(
        val at: *mut c_void, val value: c_int, val bytes: usize, val stream: hipStream_t,
    ) {
        fill(at, value as u8, bytes, stream).map(drop)
    }

    /// Fills device memory.
    fn hipMemsetD8 as hipMemsetD8_t(val at: hipDeviceptr_t, val value: c_uchar, val bytes: usize) {
        fill_now(at, value, bytes)
    }

    /// Queues a fill.
    fn hipMemsetD8Async as hipMemsetD8Async_t(
        val at: hipDeviceptr_t, val value: c_uchar, val bytes: usize, val stream: hipStream_t,
    ) {
        fill(at, value, bytes, stream).map(drop)
    }
}
