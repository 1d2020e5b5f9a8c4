//! Memory that several hold, and that goes with the last of them.

use crate::allocator::{granule_allocator, usable};
use crate::boundary::guard::{guard, or};
use crate::boundary::handle::{handles, new_handle};
use crate::boundary::pass::{self, given, pointer};
use crate::error::granule_status;
use granule::backend::EventFlags;
use granule::types::{DevicePtr, Stream};
use granule::{CachingAllocator, DeviceBuffer};
use std::ffi::c_void;
use std::ptr::null_mut;
use std::sync::Arc;

/// Device memory that is given back once the buffer and all tensors made of it are gone.
pub struct granule_buffer {
    memory: Arc<DeviceBuffer<u8>>,
    engine: Arc<CachingAllocator>,
}

handles!(granule_buffer);

impl granule_buffer {
    pub(super) fn memory(&self) -> &Arc<DeviceBuffer<u8>> {
        &self.memory
    }

    pub(super) fn engine(&self) -> &CachingAllocator {
        &self.engine
    }

    /// A stream of the buffer's device.
    pub(super) fn stream(&self, raw: u64) -> Stream {
        Stream { raw, ..self.memory.stream() }
    }

    /// Has a stream wait for what the buffer's own stream has to do by now, and keeps the memory for what the stream does.
    pub(super) fn serve(&self, stream: Stream) -> Result<(), crate::error::Failure> {
        if self.memory.ptr() == DevicePtr::NULL {
            return Ok(());
        }
        let (backend, own) = (self.engine.backend(), self.memory.stream());
        let event = backend.create_event(usable(&self.engine, own.device)?, EventFlags::empty())?;
        let waits = backend.record_event(event, own).and_then(|()| backend.wait_event(stream, event));
        // SAFETY: rule 1: made above, and not used again; waits that are queued on it still hold.
        let destroyed = unsafe { backend.destroy_event(event) };
        waits?;
        destroyed?;
        Ok(self.memory.record_stream(stream)?)
    }
}

/// granule_malloc as a buffer: nobody else can free its memory. Blocks only where the cache has no fit.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn granule_buffer_create(
    a: *mut granule_allocator,
    bytes: u64,
    device: i32,
    stream: u64,
    out: *mut *mut granule_buffer,
) -> granule_status {
    guard(|| {
        let (a, out) = (given!(handle a), given!(out out));
        let memory = Arc::new(DeviceBuffer::new(&a.engine, bytes as usize, a.stream(device, stream)?)?);
        out.set(new_handle(granule_buffer { memory, engine: Arc::clone(&a.engine) }));
        Ok(())
    })
}

/// Where its memory is; null for 0 bytes, and for a null buffer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn granule_buffer_ptr(b: *const granule_buffer) -> *mut c_void {
    or(null_mut(), || Ok(pointer(given!(handle b).memory.ptr())))
}

/// Says that work of a stream uses the buffer: its memory is not reused before that work is done.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn granule_buffer_record_stream(
    b: *const granule_buffer,
    device: i32,
    stream: u64,
) -> granule_status {
    guard(|| {
        let b = given!(handle b);
        let stream = Stream { device: pass::device(device)?, ..b.stream(stream) };
        Ok(b.memory.record_stream(stream)?)
    })
}

/// Ends a buffer; null is fine. Its memory stays for as long as tensors made of it are there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn granule_buffer_destroy(b: *mut granule_buffer) -> granule_status {
    guard(|| {
        drop(given!(taken b));
        Ok(())
    })
}
