#pragma once

#include <c10/core/Allocator.h>

#include <memory>

#include "granule.h"
#include "release.h"

namespace granule_torch {

// A call context, as the library keeps it: a pointer to a shared pointer on the heap.
using Context = std::shared_ptr<c10::GatheredContext>;

// Another owner of what the library holds; null for none.
inline Context context_of(void* held) {
  return held == nullptr ? nullptr : *static_cast<Context*>(held);
}

// `time` as the receiver wants it: ticks of the approximate clock for trackers, microseconds in snapshots.
history_types::TraceEntry trace_entry(
    const granule_trace_entry& from,
    history_types::trace_time_ time);

} // namespace granule_torch
