// Stream capture: what work depends on, and what a capture forbids.
#include "graphs.h"
#include <algorithm>
#include <set>
#include <thread>

namespace fakegpu {

struct Capture {
  unsigned long long id;
  Graph* graph;
  bool owned_graph;  // begun into a graph of the program: that one stays
  Stream* origin;
  std::thread::id thread;
  CUstreamCaptureMode mode;
  bool broken = false;
  std::vector<Stream*> streams;
};

namespace {

std::mutex& lock() {
  static auto* m = new std::mutex;
  return *m;
}
std::atomic<int> active{0};
std::map<unsigned long long, std::unique_ptr<Capture>>& captures() {
  static auto* all = new std::map<unsigned long long, std::unique_ptr<Capture>>;
  return *all;
}
thread_local CUstreamCaptureMode thread_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;

CUresult broken(Capture* c, CUresult why) {
  c->broken = true;
  return why;
}

void merge(std::vector<Node*>& into, const std::vector<Node*>& more) {
  for (Node* n : more)
    if (std::find(into.begin(), into.end(), n) == into.end()) into.push_back(n);
}

// Every node that some of `from` depends on, and they themselves.
std::set<Node*> reached(const std::vector<Node*>& from) {
  std::set<Node*> seen;
  std::vector<Node*> open(from);
  while (!open.empty()) {
    Node* n = open.back();
    open.pop_back();
    if (!seen.insert(n).second) continue;
    open.insert(open.end(), n->dependencies.begin(), n->dependencies.end());
  }
  return seen;
}

void leave(Capture* c) {
  for (Stream* s : c->streams) {
    s->capture = nullptr;
    s->frontier.clear();
  }
  captures().erase(c->id);
  active--;
}

CUresult begin(CUstream handle, Graph* graph, const CUgraphNode* after, size_t n, CUstreamCaptureMode mode) {
  static unsigned long long next = 1;
  if (handle == nullptr || handle == CU_STREAM_LEGACY) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  Stream* s;
  if (CUresult r = stream_of(handle, &s)) return r;
  std::lock_guard<std::mutex> g(lock());
  if (s->capture) return CUDA_ERROR_ILLEGAL_STATE;
  count(C_CAPTURE);
  std::unique_ptr<Capture> c(new Capture{next++, graph ? graph : new Graph, !graph, s, std::this_thread::get_id(), mode});
  c->streams.push_back(s);
  s->capture = c.get();
  s->frontier.clear();
  for (size_t i = 0; i < n; i++) s->frontier.push_back((Node*)after[i]);
  captures()[c->id] = std::move(c);
  active++;
  return CUDA_SUCCESS;
}

CUresult info(CUstream handle, CUstreamCaptureStatus* status, cuuint64_t* id, CUgraph* graph,
              const CUgraphNode** dependencies, size_t* n) {
  if (!status) return CUDA_ERROR_INVALID_VALUE;
  Stream* s;
  if (CUresult r = stream_of(handle, &s)) return r;
  if (s->legacy)
    if (CUresult r = implicit_capture(s)) return r;
  std::lock_guard<std::mutex> g(lock());
  Capture* c = s->capture;
  *status = !c ? CU_STREAM_CAPTURE_STATUS_NONE
               : c->broken ? CU_STREAM_CAPTURE_STATUS_INVALIDATED : CU_STREAM_CAPTURE_STATUS_ACTIVE;
  if (!c || c->broken) return CUDA_SUCCESS;
  if (id) *id = c->id;
  if (graph) *graph = (CUgraph)c->graph;
  if (dependencies) *dependencies = (const CUgraphNode*)s->frontier.data();
  if (n) *n = s->frontier.size();
  return CUDA_SUCCESS;
}

}  // namespace

CUresult enqueue(CUstream handle, std::function<void()> work, CUgraphNodeType type, bool slow) {
  Stream* s;
  if (CUresult r = stream_of(handle, &s)) return r;
  if (active) {
    if (CUresult r = implicit_capture(s)) return r;
    std::lock_guard<std::mutex> g(lock());
    if (Capture* c = s->capture) {
      if (c->broken) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
      Node* node = c->graph->add(type, s->frontier, std::move(work), slow);
      s->frontier = {node};
      return CUDA_SUCCESS;
    }
  }
  if (type == CU_GRAPH_NODE_TYPE_KERNEL) fakegpu_launch();  // does nothing, and so waits for nothing
  else submit(s, std::move(work), slow);
  return CUDA_SUCCESS;
}

CUresult not_while_capturing() {
  if (!active || thread_mode == CU_STREAM_CAPTURE_MODE_RELAXED) return CUDA_SUCCESS;
  CUresult answer = CUDA_SUCCESS;
  std::lock_guard<std::mutex> g(lock());
  for (auto& [id, c] : captures()) {
    bool own = c->thread == std::this_thread::get_id() && c->mode != CU_STREAM_CAPTURE_MODE_RELAXED;
    bool global = c->mode == CU_STREAM_CAPTURE_MODE_GLOBAL && thread_mode == CU_STREAM_CAPTURE_MODE_GLOBAL;
    if (own || global) answer = broken(c.get(), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  }
  return answer;
}

CUresult not_captured(Stream* s) {
  if (!active) return CUDA_SUCCESS;
  std::lock_guard<std::mutex> g(lock());
  return s->capture ? broken(s->capture, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED) : CUDA_SUCCESS;
}

// The legacy stream would wait for the streams that are not "non-blocking", which a captured one cannot bear.
CUresult implicit_capture(Stream* s) {
  if (!active || !s->legacy) return CUDA_SUCCESS;
  CUresult answer = CUDA_SUCCESS;
  std::lock_guard<std::mutex> g(lock());
  for (auto& [id, c] : captures())
    for (Stream* t : c->streams)
      if (t->device == s->device && !(t->flags & CU_STREAM_NON_BLOCKING))
        answer = broken(c.get(), CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
  return answer;
}

CUresult captured_record(Event* e, Stream* s) {
  std::lock_guard<std::mutex> g(lock());
  if (!s->capture) return CUDA_ERROR_ILLEGAL_STATE;
  if (s->capture->broken) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  e->mark = nullptr;
  e->capture_id = s->capture->id;
  e->frontier = s->frontier;
  return CUDA_SUCCESS;
}

CUresult captured_wait(Stream* s, Event* e, bool* done) {
  if (!active) return CUDA_SUCCESS;
  std::lock_guard<std::mutex> g(lock());
  if (!e->capture_id) {
    if (!s->capture || !e->mark) return CUDA_SUCCESS;
    return broken(s->capture, CUDA_ERROR_STREAM_CAPTURE_ISOLATION);
  }
  *done = true;
  auto it = captures().find(e->capture_id);
  if (it == captures().end()) return CUDA_SUCCESS;  // its capture ended: nothing to wait for
  Capture* c = it->second.get();
  if (c->broken) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  if (s->legacy) return broken(c, CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
  if (s->capture && s->capture != c) {
    broken(s->capture, CUDA_ERROR_STREAM_CAPTURE_MERGE);
    return broken(c, CUDA_ERROR_STREAM_CAPTURE_MERGE);
  }
  if (!s->capture) {
    s->capture = c;
    c->streams.push_back(s);
  }
  merge(s->frontier, e->frontier);
  return CUDA_SUCCESS;
}

}  // namespace fakegpu

using namespace fakegpu;
extern "C" {
CUresult cuStreamBeginCapture_v2(CUstream s, CUstreamCaptureMode mode) { return begin(s, nullptr, nullptr, 0, mode); }
CUresult cuStreamBeginCaptureToGraph(CUstream s, CUgraph g, const CUgraphNode* after, const CUgraphEdgeData*, size_t n,
                                     CUstreamCaptureMode mode) {
  return begin(s, (Graph*)g, after, n, mode);
}
CUresult cuStreamEndCapture(CUstream handle, CUgraph* out) {
  Stream* s;
  if (CUresult r = stream_of(handle, &s)) return r;
  if (!out) return CUDA_ERROR_INVALID_VALUE;
  *out = nullptr;
  std::lock_guard<std::mutex> g(lock());
  Capture* c = s->capture;
  if (!c) return CUDA_ERROR_ILLEGAL_STATE;
  if (c->origin != s) return broken(c, CUDA_ERROR_STREAM_CAPTURE_UNMATCHED);
  if (c->mode != CU_STREAM_CAPTURE_MODE_RELAXED && c->thread != std::this_thread::get_id())
    return broken(c, CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD);
  CUresult answer = c->broken ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED : CUDA_SUCCESS;
  auto joined = reached(s->frontier);
  for (Stream* other : c->streams)
    for (Node* n : other->frontier)
      if (!answer && !joined.count(n)) answer = CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
  if (!answer) *out = (CUgraph)c->graph;
  else if (c->owned_graph) graph_drop(c->graph);
  leave(c);
  return answer;
}
CUresult cuStreamIsCapturing(CUstream s, CUstreamCaptureStatus* status) {
  return info(s, status, nullptr, nullptr, nullptr, nullptr);
}
CUresult cuStreamGetCaptureInfo_v2(CUstream s, CUstreamCaptureStatus* status, cuuint64_t* id, CUgraph* graph,
                                   const CUgraphNode** dependencies, size_t* n) {
  return info(s, status, id, graph, dependencies, n);
}
CUresult cuStreamGetCaptureInfo_v3(CUstream s, CUstreamCaptureStatus* status, cuuint64_t* id, CUgraph* graph,
                                   const CUgraphNode** dependencies, const CUgraphEdgeData** edges, size_t* n) {
  if (edges) *edges = nullptr;
  return info(s, status, id, graph, dependencies, n);
}
CUresult cuStreamUpdateCaptureDependencies(CUstream handle, CUgraphNode* nodes, size_t n, unsigned flags) {
  Stream* s;
  if (CUresult r = stream_of(handle, &s)) return r;
  std::lock_guard<std::mutex> g(lock());
  if (!s->capture) return CUDA_ERROR_ILLEGAL_STATE;
  if (flags == CU_STREAM_SET_CAPTURE_DEPENDENCIES) s->frontier.clear();
  merge(s->frontier, std::vector<Node*>((Node**)nodes, (Node**)nodes + n));
  return CUDA_SUCCESS;
}
CUresult cuStreamUpdateCaptureDependencies_v2(CUstream s, CUgraphNode* nodes, const CUgraphEdgeData*, size_t n,
                                              unsigned flags) {
  return cuStreamUpdateCaptureDependencies(s, nodes, n, flags);
}
CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode* mode) {
  if (!mode || (unsigned)*mode > 2) return CUDA_ERROR_INVALID_VALUE;
  std::swap(*mode, thread_mode);
  return CUDA_SUCCESS;
}
}
