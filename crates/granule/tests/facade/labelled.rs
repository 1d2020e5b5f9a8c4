//! The labelled types over a simulated device: nothing that safe code does with them breaks a rule of the contract.

use granule::backend::{Backend, BackendError, CaptureMode, CopyKind, ErrorKind, Result};
use granule::config::Settings;
use granule::host::HostOptions;
use granule::labelled::{CachingAllocator, Device, GraphCapture, HostAllocator, Label, MemoryPool};
use granule::openreg::{Clock, MemoryMode, OpenReg, OpenRegConfig};
use granule::pool::PoolOptions;
use granule::types::{DeviceIndex, DevicePtr, Stream};
use granule_conformance::interpose::{Hook, Interposed};
use std::cell::Cell;
use std::sync::{Arc, OnceLock};

/// A simulated device of this file.
#[derive(Clone, Copy, Debug)]
struct Simulated;

impl Label for Simulated {
    fn backend() -> Result<Arc<dyn Backend>> {
        static STARTED: OnceLock<Arc<dyn Backend>> = OnceLock::new();
        let started = STARTED.get_or_init(|| {
            let config = OpenRegConfig::default().devices(1).capacity(64 << 20);
            let machine = OpenReg::new(config.memory(MemoryMode::Mapped).clock(Clock::Workers)).unwrap();
            Arc::new(Interposed::new(machine, Late))
        });
        Ok(Arc::clone(started))
    }
}

thread_local! {
    /// A copy that this thread queued and that has not run.
    static QUEUED: Cell<Option<(DevicePtr, DevicePtr, u64, CopyKind)>> = const { Cell::new(None) };
    /// Whether the thread's next copy stays in its queue, and the wait for it fails.
    static LATE: Cell<bool> = const { Cell::new(false) };
}

/// A driver whose copies may be late.
#[derive(Debug)]
struct Late;

impl Hook for Late {
    unsafe fn copy_async(
        &self,
        inner: &dyn Backend,
        dst: DevicePtr,
        src: DevicePtr,
        bytes: u64,
        kind: CopyKind,
        stream: Stream,
    ) -> Result<()> {
        if LATE.get() {
            QUEUED.set(Some((dst, src, bytes, kind)));
            return Ok(());
        }
        // SAFETY: the caller's promise, passed on.
        unsafe { inner.copy_async(dst, src, bytes, kind, stream) }
    }

    fn synchronize_stream(&self, inner: &dyn Backend, stream: Stream) -> Result<()> {
        if LATE.get() {
            return Err(BackendError::new(ErrorKind::Other, 7, "wait", stream.device, "not now"));
        }
        inner.synchronize_stream(stream)
    }
}

fn device() -> Device<Simulated> {
    Device::new(0).unwrap()
}

#[test]
fn a_stream_that_the_allocator_may_still_wait_for_is_not_destroyed() {
    let device = device();
    let allocator = CachingAllocator::<Simulated>::new(Settings::default()).unwrap();
    let (owner, user) = (device.create_stream(0).unwrap(), device.create_stream(0).unwrap());
    let handles = [owner.handle(), user.handle()];
    let buffer = allocator.allocate::<u8>(4096, &owner).unwrap();
    buffer.record_stream(&user).unwrap();
    // The stream that was recorded goes before the memory, the owner before the cache.
    drop(user);
    drop(buffer);
    drop(owner);
    for handle in handles {
        assert!(
            Simulated::backend().unwrap().query_stream(handle).is_ok(),
            "a destroyed stream is still in use"
        );
    }
    allocator.empty_cache().unwrap();
    assert_eq!(allocator.stats(DeviceIndex(0)).unwrap().reserved_bytes.all.current, 0);
}

#[test]
fn a_stream_given_up_is_handed_out_again_but_not_while_it_is_captured() {
    // A priority of its own keeps other tests' streams apart.
    let (device, backend) = (device(), Simulated::backend().unwrap());
    let first = device.create_stream(-7).unwrap();
    let handle = first.handle();
    let other = first.clone();
    drop(first);
    let second = device.create_stream(-7).unwrap();
    assert_ne!(second.handle(), handle, "a clone still has it");
    drop(other);
    let again = device.create_stream(-7).unwrap();
    assert_eq!(again.handle(), handle);
    backend.capture().unwrap().begin(handle, CaptureMode::Relaxed).unwrap();
    drop(again);
    assert_ne!(device.create_stream(-7).unwrap().handle(), handle);
}

#[test]
fn the_hosts_bytes_are_the_callers_again_also_where_the_wait_fails() {
    let device = device();
    let allocator = CachingAllocator::<Simulated>::new(Settings::default()).unwrap();
    let stream = device.create_stream(0).unwrap();
    let mut buffer = allocator.allocate::<u8>(4, &stream).unwrap();
    buffer.write(&[1, 2, 3, 4]).unwrap();
    LATE.set(true);
    let mut read = [9; 4];
    let refused = buffer.read(&mut read);
    LATE.set(false);
    assert!(refused.is_err());
    let (dst, src, bytes, kind) = QUEUED.take().unwrap();
    // SAFETY: rule 2: the buffer is live, and so are the host's bytes: `read`, or what was never given back.
    unsafe { Simulated::backend().unwrap().copy(dst, src, bytes, kind) }.unwrap();
    assert_eq!(read, [9; 4], "the queued copy wrote to bytes that were no longer lent to it");
    buffer.read(&mut read).unwrap();
    assert_eq!(read, [1, 2, 3, 4]);
}

