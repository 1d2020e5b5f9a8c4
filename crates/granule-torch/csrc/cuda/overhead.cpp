// Loops that measure what one allocation and its free cost through a CUDAAllocator, PyTorch's or ours, in one process.

#include <ATen/core/CachingHostAllocator.h>
#include <c10/cuda/CUDAStream.h>

#include <chrono>

#include "exported.h"
#include "granule_allocator.h"

using namespace granule_torch;

namespace {

template <typename Pair>
double nanoseconds_per_pair(uint64_t pairs, Pair&& pair) {
  const auto start = std::chrono::steady_clock::now();
  for (uint64_t i = 0; i < pairs; ++i) {
    pair();
  }
  const std::chrono::duration<double, std::nano> passed = std::chrono::steady_clock::now() - start;
  return passed.count() / static_cast<double>(pairs);
}

native::CUDAAllocator& allocator_at(void* allocator) {
  return *static_cast<native::CUDAAllocator*>(allocator);
}

} // namespace

// Makes an allocator ready that PyTorch does not use.
GRANULE_TORCH_API void granule_torch_prepare(void* allocator, int device_count) {
  allocator_at(allocator).init(device_count);
}

// Which of the two PyTorch's own calls go to from here on.
GRANULE_TORCH_API void granule_torch_make_current(void* allocator) {
  native::allocator.store(&allocator_at(allocator));
}

// As tensors do it: allocate, and let the DataPtr go.
GRANULE_TORCH_API double granule_torch_time_data_ptr(void* allocator, size_t bytes, uint64_t pairs) {
  auto& subject = allocator_at(allocator);
  return nanoseconds_per_pair(pairs, [&] { subject.allocate(bytes); });
}

// Pinned memory; `used`: a stream copies from it.
GRANULE_TORCH_API double granule_torch_time_pinned(void* allocator, size_t bytes, bool used, uint64_t pairs) {
  auto& subject = *static_cast<at::HostAllocator*>(allocator);
  const auto stream = c10::cuda::getCurrentCUDAStream().unwrap();
  return nanoseconds_per_pair(pairs, [&] {
    const auto block = subject.allocate(bytes);
    if (used) {
      subject.record_event(block.get(), block.get_context(), stream);
    }
  });
}

// As torch.cuda.caching_allocator_alloc and libraries do it.
GRANULE_TORCH_API double granule_torch_time_raw(void* allocator, size_t bytes, uint64_t pairs) {
  auto& subject = allocator_at(allocator);
  return nanoseconds_per_pair(pairs, [&] { subject.raw_delete(subject.raw_alloc(bytes)); });
}
