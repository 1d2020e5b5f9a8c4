// libgranule_watcher.so: stands between PyTorch and the allocator that it would use anyway, passes every call on, and
// writes down what was asked: exact sizes, streams and pools, refusals, frees, uses on other streams, flushes of the cache.
//
// So a program finds PyTorch's own statistics, snapshots, graphs and out-of-memory errors, as if nobody looked.
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>
#include <pthread.h>

#include <algorithm>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "forwarding.h"
#include "recording.h"

#define WATCHER_API extern "C" __attribute__((visibility("default")))

namespace watcher {
namespace {

native::CUDAAllocator* behind = nullptr;

// Lines are written before memory goes back and after it was handed out, so no lock is held while the allocator
// works (which may run callbacks of the program) and an address is never written about in the wrong order.
struct Live {
  uint64_t id;
  DeviceIndex device;
  DeleterFnPtr deleter;  // of the allocator behind
};
std::mutex& lock = *new std::mutex;
std::unordered_map<void*, Live>& live = *new std::unordered_map<void*, Live>;
// Bytes last asked for at an address: a restored checkpoint of a graph's pool says addresses only.
std::unordered_map<void*, size_t>& sizes = *new std::unordered_map<void*, size_t>;
bool sizes_are_kept = false;
Recording& recording = *new Recording;

// Pools that requests are sent to; where several want one, the newest gets it.
struct Scope {
  DeviceIndex device;
  MempoolId_t pool;
  std::function<bool(cudaStream_t)> wants;
};
std::vector<Scope>& scopes = *new std::vector<Scope>;

// The filter is PyTorch's or the program's, and may ask what it likes: it is called without the lock.
MempoolId_t pool_of(DeviceIndex device, cudaStream_t stream) {
  std::vector<Scope> open;
  {
    std::lock_guard<std::mutex> guard(lock);
    if (scopes.empty()) return {0, 0};
    open = scopes;
  }
  for (auto scope = open.rbegin(); scope != open.rend(); ++scope)
    if (scope->device == device && scope->wants(stream)) return scope->pool;
  return {0, 0};
}

// A fork has its parent's memory, but none of its device memory: it starts a recording of its own.
void after_fork() {
  new (&lock) std::mutex;
  live.clear();
  scopes.clear();
  recording.forget();
}

void taken(void* pointer, size_t bytes, DeviceIndex device, cudaStream_t stream, DeleterFnPtr deleter) {
  if (!pointer || !bytes) return;
  const MempoolId_t pool = pool_of(device, stream);
  std::lock_guard<std::mutex> guard(lock);
  if (sizes_are_kept) sizes[pointer] = bytes;
  if (File* file = recording.of(device)) {
    live[pointer] = {file->next_id, device, deleter};
    file->request(bytes, (uintptr_t)stream, pool);
  }
}

// PyTorch compares deleters: that of every block is this one.
void delete_block(void* pointer);

DataPtr watched(DataPtr block, size_t bytes, cudaStream_t stream) {
  const c10::Device device = block.device();
  const DeleterFnPtr deleter = block.get_deleter();
  void* pointer = block.release_context();
  taken(pointer, bytes, device.index(), stream, deleter);
  return {pointer, pointer, &delete_block, device};
}

void* watched(void* pointer, size_t bytes, cudaStream_t stream) {
  taken(pointer, bytes, c10::cuda::current_device(), stream, behind->raw_deleter());
  return pointer;
}

// What the process could have had: what it holds and what the driver has, or its fraction of the device.
// 0 where the allocator cannot say: cudaMallocAsync has no such figures.
size_t limit_of(DeviceIndex device) try {
  const auto [free, total] = behind->getMemoryInfo(device);
  const auto& held = behind->getDeviceStats(device).reserved_bytes;
  const size_t fraction = (size_t)(behind->getMemoryFraction(device) * (double)total);
  return std::min(fraction, free + (size_t)held[0].current);
} catch (const c10::Error&) {
  return 0;
}

template <typename Ask>
auto asked(size_t bytes, cudaStream_t stream, Ask ask) {
  try {
    return watched(ask(), bytes, stream);
  } catch (const c10::OutOfMemoryError&) {
    const DeviceIndex device = c10::cuda::current_device();
    const MempoolId_t pool = pool_of(device, stream);
    const size_t limit = limit_of(device);
    std::lock_guard<std::mutex> guard(lock);
    if (File* file = recording.of(device)) {
      const auto id = (unsigned long long)file->request(bytes, (uintptr_t)stream, pool);
      file->line("x %llu %zu\n", id, limit);
    }
    throw;
  }
}

// What gives it back.
DeleterFnPtr given_back(void* pointer) {
  std::lock_guard<std::mutex> guard(lock);
  auto found = live.find(pointer);
  if (found == live.end()) return behind->raw_deleter();
  Live block = found->second;
  live.erase(found);
  if (File* file = recording.of(block.device)) file->line("f %llu\n", (unsigned long long)block.id);
  return block.deleter;
}

void used(void* pointer, cudaStream_t stream) {
  std::lock_guard<std::mutex> guard(lock);
  auto found = live.find(pointer);
  if (found == live.end()) return;
  if (File* file = recording.of(found->second.device))
    file->line("r %llu %d\n", (unsigned long long)found->second.id, file->stream((uintptr_t)stream));
}

void flushed() {
  std::lock_guard<std::mutex> guard(lock);
  recording.everywhere("e\n");
}

void keep_sizes() {
  std::lock_guard<std::mutex> guard(lock);
  sizes_are_kept = true;
}

size_t last_size(void* pointer) {
  std::lock_guard<std::mutex> guard(lock);
  auto found = sizes.find(pointer);
  return found == sizes.end() ? 0 : found->second;
}

void delete_block(void* pointer) {
  if (pointer) given_back(pointer)(pointer);
}

cudaStream_t current_stream() {
  return c10::cuda::getCurrentCUDAStream().stream();
}

class Watcher final : public Forwarding {
 public:
  using Forwarding::Forwarding;

