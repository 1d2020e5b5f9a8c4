//! Stream capture, graphs, user objects.

use crate::entry::{device, here, ready};
use granule_hip_sys::abi6::*;
use lookalike::callback::Callback;
use lookalike::graphs::{self, Places};
use lookalike::{Code, user_objects};
use std::ffi::{c_char, c_int, c_uint, c_ulonglong, c_void};

lookalike::entries! {
    run: crate::entry::run, status: hipError_t;

    /// Begins to record a stream.
    fn hipStreamBeginCapture as hipStreamBeginCapture_t(
        val stream: hipStream_t, val number: hipStreamCaptureMode,
    ) {
        graphs::begin(here()?, stream, number)
    }

    /// Ends the recording.
    fn hipStreamEndCapture as hipStreamEndCapture_t(val stream: hipStream_t, out graph: *mut hipGraph_t) {
        graphs::end(here()?, stream, &graph)
    }

    /// Whether a stream is recorded.
    fn hipStreamIsCapturing as hipStreamIsCapturing_t(
        val stream: hipStream_t, out status: *mut hipStreamCaptureStatus,
    ) {
        graphs::put_status(here()?, stream, &status)
    }

    /// What a stream's recording is.
    fn hipStreamGetCaptureInfo as hipStreamGetCaptureInfo_t(
        val stream: hipStream_t, out status: *mut hipStreamCaptureStatus, out id: *mut c_ulonglong,
    ) {
        status.wanted()?;
        let here = here()?;
        let info = graphs::info(here.machine, here.work_stream(stream)?)?;
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
        graphs::put_info(here()?, stream, &Places { status, id, graph, dependencies, count })
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
        graphs::exchange_mode(ready()?, &number)
    }

    /// An empty graph: the simulated graphs come from captures only.
    fn hipGraphCreate as hipGraphCreate_t(out _graph: *mut hipGraph_t, val _flags: c_uint) {
        Err(Code::NOT_SUPPORTED)
    }

    /// A graph's nodes.
    fn hipGraphGetNodes as hipGraphGetNodes_t(
        val graph: hipGraph_t, out nodes: *mut hipGraphNode_t, out count: *mut usize,
    ) {
        graphs::put_list(&nodes, &count, &graphs::nodes(ready()?, graph)?)
    }

    /// What a node depends on.
    fn hipGraphNodeGetDependencies as hipGraphNodeGetDependencies_t(
        val node: hipGraphNode_t, out nodes: *mut hipGraphNode_t, out count: *mut usize,
    ) {
        graphs::put_list(&nodes, &count, &graphs::dependencies(ready()?, node.addr())?)
    }

    /// Makes something to launch of a graph; what goes wrong there is not told in words.
    fn hipGraphInstantiate as hipGraphInstantiate_t(
        out executable: *mut hipGraphExec_t, val graph: hipGraph_t, out node: *mut hipGraphNode_t,
        val _log: *mut c_char, val _bytes: usize,
    ) {
        node.put_if_wanted(std::ptr::null_mut());
        here()?;
        graphs::instantiate(&executable, graph)
    }

    /// Makes something to launch of a graph.
    fn hipGraphInstantiateWithFlags as hipGraphInstantiateWithFlags_t(
        out executable: *mut hipGraphExec_t, val graph: hipGraph_t, val flags: c_ulonglong,
    ) {
        // Only this one means something without a kernel.
        if flags & !c_ulonglong::from(hipGraphInstantiateFlagAutoFreeOnLaunch) != 0 {
            return Err(Code::INVALID_VALUE);
        }
        here()?;
        graphs::instantiate(&executable, graph)
    }

    /// Prepares a launch: nothing is to be done.
    fn hipGraphUpload as hipGraphUpload_t(val executable: hipGraphExec_t, val stream: hipStream_t) {
        graphs::upload(here()?, executable, stream)
    }

    /// Queues a graph's work.
    fn hipGraphLaunch as hipGraphLaunch_t(val executable: hipGraphExec_t, val stream: hipStream_t) {
        graphs::launch(here()?, executable, stream)
    }

    /// Ends an instantiated graph.
    fn hipGraphExecDestroy as hipGraphExecDestroy_t(val executable: hipGraphExec_t) {
        graphs::destroy_executable(executable)
    }

    /// Ends a graph.
    fn hipGraphDestroy as hipGraphDestroy_t(val graph: hipGraph_t) {
        graphs::destroy(graph)
    }

    /// What is held of a device for the memory nodes of graphs. What was held most is not kept.
    fn hipDeviceGetGraphMemAttribute as hipDeviceGetGraphMemAttribute_t(
        val of: c_int, val number: hipGraphMemAttributeType, out value: *mut c_void,
    ) {
        graphs::node_memory::put(device(of)?, number, &value)
    }

    /// An object that graphs can keep alive.
    fn hipUserObjectCreate as hipUserObjectCreate_t(
        out object: *mut hipUserObject_t, val data: *mut c_void, val destroy: hipHostFn_t, val references: c_uint,
        val flags: c_uint,
    ) {
        object.wanted()?;
        // SAFETY: the caller promises a function that may be called with its data, once, on any thread.
        let destroy = unsafe { Callback::new(destroy, data) }?;
        user_objects::create(&object, destroy, references, flags)
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
        graphs::retain_object(ready()?, graph, object, count, flags)
    }

    /// Takes an object from a graph: the simulated graphs keep theirs to the end.
    fn hipGraphReleaseUserObject as hipGraphReleaseUserObject_t(
        val _graph: hipGraph_t, val _object: hipUserObject_t, val _count: c_uint,
    ) {
        Err(Code::NOT_SUPPORTED)
    }
}
