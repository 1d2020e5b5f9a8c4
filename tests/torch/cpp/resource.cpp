// C++ that was handed a cuda::mr resource over an allocator of the process.
#include <granule/cuda_resource.hpp>

using Any = cuda::mr::any_resource<cuda::mr::device_accessible>;

extern "C" Any* resource_over(granule_allocator* a) { return new Any{granule::cuda_resource{a, 0}}; }

extern "C" void* resource_take(Any* memory, void* stream, std::size_t bytes) {
  return memory->allocate(cuda::stream_ref{static_cast<cudaStream_t>(stream)}, bytes, 256);
}

extern "C" void resource_give(Any* memory, void* stream, void* ptr, std::size_t bytes) {
  memory->deallocate(cuda::stream_ref{static_cast<cudaStream_t>(stream)}, ptr, bytes, 256);
}
