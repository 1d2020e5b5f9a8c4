//! Buffers: memory that frees itself.

use alloc_core::backend::{Backend, ErrorKind};
use alloc_core::config::Settings;
use alloc_core::history::HistoryOptions;
use alloc_core::snapshot::Action;
use alloc_core::types::{DevicePtr, GIB, KIB, Stream};
use alloc_core::{AllocError, DeviceBuffer, HostAllocator, PinnedBuffer};
use backend_openreg::{Call, Clock, MemoryMode, OpenRegConfig};
use granule_tests::policy::Policy;
use granule_tests::rig::{DEVICE, on_each};
use granule_tests::setup::{of, of_bytes, roomy};
use granule_tests::with_policy;
use std::any::Any;
use std::cell::RefCell;
use std::sync::{Arc, OnceLock};

fn a_buffer_frees_itself_and_can_be_given_up<P: Policy>() {
    let (_device, allocator, stream) = roomy::<P>(Settings::default());
    let live = || allocator.stats(DEVICE).unwrap().allocation.all.current;
    let buffer = DeviceBuffer::<u8>::new(&allocator, 10 << 10, stream).unwrap();
    assert_eq!((live(), buffer.bytes(), buffer.is_empty()), (1, 10 * KIB, false));
    drop(buffer);
    assert_eq!(live(), 0);
    let references = Arc::strong_count(&allocator);
    let raw = DeviceBuffer::<u8>::new(&allocator, 10 << 10, stream).unwrap().into_raw();
    assert_eq!((live(), Arc::strong_count(&allocator)), (1, references));
    allocator.free(raw).unwrap();
    assert!(DeviceBuffer::<u8>::new(&allocator, 0, stream).unwrap().is_empty());
}

fn a_buffer_waits_for_the_streams_it_was_used_on<P: Policy>() {
    let (device, allocator, home) = with_policy::<P>(of_bytes(GIB), Settings::default());
    let side = device.create_stream(DEVICE, 0).unwrap();
    let buffer = DeviceBuffer::<u8>::new(&allocator, 1 << 20, home).unwrap();
    buffer.record_stream(side).unwrap();
    drop(buffer);
    assert_eq!(device.calls().get(Call::RecordEvent), 1);
}

thread_local! {
    static KEPT: RefCell<Option<Box<dyn Any>>> = const { RefCell::new(None) };
}

/// A buffer dropped with its thread panicked in debug builds.
fn a_buffer_may_go_with_its_thread<P: Policy>() {
    let (_device, allocator, home) = with_policy::<P>(of(100), Settings::default());
    let inside = Arc::clone(&allocator);
    let thread = std::thread::spawn(move || {
        KEPT.with_borrow_mut(|kept| {
            *kept = Some(Box::new(DeviceBuffer::<u8>::new(&inside, 100, home).unwrap()))
        });
    });
    thread.join().unwrap();
    assert_eq!(allocator.stats(DEVICE).unwrap().allocation.all.current, 0);
}

fn mapped() -> OpenRegConfig {
    OpenRegConfig::default().devices(1).memory(MemoryMode::Mapped).clock(Clock::Workers)
}

fn is_invalid(error: &AllocError) -> bool {
    matches!(error, AllocError::Backend(error) if error.kind == ErrorKind::InvalidValue)
}

#[test]
fn values_of_a_buffers_type_go_to_the_device_and_come_back() {
    on_each(&mapped(), |rig| {
        let allocator = rig.allocator(Settings::default());
        let mut buffer = DeviceBuffer::<[u16; 3]>::new(&allocator, 1000, rig.stream()).unwrap();
        assert_eq!((buffer.len(), buffer.bytes()), (1000, 6000));
        let sent: Vec<[u16; 3]> = (0..1000).map(|n| [n, n + 1, !n]).collect();
        buffer.write(&sent).unwrap();
        let mut came = vec![[0; 3]; 999];
        buffer.read(&mut came).unwrap();
        assert_eq!(came, sent[..999]);
        buffer.write(&[[7; 3]]).unwrap();
        buffer.write(&[]).unwrap();
        buffer.read(&mut came[..2]).unwrap();
        assert_eq!(came[..2], [[7; 3], sent[1]]);
        // One value more than it holds: nothing is copied, on either side.
        let longer = [[9; 3]; 1001];
        let refused = buffer.write(&longer).unwrap_err();
        assert!(is_invalid(&refused), "{refused}");
        assert!(refused.to_string().contains("6006 bytes do not fit into a buffer of 6000"), "{refused}");
        let mut untouched = longer;
        assert!(is_invalid(&buffer.read(&mut untouched).unwrap_err()));
        buffer.read(&mut came[..1]).unwrap();
        assert_eq!((untouched, came[0]), (longer, [7; 3]));
        let mut nothing = DeviceBuffer::<f64>::new(&allocator, 0, rig.stream()).unwrap();
        nothing.write(&[]).unwrap();
        nothing.fill_bytes(1).unwrap();
        assert!(is_invalid(&nothing.write(&[0.0]).unwrap_err()));
    });
}

