//! Stream capture and graphs.

use crate::cuda::Cuda;
use crate::driver::{Site, given_back, number, pointer};
use crate::error;
use crate::host_function;
use backend_api::types::Stream;
use backend_api::{Capture, CaptureMode, CaptureNode, CaptureStatus, ErrorKind, Graph, HostFunction, Result};
use cudarc::driver::sys::{CUgraph, CUgraphNode, CUstreamCaptureMode, CUstreamCaptureStatus};
use std::collections::HashMap;
use std::ffi::c_uint;
use std::ptr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

const INFO: &str = "cuStreamGetCaptureInfo";

/// A graph's executable form. The driver does not order calls about it by itself: who launches it holds the lock.
type Executable = Arc<Mutex<u64>>;

/// The executable form of every graph that was launched, by the graph's handle.
#[derive(Debug, Default)]
pub(crate) struct Executables(Mutex<HashMap<u64, Executable>>);

impl Executables {
    fn lock(&self) -> MutexGuard<'_, HashMap<u64, Executable>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What the driver says about a stream's capture.
#[derive(Debug)]
pub(crate) struct CaptureInfo {
    pub(crate) status: CaptureStatus,
    pub(crate) graph: CUgraph,
}

pub(crate) fn capture_info(site: Site<'_>, stream: Stream) -> Result<CaptureInfo> {
    // Who asks for the dependencies without the edges' data gets an error where there is such data (CUDA 12.3).
    ask(site, stream, ptr::null_mut(), ptr::null_mut())
}

/// Both places are null where the dependencies are not wanted. The list is valid until the next call about the
/// stream.
fn ask(
    site: Site<'_>,
    stream: Stream,
    dependencies: *mut *const CUgraphNode,
    count: *mut usize,
) -> Result<CaptureInfo> {
    let (mut status, mut id, mut graph) = (0, 0, ptr::null_mut());
    // SAFETY: rule 1; the function writes the answers that are wanted, or none of the last four.
    unsafe {
        call!(site.cuStreamGetCaptureInfo_v2(
            pointer(stream.raw),
            &raw mut status,
            &raw mut id,
            &raw mut graph,
            dependencies,
            count,
        ))
    }?;
    let status = if status == CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE as c_uint {
        CaptureStatus::None
    } else if status == CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_ACTIVE as c_uint {
        CaptureStatus::Active(id)
    } else {
        CaptureStatus::Invalidated
    };
    Ok(CaptureInfo { status, graph })
}

/// Refuses a stream that has no whole capture.
fn active(site: Site<'_>, info: CaptureInfo) -> Result<CaptureInfo> {
    match info.status {
        CaptureStatus::Active(_) => Ok(info),
        CaptureStatus::None => Err(site.invalid(INFO, "the stream is not captured")),
        CaptureStatus::Invalidated => {
            let detail = "an earlier call broke the capture; end it and begin again";
            Err(site.refuse(ErrorKind::CaptureViolation, INFO, detail))
        }
    }
}

fn mode_number(mode: CaptureMode) -> c_uint {
    match mode {
        CaptureMode::Global => CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_GLOBAL as c_uint,
        CaptureMode::ThreadLocal => CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL as c_uint,
        CaptureMode::Relaxed => CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED as c_uint,
    }
}

fn mode_of(number: c_uint) -> Option<CaptureMode> {
    [CaptureMode::Global, CaptureMode::ThreadLocal, CaptureMode::Relaxed]
        .into_iter()
        .find(|&mode| mode_number(mode) == number)
}

/// While this lives, the thread may make calls that a capture forbids. For probes, which must not break the
/// capture of a program that asks what there is.
#[derive(Debug)]
pub(crate) struct Relaxed<'c> {
    cuda: &'c Cuda,
    before: Option<CaptureMode>,
}

impl Drop for Relaxed<'_> {
    fn drop(&mut self) {
        if let Some(before) = self.before
            && let Err(error) = self.cuda.exchange_mode(before)
        {
            tracing::error!(%error, "could not restore the thread's capture mode");
        }
    }
}

