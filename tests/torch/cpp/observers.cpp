// What of PyTorch's allocator interface only C++ can call, for tests: as plain functions for ctypes.
#include <c10/cuda/CUDACachingAllocator.h>

#include <atomic>
#include <cstdint>
#include <mutex>
#include <string>

namespace native = c10::cuda::CUDACachingAllocator;

namespace {
std::mutex lock;
std::string actions;
std::atomic<int64_t> refused{0};
std::atomic<int64_t> refused_bytes{0};
std::atomic<int64_t> refused_held{0};
std::atomic<int64_t> refused_total{0};
} // namespace

extern "C" {

// Every entry of every device's trace, from now on, as a letter.
void watch_traces() {
  native::attachAllocatorTraceTracker([](const native::TraceEntry& entry) {
    std::lock_guard<std::mutex> guard(lock);
    static const char letters[] = "afcSFMUsox";
    actions += letters[static_cast<int>(entry.action_)];
  });
}

// What was seen since the last call; the text lives until the next one.
const char* watched() {
  static std::string shown;
  std::lock_guard<std::mutex> guard(lock);
  shown = std::move(actions);
  actions.clear();
  return shown.c_str();
}

// Counts the requests that are refused before the driver is asked.
void watch_refusals() {
  native::attachOomRejectionObserver([](int64_t, size_t bytes, size_t held, size_t total) {
    refused_bytes = static_cast<int64_t>(bytes);
    refused_held = static_cast<int64_t>(held);
    refused_total = static_cast<int64_t>(total);
    ++refused;
  });
}

int64_t refusals() { return refused; }

// Of the last one: what was asked for, what the allocator held, and the device's memory.
void last_refusal(int64_t* figures) {
  figures[0] = refused_bytes;
  figures[1] = refused_held;
  figures[2] = refused_total;
}

// Mapped bytes of the growable segments of streams other than the default one; -1 where there are no more.
int64_t growable_segment(int device, size_t index, bool* small) {
  auto sizes = native::getExpandableSegmentSizes(static_cast<c10::DeviceIndex>(device));
  if (index >= sizes.size()) return -1;
  *small = sizes[index].is_small_pool;
  return static_cast<int64_t>(sizes[index].total_size);
}

// Where the segment of a block begins, and how long it is.
void* base_of(void* block, size_t* bytes) { return native::getBaseAllocation(block, bytes); }

// A size, as the interface's own function for raw memory gives it and takes it back: a caller in C++.
bool allocate_in_cpp(size_t bytes) {
  void* block = native::raw_alloc(bytes);
  bool good = block != nullptr;
  native::raw_delete(block);
  return good;
}
}
