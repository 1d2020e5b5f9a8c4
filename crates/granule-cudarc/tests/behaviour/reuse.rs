//! Memory is not used again before its last user is done, whoever that is.

use crate::support::{Gate, N, address, allocated, axpy, controls, over_driver, start};
use cudarc::driver::{
    CudaContext, CudaStream, DevicePtr, DriverError, LaunchConfig, PushKernelArg, result, sys,
};
use granule::types::DeviceIndex;
use granule_cudarc::{Allocator, Buffer};
use std::sync::Arc;

/// A buffer of `own` is read by a copy on `other`, which is stopped, and dropped by `end`. Then its memory is used
/// again: the copy still sees what was there.
fn reader_is_waited_for(
    memory: &Allocator,
    own: &Arc<CudaStream>,
    other: Arc<CudaStream>,
    end: impl FnOnce(Buffer<u8>, Arc<CudaStream>),
) {
    let old = memory.clone_htod(own, &[7_u8; N]).unwrap();
    let mut seen = memory.alloc_zeros::<u8>(own, N).unwrap();
    memory.context().synchronize().unwrap();
    let gate = Gate::on(&other);
    other.memcpy_dtod(&old, &mut seen).unwrap();
    let place = address(&old);
    end(old, other);
    let mut new = fresh(memory, own);
    assert_eq!(address(&new), place, "the memory is used again at once");
    own.memset_zeros(&mut new).unwrap();
    gate.open_late();
    memory.context().synchronize().unwrap();
    assert_eq!(own.clone_dtoh(&seen).unwrap(), [7; N], "the reader came too late");
    assert_eq!(controls().traps(), 0);
}

fn fresh(memory: &Allocator, own: &Arc<CudaStream>) -> Buffer<u8> {
    // SAFETY: any bits are a `u8`.
    unsafe { memory.alloc(own, N).unwrap() }
}

#[test]
fn a_copy_on_another_stream_is_waited_for() {
    over_driver(|| {
        let (context, memory) = start();
        let (own, other) = (context.new_stream().unwrap(), context.new_stream().unwrap());
        reader_is_waited_for(&memory, &own, other, |old, _| drop(old));
    });
}

#[test]
fn a_buffer_of_the_default_stream_waits_for_a_stream_that_is_gone() {
    over_driver(|| {
        let (context, memory) = start();
        let other = context.new_stream().unwrap();
        reader_is_waited_for(&memory, &context.default_stream(), other, |old, other| {
            drop(other);
            drop(old);
        });
    });
}

#[test]
fn a_buffer_dropped_on_another_thread_waits_too() {
    over_driver(|| {
        let (context, memory) = start();
        let (own, other) = (context.new_stream().unwrap(), context.new_stream().unwrap());
        let end = |old: Buffer<u8>, _| std::thread::spawn(move || drop(old)).join().unwrap();
        reader_is_waited_for(&memory, &own, other, end);
    });
}

/// cudarc keeps one event for reads.
#[test]
fn of_two_readers_the_one_that_is_told_of_is_waited_for_too() {
    over_driver(|| {
        let (context, memory) = start();
        let (own, other) = (context.new_stream().unwrap(), context.new_stream().unwrap());
        let third = context.new_stream().unwrap();
        let old = memory.clone_htod(&own, &[7_u8; N]).unwrap();
        let mut seen = memory.alloc_zeros::<u8>(&own, N).unwrap();
        context.synchronize().unwrap();
        let gate = Gate::on(&other);
        other.memcpy_dtod(&old, &mut seen).unwrap();
        old.record_stream(&other).unwrap();
        assert_eq!(third.clone_dtoh(&old).unwrap(), [7; N]);
        drop(old);
        own.memset_zeros(&mut fresh(&memory, &own)).unwrap();
        gate.open_late();
        context.synchronize().unwrap();
        assert_eq!(own.clone_dtoh(&seen).unwrap(), [7; N], "the first reader came too late");
    });
}

