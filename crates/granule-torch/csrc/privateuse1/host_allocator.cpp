// at::HostAllocator (pinned memory) over the C ABI.
#include "allocators.h"
#include "check.h"
#include "host_history.h"

#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <functional>
#include <memory>

namespace granule::privateuse1 {
namespace {

// The context of pinned memory is the id of its block, which is never 0.
void* to_context(uint64_t id) {
  return reinterpret_cast<void*>(id);
}

uint64_t to_id(void* context) {
  return reinterpret_cast<uint64_t>(context);
}

void delete_host_block(void* context) {
  warn(granule_host_free(pinned_memory(), to_id(context)));
}

using Filter = std::function<bool(c10::Stream)>;

// The library asks about the stream of the request, which is the calling thread's current one.
bool accepts(void* filter, uint64_t) noexcept {
  try {
    const auto* guard = c10::impl::getDeviceGuardImpl(c10::DeviceType::PrivateUse1);
    return (*static_cast<Filter*>(filter))(guard->getStream(guard->getDevice()));
  } catch (const std::exception& error) {
    TORCH_WARN_ONCE("Granule: the filter of a pool failed: ", error.what());
    return false;
  }
}

void drop(void* filter) noexcept {
  delete static_cast<Filter*>(filter);
}

struct GranuleHostAllocator final : at::HostAllocator {
  c10::DataPtr allocate(size_t bytes) override {
    void* ptr = nullptr;
    uint64_t id = 0;
    const auto where = place();
    check(granule_host_malloc_for(pinned_memory(), bytes, where.device, where.stream, &ptr, &id));
    return {ptr, to_context(id), &delete_host_block, c10::DeviceType::CPU};
  }

  void copy_data(void* dst, const void* src, std::size_t bytes) const override {
    std::memcpy(dst, src, bytes);
  }

  bool record_event(void* ptr, void* context, c10::Stream stream) override {
    bool known = false;
    check(granule_host_record_event(
        pinned_memory(), ptr, to_id(context), stream.device_index(), stream_handle(stream), &known));
    return known;
  }

  void empty_cache() override {
    check(granule_host_empty_cache(pinned_memory()));
  }

  at::HostStats get_stats() override {
    granule_host_stats_t from{};
    from.size = sizeof from;
    check(granule_host_stats(pinned_memory(), &from));
    at::HostStats stats;
    stats.allocations = to_torch(from.allocations);
    stats.active_requests = to_torch(from.active_requests);
    stats.allocated_bytes = to_torch(from.allocated_bytes);
    stats.active_bytes = to_torch(from.active_bytes);
    stats.host_alloc_time = to_duration(from.host_alloc_time);
    stats.host_free_time = to_duration(from.host_free_time);
    stats.num_host_alloc = from.num_host_alloc;
    stats.num_host_free = from.num_host_free;
    std::array<granule_host_bucket, 64> buckets;
    uint64_t count = 0;
    check(granule_host_buckets(pinned_memory(), buckets.data(), buckets.size(), &count));
    count = std::min({count, uint64_t{buckets.size()}, uint64_t{stats.bucket_allocation.size()}});
    for (uint64_t i = 0; i < count; ++i) {
      stats.bucket_allocation[i] = buckets[i].active_requests.allocated;
    }
    return stats;
  }

  void begin_allocate_to_pool(c10::MempoolId_t pool, Filter filter) override {
    granule_filter wanted{};
    wanted.size = sizeof wanted;
    wanted.kind = GRANULE_FILTER_CUSTOM;
    wanted.user = new Filter(std::move(filter));
    wanted.accepts = accepts;
    wanted.drop = drop;
    check(granule_host_pool_begin(pinned_memory(), place().device, {pool.first, pool.second}, &wanted));
  }

  void end_allocate_to_pool(c10::MempoolId_t pool) override {
    check(granule_host_pool_end(pinned_memory(), {pool.first, pool.second}));
  }

  void release_pool(c10::MempoolId_t pool) override {
    check(granule_host_pool_release(pinned_memory(), {pool.first, pool.second}));
  }

  void record_history(
      bool enabled, CreateContextFn recorder, size_t max_entries, RecordContext when, bool clear) override {
    record_host_history(enabled, recorder, max_entries, when, clear);
  }

  bool is_history_enabled() const override {
    bool on = false;
    check(granule_host_is_history_enabled(pinned_memory(), &on));
    return on;
  }

  std::vector<c10::CachingDeviceAllocator::HostSegmentInfo> get_segments() override {
    return host_segments();
  }

  std::vector<c10::CachingDeviceAllocator::TraceEntry> get_traces() override {
    return host_traces();
  }

  void reset_accumulated_stats() override {
    check(granule_host_reset_accumulated_stats(pinned_memory()));
  }

  void reset_peak_stats() override {
    check(granule_host_reset_peak_stats(pinned_memory()));
  }

 private:
  template <typename Duration>
  static c10::CachingAllocator::DurationStat to_duration(const Duration& from) {
    c10::CachingAllocator::DurationStat stat;
    stat.total = from.total;
    stat.max = from.max;
    stat.min = from.min;
    stat.count = from.count;
    return stat;
  }
};

} // namespace

granule_host_allocator* pinned_memory() {
  // Made at first use, as the allocator that it belongs to; a failed attempt is made again.
  static auto* made = [] {
    granule_host_allocator* made = nullptr;
    check(granule_host_create(allocator(), &made));
    return made;
  }();
  return made;
}

at::HostAllocator* host_allocator() {
  static auto* instance = new GranuleHostAllocator();
  return instance;
}

} // namespace granule::privateuse1
