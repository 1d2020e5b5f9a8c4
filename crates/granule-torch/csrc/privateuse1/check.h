// Status codes of the C ABI as PyTorch's exceptions.
#pragma once

#include <c10/util/Exception.h>
#include <granule.h>

namespace granule::privateuse1 {

// Throws what PyTorch's own allocators throw, with the text of the failure.
inline void check(granule_status status) {
  if (C10_LIKELY(status == GRANULE_OK)) {
    return;
  }
  switch (status) {
    case GRANULE_OUT_OF_MEMORY:
    case GRANULE_REJECTED:
      TORCH_CHECK_WITH(OutOfMemoryError, false, granule_last_error_for_pytorch());
    case GRANULE_SETTINGS:
      TORCH_CHECK_VALUE(false, granule_last_error_for_pytorch());
    case GRANULE_UNSUPPORTED:
      TORCH_CHECK_NOT_IMPLEMENTED(false, granule_last_error_for_pytorch());
    default:
      TORCH_CHECK(false, granule_last_error_for_pytorch());
  }
}

// True if nothing failed, or nothing can be given back: a forked child and a driver that is shutting down lose it anyway.
inline bool is_given_up(granule_status status) noexcept {
  return status == GRANULE_OK || status == GRANULE_FORKED || status == GRANULE_DRIVER_GONE;
}

// As `check`, for calls that only give something up. Destructors make them, too.
inline void check_giving_up(granule_status status) {
  if (!is_given_up(status)) {
    check(status);
  }
}

// For the ends of lives, where nothing may be thrown.
inline void warn(granule_status status) noexcept {
  if (is_given_up(status)) {
    return;
  }
  try {
    TORCH_WARN("Granule: ", granule_last_error_for_pytorch());
  } catch (...) {
    // A warning that was made an error.
  }
}

} // namespace granule::privateuse1
