//! The device contract over OpenCL.

use crate::driver::{Mark, call, devices, failed, readiness};
use backend_api::types::{BackendId, DeviceIndex, DevicePtr, Event, Stream};
use backend_api::*;
use opencl3::event::{CL_COMPLETE, Event as Command, create_user_event, set_user_event_status};
use opencl3::memory::{CL_MEM_READ_WRITE, svm_alloc, svm_free};
use opencl3::{command_queue::CommandQueue, context::Context, device::Device};
use std::cell::Cell;
use std::collections::{BTreeMap, HashMap, btree_map::Entry};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::{null_mut, with_exposed_provenance_mut as pointer};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// I1. OpenCL aligns to its largest type, 128 bytes: so much more is asked for, and the base moved up.
const ALIGNMENT: u64 = 512;

// OpenCL has no current device: each of its calls names one.
thread_local!(static CURRENT: Cell<DeviceIndex> = const { Cell::new(DeviceIndex(0)) });

/// The devices of one platform.
#[derive(Debug)]
pub struct OpenClBackend {
    id: BackendId,
    /// For programs and kernels, too.
    pub context: Context,
    devices: Vec<Device>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// What was handed out, by base.
    blocks: BTreeMap<u64, Block>,
    /// By handle; default streams by their device.
    queues: HashMap<u64, Queue>,
    /// Those that were destroyed, until their work is done.
    ended: Vec<Queue>,
    /// Each event's last record.
    events: BTreeMap<u64, Mark>,
}

#[derive(Debug)]
struct Block {
    device: DeviceIndex,
    bytes: u64,
    /// The driver's address, at most 512 bytes before the base.
    memory: u64,
}

#[derive(Debug)]
struct Queue {
    device: DeviceIndex,
    queue: CommandQueue,
    last: Mark,
}

impl OpenClBackend {
    /// Starts the backend. Where `GRANULE_OPENCL` is set, only devices with that in their names are taken.
    ///
    /// # Errors
    /// `NoDriver` without the library, `NoDevice` where no device fits.
    pub fn new() -> Result<Arc<Self>> {
        let devices = devices()?;
        let ids: Vec<_> = devices.iter().map(Device::id).collect();
        let context = Context::from_devices(&ids, &[], None, null_mut())
            .map_err(failed("clCreateContext", DeviceIndex(0)))?;
        let backend = Self { id: BackendId::fresh(), context, devices, state: Mutex::default() };
        let default = |device: u16| backend.open(Some(device.into()), DeviceIndex(device)).map(drop);
        (0..backend.device_count()?).try_for_each(default)?;
        Ok(Arc::new(backend))
    }