impl Cuda {
    pub(crate) fn relaxed(&self) -> Result<Relaxed<'_>> {
        // Without the function there are no captures that could break.
        let there = self.driver.functions.cuThreadExchangeStreamCaptureMode.is_some();
        let before = if there { Some(self.exchange_mode(CaptureMode::Relaxed)?) } else { None };
        Ok(Relaxed { cuda: self, before })
    }

    pub(crate) fn probe_capture(&self) -> Result<()> {
        needs!(self: cuStreamGetCaptureInfo_v2, cuStreamBeginCapture_v2, cuStreamEndCapture,
            cuThreadExchangeStreamCaptureMode, cuGraphInstantiateWithFlags, cuGraphLaunch, cuGraphExecDestroy,
            cuGraphDestroy, cuGraphNodeGetDependencies, cuUserObjectCreate, cuUserObjectRelease,
            cuGraphRetainUserObject, cuGraphReleaseUserObject)?;
        let _relaxed = self.relaxed()?;
        let stream = self.create_stream(self.device_of_thread()?, 0)?;
        let tried = self.begin(stream, CaptureMode::Relaxed).and_then(|()| {
            let graph = self.end(stream)?;
            // SAFETY: the graph is this probe's and is not used again.
            unsafe { self.destroy_graph(graph) }
        });
        // SAFETY: the stream is this probe's and is not used again.
        let destroyed = unsafe { self.destroy_stream(stream) };
        tried.and(destroyed)
    }

    /// The graph's executable form, made at the first launch.
    fn executable(&self, site: Site<'_>, graph: Graph) -> Result<Executable> {
        // Held over the call, so that two first launches make one.
        let mut executables = self.executables.lock();
        if let Some(known) = executables.get(&graph.raw) {
            return Ok(Arc::clone(known));
        }
        let mut executable = ptr::null_mut();
        // SAFETY: rule 1; the function writes one handle.
        unsafe { call!(site.cuGraphInstantiateWithFlags(&raw mut executable, pointer(graph.raw), 0)) }?;
        let executable = Arc::new(Mutex::new(number(executable)));
        executables.insert(graph.raw, Arc::clone(&executable));
        Ok(executable)
    }
}

impl Capture for Cuda {
    fn status(&self, stream: Stream) -> Result<CaptureStatus> {
        let entered = self.enter_handle(stream.backend, stream.device, INFO)?;
        match capture_info(*entered, stream) {
            // So the driver answers for the null stream while another one is captured for which it would wait.
            // It cannot be captured itself.
            Err(failed) if stream.raw == 0 && failed.code == error::STREAM_CAPTURE_IMPLICIT => {
                Ok(CaptureStatus::None)
            }
            other => other.map(|info| info.status),
        }
    }

    fn begin(&self, stream: Stream, mode: CaptureMode) -> Result<()> {
        let entered = self.enter_handle(stream.backend, stream.device, "cuStreamBeginCapture")?;
        // SAFETY: rule 1.
        unsafe { call!(entered.cuStreamBeginCapture_v2(pointer(stream.raw), mode_number(mode))) }
    }

    fn end(&self, stream: Stream) -> Result<Graph> {
        let entered = self.enter_handle(stream.backend, stream.device, "cuStreamEndCapture")?;
        let mut graph = ptr::null_mut();
        // SAFETY: rule 1; the function writes one handle.
        unsafe { call!(entered.cuStreamEndCapture(pointer(stream.raw), &raw mut graph)) }?;
        if graph.is_null() {
            let detail = "the capture was broken, and there is no graph";
            return Err(entered.refuse(ErrorKind::CaptureViolation, "cuStreamEndCapture", detail));
        }
        Ok(Graph { raw: number(graph), backend: self.id })
    }

    unsafe fn launch(&self, graph: Graph, stream: Stream) -> Result<()> {
        let entered = self.enter_handle(stream.backend, stream.device, "cuGraphLaunch")?;
        self.own(graph.backend, stream.device, "cuGraphLaunch")?;
        let executable = self.executable(*entered, graph)?;
        let executable = executable.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: rule 1 for the stream; rule 2 for what the graph's work uses, which the caller keeps.
        unsafe { call!(entered.cuGraphLaunch(pointer(*executable), pointer(stream.raw))) }
    }

