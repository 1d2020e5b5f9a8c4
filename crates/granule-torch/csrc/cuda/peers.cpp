// Devices that reach each other's memory.

#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>

#include "granule_allocator.h"

namespace granule_torch {

void GranuleAllocator::enablePeerAccess(DeviceIndex device, DeviceIndex peer) {
  const c10::cuda::CUDAGuard guard(device);
  check(granule_enable_peer_access(engine::get(device), device, peer));
}

// Without peer access only the driver's peer copy may touch memory that was mapped; the library knows which is.
cudaError_t GranuleAllocator::memcpyAsync(
    void* destination,
    int destination_device,
    const void* source,
    int source_device,
    size_t bytes,
    cudaStream_t stream,
    bool p2p_enabled) {
  if (p2p_enabled || destination_device == source_device) {
    return cudaMemcpyAsync(destination, source, bytes, cudaMemcpyDeviceToDevice, stream);
  }
  const granule_status status = granule_copy_async(
      engine::get(destination_device),
      destination,
      destination_device,
      source,
      source_device,
      bytes,
      c10::cuda::current_device(),
      stream_handle(stream));
  if (status == GRANULE_OK) {
    return cudaSuccess;
  }
  granule_error error{};
  error.size = sizeof error;
  // The driver's codes are the runtime's, where both have one.
  if (granule_last_error_details(&error) == GRANULE_OK && error.driver_code != 0) {
    return static_cast<cudaError_t>(error.driver_code);
  }
  raise_failure(status);
}

} // namespace granule_torch
