#pragma once

#include <c10/util/Exception.h>

#include <exception>
#include <utility>

#include "granule.h"

namespace granule_torch {

// Throws what PyTorch's own allocator would throw for the failure that the C ABI has just reported on this thread.
[[noreturn]] void raise_failure(granule_status status);

// Throws unless the call succeeded.
inline void check(granule_status status) {
  if (C10_UNLIKELY(status != GRANULE_OK)) {
    raise_failure(status);
  }
}

// As `check`, for calls that only give something up. They run in destructors too, also after the driver has gone or in a
// forked child, where there is nothing left to give up.
void check_giving_up(granule_status status);

// Keeps the exception of a callback that the program gave us, until the call that led to it has returned through the
// library. The next failure on this thread throws it.
void keep_exception() noexcept;

// Tells the program about an exception that nobody can be given. Never throws.
void warn_of_exception(const char* where) noexcept;

// Calls a function of the program on behalf of the library, which no exception may enter.
template <typename Function, typename Result>
Result shielded(const char* where, Result otherwise, Function&& function) noexcept {
  try {
    return std::forward<Function>(function)();
  } catch (...) {
    warn_of_exception(where);
    return otherwise;
  }
}

} // namespace granule_torch
