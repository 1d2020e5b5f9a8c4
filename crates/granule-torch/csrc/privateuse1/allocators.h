// What the parts of the allocator shim share.
#pragma once

#include "privateuse1.h"

#include <ATen/core/CachingHostAllocator.h>
#include <c10/core/CachingDeviceAllocator.h>

namespace granule::privateuse1 {

// The one instance of each; they live for ever.
c10::DeviceAllocator* device_allocator();
at::HostAllocator* host_allocator();

// Whether allocator() was called with success.
bool is_live() noexcept;

// The calling thread's place, and its stream on `device`.
Place place();
Place place_on(c10::DeviceIndex device);

inline c10::CachingAllocator::Stat to_torch(const granule_stat& stat) {
  c10::CachingAllocator::Stat torch;
  torch.current = stat.current;
  torch.peak = stat.peak;
  torch.allocated = stat.allocated;
  torch.freed = stat.freed;
  return torch;
}

} // namespace granule::privateuse1
