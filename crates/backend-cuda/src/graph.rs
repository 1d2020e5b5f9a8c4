//! Stream capture and graphs.

use crate::library::CudaDriver;
use backend_api::types::Stream;
use backend_api::{CaptureNode, Result};
use backend_support::{CaptureState, GraphCalls, HostEntry, Site, call, number, pointer};
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

    fn begin(site: Site<'_, Self>, stream: Stream, mode: c_uint) -> Result<()> {
        // SAFETY: rule 1.
        unsafe { call!(site.cuStreamBeginCapture_v2(pointer(stream.raw), mode)) }
    }

    fn end(site: Site<'_, Self>, stream: Stream) -> Result<u64> {
        let mut graph = ptr::null_mut();
        // SAFETY: rule 1; the function writes one handle.
        unsafe { call!(site.cuStreamEndCapture(pointer(stream.raw), &raw mut graph)) }?;
        Ok(number(graph))
    }

    fn exchange_mode(site: Site<'_, Self>, mut mode: c_uint) -> Result<c_uint> {
        // SAFETY: the function reads one integer and writes the one before in its place.
        unsafe { call!(site.cuThreadExchangeStreamCaptureMode(&raw mut mode)) }?;
        Ok(mode)
    }

    fn has_modes(&self) -> bool {
        self.functions.cuThreadExchangeStreamCaptureMode.is_some()
    }

    fn has_captures(&self) -> bool {
        self.functions.cuStreamGetCaptureInfo_v2.is_some()
    }

    fn node_memory(site: Site<'_, Self>) -> Result<u64> {
        let device = site.driver().device(site.device())?.number;
        let held = CUgraphMem_attribute::CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT;
        let mut bytes: u64 = 0;
        // SAFETY: for this attribute the function writes 64 bits.
        unsafe { call!(site.cuDeviceGetGraphMemAttribute(device, held as c_uint, (&raw mut bytes).cast())) }?;
        Ok(bytes)
    }

    unsafe fn instantiate(site: Site<'_, Self>, graph: u64) -> Result<u64> {
        let mut executable = ptr::null_mut();
        // SAFETY: the caller's graph; the function writes one handle.
        unsafe { call!(site.cuGraphInstantiateWithFlags(&raw mut executable, pointer(graph), 0)) }?;
        Ok(number(executable))
    }

    unsafe fn launch(site: Site<'_, Self>, executable: u64, stream: Stream) -> Result<()> {
        // SAFETY: rule 1 for the stream; the caller answers for the rest.
        unsafe { call!(site.cuGraphLaunch(pointer(executable), pointer(stream.raw))) }
    }

    unsafe fn destroy_executable(site: Site<'_, Self>, executable: u64) -> Result<()> {
        // SAFETY: the caller uses the handle no more.
        unsafe { call!(site.cuGraphExecDestroy(pointer(executable))) }
    }

    unsafe fn destroy_graph(site: Site<'_, Self>, graph: u64) -> Result<()> {
        // SAFETY: the caller uses the handle no more.
        unsafe { call!(site.cuGraphDestroy(pointer(graph))) }
    }

    unsafe fn node_dependencies(
        site: Site<'_, Self>,
        node: CaptureNode,
        list: *mut *mut c_void,
        count: &mut usize,
    ) -> Result<()> {
        // SAFETY: the caller's node and list; the function writes how many nodes there are.
        unsafe { call!(site.cuGraphNodeGetDependencies(pointer(node.0), list.cast(), count)) }
    }

    unsafe fn create_user_object(
        site: Site<'_, Self>,
        data: *mut c_void,
        ending: HostEntry,
    ) -> Result<*mut c_void> {
        let flags = CUuserObject_flags::CU_USER_OBJECT_NO_DESTRUCTOR_SYNC as c_uint;
        let mut object = ptr::null_mut();
        // SAFETY: the caller answers for the data and its end; the function writes one handle.
        unsafe { call!(site.cuUserObjectCreate(&raw mut object, data, Some(ending), 1, flags)) }?;
        Ok(object.cast())
    }

    unsafe fn release_user_object(site: Site<'_, Self>, object: *mut c_void) -> Result<()> {
        // SAFETY: the caller's reference.
        unsafe { call!(site.cuUserObjectRelease(object.cast(), 1)) }
    }

    unsafe fn retain_user_object(site: Site<'_, Self>, graph: u64, object: *mut c_void) -> Result<()> {
        // SAFETY: both are live.
        unsafe { call!(site.cuGraphRetainUserObject(pointer(graph), object.cast(), 1, 0)) }
    }

    unsafe fn unhold_user_object(site: Site<'_, Self>, graph: u64, object: *mut c_void) -> Result<()> {
        // SAFETY: the graph has a reference.
        unsafe { call!(site.cuGraphReleaseUserObject(pointer(graph), object.cast(), 1)) }
    }
}
