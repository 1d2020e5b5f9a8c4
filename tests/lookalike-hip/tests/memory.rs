//! Memory, copies, streams and events in every release.

#![allow(clippy::borrow_as_ptr, clippy::macro_metavars_in_unsafe, reason = "tests call as C does")]

mod support;

use granule_hip_sys::abi6::*;
use std::ffi::c_void;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicU32, Ordering};
use support::{Runtime, SAMPLE, in_process};

fn each(test: &str, body: impl Fn(&Runtime)) {
    for name in ["rocm6", "rocm70", "rocm7"] {
        in_process(test, &format!("personality={name}"), &body);
    }
}

#[test]
fn copies_carry_the_bytes() {
    each("copies_carry_the_bytes", |h| {
        let (first, second) = (h.memory(SAMPLE), h.memory(SAMPLE));
        h.write(first, 3);
        ok!(h.hipMemcpy(second, first, SAMPLE, hipMemcpyDeviceToDevice));
        assert!(h.holds(second, 3));
        ok!(h.hipSetDevice(1));
        let (far, stream) = (h.memory(SAMPLE), h.stream());
        ok!(h.hipMemcpyPeerAsync(far, 1, second, 0, SAMPLE, stream));
        ok!(h.hipStreamSynchronize(stream));
        assert!(h.holds(far, 3));
        ok!(h.hipMemsetAsync(far, 0, SAMPLE, stream));
        let mut bytes = [1_u8; SAMPLE];
        ok!(h.hipMemcpyAsync(bytes.as_mut_ptr().cast(), far, SAMPLE, hipMemcpyDefault, stream));
        ok!(h.hipStreamSynchronize(stream));
        assert_eq!(bytes, [0; SAMPLE]);
        // Memory of another device than the current one is freed all the same.
        for pointer in [first, second, far] {
            ok!(h.hipFree(pointer));
        }
        assert_eq!((h.used(0), h.used(1), h.traps()), (0, 0, 0));
    });
}

#[test]
fn nothing_is_nothing_and_no_error() {
    each("nothing_is_nothing_and_no_error", |h| {
        let mut pointer = h.memory(512);
        let real = pointer;
        ok!(h.hipMalloc(&mut pointer, 0));
        assert!(pointer.is_null());
        ok!(h.hipFree(null_mut()));
        ok!(h.hipHostFree(null_mut()));
        assert_eq!(hip!(h.hipFree(real.wrapping_byte_add(64))), hipErrorInvalidValue);
        ok!(h.hipFree(real));
        assert_eq!(hip!(h.hipFree(real)), hipErrorInvalidValue);
        assert_eq!(hip!(h.hipMalloc(&mut pointer, 1 << 40)), hipErrorOutOfMemory);
    });
}

#[test]
fn an_address_range_needs_both_places() {
    each("an_address_range_needs_both_places", |h| {
        let pointer = h.memory(SAMPLE);
        let (mut base, mut bytes) = (null_mut(), 0);
        ok!(h.hipMemGetAddressRange(&mut base, &mut bytes, pointer.wrapping_byte_add(100)));
        assert_eq!((base, bytes), (pointer, SAMPLE));
        let unknown = std::ptr::without_provenance_mut(64);
        assert_eq!(
            hip!(h.hipMemGetAddressRange(&mut base, &mut bytes, unknown)),
            hipErrorInvalidDevicePointer
        );
        assert_eq!(h.traps(), 0);
        assert_eq!(hip!(h.hipMemGetAddressRange(null_mut(), &mut bytes, pointer)), hipErrorInvalidValue);
        assert_eq!(hip!(h.hipMemGetAddressRange(&mut base, null_mut(), pointer)), hipErrorInvalidValue);
        assert_eq!(h.traps(), 2);
    });
}

