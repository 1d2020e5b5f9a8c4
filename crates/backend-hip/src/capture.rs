//! Stream capture and graphs.

use crate::driver::{Site, given_back, number, pointer};
use crate::error;
use crate::hip::Hip;
use crate::host_function;
use backend_api::types::Stream;
use backend_api::{Capture, CaptureMode, CaptureNode, CaptureStatus, ErrorKind, Graph, HostFunction, Result};
use hip_sys::abi6::{
    hipGraph_t, hipGraphNode_t, hipStreamCaptureMode, hipStreamCaptureModeGlobal,
    hipStreamCaptureModeRelaxed, hipStreamCaptureModeThreadLocal, hipStreamCaptureStatusActive,
    hipStreamCaptureStatusNone,
};
use std::collections::HashMap;
use std::ptr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, ThreadId};

const INFO: &str = "hipStreamGetCaptureInfo";

/// A capture that this backend began.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Began {
    thread: ThreadId,
    mode: CaptureMode,
}

/// Captures under way, by the stream's handle. Runtimes before 7.14 do not refuse all that a capture forbids.
#[derive(Debug, Default)]
pub(crate) struct Captures(Mutex<HashMap<u64, Began>>);

impl Captures {
    fn lock(&self) -> MutexGuard<'_, HashMap<u64, Began>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn began(&self, stream: Stream, mode: CaptureMode) {
        self.lock().insert(stream.raw, Began { thread: thread::current().id(), mode });
    }

    pub(crate) fn forget(&self, stream: Stream) -> Option<Began> {
        self.lock().remove(&stream.raw)
    }

    pub(crate) fn put_back(&self, stream: Stream, capture: Option<Began>) {
        if let Some(capture) = capture {
            self.lock().insert(stream.raw, capture);
        }
    }

    /// Whether the captures under way forbid unsafe calls to the calling thread.
    fn forbids(&self) -> Forbids {
        let own = thread::current().id();
        let captures = self.lock();
        Forbids {
            thread_local: captures.values().any(|c| c.thread == own && c.mode != CaptureMode::Relaxed),
            global: captures.values().any(|c| c.mode == CaptureMode::Global),
        }
    }
}

/// Whether captures forbid unsafe calls to a thread.
#[derive(Clone, Copy, Debug)]
struct Forbids {
    /// This thread began one.
    thread_local: bool,
    /// One forbids it to every thread.
    global: bool,
}

impl Forbids {
    fn to_thread_in(self, mode: CaptureMode) -> bool {
        match mode {
            CaptureMode::Relaxed => false,
            CaptureMode::ThreadLocal => self.thread_local,
            CaptureMode::Global => self.thread_local || self.global,
        }
    }
}

/// A graph's executable form. The runtime does not order calls about it by itself: who launches it holds the lock.
type Executable = Arc<Mutex<u64>>;

/// The executable form of every graph that was launched, by the graph's handle.
#[derive(Debug, Default)]
pub(crate) struct Executables(Mutex<HashMap<u64, Executable>>);

impl Executables {
    fn lock(&self) -> MutexGuard<'_, HashMap<u64, Executable>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What the runtime says about a stream's capture.
#[derive(Debug)]
pub(crate) struct CaptureInfo {
    pub(crate) status: CaptureStatus,
    pub(crate) graph: hipGraph_t,
    /// Valid until the next call about the stream.
    dependencies: *const hipGraphNode_t,
    count: usize,
}

pub(crate) fn capture_info(site: Site<'_>, stream: Stream) -> Result<CaptureInfo> {
    if stream.raw == 0 {
        // It cannot be captured; asked about it, runtimes answer an error while another stream is.
        return Ok(CaptureInfo {
            status: CaptureStatus::None,
            graph: ptr::null_mut(),
            dependencies: ptr::null(),
            count: 0,
        });
    }
    let (mut status, mut id, mut graph) = (0, 0, ptr::null_mut());
    let (mut dependencies, mut count) = (ptr::null(), 0);
    // SAFETY: rule 1; the function writes the five answers, or none of the last four.
    unsafe {
        call!(site.hipStreamGetCaptureInfo_v2(
            pointer(stream.raw),
            &raw mut status,
            &raw mut id,
            &raw mut graph,
            &raw mut dependencies,
            &raw mut count,
        ))
    }?;
    let status = if status == hipStreamCaptureStatusNone {
        CaptureStatus::None
    } else if status == hipStreamCaptureStatusActive {
        CaptureStatus::Active(id)
    } else {
        CaptureStatus::Invalidated
    };
    Ok(CaptureInfo { status, graph, dependencies, count })
}

/// The same, of a stream whose capture is whole.
fn active(site: Site<'_>, stream: Stream) -> Result<CaptureInfo> {
    let info = capture_info(site, stream)?;
    match info.status {
        CaptureStatus::Active(_) => Ok(info),
        CaptureStatus::None => Err(site.invalid(INFO, "the stream is not captured")),
        CaptureStatus::Invalidated => {
            let detail = "an earlier call broke the capture; end it and begin again";
            Err(site.refuse(ErrorKind::CaptureViolation, INFO, detail))
        }
    }
}

fn mode_number(mode: CaptureMode) -> hipStreamCaptureMode {
    match mode {
        CaptureMode::Global => hipStreamCaptureModeGlobal,
        CaptureMode::ThreadLocal => hipStreamCaptureModeThreadLocal,
        CaptureMode::Relaxed => hipStreamCaptureModeRelaxed,
    }
}

fn mode_of(number: hipStreamCaptureMode) -> Option<CaptureMode> {
    [CaptureMode::Global, CaptureMode::ThreadLocal, CaptureMode::Relaxed]
        .into_iter()
        .find(|&mode| mode_number(mode) == number)
}

/// While this lives, the thread may make calls that a capture forbids. For probes, which must not break the
/// capture of a program that asks what there is.
#[derive(Debug)]
pub(crate) struct Relaxed<'c> {
    hip: &'c Hip,
    before: Option<CaptureMode>,
}

