// The history of pinned memory, in PyTorch's structures; empty where `host` is null.
#pragma once

#include "host_side.h"

#ifdef GRANULE_HOST_HISTORY

#include <c10/core/CachingDeviceAllocator.h>

#include <vector>

namespace granule::host {

using c10::CachingDeviceAllocator::CreateContextFn;
using c10::CachingDeviceAllocator::RecordContext;

// One of these at a time. What is wanted before there is an allocator begins with it.
granule_history want_host_history(
    bool enabled, CreateContextFn recorder, size_t max_entries, RecordContext when, bool clear);
void begin_host_history(granule_host_allocator* host);
bool is_host_history_enabled(granule_host_allocator* host);

// Blocks, while the history is on; what happened to them.
std::vector<c10::CachingDeviceAllocator::HostSegmentInfo> host_segments(granule_host_allocator* host);
std::vector<c10::CachingDeviceAllocator::TraceEntry> host_traces(granule_host_allocator* host);

} // namespace granule::host

#endif
