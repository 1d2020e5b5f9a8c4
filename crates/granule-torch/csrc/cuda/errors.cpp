#include "errors.h"

#include <string>
#include <utility>

#include "release.h"

namespace granule_torch {
namespace {

thread_local std::exception_ptr kept_exception;

// "pool (0, 3): problem" as "problem [pool (0, 3)]": programs look for PyTorch's words, which are in the problem.
std::string problem_first(const std::string& text) {
  constexpr char kEndOfOwner[] = "): ";
  const size_t end = text.find(kEndOfOwner);
  if (end == std::string::npos) {
    return text;
  }
  return text.substr(end + sizeof kEndOfOwner - 1) + " [" + text.substr(0, end + 1) + "]";
}

} // namespace

void raise_failure(granule_status status) {
  if (kept_exception) {
    std::rethrow_exception(std::exchange(kept_exception, nullptr));
  }
  const std::string text = granule_last_error_for_pytorch();
  switch (status) {
    case GRANULE_OUT_OF_MEMORY:
    case GRANULE_REJECTED:
      TORCH_CHECK_WITH(OutOfMemoryError, false, text);
    case GRANULE_INVALID_DEVICE:
      TORCH_CHECK(false, text, "; did you call init?");
    case GRANULE_SETTINGS:
      TORCH_CHECK_VALUE(false, text);
    case GRANULE_UNSUPPORTED:
      TORCH_CHECK_NOT_IMPLEMENTED(false, text);
    case GRANULE_POOL:
    case GRANULE_CHECKPOINT:
      TORCH_CHECK(false, problem_first(text));
    default:
      TORCH_CHECK(false, text);
  }
  // The macros above always throw; compilers do not all see it.
  std::terminate();
}

void check_giving_up(granule_status status) {
  if (status != GRANULE_DRIVER_GONE && status != GRANULE_FORKED) {
    check(status);
  }
}

void keep_exception() noexcept {
  kept_exception = std::current_exception();
}

void warn_of_exception(const char* where) noexcept {
  try {
    try {
      throw;
    } catch (const std::exception& error) {
      TORCH_WARN("granule: exception in ", where, ": ", error.what());
    } catch (...) {
      TORCH_WARN("granule: exception of unknown type in ", where);
    }
  } catch (...) {
    // A program may turn warnings into exceptions; here there is nobody to throw one to.
  }
}

} // namespace granule_torch
