// Snapshots: the library's figures as PyTorch's C++ structures, from which PyTorch makes its own files.

#include <memory>
#include <utility>

#include "granule_allocator.h"
#include "trace_entry.h"

namespace granule_torch {
namespace {

using Taken = std::unique_ptr<granule_snapshot, decltype(&granule_snapshot_free)>;

// PyTorch takes times in snapshots for microseconds since the epoch.
history_types::trace_time_ microseconds(int64_t time_us) {
  history_types::trace_time_ time{};
  time.t_ = time_us;
  return time;
}

history_types::BlockInfo block(const granule_block_info& from) {
  history_types::BlockInfo to;
  to.size = from.bytes;
  to.requested_size = from.requested;
  to.allocated = from.state == GRANULE_BLOCK_ALLOCATED;
  to.active = from.state != GRANULE_BLOCK_INACTIVE;
  to.context_when_allocated = context_of(from.context);
  return to;
}

history_types::SegmentInfo segment(const granule_segment_info& from) {
  history_types::SegmentInfo to;
  to.device = static_cast<DeviceIndex>(from.device);
  to.registration_counter = from.registration;
  to.address = from.addr;
  to.total_size = from.total;
  to.requested_size = from.requested;
  to.allocated_size = from.allocated;
  to.active_size = from.active;
  to.stream = reinterpret_cast<decltype(to.stream)>(from.stream);
  to.is_large = from.is_large;
  to.is_expandable = from.is_growable;
  to.owner_private_pool_id = pool_id(from.pool);
  to.context_when_allocated = context_of(from.context);
  to.blocks.reserve(from.block_count);
  for (uint64_t i = 0; i < from.block_count; ++i) {
    to.blocks.push_back(block(from.blocks[i]));
  }
  return to;
}

std::vector<history_types::SegmentInfo> segments(const granule_snapshot* taken) {
  const granule_segment_info* from = nullptr;
  uint64_t count = 0;
  check(granule_snapshot_segments(taken, &from, &count));
  std::vector<history_types::SegmentInfo> to;
  to.reserve(count);
  for (uint64_t i = 0; i < count; ++i) {
    to.push_back(segment(from[i]));
  }
  return to;
}

std::vector<history_types::TraceEntry> trace(const granule_snapshot* taken, int32_t device) {
  const granule_trace_entry* from = nullptr;
  uint64_t count = 0;
  check(granule_snapshot_trace(taken, device, &from, &count));
  std::vector<history_types::TraceEntry> to;
  to.reserve(count);
  for (uint64_t i = 0; i < count; ++i) {
    to.push_back(trace_entry(from[i], microseconds(from[i].time_us)));
  }
  return to;
}

std::vector<history_types::AnnotationEntry> annotations(const granule_snapshot* taken) {
  const granule_range_mark* from = nullptr;
  uint64_t count = 0;
  check(granule_snapshot_ranges(taken, &from, &count));
  std::vector<history_types::AnnotationEntry> to;
  to.reserve(count);
  for (uint64_t i = 0; i < count; ++i) {
    history_types::AnnotationEntry entry(static_cast<DeviceIndex>(from[i].device), 0);
    entry.time_ = microseconds(from[i].time_us);
    entry.recordUserMetadata("name", from[i].name);
    entry.recordUserMetadata("stage", from[i].start ? "START" : "END");
    to.push_back(std::move(entry));
  }
  return to;
}

// What PyTorch's parsers have read. Granule has followed; texts for Granule alone (enable, configure) are not in it.
native::AllocatorConfigInfo settings() {
  using Common = c10::CachingAllocator::AcceleratorAllocatorConfig;
  using Device = native::CUDAAllocatorConfig;
  native::AllocatorConfigInfo to{};
  to.garbage_collection_threshold = Common::garbage_collection_threshold();
  to.max_split_size = Common::max_split_size();
  to.pinned_num_register_threads = Device::pinned_num_register_threads();
  to.expandable_segments = Common::use_expandable_segments();
  to.release_lock_on_malloc = Device::release_lock_on_cudamalloc();
  to.pinned_use_host_register = Device::pinned_use_cuda_host_register();
  to.graph_capture_record_stream_reuse = Device::graph_capture_record_stream_reuse();
  to.last_allocator_settings = Common::last_allocator_settings();
  to.roundup_power2_divisions = Common::roundup_power2_divisions();
  GRANULE_SINCE_2_13(to.max_round_threshold = Common::pinned_max_round_threshold();)
  GRANULE_SINCE_2_13(to.max_cached_size = Common::pinned_max_cached_size();)
  return to;
}

} // namespace

native::SnapshotInfo GranuleAllocator::snapshot(MempoolId_t pool, bool include_traces) {
  native::SnapshotInfo result;
  result.config_metadata = settings();
  granule_allocator* granule = engine::peek();
  if (granule == nullptr) {
    result.device_traces.resize(include_traces ? engine::device_count() : 0);
    return result;
  }
  const granule_pool_id id = pool_id(pool);
  granule_snapshot* raw = nullptr;
  check(granule_snapshot_take(granule, pool == MempoolId_t{0, 0} ? nullptr : &id, include_traces, &raw));
  const Taken taken(raw, granule_snapshot_free);

  result.segments = segments(raw);
  if (include_traces) {
    int32_t devices = 0;
    check(granule_device_count(granule, &devices));
    for (int32_t device = 0; device < devices; ++device) {
      result.device_traces.push_back(trace(raw, device));
    }
    result.external_annotations = annotations(raw);
  }
  return result;
}

} // namespace granule_torch
