// The cache as a whole: giving it back, switching it off, limits, and questions about its blocks.

#include <algorithm>

#include "granule_allocator.h"

namespace granule_torch {

void GranuleAllocator::emptyCache(MempoolId_t pool) {
  // Once CUDA is initialised this is a pass over all streams, and counts as one, even if nothing was allocated yet.
  if (engine::device_count() == 0) {
    return;
  }
  granule_allocator* granule = engine::get(-1);
  check_giving_up(
      pool == MempoolId_t{0, 0} ? granule_empty_cache(granule) : granule_empty_pool(granule, pool_id(pool)));
}

void GranuleAllocator::enable(bool on) {
  engine::when_made([on](granule_allocator* granule) { check(granule_enable(granule, on)); });
}

bool GranuleAllocator::isEnabled() const {
  bool on = true;
  if (granule_allocator* granule = engine::peek()) {
    check(granule_is_enabled(granule, &on));
  }
  return on;
}

// `largest` goes in and out: zero asks for what the device could give, too.
void GranuleAllocator::cacheInfo(DeviceIndex device, size_t* largest) {
  granule_cache_info_t info{};
  info.size = sizeof info;
  check(granule_cache_info(engine::get(device), device, &info));
  const size_t floor = *largest == 0 ? static_cast<size_t>(info.device_free) : *largest;
  *largest = std::max(floor, static_cast<size_t>(info.largest_cached));
}

// What can be had, which on a device that shares the host's memory is more than the driver says.
std::pair<size_t, size_t> GranuleAllocator::getMemoryInfo(DeviceIndex device) {
  uint64_t free = 0;
  uint64_t total = 0;
  check(granule_device_memory_info(engine::get(device), device, &free, &total));
  return {free, total};
}

void* GranuleAllocator::getBaseAllocation(void* pointer, size_t* bytes) {
  void* base = nullptr;
  uint64_t size = 0;
  check(granule_base_allocation(engine::get(-1), pointer, &base, &size));
  if (bytes != nullptr) {
    *bytes = size;
  }
  return base;
}

double GranuleAllocator::getMemoryFraction(DeviceIndex device) {
  double fraction = 1.0;
  check(granule_memory_fraction(engine::get(device), device, &fraction));
  return fraction;
}

void GranuleAllocator::setMemoryFraction(double fraction, DeviceIndex device) {
  check(granule_set_memory_fraction(engine::get(device), device, fraction));
}

} // namespace granule_torch