  DataPtr allocate(size_t bytes) override {
    return asked(bytes, current_stream(), [&] { return behind->allocate(bytes); });
  }
  DataPtr allocateWithAddress(size_t bytes, void* address) override {
    return asked(bytes, current_stream(), [&] { return behind->allocateWithAddress(bytes, address); });
  }
  void* raw_alloc(size_t bytes) override {
    return asked(bytes, current_stream(), [&] { return behind->raw_alloc(bytes); });
  }
  void* raw_alloc_with_stream(size_t bytes, cudaStream_t stream) override {
    return asked(bytes, stream, [&] { return behind->raw_alloc_with_stream(bytes, stream); });
  }
  void raw_delete(void* pointer) override {
    given_back(pointer);
    behind->raw_delete(pointer);
  }
  DeleterFnPtr raw_deleter() const override { return &delete_block; }
  void recordStream(const DataPtr& block, c10::cuda::CUDAStream stream) override {
    if (!block.get() || block.get_deleter() != &delete_block) return behind->recordStream(block, stream);
    used(block.get(), stream.stream());
    // The allocator behind knows its blocks by its own deleter.
    DataPtr lent(block.get(), block.get(), behind->raw_deleter(), block.device());
    behind->recordStream(lent, stream);
    lent.release_context();
  }
  void emptyCache(MempoolId_t pool) override {
    if (pool == MempoolId_t{0, 0}) {
      flushed();
    } else {
      std::lock_guard<std::mutex> guard(lock);
      recording.of_pool('e', pool);
    }
    behind->emptyCache(pool);
  }
  void beginAllocateToPool(DeviceIndex device, MempoolId_t pool, std::function<bool(cudaStream_t)> filter) override {
    keep_sizes();
    behind->beginAllocateToPool(device, pool, filter);
    std::lock_guard<std::mutex> guard(lock);
    scopes.push_back({device, pool, std::move(filter)});
  }
  void endAllocateToPool(DeviceIndex device, MempoolId_t pool) override {
    {
      std::lock_guard<std::mutex> guard(lock);
      auto ended = [&](const Scope& scope) { return scope.device == device && scope.pool == pool; };
      scopes.erase(std::remove_if(scopes.begin(), scopes.end(), ended), scopes.end());
    }
    behind->endAllocateToPool(device, pool);
  }
  void releasePool(DeviceIndex device, MempoolId_t pool) override {
    const bool is_last = behind->name() == "native" && behind->getPoolUseCount(device, pool) == 1;
    behind->releasePool(device, pool);
    std::lock_guard<std::mutex> guard(lock);
    if (is_last) recording.of_pool('q', pool);
  }
  native::CheckpointDelta setCheckpointPoolState(DeviceIndex device, std::shared_ptr<native::AllocatorState> state)
      override {
    native::CheckpointDelta delta = behind->setCheckpointPoolState(device, std::move(state));
    for (void* pointer : delta.ptrs_freed) given_back(pointer);
    for (DataPtr& block : delta.dataptrs_allocd) {
      const size_t bytes = last_size(block.get());
      block = watched(std::move(block), bytes, current_stream());
    }
    return delta;
  }
};

}  // namespace
}  // namespace watcher

using namespace watcher;

// Puts the watcher before PyTorch's allocator, whose devices must not be in use yet; recordings go into `folder`.
WATCHER_API void granule_watcher_start(const char* folder, const char* about) {
  if (behind) return;
  recording.begin(folder, about);
  pthread_atfork(nullptr, nullptr, after_fork);
  behind = native::get();
  auto* watcher = new Watcher(behind);
  native::allocator.store(watcher);
  // torch.accelerator asks by device type.
  constexpr uint8_t ABOVE_ALL = 255;
  c10::SetAllocator(c10::DeviceType::CUDA, watcher, ABOVE_ALL);
}

// An iteration begins.
WATCHER_API void granule_watcher_mark(uint64_t number) {
  std::lock_guard<std::mutex> guard(lock);
  recording.mark(number);
}

// What is freed from here on, as the interpreter goes, is not the program's doing.
WATCHER_API void granule_watcher_stop() {
  std::lock_guard<std::mutex> guard(lock);
  recording.end();
}
