// The hooks of CUDAPluggableAllocator that are C++ by type. The others are plain C and live in libgranule_capi.

#include <c10/util/Exception.h>

#include <functional>
#include <string>
#include <utility>

#include "errors.h"
#include "exported.h"
#include "filter.h"
#include "granule_allocator.h"

using namespace granule_torch;

namespace {

granule_allocator* allocator() {
  granule_allocator* shared = nullptr;
  check(granule_pluggable_allocator(&shared));
  return shared;
}

} // namespace

// PyTorch tells pluggable allocators of pools, not of captures. It opens pools for captures only, so that a pool is the word
// that one may come: from then on the library asks the driver whether a stream is being captured.
GRANULE_TORCH_API void granule_torch_pluggable_begin_pool(
    int device, MempoolId_t pool, std::function<bool(cudaStream_t)> filter) {
  const granule_filter accepts = filter_of(std::move(filter));
  check(granule_pluggable_begin_pool(device, pool_id(pool), &accepts));
  const granule_status marked = granule_mark_capture_begin(allocator(), device);
  if (marked != GRANULE_OK) {
    const std::string problem = granule_last_error();
    granule_pluggable_end_pool(device, pool_id(pool));
    TORCH_CHECK(false, problem);
  }
}

GRANULE_TORCH_API void granule_torch_pluggable_end_pool(int device, MempoolId_t pool) {
  const granule_status marked = granule_mark_capture_end(allocator(), device);
  check_giving_up(granule_pluggable_end_pool(device, pool_id(pool)));
  check_giving_up(marked);
}

GRANULE_TORCH_API void granule_torch_pluggable_release_pool(int device, MempoolId_t pool) {
  check_giving_up(granule_pluggable_release_pool(device, pool_id(pool)));
}