#[test]
fn events_order_streams_of_their_device() {
    each("events_order_streams_of_their_device", |h| {
        let (mut least, mut greatest) = (0, 0);
        ok!(h.hipDeviceGetStreamPriorityRange(&mut least, &mut greatest));
        assert_eq!((least, greatest), (1, -1));
        let (first, second) = (h.stream(), h.stream());
        let (start, end) = (h.event(hipEventDefault), h.event(hipEventDefault));
        ok!(h.hipEventQuery(end));
        ok!(h.hipEventRecord(start, first));
        ok!(h.hipStreamWaitEvent(second, start, 0));
        ok!(h.hipEventRecord(end, second));
        ok!(h.hipEventSynchronize(end));
        ok!(h.hipEventQuery(end));
        let mut time = -1.0;
        ok!(h.hipEventElapsedTime(&mut time, start, end));
        assert!(time >= 0.0);
        ok!(h.hipSetDevice(1));
        let other = h.stream();
        assert_eq!(hip!(h.hipEventRecord(end, other)), hipErrorInvalidHandle);
        let flags = hipEventInterprocess;
        assert_eq!(hip!(h.hipEventCreateWithFlags(&mut null_mut(), flags)), hipErrorInvalidValue);
        ok!(h.hipEventDestroy(end));
        assert_eq!(hip!(h.hipEventQuery(end)), hipErrorInvalidHandle);
        ok!(h.hipStreamDestroy(first));
        assert_eq!(hip!(h.hipStreamDestroy(first)), hipErrorInvalidHandle);
    });
}

unsafe extern "C" fn callback(_stream: hipStream_t, status: hipError_t, data: *mut c_void) {
    // SAFETY: the test passes the address of a counter that outlives the stream's work.
    let count = unsafe { &*data.cast::<AtomicU32>() };
    count.fetch_add(1 + status, Ordering::Release);
}

#[test]
fn callbacks_run_in_stream_order() {
    each("callbacks_run_in_stream_order", |h| {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let stream = h.stream();
        let data = (&raw const COUNT).cast_mut().cast();
        ok!(h.hipStreamAddCallback(stream, Some(callback), data, 0));
        ok!(h.hipStreamSynchronize(stream));
        assert_eq!(COUNT.load(Ordering::Acquire), 1);
    });
}

#[test]
fn a_device_is_active_once_it_is_used() {
    each("a_device_is_active_once_it_is_used", |h| {
        let active = || {
            let (mut flags, mut active) = (9, 9);
            ok!(h.hipDevicePrimaryCtxGetState(1, &mut flags, &mut active));
            active
        };
        ok!(h.hipSetDevice(1));
        assert_eq!(active(), 0);
        h.memory(512);
        assert_eq!(active(), 1);
        ok!(h.hipDevicePrimaryCtxRelease(1));
        assert_eq!(active(), 1);
    });
}

#[test]
fn peers_are_enabled_once() {
    each("peers_are_enabled_once", |h| {
        let mut can = 0;
        ok!(h.hipDeviceCanAccessPeer(&mut can, 0, 1));
        assert_eq!(can, 1);
        ok!(h.hipDeviceEnablePeerAccess(1, 0));
        assert_eq!(hip!(h.hipDeviceEnablePeerAccess(1, 0)), hipErrorPeerAccessAlreadyEnabled);
        assert_eq!(hip!(h.hipDeviceEnablePeerAccess(0, 0)), hipErrorInvalidDevice);
    });
}

#[test]
fn host_memory_is_registered_once() {
    each("host_memory_is_registered_once", |h| {
        let mut bytes = vec![0_u8; 1 << 16];
        let pointer = bytes.as_mut_ptr().cast();
        ok!(h.hipHostRegister(pointer, bytes.len(), hipHostRegisterPortable));
        assert_eq!(hip!(h.hipHostRegister(pointer, 64, 0)), hipErrorHostMemoryAlreadyRegistered);
        let mut flags = 0;
        ok!(h.hipHostGetFlags(&mut flags, pointer));
        assert_eq!(flags, hipHostRegisterPortable);
        ok!(h.hipHostUnregister(pointer));
        assert_eq!(hip!(h.hipHostUnregister(pointer)), hipErrorHostMemoryNotRegistered);
    });
}

#[test]
fn a_call_fails_when_it_is_ordered_to() {
    each("a_call_fails_when_it_is_ordered_to", |h| {
        let before = h.calls();
        let mut pointer = null_mut();
        h.fail(2, 2);
        ok!(h.hipFree(null_mut()));
        assert_eq!(hip!(h.hipMalloc(&mut pointer, 512)), hipErrorOutOfMemory);
        assert_eq!((pointer, h.used(0), h.calls() - before, h.last_error()), (null_mut(), 0, 2, 2));
        ok!(h.hipMalloc(&mut pointer, 512));
        h.lose_device(0);
        assert_eq!(hip!(h.hipFree(pointer)), hipErrorLaunchFailure);
        assert_eq!(hip!(h.hipDeviceSynchronize()), hipErrorLaunchFailure);
        ok!(h.hipSetDevice(1));
        ok!(h.hipDeviceSynchronize());
    });
}
