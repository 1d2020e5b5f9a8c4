//! Sharing between two processes.

#![allow(clippy::borrow_as_ptr, clippy::macro_metavars_in_unsafe, reason = "tests call as C does")]

mod support;

use granule_hip_sys::abi6::*;
use std::ptr::null_mut;
use support::processes::{child, from_hex, hex, text};
use support::{Runtime, in_process, properties};

const HANDLE: &str = "LOOKALIKE_TEST_HANDLE";
const TEST: &str = "memory_reaches_another_process";

#[test]
fn memory_reaches_another_process() {
    for name in ["rocm6", "rocm7"] {
        let settings = format!("personality={name}");
        in_process(TEST, &settings, |h| match std::env::var(HANDLE) {
            Ok(memory) => import(h, &memory),
            Err(_) => export(h, &settings),
        });
    }
}

fn export(h: &Runtime, settings: &str) {
    let pointer = h.memory(2 << 20);
    h.write(pointer, 1);
    let mut memory = hipIpcMemHandle_t { reserved: [0; 64] };
    ok!(h.hipIpcGetMemHandle(&mut memory, pointer));
    let inside = pointer.wrapping_byte_add(512);
    assert_eq!(hip!(h.hipIpcGetMemHandle(&mut memory, inside)), hipErrorInvalidDevicePointer);
    assert_eq!(
        hip!(h.hipIpcOpenMemHandle(&mut null_mut(), memory, hipIpcMemLazyEnablePeerAccess)),
        hipErrorInvalidContext
    );
    let importer =
        child(TEST, settings, &[(HANDLE, &hex(&memory.reserved))]).output().expect("a test starts itself");
    assert!(importer.status.success(), "{}", text(&importer));
    assert!(h.holds(pointer, 2));
}

fn import(h: &Runtime, memory: &str) {
    let memory = hipIpcMemHandle_t { reserved: from_hex(memory) };
    let (mut opened, mut again) = (null_mut(), null_mut());
    assert_eq!(hip!(h.hipIpcOpenMemHandle(&mut opened, memory, 0)), hipErrorInvalidValue);
    ok!(h.hipIpcOpenMemHandle(&mut opened, memory, hipIpcMemLazyEnablePeerAccess));
    // Not twice; a program remembers what it opened.
    assert_eq!(
        hip!(h.hipIpcOpenMemHandle(&mut again, memory, hipIpcMemLazyEnablePeerAccess)),
        hipErrorInvalidDevicePointer
    );
    assert!(h.holds(opened, 1));
    h.write(opened, 2);
    assert_eq!(hip!(h.hipFree(opened)), hipErrorInvalidValue);
    ok!(h.hipIpcCloseMemHandle(opened));
    assert_eq!(hip!(h.hipIpcCloseMemHandle(opened)), hipErrorInvalidValue);
    // Closed, it can be opened anew.
    ok!(h.hipIpcOpenMemHandle(&mut opened, memory, hipIpcMemLazyEnablePeerAccess));
    ok!(h.hipIpcCloseMemHandle(opened));
    let garbage = hipIpcMemHandle_t { reserved: [7; 64] };
    assert_eq!(
        hip!(h.hipIpcOpenMemHandle(&mut opened, garbage, hipIpcMemLazyEnablePeerAccess)),
        hipErrorInvalidDevicePointer
    );
}

#[test]
fn virtual_memory_is_given_a_worthless_handle() {
    in_process("virtual_memory_is_given_a_worthless_handle", "personality=rocm70", |h| {
        let (mut base, mut handle, bytes) = (null_mut(), null_mut(), 2 << 20);
        ok!(h.hipMemAddressReserve(&mut base, bytes, 0, null_mut(), 0));
        ok!(h.hipMemCreate(&mut handle, bytes, &properties(), 0));
        ok!(h.hipMemMap(base, bytes, 0, handle, 0));
        let mut shared = hipIpcMemHandle_t { reserved: [0; 64] };
        ok!(h.hipIpcGetMemHandle(&mut shared, base));
        assert_eq!(h.traps(), 1);
    });
}
