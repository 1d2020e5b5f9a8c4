// Memory that another process opens.

#include <c10/cuda/CUDAFunctions.h>

#include <memory>
#include <string>
#include <utility>

#include "granule_allocator.h"

namespace granule_torch {

native::ShareableHandle GranuleAllocator::shareIpcHandle(void* pointer) {
  granule_bytes handle{};
  uint64_t offset = 0;
  check(granule_share(engine::get(-1), pointer, &handle, &offset));
  native::ShareableHandle result;
  result.offset = static_cast<ptrdiff_t>(offset);
  result.handle.assign(reinterpret_cast<const char*>(handle.data), handle.len);
  granule_bytes_free(&handle);
  return result;
}

// The library maps equal handles once and counts who has them open, so every call may make an owner of its own.
std::shared_ptr<void> GranuleAllocator::getIpcDevPtr(std::string handle) {
  granule_import* import = nullptr;
  const DeviceIndex device = c10::cuda::current_device();
  check(granule_open_shared(
      engine::get(device),
      device,
      reinterpret_cast<const uint8_t*>(handle.data()),
      handle.size(),
      &import));
  return {granule_import_base(import), [import](void*) {
            if (granule_import_close(import) != GRANULE_OK) {
              TORCH_WARN("could not close memory of another process: ", granule_last_error());
            }
          }};
}

} // namespace granule_torch
