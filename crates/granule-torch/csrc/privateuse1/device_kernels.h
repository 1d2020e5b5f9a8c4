// Where kernels of the device layer are registered.
#pragma once

#include <torch/library.h>

namespace granule::privateuse1 {

// Kept for ever: a library that is destroyed takes its kernels with it.
inline torch::Library& kernels_of(const char* space, c10::DispatchKey key) {
  return *new torch::Library(torch::Library::IMPL, space, key, __FILE__, __LINE__);
}

// Operators under torch.autocast: which of them run in fewer bits, which in 32, which in the widest type they are given.
void register_autocast();

} // namespace granule::privateuse1