impl Drop for Relaxed<'_> {
    fn drop(&mut self) {
        if let Some(before) = self.before
            && let Err(error) = self.hip.exchange_mode(before)
        {
            tracing::error!(%error, "could not restore the thread's capture mode");
        }
    }
}

impl Hip {
    pub(crate) fn relaxed(&self) -> Result<Relaxed<'_>> {
        // Without the function there are no captures that could break.
        let there = self.driver.functions.hipThreadExchangeStreamCaptureMode.is_some();
        let before = if there { Some(self.exchange_mode(CaptureMode::Relaxed)?) } else { None };
        Ok(Relaxed { hip: self, before })
    }

    /// Refuses a blocking call that a capture forbids to this thread.
    pub(crate) fn not_during_capture(&self, site: Site<'_>, call: &'static str) -> Result<()> {
        let forbids = self.captures.forbids();
        if !forbids.to_thread_in(CaptureMode::Global) {
            return Ok(());
        }
        // The mode before is the thread's own.
        let mode = self.relaxed()?.before;
        if mode.is_some_and(|mode| forbids.to_thread_in(mode)) {
            return Err(site.known(error::STREAM_CAPTURE_UNSUPPORTED, call));
        }
        Ok(())
    }

    pub(crate) fn probe_capture(&self) -> Result<()> {
        needs!(self: hipStreamGetCaptureInfo_v2, hipStreamBeginCapture, hipStreamEndCapture,
            hipThreadExchangeStreamCaptureMode, hipGraphInstantiateWithFlags, hipGraphLaunch, hipGraphExecDestroy,
            hipGraphDestroy, hipGraphNodeGetDependencies, hipUserObjectCreate, hipUserObjectRelease,
            hipGraphRetainUserObject, hipGraphReleaseUserObject)?;
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
        unsafe { call!(site.hipGraphInstantiateWithFlags(&raw mut executable, pointer(graph.raw), 0)) }?;
        let executable = Arc::new(Mutex::new(number(executable)));
        executables.insert(graph.raw, Arc::clone(&executable));
        Ok(executable)
    }
}

impl Capture for Hip {
    fn status(&self, stream: Stream) -> Result<CaptureStatus> {
        let entered = self.enter_handle(stream.backend, stream.device, INFO)?;
        Ok(capture_info(*entered, stream)?.status)
    }

    fn begin(&self, stream: Stream, mode: CaptureMode) -> Result<()> {
        let entered = self.enter_handle(stream.backend, stream.device, "hipStreamBeginCapture")?;
        // SAFETY: rule 1.
        unsafe { call!(entered.hipStreamBeginCapture(pointer(stream.raw), mode_number(mode))) }?;
        self.captures.began(stream, mode);
        Ok(())
    }

    fn end(&self, stream: Stream) -> Result<Graph> {
        let entered = self.enter_handle(stream.backend, stream.device, "hipStreamEndCapture")?;
        let mut graph = ptr::null_mut();
        // SAFETY: rule 1; the function writes one handle.
        let ended = unsafe { call!(entered.hipStreamEndCapture(pointer(stream.raw), &raw mut graph)) };
        // A broken capture ends with an error; only the wrong thread leaves it as it was.
        if !ended.as_ref().is_err_and(|failed| failed.code == error::STREAM_CAPTURE_WRONG_THREAD) {
            self.captures.forget(stream);
        }
        ended?;
        if graph.is_null() {
            let detail = "the capture was broken, and there is no graph";
            return Err(entered.refuse(ErrorKind::CaptureViolation, "hipStreamEndCapture", detail));
        }
        Ok(Graph { raw: number(graph), backend: self.id })
    }

    unsafe fn launch(&self, graph: Graph, stream: Stream) -> Result<()> {
        let entered = self.enter_handle(stream.backend, stream.device, "hipGraphLaunch")?;
        self.own(graph.backend, stream.device, "hipGraphLaunch")?;
        let executable = self.executable(*entered, graph)?;
        let executable = executable.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: rule 1 for the stream; rule 2 for what the graph's work uses, which the caller keeps.
        unsafe { call!(entered.hipGraphLaunch(pointer(*executable), pointer(stream.raw))) }
    }

