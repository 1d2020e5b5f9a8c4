#include "host_history.h"

#ifdef GRANULE_HOST_HISTORY

#include <atomic>
#include <memory>

namespace granule::host {
namespace {

using c10::CachingDeviceAllocator::HostSegmentInfo;
using c10::CachingDeviceAllocator::TraceEntry;
using Context = std::shared_ptr<c10::GatheredContext>;

std::atomic<CreateContextFn> recorder_in_use{nullptr};

// What was asked for last.
granule_history wanted{};
std::atomic<bool> is_wanted{false};

// A context is kept as a shared pointer on the heap.
void* gather(void*) noexcept {
  try {
    const auto recorder = recorder_in_use.load(std::memory_order_acquire);
    auto context = recorder ? recorder() : nullptr;
    return context ? new Context(std::move(context)) : nullptr;
  } catch (const std::exception& error) {
    TORCH_WARN_ONCE("Granule: the recorder of call contexts failed: ", error.what());
    return nullptr;
  }
}

void release(void*, void* context) noexcept {
  delete static_cast<Context*>(context);
}

Context context_of(void* context) {
  return context ? *static_cast<Context*>(context) : nullptr;
}

struct Free {
  void operator()(granule_snapshot* snapshot) const {
    granule_snapshot_free(snapshot);
  }
};

std::unique_ptr<granule_snapshot, Free> take(granule_host_allocator* host, bool traces) {
  granule_snapshot* taken = nullptr;
  check(granule_host_snapshot_take(host, traces, &taken));
  return std::unique_ptr<granule_snapshot, Free>(taken);
}

} // namespace

granule_history want_host_history(
    bool enabled, CreateContextFn recorder, size_t max_entries, RecordContext when, bool clear) {
  wanted.size = sizeof wanted;
  wanted.enabled = enabled;
  wanted.clear = clear;
  wanted.contexts = static_cast<int32_t>(when);
  wanted.max_entries = max_entries;
  wanted.gather = gather;
  wanted.release = release;
  is_wanted.store(enabled);
  recorder_in_use.store(enabled ? recorder : nullptr, std::memory_order_release);
  return wanted;
}

void begin_host_history(granule_host_allocator* host) {
  if (is_wanted.load()) {
    check(granule_host_record_history(host, &wanted));
  }
}

bool is_host_history_enabled(granule_host_allocator* host) {
  bool on = is_wanted.load();
  if (host != nullptr) {
    check(granule_host_is_history_enabled(host, &on));
  }
  return on;
}

std::vector<HostSegmentInfo> host_segments(granule_host_allocator* host) {
  if (host == nullptr) {
    return {};
  }
  const auto taken = take(host, false);
  const granule_segment_info* from = nullptr;
  uint64_t count = 0;
  check(granule_snapshot_segments(taken.get(), &from, &count));
  std::vector<HostSegmentInfo> segments(count);
  for (uint64_t i = 0; i < count; ++i) {
    segments[i].address = from[i].addr;
    segments[i].size = from[i].total;
    segments[i].allocated = from[i].allocated != 0;
    segments[i].active = from[i].active != 0;
    segments[i].owner_private_pool_id = {from[i].pool.first, from[i].pool.second};
    segments[i].context_when_allocated = context_of(from[i].context);
  }
  return segments;
}

std::vector<TraceEntry> host_traces(granule_host_allocator* host) {
  if (host == nullptr) {
    return {};
  }
  const auto taken = take(host, true);
  const granule_trace_entry* from = nullptr;
  uint64_t count = 0;
  check(granule_snapshot_trace(taken.get(), 0, &from, &count));
  std::vector<TraceEntry> traces;
  traces.reserve(count);
  for (uint64_t i = 0; i < count; ++i) {
    auto& entry = traces.emplace_back(
        static_cast<TraceEntry::Action>(from[i].action), static_cast<c10::DeviceIndex>(from[i].device), from[i].addr,
        from[i].bytes, reinterpret_cast<decltype(TraceEntry::stream_)>(from[i].stream),
        c10::MempoolId_t{from[i].pool.first, from[i].pool.second}, 0, context_of(from[i].context),
        from[i].compile_context, from[i].user_metadata);
    entry.time_.t_ = from[i].time_us;
  }
  return traces;
}

} // namespace granule::host

#endif
