//! Stream capture and graphs.

use super::{DriverBackend, devices};
use crate::calls::{Calls, CaptureState, HostEntry};
use crate::captures::{mode_number, mode_of};
use crate::driver::{Family, Site, number};
use crate::errors::{
    STREAM_CAPTURE_IMPLICIT, STREAM_CAPTURE_UNSUPPORTED, STREAM_CAPTURE_WRONG_THREAD, given_back, log_undo,
};
use crate::host_function::{Slot, drop_slot, run_slot};
use backend_api::types::Stream;
use backend_api::{
    Backend, Capture, CaptureMode, CaptureNode, CaptureStatus, ErrorKind, Graph, HostFunction, Result,
};
use std::ffi::c_void;
use std::ptr;

fn status_of(state: &CaptureState) -> CaptureStatus {
    match state.status {
        0 => CaptureStatus::None,
        1 => CaptureStatus::Active(state.id),
        _ => CaptureStatus::Invalidated,
    }
}

/// The graph that a stream's work goes into, where it is captured.
pub(super) fn graph_under_capture<D: Calls>(site: Site<'_, D>, stream: Stream) -> Result<Option<u64>> {
    if !site.driver().has_captures() {
        return Ok(None);
    }
    // Who asks for the last nodes without the edges' data gets an error where there is such data (CUDA 12.3).
    let state = D::capture_state(site, stream, false)?;
    Ok(matches!(status_of(&state), CaptureStatus::Active(_)).then_some(state.graph))
}

/// The capture of a stream that has a whole one.
fn active<D: Calls>(site: Site<'_, D>, stream: Stream, tail: bool) -> Result<CaptureState> {
    let state = D::capture_state(site, stream, tail)?;
    let call = D::NAMES.capture_info;
    match status_of(&state) {
        CaptureStatus::Active(_) => Ok(state),
        CaptureStatus::None => Err(site.invalid(call, "the stream is not captured")),
        CaptureStatus::Invalidated => {
            let detail = "an earlier call broke the capture; end it and begin again";
            Err(site.refuse(ErrorKind::CaptureViolation, call, detail))
        }
    }
}

/// While this lives, the thread may make calls that a capture forbids. For probes, which must not break the capture of a
/// program that asks what there is.
#[derive(Debug)]
pub(super) struct Relaxed<'c, D: Calls> {
    backend: &'c DriverBackend<D>,
    before: Option<CaptureMode>,
}

impl<D: Calls> Drop for Relaxed<'_, D> {
    fn drop(&mut self) {
        if let Some(before) = self.before
            && let Err(error) = self.backend.exchange_mode(before)
        {
            tracing::error!(%error, "could not restore the thread's capture mode");
        }
    }
}

pub(super) fn relaxed<D: Calls>(backend: &DriverBackend<D>) -> Result<Relaxed<'_, D>> {
    // Without the function there are no captures that could break.
    let there = backend.context.driver().has_modes();
    let before = if there { Some(backend.exchange_mode(CaptureMode::Relaxed)?) } else { None };
    Ok(Relaxed { backend, before })
}

/// Refuses a blocking call that a capture forbids to this thread, where the driver does not.
pub(super) fn not_during_capture<D: Calls>(
    backend: &DriverBackend<D>,
    site: Site<'_, D>,
    call: &'static str,
) -> Result<()> {
    if D::ABILITIES.checks_captures {
        return Ok(());
    }
    let forbids = backend.captures.forbids();
    if !forbids.to_thread_in(CaptureMode::Global) {
        return Ok(());
    }
    // The mode before is the thread's own.
    let mode = relaxed(backend)?.before;
    if mode.is_some_and(|mode| forbids.to_thread_in(mode)) {
        return Err(site.known(STREAM_CAPTURE_UNSUPPORTED, call));
    }
    Ok(())
}

