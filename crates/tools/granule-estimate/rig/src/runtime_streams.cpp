// Streams, events, captures, graphs. The handles are the driver's.
#include "runtime.h"

using namespace runtime;
#define Q(s) ((CUstream)(s))

extern "C" {
cudaError_t cudaStreamCreateWithPriority(cudaStream_t* s, unsigned f, int p) { DRIVER(cuStreamCreateWithPriority((CUstream*)s, f, p)); }
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* s, unsigned f) { return cudaStreamCreateWithPriority(s, f, 0); }
cudaError_t cudaStreamCreate(cudaStream_t* s) { return cudaStreamCreateWithPriority(s, 0, 0); }
cudaError_t cudaStreamDestroy(cudaStream_t s) { DRIVER(cuStreamDestroy_v2(Q(s))); }
cudaError_t cudaStreamGetPriority(cudaStream_t s, int* p) { DRIVER(cuStreamGetPriority(Q(s), p)); }
cudaError_t cudaStreamGetDevice(cudaStream_t s, int* d) { DRIVER(cuStreamGetDevice(Q(s), d)); }
cudaError_t cudaStreamGetFlags(cudaStream_t s, unsigned* f) { DRIVER(cuStreamGetFlags(Q(s), f)); }
cudaError_t cudaStreamGetId(cudaStream_t s, unsigned long long* id) { DRIVER(cuStreamGetId(Q(s), id)); }
cudaError_t cudaStreamQuery(cudaStream_t s) { DRIVER(cuStreamQuery(Q(s))); }
cudaError_t cudaStreamSynchronize(cudaStream_t s) { DRIVER(cuStreamSynchronize(Q(s))); }
cudaError_t cudaStreamWaitEvent(cudaStream_t s, cudaEvent_t e, unsigned f) { DRIVER(cuStreamWaitEvent(Q(s), (CUevent)e, f)); }
cudaError_t cudaStreamAddCallback(cudaStream_t s, cudaStreamCallback_t f, void* d, unsigned flags) {
  DRIVER(cuStreamAddCallback(Q(s), (CUstreamCallback)f, d, flags));
}
cudaError_t cudaLaunchHostFunc(cudaStream_t s, cudaHostFn_t f, void* d) { DRIVER(cuLaunchHostFunc(Q(s), f, d)); }
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* e, unsigned f) { DRIVER(cuEventCreate((CUevent*)e, f)); }
cudaError_t cudaEventCreate(cudaEvent_t* e) { return cudaEventCreateWithFlags(e, 0); }
cudaError_t cudaEventDestroy(cudaEvent_t e) { DRIVER(cuEventDestroy_v2((CUevent)e)); }
cudaError_t cudaEventRecord(cudaEvent_t e, cudaStream_t s) { DRIVER(cuEventRecord((CUevent)e, Q(s))); }
cudaError_t cudaEventRecordWithFlags(cudaEvent_t e, cudaStream_t s, unsigned f) { DRIVER(cuEventRecordWithFlags((CUevent)e, Q(s), f)); }
cudaError_t cudaEventQuery(cudaEvent_t e) { DRIVER(cuEventQuery((CUevent)e)); }
cudaError_t cudaEventSynchronize(cudaEvent_t e) { DRIVER(cuEventSynchronize((CUevent)e)); }
cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t a, cudaEvent_t b) { DRIVER(cuEventElapsedTime(ms, (CUevent)a, (CUevent)b)); }

cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* m) {
  return ret(cuThreadExchangeStreamCaptureMode((CUstreamCaptureMode*)m));
}
cudaError_t cudaStreamBeginCapture(cudaStream_t s, cudaStreamCaptureMode m) { DRIVER(cuStreamBeginCapture_v2(Q(s), (CUstreamCaptureMode)m)); }
cudaError_t cudaStreamBeginCaptureToGraph(cudaStream_t s, cudaGraph_t g, const cudaGraphNode_t* after,
                                          const cudaGraphEdgeData* edges, size_t n, cudaStreamCaptureMode m) {
  DRIVER(cuStreamBeginCaptureToGraph(Q(s), (CUgraph)g, (const CUgraphNode*)after, (const CUgraphEdgeData*)edges, n,
                                     (CUstreamCaptureMode)m));
}
cudaError_t cudaStreamEndCapture(cudaStream_t s, cudaGraph_t* g) { DRIVER(cuStreamEndCapture(Q(s), (CUgraph*)g)); }
cudaError_t cudaStreamIsCapturing(cudaStream_t s, cudaStreamCaptureStatus* st) {
  DRIVER(cuStreamIsCapturing(Q(s), (CUstreamCaptureStatus*)st));
}
// Until CUDA 13 these calls come without the kinds of edges, and one has a number behind its name.
#if CUDART_VERSION >= 13000
#define EDGES(...) , __VA_ARGS__
#else
#define EDGES(...)
#endif
cudaError_t cudaStreamGetCaptureInfo(cudaStream_t s, cudaStreamCaptureStatus* st, unsigned long long* id, cudaGraph_t* g,
                                     const cudaGraphNode_t** deps EDGES(const cudaGraphEdgeData** edges), size_t* n) {
#if CUDART_VERSION < 13000
  const cudaGraphEdgeData** edges = nullptr;
#endif
  DRIVER(cuStreamGetCaptureInfo_v3(Q(s), (CUstreamCaptureStatus*)st, (cuuint64_t*)id, (CUgraph*)g,
                                   (const CUgraphNode**)deps, (const CUgraphEdgeData**)edges, n));
}
cudaError_t cudaStreamUpdateCaptureDependencies(cudaStream_t s, cudaGraphNode_t* nodes EDGES(const cudaGraphEdgeData*),
                                                size_t n, unsigned flags) {
  DRIVER(cuStreamUpdateCaptureDependencies_v2(Q(s), (CUgraphNode*)nodes, nullptr, n, flags));
}
cudaError_t cudaGraphCreate(cudaGraph_t* g, unsigned f) { return ret(cuGraphCreate((CUgraph*)g, f)); }
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* e, cudaGraph_t g, unsigned long long f) {
  DRIVER(cuGraphInstantiateWithFlags((CUgraphExec*)e, (CUgraph)g, f));
}
cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t* e, cudaGraph_t g, unsigned long long f) { return cudaGraphInstantiate(e, g, f); }
cudaError_t cudaGraphUpload(cudaGraphExec_t, cudaStream_t) { return cudaSuccess; }
cudaError_t cudaGraphLaunch(cudaGraphExec_t e, cudaStream_t s) { DRIVER(cuGraphLaunch((CUgraphExec)e, Q(s))); }
cudaError_t cudaGraphDestroy(cudaGraph_t g) { return ret(cuGraphDestroy((CUgraph)g)); }
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t e) { return ret(cuGraphExecDestroy((CUgraphExec)e)); }
cudaError_t cudaGraphGetNodes(cudaGraph_t g, cudaGraphNode_t* nodes, size_t* n) {
  return ret(cuGraphGetNodes((CUgraph)g, (CUgraphNode*)nodes, n));
}
cudaError_t cudaGraphGetRootNodes(cudaGraph_t g, cudaGraphNode_t* nodes, size_t* n) {
  return ret(cuGraphGetRootNodes((CUgraph)g, (CUgraphNode*)nodes, n));
}
cudaError_t cudaGraphNodeGetType(cudaGraphNode_t node, cudaGraphNodeType* type) {
  return ret(cuGraphNodeGetType((CUgraphNode)node, (CUgraphNodeType*)type));
}
cudaError_t cudaGraphNodeGetDependencies(cudaGraphNode_t node, cudaGraphNode_t* nodes EDGES(cudaGraphEdgeData*), size_t* n) {
  return ret(cuGraphNodeGetDependencies_v2((CUgraphNode)node, (CUgraphNode*)nodes, nullptr, n));
}
cudaError_t cudaGraphAddEmptyNode(cudaGraphNode_t* out, cudaGraph_t g, const cudaGraphNode_t* after, size_t n) {
  return ret(cuGraphAddEmptyNode((CUgraphNode*)out, (CUgraph)g, (const CUgraphNode*)after, n));
}
cudaError_t cudaGraphAddNode(cudaGraphNode_t* out, cudaGraph_t g, const cudaGraphNode_t* after EDGES(const cudaGraphEdgeData*),
                             size_t n, cudaGraphNodeParams*) {
  return cudaGraphAddEmptyNode(out, g, after, n);
}
cudaError_t cudaGraphConditionalHandleCreate(cudaGraphConditionalHandle* h, cudaGraph_t, unsigned, unsigned) {
  *h = 1;
  return cudaSuccess;
}
cudaError_t cudaUserObjectCreate(cudaUserObject_t* o, void* p, cudaHostFn_t f, unsigned n, unsigned flags) {
  return ret(cuUserObjectCreate((CUuserObject*)o, p, f, n, flags));
}
cudaError_t cudaUserObjectRetain(cudaUserObject_t o, unsigned n) { return ret(cuUserObjectRetain((CUuserObject)o, n)); }
cudaError_t cudaUserObjectRelease(cudaUserObject_t o, unsigned n) { return ret(cuUserObjectRelease((CUuserObject)o, n)); }
cudaError_t cudaGraphRetainUserObject(cudaGraph_t g, cudaUserObject_t o, unsigned n, unsigned flags) {
  return ret(cuGraphRetainUserObject((CUgraph)g, (CUuserObject)o, n, flags));
}
cudaError_t cudaGraphReleaseUserObject(cudaGraph_t g, cudaUserObject_t o, unsigned n) {
  return ret(cuGraphReleaseUserObject((CUgraph)g, (CUuserObject)o, n));
}
}
