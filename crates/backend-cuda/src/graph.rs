//! Stream capture and graphs.

use crate::library::CudaDriver;
use backend_api::types::Stream;
use backend_api::{CaptureNode, Result};
use backend_support::{CaptureState, GraphCalls, HostEntry, Site, call, graph_calls, number, pointer};
use cudarc::driver::sys::{
    CUgraphMem_attribute, CUstreamCaptureMode, CUstreamCaptureStatus, CUuserObject_flags,
};
use std::ffi::{c_uint, c_void};
use std::ptr;

const _: () = {
    assert!(CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_GLOBAL as c_uint == 0);
    assert!(CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL as c_uint == 1);
    assert!(CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED as c_uint == 2);
    assert!(CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE as c_uint == 0);
    assert!(CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_ACTIVE as c_uint == 1);
    assert!(CUuserObject_flags::CU_USER_OBJECT_NO_DESTRUCTOR_SYNC as c_uint == 1);
};

// SAFETY: the driver's list has as many nodes as it says and is valid until the next call about the stream.
unsafe impl GraphCalls for CudaDriver {
    fn capture_state(site: Site<'_, Self>, stream: Stream, tail: bool) -> Result<CaptureState> {
        let (mut status, mut id, mut graph) = (0, 0, ptr::null_mut());
        let (mut list, mut count) = (ptr::null(), 0);
        // Who asks for the dependencies without the edges' data gets an error where there is such data (CUDA 12.3).
        let (list_at, count_at) =
            if tail { (&raw mut list, &raw mut count) } else { (ptr::null_mut(), ptr::null_mut()) };
        // SAFETY: rule 1; the function writes the answers that are wanted, or none of the last four.
        unsafe {
            call!(site.cuStreamGetCaptureInfo_v2(
                pointer(stream.raw),
                &raw mut status,
                &raw mut id,
                &raw mut graph,
                list_at,
                count_at,
            ))
        }?;
        Ok(CaptureState { status, id, graph: number(graph), tail: list.cast(), count })
    }

    fn node_memory(site: Site<'_, Self>) -> Result<u64> {
        let device = site.driver().device(site.device())?.number;
        let held = CUgraphMem_attribute::CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT;
        let mut bytes: u64 = 0;
        // SAFETY: for this attribute the function writes 64 bits.
        unsafe { call!(site.cuDeviceGetGraphMemAttribute(device, held as c_uint, (&raw mut bytes).cast())) }?;
        Ok(bytes)
    }

    graph_calls! {
        captures: cuStreamBeginCapture_v2, cuStreamEndCapture, cuThreadExchangeStreamCaptureMode, cuStreamGetCaptureInfo_v2;
        graphs: cuGraphInstantiateWithFlags, cuGraphLaunch, cuGraphExecDestroy, cuGraphDestroy, cuGraphNodeGetDependencies;
        objects: cuUserObjectCreate, cuUserObjectRelease, cuGraphRetainUserObject, cuGraphReleaseUserObject;
    }
}
