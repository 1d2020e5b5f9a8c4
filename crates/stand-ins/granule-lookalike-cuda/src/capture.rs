//! Stream capture, graphs, user objects.

use crate::entry::{device, driver, here};
use crate::header::*;
use crate::personality::since;
use lookalike::argument::In;
use lookalike::callback::Callback;
use lookalike::graphs::{self, Places};
use lookalike::{Answer, Code, user_objects};
use std::ffi::{c_uint, c_ulonglong, c_void};
use std::ptr::without_provenance_mut;

/// A list of nodes, which is null where it has none.
fn node_list(nodes: &In<CUgraphNode>, count: usize) -> Answer<Vec<usize>> {
    let nodes = if count == 0 { Vec::new() } else { nodes.list(count)? };
    Ok(nodes.into_iter().map(|node| node.addr()).collect())
}

fn update(stream: CUstream, nodes: &In<CUgraphNode>, count: usize, flags: c_uint) -> Answer {
    let here = here()?;
    let stream = here.stream(stream)?.stream;
    let adds = match flags {
        CU_STREAM_ADD_CAPTURE_DEPENDENCIES => true,
        CU_STREAM_SET_CAPTURE_DEPENDENCIES => false,
        _ => return Err(Code::INVALID_VALUE),
    };
    graphs::set_frontier(here.machine, stream, &node_list(nodes, count)?, adds)
}

