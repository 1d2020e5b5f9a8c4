// Private pools: user MemPools, graph captures, and pools whose memory comes from another CUDAAllocator.

#include <c10/cuda/CUDAGuard.h>

#include <memory>
#include <utility>

#include "filter.h"
#include "granule_allocator.h"

namespace granule_torch {
namespace {

using Source = std::shared_ptr<native::CUDAAllocator>;

const Source& source_of(void* user) {
  return *static_cast<Source*>(user);
}

// Null means that there is no room; the library then tries its remedies and says so in the out-of-memory text.
void* source_alloc(void* user, uint64_t bytes, int32_t device, uint64_t stream) {
  return shielded("the allocator of a MemPool", static_cast<void*>(nullptr), [&] {
    const c10::cuda::CUDAGuard guard(static_cast<DeviceIndex>(device));
    return source_of(user)->raw_alloc_with_stream(bytes, stream_of(stream));
  });
}

void source_free(void* user, void* pointer, uint64_t /*bytes*/, int32_t device, uint64_t /*stream*/) {
  shielded("the allocator of a MemPool", 0, [&] {
    const c10::cuda::CUDAGuard guard(static_cast<DeviceIndex>(device));
    source_of(user)->raw_delete(pointer);
    return 0;
  });
}

void source_drop(void* user) {
  shielded("the allocator of a MemPool", 0, [&] {
    delete static_cast<Source*>(user);
    return 0;
  });
}

} // namespace

void GranuleAllocator::createOrIncrefPool(DeviceIndex device, MempoolId_t pool, Source source) {
  granule_allocator* granule = engine::get(device);
  if (source == nullptr || source.get() == this) {
    check(granule_pool_create(granule, device, pool_id(pool), nullptr));
    return;
  }
  granule_segment_source from{};
  from.size = sizeof from;
  from.user = new Source(std::move(source));
  from.alloc = source_alloc;
  from.free = source_free;
  from.drop = source_drop;
  check(granule_pool_create(granule, device, pool_id(pool), &from));
}

void GranuleAllocator::beginAllocateToPool(
    DeviceIndex device, MempoolId_t pool, std::function<bool(cudaStream_t)> filter) {
  const granule_filter accepts = filter_of(std::move(filter));
  check(granule_pool_begin(engine::get(device), device, pool_id(pool), &accepts));
  // There a pool in use is the only word of a capture, and counts as one.
  GRANULE_BEFORE_2_13(check(granule_mark_capture_begin(engine::get(device), device));)
}

void GranuleAllocator::endAllocateToPool(DeviceIndex device, MempoolId_t pool) {
  check_giving_up(granule_pool_end(engine::get(device), device, pool_id(pool)));
  GRANULE_BEFORE_2_13(check_giving_up(granule_mark_capture_end(engine::get(device), device));)
}

void GranuleAllocator::releasePool(DeviceIndex device, MempoolId_t pool) {
  check_giving_up(granule_pool_release(engine::get(device), device, pool_id(pool)));
}

GRANULE_SINCE_2_13(void GranuleAllocator::markCaptureBegin(DeviceIndex device) {
  check(granule_mark_capture_begin(engine::get(device), device));
})

GRANULE_SINCE_2_13(void GranuleAllocator::markCaptureEnd(DeviceIndex device) {
  check(granule_mark_capture_end(engine::get(device), device));
})

int GranuleAllocator::getPoolUseCount(DeviceIndex device, MempoolId_t pool) {
  int32_t count = 0;
  check(granule_pool_use_count(engine::get(device), device, pool_id(pool), &count));
  return count;
}

void GranuleAllocator::setUseOnOOM(DeviceIndex device, MempoolId_t pool, bool on) {
  const granule_status status = granule_pool_set_use_on_oom(engine::get(device), device, pool_id(pool), on);
  on ? check(status) : check_giving_up(status);
}

void GranuleAllocator::setNoSplit(DeviceIndex device, MempoolId_t pool) {
  check(granule_pool_set_no_split(engine::get(device), device, pool_id(pool)));
}

bool GranuleAllocator::checkPoolLiveAllocations(
    DeviceIndex device, MempoolId_t pool, const std::unordered_set<void*>& expected) {
  const std::vector<void*> pointers(expected.begin(), expected.end());
  bool equal = false;
  check(granule_pool_has_live(engine::get(device), device, pool_id(pool), pointers.data(), pointers.size(), &equal));
  return equal;
}

} // namespace granule_torch
