//! The device itself, for shims of accelerators that have no runtime of their own in the program: what it is, and copies.

pub mod graphs;
pub mod streams;

use crate::allocator::granule_allocator;
use crate::boundary::guard::guard;
use crate::boundary::pass::{address, given, growing, pointer};
use crate::bytes::granule_bytes;
use crate::error::{Failure, granule_status};
use granule::backend::{CopyKind, PointerKind};
use std::ffi::c_void;

/// From host memory to device memory.
pub const GRANULE_COPY_HOST_TO_DEVICE: i32 = 0;
/// From device memory to host memory.
pub const GRANULE_COPY_DEVICE_TO_HOST: i32 = 1;
/// Within device memory.
pub const GRANULE_COPY_DEVICE_TO_DEVICE: i32 = 2;
/// Within host memory.
pub const GRANULE_COPY_HOST_TO_HOST: i32 = 3;

/// Nothing that the driver knows.
pub const GRANULE_POINTER_UNKNOWN: i32 = 0;
/// Device memory.
pub const GRANULE_POINTER_DEVICE: i32 = 1;
/// Pinned or registered host memory.
pub const GRANULE_POINTER_PINNED_HOST: i32 = 2;
/// Memory that migrates.
pub const GRANULE_POINTER_MANAGED: i32 = 3;

/// What an address points into.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct granule_pointer_info_t {
    /// sizeof(granule_pointer_info_t).
    pub size: u32,
    /// One of GRANULE_POINTER_...
    pub kind: i32,
    /// The device that owns it; -1 for host memory and unknown addresses.
    pub device: i32,
    /// Where its allocation begins; null where that is unknown.
    pub base: *mut c_void,
}

growing!(granule_pointer_info_t);

/// What a device is.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct granule_device_properties_t {
    /// sizeof(granule_device_properties_t).
    pub size: u32,
    /// Threads of a warp or wavefront.
    pub warp_size: u32,
    /// All its memory in bytes.
    pub total_memory: u64,
    /// Whether uuid is known.
    pub has_uuid: bool,
    /// What identifies it.
    pub uuid: [u8; 16],
}

growing!(granule_device_properties_t);

/// The engine's kind for C's.
pub(crate) fn copy_kind(kind: i32) -> Result<CopyKind, Failure> {
    Ok(match kind {
        GRANULE_COPY_HOST_TO_DEVICE => CopyKind::HostToDevice,
        GRANULE_COPY_DEVICE_TO_HOST => CopyKind::DeviceToHost,
        GRANULE_COPY_DEVICE_TO_DEVICE => CopyKind::DeviceToDevice,
        GRANULE_COPY_HOST_TO_HOST => CopyKind::HostToHost,
        other => return Err(Failure::argument(format!("kind is {other}: it is one of GRANULE_COPY_..."))),
    })
}

impl granule_allocator {
    /// Refused at the edges of the process: for calls that name no device.
    fn reachable(&self) -> Result<&Self, Failure> {
        if self.engine.device_count() > 0 {
            self.usable_device(0)?;
        }
        Ok(self)
    }
}

/// The calling thread's device.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn granule_device_current(a: *mut granule_allocator, out: *mut i32) -> granule_status {
    guard(|| {
        let (a, out) = (given!(handle a).reachable()?, given!(out out));
        out.set(i32::from(a.backend().current_device()?.0));
        Ok(())
    })
}

/// Makes a device the calling thread's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn granule_device_set(a: *mut granule_allocator, device: i32) -> granule_status {
    guard(|| {
        let a = given!(handle a);
        Ok(a.backend().set_device(a.usable_device(device)?)?)
    })
}

/// What can be had of a device and how much there is, in bytes: as the driver sees it, or the system, where the device shares
/// the host's memory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn granule_device_memory_info(
    a: *mut granule_allocator,
    device: i32,
    free: *mut u64,
    total: *mut u64,
) -> granule_status {
    guard(|| {
        let (a, free, total) = (given!(handle a), given!(out free), given!(out total));
        let info = a.engine.statistics().memory_info(a.usable_device(device)?)?;
        free.set(info.free);
        total.set(info.total);
        Ok(())
    })
}

