// c10::DeviceAllocator over the C ABI.
#include "allocators.h"
#include "check.h"

#include <vector>

namespace granule::privateuse1 {
namespace {

using c10::CachingAllocator::StatArray;
using c10::CachingDeviceAllocator::DeviceStats;

StatArray to_torch(const granule_stat_array& stats) {
  return {privateuse1::to_torch(stats.all), privateuse1::to_torch(stats.small_pool),
          privateuse1::to_torch(stats.large_pool)};
}

granule_device_stats stats_of(c10::DeviceIndex device) {
  granule_device_stats stats{};
  stats.size = sizeof stats;
  check(granule_stats(allocator(), device, &stats));
  return stats;
}

c10::Device on(c10::DeviceIndex index) {
  return {c10::DeviceType::PrivateUse1, index};
}

// Tells the profiler that `sign * bytes of the block` were taken.
void report(void* ptr, int64_t sign) {
  granule_pointer_info_t info{};
  info.size = sizeof info;
  uint64_t bytes = 0;
  check(granule_pointer_info(allocator(), ptr, &info));
  check(granule_block_size(allocator(), ptr, &bytes));
  const auto device = static_cast<c10::DeviceIndex>(info.device);
  const auto change = sign * static_cast<int64_t>(bytes);
  // The free is told before it happens, while the block is known.
  const auto later = sign < 0 ? change : 0;
  const auto stats = stats_of(device);
  c10::reportMemoryUsageToProfiler(
      ptr, change, stats.allocated_bytes.all.current + later, stats.reserved_bytes.all.current, on(device));
}

void delete_block(void* ptr) {
  if (C10_UNLIKELY(c10::memoryProfilingEnabled()) && ptr != nullptr) {
    try {
      report(ptr, -1);
    } catch (const c10::Error&) {
      // The free says what is wrong.
    }
  }
  warn(granule_free(allocator(), ptr));
}

struct GranuleDeviceAllocator final : c10::DeviceAllocator {
  c10::DataPtr allocate(size_t bytes) override {
    const auto where = place();
    void* ptr = nullptr;
    const auto status = granule_malloc(allocator(), bytes, where.device, where.stream, &ptr);
    if (C10_UNLIKELY(status != GRANULE_OK)) {
      refuse(status, bytes, where.device);
    }
    c10::DataPtr memory(ptr, ptr, &delete_block, on(where.device));
    if (C10_UNLIKELY(c10::memoryProfilingEnabled()) && ptr != nullptr) {
      report(ptr, 1);
    }
    return memory;
  }

  // Always the same function, and data is context: raw_allocate and raw_deallocate rely on it.
  c10::DeleterFnPtr raw_deleter() const override {
    return &delete_block;
  }

  // Ordered after what the current stream of the target's device was given, and done when this returns.
  void copy_data(void* dst, const void* src, std::size_t bytes) const override {
    if (bytes == 0) {
      return;
    }
    granule_pointer_info_t info{};
    info.size = sizeof info;
    check(granule_pointer_info(allocator(), dst, &info));
    const auto where = place_on(static_cast<c10::DeviceIndex>(info.device));
    check(granule_copy_on_stream(
        allocator(), dst, src, bytes, GRANULE_COPY_DEVICE_TO_DEVICE, where.device, where.stream));
    check(granule_stream_synchronize(allocator(), where.device, where.stream));
  }

  bool initialized() override {
    return is_live();
  }

  void emptyCache(c10::MempoolId_t pool) override {
    if (pool.first == 0 && pool.second == 0) {
      check(granule_empty_cache(allocator()));
    } else {
      check(granule_empty_pool(allocator(), {pool.first, pool.second}));
    }
  }

  void recordStream(const c10::DataPtr& memory, c10::Stream stream) override {
    if (!memory.get() || memory.get_deleter() != &delete_block ||
        stream.device_type() != c10::DeviceType::PrivateUse1) {
      return;
    }
    check(granule_record_stream(allocator(), memory.get(), stream.device_index(), stream_handle(stream)));
  }

  DeviceStats getDeviceStats(c10::DeviceIndex device) override {
    const auto from = stats_of(device);
    DeviceStats stats;
    stats.allocation = to_torch(from.allocation);
    stats.segment = to_torch(from.segment);
    stats.active = to_torch(from.active);
    stats.inactive_split = to_torch(from.inactive_split);
    stats.allocated_bytes = to_torch(from.allocated_bytes);
    stats.reserved_bytes = to_torch(from.reserved_bytes);
    stats.active_bytes = to_torch(from.active_bytes);
    stats.inactive_split_bytes = to_torch(from.inactive_split_bytes);
    stats.requested_bytes = to_torch(from.requested_bytes);
    stats.oversize_allocations = privateuse1::to_torch(from.oversize_allocations);
    stats.oversize_segments = privateuse1::to_torch(from.oversize_segments);
    stats.num_alloc_retries = from.num_alloc_retries;
    stats.num_ooms = from.num_ooms;
    stats.num_sync_all_streams = from.num_sync_all_streams;
    stats.num_device_alloc = from.num_device_alloc;
    stats.num_device_free = from.num_device_free;
    stats.num_oom_rejections = from.num_oom_rejections;
    stats.max_split_size = from.max_split_size;
    for (const auto& pool : pools_of(device)) {
      stats.reserved_bytes_by_private_pools[{pool.pool.first, pool.pool.second}] = to_torch(pool.reserved_bytes);
    }
    return stats;
  }

  void resetAccumulatedStats(c10::DeviceIndex device) override {
    check(granule_reset_accumulated_stats(allocator(), device));
  }

  void resetPeakStats(c10::DeviceIndex device) override {
    check(granule_reset_peak_stats(allocator(), device));
  }

  std::pair<size_t, size_t> getMemoryInfo(c10::DeviceIndex device) override {
    uint64_t free = 0;
    uint64_t total = 0;
    check(granule_device_memory_info(allocator(), device, &free, &total));
    return {free, total};
  }

 private:
  [[noreturn]] static void refuse(granule_status status, size_t bytes, c10::DeviceIndex device) {
    // The text is kept: the questions below may fail and overwrite it.
    const std::string text = granule_last_error_for_pytorch();
    if (status == GRANULE_OUT_OF_MEMORY || status == GRANULE_REJECTED) {
      if (c10::memoryProfilingEnabled()) {
        const auto stats = stats_of(device);
        c10::reportOutOfMemoryToProfiler(
            static_cast<int64_t>(bytes), stats.allocated_bytes.all.current, stats.reserved_bytes.all.current,
            on(device));
      }
      TORCH_CHECK_WITH(OutOfMemoryError, false, text);
    }
    check(status);
    TORCH_INTERNAL_ASSERT(false, text);
  }

  // Pools come and go between the two calls, so the second answer may need more room than the first.
  static std::vector<granule_pool_reserved> pools_of(c10::DeviceIndex device) {
    std::vector<granule_pool_reserved> pools;
    for (uint64_t count = 0;; pools.resize(count)) {
      check(granule_pools_reserved(allocator(), device, pools.data(), pools.size(), &count));
      if (count <= pools.size()) {
        pools.resize(count);
        return pools;
      }
    }
  }
};

} // namespace

c10::DeviceAllocator* device_allocator() {
  static auto* instance = new GranuleDeviceAllocator();
  return instance;
}

void record_on_stream(const c10::DataPtr& memory, c10::Stream stream) {
  device_allocator()->recordStream(memory, stream);
}

void retire_stream(c10::Stream stream) {
  check(granule_retire_stream(allocator(), stream.device_index(), stream_handle(stream)));
}

} // namespace granule::privateuse1
