// Pinned host memory over the C ABI, for every device type: what the shims share. Each shim has a `host_side.h`, which
// says how the device is asked.
#pragma once

#include <ATen/core/CachingHostAllocator.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <granule.h>

namespace granule::host {

// The one instance; it lives for ever.
at::HostAllocator* allocator();

// The library's allocator, made at first use, with the settings of the engine. Throws where it cannot be made; the next use tries
// again.
granule_host_allocator* pinned();

// Null before that. For questions that have an answer even then.
granule_host_allocator* peek() noexcept;

// The engine's settings have changed.
void follow_settings();

inline c10::CachingAllocator::Stat to_torch(const granule_stat& from) {
  c10::CachingAllocator::Stat to;
  to.current = from.current;
  to.peak = from.peak;
  to.allocated = from.allocated;
  to.freed = from.freed;
  return to;
}

} // namespace granule::host