#[test]
fn a_copy_to_another_device_is_done_before_its_source_is_used_again() {
    over_driver(|| {
        let (context, memory) = start();
        let second = CudaContext::new(1).unwrap();
        let of_second = Allocator::of(&second).unwrap();
        let (theirs, ours) = (second.new_stream().unwrap(), context.new_stream().unwrap());
        let old = of_second.clone_htod(&theirs, &[7_u8; N]).unwrap();
        second.synchronize().unwrap();
        let gate = Gate::on(&ours);
        let copy = memory.clone_dtod(&ours, &old).unwrap();
        drop(old);
        second.bind_to_thread().unwrap();
        theirs.memset_zeros(&mut fresh(&of_second, &theirs)).unwrap();
        gate.open_late();
        context.synchronize().unwrap();
        assert_eq!(ours.clone_dtoh(&copy).unwrap(), [7; N], "the copy came too late");
    });
}

/// It may be that of a use that has no event, so the drop waits for the device.
#[test]
fn an_error_that_cudarc_keeps_is_no_reason_not_to_wait() {
    over_driver(|| {
        let (context, memory) = start();
        let (own, other) = (context.new_stream().unwrap(), context.new_stream().unwrap());
        let kept = || Err::<(), _>(DriverError(sys::CUresult::CUDA_ERROR_NOT_FOUND));
        let old = memory.clone_htod(&own, &[7_u8; N]).unwrap();
        let gate = Gate::on(&other);
        let read = other.record_event(None).unwrap();
        let late = std::thread::spawn(|| gate.open_late());
        context.record_err(kept());
        drop(old);
        assert!(read.is_complete(), "the drop waited for the device");
        assert_eq!(context.check_err(), kept(), "it is still kept");
        late.join().unwrap();
    });
}

#[test]
fn an_error_that_cudarc_keeps_is_the_next_requests() {
    over_driver(|| {
        let (context, memory) = start();
        let stream = context.new_stream().unwrap();
        context.record_err(Err::<(), _>(DriverError(sys::CUresult::CUDA_ERROR_NOT_FOUND)));
        let error = memory.alloc_zeros::<u8>(&stream, N).unwrap_err();
        assert!(error.to_string().contains("NOT_FOUND"), "{error}");
        memory.alloc_zeros::<u8>(&stream, N).unwrap();
    });
}

#[test]
fn a_wait_that_the_driver_refuses_is_made_up_for() {
    over_driver(|| {
        let (context, memory) = start();
        let (own, other) = (context.new_stream().unwrap(), context.new_stream().unwrap());
        let old = memory.clone_htod(&own, &[7_u8; N]).unwrap();
        let mut seen = memory.alloc_zeros::<u8>(&own, N).unwrap();
        context.synchronize().unwrap();
        let gate = Gate::on(&other);
        other.memcpy_dtod(&old, &mut seen).unwrap();
        let read = other.record_event(None).unwrap();
        let late = std::thread::spawn(|| gate.open_late());
        controls().fail_function(c"cuStreamWaitEvent", 1, 1);
        drop(old);
        context.check_err().unwrap_err();
        assert!(read.is_complete(), "the drop waited for the device");
        own.memset_zeros(&mut fresh(&memory, &own)).unwrap();
        late.join().unwrap();
        assert_eq!(own.clone_dtoh(&seen).unwrap(), [7; N]);
    });
}

#[test]
fn memory_whose_users_cannot_be_waited_for_is_never_used_again() {
    over_driver(|| {
        let (context, memory) = start();
        let stream = context.new_stream().unwrap();
        let lost = memory.clone_htod(&stream, &[7_u8; N]).unwrap();
        let place = address(&lost);
        controls().fail_function(c"cuStreamWaitEvent", 1, 1);
        controls().fail_function(c"cuCtxSynchronize", 1, 1);
        drop(lost);
        context.check_err().unwrap_err();
        assert_eq!(allocated(&memory), N as i64);
        assert_ne!(address(&fresh(&memory, &stream)), place);
    });
}