    unsafe fn destroy_graph(&self, graph: Graph) -> Result<()> {
        let destroy = || {
            let site = self.any_site("cuGraphDestroy")?;
            self.own(graph.backend, site.device(), "cuGraphDestroy")?;
            let executable = self.executables.lock().remove(&graph.raw);
            if let Some(executable) = executable {
                let raw = *executable.lock().unwrap_or_else(PoisonError::into_inner);
                // SAFETY: this backend made it, and removed it; the driver waits for queued launches itself.
                unsafe { call!(site.cuGraphExecDestroy(pointer(raw))) }.inspect_err(|_| {
                    self.executables.lock().insert(graph.raw, executable);
                })?;
            }
            // SAFETY: rule 1, and the caller uses the handle no more.
            unsafe { call!(site.cuGraphDestroy(pointer(graph.raw))) }
        };
        given_back(destroy())
    }

    fn exchange_mode(&self, mode: CaptureMode) -> Result<CaptureMode> {
        const CALL: &str = "cuThreadExchangeStreamCaptureMode";
        let site = self.any_site(CALL)?;
        let mut number = mode_number(mode);
        // SAFETY: the function reads one integer and writes the one before in its place.
        unsafe { call!(site.cuThreadExchangeStreamCaptureMode(&raw mut number)) }?;
        mode_of(number).ok_or_else(|| {
            let detail = format!("the mode before was {number}, which is not known here");
            site.refuse(ErrorKind::Other, CALL, detail)
        })
    }

    fn frontier(&self, stream: Stream) -> Result<Vec<CaptureNode>> {
        let entered = self.enter_handle(stream.backend, stream.device, INFO)?;
        let (mut list, mut count) = (ptr::null(), 0);
        active(*entered, ask(*entered, stream, &raw mut list, &raw mut count)?)?;
        if count == 0 || list.is_null() {
            return Ok(Vec::new());
        }
        // SAFETY: the driver's list has `count` nodes and is valid until the next call about the stream.
        let nodes = unsafe { std::slice::from_raw_parts(list, count) };
        Ok(nodes.iter().map(|&node| CaptureNode(number(node))).collect())
    }

    fn dependencies(&self, stream: Stream, node: CaptureNode) -> Result<Vec<CaptureNode>> {
        const CALL: &str = "cuGraphNodeGetDependencies";
        let entered = self.enter_handle(stream.backend, stream.device, CALL)?;
        active(*entered, capture_info(*entered, stream)?)?;
        if node.0 == 0 {
            return Err(entered.invalid(CALL, "null is no node"));
        }
        let mut count = 0;
        // SAFETY: rule 1; without a list the function writes the number of nodes only.
        unsafe {
            call!(entered.cuGraphNodeGetDependencies(pointer(node.0), ptr::null_mut(), &raw mut count))
        }?;
        let mut nodes: Vec<CUgraphNode> = vec![ptr::null_mut(); count];
        if count > 0 {
            let list = nodes.as_mut_ptr();
            // SAFETY: rule 1; the function fills no more than `count` nodes and writes how many.
            unsafe { call!(entered.cuGraphNodeGetDependencies(pointer(node.0), list, &raw mut count)) }?;
        }
        Ok(nodes.into_iter().take(count).map(|node| CaptureNode(number(node))).collect())
    }

    fn retain_until_graph_ends(&self, stream: Stream, release: HostFunction) -> Result<()> {
        let entered = self.enter_handle(stream.backend, stream.device, "cuGraphRetainUserObject")?;
        let info = active(*entered, capture_info(*entered, stream)?)?;
        host_function::run_with_last_reference(*entered, info.graph, release)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_are_the_drivers_numbers_both_ways() {
        let modes = [(CaptureMode::Global, 0), (CaptureMode::ThreadLocal, 1), (CaptureMode::Relaxed, 2)];
        for (mode, number) in modes {
            assert_eq!(mode_number(mode), number);
            assert_eq!(mode_of(number), Some(mode));
        }
        assert_eq!(mode_of(3), None);
    }
}