/// The engine is in safe hands: no call of it takes a buffer's memory away, so no two buffers have the same.
#[test]
fn a_buffers_memory_is_freed_by_the_buffer_alone() {
    let device = device();
    let allocator = CachingAllocator::<Simulated>::new(Settings::default()).unwrap();
    let stream = device.create_stream(0).unwrap();
    let mut one = allocator.allocate::<u8>(4096, &stream).unwrap();
    let refused = allocator.engine().free(one.ptr()).unwrap_err().to_string();
    assert!(refused.contains("a DeviceBuffer has the block"), "{refused}");
    let mut other = allocator.allocate::<u8>(4096, &stream).unwrap();
    other.fill_bytes(0x55).unwrap();
    one.fill_bytes(0xAA).unwrap();
    let mut read = [0; 4096];
    other.read(&mut read).unwrap();
    assert_eq!(read, [0x55; 4096]);
}

#[test]
fn the_labelled_allocator_has_the_policy_of_its_settings() {
    let granule = Settings::parse("policy:granule").unwrap();
    let allocator = CachingAllocator::<Simulated>::new(granule.clone()).unwrap();
    assert_eq!(allocator.engine().policy_name(), "granule");
    let plain = CachingAllocator::<Simulated>::new(Settings::default()).unwrap();
    let refused = plain.configure(granule).unwrap_err();
    assert!(matches!(refused, granule::AllocError::PolicyFixed { .. }), "{refused}");
    assert_eq!(plain.settings(), Settings::default());
}

#[test]
fn copies_go_from_buffer_to_buffer_in_a_streams_order() {
    let device = device();
    let allocator = CachingAllocator::<Simulated>::new(Settings::default()).unwrap();
    let (first, second) = (device.create_stream(0).unwrap(), device.create_stream(0).unwrap());
    let mut source = allocator.allocate::<u8>(4096, &first).unwrap();
    source.fill_bytes(3).unwrap();
    first.synchronize().unwrap();
    let mut copy = allocator.allocate::<u8>(8192, &second).unwrap();
    // Held up, so that the copy is under way.
    let (open, gate) = std::sync::mpsc::channel::<()>();
    let wait = Box::new(move || {
        let _ = gate.recv();
    });
    Simulated::backend().unwrap().launch_host_function(second.handle(), wait).unwrap();
    // SAFETY: the first stream was waited for, and gets nothing more for the source.
    unsafe { copy.copy_from(&source, &second) }.unwrap();
    let freed = source.ptr();
    drop(source);
    assert_ne!(allocator.allocate::<u8>(4096, &first).unwrap().ptr(), freed, "the copy still reads it");
    drop(open);
    let host = HostAllocator::<Simulated>::new(&Settings::default(), HostOptions::default()).unwrap();
    let mut read = host.zeroed(4096).unwrap();
    // SAFETY: nobody looks at it before the stream has been waited for.
    unsafe { copy.read_async(&mut read) }.unwrap();
    second.synchronize().unwrap();
    assert_eq!(read.as_slice(), [3; 4096]);
    let written = host.copied(&[8; 16]).unwrap();
    // SAFETY: nobody writes it.
    unsafe { copy.write_async(&written) }.unwrap();
    let mut bytes = [0; 17];
    copy.read(&mut bytes).unwrap();
    assert_eq!((&bytes[..16], bytes[16]), ([8; 16].as_slice(), 3));
    let mut short = allocator.allocate::<u8>(512, &second).unwrap();
    // SAFETY: all is one stream's.
    let refused = unsafe { short.copy_from(&copy, &second) }.unwrap_err().to_string();
    assert!(refused.contains("8192 bytes do not fit"), "{refused}");
}

#[test]
fn pools_and_graphs_have_a_label_too() {
    let device = device();
    let allocator = CachingAllocator::<Simulated>::new(Settings::default()).unwrap();
    let stream = device.create_stream(0).unwrap();
    let pool = MemoryPool::new(&allocator, device.index(), PoolOptions::default()).unwrap();
    let scope = pool.enter().unwrap();
    let own = allocator.allocate::<u64>(512, &stream).unwrap();
    drop(scope);
    assert_eq!(pool.stats().unwrap().allocated_bytes, own.bytes());
    let capture = GraphCapture::begin(&allocator, &stream, CaptureMode::ThreadLocal, None).unwrap();
    let mut filled = allocator.allocate::<u8>(512, &stream).unwrap();
    filled.fill_bytes(6).unwrap();
    let mut graph = capture.end().unwrap();
    // SAFETY: all memory that it uses is of its own pool.
    unsafe { graph.launch(&stream) }.unwrap();
    let mut read = [0; 512];
    filled.read(&mut read).unwrap();
    assert_eq!(read, [6; 512]);
}

/// Names from before the contract was a crate of its own.
#[test]
fn the_contract_is_the_same_under_all_its_names() {
    use std::any::TypeId;
    fn backend(_: &dyn alloc_core::backend::Backend) -> TypeId {
        TypeId::of::<dyn backend_api::Backend>()
    }
    assert_eq!(backend(&**Simulated::backend().as_ref().unwrap()), TypeId::of::<dyn Backend>());
    let errors = [
        TypeId::of::<alloc_core::backend::BackendError>(),
        TypeId::of::<granule::backend::BackendError>(),
        TypeId::of::<backend_api::BackendError>(),
    ];
    assert_eq!(errors, [errors[0]; 3]);
    let streams = [
        TypeId::of::<alloc_core::types::Stream>(),
        TypeId::of::<granule::types::Stream>(),
        TypeId::of::<backend_api::types::Stream>(),
    ];
    assert_eq!(streams, [streams[0]; 3]);
}
