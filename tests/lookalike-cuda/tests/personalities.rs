//! Drivers of other kinds.

#![allow(clippy::borrow_as_ptr, clippy::macro_metavars_in_unsafe, reason = "tests call as C does")]

mod support;

use std::ptr::null_mut;
use support::header::*;
use support::{Driver, child, in_process, library, text};

#[test]
fn no_device() {
    in_process("no_device", "personality=no-device", || {
        let d = &Driver::load(&library());
        assert_eq!(cu!(d.cuInit(0)), CUDA_ERROR_NO_DEVICE);
        let mut count = 5;
        assert_eq!(cu!(d.cuDeviceGetCount(&mut count)), CUDA_ERROR_NOT_INITIALIZED);
    });
}

#[test]
fn stub() {
    in_process("stub", "personality=stub", || {
        let d = &Driver::load(&library());
        assert_eq!(cu!(d.cuInit(0)), CUDA_ERROR_STUB_LIBRARY);
        assert_eq!(cu!(d.cuDriverGetVersion(&mut 0)), CUDA_ERROR_STUB_LIBRARY);
    });
}

#[test]
fn one_device() {
    in_process("one_device", "personality=one-device", || {
        let d = &Driver::load(&library());
        d.enter(0);
        let mut count = 0;
        ok!(d.cuDeviceGetCount(&mut count));
        assert_eq!(count, 1);
    });
}

#[test]
fn no_virtual_memory() {
    in_process("no_virtual_memory", "personality=no-vmm", || {
        let d = &Driver::load(&library());
        d.enter(0);
        let mut value = 9;
        let number = CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED;
        ok!(d.cuDeviceGetAttribute(&mut value, number, 0));
        assert_eq!(value, 0);
        assert_eq!(cu!(d.cuMemAddressReserve(&mut 0, 2 << 20, 0, 0, 0)), CUDA_ERROR_NOT_SUPPORTED);
    });
}

#[test]
fn old_driver_with_the_newer_symbols() {
    in_process("old_driver_with_the_newer_symbols", "personality=old-driver", || {
        let d = &Driver::load(&library());
        d.enter(0);
        let mut version = 0;
        ok!(d.cuDriverGetVersion(&mut version));
        assert_eq!(version, 11_040);
        assert!(d.exports("cuStreamGetId") && d.exports("cuStreamGetFlags"));
    });
}

#[test]
fn old_driver_without_the_newer_symbols() {
    in_process("old_driver_without_the_newer_symbols", "personality=driver-11.4", || {
        // SAFETY: the library's initialisers are Rust's own and harm nothing.
        let old = unsafe { libloading::Library::new(library()) }.unwrap();
        // SAFETY: the symbol is looked for and not used.
        let exports = |name: &str| unsafe { old.get::<*const ()>(name) }.is_ok();
        let lacks: Vec<&str> =
            lookalike_cuda::entries().map(|entry| entry.name).filter(|name| !exports(name)).collect();
        let later = [
            "cuEventElapsedTime_v2",
            "cuGetProcAddress_v2",
            "cuStreamGetCaptureInfo_v3",
            "cuStreamGetDevice",
            "cuStreamGetId",
            "cuStreamWriteValue32_v2",
        ];
        assert!(
            lacks.iter().all(|name| later.contains(name)) && lacks.contains(&"cuStreamGetId"),
            "{lacks:?}"
        );
    });
}

#[test]
fn entry_points_by_name_and_version() {
    in_process("entry_points_by_name_and_version", "", || {
        let d = &Driver::load(&library());
        let find = |name: &std::ffi::CStr, version| {
            let (mut place, mut status) = (null_mut(), 9);
            ok!(d.cuGetProcAddress_v2(name.as_ptr(), &mut place, version, 0, &mut status));
            (place.addr(), status)
        };
        let found = |place: usize| (place, CU_GET_PROC_ADDRESS_SUCCESS);
        assert_eq!(find(c"cuMemAlloc", 12_000), found(d.cuMemAlloc_v2 as usize));
        assert_eq!(find(c"cuInit", 12_000), found(d.cuInit as usize));
        assert_eq!(find(c"cuStreamGetCaptureInfo", 12_000), found(d.cuStreamGetCaptureInfo_v2 as usize));
        assert_ne!(find(c"cuStreamGetCaptureInfo", 12_030), find(c"cuStreamGetCaptureInfo", 12_000));
        assert_eq!(find(c"cuStreamGetDevice", 12_000), (0, CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT));
        assert_eq!(find(c"cuNonsense", 12_000), (0, CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND));
    });
}

#[test]
fn settings_that_make_no_sense_are_said_and_refused() {
    let test = "settings_that_make_no_sense_are_said_and_refused";
    let settings = "devices=many";
    if std::env::var("GRANULE_LOOKALIKE").as_deref() == Ok(settings) {
        let d = &Driver::load(&library());
        assert_ne!(cu!(d.cuInit(0)), 0);
        return;
    }
    let output = child(test, settings, &[]).output().unwrap();
    assert!(output.status.success(), "{}", text(&output));
    assert!(text(&output).contains("`devices=many` is not understood"), "{}", text(&output));
}
