// What granule_torch/privateuse1.py calls. Plain C, so that one build serves every Python version.
#include "allocators.h"
#include "check.h"
#include "device_graph.h"
#include "device_history.h"
#include "device_runtime.h"

#include <exception>
#include <string>

#define EXPORTED extern "C" __attribute__((visibility("default")))

using namespace granule::privateuse1;

namespace {

// What went wrong, until the thread's next call; null where nothing did.
template <class F>
const char* problem_of(const F& function) {
  static thread_local std::string problem;
  try {
    function();
    return nullptr;
  } catch (const c10::Error& error) {
    problem = error.what_without_backtrace();
  } catch (const std::exception& error) {
    problem = error.what();
  }
  return problem.c_str();
}

} // namespace

// Registers the device layer over a backend, and starts it. Null if that worked, else why not.
EXPORTED const char* granule_torch_privateuse1_enable(
    const char* backend, const granule_backend_table* table, const char* settings) {
  return problem_of([&] {
    Options options;
    options.backend = backend;
    options.table = table;
    options.settings = settings;
    register_allocators(options);
    register_guard();
    register_hooks();
    register_kernels();
    register_graphs();
    device_count();
  });
}

// For calls of the C ABI; once enabled.
EXPORTED granule_allocator* granule_torch_privateuse1_allocator() {
  return allocator();
}

// Null where the backend has no pinned memory to give.
EXPORTED granule_host_allocator* granule_torch_privateuse1_pinned() {
  try {
    return pinned_memory();
  } catch (const std::exception&) {
    return nullptr;
  }
}

// Turns the history of device memory on or off; null if that worked, else why not.
EXPORTED const char* granule_torch_privateuse1_record_history(
    bool enabled, bool clear, int32_t contexts, bool cpp, uint64_t max_entries, uint32_t skip_actions) {
  return problem_of([&] {
    granule_history wanted{};
    wanted.enabled = enabled;
    wanted.clear = clear;
    wanted.contexts = contexts;
    wanted.max_entries = max_entries;
    wanted.skip_actions = skip_actions;
    record_device_history(wanted, cpp);
  });
}

// A pickled snapshot: the thread's, until its next call.
EXPORTED const char* granule_torch_privateuse1_snapshot(
    granule_pool_id pool, bool traces, const char** bytes, uint64_t* count) {
  static thread_local std::string pickled;
  return problem_of([&] {
    pickled = pickled_snapshot(pool, traces);
    *bytes = pickled.data();
    *count = pickled.size();
  });
}

// Lets the graph that the thread captures keep a pool, if it captures one.
EXPORTED const char* granule_torch_privateuse1_retain_pool(granule_pool_id pool) {
  return problem_of([&] { retain_in_capture(pool); });
}
