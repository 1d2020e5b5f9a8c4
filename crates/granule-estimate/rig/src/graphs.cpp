// Graphs: made by captures or by hand, launched as their nodes in the order they were made.
#include "graphs.h"
#include <algorithm>

namespace fakegpu {
namespace {

// The executable form keeps the nodes and the user objects that the graph had; a launch keeps the form.
struct Executable {
  std::vector<std::shared_ptr<Node>> nodes;
  std::vector<UserObject*> objects;
  ~Executable() {
    for (UserObject* o : objects) user_object_release(o, 1);
  }
};

CUresult instantiate(CUgraphExec* out, CUgraph graph) {
  if (!out || !graph) return CUDA_ERROR_INVALID_VALUE;
  auto* g = (Graph*)graph;
  auto made = std::make_shared<Executable>();
  made->nodes = g->nodes;
  for (auto& [object, n] : g->objects) {
    std::lock_guard<std::mutex> l(object->lock);
    object->references++;
    made->objects.push_back(object);
  }
  *out = (CUgraphExec) new std::shared_ptr<Executable>(made);
  return CUDA_SUCCESS;
}

// Answers a list in the driver's way: the number of entries without a place, as many as fit with one.
CUresult list(const std::vector<Node*>& all, CUgraphNode* out, size_t* n) {
  if (!n) return CUDA_ERROR_INVALID_VALUE;
  if (!out) {
    *n = all.size();
    return CUDA_SUCCESS;
  }
  size_t room = *n, i = 0;
  for (; i < room && i < all.size(); i++) out[i] = (CUgraphNode)all[i];
  for (size_t rest = i; rest < room; rest++) out[rest] = nullptr;
  *n = i;
  return CUDA_SUCCESS;
}

}  // namespace

void user_object_release(UserObject* o, size_t n) {
  {
    std::lock_guard<std::mutex> g(o->lock);
    o->references -= std::min(n, o->references);
    if (o->references) return;
  }
  o->destroy(o->data);
  delete o;
}

Node* Graph::add(CUgraphNodeType type, std::vector<Node*> dependencies, std::function<void()> work, bool slow) {
  nodes.push_back(std::make_shared<Node>(Node{type, std::move(dependencies), std::move(work), slow, (CUgraph)this}));
  return nodes.back().get();
}

void graph_drop(Graph* graph) {
  auto objects = std::move(graph->objects);
  delete graph;
  for (auto& [object, n] : objects) user_object_release(object, n);
}

}  // namespace fakegpu

