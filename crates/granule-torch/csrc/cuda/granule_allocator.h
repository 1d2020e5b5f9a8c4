#pragma once

#include "engine.h"
#include "errors.h"
#include "granule.h"
#include "release.h"

namespace granule_torch {

using c10::DataPtr;

// PyTorch's CUDA allocator interface over Granule's C ABI. Every function is one call (or a few) of the library plus the
// conversion of what goes in and comes out; nothing is decided here.
//
// All overrides say `override`: against a PyTorch whose interface differs this class does not compile, and the Python
// package then leaves the native allocator in place. What a release lacks is absent from the class there.
class GranuleAllocator final : public native::CUDAAllocator {
 public:
  // allocate.cpp
  DataPtr allocate(size_t bytes) override;
  GRANULE_SINCE_2_13(DataPtr allocateWithAddress(size_t bytes, void* address) override;)
  c10::DeleterFnPtr raw_deleter() const override;
  void copy_data(void* destination, const void* source, size_t bytes) const override;
  void* raw_alloc(size_t bytes) override;
  void* raw_alloc_with_stream(size_t bytes, cudaStream_t stream) override;
  void raw_delete(void* pointer) override;
  void recordStream(const DataPtr& block, c10::cuda::CUDAStream stream) override;
  void init(int device_count) override;
  bool initialized() override;
  std::string name() override;

  // cache.cpp
  void emptyCache(MempoolId_t pool) override;
  void enable(bool on) override;
  bool isEnabled() const override;
  void cacheInfo(DeviceIndex device, size_t* largest) override;
  std::pair<size_t, size_t> getMemoryInfo(DeviceIndex device) override;
  void* getBaseAllocation(void* pointer, size_t* bytes) override;
  double getMemoryFraction(DeviceIndex device) override;
  void setMemoryFraction(double fraction, DeviceIndex device) override;

  // stats.cpp
  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(DeviceIndex device) override;
  void resetAccumulatedStats(DeviceIndex device) override;
  void resetPeakStats(DeviceIndex device) override;
  std::vector<native::StreamSegmentSize> getExpandableSegmentSizes(DeviceIndex device) override;

  // pools.cpp
  void beginAllocateToPool(DeviceIndex device, MempoolId_t pool, std::function<bool(cudaStream_t)> filter) override;
  void endAllocateToPool(DeviceIndex device, MempoolId_t pool) override;
  void releasePool(DeviceIndex device, MempoolId_t pool) override;
  GRANULE_SINCE_2_13(void markCaptureBegin(DeviceIndex device) override;)
  GRANULE_SINCE_2_13(void markCaptureEnd(DeviceIndex device) override;)
  int getPoolUseCount(DeviceIndex device, MempoolId_t pool) override;
  void createOrIncrefPool(DeviceIndex device, MempoolId_t pool, std::shared_ptr<CUDAAllocator> source) override;
  void setUseOnOOM(DeviceIndex device, MempoolId_t pool, bool on) override;
  void setNoSplit(DeviceIndex device, MempoolId_t pool) override;
  bool checkPoolLiveAllocations(
      DeviceIndex device,
      MempoolId_t pool,
      const std::unordered_set<void*>& expected) override;

  // checkpoint.cpp
  std::shared_ptr<native::AllocatorState> getCheckpointState(DeviceIndex device, MempoolId_t pool) override;
  native::CheckpointDelta setCheckpointPoolState(DeviceIndex device, std::shared_ptr<native::AllocatorState> state)
      override;

  // history.cpp
  bool isHistoryEnabled() override;
  void recordHistory(
      bool enabled,
      native::CreateContextFn recorder,
      size_t max_entries,
      native::RecordContext when,
      bool clear,
      const std::vector<std::string>& skip_actions) override;
  GRANULE_SINCE_2_12(std::shared_ptr<c10::GatheredContext> getContextForPointer(const void* pointer) override;)
  void recordAnnotation(const std::vector<std::pair<std::string, std::string>>& annotation) override;
  void pushCompileContext(std::string& name) override;
  void popCompileContext() override;
  GRANULE_SINCE_2_14(bool supportsUserMetadata() override;)
  void setUserMetadata(const std::string& text) override;
  std::string getUserMetadata() override;
  GRANULE_SINCE_2_14(void annotateMemory(const void* pointer, const std::string& text) override;)

  // observers.cpp
  void attachOutOfMemoryObserver(native::OutOfMemoryObserver observer) override;
  GRANULE_SINCE_2_12(void attachOomRejectionObserver(native::OomRejectionObserver observer) override;)
  void attachAllocatorTraceTracker(native::AllocatorTraceTracker tracker) override;

  // snapshot.cpp
  native::SnapshotInfo snapshot(MempoolId_t pool, bool include_traces) override;

  // share.cpp
  native::ShareableHandle shareIpcHandle(void* pointer) override;
  std::shared_ptr<void> getIpcDevPtr(std::string handle) override;

  // peers.cpp
  void enablePeerAccess(DeviceIndex device, DeviceIndex peer) override;
  cudaError_t memcpyAsync(
      void* destination,
      int destination_device,
      const void* source,
      int source_device,
      size_t bytes,
      cudaStream_t stream,
      bool p2p_enabled) override;
};

// The deleter of every block: always this one function, because PyTorch compares deleters.
void delete_block(void* pointer);

inline granule_pool_id pool_id(const MempoolId_t& pool) {
  return {pool.first, pool.second};
}

inline MempoolId_t pool_id(const granule_pool_id& pool) {
  return {pool.first, pool.second};
}

inline uint64_t stream_handle(cudaStream_t stream) {
  return reinterpret_cast<uint64_t>(stream);
}

inline cudaStream_t stream_of(uint64_t handle) {
  return reinterpret_cast<cudaStream_t>(handle);
}

} // namespace granule_torch