#[test]
fn a_kernel_on_another_stream_is_waited_for() {
    over_driver(|| {
        let (context, memory) = start();
        let (own, other) = (context.new_stream().unwrap(), context.new_stream().unwrap());
        let axpy = axpy(&context);
        let x = memory.clone_htod(&own, &[2.0_f32; N]).unwrap();
        let mut y = memory.clone_htod(&own, &[1.0_f32; N]).unwrap();
        context.synchronize().unwrap();
        let (a, n, gate) = (1.0_f32, N as u64, Gate::on(&other));
        let mut launch = other.launch_builder(&axpy);
        launch.arg(&mut y).arg(&x).arg(&a).arg(&n);
        // SAFETY: the kernel's parameters, with memory for as many elements.
        unsafe { launch.launch(LaunchConfig::for_num_elems(N as u32)) }.unwrap();
        let places = (address(&x), address(&y));
        drop((x, y));
        // The kernel writes here last if nobody waits for it.
        let new = [(); 2].map(|()| memory.clone_htod(&own, &[5.0_f32; N]).unwrap());
        let again = [address(&new[0]), address(&new[1])];
        assert!(again == [places.0, places.1] || again == [places.1, places.0], "{again:?}");
        gate.open_late();
        context.synchronize().unwrap();
        for buffer in new {
            assert_eq!(own.clone_dtoh(&buffer).unwrap(), [5.0; N]);
        }
    });
}

#[test]
fn the_first_use_on_another_stream_comes_after_the_memorys_last_one() {
    over_driver(|| {
        let (context, memory) = start();
        let (own, other) = (context.new_stream().unwrap(), context.new_stream().unwrap());
        let old = memory.clone_htod(&own, &[7_u8; N]).unwrap();
        let mut seen = memory.alloc_zeros::<u8>(&own, N).unwrap();
        own.synchronize().unwrap();
        let gate = Gate::on(&own);
        own.memcpy_dtod(&old, &mut seen).unwrap();
        drop(old);
        let mut new = fresh(&memory, &own);
        other.memset_zeros(&mut new).unwrap();
        gate.open_late();
        assert_eq!(own.clone_dtoh(&seen).unwrap(), [7; N], "another stream overtook the copy");
    });
}

#[test]
fn uses_that_cudarc_does_not_track_are_recorded_by_hand() {
    over_driver(|| {
        let (context, memory) = start();
        let (own, other) = (context.new_stream().unwrap(), context.new_stream().unwrap());
        // SAFETY: the test orders its streams itself.
        unsafe { context.disable_event_tracking() };
        let old = memory.clone_htod(&own, &[7_u8; N]).unwrap();
        let mut seen = memory.alloc_zeros::<u8>(&own, N).unwrap();
        context.synchronize().unwrap();
        let gate = Gate::on(&other);
        let (from, to) = (address(&old), address(&seen));
        // SAFETY: living memory of that size, recorded as used below.
        unsafe { result::memcpy_dtod_async(to, from, N, other.cu_stream()).unwrap() };
        old.record_stream(&other).unwrap();
        drop(old);
        let new = fresh(&memory, &own);
        assert_ne!(address(&new), from, "the copy may not have begun");
        gate.open_late();
        context.synchronize().unwrap();
        assert_eq!(own.clone_dtoh(&seen).unwrap(), [7; N]);
        own.memset_zeros(&mut seen).unwrap();
        memory.granule().synchronise(DeviceIndex(0)).unwrap();
        assert_eq!(address(&fresh(&memory, &own)), from);
    });
}

