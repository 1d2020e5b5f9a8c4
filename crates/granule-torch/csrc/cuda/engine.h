#pragma once

#include <c10/macros/Macros.h>

#include <atomic>
#include <functional>
#include <string>

#include "granule.h"

namespace granule_torch {

// The process's Granule allocator. It is made when it is first needed after PyTorch has initialised CUDA, so that a program may
// still fork before that, and is never destroyed: tensors may be freed as long as the process lives.
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

// PyTorch has initialised CUDA with that many devices. From now on the allocator may be made.
void init(int device_count);

// How many devices PyTorch has; 0 before `init`.
int device_count();

// Makes it. Throws if it cannot be made, and before `init`, where PyTorch's own allocator would refuse `device`.
granule_allocator* make(int device);

// Calls `action` with the allocator: now, or when it was made. For what programs attach before they use CUDA.
void when_made(std::function<void(granule_allocator*)> action);

// The allocator, or null if nothing has needed it yet. For questions that have an answer even then.
inline granule_allocator* peek() {
  return current.load(std::memory_order_acquire);
}

// The allocator, for work on a device (-1: on no particular one).
inline granule_allocator* get(int device) {
  granule_allocator* made = peek();
  return C10_LIKELY(made != nullptr) ? made : make(device);
}

} // namespace engine
} // namespace granule_torch
