#pragma once

#include <c10/macros/Macros.h>

#include <atomic>
#include <functional>
#include <string>

#include "granule.h"

namespace granule_torch {

// The process's Granule allocator. It is made when PyTorch initialises CUDA, so that a program may still fork before
// that, and is never destroyed: tensors may be freed as long as the process lives.
namespace engine {

// Null until it was made. Read on every allocation, hence no function around it.
extern std::atomic<granule_allocator*> current;

// What it will be made with. An empty backend: the library's choice; no settings: from the environment.
struct Options {
  std::string backend;
  std::string settings;
  bool has_settings = false;
};
void set_options(Options options);

// Makes it if that did not happen yet. Throws if it cannot be made.
granule_allocator* make();

// Makes it and checks that it has that many devices.
void make(int device_count);

// Calls `action` with the allocator: now, or as soon as it was made. For what programs attach before they use CUDA.
void when_made(std::function<void(granule_allocator*)> action);

inline granule_allocator* get() {
  granule_allocator* made = current.load(std::memory_order_acquire);
  return C10_LIKELY(made != nullptr) ? made : make();
}

} // namespace engine
} // namespace granule_torch
