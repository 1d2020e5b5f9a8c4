//! Stream capture, graphs, user objects.

use crate::entry::{device, here, ready};
use alloc_core::backend::{Backend, CaptureMode};
use alloc_core::types::Stream;
use granule_hip_sys::abi6::*;
use lookalike::argument::Out;
use lookalike::callback::Callback;
use lookalike::{Answer, Code, Here, graphs, user_objects};
use std::ffi::{c_char, c_int, c_uint, c_ulonglong, c_void};
use std::ptr::without_provenance_mut;

const fn mode(number: hipStreamCaptureMode) -> Answer<CaptureMode> {
    Ok(match number {
        hipStreamCaptureModeGlobal => CaptureMode::Global,
        hipStreamCaptureModeThreadLocal => CaptureMode::ThreadLocal,
        hipStreamCaptureModeRelaxed => CaptureMode::Relaxed,
        _ => return Err(Code::INVALID_VALUE),
    })
}

/// A stream to ask about; a default stream only while nothing captured waits for it.
fn asked(stream: hipStream_t) -> Answer<(Here, Stream)> {
    let here = here()?;
    Ok((here, here.work_stream(stream)?))
}

fn instantiate(executable: &Out<hipGraphExec_t>, graph: hipGraph_t) -> Answer {
    here()?;
    executable.wanted()?;
    executable.put(without_provenance_mut(graphs::instantiate(graph.addr())?))
}

/// Answers with a list: a null place asks for the length; what is too much room is set to null.
fn put_list(place: &Out<hipGraphNode_t>, count: &Out<usize>, list: &[usize]) -> Answer {
    if place.is_null() {
        return count.put(list.len());
    }
    let room = count.before()?;
    let nodes = list.iter().copied().chain(std::iter::repeat(0)).take(room);
    place.fill(nodes.map(without_provenance_mut))?;
    count.put(list.len().min(room))
}

