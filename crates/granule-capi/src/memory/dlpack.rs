//! Buffers as DLPack's tensors, for libraries that exchange arrays.
//!
//! The layouts are those of dlpack.h: version 1, and the one without a version that libraries took before.

use super::buffers::granule_buffer;
use crate::boundary::guard::guard;
use crate::boundary::pass::{given, growing, pointer};
use crate::error::{Failure, granule_status};
use granule::DeviceBuffer;
use granule::types::DeviceKind;
use std::ffi::c_void;
use std::ptr::null_mut;
use std::sync::Arc;

/// How a buffer is to be seen: a contiguous tensor from its first byte on, in row-major order.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct granule_tensor {
    /// sizeof(granule_tensor).
    pub size: u32,
    /// How many dimensions it has.
    pub dimensions: u32,
    /// How long each is; null where there is none.
    pub shape: *const i64,
    /// What an element is, as a DLDataTypeCode: 0 signed, 1 unsigned, 2 float, 4 bfloat, 5 complex, 6 bool.
    pub code: u8,
    /// Bits of an element: a multiple of 8.
    pub bits: u8,
    /// Makes a DLManagedTensorVersioned (1.1); else a DLManagedTensor, for consumers that know no versions.
    pub versioned: bool,
    /// Whether a stream is named that is about to use the tensor.
    pub has_consumer: bool,
    /// That stream, of the buffer's device: it is made to wait for the work of the buffer's stream, and its own work is waited for
    /// before the memory is reused.
    pub consumer: u64,
}

growing!(granule_tensor);

#[repr(C)]
struct Device {
    kind: i32,
    id: i32,
}

#[repr(C)]
struct DataType {
    code: u8,
    bits: u8,
    lanes: u16,
}

#[repr(C)]
struct Tensor {
    data: *mut c_void,
    device: Device,
    ndim: i32,
    dtype: DataType,
    shape: *mut i64,
    strides: *mut i64,
    byte_offset: u64,
}

/// DLManagedTensor.
#[repr(C)]
struct Managed {
    tensor: Tensor,
    manager: *mut c_void,
    deleter: unsafe extern "C" fn(*mut Self),
}

/// DLManagedTensorVersioned.
#[repr(C)]
struct ManagedVersioned {
    version: [u32; 2],
    manager: *mut c_void,
    deleter: unsafe extern "C" fn(*mut Self),
    flags: u64,
    tensor: Tensor,
}

const VERSION: [u32; 2] = [1, 1];

/// A tensor, and what it keeps until its deleter is called. A pointer to it is one to the tensor, which comes first.
#[repr(C)]
struct Kept<T> {
    managed: T,
    // The tensor points into it.
    layout: Box<[i64]>,
    memory: Arc<DeviceBuffer<u8>>,
}

impl<T> Kept<T> {
    fn handed_out(managed: T, layout: Box<[i64]>, memory: Arc<DeviceBuffer<u8>>) -> *mut c_void {
        Box::into_raw(Box::new(Self { managed, layout, memory })).cast()
    }
}

/// Ends a tensor that [`granule_buffer_to_dlpack`] made.
unsafe extern "C" fn end<T>(managed: *mut T) {
    guard(|| {
        let kept = managed.cast::<Kept<T>>();
        if !kept.is_null() {
            // SAFETY: DLPack's rule for deleters: the tensor is one of ours, from `handed_out`, and it is given back once.
            let Kept { managed, layout, memory } = *unsafe { Box::from_raw(kept) };
            drop((managed, layout, memory));
        }
        Ok(())
    });
}

/// DLDeviceType of a buffer's device.
fn device_type(kind: DeviceKind) -> i32 {
    match kind {
        DeviceKind::Cuda => 2,
        DeviceKind::Hip => 10,
        // kDLExtDev, which is for devices that are nobody else's.
        _ => 12,
    }
}

/// The shape, and after it the strides in elements.
fn layout(shape: &[i64], bits: u8, room: u64) -> Result<Box<[i64]>, Failure> {
    if bits == 0 || !bits.is_multiple_of(8) {
        return Err(Failure::argument(format!("bits is {bits}: it must be a multiple of 8, and not 0")));
    }
    let mut strides = vec![1; shape.len()];
    let mut elements: i64 = 1;
    for (stride, &length) in strides.iter_mut().zip(shape).rev() {
        *stride = elements.max(1);
        elements = Some(length)
            .filter(|length| *length >= 0)
            .and_then(|length| elements.checked_mul(length))
            .ok_or_else(|| Failure::argument(format!("no tensor has the shape {shape:?}")))?;
    }
    let bytes = elements.unsigned_abs().checked_mul(u64::from(bits / 8));
    if bytes.is_none_or(|bytes| bytes > room) {
        let text = format!(
            "a tensor of the shape {shape:?} with {bits} bits each does not fit: the buffer has {room} bytes"
        );
        return Err(Failure::argument(text));
    }
    Ok(shape.iter().copied().chain(strides).collect())
}

/// Makes a tensor of a buffer: a DLManagedTensor or a DLManagedTensorVersioned, whose deleter ends it, on any thread. The memory is
/// given back once the buffer and all its tensors are gone. A buffer may be handed out any number of times.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn granule_buffer_to_dlpack(
    b: *const granule_buffer,
    tensor: *const granule_tensor,
    out: *mut *mut c_void,
) -> granule_status {
    guard(|| {
        let (b, out) = (given!(handle b), given!(out out));
        let how = given!(sized tensor);
        let (shape, dimensions) = (how.shape, u64::from(how.dimensions));
        let shape = given!(array shape, dimensions);
        let ndim = i32::try_from(shape.len()).map_err(|_| Failure::argument("dimensions is too large"))?;
        let memory = b.memory();
        let mut layout = layout(shape, how.bits, memory.bytes())?;
        if how.has_consumer {
            b.serve(b.stream(how.consumer))?;
        }
        let (shape, strides) = layout.split_at_mut(shape.len());
        let described = Tensor {
            data: pointer(memory.ptr()),
            device: Device {
                kind: device_type(b.engine().backend().kind()),
                id: i32::from(memory.stream().device.0),
            },
            ndim,
            dtype: DataType { code: how.code, bits: how.bits, lanes: 1 },
            shape: shape.as_mut_ptr(),
            strides: strides.as_mut_ptr(),
            byte_offset: 0,
        };
        let memory = Arc::clone(memory);
        let manager = null_mut();
        out.set(if how.versioned {
            let managed =
                ManagedVersioned { version: VERSION, manager, deleter: end, flags: 0, tensor: described };
            Kept::handed_out(managed, layout, memory)
        } else {
            Kept::handed_out(Managed { tensor: described, manager, deleter: end }, layout, memory)
        });
        Ok(())
    })
}
