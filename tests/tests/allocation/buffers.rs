//! Buffers: memory that frees itself.

use alloc_core::DeviceBuffer;
use alloc_core::backend::Backend;
use alloc_core::config::Settings;
use alloc_core::types::{GIB, KIB, MIB};
use backend_openreg::Call;
use granule_tests::policy::Policy;
use granule_tests::rig::DEVICE;
use granule_tests::setup::{of, of_bytes, roomy};
use granule_tests::with_policy;
use std::any::Any;
use std::cell::RefCell;
use std::sync::Arc;

fn a_buffer_frees_itself_and_can_be_given_up<P: Policy>() {
    let (_device, allocator, stream) = roomy::<P>(Settings::default());
    let live = || allocator.stats(DEVICE).unwrap().allocation.all.current;
    let buffer = DeviceBuffer::new(&allocator, 10 * KIB, stream).unwrap();
    assert_eq!((live(), buffer.len(), buffer.is_empty()), (1, 10 * KIB, false));
    drop(buffer);
    assert_eq!(live(), 0);
    let references = Arc::strong_count(&allocator);
    let raw = DeviceBuffer::new(&allocator, 10 * KIB, stream).unwrap().into_raw();
    assert_eq!((live(), Arc::strong_count(&allocator)), (1, references));
    allocator.free(raw).unwrap();
    assert!(DeviceBuffer::new(&allocator, 0, stream).unwrap().is_empty());
}

fn a_buffer_waits_for_the_streams_it_was_used_on<P: Policy>() {
    let (device, allocator, home) = with_policy::<P>(of_bytes(GIB), Settings::default());
    let side = device.create_stream(DEVICE, 0).unwrap();
    let buffer = DeviceBuffer::new(&allocator, MIB, home).unwrap();
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
        KEPT.with_borrow_mut(|kept| *kept = Some(Box::new(DeviceBuffer::new(&inside, 100, home).unwrap())));
    });
    thread.join().unwrap();
    assert_eq!(allocator.stats(DEVICE).unwrap().allocation.all.current, 0);
}

granule_tests::for_each_policy!(
    a_buffer_frees_itself_and_can_be_given_up,
    a_buffer_waits_for_the_streams_it_was_used_on,
    a_buffer_may_go_with_its_thread,
);
