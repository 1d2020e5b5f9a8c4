//! Streams, contexts and allocators that end before and after buffers.

use crate::support::{Gate, N, address, allocated, controls, over_driver, start};
use cudarc::driver::{CudaContext, result, sys};
use granule::config::Settings;
use granule::cuda::CachingAllocator;
use granule_cudarc::{Allocator, Error};
use std::sync::Arc;

fn is_alive(stream: sys::CUstream) -> bool {
    // SAFETY: the lookalike driver knows which handles are streams, and never gives one out again.
    unsafe { result::stream::synchronize(stream) }.is_ok()
}

#[test]
fn a_stream_ends_with_its_last_buffer() {
    over_driver(|| {
        let (context, memory) = start();
        let stream = context.new_stream().unwrap();
        let handle = stream.cu_stream();
        let buffer = memory.clone_htod(&stream, &[1_u8; 4 << 20]).unwrap();
        let place = address(&buffer);
        drop(stream);
        assert!(is_alive(handle), "its buffer has it");
        drop(buffer);
        assert!(!is_alive(handle), "nobody has it");
        let used = controls().used(0);
        let next = context.new_stream().unwrap();
        let again = memory.clone_htod(&next, &[2_u8; 4 << 20]).unwrap();
        assert_eq!((address(&again), controls().used(0)), (place, used), "its memory is the next stream's");
        assert_eq!(next.clone_dtoh(&again.slice(..9)).unwrap(), [2; 9]);
        memory.granule().empty_cache().unwrap();
        assert_eq!(controls().traps(), 0);
    });
}

#[test]
fn a_stream_that_outlives_its_buffers_ends_when_another_one_is_new() {
    over_driver(|| {
        let (context, memory) = start();
        let [first, second, third] = [(); 3].map(|()| context.new_stream().unwrap());
        let handles = [first.cu_stream(), second.cu_stream()];
        for stream in [&first, &second] {
            memory.clone_htod(stream, &[1_u8; N]).unwrap();
        }
        drop(first);
        memory.clone_htod(&third, &[1_u8; N]).unwrap();
        assert_eq!(handles.map(is_alive), [false, true]);
        let weak = Arc::downgrade(&second);
        drop(second);
        let revived = weak.upgrade().unwrap();
        memory.retire_unused_streams();
        assert!(is_alive(handles[1]), "somebody has it again");
        drop(revived);
        memory.retire_unused_streams();
        assert!(!is_alive(handles[1]));
    });
}

#[test]
fn work_of_a_stream_that_ends_is_waited_for_by_the_next_one() {
    over_driver(|| {
        let (context, memory) = start();
        let (first, second) = (context.new_stream().unwrap(), context.new_stream().unwrap());
        let mut seen = memory.alloc_zeros::<u8>(&second, N).unwrap();
        let old = memory.clone_htod(&first, &[7_u8; N]).unwrap();
        context.synchronize().unwrap();
        let gate = Gate::on(&first);
        first.memcpy_dtod(&old, &mut seen).unwrap();
        drop(first);
        drop(old);
        let third = context.new_stream().unwrap();
        memory.alloc_zeros::<u8>(&third, N).unwrap();
        gate.open_late();
        assert_eq!(second.clone_dtoh(&seen).unwrap(), [7; N]);
        assert_eq!(controls().traps(), 0);
    });
}

#[test]
fn a_borrowed_stream_is_given_up_before_its_owner_destroys_it() {
    over_driver(|| {
        let (context, memory) = start();
        let raw = result::stream::create(result::stream::StreamKind::NonBlocking).unwrap();
        // SAFETY: a living stream of the context, destroyed below when the allocator has been told.
        let [one, two] = [(); 2].map(|()| unsafe { context.wrap_borrowed_stream(raw) });
        let buffers = [&one, &two].map(|stream| memory.clone_htod(stream, &[1_u8; N]).unwrap());
        let refused = memory.retire_stream(Arc::clone(&one)).unwrap_err();
        assert!(matches!(refused, Error::StreamInUse { holders: 2 }), "{refused}");
        drop(buffers);
        memory.retire_stream(one).unwrap();
        let again = memory.clone_htod(&two, &[1_u8; N]).unwrap();
        assert_eq!(two.clone_dtoh(&again).unwrap(), [1; N]);
        drop(again);
        memory.retire_stream(two).unwrap();
        assert!(is_alive(raw), "it is not cudarc's to destroy");
        // SAFETY: made above, and nobody has it any more.
        unsafe { result::stream::destroy(raw).unwrap() };
        let next = context.new_stream().unwrap();
        memory.clone_htod(&next, &[1_u8; N]).unwrap();
        memory.granule().empty_cache().unwrap();
        assert_eq!(controls().traps(), 0);
    });
}