using namespace fakegpu;
extern "C" {
CUresult cuGraphCreate(CUgraph* out, unsigned) {
  *out = (CUgraph) new Graph;
  return CUDA_SUCCESS;
}
CUresult cuGraphDestroy(CUgraph graph) {
  if (!graph) return CUDA_ERROR_INVALID_VALUE;
  graph_drop((Graph*)graph);
  return CUDA_SUCCESS;
}
CUresult cuGraphInstantiateWithFlags(CUgraphExec* out, CUgraph graph, unsigned long long) {
  return instantiate(out, graph);
}
CUresult cuGraphInstantiateWithParams(CUgraphExec* out, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS* p) {
  CUresult r = instantiate(out, graph);
  if (p) p->result_out = r ? CUDA_GRAPH_INSTANTIATE_ERROR : CUDA_GRAPH_INSTANTIATE_SUCCESS;
  return r;
}
CUresult cuGraphUpload(CUgraphExec, CUstream) { return CUDA_SUCCESS; }
CUresult cuGraphLaunch(CUgraphExec handle, CUstream stream) {
  if (!handle) return CUDA_ERROR_INVALID_VALUE;
  Stream* s;
  if (CUresult r = stream_of(stream, &s)) return r;
  if (CUresult r = not_captured(s)) return r;
  if (CUresult r = implicit_capture(s)) return r;
  count(C_GRAPH_LAUNCH);
  fakegpu_launch();
  auto executable = *(std::shared_ptr<Executable>*)handle;
  for (auto& node : executable->nodes)
    if (node->work) submit(s, [executable, node] { node->work(); }, node->slow);
  return CUDA_SUCCESS;
}
CUresult cuGraphExecDestroy(CUgraphExec handle) {
  delete (std::shared_ptr<Executable>*)handle;
  return CUDA_SUCCESS;
}
CUresult cuGraphGetNodes(CUgraph graph, CUgraphNode* out, size_t* n) {
  std::vector<Node*> all;
  for (auto& node : ((Graph*)graph)->nodes) all.push_back(node.get());
  return list(all, out, n);
}
CUresult cuGraphGetRootNodes(CUgraph graph, CUgraphNode* out, size_t* n) {
  std::vector<Node*> roots;
  for (auto& node : ((Graph*)graph)->nodes)
    if (node->dependencies.empty()) roots.push_back(node.get());
  return list(roots, out, n);
}
CUresult cuGraphNodeGetType(CUgraphNode node, CUgraphNodeType* type) {
  *type = ((Node*)node)->type;
  return CUDA_SUCCESS;
}
CUresult cuGraphNodeGetDependencies(CUgraphNode node, CUgraphNode* out, size_t* n) {
  return list(((Node*)node)->dependencies, out, n);
}
CUresult cuGraphNodeGetDependencies_v2(CUgraphNode node, CUgraphNode* out, CUgraphEdgeData*, size_t* n) {
  return list(((Node*)node)->dependencies, out, n);
}
CUresult cuGraphAddEmptyNode(CUgraphNode* out, CUgraph graph, const CUgraphNode* after, size_t n) {
  std::vector<Node*> before((Node**)after, (Node**)after + n);
  *out = (CUgraphNode)((Graph*)graph)->add(CU_GRAPH_NODE_TYPE_EMPTY, before, nullptr, false);
  return CUDA_SUCCESS;
}
CUresult cuGraphAddNode_v2(CUgraphNode* out, CUgraph graph, const CUgraphNode* after, const CUgraphEdgeData*, size_t n,
                           CUgraphNodeParams* p) {
  std::vector<Node*> before((Node**)after, (Node**)after + n);
  *out = (CUgraphNode)((Graph*)graph)->add(p->type, before, nullptr, false);
  return CUDA_SUCCESS;
}

CUresult cuUserObjectCreate(CUuserObject* out, void* data, CUhostFn destroy, unsigned references, unsigned flags) {
  if (!out || !destroy || !references || flags != CU_USER_OBJECT_NO_DESTRUCTOR_SYNC) return CUDA_ERROR_INVALID_VALUE;
  *out = (CUuserObject) new UserObject{{}, references, data, destroy};
  return CUDA_SUCCESS;
}
CUresult cuUserObjectRetain(CUuserObject object, unsigned n) {
  auto* o = (UserObject*)object;
  std::lock_guard<std::mutex> g(o->lock);
  o->references += n;
  return CUDA_SUCCESS;
}
CUresult cuUserObjectRelease(CUuserObject object, unsigned n) {
  user_object_release((UserObject*)object, n);
  return CUDA_SUCCESS;
}
CUresult cuGraphRetainUserObject(CUgraph graph, CUuserObject object, unsigned n, unsigned flags) {
  auto* o = (UserObject*)object;
  if (!graph || !o || !n) return CUDA_ERROR_INVALID_VALUE;
  if (!(flags & CU_GRAPH_USER_OBJECT_MOVE)) cuUserObjectRetain(object, n);
  ((Graph*)graph)->objects[o] += n;
  return CUDA_SUCCESS;
}
CUresult cuGraphReleaseUserObject(CUgraph graph, CUuserObject object, unsigned n) {
  auto& objects = ((Graph*)graph)->objects;
  auto it = objects.find((UserObject*)object);
  if (it == objects.end() || it->second < n) return CUDA_ERROR_INVALID_VALUE;
  if (!(it->second -= n)) objects.erase(it);
  user_object_release((UserObject*)object, n);
  return CUDA_SUCCESS;
}
}