    unsafe fn destroy_graph(&self, graph: Graph) -> Result<()> {
        let destroy = || {
            let site = self.any_site("hipGraphDestroy")?;
            self.own(graph.backend, site.device(), "hipGraphDestroy")?;
            let executable = self.executables.lock().remove(&graph.raw);
            if let Some(executable) = executable {
                let raw = *executable.lock().unwrap_or_else(PoisonError::into_inner);
                // SAFETY: this backend made it, and removed it; the runtime waits for queued launches itself.
                unsafe { call!(site.hipGraphExecDestroy(pointer(raw))) }.inspect_err(|_| {
                    self.executables.lock().insert(graph.raw, executable);
                })?;
            }
            // SAFETY: rule 1, and the caller uses the handle no more.
            unsafe { call!(site.hipGraphDestroy(pointer(graph.raw))) }
        };
        given_back(destroy())
    }

    fn exchange_mode(&self, mode: CaptureMode) -> Result<CaptureMode> {
        const CALL: &str = "hipThreadExchangeStreamCaptureMode";
        let site = self.any_site(CALL)?;
        let mut number = mode_number(mode);
        // SAFETY: the function reads one integer and writes the one before in its place.
        unsafe { call!(site.hipThreadExchangeStreamCaptureMode(&raw mut number)) }?;
        mode_of(number).ok_or_else(|| {
            let detail = format!("the mode before was {number}, which is not known here");
            site.refuse(ErrorKind::Other, CALL, detail)
        })
    }

    fn frontier(&self, stream: Stream) -> Result<Vec<CaptureNode>> {
        let entered = self.enter_handle(stream.backend, stream.device, INFO)?;
        let info = active(*entered, stream)?;
        if info.count == 0 || info.dependencies.is_null() {
            return Ok(Vec::new());
        }
        // SAFETY: the runtime's list has `count` nodes and is valid until the next call about the stream.
        let nodes = unsafe { std::slice::from_raw_parts(info.dependencies, info.count) };
        Ok(nodes.iter().map(|&node| CaptureNode(number(node))).collect())
    }

    fn dependencies(&self, stream: Stream, node: CaptureNode) -> Result<Vec<CaptureNode>> {
        const CALL: &str = "hipGraphNodeGetDependencies";
        let entered = self.enter_handle(stream.backend, stream.device, CALL)?;
        active(*entered, stream)?;
        if node.0 == 0 {
            return Err(entered.invalid(CALL, "null is no node"));
        }
        let mut count = 0;
        // SAFETY: rule 1; without a list the function writes the number of nodes only.
        unsafe {
            call!(entered.hipGraphNodeGetDependencies(pointer(node.0), ptr::null_mut(), &raw mut count))
        }?;
        let mut nodes: Vec<hipGraphNode_t> = vec![ptr::null_mut(); count];
        if count > 0 {
            let list = nodes.as_mut_ptr();
            // SAFETY: rule 1; the function fills no more than `count` nodes and writes how many.
            unsafe { call!(entered.hipGraphNodeGetDependencies(pointer(node.0), list, &raw mut count)) }?;
        }
        Ok(nodes.into_iter().take(count).map(|node| CaptureNode(number(node))).collect())
    }

    fn retain_until_graph_ends(&self, stream: Stream, release: HostFunction) -> Result<()> {
        let entered = self.enter_handle(stream.backend, stream.device, "hipGraphRetainUserObject")?;
        let info = active(*entered, stream)?;
        host_function::run_with_last_reference(*entered, info.graph, release)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use backend_api::types::{BackendId, DeviceIndex};

    #[test]
    fn a_capture_forbids_by_its_mode_and_the_threads() {
        use CaptureMode::{Global, Relaxed, ThreadLocal};
        let stream = |raw| Stream { raw, device: DeviceIndex(0), backend: BackendId(1) };
        let forbidden =
            |captures: &Captures| [Global, ThreadLocal, Relaxed].map(|m| captures.forbids().to_thread_in(m));

        let captures = Captures::default();
        assert_eq!(forbidden(&captures), [false, false, false]);
        captures.began(stream(1), Relaxed);
        assert_eq!(forbidden(&captures), [false, false, false]);
        captures.began(stream(2), ThreadLocal);
        assert_eq!(forbidden(&captures), [true, true, false]);
        thread::scope(|scope| {
            scope.spawn(|| assert_eq!(forbidden(&captures), [false, false, false], "another thread"));
        });
        captures.began(stream(3), Global);
        thread::scope(|scope| {
            scope.spawn(|| assert_eq!(forbidden(&captures), [true, false, false], "another thread"));
        });
        let forgotten = captures.forget(stream(3));
        captures.put_back(stream(3), forgotten);
        captures.forget(stream(2));
        assert_eq!(forbidden(&captures), [true, true, false]);
        captures.forget(stream(3));
        assert_eq!(forbidden(&captures), [false, false, false]);
    }

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
