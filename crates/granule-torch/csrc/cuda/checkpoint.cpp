// Checkpoints of a pool, as CUDA graph trees take and restore them.

#include <memory>
#include <utility>

#include "granule_allocator.h"

namespace granule_torch {
namespace {

struct PoolState final : native::AllocatorState {
  explicit PoolState(granule_checkpoint* owned) : checkpoint(owned) {}
  PoolState(const PoolState&) = delete;
  PoolState& operator=(const PoolState&) = delete;
  ~PoolState() override {
    granule_checkpoint_free(checkpoint);
  }
  granule_checkpoint* const checkpoint;
};

} // namespace

std::shared_ptr<native::AllocatorState> GranuleAllocator::getCheckpointState(DeviceIndex device, MempoolId_t pool) {
  granule_checkpoint* checkpoint = nullptr;
  check(granule_pool_checkpoint(engine::get(device), device, pool_id(pool), &checkpoint));
  return std::make_shared<PoolState>(checkpoint);
}

native::CheckpointDelta GranuleAllocator::setCheckpointPoolState(
    DeviceIndex device, std::shared_ptr<native::AllocatorState> state) {
  const auto saved = std::dynamic_pointer_cast<PoolState>(state);
  TORCH_CHECK(saved, "Expected PrivatePoolState");

  granule_delta delta{};
  delta.size = sizeof delta;
  check(granule_pool_restore(engine::get(device), saved->checkpoint, &delta));
  const std::unique_ptr<granule_delta, decltype(&granule_delta_free)> owner(&delta, granule_delta_free);

  native::CheckpointDelta result;
  result.ptrs_freed.assign(delta.freed, delta.freed + delta.freed_count);
  result.dataptrs_allocd.reserve(delta.allocated_count);
  for (uint64_t i = 0; i < delta.allocated_count; ++i) {
    void* pointer = delta.allocated[i];
    result.dataptrs_allocd.emplace_back(pointer, pointer, &delete_block, c10::Device(c10::DeviceType::CUDA, device));
  }
  return result;
}

} // namespace granule_torch
