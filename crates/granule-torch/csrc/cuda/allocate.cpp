// Allocating and freeing: the only path whose speed programs feel. It takes no lock and keeps no table of its own.

#include <c10/core/impl/GPUTrace.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAFunctions.h>

#include <string>

#include "granule_allocator.h"

namespace granule_torch {
namespace {

constexpr auto kCuda = c10::DeviceType::CUDA;

// PyTorch's profiler and its device tracer may follow every allocation. Both are off in most programs.
bool somebody_follows() {
  return C10_UNLIKELY(c10::impl::GPUTrace::haveState) || C10_UNLIKELY(c10::memoryProfilingEnabled());
}

int64_t block_bytes(granule_allocator* granule, void* pointer) {
  uint64_t bytes = 0;
  return granule_block_size(granule, pointer, &bytes) == GRANULE_OK ? static_cast<int64_t>(bytes) : 0;
}

granule_device_stats totals(granule_allocator* granule, DeviceIndex device) {
  granule_device_stats stats{};
  stats.size = sizeof stats;
  check(granule_stats(granule, device, &stats));
  return stats;
}

void report_to_profiler(granule_allocator* granule, void* pointer, int64_t change, DeviceIndex device) {
  const auto stats = totals(granule, device);
  c10::reportMemoryUsageToProfiler(
      pointer,
      change,
      static_cast<size_t>(stats.allocated_bytes.all.current),
      static_cast<size_t>(stats.reserved_bytes.all.current),
      c10::Device(kCuda, device));
}

C10_NOINLINE void follow_allocation(granule_allocator* granule, void* pointer, DeviceIndex device) {
  if (c10::memoryProfilingEnabled()) {
    report_to_profiler(granule, pointer, block_bytes(granule, pointer), device);
  }
  if (const auto* interpreter = c10::impl::GPUTrace::get_trace()) {
    (*interpreter)->trace_gpu_memory_allocation(kCuda, reinterpret_cast<uintptr_t>(pointer));
  }
}

[[noreturn]] C10_NOINLINE void raise_no_memory(
    granule_allocator* granule, granule_status status, size_t bytes, DeviceIndex device) {
  if (status == GRANULE_OUT_OF_MEMORY && c10::memoryProfilingEnabled()) {
    // The text of the failure is this thread's last error; asking for figures does not fail, so it stays.
    const auto stats = totals(granule, device);
    c10::reportOutOfMemoryToProfiler(
        static_cast<int64_t>(bytes),
        static_cast<size_t>(stats.allocated_bytes.all.current),
        static_cast<size_t>(stats.reserved_bytes.all.current),
        c10::Device(kCuda, device));
  }
  raise_failure(status);
}

// PyTorch's words, and behind them why.
GRANULE_SINCE_2_13([[noreturn]] void raise_exact_address(const void* address) {
  const std::string text = granule_last_error();
  const size_t refused = text.find("mallocWithAddress:");
  if (refused != std::string::npos) {
    TORCH_CHECK(false, text.substr(refused), ", got ", address);
  }
  const size_t reason = text.find(": ");
  TORCH_CHECK(
      false,
      "Could not allocate CUDA storage at exact address ",
      address,
      reason == std::string::npos ? "" : text.substr(reason));
})

inline void* serve(size_t bytes, DeviceIndex device, cudaStream_t stream) {
  if (bytes == 0) {
    return nullptr;
  }
  granule_allocator* granule = engine::get(device);
  void* pointer = nullptr;
  const granule_status status = granule_malloc(granule, bytes, device, stream_handle(stream), &pointer);
  if (C10_UNLIKELY(status != GRANULE_OK)) {
    raise_no_memory(granule, status, bytes, device);
  }
  if (C10_UNLIKELY(somebody_follows())) {
    follow_allocation(granule, pointer, device);
  }
  return pointer;
}

inline DeviceIndex current_device() {
  DeviceIndex device = 0;
  C10_CUDA_CHECK(c10::cuda::GetDevice(&device));
  return device;
}

inline DataPtr owned(void* pointer, DeviceIndex device) {
  return {pointer, pointer, &delete_block, c10::Device(kCuda, device)};
}

// What is reported afterwards must not throw: the memory is free by then, and deleters run in destructors.
C10_NOINLINE granule_status free_followed(granule_allocator* granule, void* pointer) noexcept {
  const int64_t bytes = block_bytes(granule, pointer);
  // Not the current device, nor the driver's answer: the block may sleep, or lie in host memory of its pool's source.
  int32_t device = -1;
  const bool known = granule_block_device(granule, pointer, &device) == GRANULE_OK;
  shielded("the device tracer", 0, [&] {
    if (const auto* interpreter = c10::impl::GPUTrace::get_trace()) {
      (*interpreter)->trace_gpu_memory_deallocation(kCuda, reinterpret_cast<uintptr_t>(pointer));
    }
    return 0;
  });
  const granule_status status = granule_free(granule, pointer);
  if (status == GRANULE_OK && known && c10::memoryProfilingEnabled()) {
    shielded("the memory profiler", 0, [&] {
      report_to_profiler(granule, pointer, -bytes, static_cast<DeviceIndex>(device));
      return 0;
    });
  }
  return status;
}

} // namespace

void delete_block(void* pointer) {
  if (pointer == nullptr) {
    return;
  }
  granule_allocator* granule = engine::get(-1);
  const granule_status status =
      C10_UNLIKELY(somebody_follows()) ? free_followed(granule, pointer) : granule_free(granule, pointer);
  if (C10_UNLIKELY(status != GRANULE_OK)) {
    check_giving_up(status);
  }
}

DataPtr GranuleAllocator::allocate(size_t bytes) {
  const DeviceIndex device = current_device();
  return owned(serve(bytes, device, c10::cuda::getCurrentCUDAStream(device).stream()), device);
}

GRANULE_SINCE_2_13(DataPtr GranuleAllocator::allocateWithAddress(size_t bytes, void* address) {
  const DeviceIndex device = current_device();
  if (bytes == 0) {
    return owned(nullptr, device);
  }
  void* pointer = nullptr;
  const auto stream = c10::cuda::getCurrentCUDAStream(device).stream();
  const granule_status status =
      granule_malloc_at(engine::get(device), bytes, address, device, stream_handle(stream), &pointer);
  if (status == GRANULE_EXACT_ADDRESS) {
    raise_exact_address(address);
  }
  check(status);
  return owned(pointer, device);
})

c10::DeleterFnPtr GranuleAllocator::raw_deleter() const {
  return &delete_block;
}

void GranuleAllocator::copy_data(void* destination, const void* source, size_t bytes) const {
  C10_CUDA_CHECK(cudaMemcpy(destination, source, bytes, cudaMemcpyDeviceToDevice));
}

void* GranuleAllocator::raw_alloc(size_t bytes) {
  const DeviceIndex device = current_device();
  return serve(bytes, device, c10::cuda::getCurrentCUDAStream(device).stream());
}

void* GranuleAllocator::raw_alloc_with_stream(size_t bytes, cudaStream_t stream) {
  return serve(bytes, current_device(), stream);
}

void GranuleAllocator::raw_delete(void* pointer) {
  delete_block(pointer);
}

void GranuleAllocator::recordStream(const DataPtr& block, c10::cuda::CUDAStream stream) {
  // Blocks of others (imported from another process, wrapped foreign memory) are not ours to keep.
  if (!block.get() || block.get_deleter() != &delete_block) {
    return;
  }
  check(granule_record_stream(engine::get(stream.device_index()), block.get(), stream.device_index(), stream_handle(stream.stream())));
}

void GranuleAllocator::init(int device_count) {
  engine::init(device_count);
}

bool GranuleAllocator::initialized() {
  return engine::device_count() > 0;
}

std::string GranuleAllocator::name() {
  return "granule";
}

} // namespace granule_torch
