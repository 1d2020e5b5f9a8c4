// What csrc/host asks of this shim.
#pragma once

#include "allocators.h"
#include "check.h"

#include <c10/core/impl/DeviceGuardImplInterface.h>

#define GRANULE_HOST_HISTORY

namespace granule::host {

using privateuse1::check;
using privateuse1::check_giving_up;
using privateuse1::place;
using privateuse1::stream_handle;
using privateuse1::warn;

// A vendor's captures need not tell pinned memory.
constexpr bool kCapturesOpenScopes = false;

inline granule_allocator* engine() {
  return privateuse1::allocator();
}

inline c10::Stream current_stream() {
  const auto* guard = c10::impl::getDeviceGuardImpl(c10::DeviceType::PrivateUse1);
  return guard->getStream(guard->getDevice());
}

} // namespace granule::host
