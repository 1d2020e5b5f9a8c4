// The history of pinned memory, in PyTorch's structures.
#pragma once

#include <c10/core/CachingDeviceAllocator.h>

#include <vector>

namespace granule::privateuse1 {

using c10::CachingDeviceAllocator::CreateContextFn;
using c10::CachingDeviceAllocator::RecordContext;

void record_host_history(bool enabled, CreateContextFn recorder, size_t max_entries, RecordContext when, bool clear);

// Blocks, while the history is on; what happened to them.
std::vector<c10::CachingDeviceAllocator::HostSegmentInfo> host_segments();
std::vector<c10::CachingDeviceAllocator::TraceEntry> host_traces();

} // namespace granule::privateuse1