/// Forgets a stream's capture for the length of a call that destroys the stream, before the driver can give the same
/// handle to a new one.
pub(super) fn forgetting_capture<D: Calls>(
    backend: &DriverBackend<D>,
    stream: Stream,
    destroy: impl FnOnce() -> Result<()>,
) -> Result<()> {
    if D::ABILITIES.checks_captures {
        return destroy();
    }
    let capture = backend.captures.forget(stream);
    destroy().inspect_err(|_| backend.captures.put_back(stream, capture))
}

/// Makes a graph hold an empty slot, lets `fill` use it, and takes the hold back where that fails. `ending` gets the
/// slot when the graph and all its launches are gone.
fn hold<D: Calls>(
    site: Site<'_, D>,
    graph: u64,
    ending: HostEntry,
    fill: impl FnOnce(*mut Slot) -> Result<()>,
) -> Result<()> {
    let slot = Box::into_raw(Box::<Slot>::default());
    // SAFETY: `ending` takes a slot, and is called once, when the last reference is gone.
    let object = match unsafe { D::create_user_object(site, slot.cast(), ending) } {
        Ok(object) => object,
        Err(error) => {
            // SAFETY: made by `Box::into_raw` above, and the driver did not take it.
            drop(unsafe { Box::from_raw(slot) });
            return Err(error);
        }
    };
    // SAFETY: the graph is under capture on a stream that the caller may use; the object was just made.
    let held = unsafe { D::retain_user_object(site, graph, object) };
    let done = held.and_then(|()| {
        fill(slot).inspect_err(|_| {
            // SAFETY: gives back the graph's reference that was just taken.
            log_undo(unsafe { D::unhold_user_object(site, graph, object) });
        })
    });
    // SAFETY: gives back the reference of the creation; the graph keeps its own.
    log_undo(unsafe { D::release_user_object(site, object) });
    done
}

/// Launches a function into a graph under capture: it runs once, and is dropped with the graph.
pub(super) fn launch_into<D: Calls>(
    site: Site<'_, D>,
    graph: u64,
    stream: Stream,
    function: HostFunction,
) -> Result<()> {
    hold(site, graph, drop_slot, |slot| {
        // SAFETY: the slot lives as long as the reference that `hold` still has.
        let filled = unsafe { &*slot };
        filled.put(function);
        // SAFETY: the graph keeps the slot for as long as it can run the function.
        unsafe { D::launch_host_function(site, stream, run_slot, slot.cast()) }
    })
}

pub(super) fn probe<D: Calls>(backend: &DriverBackend<D>) -> Result<()> {
    devices::has(backend, Family::Capture)?;
    let _relaxed = relaxed(backend)?;
    let stream = backend.create_stream(backend.context.device_of_thread()?, 0)?;
    let tried = backend.begin(stream, CaptureMode::Relaxed).and_then(|()| {
        let graph = backend.end(stream)?;
        // SAFETY: the graph is this probe's and is not used again.
        unsafe { backend.destroy_graph(graph) }
    });
    // SAFETY: the stream is this probe's and is not used again.
    let destroyed = unsafe { backend.destroy_stream(stream) };
    tried.and(destroyed)
}

impl<D: Calls> Capture for DriverBackend<D> {
    fn status(&self, stream: Stream) -> Result<CaptureStatus> {
        let entered = self.context.enter_handle(stream.backend, stream.device, D::NAMES.capture_info)?;
        match D::capture_state(*entered, stream, false) {
            // So a driver may answer for the null stream while another one is captured for which it would wait. It
            // cannot be captured itself.
            Err(failed) if stream.raw == 0 && failed.code == STREAM_CAPTURE_IMPLICIT => {
                Ok(CaptureStatus::None)
            }
            other => other.map(|state| status_of(&state)),
        }
    }

    fn begin(&self, stream: Stream, mode: CaptureMode) -> Result<()> {
        let entered = self.context.enter_handle(stream.backend, stream.device, D::NAMES.begin_capture)?;
        D::begin(*entered, stream, mode_number(mode))?;
        if !D::ABILITIES.checks_captures {
            self.captures.began(stream, mode);
        }
        Ok(())
    }

