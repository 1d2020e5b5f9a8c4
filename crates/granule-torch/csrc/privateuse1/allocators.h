// What the parts of the allocator shim share.
#pragma once

#include "host_allocator.h"
#include "privateuse1.h"

#include <c10/core/CachingDeviceAllocator.h>

namespace granule::privateuse1 {

// The one instance; it lives for ever.
c10::DeviceAllocator* device_allocator();

// Whether allocator() was called with success.
bool is_live() noexcept;

// The calling thread's place, and its stream on `device`.
Place place();
Place place_on(c10::DeviceIndex device);

using host::to_torch;

} // namespace granule::privateuse1
