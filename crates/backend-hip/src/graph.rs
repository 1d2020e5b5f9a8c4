//! Stream capture and graphs.

use crate::library::{HipDriver, ordinal};
use backend_api::types::Stream;
use backend_api::{CaptureNode, Result};
use backend_support::{CaptureState, GraphCalls, HostEntry, Site, call, number, pointer};
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

    fn begin(site: Site<'_, Self>, stream: Stream, mode: c_uint) -> Result<()> {
        // SAFETY: rule 1.
        unsafe { call!(site.hipStreamBeginCapture(pointer(stream.raw), mode)) }
    }

    fn end(site: Site<'_, Self>, stream: Stream) -> Result<u64> {
        let mut graph = ptr::null_mut();
        // SAFETY: rule 1; the function writes one handle.
        unsafe { call!(site.hipStreamEndCapture(pointer(stream.raw), &raw mut graph)) }?;
        Ok(number(graph))
    }

    fn exchange_mode(site: Site<'_, Self>, mut mode: c_uint) -> Result<c_uint> {
        // SAFETY: the function reads one integer and writes the one before in its place.
        unsafe { call!(site.hipThreadExchangeStreamCaptureMode(&raw mut mode)) }?;
        Ok(mode)
    }

    fn has_modes(&self) -> bool {
        self.functions.hipThreadExchangeStreamCaptureMode.is_some()
    }

    fn has_captures(&self) -> bool {
        self.functions.hipStreamGetCaptureInfo_v2.is_some()
    }

    fn node_memory(site: Site<'_, Self>) -> Result<u64> {
        let mut bytes: u64 = 0;
        let (device, held) = (ordinal(site.device()), hipGraphMemAttrReservedMemCurrent);
        // SAFETY: for this attribute the function writes 64 bits.
        unsafe { call!(site.hipDeviceGetGraphMemAttribute(device, held, (&raw mut bytes).cast())) }?;
        Ok(bytes)
    }

    unsafe fn instantiate(site: Site<'_, Self>, graph: u64) -> Result<u64> {
        let mut executable = ptr::null_mut();
        // SAFETY: the caller's graph; the function writes one handle.
        unsafe { call!(site.hipGraphInstantiateWithFlags(&raw mut executable, pointer(graph), 0)) }?;
        Ok(number(executable))
    }

    unsafe fn launch(site: Site<'_, Self>, executable: u64, stream: Stream) -> Result<()> {
        // SAFETY: rule 1 for the stream; the caller answers for the rest.
        unsafe { call!(site.hipGraphLaunch(pointer(executable), pointer(stream.raw))) }
    }

    unsafe fn destroy_executable(site: Site<'_, Self>, executable: u64) -> Result<()> {
        // SAFETY: the caller uses the handle no more.
        unsafe { call!(site.hipGraphExecDestroy(pointer(executable))) }
    }

    unsafe fn destroy_graph(site: Site<'_, Self>, graph: u64) -> Result<()> {
        // SAFETY: the caller uses the handle no more.
        unsafe { call!(site.hipGraphDestroy(pointer(graph))) }
    }

    unsafe fn node_dependencies(
        site: Site<'_, Self>,
        node: CaptureNode,
        list: *mut *mut c_void,
        count: &mut usize,
    ) -> Result<()> {
        // SAFETY: the caller's node and list; the function writes how many nodes there are.
        unsafe { call!(site.hipGraphNodeGetDependencies(pointer(node.0), list.cast(), count)) }
    }

    unsafe fn create_user_object(
        site: Site<'_, Self>,
        data: *mut c_void,
        ending: HostEntry,
    ) -> Result<*mut c_void> {
        let flags = hipUserObjectNoDestructorSync;
        let mut object = ptr::null_mut();
        // SAFETY: the caller answers for the data and its end; the function writes one handle.
        unsafe { call!(site.hipUserObjectCreate(&raw mut object, data, Some(ending), 1, flags)) }?;
        Ok(object.cast())
    }

    unsafe fn release_user_object(site: Site<'_, Self>, object: *mut c_void) -> Result<()> {
        // SAFETY: the caller's reference.
        unsafe { call!(site.hipUserObjectRelease(object.cast(), 1)) }
    }

    unsafe fn retain_user_object(site: Site<'_, Self>, graph: u64, object: *mut c_void) -> Result<()> {
        // SAFETY: both are live.
        unsafe { call!(site.hipGraphRetainUserObject(pointer(graph), object.cast(), 1, 0)) }
    }

    unsafe fn unhold_user_object(site: Site<'_, Self>, graph: u64, object: *mut c_void) -> Result<()> {
        // SAFETY: the graph has a reference.
        unsafe { call!(site.hipGraphReleaseUserObject(pointer(graph), object.cast(), 1)) }
    }
}
