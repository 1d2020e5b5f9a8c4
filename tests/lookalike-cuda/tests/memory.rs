//! Start, contexts, memory, copies, streams and events.

#![allow(clippy::borrow_as_ptr, clippy::macro_metavars_in_unsafe, reason = "tests call as C does")]

mod support;

use std::ffi::{CStr, c_void};
use std::ptr::{null, null_mut};
use std::time::Duration;
use support::header::*;
use support::{Driver, in_process, library};

#[test]
fn errors_before_and_after_initialisation() {
    in_process("errors_before_and_after_initialisation", "", || {
        let d = &Driver::load(&library());
        let mut number = 0;
        assert_eq!(cu!(d.cuDeviceGetCount(&mut number)), CUDA_ERROR_NOT_INITIALIZED);
        ok!(d.cuDriverGetVersion(&mut number));
        assert_eq!(number, CUDA_VERSION as i32);
        ok!(d.cuInit(0));
        ok!(d.cuDeviceGetCount(&mut number));
        assert_eq!(number, 2);
        let mut pointer = 0;
        assert_eq!(cu!(d.cuMemAlloc_v2(&mut pointer, 512)), CUDA_ERROR_INVALID_CONTEXT);
        let (mut flags, mut active) = (9, 9);
        ok!(d.cuDevicePrimaryCtxGetState(1, &mut flags, &mut active));
        assert_eq!((flags, active), (0, 0));
        let mut context = null_mut();
        assert_eq!(cu!(d.cuDevicePrimaryCtxRetain(&mut context, 2)), CUDA_ERROR_INVALID_DEVICE);
        let context = d.enter(1);
        ok!(d.cuDevicePrimaryCtxGetState(1, &mut flags, &mut active));
        assert_eq!(active, 1);
        ok!(d.cuCtxGetDevice(&mut number));
        assert_eq!(number, 1);
        ok!(d.cuDevicePrimaryCtxRelease_v2(1));
        assert_eq!(cu!(d.cuMemAlloc_v2(&mut pointer, 512)), CUDA_ERROR_CONTEXT_IS_DESTROYED);
        assert_eq!(cu!(d.cuCtxPushCurrent_v2(context)), CUDA_ERROR_CONTEXT_IS_DESTROYED);
        let mut name = null();
        ok!(d.cuGetErrorName(709, &mut name));
        // SAFETY: the driver's static text.
        assert_eq!(unsafe { CStr::from_ptr(name) }, c"CUDA_ERROR_CONTEXT_IS_DESTROYED");
        assert_eq!(cu!(d.cuGetErrorString(12345, &mut name)), CUDA_ERROR_INVALID_VALUE);
        assert!(name.is_null());
    });
}

#[test]
fn bytes_arrive_and_memory_is_accounted() {
    in_process("bytes_arrive_and_memory_is_accounted", "", || {
        let d = &Driver::load(&library());
        d.enter(0);
        let before = cu!(d.granule_lookalike_used(0));
        let pointer = d.memory(4096);
        assert!(cu!(d.granule_lookalike_used(0)) > before);
        let sent: Vec<u8> = (0..4096u32).map(|byte| (byte * 7) as u8).collect();
        let mut received = vec![0u8; 4096];
        ok!(d.cuMemcpyHtoD_v2(pointer, sent.as_ptr().cast(), 4096));
        let stream = d.stream();
        ok!(d.cuMemsetD8Async(pointer + 100, 0xab, 10, stream));
        ok!(d.cuMemcpyDtoHAsync_v2(received.as_mut_ptr().cast(), pointer, 4096, stream));
        ok!(d.cuStreamSynchronize(stream));
        let mut wanted = sent;
        wanted[100..110].fill(0xab);
        assert_eq!(received, wanted);
        let mut none = 0;
        assert_eq!(cu!(d.cuMemAlloc_v2(&mut none, 0)), CUDA_ERROR_INVALID_VALUE);
        assert_eq!(cu!(d.cuMemAlloc_v2(&mut none, 1 << 40)), CUDA_ERROR_OUT_OF_MEMORY);
        assert_eq!(cu!(d.cuMemFree_v2(pointer + 512)), CUDA_ERROR_INVALID_VALUE);
        ok!(d.cuMemFree_v2(0));
        ok!(d.cuMemFree_v2(pointer));
        assert_eq!(cu!(d.cuMemFree_v2(pointer)), CUDA_ERROR_INVALID_VALUE);
        assert_eq!(cu!(d.granule_lookalike_used(0)), before);
        // Unmanaged memory on the device's side is refused, and noticed.
        assert_eq!(cu!(d.cuMemsetD8Async(pointer, 1, 16, stream)), CUDA_ERROR_INVALID_VALUE);
        assert_eq!(cu!(d.granule_lookalike_traps()), 1);
        ok!(d.cuStreamDestroy_v2(stream));
        assert_eq!(cu!(d.cuStreamSynchronize(stream)), CUDA_ERROR_INVALID_HANDLE);
    });
}

