// What granule_torch/privateuse1.py calls. Plain C, so that one build serves every Python version.
#include "allocators.h"
#include "check.h"
#include "device_runtime.h"

#include <exception>
#include <string>

#define EXPORTED extern "C" __attribute__((visibility("default")))

using namespace granule::privateuse1;

// Registers the device layer over a backend, and starts it. Null if that worked, else why not.
EXPORTED const char* granule_torch_privateuse1_enable(
    const char* backend, const granule_backend_table* table, const char* settings) {
  static thread_local std::string problem;
  try {
    Options options;
    options.backend = backend;
    options.table = table;
    options.settings = settings;
    register_allocators(options);
    register_guard();
    register_hooks();
    register_kernels();
    device_count();
    return nullptr;
  } catch (const c10::Error& error) {
    problem = error.what_without_backtrace();
  } catch (const std::exception& error) {
    problem = error.what();
  }
  return problem.c_str();
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
