// Graphs: what a capture leaves, and what a launch runs.
#pragma once
#include "fakegpu.h"

namespace fakegpu {

struct Node {
  CUgraphNodeType type;
  std::vector<Node*> dependencies;
  std::function<void()> work;
  bool slow;
  CUgraph graph;
};

// What the program wants destroyed when no graph and no launch uses it any more.
struct UserObject {
  std::mutex lock;
  size_t references;
  void* data;
  CUhostFn destroy;
};
void user_object_release(UserObject*, size_t n);

struct Graph {
  std::vector<std::shared_ptr<Node>> nodes;  // dependencies come first
  std::map<UserObject*, size_t> objects;

  Node* add(CUgraphNodeType type, std::vector<Node*> dependencies, std::function<void()> work, bool slow);
};
void graph_drop(Graph*);

}  // namespace fakegpu
