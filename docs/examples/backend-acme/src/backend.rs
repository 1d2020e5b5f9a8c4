//! The device contract for acme.

use crate::memory::CAPACITY;
use crate::queue::{Machine, Mark, Queue, Work};
use backend_api::types::{BackendId, DeviceIndex, DevicePtr, Event, Stream};
use backend_api::*;
use std::cell::Cell;
use std::sync::Arc;

/// REPLACE by what the driver counts.
const DEVICES: u16 = 2;

thread_local! {
    /// REPLACE by the driver's own current device.
    static CURRENT: Cell<DeviceIndex> = const { Cell::new(DeviceIndex(0)) };
}

/// The accelerator.
pub struct AcmeBackend {
    id: BackendId,
    machine: Arc<Machine>,
}

impl std::fmt::Debug for AcmeBackend {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AcmeBackend").field("id", &self.id).finish_non_exhaustive()
    }
}

impl AcmeBackend {
    /// Starts the backend.
    ///
    /// # Errors
    /// `ResourceLimit` where a thread cannot be started.
    pub fn new() -> Result<Arc<Self>> {
        // REPLACE by loading the driver: `NoDriver` where the library or a symbol of it is missing. CUDA `cuInit`,
        // HIP `hipInit`.
        let machine = Arc::new(Machine::default());
        machine.lock().last = DEVICES.into();
        let backend = Self { id: BackendId::fresh(), machine };
        for device in 0..DEVICES {
            backend.open_queue(device.into(), DeviceIndex(device))?;
        }
        Ok(Arc::new(backend))
    }

    fn open_queue(&self, key: u64, device: DeviceIndex) -> Result<()> {
        let opened = self.machine.open(key, device.0);
        opened
            .map_err(|e| BackendError::new(ErrorKind::ResourceLimit, 0, "open_queue", device, e.to_string()))
    }

    /// Rule 1: the queue of a stream of this backend. The default stream's key is its device.
    fn queue(&self, call: &'static str, stream: Stream) -> Result<u64> {
        let key = if stream.raw == 0 { stream.device.0.into() } else { stream.raw };
        let of = |queue: &Queue| queue.device == stream.device.0 && !queue.closed;
        let known = self.machine.lock().queues.get(&key).is_some_and(of);
        if known && stream.backend == self.id {
            Ok(key)
        } else {
            Err(invalid(call, stream.device, "unknown stream"))
        }
    }

    /// Rule 1: the last record of an event of this backend.
    fn mark(&self, call: &'static str, event: Event) -> Result<Option<Mark>> {
        match self.machine.lock().events.get(&event.raw) {
            Some(mark) if event.backend == self.id => Ok(*mark),
            _ => Err(invalid(call, event.device, "unknown event")),
        }
    }

    fn submit(&self, call: &'static str, stream: Stream, work: Work) -> Result<()> {
        if let Work::Copy { bytes: 0, .. } | Work::Fill { bytes: 0, .. } = work {
            return Err(invalid(call, stream.device, "0 bytes"));
        }
        let queued = self.machine.submit(self.queue(call, stream)?, work);
        if queued { Ok(()) } else { Err(invalid(call, stream.device, "the stream is being destroyed")) }
    }

    fn take(
        &self,
        call: &'static str,
        device: Option<DeviceIndex>,
        bytes: u64,
        align: usize,
    ) -> Result<DevicePtr> {
        let owner = device.unwrap_or_default();
        if bytes == 0 {
            return Err(invalid(call, owner, "0 bytes"));
        }
        let base = self.machine.lock().memory.take(device.map(|device| device.0), bytes, align);
        let full = || BackendError::new(ErrorKind::OutOfMemory, 0, call, owner, "no memory left");
        base.map(DevicePtr).ok_or_else(full)
    }

    fn give(&self, call: &'static str, device: Option<DeviceIndex>, ptr: DevicePtr) -> Result<()> {
        if ptr.is_null() || self.machine.lock().memory.give(device.map(|device| device.0), ptr.0) {
            return Ok(());
        }
        Err(invalid(call, device.unwrap_or_default(), "not the base of a live allocation"))
    }
}

/// Lets the threads end.
impl Drop for AcmeBackend {
    fn drop(&mut self) {
        let keys: Vec<u64> = self.machine.lock().queues.keys().copied().collect();
        keys.into_iter().for_each(|key| self.machine.close(key));
    }
}

fn invalid(call: &'static str, device: DeviceIndex, detail: &str) -> BackendError {
    BackendError::new(ErrorKind::InvalidValue, 0, call, device, detail)
}

fn exists(call: &'static str, device: DeviceIndex) -> Result<()> {
    if device.0 < DEVICES { Ok(()) } else { Err(invalid(call, device, "no such device")) }
}