#[test]
fn addresses_say_what_they_are() {
    in_process("addresses_say_what_they_are", "", || {
        let d = &Driver::load(&library());
        d.enter(1);
        let pointer = d.memory(4096);
        let mut kind = 0u32;
        let mut base = 0u64;
        let mut ordinal = 9i32;
        ok!(d.cuPointerGetAttribute((&raw mut kind).cast(), CU_POINTER_ATTRIBUTE_MEMORY_TYPE, pointer + 9));
        ok!(d.cuPointerGetAttribute(
            (&raw mut base).cast(),
            CU_POINTER_ATTRIBUTE_RANGE_START_ADDR,
            pointer + 9
        ));
        ok!(d.cuPointerGetAttribute(
            (&raw mut ordinal).cast(),
            CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
            pointer + 9
        ));
        assert_eq!((kind, base, ordinal), (CU_MEMORYTYPE_DEVICE, pointer, 1));
        let unknown = (&raw const ordinal) as u64;
        let single =
            cu!(d.cuPointerGetAttribute((&raw mut kind).cast(), CU_POINTER_ATTRIBUTE_MEMORY_TYPE, unknown));
        assert_eq!(single, CUDA_ERROR_INVALID_VALUE);
        let mut attributes = [CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL];
        let mut places: [*mut c_void; 2] = [(&raw mut kind).cast(), (&raw mut ordinal).cast()];
        ok!(d.cuPointerGetAttributes(2, attributes.as_mut_ptr(), places.as_mut_ptr(), unknown));
        assert_eq!((kind, ordinal), (0, -2));
        let mut host = null_mut();
        ok!(d.cuMemHostAlloc(&mut host, 100, 0));
        ok!(d.cuPointerGetAttribute(
            (&raw mut kind).cast(),
            CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
            host.addr() as u64
        ));
        assert_eq!(kind, CU_MEMORYTYPE_HOST);
        ok!(d.cuMemFreeHost(host));
        let mut own = vec![0u8; 8192];
        let at = own.as_mut_ptr().cast();
        assert_eq!(cu!(d.cuMemHostUnregister(at)), CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
        ok!(d.cuMemHostRegister_v2(at, 8192, 0));
        assert_eq!(cu!(d.cuMemHostRegister_v2(at, 8192, 0)), CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
        ok!(d.cuMemHostUnregister(at));
    });
}

#[test]
fn events_and_callbacks() {
    in_process("events_and_callbacks", "", || {
        unsafe extern "C" fn nap(data: *mut c_void) {
            // Longer than the calls may take that must find it unfinished.
            std::thread::sleep(Duration::from_secs(1));
            // SAFETY: the test passes an atomic that lives on.
            unsafe { &*data.cast::<std::sync::atomic::AtomicU32>() }
                .fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        }
        let d = &Driver::load(&library());
        d.enter(0);
        let ran = std::sync::atomic::AtomicU32::new(0);
        let stream = d.stream();
        let (start, end, untimed) = (d.event(0), d.event(0), d.event(CU_EVENT_DISABLE_TIMING));
        ok!(d.cuEventQuery(start));
        let mut time = 0.0;
        assert_eq!(cu!(d.cuEventElapsedTime(&mut time, start, end)), CUDA_ERROR_INVALID_HANDLE);
        ok!(d.cuEventRecord(start, stream));
        ok!(d.cuLaunchHostFunc(stream, Some(nap), (&raw const ran).cast_mut().cast()));
        ok!(d.cuEventRecord(end, stream));
        ok!(d.cuEventRecord(untimed, stream));
        assert_eq!(cu!(d.cuEventQuery(end)), CUDA_ERROR_NOT_READY);
        assert_eq!(cu!(d.cuEventElapsedTime(&mut time, start, end)), CUDA_ERROR_NOT_READY);
        assert_eq!(cu!(d.cuStreamQuery(stream)), CUDA_ERROR_NOT_READY);
        ok!(d.cuEventSynchronize(end));
        assert_eq!(ran.load(std::sync::atomic::Ordering::SeqCst), 1);
        ok!(d.cuEventElapsedTime(&mut time, start, end));
        assert!(time >= 990.0, "{time}");
        assert_eq!(cu!(d.cuEventElapsedTime(&mut time, start, untimed)), CUDA_ERROR_INVALID_HANDLE);
        ok!(d.cuEventDestroy_v2(end));
        assert_eq!(cu!(d.cuEventQuery(end)), CUDA_ERROR_INVALID_HANDLE);
        // The other device's event is not for this device's stream.
        let other = d.enter(1);
        let foreign = d.event(0);
        assert_eq!(cu!(d.cuEventRecord(foreign, stream)), CUDA_ERROR_INVALID_HANDLE);
        let mut popped = null_mut();
        ok!(d.cuCtxPopCurrent_v2(&mut popped));
        assert_eq!(popped, other);
        assert_eq!(cu!(d.cuCtxPopCurrent_v2(&mut popped)), CUDA_ERROR_INVALID_CONTEXT);
    });
}

#[test]
fn peers_and_pools() {
    in_process("peers_and_pools", "", || {
        let d = &Driver::load(&library());
        let (far, near) = (d.enter(1), d.enter(0));
        ok!(d.cuCtxEnablePeerAccess(far, 0));
        assert_eq!(cu!(d.cuCtxEnablePeerAccess(far, 0)), CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED);
        assert_eq!(cu!(d.cuCtxEnablePeerAccess(near, 0)), CUDA_ERROR_INVALID_CONTEXT);
        let stream = d.stream();
        let here = d.memory(1 << 20);
        ok!(d.cuCtxSetCurrent(far));
        let there = d.memory(1 << 20);
        ok!(d.cuCtxSetCurrent(near));
        ok!(d.cuMemsetD8Async(here, 7, 1 << 20, stream));
        ok!(d.cuMemcpyPeerAsync(there, far, here, near, 1 << 20, stream));
        let mut got = vec![0u8; 1 << 20];
        ok!(d.cuMemcpyDtoHAsync_v2(got.as_mut_ptr().cast(), there, 1 << 20, stream));
        ok!(d.cuStreamSynchronize(stream));
        assert!(got.iter().all(|&byte| byte == 7));
        let mut pool = null_mut();
        ok!(d.cuDeviceGetDefaultMemPool(&mut pool, 0));
        let mut taken = 0;
        ok!(d.cuMemAllocAsync(&mut taken, 5000, stream));
        let used = || {
            let mut used = 0u64;
            ok!(d.cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, (&raw mut used).cast()));
            used
        };
        assert!(used() >= 5000);
        let mut from = null_mut::<c_void>();
        ok!(d.cuPointerGetAttribute((&raw mut from).cast(), CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, taken));
        assert_eq!(from, pool.cast());
        ok!(d.cuMemFreeAsync(taken, stream));
        assert_eq!(cu!(d.cuMemFreeAsync(taken, stream)), CUDA_ERROR_INVALID_VALUE);
        ok!(d.cuStreamSynchronize(stream));
        assert_eq!(used(), 0);
        ok!(d.cuMemAllocAsync(&mut taken, 5000, stream));
        ok!(d.cuMemFree_v2(taken));
        assert_eq!(used(), 0);
    });
}

#[test]
fn pageable_memory_is_the_programs_again_when_a_queued_copy_returns() {
    in_process("pageable_memory_is_the_programs_again_when_a_queued_copy_returns", "", || {
        let d = &Driver::load(&library());
        d.enter(0);
        let (pointer, stream) = (d.memory(512), d.stream());
        let (open, gate) = std::sync::mpsc::channel::<()>();
        unsafe extern "C" fn wait(gate: *mut c_void) {
            // SAFETY: the receiver below, handed over with the call.
            let gate = unsafe { Box::from_raw(gate.cast::<std::sync::mpsc::Receiver<()>>()) };
            assert!(gate.recv().is_err(), "opened by dropping the sender");
        }
        ok!(d.cuLaunchHostFunc(stream, Some(wait), Box::into_raw(Box::new(gate)).cast()));
        let mut bytes = [5_u8; 512];
        ok!(d.cuMemcpyHtoDAsync_v2(pointer, bytes.as_ptr().cast(), 512, stream));
        bytes.fill(9);
        assert_eq!(cu!(d.cuStreamQuery(stream)), CUDA_ERROR_NOT_READY, "it does not wait for the stream");
        drop(open);
        let mut read = [0_u8; 512];
        ok!(d.cuMemcpyDtoHAsync_v2(read.as_mut_ptr().cast(), pointer, 512, stream));
        assert_eq!(read, [5; 512], "as they were when the copy was queued, and there when the call returned");
    });
}
