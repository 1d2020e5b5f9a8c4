//! Sharing between two processes.

#![allow(clippy::borrow_as_ptr, clippy::macro_metavars_in_unsafe, reason = "tests call as C does")]

mod support;

use std::process::Stdio;
use support::header::*;
use support::processes::{from_hex, hex};
use support::{Driver, child, in_process, library, text};

const HANDLES: &str = "LOOKALIKE_TEST_HANDLES";

#[test]
fn memory_and_events_reach_another_process() {
    let test = "memory_and_events_reach_another_process";
    if let Ok(handles) = std::env::var(HANDLES) {
        return import(&handles);
    }
    in_process(test, "", || {
        let d = &Driver::load(&library());
        d.enter(0);
        let pointer = d.memory(2 << 20);
        let bytes = [0x5a_u8; 256];
        ok!(d.cuMemcpyHtoD_v2(pointer, bytes.as_ptr().cast(), 256));
        let event = d.event(CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS);
        ok!(d.cuEventRecord(event, std::ptr::null_mut()));
        let mut memory = CUipcMemHandle { reserved: [0; 64] };
        ok!(d.cuIpcGetMemHandle(&mut memory, pointer));
        let mut shared = CUipcEventHandle { reserved: [0; 64] };
        ok!(d.cuIpcGetEventHandle(&mut shared, event));
        assert_eq!(cu!(d.cuIpcGetMemHandle(&mut memory, pointer + 512)), CUDA_ERROR_INVALID_VALUE);
        assert_eq!(cu!(d.cuIpcGetEventHandle(&mut shared, d.event(0))), CUDA_ERROR_INVALID_HANDLE);
        let mut opened = 0;
        let lazy = CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS;
        assert_eq!(cu!(d.cuIpcOpenMemHandle_v2(&mut opened, memory, lazy)), CUDA_ERROR_INVALID_CONTEXT);
        let handles = format!("{},{}", hex(&memory.reserved), hex(&shared.reserved));
        let importer = child(test, "", &[(HANDLES, &handles)]).stdout(Stdio::piped()).output().unwrap();
        assert!(importer.status.success(), "{}", text(&importer));
        let mut got = [0u8; 256];
        ok!(d.cuMemcpyDtoH_v2(got.as_mut_ptr().cast(), pointer, 256));
        assert_eq!(got, [0x77_u8; 256]);
    });
}

fn import(handles: &str) {
    let (memory, event) = handles.split_once(',').expect("two handles with a comma");
    let (memory, event) =
        (CUipcMemHandle { reserved: from_hex(memory) }, CUipcEventHandle { reserved: from_hex(event) });
    let d = &Driver::load(&library());
    d.enter(0);
    let lazy = CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS;
    let (mut first, mut second) = (0, 0);
    assert_eq!(cu!(d.cuIpcOpenMemHandle_v2(&mut first, memory, 0)), CUDA_ERROR_INVALID_VALUE);
    ok!(d.cuIpcOpenMemHandle_v2(&mut first, memory, lazy));
    ok!(d.cuIpcOpenMemHandle_v2(&mut second, memory, lazy));
    assert_eq!(first, second);
    let mut opened = std::ptr::null_mut();
    ok!(d.cuIpcOpenEventHandle(&mut opened, event));
    ok!(d.cuEventSynchronize(opened));
    let mut got = [0u8; 256];
    ok!(d.cuMemcpyDtoH_v2(got.as_mut_ptr().cast(), first, 256));
    assert_eq!(got, [0x5a_u8; 256]);
    got.fill(0x77);
    ok!(d.cuMemcpyHtoD_v2(first, got.as_ptr().cast(), 256));
    ok!(d.cuIpcCloseMemHandle(first));
    ok!(d.cuIpcCloseMemHandle(second));
    assert_eq!(cu!(d.cuIpcCloseMemHandle(second)), CUDA_ERROR_INVALID_VALUE);
}