    fn end(&self, stream: Stream) -> Result<Graph> {
        let call = D::NAMES.end_capture;
        let entered = self.context.enter_handle(stream.backend, stream.device, call)?;
        let ended = D::end(*entered, stream);
        // A broken capture ends with an error; only the wrong thread leaves it as it was.
        let goes_on = ended.as_ref().is_err_and(|failed| failed.code == STREAM_CAPTURE_WRONG_THREAD);
        if !D::ABILITIES.checks_captures && !goes_on {
            self.captures.forget(stream);
        }
        match ended? {
            0 => {
                let detail = "the capture was broken, and there is no graph";
                Err(entered.refuse(ErrorKind::CaptureViolation, call, detail))
            }
            raw => Ok(Graph { raw, backend: self.context.id() }),
        }
    }

    unsafe fn launch(&self, graph: Graph, stream: Stream) -> Result<()> {
        let call = D::NAMES.launch_graph;
        let entered = self.context.enter_handle(stream.backend, stream.device, call)?;
        self.context.own(graph.backend, stream.device, call)?;
        self.executables.launch(
            graph,
            // SAFETY: rule 1.
            || unsafe { D::instantiate(*entered, graph.raw) },
            // SAFETY: rule 1 for the stream; rule 2 for what the graph's work uses, which the caller keeps.
            |executable| unsafe { D::launch(*entered, executable, stream) },
        )
    }

    unsafe fn destroy_graph(&self, graph: Graph) -> Result<()> {
        let destroy = || {
            let site = self.context.any_site(D::NAMES.destroy_graph)?;
            self.context.own(graph.backend, site.device(), D::NAMES.destroy_graph)?;
            self.executables.destroying(graph, |executable| {
                // SAFETY: this backend made it, and removed it.
                unsafe { D::destroy_executable(site, executable) }
            })?;
            // SAFETY: rule 1, and the caller uses the handle no more.
            unsafe { D::destroy_graph(site, graph.raw) }
        };
        given_back(destroy())
    }

    fn exchange_mode(&self, mode: CaptureMode) -> Result<CaptureMode> {
        let call = D::NAMES.exchange_mode;
        let site = self.context.any_site(call)?;
        let before = D::exchange_mode(site, mode_number(mode))?;
        mode_of(before).ok_or_else(|| {
            let detail = format!("the mode before was {before}, which is not known here");
            site.refuse(ErrorKind::Other, call, detail)
        })
    }

    fn frontier(&self, stream: Stream) -> Result<Vec<CaptureNode>> {
        let entered = self.context.enter_handle(stream.backend, stream.device, D::NAMES.capture_info)?;
        let state = active(*entered, stream, true)?;
        if state.count == 0 || state.tail.is_null() {
            return Ok(Vec::new());
        }
        // SAFETY: the driver's list has `count` nodes and is valid until the next call about the stream.
        let nodes = unsafe { std::slice::from_raw_parts(state.tail, state.count) };
        Ok(nodes.iter().map(|&node| CaptureNode(number(node))).collect())
    }

    fn dependencies(&self, stream: Stream, node: CaptureNode) -> Result<Vec<CaptureNode>> {
        let call = D::NAMES.node_dependencies;
        let entered = self.context.enter_handle(stream.backend, stream.device, call)?;
        active(*entered, stream, false)?;
        if node.0 == 0 {
            return Err(entered.invalid(call, "null is no node"));
        }
        let mut count = 0;
        // SAFETY: rule 1; without a list the function writes the number of nodes only.
        unsafe { D::node_dependencies(*entered, node, ptr::null_mut(), &mut count) }?;
        let mut nodes: Vec<*mut c_void> = vec![ptr::null_mut(); count];
        if count > 0 {
            // SAFETY: rule 1; the function fills no more than `count` nodes and writes how many.
            unsafe { D::node_dependencies(*entered, node, nodes.as_mut_ptr(), &mut count) }?;
        }
        Ok(nodes.into_iter().take(count).map(|node| CaptureNode(number(node))).collect())
    }
}
