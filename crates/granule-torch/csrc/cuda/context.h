#pragma once

#include <c10/core/Allocator.h>

#include <memory>

namespace granule_torch {

// A call context, as the library keeps it: a pointer to a shared pointer on the heap.
using Context = std::shared_ptr<c10::GatheredContext>;

// Another owner of what the library holds; null for none.
inline Context context_of(void* held) {
  return held == nullptr ? nullptr : *static_cast<Context*>(held);
}

} // namespace granule_torch