lookalike::entries! {
    run: crate::entry::run, status: CUresult;

    /// Begins to record a stream.
    fn cuStreamBeginCapture_v2 as cuStreamBeginCapture_v2_t(val stream: CUstream, val number: CUstreamCaptureMode) {
        graphs::begin(here()?, stream, number)
    }

    /// Records into a graph of the program: the simulated captures make their own.
    fn cuStreamBeginCaptureToGraph as cuStreamBeginCaptureToGraph_t(
        val _stream: CUstream, val _graph: CUgraph, input _after: *const CUgraphNode,
        input _edges: *const CUgraphEdgeData, val _count: usize, val _number: CUstreamCaptureMode,
    ) {
        here()?;
        Err(Code::NOT_SUPPORTED)
    }

    /// Ends the recording.
    fn cuStreamEndCapture as cuStreamEndCapture_t(val stream: CUstream, out graph: *mut CUgraph) {
        graphs::end(here()?, stream, &graph)
    }

    /// Whether a stream is recorded.
    fn cuStreamIsCapturing as cuStreamIsCapturing_t(val stream: CUstream, out status: *mut CUstreamCaptureStatus) {
        graphs::put_status(here()?, stream, &status)
    }

    /// What a stream's recording looks like.
    fn cuStreamGetCaptureInfo_v2 as cuStreamGetCaptureInfo_v2_t(
        val stream: CUstream,
        out status: *mut CUstreamCaptureStatus,
        out id: *mut cuuint64_t,
        out graph: *mut CUgraph,
        out dependencies: *mut *const CUgraphNode,
        out count: *mut usize,
    ) {
        graphs::put_info(here()?, stream, &Places { status, id, graph, dependencies, count })
    }

    /// The same, with data about the edges: there is none, all are plain.
    fn cuStreamGetCaptureInfo_v3 as cuStreamGetCaptureInfo_v3_t(
        val stream: CUstream,
        out status: *mut CUstreamCaptureStatus,
        out id: *mut cuuint64_t,
        out graph: *mut CUgraph,
        out dependencies: *mut *const CUgraphNode,
        out edges: *mut *const CUgraphEdgeData,
        out count: *mut usize,
    ) {
        since(12_030)?;
        edges.put_if_wanted(std::ptr::null());
        graphs::put_info(here()?, stream, &Places { status, id, graph, dependencies, count })
    }

    /// Changes what a stream's next work depends on.
    fn cuStreamUpdateCaptureDependencies as cuStreamUpdateCaptureDependencies_t(
        val stream: CUstream, input nodes: *mut CUgraphNode, val count: usize, val flags: c_uint,
    ) {
        update(stream, &nodes, count, flags)
    }

    /// The same, with data about the edges, which are plain.
    fn cuStreamUpdateCaptureDependencies_v2 as cuStreamUpdateCaptureDependencies_v2_t(
        val stream: CUstream, input nodes: *mut CUgraphNode, input _edges: *const CUgraphEdgeData, val count: usize,
        val flags: c_uint,
    ) {
        since(12_030)?;
        update(stream, &nodes, count, flags)
    }

    /// Swaps the calling thread's mode.
    fn cuThreadExchangeStreamCaptureMode as cuThreadExchangeStreamCaptureMode_t(
        out number: *mut CUstreamCaptureMode,
    ) {
        graphs::exchange_mode(driver()?, &number)
    }

    /// An empty graph: the simulated graphs come from captures only.
    fn cuGraphCreate as cuGraphCreate_t(out _graph: *mut CUgraph, val _flags: c_uint) {
        here()?;
        Err(Code::NOT_SUPPORTED)
    }

    /// Adds a node that does nothing.
    fn cuGraphAddEmptyNode as cuGraphAddEmptyNode_t(
        out node: *mut CUgraphNode, val graph: CUgraph, input after: *const CUgraphNode, val count: usize,
    ) {
        node.wanted()?;
        let added = graphs::add_empty_node(driver()?, graph.addr(), &node_list(&after, count)?)?;
        node.put(without_provenance_mut(added))
    }

    /// A graph's nodes that depend on no other.
    fn cuGraphGetRootNodes as cuGraphGetRootNodes_t(val graph: CUgraph, out nodes: *mut CUgraphNode, out count: *mut usize) {
        let machine = driver()?;
        let mut list = graphs::nodes(machine, graph)?;
        list.retain(|&node| graphs::dependencies(machine, node).is_ok_and(|before| before.is_empty()));
        graphs::put_list(&nodes, &count, &list)
    }

    /// What a node is. The simulated graphs remember only which of them do nothing.
    fn cuGraphNodeGetType as cuGraphNodeGetType_t(val node: CUgraphNode, out kind: *mut CUgraphNodeType) {
        graphs::dependencies(driver()?, node.addr())?;
        kind.put(if graphs::is_empty(node.addr()) { CU_GRAPH_NODE_TYPE_EMPTY } else { CU_GRAPH_NODE_TYPE_KERNEL })
    }

    /// A graph's nodes.
    fn cuGraphGetNodes as cuGraphGetNodes_t(val graph: CUgraph, out nodes: *mut CUgraphNode, out count: *mut usize) {
        let list = graphs::nodes(driver()?, graph)?;
        graphs::put_list(&nodes, &count, &list)
    }

    /// What a node depends on.
    fn cuGraphNodeGetDependencies as cuGraphNodeGetDependencies_t(
        val node: CUgraphNode, out nodes: *mut CUgraphNode, out count: *mut usize,
    ) {
        let list = graphs::dependencies(driver()?, node.addr())?;
        graphs::put_list(&nodes, &count, &list)
    }

    /// The same, with data about the edges, which are plain.
    fn cuGraphNodeGetDependencies_v2 as cuGraphNodeGetDependencies_v2_t(
        val node: CUgraphNode, out nodes: *mut CUgraphNode, out _edges: *mut CUgraphEdgeData, out count: *mut usize,
    ) {
        since(12_030)?;
        let list = graphs::dependencies(driver()?, node.addr())?;
        graphs::put_list(&nodes, &count, &list)
    }

    /// Makes something to launch of a graph, and says whether that went well.
    fn cuGraphInstantiateWithParams as cuGraphInstantiateWithParams_t(
        out executable: *mut CUgraphExec, val graph: CUgraph, val how: *mut CUDA_GRAPH_INSTANTIATE_PARAMS,
    ) {
        here()?;
        let made = graphs::instantiate(&executable, graph);
        if !how.is_null() {
            let result = if made.is_ok() { CUDA_GRAPH_INSTANTIATE_SUCCESS } else { CUDA_GRAPH_INSTANTIATE_ERROR };
            // SAFETY: the caller passes null or a struct that it has filled.
            unsafe { (*how).result_out = result };
        }
        made
    }

    /// Makes something to launch of a graph.
    fn cuGraphInstantiateWithFlags as cuGraphInstantiateWithFlags_t(
        out executable: *mut CUgraphExec, val graph: CUgraph, val flags: c_ulonglong,
    ) {
        here()?;
        let allowed = CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH | CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY;
        if flags & !c_ulonglong::from(allowed) != 0 {
            return Err(Code::INVALID_VALUE);
        }
        graphs::instantiate(&executable, graph)
    }

    /// Prepares a launch: nothing is to be done.
    fn cuGraphUpload as cuGraphUpload_t(val executable: CUgraphExec, val stream: CUstream) {
        graphs::upload(here()?, executable, stream)
    }

    /// Queues a graph's work.
    fn cuGraphLaunch as cuGraphLaunch_t(val executable: CUgraphExec, val stream: CUstream) {
        graphs::launch(here()?, executable, stream)
    }

    /// Ends an instantiated graph.
    fn cuGraphExecDestroy as cuGraphExecDestroy_t(val executable: CUgraphExec) {
        driver()?;
        graphs::destroy_executable(executable)
    }

    /// Ends a graph.
    fn cuGraphDestroy as cuGraphDestroy_t(val graph: CUgraph) {
        driver()?;
        graphs::destroy(graph)
    }

    /// What is held of a device for the memory nodes of graphs. What was held most is not kept.
    fn cuDeviceGetGraphMemAttribute as cuDeviceGetGraphMemAttribute_t(
        val of: CUdevice, val number: CUgraphMem_attribute, out value: *mut c_void,
    ) {
        graphs::node_memory::put(device(of)?, number, &value)
    }

    /// An object that graphs can keep alive.
    fn cuUserObjectCreate as cuUserObjectCreate_t(
        out object: *mut CUuserObject, val data: *mut c_void, val destroy: CUhostFn, val references: c_uint,
        val flags: c_uint,
    ) {
        driver()?;
        object.wanted()?;
        // SAFETY: the caller promises a function that may be called with its data, once, on any thread.
        let destroy = unsafe { Callback::new(destroy, data) }?;
        user_objects::create(&object, destroy, references, flags)
    }

    /// Adds references.
    fn cuUserObjectRetain as cuUserObjectRetain_t(val object: CUuserObject, val count: c_uint) {
        user_objects::retain(object.addr(), count)
    }

    /// Takes references away.
    fn cuUserObjectRelease as cuUserObjectRelease_t(val object: CUuserObject, val count: c_uint) {
        user_objects::release(object.addr(), count)
    }

    /// Lets a graph keep an object alive.
    fn cuGraphRetainUserObject as cuGraphRetainUserObject_t(
        val graph: CUgraph, val object: CUuserObject, val count: c_uint, val flags: c_uint,
    ) {
        graphs::retain_object(driver()?, graph, object, count, flags)
    }

    /// Takes an object from a graph: the simulated graphs keep theirs to the end.
    fn cuGraphReleaseUserObject as cuGraphReleaseUserObject_t(
        val _graph: CUgraph, val _object: CUuserObject, val _count: c_uint,
    ) {
        driver()?;
        Err(Code::NOT_SUPPORTED)
    }
}