/// The stream with the handle 2 is another one in each thread.
#[test]
fn a_per_thread_streams_buffer_that_another_thread_drops_waits_for_its_users() {
    over_driver(|| {
        let (context, memory) = start();
        let (own, other) = (context.per_thread_stream(), context.new_stream().unwrap());
        let old = memory.clone_htod(&own, &[7_u8; N]).unwrap();
        let mut seen = memory.alloc_zeros::<u8>(&own, N).unwrap();
        context.synchronize().unwrap();
        let gate = Gate::on(&other);
        other.memcpy_dtod(&old, &mut seen).unwrap();
        let place = address(&old);
        let (open, ended) = std::sync::mpsc::channel::<()>();
        let (dropped, is_dropped) = std::sync::mpsc::channel();
        // It lives on: what its stream was given is not done yet.
        let other_thread = std::thread::spawn(move || {
            drop(old);
            dropped.send(()).unwrap();
            assert!(ended.recv().is_err());
        });
        is_dropped.recv().unwrap();
        let new = memory.alloc_zeros::<u8>(&own, N).unwrap();
        assert_ne!(address(&new), place, "its user has not begun");
        gate.open_late();
        context.synchronize().unwrap();
        assert_eq!(own.clone_dtoh(&seen).unwrap(), [7; N]);
        memory.granule().synchronise(DeviceIndex(0)).unwrap();
        assert_eq!(address(&fresh(&memory, &own)), place);
        drop(open);
        other_thread.join().unwrap();
        assert_eq!(controls().traps(), 0);
    });
}

/// Buffers go from thread to thread, each with a stream; every one is checked, written and passed on.
#[test]
fn threads_pass_buffers_round_and_no_byte_is_lost() {
    const THREADS: u8 = 4;
    const ROUNDS: u32 = 60;
    over_driver(|| {
        let (context, memory) = start();
        let (first, last) = std::sync::mpsc::channel::<Buffer<u32>>();
        let (mut from, mut threads) = (last, Vec::new());
        for thread in 0..THREADS {
            let (to, next) = std::sync::mpsc::channel();
            let (memory, input) = (memory.clone(), std::mem::replace(&mut from, next));
            let stream = pick(&context, thread);
            threads.push(std::thread::spawn(move || {
                for buffer in input {
                    let mut bytes = stream.clone_dtoh(&buffer).unwrap();
                    assert!(bytes.windows(2).all(|pair| pair[0] == pair[1]), "bytes of two buffers");
                    bytes.iter_mut().for_each(|element| *element += 1);
                    to.send(memory.clone_htod(&stream, &bytes).unwrap()).unwrap();
                }
            }));
        }
        let stream = context.new_stream().unwrap();
        for round in 0..ROUNDS {
            first.send(memory.clone_htod(&stream, &vec![round; 1000 + round as usize]).unwrap()).unwrap();
        }
        drop(first);
        for (round, buffer) in (0..ROUNDS).zip(from) {
            let wanted = vec![round + u32::from(THREADS); 1000 + round as usize];
            assert_eq!(stream.clone_dtoh(&buffer).unwrap(), wanted);
        }
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert_eq!((allocated(&memory), controls().traps()), (0, 0));
    });
}

fn pick(context: &Arc<CudaContext>, thread: u8) -> Arc<CudaStream> {
    match thread % 3 {
        0 => context.new_stream().unwrap(),
        1 => context.per_thread_stream(),
        _ => context.default_stream(),
    }
}

/// What the tests above take from `DevicePtr` is the address of the memory, and no copy of it.
#[test]
fn an_address_is_the_memorys() {
    over_driver(|| {
        let (context, memory) = start();
        let stream = context.new_stream().unwrap();
        let mut buffer = fresh(&memory, &stream);
        let place = address(&buffer);
        assert_eq!(buffer.device_ptr(&stream).0, place);
        assert_eq!(cudarc::driver::DevicePtrMut::device_ptr_mut(&mut buffer, &stream).0, place);
        assert_eq!(buffer.slice_mut(16..).device_ptr(&stream).0, place + 16);
    });
}