#[test]
fn a_length_in_values_that_overflows_is_refused() {
    on_each(&mapped(), |rig| {
        let allocator = rig.allocator(Settings::default());
        for len in [usize::MAX, usize::MAX / 8 + 2, 1 << 61] {
            let refused = DeviceBuffer::<u64>::new(&allocator, len, rig.stream()).unwrap_err();
            assert!(matches!(refused, AllocError::MoreThanAnExabyte { .. }), "{len}: {refused}");
        }
        assert_eq!(allocator.stats(DEVICE).unwrap().allocation.all.allocated, 0);
    });
}

/// Copies wait for what the stream was given before; those of pinned memory do not make the program wait.
#[test]
fn copies_are_in_the_streams_order() {
    on_each(&mapped(), |rig| {
        let allocator = rig.allocator(Settings::default());
        let host = HostAllocator::new(rig.backend.clone(), &Settings::default(), Default::default());
        let host = Arc::new(host.unwrap());
        let (home, other) = (rig.new_stream(), rig.new_stream());
        let mut buffer = DeviceBuffer::<u32>::new(&allocator, 4, home).unwrap();
        let gate = rig.hold(home);
        buffer.fill_bytes(0x11).unwrap();
        let sent = PinnedBuffer::copied(&host, &[0x22; 4]).unwrap();
        let mut came = PinnedBuffer::zeroed(&host, 16).unwrap();
        // SAFETY: neither changes hands while the copies run: they wait for the gate, which opens when both have been looked at,
        // and the host allocator keeps what is sent until they have passed.
        unsafe { buffer.write_async(&sent) }.unwrap();
        // SAFETY: as above.
        unsafe { buffer.read_async(&mut came) }.unwrap();
        assert_eq!(came.as_slice(), [0; 16], "the stream is held up");
        drop(sent);
        gate.open();
        let mut read = [0; 2];
        buffer.read(&mut read).unwrap();
        assert_eq!(read, [0x2222_2222, 0x1111_1111]);
        assert_eq!((&came.as_slice()[..4], &came.as_slice()[4..]), (&[0x22; 4][..], &[0x11; 12][..]));
        let mut copy = DeviceBuffer::<u32>::new(&allocator, 5, other).unwrap();
        // SAFETY: the source's stream was waited for above, and is given nothing more.
        unsafe { copy.copy_from(&buffer, other) }.unwrap();
        drop(buffer);
        copy.read(&mut read).unwrap();
        assert_eq!(read, [0x2222_2222, 0x1111_1111]);
        let mut short = DeviceBuffer::<u32>::new(&allocator, 4, other).unwrap();
        // SAFETY: all is one stream's.
        assert!(is_invalid(&unsafe { short.copy_from(&copy, other) }.unwrap_err()));
        let longer = PinnedBuffer::zeroed(&host, 17).unwrap();
        // SAFETY: nothing is copied.
        let refused = unsafe { short.write_async(&longer) }.unwrap_err();
        assert!(is_invalid(&refused), "{refused}");
    });
}

/// Between a request and the buffer that takes its block, somebody frees that, and another stream gets the place.
#[test]
fn a_buffer_takes_no_block_of_another_stream() {
    on_each(&mapped(), |rig| {
        let allocator = rig.allocator(Settings::default());
        let (home, other) = (rig.new_stream(), rig.new_stream());
        allocator.history().record(&HistoryOptions::newest(100));
        let theirs = Arc::new(OnceLock::new());
        let (asked, taken) = (Arc::downgrade(&allocator), Arc::clone(&theirs));
        allocator.hooks().on_trace(move |entry, _| {
            let Some(allocator) = asked.upgrade().filter(|_| entry.action == Action::Alloc) else { return };
            taken.get_or_init(|| {
                allocator.free(DevicePtr(entry.addr)).unwrap();
                allocator.empty_cache().unwrap();
                let place = allocator.malloc(64, other).unwrap();
                assert_eq!(place.0, entry.addr, "the place is taken again");
                place
            });
        });
        let buffer = DeviceBuffer::<u32>::new(&allocator, 4, home).unwrap();
        assert_ne!(buffer.ptr(), *theirs.get().unwrap());
        allocator.free(*theirs.get().unwrap()).unwrap();
    });
}

/// A thread's own default stream has no name on another thread: a copy there would be in that thread's order.
#[test]
fn a_threads_default_stream_is_not_another_threads() {
    on_each(&mapped(), |rig| {
        let allocator = rig.allocator(Settings::default());
        if rig.backend.kind() == alloc_core::types::DeviceKind::PrivateUse1 {
            return; // it has no such stream
        }
        let mut buffer = DeviceBuffer::<u8>::new(&allocator, 8, Stream { raw: 2, ..rig.stream() }).unwrap();
        assert_eq!(buffer.stream().raw, 2);
        buffer.write(&[1; 8]).unwrap();
        let refused = std::thread::spawn(move || buffer.write(&[2; 8])).join().unwrap().unwrap_err();
        assert!(refused.to_string().contains("another thread's default stream"), "{refused}");
    });
}

granule_tests::for_each_policy!(
    a_buffer_frees_itself_and_can_be_given_up,
    a_buffer_waits_for_the_streams_it_was_used_on,
    a_buffer_may_go_with_its_thread,
);
