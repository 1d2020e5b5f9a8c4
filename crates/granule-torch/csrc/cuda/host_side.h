#pragma once

// What csrc/host asks of this shim.

#include <ATen/Context.h>
#include <c10/cuda/CUDAStream.h>

#include "engine.h"
#include "errors.h"
#include "release.h"

#if GRANULE_IS_SINCE(14)
#define GRANULE_HOST_HISTORY
#endif

namespace granule::host {

using granule_torch::check;
using granule_torch::check_giving_up;

// PyTorch opens a scope of pinned memory for each of its captures, and marks it for the device.
constexpr bool kCapturesOpenScopes = true;

struct Place {
  int32_t device;
  uint64_t stream;
};

// PyTorch pins memory without having initialised CUDA.
inline granule_allocator* engine() {
  at::globalContext().lazyInitDevice(c10::DeviceType::CUDA);
  return granule_torch::engine::get(-1);
}

inline c10::Stream current_stream() {
  return c10::cuda::getCurrentCUDAStream().unwrap();
}

inline uint64_t stream_handle(c10::Stream stream) {
  return reinterpret_cast<uint64_t>(c10::cuda::CUDAStream(stream).stream());
}

inline Place place() {
  const auto stream = current_stream();
  return {stream.device_index(), stream_handle(stream)};
}

// For the ends of lives, where nothing may be thrown.
inline void warn(granule_status status) noexcept {
  granule_torch::shielded("the end of pinned memory", 0, [&] {
    check_giving_up(status);
    return 0;
  });
}

} // namespace granule::host