    /// Queues a command on a stream.
    ///
    /// # Errors
    /// The driver's, and `InvalidValue` for a stream of another backend.
    pub fn submit<E>(&self, call: &'static str, stream: Stream, enqueue: E) -> Result<()>
    where
        E: FnOnce(&CommandQueue) -> opencl3::Result<Command>,
    {
        let mut state = self.lock();
        let Queue { queue, last, .. } = self.queue(call, &mut state, stream)?;
        *last = Some(Arc::new(enqueue(queue).map_err(failed(call, stream.device))?));
        // Other queues may wait for it now.
        queue.flush().map_err(failed(call, stream.device))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn known(&self, call: &'static str, device: DeviceIndex) -> Result<&Device> {
        self.devices.get(usize::from(device.0)).ok_or_else(|| invalid(call, device, "no such device"))
    }

    /// The driver does not say what is free: what was handed out is counted.
    fn info(&self, call: &'static str, state: &State, device: DeviceIndex) -> Result<MemoryInfo> {
        let total = self.known(call, device)?.global_mem_size().map_err(failed(call, device))?;
        let mine = state.blocks.values().filter(|block| block.device == device);
        Ok(MemoryInfo { free: total - mine.map(|block| block.bytes).sum::<u64>(), total })
    }

    /// A new queue, under its handle where no key is given.
    fn open(&self, key: Option<u64>, device: DeviceIndex) -> Result<u64> {
        let id = self.known("create_stream", device)?.id();
        // SAFETY: the device is of this context. Without properties a queue runs in order.
        let queue = unsafe { CommandQueue::create_with_properties(&self.context, id, 0, 0) };
        let queue = queue.map_err(failed("create_stream", device))?;
        let key = key.unwrap_or(queue.get().expose_provenance() as u64);
        self.lock().queues.insert(key, Queue { device, queue, last: None });
        Ok(key)
    }

    /// Rule 1: the queue of a stream of this backend.
    fn queue<'s>(&self, call: &'static str, state: &'s mut State, stream: Stream) -> Result<&'s mut Queue> {
        let key = if stream.raw == 0 { stream.device.0.into() } else { stream.raw };
        let mine = |queue: &&mut Queue| queue.device == stream.device && stream.backend == self.id;
        state.queues.get_mut(&key).filter(mine).ok_or_else(|| invalid(call, stream.device, "unknown stream"))
    }

    /// What was queued last on a stream.
    fn last(&self, call: &'static str, stream: Stream) -> Result<Mark> {
        Ok(self.queue(call, &mut self.lock(), stream)?.last.clone())
    }

    /// Rule 1: the last record of an event of this backend.
    fn record(&self, call: &'static str, event: Event) -> Result<Mark> {
        let record = self.lock().events.get(&event.raw).filter(|_| event.backend == self.id).cloned();
        record.ok_or_else(|| invalid(call, event.device, "unknown event"))
    }
}

/// The block that an address lies in, with its base.
fn block_of(state: &State, ptr: DevicePtr) -> Option<(DevicePtr, &Block)> {
    let (&base, block) = state.blocks.range(..=ptr.0).next_back()?;
    (ptr.0 - base < block.bytes).then_some((DevicePtr(base), block))
}

/// Later work of a queue waits for a command.
fn wait(queue: &CommandQueue, command: Option<&Command>) -> opencl3::Result<Command> {
    // SAFETY: the event is alive.
    unsafe { queue.enqueue_barrier_with_wait_list(command.map(Command::get).as_slice()) }
}

fn invalid(call: &'static str, device: DeviceIndex, detail: &str) -> BackendError {
    BackendError::new(ErrorKind::InvalidValue, 0, call, device, detail)
}

/// Rule 4.
fn positive(call: &'static str, device: DeviceIndex, bytes: u64) -> Result<()> {
    if bytes == 0 { Err(invalid(call, device, "0 bytes")) } else { Ok(()) }
}

// SAFETY: I1: the driver's memory is disjoint, and the base is moved up inside what was asked for more. I2, I3: a queue
// runs in order, so that its last command is done when all are. I4: there is no physical memory.
unsafe impl Backend for OpenClBackend {
    fn id(&self) -> BackendId {
        self.id
    }

    fn name(&self) -> &'static str {
        "opencl"
    }

    fn device_count(&self) -> Result<u16> {
        Ok(self.devices.len() as u16)
    }

    fn current_device(&self) -> Result<DeviceIndex> {
        Ok(CURRENT.get())
    }

    fn set_device(&self, device: DeviceIndex) -> Result<()> {
        self.known("set_device", device).map(|_| CURRENT.set(device))
    }

    fn synchronize_device(&self, device: DeviceIndex) -> Result<()> {
        self.known("synchronize_device", device)?;
        let state = self.lock();
        let all = state.queues.values().chain(&state.ended).filter(|queue| queue.device == device);
        let marks: Vec<Mark> = all.map(|queue| queue.last.clone()).collect();
        drop(state);
        marks.iter().flatten().try_for_each(|it| it.wait()).map_err(failed("synchronize_device", device))
    }

    fn malloc(&self, device: DeviceIndex, bytes: u64) -> Result<DevicePtr> {
        let mut state = self.lock();
        let free = self.info("malloc", &state, device)?.free;
        positive("malloc", device, bytes)?;
        let (context, flags) = (self.context.get(), CL_MEM_READ_WRITE);
        // SAFETY: the flags are valid.
        let ask = || unsafe { svm_alloc(context, flags, (bytes + ALIGNMENT) as usize, 0) }.ok();
        let full = || BackendError::new(ErrorKind::OutOfMemory, 0, "malloc", device, "no memory left");
        let memory = (bytes <= free).then(ask).flatten().ok_or_else(full)?.expose_provenance() as u64;
        let base = memory.next_multiple_of(ALIGNMENT);
        state.blocks.insert(base, Block { device, bytes, memory });
        Ok(DevicePtr(base))
    }

    unsafe fn free(&self, device: DeviceIndex, ptr: DevicePtr) -> Result<()> {
        self.known("free", device)?;
        let mut state = self.lock();
        let memory = match state.blocks.entry(ptr.0) {
            _ if ptr.is_null() => return Ok(()),
            Entry::Occupied(block) if block.get().device == device => block.remove().memory,
            _ => return Err(invalid("free", device, "not the base of a live allocation")),
        };
        // SAFETY: the driver handed it out, it was in the list once, and no work uses it (rule 3).
        let freed = unsafe { svm_free(self.context.get(), pointer(memory as usize)) };
        freed.map_err(|code| failed("free", device)(code.into()))
    }

    fn memory_info(&self, device: DeviceIndex) -> Result<MemoryInfo> {
        self.info("memory_info", &self.lock(), device)
    }

    fn pointer_info(&self, ptr: DevicePtr) -> Result<PointerInfo> {
        let info = |kind, device, base| PointerInfo { kind, device, base };
        let unmanaged = info(PointerKind::Unmanaged, None, DevicePtr::NULL);
        let known = |(base, block): (_, &Block)| info(PointerKind::Device, Some(block.device), base);
        Ok(block_of(&self.lock(), ptr).map_or(unmanaged, known))
    }

    fn address_range(&self, ptr: DevicePtr) -> Result<AddressRange> {
        let range = |(base, block): (_, &Block)| AddressRange { base, bytes: block.bytes };
        let known = block_of(&self.lock(), ptr).map(range);
        known.ok_or_else(|| invalid("address_range", CURRENT.get(), "not allocated"))
    }

    unsafe fn copy_async(
        &self,
        dst: DevicePtr,
        src: DevicePtr,
        bytes: u64,
        _kind: CopyKind,
        stream: Stream,
    ) -> Result<()> {
        positive("copy_async", stream.device, bytes)?;
        let (to, from) = (pointer(dst.0 as usize), pointer(src.0 as usize));
        // SAFETY: rule 2. Either side may be the host's.
        let copy = |it: &CommandQueue| unsafe { it.enqueue_svm_mem_cpy(0, to, from, bytes as usize, &[]) };
        self.submit("copy_async", stream, copy)
    }

    unsafe fn memset_async(&self, dst: DevicePtr, value: u8, bytes: u64, stream: Stream) -> Result<()> {
        positive("memset_async", stream.device, bytes)?;
        let to = pointer(dst.0 as usize);
        // SAFETY: rule 2. The driver keeps the value.
        let fill = |it: &CommandQueue| unsafe { it.enqueue_svm_mem_fill(to, &[value], bytes as usize, &[]) };
        self.submit("memset_async", stream, fill)
    }

    fn create_stream(&self, device: DeviceIndex, _priority: i32) -> Result<Stream> {
        Ok(Stream { raw: self.open(None, device)?, device, backend: self.id })
    }

    unsafe fn destroy_stream(&self, stream: Stream) -> Result<()> {
        let mut state = self.lock();
        self.queue("destroy_stream", &mut state, stream)?;
        let stays = || invalid("destroy_stream", stream.device, "a default stream stays");
        let queue = state.queues.remove(&stream.raw).ok_or_else(stays)?;
        state.ended.retain(|queue| readiness(&queue.last) == Ok(Readiness::NotReady));
        state.ended.push(queue);
        Ok(())
    }

    fn query_stream(&self, stream: Stream) -> Result<Readiness> {
        readiness(&self.last("query_stream", stream)?).map_err(failed("query_stream", stream.device))
    }

    fn synchronize_stream(&self, stream: Stream) -> Result<()> {
        let last = self.last("synchronize_stream", stream)?;
        last.map_or(Ok(()), |it| it.wait()).map_err(failed("synchronize_stream", stream.device))
    }

    fn wait_event(&self, stream: Stream, event: Event) -> Result<()> {
        let record = self.record("wait_event", event)?;
        self.submit("wait_event", stream, |queue| wait(queue, record.as_deref()))
    }

    fn launch_host_function(&self, stream: Stream, function: HostFunction) -> Result<()> {
        self.submit("launch_host_function", stream, |queue| {
            let by_hand = || create_user_event(self.context.get()).map(Command::new);
            let (asked, done) = (by_hand()?, Arc::new(by_hand()?));
            let (reached, after) = (wait(queue, Some(&asked))?, Arc::clone(&done));
            let task = move || {
                // A panic must not reach the driver.
                drop(catch_unwind(AssertUnwindSafe(function)));
                let _ = set_user_event_status(after.get(), CL_COMPLETE);
            };
            let called = call(&reached, Box::new(task));
            // Not before: OpenCL calls a function that is due already on this thread.
            set_user_event_status(asked.get(), CL_COMPLETE)?;
            called.and_then(|()| wait(queue, Some(&done)))
        })
    }

    fn create_event(&self, device: DeviceIndex, _: EventFlags) -> Result<Event> {
        self.known("create_event", device)?;
        let mut state = self.lock();
        let raw = state.events.last_key_value().map_or(1, |(last, _)| last + 1);
        state.events.insert(raw, None);
        Ok(Event { raw, device, backend: self.id })
    }

    unsafe fn destroy_event(&self, event: Event) -> Result<()> {
        self.record("destroy_event", event).map(|_| drop(self.lock().events.remove(&event.raw)))
    }

    fn record_event(&self, event: Event, stream: Stream) -> Result<()> {
        let (_, last) = (self.record("record_event", event)?, self.last("record_event", stream)?);
        if event.device != stream.device {
            return Err(invalid("record_event", stream.device, "the event is of another device"));
        }
        self.lock().events.insert(event.raw, last);
        Ok(())
    }

    fn query_event(&self, event: Event) -> Result<Readiness> {
        readiness(&self.record("query_event", event)?).map_err(failed("query_event", event.device))
    }

    fn synchronize_event(&self, event: Event) -> Result<()> {
        let record = self.record("synchronize_event", event)?;
        record.map_or(Ok(()), |it| it.wait()).map_err(failed("synchronize_event", event.device))
    }
}
