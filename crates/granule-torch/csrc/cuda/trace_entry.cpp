#include "trace_entry.h"

namespace granule_torch {

using history_types::TraceEntry;

static_assert(static_cast<int>(TraceEntry::ALLOC) == GRANULE_ACTION_ALLOC);
static_assert(static_cast<int>(TraceEntry::FREE_REQUESTED) == GRANULE_ACTION_FREE_REQUESTED);
static_assert(static_cast<int>(TraceEntry::FREE_COMPLETED) == GRANULE_ACTION_FREE_COMPLETED);
static_assert(static_cast<int>(TraceEntry::SEGMENT_ALLOC) == GRANULE_ACTION_SEGMENT_ALLOC);
static_assert(static_cast<int>(TraceEntry::SEGMENT_FREE) == GRANULE_ACTION_SEGMENT_FREE);
static_assert(static_cast<int>(TraceEntry::SEGMENT_MAP) == GRANULE_ACTION_SEGMENT_MAP);
static_assert(static_cast<int>(TraceEntry::SEGMENT_UNMAP) == GRANULE_ACTION_SEGMENT_UNMAP);
static_assert(static_cast<int>(TraceEntry::SNAPSHOT) == GRANULE_ACTION_SNAPSHOT);
static_assert(static_cast<int>(TraceEntry::OOM) == GRANULE_ACTION_OOM);
GRANULE_SINCE_2_14(static_assert(static_cast<int>(TraceEntry::ANNOTATE) == GRANULE_ACTION_ANNOTATE);)

TraceEntry trace_entry(const granule_trace_entry& from, history_types::trace_time_ time) {
  TraceEntry to(
      static_cast<TraceEntry::Action>(from.action),
      static_cast<c10::DeviceIndex>(from.device),
      from.addr,
      from.bytes,
      reinterpret_cast<decltype(TraceEntry::stream_)>(from.stream),
      {from.pool.first, from.pool.second},
      /*time=*/0,
      context_of(from.context),
      from.compile_context,
      from.user_metadata);
  to.time_ = time;
  GRANULE_SINCE_2_15(to.internal_metadata_ = from.internal_metadata == nullptr ? "" : from.internal_metadata;)
  return to;
}

} // namespace granule_torch
