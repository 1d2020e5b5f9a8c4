//! Values on their way to C and back, in families that the example does not have.
#![allow(clippy::unwrap_used)] // a test says what is wrong by panicking

use alloc_core::backend::{
    Backend, Capture, CaptureNode, CaptureStatus, CopyKind, PhysicalSharing, PointerKind, ShareableHandle,
};
use alloc_core::types::{DeviceIndex, DeviceKind, DevicePtr};
use backend_c::{CBackend, RawCaptureStatus, RawPointerInfo, RawShareableHandle, RawStream, Table};
use std::cell::Cell;
use std::ffi::c_void;
use std::os::fd::AsRawFd;
use std::sync::Arc;

const DEVICE: DeviceIndex = DeviceIndex(0);

thread_local! {
    /// The argument that the last call below was about, or the answer of the next.
    static TOLD: Cell<i64> = const { Cell::new(i64::MIN) };
}

/// The example's functions, with some of this file.
fn backend(change: impl FnOnce(&mut Table)) -> Arc<CBackend> {
    // SAFETY: the example's table is static and whole.
    let mut table = unsafe { c_backend::table().read() };
    change(&mut table);
    // SAFETY: the example's functions, and functions of this file that keep the header's word.
    unsafe { CBackend::from_table("values", DeviceKind::PrivateUse1, &raw const table) }.unwrap()
}

#[test]
fn a_list_may_have_any_length() {
    unsafe extern "C" fn nodes(
        _: *mut c_void,
        _: RawStream,
        to: *mut u64,
        room: u64,
        count: *mut u64,
    ) -> i32 {
        let there = TOLD.get().cast_unsigned();
        for node in 0..there.min(room) {
            // SAFETY: the caller has room for so many.
            let place = unsafe { to.add(node as usize) };
            // SAFETY: as above.
            unsafe { place.write(node + 1) };
        }
        // SAFETY: the caller's place.
        unsafe { count.write(there) };
        0
    }
    let backend = backend(|t| t.capture_frontier = Some(nodes));
    for there in [0, 1, 16, 17, 40] {
        TOLD.set(there);
        let expected: Vec<_> = (1..=there.cast_unsigned()).map(CaptureNode).collect();
        assert_eq!(backend.frontier(backend.default_stream(DEVICE)).unwrap(), expected);
    }
}

#[test]
fn the_states_of_a_capture_are_the_headers() {
    unsafe extern "C" fn status(_: *mut c_void, _: RawStream, answer: *mut RawCaptureStatus) -> i32 {
        let state = i32::try_from(TOLD.get()).unwrap_or(-1);
        // SAFETY: the caller's place.
        unsafe { answer.write(RawCaptureStatus { id: 7, state }) };
        0
    }
    let backend = backend(|t| t.capture_status = Some(status));
    let stream = backend.default_stream(DEVICE);
    let states = [CaptureStatus::None, CaptureStatus::Active(7), CaptureStatus::Invalidated];
    for (number, state) in states.into_iter().enumerate() {
        TOLD.set(number as i64);
        assert_eq!(backend.status(stream).unwrap(), state);
    }
}

#[test]
fn an_import_is_lent_its_descriptor() {
    unsafe extern "C" fn import(
        _: *mut c_void,
        _: u16,
        shared: *const RawShareableHandle,
        _: *mut u64,
    ) -> i32 {
        // SAFETY: the caller's handle.
        TOLD.set(unsafe { (*shared).fd }.into());
        0
    }
    let backend = backend(|t| t.virtual_memory_import_physical = Some(import));
    let shared = ShareableHandle::PosixFd(std::fs::File::open("/dev/null").unwrap().into());
    backend.import_physical(DEVICE, &shared).unwrap();
    let ShareableHandle::PosixFd(kept) = shared else { unreachable!("as it was made") };
    assert_eq!(TOLD.get(), i64::from(kept.as_raw_fd()));
}

/// Without a `copy` of its own; addresses from 0x1000 on are of the second device.
#[test]
fn a_derived_copy_runs_on_the_device_whose_memory_it_is() {
    unsafe extern "C" fn info(_: *mut c_void, ptr: u64, answer: *mut RawPointerInfo) -> i32 {
        let info = match ptr {
            0x1000.. => RawPointerInfo { kind: PointerKind::Device as i32, device: 1, base: 0x1000 },
            _ => RawPointerInfo { kind: PointerKind::Unmanaged as i32, device: -1, base: 0 },
        };
        // SAFETY: the caller's place.
        unsafe { answer.write(info) };
        0
    }
    unsafe extern "C" fn copy(_: *mut c_void, _: u64, _: u64, _: u64, _: i32, stream: RawStream) -> i32 {
        TOLD.set(stream.device.into());
        0
    }
    let backend = backend(|t| {
        t.copy = None;
        t.copy_async = Some(copy);
        t.pointer_info = Some(info);
    });
    let (host, device) = (DevicePtr(0x100), DevicePtr(0x1000));
    for (dst, src, kind) in [
        (device, host, CopyKind::HostToDevice),
        (host, device, CopyKind::DeviceToHost),
        (device, device, CopyKind::DeviceToDevice),
    ] {
        TOLD.set(i64::MIN);
        // SAFETY: the function copies nothing.
        unsafe { backend.copy(dst, src, 16, kind) }.unwrap();
        assert_eq!(TOLD.get(), 1, "{kind:?}");
    }
}