lookalike::entries! {
    run: crate::entry::run, status: hipError_t;

    /// Begins to record a stream.
    fn hipStreamBeginCapture as hipStreamBeginCapture_t(
        val stream: hipStream_t, val number: hipStreamCaptureMode,
    ) {
        let here = here()?;
        let mode = mode(number)?;
        let known = here.stream(stream)?;
        if known.stream.raw == 0 {
            return Err(Code::CAPTURE_UNSUPPORTED);
        }
        graphs::begin(here.machine, known.stream, known.is_blocking(), mode)
    }

    /// Ends the recording.
    fn hipStreamEndCapture as hipStreamEndCapture_t(val stream: hipStream_t, out graph: *mut hipGraph_t) {
        let here = here()?;
        let stream = here.stream(stream)?.stream;
        graph.wanted()?;
        let ended = graphs::end(here.machine, stream);
        graph.put(without_provenance_mut(ended.unwrap_or(0)))?;
        ended.map(drop)
    }

    /// Whether a stream is recorded.
    fn hipStreamIsCapturing as hipStreamIsCapturing_t(
        val stream: hipStream_t, out status: *mut hipStreamCaptureStatus,
    ) {
        let (here, stream) = asked(stream)?;
        status.put(graphs::info(here.machine, stream)?.status)
    }

    /// What a stream's recording is.
    fn hipStreamGetCaptureInfo as hipStreamGetCaptureInfo_t(
        val stream: hipStream_t, out status: *mut hipStreamCaptureStatus, out id: *mut c_ulonglong,
    ) {
        status.wanted()?;
        let (here, stream) = asked(stream)?;
        let info = graphs::info(here.machine, stream)?;
        id.put_if_wanted(info.id);
        status.put(info.status)
    }

    /// What a stream's recording looks like.
    fn hipStreamGetCaptureInfo_v2 as hipStreamGetCaptureInfo_v2_t(
        val stream: hipStream_t,
        out status: *mut hipStreamCaptureStatus,
        out id: *mut c_ulonglong,
        out graph: *mut hipGraph_t,
        out dependencies: *mut *const hipGraphNode_t,
        out count: *mut usize,
    ) {
        status.wanted()?;
        let (here, stream) = asked(stream)?;
        let info = graphs::info(here.machine, stream)?;
        status.put(info.status)?;
        if info.status != hipStreamCaptureStatusActive {
            return Ok(());
        }
        id.put_if_wanted(info.id);
        graph.put_if_wanted(without_provenance_mut(info.graph));
        if !dependencies.is_null() || !count.is_null() {
            let (list, length) = graphs::frontier(here.machine, stream, info.graph)?;
            dependencies.put_if_wanted(list.cast());
            count.put_if_wanted(length);
        }
        Ok(())
    }

    /// Changes what a stream's next work depends on: the simulated captures cannot.
    fn hipStreamUpdateCaptureDependencies as hipStreamUpdateCaptureDependencies_t(
        val stream: hipStream_t, val _nodes: *mut hipGraphNode_t, val _count: usize, val _flags: c_uint,
    ) {
        here()?.stream(stream)?;
        Err(Code::NOT_SUPPORTED)
    }

    /// Swaps the calling thread's mode.
    fn hipThreadExchangeStreamCaptureMode as hipThreadExchangeStreamCaptureMode_t(
        out number: *mut hipStreamCaptureMode,
    ) {
        let before = ready()?.capture()?.exchange_mode(mode(number.before()?)?)?;
        number.put(match before {
            CaptureMode::Global => hipStreamCaptureModeGlobal,
            CaptureMode::ThreadLocal => hipStreamCaptureModeThreadLocal,
            CaptureMode::Relaxed => hipStreamCaptureModeRelaxed,
        })
    }

    /// An empty graph: the simulated graphs come from captures only.
    fn hipGraphCreate as hipGraphCreate_t(out _graph: *mut hipGraph_t, val _flags: c_uint) {
        Err(Code::NOT_SUPPORTED)
    }

    /// A graph's nodes.
    fn hipGraphGetNodes as hipGraphGetNodes_t(
        val graph: hipGraph_t, out nodes: *mut hipGraphNode_t, out count: *mut usize,
    ) {
        put_list(&nodes, &count, &graphs::nodes(ready()?, graph.addr())?)
    }

    /// What a node depends on.
    fn hipGraphNodeGetDependencies as hipGraphNodeGetDependencies_t(
        val node: hipGraphNode_t, out nodes: *mut hipGraphNode_t, out count: *mut usize,
    ) {
        put_list(&nodes, &count, &graphs::dependencies(ready()?, node.addr())?)
    }

    /// Makes something to launch of a graph; what goes wrong there is not told in words.
    fn hipGraphInstantiate as hipGraphInstantiate_t(
        out executable: *mut hipGraphExec_t, val graph: hipGraph_t, out node: *mut hipGraphNode_t,
        val _log: *mut c_char, val _bytes: usize,
    ) {
        node.put_if_wanted(std::ptr::null_mut());
        instantiate(&executable, graph)
    }

    /// Makes something to launch of a graph.
    fn hipGraphInstantiateWithFlags as hipGraphInstantiateWithFlags_t(
        out executable: *mut hipGraphExec_t, val graph: hipGraph_t, val flags: c_ulonglong,
    ) {
        // Only this one means something without a kernel.
        if flags & !c_ulonglong::from(hipGraphInstantiateFlagAutoFreeOnLaunch) != 0 {
            return Err(Code::INVALID_VALUE);
        }
        instantiate(&executable, graph)
    }

    /// Prepares a launch: nothing is to be done.
    fn hipGraphUpload as hipGraphUpload_t(val executable: hipGraphExec_t, val stream: hipStream_t) {
        here()?.work_stream(stream)?;
        graphs::is_executable(executable.addr())
    }

    /// Queues a graph's work.
    fn hipGraphLaunch as hipGraphLaunch_t(val executable: hipGraphExec_t, val stream: hipStream_t) {
        let here = here()?;
        let stream = here.work_stream(stream)?;
        graphs::launch(here.machine, executable.addr(), stream)
    }

    /// Ends an instantiated graph.
    fn hipGraphExecDestroy as hipGraphExecDestroy_t(val executable: hipGraphExec_t) {
        graphs::destroy_executable(executable.addr())
    }

    /// Ends a graph.
    fn hipGraphDestroy as hipGraphDestroy_t(val graph: hipGraph_t) {
        graphs::destroy(graph.addr())
    }

    /// What is held of a device for the memory nodes of graphs. What was held most is not kept.
    fn hipDeviceGetGraphMemAttribute as hipDeviceGetGraphMemAttribute_t(
        val of: c_int, val number: hipGraphMemAttributeType, out value: *mut c_void,
    ) {
        let of = device(of)?;
        value.wanted()?;
        match number {
            hipGraphMemAttrUsedMemCurrent | hipGraphMemAttrReservedMemCurrent => {
                value.cast::<u64>().put(graphs::node_memory::of(of)?)
            }
            hipGraphMemAttrUsedMemHigh | hipGraphMemAttrReservedMemHigh => Err(Code::NOT_SUPPORTED),
            _ => Err(Code::INVALID_VALUE),
        }
    }

    /// An object that graphs can keep alive.
    fn hipUserObjectCreate as hipUserObjectCreate_t(
        out object: *mut hipUserObject_t, val data: *mut c_void, val destroy: hipHostFn_t, val references: c_uint,
        val flags: c_uint,
    ) {
        object.wanted()?;
        // The one flag there is has to be set.
        if references == 0 || flags != hipUserObjectNoDestructorSync {
            return Err(Code::INVALID_VALUE);
        }
        // SAFETY: the caller promises a function that may be called with its data, once, on any thread.
        let destroy = unsafe { Callback::new(destroy, data) }?;
        object.put(without_provenance_mut(user_objects::create(destroy, references)))
    }

    /// Adds references.
    fn hipUserObjectRetain as hipUserObjectRetain_t(val object: hipUserObject_t, val count: c_uint) {
        user_objects::retain(object.addr(), count)
    }

    /// Takes references away.
    fn hipUserObjectRelease as hipUserObjectRelease_t(val object: hipUserObject_t, val count: c_uint) {
        user_objects::release(object.addr(), count)
    }

    /// Lets a graph keep an object alive.
    fn hipGraphRetainUserObject as hipGraphRetainUserObject_t(
        val graph: hipGraph_t, val object: hipUserObject_t, val count: c_uint, val flags: c_uint,
    ) {
        if flags & !hipGraphUserObjectMove != 0 {
            return Err(Code::INVALID_VALUE);
        }
        let is_moved = flags & hipGraphUserObjectMove != 0;
        graphs::retain_object(ready()?, graph.addr(), object.addr(), count, is_moved)
    }

    /// Takes an object from a graph: the simulated graphs keep theirs to the end.
    fn hipGraphReleaseUserObject as hipGraphReleaseUserObject_t(
        val _graph: hipGraph_t, val _object: hipUserObject_t, val _count: c_uint,
    ) {
        Err(Code::NOT_SUPPORTED)
    }
}
