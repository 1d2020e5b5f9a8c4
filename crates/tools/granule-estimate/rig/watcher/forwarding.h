// An allocator that passes every call on to another.
#pragma once

#include <c10/cuda/CUDACachingAllocator.h>

namespace watcher {

using c10::DataPtr;
using c10::DeleterFnPtr;
using c10::DeviceIndex;
using c10::MempoolId_t;
namespace native = c10::cuda::CUDACachingAllocator;

class Forwarding : public native::CUDAAllocator {
 public:
  explicit Forwarding(native::CUDAAllocator* to) : behind(to) {}

  DataPtr allocate(size_t bytes) override { return behind->allocate(bytes); }
  DataPtr allocateWithAddress(size_t bytes, void* address) override {
    return behind->allocateWithAddress(bytes, address);
  }
  void* raw_alloc(size_t bytes) override { return behind->raw_alloc(bytes); }
  void* raw_alloc_with_stream(size_t bytes, cudaStream_t stream) override {
    return behind->raw_alloc_with_stream(bytes, stream);
  }
  void raw_delete(void* pointer) override { behind->raw_delete(pointer); }
  DeleterFnPtr raw_deleter() const override { return behind->raw_deleter(); }
  void copy_data(void* to, const void* from, size_t bytes) const override { behind->copy_data(to, from, bytes); }
  void recordStream(const DataPtr& block, c10::cuda::CUDAStream stream) override {
    behind->recordStream(block, stream);
  }

  void init(int devices) override { behind->init(devices); }
  bool initialized() override { return behind->initialized(); }
  std::string name() override { return behind->name(); }
  void enable(bool on) override { behind->enable(on); }
  bool isEnabled() const override { return behind->isEnabled(); }
  void emptyCache(MempoolId_t pool) override { behind->emptyCache(pool); }
  void cacheInfo(DeviceIndex device, size_t* largest) override { behind->cacheInfo(device, largest); }
  void* getBaseAllocation(void* pointer, size_t* bytes) override { return behind->getBaseAllocation(pointer, bytes); }
  double getMemoryFraction(DeviceIndex device) override { return behind->getMemoryFraction(device); }
  void setMemoryFraction(double fraction, DeviceIndex device) override { behind->setMemoryFraction(fraction, device); }
  std::pair<size_t, size_t> getMemoryInfo(DeviceIndex device) override { return behind->getMemoryInfo(device); }

  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(DeviceIndex device) override {
    return behind->getDeviceStats(device);
  }
  void resetAccumulatedStats(DeviceIndex device) override { behind->resetAccumulatedStats(device); }
  void resetPeakStats(DeviceIndex device) override { behind->resetPeakStats(device); }
  std::vector<native::StreamSegmentSize> getExpandableSegmentSizes(DeviceIndex device) override {
    return behind->getExpandableSegmentSizes(device);
  }
  native::SnapshotInfo snapshot(MempoolId_t pool, bool traces) override { return behind->snapshot(pool, traces); }

  void beginAllocateToPool(DeviceIndex device, MempoolId_t pool, std::function<bool(cudaStream_t)> filter) override {
    behind->beginAllocateToPool(device, pool, std::move(filter));
  }
  void endAllocateToPool(DeviceIndex device, MempoolId_t pool) override { behind->endAllocateToPool(device, pool); }
  void markCaptureBegin(DeviceIndex device) override { behind->markCaptureBegin(device); }
  void markCaptureEnd(DeviceIndex device) override { behind->markCaptureEnd(device); }
  void releasePool(DeviceIndex device, MempoolId_t pool) override { behind->releasePool(device, pool); }
  int getPoolUseCount(DeviceIndex device, MempoolId_t pool) override { return behind->getPoolUseCount(device, pool); }
  void createOrIncrefPool(DeviceIndex device, MempoolId_t pool, std::shared_ptr<CUDAAllocator> source) override {
    behind->createOrIncrefPool(device, pool, std::move(source));
  }
  void setUseOnOOM(DeviceIndex device, MempoolId_t pool, bool on) override { behind->setUseOnOOM(device, pool, on); }
  void setNoSplit(DeviceIndex device, MempoolId_t pool) override { behind->setNoSplit(device, pool); }
  bool checkPoolLiveAllocations(DeviceIndex device, MempoolId_t pool, const std::unordered_set<void*>& expected)
      override {
    return behind->checkPoolLiveAllocations(device, pool, expected);
  }
  std::shared_ptr<native::AllocatorState> getCheckpointState(DeviceIndex device, MempoolId_t pool) override {
    return behind->getCheckpointState(device, pool);
  }
  native::CheckpointDelta setCheckpointPoolState(DeviceIndex device, std::shared_ptr<native::AllocatorState> state)
      override {
    return behind->setCheckpointPoolState(device, std::move(state));
  }

  bool isHistoryEnabled() override { return behind->isHistoryEnabled(); }
  void recordHistory(
      bool enabled,
      native::CreateContextFn recorder,
      size_t max_entries,
      native::RecordContext when,
      bool clear,
      const std::vector<std::string>& skip_actions) override {
    behind->recordHistory(enabled, recorder, max_entries, when, clear, skip_actions);
  }
  std::shared_ptr<c10::GatheredContext> getContextForPointer(const void* pointer) override {
    return behind->getContextForPointer(pointer);
  }
  void recordAnnotation(const std::vector<std::pair<std::string, std::string>>& annotation) override {
    behind->recordAnnotation(annotation);
  }
  void pushCompileContext(std::string& name) override { behind->pushCompileContext(name); }
  void popCompileContext() override { behind->popCompileContext(); }
  bool supportsUserMetadata() override { return behind->supportsUserMetadata(); }
  void setUserMetadata(const std::string& text) override { behind->setUserMetadata(text); }
  std::string getUserMetadata() override { return behind->getUserMetadata(); }
  void annotateMemory(const void* pointer, const std::string& text) override { behind->annotateMemory(pointer, text); }

  void attachOutOfMemoryObserver(native::OutOfMemoryObserver observer) override {
    behind->attachOutOfMemoryObserver(std::move(observer));
  }
  void attachOomRejectionObserver(native::OomRejectionObserver observer) override {
    behind->attachOomRejectionObserver(std::move(observer));
  }
  void attachAllocatorTraceTracker(native::AllocatorTraceTracker tracker) override {
    behind->attachAllocatorTraceTracker(std::move(tracker));
  }

  native::ShareableHandle shareIpcHandle(void* pointer) override { return behind->shareIpcHandle(pointer); }
  std::shared_ptr<void> getIpcDevPtr(std::string handle) override { return behind->getIpcDevPtr(std::move(handle)); }
  void enablePeerAccess(DeviceIndex device, DeviceIndex peer) override { behind->enablePeerAccess(device, peer); }
  cudaError_t memcpyAsync(
      void* to, int to_device, const void* from, int from_device, size_t bytes, cudaStream_t stream, bool p2p) override {
    return behind->memcpyAsync(to, to_device, from, from_device, bytes, stream, p2p);
  }

 protected:
  native::CUDAAllocator* const behind;
};

}  // namespace watcher
