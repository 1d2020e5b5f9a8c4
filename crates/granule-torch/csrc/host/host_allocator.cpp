// at::HostAllocator over the C ABI.
#include "host_allocator.h"

#include "host_history.h"
#include "host_side.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <functional>
#include <memory>
#include <mutex>
#include <utility>

namespace granule::host {
namespace {

std::atomic<granule_host_allocator*> made{nullptr};
// Held while it is made, and while its settings change.
std::mutex making;
// Scopes of private pools that are open. Without one no request depends on its stream.
std::atomic<int> open_scopes{0};

// The context of pinned memory is the id of its block, which is never 0.
void* to_context(uint64_t id) {
  return reinterpret_cast<void*>(id);
}

uint64_t to_id(void* context) {
  return reinterpret_cast<uint64_t>(context);
}

void delete_host_block(void* context) {
  warn(granule_host_free(peek(), to_id(context)));
}

using Filter = std::function<bool(c10::Stream)>;

// The library asks about the stream of the request, which is the calling thread's current one.
bool accepts(void* filter, uint64_t) noexcept {
  try {
    return (*static_cast<Filter*>(filter))(current_stream());
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
    auto* host = pinned();
    if (kCapturesOpenScopes && open_scopes.load(std::memory_order_relaxed) == 0) {
      check(granule_host_malloc(host, bytes, &ptr, &id));
    } else {
      const auto where = place();
      check(granule_host_malloc_for(host, bytes, where.device, where.stream, &ptr, &id));
    }
    return {ptr, to_context(id), &delete_host_block, c10::DeviceType::CPU};
  }

  void copy_data(void* dst, const void* src, std::size_t bytes) const override {
    std::memcpy(dst, src, bytes);
  }

  bool record_event(void* ptr, void* context, c10::Stream stream) override {
    bool known = false;
    if (auto* host = peek()) {
      check(granule_host_record_event(
          host, ptr, to_id(context), stream.device_index(), stream_handle(stream), &known));
    }
    return known;
  }

  void empty_cache() override {
    if (auto* host = peek()) {
      check(granule_host_empty_cache(host));
    }
  }

  at::HostStats get_stats() override {
    at::HostStats stats;
    auto* host = peek();
    if (host == nullptr) {
      return stats;
    }
    granule_host_stats_t from{};
    from.size = sizeof from;
    check(granule_host_stats(host, &from));
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
    check(granule_host_buckets(host, buckets.data(), buckets.size(), &count));
    count = std::min({count, uint64_t{buckets.size()}, uint64_t{stats.bucket_allocation.size()}});
    for (uint64_t i = 0; i < count; ++i) {
      stats.bucket_allocation[i] = buckets[i].active_requests.allocated;
    }
    return stats;
  }

  void begin_allocate_to_pool(c10::MempoolId_t pool, Filter filter) override {
    auto* host = pinned();
    granule_filter wanted{};
    wanted.size = sizeof wanted;
    wanted.kind = GRANULE_FILTER_CUSTOM;
    wanted.user = new Filter(std::move(filter));
    wanted.accepts = accepts;
    wanted.drop = drop;
    check(granule_host_pool_begin(host, place().device, {pool.first, pool.second}, &wanted));
    open_scopes.fetch_add(1, std::memory_order_relaxed);
  }

  void end_allocate_to_pool(c10::MempoolId_t pool) override {
    check_giving_up(granule_host_pool_end(pinned(), {pool.first, pool.second}));
    open_scopes.fetch_sub(1, std::memory_order_relaxed);
  }

  void release_pool(c10::MempoolId_t pool) override {
    check_giving_up(granule_host_pool_release(pinned(), {pool.first, pool.second}));
  }

#ifdef GRANULE_HOST_HISTORY
  void record_history(
      bool enabled, CreateContextFn recorder, size_t max_entries, RecordContext when, bool clear) override {
    std::unique_lock<std::mutex> guard(making);
    const auto wanted = want_host_history(enabled, recorder, max_entries, when, clear);
    auto* host = peek();
    // What is forgotten may be Python's, whose lock another thread may have that waits for ours.
    guard.unlock();
    if (host != nullptr) {
      check(granule_host_record_history(host, &wanted));
    }
  }

  bool is_history_enabled() const override {
    return is_host_history_enabled(peek());
  }

  std::vector<c10::CachingDeviceAllocator::HostSegmentInfo> get_segments() override {
    return host_segments(peek());
  }

  std::vector<c10::CachingDeviceAllocator::TraceEntry> get_traces() override {
    return host_traces(peek());
  }

  // Not in every release that has the others.
  void record_external_register(void* ptr, size_t bytes) {
    if (is_history_enabled()) {
      check(granule_host_note_registered(pinned(), ptr, bytes));
    }
  }

  void record_external_unregister(void* ptr) {
    if (auto* host = peek()) {
      check(granule_host_note_unregistered(host, ptr));
    }
  }
#endif

  void reset_accumulated_stats() override {
    if (auto* host = peek()) {
      check(granule_host_reset_accumulated_stats(host));
    }
  }

  void reset_peak_stats() override {
    if (auto* host = peek()) {
      check(granule_host_reset_peak_stats(host));
    }
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

C10_NOINLINE granule_host_allocator* make() {
  // Not under the lock: it may start the device's runtime.
  auto* over = engine();
  std::lock_guard<std::mutex> guard(making);
  if (auto* there = peek()) {
    return there;
  }
  granule_host_options options{};
  options.size = sizeof options;
  options.captures_are_told = kCapturesOpenScopes;
  granule_host_allocator* raw = nullptr;
  check(granule_host_create_with(over, &options, &raw));
  std::unique_ptr<granule_host_allocator, decltype(&granule_host_destroy)> fresh(raw, granule_host_destroy);
#ifdef GRANULE_HOST_HISTORY
  begin_host_history(raw);
#endif
  made.store(raw, std::memory_order_release);
  return fresh.release();
}

} // namespace

at::HostAllocator* allocator() {
  static auto* instance = new GranuleHostAllocator();
  return instance;
}

granule_host_allocator* peek() noexcept {
  return made.load(std::memory_order_acquire);
}

granule_host_allocator* pinned() {
  auto* host = peek();
  return C10_LIKELY(host != nullptr) ? host : make();
}

void follow_settings() {
  std::lock_guard<std::mutex> guard(making);
  if (auto* host = peek()) {
    check(granule_host_configure(host, engine(), ""));
  }
}

} // namespace granule::host
