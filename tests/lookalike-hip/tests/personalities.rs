//! What tells the runtime's releases apart.

#![allow(clippy::borrow_as_ptr, clippy::macro_metavars_in_unsafe, reason = "tests call as C does")]

mod support;

use granule_hip_sys::abi6::*;
use granule_hip_sys::abi7;
use std::ffi::{CStr, CString};
use std::ptr::null_mut;
use support::{Runtime, in_process};

const RELEASES: [&str; 3] = ["rocm6", "rocm70", "rocm7"];

fn each(test: &str, body: impl Fn(&str, &Runtime)) {
    for name in RELEASES {
        in_process(test, &format!("personality={name}"), |runtime| body(name, runtime));
    }
}

#[test]
fn versions_and_exports_are_the_releases() {
    each("versions_and_exports_are_the_releases", |name, h| {
        let (mut version, mut count) = (0, 0);
        ok!(h.hipRuntimeGetVersion(&mut version));
        ok!(h.hipGetDeviceCount(&mut count));
        let wanted = [60_443_484, 70_051_831, 70_152_802];
        assert_eq!((version, count), (wanted[RELEASES.iter().position(|known| *known == name).unwrap()], 2));
        for symbol in NAMES {
            assert!(h.exports(&CString::new(*symbol).unwrap()), "{symbol} in {name}");
        }
        for symbol in abi7::ADDED {
            let is_known =
                name == "rocm7" || (name == "rocm70" && *symbol == "hipMemGetHandleForAddressRange");
            assert_eq!(h.exports(&CString::new(*symbol).unwrap()), is_known, "{symbol} in {name}");
        }
    });
}

#[test]
fn attributes_and_kinds_have_the_releases_numbers() {
    each("attributes_and_kinds_have_the_releases_numbers", |_, h| {
        let mut value = 0;
        ok!(h.hipDeviceGetAttribute(&mut value, hipDeviceAttributeWarpSize, 0));
        assert_eq!(value, 32);
        let number = hipDeviceAttributeVirtualMemoryManagementSupported;
        ok!(h.hipDeviceGetAttribute(&mut value, number, 0));
        assert_eq!(value, 1);
        let attributes_of = |pointer| {
            // SAFETY: numbers and pointers, of which all may be zero.
            let mut found = unsafe { std::mem::zeroed::<hipPointerAttribute_t>() };
            let status = hip!(h.hipPointerGetAttributes(&mut found, pointer));
            (status, found)
        };
        let device = h.memory(512);
        let mut host = null_mut();
        ok!(h.hipHostMalloc(&mut host, 512, 0));
        for (pointer, kind) in [(device, 2), (host, 1)] {
            let (status, found) = attributes_of(pointer.cast_const());
            assert_eq!((status, found.type_, found.isManaged), (hipSuccess, kind, 0));
        }
        let unknown = &raw const value;
        let (status, found) = attributes_of(unknown.cast());
        assert_eq!((status, found.type_), (hipSuccess, hipMemoryTypeUnregistered));
    });
}

#[test]
fn the_last_error_is_kept_from_7_on() {
    each("the_last_error_is_kept_from_7_on", |name, h| {
        let is_kept = matches!(name, "rocm70" | "rocm7");
        let mut device = 0;
        assert_eq!(hip!(h.hipSetDevice(9)), hipErrorInvalidDevice);
        assert_eq!(h.last_error(), 101);
        assert_eq!(hip!(h.hipPeekAtLastError()), hipErrorInvalidDevice);
        ok!(h.hipGetDevice(&mut device));
        assert_eq!(h.last_error(), if is_kept { 101 } else { 0 });
        assert_eq!(hip!(h.hipGetLastError()), if is_kept { hipErrorInvalidDevice } else { hipSuccess });
        assert_eq!((hip!(h.hipGetLastError()), h.last_error()), (hipSuccess, 0));
        // "Not ready" is a status, and no error from 7 on.
        h.fail_function(c"hipStreamQuery".as_ptr(), 1, 600);
        assert_eq!(hip!(h.hipStreamQuery(null_mut())), hipErrorNotReady);
        assert_eq!(h.last_error(), if is_kept { 0 } else { 600 });
        if h.exports(c"hipExtGetLastError") {
            assert_eq!(hip!(h.hipExtGetLastError()), hipErrorNotReady);
            assert_eq!(hip!(h.hipExtGetLastError()), hipSuccess);
        }
    });
}

fn refusals(h: &Runtime) {
    let wanted = hipErrorNoDevice;
    let (mut number, mut pointer) = (7, null_mut());
    assert_eq!(hip!(h.hipGetDeviceCount(&mut number)), wanted);
    assert_eq!(number, 0);
    ok!(h.hipRuntimeGetVersion(&mut number));
    assert_eq!(hip!(h.hipInit(0)), wanted);
    assert_eq!(hip!(h.hipGetDevice(&mut number)), wanted);
    assert_eq!(hip!(h.hipSetDevice(0)), wanted);
    assert_eq!(hip!(h.hipMalloc(&mut pointer, 512)), wanted);
    assert_eq!(hip!(h.hipHostMalloc(&mut pointer, 512, 0)), wanted);
    assert_eq!(hip!(h.hipFree(null_mut())), wanted);
    assert_eq!((hip!(h.hipGetLastError()), hip!(h.hipGetLastError())), (wanted, wanted));
}

#[test]
fn without_a_device_every_call_fails() {
    let test = "without_a_device_every_call_fails";
    in_process(test, "personality=no-device", refusals);
}

#[test]
fn texts_need_no_device() {
    let test = "texts_need_no_device";
    let read = |text: *const std::ffi::c_char| {
        // SAFETY: the runtime's texts end, and stay.
        unsafe { CStr::from_ptr(text) }.to_str().unwrap()
    };
    in_process(test, "personality=no-device", |h| {
        assert_eq!(read(hip!(h.hipGetErrorName(2))), "hipErrorOutOfMemory");
        assert_eq!(read(hip!(h.hipGetErrorName(914))), "hipErrorUnknown");
        assert_eq!(read(hip!(h.hipGetErrorString(100))), "no ROCm-capable device is detected");
    });
    in_process(test, "personality=rocm7", |h| {
        assert_eq!(read(hip!(h.hipGetErrorName(914))), "hipErrorInvalidResourceType");
    });
}

#[test]
fn functions_are_found_by_name() {
    in_process("functions_are_found_by_name", "personality=rocm6", |h| {
        let (mut place, mut status) = (null_mut(), 9);
        ok!(h.hipGetProcAddress(c"hipMalloc".as_ptr(), &mut place, 60_000_000, 0, &mut status));
        let wanted = h.functions.base.hipMalloc.unwrap() as *const () as usize;
        assert_eq!((place.addr(), status), (wanted, HIP_GET_PROC_ADDRESS_SUCCESS));
        for (name, version, answer) in [
            (c"hipStreamGetId", 60_000_000, HIP_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND),
            (c"hipMalloc", 70_000_000, HIP_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT),
        ] {
            let called = hip!(h.hipGetProcAddress(name.as_ptr(), &mut place, version, 0, &mut status));
            assert_eq!((called, status, place), (hipErrorInvalidValue, answer, null_mut()));
        }
    });
}
