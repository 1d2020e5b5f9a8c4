// Statistics, field by field.

#include <cstring>

#include "granule_allocator.h"
#include "host_allocator.h"
#include "lists.h"

namespace granule_torch {
namespace {

using c10::CachingAllocator::StatArray;
using c10::CachingAllocator::StatType;
using c10::CachingDeviceAllocator::DeviceStats;

StatArray stats(const granule_stat_array& from) {
  StatArray to;
  to[static_cast<size_t>(StatType::AGGREGATE)] = granule::host::to_torch(from.all);
  to[static_cast<size_t>(StatType::SMALL_POOL)] = granule::host::to_torch(from.small_pool);
  to[static_cast<size_t>(StatType::LARGE_POOL)] = granule::host::to_torch(from.large_pool);
  return to;
}

GRANULE_SINCE_2_13(void add_pools(DeviceStats& to, granule_allocator* granule, DeviceIndex device) {
  const auto pools = list<granule_pool_reserved>([&](auto* out, uint64_t capacity, uint64_t* count) {
    return granule_pools_reserved(granule, device, out, capacity, count);
  });
  for (const auto& pool : pools) {
    to.reserved_bytes_by_private_pools[pool_id(pool.pool)] = stats(pool.reserved_bytes);
  }
})

} // namespace

DeviceStats GranuleAllocator::getDeviceStats(DeviceIndex device) {
  granule_allocator* granule = engine::get(device);
  granule_device_stats from{};
  from.size = sizeof from;
  check(granule_stats(granule, device, &from));

  DeviceStats to;
  to.allocation = stats(from.allocation);
  to.segment = stats(from.segment);
  to.active = stats(from.active);
  to.inactive_split = stats(from.inactive_split);
  to.allocated_bytes = stats(from.allocated_bytes);
  to.reserved_bytes = stats(from.reserved_bytes);
  to.active_bytes = stats(from.active_bytes);
  to.inactive_split_bytes = stats(from.inactive_split_bytes);
  to.requested_bytes = stats(from.requested_bytes);
  to.oversize_allocations = granule::host::to_torch(from.oversize_allocations);
  to.oversize_segments = granule::host::to_torch(from.oversize_segments);
  to.num_alloc_retries = from.num_alloc_retries;
  to.num_ooms = from.num_ooms;
  to.num_sync_all_streams = from.num_sync_all_streams;
  to.num_device_alloc = from.num_device_alloc;
  to.num_device_free = from.num_device_free;
  GRANULE_SINCE_2_12(to.num_oom_rejections = from.num_oom_rejections;)
  to.max_split_size = from.max_split_size;

  GRANULE_SINCE_2_13(add_pools(to, granule, device);)
  return to;
}

void GranuleAllocator::resetAccumulatedStats(DeviceIndex device) {
  check(granule_reset_accumulated_stats(engine::get(device), device));
}

void GranuleAllocator::resetPeakStats(DeviceIndex device) {
  check(granule_reset_peak_stats(engine::get(device), device));
}

std::vector<native::StreamSegmentSize> GranuleAllocator::getExpandableSegmentSizes(DeviceIndex device) {
  granule_allocator* granule = engine::get(device);
  const auto sizes = list<granule_stream_segments>([&](auto* out, uint64_t capacity, uint64_t* count) {
    return granule_growable_sizes(granule, device, out, capacity, count);
  });
  std::vector<native::StreamSegmentSize> result;
  result.reserve(sizes.size());
  for (const auto& size : sizes) {
    result.emplace_back(stream_of(size.stream), size.is_small_pool, size.total_size);
  }
  return result;
}

} // namespace granule_torch
