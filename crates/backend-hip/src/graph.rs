//! Stream capture and graphs.

use crate::library::{HipDriver, ordinal};
use backend_api::types::Stream;
use backend_api::{CaptureNode, Result};
use backend_support::{CaptureState, GraphCalls, HostEntry, Site, call, graph_calls, number, pointer};
use granule_hip_sys::abi6::{
    hipGraphMemAttrReservedMemCurrent, hipStreamCaptureModeGlobal, hipStreamCaptureModeRelaxed,
    hipStreamCaptureModeThreadLocal, hipStreamCaptureStatusActive, hipStreamCaptureStatusNone,
    hipUserObjectNoDestructorSync,
};
use std::ffi::{c_uint, c_void};
use std::ptr;

const _: () = {
    assert!(hipStreamCaptureModeGlobal == 0);
    assert!(hipStreamCaptureModeThreadLocal == 1);
    assert!(hipStreamCaptureModeRelaxed == 2);
    assert!(hipStreamCaptureStatusNone == 0);
    assert!(hipStreamCaptureStatusActive == 1);
    assert!(hipUserObjectNoDestructorSync == 1);
};

// SAFETY: the runtime's list has as many nodes as it says and is valid until the next call about the stream.
unsafe impl GraphCalls for HipDriver {
    fn capture_state(site: Site<'_, Self>, stream: Stream, _tail: bool) -> Result<CaptureState> {
        if stream.raw == 0 {
            // It cannot be captured; asked about it, runtimes answer an error while another stream is.
            return Ok(CaptureState::NONE);
        }
        let (mut status, mut id, mut graph) = (0, 0, ptr::null_mut());
        let (mut list, mut count) = (ptr::null(), 0);
        // SAFETY: rule 1; the function writes the five answers, or none of the last four.
        unsafe {
            call!(site.hipStreamGetCaptureInfo_v2(
                pointer(stream.raw),
                &raw mut status,
                &raw mut id,
                &raw mut graph,
                &raw mut list,
                &raw mut count,
            ))
        }?;
        Ok(CaptureState { status, id, graph: number(graph), tail: list.cast(), count })
    }

    fn node_memory(site: Site<'_, Self>) -> Result<u64> {
        let mut bytes: u64 = 0;
        let (device, held) = (ordinal(site.device()), hipGraphMemAttrReservedMemCurrent);
        // SAFETY: for this attribute the function writes 64 bits.
        unsafe { call!(site.hipDeviceGetGraphMemAttribute(device, held, (&raw mut bytes).cast())) }?;
        Ok(bytes)
    }

    graph_calls! {
        captures: hipStreamBeginCapture, hipStreamEndCapture, hipThreadExchangeStreamCaptureMode, hipStreamGetCaptureInfo_v2;
        graphs: hipGraphInstantiateWithFlags, hipGraphLaunch, hipGraphExecDestroy, hipGraphDestroy, hipGraphNodeGetDependencies;
        objects: hipUserObjectCreate, hipUserObjectRelease, hipGraphRetainUserObject, hipGraphReleaseUserObject;
    }
}