fn readiness(ready: bool) -> Readiness {
    if ready { Readiness::Ready } else { Readiness::NotReady }
}

// SAFETY: I1: the host's allocator hands memory out once, with the alignment it is asked for. I2, I3: a mark is
// passed when its queue has taken out every task up to it, and a task is taken out after it ran. I4: there is no
// physical memory. REPLACE by why the driver keeps them.
unsafe impl Backend for AcmeBackend {
    fn id(&self) -> BackendId {
        self.id
    }

    fn name(&self) -> &'static str {
        "acme"
    }

    // REPLACE: cuDeviceGetCount, hipGetDeviceCount.
    fn device_count(&self) -> Result<u16> {
        Ok(DEVICES)
    }

    // REPLACE: cuCtxGetDevice, hipGetDevice.
    fn current_device(&self) -> Result<DeviceIndex> {
        Ok(CURRENT.get())
    }

    // REPLACE: cuCtxSetCurrent with the primary context, hipSetDevice. In other methods a `DeviceGuard` around the
    // driver's calls keeps rule 5.
    fn set_device(&self, device: DeviceIndex) -> Result<()> {
        exists("set_device", device)?;
        CURRENT.set(device);
        Ok(())
    }

    // REPLACE: cuCtxSynchronize, hipDeviceSynchronize.
    fn synchronize_device(&self, device: DeviceIndex) -> Result<()> {
        exists("synchronize_device", device)?;
        let state = self.machine.lock();
        let mine = state.queues.iter().filter(|(_, queue)| queue.device == device.0);
        let marks: Vec<Mark> = mine.map(|(&key, _)| (key, state.last)).collect();
        drop(state);
        marks.into_iter().for_each(|mark| self.machine.wait_for(mark));
        Ok(())
    }

    // REPLACE: cuMemAlloc, hipMalloc.
    fn malloc(&self, device: DeviceIndex, bytes: u64) -> Result<DevicePtr> {
        exists("malloc", device)?;
        self.take("malloc", Some(device), bytes, 512)
    }

    // REPLACE: cuMemFree, hipFree. Null is Ok, whatever the driver says of it.
    unsafe fn free(&self, device: DeviceIndex, ptr: DevicePtr) -> Result<()> {
        exists("free", device)?;
        self.give("free", Some(device), ptr)
    }

    // REPLACE: cuMemGetInfo, hipMemGetInfo.
    fn memory_info(&self, device: DeviceIndex) -> Result<MemoryInfo> {
        exists("memory_info", device)?;
        Ok(MemoryInfo { free: self.machine.lock().memory.free_bytes(device.0), total: CAPACITY })
    }

    // REPLACE: cuPointerGetAttribute, hipPointerGetAttributes. An unknown address is no error: Unmanaged.
    fn pointer_info(&self, ptr: DevicePtr) -> Result<PointerInfo> {
        Ok(match self.machine.lock().memory.block_of(ptr.0) {
            None => PointerInfo { kind: PointerKind::Unmanaged, device: None, base: DevicePtr::NULL },
            Some((base, block)) => {
                let kind = if block.device.is_some() { PointerKind::Device } else { PointerKind::Host };
                PointerInfo { kind, device: block.device.map(DeviceIndex), base: DevicePtr(base) }
            }
        })
    }

    // REPLACE: cuMemGetAddressRange, hipMemGetAddressRange.
    fn address_range(&self, ptr: DevicePtr) -> Result<AddressRange> {
        match self.machine.lock().memory.block_of(ptr.0) {
            Some((base, block)) => Ok(AddressRange { base: DevicePtr(base), bytes: block.bytes }),
            None => Err(invalid("address_range", DeviceIndex(0), "not allocated")),
        }
    }

    // REPLACE: cuMemcpyHtoDAsync and so on, hipMemcpyAsync.
    unsafe fn copy_async(
        &self,
        dst: DevicePtr,
        src: DevicePtr,
        bytes: u64,
        _kind: CopyKind,
        stream: Stream,
    ) -> Result<()> {
        self.submit("copy_async", stream, Work::Copy { dst: dst.0, src: src.0, bytes })
    }

    // REPLACE: cuMemsetD8Async, hipMemsetAsync.
    unsafe fn memset_async(&self, dst: DevicePtr, value: u8, bytes: u64, stream: Stream) -> Result<()> {
        self.submit("memset_async", stream, Work::Fill { dst: dst.0, value, bytes })
    }

    // REPLACE: cuStreamCreateWithPriority, hipStreamCreateWithPriority, non-blocking; clamp the priority.
    fn create_stream(&self, device: DeviceIndex, _priority: i32) -> Result<Stream> {
        exists("create_stream", device)?;
        let raw = self.machine.lock().next();
        self.open_queue(raw, device)?;
        Ok(Stream { raw, device, backend: self.id })
    }

    // REPLACE: cuStreamDestroy, hipStreamDestroy. It must not wait.
    unsafe fn destroy_stream(&self, stream: Stream) -> Result<()> {
        let key = self.queue("destroy_stream", stream)?;
        if stream.raw == 0 {
            return Err(invalid("destroy_stream", stream.device, "the default stream stays"));
        }
        self.machine.close(key);
        Ok(())
    }

    // REPLACE: cuStreamQuery, hipStreamQuery. "Not ready" is no error; clear it where the driver keeps it.
    fn query_stream(&self, stream: Stream) -> Result<Readiness> {
        let key = self.queue("query_stream", stream)?;
        let state = self.machine.lock();
        Ok(readiness(state.passed((key, state.last))))
    }

    // REPLACE: cuStreamSynchronize, hipStreamSynchronize.
    fn synchronize_stream(&self, stream: Stream) -> Result<()> {
        let key = self.queue("synchronize_stream", stream)?;
        let last = self.machine.lock().last;
        self.machine.wait_for((key, last));
        Ok(())
    }

    // REPLACE: cuStreamWaitEvent, hipStreamWaitEvent. The wait is for the record that the event has now.
    fn wait_event(&self, stream: Stream, event: Event) -> Result<()> {
        self.queue("wait_event", stream)?;
        let mark = self.mark("wait_event", event)?;
        mark.map_or(Ok(()), |mark| self.submit("wait_event", stream, Work::Wait(mark)))
    }

    // REPLACE: cuLaunchHostFunc, hipLaunchHostFunc, with the boxed function as user data.
    fn launch_host_function(&self, stream: Stream, function: HostFunction) -> Result<()> {
        self.submit("launch_host_function", stream, Work::Call(function))
    }

    // REPLACE: cuEventCreate, hipEventCreateWithFlags.
    fn create_event(&self, device: DeviceIndex, _: EventFlags) -> Result<Event> {
        exists("create_event", device)?;
        let mut state = self.machine.lock();
        let raw = state.next();
        state.events.insert(raw, None);
        Ok(Event { raw, device, backend: self.id })
    }

    // REPLACE: cuEventDestroy, hipEventDestroy.
    unsafe fn destroy_event(&self, event: Event) -> Result<()> {
        self.mark("destroy_event", event)?;
        self.machine.lock().events.remove(&event.raw);
        Ok(())
    }

    // REPLACE: cuEventRecord, hipEventRecord. Another device's stream is InvalidValue, whatever the driver says.
    fn record_event(&self, event: Event, stream: Stream) -> Result<()> {
        self.mark("record_event", event)?;
        let key = self.queue("record_event", stream)?;
        if event.device != stream.device {
            return Err(invalid("record_event", stream.device, "the event is of another device"));
        }
        let mut state = self.machine.lock();
        let last = state.last;
        state.events.insert(event.raw, Some((key, last)));
        Ok(())
    }

    // REPLACE: cuEventQuery, hipEventQuery.
    fn query_event(&self, event: Event) -> Result<Readiness> {
        let mark = self.mark("query_event", event)?;
        Ok(readiness(mark.is_none_or(|mark| self.machine.lock().passed(mark))))
    }

    // REPLACE: cuEventSynchronize, hipEventSynchronize.
    fn synchronize_event(&self, event: Event) -> Result<()> {
        let mark = self.mark("synchronize_event", event)?;
        mark.into_iter().for_each(|mark| self.machine.wait_for(mark));
        Ok(())
    }

    // What has a default is worth adding where the driver says more: `error_name` (and `clear_error` where it keeps the last
    // error), `properties`, `attribute`, `has_primary_context`, `copy`, `priority_range`, `elapsed_ms`.

    // A chip that pins no host memory leaves this family out.
    fn pinned_host(&self) -> std::result::Result<&dyn PinnedHost, Unsupported> {
        Ok(self)
    }

    // Families: `fn virtual_memory(&self)` and so on answer `Ok(self)` once their trait is implemented.
}

impl PinnedHost for AcmeBackend {
    // REPLACE: cuMemHostAlloc, hipHostMalloc.
    fn host_malloc(&self, bytes: u64, _flags: HostFlags) -> Result<DevicePtr> {
        self.take("host_malloc", None, bytes, 4096)
    }

    // REPLACE: cuMemFreeHost, hipHostFree. Null is Ok.
    unsafe fn host_free(&self, ptr: DevicePtr) -> Result<()> {
        self.give("host_free", None, ptr)
    }
}