/// A device's product name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn granule_device_name(
    a: *mut granule_allocator,
    device: i32,
    out: *mut granule_bytes,
) -> granule_status {
    guard(|| {
        let (a, out) = (given!(handle a), given!(out out));
        out.set(granule_bytes::new(a.backend().properties(a.usable_device(device)?)?.name));
        Ok(())
    })
}

/// What a device is.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn granule_device_properties(
    a: *mut granule_allocator,
    device: i32,
    out: *mut granule_device_properties_t,
) -> granule_status {
    guard(|| {
        let (a, out) = (given!(handle a), given!(sized_out out));
        let properties = a.backend().properties(a.usable_device(device)?)?;
        out.set(granule_device_properties_t {
            size: 0,
            warp_size: properties.warp_size,
            total_memory: properties.total_memory,
            has_uuid: properties.uuid.is_some(),
            uuid: properties.uuid.unwrap_or_default(),
        });
        Ok(())
    })
}

/// Waits for all work of a device. Blocks.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn granule_device_synchronize(
    a: *mut granule_allocator,
    device: i32,
) -> granule_status {
    guard(|| {
        let a = given!(handle a);
        Ok(a.backend().synchronize_device(a.usable_device(device)?)?)
    })
}

/// Copies (GRANULE_COPY_...), and waits for that. The ranges do not overlap.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn granule_copy(
    a: *mut granule_allocator,
    dst: *mut c_void,
    src: *const c_void,
    bytes: u64,
    kind: i32,
) -> granule_status {
    guard(|| {
        let (a, kind) = (given!(handle a).reachable()?, copy_kind(kind)?);
        if bytes > 0 {
            // SAFETY: rule 2, by what callers promise.
            unsafe { a.backend().copy(address(dst), address(src), bytes, kind) }?;
        }
        Ok(())
    })
}

/// Queues a copy (GRANULE_COPY_...). Both ranges stay good until the stream has passed it, and do not overlap.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn granule_copy_on_stream(
    a: *mut granule_allocator,
    dst: *mut c_void,
    src: *const c_void,
    bytes: u64,
    kind: i32,
    device: i32,
    stream: u64,
) -> granule_status {
    guard(|| {
        let (a, kind) = (given!(handle a), copy_kind(kind)?);
        let stream = a.usable_stream(device, stream)?;
        if bytes > 0 {
            // SAFETY: rule 2, by what callers promise.
            unsafe { a.backend().copy_async(address(dst), address(src), bytes, kind, stream) }?;
        }
        Ok(())
    })
}

/// Queues a fill of device memory with the lowest byte of value.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn granule_memset(
    a: *mut granule_allocator,
    ptr: *mut c_void,
    value: i32,
    bytes: u64,
    device: i32,
    stream: u64,
) -> granule_status {
    guard(|| {
        let a = given!(handle a);
        let stream = a.usable_stream(device, stream)?;
        let [lowest, ..] = value.to_le_bytes();
        if bytes > 0 {
            // SAFETY: rule 2, by what callers promise.
            unsafe { a.backend().memset_async(address(ptr), lowest, bytes, stream) }?;
        }
        Ok(())
    })
}

/// What an address points into. Any value may be asked about.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn granule_pointer_info(
    a: *mut granule_allocator,
    ptr: *const c_void,
    out: *mut granule_pointer_info_t,
) -> granule_status {
    guard(|| {
        let (a, out) = (given!(handle a).reachable()?, given!(sized_out out));
        let info = a.backend().pointer_info(address(ptr))?;
        out.set(granule_pointer_info_t {
            size: 0,
            kind: match info.kind {
                PointerKind::Unmanaged => GRANULE_POINTER_UNKNOWN,
                PointerKind::Device => GRANULE_POINTER_DEVICE,
                PointerKind::Host => GRANULE_POINTER_PINNED_HOST,
                PointerKind::Managed => GRANULE_POINTER_MANAGED,
            },
            device: info.device.map_or(-1, |device| i32::from(device.0)),
            base: pointer(info.base),
        });
        Ok(())
    })
}