#[test]
fn a_buffer_outlives_everything() {
    over_driver(|| {
        let (context, memory) = start();
        let (stream, other) = (context.new_stream().unwrap(), context.new_stream().unwrap());
        let buffer = memory.clone_htod(&stream, &[7_u8; N]).unwrap();
        let weak = Arc::downgrade(&context);
        drop((memory, stream, context));
        let mut copy = buffer.try_clone().unwrap();
        other.memcpy_dtod(&buffer, &mut copy).unwrap();
        assert_eq!(other.clone_dtoh(&copy).unwrap(), [7; N]);
        drop((copy, other));
        std::thread::spawn(move || drop(buffer)).join().unwrap();
        assert!(weak.upgrade().is_none(), "nothing keeps the context");

        let (context, memory) = start();
        assert_eq!(allocated(&memory), 0);
        let used = controls().used(0);
        let again = memory.clone_htod(&context.new_stream().unwrap(), &[1_u8; N]).unwrap();
        assert_eq!((controls().used(0), again.len()), (used, N), "the cache outlived the context");
        assert_eq!(controls().traps(), 0);
    });
}

#[test]
fn an_allocator_that_goes_leaves_living_streams_alone() {
    over_driver(|| {
        let (context, memory) = start();
        let stream = context.new_stream().unwrap();
        memory.clone_htod(&stream, &[1_u8; N]).unwrap();
        drop(memory);
        assert!(is_alive(stream.cu_stream()));
        let memory = Allocator::of(&context).unwrap();
        let again = memory.clone_htod(&stream, &[5_u8; N]).unwrap();
        assert_eq!(stream.clone_dtoh(&again).unwrap(), [5; N]);
        let handle = stream.cu_stream();
        drop((again, memory, stream));
        assert!(!is_alive(handle), "nobody keeps it");
        assert_eq!(controls().traps(), 0);
    });
}

#[test]
fn one_of_two_wrappers_that_ends_does_not_end_the_others_stream() {
    over_driver(|| {
        let (context, memory) = start();
        let (raw, third) = (context.new_stream().unwrap(), context.new_stream().unwrap());
        // SAFETY: a living stream of the context, which outlives both.
        let [one, two] = [(); 2].map(|()| unsafe { context.wrap_borrowed_stream(raw.cu_stream()) });
        memory.clone_htod(&one, &[1_u8; N]).unwrap();
        let old = memory.clone_htod(&two, &[7_u8; N]).unwrap();
        let mut seen = memory.alloc_zeros::<u8>(&context.default_stream(), N).unwrap();
        context.synchronize().unwrap();
        memory.retire_stream(one).unwrap();
        let gate = Gate::on(&two);
        two.memcpy_dtod(&old, &mut seen).unwrap();
        drop(old);
        // Two, for one fits where the first wrapper's buffer was.
        let new = [(); 2].map(|()| memory.alloc_zeros::<u8>(&third, N).unwrap());
        gate.open_late();
        context.synchronize().unwrap();
        assert_eq!(third.clone_dtoh(&seen).unwrap(), [7; N]);
        drop((new, two));
    });
}

#[test]
fn an_allocator_of_the_programs_own_has_its_settings_and_its_memory() {
    over_driver(|| {
        let (context, default) = start();
        let own = CachingAllocator::new(Settings::parse("expandable_segments:True").unwrap()).unwrap();
        let memory = Allocator::new(&context, &own).unwrap();
        let stream = context.new_stream().unwrap();
        let buffers = [&memory, &default].map(|memory| memory.clone_htod(&stream, &[4_u8; N]).unwrap());
        assert_eq!([&memory, &default].map(allocated), [N as i64; 2]);
        for buffer in &buffers {
            assert_eq!(stream.clone_dtoh(buffer).unwrap(), [4; N]);
        }
        let handle = stream.cu_stream();
        drop((buffers, stream));
        default.retire_unused_streams();
        memory.retire_unused_streams();
        default.retire_unused_streams();
        assert!(!is_alive(handle), "each allocator gave it up");
        drop(context);
    });
}

#[test]
fn a_device_that_is_lost_ends_no_drop_in_a_panic() {
    over_driver(|| {
        let (context, memory) = start();
        let stream = context.new_stream().unwrap();
        let buffers: Vec<_> = (1..5).map(|n| memory.alloc_zeros::<u8>(&stream, n * N).unwrap()).collect();
        controls().lose_device(0);
        assert!(memory.alloc_zeros::<u8>(&stream, N).is_err());
        drop(buffers);
        drop((stream, memory));
        assert!(CudaContext::new(0).is_err() || context.synchronize().is_err());
    });
}
