#include "host_history.h"

#include "check.h"
#include "privateuse1.h"

#include <atomic>
#include <memory>

namespace granule::privateuse1 {
namespace {

using c10::CachingDeviceAllocator::HostSegmentInfo;
using c10::CachingDeviceAllocator::TraceEntry;
using Context = std::shared_ptr<c10::GatheredContext>;

std::atomic<CreateContextFn> recorder_in_use{nullptr};

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

std::unique_ptr<granule_snapshot, Free> take(bool traces) {
  granule_snapshot* taken = nullptr;
  check(granule_host_snapshot_take(pinned_memory(), traces, &taken));
  return std::unique_ptr<granule_snapshot, Free>(taken);
}

} // namespace

void record_host_history(bool enabled, CreateContextFn recorder, size_t max_entries, RecordContext when, bool clear) {
  granule_history wanted{};
  wanted.size = sizeof wanted;
  wanted.enabled = enabled;
  wanted.clear = clear;
  wanted.contexts = static_cast<int32_t>(when);
  wanted.max_entries = max_entries;
  wanted.gather = gather;
  wanted.release = release;
  recorder_in_use.store(enabled ? recorder : nullptr, std::memory_order_release);
  check(granule_host_record_history(pinned_memory(), &wanted));
}

std::vector<HostSegmentInfo> host_segments() {
  const auto taken = take(false);
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

std::vector<TraceEntry> host_traces() {
  const auto taken = take(true);
  const granule_trace_entry* from = nullptr;
  uint64_t count = 0;
  check(granule_snapshot_trace(taken.get(), 0, &from, &count));
  std::vector<TraceEntry> traces;
  traces.reserve(count);
  for (uint64_t i = 0; i < count; ++i) {
    auto& entry = traces.emplace_back(
        static_cast<TraceEntry::Action>(from[i].action), static_cast<c10::DeviceIndex>(from[i].device), from[i].addr,
        from[i].bytes, reinterpret_cast<void*>(from[i].stream),
        c10::MempoolId_t{from[i].pool.first, from[i].pool.second}, 0, context_of(from[i].context),
        from[i].compile_context, from[i].user_metadata);
    entry.time_.t_ = from[i].time_us;
  }
  return traces;
}

} // namespace granule::privateuse1
